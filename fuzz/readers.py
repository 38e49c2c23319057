"""Damaged files of every kind, read as users read them: the right number, or one of our own errors.

A seed is an input: `main(0, seed)` tries that one alone. Inputs are tried in a process of its own, which may crash,
hang or eat memory: the parent knows the seed that it was at.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import math
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import tomllib
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

import uqeval as uq
from fuzz.damage import altered, altered_arrays, damaged, nested
from fuzz.tables import outcome
from tests import llm_logs
from uqeval._errors import InputError, MissingExtra
from uqeval.decide.apply import apply_file
from uqeval.gate.policy import read_policy
from uqeval.inference.result import Estimate
from uqeval.inputs.columns import Columns
from uqeval.inputs.files import is_log
from uqeval.inputs.late_labels import kind_of_file, read_labels, read_unlabelled
from uqeval.monitor.journal import Journal

OURS = (InputError, MissingExtra)
HANG = 10.0  # seconds of work for one small file; 30 times as many on the clock, where others work too
MEMORY = 2 << 30  # bytes beyond what the process has at its start
ROWS = 7
TINY = Path(__file__).parents[1] / "tests" / "inputs" / "tiny.eval"


class Wrong(AssertionError):
    """An input was taken for something that it does not say."""


class Case(NamedTuple):
    """Whole files of one kind, how they are damaged, and what must hold of the damaged one."""

    names: tuple[str, ...]
    files: tuple[bytes, ...]
    damage: Callable[[random.Random, bytes, bytes], bytes]
    attempt: Callable[[Path], None]


def require(holds: Any, what: str) -> None:
    if not holds:
        raise Wrong(what)


# ---- tables: the labels, probabilities and UQ-AUC of the file as another reader sees it -----------------------------


def _rows(kind: int) -> dict[str, list[Any]]:
    """Seven rows of one of four shapes."""
    rng = random.Random(kind)
    names = (["cat", "dog", "emu"], ["0", "1", "2"], ["no", "yes"], ["a,b", 'c"d'])[kind % 4]
    probs = [[x + 1 for x in rng.sample(range(9), len(names))] for _ in range(ROWS)]
    probs = [[x / sum(row) for x in row] for row in probs]
    labels: list[Any] = [rng.choice(names) for _ in range(ROWS)]
    if kind % 4 == 1:
        labels = list(map(int, labels))
    columns: dict[str, list[Any]] = {"label": labels}
    columns |= {f"prob_{name}": [row[k] for row in probs] for k, name in enumerate(names)}
    if kind >= 4:
        columns |= {"score_x": [rng.random() for _ in range(ROWS)], "id": [f"r{k}" for k in range(ROWS)]}
        columns |= {"cluster": [k // 2 for k in range(ROWS)], "weight": [1.0 + k % 2 for k in range(ROWS)]}
    return columns


TABLES = [_rows(kind) for kind in range(8)]


def _csv(columns: Mapping[str, list[Any]], sep: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=sep)
    writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
    return text.getvalue().encode()


def _jsonl(columns: Mapping[str, list[Any]]) -> bytes:
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _parquet(columns: Mapping[str, list[Any]], **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **how)
    return out.getvalue()


def _arrow(columns: Mapping[str, list[Any]], new: Any, packing: str | None = None) -> bytes:
    out, table = io.BytesIO(), pa.table(columns)
    with new(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=packing)) as writer:
        writer.write_table(table, max_chunksize=4)
    return out.getvalue()


def _zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as packed:
        packed.write(data)
    return out.getvalue().to_pybytes()


def _npz(columns: Mapping[str, list[Any]], save: Any) -> bytes:
    out = io.BytesIO()
    names = [name.removeprefix("prob_") for name in columns if name.startswith("prob_")]
    arrays: dict[str, Any] = {"labels": np.array([names.index(str(label)) for label in columns["label"]])}
    arrays["probs"] = np.array([columns[f"prob_{name}"] for name in names]).T
    arrays["classes"] = np.array(names)
    arrays |= {"score_x": np.array(columns["score_x"])} if "score_x" in columns else {}
    save(out, **arrays)
    return out.getvalue()


def _records(text: str) -> Iterator[Any]:
    """One after the other: Arrow reads a record that goes over two lines, too."""
    decoder, text = json.JSONDecoder(), text.strip(" \t\r\n")
    while text:
        record, end = decoder.raw_decode(text)
        yield record
        text = text[end:].lstrip(" \t\r\n")


def _columns_of(path: Path) -> dict[str, list[Any]]:
    """The columns by the plainest reader that there is."""
    kind, data = path.name.split(".", 1)[1], path.read_bytes()
    for ending, unpack in ((".gz", gzip.decompress), (".bz2", bz2.decompress), (".zst", _unzstd)):
        if kind.endswith(ending):
            kind, data = kind.removesuffix(ending), unpack(data)
    if kind in ("csv", "tsv"):
        lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), ""), delimiter="\t" if kind == "tsv" else ","))
        head, *rows = [line for line in lines if line]
        return {name: [row[k] for row in rows] for k, name in enumerate(head)}
    if kind == "jsonl":
        records = list(_records(data.decode("utf-8-sig")))
        return {name: [record.get(name) for record in records] for name in dict.fromkeys(k for r in records for k in r)}
    if kind == "parquet":
        return pq.read_table(path).to_pydict()
    with pa.OSFile(str(path)) as file:
        try:
            table = pa.ipc.open_file(file).read_all()
        except pa.ArrowInvalid:
            file.seek(0)
            table = pa.ipc.open_stream(file).read_all()
    table.validate(full=True)
    return table.to_pydict()


def _unzstd(data: bytes) -> bytes:
    with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
        return bytes(stream.read())


def _same(a: Any, b: Any) -> bool:
    """The same class, in a text or as a number."""
    if str(a).strip() == str(b).strip():
        return True
    try:
        return float(a) == float(b)
    except (TypeError, ValueError):
        return False


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _by_pairs(score: list[float], error: list[int], weight: list[float]) -> float:
    """The definition of UQ-AUC, pair by pair."""
    pairs = [(i, j) for i, a in enumerate(error) for j, b in enumerate(error) if a > b]
    total = sum(weight[i] * weight[j] for i, j in pairs)
    credit = sum(weight[i] * weight[j] * ((score[i] > score[j]) + 0.5 * (score[i] == score[j])) for i, j in pairs)
    return credit / total if total else math.nan


def _number_of(pred: uq.Predictions) -> float:
    """UQ-AUC of how little the largest probability is, as the library says it."""
    return uq.metrics.uq_auc(-pred.probs.max(axis=1), uq.truth.error_of(pred), weights=pred.weights)


def _table(path: Path) -> None:
    found = uq.read_predictions(path)
    again = uq.read_predictions(path)
    for name in ("labels", "probs", "error", "weights"):
        first, second = getattr(found, name), getattr(again, name)
        require(first is None or np.array_equal(first, second), f"`{name}` differs when read again")
    if found.probs is None or found.labels is None:
        return
    require(np.isfinite(found.probs).all() and (found.probs >= 0).all(), "probabilities outside [0, 1]")
    try:
        columns, parts = _columns_of(path), dict(found.columns)
    except (pa.ArrowException, OSError):  # a column that is not needed is damaged
        return
    names = found.classes
    own = parts["prob"]
    if len(own) < 2:  # the other class is what is missing
        return
    probs = [[float(value) for value in columns[name]] for name in own]
    order = [names.index(name.removeprefix("prob_").strip() or name.removeprefix("prob_")) for name in own]
    require(np.allclose(found.probs[:, order].T, probs, rtol=1e-9, atol=1e-12), "other probabilities than in the file")
    labels = columns[parts["label"][0]]
    require(len(labels) == found.n, "another number of rows than in the file")
    require(all(_same(names[k], label) for k, label in zip(found.labels, labels, strict=True)), "other labels")
    top = [max(range(len(own)), key=lambda k: (row[k], -order[k])) for row in zip(*probs, strict=True)]
    if any(list(row).count(max(row)) > 1 for row in found.probs.tolist()):
        return  # two most probable classes: which is taken is tested elsewhere
    error = [int(found.classes.index(names[order[k]]) != label) for k, label in zip(top, found.labels, strict=True)]
    if "error" not in parts and "pred" not in parts and len(set(error)) == 2:
        weight = [1.0] * found.n if found.weights is None else (found.weights / found.weights.max()).tolist()
        score = [-max(row) for row in found.probs.tolist()]
        expected = _by_pairs(score, error, weight)
        got = _number_of(found)
        neither = math.isnan(got) and math.isnan(expected)  # a class whose weights are all 0
        require(neither or math.isclose(got, expected, abs_tol=1e-9), f"UQ-AUC {got} in place of {expected}")


def _arrays(path: Path) -> None:
    found = uq.read_predictions(path)
    with np.load(path, allow_pickle=False) as held:
        for name in ("labels", "probs", "score_x"):
            if name in held and name == "probs" and found.probs is not None and held[name].shape == found.probs.shape:
                require(np.allclose(found.probs, held[name], rtol=1e-6), "other probabilities than in the file")
            if name in held and name == "score_x":
                require(np.array_equal(found.scores["x"], held[name]), "another score than in the file")
    if found.probs is not None:
        require(np.isfinite(found.probs).all() and (found.probs >= 0).all(), "probabilities outside [0, 1]")


def _piecewise(path: Path) -> None:
    """The engine that reads piece by piece says what all rows in memory say."""

    def said(engine: str) -> float:
        return uq.evaluate(str(path), scores="margin", metrics="uq_auc", engine=engine)["margin", "uq_auc"].value

    other = said("local")
    one = said("memory")  # reads no less
    require(one == other or (math.isnan(one) and math.isnan(other)), f"UQ-AUC {one} in memory, {other} in pieces")


def _late(path: Path) -> None:
    options = Columns()
    kind = kind_of_file(str(path), options)
    if kind == "labels":
        found = read_labels(str(path), options)
        require(found.loss is None or np.isfinite(found.loss).all(), "a loss that is no number")
    elif kind == "unlabelled":
        read_unlabelled(str(path), options)


def _applied(path: Path) -> None:
    out = path.with_name("out." + path.name.split(".", 1)[1])
    promise = uq.Threshold.from_value(0.5, max_risk=0.1)
    try:
        done = apply_file(promise, path, out, score="x")
        try:
            before = _columns_of(path)
        except (pa.ArrowException, OSError):  # a column that is not needed is damaged
            return
        after = _columns_of(out)
        require({*after} == {*before, "accept"}, "other columns")
        marks = [str(mark).lower() == "true" for mark in after["accept"]]
        scores = before["score_x" if "score_x" in before else "x"]  # its name alone will do
        told = [math.isfinite(v) and v <= 0.5 for v in map(_number, scores)]
        require(marks == told and done.accepted == sum(told), "other rows are accepted")
    finally:
        out.unlink(missing_ok=True)
    require(not list(path.parent.glob(".*")), "a part of a file is left")


# ---- what we wrote ourselves, read again ----------------------------------------------------------------------------


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


# What the other entries say too, and is not read; of a metric there is one target.
DERIVED = ("provenance", "promise", "groups", "wrong_way_round", "detectable_difference", "undefined", "target")
# What older files lack.
LATER = ("marks", "batches", "declared", "each", "largest_weight", "groups")


KNOWN = {*uq.Threshold.__dataclass_fields__, *uq.Check.__dataclass_fields__, *uq.Evaluation.__dataclass_fields__}
KNOWN |= {*uq.Comparison.__dataclass_fields__, "thresholds", "pairs", "estimates", "schema_version", "versions"}


def _completed(before: Any, after: Any) -> Any:
    """With the entries that older files lack, as they are understood."""
    if isinstance(before, dict) and isinstance(after, dict):
        more = {name: value for name, value in after.items() if name not in before and name in LATER}
        return {name: _completed(value, after.get(name)) for name, value in before.items()} | more
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [_completed(one, other) for one, other in zip(before, after, strict=True)]
    return before


def _ordered(data: Any) -> Any:
    """Estimates in any order; the largest degrees of freedom are rounded; nothing is accepted below any value."""
    if not isinstance(data, dict):
        return data
    kept = {*Estimate.__dataclass_fields__, "score", "metric", "group"}
    rows = sorted(json.dumps({k: e[k] for k in sorted(e) if k in kept}) for e in data.pop("estimates", ()))
    for name in data.keys() - KNOWN:  # is not read
        data.pop(name)
    for pair in data.get("pairs", ()):
        pair["df"] = None if pair["df"] is None else float(pair["df"])
    for one in (data, *data.get("thresholds", ())):
        if one.get("feasible") is False:
            one.pop("value", None)
    return data, rows


def _as_read(text: str, kind: Any, *views: str) -> Any:
    found = kind.from_json(text)
    said = [str(found), *(getattr(found, view)() for view in views)]
    require(all(map(len, said)), "nothing is said")
    before, after = _strict(json.loads(text)), json.loads(found.to_json())
    for data in (before, after, *before.get("thresholds", ()), *after.get("thresholds", ())):
        for name in DERIVED:
            data.pop(name, None)
    require(_ordered(after) == _ordered(_completed(before, after)), "other values than in the file")
    return found


def _text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _threshold(path: Path) -> None:
    found = _as_read(_text_of(path), uq.Threshold, "statement")
    scores = np.array([0.0, 0.1, 0.25, 0.5, 0.9, 2.0])
    told = [False] * 6 if found.value is None or math.isnan(found.value) else [bool(s <= found.value) for s in scores]
    require(found.accept(scores).tolist() == told, "other rows are accepted")


def _thresholds(path: Path) -> None:
    _as_read(_text_of(path), uq.Thresholds)


def _check(path: Path) -> None:
    found = _as_read(_text_of(path), uq.Check)
    require(found.e_value >= 0 or math.isnan(found.e_value), "evidence below 0")
    PROMISE.check([0.1, 0.2, 0.3], [0, 1, 0], previous=found)


def _evaluation(path: Path) -> None:
    found = _as_read(_text_of(path), uq.Evaluation, "headline", "to_frame")
    found.verdict(), found.panels(), found.undefined_lines()


def _comparison(path: Path) -> None:
    found = _as_read(_text_of(path), uq.Comparison, "headline")
    found.verdict(), found.lines(), found.groups()


def _policy(path: Path) -> None:
    found = read_policy(path)
    said = tomllib.loads(path.read_text(encoding="utf-8"))
    require(len(found.rules) == len(said["rule"]), "another number of rules")
    for rule, data in zip(found.rules, said["rule"], strict=True):
        require(all(getattr(rule, key) == value for key, value in data.items()), "another rule")
        require(rule.title and math.isfinite(rule.limit), "a rule without a limit")


def _journal(path: Path) -> None:
    found = Journal(path, "--state").entries
    require(found == ENTRIES[: len(found)], "other looks than were written")


# ---- logs of language models ----------------------------------------------------------------------------------------


def _log(path: Path) -> None:
    is_log([str(path)])
    found, again = uq.read_logs(path), uq.read_logs(path)
    for name in ("error", "loss", "probs"):
        one, two = getattr(found, name), getattr(again, name)
        require((one is None) == (two is None) and (one is None or np.array_equal(one, two)), f"`{name}` differs")
        require(one is None or np.isfinite(one).all(), f"`{name}` is not finite")
    require(found.read_as, "does not say what it read")
    for name, score in found.scores.items():
        require(np.isfinite(score).all() or np.isinf(score).any(), f"score {name} is no number")


# ---- all kinds ------------------------------------------------------------------------------------------------------


def _bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return damaged(rng, data, other)


def _json(rng: random.Random, data: bytes, other: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.002:
        return nested(rng)
    if kind < 0.3:
        return damaged(rng, data, other)
    return json.dumps(altered(rng, json.loads(data))).encode()


def _lines(rng: random.Random, data: bytes, other: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.002:
        return nested(rng)
    if kind < 0.3:
        return damaged(rng, data, other)
    rows = [json.loads(line) for line in data.splitlines()]
    altered_rows = altered(rng, rows)
    if not isinstance(altered_rows, list):
        return json.dumps(altered_rows).encode()
    return "".join(json.dumps(row) + "\n" for row in altered_rows).encode()


def _packed(pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Any:
    """Damage inside the packing, or of it."""

    def damage(rng: random.Random, data: bytes, other: bytes) -> bytes:
        if rng.random() < 0.5:
            return damaged(rng, data, other)
        return pack(damaged(rng, unpack(data)))

    return damage


def _archive(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return altered_arrays(rng, data) if rng.random() < 0.6 else damaged(rng, data, other)


def _eval(rng: random.Random, data: bytes, other: bytes) -> bytes:
    if rng.random() < 0.5:
        return damaged(rng, data, other)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = rng.choice([name for name in members if name.endswith(".json")])
    members[name] = _json(rng, members[name], b"")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return out.getvalue()


def _written(make: Callable[[Path], Any], find: str) -> bytes:
    """The file that a maker of logs leaves behind."""
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder))
        path = made if isinstance(made, Path) and made.is_file() else next(Path(folder).rglob(find))
        return path.read_bytes()


def _small_eval() -> bytes:
    """Inspect's own file, with fewer of its samples."""
    out, kept = io.BytesIO(), 0
    with zipfile.ZipFile(TINY) as archive, zipfile.ZipFile(out, "w") as smaller:
        from uqeval.inputs.logs.zipped import members_json

        names = archive.namelist()
        for name, held in zip(names, members_json(str(TINY), names), strict=True):
            if name.startswith("samples/"):
                kept += 1
                if kept > 4:
                    continue
            smaller.writestr(name, json.dumps(held))
    return out.getvalue()


