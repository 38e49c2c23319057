"""Probabilities on a coarse grid tie exactly, however they came to be floats; others stay as they are."""

import numpy as np

import uqeval as uq
from cases import noted
from strategies import BACKENDS
from uqeval import kernels
from uqeval.inputs import Predictions
from uqeval.scores import available, compute
from uqeval.truth import loss_of

PROBS = ("entropy", "gap_to_certain", "margin", "bernoulli_variance")


def rounded_rows(rng, n, k, trees):
    """(n, k) counts of votes of so many trees."""
    return rng.multinomial(trees, rng.dirichlet(np.full(k, 0.5), size=n))


def noisy(counts, rng):
    """Shares of the votes as a mean over trees in some order, a complement, a normalised row, and plain division."""
    n, k = counts.shape
    trees = int(counts[0].sum())
    votes = np.stack([rng.permuted(np.repeat(np.arange(k), row)) for row in counts])
    summed = np.zeros((n, k))
    for t in range(trees):
        summed += (votes[:, t, None] == np.arange(k)) * (1 / trees)
    left = counts / trees
    left[:, -1] = 1 - left[:, :-1].sum(axis=1)
    left[counts[:, -1] == 0, -1] = 0.0  # a residue in place of 0 cannot be told from a small probability
    scaled = counts * 0.1
    return {"sum": summed, "rest": left, "row": scaled / scaled.sum(axis=1, keepdims=True)}


def test_votes_of_trees_tie_however_their_shares_were_computed():
    rng = np.random.default_rng(0)
    for trees, k in ((10, 2), (100, 3), (50, 7), (128, 4), (300, 2), (500, 10), (7, 40), (1000, 3)):
        counts = rounded_rows(rng, 200, k, trees)
        labels = rng.integers(0, k, 200)
        exact = Predictions(labels, probs=counts / trees)
        assert np.array_equal(exact.probs, counts / trees)  # what is right stays as it is
        for name, probs in noisy(counts, rng).items():
            made = Predictions(labels, probs=probs)
            with noted(trees=trees, k=k, name=name):
                for score in PROBS:
                    assert np.array_equal(compute(score, made), compute(score, exact)), score
                    assert np.array_equal(compute(score, made), getattr(uq.scores, score)(probs)), score
                assert np.array_equal(loss_of(made), loss_of(exact))


def test_equal_leads_and_variances_of_hundredths_tie():
    # 0.5 − 0.2, 0.6 − 0.3 and 0.7 − 0.4 differ in floats; so do 0.3·0.7 and 0.7·(1 − 0.7).
    steps = np.arange(1, 50) / 100
    rows = np.stack([0.5 + steps / 2, 0.5 - steps / 2], axis=1)
    more = np.stack([0.4 + steps / 2, 0.4 - steps / 2, np.full(49, 0.2)], axis=1)
    keep = more.min(axis=1) > 0.2 - 1e-9
    assert np.array_equal(uq.scores.margin(rows)[keep], uq.scores.margin(more)[keep])
    for p in np.arange(51, 100) / 100:
        lone = uq.scores.bernoulli_variance([p, 1 - p, 1 - (1 - p)])
        assert np.ptp(lone) == 0
        parts = uq.scores.bernoulli_variance([[1 - p, *[p / 100] * 100], [p, *[(1 - p) / 100] * 100]])
        assert np.ptp(parts) == 0 or (1 - p) < p / 100


def test_all_default_scores_of_a_forest_of_two_classes_have_one_value():
    # In hundredths the four are one ranking: none is better than another by the noise of its floats.
    rng = np.random.default_rng(3)
    p = np.round(rng.beta(0.6, 0.6, 2000), 2)
    p = np.where(p == 0.5, 0.51, p)
    y = (rng.random(2000) < p).astype(int)
    for probs in (p, np.stack([1 - p, p], axis=1), np.stack([1 - p, p], axis=1).astype(np.float32)):
        ev = uq.evaluate(Predictions(y, probs=probs), metrics=["uq_auc", "uq_c_index", "aurc"])
        for metric in ev.metrics:
            assert len({ev[score, metric].value for score in PROBS}) == 1, metric
        assert len(set(ev.tie_rate.values())) == 1


