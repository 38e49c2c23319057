"""PRR while at most a share of the rows is rejected, against lm-polygraph's definition written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from uqeval import metrics
from uqeval._errors import InputError, UndefinedMetricWarning


def polygraph(score, quality, share):
    """(area − random)/(oracle − random), each area the mean quality of the k surest for the last k's."""
    n = len(score)
    rejected = int(share * n)

    def area(order):
        means = [np.mean(quality[order[:k]]) for k in range(n - rejected + 1, n + 1)]
        return np.mean(means)

    useless = np.mean(quality)
    return (area(np.argsort(score)) - useless) / (area(np.argsort(-quality)) - useless)


def test_partial_prr_is_that_of_lm_polygraph_where_no_scores_are_tied():
    rng = np.random.default_rng(0)
    for n in (7, 50, 301):
        for share in (0.3, 0.5, 0.9):
            score = rng.permutation(n).astype(float)
            for quality in (rng.random(n), (rng.random(n) < 0.6).astype(float)):
                if n == 7 and len(set(quality)) == 1:
                    continue
                expected = polygraph(score, quality, share)
                assert metrics.prr(score, 1 - quality, max_rejection=share) == pytest.approx(expected, abs=1e-10)


def test_tied_scores_count_as_the_mean_over_their_orders():
    rng = np.random.default_rng(1)
    score, loss = np.repeat([0.0, 1.0, 2.0], 5), rng.random(15)
    drawn = [metrics.prr(score + rng.random(15) / 10, loss, max_rejection=0.5) for _ in range(4000)]
    noise = np.std(drawn) / len(drawn) ** 0.5
    assert metrics.prr(score, loss, max_rejection=0.5) == pytest.approx(np.mean(drawn), abs=5 * noise)
    order = rng.permutation(15)
    assert metrics.prr(score[order], loss[order], max_rejection=0.5) == pytest.approx(
        metrics.prr(score, loss, max_rejection=0.5), abs=1e-14
    )
    assert metrics.prr(np.zeros(15), loss, max_rejection=0.5) == pytest.approx(0.0, abs=1e-14)


def test_the_whole_range_is_prr_and_equal_weights_change_nothing():
    rng = np.random.default_rng(2)
    score, loss = rng.integers(0, 20, 200).astype(float), rng.random(200)
    nearly = metrics.prr(score, loss, max_rejection=1 - 1e-12)  # 199 of 200 coverages
    assert metrics.prr(score, loss, max_rejection=1.0) == metrics.prr(score, loss) != nearly
    weighted = metrics.prr(score, loss, max_rejection=0.5, weights=np.full(200, 3.0))
    assert weighted == pytest.approx(metrics.prr(score, loss, max_rejection=0.5), abs=1e-12)
    assert metrics.prr(loss, loss, max_rejection=0.5) == pytest.approx(1.0, abs=1e-14)


def test_shares_that_cannot_be_and_scores_that_are_missing_are_refused():
    for share in (0, 1.5, -0.1, math.nan, "0.5"):
        with pytest.raises(InputError, match="`max_rejection` must lie in"):
            metrics.prr([1, 2], [0, 1], max_rejection=share)
    with pytest.raises(InputError, match="1 NaN"):  # lm-polygraph makes it the most certain row
        metrics.prr([1, math.nan], [0, 1], max_rejection=0.5)
    # With no more than one row to reject only the risk of all rows counts, which is the same in any order.
    for score, loss, share in (([1, 2, 3, 4], [0.5] * 4, 0.5), ([1, 2, 3], [0, 1, 1], 0.5), ([1, 2], [0, 1], 0.4)):
        with pytest.warns(UndefinedMetricWarning, match="no order of the rows"):
            assert math.isnan(metrics.prr(score, loss, max_rejection=share))


def test_a_model_that_is_always_right_has_an_aurac_of_one():
    # 20 rectangles of width 0.9/19, as semantic_uncertainty sums them, give 0.947.
    assert metrics.auarc(np.arange(50.0), np.zeros(50)) == 1.0
