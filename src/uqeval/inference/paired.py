"""Differences of a metric between scores or models on the same rows: joint covariance, intervals, p-values.

Every candidate is reduced to numbers per independent unit (row or cluster) whose products sum to its covariances:
DeLong placements, delete-one shifts or influence values, whichever the interval of the metric itself uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from uqeval import kernels
from uqeval._check import Float
from uqeval.inference.concordance import leave_out, tau_inside, tau_left
from uqeval.inference.influence import INFLUENCE
from uqeval.inference.intervals import t_quantile
from uqeval.inference.sample import Sample, kish
from uqeval.metrics.correlation import pair_rows, tau_b

__all__ = ["Contrast", "Joint", "Part", "contrast", "joint_of_rows", "joint_of_samples", "rank_alike"]

NAN = float("nan")
_TINY = 1e-9  # of the variances: below that the covariance route has lost its digits


class Part(NamedTuple):
    """An independent part of the variance: (K, units) numbers with Cov = U Uᵀ, and its degrees of freedom."""

    units: Float
    df: float


@dataclass(frozen=True)
class Joint:
    """Values of K candidates and the parts of their covariance."""

    values: Float
    parts: tuple[Part, ...]

    def covariance(self) -> Float:
        """(K, K)."""
        return np.sum([part.units @ part.units.T for part in self.parts], axis=0)


class Contrast(NamedTuple):
    """values[a] − values[b]; `close` where the two move so alike that their covariance has lost its digits."""

    difference: float
    se: float
    df: float
    t: float
    p: float
    close: bool = False


def contrast(joint: Joint, covariances: list[Float], a: int, b: int) -> Contrast:
    """One difference; `covariances` are those of the parts, computed once."""
    difference = float(joint.values[a]) - float(joint.values[b])
    if math.isnan(difference):
        return Contrast(NAN, NAN, NAN, NAN, NAN)
    variances = []
    close = False
    for part, cov in zip(joint.parts, covariances, strict=True):
        total = float(cov[a, a] + cov[b, b])
        variance = total - 2 * float(cov[a, b])
        if variance <= _TINY * total:
            gap = part.units[a] - part.units[b]
            variance = float(gap @ gap)
            close = True
        variances.append(variance)
    variance = sum(variances)
    if math.isnan(variance):
        return Contrast(difference, NAN, NAN, NAN, NAN)
    if variance <= 0 or math.sqrt(variance) < 1e-15:
        return Contrast(difference, 0.0, math.inf, 0.0, 1.0)
    # Welch–Satterthwaite; with one part it is that part's own df.
    spread = sum(v * v / part.df for v, part in zip(variances, joint.parts, strict=True) if v > 0 and part.df > 0)
    df = variance**2 / spread if spread > 0 else 0.0
    se = math.sqrt(variance)
    return Contrast(difference, se, df, difference / se, two_sided(difference / se, df), close)


def two_sided(t: float, df: float) -> float:
    """P(|T| ≥ |t|) with df degrees of freedom; 1 where there are none."""
    from scipy.special import ndtr, stdtr

    if not df > 0:
        return 1.0
    return float(2 * (ndtr(-abs(t)) if df > 1e9 else stdtr(df, -abs(t))))


def margin(se: float, df: float, level: float) -> float:
    """Half-width of the interval of one difference."""
    return t_quantile(level, df) * se if se > 0 else se


def rank_alike(a: Sample, b: Sample) -> bool:
    """Whether two candidates order all rows alike, against the same target: every metric is the same then."""
    if not np.array_equal(a.target, b.target):
        return False
    first, second = kernels.order_by(a.score), kernels.order_by(b.score)
    ranks = np.empty((2, a.n), dtype=np.int64)
    ranks[0, first.row], ranks[1, second.row] = first.start, second.start
    return bool(np.array_equal(ranks[0], ranks[1]))


# ---- candidates → units -----------------------------------------------------------------------------------------


def joint_of_samples(metric: str, samples: list[Sample]) -> Joint:
    """Scores (or models) ranked against their targets."""
    base = {"kendall_phi": "kendall", "kendall_varphi": "kendall", "somers_phi": "somers", "somers_varphi": "somers"}
    name = base.get(metric, metric)
    if name in ("uq_c_index", "somers"):
        found = _concordance([replace(s, target=s.loss) if s.binary else s for s in samples])
        return (
            Joint(2 * found.values - 1, tuple(Part(2 * p.units, p.df) for p in found.parts))
            if name == "somers"
            else found
        )
    if name == "kendall":
        return _kendall(samples)
    if name == "uq_auc":
        return _auc(samples)
    return _areas(name, samples)


def joint_of_rows(values: Float, influence: Float, sample: Sample) -> Joint:
    """Means (accuracy, Brier score, log-loss, ECE): K rows of influence values."""
    return Joint(values, (_influence_part(sample, influence, _df(sample), None),))


def _df(sample: Sample) -> float:
    if sample.n_clusters is not None:
        return sample.n_clusters - 1
    return (sample.n if sample.weights is None else kish(sample.weights)) - 1


def _influence_part(sample: Sample, influence: Float, df: float, inflate: Float | None) -> Part:
    units = influence * (sample.w / sample.total_weight)
    if sample.clusters is not None:
        units = _by_cluster(units, sample)
        groups = units.shape[1]
        return Part(units * math.sqrt(groups / (groups - 1)) if groups > 1 else units * NAN, df)
    return Part(units * (math.sqrt(sample.n / (sample.n - 1)) if inflate is None else np.sqrt(inflate)), df)


def _by_cluster(units: Float, sample: Sample) -> Float:
    assert sample.clusters is not None
    return np.stack([np.bincount(sample.clusters, weights=row) for row in units])


def _jackknife_part(left: Float, df: float) -> Part:
    """From the (K, units) values without each unit."""
    count = left.shape[1]
    if count < 2:
        return Part(np.full(left.shape, NAN), df)
    shift = left - left.mean(axis=1, keepdims=True)
    return Part(shift * math.sqrt((count - 1) / count), df)


def _auc(samples: list[Sample]) -> Joint:
    first = samples[0]
    wrong, right = first.target.astype(bool), ~first.target.astype(bool)
    n1, n0 = int(wrong.sum()), int(right.sum())
    same = all(s.target is first.target or np.array_equal(s.target, first.target) for s in samples)
    if same and first.plain:
        if not n1 or not n0:
            return _undefined(len(samples))
        credit = np.stack([s.auc[0] for s in samples])
        values = np.array([s.auc[1].credit2 / (2 * n1 * n0) for s in samples])
        parts = []
        for rows, others in ((right, n1), (wrong, n0)):
            count = int(rows.sum())
            placement = credit[:, rows] / (2.0 * others) - values[:, None]
            scale = 1 / math.sqrt(count * (count - 1)) if count > 1 else NAN
            parts.append(Part(placement * scale, count - 1))
        return Joint(values, tuple(parts))
    sizes = []
    for sample in samples:
        is_wrong = sample.target.astype(bool)
        sizes += [kish(sample.w[is_wrong]), kish(sample.w[~is_wrong])]
    if min(sizes) == 0:
        return Joint(np.array([_auc_value(s) for s in samples]), _undefined(len(samples)).parts)
    if first.plain:  # two models: each its own errors, so DeLong's common-label formula does not apply
        influence = np.stack([INFLUENCE["uq_auc"](s) for s in samples])
        values = np.array([s.auc[1].credit2 / (2 * s.n_errors * (s.n - s.n_errors)) for s in samples])
        return Joint(values, (_influence_part(first, influence, min(sizes) - 1, None),))
    return _concordance(samples, df=None if first.clusters is not None else min(sizes) - 1)


def _auc_value(sample: Sample) -> float:
    if sample.n_errors in (0, sample.n):
        return NAN
    credit, comparable = sample.pairs
    return float((sample.w * credit).sum() / (sample.w * comparable).sum())


def _undefined(count: int) -> Joint:
    return Joint(np.full(count, NAN), (Part(np.full((count, 2), NAN), 1.0),))


def _concordance(samples: list[Sample], df: float | None = None) -> Joint:
    """Delete-one (row or cluster) jackknife of the differences."""
    if samples[0].plain and not samples[0].binary:
        return _plain_concordance(samples)
    values, left = [], []
    for sample in samples:
        inside = None if sample.clusters is None else list(sample.within())
        (credit, total), (credit_left, total_left) = leave_out(sample, list(sample.pairs), inside)
        values.append(credit / total if total else NAN)
        with np.errstate(divide="ignore", invalid="ignore"):
            left.append(np.where(total_left > 1e-12 * total, credit_left / total_left, NAN))
    return Joint(np.array(values), (_jackknife_part(np.stack(left), _df(samples[0]) if df is None else df),))


def _plain_concordance(samples: list[Sample]) -> Joint:
    """The same from integer counts, in one pass over each score: d_i = −(credit2_i − 2C·m_i)/(M − 2m_i)."""
    n = samples[0].n
    values, units = np.full(len(samples), NAN), np.empty((len(samples), n))
    for k, sample in enumerate(samples):
        credit2, comparable = sample.pair_counts
        total = int(comparable.sum())
        if total == 0 or total <= 2 * int(comparable.max()):
            values[k] = int(credit2.sum()) / (2 * total) if total else NAN
            units[k] = NAN
            continue
        twice = int(credit2.sum()) / total
        values[k] = twice / 2
        if comparable[0] * n == total and comparable.min() == comparable[0]:  # no ties: m_i is the same for all
            m = int(comparable[0])
            np.subtract(twice * m, credit2, out=units[k])
            units[k] *= math.sqrt((n - 1) / n) / (total - 2 * m)
        else:
            shift = (twice * comparable - credit2) / (total - 2.0 * comparable)
            units[k] = (shift - shift.mean()) * math.sqrt((n - 1) / n)
    return Joint(values, (Part(units, n - 1),))


def _kendall(samples: list[Sample]) -> Joint:
    values, left = [], []
    for sample in samples:
        rows = list(pair_rows(sample.score, sample.loss, sample.weights))
        inside = tau_inside(sample) if sample.clusters is not None else None
        totals, without = leave_out(sample, rows, inside)
        values.append(tau_b(*totals, rounded=sample.weights is not None))
        left.append(tau_left(totals, without))
    return Joint(np.array(values), (_jackknife_part(np.stack(left), _df(samples[0])),))


def _areas(name: str, samples: list[Sample]) -> Joint:
    """AURC and its relatives: t with (fewest errors − 1), rows where any candidate errs inflated by m/(m − 1)."""
    from uqeval.inference.selective import area_value, error_size

    first = samples[0]
    values = np.array([area_value(name, s) for s in samples])
    undefined = np.full(first.n, NAN)
    influence = np.stack(
        [undefined if np.isnan(value) else INFLUENCE[name](s) for value, s in zip(values, samples, strict=True)]
    )
    if first.clusters is not None:
        return Joint(values, (_influence_part(first, influence, _df(first), None),))
    bad = np.any([s.target > 0 for s in samples], axis=0)
    size = kish(first.w * np.max([s.loss for s in samples], axis=0))
    df = min(error_size(s) for s in samples) - 1
    n = first.n
    inflate = np.where(bad, size / (size - 1) if size > 1 else NAN, n / (n - 1))
    return Joint(values, (_influence_part(first, influence, df, inflate),))
