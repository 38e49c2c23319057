"""A threshold applied to new rows: the same rows are accepted in every frame and file, and nothing else changes."""

import gzip
import json
import subprocess
import sys
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uqeval as uq
from optional import optional
from uqeval.decide import apply_file
from uqeval.inputs import marking, splicing

pd = optional("pandas")
pl = optional("polars")

FAST = uq.Threshold.from_value(0.5, max_risk=0.05)
ROWS = {"id": ["007", "1.50", "x"], "score_mine": [0.25, 0.5, 0.75]}
EXPECTED = [True, True, False]


@pytest.fixture(scope="module")
def example():
    return uq.datasets.example()


@pytest.fixture(scope="module")
def promise(example):
    return uq.choose_threshold("entropy", predictions=example, max_risk=0.05)


def model_output(pred, kind=np.float64):
    return pa.table({f"prob_{k}": pred.probs[:, k].astype(kind) for k in range(pred.n_classes)})


def write(table, path):
    suffix = path.suffix
    if suffix in (".csv", ".tsv"):
        pa.csv.write_csv(table, path, pa.csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ","))
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        (pq.write_table if suffix == ".parquet" else pa.feather.write_feather)(table, path)
    return path


def read(path):
    if path.suffix in (".csv", ".tsv"):
        how = pa.csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
        return pa.csv.read_csv(path, parse_options=how)
    if path.suffix == ".jsonl":
        return pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()])
    return pq.read_table(path) if path.suffix == ".parquet" else pa.feather.read_table(path)


def test_every_kind_of_frame_comes_back_as_its_own_kind_with_the_column():
    pytest.importorskip("pandas")
    table = pa.table(ROWS)
    frames = [table, table.to_pandas().set_index(pd.Index([9, 9, 3])), pl.from_arrow(table)]
    for frame in frames:
        marked = FAST.apply(frame, score="mine", column="act")
        assert type(marked) is type(frame)
        values = marked["act"].to_pylist() if isinstance(marked, pa.Table) else marked["act"].to_list()
        assert values == EXPECTED
    assert FAST.apply(frames[1], score="mine").index.tolist() == [9, 9, 3]


def test_a_lazy_frame_stays_lazy_and_a_row_without_a_score_is_not_accepted():
    duckdb, dd = pytest.importorskip("duckdb"), pytest.importorskip("dask.dataframe")
    gaps = pl.DataFrame({"score_mine": [0.25, None, float("nan"), 0.75]})
    marked = FAST.apply(gaps.lazy(), score="mine")
    assert isinstance(marked, pl.LazyFrame)
    assert marked.collect()["accept"].to_list() == [True, False, False, False]
    relation = duckdb.from_arrow(pa.table(ROWS))
    assert [row[-1] for row in FAST.apply(relation, score="mine").fetchall()] == EXPECTED
    frame = FAST.apply(dd.from_pandas(pd.DataFrame(ROWS), npartitions=2), score="mine")
    assert frame.compute(scheduler="synchronous")["accept"].tolist() == EXPECTED
    nothing = uq.Threshold.from_value(-np.inf, max_risk=0.05)
    assert not nothing.apply(gaps.lazy(), score="mine").collect()["accept"].any()
    with pytest.raises(uq.InputError, match="has no column of entropy"):
        FAST.apply(pl.LazyFrame({"prob_0": [0.5]}), score="entropy")


