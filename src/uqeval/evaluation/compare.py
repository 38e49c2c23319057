"""Paired differences, overall and by group: of rows in memory, and from whatever gives a joint tally."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from uqeval._check import Progress
from uqeval._errors import UQWarning, collected, notify
from uqeval.evaluation.candidates import Candidate, by_group, find_candidates, find_pairs, without_copies
from uqeval.evaluation.comparison import Comparison, Pair
from uqeval.evaluation.evaluate import spans_groups
from uqeval.evaluation.row_data import RowData
from uqeval.inference.forms import Interval
from uqeval.inference.measure import joint, resample
from uqeval.inference.multiplicity import adjust, bootstrap_contrasts, heterogeneity, holm
from uqeval.inference.paired import ALIKE, Contrast, contrast, rank_alike
from uqeval.inference.permutation import swap_test
from uqeval.inference.sample import Sample, kish
from uqeval.inference.tally import JointTally
from uqeval.inputs import Predictions
from uqeval.metrics.copies import Groups
from uqeval.metrics.registry import Metric

_TIMID = 20  # errors: with fewer the default tests find little


@dataclass(frozen=True)
class Question:
    """What is compared, and how."""

    metric: Metric
    baseline: str | None
    adjust: str
    level: float
    seed: int | np.random.Generator
    resamples: int = 0  # 0: variances from influence values
    progress: Progress | None = None
    swaps: int = 0  # 0: no permutation test
    risk: str | None = None  # what the selective metrics take
    largest_cluster: int | None = None  # the most rows that any can have, where a user says so
    rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rng", np.random.default_rng(self.seed))  # a Generator stays itself

    @property
    def method(self) -> str:
        return "bootstrap" if self.resamples else "permutation" if self.swaps else "influence"


class Differences(NamedTuple):
    """Values of K candidates with their covariance, and the contrast of each pair."""

    joint: JointTally
    contrasts: list[Contrast]
    intervals: list[tuple[float, float, float]] | None = None  # low, high, adjusted p, where draws gave them

    def only(self, pairs: list[int]) -> Differences:
        """Some of the pairs."""
        return self._replace(contrasts=[self.contrasts[k] for k in pairs])


def compare_rows(
    given: Predictions | Mapping[str, Predictions], scores: Sequence[str] | str | None, question: Question
) -> Comparison:
    """All pairs of candidates in memory; what limits them is in `warnings`."""
    with collected() as raised:
        found = find_candidates(given, scores, question.metric, question.risk, question.largest_cluster)
        answer = _compared(found, question)
    return replace(answer, warnings=(*dict.fromkeys(raised), *_cautions(question, found)))


def compare_data(data: RowData, names: Sequence[str], question: Question) -> Comparison:
    """Scores of rows that were evaluated already: what they share is there, and groups are left alone."""
    found = [Candidate(name, data, name) for name in names]
    with collected() as raised:
        answer = _compared(found, question, by_groups=False)
    return replace(answer, warnings=(*dict.fromkeys(raised), *_cautions(question, found)))


def _compared(found: list[Candidate], question: Question, *, by_groups: bool = True) -> Comparison:
    every = found
    find_pairs([c.name for c in every], question.baseline)  # says which names there are
    found, same = without_copies(every, question.baseline)
    names = [candidate.name for candidate in found]
    pairs = find_pairs(names, question.baseline)
    whole = _differences(found, pairs, question)
    data, groups = found[0].data, {}
    by_groups = by_groups and data.pred.groups is not None
    if by_groups:
        names_of, codes = data.pred.group_names, data.pred.groups
        assert codes is not None
        for group, part in zip(names_of, by_group(found, codes, len(names_of)), strict=True):
            if part[0].data.n < 2:
                notify(f"group {group!r} has a single row and is left out")
                continue
            groups[group] = _differences(part, pairs, question)
    answer = answered(question, names, pairs, whole, groups, by_groups and spans_groups(data))
    values, metric = _values(every, answer, same, question.metric), question.metric
    target = data.target_of(metric) if metric.uses_score else None
    two = target is not None and data.two_targets
    return replace(answer, n=data.n, values=values, same_ranking=same, target=target, two_targets=two)


def _values(every: list[Candidate], answer: Comparison, same: Groups, metric: Metric) -> dict[str, float]:
    """Of all candidates: an exact copy has the value of its first, one but for rounding its own."""
    first = {name: group[0] for group in same for name in group}
    found = {}
    for c in every:
        exact = c.name in answer.values or c.score in c.data.copies.exact
        found[c.name] = (
            answer.values[first.get(c.name, c.name)] if exact else float(joint([c.measured(metric)]).values[0])
        )
    return found


def answered(
    question: Question,
    names: list[str],
    pairs: list[tuple[int, int]],
    whole: Differences,
    groups: Mapping[str, Differences],
    spans: bool,
) -> Comparison:
    """The answer from all differences; across groups only where no cluster spans several."""
    rows = pair_rows(names, pairs, None, whole, question)
    for group, found in groups.items():  # one after the other: they share the draws behind max-t
        rows += pair_rows(names, pairs, group, found, question)
    if spans:
        notify("clusters span several groups: no test across groups")
    return Comparison(
        metric=question.metric.name,
        adjust=question.adjust,
        level=question.level,
        method=question.method,
        n=0,
        baseline=question.baseline,
        values=dict(zip(names, map(float, whole.joint.values), strict=True)),
        rows=tuple(rows),
        heterogeneity={} if spans else same_everywhere(names, pairs, list(groups.values())),
    )


# ---- differences ------------------------------------------------------------------------------------------------


def _differences(found: list[Candidate], pairs: list[tuple[int, int]], question: Question) -> Differences:
    metric = question.metric
    if question.resamples:
        with np.errstate(invalid="ignore"):  # an infinite log-loss that a resample leaves out is 0·∞
            return _resampled(found, pairs, question)
    whole = differences_of_rows(found, pairs, metric)
    return _swapped(found, pairs, whole, question) if question.swaps else whole


def differences_of_rows(found: list[Candidate], pairs: list[tuple[int, int]], metric: Metric) -> Differences:
    """From influence values of the rows."""
    measured = [candidate.measured(metric) for candidate in found]
    whole = joint(measured)
    models = any(c.data is not found[0].data for c in found)
    contrasts = []
    for a, b in pairs:
        # Of two models: errors, factors and degrees of freedom are those of the pair, whoever else takes part.
        own = (joint([measured[a], measured[b]]), 0, 1) if models else (whole, a, b)
        c = contrast(*own, metric.span)
        first, second = measured[a].given, measured[b].given
        ranked = isinstance(first, Sample) and isinstance(second, Sample)
        if not c.se > 0 and c.difference == 0 and ranked and rank_alike(first, second):  # type: ignore[arg-type]
            c = ALIKE
        contrasts.append(c)
    return Differences(whole, contrasts)


def _swapped(
    found: list[Candidate], pairs: list[tuple[int, int]], whole: Differences, question: Question
) -> Differences:
    """p-values from swaps, adjusted by Holm; standard errors and intervals stay those of the influence values."""
    measured = [candidate.measured(question.metric) for candidate in found]
    seed = int(question.rng.integers(2**63))  # the same for all: a pair does not depend on who else is compared
    contrasts = []
    for c, (a, b) in zip(whole.contrasts, pairs, strict=True):
        how = (question.swaps, np.random.default_rng(seed), question.progress)
        contrasts.append(c._replace(p=swap_test(measured[a], measured[b], *how)))
    p = [c.p for c in contrasts]
    if question.adjust != "none":
        p = holm(p, [k for k, one in enumerate(p) if not np.isnan(one)])
    width = adjust(question.adjust, whole.joint, pairs, whole.contrasts, question.level, question.rng).width
    ends = _intervals(contrasts, width, question)
    return Differences(whole.joint, contrasts, [(*both, one) for both, one in zip(ends, p, strict=True)])


def _resampled(found: list[Candidate], pairs: list[tuple[int, int]], question: Question) -> Differences:
    measured = [candidate.measured(question.metric) for candidate in found]
    if not pairs:
        return Differences(joint(measured), [], [])
    drawn = resample(measured, question.resamples, question.rng, question.progress)
    values = joint(measured).values
    defined = ~np.isnan(drawn).any(axis=0)
    if dropped := int((~defined).sum()):
        notify(f"{dropped} of {question.resamples} resamples left the metric undefined", UQWarning)
    drawn = drawn[:, defined]
    return Differences(
        JointTally(values, ()), *bootstrap_contrasts(values, drawn, pairs, question.adjust, question.level)
    )


def pair_rows(
    names: list[str], pairs: list[tuple[int, int]], group: str | None, found: Differences, question: Question
) -> list[Pair]:
    """Differences of all rows or of a group, with intervals and adjusted p-values."""
    intervals = found.intervals
    if intervals is None:
        adjusted = adjust(question.adjust, found.joint, pairs, found.contrasts, question.level, question.rng)
        ends = _intervals(found.contrasts, adjusted.width, question)
        intervals = [(*both, p) for both, p in zip(ends, adjusted.p, strict=True)]
    return [
        Pair(names[a], names[b], group, c.difference, low, high, c.se, c.df, c.p, p)
        for (a, b), c, (low, high, p) in zip(pairs, found.contrasts, intervals, strict=True)
    ]


def _intervals(contrasts: list[Contrast], width: list[float], question: Question) -> list[Interval]:
    """Of differences that have no standard error: simultaneous by Bonferroni."""
    level = question.level if question.adjust == "none" else 1 - (1 - question.level) / max(1, len(contrasts))
    return [c.interval(one, level) for c, one in zip(contrasts, width, strict=True)]


def same_everywhere(
    names: list[str], pairs: list[tuple[int, int]], groups: list[Differences]
) -> dict[tuple[str, str], float]:
    """p-value of the hypothesis that the difference of a pair is the same in all groups."""
    mixed = {}
    for k, (a, b) in enumerate(pairs):
        contrasts = [one.contrasts[k] for one in groups if one.contrasts[k].se > 0]
        if len(contrasts) >= 2:
            differences, se = [c.difference for c in contrasts], [c.se for c in contrasts]
            mixed[names[a], names[b]] = heterogeneity(differences, se, [c.df for c in contrasts]).p
    return mixed


def _cautions(question: Question, found: list[Candidate]) -> list[str]:
    metric = question.metric
    data = list({id(c.data): c.data for c in found}.values())
    notes = [metric.across_models] if metric.across_models is not None and len(data) > 1 else []
    errors = [one.error for one in data if one.error is not None] if "error" in metric.needs else []
    wrong = [int(np.count_nonzero(error)) for error in errors]
    codes, n = data[0].rows.clusters, data[0].n
    sides = (min(wrong), n - max(wrong)) if wrong else ()
    clusters = None if codes is None else int(codes.max()) + 1
    notes += few_notes(sides, clusters, timid=question.method == "influence")
    if wrong and min(wrong) >= 10:
        given = ((one.rows.weights, one.error) for one in data)
        weighted = [kish(weights[error > 0]) for weights, error in given if weights is not None and error is not None]
        if weighted and min(weighted) < 20:
            notes.append(f"the errors weigh as few as {min(weighted):.0f} rows: the tests may be too bold")
    if metric.tally == "mean":
        for candidate in found:
            values = candidate.data[metric.name]
            if values is not None and (count := int(np.isinf(values).sum())):
                notes.append(f"{candidate.name}: {count} labels have probability 0: the log-loss is infinite")
    scored = {c.name: int(np.isinf(c.data.score(c.score)).sum()) for c in found if c.score is not None}
    return [*notes, *infinite_notes(scored)]


def few_notes(sides: tuple[int, ...], clusters: int | None, *, timid: bool = True) -> list[str]:
    """Where errors, right rows or clusters are too few for a test to show much, and what shows more."""
    notes = []
    for what, count in zip(("errors", "right rows"), sides, strict=False):
        if count < (_TIMID if timid else 10):
            more = '; method="permutation" has more' if timid and count else ""
            notes.append(f"few {what} ({count}): the tests have little power{more}")
    if clusters is not None and clusters < 10:
        notes.append("a single cluster: no intervals and no tests" if clusters == 1 else f"few clusters ({clusters})")
    return notes


def infinite_notes(counts: Mapping[str, int]) -> list[str]:
    """Scores with infinite values."""
    return [
        f"{name}: {count} infinite values; they rank first or last and tie" for name, count in counts.items() if count
    ]
