"""How many rows are needed, and what difference the rows at hand can show.

What counts is the number of errors. n = ((z_{1−α/2} + z_power)·SD/D)² for a difference D, (z·SD/h)² for a half-width h,
where SD is that of the influence values: from a pilot, or for UQ-AUC from the binormal model.
"""

import math
from dataclasses import dataclass

import numpy as np

from uqeval._check import check_level
from uqeval._errors import InputError, UQWarning, notify, share_hint
from uqeval._result import Result, number
from uqeval.inference.forms import z_quantile
from uqeval.inference.result import Estimate


@dataclass(frozen=True)
class SampleSize(Result):
    """Rows needed, and the errors to expect among them (None where the error rate is unknown)."""

    n: int
    errors: int | None
    goal: str
    sd: float
    level: float
    power: float | None

    def __str__(self) -> str:
        errors = "" if self.errors is None else f", about {self.errors:,} of them wrong"
        return f"{self.n:,} rows{errors}: {self.goal}"


def sample_size(
    *,
    half_width: float | None = None,
    difference: float | None = None,
    auc: float | tuple[float, float] | None = None,
    accuracy: float | None = None,
    pilot: Estimate | None = None,
    sd: float | None = None,
    correlation: float = 0.5,
    power: float = 0.8,
    level: float = 0.95,
) -> SampleSize:
    """Rows needed for an interval of a given half-width, or to detect a given difference.

    Parameters
    ----------
    half_width, difference : float
        The goal: one of them.
    auc : float or pair of floats, optional
        UQ-AUC expected, enough without a pilot. For a difference between two scores: the UQ-AUC of both, as
        ``auc=(0.82, 0.80)``, which says what the difference is and takes the spread of each; or the *mean* of the two
        beside `difference`. With the better one's, the rows are too few: a power of .27–.76 in simulations, not .80.
    accuracy : float, optional
        Accuracy expected; goes with `auc`.
    pilot : Estimate, optional
        An estimate of the metric (any metric) on a pilot test set.
    sd : float, optional
        Standard deviation of the influence values (of their difference, for a `difference` between two scores):
        se·√n of a pilot, as `Comparison.sd(a, b)` gives it.
    correlation : float
        Of the influence values of the two scores, where only one of them is known; 0.5 is cautious, scores of one
        model often reach 0.9.
    power, level : float
        Chance to detect the difference; confidence level.

    Examples
    --------
    >>> print(sample_size(auc=0.8, accuracy=0.9, half_width=0.05))
    806 rows, about 81 of them wrong: a 95% interval of ±0.050
    >>> sample_size(auc=0.8, accuracy=0.9, difference=0.02, correlation=0.9).n
    2056
    >>> print(sample_size(auc=(0.9, 0.8), accuracy=0.9))
    324 rows, about 32 of them wrong: 80% power to detect a difference of 0.100 at level 0.95
    """
    level = check_level(level)
    auc, difference = _goal(auc, difference, half_width)
    if (half_width is None) == (difference is None):
        raise InputError("Pass one goal: half_width= or difference=.")
    if accuracy is not None and not 0 < accuracy < 1:
        raise InputError(f"`accuracy` must lie strictly between 0 and 1; it is {accuracy!r}.{share_hint(accuracy)}")
    spread = _sd(auc, accuracy, pilot, sd, correlation, paired=difference is not None)
    z = z_quantile(level)
    if half_width is not None:
        reach = z / _positive("half_width", half_width)
        goal = f"a {100 * level:g}% interval of ±{number(half_width)}"
    else:
        assert difference is not None
        reach = (z + _z_power(power)) / _positive("difference", difference)
        goal = f"{100 * power:g}% power to detect a difference of {number(difference)} at level {level:g}"
    n = max(2, math.ceil((reach * spread) ** 2 - 1e-9))
    rate = _error_rate(accuracy, pilot)
    errors = None if rate is None else round(n * rate)
    if errors is not None and errors < 10:
        notify(f"only {errors} errors expected: the formula is for 10 or more", UQWarning, stacklevel=2)
    return SampleSize(n, errors, goal, spread, level, None if difference is None else power)