def test_every_format_marks_the_rows_that_accept_marks_and_keeps_all_others(example, promise, tmp_path, monkeypatch):
    expected = promise.accept(uq.scores.compute("entropy", example))
    table = model_output(example).append_column("id", pa.array(np.arange(example.n)))
    monkeypatch.setattr(marking, "_ROWS", 100)  # of Parquet
    monkeypatch.setattr(marking, "_BYTES", 10_000)  # of texts: several pieces
    for suffix in (".parquet", ".arrow", ".csv", ".tsv", ".jsonl"):
        source = write(table, tmp_path / f"new{suffix}")
        out = tmp_path / f"out{suffix}"
        done = apply_file(promise, source, out)
        marked = read(out)
        assert marked["accept"].to_pylist() == expected.tolist(), suffix
        assert marked.drop_columns("accept").equals(read(source)), suffix
        assert (done.rows, done.accepted, done.coverage) == (example.n, expected.sum(), expected.mean())
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_scores_of_members_of_narrow_numbers_and_of_single_rows_are_those_of_the_library(example, tmp_path):
    columns = {f"member{m}_prob_{k}": example.members[m, :, k] for m in range(5) for k in range(10)}
    path = write(pa.table(columns), tmp_path / "members.parquet")
    score = uq.scores.compute("mutual_information", uq.Predictions(example.labels, members=example.members))
    promise = uq.Threshold.from_value(float(np.median(score)), max_risk=0.1)
    apply_file(promise, path, tmp_path / "out.parquet", score="mutual_information")
    assert read(tmp_path / "out.parquet")["accept"].to_pylist() == promise.accept(score).tolist()
    narrow = model_output(example, np.float32)
    pred = uq.Predictions.from_frame(narrow.append_column("label", pa.array(example.labels)))
    score = uq.scores.compute("entropy", pred)
    promise = uq.Threshold.from_value(float(np.sort(score)[700]), max_risk=0.1)
    assert promise.apply(narrow, score="entropy")["accept"].to_pylist() == promise.accept(score).tolist()
    assert promise.apply(narrow.slice(0, 1), score="entropy")["accept"].to_pylist() == [bool(promise.accept(score)[0])]


def test_texts_of_csv_and_json_lines_stay_as_they_are(tmp_path):
    source, out = tmp_path / "new.csv", tmp_path / "out.csv"
    source.write_bytes(b'id,score_mine,note\r\n007,0.250,"a, ""b""\nc"\r\n\r\n 8,.5,\r\n=9, 0.75 ,d\r\n')
    apply_file(FAST, source, out, score="mine")
    assert out.read_bytes() == (
        b'id,score_mine,note,accept\r\n007,0.250,"a, ""b""\nc",true\r\n\r\n 8,.5,,true\r\n=9, 0.75 ,d,false\r\n'
    )
    source, out = tmp_path / "new.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"score_mine": 2.50e-1, "deep": {"x": [1.0]}}\n\n{"n": "é", "score_mine": 1}\n')
    apply_file(FAST, source, out, score="mine")
    assert out.read_text() == (
        '{"score_mine": 2.50e-1, "deep": {"x": [1.0]}, "accept": true}\n\n'
        '{"n": "é", "score_mine": 1, "accept": false}\n'
    )


NUMBERS = {"0.250": True, ".5": True, "7.50e-1": False, "1": False, "5E-1": True}
NOTES = ["", "plain", "Köln", '"a, b"', '"two\nlines"', '"two\r\nends"', '"a ""quote"""', "  ", "007"]
VALUES = ["1.50", '"Köln"', '{"a": [1, {}]}', '"say \\"}\\""', "null", '"accept"', "[ ]"]
GAPS = ["", "", "", "\n", "\r\n"]


@st.composite
def texts(draw):
    """Pieces of a text between which something is added, what is added, and how the file is written."""
    one_of, lines = lambda words: draw(st.sampled_from(words)), draw(st.integers(1, 6))
    kind, end = one_of(["csv", "tsv", "jsonl"]), one_of(["\n", "\r\n"])
    letters = (
        one_of(["utf-8", "utf-8", "latin-1", "utf-16-le", "utf-16-be", "utf-32-le"]) if kind != "jsonl" else "utf-8"
    )
    mark = "" if letters == "latin-1" else "\ufeff" if letters != "utf-8" else one_of(["", "\ufeff"])
    comma = {"csv": ",", "tsv": "\t", "jsonl": None}[kind]
    pieces, added = [], []
    if comma:
        pieces, added = [f"{one_of(GAPS)}id{comma}score_mine{comma}note"], [f"{comma}accept"]
    for _ in range(lines):
        gap = (end if pieces else "") + one_of(GAPS)
        number = one_of(sorted(NUMBERS))
        told = str(NUMBERS[number]).lower()
        if comma:
            pieces.append(f"{gap}{one_of(NOTES)}{comma}{number}{comma}{one_of(NOTES)}")
            added.append(f"{comma}{told}")
        else:
            tail = "" if not pieces else one_of(["}", "} ", "}\t "])  # of the line before
            inside = f'"x": {one_of(VALUES)}, "score_mine": {number if number != ".5" else "0.5"}{one_of(["", " "])}'
            pieces.append(f"{tail}{gap}{one_of(['', ' '])}{{{inside}")
            added.append(f', "accept": {told}')
    pieces.append(("" if comma else "}") + one_of(["", end, end + end]))
    return kind, letters.rsplit("-", 1)[0] if mark and letters != "utf-8" else letters, letters, mark, pieces, added


