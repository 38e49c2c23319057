"""Inspect (inspect_ai): `.eval` archives and `.json` logs, a sample for each question and epoch.

Only what is needed of a sample is kept; the events of long runs are parsed and dropped one sample at a time.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from uqeval._errors import InputError
from uqeval._rows import disagreement, mean_entropy, text_nll
from uqeval.inputs.logs.answers import Answers, Numbers, Wanted, beginning, by_name, json_of, latest, number, sorted_out
from uqeval.inputs.logs.zipped import members_json

NAME = "Inspect"
KEYED_BY_CONTENT = False
_VALUES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
Sample = Mapping[str, Any]


def sniff(path: str) -> bool:
    """An .eval file, or JSON that starts as Inspect's logs do."""
    if path.endswith(".eval"):
        return True
    start = beginning(path) if path.endswith(".json") else ""
    return re.match(r'\s*\{\s*"version"\s*:', start) is not None and '"eval"' in start and '"status"' in start


def read(path: str, wanted: Wanted) -> list[Answers]:
    """The samples of one log."""
    header, samples = _zipped(path) if path.endswith(".eval") else _plain(path)
    spec, status = header.get("eval") or {}, str(header.get("status", "unknown"))
    passed = spec.get("task_args_passed") or {}
    arguments = ", ".join(f"{name}={passed[name]}" for name in sorted(passed))
    rows, twice = latest(map(_row, samples), lambda row: row["sample"])
    answers = Answers(
        task=str(spec.get("task", "")) + (f"({arguments})" if arguments else ""),
        keys=[row["key"] for row in rows],
        questions=[row["question"] for row in rows],
        qualities=_verdicts_first(rows),
        scores={},
        model=str(spec.get("model", "")),
        when=f"{status == 'success':d} {spec.get('created', '')}",  # a run that ended well comes before later ones
        notes=[f'the status of the run is "{status}"'] * (status != "success") + twice,
    )
    told, answers.turned, answers.fields = sorted_out(by_name(row["fields"] for row in rows))
    tokens = by_name((row["tokens"] for row in rows), ("sequence_nll",))
    answers.scores = {name: values for name, values in tokens.items() if any(v == v for v in values)} | told
    if (spread := _spread(rows)) is not None:
        answers.scores["answer_disagreement"] = spread
    return [answers]


def _plain(path: str) -> tuple[Mapping[str, Any], Iterator[Sample]]:
    log = json_of(path)
    if not isinstance(log, dict):
        raise InputError("is no log of Inspect.")
    return log, iter(log.get("samples") or [])


def _zipped(path: str) -> tuple[Mapping[str, Any], Iterator[Sample]]:
    if not zipfile.is_zipfile(path):
        raise InputError("is no zip archive, or not a whole one. Did the run end?")
    with zipfile.ZipFile(path) as archive:
        names = dict.fromkeys(archive.namelist())  # a sample that was run again is there twice: the last counts
    head = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
    if head is None:
        raise InputError("has no header.json: it is no log of Inspect, or an empty one.")
    inside = [name for name in names if re.fullmatch(r"samples/.+\.json", name)]
    return next(members_json(path, [head])), members_json(path, inside)


def _row(sample: Sample) -> dict[str, Any]:
    """What is needed of a sample."""
    question, epoch = str(sample.get("id")), sample.get("epoch", 1)
    scores: Mapping[str, Any] = sample.get("scores") or {}
    values: dict[str, float] = {}
    verdicts: set[str] = set()
    fields: dict[str, Any] = {f"metadata.{name}": value for name, value in (sample.get("metadata") or {}).items()}
    for scorer, score in scores.items():
        value = score.get("value")
        verdicts |= {scorer} if isinstance(value, str | bool) else set()
        if isinstance(value, dict):
            values |= {f"{scorer}.{part}": value_of(one) for part, one in value.items()}
        else:
            values[scorer] = value_of(value)
        fields |= {f"{scorer}.{name}": one for name, one in (score.get("metadata") or {}).items()}
    answer = next((score["answer"] for score in scores.values() if score.get("answer") is not None), None)
    return {
        "sample": (repr(sample.get("id")), epoch),
        "key": f"{question}/{epoch}",
        "question": question,
        "values": values,
        "verdicts": verdicts,
        "fields": fields,
        "answer": answer,
        "tokens": _of_tokens(sample),
    }


def _verdicts_first(rows: list[dict[str, Any]]) -> dict[str, Numbers]:
    """Values by scorer, before all others those that say right or wrong: what a number measures, nobody tells."""
    verdicts = {name for row in rows for name in row["verdicts"]}
    found = by_name(row["values"] for row in rows)
    return {name: found[name] for name in sorted(found, key=lambda name: name not in verdicts)}


def value_of(value: Any) -> float:
    """The letters of Inspect and what it takes for them; NaN is its own mark of what was not scored."""
    if isinstance(value, str) and (known := _VALUES.get(value, _VALUES.get(value.lower()))) is not None:
        return known
    return number(value)


def _of_tokens(sample: Sample) -> dict[str, float]:
    """Scores from the log-probabilities of the answer's tokens, where the model was asked for them."""
    choices = (sample.get("output") or {}).get("choices") or [{}]
    tokens = (choices[0].get("logprobs") or {}).get("content") or []
    if not tokens:
        return {}
    nll = text_nll([token["logprob"] for token in tokens])
    found = {"sequence_nll": nll, "mean_token_nll": nll / len(tokens)}
    tops: list[Numbers] = [[top["logprob"] for top in token.get("top_logprobs") or []] for token in tokens]
    if all(len(top) > 1 for top in tops):
        found["mean_token_entropy"] = mean_entropy(tops)
    return found


def _spread(rows: list[dict[str, Any]]) -> Numbers | None:
    """How far the answers of the epochs differ; None where there is one epoch, or answers are missing."""
    by_question: dict[str, list[str]] = {}
    for row in rows:
        if row["answer"] is not None:
            by_question.setdefault(row["question"], []).append(str(row["answer"]))
    if not rows or any(len(by_question.get(row["question"], ())) < 2 for row in rows):
        return None
    return [disagreement(by_question[row["question"]]) for row in rows]
