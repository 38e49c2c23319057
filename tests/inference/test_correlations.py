"""Pearson's r and tests of two dependent correlations against scipy, numeric derivatives and formulas written anew."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import uqeval
from cases import each, noted
from uqeval import InputError, UQWarning, compare_correlations, pearson


def quiet(*arguments, **options):
    """`pearson`, whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return pearson(*arguments, **options)


def data(seed, n=30, rho=0.6, tails="normal"):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n) if tails == "normal" else rng.standard_t(3, size=n)
    return x, rho * x + math.sqrt(1 - rho**2) * rng.normal(size=n)


def with_correlations(n, matrix, seed=0):
    """(variables, n) whose sample correlations are exactly `matrix`."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(len(matrix), n))
    x -= x.mean(axis=1, keepdims=True)
    white = np.linalg.solve(np.linalg.cholesky(x @ x.T), x)
    return np.linalg.cholesky(np.array(matrix, dtype=float)) @ white


def weighted_r(x, y, w):
    w = w / w.sum()
    a, b = x - (w * x).sum(), y - (w * y).sum()
    return (w * a * b).sum() / math.sqrt((w * a * a).sum() * (w * b * b).sum())


def numeric_influence(x, y, step=1e-5):
    n = len(x)
    result = np.empty(n)
    for i in range(n):
        up, down = np.ones(n), np.ones(n)
        up[i] += step
        down[i] -= step
        result[i] = n * (weighted_r(x, y, up) - weighted_r(x, y, down)) / (2 * step)
    return result


# ---- pearson --------------------------------------------------------------------------------------------------


def test_fisher_interval_is_scipys_and_the_one_by_hand():
    # Fisher interval matches SciPy.
    for n, level in product([4, 5, 30, 300], [0.9, 0.95, 0.99]):
        with noted(n=n, level=level):
            x, y = data(n, n=n)
            found, expected = pearson(x, y, method="fisher", level=level), stats.pearsonr(x, y)
            assert found.value == pytest.approx(expected.statistic, rel=1e-12)
            interval = expected.confidence_interval(level)
            assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
            assert found.n == n

    # Fisher interval by hand.
    # r = 0.5, n = 28: atanh(0.5) ± 1.96/5.
    x, y = with_correlations(28, [[1, 0.5], [0.5, 1]])
    found = pearson(x, y, method="fisher")
    assert found.value == pytest.approx(0.5)
    assert found.low == pytest.approx(math.tanh(0.549306144 - 0.391992797), abs=1e-6)
    assert found.high == pytest.approx(math.tanh(0.549306144 + 0.391992797), abs=1e-6)


@each("tails", ["normal", "t3"])
def test_influence_standard_error_is_that_of_the_numeric_influence(tails):
    x, y = data(1, n=40, tails=tails)
    found = pearson(x, y)
    r, n = weighted_r(x, y, np.ones(40)), 40
    f = numeric_influence(x, y)
    se_z = math.sqrt((f**2).sum()) / n / (1 - r * r)
    assert found.se == pytest.approx(se_z * (1 - r * r), rel=1e-6)
    half = stats.norm.ppf(0.975) * se_z
    assert (found.low, found.high) == pytest.approx(
        (math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)), rel=1e-6
    )


def test_groups_sum_influence_and_use_t():
    x, y = data(2, n=60)
    g = np.repeat(np.arange(12), 5)
    found = pearson(x, y, groups=[f"family {k}" for k in g])
    r = weighted_r(x, y, np.ones(60))
    sums = np.bincount(g, weights=numeric_influence(x, y))
    se_z = math.sqrt((sums**2).sum()) / 60 / (1 - r * r)
    half = stats.t.ppf(0.975, 11) * se_z
    assert found.n_clusters == 12
    assert (found.low, found.high) == pytest.approx(
        (math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)), rel=1e-6
    )

    # Singleton groups are the plain standard error.
    x, y = data(3)
    assert pearson(x, y, groups=np.arange(30)).se == pytest.approx(pearson(x, y).se, rel=1e-12)

    # A single group has no interval.
    # G = 1: se and interval NaN.
    x, y = data(3)
    found = quiet(x, y, groups=np.zeros(30, dtype=int))
    assert found.value == pytest.approx(stats.pearsonr(x, y).statistic)
    assert math.isnan(found.se)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert any("group" in note for note in found.warnings)

    # Few groups are noted.
    x, y = data(3)
    assert any("few groups" in note for note in quiet(x, y, groups=np.arange(30) % 5).warnings)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(4, 40))
def test_symmetry_sign_shift_and_scale(seed, n):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=n), rng.normal(size=n)
    base = pearson(x, y)
    for method in ("influence", "fisher"):
        base = pearson(x, y, method=method)
        assert -1 <= base.low <= base.value <= base.high <= 1
        swapped, turned, moved = (
            pearson(y, x, method=method),
            pearson(x, -y, method=method),
            pearson(3 * x + 7, y / 5 - 2, method=method),
        )
        for other, sign in ((swapped, 1), (moved, 1), (turned, -1)):
            assert other.value == pytest.approx(sign * base.value, rel=1e-9, abs=1e-12)
            assert other.se == pytest.approx(base.se, rel=1e-7)
        assert (turned.low, turned.high) == pytest.approx((-base.high, -base.low), rel=1e-7, abs=1e-10)


def test_perfect_and_constant_input_has_no_interval():
    # A perfect correlation has no interval.
    # |r| = 1: NaN interval, also where rounding makes r 1 − 1e-16.
    for seed in range(20):
        with noted(seed=seed):
            rng = np.random.default_rng(seed)
            x = rng.normal(size=8)
            for y, r in ((3 * x + 0.1, 1), (-x / 3 + 5, -1)):
                for method in ("influence", "fisher"):
                    found = quiet(x, y, method=method)
                    assert found.value == pytest.approx(r, abs=1e-12)
                    assert math.isnan(found.low)
                    assert math.isnan(found.high)

    # Constant input is undefined and says so.
    with pytest.warns(UQWarning, match="constant"):
        found = pearson([1, 1, 1, 1, 1], [1, 2, 3, 4, 5])
    assert math.isnan(found.value)
    assert math.isnan(found.low)
    assert found.degenerate

    # An almost constant input is not constant.
    x = 1e8 + np.array([0, 1, 2, 3, 4, 5.0])
    y = np.array([0, 2, 1, 3, 5, 4.0])
    assert pearson(x, y).value == pytest.approx(stats.pearsonr(x - 1e8, y).statistic, rel=1e-7)

    # Units of measurement do not matter.
    for scale in [1e-200, 1e200]:
        with noted(scale=scale):
            x, y = data(4)
            assert pearson(x * scale, y).value == pytest.approx(pearson(x, y).value, rel=1e-6)


def test_bad_input_is_named():
    for arguments, options, message in [
        (([1, 2, 3], [1, 2, 3]), {}, "at least 4"),
        (([1, 2, 3, 4], [1, 2, 3]), {}, "y"),
        (([1, 2, 3, math.nan], [1, 2, 3, 4]), {}, "x.*NaN"),
        (([1, 2, 3, math.inf], [1, 2, 3, 4]), {}, "x"),
        (([1, 2, 3, 4], [1, 2, 3, 5]), {"method": "spearman"}, "method"),
        (([1, 2, 3, 4], [1, 2, 3, 5]), {"level": 95}, "level"),
        (([1, 2, 3, 4], [1, 2, 3, 5]), {"groups": [1, 2]}, "groups"),
        (([1, 2, 3, 4], [1, 2, 4, 3]), {"groups": [1, 1, 2, 2], "method": "fisher"}, "groups"),
    ]:
        with noted(arguments=arguments, options=options), pytest.raises(InputError, match=message):
            pearson(*arguments, **options)

    # Bad samples are named.
    for arguments, message in [
        (([1, 2, 3], [1, 2, 3], [1, 2, 3]), "4"),
        (([1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4]), "second"),
        (([1, 2, 3, math.nan], [1, 2, 3, 4], [1, 2, 3, 4]), "first"),
        (([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, math.inf, 4]), "truth"),
    ]:
        with noted(arguments=arguments, message=message), pytest.raises(InputError, match=message):
            compare_correlations(*arguments)


# ---- two dependent correlations -------------------------------------------------------------------------------


def williams(r1, r2, r12, n):
    """Williams (1959), as in Steiger (1980), eq. 7."""
    determinant = np.linalg.det([[1, r1, r2], [r1, 1, r12], [r2, r12, 1]])
    mean = (r1 + r2) / 2
    below = 2 * determinant * (n - 1) / (n - 3) + mean**2 * (1 - r12) ** 3
    t = (r1 - r2) * math.sqrt((n - 1) * (1 + r12) / below)
    return t, 2 * stats.t.sf(abs(t), n - 3)


def steiger(r1, r2, r12, n):
    """Steiger (1980), eq. 14: Dunn & Clark's z with pooled correlations."""
    m = (r1 + r2) / 2
    psi = r12 * (1 - m**2 - m**2) - 0.5 * (m * m) * (1 - m**2 - m**2 - r12**2)
    covariance = psi / (1 - m**2) ** 2
    z = (np.arctanh(r1) - np.arctanh(r2)) * math.sqrt(n - 3) / math.sqrt(2 - 2 * covariance)
    return 2 * stats.norm.sf(abs(z))