@given(texts(), st.integers(1, 60), st.integers(1, 60), st.booleans())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_without_what_was_added_a_text_is_the_old_one_byte_by_byte(tmp_path, text, size, part, packed):
    kind, told, letters, mark, pieces, added = text
    names = [tmp_path / f"{name}.{kind}{'.gz' if packed else ''}" for name in ("new", "out")]
    content = (mark + "".join(pieces)).encode(letters)
    names[0].write_bytes(gzip.compress(content) if packed else content)
    with mock.patch.object(marking, "_BYTES", size), mock.patch.object(splicing, "_PART", part):
        done = apply_file(FAST, names[0], names[1], score="mine", encoding=told)
    expected = mark + "".join(piece + more for piece, more in zip(pieces, [*added, ""], strict=True))
    found = names[1].read_bytes()
    assert (gzip.decompress(found) if packed else found) == expected.encode(letters)
    assert done.rows == len(added) - (kind != "jsonl")
    assert done.accepted == sum(more.endswith("true") for more in added)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ('{"score_mine": 0.1', "record 901 is not JSON, or not whole"),
        ("[0.1]", "record 901 is no JSON object"),
        ('{"score_mine": {"a": 1}}', r'Column `score_mine` holds {"a": 1} in record 901'),
    ],
)
def test_a_record_that_cannot_be_read_is_told_by_its_place_in_the_file(wrong, message, tmp_path, monkeypatch):
    monkeypatch.setattr(marking, "_BYTES", 1 << 10)
    lines = ['{"score_mine": 0.1}'] * 900 + [wrong] + ['{"score_mine": 0.1}'] * 100
    (tmp_path / "new.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(uq.InputError, match=message):
        apply_file(FAST, tmp_path / "new.jsonl", tmp_path / "out.jsonl", score="mine")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_row_that_ends_in_two_returns_keeps_its_cells_together(tmp_path):
    (tmp_path / "new.csv").write_bytes(b"id,score_mine\r\na,0.1\r\r\nb,0.9\r\n")
    done = apply_file(FAST, tmp_path / "new.csv", tmp_path / "out.csv", score="mine")
    assert (done.rows, done.accepted) == (2, 1)
    marked = b"id,score_mine,accept\r\na,0.1,true\r\r\nb,0.9,false\r\n"
    assert (tmp_path / "out.csv").read_bytes() == marked


def test_files_are_marked_without_loading_pandas(promise, example, tmp_path):
    """Which takes 0.2 s, and which Arrow loads for what it makes of Python's objects and of arrays."""
    files = ["new.csv", "new.jsonl", "new.parquet", "new.arrow"]
    for name in files:
        write(model_output(example), tmp_path / name)
    (tmp_path / "promise.json").write_text(promise.to_json())
    code = (
        "import pathlib, sys, uqeval as uq; promise = uq.Threshold.from_json(pathlib.Path('promise.json').read_text())"
    )
    code += "\nfor file in sys.argv[1:]: uq.decide.apply_file(promise, file, 'out-' + file)"
    code += "\nprint('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *files], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_csv_of_another_dialect_keeps_it(tmp_path):
    source, out = tmp_path / "new.csv", tmp_path / "out.csv"
    source.write_bytes("ort;score_mine\nKöln;0,25\nBonn;0,75\n".encode("latin-1"))
    apply_file(FAST, source, out, score="mine", sep=";", decimal=",", encoding="latin-1")
    assert out.read_bytes() == "ort;score_mine;accept\nKöln;0,25;true\nBonn;0,75;false\n".encode("latin-1")


def test_compressed_texts_are_read_and_written(tmp_path):
    source, out = tmp_path / "new.csv.gz", tmp_path / "out.csv.gz"
    source.write_bytes(gzip.compress(b"score_mine\n0.25\n0.75\n"))
    apply_file(FAST, source, out, score="mine")
    assert gzip.decompress(out.read_bytes()) == b"score_mine,accept\n0.25,true\n0.75,false\n"


def test_what_cannot_be_applied_is_refused_and_leaves_no_file(promise, tmp_path, monkeypatch):
    plain = write(pa.table(ROWS), tmp_path / "plain.csv")
    for text, data, how in (
        ('chosen for the score "entropy"; "margin" is another one', ROWS, {"score": "margin"}),
        ("needs probs to be computed from", ROWS, {}),
        ("a column `accept` already", ROWS | {"accept": [1, 2, 3]}, {}),
    ):
        with pytest.raises(uq.InputError, match=text):
            promise.apply(pa.table(data), **how)
    with pytest.raises(uq.InputError, match="does not know its score's name"):
        FAST.apply(pa.table(ROWS))
    with pytest.raises(uq.InputError, match="has no name"):
        FAST.apply(pa.table(ROWS), score="mine", column="")
    with pytest.raises(uq.InputError, match="no column of the score"):
        FAST.apply(pa.table(ROWS), score="yours")
    with pytest.raises(uq.InputError, match="NaN"):
        FAST.apply(pa.table({"score_mine": [0.1, float("nan")]}), score="mine")
    with pytest.raises(uq.InputError, match="a list"):
        FAST.apply([1, 2], score="mine")
    before = sorted(tmp_path.iterdir())
    for out, text in (("out.parquet", "Keep the format"), ("none/out.csv", "there is no folder")):
        with pytest.raises(uq.InputError, match=text):
            apply_file(FAST, plain, tmp_path / out, score="mine")
    monkeypatch.setattr(marking, "_BYTES", 4)
    (tmp_path / "gaps.csv").write_text('score_mine\n0.1\n0.2\n""\n')
    (tmp_path / "words.csv").write_text("id,score_mine\n1,0.1\n2,low\n")
    (tmp_path / "mac.csv").write_bytes(b'"a\rb",score_mine\r1,0.1\r2,0.9\r')
    (tmp_path / "short.csv").write_text("id,score_mine\n1,0.1\n2\n")
    (tmp_path / "pipe.csv").write_text('id,score_mine\n5" pipe,0.1\n6" pipe,0.9\n')
    (tmp_path / "words.jsonl").write_text('{"score_mine": 0.1}\n{"score_mine": "low"}\n')
    (tmp_path / "twice.jsonl").write_text('{"score_mine": 0.1}\n{"score_mine": 0.1, "accept": 1}\n')
    for name, text in (
        ("gaps.csv", "rows from 2 on: .*1 missing value"),
        ("words.jsonl", 'Column `score_mine` holds "low" in record 2'),
        ("words.csv", "Column `score_mine` holds 'low', which is no number"),
        ("mac.csv", "carriage returns alone"),
        ("short.csv", "Expected 2 columns, got 1"),
        ("pipe.csv", "quotes do not pair up"),
        ("twice.jsonl", "already"),
    ):
        with pytest.raises(uq.InputError, match=text):
            apply_file(FAST, tmp_path / name, tmp_path / f"out{name[name.index('.') :]}", score="mine")
    assert [path for path in tmp_path.iterdir() if path.name.startswith(("out", "."))] == []
    assert set(before) <= set(tmp_path.iterdir())


def test_a_score_that_can_be_computed_is_and_no_column_of_its_name_takes_its_place(example, promise, tmp_path):
    computed = uq.scores.compute("entropy", example)
    output = model_output(example)
    right = promise.accept(computed).tolist()
    foreign = output.append_column("entropy", pa.array(np.zeros(example.n)))
    assert apply_file(promise, write(foreign, tmp_path / "f.parquet"), tmp_path / "out.parquet").rows == example.n
    assert read(tmp_path / "out.parquet")["accept"].to_pylist() == right != [True] * example.n
    own = output.append_column("score_entropy", pa.array(computed))
    for table in (own, pa.table({"entropy": computed})):  # its own column; or nothing to compute it from
        apply_file(promise, write(table, tmp_path / "f.parquet"), tmp_path / "out.parquet")
        assert read(tmp_path / "out.parquet")["accept"].to_pylist() == right
    with pytest.raises(uq.InputError, match="Collect it"):
        promise.apply(pl.from_arrow(foreign).lazy())


def test_a_damaged_file_is_not_taken_for_one_that_cannot_be_written(tmp_path):
    path, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"score_mine": np.arange(1000.0)}), path, row_group_size=500, use_dictionary=False)
    page = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[page : page + 20] = b"\xff" * 20
    path.write_bytes(bytes(data))
    with pytest.raises(uq.InputError, match="cannot be read") as caught:
        apply_file(FAST, path, out, score="mine")
    assert str(caught.value).startswith(f"{path}: ")
    assert "out.parquet" not in str(caught.value)
    assert not out.exists()