PROMISE = uq.Threshold.from_value(0.5, max_risk=0.1)
ENTRIES = [{"look": k, "wealth": 1.0 / (k + 1), "name": "ä\n|"} for k in range(5)]
POLICY = b"""level = 0.9
min_rows = 10

[[rule]]
metric = "uq_auc"
score = "entropy"
at_least = 0.8
group = "worst"

[[rule]]
metric = "ece"
at_most = 0.1
on = "value"
name = "calibrated"

[[rule]]
coverage_at_risk = 0.05
at_least = 0.3

[[rule]]
metric = "aurc"
margin = 0.01
min_rows = 3
"""


def make_cases() -> dict[str, Case]:
    """Every kind of file that is read."""
    right, sure = llm_logs.answers(8)
    rng = np.random.default_rng(0)
    error = rng.integers(0, 2, 40)
    score = error * 0.3 + rng.random(40)
    pred = uq.Predictions(error=error, scores={"a": score, "b": rng.random(40)}, groups=["x", "y"] * 20)
    chosen = uq.choose_threshold(np.r_[score] * 1.0, error * 0, max_risk=[0.2, 0.3])
    whole = uq.choose_threshold(score, error, max_risk=0.9)
    evaluation = uq.evaluate(pred)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "history.jsonl", "--state")
        for entry in ENTRIES:
            journal.append(entry)
        history = journal.path.read_bytes()
    late = {"id": [f"r{k}" for k in range(ROWS)], "error": [0, 1, 0, 0, 1, 0, 0]}
    alone = {name: values for name, values in TABLES[4].items() if name != "label"}
    new, stream = pa.ipc.new_file, pa.ipc.new_stream
    csvs = tuple(map(_csv, TABLES))

    def logs(make: Callable[[Path], Any], name: str, find: str, damage: Any) -> Case:
        return Case((name,), (_written(make, find),), damage, _log)

    return {
        "csv": Case(("f.csv",), csvs, _bytes, _table),
        "tsv": Case(("f.tsv",), tuple(_csv(table, "\t") for table in TABLES), _bytes, _table),
        "csv.gz": Case(("f.csv.gz",), tuple(map(gzip.compress, csvs)), _packed(gzip.compress, gzip.decompress), _table),
        "csv.bz2": Case(("f.csv.bz2",), tuple(map(bz2.compress, csvs)), _packed(bz2.compress, bz2.decompress), _table),
        "csv.zst": Case(("f.csv.zst",), tuple(map(_zstd, csvs)), _packed(_zstd, _unzstd), _table),
        "jsonl": Case(("f.jsonl",), tuple(map(_jsonl, TABLES)), _lines, _table),
        "parquet": Case(
            ("f.parquet",),
            tuple(
                _parquet(table, compression=codec, use_dictionary=k % 2 == 0, row_group_size=4, data_page_version=v)
                for k, table in enumerate(TABLES)
                for codec, v in (("none", "1.0"), ("snappy", "1.0"), ("gzip", "2.0"), ("zstd", "2.0"))
            ),
            _bytes,
            _table,
        ),
        "arrow": Case(
            ("f.arrow", "f.feather"),
            tuple(_arrow(t, way, codec) for t in TABLES for way in (new, stream) for codec in (None, "zstd", "lz4")),
            _bytes,
            _table,
        ),
        "npz": Case(
            ("f.npz",),
            tuple(_npz(t, save) for t in TABLES for save in (np.savez, np.savez_compressed)),
            _archive,
            _arrays,
        ),
        "pieces csv": Case(("f.csv",), csvs, _bytes, _piecewise),
        "pieces jsonl": Case(("f.jsonl",), tuple(map(_jsonl, TABLES)), _lines, _piecewise),
        "pieces parquet": Case(("f.parquet",), tuple(map(_parquet, TABLES)), _bytes, _piecewise),
        "pieces arrow": Case(
            ("f.arrow",), tuple(_arrow(table, way) for table in TABLES for way in (new, stream)), _bytes, _piecewise
        ),
        "late labels": Case(("f.csv", "f.tsv"), (_csv(late), _csv(alone)), _bytes, _late),
        "late parquet": Case(("f.parquet",), (_parquet(late), _parquet(alone)), _bytes, _late),
        "late jsonl": Case(("f.jsonl",), (_jsonl(late), _jsonl(alone)), _lines, _late),
        "apply csv": Case(("f.csv",), tuple(map(_csv, TABLES[4:])), _bytes, _applied),
        "apply jsonl": Case(("f.jsonl",), tuple(map(_jsonl, TABLES[4:])), _lines, _applied),
        "apply parquet": Case(("f.parquet",), tuple(map(_parquet, TABLES[4:])), _bytes, _applied),
        "apply arrow": Case(("f.arrow",), tuple(_arrow(table, new) for table in TABLES[4:]), _bytes, _applied),
        "threshold": Case(
            ("t.json",), tuple(t.to_json().encode() for t in (*chosen, whole, PROMISE)), _json, _threshold
        ),
        "thresholds": Case(("t.json",), (chosen.to_json().encode(),), _json, _thresholds),
        "check": Case(("c.json",), (PROMISE.check(score, error).to_json().encode(),), _json, _check),
        "evaluation": Case(("e.json",), (evaluation.to_json().encode(),), _json, _evaluation),
        "comparison": Case(("c.json",), (uq.compare(pred).to_json().encode(),), _json, _comparison),
        "policy": Case(("p.toml",), (POLICY,), _bytes, _policy),
        "journal": Case(("history.jsonl",), (history,), _bytes, _journal),
        "lm-eval": logs(
            lambda f: llm_logs.lm_eval(f, right, sure), "samples_arc_2026-08-01T10-00-00.000000.jsonl", "*", _lines
        ),
        "inspect": logs(lambda f: llm_logs.inspect_json(f / "log.json", right, sure), "log.json", "*", _json),
        "inspect zip": Case(("log.eval",), (_small_eval(),), _eval, _log),
        "helm": logs(
            lambda f: llm_logs.helm(f, right, sure), "per_instance_stats.json", "per_instance_stats.json", _json
        ),
        "every eval ever": logs(lambda f: llm_logs.every_eval_ever(f, right, sure), "1_samples.jsonl", "*", _lines),
        "uqlm": logs(
            lambda f: (f / "u.json").write_text(json.dumps(llm_logs.uqlm_data(right, sure))), "u.json", "u.json", _json
        ),
        "uqlm csv": logs(lambda f: llm_logs.uqlm_csv(f / "u.csv", right, sure), "u.csv", "*", _bytes),
    }