def zou(r1, r2, r12, n, level=0.95):
    """Zou (2007), section on overlapping correlations."""
    z = stats.norm.ppf((1 + level) / 2)
    (l1, u1), (l2, u2) = (np.tanh(np.arctanh(r) + np.array([-1, 1]) * z / math.sqrt(n - 3)) for r in (r1, r2))
    c = ((r12 - 0.5 * r1 * r2) * (1 - r1**2 - r2**2 - r12**2) + r12**3) / ((1 - r1**2) * (1 - r2**2))
    low = r1 - r2 - math.sqrt((r1 - l1) ** 2 + (u2 - r2) ** 2 - 2 * c * (r1 - l1) * (u2 - r2))
    high = r1 - r2 + math.sqrt((u1 - r1) ** 2 + (r2 - l2) ** 2 - 2 * c * (u1 - r1) * (r2 - l2))
    return low, high


def sample_with(r1, r2, r12, n):
    truth, first, second = with_correlations(n, [[1, r1, r2], [r1, 1, r12], [r2, r12, 1]])
    return first, second, truth


def test_two_correlations_are_compared_by_the_published_formulas():
    # Formulas.
    for r1, r2, r12, n in product([0.4, -0.3, 0.9], [0.5, 0.0, -0.2], [0.1, 0.45], [6, 20, 116]):
        with noted(r1=r1, r2=r2, r12=r12, n=n):
            if np.linalg.det([[1, r1, r2], [r1, 1, r12], [r2, r12, 1]]) < 0.01:
                continue  # not a correlation matrix
            test = compare_correlations(*sample_with(r1, r2, r12, n))
            assert (test.first, test.second, test.difference) == pytest.approx((r1, r2, r1 - r2), abs=1e-12)
            t, p = williams(r1, r2, r12, n)
            assert test.statistic == pytest.approx(t, rel=1e-9)
            assert test.p == pytest.approx(p, rel=1e-8)
            assert test.df == n - 3
            assert test.p_steiger == pytest.approx(steiger(r1, r2, r12, n), rel=1e-8)
            assert (test.low, test.high) == pytest.approx(zou(r1, r2, r12, n), rel=1e-9)

    # Steiger's example.
    # Steiger (1980), case A: n = 103, r = .4, .5, .1: t(100) = −0.89, p = .37.
    test = compare_correlations(*sample_with(0.4, 0.5, 0.1, 103))
    assert test.df == 100
    assert test.statistic == pytest.approx(-0.89, abs=0.005)
    assert test.p == pytest.approx(0.37, abs=0.01)
    # By hand: |R| = .62, below = 2·.62·1.02 + .2025·.729 = 1.412423, t = −.1·√(112.2/1.412423).
    assert test.statistic == pytest.approx(-0.1 * math.sqrt(112.2 / 1.4124225), rel=1e-6)

    # Zou's example.
    # Zou (2007), example 2: n = 66, r = .396, .179, .088: 95% interval (−.093, .517).
    test = compare_correlations(*sample_with(0.396, 0.179, 0.088, 66))
    assert (test.low, test.high) == pytest.approx((-0.093, 0.517), abs=0.0006)


