"""Differences between scores inside each group, and whether they are the same in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from uqeval._errors import notify
from uqeval.distributed.plan.by_cluster import clusters_of
from uqeval.distributed.plan.by_group import MOST_TESTED, group_order, samples_of, shuffle_groups
from uqeval.distributed.plan.columns import Rows
from uqeval.distributed.plan.paired import ALIKE, Found, Summed, pairs_of_run
from uqeval.distributed.plan.run import Run
from uqeval.inference.multiplicity import heterogeneity
from uqeval.inference.paired import Contrast, contrast, joint_of_samples, rank_alike

__all__ = ["PairsOfGroup", "pairs_by_group", "same_everywhere"]

_MOST_NAMED = 20  # groups of a single row


@dataclass(frozen=True)
class PairsOfGroup:
    """The rows of a group → values, covariance, contrasts and clusters, as `uqeval.compare` has them."""

    metric: str
    scores: int
    pairs: tuple[tuple[int, int], ...]

    def __call__(self, rows: Rows) -> list[Any]:
        clusters = clusters_of(rows) if "k0" in rows else None
        samples = samples_of(rows, self.scores, self.metric, clusters)
        joint = joint_of_samples(self.metric, samples)
        covariances = [part.units @ part.units.T for part in joint.parts]
        contrasts = []
        for a, b in self.pairs:
            c = contrast(joint, covariances, a, b)
            if np.isnan(c.se) and c.difference == 0 and rank_alike(samples[a], samples[b]):
                c = ALIKE
            contrasts.append([*map(float, c[:5]), bool(c.close)])
        total = np.sum(covariances, axis=0)
        return [joint.values.tolist(), total.tolist(), contrasts, 0 if clusters is None else int(clusters.max()) + 1]


def _unpacked(state: list[Any]) -> Found:
    values, total, contrasts, clusters = state
    joint = Summed(np.array(values, dtype=np.float64), (), np.array(total, dtype=np.float64))
    return Found(joint, [Contrast(*c) for c in contrasts], clusters)


def pairs_by_group(run: Run, metric: str, pairs: list[tuple[int, int]], clusters: int) -> tuple[dict[str, Found], bool]:
    """What was found in each group of two rows or more, in order; and whether the groups can be tested together.

    `clusters` are those of all rows: where the groups have more, some cluster spans several.
    """
    counts: dict[str, int] = run.state["groups"]
    names = group_order(run)
    states = shuffle_groups(run, names, PairsOfGroup(metric, len(run.names), tuple(pairs)))
    found, single = {}, []
    for name in names:
        if counts[name] < 2:
            single.append(name)
        elif name in states:
            found[name] = _unpacked(states[name])
        else:  # too large to be finished in memory
            found[name] = pairs_of_run(run.narrowed(name), metric, pairs)
    for name in single[:_MOST_NAMED]:
        notify(f"group {name!r} has a single row and is left out")
    if len(single) > _MOST_NAMED:
        notify(f"{len(single) - _MOST_NAMED} more groups have a single row and are left out")
    if run.prepare.cluster is not None and sum(one.clusters for one in found.values()) + len(single) > clusters:
        notify("clusters span several groups: no test across groups")
        return found, False
    if len(found) > MOST_TESTED:  # the test solves a system of that size
        notify(f"more than {MOST_TESTED:,} groups: no test across groups")
        return found, False
    return found, True


def same_everywhere(found: list[Found], place: int) -> float | None:
    """p-value of the hypothesis that the difference of a pair is the same in all groups; None where fewer than two."""
    contrasts = [one.contrasts[place] for one in found if one.contrasts[place].se > 0]
    if len(contrasts) < 2:
        return None
    differences = np.array([c.difference for c in contrasts])
    return heterogeneity(differences, np.diag([c.se**2 for c in contrasts]), min(1e9, *(c.df for c in contrasts))).p
