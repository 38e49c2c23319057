"""Interval formulas against scipy.stats and against themselves at the edges."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cases import each, noted
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


def test_quantiles_are_scipys_at_every_number_of_degrees_of_freedom():
    # Normal quantile matches SciPy.
    for level in LEVELS:
        with noted(level=level):
            assert z_quantile(level) == pytest.approx(stats.norm.ppf((1 + level) / 2), rel=1e-13)

    # t-quantile matches SciPy.
    for level, df in product(LEVELS, [0.3, 1, 1.7, 2, 9, 123.4, 1e6, 1e8]):
        with noted(level=level, df=df):
            assert t_quantile(level, df) == pytest.approx(stats.t.ppf((1 + level) / 2, df), rel=1e-9)

    # t-quantile goes to the normal one for many rows.
    for df in (1e7, 1e9, 2e9, 1e12, math.inf):
        assert t_quantile(0.95, df) == pytest.approx(z_quantile(0.95), rel=1e-6)

    # t-quantile without degrees of freedom is infinite not NaN.
    for df in [0, -1, -0.5, math.nan]:
        with noted(df=df):
            assert t_quantile(0.95, df) == math.inf

    # t-quantile of tiny degrees of freedom is huge and not NaN.
    for df in (1e-12, 1e-6, 1e-3, 0.1):
        assert t_quantile(0.95, df) > 1e6


def test_t_interval_is_scipys_a_point_without_spread_and_unknown_without_se():
    # t-interval matches scipy.
    for level in LEVELS:
        with noted(level=level):
            low, high = t_interval(3.2, 0.7, level, 5.5)
            expected = stats.t.interval(level, 5.5, loc=3.2, scale=0.7)
            assert (low, high) == pytest.approx(expected, rel=1e-10)

    # t-interval of no spread is a point even without degrees of freedom.
    assert t_interval(0.4, 0.0, 0.95, 0) == (0.4, 0.4)

    # t-interval is unknown when value or SE is.
    for value, se in ((math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan)):
        assert all(math.isnan(end) for end in t_interval(value, se, 0.95, 10))


def test_logit_t_and_log_t_are_t_intervals_on_their_scale():
    # logit-t is a t-interval of the log odds.
    for level, (value, se, df) in product(
        LEVELS, [(0.8, 0.05, 12.3), (0.02, 0.01, 3), (0.999, 0.0004, 60), (0.5, 1, 1)]
    ):
        with noted(level=level, value=value, se=se, df=df):
            half = stats.t.ppf((1 + level) / 2, df) * se / (value * (1 - value))
            centre = stats.logistic.ppf(value)
            expected = stats.logistic.cdf([centre - half, centre + half])
            assert tuple(logit_t(value, se, level, df)) == pytest.approx(tuple(expected), rel=1e-9, abs=1e-300)

    # log-t is a t-interval of the logarithm.
    for level, (value, se, df) in product(LEVELS, [(0.8, 0.05, 12.3), (0.02, 0.01, 3), (1.4, 0.3, 8)]):
        with noted(level=level, value=value, se=se, df=df):
            half = stats.t.ppf((1 + level) / 2, df) * se / value
            assert tuple(log_t(value, se, level, df)) == pytest.approx(
                (value * np.exp(-half), value * np.exp(half)), rel=1e-9
            )

    # log-t stops at the cap.
    assert log_t(0.2, 0.3, 0.95, 3, cap=0.25).high == 0.25
    assert log_t(0.2, 0.001, 0.95, 3, cap=0.25).high < 0.25


@each("interval", [logit_t, log_t])
@each("se", [1e-300, 1e-12, 1e3, 1e200, 1e308])
@each("df", [0, 1e-6, 0.01, 1, 1e12])
@each("value", [1e-300, 1e-9, 0.5, 1 - 1e-12])
def test_extreme_errors_and_degrees_of_freedom_never_give_nan(interval, value, se, df):
    low, high = interval(value, se, 0.95, df)
    assert 0 <= low <= high
    assert low <= value * (1 + 1e-9)
    assert high >= value * (1 - 1e-9)


def test_wilson_is_scipys_and_one_sided_at_the_ends():
    # Wilson matches SciPy.
    for level, (hits, size) in product(LEVELS, [(0, 7), (1, 7), (3, 10), (50, 50), (123, 456), (7, 7)]):
        with noted(level=level, hits=hits, size=size):
            expected = stats.binomtest(hits, size).proportion_ci(level, method="wilson")
            assert tuple(wilson(hits / size, size, level)) == pytest.approx(tuple(expected), rel=1e-10, abs=1e-14)

    # Wilson is informative and one sided at the ends.
    low, high = wilson(1.0, 4.0, 0.95)
    z2 = stats.norm.ppf(0.975) ** 2
    assert (low, high) == pytest.approx((4 / (4 + z2), 1.0))
    assert wilson(0.0, 4.0, 0.95) == pytest.approx((0.0, z2 / (4 + z2)))


@given(st.floats(0, 1), st.floats(0.5, 1e6), levels)
def test_wilson_solves_the_score_equation(share, size, level):
    z2 = stats.norm.ppf((1 + level) / 2) ** 2
    for end in wilson(share, size, level):
        assert (share - end) ** 2 * size == pytest.approx(z2 * end * (1 - end), rel=1e-5, abs=1e-7 * max(1, z2))


def test_clopper_pearson_is_scipys_and_the_beta_interval_of_effective_counts():
    # Clopper–Pearson matches SciPy.
    for level, (hits, trials) in product(LEVELS, [(0, 1), (1, 1), (0, 30), (30, 30), (1, 30), (17, 200), (999, 1000)]):
        with noted(level=level, hits=hits, trials=trials):
            expected = stats.binomtest(hits, trials).proportion_ci(level, method="exact")
            assert tuple(clopper_pearson(hits, trials, level)) == pytest.approx(tuple(expected), rel=1e-10, abs=1e-14)

    # Clopper–Pearson of effective counts is the beta interval.
    for hits, trials in [(0.4, 3.7), (2.5, 9.25), (8.9, 9.25)]:
        with noted(hits=hits, trials=trials):
            expected = stats.beta.ppf(0.025, hits, trials - hits + 1), stats.beta.ppf(0.975, hits + 1, trials - hits)
            assert tuple(clopper_pearson(hits, trials, 0.95)) == pytest.approx(expected, rel=1e-9)

    # Risk band is Clopper–Pearson point by point.
    accepted, errors = np.array([1, 5, 9, 40]), np.array([0.0, 1.0, 9.0, 11.0])
    low, high = risk_band(accepted, errors, 0.9)
    for k in range(4):
        expected = stats.binomtest(int(errors[k]), int(accepted[k])).proportion_ci(0.9, method="exact")
        assert (low[k], high[k]) == pytest.approx(tuple(expected), abs=1e-12)


def test_clopper_pearson_covers_at_least_what_it_claims_whatever_the_rate():
    for n in (5, 20, 60):
        ends = np.array([clopper_pearson(k, n, 0.95) for k in range(n + 1)])
        for p in np.linspace(0.001, 0.999, 401):
            held = (ends[:, 0] <= p) & (p <= ends[:, 1])
            assert stats.binom.pmf(np.arange(n + 1), n, p)[held].sum() >= 0.95


def test_fay_feuer_is_its_chi_square_form_and_exact_for_equal_weights():
    # Fay–Feuer matches its chi-square form.
    for level, (y, v, k) in product(LEVELS, [(0.1, 0.003, 0.02), (2.0, 2.0, 1.0), (0.004, 1e-5, 0.0035)]):
        with noted(level=level, y=y, v=v, k=k):
            a = 1 - level
            low = v / (2 * y) * stats.chi2.ppf(a / 2, 2 * y**2 / v)
            high = (v + k**2) / (2 * (y + k)) * stats.chi2.ppf(1 - a / 2, 2 * (y + k) ** 2 / (v + k**2))
            assert tuple(fay_feuer(y, v, k, level, math.inf)) == pytest.approx((low, high), rel=1e-10)

    # Fay–Feuer of equal weights is the exact Poisson interval.
    for count in [0, 1, 4, 9]:
        with noted(count=count):
            low, high = fay_feuer(count * 0.5, count * 0.25, 0.5, 0.95, math.inf)
            exact = (stats.chi2.ppf(0.025, 2 * count) / 2 if count else 0.0), stats.chi2.ppf(0.975, 2 * count + 2) / 2
            assert (low / 0.5, high / 0.5) == pytest.approx(exact, rel=1e-10)

    # Fay–Feuer of no event is 3.689 times the largest weight.
    assert fay_feuer(0.0, 0.0, 0.01, 0.95, 1.0) == pytest.approx((0.0, 0.01 * -math.log(0.025)))

    # Fay–Feuer stops at the cap.
    assert fay_feuer(0.3, 0.05, 0.2, 0.95, 0.5).high == 0.5


FORMULAS = {
    "t": lambda x, y, level: t_interval(x, y, level, 3.3),
    "logit": lambda x, y, level: logit_t(x, y, level, 3.3),
    "log": lambda x, y, level: log_t(x, y, level, 3.3),
    "wilson": lambda x, y, level: wilson(x, 1 + y, level),
    "clopper_pearson": lambda x, y, level: clopper_pearson(round(x * 40), 40, level),
    "fay_feuer": lambda x, y, level: fay_feuer(x, x * x / (1 + min(y, 100)), x / 5, level, math.inf),
}


@each("name", FORMULAS)
@settings(max_examples=50)
@given(inside, positive, levels, levels)
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
