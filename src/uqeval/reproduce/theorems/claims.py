"""The paper's claims, one function each: tried on random populations, with counter-examples where they fail.

A function takes a random generator and how many populations to draw, and returns its verdict and its numbers, then what
else its sentences show. The sentences are in `claims.toml`.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import metrics, scores
from uqeval._check import Float
from uqeval._result import Result, to_json
from uqeval.inputs.softmax import softmax
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.synthetic.temperature import ten_classes
from uqeval.reproduce.theorems import populations as pop
from uqeval.reproduce.theorems.noiseless import no_noise as no_noise
from uqeval.reproduce.theorems.populations import MANY, Population, drawn, mixed, two_classes
from uqeval.reproduce.theorems.printed import table as table

Rng = np.random.Generator
Numbers = dict[str, Any]
_EPS = 1e-12
_POINTS = 5  # inputs of a population whose 541 rankings are all tried


@dataclass(frozen=True)
class Check(Result):
    """One claim of the paper and what became of it."""

    name: str
    where: str  # in the paper
    claim: str
    verdict: str  # "holds", "holds in part" or "fails"
    found: tuple[str, ...]  # in words, with the numbers that matter
    truth: str  # what may be relied on
    scope: str  # "inside" that of the paper, two classes and one predictor, or "outside" of it
    numbers: Numbers = field(repr=False)

    @property
    def evidence(self) -> str:
        """The numbers as text."""
        return to_json(self.numbers)


def check(words: dict[str, Any], rng: Rng, count: int) -> Check:
    """Tries the claim of these words, an entry of `CLAIMS`."""
    verdict, numbers, *more = globals()[words["name"]](rng, count)
    counts = {key: _of(n, count) for key, n in numbers.items() if isinstance(n, int)}
    shown = numbers | (more[0] if more else {}) | {"count": count, "of": counts}
    found = tuple(sentence.format(**shown) for sentence in words["found"])
    return Check(words["name"], words["where"], words["claim"], verdict, found, words["relied"], _scope(words), numbers)


def _scope(words: dict[str, Any]) -> str:
    return "outside" if words.get("outside") else "inside"


def _of(count: int, total: int) -> str:
    return f"all {total}" if count == total else f"{count} of {total}"


def _rises(values: Float, strictly: bool = True) -> bool:
    steps = np.diff(values)
    return bool((steps > _EPS).all() if strictly else (steps > -_EPS).all())


# ---- sub-level sets --------------------------------------------------------------------------------------------


def nested_phi(rng: Rng, count: int) -> tuple[str, Numbers]:
    rising = alike = 0
    for p in drawn(rng, count, MANY, 2):
        _, risk = pop.coverages(p, p.phi, p.phi)
        _, other = pop.coverages(p, np.exp(3 * p.phi) - 7, p.phi)
        rising += _rises(risk)
        alike += bool(np.allclose(risk, other, rtol=0, atol=_EPS))
    below, jump = atomic_law()
    found = {"rising": rising, "equivalent": alike, "attained": below, "next": jump}
    return "holds in part" if rising == alike == count else "fails", found


def atomic_law() -> tuple[float, float]:
    """Error probability U[0, 0.3) with chance ½, else 0.6; a score that equals it, but is 0.3 where that is 0.6.

    The risk that {error probability ≤ 0.3} attains, and the lowest risk of {score ≤ t} at and above t = 0.3: the score
    orders inputs alike almost surely, and no t gives the former.
    """
    first, second = (0.5, 0.15), (0.5, 0.6)  # mass and mean error probability of both parts
    whole = first[0] * first[1] + second[0] * second[1]
    return first[1], whole


def equal_sets(rng: Rng, count: int) -> tuple[str, Numbers]:
    same = 0
    for _ in range(count):
        score = rng.integers(0, 5, size=MANY)  # with ties
        same += _sets(score) == _sets(10 * np.arctan(score - 2.0))
    return "holds in part" if same == count else "fails", {"same": same}


def _sets(score: NDArray[Any]) -> set[tuple[bool, ...]]:
    return {tuple((score <= t).tolist()) for t in np.unique(score)}


def nested_varphi(rng: Rng, count: int) -> tuple[str, Numbers, Numbers]:
    rising = zero = 0
    for p in mixed(rng, count, 2):
        risk = _misaligned_share(p)
        above = np.unique(p.varphi) > 0.5
        zero += bool((risk[~above] == 0).all())
        rising += _rises(risk[above]) and _rises(risk, strictly=False)
    verdict = "holds in part" if rising == zero == count else "fails"
    return verdict, {"rising": rising, "zero_below_half": zero}, {"both": _of(min(zero, rising), count)}


def nested_many(rng: Rng, count: int) -> tuple[str, Numbers]:
    three = sum(not _rises(_misaligned_share(p), strictly=False) for p in mixed(rng, count, 3))
    example = _misaligned_share(_by_hand())
    return "holds" if _rises(example, strictly=False) else "fails", {"falls": three, "example": example.tolist()}


def _by_hand() -> Population:
    """Three inputs of three classes: aligned, misaligned, aligned, as the misalignment grows."""
    probs = np.array([[0.9, 0.05, 0.05], [0.45, 0.55, 0.0], [0.4, 0.3, 0.3]])
    return Population(np.array([0.5, 0.2, 0.3]), np.tile([0.8, 0.1, 0.1], (3, 1)), probs)


def _misaligned_share(p: Population) -> Float:
    return pop.coverages(p, p.varphi, p.misaligned.astype(float))[1]


def coverage(rng: Rng, count: int) -> tuple[str, Numbers, Numbers]:
    worst = 0.0
    for p in drawn(rng, count, MANY, 3):
        score = rng.integers(0, 5, size=MANY)
        for bad in (p.phi, p.misaligned.astype(float)):  # of the label, and of the Bayes class
            for t, mass, risk in zip(np.unique(score), *pop.coverages(p, score, bad), strict=True):
                # {prediction} where accepted, all classes elsewhere: inside unless an accepted one is wrong.
                inside = float((p.mass * np.where(score <= t, 1 - bad, 1.0)).sum())
                worst = max(worst, abs(inside - (1 - risk * mass)))
    found = {"largest_error": worst, "example": 1 - 0.0231 * 0.370}
    exact = worst < _EPS
    return "fails" if exact else "holds in part", found, {"exactly": "to 1e-12 in" if exact else "but not in"}


# ---- what maximises the metrics --------------------------------------------------------------------------------


def _maximised(
    rng: Rng, count: int, metric: Callable[[Population, NDArray[Any]], Float], of: Callable[[Population], Any]
) -> Numbers:
    """In how many populations a truth attains the maximum, how often alone, and how far the formula of its loss is off.

    `of` gives the truth and the chances that the formula is made of.
    """
    ranks = pop.orderings(_POINTS)
    best = alone = 0
    worst = 0.0
    for p in drawn(rng, count, _POINTS, 2):
        true, below = of(p)
        found, top = metric(p, ranks), float(metric(p, true))
        best += bool(found.max() <= top + _EPS)
        alone += int((found >= top - _EPS).sum()) == 1
        worst = max(worst, float(np.abs(top - found - pop.regret(p, below, true, ranks)).max()))
    return {"best": best, "alone": alone, "regret_error": worst}


def _equal(error: float) -> Numbers:
    return {"equal": "equal to 1e-12" if error < _EPS else "not equal"}


def uq_auc(rng: Rng, count: int) -> tuple[str, Numbers, Numbers]:
    found = _maximised(rng, count, pop.auc, lambda p: (p.phi, p.mistakes()))
    tied = 0
    for p in drawn(rng, count, _POINTS, 2):
        p.truth[1], p.probs[1] = p.truth[0], p.probs[0]  # two inputs with one ϕ
        values = pop.auc(p, pop.orderings(_POINTS))
        tied += int((values >= values.max() - _EPS).sum()) == 3
    perfect = float(pop.auc(two_classes([0.25] * 4, [0.0, 0.0, 1.0, 1.0]), np.array([0.1, 0.2, 0.7, 0.9])))
    verdict = "holds in part" if found["best"] == count and found["regret_error"] < _EPS else "fails"
    return verdict, found | {"tied_refinements": tied, "example": perfect}, _equal(found["regret_error"])


def literal(rng: Rng, count: int) -> tuple[str, Numbers]:
    ones = 0
    for p in drawn(rng, count, _POINTS, 2):
        ones += abs(_as_typed(p.phi, p.mass, np.zeros(_POINTS)) - 1) < _EPS
    # A perfect score without ties at ACC = 0.9, as many steps as needed: (0.81/2 + 0.09 + 0.01/2) / 0.91.
    return "fails", {"constant_gets_one": int(ones), "perfect": (0.81 / 2 + 0.09 + 0.01 / 2) / 0.91}


def _as_typed(phi: Float, mass: Float, score: Float) -> float:
    """P(S ≤ S' | V ≤ V')."""
    pairs = np.outer(mass, mass) * (1 - np.outer(phi, 1 - phi))
    return float((pairs * (score[:, None] <= score[None, :])).sum() / pairs.sum())


def phi_optimal(rng: Rng, count: int) -> tuple[str, Numbers]:
    largest = sum(_largest(p, p.phi, p.phi) for p in drawn(rng, count, MANY, 2))
    return "holds in part" if largest == count else "fails", {"largest": largest}


def _largest(p: Population, score: Float, bad: Float, least: float = -np.inf) -> bool:
    """Whether no set of inputs has more mass and no more risk than a sub-level set, thresholds from `least` on."""
    sets = pop.subsets(len(p.mass))
    mass = sets @ p.mass
    risk = sets @ (p.mass * bad) / mass
    for t, own, limit in zip(np.unique(score), *pop.coverages(p, score, bad), strict=True):
        if t >= least and mass[risk <= limit + _EPS].max() > own + _EPS:
            return False
    return True


def uq_c_index(rng: Rng, count: int) -> tuple[str, Numbers, Numbers]:
    found = _maximised(rng, count, pop.c_index, lambda p: (p.varphi, p.gaps()))
    even = Population(np.array([0.5, 0.5]), np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([[0.7, 0.3], [0.6, 0.4]]))
    holds = found["best"] == found["alone"] == count and found["regret_error"] < _EPS
    found["even"] = pop.c_index(even, pop.orderings(2)).tolist()
    return "holds in part" if holds else "fails", found, _equal(found["regret_error"])


def ood(rng: Rng, count: int) -> tuple[str, Numbers]:
    # V = 1 for an input from elsewhere: P(V = 1 | x) is what the error probability is for mistakes.
    ranks, best = pop.orderings(_POINTS), 0
    for _ in range(count):
        p = two_classes(rng.dirichlet(np.full(_POINTS, 3.0)).tolist(), rng.random(_POINTS).tolist())
        best += bool(pop.auc(p, ranks).max() <= pop.auc(p, p.phi) + _EPS)
    return "holds in part" if best == count else "fails", {"best": best}


def calibration(_: Rng, __: int) -> tuple[str, Numbers]:
    found = float(np.abs(calibrated_pair(1000)).max())
    return "fails" if found < _EPS else "holds", {"largest_error": found, "mean_difference": 1 / 3}


def calibrated_pair(steps: int) -> Float:
    """(2, steps): P(correct | A = a) − a, and the same of B, where A + B > 1 is correct, on a grid of equal cells.

    On the diagonal A + B = 1 half of a cell is correct.
    """
    a = (np.arange(steps) + 0.5) / steps
    cells = a[:, None] + a[None, :] - 1
    correct = np.where(np.abs(cells) < 0.5 / steps, 0.5, cells > 0)
    return np.stack([correct.mean(axis=1) - a, correct.mean(axis=0) - a])


def many_classes(rng: Rng, count: int) -> tuple[str, Numbers, Numbers]:
    ranks = pop.orderings(4)
    shares: dict[str, float] = {}
    gaps: dict[str, float] = {}
    for kind, noise, classes in (
        *((f"unrelated_{k}", None, k) for k in (3, 5, 10)),
        *((f"noisy_{k}", 0.5, k) for k in (3, 10)),
    ):
        lost = [
            float(pop.c_index(p, ranks).max() - pop.c_index(p, p.varphi)) for p in drawn(rng, count, 4, classes, noise)
        ]
        shares[kind], gaps[kind] = sum(gap > _EPS for gap in lost) / count, max(lost)
    truth, probs = [[0.55, 0.0, 0.45], [0.55, 0.45, 0.0]], [[0.50, 0.48, 0.02], [0.45, 0.55, 0.0]]
    p = Population(np.array([0.5, 0.5]), np.array(truth), np.array(probs))
    dice = Population(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), np.array([[2, 7, 6], [4, 3, 8], [9, 5, 1]]) / 15)
    found = {"varphi": float(pop.c_index(p, p.varphi)), "reversed": float(pop.c_index(p, -p.varphi))}
    found |= {"not_optimal": shares, "largest_loss": gaps}  # type: ignore[dict-item]
    circle = [float(dice.gaps()[(i + 1) % 3, i]) for i in range(3)]  # P(the next has the smaller Δ)
    return "fails", found | {"circle": circle}, {"most": max(gaps.values())}


def varphi_optimal(rng: Rng, count: int) -> tuple[str, Numbers]:
    largest = any_score = 0
    for p in mixed(rng, count, 2):
        bad = p.misaligned.astype(float)
        largest += _largest_of(p)
        any_score += _largest(p, bad + 0.5 * bad * rng.random(MANY), bad)
    found = {"largest": largest, "separating_scores": any_score}
    return "holds in part" if largest == any_score == count else "fails", found


def varphi_optimal_many(rng: Rng, count: int) -> tuple[str, Numbers]:
    three = sum(not _largest_of(p) for p in mixed(rng, count, 3))
    return "holds" if _largest_of(_by_hand()) else "fails", {"not_largest": three}


def _largest_of(p: Population) -> bool:
    return _largest(p, p.varphi, p.misaligned.astype(float), least=p.varphi[p.misaligned].min())


# ---- other metrics, scaling, the table ---------------------------------------------------------------------------


def self_reference(rng: Rng, _: int) -> tuple[str, Numbers]:
    # ϕ ~ Beta(1, 9) and a confidence that is pure noise. E|ϕ − ϕ'| = 2∫F(1 − F) = 2·(1/10 − 1/19).
    e, spread = 0.1, 2 * (1 / 10 - 1 / 19)
    auc = 0.5 + spread / (4 * e * (1 - e))
    exact = {"auc": 0.5, "c_index": 1 - e, "phi_auc": auc, "phi_c_index": 0.5 + 2 * e * (1 - e) * (auc - 0.5)}
    n = 20_000
    phi, top = rng.beta(1, 9, size=n), rng.uniform(0.5, 1, size=n)
    error = (rng.random(n) < phi).astype(np.uint8)
    gap = np.where(error == 1, top, 1 - top)
    seen = {"auc": metrics.uq_auc(1 - top, error), "c_index": metrics.uq_c_index(1 - top, gap)}
    seen |= {"phi_auc": metrics.uq_auc(phi, error), "phi_c_index": metrics.uq_c_index(phi, gap)}
    return "holds in part", {"exact": exact, "seen": seen}


def lemma(rng: Rng, count: int) -> tuple[str, Numbers, Numbers]:
    worst = 0.0
    ranks = pop.orderings(_POINTS)
    for p in drawn(rng, count, _POINTS, 2):
        formula = p.error**2 + 2 * (1 - pop.auc(p, ranks)) * p.error * (1 - p.error)
        worst = max(worst, float(np.abs(pop.g_auc(p, ranks) - formula).max()))
    total = twice = h_equal = geifman = 0
    for n in range(2, 10):
        for bits in itertools.product((0, 1), repeat=n):
            if not 0 < sum(bits) < n:
                continue
            order, error = np.arange(n), np.array(bits, dtype=np.uint8)
            rate, auc = float(error.mean()), metrics.uq_auc(order, error)
            formula_g = rate**2 + 2 * (1 - auc) * rate * (1 - rate)
            total += 1
            twice += abs(2 * metrics.augrc(order, error) - formula_g) < _EPS
            h_equal += abs(metrics.h_auc(order, error) - auc * rate * (1 - rate)) < _EPS
            geifman += abs(metrics.aurc(order, error) - formula_g) < _EPS
    found = {"formula_error": worst, "rankings": total, "augrc": twice, "h_auc": h_equal, "aurc": geifman}
    words = {
        "exactly": "to 1e-12" if worst < _EPS else "not",
        "twice": _of(twice, total),
        "h_equal": _of(h_equal, total),
    }
    return "holds in part" if worst < _EPS and twice == h_equal == total else "fails", found, words


def aurc(rng: Rng, count: int) -> tuple[str, Numbers]:
    ranks = pop.orderings(_POINTS)
    tried = drawn(rng, count, _POINTS, 2)
    best = sum(bool(pop.aurc(p, p.phi) <= pop.aurc(p, ranks).min() + _EPS) for p in tried)
    rows = {f"{n}: {a}, {b}": _sample(n, (a, b)) for n, a, b in ((4, 1, 4), (4, 2, 3), (5, 1, 5), (5, 2, 3))}
    pairs, inverted = _inversions(7, 3)
    a, b = two_classes([0.05, 0.85, 0.10], [0.30, 0.0, 0.55]), two_classes([0.3, 0.7], [0.0, 0.1])
    whole = [(float(pop.auc(p, np.arange(len(p.mass)))), float(pop.aurc(p, np.arange(len(p.mass))))) for p in (a, b)]
    found = {"rankings": rows, "pairs": pairs, "inverted": inverted, "populations": whole, "phi_is_best": best}
    return "fails" if inverted else "holds", found


def _sample(n: int, wrong: tuple[int, ...]) -> tuple[float, float]:
    """UQ-AUC and AURC of n rows in the score's order, with mistakes at these ranks (from 1)."""
    order = np.arange(1, n + 1)
    error = np.isin(order, wrong).astype(np.uint8)
    return metrics.uq_auc(order, error), metrics.aurc(order, error)


