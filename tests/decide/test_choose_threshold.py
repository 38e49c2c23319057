"""`choose_threshold`: what it certifies equals slow definitions, and what it says is what its threshold does."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import uqeval as uq
from optional import optional
from strategies import FINITE_SCORES, SPECIAL, make_scores, seeds
from uqeval import InputError, Threshold, Thresholds, UQWarning, choose_threshold
from uqeval.decide import bounds
from uqeval.decide.threshold import shown

pd = optional("pandas")
pl = optional("polars")

METHODS = ("step-down", "fallback", "fst", "sgr", "bonferroni", "holm", "rcps", "crc")
JOINT = ("rcps", "crc")
LOSSES = ("errors", "dyadic", "continuous")
risks = st.sampled_from([0.05, 0.1, 0.2, 0.35, 0.5, 0.7])
levels = st.sampled_from([0.6, 0.8, 0.9, 0.95])
methods = st.sampled_from(METHODS)


def quietly(*args, **options):
    """`choose_threshold` where its warnings are not the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return choose_threshold(*args, **options)


class Rows(NamedTuple):
    score: np.ndarray
    loss: np.ndarray
    clusters: np.ndarray | None
    rng: np.random.Generator


def make_loss(rng, score, how):
    """Low at low scores, more or less: errors, eighths (sums are exact), or any loss in [0, 1]."""
    u = stats.rankdata(score, method="max") / len(score)
    base, steep = rng.choice([0.0, 0.0, 0.0, 0.02, 0.1]), rng.choice([0.1, 1.0, 1.0, 2.0, 2.0])
    rate = np.clip(base + steep * u ** rng.integers(1, 6), 0, 1)
    if how == "errors":
        return (rng.random(len(u)) < rate).astype(np.float64)
    return rng.binomial(8, rate) / 8 if how == "dyadic" else np.minimum(1.0, rate * rng.random(len(u)))


