"""The contract: every JSON output keeps its schema, and a schema names every key that an output has."""

import json

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

import uqeval as uq
from commands import call
from uqeval.cli.main import make_app
from uqeval.reproduce.human.study import RealStudy
from uqeval.reproduce.ood.study import OODStudy
from uqeval.reproduce.synthetic.study import SyntheticStudy
from uqeval.reproduce.synthetic.temperature import Temperature
from uqeval.reproduce.theorems.run import Theorems


def check(name, text):
    data = json.loads(text, parse_constant=pytest.fail)
    whole = uq.schemas.schema(name)
    validator = jsonschema.Draft202012Validator(whole)
    validator.validate(data)
    known = whole.get("properties") or whole.get("$defs", {}).get(name, {}).get("properties")
    one = data[0] if isinstance(data, list) else data
    assert known is None or set(one) <= set(known), name
    return data


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    pred = uq.datasets.example()
    row = np.arange(pred.n)
    columns = {"label": pred.labels, "site": np.array(["a", "b"])[row % 2], "patient": row // 3}
    table = pa.table(columns | {f"prob_{k}": pred.probs[:, k] for k in range(pred.n_classes)})
    pq.write_table(table.slice(0, 900), folder / "old.parquet")
    pq.write_table(table.slice(900), folder / "new.parquet")
    pq.write_table(pa.table({"error": [0, 0, 0], "score_mine": [0.1, 0.2, 0.3]}), folder / "perfect.parquet")
    policy = '[[rule]]\nmetric = "uq_auc"\nscore = "entropy"\nat_least = 0.8\non = "value"\n'
    (folder / "policy.toml").write_text(policy)
    return folder


def out(code, *args):
    done = call(*args, "--json", "-")
    assert done.code == code, done
    return done.out


def test_every_schema_is_one_and_is_versioned():
    assert set(uq.schemas.names()) == {
        "apply", "bounds", "check", "comparison", "doctor", "evaluation", "gate", "monitor", "sample_size", "study",
        "threshold", "thresholds",
    }  # fmt: skip
    for name in uq.schemas.names():
        jsonschema.Draft202012Validator.check_schema(uq.schemas.schema(name))
        assert uq.schemas.schema(name)["$id"] == f"urn:uqeval:{name}:1"
    with pytest.raises(uq.InputError, match="no schema 'evalution'"):
        uq.schemas.schema("evalution")


def with_json(command, path=()):
    """Names of all commands that take --json."""
    for name, one in getattr(command, "commands", {}).items():
        yield from with_json(one, (*path, name))
    if any("--json" in option.opts for option in command.params):
        yield " ".join(path)


def studies(row):
    """What each `reproduce` writes, of a study that found next to nothing."""
    parts = {"correlations": row, "summary": row, "tests": row, "models": row, "paper": row, "notes": ["a note"]}
    more = dict.fromkeys(("any_d", "within", "by_method", "by_score"), row)
    yield SyntheticStudy("synthetic", {"seed": 0}, **parts, **more)
    yield from (RealStudy(name, {"level": 0.95}, **parts) for name in ("cifar10h", "imagenet-real", "oasst2"))
    yield Temperature({"seed": 0}, row, row, row, ["a note"])
    yield Theorems(settings={"seed": 0}, checks=())
    yield OODStudy({"seed": 0}, [], [], ["a note"])


def test_every_command_with_json_writes_what_a_schema_says(rows, tmp_path):
    old, new, promise = rows / "old.parquet", rows / "new.parquet", tmp_path / "t.json"
    promise.write_text(out(0, "threshold", old, "--score", "entropy", "--max-risk", 0.05))
    written = {f"reproduce {one.study}": ("study", one.to_json()) for one in studies([{"metric": "uq_auc", "r": 0.5}])}
    written["threshold"] = "threshold", promise.read_text()
    for name, *args in (
        ("demo evaluation",),
        ("evaluate evaluation", old, "--scores", "entropy"),
        ("compare comparison", old, "--scores", "entropy,margin"),
        ("gate gate", rows / "policy.toml", new),
        ("apply apply", promise, new, "--out", tmp_path / "marked.parquet"),
        ("check check", promise, new),
        ("monitor monitor", promise, new, "--state", tmp_path / "watch"),
        ("power sample_size", "--auc", 0.8, "--accuracy", 0.9, "--half-width", 0.05),
        ("doctor doctor",),
    ):
        command, schema = name.split()
        written[command] = schema, out(0, command, *args)
    assert set(written) == set(with_json(typer.main.get_command(make_app())))
    for schema, text in written.values():
        check(schema, text)


def test_what_a_command_can_say_besides_is_in_its_schema_as_well(rows, tmp_path):
    old, new, score = rows / "old.parquet", rows / "new.parquet", ("--scores", "entropy")
    data = check("evaluation", out(0, "evaluate", old, "--by", "site", "--cluster", "patient"))
    assert data["provenance"]["cluster"] == "patient"
    assert data["provenance"]["columns"]["prob"] == [f"prob_{k}" for k in range(10)]
    assert data["provenance"]["files"][0]["path"] == str(old)
    check("evaluation", out(0, "evaluate", rows / "perfect.parquet"))
    check("evaluation", out(0, "evaluate", old, *score, "--engine", "local", "--metrics", "uq_auc"))
    check("comparison", out(0, "compare", old, "--scores", "entropy,margin", "--by", "site"))
    check("comparison", out(0, "compare", old, "--scores", "entropy,margin", "--metric", "uq_auc,aurc"))
    stored = tmp_path / "old.json"
    stored.write_text(out(0, "evaluate", old, *score, "--metrics", "uq_auc"))
    check("comparison", out(0, "compare", new, stored))
    (tmp_path / "t.json").write_text(out(0, "threshold", old, "--score", "entropy", "--max-risk", 0.05))
    promise = check("threshold", (tmp_path / "t.json").read_text())
    assert promise["provenance"]["seed"] == 0
    check("threshold", out(1, "threshold", old, "--score", "entropy", "--max-risk", 0.0001, "--cluster", "patient"))
    check("threshold", out(0, "threshold", old, "--score", "entropy", "--max-risk", 0.05, "--split", 0.5))
    check("thresholds", out(0, "threshold", old, "--score", "entropy", "--max-risk", "0.05,0.1"))
    state = tmp_path / "state.json"
    check("check", out(0, "check", tmp_path / "t.json", new, "--state", state))
    check("check", state.read_text())
    watched = ("monitor", tmp_path / "t.json", "--state", tmp_path / "watch", "--by", "site", "--reference", old)
    data = check("monitor", out(0, *watched, new))
    assert list(data["groups"]) == ["a", "b"]
    assert data["drift"]["n"] == data["check"]["all"]["n"]
    check("bounds", out(0, "evaluate", rows / "perfect.parquet", "--approx", 0.01))


def test_results_read_their_own_json_back_with_its_provenance(rows, tmp_path):
    text = out(0, "evaluate", rows / "old.parquet", "--scores", "entropy")
    ev = uq.Evaluation.from_json(text)
    assert ev.to_json() + "\n" == text
    assert uq.Threshold.from_json(out(0, "threshold", rows / "old.parquet", "--score", "entropy", "--max-risk", 0.05))
