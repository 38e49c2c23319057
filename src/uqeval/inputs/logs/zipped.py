"""Members of a zip archive, those that are packed by Zstandard too: Python reads these only from 3.14 on."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from uqeval.inputs.logs.answers import parsed

_ZSTANDARD = 93  # the method's number in the ZIP specification
_LOCAL_HEADER = 30  # bytes, before the name and the extra field


def member_json(path: str, name: str) -> Any:
    """A member, parsed as JSON."""
    return parsed(io.BytesIO(_unpacked(path, name)), f"{path}: {name}")


def _unpacked(path: str, name: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
        if info.compress_type != _ZSTANDARD:
            return archive.read(info)
    import pyarrow as pa

    with open(path, "rb") as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
        # The lengths of name and extra field may differ from those that the archive's directory holds.
        file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), io.SEEK_CUR)
        packed = file.read(info.compress_size)
    with pa.input_stream(pa.BufferReader(packed), compression="zstd") as stream:
        return bytes(stream.read())
