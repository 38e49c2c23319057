"""Files that lie: sizes, places and depths that would crash a reader or fill its memory get one sentence."""

import gzip
import io
import json
import pickle
import struct
import warnings
import zipfile
from functools import partialmethod

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uqeval as uq
from cases import noted
from fuzz.readers import attempt, make_cases
from uqeval._errors import InputError
from uqeval.decide.apply import apply_file
from uqeval.gate.policy import read_policy
from uqeval.inputs.columns import Columns
from uqeval.inputs.late_labels import read_labels
from uqeval.inputs.paths import refuse_bomb
from uqeval.inputs.texts import Depth, Watched

DEEP = "[" * 100_000 + "1" + "]" * 100_000


def test_a_damaged_file_gives_the_number_of_an_independent_reader_or_one_of_our_errors(tmp_path):
    pytest.importorskip("pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = make_cases()
    found = [attempt(cases, seed, tmp_path) for seed in range(1, 400)]
    assert found.count("read") > 50
    assert found.count("refused") > 100


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_an_arrow_file_whose_texts_lie_outside_it_is_refused_and_not_followed(tmp_path, new):
    path, promise = tmp_path / "f.arrow", uq.Threshold.from_value(0.15, max_risk=0.1)
    table = pa.table({"label": ["cat", "dog"], "prob_cat": [0.8, 0.3], "prob_dog": [0.2, 0.7], "score_x": [0.1, 0.2]})
    with new(str(path), table.schema) as writer:
        writer.write_table(table)
    whole, places = path.read_bytes(), struct.Struct("<3i")  # where the texts begin and end
    assert whole.count(places.pack(0, 3, 6)) == 1
    for lie in ((0, 3, 1 << 30), (0, -7, 6), (0, 6, 3)):
        path.write_bytes(whole.replace(places.pack(0, 3, 6), places.pack(*lie)))
        for read in (
            lambda: uq.read_predictions(path),
            lambda: uq.evaluate(str(path), engine="local"),
            lambda: apply_file(promise, path, tmp_path / "out.arrow", score="x"),
        ):
            with pytest.raises(InputError, match=r"f\.arrow: cannot be read; it may be truncated, corrupt"):
                read()
    assert [one.name for one in tmp_path.iterdir()] == ["f.arrow"]


def npz(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def array(shape, values, kind="<f8"):
    """An array that says that it has this shape."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": kind, "fortran_order": False, "shape": shape})
    return out.getvalue() + values.tobytes()


def test_an_array_that_is_not_as_large_as_it_says_is_refused_before_room_is_made_for_it(tmp_path):
    path = tmp_path / "f.npz"
    labels = array((4,), np.array([0, 1, 0, 1]), "<i8")
    for shape in ((10**12,), (10**12, 2), (3, 2), (5, 2)):
        npz(path, {"labels": labels, "probs": array(shape, np.full((4, 2), 0.5))})
        with pytest.raises(InputError, match=r"f\.npz: is corrupt: the array `probs` says it has [\d,]+ bytes"):
            uq.read_predictions(path)
    npz(path, {"labels": labels, "probs": array((4, 2), np.full((4, 2), 0.5))})
    assert uq.read_predictions(path).n == 4


class Bomb:
    ran = False

    def __reduce__(self):
        return setattr, (Bomb, "ran", True)


def test_an_array_of_pickles_is_refused_and_not_run(tmp_path):
    path = tmp_path / "f.npz"
    content = array((2,), np.empty(0), "|O") + pickle.dumps(np.array([Bomb(), Bomb()], dtype=object))
    npz(path, {"labels": content, "probs": array((2,), np.array([0.5, 0.5]))})
    with pytest.raises(InputError, match=r"`labels` cannot be read .*Pickled objects are refused"):
        uq.read_predictions(path)
    assert not Bomb.ran


def test_what_unpacks_to_far_more_than_it_is_is_refused_with_the_way_to_allow_it(tmp_path, monkeypatch):
    half = "label,prob\n" + "0,0.5\n1,0.5\n" * 50_000
    (tmp_path / "f.csv.gz").write_bytes(gzip.compress(half.encode()))
    line = json.dumps({"label": 0, "prob": 0.5}) + "\n"
    (tmp_path / "f.jsonl.gz").write_bytes(gzip.compress((line * 50_000).encode()))
    zeros = pa.table({"label": np.arange(50_000) % 2, "prob": np.full(50_000, 0.5)})
    pq.write_table(zeros, tmp_path / "f.parquet")
    np.savez_compressed(tmp_path / "f.npz", labels=np.arange(50_000) % 2, probs=np.full(50_000, 0.5))
    for name in ("f.csv.gz", "f.jsonl.gz", "f.parquet", "f.npz"):
        assert uq.read_predictions(tmp_path / name).n >= 50_000
        with monkeypatch.context() as patch:
            patch.setattr("uqeval.inputs.paths._ALWAYS", 1e4)
            patch.setattr("uqeval.inputs.paths._AT_MOST", 1)
            with pytest.raises(InputError, match=rf"{name}: unpacks to more than .* GB .*UQEVAL_MAX_UNPACKED_GB=64"):
                uq.read_predictions(tmp_path / name)
            patch.setenv("UQEVAL_MAX_UNPACKED_GB", "1")
            assert uq.read_predictions(tmp_path / name).n >= 50_000
    refuse_bomb(2e9, 1)
    refuse_bomb(99e9, 1e9)
    with pytest.raises(InputError, match="more than 100 GB from 1e"):
        refuse_bomb(101e9, 1e9)


def test_json_deeper_than_a_stack_is_refused_wherever_it_is_read(tmp_path):
    rows, late, log, rules = (tmp_path / name for name in ("f.jsonl", "late.jsonl", "log.json", "p.toml"))
    rows.write_text(f'{{"label": 0, "prob": 0.5}}\n{{"label": 1, "prob": 0.5, "more": {DEEP}}}\n')
    late.write_text(f'{{"id": "a", "error": 0, "more": {DEEP}}}\n')
    log.write_text(f'{{"version": 2, "status": "success", "eval": {{}}, "samples": {DEEP}}}')
    rules.write_text(f"rule = {DEEP}")
    promise = uq.Threshold.from_value(0.5, max_risk=0.1)
    for read in (
        lambda: uq.read_predictions(rows),
        lambda: uq.evaluate(str(rows), engine="local"),
        lambda: apply_file(promise, late, tmp_path / "out.jsonl", score="x"),
        lambda: read_labels(str(late), Columns()),
        lambda: uq.read_logs(log),
        lambda: read_policy(rules),
    ):
        with pytest.raises(InputError, match="nested too deeply"):
            read()
    for kind in (uq.Threshold, uq.Thresholds, uq.Check, uq.Evaluation, uq.Comparison):
        with pytest.raises(InputError, match="broken JSON"):
            kind.from_json(f'{{"schema_version": 1, "more": {DEEP}}}')


def test_a_line_of_null_is_refused_where_arrow_would_die_of_it(tmp_path, monkeypatch):
    path, promise = tmp_path / "f.jsonl", uq.Threshold.from_value(0.5, max_risk=0.1)
    rows = [f'{{"label": {k % 2}, "prob": 0.{k}1, "score_x": 0.{k}, "more": null}}' for k in range(9)]
    reads = {
        "memory": lambda: uq.read_predictions(path),
        "pieces": lambda: uq.evaluate(str(path), metrics="accuracy", engine="local"),
        "apply": lambda: apply_file(promise, path, tmp_path / "out.jsonl", score="x"),
        "late": lambda: read_labels(str(path), Columns(id="label", error="label")),
    }
    path.write_text("\n".join(rows))
    for read in list(reads.values())[:3]:
        read()
    for size in (1 << 24, 7):  # of what Arrow reads at once
        monkeypatch.setattr(Watched, "readinto", partialmethod(few_bytes, size))
        for text in ("null\n{}", "\ufeffnull\n{}", " \n\t null\n{}", "{}\nnull\n", "{}\r\n null\r\n{}", "null"):
            path.write_text(text.replace("{}", "\n".join(rows)), newline="")
            for name, read in reads.items():
                with noted(name=name, text=text), pytest.raises(InputError, match=r"f\.jsonl: "):
                    read()


def few_bytes(self, buffer, size):
    data = self.read(min(size, len(buffer)))
    buffer[: len(data)] = data
    return len(data)


def test_letters_beyond_unicode_in_an_archive_are_one_sentence(tmp_path):
    names = np.array(["a", "b"])
    for order in "<>":
        bad = names.astype(f"{order}U1")
        np.savez(tmp_path / "f.npz", labels=[0, 1], probs=[[0.9, 0.1], [0.2, 0.8]], classes=bad)
        assert uq.read_predictions(tmp_path / "f.npz").classes == ("a", "b")
        bad.view(f"{order}u4")[1] = 0x110000
        np.savez(tmp_path / "f.npz", labels=[0, 1], probs=[[0.9, 0.1], [0.2, 0.8]], classes=bad)
        with pytest.raises(InputError, match=r"f\.npz: is corrupt: the array `classes` holds letters"):
            uq.read_predictions(tmp_path / "f.npz")


def test_a_stored_check_with_evidence_below_none_is_refused():
    check = uq.Threshold.from_value(0.5, max_risk=0.1).check([0.1, 0.2, 0.3], [0, 1, 0])
    data = json.loads(check.to_json())
    assert uq.Check.from_json(json.dumps(data)).e_value == check.e_value
    with pytest.raises(InputError, match=r"an e-value of -1, which evidence cannot be\. Start a new one"):
        uq.Check.from_json(json.dumps(data | {"e_value": -1}))


def test_a_stored_comparison_with_a_group_of_nothing_is_refused():
    cmp = uq.compare({"a": [0.1, 0.9, 0.4, 0.6] * 15, "b": [0.2, 0.3, 0.8, 0.5] * 15}, error=[0, 1, 0, 1] * 15)
    data = json.loads(cmp.to_json())
    with pytest.raises(InputError, match="has an empty group"):
        uq.Comparison.from_json(json.dumps(data | {"same_ranking": [[]]}))


def test_brackets_of_many_rows_are_no_depth(tmp_path):
    row = {"label": 0, "prob": 0.5, "text": "[[[", "list": [[1], [2]]}
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(row | {"label": k % 2}) + "\n" for k in range(2000)))
    assert uq.read_predictions(tmp_path / "f.jsonl").n == 2000


def test_a_quote_that_is_not_closed_swallows_no_rows_of_what_is_applied(tmp_path):
    promise = uq.Threshold.from_value(0.5, max_risk=0.1)
    for text in ('id,"score_x\na,0.2\nb,0.3\n', 'id,score_x\na,0.2\nb,"0.3\n'):
        (tmp_path / "f.csv").write_text(text)
        with pytest.raises(InputError, match="quotes"):
            apply_file(promise, tmp_path / "f.csv", tmp_path / "out.csv", score="x")


def test_an_infinite_late_label_is_refused(tmp_path):
    for value in ("inf", "nan", "1e999"):
        (tmp_path / "f.csv").write_text(f"id,error\na,0\nb,{value}\n")
        with pytest.raises(InputError, match=r"column `error`"):
            read_labels(str(tmp_path / "f.csv"), Columns())


def test_a_message_shows_the_beginning_of_a_cell_that_is_as_long_as_a_book(tmp_path):
    (tmp_path / "f.csv").write_text(f"label,prob_a,prob_b\n{'x' * 100_000},0.5,0.5\na,0.5,0.5\n")
    with pytest.raises(InputError, match=r"x{70,80}…") as caught:
        uq.read_predictions(tmp_path / "f.csv")
    assert len(str(caught.value)) < 1000


def test_brackets_in_texts_and_in_closed_lists_are_no_depth_and_hide_none(tmp_path):
    path = tmp_path / "f.jsonl"

    def rows(**more):
        return [{"label": k % 2, "prob": 0.3 + k / 10} | more for k in range(4)]

    lists, texts = [[[k]] for k in range(2000)], '[{"\\' * 3000
    for more in ({"said": texts}, {"lists": lists}, {"said": texts, "lists": lists, "end": "\\"}):
        path.write_text("\n".join(map(json.dumps, rows(**more))))
        assert uq.read_predictions(path).n == 4
        checked, text = Depth(), path.read_bytes()
        for k in range(0, len(text), 997):  # in pieces
            checked.check(text[k : k + 997])
    path.write_text("\n".join(json.dumps(row).replace('"x"', DEEP) for row in rows(said="]" * 200_000, deep="x")))
    with pytest.raises(InputError, match="nested too deeply"):
        uq.read_predictions(path)


def test_a_message_names_columns_and_classes_that_are_whole_texts_by_their_beginning(tmp_path):
    (tmp_path / "f.csv").write_text(f"label,{'some words ' * 10_000}\n1,0.5\n2,0.5\n")
    with pytest.raises(InputError, match=r"One needs `label` .* label, some words .*…") as caught:
        uq.read_predictions(tmp_path / "f.csv")
    assert len(str(caught.value)) < 1000
    assert len(str(InputError(f"`score` is {'a b ' * 1000}. Do this."))) < 2500
    assert str(InputError(f"`score` is {'a b ' * 1000}. Do this.")).endswith(". Do this.")


def test_what_follows_the_numbers_of_an_arrow_buffer_is_not_read(tmp_path):
    with pa.ipc.new_file(str(tmp_path / "f.arrow"), pa.schema({"error": pa.int64(), "score_x": pa.float64()})) as file:
        arrays = [
            pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(np.array(values, dtype).tobytes() + b"end")])
            for kind, dtype, values in ((pa.int64(), "i8", [9, 0, 1]), (pa.float64(), "f8", [9, 0.5, 0.25]))
        ]
        file.write_batch(pa.record_batch(arrays, names=["error", "score_x"]).slice(1))
    table = pa.table(dict(zip(("error", "score_x"), (array.slice(1) for array in arrays), strict=True)))
    for found in (uq.read_predictions(tmp_path / "f.arrow"), uq.Predictions.from_frame(table)):
        assert found.error.tolist() == [0, 1]
        assert found.scores["x"].tolist() == [0.5, 0.25]
