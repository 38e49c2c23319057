"""Frames: which column is what, which class a label means, and what is said when that cannot be told."""

from __future__ import annotations

import re
import time
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from cases import each, noted
from optional import optional
from uqeval._errors import InputError
from uqeval.inputs import Predictions

pd = optional("pandas")
pl = optional("polars")

DATA = {"label": ["dog", "cat", "dog"], "prob_dog": [0.6, 0.3, 0.2], "prob_cat": [0.4, 0.7, 0.8]}
NUMBERED = {"label": [0, 1, 10], "prob_10": [0.2, 0.1, 0.7], "prob_0": [0.5, 0.1, 0.1], "prob_1": [0.3, 0.8, 0.2]}
KINDS = {"pandas": lambda rows: pd.DataFrame(rows), "polars": lambda rows: pl.DataFrame(rows), "arrow": pa.table}
each_kind = each("kind", KINDS.values(), ids=KINDS)


def read(data, **columns):
    return Predictions.from_frame(pa.table(data), **columns)


def without(data, *names):
    return {name: column for name, column in data.items() if name not in names}


def test_frames_of_every_kind_give_the_same_predictions():
    for label, kind in KINDS.items():
        with noted(case=label):
            p = Predictions.from_frame(kind(DATA))
            assert p.classes == ("dog", "cat")
            assert p.labels.tolist() == [0, 1, 0]
            np.testing.assert_array_equal(p.probs, [[0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])

    # From frame is the same as the function.
    for label, kind in KINDS.items():
        with noted(case=label):
            p = Predictions.from_frame(kind({"y": [0, 1], "prob_0": [0.1, 0.2], "prob_1": [0.9, 0.8]}), label="y")
            assert p.labels.tolist() == [0, 1]

    # Every column of the schema arrives.
    for label, kind in KINDS.items():
        with noted(case=label):
            data = NUMBERED | {f"logit_{c}": np.log(NUMBERED[f"prob_{c}"]) for c in (0, 1, 10)}
            data |= {f"member{i}_prob_{c}": NUMBERED[f"prob_{c}"] for i in range(11) for c in (1, 0, 10)}
            data |= {f"member{i}_logit_{c}": data[f"logit_{c}"] for i in range(2) for c in (1, 0, 10)}
            data |= {f"soft_{c}": NUMBERED[f"prob_{c}"] for c in (10, 1, 0)}
            data["member10_prob_0"], data["member10_prob_1"] = [0.6, 0.2, 0.2], [0.2, 0.7, 0.1]
            data |= {"pred": [0, 10, 10], "error": [False, True, False], "loss": [1, 2, 3], "weight": [1.0, 2.0, 0.0]}
            data |= {"score_entropy": [0.1, 0.2, np.inf], "score_my score": [3, 2, 1]}
            data |= {
                "cluster": ["p1", "p2", "p1"],
                "group": [30, 4, 4],
                "id": ["a", "b", "c"],
                "comment": ["", "x", "y"],
            }
            p = Predictions.from_frame(kind(data))
            assert p.classes == ("0", "1", "10")
            expected = np.column_stack([NUMBERED[f"prob_{c}"] for c in (0, 1, 10)])
            np.testing.assert_array_equal(p.probs, expected)
            np.testing.assert_array_equal(p.logits, np.log(expected))
            np.testing.assert_array_equal(p.soft_labels, expected)
            assert p.members.shape == (11, 3, 3)
            np.testing.assert_array_equal(p.members[9], expected)
            assert p.members[10, 0].tolist() == [0.6, 0.2, 0.2]  # member 10 comes after member 9
            np.testing.assert_array_equal(p.member_logits, [np.log(expected)] * 2)
            assert (p.pred.tolist(), p.error.tolist(), p.loss.tolist()) == ([0, 2, 2], [0, 1, 0], [1, 2, 3])
            assert p.weights.tolist() == [1, 2, 0]
            assert {name: score.tolist() for name, score in p.scores.items()} == {
                "entropy": [0.1, 0.2, np.inf],
                "my score": [3, 2, 1],
            }
            assert (p.clusters.tolist(), p.cluster_values.tolist()) == ([0, 1, 0], ["p1", "p2"])
            assert (p.groups.tolist(), p.group_names) == ([1, 0, 0], ("4", "30"))
            assert p.ids.tolist() == ["a", "b", "c"]


def test_columns_can_be_renamed_by_name_and_pattern_or_left_out():
    # Columns can be renamed by name and pattern.
    data = {"y": ["b", "a"], "pred": ["b", "b"], "p(a)": [0.3, 0.4], "p(b)": [0.7, 0.6], "u": [1, 2], "who": [1, 1]}
    p = read(data, label="y", prob="p(*)", score="u", cluster="who")
    assert (p.classes, p.labels.tolist(), p.pred.tolist()) == (("a", "b"), [1, 0], [1, 1])
    assert list(p.scores) == ["u"]
    assert p.clusters.tolist() == [0, 0]

    # A wide pattern does not take columns that have a part.
    p = read({"label": [0, 1], "pred": [0, 0], "p0": [0.6, 0.7], "p1": [0.4, 0.3]}, prob="p*")
    assert p.classes == ("0", "1")

    # None leaves a part out.
    p = read(DATA | {"pred": ["cat"] * 3, "score_s": [1, 2, 3], "soft_x": [1, 1, 1]}, pred=None, score=None, soft=None)
    assert (p.pred, p.scores, p.soft_labels) == (None, {}, None)


def test_classes_or_a_list_of_columns_fix_the_order():
    # A list of columns fixes the class order.
    data = {"label": [0, 1], "neg": [0.6, 0.7], "pos": [0.4, 0.3]}
    p = read(data, prob=["neg", "pos"])
    assert (p.classes, p.labels.tolist()) == (("neg", "pos"), [0, 1])
    p = read(data, prob=["neg", "pos"], classes=["healthy", "ill"])
    assert (p.classes, p.labels.tolist()) == (("healthy", "ill"), [0, 1])
    assert p.probs[0].tolist() == [0.6, 0.4]

    # Classes fix the order and integers index into them.
    data = DATA | {"label": [1, 0, 1]}
    p = read(data, classes=["cat", "dog"])
    assert (p.classes, p.labels.tolist()) == (("cat", "dog"), [1, 0, 1])
    assert p.probs[0].tolist() == [0.4, 0.6]
    assert read(DATA, classes=["cat", "dog"]).labels.tolist() == [1, 0, 1]

    # Integer texts index into classes too.
    assert read(DATA | {"label": ["1", "0", "1"]}, classes=["cat", "dog"]).labels.tolist() == [1, 0, 1]

    # Numeric class names are names even with classes given.
    p = read(NUMBERED, classes=["10", "1", "0"])
    assert p.labels.tolist() == [2, 1, 0]


def test_numbers_that_are_names_and_positions_of_classes_are_refused_in_frames():
    columns = {"a": [0.8, 0.1, 0.7], "b": [0.1, 0.8, 0.2], "c": [0.1, 0.1, 0.1]}
    how = {"prob": ["a", "b", "c"], "classes": [1, 2, 3]}
    for wrap in (list, lambda y: [str(k) for k in y]):
        with noted(wrap=wrap):
            assert read({"label": wrap([1, 2, 3])} | columns, **how).labels.tolist() == [0, 1, 2]
            assert read({"label": wrap([0, 1, 2])} | columns, **how).labels.tolist() == [0, 1, 2]
            data = {"label": wrap([1, 2, 1])} | columns
            with pytest.raises(InputError, match="can be read in two ways"):
                read(data, **how)
            assert read(data, labels_by="name", **how).labels.tolist() == [0, 1, 0]
            assert read(data, labels_by="position", **how).labels.tolist() == [1, 2, 1]
            # Names that come with the columns are names.
            named = {"label": wrap([1, 2, 1]), "prob_1": columns["a"], "prob_2": columns["b"], "prob_3": columns["c"]}
            assert read(named).labels.tolist() == [0, 1, 0]


def test_numbers_at_the_end_of_listed_columns_are_names_that_labels_may_mean():
    # p1, p2, p3 with no row of class 3: as positions the labels 1 and 2 would be classes 2 and 3, without a word.
    probs = {"p1": [0.8, 0.1, 0.7], "p2": [0.1, 0.8, 0.2], "p3": [0.1, 0.1, 0.1]}
    listed = list(probs)
    with pytest.raises(InputError, match=r'can be read in two ways.*labels_by="name"'):
        read({"label": [1, 2, 1], **probs}, prob=listed)
    by_name = read({"label": [1, 2, 1], **probs}, prob=listed, labels_by="name")
    assert by_name.labels.tolist() == [0, 1, 0]
    assert read({"label": [1, 2, 3], **probs}, prob=listed).labels.tolist() == [0, 1, 2]  # 3 is no position
    assert read({"label": [0, 2, 1], **probs}, prob=listed).labels.tolist() == [0, 2, 1]  # 0 is no name
    assert read({"label": ["p1", "p2", "p1"], **probs}, prob=listed).labels.tolist() == [0, 1, 0]
    assert read({"label": ["3", "1", "1"], **probs}, prob=listed).labels.tolist() == [2, 0, 0]
    named = {"p_True": [0.8, 0.1], "p_False": [0.2, 0.9]}
    with pytest.raises(InputError, match="can be read in two ways: True names"):
        read({"label": [True, False], **named}, prob=list(named))
    assert read({"label": ["a", "b"], "p a": [1, 0], "p b": [0, 1]}, prob=["p b", "p a"]).labels.tolist() == [1, 0]
    from_ten = {f"prob_{k + 10}": values for k, values in enumerate(probs.values())}
    tens = {"q11": [0.8, 0.1], "q10": [0.2, 0.9]}  # 1 and 0 are no names of theirs
    assert read({"label": [0, 1], **tens}, prob=list(tens)).labels.tolist() == [0, 1]
    assert read({"label": [11, 10, 12], **from_ten}, prob=list(from_ten)).classes == ("10", "11", "12")


def test_labels_are_read_however_they_are_written():
    # Zero one labels are read however they are written.
    for labels, columns in product(
        [
            [0, 1],
            [0.0, 1.0],
            [False, True],
            ["0", "1"],
            ["0.0", "1.0"],
            ["False", "True"],
            ["false", "true"],
            ["00", "01"],
        ],
        [{"prob_0": [0.9, 0.2], "prob_1": [0.1, 0.8]}, {"prob_1": [0.1, 0.8]}, {"prob": [0.1, 0.8]}],
    ):
        with noted(labels=labels, columns=columns):
            p = read({"label": labels} | columns)
            assert p.labels.tolist() == [0, 1]
            assert p.classes == ("0", "1")
            np.testing.assert_allclose(p.probs, [[0.9, 0.1], [0.2, 0.8]])

    # A text label keeps its leading zeros.
    p = read({"label": ["007", "7"], "prob_007": [0.9, 0.2], "prob_7": [0.1, 0.8]})
    assert p.labels[0] != p.labels[1]
    assert p.classes[p.labels[0]] == "007"
    with pytest.raises(InputError, match=r"'7.0' in row 1"):
        read({"label": ["007", "7.0"], "prob_007": [0.9, 0.2], "prob_7": [0.1, 0.8]})

    # Label encodings do not matter.
    for wrap in [lambda x: pa.array(x).dictionary_encode(), lambda x: pa.array(x, pa.large_string())]:
        with noted(wrap=wrap):
            p = Predictions.from_frame(pa.table(DATA | {"label": wrap(DATA["label"]), "group": wrap(["x", "y", "x"])}))
            assert (p.labels.tolist(), p.groups.tolist()) == ([0, 1, 0], [0, 1, 0])

    # Pandas and polars categories are read.
    a = Predictions.from_frame(pd.DataFrame(DATA).astype({"label": "category"}))
    b = Predictions.from_frame(pl.DataFrame(DATA).cast({"label": pl.Categorical}))
    c = Predictions.from_frame(pl.DataFrame(DATA).cast({"label": pl.Enum(["cat", "dog"])}))
    assert a.labels.tolist() == b.labels.tolist() == c.labels.tolist() == [0, 1, 0]

    # Chunks are joined.
    part = pa.table(DATA)
    p = Predictions.from_frame(pa.concat_tables([part.slice(0, 0), part, part.slice(1)]))
    assert p.labels.tolist() == [0, 1, 0, 1, 0]
    assert p.probs[:, 0].tolist() == [0.6, 0.3, 0.2, 0.3, 0.2]

    # Pandas column names that are not texts are read.
    p = Predictions.from_frame(pd.DataFrame({"label": [0, 1], 0: [0.9, 0.2], 1: [0.1, 0.8]}), prob=["0", "1"])
    assert p.probs.tolist() == [[0.9, 0.1], [0.2, 0.8]]

    # Decimal columns are numbers.
    data = DATA | {name: pa.array(DATA[name]).cast(pa.decimal128(5, 2)) for name in ("prob_dog", "prob_cat")}
    np.testing.assert_allclose(read(data).probs[0], [0.6, 0.4])


def test_a_binary_task_needs_one_column():
    # Single named column belongs to its class.
    p = read({"label": ["ill", "well"], "prob_ill": [0.9, 0.2]})
    assert (p.classes, p.labels.tolist()) == (("well", "ill"), [1, 0])
    np.testing.assert_allclose(p.probs, [[0.1, 0.9], [0.8, 0.2]])
    p = read({"label": [0, 1], "prob_0": [0.9, 0.2]})
    assert p.classes == ("0", "1")
    np.testing.assert_allclose(p.probs, [[0.9, 0.1], [0.2, 0.8]])
    np.testing.assert_allclose(read({"label": [0, 1], "prob_0": [0.9, 0.2]}, prob="prob_0").probs, p.probs)

    # Single named column works when one label is absent.
    assert read({"label": ["ill", "ill"], "prob_ill": [0.9, 0.2]}).classes == ("not ill", "ill")
    assert read({"label": [1, 1], "prob_1": [0.9, 0.2]}).classes == ("0", "1")
    assert read({"error": [1, 0], "prob_1": [0.9, 0.2]}).classes == ("0", "1")

    # Plain column names class 1 of classes.
    p = read({"label": ["ill", "well"], "p_hat": [0.9, 0.2]}, prob="p_hat", classes=["well", "ill"])
    assert p.labels.tolist() == [1, 0]
    assert p.probs[:, 1].tolist() == [0.9, 0.2]

    # A lone logit is the log odds.
    p = read({"label": [0, 1], "logit": [0.0, 2.0]})
    np.testing.assert_allclose(p.probs[:, 1], [0.5, 1 / (1 + np.exp(-2))])
    p = read({"label": [0, 1], "logit_0": [0, 2]})
    np.testing.assert_allclose(p.probs[:, 0], [0.5, 1 / (1 + np.exp(-2))])

    # Members of a binary task need one column each.
    p = read({"label": [0, 1], "member0_prob": [0.1, 0.8], "member1_prob": [0.3, 0.6]})
    np.testing.assert_allclose(p.probs[:, 1], [0.2, 0.7])
    p = read({"label": [0, 1], "m_a": [0.1, 0.8], "m_b": [0.3, 0.6]}, member="m_*")
    np.testing.assert_allclose(p.members[1, :, 1], [0.3, 0.6])


def test_scores_and_labels_do_without_a_model():
    # Scores without a model need no label.
    p = read({"score": [1.0, 2.0], "error": [0, 1]})
    assert (p.labels, list(p.scores)) == (None, ["score"])

    # Labels without a model keep their names.
    p = read({"score_s": [1, 2, 3], "loss": [0, 1, 5], "label": [30, 4, 4]})
    assert (p.classes, p.labels.tolist()) == (("4", "30"), [1, 0, 0])
    p = read({"score_s": [1, 2], "error": [0, 1], "label": ["b", "a"], "pred": ["b", "c"]})
    assert (p.classes, p.labels.tolist(), p.pred.tolist()) == (("a", "b", "c"), [1, 0], [1, 2])


def test_probabilities_keep_their_tolerance_and_votes_are_normalised_on_request():
    # Float32 columns keep the float32 tolerance.
    data = {
        "label": [0, 1],
        "prob_0": pa.array([1.0001, 0.5], pa.float32()),
        "prob_1": pa.array([-0.0001, 0.5], pa.float32()),
    }
    assert read(data).probs[0].tolist() == [1, 0]

    # Votes are normalised on request.
    data = DATA | {"soft_dog": [9, 1, 5], "soft_cat": [1, 9, 5]}
    np.testing.assert_allclose(read(data, normalize=True).soft_labels, [[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]])


@pytest.mark.slow
@pytest.mark.alone
def test_a_million_text_labels_take_less_than_a_third_of_a_second():
    n = 10**6
    codes = np.arange(n) % 10
    labels = pa.DictionaryArray.from_arrays(codes, [f"class {k}" for k in range(10)]).cast(pa.string())
    frame = pa.table({"label": labels, "score_s": codes.astype(float), "error": codes > 5})
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        p = Predictions.from_frame(frame)
        best = min(best, time.perf_counter() - start)
    np.testing.assert_array_equal(p.labels, codes)
    assert best < 0.3


MEMBERS = {"member0_prob_dog": [0.5] * 3, "member0_prob_cat": [0.5] * 3, "member1_prob_dog": [0.5] * 3}
NAN = float("nan")
BAD = {
    "no label": (without(DATA, "label"), {}, "There is no `label` column.*The columns are: prob_dog, prob_cat"),
    "misspelt label": (without(DATA, "label") | {"lable": [1, 2, 3]}, {}, "no `label` column. Did you mean .lable."),
    "nothing": ({"label": [0, 1]}, {}, "no probability or score column.*The columns are: label"),
    "scores only": ({"score_s": [1, 2]}, {}, "no `error` or `loss` column"),
    "scores and pred": ({"label": [0, 1], "pred": [0, 1], "score_s": [1, 2]}, {}, "Add an `error` column"),
    "named column": (DATA, {"label": "labels"}, "no column `labels` .label.. Did you mean .label..*prob_dog, prob_cat"),
    "named group": (DATA, {"group": "hospital"}, "no column `hospital` .group.. The columns are: label"),
    "named pattern": (DATA, {"prob": "pr*b"}, r"No column matches `pr\*b`"),
    "named list": (DATA, {"prob": ["prob_dog", "prob_cow"]}, "no column `prob_cow` .prob.. Did you mean"),
    "named score": (DATA, {"score": "entropy"}, "no column `entropy`"),
    "named score pattern": (DATA, {"score": "u_*"}, r"No column matches `u_\*`"),
    "named member": (DATA, {"member": "m*_*"}, r"No column matches `m\*_\*`"),
    "two stars": (DATA, {"prob": "p*_*"}, "2 stars"),
    "ragged members": (DATA | MEMBERS, {}, "Member 1 has no column for class cat; it has member1_prob_dog"),
    "class sets": (DATA | {"soft_dog": [1, 1, 1], "soft_cow": [0, 0, 0]}, {}, "soft lacks cat; prob lacks cow"),
    "class sets of members": (
        DATA | {"member0_prob_dog": [0.5] * 3, "member0_prob_cow": [0.5] * 3},
        {},
        "prob and member columns are for different classes",
    ),
    "widths of lists": (
        NUMBERED | {"a": [0, 0, 0], "b": [1, 1, 1]},
        {"soft": ["a", "b"]},
        r"2 soft columns .a, b. but 3 classes",
    ),
    "classes not the columns'": (
        DATA,
        {"classes": ["cat", "cow"]},
        "`classes` names cat, cow, but the prob columns hold dog, cat",
    ),
    "classes twice": (DATA, {"classes": ["cat", "cat"]}, "`classes` names cat, cat"),
    "classes of a list": (
        DATA,
        {"prob": ["prob_dog"], "classes": ["a", "b", "c"]},
        "does for 2 classes, but there are 3",
    ),
    "lone column of another class": (
        {"label": [0, 1], "prob_cow": [0.1, 0.2]},
        {"classes": ["cat", "dog"]},
        "is for class cow; the classes are cat, dog",
    ),
    "lone column": ({"label": ["a", "b", "c"], "prob_a": [0.1, 0.2, 0.3]}, {}, "besides a the labels hold b, c"),
    "lone column beside 3": (NUMBERED | {"soft": [0.1, 0.2, 0.3]}, {}, "`soft` is the only soft column"),
    "unknown label": (DATA | {"label": ["dog", "cow", "dog"]}, {}, r"'cow' in row 1 .1 such row.*\(dog, cat\)"),
    "unknown number": (NUMBERED | {"label": [0, 1, 2]}, {}, r"holds 2 in row 2.*\(0, 1, 10\)"),
    "fraction label": (NUMBERED | {"label": [0, 0.5, 1]}, {}, "holds 0.5 in row 1"),
    "text label of numbers": (NUMBERED | {"label": ["0", "x", "1"]}, {}, "'x' in row 1"),
    "integer label of names": (DATA | {"label": [0, 1, 0]}, {}, r"Integers need an order: pass classes=\[...\]"),
    "index too high": (DATA | {"label": [0, 1, 2]}, {"classes": ["cat", "dog"]}, "holds 2 in row 2"),
    "text labels of plain prob": ({"label": ["a", "b"], "prob": [0.1, 0.2]}, {}, r"'a' in row 0.*\(0, 1\)"),
    "unknown pred": (DATA | {"pred": ["dog", "cow", "dog"]}, {}, "`pred` holds 'cow' in row 1"),
    "null label": (DATA | {"label": ["dog", None, None]}, {}, "`label` has 2 missing values .first at row 1"),
    "empty label": (DATA | {"label": ["dog", "", "cat"]}, {}, "`label` has 1 missing value "),
    "null prob": (DATA | {"prob_cat": [0.4, 0.7, None]}, {}, "`prob_cat` has 1 missing value .first at row 2"),
    "NaN prob": (DATA | {"prob_cat": [0.4, NAN, NAN]}, {}, "`prob_cat` has 2 missing values .first at row 1"),
    "null and NaN": (DATA | {"prob_cat": [0.4, NAN, None]}, {}, "`prob_cat` has 2 missing values .first at row 1"),
    "NaN score": (DATA | {"score_s": [0.4, NAN, 1]}, {}, "`score_s` has 1 missing"),
    "null weight": (DATA | {"weight": [1, None, 1]}, {}, "`weight` has 1 missing"),
    "null group": (DATA | {"group": ["a", None, "b"]}, {}, "`group` has 1 missing"),
    "all null": (DATA | {"prob_cat": [None] * 3}, {}, "`prob_cat` has 3 missing"),
    "text prob": (
        DATA | {"prob_cat": ["0.4", "n.a.", "0.8"]},
        {},
        r"`prob_cat` holds text, not numbers .row 1: 'n.a.'",
    ),
    "numbers as text": (DATA | {"prob_cat": ["0.4", "0.7", "0.8"]}, {}, "numbers written as text"),
    "list prob": (DATA | {"prob_cat": [[0.4], [0.7], [0.8]]}, {}, "`prob_cat` holds list"),
    "sum 0.98": (DATA | {"prob_cat": [0.4, 0.68, 0.8]}, {}, "worst row 1 sums to 0.98"),
    "logits": (DATA | {"prob_cat": [-4.0, 3.0, 9.0]}, {}, "look like logits"),
    "error 2": (DATA | {"error": [0, 1, 2]}, {}, "row 2 holds 2"),
    "negative weight": (DATA | {"weight": [0, 1, -2]}, {}, "`weights` must be ≥ 0"),
    "no rows": ({"label": [], "prob": []}, {}, "no rows. Ranking needs at least 2"),
    "one row": ({"label": [1], "prob": [0.5]}, {}, "There is 1 row. Ranking"),
}


def test_bad_frames_are_refused_with_a_clear_message():
    for label, (data, columns, message) in BAD.items():
        with noted(case=label), pytest.raises(InputError, match=message):
            read(data, **columns)

    # Missing and wrong values are named in every kind of frame.
    for name, (label, make) in product(
        ["null label", "null prob", "NaN prob", "NaN score", "null weight", "null group", "text prob"],
        zip(["pandas", "polars"], [pd.DataFrame, lambda data: pl.DataFrame(data, strict=False)], strict=True),
    ):
        with noted(name=name, case=label):
            data, columns, message = BAD[name]
            with pytest.raises(InputError, match=message.replace("holds string", "holds .*string")):
                Predictions.from_frame(make(data), **columns)

    # Duplicated columns are named.
    table = pa.Table.from_arrays(
        [pa.array([0, 1]), pa.array([0.5, 0.5]), pa.array([0.5, 0.5])], ["label", "prob", "prob"]
    )
    with pytest.raises(InputError, match="Duplicated column names: 'prob'"):
        Predictions.from_frame(table)
    frame = pd.DataFrame([[0, 0.5, 0.5], [1, 0.5, 0.5]], columns=["label", "prob", "prob"])
    with pytest.raises(InputError, match="Duplicated column names: 'prob'"):
        Predictions.from_frame(frame)

    # A pandas column of mixed types is named.
    frame = pd.DataFrame({"label": [0, 1], "prob": np.array([0.5, "x"], dtype=object)})
    with pytest.raises(InputError, match="`prob` mixes types"):
        Predictions.from_frame(frame)

    # Long lists of columns are shortened.
    with pytest.raises(InputError, match=r"x0, x1, .*… \(88 more\)"):
        read({f"x{i}": [1, 2] for i in range(100)})


def test_a_pattern_that_takes_too_much_names_the_column_and_a_narrower_pattern():
    data = {"y": ["red", "blue", "red"], "p_red": [0.8, 0.1, 0.6], "p_blue": [0.2, 0.9, 0.4]}
    for patient, why in (
        ([17, 18, 19], "holds 19, which is outside"),
        (["a", "b", "c"], "holds text .'a' first."),
        ([-0.5, 0, 1], "holds -0.5"),
    ):
        for wrap in KINDS.values():
            with noted(patient=patient, wrap=wrap), pytest.raises(InputError) as caught:
                Predictions.from_frame(wrap(data | {"patient": patient}), label="y", prob="p*")
            assert re.search(f'`patient` {why}.*takes it for class "atient".*as prob="p_\\*"', str(caught.value))
    # What lies in [0, 1] is told by the sum of the rows, with the columns that were taken.
    with pytest.raises(InputError, match=r"does not sum to 1.*columns of prob='p\*' are: p_red, p_blue, part"):
        read(without(data, "y") | {"error": [0, 1, 1], "part": [0.5, 0.6, 0.7]}, prob="p*")
    # Nor is it normalised away; votes, which do not sum to 1, are.
    data = {"label": ["red", "blue"], "p_red": [0.8, 0.1], "p_blue": [0.2, 0.9], "p_age": [17, 18]}
    with pytest.raises(InputError, match=r'`p_age` holds 18, which is outside.*prob=."p_red", "p_blue".'):
        read(data, prob="p_*", normalize=True)
    votes = {"label": ["red", "blue"], "p_red": [1, 0], "p_blue": [1, 1], "p_green": [3, 5]}
    assert read(votes, prob="p_*", normalize=True).probs[0].tolist() == [0.2, 0.2, 0.6]
    # Logits are still told from probabilities.
    with pytest.raises(InputError, match="look like logits"):
        read({"label": [0, 1], "prob_0": [-4.0, 3.0], "prob_1": [5.5, -7.0]})


def test_class_names_of_a_pattern_have_no_blanks_around_them():
    data = {"y": ["cat", "dog"], "proba cat": [0.8, 0.3], "proba dog": [0.2, 0.7]}
    for pattern in ("proba*", "proba *"):
        assert read(data, label="y", prob=pattern).classes == ("cat", "dog")
    with pytest.raises(InputError, match="finds class 'cat' twice"):
        read(data | {"probacat": [0, 0]}, label="y", prob="proba*")
    with pytest.raises(InputError, match="begin with '_', which should be a part of the pattern"):
        read({"y": ["cat", "dog"], "p_cat": [0.8, 0.3], "p_dog": [0.2, 0.7]}, label="y", prob="p*")


def test_columns_of_other_names_are_guessed_in_the_error_and_nowhere_else():
    rows = {"label": ["a", "b"], "one": [0.8, 0.3], "two": [0.2, 0.7]}
    for label, one, two, tried in (
        ("y_true", "proba a", "proba b", 'Try label="y_true", prob="proba *".'),
        ("target", "p_0", "p_1", 'Try label="target", prob="p_*".'),
        ("Truth", "probability.a", "probability.b", 'Try label="Truth", prob="probability.*".'),
        ("y", "prob0", "prob1", 'Try label="y", prob="prob*".'),
        ("label", "softmax_a", "softmax_b", 'Try prob="softmax_*".'),
        ("y", "prob_a", "prob_b", 'Try label="y".'),
        ("y", "x1", "x2", None),
    ):
        data = {label: rows["label"], one: rows["one"], two: rows["two"]}
        with noted(data=data), pytest.raises(InputError) as caught:
            read(data)
        assert str(caught.value).endswith(tried) if tried else "Try" not in str(caught.value)
    with pytest.raises(InputError, match=r'no column `Y` .*Try label="y", prob="proba_\*"'):
        read({"y": [0, 1], "proba_0": [1, 0], "proba_1": [0, 1]}, label="Y", prob="proba_*")
    with pytest.raises(InputError, match=r'Try prob=."p0", "p1".\.'):  # p* would take the patient
        read({"label": [0, 1], "p0": [1, 0], "p1": [0, 1], "patient": [7, 8]})
    with pytest.raises(InputError, match=r'Try error="wrong", score="unc_\*"'):
        read({"wrong": [0, 1], "unc_a": [1, 0], "unc_b": [1, 0]})


def test_two_labels_that_could_be_the_only_named_class_are_refused():
    for lone in (1, "1", 0, True):  # all of one class, by a number that may or may not stand for it
        with pytest.raises(InputError, match=r"labels hold .* alone, which may stand for ill or not"):
            read({"label": [lone] * 3, "prob_ill": [0.1, 0.9, 0.8]})
        found = read({"label": [int(lone)] * 3, "prob_ill": [0.1, 0.9, 0.8]}, classes=["well", "ill"])
        assert found.labels.tolist() == [int(lone)] * 3
    assert read({"label": ["well"] * 3, "prob_ill": [0.1, 0.9, 0.8]}).probs[1].tolist() == pytest.approx([0.1, 0.9])
    with pytest.raises(InputError, match="'01', '1', all of which could be class 1"):
        read({"label": ["01", "1", "1"], "prob_1": [0.1, 0.9, 0.8]})


def test_what_is_not_a_frame_or_not_yet_one_is_refused():
    # Lazy frames must be collected.
    with pytest.raises(InputError, match=r"lazy .polars LazyFrame.*Collect it first"):
        Predictions.from_frame(pl.LazyFrame(DATA))

    # What is not a frame is refused.
    for thing in [[1, 2], DATA, np.zeros(3), "preds.csv", None]:
        with noted(thing=thing), pytest.raises(InputError, match="Pass a pandas, Polars or Arrow frame"):
            Predictions.from_frame(thing)


def test_a_duckdb_relation_must_be_collected():
    duckdb = pytest.importorskip("duckdb")
    with pytest.raises(InputError, match="Collect it first"):
        Predictions.from_frame(duckdb.sql("select 1 as label, 0.5 as prob"))
