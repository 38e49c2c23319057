"""Members of a zip archive, those that are packed by Zstandard too: Python reads these only from 3.14 on."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

from uqeval._errors import InputError
from uqeval.inputs.logs.answers import parsed
from uqeval.inputs.paths import refuse_bomb

_ZSTANDARD = 93  # the method's number in the ZIP specification
_LOCAL_HEADER = 30  # bytes, before the name and the extra field


def members_json(path: str, names: Iterable[str]) -> Iterator[Any]:
    """Members, parsed as JSON one after the other; the archive is opened once, for it may hold very many."""
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        for name in names:
            info = archive.getinfo(name)
            refuse_bomb(info.file_size, os.path.getsize(path))
            content = _unpacked(file, info) if info.compress_type == _ZSTANDARD else archive.read(info)
            yield parsed(io.BytesIO(content), f"{path}: {name}")


def _unpacked(file: io.BufferedReader, info: zipfile.ZipInfo) -> bytes:
    """A member that is packed by Zstandard, in one frame or several."""
    import pyarrow as pa

    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    # The lengths of name and extra field may differ from those that the archive's directory holds.
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), io.SEEK_CUR)
    packed = file.read(info.compress_size)
    with pa.input_stream(pa.BufferReader(packed), compression="zstd") as stream:
        content = bytes(stream.read(info.file_size + 1))
    if len(content) > info.file_size:
        raise InputError(f"is corrupt: {info.filename} unpacks to more than the {info.file_size:,} bytes that it says.")
    return content
