"""The two shuffles: what moves, and how a bucket of one score bin or one loss bin is finished.

Shuffle 1 brings the rows of a score interval together, shuffle 2 those of a loss interval. Every row carries its pair
count: across bins from the grid, with rows of its own score bin from shuffle 1, with rows of its own loss bin from
shuffle 2; no pair is counted twice. Rows in point bins need no kernel. Those of large point bins stay where they are;
those of small ones, and all where a later stage needs every row, ride along in whatever bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Bit, Float, Int
from uqeval._errors import InputError
from uqeval.distributed.engines.protocol import Finished, Routed, State
from uqeval.distributed.plan.areas import Area, area_of_rows
from uqeval.distributed.plan.columns import Prepare, Rows
from uqeval.distributed.plan.edges import Axis, Codes, shares_sizes

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FinishLoss", "FinishScore", "RouteLoss", "RouteScore", "RowsChanged", "local_auc"]


class RowsChanged(InputError):
    """A bin came back with other rows than were counted: the data changed, or rows were lost or doubled."""


def changed(what: str, found: int, expected: int) -> RowsChanged:
    return RowsChanged(
        f"{what} came back with {found:,} rows, but {expected:,} were counted. The data changed while it was read, or "
        f"the engine lost or doubled rows. No result is given; run it again on data that stays as it is."
    )


def columns_of(table: pa.Table) -> Rows:
    return {name: table.column(name).to_numpy() for name in table.column_names}


def table_of(rows: Rows) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: np.ascontiguousarray(column) for name, column in rows.items()})


def _take(rows: Rows, keep: NDArray[Any]) -> Rows:
    return {name: column[keep] for name, column in rows.items()}


def _ride(bucket: Int, riding: NDArray[np.bool_], buckets: int) -> Int:
    """Rows without a bucket of their own are dealt out in turn."""
    count = int(riding.sum())
    bucket[riding] = np.arange(count) % buckets
    return bucket


@dataclass(frozen=True)
class RouteScore:
    """By the bin of score `k`; `prepare` is None where the rows come from an earlier shuffle."""

    prepare: Prepare | None
    k: int
    axis: Axis
    loss: Axis | None
    rides: NDArray[np.bool_]  # (codes,): the point bins whose rows ride along
    keep: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...] | None:
        return None if self.prepare is None else self.prepare.columns

    def __call__(self, table: pa.Table) -> Routed:
        if self.prepare is None:
            rows = columns_of(table)
        else:
            used = tuple(int(name[1:]) for name in self.keep if name[0] == "s")
            rows = self.prepare(table, used)
            if self.loss is not None:
                rows["cd"] = self.loss.codes(rows["d"])
        codes = self.axis.codes(rows[f"s{self.k}"])
        if f"q{self.k}" in self.keep:
            rows[f"q{self.k}"] = codes
        rows = {name: rows[name] for name in self.keep}
        point = (codes & 1).astype(np.bool_)
        stays = point & ~self.rides[codes]
        if stays.any():
            moving = np.flatnonzero(~stays)
            rows, codes, point = _take(rows, moving), codes[moving], point[moving]
        return Routed(table_of(rows), _ride((codes >> 1).astype(np.int64), point, len(self.axis.edges) + 1))


def local_auc(order: kernels.Order, error: Bit) -> Int:
    """Twice the credit of each row of a bin inside the bin, in sorted order; `error` is sorted too."""
    below = np.zeros(len(error) + 1, dtype=np.int64)
    np.cumsum(error, out=below[1:])
    half = below[order.start] + below[order.end]  # twice the wrong rows below, ties once
    result: Int = np.where(error.view(np.bool_), order.start + order.end - half, 2 * below[-1] - half)
    return result


@dataclass(frozen=True)
class FinishScore:
    """A score interval: its share of UQ-AUC and AURC, and of the pair counts the part inside the bin."""

    k: int
    axis: Axis
    counts: Int  # (codes, 2): right and wrong rows of each score code
    before: Int  # the same of all lower codes
    ranks: bool  # UQ-AUC, AURC and relatives are wanted
    at_point: Int | None = None  # (score codes, loss codes): pair counts of rows in score point bins …
    across: Int | None = None  # … and across bins, of all rows; None where UQ-C-index is not wanted
    by_loss: Int | None = None
    credit: Int | None = None  # (codes, 2): for rows of point bins twice the credit of a right and of a wrong row …
    own: Float | None = None  # … and their `own` of AURC
    every: bool = False  # carry every row, not only those whose pair count is not complete
    carry: tuple[str, ...] = ()

    def __call__(self, bucket: int, table: pa.Table) -> Finished:
        rows = columns_of(table)
        s, edges = rows[f"s{self.k}"], self.axis.edges
        own = np.ones(len(s), dtype=np.bool_) if bucket == 0 else s > edges[bucket - 1]
        if bucket < len(edges):
            own &= s < edges[bucket]
        if own.all():
            return self._bin(bucket, rows)
        rest = np.flatnonzero(~own)
        riding = self._riders(_take(rows, rest), self.axis.codes(s[rest]))
        state: State = {"bucket": bucket, "rows": 0}
        carried = riding
        if own.any():
            done = self._bin(bucket, _take(rows, np.flatnonzero(own)))
            state = done.state
            if done.carried is not None:
                there = columns_of(done.carried)
                carried = {name: np.concatenate([there[name], riding[name]]) for name in there}
        state["riders"] = len(rest)
        return Finished(state, table_of(carried) if self.carry else None)

    def _riders(self, rows: Rows, codes: Codes) -> Rows:
        """Rows of point bins: all from the grid."""
        k, q = self.k, codes.astype(np.int64)
        if not (q & 1).all():
            raise RowsChanged(
                f"A bin of the score got rows of another one ({int((~q & 1).sum())}). No result is given."
            )
        if self.at_point is not None:
            rows[f"x{k}"] = self.at_point[q, rows["cd"]]
        if self.credit is not None and self.own is not None:
            e = rows["e"].astype(np.int64)
            rows[f"c{k}"], rows[f"a{k}"] = self.credit[q, e], self.own[q, e]
        if not self.every and "cd" in rows:  # counted from the grid already
            rows = _take(rows, np.flatnonzero(~rows["cd"] & 1))
        return {name: rows[name] for name in self.carry}

    def _bin(self, bucket: int, rows: Rows) -> Finished:
        k, code = self.k, 2 * bucket
        s = np.ascontiguousarray(rows[f"s{k}"], dtype=np.float64)
        expected = int(self.counts[code].sum())
        if len(s) != expected:
            raise changed(f"Bin {bucket} of the score", len(s), expected)
        state: State = {"bucket": bucket, "rows": expected, "riders": 0}
        out: Rows = {name: rows[name] for name in self.carry if name in rows}
        order = kernels.order_by(s)
        state["ties2"] = _sum_of_ties(order)
        if self.ranks:
            self._ranks(state, out, order, code, rows["e"])
        if self.across is not None and self.by_loss is not None:
            cd = rows["cd"]
            inside = kernels.pair_counts(s[None], cd.astype(np.float64))[0][0]
            out[f"x{k}"] = self.across[code][cd] + inside
            point = (cd & 1).astype(np.bool_)
            if point.any():  # final: no comparable row shares the loss
                state["sizes"] = shares_sizes(out[f"x{k}"][point], self.by_loss[cd[point]])
                if not self.every:
                    out = _take(out, np.flatnonzero(~point))
        return Finished(state, table_of({name: out[name] for name in self.carry}) if self.carry else None)

    def _ranks(self, state: State, out: Rows, order: kernels.Order, code: int, error: Bit) -> None:
        e = error[order.row]
        right_before, wrong_before = (int(x) for x in self.before[code])
        right_total, wrong_total = (int(x) for x in self.counts.sum(axis=0))
        wrong = int(e.sum())
        right = len(e) - wrong
        if wrong != int(self.counts[code, 1]):
            raise changed(f"Bin {code // 2} of the score (wrong rows)", wrong, int(self.counts[code, 1]))
        credit = local_auc(order, e)
        is_wrong = e.view(np.bool_)
        (_, _, of_wrong, wrong2), (_, _, of_right, right2) = (
            (shares_sizes(x, np.zeros(len(x), dtype=np.int64)) or [(0, 0, 0, 0)])[0]
            for x in (credit[is_wrong], credit[~is_wrong])
        )
        below, above = 2 * right_before, 2 * (wrong_total - wrong_before - wrong)
        state["auc"] = [
            of_wrong + below * wrong,
            wrong2 + 2 * below * of_wrong + below**2 * wrong,
            right2 + 2 * above * of_right + above**2 * right,
        ]
        # Rows above each wrong row, ties half, doubled: for the interval of AUGRC with few errors.
        total = right_total + wrong_total
        top = 2 * (total - right_before - wrong_before) - (order.start + order.end)[is_wrong]
        state["above2"] = (shares_sizes(top, np.zeros(wrong, dtype=np.int64)) or [(0, 0, 0, 0)])[0][3]
        area, own = area_of_rows(order, e, right_before + wrong_before, wrong_before, total)
        state["area"] = [area.risk, area.risk_per_row, list(area.right), list(area.wrong), area.later2]
        if f"c{self.k}" in self.carry:
            values = np.empty(len(e), dtype=np.int64)
            values[order.row] = credit + np.where(is_wrong, below, above)
            owns = np.empty(len(e))
            owns[order.row] = own
            out[f"c{self.k}"], out[f"a{self.k}"] = values, owns


def _sum_of_ties(order: kernels.Order) -> int:
    """Σ t² over tie groups = Σ over rows of the size of the row's group."""
    return int((order.end - order.start).sum()) if order.ties else len(order.row)