def _inversions(n: int, wrong: int) -> tuple[int, int]:
    values = np.array([_sample(n, chosen) for chosen in itertools.combinations(range(1, n + 1), wrong)])
    i, j = np.triu_indices(len(values), 1)
    auc, area = (values[i] - values[j]).T
    return len(i), int(((auc * area > _EPS) & (np.abs(auc) > _EPS)).sum())  # a better UQ-AUC with a larger AURC


def h_auc(_: Rng, __: int) -> tuple[str, Numbers]:
    worse, better = 0.95 * 0.05 * 0.95, 0.6 * 0.4 * 0.6
    return "fails" if better > worse else "holds", {"good": worse, "bad": better}


def temperature(rng: Rng, count: int) -> tuple[str, Numbers]:
    same = 0
    for _ in range(count):
        margins = np.sort(rng.normal(scale=3, size=MANY))  # of two classes: the score falls with |margin|
        z = np.column_stack([np.zeros(MANY), margins])
        orders = {tuple(np.argsort(softmax(z / t).max(axis=1)).tolist()) for t in (0.5, 1.0, 2.0, 4.0)}
        same += len(orders) == 1
    return "holds" if same == count else "fails", {"same": same}


def temperature_many(rng: Rng, _: int) -> tuple[str, Numbers, Numbers]:
    logits = np.array([[2.0, 0.0, 0.0], [3.0, 2.0, -10.0]])
    tops = {str(t): softmax(logits / t).max(axis=1).tolist() for t in (1, 3)}
    z, labels = ten_classes(rng, 20_000)
    error = (z.argmax(axis=1) != labels).astype(np.uint8)
    aucs = {str(t): metrics.uq_auc(scores.entropy(softmax(z / t)), error) for t in (0.5, 1, 2, 5)}
    turned = (tops["1"][0] - tops["1"][1]) * (tops["3"][0] - tops["3"][1]) < 0
    words = {"tops": [*tops["1"], *tops["3"]], "aucs": list(aucs.values())}
    return "fails" if turned else "holds", {"top": tops, "ten_classes": aucs}, words


CLAIMS: list[dict[str, Any]] = read_table("theorems/claims.toml")["claims"]
