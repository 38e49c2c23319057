"""Files: the same data in every format gives the same predictions; a bad file is named, never a traceback."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uqeval as uq
from cases import noted
from optional import optional
from uqeval._errors import InputError
from uqeval.inputs import Predictions, frame, read_predictions

pd = optional("pandas")
pl = optional("polars")

N = 40
RNG = np.random.default_rng(5)
CLASSES = ("cat", "dog", "tree frog")


def example(n=N):
    logits = RNG.normal(size=(n, 3))
    members = RNG.dirichlet(np.ones(3), size=(2, n))
    data = {
        "label": [CLASSES[k] for k in RNG.integers(0, 3, n)],
        **{f"prob_{c}": np.exp(logits[:, k]) / np.exp(logits).sum(1) for k, c in enumerate(CLASSES)},
        **{f"logit_{c}": logits[:, k] for k, c in enumerate(CLASSES)},
        **{f"member{i}_prob_{c}": members[i, :, k] for i in range(2) for k, c in enumerate(CLASSES)},
        "pred": [CLASSES[k] for k in RNG.integers(0, 3, n)],
        "error": RNG.integers(0, 2, n),
        "loss": RNG.normal(size=n),
        "score_entropy": np.where(np.arange(n) == 3, np.inf, RNG.random(n)),
        "weight": RNG.integers(0, 9, n),
        "cluster": [f"patient {i // 2}" for i in range(n)],
        "group": RNG.integers(0, 12, n) * 5,
        "id": np.arange(n) + 1000,
    }
    return pa.table({name: np.asarray(column).tolist() for name, column in data.items()})


def write_jsonl(table, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def write_stream(table, path):
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def write_csv_gz(table, path):
    pa.csv.write_csv(table, path.with_suffix(""))
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
    path.with_suffix("").unlink()


def write_npz(table, path):
    p = Predictions.from_frame(table)
    np.savez(
        path,
        labels=table["label"].to_numpy().astype(str),
        probs=p.probs,
        logits=p.logits,
        members=p.members,
        pred=p.pred,
        error=p.error,
        loss=p.loss,
        weights=p.weights,
        clusters=table["cluster"].to_numpy().astype(str),
        groups=table["group"].to_numpy(),
        classes=np.array(p.classes),
        ids=table["id"].to_numpy(),
        score_entropy=p.scores["entropy"],
    )


def write_tsv(table, path):
    pa.csv.write_csv(table, path, pa.csv.WriteOptions(delimiter="\t"))


WRITERS = {
    "a.csv": pa.csv.write_csv,
    "a.csv.gz": write_csv_gz,
    "a.tsv": write_tsv,
    "a.parquet": pq.write_table,
    "a.feather": pa.feather.write_feather,
    "a.ARROW": lambda table, path: pa.feather.write_feather(table, str(path), compression="uncompressed"),
    "a.ipc": write_stream,
    "a.npz": write_npz,
}


def check_same(a, b):
    for name in (
        "labels",
        "probs",
        "logits",
        "members",
        "pred",
        "error",
        "loss",
        "weights",
        "clusters",
        "groups",
        "ids",
    ):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        if x is not None:
            assert x.dtype.kind == y.dtype.kind, name
            np.testing.assert_array_equal(x, y, err_msg=name)
    assert a.scores.keys() == b.scores.keys()
    for name in a.scores:
        np.testing.assert_array_equal(a.scores[name], b.scores[name])
    assert (a.classes, a.group_names, a.n_classes) == (b.classes, b.group_names, b.n_classes)


def test_every_format_gives_the_predictions_of_the_frame(tmp_path):
    for name in WRITERS:
        with noted(name=name):
            table = example()
            WRITERS[name](table, tmp_path / name)
            check_same(read_predictions(tmp_path / name), Predictions.from_frame(table))
            check_same(read_predictions(str(tmp_path / name)), Predictions.from_frame(table))

    # JSON lines give the predictions of the frame.
    for name in ["a.jsonl", "a.ndjson"]:
        with noted(name=name):
            table = example().drop_columns(["score_entropy"])  # JSON has no infinity
            write_jsonl(table, tmp_path / name)
            check_same(read_predictions(tmp_path / name), Predictions.from_frame(table))

    # Frames of every kind give the predictions of the arrow table.
    table = example()
    pytest.importorskip("pandas")
    check_same(Predictions.from_frame(table.to_pandas()), Predictions.from_frame(table))
    check_same(Predictions.from_frame(pl.from_arrow(table)), Predictions.from_frame(table))

    # File and arrays agree.
    table = example()
    pq.write_table(table, tmp_path / "a.parquet")
    p = read_predictions(tmp_path / "a.parquet")
    labels = [CLASSES.index(label) for label in table["label"].to_pylist()]
    probs = np.column_stack([table[f"prob_{c}"].to_numpy() for c in CLASSES])
    q = Predictions(labels, probs=probs, groups=table["group"].to_numpy(), clusters=table["cluster"].to_pylist())
    np.testing.assert_array_equal(p.probs, q.probs)
    np.testing.assert_array_equal(p.labels, q.labels)
    assert p.group_names == q.group_names


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["007", "7", "a,b", 'q"', "naïve", "NA"]), st.floats(0, 1)), min_size=2, max_size=8
    )
)
def test_odd_class_names_survive_csv(tmp_path, rows):
    names = ["007", "7", "a,b", 'q"', "naïve", "NA"]
    rest = [(1 - p) / 5 for _, p in rows]
    data = {"label": [name for name, _ in rows]}
    data |= {f"prob_{c}": [p if c == "7" else r for (_, p), r in zip(rows, rest, strict=True)] for c in names}
    frame = pd.DataFrame(data)
    frame.to_csv(tmp_path / "odd.csv", index=False)
    p = read_predictions(tmp_path / "odd.csv")
    assert [p.classes[k] for k in p.labels] == data["label"]
    np.testing.assert_array_equal(p.probs, Predictions.from_frame(frame).probs)


def test_csv_files_are_read_as_they_were_meant(tmp_path):
    # CSV texts keep leading zeros.
    (tmp_path / "a.csv").write_text("label,prob_1,cluster,id,group\n0,0.2,007,01,09\n1,0.7,7,1,10\n")
    p = read_predictions(tmp_path / "a.csv")
    assert p.clusters[0] != p.clusters[1]
    assert p.ids.tolist() == ["01", "1"]
    assert p.group_names == ("09", "10")

    # CSV numbers written as floats or bools are labels.
    (tmp_path / "a.csv").write_text("label,pred,prob\n0.0,True,0.2\n1.0,False,0.7\n")
    p = read_predictions(tmp_path / "a.csv")
    assert (p.labels.tolist(), p.pred.tolist()) == ([0, 1], [1, 0])

    # CSV quoted line breaks are read.
    (tmp_path / "a.csv").write_text('text,label,prob\n"two\nlines",0,0.2\n"one",1,0.7\n')
    assert read_predictions(tmp_path / "a.csv").labels.tolist() == [0, 1]

    # CSV byte order mark is skipped.
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbflabel,prob\n0,0.2\n1,0.7\n")
    assert read_predictions(tmp_path / "a.csv").n == 2

    # CSV numbers may become fractions late in a large file.
    n = 300_000
    (tmp_path / "a.csv").write_text("label,prob\n" + "1,1\n" * n + "0,0.25\n")
    p = read_predictions(tmp_path / "a.csv")
    assert (p.n, p.probs[-1, 1]) == (n + 1, 0.25)


def test_columns_of_files_are_found_and_named_as_in_frames(tmp_path):
    # Columns are renamed in files as in frames.
    (tmp_path / "a.csv").write_text("y_true,p0,p1,u\n0,0.8,0.2,3\n1,0.3,0.7,4\n")
    p = read_predictions(tmp_path / "a.csv", label="y_true", prob="p*", score="u")
    assert (p.classes, list(p.scores)) == (("0", "1"), ["u"])

    # Only the needed columns are read.
    # A column that cannot be read at all does no harm when nobody asks for it.
    table = pa.table({"label": [0, 1], "prob": [0.2, 0.7], "notes": ["x" * 2000, "y" * 2000]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    column = pq.ParquetFile(path).metadata.row_group(0).column(2)
    raw = bytearray(path.read_bytes())
    raw[column.data_page_offset : column.data_page_offset + 20] = b"\xff" * 20
    path.write_bytes(raw)
    with pytest.raises(OSError, match=r"."):
        pq.read_table(path)
    assert read_predictions(path).n == 2

    # Class names with dots are read from Parquet.
    pq.write_table(
        pa.table({"label": ["a.b", "a"], "prob_a": [0.2, 0.7], "prob_a.b": [0.8, 0.3]}), tmp_path / "a.parquet"
    )
    assert read_predictions(tmp_path / "a.parquet").classes == ("a", "a.b")


def test_several_files_are_joined_in_sorted_order(tmp_path):
    # A glob joins files in sorted order.
    table = example()
    for k, start in enumerate(range(0, N, 10)):
        pq.write_table(table.slice(start, 10), tmp_path / f"part{k}.parquet")
    (tmp_path / "readme.txt").write_text("not data")
    whole = Predictions.from_frame(table)
    check_same(read_predictions(tmp_path / "*.parquet"), whole)
    check_same(read_predictions(sorted(tmp_path.glob("*.parquet"), reverse=True)), whole)

    # Several NPZ files are joined.
    table = example()
    write_npz(table.slice(0, 30), tmp_path / "a.npz")
    write_npz(table.slice(30), tmp_path / "b.npz")
    check_same(read_predictions(tmp_path / "?.npz"), Predictions.from_frame(table))

    # Files of several formats and types are joined.
    (tmp_path / "a.csv").write_text("label,prob_0,prob_1\n0,1,0\n1,0,1\n")
    (tmp_path / "b.csv").write_text("label,prob_0,prob_1\n")
    pq.write_table(pa.table({"prob_1": [0.5, 0.25], "prob_0": [0.5, 0.75], "label": [1, 0]}), tmp_path / "c.parquet")
    p = read_predictions([tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.parquet"])
    assert p.labels.tolist() == [0, 1, 1, 0]
    assert p.probs[:, 1].tolist() == [0, 1, 0.5, 0.25]

    # Files of one row each are joined.
    (tmp_path / "a.csv").write_text("label,prob\n0,0.5\n")
    (tmp_path / "b.csv").write_text("label,prob\n1,0.5\n")
    assert read_predictions(tmp_path / "*.csv").n == 2


def test_npz_files_need_no_columns(tmp_path):
    # NPZ score needs no name.
    np.savez(tmp_path / "a.npz", score=[1.0, 2.0], error=[0, 1])
    assert list(read_predictions(tmp_path / "a.npz").scores) == ["score"]

    # NPZ classes and normalize may be given.
    np.savez(tmp_path / "a.npz", probs=[[1.0, 3.0], [2.0, 2.0]], labels=["x", "y"])
    p = read_predictions(tmp_path / "a.npz", classes=["x", "y"], normalize=True)
    assert (p.labels.tolist(), p.probs[0].tolist()) == ([0, 1], [0.25, 0.75])


def test_numbers_that_are_names_and_positions_of_classes_are_refused_in_files(tmp_path):
    probs = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
    np.savez(tmp_path / "a.npz", labels=[1, 2, 2], probs=probs, classes=[1, 2, 3])
    table = pa.table({"label": [1, 2, 2], **{name: probs[:, k] for k, name in enumerate("abc")}})
    pq.write_table(table, tmp_path / "a.parquet")
    pa.csv.write_csv(table, tmp_path / "a.csv")
    for name, how in (("a.npz", {}), *((f"a.{kind}", {"prob": [*"abc"], "classes": [1, 2, 3]}) for kind in FLAT)):
        with noted(name=name):
            with pytest.raises(InputError, match=r"a\..*can be read in two ways"):
                read_predictions(tmp_path / name, **how)
            assert read_predictions(tmp_path / name, labels_by="name", **how).labels.tolist() == [0, 1, 1]
            assert read_predictions(tmp_path / name, labels_by="position", **how).labels.tolist() == [1, 2, 2]

    # An engine, which sees labels piece by piece, settles it once.
    whole = pa.table({"label": [1, 3] * 500, "a": [0.8] * 1000, "b": [0.1] * 1000, "c": [0.1, 0.1] * 500})
    pq.write_table(whole, tmp_path / "b.parquet", row_group_size=1)
    how = {"prob": [*"abc"], "classes": [1, 2, 3], "metrics": ["accuracy"], "engine": "local"}
    assert uq.evaluate(tmp_path / "b.parquet", **how).n_errors == 500
    with pytest.raises(InputError, match="can be read in two ways"):
        uq.evaluate(tmp_path / "a.parquet", **how)


FLAT = ("parquet", "csv")


def test_the_error_about_columns_ends_with_the_command_that_works(tmp_path):
    path = tmp_path / "rf.csv"
    path.write_text("y_true,proba 1,proba 2,patient\n1,0.5,0.5,7\n2,0.5,0.5,8\n")
    with pytest.raises(InputError) as caught:
        read_predictions(path)
    assert str(caught.value).endswith(f'Try: uqeval evaluate {path} --label y_true --prob "proba *"')
    with pytest.raises(InputError) as caught:
        read_predictions(path, label="y_true")
    assert str(caught.value).endswith(f'Try: uqeval evaluate {path} --label y_true --prob "proba *"')


def test_the_classes_that_were_found_are_in_every_output(tmp_path):
    table = {"label": ["a", "b"] * 20, "prob_a": [0.8, 0.3] * 20, "prob_b": [0.2, 0.7] * 20}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    for engine in (None, "local"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ev = uq.evaluate(tmp_path / "a.parquet", engine=engine, metrics=["uq_auc"])
        assert ev.classes == ("a", "b")
        assert ev.to_dict()["classes"] == ["a", "b"]
        assert "2 classes: a, b" in str(ev)


def parquet_bytes():
    sink = pa.BufferOutputStream()
    pq.write_table(example(), sink)
    return sink.getvalue().to_pybytes()


def arrow_bytes():
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, example().schema) as writer:
        writer.write_table(example())
    return sink.getvalue().to_pybytes()


def npz_bytes(tmp_path, **arrays):
    np.savez_compressed(tmp_path / "made.npz", **arrays)
    return (tmp_path / "made.npz").read_bytes()


HEADER = b"label,prob_0,prob_1\n"
BAD_FILES = {
    "empty csv": ("a.csv", b"", "the file is empty .0 bytes."),
    "empty parquet": ("a.parquet", b"", "the file is empty"),
    "blank csv": ("a.csv", b"\n\n", "holds no header line"),
    "header only": ("a.csv", HEADER, "no rows. Ranking needs at least 2"),
    "one row": ("a.csv", HEADER + b"0,0.5,0.5\n", "There is 1 row"),
    "ragged csv": ("a.csv", HEADER + b"0,0.5,0.5\n1,0.5\n", "cannot be read.*Expected 3 columns, got 2"),
    "duplicated columns": ("a.csv", b"label,prob,prob\n0,1,1\n1,0,0\n", "Duplicated column names: 'prob'"),
    "not utf-8": ("a.csv", b"label,prob\n\xff\xfe,0.5\n1,0.5\n", "cannot be read"),
    "not utf-8 header": ("a.csv", b"label,pr\xffb\n0,0.5\n1,0.5\n", "cannot be read"),
    "semicolons": ("a.csv", b"label;prob\n0;0.5\n1;0.5\n", "single column.*pass sep=.;. .--sep .;.."),
    "text in csv": ("a.csv", HEADER + b"0,0.5,0.5\n1,oops,0.5\n", "`prob_0` holds text, not numbers .row 1: 'oops'"),
    "percent signs": (
        "a.csv",
        HEADER + b"0,50%,0.5\n1,7%,0.5\n",
        "row 0: '50%', 2 such rows.. Write numbers: 0.25 for",
    ),
    "missing in csv": ("a.csv", HEADER + b"0,0.5,0.5\n1,,0.5\n", "`prob_0` has 1 missing value .first at row 1"),
    "label missing in csv": ("a.csv", HEADER + b"0,0.5,0.5\n,0.5,0.5\n", "`label` has 1 missing value .first at row 1"),
    "wrong label": ("a.csv", HEADER + b"0,0.5,0.5\n2,0.5,0.5\n", "'2' in row 1"),
    "sum 0.98": ("a.csv", HEADER + b"0,0.5,0.5\n1,0.5,0.48\n", "worst row 1 sums to 0.98"),
    "broken gzip": ("a.csv.gz", gzip.compress(HEADER + b"0,0.5,0.5\n" * 999)[:40], "cannot be read"),
    "truncated parquet": ("a.parquet", parquet_bytes()[:-100], "cannot be read; it may be truncated"),
    "half a parquet": ("a.parquet", parquet_bytes()[:300], "cannot be read"),
    "text as parquet": ("a.parquet", HEADER, "cannot be read"),
    "truncated arrow": ("a.arrow", arrow_bytes()[:-300], "cannot be read"),
    "text as feather": ("a.feather", HEADER, "cannot be read"),
    "broken json": ("a.jsonl", b'{"label": 0, "prob": 0.5}\n{"label": 1, "pr', "cannot be read"),
    "json with a hole": (
        "a.jsonl",
        b'{"label": 0, "prob": 0.5}\n{"label": 1}\n',
        "`prob` has 1 missing value .first at row 1",
    ),
    "json of two minds": (
        "a.jsonl",
        b'{"label": 0, "prob": 0.5}\n{"label": 1, "prob": "x"}\n',
        "`prob` mixes types: 0.5 first, then 'x' in row 1",
    ),
    "text as npz": ("a.npz", HEADER, "cannot be read.*begins as a text. Name it .csv, .tsv or .jsonl"),
    "parquet as csv": ("a.csv", parquet_bytes(), "it begins as a Parquet file. Name it .parquet"),
    "sheet as csv": (
        "a.csv",
        b"PK\x03\x04\xff" * 99,
        "it begins as a ZIP archive .an Excel sheet, or NPZ.. Save a sheet",
    ),
    "gzip as csv": ("a.csv", gzip.compress(HEADER)[:30], "cannot be read"),
    "unknown extension": ("a.xlsx", b"x", "extension .xlsx is not known. Supported are .csv.* Save the sheet as CSV"),
    "pickle": ("a.pkl", b"x", "extension .pkl is not known.*Write it as Parquet or NPZ: a pickle can run any code"),
    "one array": ("a.npy", b"x", "extension .npy is not known.*Save the arrays together, by name: numpy.savez"),
    "no extension": ("preds", b"x", r"extension \(none\) is not known.*If it is such a table, rename it"),
}


def test_bad_files_are_refused_by_name(tmp_path):
    for label, (name, content, message) in BAD_FILES.items():
        with noted(case=label):
            path = tmp_path / name
            path.write_bytes(content)
            with pytest.raises(InputError, match=message) as caught:
                read_predictions(path)
            assert str(caught.value).startswith(f"{path}: ")
            assert "\n" not in str(caught.value)
            assert caught.value.__suppress_context__ or caught.value.__context__ is None

    # A Parquet file cut anywhere is refused.
    for cut in range(1, 40):
        with noted(cut=cut):
            whole = parquet_bytes()
            path = tmp_path / "cut.parquet"
            path.write_bytes(whole[: len(whole) * cut // 40])
            with pytest.raises(InputError, match=r"cut.parquet: cannot be read"):
                read_predictions(path)


BAD_ARRAYS = {
    "pickled objects": (
        {"labels": np.array([0, "x"], dtype=object), "probs": [0.5, 0.5]},
        "Pickled objects are refused",
    ),
    "unknown array": ({"labels": [0, 1], "prob": [0.5, 0.5]}, "`prob` is not known. Did you mean .probs."),
    "unknown score": ({"labels": [0, 1], "probs": [0.5, 0.5], "score_": [1, 2]}, "`score_` is not known"),
    "scalar": ({"labels": [0, 1], "probs": 0.5}, "`probs` is a single value"),
    "lengths": ({"labels": [0, 1, 1], "probs": [0.5, 0.5]}, "`probs` has 2 rows but `labels` has 3"),
    "one row": ({"labels": [0], "probs": [0.5]}, "has 1 row"),
    "nothing": ({"labels": [0, 1]}, "need `labels` and one of"),
}


def test_bad_npz_files_are_refused_by_name(tmp_path):
    for label, (arrays, message) in BAD_ARRAYS.items():
        with noted(case=label):
            np.savez(tmp_path / "a.npz", **arrays)
            with pytest.raises(InputError, match=message) as caught:
                read_predictions(tmp_path / "a.npz")
            assert str(caught.value).startswith(f"{tmp_path / 'a.npz'}: ")

    # A truncated NPZ file is refused.
    for share in [0.2, 0.5, 0.8, 0.98]:
        with noted(share=share):
            whole = npz_bytes(tmp_path, labels=RNG.integers(0, 2, 500), probs=RNG.random(500))
            (tmp_path / "cut.npz").write_bytes(whole[: int(len(whole) * share)])
            with pytest.raises(InputError, match=r"cut.npz: cannot be read"):
                read_predictions(tmp_path / "cut.npz")

    # A damaged NPZ member is refused.
    raw = bytearray(npz_bytes(tmp_path, labels=RNG.integers(0, 2, 500), probs=RNG.random(500)))
    raw[2000:2100] = b"\xff" * 100
    (tmp_path / "bad.npz").write_bytes(raw)
    with pytest.raises(InputError, match=r"bad.npz: "):
        read_predictions(tmp_path / "bad.npz")

    # A single array is no NPZ file.
    with open(tmp_path / "a.npz", "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InputError, match=r"a.npz: is a single array.*savez"):
        read_predictions(tmp_path / "a.npz")

    # Column options do not apply to NPZ.
    np.savez(tmp_path / "a.npz", labels=[0, 1], probs=[0.5, 0.5])
    with pytest.raises(InputError, match="`label` names a column"):
        read_predictions(tmp_path / "a.npz", label="y")


def test_files_that_do_not_fit_together_are_named(tmp_path):
    # NPZ files and tables do not mix.
    np.savez(tmp_path / "a.npz", labels=[0, 1], probs=[0.5, 0.5])
    (tmp_path / "b.csv").write_text("label,prob\n0,0.5\n")
    with pytest.raises(InputError, match="cannot be joined"):
        read_predictions([tmp_path / "a.npz", tmp_path / "b.csv"])

    # NPZ files must agree on arrays and classes.
    np.savez(tmp_path / "a.npz", labels=[0, 1], probs=[0.5, 0.5], classes=["x", "y"])
    np.savez(tmp_path / "b.npz", labels=[0, 1], probs=[0.5, 0.5], classes=["y", "x"])
    np.savez(tmp_path / "c.npz", labels=[0, 1], probs=[0.5, 0.5], weights=[1, 1])
    with pytest.raises(InputError, match="`classes` differ"):
        read_predictions(tmp_path / "[ab].npz")
    with pytest.raises(InputError, match=r"c.npz: lacks classes and also has weights"):
        read_predictions(tmp_path / "[ac].npz")

    # Files with other columns are named.
    (tmp_path / "a.csv").write_text("label,prob_0,prob_1,extra\n0,0.5,0.5,1\n1,0.5,0.5,1\n")
    (tmp_path / "b.csv").write_text("label,prob_0,prob_1,weight\n0,0.5,0.5,1\n1,0.5,0.5,1\n")
    with pytest.raises(InputError, match=r"b.csv: also has weight, unlike .*a.csv"):
        read_predictions(tmp_path / "*.csv")

    # The bad one of several files is named.
    (tmp_path / "a.csv").write_text("label,prob_0,prob_1\n0,0.5,0.5\n1,0.5,0.5\n")
    (tmp_path / "b.csv").write_text("label,prob_0,prob_1\n0,0.5,0.5\n1,0.5,0.4\n")
    with pytest.raises(InputError, match=r"b.csv: `probs` does not sum to 1: worst row 1") as caught:
        read_predictions(tmp_path / "*.csv")
    assert str(caught.value).count(".csv") == 1

    # Types that cannot be joined are named.
    pq.write_table(pa.table({"label": [0, 1], "prob": [0.5, 0.5]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"label": [0, 1], "prob": [[0.5], [0.5]]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"column `prob` has types that cannot be joined|holds .*not numbers"):
        read_predictions(tmp_path / "*.parquet")


def test_names_that_lead_to_no_file_are_refused_with_what_to_write(tmp_path):
    # A missing file suggests the nearest.
    (tmp_path / "preds.csv").write_text("x")
    with pytest.raises(InputError, match=r"pred.csv: there is no such file. Did you mean .preds.csv."):
        read_predictions(tmp_path / "pred.csv")
    with pytest.raises(InputError, match="there is no such file"):
        read_predictions(tmp_path / "no" / "pred.csv")

    # A pattern without match is refused.
    with pytest.raises(InputError, match="no file matches"):
        read_predictions(tmp_path / "*.parquet")

    # A folder is refused with a pattern to use.
    with pytest.raises(InputError, match=r"is a folder.*\*\.parquet"):
        read_predictions(tmp_path)

    # No files and no names are refused.
    with pytest.raises(InputError, match="empty list"):
        read_predictions([])
    with pytest.raises(InputError, match="`path` holds 3"):
        read_predictions([3])

    # A file named twice is refused.
    (tmp_path / "a.csv").write_text("label,prob\n0,0.5\n1,0.5\n")
    with pytest.raises(InputError, match="named twice"):
        read_predictions([tmp_path / "a.csv", tmp_path / "*.csv"])

    # Unknown options are refused.
    with pytest.raises(TypeError, match="lable"):
        read_predictions(tmp_path / "a.csv", lable="y")


def test_odd_but_good_names_of_files_are_read(tmp_path, monkeypatch):
    # A file with brackets in its name is read.
    (tmp_path / "a[1].csv").write_text("label,prob\n0,0.5\n1,0.5\n")
    assert read_predictions(tmp_path / "a[1].csv").n == 2

    # A home folder is expanded.
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.csv").write_text("label,prob\n0,0.5\n1,0.5\n")
    assert read_predictions(str(Path("~") / "a.csv")).n == 2


@pytest.mark.filterwarnings("ignore:few right rows")
def test_a_file_gives_the_bits_of_its_arrays(tmp_path):
    rng = np.random.default_rng(0)
    for classes in (3, 8, 40):
        labels, logits = rng.integers(0, classes, 60), rng.normal(size=(60, classes))
        counts = np.exp(logits)
        for kind in (np.float32, np.float64):
            given = {"logit": logits, "prob": counts / counts.sum(axis=1, keepdims=True), "count": counts}
            for what, array in given.items():
                array, name, normalize = array.astype(kind), what.replace("count", "prob"), what == "count"
                columns = {f"{name}_{k:02d}": array[:, k] for k in range(classes)}
                pq.write_table(pa.table({"label": labels} | columns), tmp_path / "rows.parquet")
                read = read_predictions(tmp_path / "rows.parquet", normalize=normalize)
                own = Predictions(labels, **{f"{name}s": array}, normalize=normalize)
                with noted(classes=classes, kind=kind, what=what):
                    assert np.array_equal(read.probs, own.probs)
                    assert [row.estimate for row in uq.evaluate(read)] == [row.estimate for row in uq.evaluate(own)]


def test_a_parquet_file_is_read_without_pandas_and_arrows_functions(tmp_path):
    """Which take longer to load than a million rows to read."""
    table = pa.table({"label": [0, 1, 1, 0], "cluster": [7, 7, 9, 8], "prob_0": [0.9, 0.2, 0.6, 0.7]})
    pq.write_table(table.append_column("prob_1", pa.array([0.1, 0.8, 0.4, 0.3])), tmp_path / "rows.parquet")
    code = (
        "import sys, uqeval; "
        f"p = uqeval.read_predictions({str(tmp_path / 'rows.parquet')!r}); "
        "print(p.clusters.tolist(), {'pandas', 'pyarrow.compute'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 0, 2, 1] set()"


def test_texts_are_read_and_checked_without_pandas(tmp_path):
    """Which takes longer to load than all else: Arrow imports it to make a scalar or an array of Python's values."""
    table = pa.table({"label": ["a", "b", "b", "a"], "cluster": ["x", "x", "z", "y"], "prob_a": [0.9, 0.2, 0.6, 0.7]})
    table = table.append_column("prob_b", pa.array([0.1, 0.8, 0.4, 0.3]))
    pq.write_table(table, tmp_path / "rows.parquet")
    pa.csv.write_csv(table, tmp_path / "rows.csv")
    code = (
        "import sys, uqeval; "
        "p = uqeval.read_predictions(sys.argv[1]); "
        "print(p.labels.tolist(), p.clusters.tolist(), 'pandas' in sys.modules)"
    )
    for name in ("rows.parquet", "rows.csv"):
        command = [sys.executable, "-c", code, tmp_path / name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[0, 1, 1, 0] [0, 0, 2, 1] False", name


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_an_empty_text_is_found_in_any_piece_of_any_slice(kind):
    texts = pa.array(["", "b", "", "a", "b", "", "a", "b"], type=kind)
    pieces = [texts.slice(1, 1), texts.slice(0, 0), pa.array([], type=kind), texts.slice(3, 4), texts.slice(6, 2)]
    short = [*pieces[:3], texts.slice(3, 2), texts.slice(6, 2)]

    def read(labels):
        halves = np.full(sum(map(len, labels)), 0.5)
        return Predictions.from_frame(pa.table({"label": pa.chunked_array(labels), "prob_a": halves, "prob_b": halves}))

    with pytest.raises(InputError, match=r"Column `label` has 1 missing value \(first at row 3\)"):
        read(pieces)
    assert read(short).labels.tolist() == [1, 0, 1, 0, 1]


def test_whole_numbers_are_coded_as_arrow_codes_them():
    rng = np.random.default_rng(0)
    for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint64):
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        for start in (0, least, most - 20):
            values = np.array([start + int(k) for k in rng.integers(0, 20, 30)], dtype=kind)
            column = pa.chunked_array([values[:11], values[11:]])
            expected = column.dictionary_encode().unify_dictionaries()
            codes, dictionary = frame._dictionary(column)
            assert dictionary.tolist() == expected.chunk(0).dictionary.to_pylist()
            assert codes.tolist() == [code for chunk in expected.chunks for code in chunk.indices.to_pylist()]
        far = pa.chunked_array([np.array([least, most, least], dtype=kind)])  # no table can hold that
        assert frame._dictionary(far)[0].tolist() == [0, 1, 0]
