"""A file that only grows: an entry is on the disk before anybody is told of it, and is there whole or not at all.

A line is an entry and the sum of all lines up to it. A process that is killed while it writes leaves a line without an
end, which nobody was told of: the next one cuts it off. Who may write at all is for the lock of the caller.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from uqeval._errors import InputError
from uqeval._result import strict

_SUM = b', "sum": "'


class Journal:
    """The entries of a file, in order; `name` is what the user calls it."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name, self.entries = path, name, list[dict[str, Any]]()
        self._sum, self._end = "", 0
        try:
            text = path.read_bytes() if path.exists() else b""
        except OSError as problem:
            raise InputError(f"{name}: {path} cannot be read ({problem.strerror}).") from None
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            if not line.endswith(b"\n"):
                break  # whoever wrote it was stopped
            body, _, written = line.rstrip(b"\n").rpartition(_SUM)
            self._sum = _summed(self._sum, body)
            if written != f'{self._sum}"}}'.encode():
                raise InputError(
                    f"{name}: line {number} of {path} is not as it was written (changed by hand, or a broken disk). "
                    f"Take the folder from a backup, or start a new one."
                )
            self.entries.append(json.loads(body + b"}"))
            self._end += len(line)

    def append(self, entry: dict[str, Any]) -> dict[str, Any]:
        """The entry as it will be read, once it is on the disk."""
        text = json.dumps(strict(entry), ensure_ascii=False, allow_nan=False)
        body = text.encode("utf-8", "surrogatepass").removesuffix(b"}")
        found = _summed(self._sum, body)
        new = not self.path.exists()
        try:
            with self.path.open("r+b" if not new else "wb") as file:
                file.truncate(self._end)
                file.seek(self._end)
                file.write(body + _SUM + f'{found}"}}\n'.encode())
                file.flush()
                os.fsync(file.fileno())
                end = file.tell()
            if new:
                _keep_name(self.path.parent)
        except OSError as problem:
            raise InputError(f"{self.name}: {self.path} cannot be written ({problem.strerror}).") from None
        self._sum, self._end = found, end
        self.entries.append(json.loads(text))
        return self.entries[-1]


def _summed(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + body).hexdigest()[:16]


def _keep_name(folder: Path) -> None:
    """A new file's name is on the disk too, where a system can say so."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
