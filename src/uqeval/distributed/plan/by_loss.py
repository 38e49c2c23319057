"""Shuffle 2: the rows of a loss interval come together, which completes their pair counts for UQ-C-index."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int
from uqeval.distributed.engines.protocol import Finished, Routed, State, Table
from uqeval.distributed.plan import wire
from uqeval.distributed.plan.by_score import by_code
from uqeval.distributed.plan.columns import Reading
from uqeval.distributed.plan.edges import Axis, changed, shares_sizes


class Stayed(NamedTuple):
    """Rows of large score point bins, which have not moved yet."""

    axis: Axis  # of the score
    codes: NDArray[np.bool_]  # (codes,): which stayed
    pairs: Int  # (score codes, loss codes): their pair counts


@dataclass(frozen=True)
class RouteLoss(Reading):
    """By the bin of the loss: rows carried from the score bins, or (with `prepare`) rows of score point bins."""

    k: int
    loss: Axis
    keep: tuple[str, ...]
    stayed: Stayed | None = None
    ride: bool = False

    def __call__(self, table: Table) -> Routed:
        if self.prepare is None or self.stayed is None:
            rows = wire.rows_of(table)
        else:
            rows = self.prepare(table, (self.k,))
            codes = self.stayed.axis.codes(rows[wire.score(self.k)])
            kept = np.flatnonzero(self.stayed.codes[codes])
            rows, codes = wire.take(rows, kept), codes[kept]
            rows[wire.LOSS_BIN] = self.loss.codes(rows[wire.LOSS])
            rows[wire.pairs(self.k)] = self.stayed.pairs[codes, rows[wire.LOSS_BIN]]
        return by_code({name: rows[name] for name in self.keep}, rows[wire.LOSS_BIN], self.ride, self.loss)


@dataclass(frozen=True)
class FinishLoss:
    """A loss interval: the pair counts inside it, which completes those of its rows."""

    scores: tuple[int, ...]
    by_loss: Int
    ride: bool = False
    carry: tuple[str, ...] = ()

    def __call__(self, bucket: int, table: Table) -> Finished:
        rows = wire.rows_of(table)
        code = 2 * bucket
        d = rows[wire.LOSS].astype(np.float64)
        sizes = np.empty(len(d), dtype=np.int64)
        own: Any = slice(None)
        count = len(d)
        if self.ride:
            mine = rows[wire.LOSS_BIN] == code
            own, count = np.flatnonzero(mine), int(mine.sum())
            sizes[:] = self.by_loss[rows[wire.LOSS_BIN]]
        if count != int(self.by_loss[code]):
            raise changed(f"Bin {bucket} of the loss", count, int(self.by_loss[code]))
        state: State = {"bucket": bucket, "rows": count, "riders": len(d) - count}
        if count:
            stacked: Float = np.stack([rows[wire.score(k)][own].astype(np.float64) for k in self.scores])
            credit2, comparable = kernels.pair_counts(stacked, np.ascontiguousarray(d[own]))
            sizes[own] = count - comparable
            for j, k in enumerate(self.scores):
                x = rows[wire.pairs(k)][own] + credit2[j]
                state[f"sizes {k}"] = shares_sizes(x, sizes[own])
                if self.carry:
                    whole = rows[wire.pairs(k)].copy()
                    whole[own] = x
                    rows[wire.pairs(k)] = whole
        if not self.carry:
            return Finished(state)
        rows[wire.TIED] = sizes
        return Finished(state, wire.table_of({name: rows[name] for name in self.carry}))