def test_level_and_order_change_the_comparison_as_they_should():
    # Level widens the interval.
    sample = sample_with(0.4, 0.5, 0.1, 50)
    test = compare_correlations(*sample, level=0.8)
    assert (test.low, test.high) == pytest.approx(zou(0.4, 0.5, 0.1, 50, 0.8), rel=1e-9)
    assert test.level == 0.8

    # Swapping the two turns the sign only.
    first, second, truth = sample_with(0.6, 0.3, 0.2, 40)
    ab, ba = compare_correlations(first, second, truth), compare_correlations(second, first, truth)
    assert (ab.difference, ab.low, ab.high, ab.statistic) == pytest.approx(
        (-ba.difference, -ba.high, -ba.low, -ba.statistic)
    )
    assert (ab.p, ab.p_steiger) == pytest.approx((ba.p, ba.p_steiger))


def test_what_does_not_differ_or_is_undefined_gets_no_p_value_of_noise():
    # The same variable twice does not differ.
    for copy in [lambda x: x, lambda x: 2 * x + 1, lambda x: x / 3 - 1e3]:
        with noted(copy=copy):
            x, truth = data(0)
            test = compare_correlations(x, copy(x), truth)
            assert test.difference == pytest.approx(0, abs=1e-12)
            assert (test.p, test.p_steiger) == (1, 1)
            assert (test.low, test.high) == pytest.approx((0, 0), abs=1e-12)

    # Equal correlations of different variables.
    test = compare_correlations(*sample_with(0.5, 0.5, 0.2, 30))
    assert test.p == pytest.approx(1, abs=1e-6)
    assert test.low == pytest.approx(-test.high, abs=1e-9)

    # Constant input is undefined.
    x, truth = data(0)
    with np.errstate(all="raise"):
        test = compare_correlations(np.ones(30), x, truth)
    assert math.isnan(test.p)
    assert math.isnan(test.low)
    assert math.isnan(test.first)

    # Opposite variables make no noise into a p-value.
    # second = −first: Williams' t is 0/0 with limit r·√((n − 3)/(1 − r²)); neither 0 nor rounding noise.
    for seed in range(20):
        x, truth = data(seed)
        with np.errstate(all="raise"):
            test = compare_correlations(x, -x, truth)
        r = pearson(x, truth).value
        assert test.difference == pytest.approx(2 * r)
        limit = 2 * stats.t.sf(abs(r) * math.sqrt(27 / (1 - r * r)), 27)
        assert math.isnan(test.p) or test.p == pytest.approx(limit, rel=1e-3)

    # A perfect correlation keeps the difference and drops the interval.
    for seed in range(10):
        with noted(seed=seed):
            x, truth = data(seed)
            test = compare_correlations(3 * truth + 0.1, x, truth)
            assert test.difference == pytest.approx(1 - pearson(x, truth).value)
            assert math.isnan(test.low)
            assert math.isnan(test.p_steiger)
            assert test.p < 0.05


