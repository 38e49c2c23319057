"""What is promised, and how one sample judges it. A new method under test is a record of `PROMISES`.

Everything is called by its public name, as a user would. A trial draws one sample and says for each of its outputs
whether the promise held; one sample serves all metrics that can be asked about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

import uqeval as uq
from uqeval.decide.rows import CLUSTER_METHODS
from uqeval.decide.walks import JOINT, METHODS
from uqeval.metrics import REGISTRY
from validation.designs import Design, Rows
from validation.laws import Float, Population, Smooth, population

LEVEL = 0.95
TWINS = 0.7  # correlation of the latent normals of two scores on the same rows


class Case(NamedTuple):
    """What a trial is made of."""

    law: str
    population: Population
    design: Design
    n: int
    variant: str
    rng: np.random.Generator

    def draw(self) -> Rows:
        return self.design.draw(self.population, self.n, self.rng)


class Outcome(NamedTuple):
    """What one sample says about one promise."""

    held: bool
    known: bool = True  # False: the sample has no such number (no error in it), or the method refuses it
    given: bool = True  # False: there is a number, but no interval or p-value; counts as not held
    side: int = 0  # −1: the truth lies below the interval, +1: above
    vacuous: bool = False  # the interval is the whole range
    size: float = math.nan  # width of an interval, share accepted, rows to the alarm
    reason: str = ""  # of a refusal


Outcomes = dict[str, Outcome]
# Where clusters that were not seen are unlike those seen, a promise needs to know how large they can be. What happens
# without that is measured, and not promised.
DECLARED, UNDECLARED = ", largest declared", ", nothing declared"


@dataclass(frozen=True)
class Promise:
    """Something that is said to hold in a share `nominal` of samples."""

    name: str
    title: str
    claim: str
    trial: Callable[[Case], Outcomes]
    size: str = ""  # what the median size in the results is
    nominal: float = LEVEL
    numbers: tuple[str, ...] = ()  # outputs that are measured but not promised
    metrics: tuple[str, ...] = ()  # outputs that are metrics of the registry

    def holds(self, output: str) -> bool:
        """Whether that is promised, and not measured alone."""
        return output not in self.numbers and not output.endswith(UNDECLARED)


def _interval(truth: float, low: float, high: float, value: float, whole: tuple[float, float]) -> Outcome:
    if math.isnan(low) or math.isnan(high):
        return Outcome(False, known=not math.isnan(value), given=False)
    side = -1 if truth < low else int(truth > high)
    return Outcome(side == 0, side=side, vacuous=low <= whole[0] and high >= whole[1], size=high - low)


def _test(p: float) -> Outcome:
    """Of a test whose null hypothesis is true. No p-value: no answer, which is neither right nor wrong."""
    return Outcome(p > 1 - LEVEL, known=not math.isnan(p), given=not math.isnan(p))


def _asked(ask: Callable[[], Outcome]) -> Outcome:
    """What is refused is not known, with the reason."""
    try:
        return ask()
    except uq.InputError as error:
        return Outcome(False, known=False, given=False, reason=str(error))


# ---- intervals --------------------------------------------------------------------------------------------------

RANKING = ("uq_auc", "uq_c_index", "aurc", "augrc", "e_aurc", "h_auc", "selective_accuracy_90", "accuracy")
CALIBRATION = ("ece_debiased", "brier", "log_loss")


def _judged(metric: str, found: Any, truth: float) -> Outcome:
    return _interval(truth, found.low, found.high, found.value, REGISTRY[metric].range)


def _ranking(case: Case) -> Outcomes:
    rows, truth = case.draw(), case.population.truth
    options: dict[str, Any] = {"weights": rows.weights, "clusters": rows.clusters, "level": LEVEL}
    ways: dict[str, int | None] = {"": None}
    if not case.design.alike:
        ways = {UNDECLARED: None, DECLARED: case.design.largest}
    outcomes = {}
    for way, largest in ways.items():
        options["largest_cluster"] = largest
        found = uq.evaluate(score=rows.score, error=rows.error, loss=rows.loss, metrics=RANKING, **options)
        for metric in RANKING:
            one = found["score" if REGISTRY[metric].uses_score else None, metric]
            outcomes[metric + way] = _judged(metric, one, truth[metric])
    return outcomes


def _calibration(case: Case) -> Outcomes:
    rows, truth = case.draw(), case.population.truth
    right = 1 - rows.error
    probs = np.stack([1 - rows.confidence, rows.confidence], axis=1)
    options: dict[str, Any] = {"weights": rows.weights, "clusters": rows.clusters, "level": LEVEL}
    outcomes = {}
    for metric in CALIBRATION:
        data = (rows.confidence if metric == "ece_debiased" else probs, right)
        found = uq.estimate(metric, *data, seed=case.rng, **options)
        outcomes[metric] = _judged(metric, found, truth[metric])
    return outcomes


OOD = ("ood_auroc", "fpr_at_tpr", "ood_aupr")


@cache
def ood_truth(law: Population) -> dict[str, float]:
    """Known rows are right ones, foreign rows wrong ones, as many of each."""
    known, foreign = _sides(law)
    cut = np.quantile(known, 0.95, method="higher")
    accepted = law.share_below(True, np.array([cut]))[0]
    # Average precision: the precision among all that score at least as high, over the foreign rows.
    recall, alarms = (1 - law.share_below(wrong, foreign, strictly=True) for wrong in (True, False))
    return {
        "ood_auroc": law.truth["uq_auc"],
        "fpr_at_tpr": float(accepted),
        "ood_aupr": float((recall / (recall + alarms)).mean()),
    }


def _sides(law: Population) -> tuple[Float, Float]:
    """Scores of right and of wrong rows, at equally spaced places of their laws."""
    z, rng = ndtri((np.arange(200_000) + 0.5) / 200_000), np.random.default_rng(0)
    side = [law.rows(np.full(len(z), wrong), z, z, rng).score for wrong in (False, True)]
    return side[0], side[1]


def _ood(case: Case) -> Outcomes:
    half, rng, truth = max(2, case.n // 2), case.rng, ood_truth(case.population)
    z = rng.standard_normal(2 * half)
    wrong = np.arange(2 * half) >= half
    score = case.population.rows(wrong, z, z, rng).score
    sets = (score[:half], score[half:])
    return {metric: _judged(metric, uq.estimate(metric, *sets, level=LEVEL, seed=rng), truth[metric]) for metric in OOD}


# ---- tests ------------------------------------------------------------------------------------------------------


def _groups(case: Case) -> Outcomes:
    """Equal groups, by row or by cluster; the variant is their number."""
    rows, count, metrics = case.draw(), int(case.variant), ("uq_auc", "uq_c_index", "aurc", "accuracy")
    units = len(rows.score) if rows.clusters is None else int(rows.clusters[-1]) + 1
    label = case.rng.permutation(units) % count
    found = uq.evaluate(
        score=rows.score,
        error=rows.error,
        loss=rows.loss,
        weights=rows.weights,
        clusters=rows.clusters,
        groups=label if rows.clusters is None else label[rows.clusters],
        metrics=metrics,
        level=LEVEL,
    )
    p = {mixed.metric: mixed.p for mixed in found.heterogeneity}
    return {metric: _test(p.get(metric, math.nan)) for metric in metrics}


def _beside(case: Case, rows: Rows, count: int, law: Population | None = None) -> list[Float]:
    """Scores on the same rows, their latent normals correlated with those of the first."""
    noise = case.rng.standard_normal((count, len(rows.z)))
    z = TWINS * rows.z + math.sqrt(1 - TWINS**2) * noise
    return [(law or case.population).rows(rows.wrong, x, x, case.rng).score for x in z]


def _exchanged(case: Case, rows: Rows, count: int) -> dict[str, Float]:
    """Scores that changed places at random row by row: no metric tells them apart."""
    scores = np.stack([rows.score, *_beside(case, rows, count - 1)])
    places = case.rng.permuted(np.tile(np.arange(count)[:, None], len(rows.z)), axis=0)
    return dict(zip("abcdefgh", np.take_along_axis(scores, places, axis=0), strict=False))


def _compared(scores: dict[str, Float], rows: Rows, metric: str, adjust: str = "none") -> Any:
    return uq.compare(
        scores,
        error=rows.error,
        loss=rows.loss,
        weights=rows.weights,
        clusters=rows.clusters,
        metric=metric,
        adjust=adjust,
        level=LEVEL,
    )


def _compare(case: Case) -> Outcomes:
    rows = case.draw()
    twins, outcomes = _exchanged(case, rows, 2), {}
    for metric in ("uq_auc", "uq_c_index", "aurc"):
        found = _compared(twins, rows, metric)["a", "b"]
        outcomes[f"equal {metric}"] = _test(found.p)
    if isinstance(case.population, Smooth):
        law, auc = case.population, float(case.variant)
        worse = population(case.law, law.accuracy, auc)
        pair = {"a": rows.score, "b": _beside(case, rows, 1, worse)[0]}
        for metric in ("uq_auc", "aurc"):
            found = _compared(pair, rows, metric)["a", "b"]
            truth = law.truth[metric] - worse.truth[metric]
            outcomes[f"difference {metric}"] = _interval(truth, found.low, found.high, found.difference, (-1.0, 1.0))
    return outcomes


def _family(case: Case) -> Outcomes:
    rows = case.draw()
    scores, outcomes = _exchanged(case, rows, 5), {}
    for metric in ("uq_auc", "uq_c_index"):
        p = [pair.p_adjusted for pair in _compared(scores, rows, metric, "max-t")]
        outcomes[metric] = _test(math.nan if np.isnan(p).all() else float(np.nanmin(p)))
    return outcomes


# ---- guarantees -------------------------------------------------------------------------------------------------


def target_risk(rate: float, variant: str) -> float:
    """ "flat": every region is just too risky; "half": half the error rate; "joint" is for accepted and wrong."""
    return rate / {"flat": 1.002, "half": 2.0, "joint": 4.0}[variant]


def _certified(case: Case, rows: Rows, *, limit: float, rate: float, joint: bool = False, **options: Any) -> Outcome:
    found = uq.choose_threshold(rows.score, rows.error, max_risk=limit, level=LEVEL, **options)
    risk = 0.0
    if found.feasible:
        at = np.array([found.value])
        wrong = float(case.population.share_below(True, at)[0])
        risk = rate * wrong if joint else float(case.population.risk(at, rate)[0])
    return Outcome(risk <= limit * (1 + 1e-9), size=found.coverage if found.feasible else 0.0)


def _threshold(case: Case) -> Outcomes:
    """The violation of a promise is a true risk above its target. Nothing accepted: nothing violated."""
    rows, design = case.draw(), case.design
    rate = 1 - case.population.accuracy
    limit = target_risk(rate, case.variant)
    asked: dict[str, dict[str, Any]] = {}
    if design.kind == "plain":
        for method in METHODS:
            if method != "crc":  # which holds on average
                joint = method in JOINT
                own = target_risk(rate, "joint") if joint else limit
                asked[method] = {"limit": own, "rate": rate, "joint": joint, "method": method}
    elif design.kind in ("clusters", "extreme"):
        for method in CLUSTER_METHODS:
            votes = design.rate_by_cluster(rate) if method == "subsample" else rate
            target = {"limit": target_risk(votes, case.variant), "rate": votes}
            given: dict[str, Any] = {"clusters": rows.clusters, "cluster_method": method, "seed": case.rng} | target
            bounded = method != "subsample"  # needs a bound on the size of a cluster
            asked[method + (UNDECLARED if bounded and not design.alike else "")] = given
            if design.largest is not None and bounded:
                asked[method + DECLARED] = given | {"largest_cluster": design.largest}
    else:
        asked["weights"] = {"limit": limit, "rate": rate, "weights": rows.weights, "clusters": rows.clusters}
    return {name: _asked(partial(_certified, case, rows, **how)) for name, how in asked.items()}


GOOD, GOOD_TIME, RISE, PATIENCE = 0.6, 5000, 4.0, 5000  # risk as a share of the promise, rows


def _monitor(case: Case) -> Outcomes:
    """n rows whose risk is the promised one, looked at in batches of `variant` rows; and a rise after a good time."""
    limit, batch, rng = 1 - case.population.accuracy, int(case.variant), case.rng
    promise = uq.Threshold.from_value(0.5, max_risk=limit, level=LEVEL)

    def alarm_after(chance: Float) -> int | None:
        error = (rng.random(len(chance)) < chance).astype(np.uint8)
        score, check = np.zeros(batch), None
        for start in range(0, len(error), batch):
            part = error[start : start + batch]
            check = promise.check(score[: len(part)], part, previous=check)
            if not check.holds:
                return start + len(part)
        return None

    steady = alarm_after(np.full(case.n, limit))
    rise = np.repeat([GOOD * limit, min(0.95, RISE * limit)], [GOOD_TIME, PATIENCE])
    late = alarm_after(rise)
    delay = math.nan if late is None or late <= GOOD_TIME else float(late - GOOD_TIME)
    return {
        "false alarm": Outcome(steady is None),
        "alarm after a good time": Outcome(not math.isnan(delay), known=late is None or late > GOOD_TIME, size=delay),
    }


# ---- bands ------------------------------------------------------------------------------------------------------


@cache
def fixed_thresholds(law: Population) -> Float:
    """Twenty values that know no sample: where 5%, 10%, … of the population are accepted."""
    rng, count = np.random.default_rng(0), 100_001
    wrong = (np.arange(count) + 0.5) / count > law.accuracy
    score = law.rows(wrong, rng.standard_normal(count), rng.standard_normal(count), rng).score
    return np.unique(np.quantile(score, np.arange(1, 21) / 20, method="lower"))


def _bands(case: Case) -> Outcomes:
    rows, law = case.draw(), case.population
    fixed = fixed_thresholds(law)
    outcomes = {}

    def judged(low: Float, high: Float, truth: Float) -> Outcome:
        if np.isnan(low).any() or np.isnan(high).any():
            return Outcome(False, given=False)
        below, above = bool((truth < low).any()), bool((truth > high).any())
        vacuous = bool(((low <= 0) & (high >= 1)).all())
        return Outcome(
            not (below or above), side=int(above) - int(below), vacuous=vacuous, size=float(np.median(high - low))
        )

    for name, thresholds in (("band, own thresholds", None), ("band, fixed thresholds", fixed)):
        found = uq.risk_map(rows.score, rows.error, clusters=rows.clusters, thresholds=thresholds, level=LEVEL)
        truth = law.risk(found.threshold)
        outcomes[name] = judged(found.band_low, found.band_high, truth)
        if thresholds is not None:
            half = len(found.threshold) // 2
            one = slice(half, half + 1)
            outcomes["one threshold"] = judged(found.low[one], found.high[one], truth[one])
    return outcomes


def _dominance(case: Case) -> Outcomes:
    rows = case.draw()
    a, b = _exchanged(case, rows, 2).values()

    def ask() -> Outcome:
        found = uq.dominance(a, b, rows.error, clusters=rows.clusters, level=LEVEL, resamples=200, seed=case.rng)
        held = bool(((found.low <= 0) & (found.high >= 0)).all())
        return Outcome(held, size=float(np.median(found.high - found.low)))

    return {"equal scores": _asked(ask)}


_WIDTH = "median width"
PROMISES = {
    promise.name: promise
    for promise in (
        Promise(
            "ranking",
            "Intervals of the ranking metrics",
            "a 95% interval holds the true value",
            _ranking,
            _WIDTH,
            metrics=RANKING,
        ),
        Promise(
            "calibration",
            "Intervals of ECE, Brier score and log-loss",
            "a 95% interval holds the true value (of ECE: that of the 15 bins)",
            _calibration,
            _WIDTH,
            metrics=CALIBRATION,
        ),
        Promise(
            "ood",
            "Intervals of out-of-distribution detection",
            "a 95% interval holds the true value",
            _ood,
            _WIDTH,
            metrics=OOD,
        ),
        Promise("groups", "Heterogeneity of groups", "equal groups are told apart in at most 5%", _groups),
        Promise(
            "compare",
            "Two scores on the same rows",
            "equal scores are told apart in at most 5%; a 95% interval holds the true difference",
            _compare,
            _WIDTH,
        ),
        Promise("family", "Five scores, max-t", "any of ten equal pairs is told apart in at most 5%", _family),
        Promise(
            "threshold",
            "Thresholds with a guaranteed risk",
            "the true risk of what is accepted is above the target in at most 5%",
            _threshold,
            "median share accepted",
        ),
        Promise(
            "monitor",
            "The monitor",
            "a false alarm ever, at the promised risk, in at most 5%",
            _monitor,
            "median rows to the alarm",
            numbers=("alarm after a good time",),
        ),
        Promise("bands", "Risk below a threshold", "a 95% band holds the true risk", _bands, _WIDTH),
        Promise("dominance", "Dominance of equal scores", "the 95% band holds no difference", _dominance, _WIDTH),
    )
}
