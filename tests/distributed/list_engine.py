"""What an engine must do, in its plainest form; the others are compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from uqeval._check import Progress
from uqeval.distributed.engines.protocol import (
    Finish,
    Folded,
    FoldFunction,
    Input,
    Merge,
    Part,
    Place,
    SampleFunction,
    Shuffled,
    State,
)


@dataclass
class ListEngine:
    """Tables in a list, everything here and now.

    It shares no code with the other engines, which are compared with it.
    """

    tables: list[pa.Table]
    progress: Progress | None = None
    piece: int = 1 << 16  # rows given to a function at a time
    name: str = "list"
    task_rows: int = 1 << 22
    bucket_rows: int = 1 << 22
    grid_bytes: int = 1 << 28
    sampled_rows: int = 0
    closed: bool = field(default=False, init=False)

    def schema(self) -> pa.Schema:
        return self.tables[0].schema

    def parts(self) -> list[Part]:
        return [Part(f"partition {k}", len(table)) for k, table in enumerate(self.tables)]

    def _select(self, table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
        return table if columns is None else table.select(list(columns))

    def _pieces(self, tables: Sequence[pa.Table], columns: Sequence[str] | None) -> list[tuple[Place, pa.Table]]:
        return [
            (Place(k, at), self._select(table, columns).slice(at, self.piece))
            for k, table in enumerate(tables)
            for at in range(0, len(table), self.piece)
        ]

    def sample(self, function: SampleFunction, rows: int) -> pa.Table:
        total = sum(map(len, self.tables))
        self.sampled_rows += total
        step = max(1, total // max(rows, 1))
        tables = [self._select(table, function.columns) for table in self.tables]
        return pa.concat_tables([function(table.take(np.arange(0, len(table), step))) for table in tables])

    def fold(self, stage: str, function: FoldFunction, merge: Merge) -> Folded:
        state: State | None = None
        for place, piece in self._pieces(self.tables, function.columns):
            own = function(piece, place)
            state = own if state is None else merge(state, own)
        if state is None:
            state = function(self._select(self.tables[0], function.columns).slice(0, 0), Place(0, 0))
        return Folded(state, [len(table) for table in self.tables])

    def shuffle(self, stage: str, inputs: Sequence[Input], buckets: int, finish: Finish) -> Shuffled:
        into: dict[int, list[pa.Table]] = {}
        moved = size = 0
        for given in inputs:
            tables = self.tables if given.rows is None else given.rows
            for _, piece in self._pieces(tables, given.route.columns):
                table, bucket = given.route(piece)
                moved, size = moved + len(table), size + table.nbytes
                for code in np.unique(bucket):
                    into.setdefault(int(code), []).append(table.take(np.flatnonzero(bucket == code)))
        whole = {code: pa.concat_tables(tables) for code, tables in into.items()}
        done = [finish(code, table) for code, table in whole.items()]
        return Shuffled(
            states=[state for state, _ in done],
            carried=[table for _, table in done if table is not None],
            rows=[len(table) for table in self.tables] if any(g.rows is None for g in inputs) else None,
            moved_rows=moved,
            moved_bytes=size,
            largest=max(map(len, whole.values()), default=0),
        )

    def release(self, carried: Any) -> None:
        carried.clear()

    def close(self) -> None:
        self.closed = True