def test_prints_and_converts():
    test = compare_correlations(*sample_with(0.6, 0.3, 0.2, 40))
    assert "Williams" in str(test)
    assert set(test.to_dict()) >= {"difference", "low", "high", "p", "p_steiger"}
    assert uqeval.CorrelationTest is type(test)


@pytest.mark.slow
@each("n", [20, 70, 116])
def test_williams_rejects_five_percent_of_equal_correlations(n):
    """Type I error .046–.058 for n = 20, 70, 116."""
    rng = np.random.default_rng(n)
    reps = 3000
    root = np.linalg.cholesky([[1, 0.5, 0.5], [0.5, 1, 0.6], [0.5, 0.6, 1]])
    p, covered = [], []
    for _ in range(reps):
        truth, a, b = root @ rng.normal(size=(3, n))
        test = compare_correlations(a, b, truth)
        p.append(test.p)
        covered.append(test.low <= 0 <= test.high)
    margin = 3 * math.sqrt(0.05 * 0.95 / reps)
    assert 0.046 - margin <= np.mean(np.array(p) <= 0.05) <= 0.058 + margin
    assert np.mean(covered) >= 0.93


@pytest.mark.slow
@each(("icc", "grouped", "gain"), [(0.3, 0.942, 0.01), (0.7, 0.898, 0.1)])
def test_families_of_models_need_groups(icc, grouped, gain):
    """Coverage .942/.898 with 12 families, against .866/.598 of Fisher; here families of 6."""
    rng = np.random.default_rng(7)
    size, families, rho, reps = 6, 12, 0.5, 1500
    g = np.repeat(np.arange(families), size)
    hits = {"grouped": 0, "fisher": 0}
    for _ in range(reps):
        shared, own = rng.normal(size=(2, families)), rng.normal(size=(2, families * size))
        z = math.sqrt(icc) * shared[:, g] + math.sqrt(1 - icc) * own
        x, y = z[0], rho * z[0] + math.sqrt(1 - rho**2) * z[1]
        for name, result in (("grouped", pearson(x, y, groups=g)), ("fisher", pearson(x, y, method="fisher"))):
            hits[name] += result.low <= rho <= result.high
    assert hits["grouped"] / reps > grouped - 0.04
    assert hits["grouped"] / reps > hits["fisher"] / reps + gain
