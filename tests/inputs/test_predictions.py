"""`Predictions`: arrays in, one clean container out, or an error that says what to do."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each, noted
from optional import optional
from uqeval._errors import InputError, UQWarning
from uqeval.inputs import Predictions

pd = optional("pandas")
pl = optional("polars")

LABELS = [0, 1, 2, 1]
PROBS = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]]
LOGITS = np.log(PROBS)


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_every_kind_of_array_is_accepted():
    # Every kind of vector is accepted.
    for label, wrap in zip(
        ["list", "numpy", "pandas", "polars", "arrow", "chunked", "tuple"],
        [list, np.asarray, pd.Series, pl.Series, pa.array, lambda x: pa.chunked_array([x]), tuple],
        strict=True,
    ):
        with noted(case=label):
            p = Predictions(wrap(LABELS), probs=PROBS, weights=wrap([1.0, 2.0, 3.0, 4.0]), groups=wrap([7, 7, 9, 9]))
            assert p.labels.tolist() == LABELS
            assert p.weights.tolist() == [1, 2, 3, 4]
            assert p.group_names == ("7", "9")

    # Every kind of table is accepted as probs.
    for wrap in [pd.DataFrame, lambda x: pl.DataFrame(x, orient="row"), np.asarray]:
        with noted(wrap=wrap):
            np.testing.assert_array_equal(Predictions(LABELS, probs=wrap(PROBS)).probs, PROBS)

    # Labels may be passed by name.
    assert Predictions(labels=LABELS, probs=PROBS).labels.tolist() == LABELS

    # Arrays come out as float64 and labels as int64.
    p = Predictions(np.array(LABELS, dtype=np.uint8), probs=np.array(PROBS, dtype=np.float32), weights=[1, 2, 3, 4])
    assert (p.n, p.n_classes, p.classes) == (4, 3, ("0", "1", "2"))
    assert p.labels.dtype == np.int64
    assert p.probs.dtype == p.weights.dtype == np.float64
    np.testing.assert_allclose(p.probs, PROBS, rtol=1e-6)

    # Members may be a list of arrays.
    p = Predictions(LABELS, members=[PROBS, PROBS])
    assert p.members.shape == (2, 4, 3)
    np.testing.assert_allclose(p.probs, PROBS)


def test_cpu_tensors_are_accepted():
    torch = pytest.importorskip("torch")
    p = Predictions(torch.tensor(LABELS), probs=torch.tensor(PROBS, requires_grad=True))
    np.testing.assert_allclose(p.probs, PROBS, rtol=1e-6)


def test_probs_follow_from_logits_and_members():
    # Probs follow from logits.
    p = Predictions(LABELS, logits=LOGITS)
    np.testing.assert_allclose(p.probs, PROBS, atol=1e-15)
    assert p.logits_match is True

    # Huge logits do not overflow.
    p = Predictions([0, 1], logits=[[1e4, -1e4], [-np.inf, 0.0]])
    assert p.probs.tolist() == [[1, 0], [0, 1]]

    # Members follow from member logits and probs from members.
    z = np.stack([LOGITS, 2 * LOGITS])
    p = Predictions(LABELS, member_logits=z)
    np.testing.assert_allclose(p.members, softmax(z), atol=1e-15)
    np.testing.assert_allclose(p.probs, softmax(z).mean(0), atol=1e-15)
    assert p.logits is None
    assert p.logits_match is False


def test_given_probs_win_over_logits_and_logits_over_members():
    # Given probs win over members and logits.
    other = np.full((4, 3), 1 / 3)
    p = Predictions(LABELS, probs=PROBS, members=[other, other])
    np.testing.assert_array_equal(p.probs, PROBS)

    # Logits win over members.
    other = np.full((4, 3), 1 / 3)
    np.testing.assert_allclose(Predictions(LABELS, logits=LOGITS, members=[other]).probs, PROBS)

    # Logits that belong to probs match in silence.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Predictions(LABELS, probs=np.round(PROBS, 3), logits=LOGITS).logits_match is True

    # Tempered probs give one warning.
    with pytest.warns(UQWarning, match="the gap is taken from probs") as seen:
        p = Predictions(LABELS, probs=softmax(LOGITS / 2), logits=LOGITS)
    assert p.logits_match is False
    assert len(seen) == 1


def test_one_column_is_class_1_and_row_sums_are_kept_or_normalised():
    # One probability per row is class 1.
    p = Predictions([0, 1], probs=[0.2, 0.9])
    np.testing.assert_allclose(p.probs, [[0.8, 0.2], [0.1, 0.9]])

    # Row sums off by 2e 5 are accepted as they are.
    probs = np.array(PROBS)
    probs[1, 1] += 2e-5
    np.testing.assert_allclose(Predictions(LABELS, probs=probs).probs, probs, rtol=4e-16)

    # Normalize divides probs and votes by their sum.
    p = Predictions([0, 1], probs=[[2, 2], [1, 3]], soft_labels=[[9, 1], [20, 30]], normalize=True)
    np.testing.assert_allclose(p.probs, [[0.5, 0.5], [0.25, 0.75]])
    np.testing.assert_allclose(p.soft_labels, [[0.9, 0.1], [0.4, 0.6]])

    # Float32 rounding beyond 0 and 1 is clipped.
    p = Predictions([0, 1], probs=np.array([[1.0001, -0.0001], [0.5, 0.5]], dtype=np.float32))
    assert p.probs[0].tolist() == [1, 0]


def test_errors_losses_and_labels_do_without_a_model():
    # Scores and a loss do without a model.
    p = Predictions(scores={"s": [1, np.inf, -np.inf]}, loss=[-3.0, 0.5, 100.0])
    assert p.labels is None
    assert p.n_classes == 0
    assert p.scores["s"].tolist() == [1, np.inf, -np.inf]
    assert p.loss.tolist() == [-3, 0.5, 100]

    # Labels without a model count their classes.
    p = Predictions([0, 4, 1], scores={"s": [1, 2, 3]}, error=[0, 1, 0])
    assert p.n_classes == 5

    # Error is never recomputed.
    p = Predictions([0, 1], probs=[[1, 0], [0, 1]], error=[True, True])
    assert p.error.tolist() == [1.0, 1.0]

    # String labels map through classes.
    p = Predictions(["dog", "cat"], probs=[[0.4, 0.6], [0.9, 0.1]], pred=["cat", "cat"], classes=["cat", "dog"])
    assert p.labels.tolist() == [1, 0]
    assert p.pred.tolist() == [0, 0]
    assert p.classes == ("cat", "dog")


def test_clusters_groups_and_ids_keep_their_names():
    # Clusters and groups become codes.
    p = Predictions(LABELS, probs=PROBS, clusters=["p9", "p1", "p9", "p1"], groups=["b", "a", "a", "b"])
    assert p.clusters.dtype == p.groups.dtype == np.int64
    assert p.cluster_values[p.clusters].tolist() == ["p9", "p1", "p9", "p1"]
    assert [p.group_names[g] for g in p.groups] == ["b", "a", "a", "b"]

    # Numeric texts stay apart and sort as numbers.
    p = Predictions(
        LABELS, probs=PROBS, groups=["10", "9", "10", "9"], clusters=np.array(["007", "7", "7", "7"], object)
    )
    assert p.group_names == ("9", "10")
    assert len(p.cluster_values) == 2

    # Ids are kept as texts.
    assert Predictions(LABELS, probs=PROBS, ids=[10, 11, 12, 13]).ids.tolist() == ["10", "11", "12", "13"]


def full():
    return Predictions(
        LABELS,
        probs=PROBS,
        logits=LOGITS,
        members=[PROBS, PROBS],
        soft_labels=PROBS,
        pred=[0, 1, 2, 0],
        error=[0, 0, 0, 1],
        loss=[0.3, 0.2, 0.6, 0.7],
        scores={"s": [1, 2, 3, 4]},
        weights=[1, 2, 3, 4],
        clusters=["a", "b", "b", "c"],
        groups=["x", "x", "y", "z"],
        ids=["i", "j", "k", "l"],
    )


def test_take_keeps_these_rows_of_everything():
    for rows in [[False, True, True, False], [1, 2], np.array([-3, -2]), pd.Series([1, 2])]:
        with noted(rows=rows):
            whole, part = full(), full().take(rows)
            for name in ("labels", "probs", "logits", "soft_labels", "pred", "error", "loss", "weights", "ids"):
                np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[1:3])
            np.testing.assert_array_equal(part.members, whole.members[:, 1:3])
            assert part.scores["s"].tolist() == [2, 3]
            assert part.n == len(part) == 2
            assert (part.clusters.tolist(), part.cluster_values.tolist()) == ([0, 0], ["b"])
            assert (part.groups.tolist(), part.group_names) == ([0, 1], ("x", "y"))
            assert part.classes == whole.classes

    # Take refuses rows that are not there.
    for rows, message in [
        ([0], "picks 1 row"),
        ([], "picks 0 rows"),
        ([0, 4], "holds 4 but there are 4 rows"),
        ([True, False], "has 2 entries but there are 4 rows"),
        ([0.5, 1.5], "boolean mask or row numbers"),
        ([[0, 1]], "boolean mask or row numbers"),
    ]:
        with noted(rows=rows, message=message), pytest.raises(InputError, match=message):
            full().take(rows)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=9), st.lists(st.integers(0, 1), min_size=2, max_size=4))
def test_taking_twice_is_taking_once(first, second):
    a, b = full().take(first).take(second), full().take(np.array(first)[second])
    np.testing.assert_array_equal(a.probs, b.probs)
    assert a.group_names == b.group_names
    assert a.cluster_values[a.clusters].tolist() == b.cluster_values[b.clusters].tolist()


def test_predictions_are_frozen_survive_pickling_and_print_one_line():
    # Predictions are frozen.
    with pytest.raises(AttributeError):
        full().probs = None

    # Predictions survive pickling.
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(full())).probs, PROBS)

    # Repr is one line with rows classes and contents.
    assert repr(full()) == (
        "Predictions(4 rows, 3 classes: labels, probs, logits, soft_labels, pred, error, loss, weights, "
        "2 members, scores s, 3 clusters, 3 groups)"
    )
    many = Predictions(scores={f"s{i}": [1, 2] for i in range(6)}, error=[0, 1])
    assert repr(many) == "Predictions(2 rows: error, scores s0 s1 s2 s3 …)"


def bad(**changes):
    return {"labels": LABELS, "probs": PROBS} | changes


OFF = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.08], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]]
BAD = {
    "nothing": ({}, "need `labels` and one of `probs`"),
    "labels only": ({"labels": LABELS}, "or else `scores` and one of `error`"),
    "scores without target": ({"labels": LABELS, "scores": {"s": [1, 2, 3, 4]}}, "or else `scores` and one of"),
    "error without scores": ({"error": [0, 1]}, "`scores` and one of"),
    "no labels": ({"probs": PROBS}, "`labels` are missing"),
    "no rows": ({"labels": [], "probs": np.empty((0, 3))}, "has 0 rows"),
    "one row": ({"labels": [0], "probs": [[0.5, 0.5]]}, "has 1 row\\. Ranking needs at least 2"),
    "lengths": (bad(labels=[0, 1]), "`probs` has 4 rows but `labels` has 2"),
    "score length": (bad(scores={"s": [1, 2]}), r"`scores\['s'\]` has 2 rows but `labels` has 4"),
    "members length": (bad(members=np.full((2, 3, 3), 1 / 3)), "`members` has 3 rows but `labels` has 4"),
    "clusters length": (bad(clusters=[1]), "`clusters` has 1 rows"),
    "label outside": (bad(labels=[0, 1, 2, 3]), r"indices 0..2 \(there are 3 classes\); row 3 holds 3"),
    "label negative": (bad(labels=[0, -1, 2, 1]), "row 1 holds -1"),
    "label fraction": (bad(labels=[0, 0.5, 2, 1]), "row 1 holds 0.5"),
    "label NaN": (bad(labels=[0, np.nan, 2, 1]), "row 1 holds nan"),
    "label None": (bad(labels=[0, None, 2, 1]), "row 1 holds nan"),
    "label strings": (bad(labels=["a", "b", "c", "b"]), r"holds strings. Pass classes="),
    "label unknown": (
        bad(labels=["a", "b", "d", "b"], classes=["a", "b", "c"]),
        r"'d' in row 2 \(1 such row\), which is not among the classes \(a, b, c\)",
    ),
    "lone label negative": ({"labels": [-1, 0], "scores": {"s": [1, 2]}, "error": [0, 1]}, "row 0 holds -1"),
    "lone label NaN": ({"labels": [np.nan, 0], "scores": {"s": [1, 2]}, "error": [0, 1]}, "row 0 holds nan"),
    "labels a name": (bad(labels="preds.csv"), "`labels` is 'preds.csv'"),
    "pred outside": (bad(pred=[0, 1, 2, 9]), "`pred` must be class indices 0..2"),
    "sum 0.98": (bad(probs=OFF), "worst row 1 sums to 0.98"),
    "logits as probs": (bad(probs=[[2.0, -1, 0], [3, 1, -4], [0, 1, 2], [5, 5, 5]]), "look like logits"),
    "percent as probs": (bad(probs=100 * np.asarray(PROBS)), "look like percent: divide them by 100"),
    "percent of class 1": ({"labels": [0, 1], "probs": [3, 99.5]}, "look like percent"),
    "logits of class 1": ({"labels": [0, 1], "probs": [-3, 99.5]}, "look like logits"),
    "another whole": (bad(probs=1.5 * np.asarray(PROBS)), "sum to 1 in each row: mend the columns, or pass normalize"),
    "counts as probs": (bad(soft_labels=[[9, 1, 0]] * 4), "look like counts"),
    "prob above 1": (bad(probs=[[1.2, -0.2, 0.0], *PROBS[1:]]), r"holds 1.2 in row 0. Probabilities lie in \[0, 1\]"),
    "prob NaN": (bad(probs=[[np.nan, 0.5, 0.5], *PROBS[1:]]), "NaN or infinity in 1 row .first at row 0"),
    "prob inf": (bad(probs=[[np.inf, 0.5, 0.5], *PROBS[1:]]), "NaN or infinity"),
    "prob text": (bad(probs=[["a", "b", "c"]] * 4), "not numbers"),
    "probs 3-D": (bad(probs=[PROBS]), r"shape \(1, 4, 3\)"),
    "one class": (bad(probs=[[1.0]] * 4), r"shape \(4, 1\)"),
    "sum 0": (bad(probs=[[0, 0, 0], *PROBS[1:]], normalize=True), "sums to 0 in row 0"),
    "logit NaN": ({"labels": LABELS, "logits": [[np.nan, 1, 2], *PROBS[1:]]}, "`logits` has NaN"),
    "ragged rows": (bad(probs=[[0.5, 0.5], [1.0]]), "rectangular"),
    "ragged members": (bad(members=[PROBS, PROBS[:3]]), r"`members\[1\]` has shape \(3, 3\)"),
    "empty list of members": (bad(members=[]), "`members` has"),
    "no members": (bad(members=np.empty((0, 4, 3))), "no member"),
    "K of members": (bad(members=np.full((2, 4, 2), 0.5)), "`members` has 2 classes but `probs` has 3"),
    "K of logits": (bad(logits=np.zeros((4, 2))), "`logits` has 2 classes but `probs` has 3"),
    "K of soft labels": (bad(soft_labels=[[1, 0]] * 4), "`soft_labels` has 2 classes but `probs` has 3"),
    "K of classes": (bad(classes=["a", "b"]), "`classes` has 2 classes but `probs` has 3"),
    "classes twice": (bad(classes=["a", "b", "a"]), "names 'a' more than once"),
    "classes a text": (bad(classes="abc"), "Pass a list of names"),
    "error 2": (bad(error=[0, 1, 2, 0]), r"0 \(right\) or 1 \(wrong\); row 2 holds 2"),
    "error NaN": (bad(error=[0, 1, np.nan, 0]), "`error` has 1 NaN .first at row 2.. Drop or mend"),
    "loss inf": (bad(loss=[0, 1, np.inf, 0]), "`loss` has 1 infinite"),
    "score NaN": (bad(scores={"s": [1, 2, np.nan, 4]}), r"`scores\['s'\]` has 1 NaN"),
    "scores an array": (bad(scores=[1, 2, 3, 4]), "Pass a dict"),
    "weights negative": (bad(weights=[1, 1, -1, 1]), "≥ 0; row 2 holds -1"),
    "weights zero": (bad(weights=[0, 0, 0, 0]), "all zero"),
    "weights NaN": (bad(weights=[1, np.nan, 1, 1]), "`weights` has 1 NaN"),
    "weights inf": (bad(weights=[1, np.inf, 1, 1]), "`weights` has 1 infinite"),
    "cluster missing": (bad(clusters=["a", None, "b", "a"]), "`clusters` has 1 missing entries .first at row 1"),
    "group NaN": (bad(groups=[1, np.nan, 2, 1]), "`groups` has 1 missing"),
    "group 2-D": (bad(groups=[[1], [2], [3], [4]]), r"`groups` has shape \(4, 1\)"),
    "ids 2-D": (bad(ids=[[1], [2], [3], [4]]), r"`ids` has shape \(4, 1\)"),
}


@each(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_arrays_are_refused_with_a_clear_message(arguments, message):
    with pytest.raises(InputError, match=message):
        Predictions(**arguments)


def test_importing_inputs_loads_no_frame_library():
    code = "import sys, uqeval.inputs; print({'pyarrow', 'pandas', 'polars', 'narwhals'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


TWO_READINGS = "can be read in two ways.*labels_by=.name. or labels_by=.position."


def test_labels_that_match_the_classes_by_value_are_read_by_value():
    probs = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.8, 0.1], [0.7, 0.2, 0.1]])

    def labels(y, classes, **more):
        return Predictions(y, probs=probs, classes=classes, **more).labels.tolist()

    # By value wherever a position cannot be meant; by position wherever a value cannot be.
    for y in ([1, 2, 3, 1], [1.0, 2.0, 3.0, 1.0], ["1", "2", "3", "1"], np.array([1, 2, 3, 1], dtype=np.uint8)):
        for classes in ([1, 2, 3], np.array([1, 2, 3]), ["1", "2", "3"], [1.0, 2.0, 3.0]):
            if not isinstance(y[0], str) or "1" in map(str, classes):
                with noted(y=y, classes=classes):
                    assert labels(y, classes) == [0, 1, 2, 0]
    assert labels([-1, 7, 7, 100], [-1, 7, 100]) == [0, 1, 1, 2]
    assert labels([0, 1, 2, 0], [1, 2, 3]) == [0, 1, 2, 0]
    assert labels([0, 1, 2, 0], ["cat", "dog", "cow"]) == [0, 1, 2, 0]
    assert labels([0, 2, 1, 0], [0, 1, 2]) == [0, 2, 1, 0]

    # No row of class 3: both fit and differ, so it must be said. `pred` may tell.
    with pytest.raises(InputError, match=TWO_READINGS):
        labels([1, 2, 2, 1], [1, 2, 3])
    with pytest.raises(InputError, match=TWO_READINGS):
        labels([True, False, False, True], ["True", "False", "unsure"])
    assert labels([1, 2, 2, 1], [1, 2, 3], labels_by="name") == [0, 1, 1, 0]
    assert labels([1, 2, 2, 1], [1, 2, 3], labels_by="position") == [1, 2, 2, 1]
    assert labels(["1", "2", "2", "1"], [1, 2, 3]) == [0, 1, 1, 0]  # texts are names
    assert labels([1, 2, 2, 1], [1, 2, 3], pred=[1, 3, 2, 1]) == [0, 1, 1, 0]

    # What fits neither is refused with both.
    with pytest.raises(InputError, match=r"holds 0 in row 3.*classes \(1, 2, 3\) nor among their positions 0..2"):
        labels([3, 2, 1, 0], [1, 2, 3])
    with pytest.raises(InputError, match=r"holds 3 in row 0.*no position 0..2"):
        labels([3, 2, 1, 0], [1, 2, 3], labels_by="position")
    with pytest.raises(InputError, match="`labels_by` must be one of"):
        labels([1, 2, 2, 1], [1, 2, 3], labels_by="value")


def test_errors_and_codes_are_their_own():
    error = np.array([0, 1, 0, 1], dtype=np.bool_)
    p = Predictions(scores={"a": [1.0, 2.0, 3.0, 4.0]}, error=error)
    error[:] = ~error
    assert p.error.tolist() == [0, 1, 0, 1]

    # Codes of any integer type, beyond int64 too.
    rng = np.random.default_rng(0)
    for kind, low in ((np.int8, -128), (np.uint8, 0), (np.int64, -(2**62)), (np.uint64, 2**63 + 5)):
        codes = np.array([low + int(k) for k in rng.integers(0, 200, 60)], dtype=kind)
        with noted(kind=kind):
            found = Predictions(scores={"a": rng.random(60)}, error=rng.integers(0, 2, 60), clusters=codes)
            values, expected = np.unique(codes, return_inverse=True)
            assert found.clusters.tolist() == expected.tolist()
            assert found.cluster_values.tolist() == values.tolist()
