"""Differences between evaluations of other rows: independent samples, of which only the estimates are known.

The interval joins those of the two estimates (the method of variance estimates recovery, Zou & Donner 2008), so that it
is as lopsided as they are, and the p-value is its inversion. On the same rows the samples are not independent: that is
refused where it is known. `compare` on the rows themselves finds far smaller differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uqeval._check import nearest
from uqeval._errors import InputError
from uqeval.evaluation.candidates import find_pairs
from uqeval.evaluation.comparison import Comparison, Pair
from uqeval.evaluation.result import Evaluation
from uqeval.inference.forms import t_quantile
from uqeval.inference.multiplicity import holm
from uqeval.inference.result import Estimate
from uqeval.metrics.registry import Metric

_TELLING = 20  # rows: fewer labels agree by chance


class Difference(NamedTuple):
    """Of two independent estimates."""

    difference: float
    low: float
    high: float
    se: float
    df: float
    p: float


def difference(a: Estimate, b: Estimate, level: float | None = None) -> Difference:
    """a − b at the level of both, or stretched to a higher one.

    Examples
    --------
    >>> a = Estimate(0.80, 0.76, 0.84, 0.02, 0.95, "t", 500)
    >>> b = Estimate(0.70, 0.65, 0.75, 0.025, 0.95, "t", 400)
    >>> found = difference(a, b)
    >>> round(found.low, 3), round(found.high, 3)
    (0.036, 0.164)
    """
    gap, se = a.value - b.value, math.hypot(a.se, b.se)
    down, up = math.hypot(a.value - a.low, b.high - b.value), math.hypot(a.high - a.value, b.value - b.low)
    df = _df(a, b)
    own = t_quantile(a.level, df)
    wide = 1.0 if level is None else t_quantile(level, df) / own
    toward = down if gap > 0 else up  # the side on which 0 lies
    p = math.nan if math.isnan(toward) else 1.0 if gap == 0 or toward == 0 else _two_sided(abs(gap) / toward * own, df)
    return Difference(gap, gap - wide * down, gap + wide * up, se, df, p)


def _df(a: Estimate, b: Estimate) -> float:
    """Welch–Satterthwaite, from the rarer rows or the clusters of each."""
    parts = [(e.se**2, max(1, min(_units(e)) - 1)) for e in (a, b) if e.se > 0]
    spread = sum(v * v / df for v, df in parts)
    return sum(v for v, _ in parts) ** 2 / spread if spread > 0 else math.inf


def _units(e: Estimate) -> list[int]:
    if e.n_clusters is not None:
        return [e.n_clusters]
    return [e.n] if e.n_errors is None else [e.n_errors, e.n - e.n_errors]


def _two_sided(t: float, df: float) -> float:
    from scipy.special import ndtr, stdtr  # 30 ms to load

    return float(2 * (ndtr(-t) if df > 1e9 else stdtr(df, -t)))


def same_rows(a: Evaluation, b: Evaluation) -> str | None:
    """What shows that two evaluations are of the same rows: their files, or their labels; None where nothing does."""
    first, second = a.provenance or {}, b.provenance or {}
    files = [[file["sha256"] for file in one.get("files", ())] for one in (first, second)]
    if files[0] and sorted(map(str, files[0])) == sorted(map(str, files[1])) and None not in files[0]:
        return "files"
    labels = [one.get("labels_sha256") for one in (first, second)]
    return "labels" if labels[0] is not None and labels[0] == labels[1] and a.n >= _TELLING else None


def compare_evaluations(
    given: Mapping[str, Evaluation],
    scores: Sequence[str] | str | None,
    metric: Metric,
    *,
    baseline: str | None,
    adjust: str,
    level: float,
) -> Comparison:
    """Evaluations of independent test sets, pair by pair; several scores each with themselves."""
    names = list(given)
    if len(names) < 2:
        raise InputError(f"Only one candidate ({', '.join(names)}). Pass at least two evaluations.")
    first = given[names[0]]
    for name, ev in given.items():
        if ev.level != level:
            raise InputError(
                f"{name!r} has {100 * ev.level:g}% intervals, but {100 * level:g}% are asked for. Pass "
                f"level={ev.level:g}, or evaluate it again."
            )
    pairs = find_pairs(names, baseline)
    for a, b in pairs:
        if (why := same_rows(given[names[a]], given[names[b]])) is not None:
            raise InputError(
                f"{names[a]!r} and {names[b]!r} are of the same rows (the same {why}), which are no independent "
                f"samples. Compare their files of predictions: that is paired, and finds more."
            )
    chosen: list[str | None] = [None] if not metric.uses_score else [*_scores(given, scores)]
    several = len(chosen) > 1
    called = {(name, score): f"{name} / {score}" if several else name for name in names for score in chosen}
    groups: list[str | None] = [None, *(g for g in first.groups if all(g in ev.groups for ev in given.values()))]
    rows: list[Pair] = []
    for group in groups:
        found = []
        for score in chosen:
            for a, b in pairs:
                ends = [given[names[k]][score, metric.name, group] for k in (a, b)]
                found.append((called[names[a], score], called[names[b], score], *ends))
        rows += _rows(found, group, adjust, level)
    values = {called[name, score]: ev[score, metric.name].value for name, ev in given.items() for score in chosen}
    targets = {ev.targets.get(metric.name) for ev in given.values()}
    if len(targets) > 1:
        raise InputError(f"{metric.name} was taken of {' and '.join(sorted(map(str, targets)))}. Evaluate both alike.")
    note = (
        "unpaired: the evaluations are taken for independent samples. If they are of the same rows, compare the files "
        "of predictions: that is paired, and finds smaller differences"
    )
    return Comparison(
        metric=metric.name,
        adjust=adjust,
        level=level,
        method="unpaired",
        n=sum(ev.n for ev in given.values()),
        baseline=None if baseline is None or several else baseline,
        values=values,
        rows=tuple(rows),
        warnings=(note,),
        target=first.targets.get(metric.name),
        two_targets=first.two_targets,
    )


def _scores(given: Mapping[str, Evaluation], asked: Sequence[str] | str | None) -> list[str]:
    common = [s for s in next(iter(given.values())).scores if all(s in ev.scores for ev in given.values())]
    if not common:
        raise InputError("The evaluations have no score in common. Evaluate the same score in all.")
    if asked is None:
        return common[:1]
    names = [asked] if isinstance(asked, str) else list(dict.fromkeys(asked))
    for name in names:
        if name not in common:
            raise InputError(
                f'Not all evaluations have the score "{name}".{nearest(name, common)} Common are: {", ".join(common)}.'
            )
    return names


def _rows(found: list[Any], group: str | None, adjust: str, level: float) -> list[Pair]:
    """Differences of a group, adjusted by Holm, with Bonferroni intervals, unless each stands alone."""
    alone = adjust == "none" or len(found) < 2
    at = None if alone else 1 - (1 - level) / len(found)
    gaps = [difference(a, b, at) for _, _, a, b in found]
    p = [gap.p for gap in gaps]
    adjusted = p if alone else holm(p, [k for k, one in enumerate(p) if not math.isnan(one)])
    return [
        Pair(a, b, group, gap.difference, gap.low, gap.high, gap.se, gap.df, gap.p, one)
        for (a, b, _, _), gap, one in zip(found, gaps, adjusted, strict=True)
    ]
