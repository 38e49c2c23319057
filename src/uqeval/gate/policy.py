"""What a gate demands: rules from a TOML file, from a dictionary, or from `uq_auc=0.8` on a command line.

Knows words and numbers only; whether they hold is for `judge`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from uqeval._check import check_choice, check_level, nearest
from uqeval._errors import InputError
from uqeval.metrics.registry import REGISTRY, Metric, get_metric

WORST = "worst"
_KINDS = ("at_least", "at_most", "margin")
_ENDS = ("low", "value", "high")


@contextmanager
def _named(where: str, key: str = "max_risk") -> Iterator[None]:
    """What others say of a value, with the place where it is written, and the name that it has there."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {str(error).replace('`max_risk`', f'`{key}`')}") from None


@dataclass(frozen=True)
class Rule:
    """One demand: a metric of a score (or of the model) on one side of a limit, or no worse than a baseline.

    `on` says which number must keep the limit: the value, or an end of its interval. By default it is the end that is
    harder to pass: "low" where high is good, "high" where low is.
    """

    metric: str | None = None
    score: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    margin: float | None = None  # how much worse than the baseline it may be
    coverage_at_risk: float | None = None  # in place of a metric: the share that is certified to have this risk
    on: str | None = None
    group: str | None = None  # a name, or "worst": all groups must pass
    min_rows: int = 0
    name: str | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str) -> Rule:
        """Checked; `where` is what a message calls it."""
        known = [field.name for field in fields(cls)]
        for key in data:
            if key not in known:
                raise InputError(
                    f"{where} has the key {key!r}, which is not known.{nearest(key, known)} Keys: {', '.join(known)}."
                )
        for key in ("metric", "score", "on", "group", "name"):
            if key in data and not isinstance(data[key], str):
                raise InputError(f"{where}: {key} must be text; it is {data[key]!r}.")
        for key in _KINDS:
            if key in data and (isinstance(data[key], bool) or not isinstance(data[key], int | float)):
                raise InputError(f"{where}: {key} must be a number; it is {data[key]!r}.")
            if key in data and not math.isfinite(data[key]):
                raise InputError(f"{where}: {key} must be finite; it is {data[key]!r}.")
        rule = cls(**{"min_rows": 0} | dict(data))
        rule._check(where)
        return rule

    def _check(self, where: str) -> None:
        if (self.metric is None) == (self.coverage_at_risk is None):
            raise InputError(f"{where} needs either metric or coverage_at_risk. Name one of them.")
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise InputError(f"{where} needs exactly one of {', '.join(_KINDS)}; it has {', '.join(given) or 'none'}.")
        if self.margin is not None and self.margin < 0:
            raise InputError(f"{where}: margin is {self.margin:g}. It must be 0 or more: how much worse it may be.")
        if isinstance(self.min_rows, bool) or not isinstance(self.min_rows, int) or self.min_rows < 0:
            raise InputError(f"{where}: min_rows must be a whole number from 0 on; it is {self.min_rows!r}.")
        if self.on is not None:
            check_choice(f"{where}: on", self.on, _ENDS)
        if self.coverage_at_risk is not None:
            from uqeval.decide.rows import check_target  # few gates certify a share

            with _named(where, "coverage_at_risk"):
                check_target(self.coverage_at_risk)
            if self.at_least is None or self.group is not None:
                raise InputError(f"{where}: coverage_at_risk takes at_least, of all rows. Leave margin and group out.")
            self._check_limit(where, 0.0, 1.0)
            return
        with _named(where):
            known = get_metric(str(self.metric))
        if known.tally == "two sets":
            raise InputError(f"{where}: {known.name} compares two sets of rows, which a gate does not take.")
        if not known.uses_score and self.score is not None:
            raise InputError(f"{where}: {known.name} belongs to the model, not to a score. Leave score out.")
        self._check_limit(where, *known.range)

    def _check_limit(self, where: str, low: float, high: float) -> None:
        """A limit where no number can be is a slip, as 80 for 0.8: all models would pass, or none."""
        kind = next(kind for kind in _KINDS if getattr(self, kind) is not None)
        value = float(getattr(self, kind))
        low, high = (0.0, high - low) if kind == "margin" else (low, high)
        if not low <= value <= high:
            meant = f" Did you mean {value / 100:g}?" if 1 < value <= 100 and high <= 1 else ""
            what = f"{'differences' if kind == 'margin' else 'values'} of {self.metric or 'coverage'}"
            raise InputError(f"{where}: {kind} is {value:g}, but {what} lie in [{low:g}, {high:g}].{meant}")

    @property
    def known(self) -> Metric:
        """The metric's record."""
        return REGISTRY[str(self.metric)]

    @property
    def higher(self) -> bool:
        """Whether the number must be large enough, rather than small enough."""
        if self.margin is None:
            return self.at_least is not None
        return self.known.direction == "higher"

    @property
    def limit(self) -> float:
        """What it must keep; of a margin, the difference from the baseline."""
        if self.margin is not None:
            return 0.0 - self.margin if self.higher else self.margin
        return float(self.at_least if self.at_least is not None else self.at_most)  # type: ignore[arg-type]

    @property
    def end(self) -> str:
        """Which number must keep it."""
        return self.on or ("low" if self.higher else "high")

    @property
    def title(self) -> str:
        """The demand in a few words; its own name where it has one."""
        if self.name is not None:
            return self.name
        what = str(self.metric) if self.coverage_at_risk is None else f"coverage at risk {self.coverage_at_risk:g}"
        what = what if self.score is None else f"{self.score}: {what}"
        group = (
            "" if self.group is None else f" in the {self.group} group" if self.group == WORST else f" [{self.group}]"
        )
        sign = "≥" if self.higher else "≤"
        versus = " − baseline" if self.margin is not None else ""
        end = "" if self.end == "value" else f" ({self.end} end)"
        return f"{what}{versus}{group} {sign} {self.limit:g}{end}"


