"""Whatever is asked of a score, it is sorted once."""

from collections import Counter

import numpy as np
import pytest

import uqeval as uq
from cases import each, on_both_kernels
from uqeval import kernels

SORTING = {"order_by": 0, "mark": 0, "auc_sums": 0, "concordance": (0, 1), "pair_counts": (0, 1)}


@pytest.fixture
def sorts(monkeypatch):
    """How often each column of numbers was sorted, whatever the order of its rows."""
    seen = Counter()

    def counting(function, places):
        def count(*given):
            for place in np.atleast_1d(places):
                for column in np.atleast_2d(given[place]):
                    if (column % 1).any():  # no codes of groups, clusters or tied losses
                        seen[np.sort(column).tobytes()] += 1
            return function(*given)

        return count

    for module in (kernels.plain, *([kernels.native] if "native" in kernels.available() else [])):
        for name, places in SORTING.items():
            monkeypatch.setattr(module, name, counting(getattr(module, name), places))
    return seen


@pytest.fixture
def no_lexsort(monkeypatch):
    """No score is sorted beside the kernels; the NumPy twin sorts inside clusters."""
    lexsort = np.lexsort

    def sort(keys, *rest):
        assert kernels.backend() == "numpy" or max(len(np.unique(key)) for key in keys) < 300
        return lexsort(keys, *rest)

    monkeypatch.setattr(np, "lexsort", sort)


def rows(n=400):
    rng = np.random.default_rng(5)
    error = (rng.random(n) < 0.3).astype(int)
    score = {"a": rng.normal(size=n) + error, "b": rng.normal(size=n) + 0.5 * error}
    more = {
        "plain": {},
        "weights": {"weights": rng.gamma(2.0, size=n)},
        "clusters": {"clusters": rng.integers(0, 40, n)},
        "both": {"weights": rng.gamma(2.0, size=n), "clusters": rng.integers(0, 40, n)},
        "groups": {"groups": rng.integers(0, 3, n)},
        "grouped clusters": {"groups": np.arange(n) % 3, "clusters": np.arange(n) % 120},
    }
    return score, error, rng.random(n) + 0.2 * error, more


@on_both_kernels
@each("kind", ["plain", "weights", "clusters", "both", "groups", "grouped clusters"])
def test_evaluate_sorts_each_score_and_the_loss_once(sorts, no_lexsort, kind):
    score, error, loss, more = rows()
    sorts.clear()
    uq.evaluate(score=score, error=error, loss=loss, **more[kind])
    assert sorted(sorts.values()) == [1, 1, 1]

    # 0/1 errors alone: the scores alone.
    sorts.clear()
    uq.evaluate(score=score, error=error, **more[kind])
    assert sorted(sorts.values()) == [1, 1]

    # One metric, and the share of ties with it.
    for metric in ("uq_auc", "aurc"):
        sorts.clear()
        uq.evaluate(score=score, error=error, metrics=metric, **more[kind])
        assert sorted(sorts.values()) == [1, 1]


@on_both_kernels
@each("kind", ["plain", "weights", "clusters", "both"])
@each("classes", [2, 3])
def test_a_second_c_index_sorts_no_score_again_and_of_two_classes_nothing_at_all(sorts, no_lexsort, kind, classes):
    *_, more = rows()
    rng = np.random.default_rng(6)
    pred = uq.Predictions(rng.integers(0, classes, 400), logits=rng.normal(size=(400, classes)), **more[kind])
    sorts.clear()
    uq.evaluate(pred, scores=["entropy", "margin"], metrics=["uq_auc", "top_label_c_index", "uq_c_index"])
    scores, targets = (
        (1, 1) if classes == 2 else (2, 2)
    )  # of two classes all is one ranking, and the gap the only target
    assert sorted(sorts.values()) == [1] * (scores + targets)


@on_both_kernels
@each("kind", ["plain", "weights", "clusters", "both", "groups", "grouped clusters"])
@each("metric", ["uq_auc", "aurc", "naurc", "uq_c_index"])
def test_compare_sorts_each_score_once(sorts, no_lexsort, kind, metric):
    score, error, loss, more = rows()
    given = {"loss": loss} if metric == "uq_c_index" else {"error": error}
    sorts.clear()
    uq.compare(score, metric=metric, **given, **more[kind])
    assert sorted(sorts.values()) == [1] * (2 + len(given.get("loss", [])) // 400)


@on_both_kernels
def test_a_report_sorts_nothing_that_was_evaluated(sorts):
    score, error, _, more = rows()
    found = uq.evaluate(score=score, error=error, **more["clusters"])
    sorts.clear()
    uq.report(found)
    assert max(sorts.values(), default=0) <= 1  # the threshold of the verdict has rows of its own


@on_both_kernels
@each("kind", ["plain", "weights", "clusters", "both", "groups", "grouped clusters"])
def test_a_score_that_ranks_as_another_is_not_sorted_at_all(sorts, no_lexsort, kind):
    score, error, loss, more = rows(3000)
    score |= {"a grown": np.exp(score["a"]), "b grown": 2 * score["b"]}
    for given in ({"error": error}, {"error": error, "loss": loss}):
        sorts.clear()
        found = uq.evaluate(score=score, **given, **more[kind])
        assert found.same_ranking == (("a", "a grown"), ("b", "b grown"))
        assert sorted(sorts.values()) == [1] * (1 + len(given))
    sorts.clear()
    assert len(uq.compare(score, error=error, **more[kind]).values) == 4
    assert sorted(sorts.values()) == [1, 1]
