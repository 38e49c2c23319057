"""What an engine must offer: sample rows, fold over rows, shuffle rows into buckets and finish each bucket.

The plan (`plan`) knows the algorithm and nothing of engines; an engine moves rows and knows no metric. Everything that
an engine gets (functions, states, tables) can be pickled and sent to another process.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Progress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Cancelled",
    "Engine",
    "Finished",
    "Folded",
    "Input",
    "ListEngine",
    "Part",
    "Place",
    "Routed",
    "Shuffled",
    "State",
    "pack",
    "unpack",
]

# Small and mergeable: NumPy arrays (no objects) and JSON values (integers of any size, floats, texts, lists).
State = dict[str, Any]


class Cancelled(Exception):
    """The run was cancelled; nothing is left behind."""


@dataclass(frozen=True)
class Part:
    """A file or partition of the source; `rows` is None where only reading tells."""

    name: str
    rows: int | None = None


class Place(NamedTuple):
    """Where a piece of the source comes from: the part's number and the first row inside it."""

    part: int
    row: int


class Folded(NamedTuple):
    """The merged state, and the rows read of each part."""

    state: State
    rows: list[int]


class Routed(NamedTuple):
    """The rows that move (all columns of fixed width, no nulls), and the bucket of each."""

    table: pa.Table
    bucket: NDArray[np.integer[Any]]


class Finished(NamedTuple):
    """What a bucket gives: numbers, and the rows that a later shuffle needs (None: none)."""

    state: State
    carried: pa.Table | None = None


@dataclass(frozen=True)
class Input:
    """Rows that enter a shuffle: of the source (`rows` None), or carried by an earlier one.

    `route` gets a piece of them (a `pa.Table` of any number of rows) and says what moves where.
    """

    route: Callable[[pa.Table], Routed]
    rows: Any = None


@dataclass(frozen=True)
class Shuffled:
    """The states of the buckets that got rows, in any order, and a handle on the carried rows."""

    states: list[State]
    carried: Any = None
    rows: list[int] | None = None  # read of each part, where the source was an input
    moved_rows: int = 0
    moved_bytes: int = 0
    largest: int = 0  # rows of the largest bucket


class Engine(Protocol):
    """Three verbs over a source of rows. Any of them may raise; then the plan calls `close` and gives no answer."""

    name: str

    def schema(self) -> pa.Schema:
        """Columns of the source."""
        ...

    def parts(self) -> list[Part]:
        """The files or partitions, in a fixed order."""
        ...

    def sample(self, function: Callable[[pa.Table], pa.Table], rows: int) -> pa.Table:
        """About `rows` rows from all over the source, after `function` (which may drop rows)."""
        ...

    def fold(
        self, stage: str, function: Callable[[pa.Table, Place], State], merge: Callable[[State, State], State]
    ) -> Folded:
        """`function` of every piece of the source, merged (associative, commutative) into one state."""
        ...

    def shuffle(
        self, stage: str, inputs: Sequence[Input], buckets: int, finish: Callable[[int, pa.Table], Finished]
    ) -> Shuffled:
        """Brings the rows of each bucket (0 … buckets − 1) together and calls `finish` once per non-empty bucket."""
        ...

    def release(self, carried: Any) -> None:
        """Frees carried rows that no later shuffle needs."""
        ...

    def close(self) -> None:
        """Leaves nothing behind; safe to call twice."""
        ...


# ---- states as bytes --------------------------------------------------------------------------------------------


def pack(state: State) -> bytes:
    """A state as bytes without pickle, for engines that move bytes."""
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in state.items() if name not in arrays}
    text = np.frombuffer(json.dumps(rest).encode(), dtype=np.uint8)
    out = io.BytesIO()
    np.savez(out, **{f"a_{name}": value for name, value in arrays.items()}, rest=text)  # type: ignore[arg-type]
    return out.getvalue()


def unpack(data: bytes) -> State:
    """The state that `pack` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as loaded:
        state: State = json.loads(bytes(loaded["rest"]))
        state |= {name.removeprefix("a_"): loaded[name] for name in loaded.files if name != "rest"}
    return state


# ---- the reference ----------------------------------------------------------------------------------------------


@dataclass
class ListEngine:
    """The protocol in its plainest form: partitions are tables in a list, everything happens here and now."""

    tables: list[pa.Table]
    progress: Progress | None = None
    piece: int = 1 << 16  # rows given to a function at a time
    name: str = "list"
    closed: bool = field(default=False, init=False)

    def schema(self) -> pa.Schema:
        return self.tables[0].schema

    def parts(self) -> list[Part]:
        return [Part(f"partition {k}", len(table)) for k, table in enumerate(self.tables)]

    def _pieces(self, tables: Sequence[pa.Table]) -> list[tuple[Place, pa.Table]]:
        return [
            (Place(k, at), table.slice(at, self.piece))
            for k, table in enumerate(tables)
            for at in range(0, len(table), self.piece)
        ]

    def sample(self, function: Callable[[pa.Table], pa.Table], rows: int) -> pa.Table:
        import pyarrow as pa

        total = sum(map(len, self.tables))
        step = max(1, total // max(rows, 1))
        return pa.concat_tables([function(table.take(np.arange(0, len(table), step))) for table in self.tables])

    def fold(
        self, stage: str, function: Callable[[pa.Table, Place], State], merge: Callable[[State, State], State]
    ) -> Folded:
        state: State | None = None
        for place, piece in self._pieces(self.tables):
            found = function(piece, place)
            state = found if state is None else merge(state, found)
        if state is None:
            state = function(self.tables[0].slice(0, 0), Place(0, 0))
        return Folded(state, [len(table) for table in self.tables])

    def shuffle(
        self, stage: str, inputs: Sequence[Input], buckets: int, finish: Callable[[int, pa.Table], Finished]
    ) -> Shuffled:
        import pyarrow as pa

        into: dict[int, list[pa.Table]] = {}
        moved = size = 0
        for given in inputs:
            for _, piece in self._pieces(self.tables if given.rows is None else given.rows):
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