@dataclass(frozen=True)
class Policy:
    """Rules that must all hold, and the confidence that they are judged with."""

    rules: tuple[Rule, ...]
    level: float = 0.95

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str = "the policy") -> Policy:
        """From what a TOML file holds: `level`, `min_rows` of every rule, and a list of `rule`."""
        known = ("level", "min_rows", "rule")
        for key in data:
            if key not in known:
                raise InputError(
                    f"{where}: the key {key!r} is not known.{nearest(key, known)} "
                    f"There are level, min_rows and [[rule]]."
                )
        items = data.get("rule")
        if not isinstance(items, list | tuple) or not items or not all(isinstance(item, Mapping) for item in items):
            raise InputError(
                f'{where}: there is no rule. Write [[rule]] and below it, as metric = "uq_auc" and at_least = 0.8.'
            )
        least = {"min_rows": data["min_rows"]} if "min_rows" in data else {}
        rules = tuple(Rule.of(least | dict(item), f"{where}: rule {k}") for k, item in enumerate(items, 1))
        with _named(where):
            return cls(rules, check_level(data.get("level", 0.95)))

    @property
    def scores(self) -> list[str] | None:
        """Those that the rules name; None where one leaves it open."""
        wanted = [rule.score for rule in self.rules if rule.coverage_at_risk is not None or rule.known.uses_score]
        return None if None in wanted or not wanted else list(dict.fromkeys(str(name) for name in wanted))

    @property
    def metrics(self) -> list[str]:
        """Those that the rules name."""
        return list(dict.fromkeys(rule.metric for rule in self.rules if rule.metric is not None)) or ["accuracy"]

    @property
    def needs_baseline(self) -> bool:
        """Whether a rule compares with one."""
        return any(rule.margin is not None for rule in self.rules)


def read_policy(source: str | os.PathLike[str] | Mapping[str, Any] | Policy) -> Policy:
    """A policy from a TOML file, or from a dictionary of the same shape.

    Examples
    --------
    >>> policy = read_policy({"rule": [{"metric": "uq_auc", "score": "entropy", "at_least": 0.8}]})
    >>> policy.rules[0].title
    'entropy: uq_auc ≥ 0.8 (low end)'
    """
    if isinstance(source, Policy):
        return source
    if isinstance(source, Mapping):
        return Policy.of(source)
    import tomllib  # limits on a command line need none of it

    path = os.fspath(source)
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file. Pass a policy, rules in TOML.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:  # of TOML, and of UTF-8
        raise InputError(f"{path}: is no TOML ({error}). Pass a policy, rules in TOML.") from None
    except RecursionError:
        raise InputError(f"{path}: is no policy: it is nested too deeply.") from None
    return Policy.of(data, path)


def policy_of_limits(
    under: Sequence[str] = (), over: Sequence[str] = (), *, on: str | None = None, level: float = 0.95
) -> Policy:
    """A policy from texts such as `uq_auc=0.8` or `entropy:uq_auc=0.8`: fail under the limit, or over it.

    Examples
    --------
    >>> [rule.title for rule in policy_of_limits(["entropy:uq_auc=0.8"], ["ece=0.1"], on="value").rules]
    ['entropy: uq_auc ≥ 0.8', 'ece ≤ 0.1']
    """
    rules = [_rule_of(text, "--fail-under", "at_least", on) for text in under]
    rules += [_rule_of(text, "--fail-over", "at_most", on) for text in over]
    return Policy(tuple(rules), check_level(level))


def _rule_of(text: str, option: str, kind: str, on: str | None) -> Rule:
    name, _, limit = text.rpartition("=")
    score, _, metric = name.rpartition(":")
    try:
        number = float(limit)
    except ValueError:
        number = math.nan
    if not metric or math.isnan(number):
        raise InputError(f"{option} takes METRIC=VALUE or SCORE:METRIC=VALUE, as uq_auc=0.8; it is {text!r}.")
    data = {"metric": metric, kind: number} | ({"score": score} if score else {}) | ({"on": on} if on else {})
    rule = Rule.of(data, f"{option} {text}")
    good = "at_least" if rule.known.direction == "higher" else "at_most"
    if kind != good:
        raise InputError(
            f"{option} {text}: {metric} is better when {rule.known.direction}. "
            f"Use {'--fail-under' if good == 'at_least' else '--fail-over'}."
        )
    return rule
