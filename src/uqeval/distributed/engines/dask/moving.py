"""How rows travel between Dask's tasks: pure functions that know no client and no metric.

Route tasks sort their rows by bucket; a bundle task collects the rows of some buckets from all of them and finishes
bucket by bucket.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uqeval.distributed.engines import pieces
from uqeval.distributed.engines.protocol import Finish, RouteFunction


@dataclass(frozen=True)
class Bundles:
    """Buckets are dealt out to bundles in turn, so that neighbours of the same kind do not sit together."""

    buckets: int
    count: int

    def of(self, bundle: int) -> range:
        """The buckets of a bundle."""
        return range(bundle, self.buckets, self.count)

    def places(self) -> NDArray[np.int64]:
        """The place of each bucket where they are ordered by bundle."""
        return np.argsort([bucket for bundle in range(self.count) for bucket in self.of(bundle)])


@dataclass(frozen=True)
class Block:
    """Rows sorted by bucket: columns of fixed width, and where the rows of each bucket begin."""

    columns: dict[str, NDArray[Any]]
    starts: NDArray[np.int64]

    def __sizeof__(self) -> int:  # Dask asks it to know what to spill
        return 256 + sum(column.nbytes for column in self.columns.values())

    def rows(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """The rows from one bucket to before another."""
        return {name: column[self.starts[start] : self.starts[stop]] for name, column in self.columns.items()}


def route_block(
    route: RouteFunction, bundles: Bundles, given: pieces.Pieces
) -> tuple[tuple[Counter[int], int], Block | None]:
    """Rows read of each part and rows that move; and these, sorted by bundle and bucket."""
    read: Counter[int] = Counter()
    routed = list(pieces.route(given, route, read))
    if not routed:
        return (read, 0), None
    table, bucket = pieces.join(routed)
    return (read, len(table)), Block(*pieces.by_bucket(table, bundles.places()[bucket], bundles.buckets))


def pick_bundle(routed: tuple[Any, Block | None], bundles: Bundles, bundle: int) -> Block | None:
    """The rows of one bundle, as a copy: a view would keep the rows of all others alive."""
    _, block = routed
    if block is None:
        return None
    start = sum(len(bundles.of(other)) for other in range(bundle))
    stop = start + len(bundles.of(bundle))
    rows = {name: column.copy() for name, column in block.rows(start, stop).items()}
    return Block(rows, block.starts[start : stop + 1] - block.starts[start])


def finish_bundle(
    finish: Finish, blocks: list[Block | None], bundles: Bundles, bundle: int
) -> tuple[tuple[list[pieces.Bucket], int], pa.Table | None]:
    """What the buckets that got rows gave, and bytes that they carry on; and these rows."""
    finished, carried = [], []
    for j, bucket in enumerate(bundles.of(bundle)):
        cuts = [block.rows(j, j + 1) for block in blocks if block is not None and block.starts[j + 1] > block.starts[j]]
        if cuts:
            table = pa.table({name: np.concatenate([cut[name] for cut in cuts]) for name in cuts[0]})
            state, rows = finish(bucket, table)
            finished.append((state, len(table), table.nbytes))
            carried += [] if rows is None else [rows]
    whole = pa.concat_tables(carried) if carried else None
    return (finished, 0 if whole is None else whole.nbytes), whole
