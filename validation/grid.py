"""Which cells are run. The laws and designs for tuning and those for confirming were chosen before any run.

Whoever changes a method may look at the tuning cells as often as they like. The confirming ones are for a final run:
a method that was changed after a look at them needs laws that are new again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from validation import files, laws
from validation.designs import DESIGNS
from validation.laws import Population


@dataclass(frozen=True)
class Kept:
    """Laws and designs of one kind, and since when they are written down."""

    date: str
    laws: tuple[str, ...]
    designs: tuple[str, ...]


TUNING = Kept(
    "2026-11-18",
    ("binormal", "exponential", "atoms", "random rows"),
    (
        "plain",
        "oversampled",
        "lognormal weights",
        "poisson clusters",
        "informative sizes",
        "weighted clusters",
        "wrong patients of 20",
    ),
)
CONFIRMING = Kept(
    "2026-11-18",
    ("t3", "gamma", "beta", "inverted subgroup", *(files.PREFIX + name for name in files.NETWORKS)),
    ("plain", "falling weights", "pareto weights", "lognormal clusters", "giant cluster", "weighted uneven clusters"),
)
# Methods that were changed after a look at their confirming cells: those are for tuning then, and new laws confirm.
AGAIN = Kept(
    "2026-11-18", ("laplace", "unequal normal"), (*CONFIRMING.designs, "geometric clusters", "two large clusters")
)
THIRD = Kept("2026-11-18", ("weibull", "contaminated normal"), AGAIN.designs)
FOURTH = Kept("2026-11-19", ("gumbel", "confident errors"), (*AGAIN.designs, "two weights"))
# The last one confirms.
SEEN = {
    "ood": (AGAIN, FOURTH),
    "groups": (AGAIN,),
    "compare": (AGAIN, THIRD, FOURTH),
    "ranking": (THIRD, FOURTH),
    "calibration": (FOURTH,),
}
KEPT = ("tuning", "confirming")


def kept_of(promise: str, law: str) -> str:
    """Whether a law is for tuning this promise or for confirming it."""
    return "confirming" if law in (CONFIRMING, *SEEN.get(promise, ()))[-1].laws else "tuning"


ACCURACIES = (0.6, 0.8, 0.9, 0.97, 0.99)
AUCS = (0.6, 0.8, 0.9, 0.98)
SIZES = (50, 200, 1000, 10_000)


@dataclass(frozen=True)
class Cell:
    """One promise on one law and design: so many samples of n rows. Accuracy and AUC of a file are its own."""

    promise: str
    law: str
    design: str
    accuracy: float | None
    auc: float | None
    n: int
    variant: str
    reps: int

    @property
    def population(self) -> Population:
        if self.accuracy is None or self.auc is None:
            return files.read(self.law)
        return laws.population(self.law, self.accuracy, self.auc)

    @property
    def kept(self) -> str:
        """For tuning or for confirming."""
        return kept_of(self.promise, self.law)

    def key(self) -> dict[str, object]:
        """What its samples depend on: not their number, so that a quick run sees the first samples of a full one."""
        return {name: value for name, value in vars(self).items() if name != "reps"}


@dataclass(frozen=True)
class Plan:
    """Cells of one promise: which designs, accuracies, AUCs (each with its variants), sizes, and samples of each size,
    in full and quick."""

    promise: str
    kinds: tuple[str, ...]
    accuracies: tuple[float, ...]
    aucs: tuple[tuple[float, str], ...]  # with the variant
    reps: dict[int, tuple[int, int]]  # by n: full, quick
    laws: tuple[str, ...] | None = None  # where the law does not matter: these alone
    quick: int = 5  # of the pairs of accuracy and AUC, how many in a quick run
    of_file: tuple[str, ...] = ("",)  # variants where accuracy and AUC are a file's own


_ALL = ("plain", "weights", "clusters", "both")
_ANY = tuple((auc, "") for auc in AUCS)
PLANS = (
    Plan("ranking", _ALL, ACCURACIES, _ANY, {50: (4000, 300), 200: (4000, 300), 1000: (2000, 200), 10_000: (500, 80)}),
    Plan(
        "calibration",
        _ALL,
        ACCURACIES,
        _ANY,
        {50: (1000, 200), 200: (1000, 200), 1000: (500, 150), 10_000: (200, 0)},
        quick=2,
    ),
    Plan("ood", ("plain",), (0.9,), _ANY, {50: (2000, 150), 200: (2000, 150), 1000: (1000, 60), 10_000: (200, 0)}),
    Plan(
        "groups",
        ("plain", "clusters"),
        (0.8, 0.9, 0.97),
        tuple(product((0.8, 0.98), ("3", "10"))),
        {200: (2000, 200), 1000: (1000, 200), 10_000: (200, 0)},
        quick=2,
        of_file=("3", "10"),
    ),
    Plan(
        "compare",
        _ALL,
        (0.6, 0.9, 0.97),
        ((0.6, "0.58"), (0.8, "0.74"), (0.98, "0.884")),  # the variant is the AUC of the worse score
        {50: (2000, 200), 200: (2000, 200), 1000: (1000, 150), 10_000: (200, 0)},
        quick=2,
    ),
    Plan("family", ("plain", "clusters"), (0.8, 0.97), ((0.8, ""),), {200: (1000, 80), 1000: (500, 80)}, quick=1),
    Plan(
        "threshold",
        (*_ALL, "extreme"),
        (0.8, 0.9, 0.97),
        ((0.5, "flat"), (0.8, "half"), (0.98, "half")),
        {200: (2000, 200), 1000: (1000, 200), 10_000: (200, 0)},
        quick=2,
        of_file=("half",),
    ),
    Plan(
        "monitor",
        ("plain",),
        (0.9, 0.95, 0.98),
        ((0.5, "20"), (0.5, "200")),
        {20_000: (1000, 100)},
        ("binormal",),
        quick=2,
    ),
    Plan(
        "bands",
        ("plain", "clusters"),
        (0.8, 0.97),
        ((0.8, ""), (0.98, "")),
        {200: (1000, 150), 1000: (1000, 150), 10_000: (200, 0)},
        quick=2,
    ),
    Plan("dominance", ("plain", "clusters"), (0.8, 0.97), ((0.8, ""),), {200: (500, 40), 1000: (300, 40)}, quick=1),
)


def cells(which: str = "all", *, quick: bool = False, only: Sequence[str] = ()) -> list[Cell]:
    """All cells of the laws for tuning, for confirming, or of both; `only` some promises."""
    found = (cell for plan in PLANS if not only or plan.promise in only for cell in _planned(plan, quick))
    return [cell for cell in found if which in ("all", cell.kept)]


def _planned(plan: Plan, quick: bool) -> Iterator[Cell]:
    for kept in (TUNING, CONFIRMING, *SEEN.get(plan.promise, ())):
        for law, design, n in product(kept.laws, _designs(kept, plan), plan.reps):
            if plan.laws is not None and law not in plan.laws:
                continue
            reps = plan.reps[n][quick]
            part = random.Random(f"{plan.promise}/{law}/{design}/{n}") if quick else None
            for accuracy, (auc, variant) in _settings(plan, law, part):
                if reps:
                    yield Cell(plan.promise, law, design, accuracy, auc, n, variant, reps)


def _designs(kept: Kept, plan: Plan) -> list[str]:
    return [name for name in kept.designs if DESIGNS[name].kind in plan.kinds]


def _settings(plan: Plan, law: str, rng: random.Random | None) -> list[tuple[float | None, tuple[float | None, str]]]:
    """Pairs of accuracy and AUC. In a quick run a few, always the same, in which no accuracy and no AUC comes again
    before all others came."""
    if law.startswith(files.PREFIX):
        return [(None, (None, variant)) for variant in plan.of_file]
    pairs = list(product(plan.accuracies, plan.aucs))
    if rng is None:
        return list(pairs)
    accuracies, aucs = (rng.sample(x, len(x)) for x in (plan.accuracies, plan.aucs))
    picked = [(accuracies[k % len(accuracies)], aucs[k % len(aucs)]) for k in range(plan.quick)]
    return [pair for pair in pairs if pair in picked]


def skipped(which: str) -> list[str]:
    """What cannot be run here, and why."""
    reason = files.missing()
    return [reason] if reason is not None and which != "tuning" else []
