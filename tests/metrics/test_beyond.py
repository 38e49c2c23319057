"""The theorems of docs/theory/beyond.md, each by exact enumeration of random populations with atoms and ties."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

import uqeval as uq
from cases import noted
from uqeval import metrics
from uqeval._errors import UQWarning

PAGE = Path(__file__).parents[2] / "docs" / "theory" / "beyond.md"
RANKINGS = np.array([r for r in itertools.product(range(4), repeat=4) if set(r) == set(range(max(r) + 1))])  # 75


def population(rng, classes, kind, points=4):
    """(mass, truth, probs) of a few inputs: no ties; confidences that tie; chances of error that tie, or are ½."""
    mass = rng.dirichlet(np.full(points, 3.0))
    truth, probs = rng.dirichlet(np.ones(classes), points), rng.dirichlet(np.ones(classes), points)
    if kind != "no ties":
        for x in (truth, probs):
            x[1], x[3] = np.roll(x[0], rng.integers(classes)), rng.permutation(x[2])
    if kind == "half":
        top = probs.argmax(axis=1)
        truth[::2] = 0.5 / (classes - 1)
        truth[np.arange(0, points, 2), top[::2]] = 0.5
    return mass, truth, probs


def parts(truth, probs):
    """c, ϕ and what the best order is: c·sgn(ϕ − ½), then ϕ."""
    top = probs.argmax(axis=1)
    c, phi = probs.max(axis=1), 1 - truth[np.arange(len(top)), top]
    phi = np.round(phi, 12)  # equal but for rounding
    key = np.stack([c * np.sign(phi - 0.5), phi], axis=1)
    return c, phi, np.unique(key, axis=0, return_inverse=True)[1].reshape(-1)


def below(truth, probs):
    """P(D_i < D_j), label by label."""
    top, classes = probs.argmax(axis=1), truth.shape[1]
    d = np.where(np.arange(classes) == top[:, None], -1.0, 1.0) * probs.max(axis=1)[:, None]
    return np.einsum("iy,jz,iyjz->ij", truth, truth, d[:, :, None, None] < d[None, None])


def below_by_error(c, phi):
    """The same, of any number c of the inputs in place of the confidence."""
    d, law = np.outer(c, [-1.0, 1.0]), np.stack([1 - phi, phi], axis=1)
    return np.einsum("iy,jz,iyjz->ij", law, law, d[:, :, None, None] < d[None, None])


def credit(ranks):
    first, second = ranks[..., :, None], ranks[..., None, :]
    return (first < second) + 0.5 * (first == second)


def assert_best_exactly(mass, before, c, phi, best):
    """`best` has the largest value, other rankings do if they keep what they must, and lose what the theorem says."""
    pairs = np.outer(mass, mass) * before
    values = np.einsum("ij,rij->r", pairs, credit(RANKINGS)) / pairs.sum()
    top = np.einsum("ij,ij->", pairs, credit(best)) / pairs.sum()
    assert top == pytest.approx(values.max(), abs=1e-13)

    # Which pairs an optimal score must order, and how; it is free to order the others.
    surer = np.where(c[:, None] > c[None, :], phi[:, None], phi[None, :])
    of_surer = np.sign(c[:, None] - c) * (2 * surer - 1)
    weight = np.where(c[:, None] == c[None, :], phi[:, None] - phi[None, :], of_surer)
    weight *= (c[:, None] > 0) | (c[None, :] > 0)  # D = D' = 0 is never compared
    order = np.sign(RANKINGS[:, :, None] - RANKINGS[:, None, :])
    wrong, tied = np.sign(weight) * order < 0, (weight != 0) & (order == 0)
    optimal = values > values.max() - 1e-13
    np.testing.assert_array_equal(optimal, ~(wrong | tied).any(axis=(1, 2)))

    lost = np.einsum("i,j,rij->r", mass, mass, np.abs(weight) * (wrong + tied / 2)) / (2 * pairs.sum())
    np.testing.assert_allclose(top - values, lost, atol=1e-13)
    return values, optimal


def populations(seed, each, classes=range(2, 11)):
    rng = np.random.default_rng(seed)
    for k, kind, _ in itertools.product(classes, ("no ties", "ties", "half"), range(each)):
        with noted(classes=k, kind=kind):
            yield kind, *population(rng, k, kind)


# ---- the top-label C-index --------------------------------------------------------------------------------------


def test_top_label_c_index_is_best_exactly_for_the_order_of_confidence_signed_by_the_chance_of_error():
    for kind, mass, truth, probs in populations(0, 12):
        c, phi, best = parts(truth, probs)
        values, optimal = assert_best_exactly(mass, below(truth, probs), c, phi, best)
        if kind == "no ties":
            assert optimal.sum() == 1

        # The function itself, each input and label a weighted row.
        k = truth.shape[1]
        error = (np.arange(k) != probs.argmax(axis=1)[:, None]).reshape(-1)
        rows = (np.repeat(c, k), error, (mass[:, None] * truth).reshape(-1))
        for ranking, value in zip(RANKINGS[::25], values[::25], strict=True):
            found = metrics.top_label_c_index(np.repeat(ranking, k), *rows[:2], weights=rows[2])
            assert found == pytest.approx(value, abs=1e-12)


def test_any_number_of_the_input_will_do_as_confidence_and_two_that_are_0_are_not_compared():
    rng, zeros = np.random.default_rng(7), 0
    for kind, mass, truth, probs in populations(7, 6, [2, 3, 10]):
        _, phi, _ = parts(truth, probs)
        c = np.r_[rng.integers(0, 3, 3) / 2, 1.0] if kind != "no ties" else rng.exponential(size=4)
        zeros += np.count_nonzero(c == 0) > 1
        best = np.unique(np.stack([c * np.sign(phi - 0.5), phi], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        assert_best_exactly(mass, below_by_error(c, phi), c, phi, best)
    assert zeros > 5


def test_misalignment_is_not_best_for_the_c_index_of_more_classes_as_often_as_the_page_says():
    rng, shares = np.random.default_rng(0), []
    for k, _ in itertools.product((2, 3, 5, 10), range(400)):
        mass, truth, probs = population(rng, k, "no ties")
        gap = 1 - probs
        before = np.einsum("iy,jz,iyjz->ij", truth, truth, gap[:, :, None, None] < gap[None, None])
        lost = []
        for pairs, order in ((before, uq.truth.varphi(truth, probs)), (below(truth, probs), parts(truth, probs)[2])):
            weigh = np.outer(mass, mass) * pairs
            lost.append(np.einsum("ij,rij->r", weigh, credit(RANKINGS)).max() - (weigh * credit(order)).sum())
        assert lost[1] < 1e-13
        shares.append(lost[0] > 1e-13)
    percent = [math.floor(100 * share + 0.5) for share in np.reshape(shares, (4, 400)).mean(axis=1)]
    assert f"{', '.join(map(str, percent[:3]))} and {percent[3]}%" in PAGE.read_text(encoding="utf-8")


def test_below_zero_the_best_order_holds_majority_predictions_alone_and_above_it_adds_others_alone():
    for _, mass, truth, probs in populations(1, 12):
        c, phi, _ = parts(truth, probs)
        key = c * np.sign(phi - 0.5)
        apart = truth.argmax(axis=1) != probs.argmax(axis=1)
        assert not apart[key < 0].any()
        share = [mass[(key <= b) & (phi > 0.5)].sum() / mass[key <= b].sum() for b in np.unique(key)]
        inside = np.unique(key) > 0
        assert not any(np.array(share)[~inside])
        rising = np.diff(np.array(share)[inside])
        assert (rising > -1e-15).all()
        assert (rising[np.array(share)[inside][:-1] < 1] > 0).all()


def test_with_two_classes_the_order_is_that_of_misalignment():
    for _, _, truth, probs in populations(2, 12, [2]):
        c, phi, _ = parts(truth, probs)
        varphi = 1 - probs[np.arange(4), truth.argmax(axis=1)]
        sure = phi != 0.5
        key = (c * np.sign(phi - 0.5))[sure]
        np.testing.assert_array_equal(np.argsort(key, kind="stable"), np.argsort(varphi[sure].round(12), kind="stable"))


# ---- no weights of pairs for misalignment -----------------------------------------------------------------------


def margin(p, q):
    """The largest t for which weights in [−1, 1] put the less misaligned of two inputs first, whatever the labels' law.

    That law has a class with more than ½: a cell of laws with the corners e_b and (e_b + e_k)/2. What the weights give
    is linear in both laws, so that corners are enough: at least t at (e_b, e_b'), at least 0 at the others.
    """
    k = len(p)
    rows, bounds = [], []
    for b, d in itertools.product(range(k), range(k)):
        sign = np.sign(p[b] - q[d])
        if sign == 0:  # any order will do
            continue
        for i, j in itertools.product(range(k), range(k)):
            first, second = (np.eye(k)[b] + np.eye(k)[i]) / 2, (np.eye(k)[d] + np.eye(k)[j]) / 2
            rows.append([*(-sign * np.outer(first, second)).reshape(-1), float(i == b and j == d)])
            bounds.append(0.0)
    found = linprog([*np.zeros(k * k), -1.0], rows, bounds, bounds=[(-1, 1)] * (k * k) + [(0, 1)])
    assert found.status == 0
    return -found.fun


def runs(p, q):
    """Stretches of the same input among all probabilities in order."""
    whose = np.repeat([0, 1], p.shape[-1])[np.argsort(np.concatenate([p, q], axis=-1))]
    return 1 + np.count_nonzero(np.diff(whose), axis=-1)


def test_no_weights_of_pairs_make_misalignment_the_best_order_where_the_probabilities_of_two_inputs_interleave():
    rng, seen = np.random.default_rng(3), set()
    for k, spread, _ in itertools.product((2, 3, 4), (0.3, 1.0, 30.0), range(12)):
        p, q = rng.dirichlet(np.full(k, spread)), rng.dirichlet(np.ones(k))
        apart = runs(p, q) <= 3
        assert apart or k > 2
        with noted(p=p, q=q):
            assert margin(p, q) == pytest.approx(float(apart), abs=1e-9)
        seen.add((k, apart))
    assert seen == {(2, True), (3, True), (3, False), (4, True), (4, False)}
    for p in ([0.6, 0.4], [0.4, 0.3, 0.3], [0.5, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1], [0.6, 0.4, 0.0]):  # of both inputs
        for q in itertools.permutations(p):
            with noted(p=p, q=q):
                assert margin(np.array(p), np.array(q)) == pytest.approx(float(len(set(p)) < 3), abs=1e-9)


def test_random_predictions_interleave_as_often_as_the_page_says():
    rng, text = np.random.default_rng(8), " ".join(PAGE.read_text(encoding="utf-8").split())
    three, ten = ((runs(*rng.dirichlet(np.ones(k), (2, 20_000))) > 3).mean() for k in (3, 10))
    assert "three classes interleave with probability .75, of ten classes with more than .999" in text
    assert three == pytest.approx(0.75, abs=0.01)  # three standard errors
    assert ten > 0.999


# ---- the same number in other clothes ---------------------------------------------------------------------------


def test_of_a_score_that_falls_with_confidence_it_is_one_minus_twice_the_unbiased_augrc():
    rng = np.random.default_rng(4)
    for n, tie, weighted in itertools.product((2, 3, 10, 60), (False, True), (False, True)):
        for _ in range(10):
            c, e = rng.random(n), (rng.random(n) < 0.3).astype(int)
            c = np.ceil(4 * c) / 4 if tie else c
            w = rng.random(n) + 0.1 if weighted else np.ones(n)
            with noted(n=n, tie=tie, weighted=weighted), warnings.catch_warnings():
                warnings.simplefilter("ignore", UQWarning)
                for s in (-c, 1 - c**2, -np.log(c + 1e-9)):
                    found = metrics.top_label_c_index(s, c, e, weights=w)
                    right = 1 - 2 * metrics.augrc(s, e, weights=w, unbiased=True)
                    pair = np.outer(w, w) * (1 - np.eye(n))
                    same, both = c[:, None] == c, e[:, None] + e
                    # Pairs that tie in confidence and in error are not comparable; AUGRC counts the right ones as won.
                    open_ = 1 - (pair * same * (both != 1)).sum() / pair.sum()
                    won = (pair * same * (both == 0)).sum() / pair.sum()
                    if open_ < 1e-12:
                        assert math.isnan(found)
                        continue
                    assert found * open_ + won == pytest.approx(right, abs=1e-12)
                    if not tie:
                        assert found == pytest.approx(right, abs=1e-12)
                if not tie and not weighted:  # G-AUC pairs each row with itself too
                    g_auc = metrics.g_auc(-c, e)
                    assert g_auc == pytest.approx((n - 1) / n * (1 - right) + e.sum() / n**2, abs=1e-12)
                    assert abs(1 - g_auc - right) < 1 / n
                if not tie and not weighted and 0 < e.sum() < n:
                    r, bad, auc = n - e.sum(), e.sum(), metrics.uq_auc(-c, e)
                    own = 1 - (2 * r * bad * (1 - auc) + bad * (bad - 1)) / (n * (n - 1))
                    assert metrics.top_label_c_index(-c, c, e) == pytest.approx(own, abs=1e-12)


def test_for_two_classes_the_c_index_of_entropy_variance_and_margin_is_that_number_too():
    rng = np.random.default_rng(9)
    for _ in range(10):
        probs, labels = rng.dirichlet([1, 1], 40), rng.integers(0, 2, 40)
        error, gap = uq.truth.misclassified(probs, labels), uq.truth.gap(probs, labels)
        for score in (uq.scores.entropy, uq.scores.bernoulli_variance, uq.scores.margin, uq.scores.gap_to_certain):
            expected = 1 - 2 * metrics.augrc(score(probs), error, unbiased=True)
            assert metrics.uq_c_index(score(probs), gap) == pytest.approx(expected, abs=1e-12)


# ---- wrong labels -----------------------------------------------------------------------------------------------


def test_flips_below_one_half_leave_the_best_order_of_the_c_index_and_only_even_ones_that_of_uq_auc():
    rng, moved = np.random.default_rng(5), 0
    for _ in range(60):
        mass, truth, probs = population(rng, 2, "no ties")
        flip = rng.uniform(0, 0.5, 4)
        even = np.full(4, flip[0])
        best = {}
        for name, rate in (("clean", np.zeros(4)), ("even", even), ("uneven", flip)):
            seen = truth * (1 - rate[:, None]) + truth[:, ::-1] * rate[:, None]
            phi = 1 - seen[np.arange(4), probs.argmax(axis=1)]
            pairs = np.outer(mass, mass)
            for metric, weigh in (("c", pairs * below(seen, probs)), ("auc", pairs * np.outer(1 - phi, phi))):
                values = np.einsum("ij,rij->r", weigh, credit(RANKINGS)) / weigh.sum()
                best[name, metric] = set(np.flatnonzero(values > values.max() - 1e-13))
                best[name, metric, "regret"] = (values.max() - values) * weigh.sum()
        assert best["clean", "c"] == best["even", "c"] == best["uneven", "c"]
        assert best["clean", "auc"] == best["even", "auc"]
        moved += best["clean", "auc"] != best["uneven", "auc"]
        # At one rate, what other scores lose shrinks by 1 − 2ρ.
        np.testing.assert_allclose(
            best["even", "c", "regret"], (1 - 2 * even[0]) * best["clean", "c", "regret"], atol=1e-12
        )
    assert moved > 20


# ---- without self-reference -------------------------------------------------------------------------------------


def test_with_the_error_probability_as_reference_its_own_order_is_best_and_no_other():
    for _, mass, truth, probs in populations(6, 8):
        _, phi, _ = parts(truth, probs)
        c = np.round(np.abs(1 - 2 * phi), 12)
        before = below_by_error(c, phi)
        if before.sum() == 0:
            continue
        _, optimal = assert_best_exactly(mass, before, c, phi, np.unique(phi, return_inverse=True)[1])
        apart = phi[:, None] < phi[None, :]
        keeps = ~(apart & (RANKINGS[:, :, None] >= RANKINGS[:, None, :])).any(axis=(1, 2))
        np.testing.assert_array_equal(optimal, keeps)


def test_a_reference_on_the_same_side_of_one_half_has_its_own_order_as_a_best_one():
    rng = np.random.default_rng(10)
    for kind, mass, truth, probs in populations(10, 8, [2, 3, 10]):
        _, phi, _ = parts(truth, probs)
        half = rng.uniform(0.1, 0.5, 4) if kind == "no ties" else rng.integers(1, 4, 4) / 8
        guess = 0.5 + half * np.sign(phi - 0.5)
        best = np.unique(np.stack([guess, phi], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        c = np.round(np.abs(1 - 2 * guess), 12)
        before = below_by_error(c, phi)
        if before.sum() > 0:
            assert_best_exactly(mass, before, c, phi, best)
