"""Interval formulas against scipy.stats and against themselves at the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from uqeval.inference.forms import (
    clopper_pearson,
    fay_feuer,
    log_t,
    logit_t,
    risk_band,
    t_interval,
    t_quantile,
    wilson,
    z_quantile,
)

LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99, 0.999]
levels = st.floats(0.01, 0.9999)
inside = st.floats(1e-9, 1 - 1e-9)
positive = st.floats(1e-9, 1e9)


@pytest.mark.parametrize("level", LEVELS)
def test_normal_quantile_matches_scipy(level):
    assert z_quantile(level) == pytest.approx(stats.norm.ppf((1 + level) / 2), rel=1e-13)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("df", [0.3, 1, 1.7, 2, 9, 123.4, 1e6, 1e8])
def test_t_quantile_matches_scipy(level, df):
    assert t_quantile(level, df) == pytest.approx(stats.t.ppf((1 + level) / 2, df), rel=1e-9)


def test_t_quantile_goes_to_the_normal_one_for_many_rows():
    for df in (1e7, 1e9, 2e9, 1e12, math.inf):
        assert t_quantile(0.95, df) == pytest.approx(z_quantile(0.95), rel=1e-6)


@pytest.mark.parametrize("df", [0, -1, -0.5, math.nan])
def test_t_quantile_without_degrees_of_freedom_is_infinite_not_nan(df):
    assert t_quantile(0.95, df) == math.inf


def test_t_quantile_of_tiny_degrees_of_freedom_is_huge_and_not_nan():
    for df in (1e-12, 1e-6, 1e-3, 0.1):
        assert t_quantile(0.95, df) > 1e6


@pytest.mark.parametrize("level", LEVELS)
def test_t_interval_matches_scipy(level):
    low, high = t_interval(3.2, 0.7, level, 5.5)
    expected = stats.t.interval(level, 5.5, loc=3.2, scale=0.7)
    assert (low, high) == pytest.approx(expected, rel=1e-10)


def test_t_interval_of_no_spread_is_a_point_even_without_degrees_of_freedom():
    assert t_interval(0.4, 0.0, 0.95, 0) == (0.4, 0.4)


def test_t_interval_is_unknown_when_value_or_se_is():
    for value, se in ((math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan)):
        assert all(math.isnan(end) for end in t_interval(value, se, 0.95, 10))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("value", "se", "df"), [(0.8, 0.05, 12.3), (0.02, 0.01, 3), (0.999, 0.0004, 60), (0.5, 1, 1)])
def test_logit_t_is_a_t_interval_of_the_log_odds(value, se, df, level):
    half = stats.t.ppf((1 + level) / 2, df) * se / (value * (1 - value))
    centre = stats.logistic.ppf(value)
    expected = stats.logistic.cdf([centre - half, centre + half])
    assert tuple(logit_t(value, se, level, df)) == pytest.approx(tuple(expected), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("value", "se", "df"), [(0.8, 0.05, 12.3), (0.02, 0.01, 3), (1.4, 0.3, 8)])
def test_log_t_is_a_t_interval_of_the_logarithm(value, se, df, level):
    half = stats.t.ppf((1 + level) / 2, df) * se / value
    assert tuple(log_t(value, se, level, df)) == pytest.approx((value * np.exp(-half), value * np.exp(half)), rel=1e-9)


def test_log_t_stops_at_the_cap():
    assert log_t(0.2, 0.3, 0.95, 3, cap=0.25).high == 0.25
    assert log_t(0.2, 0.001, 0.95, 3, cap=0.25).high < 0.25


@pytest.mark.parametrize("interval", [logit_t, log_t])
@pytest.mark.parametrize("se", [1e-300, 1e-12, 1e3, 1e200, 1e308])
@pytest.mark.parametrize("df", [0, 1e-6, 0.01, 1, 1e12])
@pytest.mark.parametrize("value", [1e-300, 1e-9, 0.5, 1 - 1e-12])
def test_extreme_errors_and_degrees_of_freedom_never_give_nan(interval, value, se, df):
    low, high = interval(value, se, 0.95, df)
    assert 0 <= low <= high
    assert low <= value * (1 + 1e-9)
    assert high >= value * (1 - 1e-9)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("hits", "size"), [(0, 7), (1, 7), (3, 10), (50, 50), (123, 456), (7, 7)])
def test_wilson_matches_scipy(hits, size, level):
    expected = stats.binomtest(hits, size).proportion_ci(level, method="wilson")
    assert tuple(wilson(hits / size, size, level)) == pytest.approx(tuple(expected), rel=1e-10, abs=1e-14)


@given(st.floats(0, 1), st.floats(0.5, 1e6), levels)
def test_wilson_solves_the_score_equation(share, size, level):
    z2 = stats.norm.ppf((1 + level) / 2) ** 2
    for end in wilson(share, size, level):
        assert (share - end) ** 2 * size == pytest.approx(z2 * end * (1 - end), rel=1e-5, abs=1e-7 * max(1, z2))


def test_wilson_is_informative_and_one_sided_at_the_ends():
    low, high = wilson(1.0, 4.0, 0.95)
    z2 = stats.norm.ppf(0.975) ** 2
    assert (low, high) == pytest.approx((4 / (4 + z2), 1.0))
    assert wilson(0.0, 4.0, 0.95) == pytest.approx((0.0, z2 / (4 + z2)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("hits", "trials"), [(0, 1), (1, 1), (0, 30), (30, 30), (1, 30), (17, 200), (999, 1000)])
def test_clopper_pearson_matches_scipy(hits, trials, level):
    expected = stats.binomtest(hits, trials).proportion_ci(level, method="exact")
    assert tuple(clopper_pearson(hits, trials, level)) == pytest.approx(tuple(expected), rel=1e-10, abs=1e-14)


@pytest.mark.parametrize(("hits", "trials"), [(0.4, 3.7), (2.5, 9.25), (8.9, 9.25)])
def test_clopper_pearson_of_effective_counts_is_the_beta_interval(hits, trials):
    expected = stats.beta.ppf(0.025, hits, trials - hits + 1), stats.beta.ppf(0.975, hits + 1, trials - hits)
    assert tuple(clopper_pearson(hits, trials, 0.95)) == pytest.approx(expected, rel=1e-9)


def test_clopper_pearson_covers_at_least_what_it_claims_whatever_the_rate():
    for n in (5, 20, 60):
        ends = np.array([clopper_pearson(k, n, 0.95) for k in range(n + 1)])
        for p in np.linspace(0.001, 0.999, 401):
            held = (ends[:, 0] <= p) & (p <= ends[:, 1])
            assert stats.binom.pmf(np.arange(n + 1), n, p)[held].sum() >= 0.95


def test_risk_band_is_clopper_pearson_point_by_point():
    accepted, errors = np.array([1, 5, 9, 40]), np.array([0.0, 1.0, 9.0, 11.0])
    low, high = risk_band(accepted, errors, 0.9)
    for k in range(4):
        expected = stats.binomtest(int(errors[k]), int(accepted[k])).proportion_ci(0.9, method="exact")
        assert (low[k], high[k]) == pytest.approx(tuple(expected), abs=1e-12)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("y", "v", "k"), [(0.1, 0.003, 0.02), (2.0, 2.0, 1.0), (0.004, 1e-5, 0.0035)])
def test_fay_feuer_matches_its_chi_square_form(y, v, k, level):
    a = 1 - level
    low = v / (2 * y) * stats.chi2.ppf(a / 2, 2 * y**2 / v)
    high = (v + k**2) / (2 * (y + k)) * stats.chi2.ppf(1 - a / 2, 2 * (y + k) ** 2 / (v + k**2))
    assert tuple(fay_feuer(y, v, k, level, math.inf)) == pytest.approx((low, high), rel=1e-10)


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_fay_feuer_of_equal_weights_is_the_exact_poisson_interval(count):
    low, high = fay_feuer(count * 0.5, count * 0.25, 0.5, 0.95, math.inf)
    exact = (stats.chi2.ppf(0.025, 2 * count) / 2 if count else 0.0), stats.chi2.ppf(0.975, 2 * count + 2) / 2
    assert (low / 0.5, high / 0.5) == pytest.approx(exact, rel=1e-10)


def test_fay_feuer_of_no_event_is_3_689_times_the_largest_weight():
    assert fay_feuer(0.0, 0.0, 0.01, 0.95, 1.0) == pytest.approx((0.0, 0.01 * -math.log(0.025)))


def test_fay_feuer_stops_at_the_cap():
    assert fay_feuer(0.3, 0.05, 0.2, 0.95, 0.5).high == 0.5


FORMULAS = {
    "t": lambda x, y, level: t_interval(x, y, level, 3.3),
    "logit": lambda x, y, level: logit_t(x, y, level, 3.3),
    "log": lambda x, y, level: log_t(x, y, level, 3.3),
    "wilson": lambda x, y, level: wilson(x, 1 + y, level),
    "clopper_pearson": lambda x, y, level: clopper_pearson(round(x * 40), 40, level),
    "fay_feuer": lambda x, y, level: fay_feuer(x, x * x / (1 + min(y, 100)), x / 5, level, math.inf),
}


@settings(max_examples=300)
@given(inside, positive, levels, levels)
@pytest.mark.parametrize("name", FORMULAS)
def test_intervals_contain_the_value_and_widen_with_the_level(name, x, y, level, other):
    if other < level:
        level, other = other, level
    narrow, wide = FORMULAS[name](x, y, level), FORMULAS[name](x, y, other)
    assert not any(map(math.isnan, (*narrow, *wide)))
    value = round(x * 40) / 40 if name == "clopper_pearson" else x
    slack = 1e-9 * max(1e-3, value)
    if name != "fay_feuer" or level > 0.5:  # below one half the ends of a skewed law may pass its mean
        assert narrow.low - slack <= value <= narrow.high + slack
    assert wide.low - slack <= narrow.low
    assert narrow.high <= wide.high + slack