@st.composite
def samples(draw, *, most=300, least=2, losses=LOSSES, clustered=True):
    """Rows with few and with heavy ties, signed zeros, denormals, +inf; losses; sometimes clusters."""
    n, kind = draw(st.integers(least, most)), draw(st.sampled_from((*FINITE_SCORES, "special")))
    how, grouped = draw(st.sampled_from(losses)), clustered and draw(st.booleans())
    rng = np.random.default_rng(draw(seeds))
    score = rng.choice(SPECIAL[~np.isneginf(SPECIAL)], n) if kind == "special" else make_scores(rng, n, kind)
    clusters = rng.integers(0, max(1, n // int(rng.choice([1, 2, 5]))), n) if grouped else None
    return Rows(score, make_loss(rng, score, how), clusters, rng)


def way(method, clusters, cluster="t"):
    """ "rcps" takes clusters only as one row of each."""
    return "subsample" if method == "rcps" and clusters is not None else cluster


def observed_risk(loss, inside, method, clusters=None):
    """Loss of the accepted rows over the rows that count; with clusters a row of a cluster of m counts 1/m."""
    weight = np.ones(len(loss)) if clusters is None else np.array([1 / (clusters == g).sum() for g in clusters])
    counted = weight.sum() if method in JOINT else weight[inside].sum()
    return math.fsum((weight * loss)[inside]) / counted


# ---- the reported counts are those of accept() --------------------------------------------------------------------


def check_counts(t, score, loss, clusters=None):
    """What the threshold says about its calibration rows is what it does on them."""
    loss = np.asarray(loss, dtype=np.float64)
    inside = t.accept(score)
    assert inside.dtype == np.bool_
    assert inside.shape == loss.shape
    assert int(inside.sum()) == t.n_accepted
    assert t.n == len(loss)
    assert t.coverage == t.n_accepted / t.n
    assert t.feasible == (t.value > -math.inf)
    low, high = t.coverage_interval
    assert math.isnan(low) or 0 <= low <= t.coverage <= high <= 1
    total = math.fsum(loss[inside])
    if set(loss.tolist()) <= {0.0, 1.0}:
        assert isinstance(t.errors_accepted, int)
    if (loss * 8 == np.round(loss * 8)).all():
        assert t.errors_accepted == total
    else:
        assert t.errors_accepted == pytest.approx(total, rel=1e-12)
    assert t.n_clusters == (None if clusters is None else len(np.unique(clusters)))
    assert (t.cluster_method is None) == (clusters is None)
    if t.feasible:
        assert t.risk_bound == t.max_risk
        assert t.hopeful
        if t.cluster_method == "subsample":
            expected = observed_risk(loss, inside, t.method, np.asarray(clusters))
            assert t.risk == pytest.approx(expected, rel=1e-12, abs=1e-15)
        elif t.n_accepted or t.method in JOINT:
            expected = t.errors_accepted / (t.n if t.method in JOINT else t.n_accepted)
            assert t.risk == pytest.approx(expected, rel=1e-12, abs=1e-15 if t.cluster_method else 0.0)
        else:  # a candidate fixed beforehand that no row lies below
            assert math.isnan(t.risk)
    else:
        assert (t.n_accepted, t.errors_accepted, t.coverage) == (0, 0, 0.0)
        assert math.isnan(t.risk)


@given(samples(), risks, levels, methods, st.sampled_from(["t", "subsample"]))
@settings(max_examples=50)
def test_accepting_reproduces_the_reported_counts(rows, max_risk, level, method, cluster):
    cluster = way(method, rows.clusters, cluster)
    t = quietly(rows.score, rows.loss, max_risk, level, method, clusters=rows.clusters, cluster_method=cluster)
    check_counts(t, rows.score, rows.loss, rows.clusters)
    if rows.clusters is not None:
        assert t.cluster_method == ("subsample" if method == "crc" else cluster)
    if t.feasible and t.cluster_method != "subsample":
        assert t.risk <= max_risk  # no test at a level above one half rejects against the observed risk


KINDS = {
    **{f"float{b}": lambda x, b=b: np.asarray(x, dtype=f"f{b // 8}") for b in (16, 32, 64)},
    **{f"int{b}": lambda x, b=b: np.asarray(np.rint(x), dtype=f"i{b // 8}") for b in (8, 16, 32, 64)},
    "uint8": lambda x: np.asarray(np.rint(np.abs(x)), dtype=np.uint8),
    "uint64": lambda x: np.asarray(np.rint(np.abs(x)), dtype=np.uint64),
    "bool": lambda x: np.asarray(x) > 0,
    "list": lambda x: [float(v) for v in x],
    "ints": lambda x: [round(v) for v in x],
    "bools": lambda x: [bool(v > 0) for v in x],
    "tuple": lambda x: tuple(np.rint(x).tolist()),
    "view": lambda x: np.asarray(x, dtype=">f4").repeat(2)[::-2],
    "pandas": lambda x: pd.Series(np.asarray(x, dtype=np.float32), index=np.arange(len(x))[::-1]),
    "Int8": lambda x: pd.Series(np.rint(x).astype(int)).astype("Int8"),
    "polars": lambda x: pl.Series(np.asarray(x, dtype=np.float32)),
    "polars bool": lambda x: pl.Series(np.asarray(x) > 0),
    "arrow": lambda x: pa.array(np.rint(x)),
}
ERRORS = {
    "bool": lambda e: np.asarray(e) > 0,
    "uint8": lambda e: np.asarray(e, dtype=np.uint8),
    "int64": lambda e: np.asarray(e, dtype=np.int64),
    "float16": lambda e: np.asarray(e, dtype=np.float16),
    "list": lambda e: [bool(x) for x in e],
    "pandas": lambda e: pd.Series(np.asarray(e) > 0, index=np.arange(len(e)) + 7),
    "polars": lambda e: pl.Series(np.asarray(e) > 0),
}


@settings(max_examples=5)
@given(st.integers(2, 200), seeds, risks, methods, st.sampled_from(sorted(ERRORS)), st.booleans())
def test_every_dtype_and_container_gives_the_same_threshold_and_counts(n, seed, max_risk, method, errors, soft):
    for kind in KINDS:
        rng = np.random.default_rng(seed)
        score = KINDS[kind](rng.normal(0, 3, n))
        plain = np.array([float(x) for x in score])
        loss = make_loss(rng, plain, "dyadic" if soft else "errors")
        t = quietly(score, loss if soft else ERRORS[errors](loss), max_risk, 0.8, method)
        check_counts(t, score, loss)
        check_counts(t, plain, loss)
        assert t == quietly(plain, loss, max_risk, 0.8, method)


def test_both_zeros_are_one_score():
    score = np.where(np.arange(400) % 2 == 0, 0.0, -0.0)
    score[300:] = 1.0
    error = (score > 0).astype(int)
    for method in METHODS:
        t = choose_threshold(score, error, 0.1, method=method)
        assert (t.value, t.n_accepted) == (0.0, 300) or t.method in JOINT
        assert math.copysign(1.0, t.value) == 1.0
        check_counts(t, score, error)
        assert t.data_hash == choose_threshold(np.abs(score), error, 0.1, method=method).data_hash
        assert t.accept([-0.0, 0.0]).tolist() == [True, True]


def test_denormal_scores_stay_apart():
    for method in METHODS:
        score = np.repeat([5e-324, 1e-323], [300, 300])
        error = np.repeat([0, 1], [300, 300])
        t = choose_threshold(score, error, 0.1, method=method)
        assert (t.value, t.n_accepted, t.errors_accepted) == (5e-324, 300, 0)
        assert t.accept(score).tolist() == (error == 0).tolist()


def test_a_score_of_plus_infinity_can_be_accepted():
    for method in METHODS:
        score, error = np.repeat([1.0, np.inf], [100, 300]), np.zeros(400)
        with pytest.warns(UQWarning, match="300 infinite"):
            t = choose_threshold(score, error, 0.1, method=method)
        assert t.value == np.inf
        assert t.accept(score).all()
        check_counts(t, score, error)


@settings(max_examples=20)
@given(samples(clustered=False), risks, methods)
def test_a_tied_block_is_accepted_whole_or_not_at_all(rows, max_risk, method):
    t = quietly(rows.score, rows.loss, max_risk, 0.8, method)
    inside = t.accept(rows.score)
    values, sizes = np.unique(rows.score, return_counts=True)
    for value in values:
        assert len(set(inside[rows.score == value].tolist())) == 1
    assert t.n_accepted in {0, *np.cumsum(sizes).tolist()}
    assert t.value in {-math.inf, *values.tolist()}


# ---- the order of rows ------------------------------------------------------------------------------------------


@given(
    samples(),
    st.lists(risks, min_size=1, max_size=3),
    methods,
    st.sampled_from([None, 0.5, 0.3]),
    st.sampled_from(["t", "subsample"]),
    st.sampled_from(["betting", "hoeffding-bentkus"]),
    st.integers(0, 3),
)
@settings(max_examples=50)
def test_permuting_the_rows_changes_nothing_at_all(rows, targets, method, split, cluster, bound, seed):
    units = len(rows.score) if rows.clusters is None else len(set(rows.clusters.tolist()))
    assume(split is None or units >= 20)
    order = rows.rng.permutation(len(rows.score))
    options = {"method": method, "split": split, "bound": bound, "seed": seed, "level": 0.8}
    options["cluster_method"] = way(method, rows.clusters, cluster)
    before = quietly(rows.score, rows.loss, targets, clusters=rows.clusters, **options)
    clusters = None if rows.clusters is None else rows.clusters[order]
    after = quietly(rows.score[order], rows.loss[order], targets, clusters=clusters, **options)
    assert before == after
    assert str(before) == str(after)


@settings(max_examples=20)
@given(samples(least=20, clustered=False, losses=("errors", "continuous")), risks, st.sampled_from([None, 0.5]))
def test_permuting_the_rows_changes_nothing_with_several_scores(rows, max_risk, split):
    order = rows.rng.permutation(len(rows.score))
    scores = {"a": rows.score, "b": rows.rng.normal(size=len(rows.score)), "c": -np.arange(len(rows.score)) // 5}
    before = quietly(scores, rows.loss, max_risk, 0.8, split=split)
    after = quietly({name: s[order] for name, s in scores.items()}, rows.loss[order], max_risk, 0.8, split=split)
    assert before == after


def test_permuting_losses_of_both_zeros_changes_nothing():
    loss = np.array([0.0, -0.0, 0.25, -0.0] * 50)
    score = np.repeat([0.0, 1.0], 100)
    before = choose_threshold(score, loss, 0.3)
    order = np.random.default_rng(0).permutation(200)
    assert before == choose_threshold(score[order], loss[order], 0.3)
    assert before == choose_threshold(score, np.abs(loss), 0.3)


def test_the_hash_tells_other_data_apart():
    score, error, groups = np.arange(60.0), np.arange(60) % 7 == 0, np.arange(60) // 2
    base = {"score": score, "error": error}
    others = [
        {},
        {"score": score + 1},
        {"error": ~error},
        {"error": error * 0.5},
        {"clusters": groups},
        {"clusters": groups // 2},
        {"score": score[:-1], "error": error[:-1]},
    ]
    hashes = {choose_threshold(**{**base, **other}, max_risk=0.3).data_hash for other in others}
    assert len(hashes) == len(others)
    assert all(len(digest) == 64 for digest in hashes)


def test_the_labels_of_clusters_do_not_matter():
    rng = np.random.default_rng(1)
    codes, score = rng.integers(0, 60, 300), rng.random(300)
    error = (rng.random(300) < 0.2 * score).astype(int)
    names = np.array([f"p{code:03d}" for code in codes])
    found = [choose_threshold(score, error, 0.3, clusters=g) for g in (codes, names, pd.Series(names), codes + 0.5)]
    assert all(t == found[0] for t in found)
    assert found[0].feasible


# ---- every method against a slow definition ---------------------------------------------------------------------


def slow_p(rows, t, gamma, bound="betting", joint=False, lossless=False):
    """P-value of "the mean loss of {score ≤ t} is above gamma"; `lossless`: as if no row had any loss."""
    inside = rows.score <= t
    binary = set(rows.loss.tolist()) <= {0.0, 1.0}
    if lossless:
        rows = rows._replace(loss=np.zeros(len(rows.loss)))
    counted = np.ones(len(inside), dtype=bool) if joint else inside
    loss = np.where(inside, rows.loss, 0.0)
    if rows.clusters is not None:
        present = np.unique(rows.clusters[counted])
        total = np.array([loss[counted & (rows.clusters == g)].sum() for g in present])
        size = np.array([float((counted & (rows.clusters == g)).sum()) for g in present])
        largest = float(np.bincount(rows.clusters).max())
        return float(bounds.cluster_p(bounds.moments(total, size), gamma, largest=largest)[0])
    loss = loss[counted]
    if binary:
        return float(stats.binom.cdf(loss.sum(), len(loss), gamma)) if len(loss) else 1.0
    if bound == "hoeffding-bentkus":
        return float(bounds.hoeffding_bentkus_p(np.asarray(math.fsum(loss)), np.asarray(len(loss)), gamma))
    wealth = np.array([np.prod(1 + stake * (gamma - loss)) for stake in bounds.betting_scale(gamma)])
    return min(1.0, 1 / wealth.mean()) if wealth.any() else 1.0


def slow_rows(rows, t):
    return int((rows.score <= t).sum())


def slow_grid(score, cells):
    n, ordered = len(score), np.sort(score)
    return sorted({float(ordered[math.ceil(Fraction(n * j, cells)) - 1]) for j in range(1, cells + 1)})


def slow_shares(thresholds, could, rows, delta):
    """delta in parts, by the threshold at which each comes in."""
    sizes, total = {t: slow_rows(rows, t) for t in thresholds}, slow_rows(rows, math.inf)
    for parts in (5, 4, 3, 2):
        enough = [t for t in thresholds if could[t] <= delta / parts]
        if any(3 * sizes[t] <= total for t in enough):
            later = [t for t in thresholds if t >= enough[0]]
            places = [later[(i * len(later)) // parts] for i in range(parts)]
            return {t: places.count(t) * delta / parts for t in places}
    enough = [t for t in thresholds if could[t] <= 0.8 * delta]
    half = [t for t in thresholds if 2 * sizes[t] >= total]
    if enough and half and enough[0] < half[0]:
        return {enough[0]: 0.8 * delta, half[0]: 0.2 * delta}
    return dict.fromkeys(thresholds[:1], delta)


def slow_threshold(method, rows, gamma, delta, bound="betting", thresholds=None):
    """The methods as their papers state them; −inf where nothing is certified."""
    n, every = len(rows.score), sorted(rows.score.tolist())
    if method == "crc":
        # Every unit has one vote; one more, all wrong, must still fit in.
        groups = np.arange(n) if rows.clusters is None else rows.clusters
        units, votes = len(np.unique(groups)), rows.loss / np.bincount(groups)[groups]
        room = Fraction(str(gamma)) * (units + 1) + Fraction(1, 10**8)
        bad = {t: Fraction(math.fsum(votes[rows.score <= t])) for t in thresholds or every}
        return max((t for t in bad if bad[t] + 1 <= room), default=-math.inf)
    if method == "rcps":
        assert rows.clusters is None
        candidates = sorted(set(thresholds or every))
        return max((t for t in candidates if slow_p(rows, t, gamma, bound, joint=True) <= delta), default=-math.inf)
    if method == "sgr":
        candidates = thresholds or every
        share, best, low, high, tests = delta / math.ceil(math.log2(len(candidates) + 1)), -math.inf, 1, 0, 0
        high = len(candidates)
        while low <= high:
            middle = (low + high) // 2
            tests += 1
            if slow_p(rows, candidates[middle - 1], gamma, bound) <= share:
                best, low = max(best, candidates[middle - 1]), middle + 1
            else:
                high = middle - 1
        assert tests * share <= delta * (1 + 1e-12)
        return best
    if thresholds is None:
        thresholds = slow_grid(rows.score, 50 if method in ("bonferroni", "holm") else min(100, max(20, n // 10)))
    # Regions that could not pass even without a loss are left out.
    could = {t: slow_p(rows, t, gamma, bound, lossless=True) for t in thresholds}
    thresholds = [t for t in thresholds if could[t] <= delta]
    p = [slow_p(rows, t, gamma, bound) for t in thresholds]
    best = -math.inf
    if method == "fst":
        for t, value in zip(thresholds, p, strict=True):
            if value > delta:
                break
            best = t
        return best
    if method == "bonferroni":
        return max((t for t, value in zip(thresholds, p, strict=True) if value <= delta / len(p)), default=best)
    if method == "holm":
        left = sorted(zip(p, thresholds, strict=True))
        while left and left[0][0] <= delta / len(left):
            best = max(best, left.pop(0)[1])
        return best
    assert method in ("step-down", "fallback")
    shares = slow_shares(thresholds, could, rows, delta)
    counted = rows.clusters is None and set(rows.loss.tolist()) <= {0.0, 1.0}
    if method == "step-down" and counted and thresholds:
        return slow_step_down(thresholds, p, [slow_rows(rows, t) for t in thresholds], gamma, delta, shares)
    alpha = 0.0
    for k, t in enumerate(thresholds):
        alpha += shares.get(t, 0.0)
        if p[k] <= alpha:
            best = t
        else:
            alpha = 0.0
    return best


def chance_to_pass(sizes, gamma, levels):
    """That any of the regions of so many rows, whose risk is gamma everywhere, has a p-value within its level."""
    counts, passed, before = {0: 1.0}, 0.0, 0
    for size, level in zip(sizes, levels, strict=True):
        step = stats.binom.pmf(np.arange(size - before + 1), size - before, gamma)
        after = np.convolve([counts.get(e, 0.0) for e in range(before + 1)], step)
        ends = stats.binom.cdf(np.arange(size + 1), size, gamma) <= level * (1 + 1e-9)
        passed += after[ends].sum()
        counts, before = dict(enumerate(np.where(ends, 0.0, after))), size
    return passed


def slow_step_down(thresholds, p, sizes, gamma, delta, shares):
    floors = np.array([shares.get(t, 0.0) for t in thresholds])

    def holds(levels):
        return chance_to_pass(sizes, gamma, levels) <= delta * (1 + 1e-9)

    low, high = 1e-3 * delta, delta
    if holds(np.maximum(floors, high)):
        low = high
    elif not holds(np.maximum(floors, low)):
        low = 0.0
    while low and high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(np.maximum(floors, middle)) else (low, middle)
    levels = np.maximum(floors, low)
    passed = np.array(p) <= levels
    if not passed.any():
        return -math.inf
    best = int(np.flatnonzero(passed)[-1])
    open_ = np.where(passed, -1.0, levels)  # of those that failed, or are still to come
    while best + 1 < len(p):
        if p[best + 1] > delta or not holds([*open_[: best + 1], p[best + 1], *open_[best + 2 :]]):
            break
        open_[best + 1], best = -1.0, best + 1
    return thresholds[best]


def exact(rows):
    """The slow definition takes losses as they are; both zeros are one score."""
    return rows._replace(score=rows.score + 0.0)


@settings(max_examples=16)
@given(samples(clustered=False), risks, levels, st.sampled_from(["betting", "hoeffding-bentkus"]))
def test_each_method_equals_its_slow_definition(rows, max_risk, level, bound):
    for method in METHODS:
        t = quietly(rows.score, rows.loss, max_risk, level, method, bound=bound)
        assert t.value == slow_threshold(method, exact(rows), max_risk, 1 - level, bound)


@settings(max_examples=8)
@given(samples(least=30, most=250), risks, levels)
def test_each_method_equals_its_slow_definition_with_clusters(rows, max_risk, level):
    for method in [m for m in METHODS if m != "rcps"]:
        assume(rows.clusters is not None)
        rows = rows._replace(clusters=np.unique(rows.clusters, return_inverse=True)[1])
        t = quietly(rows.score, rows.loss, max_risk, level, method, clusters=rows.clusters)
        assert t.value == slow_threshold(method, exact(rows), max_risk, 1 - level)
        assert t.n_clusters == len(np.unique(rows.clusters))
        assert t.largest_cluster == np.bincount(rows.clusters).max()


@settings(max_examples=8)
@given(samples(least=30, clustered=False), risks, levels, st.lists(st.floats(-2, 5), min_size=1, max_size=12))
def test_only_the_fixed_candidates_can_be_returned(rows, max_risk, level, candidates):
    for method in METHODS:
        t = quietly(rows.score, rows.loss, max_risk, level, method, thresholds=candidates)
        assert t.value in {-math.inf, *(x + 0.0 for x in candidates)}
        ordered = sorted({x + 0.0 for x in candidates})
        assert t.value == slow_threshold(method, exact(rows), max_risk, 1 - level, thresholds=ordered)
        assert t == quietly(rows.score, rows.loss, max_risk, level, method, thresholds=[*candidates, *candidates[::-1]])
        check_counts(t, rows.score, rows.loss)


def test_a_threshold_by_hand_claims_no_rows():
    t = Threshold.from_value(0.5, max_risk=0.1)
    assert (t.n, t.n_accepted, t.errors_accepted, t.n_scores, t.n_targets) == (0, 0, 0, 1, 1)
    assert np.isnan([t.coverage, *t.coverage_interval, t.risk, t.risk_bound]).all()
    # What it says of rows is how many new ones `check` would need.
    promise, delay = str(t).splitlines()
    assert (promise, "check notices after about" in delay) == (t.statement(), True)


def test_evidence_that_is_just_enough_certifies():
    # No error in five rows has the p-value 2⁻⁵ against a risk of ½, exactly; in four rows it is 2⁻⁴.
    for method in [m for m in METHODS if m != "crc"]:
        for rows in (5, 4):
            t = choose_threshold(np.zeros(rows), np.zeros(rows), 0.5, 1 - 2**-5, method, thresholds=[0.0])
            assert t.feasible is (rows == 5), method


def test_every_method_accepts_much_where_the_errors_are_at_the_top():
    for method in METHODS:
        score = np.arange(2000.0)
        error = score >= 1500
        t = choose_threshold(score, error, 0.1, method=method)
        assert t.feasible
        assert (0.68 if method not in JOINT else 0.8) < t.coverage < 0.87


@settings(max_examples=20)
@given(samples(least=60), risks, levels, methods)
def test_subsample_certifies_as_independent_rows_would(rows, max_risk, level, method):
    # Clusters of one row each: there is nothing to choose, so that the exact rule for rows applies.
    own = np.arange(len(rows.score))
    t = quietly(rows.score, rows.loss, max_risk, level, method, clusters=own, cluster_method="subsample")
    plain = quietly(rows.score, rows.loss, max_risk, level, method)
    assert (t.value, t.n_accepted, t.errors_accepted) == (plain.value, plain.n_accepted, plain.errors_accepted)
    assert (t.n_clusters, t.cluster_method, t.largest_cluster) == (len(own), "subsample", 1)


def test_rcps_takes_clusters_only_as_one_row_of_each():
    # Its t-test was too bold for clusters of uneven size.
    rng = np.random.default_rng(0)
    score, groups = rng.random(900), np.arange(900) // 3
    error = rng.random(900) < 0.2 * score
    with pytest.raises(InputError, match='method="rcps" with clusters needs cluster_method="subsample"'):
        choose_threshold(score, error, 0.1, method="rcps", clusters=groups)
    t = choose_threshold(score, error, 0.1, method="rcps", clusters=groups, cluster_method="subsample")
    assert (t.feasible, t.cluster_method) == (True, "subsample")


def test_crc_gives_every_cluster_one_vote():
    # 9 clusters of one right row and one of 100 wrong ones: (1 + 1) / 11 of the votes, 92% of the rows.
    groups = np.repeat(np.arange(10), [*[1] * 9, 100])
    score, error = np.zeros(109), (groups == 9).astype(int)
    t = choose_threshold(score, error, 2 / 11, method="crc", clusters=groups)
    assert (t.n_accepted, t.cluster_method) == (109, "subsample")
    assert t.risk == pytest.approx(0.1)
    assert "(one from each cluster)" in t.statement()
    assert not choose_threshold(score, error, 2 / 11 - 1e-6, method="crc", clusters=groups).feasible
    assert not choose_threshold(score, error, 2 / 11, method="crc").feasible


def test_subsample_takes_one_row_of_each_cluster():
    # Copies of a row in its cluster prove nothing more: the same region as from one row each.
    rng = np.random.default_rng(4)
    score = rng.random(300)
    error = (rng.random(300) < 0.3 * score).astype(int)
    copies = [np.repeat(x, 7) for x in (score, error, np.arange(300))]
    t = choose_threshold(copies[0], copies[1], 0.15, clusters=copies[2], cluster_method="subsample")
    one = choose_threshold(score, error, 0.15)
    assert one.feasible
    assert (t.value, t.n_accepted, t.errors_accepted) == (one.value, 7 * one.n_accepted, 7 * one.errors_accepted)


def test_subsample_does_not_promise_of_inputs_what_it_tested_of_clusters():
    # A tenth of the clusters holds nine tenths of the rows, and 40% of those are wrong: a random row of a random
    # cluster is rarely wrong, a random input often is.
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(400), np.where(np.arange(400) < 40, 100, 1))
    error = ((groups < 40) & (rng.random(len(groups)) < 0.4)).astype(int)
    assert 0.3 < error.mean() < 0.4
    t = quietly(rng.random(len(groups)), error, 0.1, clusters=groups, cluster_method="subsample")
    assert not t.feasible or "cluster" in t.statement()


# ---- targets, levels, scores ------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(samples(), st.lists(risks, min_size=2, max_size=5), levels, methods)
def test_a_larger_max_risk_never_gives_a_smaller_region(rows, targets, level, method):
    cluster = way(method, rows.clusters)
    found = quietly(rows.score, rows.loss, targets, level, method, clusters=rows.clusters, cluster_method=cluster)
    assert [t.max_risk for t in found] == targets
    ordered = sorted(found, key=lambda t: t.max_risk)
    assert all(a.value <= b.value for a, b in pairwise(ordered))
    for t in found:
        check_counts(t, rows.score, rows.loss, rows.clusters)


@settings(max_examples=20)
@given(samples(), st.lists(risks, min_size=1, max_size=4), levels, methods)
def test_each_of_several_targets_is_tested_at_its_share_of_delta(rows, targets, level, method):
    options = {"method": method, "clusters": rows.clusters, "cluster_method": way(method, rows.clusters)}
    found = quietly(rows.score, rows.loss, targets, level, **options)
    share = 1 - (1 - level) / len(targets)
    alone = {g: quietly(rows.score, rows.loss, g, share, **options).value for g in targets}
    assert [t.value for t in found] == [max(alone[h] for h in targets if h <= g) for g in targets]
    assert {(t.level, t.n_targets) for t in found} == {(level, len(targets))}


@settings(max_examples=20)
@given(samples(clustered=False), risks, st.integers(2, 6))
def test_a_lower_level_never_gives_a_smaller_region(rows, max_risk, count):
    steps = np.linspace(0.55, 0.99, count).tolist()
    fixed = np.unique(rows.score)[:: max(1, len(rows.score) // 20)]
    # A lower level also lets smaller regions in, and "fst" stops at the first that fails: here all are in at any level.
    fixed = [t for t in fixed if slow_p(rows, t, max_risk, lossless=True) <= 0.009]
    for method, thresholds in (("rcps", None), ("crc", None), *((("fst", fixed),) if fixed else ())):
        found = [quietly(rows.score, rows.loss, max_risk, x, method, thresholds=thresholds).value for x in steps]
        assert found == sorted(found, reverse=True), method


def test_several_targets_come_as_a_tuple_in_the_order_asked_for():
    rng = np.random.default_rng(0)
    score = rng.random(1000)
    error = rng.random(1000) < 0.3 * score
    found = choose_threshold(score, error, [0.2, 0.001, 0.1], 0.9)
    assert isinstance(found, Thresholds)
    assert isinstance(found, tuple)
    assert [t.max_risk for t in found] == [0.2, 0.001, 0.1]
    assert [t.feasible for t in found] == [True, False, True]
    assert found.feasible
    assert len(found) == 3
    assert list(found[::2]) == [found[0], found[2]]
    first, *_ = found
    assert isinstance(first, Threshold)
    for kind, module in (("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.Table)):
        frame = found.to_frame(kind)
        assert isinstance(frame, module)
        assert frame.shape[0] == 3
        assert list(frame["max_risk"].to_numpy()) == [0.2, 0.001, 0.1]
        assert list(frame["n_accepted"].to_numpy()) == [t.n_accepted for t in found]
    assert found[0].to_frame().shape[0] == 1
    text = str(found)
    assert len(text.splitlines()) == 5
    assert "nothing" in text
    assert found._repr_html_().count("<tr>") == 4


def test_a_list_of_one_target_gives_a_tuple_of_one():
    score, error = np.arange(200.0), np.arange(200) > 150
    (t,) = choose_threshold(score, error, [0.1])
    assert t == choose_threshold(score, error, 0.1)
    assert choose_threshold(score, error, np.array([0.1, 0.2])) == choose_threshold(score, error, (0.1, 0.2))
    assert not choose_threshold(score, error, [1e-4, 1e-3]).feasible


def three_scores(seed=0, n=1200):
    rng = np.random.default_rng(seed)
    truth = rng.random(n)
    error = (rng.random(n) < 0.35 * truth**2).astype(int)
    return {"noise": rng.random(n), "good": truth, "fair": truth + rng.normal(0, 0.3, n)}, error


def test_of_several_scores_the_one_that_accepts_most_is_named_and_each_is_tested_at_its_share():
    for method in METHODS:
        scores, error = three_scores()
        with pytest.warns(UQWarning, match="same rows chose among 3 scores"):
            best = choose_threshold(scores, error, 0.07, 0.9, method)
        alone = {name: quietly(s, error, 0.07, 0.9, method, n_scores=3) for name, s in scores.items()}
        assert best.feasible
        assert best.coverage == max(t.coverage for t in alone.values())
        assert replace(best, score=None) == alone[best.score]
        assert best.score == "good" or method == "crc"
        assert best.n_scores == 3
        assert best.score in best.statement()
        # What holds on average has no delta: there each score gets its share of the risk.
        target, level = (0.07 / 3, 0.9) if method == "crc" else (0.07, 1 - 0.1 / 3)
        share = quietly(scores[best.score], error, target, level, method)
        assert best.max_risk == best.risk_bound == 0.07
        assert (best.value, best.errors_accepted) == (share.value, share.errors_accepted)


def test_the_first_of_equally_good_scores_wins():
    scores, error = three_scores()
    both = {"b": scores["good"], "a": scores["good"].copy()}
    assert quietly(both, error, 0.1).score == "b"


def test_several_scores_and_targets_share_delta():
    scores, error = three_scores()
    found = quietly(scores, error, [0.1, 0.2], 0.94)
    alone = quietly(scores[found[0].score], error, 0.1, 1 - 0.06 / 6)
    assert found[0].value == alone.value
    assert len({t.score for t in found}) == 1


@settings(max_examples=20)
@given(samples(), risks, levels, st.integers(1, 8))
def test_n_scores_is_a_share_of_delta(rows, max_risk, level, count):
    t = quietly(rows.score, rows.loss, max_risk, level, clusters=rows.clusters, n_scores=count)
    alone = quietly(rows.score, rows.loss, max_risk, 1 - (1 - level) / count, clusters=rows.clusters)
    assert (t.value, t.n_accepted, t.errors_accepted) == (alone.value, alone.n_accepted, alone.errors_accepted)
    assert (t.n_scores, t.level) == (count, level)


@settings(max_examples=20)
@given(samples(), risks, st.integers(1, 8))
def test_n_scores_is_a_share_of_the_risk_for_crc(rows, max_risk, count):
    t = quietly(rows.score, rows.loss, max_risk, 0.9, "crc", clusters=rows.clusters, n_scores=count)
    alone = quietly(rows.score, rows.loss, max_risk / count, 0.9, "crc", clusters=rows.clusters)
    assert (t.value, t.n_accepted, t.errors_accepted) == (alone.value, alone.n_accepted, alone.errors_accepted)
    assert (t.n_scores, t.max_risk) == (count, max_risk)


def test_a_warning_says_that_the_same_rows_chose_everything():
    score, error = np.arange(400.0), np.arange(400) > 350
    with pytest.warns(UQWarning, match=r"optimistic: pass split=0\.5"):
        t = choose_threshold(score, error, 0.1, n_scores=4)
    assert any("optimistic" in note and "its share of 1 − level" in note for note in t.warnings)
    assert "! The same rows" in str(t)
    with pytest.warns(UQWarning, match="its share of max_risk"):
        assert choose_threshold(score, error, 0.1, method="crc", n_scores=4).n_scores == 4


def test_no_warning_with_split_and_none_for_a_single_score():
    scores, error = three_scores()
    assert choose_threshold(scores, error, 0.1, split=0.5).warnings == ()  # warnings are errors in these tests
    assert choose_threshold(scores["good"], error, 0.1).warnings == ()


# ---- split ------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(samples(least=20), risks, methods, st.floats(0.2, 0.8), st.integers(0, 5))
def test_split_reports_on_the_rows_that_did_not_choose(rows, max_risk, method, split, seed):
    assume(rows.clusters is None or len(set(rows.clusters.tolist())) > 15)
    options = {"clusters": rows.clusters, "cluster_method": way(method, rows.clusters), "split": split, "seed": seed}
    t = quietly(rows.score, rows.loss, max_risk, 0.8, method, **options)
    h, inside = t.holdout, t.accept(rows.score)
    assert t.n + h.n == len(rows.score)
    assert t.n_accepted + h.n_accepted == inside.sum()
    assert t.errors_accepted + h.errors_accepted == pytest.approx(rows.loss[inside].sum(), rel=1e-12)
    assert t.coverage == t.n_accepted / t.n
    assert h.coverage.value == pytest.approx(h.n_accepted / h.n)
    counted = h.n if method in JOINT else h.n_accepted
    if counted:
        expected = h.errors_accepted / counted
        if t.cluster_method == "subsample":
            names = np.unique(rows.clusters)
            chose = names[np.random.default_rng(seed).permutation(len(names))[: round(split * len(names))]]
            rest = ~np.isin(rows.clusters, chose)
            assert rest.sum() == h.n
            expected = observed_risk(rows.loss[rest], inside[rest], method, rows.clusters[rest])
        assert h.risk.value == pytest.approx(expected, abs=1e-15)
        assert math.isnan(h.risk.low) or h.risk.low <= h.risk.value + 1e-12
        assert math.isnan(h.risk.high) or h.risk.value <= h.risk.high + 1e-12
    else:
        assert math.isnan(h.risk.value)
    if rows.clusters is None:
        assert t.n == round(split * len(rows.score))


def test_split_keeps_clusters_whole():
    rng = np.random.default_rng(2)
    groups, score = rng.integers(0, 200, 1500), rng.random(1500)
    error = rng.random(1500) < 0.1 * score
    t = choose_threshold(score, error, 0.2, clusters=groups, split=0.25)
    assert t.n_clusters == round(0.25 * len(np.unique(groups)))
    assert t.holdout.coverage.n_clusters == len(np.unique(groups)) - t.n_clusters


def uneven(rng, count):
    """One cluster in five has 20 rows, of which a tenth is wrong; the others a single one, wrong once in 200."""
    sizes = np.where(np.arange(count) % 5 == 0, 20, 1)
    groups = np.repeat(np.arange(count), sizes)
    return rng.random(len(groups)), rng.random(len(groups)) < np.where(sizes[groups] > 1, 0.1, 0.005), groups


def test_observed_and_held_out_risk_are_for_one_random_input_of_each_cluster_where_the_promise_is():
    # Wrong are .2·.1 + .8·.005 of the random inputs of random clusters, and 8.4% of all inputs.
    score, error, groups = uneven(np.random.default_rng(1), 4000)
    t = choose_threshold(score, error, 0.05, clusters=groups, cluster_method="subsample", split=0.5)
    assert t.coverage > 0.9
    assert t.risk == pytest.approx(0.024, abs=0.006)
    assert t.holdout.risk.value == pytest.approx(0.024, abs=0.006)
    assert t.holdout.risk.low < 0.024 < t.holdout.risk.high < 0.05
    assert t.errors_accepted / t.n_accepted == pytest.approx(0.084, abs=0.01)
    by_row = choose_threshold(score, error, 0.15, clusters=groups, split=0.5)
    assert by_row.feasible

    assert by_row.holdout.risk.value == pytest.approx(0.084, abs=0.01)


def test_the_seed_is_an_int_or_a_generator_and_decides_the_split():
    rng = np.random.default_rng(7)
    score = rng.random(600)
    error = rng.random(600) < 0.2 * score
    first = choose_threshold(score, error, 0.2, split=0.5, seed=3)
    assert first == choose_threshold(score, error, 0.2, split=0.5, seed=np.random.default_rng(3))
    assert first == choose_threshold(score, error, 0.2, split=0.5, seed=3)
    assert first.holdout != choose_threshold(score, error, 0.2, split=0.5, seed=4).holdout
    assert choose_threshold(score, error, 0.2, seed=3) == choose_threshold(score, error, 0.2, seed=4)


def test_all_scores_share_one_split():
    for options in [{}, {"clusters": np.arange(1200) // 3}]:
        # Else the held-out rows of the winner took part in choosing it, as calibration rows of another score.
        scores, error = three_scores()
        good, flat = {"good": scores["good"]}, {"flat": np.zeros(len(error))}
        alone = choose_threshold(good, error, 0.1, split=0.5, n_scores=2, **options)
        assert alone.feasible
        assert choose_threshold(flat | good, error, 0.1, split=0.5, **options) == alone
        assert choose_threshold(good | flat, error, 0.1, split=0.5, **options) == alone


# ---- nothing can be certified -----------------------------------------------------------------------------------


@settings(max_examples=20)
@given(samples(), risks, levels, methods)
def test_where_nothing_is_certified_nothing_is_accepted(rows, max_risk, level, method):
    cluster = way(method, rows.clusters)
    t = quietly(rows.score, rows.loss, max_risk / 100, level, method, clusters=rows.clusters, cluster_method=cluster)
    assume(not t.feasible)
    assert t.value == -math.inf
    assert (t.n_accepted, t.errors_accepted, t.coverage) == (0, 0, 0.0)
    assert math.isnan(t.risk)
    assert not t.accept(rows.score).any()
    assert t.accept([-np.inf, 0.0, np.inf]).tolist() == [False, False, False]
    text = t.statement()
    assert text.startswith("Nothing can be certified")
    assert ("more rows would not help" in text) == (not t.hopeful)
    if t.rows_needed is None:
        assert not t.hopeful or "is not known" in text
    else:
        assert t.hopeful
        assert f"At least about {t.rows_needed:,} rows" in text
        assert t.rows_needed > t.n


def test_rows_needed_is_about_the_number_that_suffices():
    for method in METHODS:
        for what in ["no error", "errors at the top"]:
            score = np.arange(20) / 20
            error = np.zeros(20) if what == "no error" else (score >= 0.7).astype(float)
            max_risk = 0.01 if method in JOINT else 0.05
            t = choose_threshold(score, error, max_risk, 0.95, method)
            assert not t.feasible
            assert t.rows_needed > 20
            for rows, enough in ((math.ceil(1.25 * t.rows_needed), True), (math.floor(0.5 * t.rows_needed), False)):
                again = choose_threshold(np.resize(score, rows), np.resize(error, rows), max_risk, 0.95, method)
                assert again.feasible is enough


def test_following_the_advice_soon_leads_to_a_certified_region():
    for method in METHODS:
        for wrong in [(), (5, 20, 40)]:
            score = np.arange(1000.0 if wrong else 50.0)
            error, max_risk = np.isin(score, wrong).astype(int), 0.003 if wrong and method in JOINT else 0.05
            rows, trail = 10 if method in JOINT and not wrong else len(score), []
            while len(trail) < 4:
                t = choose_threshold(np.resize(score, rows), np.resize(error, rows), max_risk, 0.95, method)
                trail.append((rows, t.rows_needed))
                if t.feasible or t.rows_needed is None:
                    break
                rows = t.rows_needed
            assert t.feasible or t.rows_needed is None, trail


def test_rows_needed_is_about_the_number_that_suffices_with_clusters():
    for options in [{}, {"cluster_method": "subsample"}]:
        score, error, groups = np.arange(60) / 60, np.zeros(60), np.arange(60) // 4
        t = choose_threshold(score, error, 0.1, clusters=groups, **options)
        assert not t.feasible
        times = math.ceil(1.25 * t.rows_needed / 60)
        assert times > 1
        many = np.concatenate([groups + 100 * k for k in range(times)])
        assert choose_threshold(np.tile(score, times), np.zeros(60 * times), 0.1, clusters=many, **options).feasible


def test_more_rows_would_not_help_where_the_observed_risk_is_nowhere_below_the_target():
    for method in METHODS:
        for n in [10, 1000]:
            error = np.arange(n) % 5 == 0
            t = choose_threshold(np.zeros(n), error, 0.05, method=method)
            assert not t.feasible
            assert t.rows_needed is None
            assert not t.hopeful
            assert "more rows would not help" in t.statement()


def test_there_is_hope_where_some_region_has_an_observed_risk_below_the_target():
    for method in METHODS:
        score, error = np.arange(20.0), np.arange(20) >= 10
        t = choose_threshold(score, error, 0.01, method=method)
        assert not t.feasible
        assert t.hopeful
        assert "more rows would not help" not in t.statement()
        assert "At least about" in t.statement() or "is not known" in t.statement()


def test_the_statement_says_what_is_promised():
    score, error = np.arange(400.0), np.arange(400) > 350
    texts = {
        method: choose_threshold(score, error, 0.125, 0.9, method).statement() for method in ("fallback", "rcps", "crc")
    }
    assert "With 90% confidence, at most 12.5% of the accepted inputs are wrong." in texts["fallback"]
    assert not any("asymptotic" in text for text in texts.values())
    own = choose_threshold(score, error, 0.125, 0.9, clusters=np.arange(400))
    assert "With 90% confidence (asymptotic), at most 12.5% of the accepted inputs are wrong." in own.statement()
    own = choose_threshold(score, error, 0.125, 0.9, clusters=np.arange(400), cluster_method="subsample")
    assert "With 90% confidence, at most 12.5% of the accepted inputs (one from each cluster)" in own.statement()
    assert "With 90% confidence, at most 12.5% of all inputs are accepted and wrong." in texts["rcps"]
    assert "On average over calibration sets, at most 12.5% of all inputs" in texts["crc"]
    loss = choose_threshold(score, error * 0.5, 0.125)
    assert loss.what == "loss"
    assert "the mean loss of the accepted inputs is at most 0.125" in loss.statement()
    apart = choose_threshold(score, error, 0.125, risk="misaligned")
    assert "unlike the majority label" in apart.statement()
    assert "optimistic" in str(apart)
    assert "&" not in apart._repr_html_().replace("&gt;", "").replace("&lt;", "").replace("&#x27;", "")


finite_values = st.one_of(
    st.floats(-1e300, 1e300), st.floats(-1, 1), st.floats(0.999999, 1), st.floats(-1e-300, 1e-300)
)


@settings(max_examples=20)
@given(finite_values)
def test_the_printed_threshold_is_never_above_the_value_and_hardly_below(value):
    printed = float(shown(value))
    assert printed <= value
    assert printed == pytest.approx(value, rel=1e-9, abs=0)


def test_a_threshold_is_printed_with_ten_digits_rounded_down():
    for value, text in [
        (0.5, "0.5"),
        (0.0, "0"),
        (3.0, "3"),
        (-2.5, "-2.5"),
        (0.1 + 0.2, "0.3"),
        (2 / 3, "0.6666666666"),
        (-2 / 3, "-0.6666666667"),
        (1 - 1e-12, "0.9999999999"),
        (-1 + 1e-12, "-1"),
        (-1 - 1e-12, "-1.000000001"),
        (2e-300 / 3, "6.666666666e-301"),
        (123456789012.0, "1.23456789e+11"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
    ]:
        assert shown(value) == text
        assert math.isinf(value) or float(text) <= value


def test_the_printed_threshold_does_not_accept_saturated_scores():
    for digits in range(5, 17):
        # A softmax score that is nearly 1 is always right; one that is 1 is wrong in a tenth of the rows.
        low = float(np.nextafter(1.0, 0.0)) if digits == 16 else 1 - 10.0**-digits
        score = np.repeat([low, 1.0], [300, 3000])
        error = np.concatenate([np.zeros(300), np.arange(3000) % 10 == 0])
        t = choose_threshold(score, error, 0.05)
        assert (t.value, t.n_accepted) == (low, 300)
        printed = float(t.statement().split("≤ ")[1].split(":")[0])
        assert printed <= low < 1.0
        assert printed == pytest.approx(low, rel=1e-9)
        cell = choose_threshold(score, error, [0.05]).table().rows[0][1]
        assert float(cell) == printed


# ---- predictions ------------------------------------------------------------------------------------------------


def small_predictions(n=400, seed=0, **more):
    """Two classes; the annotators are tied in the first ten rows."""
    rng = np.random.default_rng(seed)
    p = np.clip(rng.beta(0.3, 0.3, n), 1e-6, 1 - 1e-6)
    probs = np.stack([1 - p, p], axis=1)
    votes = np.clip(rng.binomial(9, p), 0, 9) / 9
    votes[:10] = 0.5
    labels = (rng.random(n) < p).astype(int)
    return uq.Predictions(labels, probs=probs, soft_labels=np.stack([1 - votes, votes], axis=1), **more)


def test_the_example_gives_what_its_arrays_give():
    example = uq.datasets.example()
    t = choose_threshold("entropy", predictions=example, max_risk=0.05)
    score = uq.scores.compute("entropy", example)
    error = uq.truth.misclassified(example.probs, example.labels)
    assert t.feasible
    assert t.score == "entropy"
    assert replace(t, score=None) == choose_threshold(score, error, 0.05)
    check_counts(t, score, error)
    assert replace(t, score=None) == choose_threshold(score, predictions=example, max_risk=0.05)
    named = quietly(["gap_to_certain", "entropy"], predictions=example, max_risk=0.05)
    arrays = quietly({name: uq.scores.compute(name, example) for name in ("gap_to_certain", "entropy")}, error, 0.05)
    assert named == arrays


def test_predictions_bring_their_own_loss_and_clusters():
    rng = np.random.default_rng(0)
    score, groups = rng.random(600), np.arange(600) // 2
    loss = np.clip(score * rng.random(600), 0, 1)
    predictions = uq.Predictions(scores={"mine": score}, loss=loss, clusters=groups)
    t = choose_threshold("mine", predictions=predictions, max_risk=0.3, risk="loss")
    assert t == replace(choose_threshold(score, loss, 0.3, clusters=groups), score="mine")
    assert (t.what, t.n_clusters) == ("loss", 300)
    other = choose_threshold("mine", predictions=predictions, max_risk=0.3, risk="loss", clusters=groups // 2)
    assert other.n_clusters == 150


def test_a_tied_majority_is_left_out_or_counts_as_misaligned():
    predictions = small_predictions(clusters=np.arange(400))
    score = uq.scores.compute("entropy", predictions)
    apart = (predictions.probs.argmax(1) != predictions.soft_labels.argmax(1)).astype(int)
    dropped, wrong = apart[10:], np.concatenate([np.ones(10, dtype=int), apart[10:]])
    options = {
        "predictions": predictions,
        "max_risk": 0.2,
        "level": 0.8,
        "risk": "misaligned",
        "cluster_method": "subsample",
    }
    with pytest.warns(UQWarning) as record:
        t = choose_threshold("entropy", **options)
    assert {"annotators" in str(w.message) for w in record} == {True, False}
    assert any("10 rows have a tied majority and are left out" in str(w.message) for w in record)
    assert (t.n, t.what, t.n_clusters, t.feasible) == (390, "misaligned", 390, True)
    check_counts(t, score[10:], dropped, np.arange(390))
    plain = choose_threshold(score[10:], dropped, 0.2, 0.8, clusters=np.arange(390), cluster_method="subsample")
    assert (t.value, t.errors_accepted, t.data_hash) == (plain.value, plain.errors_accepted, plain.data_hash)
    with pytest.warns(UQWarning) as record:
        t = choose_threshold("entropy", tie="error", **options)
    assert any("10 rows have a tied majority and count as misaligned" in str(w.message) for w in record)
    check_counts(t, score, wrong, np.arange(400))


def test_without_ties_the_only_note_is_about_the_annotators():
    soft = np.tile([[0.2, 0.8], [0.7, 0.3]], (100, 1))
    predictions = uq.Predictions(np.tile([1, 0], 100), probs=soft, soft_labels=soft)
    with pytest.warns(UQWarning, match="most annotators chose") as record:
        t = choose_threshold("entropy", predictions=predictions, max_risk=0.1, risk="misaligned")
    assert len(record) == len(t.warnings) == 1
    assert (t.n, t.errors_accepted, t.coverage) == (200, 0, 1.0)


def test_rows_with_nan_are_omitted_beside_tied_majorities_too():
    predictions = small_predictions()
    score = uq.scores.compute("entropy", predictions)
    score[[3, 50, 60]] = np.nan
    with pytest.warns(UQWarning):
        t = choose_threshold(score, predictions=predictions, max_risk=0.2, risk="misaligned", nan="omit")
    assert t.n == 388


def test_clusters_of_another_length_are_refused_beside_tied_majorities_too():
    for rows in [150, 500]:
        with pytest.raises(InputError, match=f"`clusters` has {rows} rows"):
            quietly(
                "entropy", predictions=small_predictions(), max_risk=0.2, risk="misaligned", clusters=np.arange(rows)
            )


def test_predictions_that_do_not_fit_are_refused():
    for options, message in [
        ({"predictions": small_predictions(), "error": [0, 1]}, "`error` or `predictions`, not both"),
        ({"predictions": small_predictions(), "risk": "loss"}, "no `loss`"),
        ({"predictions": small_predictions(), "risk": "mistake"}, "`risk` must be one of"),
        ({"predictions": small_predictions(), "tie": "keep"}, "`tie` must be one of"),
        ({"predictions": uq.datasets.example(), "risk": "misaligned"}, "no `soft_labels`"),
        ({"predictions": uq.Predictions(scores={"entropy": [1, 2]}, loss=[0, 1])}, "no labels or errors"),
        ({"predictions": uq.Predictions(scores={"entropy": [1, 2]}, loss=[0, 3]), "risk": "loss"}, r"in \[0, 1\]"),
        ({"predictions": small_predictions(), "score": "entrpy"}, "entropy"),
        ({}, "`error` is missing"),
        ({"error": [0, 1]}, "the name 'entropy'"),
    ]:
        with pytest.raises(InputError, match=message):
            quietly(**{"score": "entropy", "max_risk": 0.1, **options})


# ---- bad input --------------------------------------------------------------------------------------------------

SCORE, ERROR = np.arange(30.0), (np.arange(30) > 25).astype(float)


def changed(array, row, value):
    out = np.array(array, dtype=np.float64)
    out[row] = value
    return out


def test_bad_input_is_refused_with_a_message_that_helps():
    for options, message in [
        ({"max_risk": None}, r"`max_risk` is missing.*max_risk=0\.05"),
        ({"max_risk": 0}, "`max_risk` must lie strictly between 0 and 1.* it is 0"),
        ({"max_risk": 1.0}, "`max_risk` must lie strictly between 0 and 1"),
        ({"max_risk": 5}, r"it is 5\. Did you mean 0\.05\?"),
        ({"max_risk": -0.1}, "`max_risk` must lie"),
        ({"max_risk": math.nan}, "`max_risk` must lie"),
        ({"max_risk": "0.05"}, "`max_risk` must lie.* it is '0.05'"),
        ({"max_risk": True}, "`max_risk` must lie"),
        ({"max_risk": []}, "`max_risk` is empty"),
        ({"max_risk": [0.1, 5]}, r"Did you mean 0\.05\?"),
        ({"max_risk": [0.1, "0.2"]}, "it is '0.2'"),
        ({"level": 95}, r"`level` must lie.*Did you mean 0\.95\?"),
        ({"level": 1.0}, "`level` must lie"),
        ({"level": "0.95"}, "`level` must lie"),
        ({"method": "sgd"}, "`method` must be one of \"step-down\".*it is 'sgd'"),
        ({"cluster_method": "bootstrap"}, "`cluster_method` must be one of"),
        ({"bound": "hoeffding"}, "`bound` must be one of"),
        ({"risk": "loss01"}, "`risk` must be one of"),
        ({"nan": "drop"}, "`nan` must be one of"),
        ({"split": 0}, "`split` must lie strictly between 0 and 1"),
        ({"split": 1.0}, "`split` must lie"),
        ({"split": "0.5"}, "`split` must lie.* it is '0.5'"),
        ({"split": True}, "`split` must lie"),
        ({"split": 0.01}, "`split`.* leaves"),
        ({"split": 0.99}, "`split`.* leaves"),
        ({"n_scores": 0}, "`n_scores` must be an int ≥ 1"),
        ({"n_scores": 2.0}, "`n_scores` must be an int"),
        ({"n_scores": True}, "`n_scores` must be an int"),
        ({"largest_cluster": 3}, "`largest_cluster` needs `clusters`"),
        ({"largest_cluster": 1, "clusters": np.arange(30) // 2}, "`largest_cluster` must be an int ≥ 2, the largest"),
        ({"largest_cluster": True, "clusters": np.arange(30)}, "`largest_cluster` must be an int.* it is True"),
        ({"largest_cluster": 2.0, "clusters": np.arange(30)}, "`largest_cluster` must be an int"),
        ({"method": "rcps", "clusters": np.arange(30)}, 'needs cluster_method="subsample"'),
        ({"seed": -1}, "`seed` must be"),
        ({"seed": "a"}, "`seed` must be"),
        ({"weights": np.ones(29)}, "`weights` has 29 rows"),
        ({"weights": -SCORE}, "`weights`"),
        ({"largest_weight": 3}, "`largest_weight` needs `weights` that differ"),
        ({"largest_weight": 3, "weights": np.ones(30)}, "`largest_weight` needs `weights` that differ"),
        ({"largest_weight": 30, "weights": SCORE + 2}, "`largest_weight` must be a number ≥ 31, the largest here"),
        ({"largest_weight": True, "weights": SCORE / 30 + 0.01}, "`largest_weight` must be a number.* it is True"),
        ({"largest_weight": math.inf, "weights": SCORE + 1}, "`largest_weight` must be a number"),
        ({"weights": SCORE + 1, "clusters": np.arange(30)}, '`weights` with `clusters` need cluster_method="exact"'),
        (
            {"weights": SCORE + 1, "clusters": np.arange(30), "cluster_method": "exact", "method": "crc"},
            'a method other than "crc"',
        ),
        ({"score": changed(SCORE, 3, -np.inf)}, "`score` is −inf at row 3"),
        ({"score": changed(SCORE, 3, np.nan)}, r'`score` has 1 NaN \(first at row 3\).*nan="omit"'),
        ({"error": changed(ERROR, 4, np.nan)}, "`error` has 1 NaN .first at row 4"),
        ({"error": changed(ERROR, 4, np.inf)}, "`error` has 1 infinite"),
        ({"error": changed(ERROR, 4, 2)}, r"`error` must lie in \[0, 1\]; row 4 holds 2"),
        ({"error": changed(ERROR, 4, -0.5)}, "row 4 holds -0.5"),
        ({"error": ["no", "yes"] * 15}, "`error` holds"),
        ({"score": ["low", "high"] * 15}, "`score` holds"),
        ({"error": ERROR[1:]}, "`error` has 29 rows but `score` has 30"),
        ({"score": SCORE[:, None]}, r"shape \(30, 1\)"),
        ({"score": [1.0], "error": [0]}, "1 row"),
        ({"score": {}}, "empty dict"),
        ({"score": {"a": SCORE, "b": SCORE[1:]}}, "29"),
        ({"score": None}, "`score` is missing"),
        ({"error": None}, "`error` is missing"),
        ({"clusters": np.arange(29)}, "`clusters` has 29 rows"),
        ({"clusters": changed(SCORE, 2, np.nan)}, "`clusters` has 1 missing"),
        ({"thresholds": []}, "`thresholds` is empty"),
        ({"thresholds": [0.1, np.nan]}, "`thresholds` has 1 NaN"),
        ({"thresholds": 0.5}, "`thresholds` is 0.5"),
        ({"thresholds": ["a"]}, "`thresholds` holds"),
    ]:
        with pytest.raises(InputError, match=message):
            quietly(**{"score": SCORE, "error": ERROR, "max_risk": 0.1, **options})


@settings(max_examples=20)
@given(samples(least=20), risks, methods)
def test_omitting_nan_equals_leaving_those_rows_out(rows, max_risk, method):
    score, loss = rows.score.copy(), rows.loss.copy()
    score[rows.rng.integers(0, len(score), 3)] = np.nan
    loss[rows.rng.integers(0, len(loss), 2)] = np.nan
    keep = ~np.isnan(score) & ~np.isnan(loss)
    groups, cluster = rows.clusters, way(method, rows.clusters)
    with pytest.warns(UQWarning):
        t = choose_threshold(score, loss, max_risk, 0.8, method, clusters=groups, cluster_method=cluster, nan="omit")
    assert f"{int((~keep).sum())} rows with NaN left out" in t.warnings
    left = None if groups is None else groups[keep]
    kept = quietly(score[keep], loss[keep], max_risk, 0.8, method, clusters=left, cluster_method=cluster)
    assert replace(t, warnings=()) == replace(kept, warnings=())
    check_counts(t, score[keep], loss[keep], left)


def test_accept_refuses_what_is_not_one_number_per_row():
    for bad in [[0.1, np.nan], ["a", "b"], [[0.1], [0.2]], 0.5, None]:
        with pytest.raises(InputError, match="`score`"):
            choose_threshold(SCORE, ERROR, 0.5).accept(bad)


# ---- JSON -------------------------------------------------------------------------------------------------------


def made(name):
    rng = np.random.default_rng(11)
    score, groups = rng.random(800), np.arange(800) // 4
    error = (rng.random(800) < 0.3 * score).astype(int)
    loss = error * rng.random(800)
    return {
        "feasible": lambda: choose_threshold(score, error, 0.1),
        "loss": lambda: choose_threshold(score, loss, 0.1),
        "infeasible": lambda: choose_threshold(score, error, 0.001),
        "hopeless": lambda: choose_threshold(score, np.ones(800), 0.001),
        "infeasible loss": lambda: choose_threshold(score, loss, 0.0001),
        "infinite": lambda: quietly(np.repeat([1.0, np.inf], 400), np.zeros(800), 0.1),
        "holdout": lambda: choose_threshold(score, error, 0.1, split=0.5),
        "holdout of losses": lambda: choose_threshold(score, loss, 0.1, split=0.5),
        "infeasible holdout": lambda: choose_threshold(score, error, 0.001, split=0.5),
        "clusters": lambda: choose_threshold(score, error, 0.15, clusters=groups),
        "clusters, holdout": lambda: choose_threshold(score, error, 0.15, clusters=groups, split=0.5),
        "subsample": lambda: choose_threshold(
            score, error, 0.15, clusters=groups, cluster_method="subsample", split=0.5
        ),
        "crc, clusters": lambda: choose_threshold(score, error, 0.15, method="crc", clusters=groups, largest_cluster=9),
        "one cluster": lambda: choose_threshold(score, error, 0.15, clusters=np.zeros(800)),
        "scores": lambda: quietly({"a": score, "ünï": score}, error, 0.1),
        "by hand": lambda: Threshold.from_value(0.3, max_risk=0.1),
        "by hand, all": lambda: Threshold.from_value(math.inf, max_risk=0.1),
        **{method: lambda m=method: choose_threshold(score, error, 0.1, method=m) for method in METHODS},
    }[name]()


MADE = (
    *("feasible", "loss", "infeasible", "hopeless", "infeasible loss", "infinite", "holdout", "holdout of losses"),
    *("infeasible holdout", "clusters", "clusters, holdout", "subsample", "crc, clusters", "one cluster", "scores"),
    *("by hand", "by hand, all"),
    *METHODS,
)


def strictly(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_brings_back_an_equal_threshold(tmp_path):
    for name in MADE:
        t = made(name)
        back = Threshold.from_json(t.to_json())
        assert back.to_json() == t.to_json()
        probe = [-1e9, 0.1, 0.3, 0.9, np.inf]
        assert back.accept(probe).tolist() == t.accept(probe).tolist()
        assert back.statement() == t.statement()
        path = tmp_path / "threshold.json"
        path.write_text(t.to_json(), encoding="utf-8")
        assert Threshold.from_json(path).to_json() == Threshold.from_json(str(path)).to_json() == t.to_json()
        assert back == t
        assert hash(back.value) == hash(t.value)


def test_json_is_strict_and_says_where_it_comes_from():
    for name in MADE:
        t = made(name)
        data = strictly(t.to_json())
        assert data["schema_version"] == 1
        assert data["method"] == t.method
        assert data["level"] == t.level
        assert data["max_risk"] == t.max_risk
        assert data["feasible"] is t.feasible
        assert data["data_hash"] == t.data_hash
        if not name.startswith("by hand"):
            assert len(data["data_hash"]) == 64
            assert data["created_with"]["uqeval"] == uq.__version__
            assert {"python", "numpy", "scipy"} <= set(data["created_with"])


@settings(max_examples=20)
@given(samples(), st.lists(risks, min_size=1, max_size=3), methods, st.booleans())
def test_json_brings_back_equal_thresholds_for_several_targets(rows, targets, method, hard):
    scale = 0.01 if hard else 1.0
    found = quietly(rows.score, rows.loss, [scale * x for x in targets], 0.8, method)
    strictly(found.to_json())
    back = Thresholds.from_json(found.to_json())
    assert isinstance(back, Thresholds)
    assert back == found


def broken(**changes):
    data = json.loads(made("holdout").to_json())
    for key, value in changes.items():
        if value is KeyError:
            del data[key]
        else:
            data[key] = value
    return json.dumps(data)


BROKEN = {
    "empty": "",
    "a list": "[]",
    "null": "null",
    "nothing in it": "{}",
    "nothing but the schema": '{"schema_version": 1}',
    "cut off": made("feasible").to_json()[:-30],
    "not JSON": "{not json",
    "no such file": "no_such_file.json",
    "a zero byte": "\0",
    "later schema": broken(schema_version=99),
    "no schema": broken(schema_version=KeyError),
    "unknown method": broken(method="magic"),
    "no method": broken(method=KeyError),
    "value in words": broken(value="high"),
    "value is null": broken(value=None),
    "value is NaN": broken(value=math.nan),
    "no value": broken(value=KeyError),
    "no feasible": broken(feasible=KeyError),
    "unknown field": broken(extra=1),
    "half a holdout": broken(holdout={"n": 1}),
    "holdout is a number": broken(holdout=3),
    "no interval": broken(coverage_interval=None),
    "warnings are null": broken(warnings=None),
    "max_risk is null": broken(max_risk=None),
    "max_risk in words": broken(max_risk="a lot"),
    "level in words": broken(level="high"),
}


def test_broken_json_is_refused():
    for how in BROKEN:
        with pytest.raises(InputError):
            Threshold.from_json(BROKEN[how])


def test_broken_json_of_several_thresholds_is_refused():
    for text in ["", "[]", "{}", "5", "{", '{"thresholds": 5}', '{"thresholds": null}', '{"thresholds": [{}]}', "null"]:
        with pytest.raises(InputError):
            Thresholds.from_json(text)


def test_a_threshold_by_hand_that_means_nothing_is_refused():
    for options in [{"value": math.nan}, {"max_risk": 5}, {"max_risk": 0}, {"level": 95}]:
        with pytest.raises(InputError):
            Threshold.from_value(**{"value": 0.5, "max_risk": 0.05, **options})
