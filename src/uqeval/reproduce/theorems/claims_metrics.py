"""What the paper says of other metrics and of scaling, one function each: tried, with counter-examples where it fails.

As `claims`: a function takes a random generator and how many populations to draw, and returns a `Check`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from uqeval import metrics, scores
from uqeval.reproduce.synthetic.temperature import softmax, ten_classes
from uqeval.reproduce.theorems import populations as pop
from uqeval.reproduce.theorems.claims import drawn, of, two_classes
from uqeval.reproduce.theorems.run import Check

__all__ = ["METRICS"]

Rng = np.random.Generator
_EPS = 1e-12
_POINTS = 5  # inputs of a population whose 541 rankings are all tried


def self_reference(rng: Rng, _: int) -> Check:
    # φ ~ Beta(1, 9) and a confidence that is pure noise. E|φ − φ'| = 2∫F(1 − F) = 2·(1/10 − 1/19).
    e, spread = 0.1, 2 * (1 / 10 - 1 / 19)
    auc = 0.5 + spread / (4 * e * (1 - e))
    exact = {"auc": 0.5, "c_index": 1 - e, "phi_auc": auc, "phi_c_index": 0.5 + 2 * e * (1 - e) * (auc - 0.5)}
    n = 20_000
    phi, top = rng.beta(1, 9, size=n), rng.uniform(0.5, 1, size=n)
    error = (rng.random(n) < phi).astype(np.uint8)
    gap = np.where(error == 1, top, 1 - top)
    seen = {
        "auc": metrics.uq_auc(1 - top, error),
        "c_index": metrics.uq_c_index(1 - top, gap),
        "phi_auc": metrics.uq_auc(phi, error),
        "phi_c_index": metrics.uq_c_index(phi, gap),
    }
    return Check(
        "self_reference",
        "Section 4",
        "UQ-C-index is a well-behaved measure of how good a score is.",
        "holds in part",
        (
            f"Let the prediction be the Bayes class everywhere, with a confidence that is pure noise. Then 1 − "
            f"confidence has UQ-AUC {exact['auc']:.3f}, rightly, but UQ-C-index 1 − err = {exact['c_index']:.3f}, "
            f"whatever φ is; with φ ~ Beta(1, 9) the true φ has UQ-AUC {exact['phi_auc']:.3f} and UQ-C-index only "
            f"{exact['phi_c_index']:.3f}. A sample of 20,000 rows gives {seen['auc']:.2f}, {seen['c_index']:.2f}, "
            f"{seen['phi_auc']:.2f} and {seen['phi_c_index']:.2f}.",
            "The theorem is not wrong: Δ holds the model's own probabilities, so UQ-C-index rewards a score for "
            "repeating them.",
        ),
        "Report UQ-C-index beside UQ-AUC, never alone, and do not rank models by it.",
        {"exact": exact, "seen": seen},
    )


def lemma(rng: Rng, count: int) -> Check:
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
    return Check(
        "lemma",
        "Lemma 3.1",
        "G-AUC = (1 − ACC)² + 2(1 − UQ-AUC)(1 − ACC)ACC is the AURC of Geifman et al., and H-AUC = UQ-AUC(1 − ACC)ACC.",
        "holds in part" if worst < _EPS and twice == h_equal == total else "fails",
        (
            f"Both formulas are right for what the proof defines ({'to 1e-12' if worst < _EPS else 'not'} for all "
            f"rankings of {count} populations), but that G-AUC is twice AUGRC (Traub et al. 2024; {of(twice, total)} "
            f"rankings of 2 to 9 rows), not Geifman's AURC (equal in {geifman} of {total}). H-AUC is "
            f"right in {of(h_equal, total)}.",
            "The proof takes a ratio of averages, E[V; S ≤ S'] / P(S ≤ S'); AURC is an average of ratios. Two of its "
            "displays of H-AUC are labelled G-AUC, and the underbrace “= 1 − UQ-AUC” should read UQ-AUC.",
        ),
        "G-AUC = 2·AUGRC, exactly, in samples too; this library has `aurc`, `augrc` and `g_auc` apart.",
        {"formula_error": worst, "rankings": total, "augrc": twice, "h_auc": h_equal, "aurc": geifman},
    )


def aurc(rng: Rng, count: int) -> Check:
    ranks = pop.orderings(_POINTS)
    tried = drawn(rng, count, _POINTS, 2)
    best = sum(bool(pop.aurc(p, p.phi) <= pop.aurc(p, ranks).min() + _EPS) for p in tried)
    rows = {name: _sample(n, wrong) for name, n, wrong in _RANKINGS}
    pairs, inverted = _inversions(7, 3)
    a, b = two_classes([0.05, 0.85, 0.10], [0.30, 0.0, 0.55]), two_classes([0.3, 0.7], [0.0, 0.1])
    whole = [(float(pop.auc(p, np.arange(len(p.mass)))), float(pop.aurc(p, np.arange(len(p.mass))))) for p in (a, b)]
    return Check(
        "aurc",
        "After Lemma 3.1",
        "Benchmarks by UQ-AUC, by AURC and by H-AUC lead to identical conclusions.",
        "fails" if inverted else "holds",
        (
            f"Four rows, mistakes at ranks 1 and 4 or at 2 and 3: UQ-AUC {rows['4: 1, 4'][0]:.3f} and "
            f"{rows['4: 2, 3'][0]:.3f}, AURC {rows['4: 1, 4'][1]:.4f} (7/12) and {rows['4: 2, 3'][1]:.4f} (5/12).",
            f"Five rows, the smallest reversal: mistakes at 1 and 5 have UQ-AUC {rows['5: 1, 5'][0]:.3f} and AURC "
            f"{rows['5: 1, 5'][1]:.3f}; at 2 and 3, {rows['5: 2, 3'][0]:.3f} and {rows['5: 2, 3'][1]:.3f}: worse by "
            f"the first, better by the second. Of seven rows with three mistakes, {inverted} of {pairs} pairs of "
            f"rankings are ordered oppositely.",
            f"Populations with 7% mistakes: A has 30% among its surest 5% and 55% in its last 10%; B has 10% above its "
            f"30% quantile. UQ-AUC {whole[0][0]:.3f} and {whole[1][0]:.3f}, AURC {whole[0][1]:.4f} and "
            f"{whole[1][1]:.4f}: A wins by the first, B by the second.",
            f"φ minimises AURC too, over all 541 rankings in {of(best, count)} populations.",
        ),
        "UQ-AUC, AUGRC and H-AUC agree on scores of one predictor. AURC punishes mistakes among the surest rows more "
        "and can disagree; all have φ as their best score.",
        {"rankings": rows, "pairs": pairs, "inverted": inverted, "populations": whole, "phi_is_best": best},
    )


_RANKINGS = (("4: 1, 4", 4, (1, 4)), ("4: 2, 3", 4, (2, 3)), ("5: 1, 5", 5, (1, 5)), ("5: 2, 3", 5, (2, 3)))


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


def h_auc(_: Rng, __: int) -> Check:
    worse, better = 0.95 * 0.05 * 0.95, 0.6 * 0.4 * 0.6
    return Check(
        "h_auc",
        "After Lemma 3.1, across models",
        "Benchmarks by UQ-AUC and by H-AUC lead to identical conclusions, also when the predictors differ.",
        "fails" if better > worse else "holds",
        (
            f"Accuracy 0.95 with UQ-AUC 0.95 gives H-AUC {worse:.3f}; accuracy 0.6 with UQ-AUC 0.6 gives {better:.3f}, "
            f"more than three times as much for the worse model with the worse score.",
        ),
        "The one-to-one relation holds for a fixed predictor only.",
        {"good": worse, "bad": better},
    )


def temperature(rng: Rng, _: int) -> Check:
    logits = np.array([[2.0, 0.0, 0.0], [3.0, 2.0, -10.0]])
    tops = {str(t): softmax(logits / t).max(axis=1).tolist() for t in (1, 3)}
    z, labels = ten_classes(rng, 20_000)
    error = (z.argmax(axis=1) != labels).astype(np.uint8)
    aucs = {str(t): metrics.uq_auc(scores.entropy(softmax(z / t)), error) for t in (0.5, 1, 2, 5)}
    turned = (tops["1"][0] - tops["1"][1]) * (tops["3"][0] - tops["3"][1]) < 0
    return Check(
        "temperature",
        "Appendix on calibration",
        "Temperature scaling does not change the ranking by a softmax score, so UQ-AUC and UQ-C-index do not change.",
        "holds in part" if turned else "holds",
        (
            "Two classes: true, exactly (`uqeval reproduce temperature`), if Δ is ranked by something that does not "
            "round, as the logit margin.",
            f"More classes: false. Logits (2, 0, 0) and (3, 2, −10) have largest probabilities {tops['1'][0]:.3f} and "
            f"{tops['1'][1]:.3f} at T = 1, {tops['3'][0]:.3f} and {tops['3'][1]:.3f} at T = 3: the order turns.",
            f"Ten classes, 20,000 simulated rows: UQ-AUC of the entropy is "
            f"{', '.join(f'{auc:.3f}' for auc in aucs.values())} at T = {', '.join(aucs)}.",
        ),
        "The ranking is invariant for two classes and one model. With more classes, or when the members of an ensemble "
        "are scaled and then averaged, it changes with T.",
        {"top": tops, "ten_classes": aucs},
    )


def table(_: Rng, __: int) -> Check:
    rows = [{"dataset": d, "r": r, "centre": _centre(a, b), "n": _rows(a, b)} for d, r, a, b in _TABLE]
    odd = next(_centre(a, b) for _, r, a, b in _TABLE if r == -0.0004)
    toy = [_rows(a, b) for d, r, a, b in _TABLE if d == "Synth." and r != 0.9344]
    cifar = [_rows(a, b) for d, _, a, b in _TABLE if d == "CIFAR10-H"]
    mended = _centre(0.92, 0.9463)
    return Check(
        "table",
        "Table 1",
        "Pearson correlations with 95% Fisher intervals.",
        "holds in part",
        (
            f"A Fisher interval tells its own centre and its number of models. CIFAR10-H, UQ-C-index with κ(s; φ): "
            f"printed −0.04%, but the interval (−22.41; 14.83) is centred on −{abs(100 * odd):.1f}%. Synthetic, UQ-AUC "
            f"with κ(s; ϕ): the upper end 94.3 is probably 94.63, whose interval is centred on the printed "
            f"{100 * mended:.2f}%.",
            f"Implied numbers of models: {min(toy):.0f} to {max(toy):.0f} for the synthetic study, whose grid has 696 "
            f"scores; {min(cifar):.0f} to {max(cifar):.0f} for CIFAR10-H, with 116 stated.",
            "“Significantly better” is judged there by intervals that do not overlap, a test of level below 1%; the "
            "two correlations share their models, for which Williams' test is made (`compare_correlations`).",
        ),
        "Take the printed intervals with two digits; they also ignore the draw of the data, which matters most.",
        {"rows": rows, "mended": mended},
    )


def _centre(low: float, high: float) -> float:
    return math.tanh((math.atanh(low) + math.atanh(high)) / 2)


def _rows(low: float, high: float) -> float:
    return 3 + (2 * 1.959964 / (math.atanh(high) - math.atanh(low))) ** 2


_TABLE = (
    ("Synth.", 0.9456, 0.9336, 0.9555),
    ("Synth.", 0.9344, 0.9200, 0.943),
    ("Synth.", 0.9881, 0.9854, 0.9903),
    ("Synth.", 0.9962, 0.9953, 0.9969),
    ("CIFAR10-H", 0.6518, 0.5399, 0.7475),
    ("CIFAR10-H", 0.5401, 0.3933, 0.6600),
    ("CIFAR10-H", -0.0004, -0.2241, 0.1483),
    ("CIFAR10-H", 0.9561, 0.9367, 0.9697),
)

METRICS: tuple[Callable[[Rng, int], Check], ...] = (self_reference, lemma, aurc, h_auc, temperature, table)