def area_from(state: State) -> Area:
    from uqeval.distributed.plan.areas import Spread

    risk, per_row, right, wrong, later2 = state["area"]
    return Area(risk, per_row, Spread(*right), Spread(*wrong), later2)


@dataclass(frozen=True)
class RouteLoss:
    """By the bin of the loss: rows carried from the score bins, or (with `prepare`) rows of score point bins."""

    prepare: Prepare | None
    k: int
    axis: Axis | None  # of the score, for rows of the source …
    stayed: NDArray[np.bool_] | None  # … and the codes whose rows have not moved yet
    loss: Axis
    at_point: Int | None
    keep: tuple[str, ...]
    ride: bool = False

    @property
    def columns(self) -> tuple[str, ...] | None:
        return None if self.prepare is None else self.prepare.columns

    def __call__(self, table: pa.Table) -> Routed:
        if self.prepare is None:
            rows = columns_of(table)
        else:
            assert self.axis is not None
            assert self.stayed is not None
            assert self.at_point is not None
            rows = self.prepare(table, (self.k,))
            codes = self.axis.codes(rows[f"s{self.k}"])
            kept = np.flatnonzero(self.stayed[codes])
            rows, codes = _take(rows, kept), codes[kept]
            rows["cd"] = self.loss.codes(rows["d"])
            rows[f"x{self.k}"] = self.at_point[codes, rows["cd"]]
        cd: Codes = rows["cd"]
        point = (cd & 1).astype(np.bool_)
        bucket = (cd >> 1).astype(np.int64)
        rows = {name: rows[name] for name in self.keep}
        if self.ride:
            return Routed(table_of(rows), _ride(bucket, point, len(self.loss.edges) + 1))
        if point.any():
            keep = np.flatnonzero(~point)
            rows, bucket = _take(rows, keep), bucket[keep]
        return Routed(table_of(rows), bucket)