def test_the_order_of_classes_changes_no_bit_of_any_score():
    rng = np.random.default_rng(1)
    for k in (2, 3, 10, 50):
        members = rng.dirichlet(np.full(k, 0.5), size=(5, 60))
        logits = rng.normal(size=(5, 60, k)) * 4
        members[:, :20] = np.stack([rounded_rows(rng, 20, k, 20) for _ in range(5)]) / 20

        def of(classes, members=members, logits=logits):
            p, z = members[..., classes], logits[..., classes]
            return Predictions(np.zeros(60, int), members=p, member_logits=z, alpha=9 * members[0][:, classes] + 0.1)

        first, other = of(np.arange(k)), of(rng.permutation(k))
        tops = np.sort(first.probs, axis=1)
        votes = np.sort(first.members, axis=-1)
        clear = (tops[:, -1] > tops[:, -2]) & (votes[..., -1] > votes[..., -2]).all(axis=0)
        for score in available(first):
            by_class = score in (
                "predicted_class_variance",
                "vote_ratio",
                "vote_entropy",
            )  # of the lowest of tied classes
            rows = clear if by_class else slice(None)
            with noted(k=k, score=score):
                assert np.array_equal(compute(score, first)[rows], compute(score, other)[rows])


def test_the_order_of_classes_changes_no_bit_of_probabilities_that_are_derived():
    rng = np.random.default_rng(4)
    for k in (3, 7, 40, 300):
        order = rng.permutation(k)
        logits, evidence = rng.normal(size=(20, 200, k)) * 4, rng.gamma(2.0, size=(200, k))
        for name, given in (
            *(("logits", logits[0]), ("logits", logits[0].astype(np.float32))),
            *(("member_logits", logits), ("member_logits", np.asfortranarray(logits)), ("alpha", evidence)),
        ):
            first, other = (Predictions(np.zeros(200, int), **{name: x}) for x in (given, given[..., order]))
            assert np.array_equal(first.probs[:, order], other.probs), (k, name)
            assert np.allclose(first.probs.sum(axis=1), 1, rtol=0, atol=1e-12), (k, name)
            for score in PROBS:
                assert np.array_equal(compute(score, first), compute(score, other)), (k, name, score)


def test_both_kernels_move_the_same_numbers_to_the_grid():
    rng = np.random.default_rng(2)
    exact = rng.integers(0, 1001, 5000) / 1000
    odd = [0.0, -0.0, 1.0, 1 - 2**-53, 2**-1074, 1e-300, 1e-17, 1e-8, 0.5, np.nextafter(0.5, 1), np.nextafter(0.5, 0)]
    x = np.concatenate([exact, exact + rng.integers(-9, 9, 5000) * 2.0**-53, rng.random(40_000), odd])
    for narrow, parts in ((False, 201_600_000), (True, 25_200)):
        given = x.astype(np.float32).astype(np.float64) if narrow else x
        found = []
        for backend in BACKENDS:
            former = kernels.use(backend)
            try:
                found.append(given.copy())
                kernels.to_grid(found[-1], parts, narrow)
            finally:
                kernels.use(former)
            assert np.array_equal(found[0].view(np.int64), found[-1].view(np.int64))
            assert np.array_equal(found[-1][-len(odd) + 4 :], np.where(given == 0.5, 0.5, found[-1])[-len(odd) + 4 :])
        moved = found[0] != given
        assert moved[10_000:50_000].sum() < (400 if narrow else 9)
        assert np.abs(found[0] - given).max() < (6e-8 if narrow else 1.5e-14)
        assert (
            np.array_equal(np.sign(np.diff(np.sort(given))), np.sign(np.diff(found[0][np.argsort(given)])))
            or not narrow
        )
        assert (found[0][:10_000].round(3) == found[0][:10_000]).mean() > 0.99 or narrow
