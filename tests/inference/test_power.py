"""Sample size and detectable difference against known plans and against quadrature written here."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import uqeval
from cases import each, noted
from uqeval import InputError, UQWarning, detectable_difference, sample_size
from uqeval.inference.power import influence_sd


def quiet(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return sample_size(*arguments, **options)


def sd_by_quadrature(auc, accuracy):
    """SD² = q0/acc + q1/err, q the variances of the placements in the binormal model."""
    shift = math.sqrt(2) * stats.norm.ppf(auc)

    def variance(centre, sign):
        def moment(k):
            return integrate.quad(
                lambda x: stats.norm.pdf(x, centre) * stats.norm.cdf(sign * (x - (shift - centre))) ** k,
                centre - 12,
                centre + 12,
                limit=200,
            )[0]

        return moment(2) - moment(1) ** 2

    q1 = variance(shift, 1)  # wrong rows: P(a right row lies below)
    q0 = variance(0.0, -1)  # right rows: P(a wrong row lies above)
    return math.sqrt(q0 / accuracy + q1 / (1 - accuracy))


def test_rows_for_a_half_width_and_for_a_difference_are_the_published_ones():
    # Rows for a half width of 005.
    for accuracy, n in [(0.6, 302), (0.9, 806), (0.99, 7319)]:
        with noted(accuracy=accuracy, n=n):
            found = sample_size(auc=0.8, accuracy=accuracy, half_width=0.05)
            assert found.n == n
            assert found.errors == pytest.approx(n * (1 - accuracy), abs=0.5)
            assert found.power is None

    # Rows to detect a difference of 002.
    for accuracy, n, close in [(0.6, 3855, 771), (0.9, 10280, 2056), (0.99, 93455, 18691)]:
        with noted(accuracy=accuracy, n=n, close=close):
            assert sample_size(auc=0.8, accuracy=accuracy, difference=0.02).n == n
            assert sample_size(auc=0.8, accuracy=accuracy, difference=0.02, correlation=0.5).n == n
            assert sample_size(auc=0.8, accuracy=accuracy, difference=0.02, correlation=0.9).n == close


def test_influence_sd_is_that_of_the_binormal_model():
    for accuracy, auc in [(0.6, 0.5), (0.6, 0.8), (0.9, 0.6), (0.9, 0.95), (0.99, 0.3), (0.3, 0.8)]:
        with noted(accuracy=accuracy, auc=auc):
            assert influence_sd(auc, accuracy) == pytest.approx(sd_by_quadrature(auc, accuracy), rel=1e-5)
            assert influence_sd(auc, accuracy) <= math.sqrt(auc * (1 - auc) / accuracy / (1 - accuracy))

    # Influence sd of extreme scores.
    for auc in [0.999, 0.001]:
        with noted(auc=auc):
            assert influence_sd(auc, 0.9) == pytest.approx(sd_by_quadrature(auc, 0.9), rel=1e-3)

    # Influence sd of a useless score is that of uniform placements.
    assert influence_sd(0.5, 0.5) == pytest.approx(math.sqrt(4 / 12))

    # Influence sd matches simulated influence values.
    rng = np.random.default_rng(0)
    n = 40_000
    v = (rng.random(n) < 0.1).astype(int)
    s = rng.normal(size=n) + math.sqrt(2) * stats.norm.ppf(0.8) * v
    assert uqeval.estimate("uq_auc", s, v).se * math.sqrt(n) == pytest.approx(influence_sd(0.8, 0.9), rel=0.03)


@settings(max_examples=40)
@given(
    auc=st.floats(0.55, 0.95),
    accuracy=st.floats(0.2, 0.95),
    difference=st.floats(0.005, 0.1),
    correlation=st.floats(-0.5, 0.95),
    power=st.floats(0.55, 0.99),
    level=st.floats(0.8, 0.999),
)
def test_detectable_difference_inverts_sample_size(auc, accuracy, difference, correlation, power, level):
    how = {"auc": auc, "accuracy": accuracy, "correlation": correlation, "power": power, "level": level}
    n = quiet(difference=difference, **how).n
    assert detectable_difference(n, **how) <= difference * (1 + 1e-9)
    if n > 2:
        assert detectable_difference(n - 1, **how) >= difference * (1 - 1e-9)


def test_a_given_or_piloted_sd_is_taken_as_it_is():
    # Formula with a given sd.
    z = stats.norm.ppf
    assert sample_size(sd=0.7, difference=0.03, power=0.9, level=0.99).n == math.ceil(
        ((z(0.995) + z(0.9)) * 0.7 / 0.03) ** 2
    )
    assert sample_size(sd=0.7, half_width=0.03, level=0.9).n == math.ceil((z(0.95) * 0.7 / 0.03) ** 2)
    assert detectable_difference(400, sd=0.5) == pytest.approx((z(0.975) + z(0.8)) * 0.5 / 20)
    assert sample_size(sd=0.7, difference=0.03).errors is None

    # A given sd is already that of the difference.
    assert sample_size(sd=0.7, difference=0.03, correlation=0.9).n == sample_size(sd=0.7, difference=0.03).n

    # Pilot estimate gives the sd.
    for metric in ["uq_auc", "aurc", "uq_c_index"]:
        with noted(metric=metric):
            s, _, v = pilot_case()
            pilot = uqeval.estimate(metric, s, v)
            found = quiet(pilot=pilot, half_width=0.02)
            assert found.sd == pytest.approx(pilot.se * 20)
            assert found.n == math.ceil((stats.norm.ppf(0.975) * pilot.se * 20 / 0.02) ** 2)
            if metric == "uq_auc":
                assert found.errors == pytest.approx(found.n * v.mean(), abs=0.5)
            paired = quiet(pilot=pilot, difference=0.02, correlation=0.8)
            assert paired.sd == pytest.approx(pilot.se * 20 * math.sqrt(0.4))
            # A pilot with the half-width wanted is as large as needed.
            again = quiet(pilot=pilot, half_width=stats.norm.ppf(0.975) * pilot.se)
            assert again.n in (400, 401)

    # Pilot comparison gives the sd of the difference.
    s, t, v = pilot_case()
    cmp = uqeval.compare({"a": s, "b": t}, error=v)
    sd = cmp.sd("a", "b")
    assert sd == pytest.approx(cmp["a", "b"].se * 20)
    assert cmp.sd("b", "a") == sd
    found = sample_size(sd=sd, difference=0.02)
    assert found.n == math.ceil(((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * sd / 0.02) ** 2)


def pilot_case(n=400):
    rng = np.random.default_rng(1)
    v = (rng.random(n) < 0.25).astype(int)
    base = rng.normal(size=n)
    return base + v, base + 0.7 * v + 0.5 * rng.normal(size=n), v


@each("difference", [0.05, 0.08])
def test_achieved_power_is_near_the_target(difference):
    """Achieved power .75–.845 for a target of .80; here with independent scores, correlation 0."""
    low, acc = 0.75, 0.7
    n = quiet(auc=low + difference / 2, accuracy=acc, difference=difference, correlation=0).n
    rng = np.random.default_rng(2)
    shifts = [math.sqrt(2) * stats.norm.ppf(a) for a in (low + difference, low)]
    hits, reps = 0, 400
    for _ in range(reps):
        v = (rng.random(n) > acc).astype(int)
        scores = {str(k): rng.normal(size=n) + shift * v for k, shift in enumerate(shifts)}
        hits += uqeval.compare(scores, error=v)["0", "1"].p <= 0.05
    assert 0.75 - 0.06 <= hits / reps <= 0.845 + 0.06


def test_the_plan_says_rows_errors_and_goal_and_warns_of_few_errors():
    # Few expected errors are warned about.
    with pytest.warns(UQWarning, match="errors expected"):
        sample_size(auc=0.8, accuracy=0.99, half_width=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample_size(auc=0.8, accuracy=0.9, half_width=0.05)

    # Text says rows errors and goal.
    text = str(sample_size(auc=0.8, accuracy=0.99, half_width=0.05))
    assert "7,319 rows" in text
    assert "73" in text
    assert "0.05" in text
    text = str(sample_size(auc=0.8, accuracy=0.9, difference=0.02, power=0.9))
    assert "90% power" in text
    assert sample_size(sd=1, half_width=0.1).to_dict()["n"] == 385


def test_bad_requests_are_explained():
    for options, message in [
        ({"auc": 0.8, "accuracy": 0.9}, "goal"),
        ({"auc": 0.8, "accuracy": 0.9, "half_width": 0.1, "difference": 0.1}, "goal"),
        ({"auc": 0.8, "half_width": 0.1}, "accuracy"),
        ({"accuracy": 0.8, "half_width": 0.1}, "auc"),
        ({"half_width": 0.1}, "auc"),
        ({"auc": 0.8, "accuracy": 0.9, "sd": 1, "half_width": 0.1}, "one of"),
        ({"auc": 1.0, "accuracy": 0.9, "half_width": 0.1}, "auc"),
        ({"auc": 0.8, "accuracy": 0, "half_width": 0.1}, "accuracy"),
        ({"auc": 0.8, "accuracy": 90, "half_width": 0.1}, "accuracy"),
        ({"auc": 0.8, "accuracy": 0.9, "half_width": 0}, "half_width"),
        ({"auc": 0.8, "accuracy": 0.9, "half_width": math.nan}, "half_width"),
        ({"auc": 0.8, "accuracy": 0.9, "difference": -0.1}, "difference"),
        ({"auc": 0.8, "accuracy": 0.9, "difference": math.inf}, "difference"),
        ({"auc": 0.8, "accuracy": 0.9, "difference": 0.1, "power": 80}, "power"),
        ({"auc": 0.8, "accuracy": 0.9, "difference": 0.1, "correlation": 2}, "correlation"),
        ({"auc": 0.8, "accuracy": 0.9, "difference": 0.1, "correlation": math.nan}, "correlation"),
        ({"auc": 0.8, "accuracy": 0.9, "difference": 0.1, "level": 95}, "level"),
        ({"sd": 0, "difference": 0.1}, "sd"),
        ({"sd": 1, "difference": 0.1, "accuracy": 1.7}, "accuracy"),
    ]:
        with noted(options=options, message=message), pytest.raises(InputError, match=message):
            quiet(**options)

    # Rows must be a count.
    for n in [0, 1, -5, 2.5, "100", None, True]:
        with noted(n=n), pytest.raises(InputError, match="`n`"):
            detectable_difference(n, auc=0.8, accuracy=0.9)

    # A pilot without standard error is refused.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        pilot = uqeval.estimate("uq_auc", [1, 1, 1, 1], [0, 1, 0, 1])
    with pytest.raises(InputError, match="pilot"):
        sample_size(pilot=pilot, half_width=0.1)

    # Scores with fully correlated influence are refused.
    with pytest.raises(InputError, match="never differ"):
        sample_size(auc=0.8, accuracy=0.9, difference=0.02, correlation=1)


def test_two_aucs_are_the_difference_and_bring_the_spread_of_each():
    both = sample_size(auc=(0.9, 0.8), accuracy=0.9, correlation=0.6)
    a, b = influence_sd(0.9, 0.9), influence_sd(0.8, 0.9)
    sd = math.sqrt(a * a + b * b - 1.2 * a * b)
    assert both.sd == pytest.approx(sd, rel=1e-12)
    assert both.n == math.ceil(((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * sd / 0.1) ** 2)
    assert sample_size(auc=[0.8, 0.9], accuracy=0.9, correlation=0.6, difference=0.1) == both
    assert detectable_difference(both.n, auc=(0.8, 0.9), accuracy=0.9, correlation=0.6) == pytest.approx(0.1, rel=0.01)
    # As many rows as with their mean where both spread alike, more where one is much better.
    mean = {"accuracy": 0.9, "difference": 0.1}
    assert both.n == pytest.approx(sample_size(auc=0.85, correlation=0.6, **mean).n, rel=0.1)
    with pytest.warns(UQWarning, match="errors expected"):
        close = sample_size(auc=(0.9, 0.8), accuracy=0.9, correlation=0.95).n
    with pytest.warns(UQWarning, match="errors expected"):
        assert close > 1.5 * sample_size(auc=0.85, correlation=0.95, **mean).n
    for options, message in [
        ({"auc": (0.9, 0.8), "difference": 0.2}, "differ by 0.1"),
        ({"auc": (0.9, 0.8), "half_width": 0.2}, "for a difference"),
        ({"auc": (0.8, 0.8)}, "equally good"),
        ({"auc": (0.8, 0.7, 0.6)}, "one number, or those of two"),
        ({"auc": (1.2, 0.7)}, "strictly between 0 and 1"),
    ]:
        with pytest.raises(InputError, match=message):
            sample_size(accuracy=0.9, **options)


@pytest.mark.slow
def test_the_rows_asked_for_have_the_power_that_was_asked_for():
    rng = np.random.default_rng(0)
    for a, b, accuracy, between in ((0.9, 0.8, 0.9, 0.5), (0.9, 0.8, 0.9, 0.9)):  # `between` the scores themselves

        def drawn(n, a=a, b=b, accuracy=accuracy, between=between):
            error = rng.random(n) >= accuracy
            x, y = rng.multivariate_normal([0, 0], [[1, between], [between, 1]], n).T
            return x + math.sqrt(2) * stats.norm.ppf(a) * error, y + math.sqrt(2) * stats.norm.ppf(b) * error, error

        x, y, error = drawn(200_000)
        pilot = uqeval.compare({"x": x, "y": y}, error=error)
        spreads = influence_sd(a, accuracy), influence_sd(b, accuracy)
        rho = (sum(s * s for s in spreads) - pilot.sd("x", "y") ** 2) / (2 * spreads[0] * spreads[1])
        n = sample_size(auc=(a, b), accuracy=accuracy, correlation=rho).n
        found = []
        for _ in range(400):
            x, y, error = drawn(n)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(uqeval.compare({"x": x, "y": y}, error=error)["x", "y"].p <= 0.05)
        assert 0.8 - 0.04 - 3 * 0.02 <= np.mean(found) <= 0.8 + 3 * 0.02, (a, b, n)  # t in place of z costs up to .04
