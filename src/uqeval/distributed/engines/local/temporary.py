"""Temporary rows on disk: a file without a name, which the system frees whatever happens to the process."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from uqeval._errors import InputError


class TemporaryFile:
    """Bytes, added at the end and read from any place; safe between threads."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder or tempfile.gettempdir()
        self._lock = threading.Lock()
        self.nbytes = 0
        with self._writing():
            self._file = tempfile.TemporaryFile(dir=folder, prefix="uqeval-", buffering=0)  # noqa: SIM115

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"Temporary rows could not be written to {self._folder} ({error.strerror or error}). "
                f"Free some space, or name a folder on a larger disk with spill=."
            ) from None

    def append(self, data: memoryview) -> int:
        """Adds bytes; where they begin."""
        with self._lock:
            start = at = self.nbytes
            self.nbytes += len(data)
        with self._writing():
            while len(data):
                done = self._write_at(data, at)
                data, at = data[done:], at + done
        return start

    def read(self, into: memoryview, start: int) -> None:
        """Fills a buffer with the bytes from there on."""
        while len(into):
            done = self._read_at(into, start)
            if not done:
                raise InputError("Temporary rows are gone. Was the folder emptied while uqeval ran?")
            into, start = into[done:], start + done

    def _write_at(self, data: memoryview, at: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(self._file.fileno(), data, at)
        with self._lock:  # Windows
            self._file.seek(at)
            return int(self._file.write(data) or 0)

    def _read_at(self, into: memoryview, at: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [into], at)
        with self._lock:
            self._file.seek(at)
            return int(self._file.readinto(into) or 0)

    def close(self) -> None:
        """Frees the disk."""
        self._file.close()