@dataclass(frozen=True)
class FinishLoss:
    """A loss interval: the pair counts inside it, which completes those of its rows."""

    scores: tuple[int, ...]
    by_loss: Int
    ride: bool = False
    carry: tuple[str, ...] = ()

    def __call__(self, bucket: int, table: pa.Table) -> Finished:
        rows = columns_of(table)
        code = 2 * bucket
        d = rows["d"].astype(np.float64)
        sizes = np.empty(len(d), dtype=np.int64)
        own: Any = slice(None)
        count = len(d)
        if self.ride:
            mine = rows["cd"] == code
            own, count = np.flatnonzero(mine), int(mine.sum())
            sizes[:] = self.by_loss[rows["cd"]]
        if count != int(self.by_loss[code]):
            raise changed(f"Bin {bucket} of the loss", count, int(self.by_loss[code]))
        state: State = {"bucket": bucket, "rows": count, "riders": len(d) - count}
        if count:
            stacked: Float = np.stack([rows[f"s{k}"][own].astype(np.float64) for k in self.scores])
            credit2, comparable = kernels.pair_counts(stacked, np.ascontiguousarray(d[own]))
            sizes[own] = count - comparable
            for j, k in enumerate(self.scores):
                x = rows[f"x{k}"][own] + credit2[j]
                state[f"sizes{k}"] = shares_sizes(x, sizes[own])
                if self.carry:
                    whole = rows[f"x{k}"].copy()
                    whole[own] = x
                    rows[f"x{k}"] = whole
        if not self.carry:
            return Finished(state)
        rows["t"] = sizes
        return Finished(state, table_of({name: rows[name] for name in self.carry}))
