"""Dawid and Skene's estimate: by hand, against a plain loop, on simulated raters, with gaps and ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uqeval import InputError, UQWarning
from uqeval._errors import collected
from uqeval.datasets import dawid_skene


def simulated(raters, questions, confusion, prior, rng, votes=None):
    """True classes and rows of (rater, question, answer); `votes` raters for each question, else all."""
    truth = rng.choice(len(prior), size=questions, p=prior)
    rows = []
    for q in range(questions):
        chosen = range(raters) if votes is None else rng.choice(raters, votes, replace=False)
        rows += [(r, q, rng.choice(confusion.shape[2], p=confusion[r, truth[q]])) for r in chosen]
    return truth, np.array(rows)


def by_loops(rows, shape, start, smoothing, iterations):
    """The same EM with plain loops."""
    raters, questions, answers = shape
    classes = start.shape[1]
    p = np.zeros((questions, classes))
    for _, q, a in rows:
        p[q] += start[a]
    p /= p.sum(axis=1, keepdims=True)
    for _ in range(iterations):
        prior = p.mean(axis=0)
        confusion = np.full((raters, classes, answers), smoothing)
        for r, q, a in rows:
            confusion[r, :, a] += p[q]
        confusion /= confusion.sum(axis=2, keepdims=True)
        p = np.tile(prior, (questions, 1))
        likelihood = 0.0
        for r, q, a in rows:
            p[q] *= confusion[r, :, a]
        likelihood = np.log(p.sum(axis=1)).sum()
        p /= p.sum(axis=1, keepdims=True)
    return p, confusion, prior, likelihood


def test_two_raters_on_two_questions_by_hand():
    # Both say (0, 1). Start: p = (0, 1). M: prior ½ each; rater r: C = [[1.5, 0.5], [0.5, 1.5]] / 2 with smoothing ½.
    # E: p(1 | q = 0) = ½·¼·¼ / (½·¼·¼ + ½·¾·¾) = 1/10.
    with collected():
        found = dawid_skene([(0, 0, 0), (1, 0, 0), (0, 1, 1), (1, 1, 1)], smoothing=0.5, max_iter=1)
    np.testing.assert_allclose(found.posterior, [[0.9, 0.1], [0.1, 0.9]], atol=1e-12)
    np.testing.assert_allclose(found.confusion, [[[0.75, 0.25], [0.25, 0.75]]] * 2)
    np.testing.assert_allclose(found.prior, [0.5, 0.5])
    assert found.log_likelihood == pytest.approx(2 * np.log(0.5 / 16 + 0.5 * 9 / 16))


@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([0.0, 0.01, 1.0]), st.integers(1, 6))
def test_em_equals_plain_loops(seed, classes, smoothing, iterations):
    rng = np.random.default_rng(seed)
    raters, questions = 4, 9
    rows = np.array([(r, q, rng.integers(classes)) for q in range(questions) for r in range(raters)])
    start = np.eye(classes) * 0.8 + 0.2 / classes
    with collected():
        found = dawid_skene(rows, answers=classes, meaning=start, smoothing=smoothing, max_iter=iterations, tol=1e-300)
    p, confusion, prior, likelihood = by_loops(rows, (raters, questions, classes), start, smoothing, found.iterations)
    np.testing.assert_allclose(found.posterior, p, atol=1e-9)
    np.testing.assert_allclose(found.confusion, confusion, atol=1e-9)
    np.testing.assert_allclose(found.prior, prior, atol=1e-9)
    assert found.log_likelihood == pytest.approx(likelihood, abs=1e-8)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.01, 2.0]), st.booleans())
def test_the_objective_never_falls(seed, smoothing, grouped):
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(6, size=200), rng.integers(40, size=200), rng.integers(3, size=200)], axis=1)
    groups = rng.integers(3, size=40) if grouped else None
    with collected():
        found = dawid_skene(rows, raters=6, questions=40, answers=3, groups=groups, smoothing=smoothing, max_iter=50)
    assert (np.diff(found.objective) >= -1e-9 * np.abs(found.objective[:-1])).all()
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1)
    np.testing.assert_allclose(found.confusion.sum(axis=2), 1)


def test_no_small_step_from_the_result_has_a_higher_likelihood():
    rng = np.random.default_rng(3)
    confusion = np.array([[[0.8, 0.2], [0.3, 0.7]]] * 4)
    _, rows = simulated(4, 60, confusion, [0.6, 0.4], rng)
    found = dawid_skene(rows, smoothing=0, tol=1e-10, max_iter=20000)

    def likelihood(confusion, prior):
        p = np.tile(prior, (60, 1))
        for r, q, a in rows:
            p[q] *= confusion[r, :, a]
        return np.log(p.sum(axis=1)).sum()

    best = likelihood(found.confusion, found.prior)
    assert best == pytest.approx(found.log_likelihood, abs=1e-6)
    for _ in range(200):
        moved = np.clip(found.confusion + rng.normal(scale=1e-3, size=found.confusion.shape), 1e-9, None)
        prior = np.clip(found.prior + rng.normal(scale=1e-3, size=2), 1e-9, None)
        assert likelihood(moved / moved.sum(axis=2, keepdims=True), prior / prior.sum()) <= best + 1e-7


def test_truth_and_raters_are_recovered_better_than_by_majority():
    rng = np.random.default_rng(0)
    good = np.array([[0.95, 0.04, 0.01], [0.03, 0.94, 0.03], [0.02, 0.03, 0.95]])
    poor = np.full((3, 3), 1 / 3)
    twisted = good[[1, 2, 0]]  # says another class, reliably
    confusion = np.array([good, good, good, poor, poor, twisted, twisted])
    truth, rows = simulated(7, 1500, confusion, [0.5, 0.3, 0.2], rng)
    found = dawid_skene(rows)
    tally = np.zeros((1500, 3))
    np.add.at(tally, (rows[:, 1], rows[:, 2]), 1)
    majority = (tally.argmax(axis=1) == truth).mean()
    assert (found.posterior.argmax(axis=1) == truth).mean() > max(0.98, majority + 0.03)
    np.testing.assert_allclose(found.confusion, confusion, atol=0.06)
    np.testing.assert_allclose(found.prior, [0.5, 0.3, 0.2], atol=0.04)


def test_posterior_is_calibrated_when_raters_are_poor():
    rng = np.random.default_rng(1)
    confusion = np.array([[[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]]] * 12)
    truth, rows = simulated(12, 6000, confusion, [0.7, 0.3], rng, votes=5)
    found = dawid_skene(rows, meaning=[[1, 0], [0.5, 0.5], [0, 1]])
    p = found.posterior[:, 1]
    for low in np.arange(0, 1, 0.2):
        inside = (p >= low) & (p < low + 0.2)
        assert abs(truth[inside].mean() - p[inside].mean()) < 0.08


def test_groups_have_their_own_prior():
    rng = np.random.default_rng(2)
    confusion = np.array([[[0.8, 0.2], [0.3, 0.7]]] * 6)
    rare, first = simulated(6, 800, confusion, [0.9, 0.1], rng)
    usual, second = simulated(6, 800, confusion, [0.4, 0.6], rng)
    rows = np.concatenate([first, second + np.array([0, 800, 0])])
    found = dawid_skene(rows, groups=np.repeat([0, 1], 800))
    np.testing.assert_allclose(found.prior[:, 1], [rare.mean(), usual.mean()], atol=0.04)
    assert found.log_likelihood > dawid_skene(rows).log_likelihood + 50


def test_table_and_long_form_and_repeated_votes_agree():
    rng = np.random.default_rng(4)
    table = rng.integers(0, 3, size=(4, 15, 3))
    table[:, 0, 0] += 1  # every rater votes
    rows = np.argwhere(table > 0)
    rows = np.repeat(rows, table[table > 0], axis=0)
    with collected():
        a, b = dawid_skene(table, max_iter=30), dawid_skene(rows, questions=15, answers=3, max_iter=30)
    np.testing.assert_allclose(a.posterior, b.posterior, atol=1e-12)
    np.testing.assert_allclose(a.confusion, b.confusion, atol=1e-12)


def test_a_question_without_a_vote_gets_the_prior_and_changes_nothing_else():
    rng = np.random.default_rng(5)
    _, rows = simulated(5, 50, np.array([[[0.9, 0.1], [0.2, 0.8]]] * 5), [0.7, 0.3], rng)
    plain, more = dawid_skene(rows), dawid_skene(rows, questions=53, raters=6)
    np.testing.assert_allclose(more.posterior[:50], plain.posterior, atol=1e-12)
    np.testing.assert_allclose(more.posterior[50:], np.tile(plain.prior, (3, 1)), atol=1e-12)
    np.testing.assert_allclose(more.confusion[5], 0.5)


def test_a_tie_stays_undecided_when_nothing_tells_the_raters_apart():
    found = dawid_skene([(0, 0, 0), (1, 0, 1), (0, 1, 0), (1, 1, 1)])
    np.testing.assert_allclose(found.posterior, 0.5)


def test_classes_keep_their_names_under_a_change_of_order():
    rng = np.random.default_rng(6)
    _, rows = simulated(5, 200, np.array([[[0.9, 0.1], [0.2, 0.8]]] * 5), [0.7, 0.3], rng)
    mirrored = rows * [1, 1, -1] + [0, 0, 1]
    np.testing.assert_allclose(dawid_skene(rows).posterior, dawid_skene(mirrored).posterior[:, ::-1], atol=1e-9)


def test_stopping_early_is_said():
    rng = np.random.default_rng(7)
    rows = np.stack([rng.integers(4, size=100), rng.integers(20, size=100), rng.integers(2, size=100)], axis=1)
    with pytest.warns(UQWarning, match="did not converge in 2"):
        assert not dawid_skene(rows, max_iter=2).converged


def test_input_that_means_nothing_is_refused():
    for votes, options, named in [
        ([], {}, "`votes`"),
        ([(0, 1)], {}, "`votes`"),
        ([(0, 0, -1)], {}, "`votes`"),
        ([(0, 0, 0.5)], {}, "`votes`"),
        ([("a", "b", "c")], {}, "`votes`"),
        (np.zeros((2, 2, 2)), {}, "`votes`"),
        (-np.ones((2, 2, 2)), {}, "`votes`"),
        (np.full((2, 2, 2), np.nan), {}, "`votes`"),
        ([(0, 3, 1)], {"questions": 2}, "`questions`"),
        ([(0, 0, 1)], {"meaning": [[1, 0]]}, "`meaning`"),
        ([(0, 0, 1)], {"meaning": [[1, 1], [0, 1]]}, "`meaning`"),
        ([(0, 0, 1)], {"groups": [0, 1]}, "`groups`"),
        ([(0, 0, 1)], {"smoothing": -1}, "`smoothing`"),
        ([(0, 0, 1)], {"max_iter": 0}, "`max_iter`"),
    ]:
        with pytest.raises(InputError, match=named):
            dawid_skene(votes, **options)
