"""The files that README and the pages speak of, made from the built-in example: to try every command on.

The digits are real; that they come from hospitals and patients is made up, and so are the answers of the logs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._errors import InputError
from uqeval._files import whole_file, write_whole
from uqeval.datasets.example import example
from uqeval.decide.choose import choose_threshold
from uqeval.scores import compute
from uqeval.truth import error_of

_CALIBRATION = 1000  # rows that the threshold is chosen on; the others are new
_LOG = "made-up__model/samples_example_2026-08-01T10-00-00.000000.jsonl"
_POLICY = """\
# Entropy must rank errors well, sure enough: uqeval gate policy.toml preds.parquet
[[rule]]
metric = "uq_auc"
score = "entropy"
at_least = 0.8
"""


def example_files(folder: str | os.PathLike[str]) -> list[str]:
    """Writes them to a folder, none over another file; their names."""
    place, name = Path(folder), "--files"
    tables, texts = _tables(), _texts()
    for file in (*tables, *texts):
        if (place / file).exists():
            raise InputError(f"{name}: {str(place / file)!r} is there already. Name an empty folder, or a new one.")
    try:
        for file in (*tables, *texts):
            (place / file).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{name}: the folder {str(place)!r} cannot be made ({error.strerror}).") from None
    for file, columns in tables.items():
        _write_table(place / file, columns, name)
    for file, text in texts.items():
        write_whole(place / file, text, name)
    return [*tables, *texts]


def _tables() -> dict[str, dict[str, Any]]:
    pred = example()
    assert pred.probs is not None
    assert pred.members is not None
    rows = np.arange(pred.n)
    first: dict[str, Any] = {"id": rows, "label": pred.labels}
    last = {"hospital": np.array(["north", "south", "west"])[rows % 3], "patient": rows // 4}
    plain = first | _probs(pred.probs) | last
    members = {
        f"member{m}_{name}": column for m, part in enumerate(pred.members) for name, column in _probs(part).items()
    }
    whole = first | _probs(pred.probs) | members | last
    return {
        "preds.parquet": whole,
        "calibration.parquet": _take(whole, rows[:_CALIBRATION]),
        "new.parquet": _take(whole, rows[_CALIBRATION:]),
        "preds/1.csv": _take(plain, rows[:800]),
        "preds/2.csv": _take(plain, rows[800:]),
        "a.csv": plain,
        "b.csv": _take(plain | _probs(pred.members[0]), rows[::-1]),  # in another order: joined by --key id
        "scores.csv": {"score_entropy": compute("entropy", pred), "error": error_of(pred)},
    }


def _texts() -> dict[str, str]:
    pred = example()
    calibration = pred.take(np.arange(_CALIBRATION))
    chosen = choose_threshold("entropy", predictions=calibration, max_risk=0.05)
    logs = {f"{run}/{_LOG}": _log(seed) for run, seed in (("logs", 0), ("runA", 0), ("runB", 1))}
    return {"threshold.json": chosen.to_json() + "\n", "policy.toml": _POLICY, **logs}


def _probs(probs: Any) -> dict[str, Any]:
    return {f"prob_{k}": column for k, column in enumerate(probs.T)}


def _take(columns: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    return {name: np.asarray(column)[rows] for name, column in columns.items()}


def _write_table(path: Path, columns: Mapping[str, Any], name: str) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.table(dict(columns))
    with whole_file(path, name) as part:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(table, part)
        else:
            pyarrow.parquet.write_table(table, part)


def _log(seed: int, n: int = 400, choices: int = 3) -> str:
    """Multiple choice as lm-evaluation-harness logs it (0.4.13): surer answers are right more often."""
    rng, questions = np.random.default_rng(seed), np.random.default_rng(1)
    sure = rng.uniform(0.4, 0.99, n)
    right = rng.random(n) < sure
    gold = questions.integers(choices, size=n)  # the same questions in every run
    return "".join(json.dumps(record) + "\n" for record in _records(gold, right, sure, choices))


def _records(gold: Any, right: Any, sure: Any, choices: int) -> Iterable[dict[str, Any]]:
    texts = ["no", "maybe so", "yes, of course"]
    for k in range(len(gold)):
        best = int(gold[k]) if right[k] else (int(gold[k]) + 1) % choices
        likelihoods = [float(np.log((1 - sure[k]) / (choices - 1)))] * choices
        likelihoods[best] = float(np.log(sure[k]))
        by_length = int(np.argmax([value / len(text) for value, text in zip(likelihoods, texts, strict=True)]))
        yield {
            "doc_id": k,
            "doc": {"question": f"question {k}"},
            "target": str(gold[k]),
            "arguments": {f"gen_args_{c}": {"arg_0": f"Q{k}", "arg_1": f" {t}"} for c, t in enumerate(texts)},
            "resps": [[[str(value), "False"]] for value in likelihoods],
            "filtered_resps": [[str(value), "False"] for value in likelihoods],
            "filter": "none",
            "metrics": ["acc", "acc_norm"],
            "doc_hash": f"hash{k}",
            "prompt_hash": "p",
            "target_hash": "t",
            "acc": float(right[k]),
            "acc_norm": float(by_length == gold[k]),
        }
