"""Finished cells of a study on disk: a killed run goes on where it stopped, a finished one is read back."""

from __future__ import annotations

import hashlib
import json
import signal
import sqlite3
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from uqeval._errors import InputError

Cell = TypeVar("Cell", bound=Hashable)


def cell_key(configuration: dict[str, Any]) -> str:
    """A hash of everything that a cell's result depends on."""
    text = json.dumps(configuration, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """One row per finished cell in an SQLite file, keyed by its configuration; a row is there whole or not at all.

    Without a folder it lives in memory.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        path = Path(folder) / "store.sqlite" if folder is not None else None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(path or ":memory:", timeout=60)
            self._db.execute("CREATE TABLE IF NOT EXISTS cells (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self._db.commit()
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{path} is not a store of results ({error}). Move it away or pass another folder."
            ) from None

    def __contains__(self, key: str) -> bool:
        return self._db.execute("SELECT 1 FROM cells WHERE key = ?", (key,)).fetchone() is not None

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

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()


def processes(jobs: int) -> Executor:
    """Workers for cells that keep a core busy."""
    # Ctrl-C is for the parent, which then lets its workers finish.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=signal.signal, initargs=ignore)


def run_cells(
    store: Store,
    keys: Mapping[Cell, str],
    work: Callable[[Cell], Any],
    pool: Callable[[int], Executor],
    jobs: int,
    tell: Callable[[int, int], object],
) -> Iterator[tuple[Cell, Any]]:
    """Cells with their values: those of an earlier run first, the others as they finish, each stored at once.

    `tell` is told how many of all are done, first of all how many were there. Where `work` returns an exception instead
    of raising it, that is the value, and nothing is stored.
    """
    done = {cell: store.get(key) for cell, key in keys.items() if key in store}
    tell(len(done), len(keys))
    yield from done.items()
    waiting = [cell for cell in keys if cell not in done]
    for count, (cell, value) in enumerate(_finished(work, waiting, pool, jobs), start=len(done) + 1):
        if not isinstance(value, Exception):
            store.put(keys[cell], value)
            value = store.get(keys[cell])  # the same whether it was there or not: JSON has no tuples
        tell(count, len(keys))
        yield cell, value


def _finished(
    work: Callable[[Cell], Any], cells: list[Cell], pool: Callable[[int], Executor], jobs: int
) -> Iterator[tuple[Cell, Any]]:
    if jobs <= 1 or len(cells) <= 1:
        for cell in cells:
            yield cell, work(cell)
        return
    with pool(min(jobs, len(cells))) as executor:
        running = {executor.submit(work, cell): cell for cell in cells}
        try:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:  # Ctrl-C or an error: what runs is finished, what waits is not begun
            executor.shutdown(wait=True, cancel_futures=True)
