"""The seam: parts that were counted against one ranking merge into the whole, and the whole tells everything."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inference_reference import influence, make_case

from strategies import rows
from uqeval.inference.count import count_mean, count_sample
from uqeval.inference.intervals import estimate_ranking
from uqeval.inference.joint import joint_of_samples
from uqeval.inference.means import estimate_mean
from uqeval.inference.paired import contrast
from uqeval.inference.sample import Rows, Sample
from uqeval.inference.tally import AreaTally, AucTally, JointPart, MeanTally, Moments, PairTally, Spread
from uqeval.metrics import REGISTRY

pytestmark = pytest.mark.filterwarnings("ignore::uqeval._errors.UQWarning")
cuts = st.lists(st.integers(0, 60), max_size=3)


def pieces(n, places):
    """The rows from cut to cut; some pieces are empty."""
    bounds = [0, *sorted(min(n, place) for place in places), n]
    return [slice(a, b) for a, b in pairwise(bounds)]


def merged(parts):
    first, *rest = parts
    for part in rest:
        first = first.merge(part)
    return first


def same(a, b):
    """Equal but for the rounding of float sums."""
    for name in ("value", "low", "high", "se", "n_eff"):
        x, y = getattr(a, name), getattr(b, name)
        assert (math.isnan(x) and math.isnan(y)) or x == pytest.approx(y, rel=1e-9, abs=1e-12), name
    assert (a.method, a.warnings, a.n, a.n_errors) == (b.method, b.warnings, b.n, b.n_errors)


@settings(max_examples=60)
@given(rows(target="error", weighted=False), cuts)
def test_parts_of_auc_merge_into_the_whole(case, places):
    s, e = case.score, case.target.astype(np.uint8)
    sample = Sample.of(s, e)
    whole = count_sample(REGISTRY["uq_auc"], sample)
    credit2, wrong = sample.counts[0], e.astype(bool)
    right = len(e) - int(e.sum())

    def part(inside):
        bad, x = wrong[inside], credit2[inside]
        sizes = Rows(len(x)).sizes(e[inside])
        squares = (int((x[bad] ** 2).sum()), int((x[~bad] ** 2).sum()))
        return AucTally(sizes, whole.constant, int(x[bad].sum()), int(bad.sum()) * right, *squares)

    found = merged([part(inside) for inside in pieces(len(s), places)])
    if 0 < e.sum() < len(e):
        assert found == whole
    same(estimate_ranking(REGISTRY["uq_auc"], found, 0.9), estimate_ranking(REGISTRY["uq_auc"], whole, 0.9))


@settings(max_examples=60)
@given(rows(target="loss", weighted=False), cuts)
def test_parts_of_pairs_merge_into_the_whole(case, places):
    metric = REGISTRY["uq_c_index"]
    sample = Sample.of(case.score, case.target)
    whole = count_sample(metric, sample)
    credit2, comparable = sample.counts
    total2, total, n = int(credit2.sum()), int(comparable.sum()), len(credit2)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = (total2 / 2 - credit2) / (total - 2 * comparable) - total2 / max(1, 2 * total)

    def part(inside):
        sizes = Rows(len(credit2[inside])).sizes()
        spread = Spread.of(left[inside])
        return PairTally(sizes, whole.constant, int(credit2[inside].sum()), int(comparable[inside].sum()), spread)

    found = merged([part(inside) for inside in pieces(n, places)])
    assert (found.credit2, found.comparable, found.sizes) == (whole.credit2, whole.comparable, whole.sizes)
    if np.isfinite(left).all():
        same(estimate_ranking(metric, found, 0.9), estimate_ranking(metric, whole, 0.9))


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), cuts, st.sampled_from(["aurc", "augrc", "naurc", "selective_accuracy_90"]))
def test_parts_of_areas_merge_into_the_whole(seed, places, name):
    s, v, _, _, _ = make_case(seed, n=60)
    metric, e = REGISTRY[name], v.astype(np.uint8)
    sample = Sample.of(s, e)
    whole = count_sample(metric, sample)
    x = influence(name, sample) / metric.affine[1] / 60
    bad = e.astype(bool)

    def part(inside):
        sums = [float((x[inside][side[inside]] ** 2).sum()) for side in (~bad, bad)]
        share = float(bad[inside].mean()) if len(x[inside]) else 0.0  # any split of the contributions will do
        return AreaTally(
            Rows(len(x[inside])).sizes(e[inside]),
            whole.value,
            *sums,
            None,
            whole.contributions2 * share,
            whole.largest,
            whole.adds,
        )

    found = merged([part(inside) for inside in pieces(60, places)])
    assert (found.right2, found.wrong2) == pytest.approx((whole.right2, whole.wrong2))
    if whole.sizes.errors >= 10:
        same(estimate_ranking(metric, found, 0.9), estimate_ranking(metric, whole, 0.9))


def test_parts_of_means_moments_and_spreads_merge_into_the_whole():
    rng = np.random.default_rng(0)
    x = rng.normal(1e6, 1.0, (3, 200))  # a mean far from 0 costs no digits
    mean, part = x[0].mean(), lambda inside: (x[0][inside] - x[0].mean()) / 200
    parts = [
        MeanTally(Rows(len(x[0][inside])).sizes(), mean, float((part(inside) ** 2).sum()))
        for inside in pieces(200, [3, 3, 150])
    ]
    metric = REGISTRY["log_loss"]
    same(estimate_mean(metric, merged(parts), 0.9), estimate_mean(metric, count_mean(x[0], Rows(200)), 0.9))
    moments = merged([Moments.of(x[:, inside]) for inside in pieces(200, [0, 7, 150])])
    for found, expected in zip(moments, Moments.of(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    spread = merged([Spread.of(x[1, inside]) for inside in pieces(200, [1, 60])])
    assert spread == pytest.approx(Spread.of(x[1]), rel=1e-9)
    assert spread.about(1e6 + 2) == pytest.approx(((x[1] - 1e6 - 2) ** 2).sum(), rel=1e-9)


def test_sizes_of_parts_without_a_common_cluster_add_up():
    for weighted in (False, True):
        _, v, d, w, g = make_case(5, n=90, clusters=12)
        order = np.argsort(g, kind="stable")
        v, d, w, g = v[order].astype(np.uint8), np.clip(d[order], 0, 1), w[order], g[order]
        w = w if weighted else None
        cut = int(np.searchsorted(g, 6))

        def of(rows, target, w=w, g=g):
            return Rows(len(g[rows]), None if w is None else w[rows], g[rows] - g[rows].min()).sizes(target[rows])

        for target in (v, d):
            whole = of(slice(None), target)
            found = of(slice(0, cut), target).merge(of(slice(cut, None), target))
            assert found.clusters == whole.clusters
            assert (found.weighted, found.binary) == (whole.weighted, whole.binary)
            assert found.largest == whole.largest
            assert (found.units, found.errors, *found.sides) == pytest.approx((whole.units, whole.errors, *whole.sides))


def test_the_joint_tally_of_two_candidates_tells_their_difference_and_each_variance():
    for name in ("uq_auc", "uq_c_index", "aurc", "kendall_phi", "selective_accuracy_80"):
        metric = REGISTRY[name]
        for clusters, weighted in ((None, False), (12, False), (None, True), (12, True)):
            s, v, d, w, g = make_case(2, n=120, clusters=12)
            other = s + np.random.default_rng(0).normal(size=120)
            target = v.astype(np.uint8) if metric.needs[1] == "error" else d
            given_rows = (w if weighted else None, g if clusters else None)
            samples = [Sample.of(x, target, *given_rows) for x in (s, other)]
            joint = joint_of_samples(metric, samples)
            estimates = [estimate_ranking(metric, count_sample(metric, sample), 0.95) for sample in samples]
            np.testing.assert_allclose(joint.values, [e.value for e in estimates], rtol=1e-12)
            found = contrast(joint, 0, 1)
            assert found.difference == pytest.approx(estimates[0].value - estimates[1].value)
            covariance = joint.covariance()
            expected = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
            assert found.se**2 == pytest.approx(expected, rel=1e-9)


def test_a_joint_part_keeps_the_digits_of_candidates_that_move_alike():
    rng = np.random.default_rng(0)
    units = rng.normal(size=(3, 50))
    units[1] = units[0]
    units[1, 7] += 1e-9
    part = JointPart.of_units(units, 49)
    assert part.close(0, 1)
    assert not part.close(0, 2)
    assert part.gaps[0, 1] == pytest.approx(1e-18, rel=1e-6)
    whole = JointPart.of_moments(Moments.of(units).about_zero(), 1.0, 49)
    np.testing.assert_allclose(whole.covariance, part.covariance, rtol=1e-12)
    np.testing.assert_allclose(whole.gaps, part.gaps, rtol=1e-6)