def detectable_difference(
    n: int,
    *,
    auc: float | tuple[float, float] | None = None,
    accuracy: float | None = None,
    pilot: Estimate | None = None,
    sd: float | None = None,
    correlation: float = 0.5,
    power: float = 0.8,
    level: float = 0.95,
) -> float:
    """The smallest difference between two scores that n rows can show; arguments as in `sample_size`.

    `auc` is the mean of the two scores' UQ-AUC, or both.

    Examples
    --------
    >>> round(detectable_difference(2056, auc=0.8, accuracy=0.9, correlation=0.9), 4)
    0.02
    """
    if not isinstance(n, int | np.integer) or n < 2:
        raise InputError(f"`n` must be a number of rows ≥ 2; it is {n!r}.")
    reach = (z_quantile(check_level(level)) + _z_power(power)) / math.sqrt(n)
    return reach * _sd(_goal(auc, None, None)[0], accuracy, pilot, sd, correlation, paired=True)


def _goal(
    auc: float | tuple[float, float] | None, difference: float | None, half_width: float | None
) -> tuple[float | tuple[float, float] | None, float | None]:
    """UQ-AUC of both scores, which say what the difference is, or one number."""
    if auc is None:
        return auc, difference
    values = np.asarray(auc)
    if values.shape not in ((), (2,)):
        raise InputError(f"`auc` must be one number, or those of two scores; it is {auc!r}.")
    if values.shape == ():
        return float(values), difference
    b, a = sorted(map(float, values))
    if half_width is not None:
        raise InputError(f"`auc` is a pair, {auc!r}: that is for a difference. Pass one number with half_width=.")
    if difference is not None and not math.isclose(difference, abs(a - b), rel_tol=1e-6):
        raise InputError(
            f"`auc` is {auc!r}, which differ by {abs(a - b):g}, but `difference` is {difference!r}. Leave one out."
        )
    if a == b:
        raise InputError(f"`auc` is {auc!r}: two scores that are equally good. Pass one number and difference=.")
    return (a, b), abs(a - b)


def influence_sd(auc: float, accuracy: float) -> float:
    """SD of the influence values of UQ-AUC in the binormal model: √(q0/acc + q1/err).

    Examples
    --------
    >>> round(influence_sd(0.8, 0.9), 3)
    0.724
    """
    from scipy.special import ndtr, ndtri

    for name, value in (("auc", auc), ("accuracy", accuracy)):
        if not 0 < value < 1:
            raise InputError(f"`{name}` must lie strictly between 0 and 1; it is {value!r}.{share_hint(value)}")
    shift = math.sqrt(2) * float(ndtri(auc))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    placement = ndtr(nodes + shift)  # of a wrong row among the right ones; by symmetry also of a right row
    q = float(weights @ placement**2) - auc**2
    return math.sqrt(q / accuracy + q / (1 - accuracy))


def _sd(
    auc: float | tuple[float, float] | None,
    accuracy: float | None,
    pilot: Estimate | None,
    sd: float | None,
    correlation: float,
    paired: bool,
) -> float:
    given = [name for name, value in (("auc", auc), ("pilot", pilot), ("sd", sd)) if value is not None]
    if len(given) != 1:
        raise InputError(f"Pass one of auc= (with accuracy=), pilot= or sd=; {', '.join(given) or 'none'} was given.")
    if not -1 <= correlation <= 1:
        raise InputError(f"`correlation` must lie in [−1, 1]; it is {correlation!r}.")
    if paired and sd is None and correlation == 1:
        raise InputError("`correlation` is 1: two such scores never differ. Give a value below 1.")
    if sd is not None:
        return _positive("sd", sd)
    if pilot is not None:
        if not pilot.se > 0:
            raise InputError(f"`pilot` has standard error {pilot.se}; it must be above 0. Use a larger pilot.")
        single = pilot.se * math.sqrt(pilot.n)
    else:
        if accuracy is None or auc is None:
            raise InputError("`auc` needs `accuracy` beside it.")
        if isinstance(auc, tuple):
            a, b = (influence_sd(one, accuracy) for one in auc)
            return math.sqrt(max(0.0, a * a + b * b - 2 * correlation * a * b))
        single = influence_sd(auc, accuracy)
    return single * math.sqrt(2 * (1 - correlation)) if paired else single


def _error_rate(accuracy: float | None, pilot: Estimate | None) -> float | None:
    if accuracy is not None:
        return 1 - accuracy
    if pilot is not None and pilot.n_errors is not None:
        return pilot.n_errors / pilot.n
    return None


def _z_power(power: float) -> float:
    from scipy.special import ndtri

    if not 0 < power < 1:
        raise InputError(f"`power` must lie strictly between 0 and 1, as 0.8; it is {power!r}.")
    return float(ndtri(power))


def _positive(name: str, value: float) -> float:
    if not value > 0 or math.isinf(value):
        raise InputError(f"`{name}` must be a number above 0; it is {value!r}.")
    return float(value)
