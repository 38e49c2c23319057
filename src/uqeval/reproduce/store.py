"""Finished cells of a study on disk: a killed run goes on where it stopped, a finished one is read back."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from uqeval._errors import InputError

__all__ = ["Store", "cell_key"]


def cell_key(configuration: dict[str, Any]) -> str:
    """A hash of everything that a cell's result depends on."""
    text = json.dumps(configuration, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """One row per finished cell in an SQLite file, keyed by its configuration; a row is there whole or not at all."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(self.path, timeout=60)
            self._db.execute("CREATE TABLE IF NOT EXISTS cells (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self._db.commit()
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self.path} is not a store of results ({error}). Move it away or pass another folder."
            ) from None

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Those that are not finished, in their order."""
        known = {key for (key,) in self._db.execute("SELECT key FROM cells")}
        return [key for key in keys if key not in known]

    def put(self, key: str, value: Any) -> None:
        """Stores a finished cell at once. Floats are kept to the last bit."""
        with self._db:
            self._db.execute("INSERT OR REPLACE INTO cells VALUES (?, ?)", (key, json.dumps(value)))

    def get(self, key: str) -> Any:
        """The value of a finished cell."""
        row = self._db.execute("SELECT value FROM cells WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return json.loads(row[0])

    def close(self) -> None:
        """Releases the file."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
