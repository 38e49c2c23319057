"""A threshold and the groups of its rows: a test for every group at once, and what was seen in each.

"The risk below t is above the target in at least one group" is a union of hypotheses, one per group. It is rejected
where each of them is, so that its p-value is the largest of theirs, with nothing to divide by the number of groups (an
intersection-union test: Berger 1982). Over thresholds those p-values are walked through as any others are (`walks`).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float
from uqeval._errors import notify
from uqeval.decide import bounds
from uqeval.decide.calibration import Calibration
from uqeval.decide.outcome import Outcome
from uqeval.decide.results import GroupRisk

_NAMED = 5  # groups in a message


@dataclass
class EachGroup(Calibration):
    """Rows of which every group must keep the risk: candidates are those of all rows."""

    parts: tuple[Calibration, ...] = ()

    @property
    def counts(self) -> bool:
        """A largest p-value is that of no single number of errors."""
        return False

    def best_p(self, thresholds: Float, max_risk: float, *, copies: float = 1.0) -> Float:
        """The largest of the groups'."""
        return self._largest(thresholds, lambda part: part.best_p(thresholds, max_risk, copies=copies))

    def p_values(self, thresholds: Float, max_risk: float, *, joint: bool = False, copies: float = 1.0) -> Float:
        """The largest of the groups': of "in some group the risk is above max_risk"."""
        return self._largest(thresholds, lambda part: part.p_values(thresholds, max_risk, joint=joint, copies=copies))

    def hopeful(self, thresholds: Float, max_risk: float, joint: bool) -> NDArray[np.bool_]:
        """Whether it is in every group."""
        found = np.ones(len(thresholds), dtype=np.bool_)
        for part in self.parts:
            found &= part.hopeful(thresholds, max_risk, joint) if part.n else False
        return found

    def _largest(self, thresholds: Float, p_of: Callable[[Calibration], Float]) -> Float:
        found = np.zeros(len(thresholds))
        for part in self.parts:
            found = np.maximum(found, p_of(part) if part.n else 1.0)
        return found


def in_each_group(cal: Calibration, groups: int, rng: np.random.Generator | None) -> EachGroup:
    """The rows with a part for each group; where `rng` is given, with a random row of each of its clusters."""
    parts = [part if rng is None or not part.n else part.one_row_per_cluster(rng) for part in _parts(cal, groups)]
    whole: dict[str, Any] = {f.name: getattr(cal, f.name) for f in fields(cal)}
    return EachGroup(**whole, parts=tuple(parts))


def _parts(cal: Calibration, groups: int) -> list[Calibration]:
    return [cal.take(np.flatnonzero(cal.groups == code)) for code in range(groups)]


def too_small(tested: Calibration, names: tuple[str, ...], delta: float, max_risk: float) -> None:
    """Names the groups that no threshold can be certified for, whatever their errors are."""
    assert isinstance(tested, EachGroup)
    small = []
    for name, part in zip(names, tested.parts, strict=True):
        best = part.best_p(part.grid(), max_risk).min() if part.n else 1.0
        if best > delta:
            units = "rows" if part.clusters is None else "clusters"
            few = part.clusters is not None and part.n_units < bounds.FEW_CLUSTERS
            small.append(f"{name} ({part.n_units:,} {units}{f', at least {bounds.FEW_CLUSTERS} are needed' * few})")
    if small:
        more = f" and {len(small) - _NAMED} more" if len(small) > _NAMED else ""
        notify(
            f"Too small to be certified even without an error: {', '.join(small[:_NAMED])}{more}. Label more, "
            f"or leave their rows out: nothing is then promised there."
        )


def seen_by_group(
    cal: Calibration,
    names: tuple[str, ...],
    value: float,
    max_risk: float,
    outcomes: Callable[[Calibration, float], tuple[Outcome, Outcome]],
    level: float,
) -> tuple[GroupRisk, ...]:
    """Coverage and risk in each group that has rows, with intervals, each of which holds by itself."""
    return tuple(
        _seen(part, name, value, max_risk, *outcomes(part, value), level, len(names))
        for name, part in zip(names, _parts(cal, len(names)), strict=True)
        if part.n
    )


def _seen(
    part: Calibration, name: str, value: float, max_risk: float, covered: Outcome, risk: Outcome, level: float, m: int
) -> GroupRisk:
    inside = part.score <= value
    bad = float(part.loss[inside].sum())
    low, high = risk.interval(1 - (1 - level) / m) if len(risk.losses) else (0.0, 1.0)  # for all groups at once
    return GroupRisk(
        group=name,
        n=part.n,
        n_accepted=int(inside.sum()),
        errors_accepted=int(bad) if part.binary else bad,
        n_clusters=None if part.cluster_rows is None else part.n_units,
        coverage=covered.estimate(level),
        risk=risk.estimate(level),
        verdict="below" if high <= max_risk else "above" if low > max_risk else "unclear",
    )
