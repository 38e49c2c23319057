"""Evidence about a risk: every p-value against its formula, its reference in scipy, and its own promise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from strategies import LOSSES01, make_losses01, seeds
from uqeval.decide import bounds, calibration
from uqeval.decide.calibration import Calibration

RISKS = [0.001, 0.01, 0.05, 0.2, 0.5, 0.9]
risks = st.floats(1e-3, 0.98)
loss_bounds = st.sampled_from(["betting", "hoeffding-bentkus"])
deltas = st.sampled_from([0.4, 0.2, 0.1, 0.05, 0.01, 0.05 / 3, 0.05 / 5, 0.05 / 50, 1e-6])
counts = st.integers(0, 3000).flatmap(lambda k: st.tuples(st.integers(0, k), st.just(k)))


def losses(seed, n, kind):
    return make_losses01(np.random.default_rng(seed), n, kind)


def p_of_rows(loss, max_risk, bound="betting"):
    """The p-value that the library gives to these losses as a whole."""
    loss = np.asarray(loss, dtype=np.float64)
    return float(Calibration(np.zeros(len(loss)), loss, None, bound).p_values(np.zeros(1), max_risk)[0])


# ---- 0/1 errors -------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(counts, risks)
def test_binomial_p_is_the_cdf_of_the_binomial(count, max_risk):
    errors, accepted = count
    expected = stats.binom.cdf(errors, accepted, max_risk)
    assert float(bounds.binomial_p(errors, accepted, max_risk)) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@settings(max_examples=30)
@given(st.integers(0, 10**7), risks)
def test_binomial_p_is_one_where_all_are_wrong_or_none_accepted(accepted, max_risk):
    assert float(bounds.binomial_p(accepted, accepted, max_risk)) == 1.0
    assert float(bounds.binomial_p(0, 0, max_risk)) == 1.0


def test_binomial_p_takes_whole_arrays_of_counts_and_of_risks():
    errors, accepted, gamma = np.array([0, 0, 1, 7, 50]), np.array([0, 10, 100, 7, 1000]), np.linspace(0.05, 0.6, 5)
    np.testing.assert_allclose(bounds.binomial_p(errors, accepted, gamma), stats.binom.cdf(errors, accepted, gamma))
    np.testing.assert_allclose(bounds.binomial_p(errors, accepted, 0.1), stats.binom.cdf(errors, accepted, 0.1))


# ---- losses in [0, 1]: Hoeffding–Bentkus ------------------------------------------------------------------------


def hoeffding_bentkus(total, n, gamma):
    """Bates et al. 2021: min(exp(−n h1(min(R, γ), γ)), e·P(Bin(n, γ) ≤ ⌈nR⌉)), h1 the relative entropy."""
    mean = min(total / n, gamma)
    h = (1 - mean) * math.log((1 - mean) / (1 - gamma)) + (mean * math.log(mean / gamma) if mean > 0 else 0.0)
    return min(1.0, math.exp(-n * h), math.e * stats.binom.cdf(math.ceil(total), n, gamma))


@settings(max_examples=30)
@given(seeds, st.integers(1, 400), st.sampled_from(LOSSES01), risks)
def test_hoeffding_bentkus_p_is_its_published_formula(seed, n, kind, max_risk):
    total = round(math.fsum(losses(seed, n, kind) * np.random.default_rng(seed).random()), 6)  # clear of integers
    got = float(bounds.hoeffding_bentkus_p(np.asarray(total), np.asarray(n), max_risk))
    assert got == pytest.approx(hoeffding_bentkus(total, n, max_risk), rel=1e-8, abs=1e-300)


@settings(max_examples=30)
@given(counts, risks)
def test_hoeffding_bentkus_p_is_never_below_the_exact_one_for_errors(count, max_risk):
    errors, accepted = count
    exact = float(bounds.binomial_p(errors, accepted, max_risk))
    assert float(bounds.hoeffding_bentkus_p(np.asarray(errors), np.asarray(accepted), max_risk)) >= exact * (1 - 1e-9)


def test_where_nothing_is_accepted_nothing_is_shown():
    for p in (bounds.binomial_p, bounds.hoeffding_bentkus_p):
        assert p(np.zeros(2), np.array([0.0, 400.0]), 0.1).tolist() == [1.0, pytest.approx(0.9**400)]


def test_hoeffding_bentkus_p_does_not_count_one_more_for_a_rounded_total():
    for repeats in (10, 30, 70, 490):
        total = np.asarray(float(np.cumsum(np.full(repeats, 0.1))[-1]))
        exact = bounds.hoeffding_bentkus_p(np.asarray(repeats / 10), np.asarray(repeats), 0.3)
        assert float(bounds.hoeffding_bentkus_p(total, np.asarray(repeats), 0.3)) == pytest.approx(float(exact))


# ---- losses in [0, 1]: betting ----------------------------------------------------------------------------------


@settings(max_examples=30)
@given(seeds, st.integers(0, 60), st.sampled_from(LOSSES01), risks)
def test_betting_p_is_one_over_the_mean_over_stakes_of_the_product_over_rows(seed, n, kind, max_risk):
    loss = losses(seed, n, kind)
    stakes = [float(x) for x in bounds.betting_scale(max_risk)]
    wealth = [math.prod(1 + stake * (max_risk - float(x)) for x in loss) for stake in stakes]
    expected = min(1.0, len(stakes) / math.fsum(wealth)) if any(wealth) else 1.0
    with np.errstate(divide="ignore"):
        log_wealth = np.array([np.log1p(stake * (max_risk - loss)).sum() for stake in stakes])
    assert float(bounds.betting_p(log_wealth)) == pytest.approx(expected, rel=1e-8)
    if n:
        assert p_of_rows(loss, max_risk) == pytest.approx(expected, rel=1e-8)


@settings(max_examples=30)
@given(risks)
def test_no_stake_can_lose_more_than_everything(max_risk):
    stakes = bounds.betting_scale(max_risk)
    assert (stakes > 0).all()
    assert (1 + stakes * (max_risk - 1) >= 0).all()  # the worst loss is 1
    assert len(np.unique(stakes)) == len(stakes)


@settings(max_examples=30)
@given(seeds, st.integers(2, 200), st.sampled_from(LOSSES01), risks, loss_bounds)
def test_the_order_of_rows_changes_no_bit_of_a_p_value(seed, n, kind, max_risk, bound):
    loss = losses(seed, n, kind)
    shuffled = np.random.default_rng(seed + 1).permutation(loss)
    assert p_of_rows(loss, max_risk, bound) == p_of_rows(shuffled, max_risk, bound)


def test_bets_placed_in_parts_give_the_same_p_value(monkeypatch):
    loss = losses(5, 500, "mixture") * 0.2
    cal = Calibration(np.arange(500.0), loss)
    at = np.array([0.0, 3.0, 99.0, 250.0, 499.0])
    whole = cal.p_values(at, 0.2)
    monkeypatch.setattr(calibration, "_AT_ONCE", 7)
    np.testing.assert_allclose(cal.p_values(at, 0.2), whole, rtol=1e-12)
    assert whole[-1] < 1e-6  # the comparison is about something


def two_point(rng, shape, mean):
    """0.02 or 0.7, with the given mean."""
    return np.where(rng.random(shape) < (mean - 0.02) / 0.68, 0.7, 0.02)


LAWS = {
    "errors": lambda rng, shape, mean: (rng.random(shape) < mean).astype(np.float64),
    "beta": lambda rng, shape, mean: rng.beta(0.5, 0.5 * (1 - mean) / mean, shape),
    "two points": two_point,
}


def test_p_values_of_losses_are_small_as_rarely_as_they_claim():
    for n in [5, 100]:
        for max_risk in [0.05, 0.3]:
            for law in LAWS:
                rng, runs = np.random.default_rng(len(law) + n), 2000
                loss = LAWS[law](rng, (runs, n), max_risk)
                stakes = bounds.betting_scale(max_risk)
                with np.errstate(divide="ignore"):
                    wealth = np.stack([np.log1p(stake * (max_risk - loss)).sum(axis=1) for stake in stakes], axis=1)
                found = {"betting": bounds.betting_p(wealth)}
                found["hb"] = bounds.hoeffding_bentkus_p(loss.sum(axis=1), np.full(runs, n), max_risk)
                if law == "errors":
                    found["binomial"] = bounds.binomial_p(loss.sum(axis=1), np.full(runs, n), max_risk)
                for name, p in found.items():
                    for alpha in (0.01, 0.05, 0.1, 0.3):
                        assert np.mean(p <= alpha) <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs), (name, alpha)


def test_p_values_of_losses_become_small_where_the_risk_is_low():
    for bound in ["betting", "hoeffding-bentkus"]:
        assert p_of_rows(np.full(400, 0.02), 0.1, bound) < 1e-3


def test_betting_beats_hoeffding_bentkus_on_losses_that_hardly_vary():
    loss = np.full(100, 0.05)
    assert p_of_rows(loss, 0.1) < p_of_rows(loss, 0.1, "hoeffding-bentkus") / 2


# ---- clusters ---------------------------------------------------------------------------------------------------


def cluster_p(total, rows, max_risk, *, largest=None, **options):
    largest = float(max(rows)) if largest is None else largest
    return float(bounds.cluster_p(bounds.moments(total, rows), max_risk, largest=largest, **options)[0])


def one_sided_t(total, rows, gamma, largest, copies=1):
    """Z_g = Σ(v − γ) of each cluster with an accepted row, plus (1 − γ)·(largest cluster); df = Ga − 1."""
    total, rows = (np.tile(np.asarray(x, dtype=float), copies) for x in (total, rows))
    kept = [(a, b) for a, b in zip(total, rows, strict=True) if b > 0]
    if len(kept) < 10:
        return 1.0
    z = [a - gamma * b for a, b in kept] + [(1 - gamma) * largest]
    if len({round(x, 12) for x in z}) == 1:
        return 1.0
    return float(stats.t.cdf(stats.ttest_1samp(z, 0.0).statistic, df=len(kept) - 1))


@st.composite
def cluster_sums(draw, least=1, most=60):
    """(loss, accepted rows) of each cluster; some accept none."""
    groups, whole = draw(st.integers(least, most)), draw(st.booleans())
    rng = np.random.default_rng(draw(seeds))
    rows = rng.integers(draw(st.integers(0, 1)), draw(st.integers(2, 12)), groups).astype(np.float64)
    share = rng.random(groups) ** rng.integers(1, 8)
    return (rng.binomial(rows.astype(int), share * 0.5).astype(float) if whole else rows * share), rows


def at_effective_rows(total, rows, max_risk, largest, copies=1):
    """Binomial at as many rows as would tell the risk as well; beta form of the binomial, for any real number."""
    some = rows > 0
    total, rows = np.tile(total[some], copies), np.tile(rows[some], copies)
    if len(rows) < 10:
        return 1.0
    all_total, all_rows = np.append(total, largest), np.append(rows, largest)
    risk = all_total.sum() / all_rows.sum()
    excess = (all_total - risk * all_rows) / all_rows.sum()
    variance = (excess**2).sum() * len(all_rows) / (len(all_rows) - 1)
    if variance == 0:
        return 1.0
    n = risk * (1 - risk) / variance
    if (rows**2).sum() / rows.sum() > 2 * rows.mean():  # so uneven that the rows of a cluster count as one
        n = min(n, rows.sum() ** 2 / (rows**2).sum())
    errors = n * total.sum() / rows.sum()
    return float(stats.beta.sf(max_risk, errors + 1, n - errors)) if n - errors > 1e-9 else 1.0


@settings(max_examples=30)
@given(cluster_sums(), risks, st.sampled_from([0, 1, 30]))
def test_cluster_p_is_the_larger_of_a_t_test_and_the_binomial_at_effective_rows(sums, max_risk, more):
    total, rows = sums
    largest = rows.max() + more
    expected = max(one_sided_t(total, rows, max_risk, largest), at_effective_rows(total, rows, max_risk, largest))
    assert cluster_p(total, rows, max_risk, largest=largest) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_made_up_clusters_are_counted_as_clusters_that_are_there():
    total, rows = np.repeat([0.0, 2.0, 5.0], [200, 20, 3]), np.repeat([4.0, 4.0, 5.0], [200, 20, 3])
    largest, gamma = 7.0, 0.12
    z = np.append(total - gamma * rows, [(1 - gamma) * largest] * 3)
    t_test = stats.t.cdf(stats.ttest_1samp(z, 0.0).statistic, df=len(total) - 1)
    every, size = np.append(total, [largest] * 3), np.append(rows, [largest] * 3)
    risk = every.sum() / size.sum()
    variance = ((every - risk * size) ** 2).sum() / size.sum() ** 2 * len(size) / (len(size) - 1)
    n = risk * (1 - risk) / variance
    errors = n * total.sum() / rows.sum()
    expected = max(float(t_test), float(stats.beta.sf(gamma, errors + 1, n - errors)))
    assert cluster_p(total, rows, gamma, largest=largest, made_up=3.0) == pytest.approx(expected, rel=1e-9)
    assert cluster_p(total, rows, gamma, largest=largest) < expected


def test_surer_promises_make_up_more_clusters():
    found = [bounds.made_up_clusters(delta) for delta in (0.5, 0.05, 0.04, 0.02, 0.01, 0.005, 0.002, 0.001, 1e-9)]
    assert found == [1, 1, 1, 1.5, 1.5, 2, 2.5, 2.5, 4]


@pytest.mark.parametrize(
    ("clusters", "largest", "gamma", "large"), [(1000, 20, 0.2, 5.5), (5000, 50, 0.2, 14.9), (2000, 20, 0.1, 7.2)]
)
def test_cluster_p_is_as_rarely_small_as_a_small_level_says(clusters, largest, gamma, large):
    """Single rows, and `large` clusters (on average) that are all wrong; the risk is the target."""
    share = large / clusters
    single = gamma * (1 - share + largest * share) - largest * share
    draws = np.random.default_rng(4).multinomial(clusters, [1 - single - share, single, share], size=200_000)
    right, wrong, many = draws.T.astype(np.float64)
    total, squares = wrong + largest * many, wrong + largest**2 * many
    number = np.full(len(right), float(clusters))
    of = bounds.Moments(number, total, right + total, squares, squares, right + squares)
    for delta in (0.05, 0.02, 0.01, 0.005, 0.002, 0.001):
        allowed = delta + 3 * math.sqrt(delta / len(right))
        made_up = bounds.made_up_clusters(delta)
        assert (bounds.cluster_p(of, gamma, largest=largest, made_up=made_up) <= delta).mean() <= allowed, delta
    assert (bounds.cluster_p(of, gamma, largest=largest) <= 0.001).mean() > 0.0025  # one made-up cluster is too few


def test_a_larger_cluster_that_may_come_never_makes_a_p_value_smaller():
    total, rows = (np.arange(300) < 4).astype(float), np.full(300, 3.0)
    found = [cluster_p(total, rows, 0.05, largest=largest) for largest in (3, 5, 10, 20, 100, 1000)]
    assert found == sorted(found)
    assert found[0] < 1e-4
    assert found[-1] > 0.5


def test_cluster_p_of_single_rows_is_never_below_the_exact_binomial():
    for errors in range(20):
        total = (np.arange(200) < errors).astype(float)
        exact = bounds.binomial_p(np.array([errors]), np.array([200]), 0.1)[0]
        assert cluster_p(total, np.ones(200), 0.1) >= exact * (1 - 1e-9)


@settings(max_examples=30)
@given(cluster_sums(), risks, st.integers(2, 4))
def test_copies_repeat_the_clusters_but_not_the_made_up_one(sums, max_risk, copies):
    total, rows = sums
    got = cluster_p(total, rows, max_risk, copies=copies)
    largest = rows.max()
    expected = max(
        one_sided_t(total, rows, max_risk, largest, copies), at_effective_rows(total, rows, max_risk, largest, copies)
    )
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert got == pytest.approx(cluster_p(np.tile(total, copies), np.tile(rows, copies), max_risk), rel=1e-7)


def test_fewer_than_ten_clusters_prove_nothing():
    for groups in [1, 2, 9]:
        assert cluster_p(np.zeros(groups), np.full(groups, 1000.0), 0.5) == 1.0
        assert cluster_p(np.zeros(groups + 5), np.repeat([1000.0, 0.0], [groups, 5]), 0.5) == 1.0
        assert cluster_p(np.zeros(10), np.full(10, 1000.0), 0.5) < 0.05, groups


def test_clusters_that_are_all_wrong_prove_nothing():
    assert cluster_p(np.full(20, 5.0), np.full(20, 5.0), 0.3) == 1.0


@settings(max_examples=30)
@given(cluster_sums(least=10), risks, st.sampled_from([0.5, 3.0, 1000.0]))
def test_the_unit_in_which_clusters_are_counted_does_not_matter(sums, max_risk, unit):
    total, rows = sums
    expected = cluster_p(total, rows, max_risk)
    assert cluster_p(unit * total, unit * rows, max_risk) == pytest.approx(expected, rel=1e-7)


@settings(max_examples=30)
@given(st.lists(cluster_sums(), min_size=1, max_size=5), risks, st.sampled_from([1.0, 2.5]))
def test_stacked_moments_give_the_p_value_of_each(cases, max_risk, copies):
    parts = [bounds.moments(total, rows) for total, rows in cases]
    stacked = bounds.Moments(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    alone = [cluster_p(total, rows, max_risk, largest=12.0, copies=copies) for total, rows in cases]
    np.testing.assert_allclose(bounds.cluster_p(stacked, max_risk, largest=12.0, copies=copies), alone, rtol=1e-12)
    sizes = [float(bounds.effective_rows(part, copies=copies)[0]) for part in parts]
    np.testing.assert_allclose(bounds.effective_rows(stacked, copies=copies), sizes, rtol=1e-12)


def test_effective_rows_of_single_rows_are_about_those_rows():
    for errors in [0, 1, 7, 60]:
        total = (np.arange(200) < errors).astype(float)
        assert float(bounds.effective_rows(bounds.moments(total, np.ones(200)))[0]) == pytest.approx(200, rel=0.02)
        copied = bounds.moments(7 * total, np.full(200, 7.0))  # copies of a row in its cluster tell nothing more
        assert float(bounds.effective_rows(copied)[0]) == pytest.approx(200, rel=0.02)


# ---- what a region can prove at best ----------------------------------------------------------------------------

KINDS = ("errors", "betting", "hoeffding-bentkus", "clusters", "clusters of losses")


def make_calibration(seed, n, kind, how):
    """Rows of that kind, with losses of which many are small."""
    rng = np.random.default_rng(seed)
    loss = losses(seed, n, how) * rng.choice([0.0, 1e-3, 0.1, 1.0])
    if kind in ("errors", "clusters"):
        loss = (rng.random(n) < loss).astype(np.uint8)
    clusters = rng.integers(0, rng.integers(1, n + 1), n) if kind.startswith("clusters") else None
    if clusters is not None:
        clusters = np.unique(clusters, return_inverse=True)[1]
    bound = kind if kind == "hoeffding-bentkus" else "betting"
    return Calibration(np.round(rng.random(n), 2), loss, clusters, bound)


calibrations = st.builds(
    make_calibration, seeds, st.integers(1, 300), st.sampled_from(KINDS), st.sampled_from(LOSSES01)
)
copies_of = st.sampled_from([1.0, 1.7, 4.0, 50.0])


@settings(max_examples=30)
@given(calibrations, risks, copies_of)
def test_best_p_is_the_p_value_of_the_same_rows_without_any_loss(cal, max_risk, copies):
    none = replace(cal, loss=np.zeros_like(cal.loss))
    at = np.concatenate([[-1.0], cal.grid()])
    got = cal.best_p(at, max_risk, copies=copies)
    np.testing.assert_allclose(got, none.p_values(at, max_risk, copies=copies), rtol=1e-9, atol=1e-300)
    assert got[0] == 1.0  # nothing is accepted
    assert got.tolist() == none.best_p(at, max_risk, copies=copies).tolist()


@settings(max_examples=30)
@given(
    st.builds(make_calibration, seeds, st.integers(1, 300), st.sampled_from(KINDS[:3]), st.sampled_from(LOSSES01)),
    risks,
    copies_of,
)
def test_best_p_of_rows_is_never_above_the_p_value_with_any_losses(cal, max_risk, copies):
    # Regions whose best p-value is too large are left out without looking at their losses.
    at = cal.grid()
    best, p = cal.best_p(at, max_risk, copies=copies), cal.p_values(at, max_risk, copies=copies)
    assert (best <= p * (1 + 1e-9) + 1e-300).all()


def test_best_p_of_errors_has_the_known_values():
    for max_risk, delta, rows in [(0.05, 0.1, 45), (0.05, 0.05, 59), (0.01, 0.1, 230)]:
        cal = Calibration(np.arange(300.0), np.ones(300, dtype=np.uint8))
        passes = cal.best_p(np.arange(300.0), max_risk) <= delta
        assert int(passes.argmax()) + 1 == rows
        assert passes[rows - 1 :].all()


@settings(max_examples=30)
@given(risks, deltas)
def test_best_p_of_errors_passes_from_the_row_where_so_many_right_ones_are_rare(max_risk, delta):
    k = math.ceil(math.log(delta) / math.log1p(-max_risk) - 1e-9)  # (1 − max_risk)^k ≤ delta
    cal = Calibration(np.zeros(k + 1), np.ones(k + 1, dtype=np.uint8))
    one_more, enough, fewer = (
        float(cal.take(np.arange(n)).best_p(np.zeros(1), max_risk)[0]) for n in (k + 1, k, k - 1)
    )
    assert one_more < enough <= delta * (1 + 1e-8)
    assert fewer > delta * (1 - 1e-8)


def test_best_p_of_even_clusters_falls_with_their_number_and_needs_ten():
    for size in [1, 7]:
        groups = np.repeat(np.arange(200), size)
        cal = Calibration(groups.astype(np.float64), np.zeros(len(groups)), groups)
        p = cal.best_p(np.arange(200.0), 0.3)
        assert (p[: bounds.FEW_CLUSTERS - 1] == 1).all()
        assert p[bounds.FEW_CLUSTERS - 1] < 1
        assert (np.diff(p[bounds.FEW_CLUSTERS - 1 :]) <= 0).all()


# ---- bets that a risk has risen ---------------------------------------------------------------------------------


@settings(max_examples=30)
@given(seeds, st.integers(0, 60), st.sampled_from(LOSSES01), risks)
def test_rise_log_e_is_the_log_of_the_product_over_rows(seed, n, kind, max_risk):
    loss = losses(seed, n, kind)
    stakes = [excess / (1 - max_risk) for excess in bounds.rise_excesses(max_risk)]
    expected = [math.log(math.prod(1 + stake * (float(x) - max_risk) for x in loss)) for stake in stakes]
    np.testing.assert_allclose(bounds.rise_log_e(loss, max_risk), expected, rtol=1e-8, atol=1e-10)
    assert bounds.rise_log_e(np.random.default_rng(seed).permutation(loss), max_risk).tolist() == (
        bounds.rise_log_e(loss, max_risk).tolist()
    )


@settings(max_examples=30)
@given(seeds, st.integers(0, 50), st.integers(0, 50), risks)
def test_rise_log_e_of_two_batches_adds_up_to_that_of_all_rows(seed, a, b, max_risk):
    loss = losses(seed, a + b, "mixture")
    parts = bounds.rise_log_e(loss[:a], max_risk) + bounds.rise_log_e(loss[a:], max_risk)
    np.testing.assert_allclose(parts, bounds.rise_log_e(loss, max_risk), rtol=1e-9, atol=1e-10)


def test_rise_stakes_are_never_ruined_and_win_where_all_is_lost():
    for max_risk in RISKS:
        assert (np.diff(bounds.rise_excesses(max_risk)) > 0).all()
        assert bounds.rise_excesses(max_risk)[-1] < 1 / max_risk - 1
        assert np.isfinite(bounds.rise_log_e(np.zeros(1000), max_risk)).all()
        assert (bounds.rise_log_e(np.zeros(10), max_risk) < 0).all()
        assert (bounds.rise_log_e(np.ones(10), max_risk) > 0).all()


def test_the_mean_rise_e_value_is_at_most_one_while_the_promise_holds():
    for law in LAWS:
        rng, runs, n, max_risk = np.random.default_rng(3), 2000, 20, 0.2
        e = np.exp(
            [bounds.log_mean_exp(bounds.rise_log_e(row, max_risk)) for row in LAWS[law](rng, (runs, n), max_risk)]
        )
        for alpha in (0.01, 0.05, 0.1, 0.3):  # Markov: P(e ≥ 1/alpha) ≤ alpha
            assert np.mean(e >= 1 / alpha) <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


# ---- log of a mean ----------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.floats(-600, 600), min_size=1, max_size=20))
def test_log_mean_exp_is_the_log_of_the_mean(values):
    x = np.array(values)
    expected = max(values) + math.log(math.fsum(math.exp(v - max(values)) for v in values) / len(values))
    assert float(bounds.log_mean_exp(x)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_log_mean_exp_neither_overflows_nor_fails_at_ruin():
    assert float(bounds.log_mean_exp(np.array([1e6, -np.inf]))) == pytest.approx(1e6 - math.log(2))
    assert float(bounds.log_mean_exp(np.array([-np.inf, -np.inf]))) == -np.inf
    assert bounds.log_mean_exp(np.zeros((3, 4))).tolist() == [0.0, 0.0, 0.0]
    assert float(bounds.betting_p(np.array([-np.inf, -np.inf]))) == 1.0