def input_of(cases: Mapping[str, Case], seed: int) -> tuple[str, str, bytes]:
    """The kind, name and bytes that a seed stands for."""
    rng = random.Random(seed)
    kind = rng.choice(sorted(cases))
    case = cases[kind]
    data, other = rng.choice(case.files), rng.choice(case.files)
    return kind, rng.choice(case.names), case.damage(rng, data, other)


def attempt(cases: Mapping[str, Case], seed: int, folder: Path) -> str:
    """What became of the input: read, refused, or (as an exception) something else."""
    if seed % 20 == 0:
        return outcome(seed, folder)
    kind, name, data = input_of(cases, seed)
    path = folder / name
    path.write_bytes(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases[kind].attempt(path)
    except OURS as error:
        text = str(error)
        require(0 < len(text.strip()) < 3000, f"{kind}: no sentence: {text!r}")
        return "refused"
    finally:
        path.unlink(missing_ok=True)
    return "read"


# ---- a process that may die -----------------------------------------------------------------------------------------

_STATE = struct.Struct("<qqq")  # the seed, how many were read and how many refused


def _work(seed: int, until: float, state: mmap.mmap) -> int:
    """Tries seed after seed; the exit code is 1 where one failed."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases = make_cases()
        attempt(cases, 1, Path(folder))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if _linux() else 0
        if used:
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        while True:
            state[: _STATE.size] = _STATE.pack(seed, counts["read"] + counts["same"], counts["refused"])
            try:
                counts[attempt(cases, seed, Path(folder))] += 1
            except BaseException:
                kind, name, _ = input_of(cases, seed)
                print(f"\nseed {seed} ({kind}, {name}):\n{traceback.format_exc()}", flush=True)
                return 1
            for left in Path(folder).iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            seed += 1
            if time.monotonic() >= until:
                state[: _STATE.size] = _STATE.pack(seed, counts["read"] + counts["same"], counts["refused"])
                return 0


def _linux() -> bool:
    return sys.platform == "linux"


def main(seconds: float, seed: int) -> int:
    """Tries inputs from this seed on for so long; 1 after one that went wrong, with the seed that makes it again."""
    state = mmap.mmap(-1, _STATE.size)
    begun = time.monotonic()
    state[: _STATE.size] = _STATE.pack(seed, 0, 0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = _work(seed, begun + seconds, state)
        finally:
            os._exit(code)
    before, since, worked, said = -1, time.monotonic(), 0.0, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        at, read, refused = _STATE.unpack(state[: _STATE.size])
        now = time.monotonic()
        if done:
            break
        work = _worked(child, now)
        if at != before:
            before, since, worked = at, now, work
        elif work - worked > HANG + 20 * (at == seed) or now - since > 30 * HANG:  # the first waits for the files
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            print(f"readers: seed {at} hangs. Once more: python -m fuzz readers --seconds 0 --seed {at}")
            return 1
        if now - said > 30:
            said = now
            _say(at - seed, read, refused, now - begun)
        time.sleep(0.05)
    _say(at - seed, read, refused, time.monotonic() - begun)
    code = os.waitstatus_to_exitcode(status)
    if code:
        how = f"ended by signal {-code}" if code < 0 else "went wrong"
        print(f"readers: seed {at} {how}. Once more: python -m fuzz readers --seconds 0 --seed {at}")
    return int(code != 0)


def _worked(child: int, now: float) -> float:
    """Seconds that it was at work; where nobody tells, those of the clock."""
    if not _linux():
        return now
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _say(count: int, read: int, refused: int, seconds: float) -> None:
    spent = f"{seconds:.0f} s ({count / max(seconds, 1e-9):.0f} a second)"
    print(f"readers: {count:,} files in {spent}, {read:,} read, {refused:,} refused", flush=True)
