"""What an engine must do for the plan, and what passes between the two.

An engine has rows, of files, of a query or of a cluster's dataframe, and moves them; it knows no metric. It must

- say what there is: `schema`, `parts`;
- `sample` rows from all over the source, `fold` a function over all rows, `shuffle` rows into buckets and finish each
  bucket exactly once; rows that a bucket carries on wait for later shuffles, until `release`;
- say how much fits: `task_rows`, `bucket_rows`, `grid_bytes`; and what sampling has read: `sampled_rows`;
- leave nothing behind after `close`, whatever was raised before.

A new engine is a folder beside `local`, `dask` and `spark`, and a line in `open`; the plainest one is in
`tests/distributed/list_engine.py`. What engines get (functions, states, tables) can be pickled and sent to another
process. pyarrow takes 0.3 s to load, so it is imported on use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


# Small, and can be pickled: NumPy arrays, numbers (integers of any size), texts, and records and lists of them.
State = dict[str, Any]
Table: TypeAlias = "pa.Table"  # by this name where nothing else of pyarrow is needed


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


# ---- what engines call ------------------------------------------------------------------------------------------


class _Reading(Protocol):
    """A function of a piece of rows, of any length."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """What it reads of the source; None: all columns, or the rows were carried by an earlier shuffle."""


class SampleFunction(_Reading, Protocol):
    """What to keep of some rows: other columns, fewer rows."""

    def __call__(self, table: pa.Table, /) -> pa.Table: ...


class FoldFunction(_Reading, Protocol):
    """The state of a piece of the source."""

    def __call__(self, table: pa.Table, place: Place, /) -> State: ...


class RouteFunction(_Reading, Protocol):
    """Which rows of a piece move where."""

    def __call__(self, table: pa.Table, /) -> Routed: ...


Merge = Callable[[State, State], State]  # associative and commutative
Finish = Callable[[int, "pa.Table"], Finished]  # the number of a bucket, and all of its rows


@dataclass(frozen=True)
class Input:
    """Rows that enter a shuffle: of the source (`rows` None), or carried by an earlier one."""

    route: RouteFunction
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
    """Rows, and three verbs over them. Any verb may raise; then the plan calls `close` and gives no answer."""

    name: str  # as the summary of a run calls it
    task_rows: int  # of a bucket that fits into a task beside the others that run; the plan cuts buckets accordingly
    bucket_rows: int  # of a bucket that cannot be cut: what fits while the others wait
    grid_bytes: int  # for the counts of a state, of which every task of a fold holds some
    sampled_rows: int  # that `sample` has read so far to choose some of them

    def schema(self) -> pa.Schema:
        """Columns of the source."""

    def parts(self) -> list[Part]:
        """The files or partitions, in a fixed order."""

    def sample(self, function: SampleFunction, rows: int) -> pa.Table:
        """About `rows` rows from all over the source, after `function` (which may drop rows)."""

    def fold(self, stage: str, function: FoldFunction, merge: Merge) -> Folded:
        """`function` of every piece of the source, merged into one state."""

    def shuffle(self, stage: str, inputs: Sequence[Input], buckets: int, finish: Finish) -> Shuffled:
        """Brings the rows of each bucket (0 … buckets − 1) together and calls `finish` once per non-empty bucket."""

    def release(self, carried: Any) -> None:
        """Frees carried rows that no later shuffle needs."""

    def close(self) -> None:
        """Leaves nothing behind; safe to call twice."""
