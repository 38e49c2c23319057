"""The last stage where rows are not enough by themselves: independent units, for clusters and for comparisons.

Every row arrives with its pair counts and its `own` part of AURC. Rows become units (themselves, or sums over
clusters): delete-one values, DeLong placements or influence values, as in `uqeval.inference.paired`. What leaves a
bucket is a count, a mean and a matrix of products, which merge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from uqeval import kernels
from uqeval._check import Float, Int
from uqeval.distributed.engines.protocol import Finished, Routed, State
from uqeval.distributed.plan.columns import Prepare, Rows
from uqeval.distributed.plan.count import CLUSTER_BUCKETS, ECE_BINS, cluster_bucket
from uqeval.distributed.plan.stages import changed, columns_of, table_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FinishModel", "FinishUnits", "Moments", "Ranked", "RouteUnits", "merge_moments", "moments"]


@dataclass(frozen=True)
class Moments:
    """Of vectors: their number, mean, Σ (x − mean)(x − mean)ᵀ, and the same squares of pairwise differences."""

    count: int
    mean: Float
    products: Float
    gaps: Float  # (K, K): Σ ((x_a − x_b) − mean)²; keeps the digits where two candidates move alike

    def about_zero(self) -> tuple[Float, Float]:
        """Σ x xᵀ and Σ (x_a − x_b)²."""
        apart = self.mean[:, None] - self.mean[None, :]
        return self.products + self.count * np.outer(self.mean, self.mean), self.gaps + self.count * apart**2


def moments(x: Float) -> Moments:
    """Of the columns of a (K, n) array."""
    size = len(x)
    if x.shape[1] == 0:
        return Moments(0, np.zeros(size), np.zeros((size, size)), np.zeros((size, size)))
    mean = x.mean(axis=1)
    y = x - mean[:, None]
    products, gaps = np.zeros((2, size, size))
    for a in range(size):  # no BLAS: its threads would change the last digits
        for b in range(a + 1):
            products[a, b] = products[b, a] = (y[a] * y[b]).sum()
            gaps[a, b] = gaps[b, a] = ((y[a] - y[b]) ** 2).sum()
    return Moments(x.shape[1], mean, products, gaps)


def merge_moments(a: Moments, b: Moments) -> Moments:
    count = a.count + b.count
    if not count:
        return a
    shift = b.mean - a.mean
    weight = a.count * b.count / count
    apart = shift[:, None] - shift[None, :]
    return Moments(
        count,
        a.mean + shift * (b.count / count),
        a.products + b.products + weight * np.outer(shift, shift),
        a.gaps + b.gaps + weight * apart**2,
    )


def packed(found: Moments) -> list[Any]:
    return [found.count, found.mean.tolist(), found.products.tolist(), found.gaps.tolist()]


def unpacked(state: list[Any]) -> Moments:
    return Moments(state[0], *(np.array(part, dtype=np.float64) for part in state[1:]))


@dataclass(frozen=True)
class RouteUnits:
    """By cluster, or dealt out in turn where rows are the units."""

    prepare: Prepare | None
    keep: tuple[str, ...]
    buckets: int
    clustered: bool = True

    @property
    def columns(self) -> tuple[str, ...] | None:
        return None if self.prepare is None else self.prepare.columns

    def __call__(self, table: pa.Table) -> Routed:
        rows = columns_of(table) if self.prepare is None else self.prepare(table, ())
        if self.clustered:
            bucket = cluster_bucket(rows["k0"], rows["k1"]) // (CLUSTER_BUCKETS // self.buckets)
        else:
            bucket = np.arange(len(table)) % self.buckets
        return Routed(table_of({name: rows[name] for name in self.keep}), bucket)


@dataclass(frozen=True)
class Ranked:
    """What turns the rows of one score into units, known when all of its bins are done."""

    k: int
    credit: float = 0.0  # Σ over rows of the credit of UQ-AUC
    pairs_credit: float = 0.0  # the same of UQ-C-index
    comparable: float = 0.0  # Σ over rows of the comparable rows, for UQ-C-index
    mean_shift: float = 0.0  # of its delete-one shifts
    value: float = 0.0  # of UQ-AUC
    centres: Float | None = None  # by score code
    shifts: dict[str, tuple[float, float, float]] | None = None  # `class_shifts` of the AURC family
    half: dict[str, tuple[float, float, float]] | None = None  # AUGRC, G-AUC, H-AUC: right, wrong, slope in credit2


@dataclass(frozen=True)
class FinishUnits:
    """A bucket of whole clusters (or of rows): the moments of its units, metric by metric."""

    n: int
    wrong: int
    scores: tuple[Ranked, ...]
    metrics: tuple[str, ...]
    clustered: bool
    inflate: tuple[float, float] = (1.0, 1.0)  # of influence values of right and wrong rows
    sizes: Int | None = None  # rows of each cluster bucket

    def __call__(self, bucket: int, table: pa.Table) -> Finished:
        rows = columns_of(table)
        if self.sizes is not None and len(table) != int(self.sizes[bucket]):
            raise changed(f"Bucket {bucket} of the clusters", len(table), int(self.sizes[bucket]))
        state: State = {"bucket": bucket, "rows": len(table)}
        g = clusters_of(rows) if self.clustered else None
        if g is not None:
            state |= cluster_counts(g, rows.get("e"))
        for metric in self.metrics:
            for name, x in self._units(metric, rows, g).items():
                state[name] = packed(moments(x))
        return Finished(state)

    def _units(self, metric: str, rows: Rows, g: Int | None) -> dict[str, Float]:
        if metric == "uq_auc":
            return self._auc(rows, g)
        if metric == "uq_c_index":
            return self._c_index(rows, g)
        e = rows["e"].astype(np.int64)
        x = np.stack([self._influence(metric, one, rows, e) for one in self.scores]) / self.n
        if g is None:
            return {metric: x * np.sqrt(np.array(self.inflate))[e]}
        return {metric: np.stack([np.bincount(g, weights=row) for row in x])}

    @staticmethod
    def _influence(metric: str, one: Ranked, rows: Rows, e: Int) -> Float:
        if one.half is not None and metric in one.half:
            right, wrong, slope = one.half[metric]
            return np.array([right, wrong])[e] + slope * rows[f"c{one.k}"]
        assert one.centres is not None
        assert one.shifts is not None
        right, wrong, scale = one.shifts[metric]
        own: Float = rows[f"a{one.k}"] - one.centres[rows[f"q{one.k}"]] + np.array([right, wrong])[e]
        return own / scale

    def _auc(self, rows: Rows, g: Int | None) -> dict[str, Float]:
        right = self.n - self.wrong
        wrong = rows["e"].astype(bool)
        if g is None:  # DeLong placements of right and of wrong rows
            x = np.stack([rows[f"c{one.k}"] for one in self.scores])
            values = np.array([one.value for one in self.scores])[:, None]
            return {
                "uq_auc right": x[:, ~wrong] / (2.0 * self.wrong) - values,
                "uq_auc wrong": x[:, wrong] / (2.0 * right) - values,
            }
        m = np.where(wrong, right, self.wrong).astype(np.float64)
        loss = rows["e"].astype(np.float64)
        total = 2.0 * self.wrong * right
        left = [_left_out(one.k, rows, rows[f"c{one.k}"], m, loss, g, one.credit, total) for one in self.scores]
        return {"uq_auc": np.stack(left)}

    def _c_index(self, rows: Rows, g: Int | None) -> dict[str, Float]:
        m = (self.n - rows["t"]).astype(np.float64)
        units = []
        for one in self.scores:
            x = rows[f"x{one.k}"]
            if g is not None:
                units.append(_left_out(one.k, rows, x, m, rows["d"], g, one.pairs_credit, one.comparable))
            else:
                twice = 2 * one.pairs_credit / one.comparable
                units.append((twice * m - x) / (one.comparable - 2.0 * m) - one.mean_shift)
        return {"uq_c_index": np.stack(units)}


def _left_out(
    k: int, rows: Rows, credit2: Int, comparable: Float, loss: Any, g: Int, credit: float, total: float
) -> Float:
    """The metric without each cluster; NaN where no comparable pair is left."""
    s = rows[f"s{k}"].astype(np.float64)
    inside2, inside = kernels.within_counts(s, np.asarray(loss, dtype=np.float64), g)
    top = credit - np.bincount(g, weights=credit2.astype(np.float64)) + np.bincount(g, weights=inside2 / 2.0)
    rest = total - 2.0 * np.bincount(g, weights=comparable) + np.bincount(g, weights=inside.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Float = np.where(rest > 1e-12 * total, top / rest, np.nan)
    return result


def clusters_of(rows: Rows) -> Int:
    """Clusters of a bucket as numbers from 0."""
    both = np.stack([rows["k0"], rows["k1"]], axis=1)
    order = np.lexsort((both[:, 1], both[:, 0]))
    new = np.zeros(len(order), dtype=np.int64)
    new[1:] = (both[order[1:]] != both[order[:-1]]).any(axis=1)
    g = np.empty(len(order), dtype=np.int64)
    g[order] = np.cumsum(new)
    return g


def cluster_counts(g: Int, error: Any) -> State:
    """Clusters, those with a right and with a wrong row, and the rows of the largest."""
    found: State = {"clusters": int(g.max()) + 1, "largest": int(np.bincount(g).max())}
    if error is not None:
        wrong = error.astype(bool)
        found |= {"with_wrong": len(np.unique(g[wrong])), "with_right": len(np.unique(g[~wrong]))}
    return found


@dataclass(frozen=True)
class FinishModel:
    """A bucket of whole clusters: Σ (sum over the cluster of the influence on a metric of the model)²."""

    n: int
    values: dict[str, float]
    signs: Float | None  # of the gap, by bin of confidence; nan where the bin is empty
    sizes: Int

    def __call__(self, bucket: int, table: pa.Table) -> Finished:
        rows = columns_of(table)
        if len(table) != int(self.sizes[bucket]):
            raise changed(f"Bucket {bucket} of the clusters", len(table), int(self.sizes[bucket]))
        g = clusters_of(rows)
        state: State = {"bucket": bucket, "rows": len(table), **cluster_counts(g, rows.get("e"))}
        for name, value in self.values.items():
            if name == "ece":
                assert self.signs is not None
                c = rows["confidence"]
                bins = np.searchsorted(np.arange(1, ECE_BINS) / ECE_BINS, c, side="left")
                x = self.signs[bins] * (1.0 - rows["e"] - c) - value
            else:
                x = (1.0 - rows["e"] if name == "accuracy" else rows[name]) - value
            sums = np.bincount(g, weights=x)
            state[name] = float((sums * sums).sum())
        return Finished(state)
