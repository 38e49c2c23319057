"""Rows that are no files of this machine: standard input, s3://, gs://, https:// and the like, brought into a
temporary folder that goes when Python ends. Arrow's file systems first, fsspec for what they do not know.
"""

from __future__ import annotations

import atexit
import fnmatch
import re
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, Any

from uqeval._errors import InputError, MissingExtra, reason_of

_ADDRESS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://.+")
_OF_ARROW = ("s3", "gs", "gcs", "hdfs", "abfs", "abfss", "file")
# How a file of each format begins; CSV has no mark of its own.
_MARKS = ((b"PAR1", ".parquet"), (b"ARROW1", ".arrow"), (b"PK\x03\x04", ".npz"))
_PACKED = ((b"\x1f\x8b", "gzip", ".gz"), (b"\x28\xb5\x2f\xfd", "zstd", ".zst"))


def is_elsewhere(name: str) -> bool:
    """Whether a name is standard input or an address."""
    return name == "-" or _ADDRESS.fullmatch(name) is not None


def fetched(name: str) -> list[str]:
    """Local copies of what a name stands for; an address may be a pattern."""
    if name == "-":
        return [_standard_input()]
    scheme = name.split("://")[0].lower()
    try:
        return _by_arrow(name) if scheme in _OF_ARROW else _by_fsspec(name, scheme)
    except (InputError, MissingExtra):
        raise
    except ImportError as error:
        raise MissingExtra(
            f"Reading {scheme}:// ({reason_of(error)})", "fsspec and a package for it", "remote"
        ) from None
    except Exception as error:  # every file system has kinds of its own
        raise InputError(
            f"{name}: cannot be fetched ({reason_of(error)}). Check the address, and who may read it."
        ) from None


def _by_arrow(name: str) -> list[str]:
    from pyarrow import fs

    head, _, pattern = name.rpartition("/")
    magic = any(star in pattern for star in "*?[")
    system, path = fs.FileSystem.from_uri(head if magic else name)
    paths = [path]
    if magic:
        there = system.get_file_info(fs.FileSelector(path))
        paths = sorted(info.path for info in there if info.is_file and fnmatch.fnmatch(info.base_name, pattern))
    if not paths:
        raise InputError(f"{name}: no file matches this pattern.")
    return [_copied(system.open_input_stream(one, compression=None), one) for one in paths]


def _by_fsspec(name: str, scheme: str) -> list[str]:
    try:
        import fsspec
    except ImportError:
        raise MissingExtra(f"Reading {scheme}://", "fsspec", "remote") from None
    files = fsspec.open_files(name, "rb")
    if not files:
        raise InputError(f"{name}: no file matches this pattern.")
    found = []
    for file in files:
        with file as source:
            found.append(_copied(source, file.path))
    return found


def _copied(source: Any, path: str) -> str:
    target = Path(tempfile.mkdtemp(dir=_folder())) / (
        re.split(r"[?#]", path)[0].rstrip("/").rsplit("/", 1)[-1] or "file"
    )
    with source, open(target, "wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    return str(target)


@cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="uqeval-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache  # it can be read once
def _standard_input() -> str:
    stream: IO[bytes] = sys.stdin.buffer
    if sys.stdin.isatty():
        raise InputError("-: reads standard input, where nothing is piped in. As in: cat preds.csv | uqeval evaluate -")
    target = Path(_folder()) / "stdin"
    with open(target, "wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    with open(target, "rb") as file:
        head = file.read(1 << 12)
    if not head:
        raise InputError("-: standard input is empty. Did the command before the pipe fail?")
    return str(target.rename(target.with_name(f"stdin{_extension(head)}")))


def _extension(head: bytes) -> str:
    """The format by its first bytes."""
    for mark, extension in _MARKS:
        if head.startswith(mark):
            return extension
    for mark, codec, extension in _PACKED:
        if head.startswith(mark):
            import pyarrow as pa

            with pa.input_stream(pa.BufferReader(head), compression=codec) as stream:
                return _extension(stream.read(256)) + extension
    text = head.lstrip(b"\xef\xbb\xbf \r\n")
    if text.startswith(b"{"):
        return ".jsonl"
    line = text.split(b"\n")[0]
    return ".tsv" if b"\t" in line and b"," not in line else ".csv"
