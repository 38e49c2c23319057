"""Where a page comes from: the files of its rows with their hashes, the command, the date."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from uqeval.inputs.paths import expand
from uqeval.pages.words import size

_MOST_BYTES = 4 * 2**30  # of all files: hashing them takes some ten seconds
_MOST_FILES = 50

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Origin:
    """Begun with the page, so that files are read while it is made."""

    def __init__(self, files: Files | None, command: str | None) -> None:
        self._paths = [] if not files else expand(files)
        self._command = command
        pool = ThreadPoolExecutor(1, "uqeval-files")
        self._files: Future[list[tuple[str, str]]] = pool.submit(_hashed, self._paths)
        pool.shutdown(wait=False)

    def found(self) -> dict[str, Any]:
        """Date, command, and each file with its hash."""
        left = len(self._paths) - _MOST_FILES
        return {"made": _now(), "command": self._command, "files": self._files.result(), "left": max(0, left)}


def _now() -> str:
    """Universal time; the date of the sources where a build wants the same page again (reproducible-builds.org)."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    at = datetime.fromtimestamp(int(fixed), UTC) if fixed.isdecimal() else datetime.now(UTC)
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _hashed(paths: list[str]) -> list[tuple[str, str]]:
    total = sum(Path(path).stat().st_size for path in paths)
    found = []
    for path in paths[:_MOST_FILES]:
        bytes_ = Path(path).stat().st_size
        if total > _MOST_BYTES:
            found.append((path, f"{size(bytes_)}; not hashed, since all files together have {size(total)}"))
            continue
        with open(path, "rb") as file:
            found.append((path, f"{size(bytes_)}, SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"))
    return found
