"""What a Dask worker runs: pure functions of rows. Nothing here knows a client, a scheduler or a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval.distributed.engines.local.files import Chunk, Files
from uqeval.distributed.engines.protocol import Finished, Place, Routed, State

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Block",
    "Cost",
    "How",
    "finish_bundle",
    "first",
    "fold_rows",
    "merge_states",
    "pick_bundle",
    "route_rows",
    "sample_rows",
    "schema_of",
    "second",
]


@dataclass(frozen=True)
class How:
    """The plain values of a task. In one object, because Dask takes texts and tuples for names of tasks."""

    columns: tuple[str, ...] | None = None
    most: int = 1 << 19  # rows in a piece
    chunks: tuple[Chunk, ...] = ()  # of files
    part: int = 0  # of a frame
    step: int = 1
    quota: int = 0
    small: bool = False
    buckets: int = 1
    bundles: int = 1
    bundle: int = 0


@dataclass(frozen=True)
class Block:
    """Columns of fixed width; `edges` (pieces, buckets + 1) are the rows where each bucket of a piece begins."""

    columns: dict[str, NDArray[Any]]
    edges: NDArray[np.int64] | None = None

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def __sizeof__(self) -> int:  # Dask asks it to know what to spill
        return 256 + self.nbytes

    def __len__(self) -> int:
        return next((len(column) for column in self.columns.values()), 0)


class Cost(NamedTuple):
    """What a bundle received and gives on."""

    rows: int
    nbytes: int
    largest: int
    carried: int
    carried_bytes: int


def first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def second(pair: tuple[Any, Any]) -> Any:
    return pair[1]


def schema_of(frame: Any) -> pa.Schema:
    """Columns of a table, or of a pandas frame without its index."""
    import pyarrow as pa

    return frame.schema if hasattr(frame, "schema") else pa.Schema.from_pandas(frame, preserve_index=False)


def _pieces(given: Any, how: How) -> Iterator[tuple[Place, pa.Table]]:
    """Rows of files, of rows carried here, or of a partition; no more than `how.most` at a time."""
    import pyarrow as pa

    if isinstance(given, Files):
        for chunk in how.chunks:
            yield from given.read(chunk, how.columns, how.most)
        return
    if isinstance(given, Block):
        table = pa.table(given.columns)
    elif isinstance(given, pa.Table):
        table = given
    else:
        frame = given if how.columns is None else given[list(how.columns)]
        table = pa.Table.from_pandas(frame, preserve_index=False)
    if how.columns is not None:
        table = table.select(list(how.columns))
    for at in range(0, len(table), how.most):
        yield Place(how.part, at), table.slice(at, how.most)


# ---- sample and fold --------------------------------------------------------------------------------------------


def sample_rows(function: Callable[[pa.Table], pa.Table], given: Any, how: How) -> pa.Table:
    """Every so-many-th row, after `function`; fewer and fewer where there are many more than the quota."""
    import pyarrow as pa

    found: list[pa.Table] = []
    step, count = how.step, 0
    for _, piece in _pieces(given, how):
        found.append(function(piece.take(np.arange(0, len(piece), step))))
        count += len(found[-1])
        if how.small and count >= how.quota:
            break
        if count > 8 * max(how.quota, 1024):
            table = pa.concat_tables(found)
            found, step = [table.take(np.arange(0, len(table), 2))], 2 * step
            count = len(found[0])
    if found:
        return pa.concat_tables(found)
    columns = given.schema if isinstance(given, Files) else schema_of(given)
    empty = columns.empty_table()
    return function(empty if how.columns is None else empty.select(list(how.columns)))


def fold_rows(
    function: Callable[[pa.Table, Place], State], merge: Callable[[State, State], State], given: Any, how: How
) -> tuple[dict[int, int], State | None]:
    """Rows read of each part, and their state."""
    state: State | None = None
    read: dict[int, int] = {}
    for place, piece in _pieces(given, how):
        found = function(piece, place)
        state = found if state is None else merge(state, found)
        read[place.part] = read.get(place.part, 0) + len(piece)
    return read, state


def merge_states(
    merge: Callable[[State, State], State], pairs: list[tuple[dict[int, int], State | None]]
) -> tuple[dict[int, int], State | None]:
    """Several states as one."""
    state: State | None = None
    for _, found in pairs:
        state = found if state is None else state if found is None else merge(state, found)
    return {}, state


# ---- shuffle ----------------------------------------------------------------------------------------------------


def _of_bundle(how: How, bundle: int) -> range:
    """Buckets are dealt out to bundles in turn, so that neighbours of the same kind do not sit together."""
    return range(bundle, how.buckets, how.bundles)


def route_rows(route: Callable[[pa.Table], Routed], given: Any, how: How) -> tuple[dict[int, int], list[Block]]:
    """Rows read of each part (under −1: rows that move), and the moving rows sorted by bundle and bucket."""
    place = np.empty(how.buckets, dtype=np.uint16)
    place[[b for g in range(how.bundles) for b in _of_bundle(how, g)]] = np.arange(how.buckets)
    read = {-1: 0}
    blocks = []
    for at, piece in _pieces(given, how):
        if not isinstance(given, Block):
            read[at.part] = read.get(at.part, 0) + len(piece)
        table, bucket = route(piece)
        if not len(table):
            continue
        read[-1] += len(table)
        small = place[bucket]
        order = np.argsort(small, kind="stable")  # a radix sort for 16 bits
        edges = np.concatenate([[0], np.cumsum(np.bincount(small, minlength=how.buckets))])
        blocks.append(Block({name: table.column(name).to_numpy()[order] for name in table.column_names}, edges[None]))
    return read, blocks


def pick_bundle(routed: tuple[dict[int, int], list[Block]], how: How) -> Block | None:
    """The rows of one bundle, as a copy: a view would keep the rows of all others alive."""
    start = sum(len(_of_bundle(how, g)) for g in range(how.bundle))
    stop = start + len(_of_bundle(how, how.bundle))
    found, edges, rows = [], [], 0
    for block in routed[1]:
        assert block.edges is not None
        own = block.edges[0, start : stop + 1]
        if own[-1] > own[0]:
            found.append({name: column[own[0] : own[-1]] for name, column in block.columns.items()})
            edges.append(own - own[0] + rows)
            rows += int(own[-1] - own[0])
    if not found:
        return None
    return Block({name: np.concatenate([one[name] for one in found]) for name in found[0]}, np.stack(edges))


def finish_bundle(
    finish: Callable[[int, pa.Table], Finished], blocks: list[Block | None], how: How
) -> tuple[tuple[list[State], Cost], Block | None]:
    """The states of the buckets of a bundle that got rows, and the rows that they carry on."""
    import pyarrow as pa

    given = [block for block in blocks if block is not None]
    states: list[State] = []
    carried: list[pa.Table] = []
    largest = 0
    for j, bucket in enumerate(_of_bundle(how, how.bundle)):
        cuts = [
            (block, int(edges[j]), int(edges[j + 1]))
            for block in given
            if block.edges is not None
            for edges in block.edges
            if edges[j + 1] > edges[j]
        ]
        if not cuts:
            continue
        names = cuts[0][0].columns
        table = pa.table({name: np.concatenate([block.columns[name][a:b] for block, a, b in cuts]) for name in names})
        state, rows = finish(bucket, table)
        states.append(state)
        largest = max(largest, len(table))
        if rows is not None and len(rows):
            carried.append(rows)
    kept = None
    if carried:
        whole = pa.concat_tables(carried)
        kept = Block({name: whole.column(name).to_numpy() for name in whole.column_names})
    cost = Cost(
        rows=sum(map(len, given)),
        nbytes=sum(block.nbytes for block in given),
        largest=largest,
        carried=0 if kept is None else len(kept),
        carried_bytes=0 if kept is None else kept.nbytes,
    )
    return (states, cost), kept
