"""Where a page comes from: the files of its rows with their hashes, the command, the date."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from uqeval.inputs.origin import MOST_FILES, hashed, made_at
from uqeval.inputs.paths import expand
from uqeval.pages.words import size

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Origin:
    """Begun with the page, so that files are read while it is made."""

    def __init__(self, files: Files | None, command: str | None) -> None:
        self._paths = [] if not files else expand(files)
        self._command = command
        pool = ThreadPoolExecutor(1, "uqeval-files")
        self._files: Future[list[tuple[str, str]]] = pool.submit(_in_words, self._paths)
        pool.shutdown(wait=False)

    def found(self) -> dict[str, Any]:
        """Date, command, and each file with its hash."""
        left = len(self._paths) - MOST_FILES
        return {"made": made_at(), "command": self._command, "files": self._files.result(), "left": max(0, left)}


def _in_words(paths: list[str]) -> list[tuple[str, str]]:
    found = []
    for path, count, digest in hashed(paths):
        if digest is None:
            total = sum(Path(one).stat().st_size for one in paths)
            found.append((path, f"{size(count)}; not hashed, since all files together have {size(total)}"))
        else:
            found.append((path, f"{size(count)}, SHA-256 {digest}"))
    return found
