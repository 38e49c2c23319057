"""The paper's theorems, one function each: tried on random populations, with counter-examples where they fail.

A function takes a random generator and how many populations to draw, and returns a `Check`. What the paper says of
other metrics is in `claims_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float
from uqeval.reproduce.theorems import populations as pop
from uqeval.reproduce.theorems.populations import Population
from uqeval.reproduce.theorems.run import Check

__all__ = ["THEOREMS", "drawn", "of", "two_classes"]

Rng = np.random.Generator
_EPS = 1e-12
_POINTS = 5  # inputs of a population whose 541 rankings are all tried
_MANY = 8  # inputs of a population whose 255 sets are all tried


def two_classes(mass: list[float], phi: list[float]) -> Population:
    """A population with these chances of a mistake; the prediction is class 0 throughout."""
    wrong = np.array(phi)
    truth = np.column_stack([1 - wrong, wrong])
    return Population(np.array(mass), truth, np.tile([0.9, 0.1], (len(phi), 1)))


def drawn(rng: Rng, count: int, points: int, classes: int, noise: float | None = None) -> list[Population]:
    return [pop.draw(rng, points, classes, noise) for _ in range(count)]


def _mixed(rng: Rng, count: int, classes: int) -> list[Population]:
    """Populations with aligned and misaligned inputs: the others have one value of misalignment and nothing to show."""
    found: list[Population] = []
    while len(found) < count:
        p = pop.draw(rng, _MANY, classes)
        if 0 < p.misaligned.sum() < _MANY:
            found.append(p)
    return found


def _rises(values: Float, strictly: bool = True) -> bool:
    steps = np.diff(values)
    return bool((steps > _EPS).all() if strictly else (steps > -_EPS).all())


def of(count: int, total: int) -> str:
    return f"all {total}" if count == total else f"{count} of {total}"


# ---- sub-level sets --------------------------------------------------------------------------------------------


def nested_phi(rng: Rng, count: int) -> Check:
    rising = alike = 0
    for p in drawn(rng, count, _MANY, 2):
        _, risk = pop.coverages(p, p.phi, p.phi)
        _, other = pop.coverages(p, np.exp(3 * p.phi) - 7, p.phi)
        rising += _rises(risk)
        alike += bool(np.allclose(risk, other, rtol=0, atol=_EPS))
    found = (
        f"The risk in the sets {{φ ≤ β}} rises strictly with β in {of(rising, count)} populations, and an increasing "
        f"function of φ gives the same risks in {of(alike, count)}.",
        "Its proof says that the risk goes to 0 with β. It goes to the smallest φ, which need not be 0: where labels "
        "are noisy everywhere, no set of inputs has a risk below that.",
    )
    return Check(
        "nested_phi",
        "Theorem 2.1",
        "Scores in 𝓔(φ) have sub-level sets whose misclassification risk can be set to any value attained, by a "
        "strictly increasing threshold.",
        "holds" if rising == alike == count else "fails",
        found,
        "Order inputs by φ, and the risk among the accepted rises with every input let in, from the smallest φ to "
        "1 − ACC. In a finite test set the observed curve need not rise.",
        {"rising": rising, "equivalent": alike},
    )


def equal_sets(rng: Rng, count: int) -> Check:
    same = 0
    for _ in range(count):
        score = rng.integers(0, 5, size=_MANY)  # with ties
        same += _sets(score) == _sets(10 * np.arctan(score - 2.0))
    return Check(
        "equal_sets",
        "Intermediate theorem (appendix)",
        "Two scores that order inputs alike have the same sub-level sets.",
        "holds" if same == count else "fails",
        (f"So they have, in {of(same, count)} random rankings of eight inputs, ties included.",),
        "A threshold of one score can be translated into a threshold of the other.",
        {"same": same},
    )


def _sets(score: NDArray[Any]) -> set[tuple[bool, ...]]:
    return {tuple((score <= t).tolist()) for t in np.unique(score)}


def coverage(rng: Rng, count: int) -> Check:
    worst = 0.0
    for p in drawn(rng, count, _MANY, 3):
        score = rng.integers(0, 5, size=_MANY)
        for t, mass, risk in zip(np.unique(score), *pop.coverages(p, score, p.phi), strict=True):
            # {prediction} where accepted, all classes elsewhere: the label is inside unless an accepted one is wrong.
            inside = float((p.mass * np.where(score <= t, 1 - p.phi, 1.0)).sum())
            worst = max(worst, abs(inside - (1 - risk * mass)))
    example = 1 - 0.0231 * 0.370
    return Check(
        "coverage",
        "After Theorem 2.2",
        "The classifier that answers with the prediction inside the set {s ≤ β} and with all classes outside has "
        "coverage γ, the risk inside the set.",
        "fails" if worst < _EPS else "holds in part",
        (
            f"Its coverage is 1 − γ·P(s ≤ β), {'to 1e-12 in' if worst < _EPS else 'but not in'} all {count} "
            f"populations: with a risk γ = 0.0231 inside a set of mass 0.370 it is {example:.4f}, not 0.0231.",
        ),
        "P(Y ∈ C) = 1 − γ·P(s ≤ β), between ACC and 1.",
        {"largest_error": worst, "example": example},
    )


def nested_varphi(rng: Rng, count: int) -> Check:
    rising = zero = 0
    for p in _mixed(rng, count, 2):
        _, risk = pop.coverages(p, p.varphi, p.misaligned.astype(float))
        above = np.unique(p.varphi) > 0.5
        zero += bool((risk[~above] == 0).all())
        rising += _rises(risk[above]) and _rises(risk, strictly=False)
    three = sum(
        not _rises(pop.coverages(p, p.varphi, p.misaligned.astype(float))[1], strictly=False)
        for p in _mixed(rng, count, 3)
    )
    example = _three_aligned()
    _, risks = pop.coverages(example, example.varphi, example.misaligned.astype(float))
    return Check(
        "nested_varphi",
        "Theorem 2.2",
        "Scores in 𝓔(ϕ) have sub-level sets whose misalignment with the Bayes classifier can be set to any value "
        "attained, by a strictly increasing threshold.",
        "holds in part" if rising == zero == count else "fails",
        (
            f"Two classes: the misalignment is exactly 0 up to β = ½ and rises strictly above it, in "
            f"{of(min(zero, rising), count)} populations.",
            f"Three classes: it falls somewhere in {three} of {count} populations. By hand: ϕ = 0.1 (aligned, mass "
            f"0.5), 0.55 (misaligned, 0.2), 0.6 (aligned, 0.3) has misalignments "
            f"{', '.join(f'{risk:.3f}' for risk in risks)}.",
        ),
        "For two classes, {ϕ ≤ ½} is exactly the set where the prediction is the Bayes class. With more classes a "
        "prediction can be right with ϕ above ½, and the sets of ϕ control nothing.",
        {"rising": rising, "zero_below_half": zero, "falls_with_three_classes": three, "example": risks.tolist()},
    )


def _three_aligned() -> Population:
    truth = np.array([[0.8, 0.1, 0.1], [0.8, 0.1, 0.1], [0.8, 0.1, 0.1]])
    probs = np.array([[0.9, 0.05, 0.05], [0.45, 0.55, 0.0], [0.4, 0.3, 0.3]])
    return Population(np.array([0.5, 0.2, 0.3]), truth, probs)


# ---- what maximises the metrics --------------------------------------------------------------------------------


def uq_auc(rng: Rng, count: int) -> Check:
    ranks = pop.orderings(_POINTS)
    best = alone = 0
    worst = 0.0
    for p in drawn(rng, count, _POINTS, 2):
        found, top = pop.auc(p, ranks), float(pop.auc(p, p.phi))
        best += bool(found.max() <= top + _EPS)
        alone += int((found >= top - _EPS).sum()) == 1
        worst = max(worst, float(np.abs(top - found - pop.regret(p, p.mistakes(), p.phi, ranks)).max()))
    tied = 0
    for p in drawn(rng, count, _POINTS, 2):
        p.truth[1], p.probs[1] = p.truth[0], p.probs[0]  # two inputs with one φ
        found = pop.auc(p, ranks)
        tied += int((found >= found.max() - _EPS).sum()) == 3
    perfect = float(pop.auc(two_classes([0.25] * 4, [0.0, 0.0, 1.0, 1.0]), np.array([0.1, 0.2, 0.7, 0.9])))
    return Check(
        "uq_auc",
        "Theorem 2.3",
        "A score maximises UQ-AUC if and only if it is in 𝓔(φ).",
        "holds in part" if best == count and worst < _EPS else "fails",
        (
            f"φ attains the maximum over all 541 rankings in {of(best, count)} populations, and is the only ranking "
            f"to do so in {of(alone, count)} (no two inputs share a φ there).",
            f"“Only if” fails where φ has ties: with two inputs of equal φ, ranking them either way is as good as "
            f"tying them, in {of(tied, count)} populations. By hand: φ ∈ {{0, 1}} and s = (0.1, 0.2, 0.7, 0.9) has "
            f"UQ-AUC {perfect:.0f} and is not in 𝓔(φ).",
            f"The loss against the maximum is E|φ − φ'|·(discordant + tied/2) / (2·ACC·(1 − ACC)): "
            f"{'equal to 1e-12' if worst < _EPS else 'not equal'} for all rankings of all populations.",
        ),
        "A score is optimal if and only if P((φ − φ')(s − s') ≤ 0, φ ≠ φ') = 0: it must keep φ's order and may break "
        "its ties.",
        {"best": best, "alone": alone, "regret_error": worst, "tied_refinements": tied, "example": perfect},
    )


def literal(rng: Rng, count: int) -> Check:
    ones = 0
    for p in drawn(rng, count, _POINTS, 2):
        ones += abs(_as_typed(p.phi, p.mass, np.zeros(_POINTS)) - 1) < _EPS
    # A perfect score without ties at ACC = 0.9, as many steps as needed: (0.81/2 + 0.09 + 0.01/2) / 0.91.
    perfect = (0.81 / 2 + 0.09 + 0.01 / 2) / 0.91
    return Check(
        "literal",
        "Equations (UQ-AUC), (UQ-C-index)",
        "UQ-AUC = P(s ≤ s' given mis ≤ mis'), with ≤ on both sides.",
        "fails",
        (
            f"Taken literally a constant score gets 1, the maximum, in {of(ones, count)} populations, and a perfect "
            f"score without ties {perfect:.3f} at an accuracy of 0.9.",
        ),
        "What the proofs use, and this library computes: pairs with mis < mis' (Δ < Δ'), tied scores counted as half. "
        "It matters for UQ-C-index too, where a saturated softmax ties Δ.",
        {"constant_gets_one": ones, "perfect": perfect},
    )


def _as_typed(phi: Float, mass: Float, score: Float) -> float:
    """P(S ≤ S' | V ≤ V')."""
    pairs = np.outer(mass, mass) * (1 - np.outer(phi, 1 - phi))
    return float((pairs * (score[:, None] <= score[None, :])).sum() / pairs.sum())


def uq_c_index(rng: Rng, count: int) -> Check:
    ranks = pop.orderings(_POINTS)
    best = alone = 0
    worst = 0.0
    for p in drawn(rng, count, _POINTS, 2):
        found, top = pop.c_index(p, ranks), float(pop.c_index(p, p.varphi))
        best += bool(found.max() <= top + _EPS)
        alone += int((found >= top - _EPS).sum()) == 1
        worst = max(worst, float(np.abs(top - found - pop.regret(p, p.gaps(), p.varphi, ranks)).max()))
    even = Population(np.array([0.5, 0.5]), np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([[0.7, 0.3], [0.6, 0.4]]))
    undecided = pop.c_index(even, pop.orderings(2))
    return Check(
        "uq_c_index",
        "Theorem 2.5, two classes",
        "A score maximises UQ-C-index if and only if it is in 𝓔(ϕ).",
        "holds" if best == alone == count and worst < _EPS else "fails",
        (
            f"ϕ attains the maximum over all 541 rankings in {of(best, count)} populations and is the only ranking to "
            f"do so in {of(alone, count)}.",
            f"The loss against the maximum is E|ρ⁺ − ρ⁻|·(discordant + tied/2) / (2·P(Δ < Δ')), with ρ± the chances "
            f"that Δ is above or below Δ': {'equal to 1e-12' if worst < _EPS else 'not equal'} for all rankings, where "
            f"Δ has no ties.",
            f"It needs P(φ = ½) = 0: where both classes are equally likely every ranking gets "
            f"{undecided.min():.1f}, and ϕ depends on which class is called the Bayes class.",
            "The proof's last display has its inequality reversed (ϕ itself is right), and what it calls the "
            "contraposition is the converse.",
        ),
        "For two classes without ties in Δ, ordering by ϕ is best.",
        {"best": best, "alone": alone, "regret_error": worst, "even": undecided.tolist()},
    )


def many_classes(rng: Rng, count: int) -> Check:
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
    p = Population(
        np.array([0.5, 0.5]),
        np.array([[0.55, 0.0, 0.45], [0.55, 0.45, 0.0]]),
        np.array([[0.50, 0.48, 0.02], [0.45, 0.55, 0.0]]),
    )
    forward, back = float(pop.c_index(p, p.varphi)), float(pop.c_index(p, -p.varphi))
    dice = Population(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), np.array([[2, 7, 6], [4, 3, 8], [9, 5, 1]]) / 15)
    circle = [float(dice.gaps()[(i + 1) % 3, i]) for i in range(3)]  # P(the next has the smaller Δ)
    return Check(
        "many_classes",
        "Theorem 2.5, more classes",
        "The same with any number of classes, as the theorem is worded (its proof has two, the images 10 and 1000).",
        "fails",
        (
            f"Three classes, two inputs of equal mass: truths (0.55, 0, 0.45) and (0.55, 0.45, 0), predictions (0.50, "
            f"0.48, 0.02) and (0.45, 0.55, 0). ϕ gets {forward:.3f}, the opposite order {back:.3f}.",
            f"With predictions unrelated to the truth (four inputs) ϕ is not optimal in {shares['unrelated_3']:.0%}, "
            f"{shares['unrelated_5']:.0%} and {shares['unrelated_10']:.0%} of the populations with 3, 5 and 10 "
            f"classes; it loses up to {max(gaps.values()):.2f}.",
            f"With predictions near the truth and a Bayes class above ½ it is not optimal in {shares['noisy_3']:.1%} "
            f"(3 classes) and {shares['noisy_10']:.1%} (10 classes).",
            f"The best order of two inputs can even be a circle: with predictions (2, 7, 6)/15, (4, 3, 8)/15 and "
            f"(9, 5, 1)/15 and even truths, each has the larger Δ than the next with probability {min(circle):.4f} = "
            f"5/9. No score follows a circle.",
            "“No atom” in the law of the predictions does not make their coordinates distinct when there are three.",
        ),
        "The direct UQ-C-index of more than two classes has no optimality theorem; one class against the rest does "
        "(`one_vs_rest`, decision at ½). For decent models the harm is small.",
        {"varphi": forward, "reversed": back, "not_optimal": shares, "largest_loss": gaps, "circle": circle},
    )


# ---- dominance -------------------------------------------------------------------------------------------------


def phi_optimal(rng: Rng, count: int) -> Check:
    largest = sum(_largest(p, p.phi, p.phi) for p in drawn(rng, count, _MANY, 2))
    return Check(
        "phi_optimal",
        "Theorem 2.4",
        "No score that keeps a prescribed risk dominates φ: none accepts a larger set at every risk.",
        "holds in part" if largest == count else "fails",
        (
            "As typed it says nothing: the set that must have positive measure takes {s ≤ ψ} away from a set that "
            "contains it, which leaves nothing. The proof also drops the density of the score given a mistake.",
            f"What was meant is true and more: among all 255 sets of eight inputs, {{φ ≤ t}} has the largest mass of "
            f"those with no more risk, for every t, in {of(largest, count)} populations.",
        ),
        "At every risk that φ attains, {φ ≤ t} is the largest set of inputs with that risk: on B ∖ {φ ≤ t} the chance "
        "of a mistake exceeds t ≥ γ, so a larger set B has a larger risk.",
        {"largest": largest},
    )


def _largest(p: Population, score: Float, bad: Float, least: float = -np.inf) -> bool:
    """Whether no set of inputs has more mass and no more risk than a sub-level set, thresholds from `least` on."""
    sets = pop.subsets(len(p.mass))
    mass = sets @ p.mass
    risk = sets @ (p.mass * bad) / mass
    for t, own, limit in zip(np.unique(score), *pop.coverages(p, score, bad), strict=True):
        if t >= least and mass[risk <= limit + _EPS].max() > own + _EPS:
            return False
    return True


def varphi_optimal(rng: Rng, count: int) -> Check:
    largest = any_score = 0
    for p in _mixed(rng, count, 2):
        bad = p.misaligned.astype(float)
        largest += _largest(p, p.varphi, bad, least=p.varphi[p.misaligned].min())
        any_score += _largest(p, bad + 0.5 * bad * rng.random(_MANY), bad)
    three = sum(
        not _largest(p, p.varphi, p.misaligned.astype(float), least=p.varphi[p.misaligned].min())
        for p in _mixed(rng, count, 3)
    )
    return Check(
        "varphi_optimal",
        "Theorem 2.6",
        "No score that keeps a prescribed misalignment dominates ϕ.",
        "holds in part" if largest == any_score == count else "fails",
        (
            "As typed it says nothing, as Theorem 2.4; and its re-indexing has no inverse where the misalignment is 0, "
            "on all of {ϕ ≤ ½}; a law without atoms may still have a distribution function with jumps.",
            f"What was meant, two classes: wherever {{ϕ ≤ t}} holds a misaligned input it is the largest set with no "
            f"more misalignment, in {of(largest, count)} populations. So are the sets of any score that puts all "
            f"aligned inputs before all misaligned ones ({of(any_score, count)}): ϕ is not special.",
            "Three classes: it fails in the example of Theorem 2.2, where {ϕ ≤ 0.55} has mass 0.7 and misalignment "
            f"0.286, all inputs mass 1 and 0.200; and in {three} of {count} random populations.",
        ),
        "For two classes every score that separates aligned from misaligned inputs is optimal.",
        {"largest": largest, "separating_scores": any_score, "three_classes_fail": three},
    )


THEOREMS: tuple[Callable[[Rng, int], Check], ...] = (
    nested_phi,
    equal_sets,
    nested_varphi,
    coverage,
    uq_auc,
    literal,
    phi_optimal,
    uq_c_index,
    many_classes,
    varphi_optimal,
)
