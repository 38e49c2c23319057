"""The set-valued classifier: the label inside the region, all labels outside; its coverage is 1 − P(wrong, inside)."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from strategies import FINITE_SCORES, make_scores, seeds
from uqeval import InputError, UQWarning, truth
from uqeval._result import strict
from uqeval.decide import SetReport, SetValuedClassifier, Threshold, choose_threshold


def sets_at(value, *, max_risk=0.1, level=0.95, **changes):
    return SetValuedClassifier(replace(Threshold.from_value(value, max_risk=max_risk, level=level), **changes))


def infeasible():
    rng = np.random.default_rng(0)
    found = choose_threshold(rng.random(30), rng.integers(0, 2, 30), 0.01)
    assert not found.feasible
    return found


@st.composite
def classified(draw, most=50):
    """Probabilities without ties at the top, scores, labels, a threshold."""
    n, classes = draw(st.integers(2, most)), draw(st.integers(2, 6))
    kind, rng = draw(st.sampled_from(FINITE_SCORES)), np.random.default_rng(draw(seeds))
    probs, score = rng.dirichlet(np.ones(classes), n), make_scores(rng, n, kind)
    labels = np.where(rng.random(n) < 0.7, probs.argmax(axis=1), rng.integers(0, classes, n))
    return probs, score, labels, float(rng.choice(score))


# ---- predict --------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(classified())
def test_a_set_is_the_predicted_label_inside_and_all_labels_outside(case):
    probs, score, _, value = case
    found = sets_at(value).predict(probs, score)
    assert found.dtype == np.bool_
    assert found.shape == probs.shape
    for i in range(len(score)):
        expected = {int(probs[i].argmax())} if score[i] <= value else set(range(probs.shape[1]))
        assert set(np.flatnonzero(found[i]).tolist()) == expected


@settings(max_examples=30)
@given(classified(), seeds)
def test_given_predictions_replace_the_most_probable_class(case, seed):
    probs, score, _, value = case
    pred = np.random.default_rng(seed).integers(0, probs.shape[1], len(score))
    found = sets_at(value).predict(probs, score, pred=pred)
    inside = score <= value
    assert found[~inside].all()
    assert (found[inside].sum(axis=1) == 1).all()
    assert (found[inside].argmax(axis=1) == pred[inside]).all()


@settings(max_examples=30)
@given(classified())
def test_one_probability_per_row_is_that_of_class_1(case):
    probs, score, labels, value = case
    p1 = probs[:, 0]
    both, sets = np.stack([1 - p1, p1], axis=1), sets_at(value)
    np.testing.assert_array_equal(sets.predict(p1, score), sets.predict(both, score))
    one, other = sets.evaluate(p1, score, labels % 2), sets.evaluate(both, score, labels % 2)
    assert one == other
    assert one.n_classes == 2


def test_an_infeasible_threshold_gives_all_labels():
    sets = SetValuedClassifier(infeasible())
    probs = [[0.9, 0.1, 0.0], [0.2, 0.7, 0.1]]
    assert sets.predict(probs, [-1e300, 0.0]).all()
    assert sets.predict(probs, [-math.inf, 0.0]).all()
    report = sets.evaluate(probs, [-1e300, 0.0], [1, 2])
    assert (report.coverage.value, report.size.value, report.single.value) == (1.0, 3.0, 0.0)
    assert sets.coverage_bound == sets.expected_coverage == 1.0


def test_a_threshold_that_accepts_everything_gives_the_classifier_itself():
    sets = sets_at(math.inf)
    report = sets.evaluate([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [1.0, 2.0, 1e300], [0, 1, 1])
    assert report.coverage.value == pytest.approx(2 / 3)
    assert (report.size.value, report.single.value) == (1.0, 1.0)


def test_one_row_can_be_predicted():
    assert sets_at(0.5).predict([[0.9, 0.1]], [0.5]).tolist() == [[True, False]]
    assert sets_at(0.5).predict([[0.9, 0.1]], [0.6]).tolist() == [[True, True]]


def test_tied_probabilities_take_the_lowest_class_with_a_warning():
    with pytest.warns(UQWarning, match="tied"):
        found = sets_at(0.5).predict([[0.5, 0.5], [0.1, 0.9]], [0.1, 0.2])
    assert found.tolist() == [[True, False], [False, True]]


# ---- evaluate -------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(classified())
def test_coverage_is_one_minus_the_share_of_rows_accepted_and_wrong(case):
    probs, score, labels, value = case
    report = sets_at(value).evaluate(probs, score, labels)
    inside, error = score <= value, truth.misclassified(probs, labels) == 1
    assert report.coverage.value == pytest.approx(1 - (error & inside).mean(), abs=1e-15)
    # 1 − γ P(s ≤ β) with γ the risk inside, and never below the accuracy.
    assert report.coverage.value == pytest.approx(1 - error[inside].mean() * inside.mean(), abs=1e-12)
    assert 1 - error.mean() - 1e-12 <= report.coverage.value <= 1
    held = sets_at(value).predict(probs, score)[np.arange(len(labels)), labels]
    assert report.coverage.value == pytest.approx(held.mean(), abs=1e-15)
    assert report.n == len(labels)


@settings(max_examples=30)
@given(classified())
def test_size_is_one_inside_and_all_classes_outside(case):
    probs, score, labels, value = case
    report = sets_at(value).evaluate(probs, score, labels)
    share, classes = (score <= value).mean(), probs.shape[1]
    assert report.single.value == pytest.approx(share)
    assert report.size.value == pytest.approx(share + classes * (1 - share))
    assert report.size.value == pytest.approx(sets_at(value).predict(probs, score).sum(axis=1).mean())
    assert report.n_classes == classes


@settings(max_examples=25)
@given(classified(), st.sampled_from([0.5, 0.9, 0.99]))
def test_intervals_of_independent_rows_are_exact(case, level):
    probs, score, labels, value = case
    n, classes = len(labels), probs.shape[1]
    report = sets_at(value, level=0.8).evaluate(probs, score, labels, level=level)
    inside, error = score <= value, truth.misclassified(probs, labels) == 1
    for found, hits in ((report.coverage, int(n - (error & inside).sum())), (report.single, int(inside.sum()))):
        expected = binomtest(hits, n).proportion_ci(level, method="exact")
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-8, abs=1e-12)
        assert found.level == level
    single = binomtest(int(inside.sum()), n).proportion_ci(level, method="exact")
    assert report.size.low == pytest.approx(single.high + classes * (1 - single.high), rel=1e-8)
    assert report.size.high == pytest.approx(single.low + classes * (1 - single.low), rel=1e-8)
    assert report.size.low - 1e-9 <= report.size.value <= report.size.high + 1e-9
    sd = sets_at(value).predict(probs, score).sum(axis=1).std(ddof=1)
    assert report.size.se == pytest.approx(sd / math.sqrt(n), abs=1e-9)


def test_level_is_that_of_the_threshold_unless_given():
    case = ([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0.1, 0.2, 0.9], [0, 0, 1])
    assert sets_at(0.5, level=0.8).evaluate(*case).coverage.level == 0.8
    report = sets_at(0.5, level=0.8).evaluate(*case, level=0.9)
    assert (report.coverage.level, report.single.level, report.size.level) == (0.9, 0.9, 0.9)


def test_the_papers_example_covers_99_percent_and_not_2():
    # A risk of .0231 on 37.0% of the inputs.
    n, inside = 100_000, 37_000
    wrong = round(0.0231 * inside)
    score, labels = np.where(np.arange(n) < inside, 0.1, 0.9), np.zeros(n, dtype=int)
    probs = np.tile([0.8, 0.1, 0.1], (n, 1))
    labels[:wrong] = 1
    labels[inside:] = 1  # wrong too, but there the set holds all labels
    report = sets_at(0.5).evaluate(probs, score, labels)
    assert report.coverage.value == pytest.approx(0.9915, abs=1e-4)
    assert report.coverage.low < 0.9915 < report.coverage.high
    assert report.size.value == pytest.approx(0.37 + 3 * 0.63)
    chosen = replace(choose_threshold(score, labels != 0, 0.03), max_risk=0.0231)
    assert chosen.coverage == pytest.approx(0.370)
    assert SetValuedClassifier(chosen).expected_coverage == pytest.approx(0.9915, abs=5e-5)


def test_bounds_follow_from_the_promise():
    chosen = sets_at(0.5, max_risk=0.05, method="fallback", coverage=0.6)
    assert chosen.expected_coverage == pytest.approx(1 - 0.05 * 0.6)
    assert chosen.coverage_bound == pytest.approx(0.95)
    for method in ("rcps", "crc"):
        joint = sets_at(0.5, max_risk=0.05, method=method, coverage=0.6)
        assert joint.expected_coverage == joint.coverage_bound == pytest.approx(0.95)


def test_a_promise_that_is_not_about_labels_bounds_no_coverage():
    for changes in [{"what": "loss"}, {"what": "misaligned"}, {"method": "by hand"}]:
        sets = sets_at(0.5, max_risk=0.05, **{"method": "fallback", "coverage": 0.6, **changes})
        assert math.isnan(sets.coverage_bound)
        assert math.isnan(sets.expected_coverage)
        nothing = sets_at(-math.inf, max_risk=0.05, **{"method": "fallback", "coverage": 0.0, **changes})
        assert nothing.coverage_bound == nothing.expected_coverage == 1.0  # all labels, always


def test_joint_methods_reach_the_coverage_that_they_promise():
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.full(4, 0.3), 6000)
    labels = np.array([rng.choice(4, p=p) for p in probs])
    score, error = 1 - probs.max(axis=1), truth.misclassified(probs, labels)
    for method in ("rcps", "crc"):
        sets = SetValuedClassifier(choose_threshold(score[:3000], error[:3000], 0.1, method=method))
        assert sets.threshold.feasible
        assert sets.threshold.coverage < 1
        report = sets.evaluate(probs[3000:], score[3000:], labels[3000:])
        assert report.coverage.high > 0.9
        assert report.coverage.value == pytest.approx(0.9, abs=0.03)


@settings(max_examples=30)
@given(seeds)
def test_row_order_and_names_of_clusters_change_nothing(seed):
    rng = np.random.default_rng(seed)
    probs, score, labels = rng.dirichlet(np.ones(3), 90), rng.random(90), rng.integers(0, 3, 90)
    clusters, order = rng.integers(0, 30, 90), rng.permutation(90)
    sets = sets_at(0.5)
    one = sets.evaluate(probs, score, labels, clusters=clusters)
    names = [f"patient {g}" for g in clusters[order]]
    other = sets.evaluate(probs[order], score[order], labels[order], clusters=names)
    for name in ("coverage", "size", "single"):
        a, b = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose([a.value, a.low, a.high, a.se], [b.value, b.low, b.high, b.se], rtol=1e-9)
        assert a.n_clusters == b.n_clusters == len(set(clusters.tolist()))


def test_copied_rows_need_clusters_to_be_honest():
    rng = np.random.default_rng(2)
    probs, score, labels = rng.dirichlet(np.ones(3), 300), rng.random(300), rng.integers(0, 3, 300)
    sets, ten = sets_at(0.5), [np.repeat(x, 10, axis=0) for x in (probs, score, labels)]
    once, copied = sets.evaluate(probs, score, labels), sets.evaluate(*ten)
    honest = sets.evaluate(*ten, clusters=np.repeat(np.arange(300), 10))
    for name in ("coverage", "size", "single"):
        a, b, c = (getattr(report, name) for report in (once, copied, honest))
        assert a.value == pytest.approx(b.value) == pytest.approx(c.value)
        assert b.high - b.low < (a.high - a.low) / 2
        assert c.high - c.low == pytest.approx(a.high - a.low, rel=0.1)
        assert c.low <= c.value <= c.high


def test_singleton_clusters_are_close_to_rows():
    rng = np.random.default_rng(3)
    case = rng.dirichlet(np.ones(3), 2000), rng.random(2000), rng.integers(0, 3, 2000)
    one, other = sets_at(0.5).evaluate(*case), sets_at(0.5).evaluate(*case, clusters=np.arange(2000))
    for name in ("coverage", "size", "single"):
        a, b = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose([a.value, a.low, a.high, a.se], [b.value, b.low, b.high, b.se], atol=2e-3)


def test_a_single_cluster_has_values_but_no_intervals():
    probs, score = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0.1, 0.2, 0.9]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        report = sets_at(0.5).evaluate(probs, score, [0, 0, 1], clusters=["p"] * 3)
    assert report.coverage.value == pytest.approx(2 / 3)
    assert np.isnan([report.coverage.low, report.coverage.high, report.size.low, report.size.high]).all()
    assert any("cluster" in note for note in report.coverage.warnings)


# ---- inputs ---------------------------------------------------------------------------------------------------

PROBS, SCORE, LABELS = [[0.9, 0.1], [0.2, 0.8]], [0.1, 0.9], [0, 1]


def test_only_one_threshold_makes_a_classifier():
    for given_ in [0.5, None, "0.5", choose_threshold(np.arange(200), np.zeros(200), [0.05, 0.1])]:
        with pytest.raises(InputError, match="choose_threshold"):
            SetValuedClassifier(given_)


def test_input_that_cannot_be_used_is_refused():
    for call, words in [
        (lambda s: s.predict(PROBS, [0.1]), "score"),
        (lambda s: s.predict(PROBS, [0.1, math.nan]), "score"),
        (lambda s: s.predict(PROBS, [[0.1], [0.2]]), "score"),
        (lambda s: s.predict([[0.9, 0.2], [0.2, 0.8]], SCORE), "probs"),
        (lambda s: s.predict([[2.0, -1.0], [0.2, 0.8]], SCORE), "probs"),
        (lambda s: s.predict([[1.0], [1.0]], SCORE), "probs"),
        (lambda s: s.predict([[0.9, math.nan], [0.2, 0.8]], SCORE), "probs"),
        (lambda s: s.predict(PROBS, SCORE, pred=[0]), "pred"),
        (lambda s: s.predict(PROBS, SCORE, pred=[0, 2]), "pred"),
        (lambda s: s.predict(PROBS, SCORE, pred=[0, -1]), "pred"),
        (lambda s: s.predict(PROBS, SCORE, pred=[0, 0.5]), "pred"),
        (lambda s: s.evaluate(PROBS, SCORE, [0]), "labels"),
        (lambda s: s.evaluate(PROBS, SCORE, [0, 2]), "labels"),
        (lambda s: s.evaluate(PROBS, SCORE, [0, -1]), "labels"),
        (lambda s: s.evaluate(PROBS, SCORE, [0, math.nan]), "labels"),
        (lambda s: s.evaluate(PROBS, SCORE, LABELS, clusters=[1]), "clusters"),
        (lambda s: s.evaluate(PROBS, SCORE, LABELS, level=95), "level"),
        (lambda s: s.evaluate(PROBS[:1], SCORE[:1], LABELS[:1]), "row"),
        (lambda s: s.evaluate(PROBS, SCORE, LABELS).to_frame("excel"), "kind"),
    ]:
        with pytest.raises(InputError, match=words):
            call(sets_at(0.5))


# ---- print ----------------------------------------------------------------------------------------------------


def test_frame_has_a_row_per_quantity():
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    for kind in ["pandas", "polars", "pyarrow"]:
        report = sets_at(0.5).evaluate(PROBS, SCORE, LABELS)
        frame = report.to_frame(kind)
        names = frame.column_names if kind == "pyarrow" else list(frame.columns)
        assert names == ["quantity", "value", "low", "high", "n"]
        column = frame["quantity"].to_pylist() if kind == "pyarrow" else list(frame["quantity"])
        assert column == ["coverage", "size", "single"]


def test_dict_and_text_hold_the_numbers():
    report = sets_at(0.5).evaluate(PROBS, SCORE, LABELS)
    data = json.loads(json.dumps(strict(report.to_dict()), allow_nan=False))
    assert (data["n"], data["n_classes"]) == (2, 2)
    assert (data["coverage"]["value"], data["size"]["value"], data["single"]["value"]) == (1.0, 1.5, 0.5)
    assert "labels per set: 1.500" in str(report)
    assert "2 rows" in str(report)
    assert report._repr_html_() == f"<p>{report}</p>"
    assert isinstance(report, SetReport)
