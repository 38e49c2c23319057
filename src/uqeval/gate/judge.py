"""A policy judged on an evaluation: does each rule hold, is it shown not to, or are there too few rows to tell?

The estimates and the differences are those of `evaluation`, the certified coverage that of `decide`. Errors of two
kinds are kept apart. All rules must pass, so that no adjustment is needed to keep a false pass as rare as for a single
rule (an intersection–union test, Berger 1982). Any rule may fail, so that the chance of a false fail is shared out
(Bonferroni): over all rules, and all groups of a rule for the worst, it is at most 1 − level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from uqeval._check import Float
from uqeval._errors import InputError, a_type
from uqeval.evaluation.evaluate import without_zero_weights
from uqeval.evaluation.result import Evaluation
from uqeval.gate.policy import WORST, Policy, Rule, read_policy
from uqeval.gate.result import FAIL, PASS, UNCLEAR, GateResult, Verdict
from uqeval.inference.forms import t_quantile
from uqeval.inference.result import Estimate
from uqeval.inputs import Predictions
from uqeval.metrics.registry import get_metric
from uqeval.truth import error_of

Baseline = Predictions | Evaluation


class Number(NamedTuple):
    """What is compared with a limit, its interval, and the rows behind it."""

    value: float
    low: float
    high: float
    n: int
    df: float = math.inf
    undefined: str | None = None

    @classmethod
    def of(cls, e: Estimate) -> Number:
        """The degrees of freedom are those of the rarer rows, or of the clusters."""
        units = [e.n] if e.n_errors is None else [e.n_errors, e.n - e.n_errors]
        units = units if e.n_clusters is None else [e.n_clusters]
        return cls(e.value, e.low, e.high, e.n, max(1, min(units) - 1), e.undefined)


def judge(ev: Evaluation, policy: Policy | Mapping[str, Any] | str, *, baseline: Baseline | None = None) -> GateResult:
    """Judge a policy on an evaluation.

    Parameters
    ----------
    ev : Evaluation
        From `uqeval.evaluate`, with the metrics and scores that the rules name, at the policy's level.
    policy : Policy, dict or path
        What must hold; `read_policy` says how it is written.
    baseline : Predictions or Evaluation, optional
        For rules with a margin. Predictions on the same rows are compared row by row; an evaluation of other rows
        (`Evaluation.from_json`) is compared as an independent sample, which finds less.

    Returns
    -------
    GateResult
        ``result.status``, ``result.exit_code``, ``result.verdicts``.

    Examples
    --------
    >>> import uqeval as uq
    >>> ev = uq.evaluate(uq.datasets.example(), scores=["entropy"], metrics=["uq_auc"])
    >>> judge(ev, {"rule": [{"metric": "uq_auc", "at_least": 0.85}]}).status
    'pass'
    >>> judge(ev, {"rule": [{"metric": "uq_auc", "at_least": 0.9}]}).status
    'too few rows to tell'
    """
    rules = read_policy(policy)
    if not isinstance(ev, Evaluation):
        raise InputError(f"`ev` is {a_type(ev)}. Pass what uqeval.evaluate returns.")
    if not isinstance(baseline, Predictions | Evaluation | None):
        raise InputError(
            f"`baseline` is {a_type(baseline)}. Pass Predictions (uqeval.read_predictions reads a file) or an "
            f"evaluation (Evaluation.from_json)."
        )
    if rules.needs_baseline and baseline is None:
        raise InputError("A rule has a margin, which needs a baseline. Pass baseline= (--baseline FILE).")
    if ev.level != rules.level:
        raise InputError(
            f"The evaluation has {ev.level:g} intervals but the policy asks for {rules.level:g}. Evaluate with "
            f"level={rules.level:g}."
        )
    # Each is a test of its own: one per group where all groups must pass.
    tests = sum(max(1, len(ev.groups)) if rule.group == WORST else 1 for rule in rules.rules)
    bench = Bench(ev, baseline, tests)
    verdicts = tuple(bench.verdict(rule, f"rule {k}") for k, rule in enumerate(rules.rules, 1))
    kind = bench.kind if rules.needs_baseline else None
    return GateResult(verdicts, rules.level, tests, ev.n, kind, ev.warnings, ev.provenance)


@dataclass
class Bench:
    """An evaluation with its baseline, and how many tests share the chance of a false fail."""

    ev: Evaluation
    baseline: Baseline | None
    tests: int

    def __post_init__(self) -> None:
        self._same = self.baseline is not None and _alike(self.ev, self.baseline)
        self._differences: dict[tuple[str | None, str], dict[str | None, Number]] = {}

    @property
    def kind(self) -> str:
        """How the baseline is compared."""
        if self._same:
            return "the same rows and predictions"
        return "paired" if isinstance(self.baseline, Predictions) else "unpaired"

    def verdict(self, rule: Rule, where: str) -> Verdict:
        """Of one rule; the worst group speaks for all."""
        rule = replace(rule, name=rule.title, score=self._score(rule, where))
        if rule.coverage_at_risk is not None:
            return self._coverage(rule)
        if rule.group != WORST:
            if rule.group is not None and rule.group not in self.ev.groups:
                there = f"There are: {', '.join(self.ev.groups)}." if self.ev.groups else "Pass by= (--by COLUMN)."
                raise InputError(f"{where} is for the group {rule.group!r}, which is not there. {there}")
            return self._one(rule, rule.group)
        if not self.ev.groups:
            raise InputError(f"{where} is for the worst group, but there are no groups. Pass by= (--by COLUMN).")
        found = [self._one(rule, group) for group in self._every_group()]
        order = {FAIL: 0, UNCLEAR: 1, PASS: 2}
        sign = 1 if rule.higher else -1
        worst = min(found, key=lambda v: (order[v.status], not math.isnan(v.value), sign * v.value))
        return replace(worst, why=f"worst of {len(found)} groups, {worst.group}: {worst.why}")

    def _every_group(self) -> list[str]:
        """Also those that were left out because they have a single row: they cannot be told."""
        there = () if self.ev.source is None else self.ev.source.pred.group_names
        return list(dict.fromkeys((*self.ev.groups, *there)))

    def _score(self, rule: Rule, where: str) -> str | None:
        if rule.coverage_at_risk is None and not rule.known.uses_score:
            return None
        if rule.score is None and len(self.ev.distinct) > 1:
            raise InputError(
                f"{where} ({rule.title}) names no score, and there are several: {', '.join(self.ev.scores)}. Name one: "
                f'score = "{self.ev.scores[0]}" in a policy, {self.ev.scores[0]}:METRIC=VALUE in an option.'
            )
        return rule.score or self.ev.distinct[0]

    def _one(self, rule: Rule, group: str | None) -> Verdict:
        number = self._number(rule, group)
        status, why = decide(rule, number, self.ev.level, self.tests)
        return _verdict(rule, number, group, status, why)

    def _number(self, rule: Rule, group: str | None) -> Number:
        """An estimate, or a difference from the baseline."""
        lacking = Number(math.nan, math.nan, math.nan, 1, undefined="fewer than 2 rows")
        if rule.group == WORST and group not in self.ev.groups:
            return lacking
        estimate = self.ev[rule.score, str(rule.metric), group]
        if rule.margin is None:
            return Number.of(estimate)
        if self._same:
            zero = 0.0 if estimate.undefined is None else math.nan
            return Number(zero, zero, zero, estimate.n, undefined=estimate.undefined)
        key = rule.score, str(rule.metric)
        if key not in self._differences:
            self._differences[key] = self._compared(*key)
        return self._differences[key].get(group, lacking)

    def _compared(self, score: str | None, metric: str) -> dict[str | None, Number]:
        """This minus the baseline, of all rows and by group."""
        if isinstance(self.baseline, Predictions):
            from uqeval.evaluation.compare import Question, compare_rows  # few gates have a baseline

            data = _rows_of(self.ev, "A paired baseline")
            models = {"this": data.pred, "baseline": without_zero_weights(self.baseline)}
            alike = {"risk": data.risk, "largest_cluster": data.rows.largest}  # as the evaluation was asked for
            how = Question(get_metric(metric), "baseline", "none", self.ev.level, 0, **alike)
            found = compare_rows(models, score, how)
            sizes = {row.group: row.estimate.n for row in self.ev.rows if (row.score, row.metric) == (score, metric)}
            gap = "the difference has no value, or no spread"
            return {
                row.group: Number(
                    row.difference,
                    row.low,
                    row.high,
                    sizes.get(row.group, self.ev.n),
                    max(1.0, row.df),
                    gap if math.isnan(row.low) else None,
                )
                for row in found
            }
        from uqeval.evaluation.unpaired import difference, same_rows  # see above

        assert self.baseline is not None
        if same_rows(self.ev, self.baseline) is not None:
            raise InputError(
                "The baseline is of the same rows (the same labels), which are no independent sample. Pass its file of "
                "predictions: that is paired, and finds more."
            )
        if (score, metric) not in {(row.score, row.metric) for row in self.baseline.rows}:
            of = metric if score is None else f"{metric} of {score}"
            raise InputError(f"The baseline holds no {of}. Evaluate it with the scores and metrics of the policy.")
        groups: list[str | None] = [None, *(name for name in self.ev.groups if name in self.baseline.groups)]
        found_by: dict[str | None, Number] = {}
        for group in groups:
            new, old = self.ev[score, metric, group], self.baseline[score, metric, group]
            gap_of = difference(new, old)
            reason = new.undefined or old.undefined
            found_by[group] = Number(gap_of.difference, gap_of.low, gap_of.high, new.n, max(1.0, gap_of.df), reason)
        return found_by

    def _coverage(self, rule: Rule) -> Verdict:
        """The share that may be acted on with a certified risk.

        It fails where already the share asked for is shown to have a higher risk, and no larger one looks better.
        """
        from uqeval.decide.choose import choose_threshold  # few gates certify a share

        assert rule.coverage_at_risk is not None
        data, target = _rows_of(self.ev, "coverage_at_risk"), rule.coverage_at_risk
        score = data.score(str(rule.score))
        chosen = choose_threshold(str(rule.score), predictions=data.pred, max_risk=target, level=self.ev.level)
        low, high = chosen.coverage_interval if chosen.feasible else (0.0, math.nan)
        number = Number(chosen.coverage if chosen.feasible else 0.0, low, high, data.n)
        asked = {"low": low, "value": number.value, "high": high}[rule.end]
        if data.n < rule.min_rows:
            return _verdict(rule, number, None, UNCLEAR, f"{data.n} rows, fewer than min_rows = {rule.min_rows}")
        if chosen.feasible and asked >= rule.limit:
            return _verdict(rule, number, None, PASS, f"acts where {rule.score} ≤ {chosen.value:.6g}")
        if (risk := self._too_risky(rule, score)) is not None:
            why = f"the surest {rule.limit:.0%} have an error rate of {risk:.3g}, shown to be above {target:g}"
            return _verdict(rule, number, None, FAIL, why)
        certified = f"{number.value:.1%} certified" if chosen.feasible else "nothing can be certified yet"
        needed = "" if chosen.rows_needed is None else f"; about {chosen.rows_needed:,} rows would certify something"
        return _verdict(rule, number, None, UNCLEAR, f"{certified}{needed}")

    def _too_risky(self, rule: Rule, score: Float) -> float | None:
        """The error rate of the share asked for, where it is shown to be too high and no larger share looks better."""
        from uqeval.decide.outcome import count  # few gates certify a share

        data, target = _rows_of(self.ev, "coverage_at_risk"), rule.coverage_at_risk
        error = error_of(data.pred)
        assert error is not None
        assert target is not None
        cut = np.sort(score)[min(data.n - 1, max(0, math.ceil(rule.limit * data.n) - 1))]
        inside = score <= cut
        seen = count(inside, error, data.rows.clusters, joint=False, weights=data.weights)
        wrong = np.cumsum(error[np.argsort(score, kind="stable")]) / np.arange(1, data.n + 1)
        shown = seen.interval(fail_level(self.ev.level, self.tests)).low > target
        return seen.lost / seen.votes if shown and (wrong[int(inside.sum()) - 1 :] > target).all() else None


def decide(rule: Rule, number: Number, level: float, tests: int) -> tuple[str, str]:
    """Pass where the number keeps the limit; fail where it is shown not to, among so many tests; else too few rows."""
    if number.undefined is not None or math.isnan(number.value):
        return UNCLEAR, f"undefined: {number.undefined or 'it has no value on these rows'}"
    if number.n < rule.min_rows:
        return UNCLEAR, f"{number.n} rows, fewer than min_rows = {rule.min_rows}"
    sign = 1.0 if rule.higher else -1.0
    ends = {"low": number.low, "value": number.value, "high": number.high}
    asked = ends[rule.end]
    words = f"the {rule.end} end is {asked:.4g}" if rule.end != "value" else f"it is {asked:.4g}"
    if math.isnan(asked):
        return UNCLEAR, "there is no interval"
    if sign * asked >= sign * rule.limit:
        return PASS, words
    if rule.end == "value":
        return FAIL, words
    best = ends["high" if rule.higher else "low"]
    wide = t_quantile(fail_level(level, tests), number.df) / t_quantile(level, number.df)
    best = number.value + (best - number.value) * wide
    if sign * best < sign * rule.limit:
        return FAIL, f"shown to be {'under' if rule.higher else 'over'} {rule.limit:g}"
    return UNCLEAR, f"{words}, but it may be as good as {best:.4g}: more rows would tell"


def fail_level(level: float, tests: int) -> float:
    """Of two-sided intervals, each of which may miss on the one side that fails a rule: together 1 − level."""
    return max(level, 1 - 2 * (1 - level) / tests)


def _verdict(rule: Rule, number: Number, group: str | None, status: str, why: str) -> Verdict:
    return Verdict(
        rule=rule.title,
        status=status,
        metric=rule.metric or "coverage at risk",
        score=rule.score,
        group=group,
        value=number.value,
        low=number.low,
        high=number.high,
        limit=rule.limit,
        on=rule.end,
        n=number.n,
        why=why,
    )


def _rows_of(ev: Evaluation, what: str) -> Any:
    if ev.source is None:
        raise InputError(
            f"{what} needs the rows, which a stored evaluation and an engine do not keep. Evaluate in memory."
        )
    return ev.source


def _alike(ev: Evaluation, baseline: Baseline) -> bool:
    """Whether the baseline is this very model on these very rows: then no metric differs."""
    if isinstance(baseline, Evaluation):
        from uqeval.evaluation.unpaired import same_rows  # few gates have a baseline

        return same_rows(ev, baseline) == "files"
    if ev.source is None:
        return False
    mine = ev.source.pred
    names = ("labels", "probs", "logits", "members", "member_logits", "alpha", "soft_labels", "pred", "error", "loss")
    pairs = [(getattr(mine, name), getattr(baseline, name)) for name in (*names, "weights")]
    pairs += [(mine.scores.get(name), baseline.scores.get(name)) for name in {*mine.scores, *baseline.scores}]
    return mine.classes == baseline.classes and all(
        (a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs
    )
