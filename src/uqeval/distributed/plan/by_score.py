"""Shuffle 1: the rows of a score interval come together, which gives its share of UQ-AUC and of the areas.

Every row carries its pair count: across bins from the grid, with rows of its own score bin from this shuffle, with rows
of its own loss bin from the next (`by_loss`); no pair is counted twice. Rows in point bins need no kernel. Those of
large point bins stay where they are; those of small ones, and all where a later stage needs every row, ride along in
whatever bucket.

The influence of a row on AURC is a part that its bin knows (`own`), less the same number for all rows of the bin, known
when all bins are done. So sums, means and spreads of `own` are enough for every variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Bit, Float, Int
from uqeval.distributed.engines.protocol import Finished, Routed, State, Table
from uqeval.distributed.plan import wire
from uqeval.distributed.plan.columns import Reading
from uqeval.distributed.plan.edges import Axis, Codes, Grid, RowsChanged, changed, shares_sizes, total_and_squares
from uqeval.distributed.plan.late import Block, Cut
from uqeval.inference.tally import Spread
from uqeval.metrics.areas import Accepted
from uqeval.metrics.harmonic import harmonic


@dataclass(frozen=True)
class RouteScore(Reading):
    """By the bin of score `k`; `prepare` is None where the rows come from an earlier shuffle."""

    k: int
    axis: Axis
    loss: Axis | None
    rides: NDArray[np.bool_]  # (codes,): the point bins whose rows ride along
    keep: tuple[str, ...]

    def __call__(self, table: Table) -> Routed:
        if self.prepare is None:
            rows = wire.rows_of(table)
        else:
            rows = self.prepare(table, self.prepare.scores_in(self.keep))
            if self.loss is not None:
                rows[wire.LOSS_BIN] = self.loss.codes(rows[wire.LOSS])
        codes = self.axis.codes(rows[wire.score(self.k)])
        if wire.bin_code(self.k) in self.keep:
            rows[wire.bin_code(self.k)] = codes
        return by_code({name: rows[name] for name in self.keep}, codes, self.rides[codes], self.axis)


def by_code(rows: wire.Rows, codes: Codes, rides: NDArray[np.bool_] | bool, axis: Axis) -> Routed:
    """Rows of intervals go to the bucket of the interval; those of point bins ride along, dealt out, or stay."""
    point = (codes & 1).astype(np.bool_)
    stays = point & ~np.asarray(rides)
    if stays.any():
        moving = np.flatnonzero(~stays)
        rows, codes, point = wire.take(rows, moving), codes[moving], point[moving]
    bucket = (codes >> 1).astype(np.int64)
    bucket[point] = np.arange(int(point.sum())) % (len(axis.edges) + 1)
    return Routed(wire.table_of(rows), bucket)


def _credit(order: kernels.Order, error: Bit) -> Int:
    """Twice the credit of each row of a bin inside the bin, in sorted order; `error` is sorted too."""
    below = np.zeros(len(error) + 1, dtype=np.int64)
    np.cumsum(error, out=below[1:])
    half = below[order.start] + below[order.end]  # twice the wrong rows below, ties once
    return np.where(error.view(np.bool_), order.start + order.end - half, 2 * below[-1] - half)


@dataclass(frozen=True)
class FinishScore:
    """A score interval: its share of UQ-AUC and AURC, and of the pair counts the part inside the bin."""

    k: int
    grid: Grid
    ranks: bool  # UQ-AUC, AURC and relatives are wanted
    pairs: bool  # UQ-C-index is wanted
    credit: Int | None = None  # (codes, 2): for rows of point bins twice the credit of a right and of a wrong row …
    own: Float | None = None  # … and their `own` of AURC
    accepted: tuple[Accepted, ...] = ()  # the surest shares whose risk is wanted
    cuts: tuple[int, ...] = ()  # the places behind which the risks are wanted apart
    every: bool = False  # carry every row, not only those whose pair count is not complete
    carry: tuple[str, ...] = ()

    def __call__(self, bucket: int, table: Table) -> Finished:
        rows = wire.rows_of(table)
        s, edges = rows[wire.score(self.k)], self.grid.score.edges
        own = np.ones(len(s), dtype=np.bool_) if bucket == 0 else s > edges[bucket - 1]
        if bucket < len(edges):
            own &= s < edges[bucket]
        if own.all():
            return self._bin(bucket, rows)
        rest = np.flatnonzero(~own)
        riding = self._riders(wire.take(rows, rest), self.grid.score.codes(s[rest]))
        state: State = {"bucket": bucket, "rows": 0}
        carried = riding
        if own.any():
            done = self._bin(bucket, wire.take(rows, np.flatnonzero(own)))
            state = done.state
            if done.carried is not None:
                there = wire.rows_of(done.carried)
                carried = {name: np.concatenate([there[name], riding[name]]) for name in there}
        state["riders"] = len(rest)
        return Finished(state, wire.table_of(carried) if self.carry else None)

    def _riders(self, rows: wire.Rows, codes: Codes) -> wire.Rows:
        """Rows of point bins: all from the grid."""
        k, q = self.k, codes.astype(np.int64)
        if not (q & 1).all():
            raise RowsChanged(
                f"A bin of the score got rows of another one ({int((~q & 1).sum())}). No result is given."
            )
        if self.pairs:
            rows[wire.pairs(k)] = self.grid.at_point[q, rows[wire.LOSS_BIN]]
        if self.credit is not None and self.own is not None:
            e = rows[wire.ERROR].astype(np.int64)
            rows[wire.credit(k)], rows[wire.own(k)] = self.credit[q, e], self.own[q, e]
            before = self.grid.before.sum(axis=1)[q]
            rows |= dict(zip(wire.places(k), (before, before + self.grid.by_score.sum(axis=1)[q]), strict=True))
        if not self.every and wire.LOSS_BIN in rows:  # counted from the grid already
            rows = wire.take(rows, np.flatnonzero(~rows[wire.LOSS_BIN] & 1))
        return {name: rows[name] for name in self.carry}

    def _bin(self, bucket: int, rows: wire.Rows) -> Finished:
        k, code = self.k, 2 * bucket
        s = np.ascontiguousarray(rows[wire.score(k)], dtype=np.float64)
        expected = int(self.grid.by_score[code].sum())
        if len(s) != expected:
            raise changed(f"Bin {bucket} of the score", len(s), expected)
        state: State = {"bucket": bucket, "rows": expected, "riders": 0}
        out: wire.Rows = {name: rows[name] for name in self.carry if name in rows}
        order = kernels.order_by(s)
        state["ties2"] = int((order.end - order.start).sum())
        if self.ranks:
            self._ranks(state, out, order, code, rows[wire.ERROR])
        if self.pairs:
            cd = rows[wire.LOSS_BIN]
            inside = kernels.pair_counts(s[None], cd.astype(np.float64))[0][0]
            out[wire.pairs(k)] = self.grid.across[code][cd] + inside
            point = (cd & 1).astype(np.bool_)
            if point.any():  # final: no comparable row shares the loss
                state["sizes"] = shares_sizes(out[wire.pairs(k)][point], self.grid.by_loss[cd[point]])
                if not self.every:
                    out = wire.take(out, np.flatnonzero(~point))
        return Finished(state, wire.table_of({name: out[name] for name in self.carry}) if self.carry else None)

    def _ranks(self, state: State, out: wire.Rows, order: kernels.Order, code: int, error: Bit) -> None:
        e = error[order.row]
        right_before, wrong_before = (int(x) for x in self.grid.before[code])
        total, wrong_total, wrong = self.grid.n, self.grid.wrong, int(e.sum())
        right = len(e) - wrong
        if wrong != (counted := int(self.grid.by_score[code, 1])):
            raise changed(f"Bin {code // 2} of the score (wrong rows)", wrong, counted)
        credit = _credit(order, e)
        is_wrong = e.view(np.bool_)
        (of_wrong, wrong2), (of_right, right2) = (total_and_squares(credit[side]) for side in (is_wrong, ~is_wrong))
        below, above = 2 * right_before, 2 * (wrong_total - wrong_before - wrong)
        # Rows above each wrong row, ties half, doubled: for the interval of AUGRC with few errors.
        top = 2 * (total - right_before - wrong_before) - (order.start + order.end)[is_wrong]
        area, own = _area_of_rows(order, e, right_before + wrong_before, wrong_before, total)
        before = right_before + wrong_before
        start, stop = (x + before for x in (order.start, order.end))
        state["ranks"] = BinRanks(
            of_wrong + below * wrong,
            wrong2 + 2 * below * of_wrong + below**2 * wrong,
            right2 + 2 * above * of_right + above**2 * right,
            total_and_squares(top)[1],
            area,
            tuple(accepted_sums(rule, start, stop, is_wrong, total) for rule in self.accepted),
            {
                cut: _cut(order, e, own, before, wrong_before, cut)
                for cut in self.cuts
                if before <= cut < before + len(e)
            },
        )
        if wire.credit(self.k) in self.carry:
            values = np.empty(len(e), dtype=np.int64)
            values[order.row] = credit + np.where(is_wrong, below, above)
            owns = np.empty(len(e))
            owns[order.row] = own
            out[wire.credit(self.k)], out[wire.own(self.k)] = values, owns
            for name, place in zip(wire.places(self.k), (start, stop), strict=True):
                out[name] = np.empty(len(e), dtype=np.int64)
                out[name][order.row] = place


class BinRanks(NamedTuple):
    """What a bin adds to UQ-AUC, to the areas and to the risks of the surest rows."""

    credit2: int  # of UQ-AUC, over its wrong rows …
    wrong_squares: int  # … and the squares over its wrong rows and over its right rows
    right_squares: int
    above2: int  # Σ over wrong rows of (2·rows above)², ties half
    area: Area
    shares: tuple[Float, ...]  # `accepted_sums` of each share
    cuts: dict[int, Cut]  # of those that go through it


def accepted_sums(rule: Accepted, start: Int, stop: Int, wrong: NDArray[np.bool_], total: int) -> Float:
    """Σ share and Σ share² of right rows and of wrong rows, Σ over rows next to the cut, and over the wrong ones."""
    share, near = rule.share(start, stop, total), rule.near(start, stop, total, total)
    sums = [float(x[side].sum()) for side in (~wrong, wrong) for x in (share, share * share)]
    return np.array([*sums, float(near.sum()), float(near[wrong].sum())])


# ---- AURC piece by piece ----------------------------------------------------------------------------------------


class Area(NamedTuple):
    """What a bin adds to AURC."""

    risk: float  # Σ risk after each of its rows
    risk_per_row: float  # Σ risk/rows accepted
    right: Spread  # of `own`
    wrong: Spread
    later2: float  # Σ over wrong rows of (mean of 1/k over the coverages k that accept the row)²


def _spread(x: Float) -> Spread:
    if len(x) == 0:
        return Spread(0, 0.0, 0.0)
    mean = float(x.mean())
    gap = x - mean
    # No BLAS: its threads would change the last digits, and fight with ours.
    return Spread(len(x), mean, float((gap * gap).sum()))


def _area_of_rows(order: kernels.Order, error: Bit, before: int, wrong_before: int, total: int) -> tuple[Area, Float]:
    """What a bin adds, and `own` of its rows in sorted order.

    `order` sorts the bin by score, `error` is already in that order.
    """
    m = len(error)
    accepted = np.arange(before + 1, before + m + 1, dtype=np.float64)
    bad = np.cumsum(error, dtype=np.float64)
    first = size = None
    if order.ties:
        first = np.flatnonzero(order.start == np.arange(m))
        size = np.diff(first, append=m)
        ends = bad[first + size - 1]
        of_block = np.diff(ends, prepend=0.0)
        inside = np.arange(1, m + 1) - np.repeat(first, size)
        bad = np.repeat(ends - of_block, size) + inside * np.repeat(of_block / size, size)
    bad += wrong_before
    risk = bad / accepted
    per_row = 1.0 / accepted
    risk_per_row = risk * per_row
    later = np.cumsum(per_row[::-1])[::-1] + harmonic(before + m, total)
    own = risk - np.cumsum(risk_per_row[::-1])[::-1]
    if first is not None and size is not None:
        later, own = (np.repeat(np.add.reduceat(x, first) / size, size) for x in (later, own))
    wrong = error.view(np.bool_)
    of_wrong = later[wrong]
    own[wrong] += of_wrong
    area = Area(
        float(risk.sum()),
        float(risk_per_row.sum()),
        _spread(own[~wrong]),
        _spread(own[wrong]),
        float((of_wrong * of_wrong).sum()),
    )
    return area, own


def _cut(order: kernels.Order, error: Bit, own: Float, before: int, wrong_before: int, cut: int) -> Cut:
    """The block of a bin that the cut goes through, and the rows behind it; all in sorted order."""
    first, last = int(order.start[cut - before]), int(order.end[cut - before])
    bad = np.cumsum(error, dtype=np.int64)
    earlier = int(bad[first - 1]) if first else 0
    block = Block(before + first, before + last, int(bad[last - 1]) - earlier, wrong_before + earlier)
    if last == len(error):
        return Cut(block)
    rest = error[last:]
    tail = kernels.Order(order.row[last:], order.new[last:])
    area, _ = _area_of_rows(tail, rest, before + last, wrong_before + int(bad[last - 1]), before + len(error))
    behind, wrong = own[last:], rest.view(np.bool_)
    return Cut(block, area.risk, area.risk_per_row, _spread(behind[~wrong]), _spread(behind[wrong]))


def area_of_point(right: int, wrong: int, before: int, wrong_before: int, total: int) -> Area:
    """The same for rows that are all tied: each stands at every place of the block, on average."""
    m = right + wrong
    rate = wrong / m
    once, twice = harmonic(before, before + m), harmonic(before, before + m, 2)
    excess = wrong_before - before * rate  # risk after k rows of the block = rate + excess/(before + k)
    risk = wrong + excess * once
    risk_per_row = rate * once + excess * twice
    # Averages over the places of the block; what lies k places after the start counts k of m times.
    later = harmonic(before + m, total) + (m - before * once) / m
    own = risk / m - (risk - before * risk_per_row) / m
    return Area(risk, risk_per_row, Spread(right, own, 0.0), Spread(wrong, own + later, 0.0), wrong * later * later)
