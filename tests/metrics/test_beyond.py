"""The theorems of docs/theory/beyond.md, each by exact enumeration of random populations with atoms and ties."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy.optimize import linprog

from cases import noted
from uqeval import metrics
from uqeval._errors import UQWarning

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
    """c, φ and what the best order is: c·sgn(φ − ½), then φ."""
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


def credit(scores):
    first, second = scores[..., :, None], scores[..., None, :]
    return (first < second) + 0.5 * (first == second)


def populations(seed, each, classes=range(2, 11)):
    rng = np.random.default_rng(seed)
    for k, kind, _ in itertools.product(classes, ("no ties", "ties", "half"), range(each)):
        with noted(classes=k, kind=kind):
            yield kind, *population(rng, k, kind)


# ---- the top-label C-index --------------------------------------------------------------------------------------


def test_top_label_c_index_is_best_exactly_for_the_order_of_confidence_signed_by_the_chance_of_error():
    for kind, mass, truth, probs in populations(0, 12):
        c, phi, best = parts(truth, probs)
        pairs = np.outer(mass, mass) * below(truth, probs)
        values = np.einsum("ij,rij->r", pairs, credit(RANKINGS)) / pairs.sum()
        top = np.einsum("ij,ij->", pairs, credit(best)) / pairs.sum()
        assert top == pytest.approx(values.max(), abs=1e-13)

        # Which pairs an optimal score must order, and how; it is free to order the others.
        surer = np.where(c[:, None] > c[None, :], phi[:, None], phi[None, :])
        of_surer = np.sign(c[:, None] - c) * (2 * surer - 1)
        weight = np.where(c[:, None] == c[None, :], phi[:, None] - phi[None, :], of_surer)
        order = np.sign(RANKINGS[:, :, None] - RANKINGS[:, None, :])
        wrong, tied = np.sign(weight) * order < 0, (weight != 0) & (order == 0)
        optimal = values > values.max() - 1e-13
        np.testing.assert_array_equal(optimal, ~(wrong | tied).any(axis=(1, 2)))
        if kind == "no ties":
            assert optimal.sum() == 1

        # What the others lose.
        lost = np.einsum("i,j,rij->r", mass, mass, np.abs(weight) * (wrong + tied / 2)) / (2 * pairs.sum())
        np.testing.assert_allclose(top - values, lost, atol=1e-13)

        # The function itself, each input and label a weighted row.
        k = truth.shape[1]
        error = (np.arange(k) != probs.argmax(axis=1)[:, None]).reshape(-1)
        rows = (np.repeat(c, k), error, (mass[:, None] * truth).reshape(-1))
        for ranking, value in zip(RANKINGS[::25], values[::25], strict=True):
            found = metrics.top_label_c_index(np.repeat(ranking, k), *rows[:2], weights=rows[2])
            assert found == pytest.approx(value, abs=1e-12)


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
        for i, j in itertools.product(range(k), range(k)):
            first, second = (np.eye(k)[b] + np.eye(k)[i]) / 2, (np.eye(k)[d] + np.eye(k)[j]) / 2
            rows.append([*(-sign * np.outer(first, second)).reshape(-1), float(i == b and j == d)])
            bounds.append(0.0)
    found = linprog([*np.zeros(k * k), -1.0], rows, bounds, bounds=[(-1, 1)] * (k * k) + [(0, 1)])
    assert found.status == 0
    return -found.fun


def runs(p, q):
    """Stretches of the same input among all probabilities in order."""
    whose = np.repeat([0, 1], len(p))[np.argsort(np.concatenate([p, q]))]
    return 1 + int(np.count_nonzero(np.diff(whose)))


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
                if not tie and not weighted and 0 < e.sum() < n:
                    r, bad, auc = n - e.sum(), e.sum(), metrics.uq_auc(-c, e)
                    own = 1 - (2 * r * bad * (1 - auc) + bad * (bad - 1)) / (n * (n - 1))
                    assert metrics.top_label_c_index(-c, c, e) == pytest.approx(own, abs=1e-12)


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
        top = probs.argmax(axis=1)
        phi = np.round(1 - truth[np.arange(4), top], 12)
        c = np.round(np.abs(1 - 2 * phi), 12)
        signs = np.array([-1.0, 1.0])
        d = c[:, None] * signs
        law = np.stack([1 - phi, phi], axis=1)
        before = np.einsum("iy,jz,iyjz->ij", law, law, d[:, :, None, None] < d[None, None])
        pairs = np.outer(mass, mass) * before
        if pairs.sum() == 0:
            continue
        values = np.einsum("ij,rij->r", pairs, credit(RANKINGS)) / pairs.sum()
        apart = phi[:, None] < phi[None, :]
        keeps = ~(apart & (RANKINGS[:, :, None] >= RANKINGS[:, None, :])).any(axis=(1, 2))
        np.testing.assert_array_equal(values > values.max() - 1e-13, keeps)
