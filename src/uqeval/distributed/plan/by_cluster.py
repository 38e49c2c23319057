"""The last shuffle where rows are not enough by themselves: independent units, for clusters and for comparisons.

Every row arrives with its pair counts and its `own` part of AURC. Rows become units (themselves, or sums over
clusters): delete-one values, DeLong placements or influence values, as `inference.joint` makes them in memory. What
leaves a bucket is a count, a mean and a matrix of products, which merge.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from uqeval import kernels
from uqeval._check import Float, Int
from uqeval.distributed.engines.protocol import Finished, Routed, State, Table
from uqeval.distributed.plan import wire
from uqeval.distributed.plan.columns import Reading
from uqeval.distributed.plan.count import CLUSTER_BUCKETS, ECE_BINS, cluster_bucket
from uqeval.distributed.plan.edges import changed
from uqeval.distributed.plan.late import LateTerms, Pair
from uqeval.inference.sizes import Held, Loads, Powers
from uqeval.inference.tally import NAN, Moments
from uqeval.metrics.areas import Accepted
from uqeval.metrics.registry import REGISTRY

BIN_GAPS = "gaps of bins"  # moments over clusters: of the part that each has in the gaps of the bins of confidence …
BIN_SHARES = "shares of bins"  # … and in the rows


@dataclass(frozen=True)
class RouteUnits(Reading):
    """By cluster, or dealt out in turn where rows are the units."""

    keep: tuple[str, ...]
    buckets: int
    clustered: bool = True

    def __call__(self, table: Table) -> Routed:
        rows = wire.rows_of(table) if self.prepare is None else self.prepare(table, ())
        if self.clustered:
            bucket = cluster_bucket(*(rows[name] for name in wire.CLUSTER)) // (CLUSTER_BUCKETS // self.buckets)
        else:
            bucket = np.arange(len(table)) % self.buckets
        return Routed(wire.table_of({name: rows[name] for name in self.keep}), bucket)


@dataclass(frozen=True)
class Ranked:
    """What turns the rows of one score into units, known when all of its bins are done."""

    k: int
    credit: float = 0.0  # Σ over rows of the credit of UQ-AUC
    pairs_credit: float = 0.0  # the same of UQ-C-index
    comparable: float = 0.0  # Σ over rows of the comparable rows, for UQ-C-index
    mean_shift: float = 0.0  # of its delete-one shifts
    value: float = NAN  # of UQ-AUC
    centres: Float | None = None  # by score code
    terms: dict[str, tuple[float, float, Pair, Pair] | LateTerms] | None = None  # by metric of the areas, as floats


@dataclass(frozen=True)
class FinishUnits:
    """A bucket of whole clusters (or of rows): the moments of its units, metric by metric."""

    n: int
    wrong: int
    scores: tuple[Ranked, ...]
    metrics: tuple[str, ...]
    inflate: tuple[float, float] = (1.0, 1.0)  # of influence values of right and wrong rows
    sizes: Int | None = None  # rows of each cluster bucket

    def __call__(self, bucket: int, table: Table) -> Finished:
        rows = wire.rows_of(table)
        state: State = {"bucket": bucket, "rows": len(table)}
        g = None if self.sizes is None else _clusters(rows, state, self.sizes)
        for metric in self.metrics:
            units = {"auc": self._auc, "pairs": self._pairs}.get(REGISTRY[metric].tally, self._areas)
            for name, x in units(metric, rows, g).items():
                state[name] = Moments.of(x)
        return Finished(state)

    def _areas(self, metric: str, rows: wire.Rows, g: Int | None) -> dict[str, Float]:
        """Influence values."""
        e = rows[wire.ERROR].astype(np.int64)
        x = np.stack([self._influence(metric, one, rows, e, self.n) for one in self.scores]) / self.n
        if g is None:
            return {metric: x * np.sqrt(np.array(self.inflate))[e]}
        return {metric: np.stack([np.bincount(g, weights=row) for row in x])}

    @staticmethod
    def _influence(metric: str, one: Ranked, rows: wire.Rows, e: Int, n: int) -> Float:
        assert one.centres is not None
        assert one.terms is not None
        terms = one.terms[metric]
        if isinstance(terms, LateTerms):
            start = rows[wire.places(one.k)[0]]
            before, inside, after = (np.array(pair)[e] for pair in (terms.before, terms.inside, terms.after))
            behind = terms.own * (rows[wire.own(one.k)] - one.centres[rows[wire.bin_code(one.k)]]) + after
            return np.where(start >= terms.block[1], behind, np.where(start < terms.block[0], before, inside))
        own, credit, by_error, share = terms
        rule = REGISTRY[metric].formula
        if isinstance(rule, Accepted):
            start, stop = (rows[name] for name in wire.places(one.k))
            return np.array(by_error)[e] + np.array(share)[e] * rule.share(start, stop, n)
        if credit:
            return np.array(by_error)[e] + credit * rows[wire.credit(one.k)]
        shift = np.array(by_error)[e] / own
        return own * (rows[wire.own(one.k)] - one.centres[rows[wire.bin_code(one.k)]] + shift)

    def _auc(self, metric: str, rows: wire.Rows, g: Int | None) -> dict[str, Float]:
        """DeLong placements of right and of wrong rows, or the values without each cluster."""
        right = self.n - self.wrong
        wrong = rows[wire.ERROR].astype(bool)
        if g is None:
            x = np.stack([rows[wire.credit(one.k)] for one in self.scores])
            values = np.array([one.value for one in self.scores])[:, None]
            return {
                f"{metric} right": x[:, ~wrong] / (2.0 * self.wrong) - values,
                f"{metric} wrong": x[:, wrong] / (2.0 * right) - values,
            }
        m = np.where(wrong, right, self.wrong).astype(np.float64)
        loss = rows[wire.ERROR].astype(np.float64)
        total = 2.0 * self.wrong * right
        left = [_left_out(one.k, rows, rows[wire.credit(one.k)], m, loss, g, one.credit, total) for one in self.scores]
        return {metric: np.stack(left)}

    def _pairs(self, metric: str, rows: wire.Rows, g: Int | None) -> dict[str, Float]:
        """Delete-one shifts, or the values without each cluster."""
        m = (self.n - rows[wire.TIED]).astype(np.float64)
        units = []
        for one in self.scores:
            x = rows[wire.pairs(one.k)]
            if g is not None:
                units.append(_left_out(one.k, rows, x, m, rows[wire.LOSS], g, one.pairs_credit, one.comparable))
            else:
                twice = 2 * one.pairs_credit / one.comparable
                units.append((twice * m - x) / (one.comparable - 2.0 * m) - one.mean_shift)
        return {metric: np.stack(units)}


def _left_out(
    k: int, rows: wire.Rows, credit2: Int, comparable: Float, loss: Any, g: Int, credit: float, total: float
) -> Float:
    """The metric without each cluster; NaN where no comparable pair is left."""
    s = rows[wire.score(k)].astype(np.float64)
    inside2, inside = kernels.within_sums(s, np.asarray(loss, dtype=np.float64), kernels.group(g))
    top = credit - np.bincount(g, weights=credit2.astype(np.float64)) + inside2 / 2.0
    rest = total - 2.0 * np.bincount(g, weights=comparable) + inside
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Float = np.where(rest > 1e-12 * total, top / rest, np.nan)
    return result


def clusters_of(rows: wire.Rows) -> Int:
    """Clusters of a bucket as numbers from 0."""
    both = np.stack([rows[name] for name in wire.CLUSTER], axis=1)
    order = np.lexsort((both[:, 1], both[:, 0]))
    new = np.zeros(len(order), dtype=np.int64)
    new[1:] = (both[order[1:]] != both[order[:-1]]).any(axis=1)
    g = np.empty(len(order), dtype=np.int64)
    g[order] = np.cumsum(new)
    return g


def _clusters(rows: wire.Rows, state: State, sizes: Int) -> Int:
    """Clusters of a bucket, which must have come whole; notes how many, on which side, how large."""
    if state["rows"] != (counted := int(sizes[state["bucket"]])):
        raise changed(f"Bucket {state['bucket']} of the clusters", state["rows"], counted)
    g, sides = clusters_of(rows), [0, 0]
    held = np.bincount(g).astype(np.float64)
    bad = np.zeros_like(held)
    if wire.ERROR in rows:
        bad = np.bincount(g, weights=rows[wire.ERROR], minlength=len(held)).astype(np.float64)
        sides = [int(np.count_nonzero(held > bad)), int(np.count_nonzero(bad))]
    units = (Powers.of(x) for x in (held, held - bad, bad))
    state["loads"] = Loads(Powers(*(3 * (float(len(g)),))), *units)
    state |= {"held": Held(len(held), *sides), "largest": int(held.max())}
    return g


def _by_bin(g: Int, bins: Int, x: Float) -> Float:
    """(bins, clusters) sums."""
    clusters = int(g.max()) + 1
    sums: Float = np.bincount(bins * clusters + g, weights=x, minlength=ECE_BINS * clusters).astype(np.float64)
    return sums.reshape(ECE_BINS, clusters)


@dataclass(frozen=True)
class FinishModel:
    """A bucket of whole clusters: moments of the influence of each cluster on a metric of the model."""

    n: int
    values: dict[str, float]  # by quantity of the metric
    gaps: Float | None  # by bin of confidence; nan where the bin is empty
    sizes: Int

    def __call__(self, bucket: int, table: Table) -> Finished:
        rows = wire.rows_of(table)
        state: State = {"bucket": bucket, "rows": len(table)}
        g = _clusters(rows, state, self.sizes)
        for name, value in self.values.items():
            if name == "confidence":
                assert self.gaps is not None
                bins = np.searchsorted(np.arange(1, ECE_BINS) / ECE_BINS, rows[name], side="left")
                apart = 1.0 - rows[wire.ERROR] - rows[name]
                x = np.sign(self.gaps)[bins] * apart - value
                by_bin = partial(_by_bin, g, bins)
                state[BIN_GAPS] = Moments.of(by_bin((apart - self.gaps[bins]) / self.n))
                state[BIN_SHARES] = Moments.of(by_bin(np.full(len(g), 1 / self.n)))
            else:
                x = (1.0 - rows[wire.ERROR] if name == "accuracy" else rows[name]) - value
            state[name] = Moments.of(np.bincount(g, weights=x / self.n).astype(np.float64)[None])
        return Finished(state)
