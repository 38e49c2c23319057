"""Files as people write them: separators, decimal commas, encodings, packers, pipes and addresses."""

import bz2
import gzip
import io
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cases import noted
from uqeval._errors import InputError, MissingExtra
from uqeval.inputs import elsewhere, read_predictions
from uqeval.inputs.predictions import Predictions

ROWS = "label,prob_größe,prob_b\nb,0.25,0.75\ngröße,0.5,0.5\n"
PROBS = [[0.25, 0.75], [0.5, 0.5]]


def test_csv_is_read_as_it_was_written_once_that_is_said(tmp_path):
    path = tmp_path / "a.csv"
    european = ROWS.replace(",", ";").replace(".", ",")
    for encoding in ("utf-8", "latin-1", "cp1252", "utf-16"):
        for text, how in (
            (ROWS, {}),
            (european, {"sep": ";", "decimal": ","}),
            (ROWS.replace(",", "\t"), {"sep": "tab"}),
        ):
            with noted(encoding=encoding, how=how):
                path.write_bytes(text.encode(encoding))
                p = read_predictions(path, encoding=encoding, **how)
                assert (p.probs.tolist(), p.classes, p.labels.tolist()) == (PROBS, ("größe", "b"), [1, 0])


def test_what_was_not_said_is_refused_with_the_option_that_says_it(tmp_path):
    path = tmp_path / "a.csv"
    for text, encoding, how, message in (
        (ROWS, "latin-1", {}, 'cannot be read as UTF-8 .it holds the byte 0xf6.*encoding="latin-1".*--encoding'),
        (ROWS, "utf-16", {}, 'it holds the byte 0xf.*encoding="utf-16"'),
        ("label,prob,x\n" + "0,0.5,a\n" * 9 + "1,0.6,ö\n", "latin-1", {"group": "x"}, "cannot be read as UTF-8"),
        (ROWS.replace(",", ";"), "utf-8", {}, r'looks separated by ";": pass sep=";" .--sep ";"'),
        (ROWS.replace(",", "\t"), "utf-8", {}, r'pass sep="\\t"'),
        (
            ROWS.replace(",", ";").replace(".", ","),
            "utf-8",
            {"sep": ";"},
            r"'0,25', a decimal comma: pass decimal=\",\"",
        ),
        (ROWS, "utf-8", {"sep": ";;"}, "`sep` .--sep. must be a single character"),
        (ROWS, "utf-8", {"encoding": "latin-99"}, "`encoding` .--encoding. is 'latin-99', which is not known"),
    ):
        path.write_bytes(text.encode(encoding))
        with noted(message=message), pytest.raises(InputError, match=message) as caught:
            read_predictions(path, **how)
        assert str(caught.value).startswith(f"{path}: ")
    pq.write_table(pa.table({"label": [0, 1], "prob": [0.1, 0.2]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"`sep` .--sep. says how a CSV file is written, but .*a.parquet is none"):
        read_predictions(tmp_path / "a.parquet", sep=";")
    with pytest.raises(InputError, match="a frame is no file"):
        Predictions.from_frame(pa.table({"label": [0, 1], "prob": [0.1, 0.2]}), decimal=",")


def test_packed_texts_are_read(tmp_path):
    lines = "".join(json.dumps({"label": k % 2, "prob": 0.1 * k}) + "\n" for k in range(6)).encode()
    for name, content in (("csv", ROWS.encode()), ("jsonl", lines)):
        (tmp_path / f"plain.{name}").write_bytes(content)
        plain = read_predictions(tmp_path / f"plain.{name}")
        for end, pack in ((".gz", gzip.compress), (".bz2", bz2.compress), (".zst", pa.Codec("zstd").compress)):
            packed = pack(content)
            (tmp_path / f"a.{name}{end}").write_bytes(bytes(packed))
            with noted(name=name, end=end):
                assert np.array_equal(read_predictions(tmp_path / f"a.{name}{end}").probs, plain.probs)


def test_a_column_that_is_not_needed_may_hold_anything_in_json_lines(tmp_path):
    rows = [{"label": k % 2, "prob": k / 10, "note": [k, "x", None, {"a": [1]}, 2.5][k % 5]} for k in range(10)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    p = read_predictions(tmp_path / "a.jsonl")
    assert (p.labels.tolist(), p.probs[:, 1].tolist()) == ([0, 1] * 5, [k / 10 for k in range(10)])
    with pytest.raises(InputError, match=r"a.jsonl: Column `note` mixes types: 0 first, then 'x' in row 1"):
        read_predictions(tmp_path / "a.jsonl", group="note")
    (tmp_path / "a.jsonl").write_text('{"label": 0, "prob": 1, "x": 1}\n{"label": 1, "prob": 1, "x": "a"}\n[1]\n')
    (tmp_path / "b.jsonl").write_text('{"label": 0, "prob": 0.5, "prob": 0.6}\n{"label": 1, "prob": 0.5}\n')
    with pytest.raises(InputError, match="Duplicated column names: 'prob'"):
        read_predictions(tmp_path / "b.jsonl")
    with pytest.raises(InputError, match="line 3 is no record"):
        read_predictions(tmp_path / "a.jsonl")


def test_a_minus_reads_standard_input_of_any_format(tmp_path):
    table = pa.table({"label": [0, 1] * 30, "prob": np.linspace(0.1, 0.9, 60)})
    csv = "label,prob\n" + "".join(f"{k % 2},{0.1 + k * 0.8 / 59}\n" for k in range(60))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    for content in (csv.encode(), sink.getvalue(), lines.encode(), gzip.compress(lines.encode())):
        command = [sys.executable, "-m", "uqeval", "evaluate", "-", "--metrics", "accuracy", "--json", "-"]
        done = subprocess.run(command, input=content, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["n"] == 60


def test_standard_input_without_rows_is_refused(monkeypatch):
    for stdin, message in (
        (SimpleNamespace(buffer=io.BytesIO(b""), isatty=lambda: False), "standard input is empty"),
        (SimpleNamespace(buffer=io.BytesIO(b"x"), isatty=lambda: True), "nothing is piped in. As in: cat"),
    ):
        elsewhere._standard_input.cache_clear()
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(InputError, match=message):
            read_predictions("-")


def test_addresses_are_fetched_or_refused_in_one_line(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"label,prob\n0,0.{ord(name)}\n1,0.{ord(name) + 1}\n")
    assert read_predictions(f"file://{tmp_path}/a.csv").probs[:, 1].tolist() == [0.97, 0.98]
    assert read_predictions(f"file://{tmp_path}/*.csv").n == 4
    with pytest.raises(InputError, match="no file matches this pattern"):
        read_predictions(f"file://{tmp_path}/*.parquet")
    with pytest.raises(InputError, match=r"file:///nowhere/a.csv: cannot be fetched .*Check the address"):
        read_predictions("file:///nowhere/a.csv")
    # fsspec for the rest; without it, one line with what to install.
    fsspec = pytest.importorskip("fsspec")

    with fsspec.open("memory://here/a.csv", "wb") as file:
        file.write(b"label,prob\n0,0.5\n1,0.6\n")
    assert read_predictions("memory://here/a.csv").n == 2
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtra, match=r'https:// needs fsspec. Install it with: pip install "uqeval\[remote'):
        read_predictions("https://example.org/a.csv")
