"""What the paper says of labels without noise: that both risks are one, and that both metrics want the same scores."""

from typing import Any

import numpy as np

from uqeval.reproduce.theorems import populations as pop
from uqeval.reproduce.theorems.populations import Population

_POINTS = 5
_EPS = 1e-12


def no_noise(rng: np.random.Generator, count: int) -> tuple[str, dict[str, Any]]:
    ranks = pop.orderings(_POINTS)
    same = both = alone = 0
    by_auc: list[int] = []
    for _ in range(count):
        p = _certain(rng)
        same += bool((p.phi == p.misaligned).all())
        auc, c_index = (values >= values.max() - _EPS for values in (pop.auc(p, ranks), pop.c_index(p, ranks)))
        both += bool(auc[c_index].all())
        alone += int(c_index.sum()) == 1
        by_auc.append(int(auc.sum()))
    found = {"same": same, "both": both, "alone": alone, "fewest": min(by_auc), "most": max(by_auc)}
    if not same == both == count:
        return "fails", found
    return "holds" if max(by_auc) == 1 else "holds in part", found


def _certain(rng: np.random.Generator) -> Population:
    """A population of inputs with one possible label each; some predictions are right and some wrong."""
    p = pop.draw(rng, _POINTS, 2)
    wrong = np.arange(_POINTS) < rng.integers(1, _POINTS)
    truth = np.eye(2)[np.where(wrong, p.probs.argmin(axis=1), p.probs.argmax(axis=1))]
    return Population(p.mass, truth, p.probs)
