"""lm-evaluation-harness: `samples_<task>_<date>.jsonl`, a line for each document and filter.

The log-probabilities of the choices are logits. `acc` judges their maximum, `acc_norm` that of log-probabilities per
character: each quality comes with the numbers that it judges, and what the log says was right checks them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._errors import InputError
from uqeval._rows import disagreement
from uqeval.inputs.logs.answers import (
    Answers,
    Numbers,
    Wanted,
    beginning,
    by_name,
    json_of,
    latest,
    number,
    numbered,
    sorted_out,
)
from uqeval.inputs.texts import json_rows

NAME = "lm-eval-harness"
KEYED_BY_CONTENT = True
_OWN = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
}
# Metrics of the harness that are high where an answer is good; `results_<date>.json` tells the direction of others.
_GOOD = ("acc", "exact_match", "acc_norm", "acc_bytes", "acc_mutual_info", "em", "f1", "pass@1")
_NAMED = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d\-.:]+))?\.jsonl.*")
Row = Mapping[str, Any]


def sniff(path: str) -> bool:
    """A line starts with the number of its document."""
    return ".jsonl" in path and re.match(r'\s*\{\s*"doc_id"\s*:', beginning(path)) is not None


def read(path: str, wanted: Wanted) -> list[Answers]:
    """The rows of one filter: the first, or the one that is wanted."""
    every = list(json_rows(path))
    if lacking := [key for key in ("filtered_resps", "filter") if every and key not in every[0]]:
        raise InputError(f"lacks `{lacking[0]}`, which samples of the harness have (--log_samples).")
    filters = list(dict.fromkeys(str(row["filter"]) for row in every))
    if wanted.filter is not None and wanted.filter not in filters:
        raise InputError(f'has no filter "{wanted.filter}". Its filters: {", ".join(filters)}.')
    taken = wanted.filter or (filters[0] if filters else "")
    same_filter: list[Row] = [row for row in every if str(row["filter"]) == taken]
    rows, twice = latest(same_filter, lambda row: (str(row["doc_id"]), str(row.get("doc_hash"))))
    match = _NAMED.fullmatch(Path(path).name)
    task, date = (match["task"], match["date"] or "") if match else (Path(path).stem, "")
    qualities, rest = _qualities(path, task, rows)
    answers = Answers(
        task=task,
        keys=numbered(str(row.get("doc_hash", row["doc_id"])) for row in rows),
        questions=[str(row["doc_id"]) for row in rows],
        qualities=qualities,
        scores={},
        model=Path(path).parent.name,
        when=date,
        notes=[f"filter {taken} of {', '.join(filters)}"] * (len(filters) > 1) + twice,
    )
    answers.scores, answers.turned, answers.fields = sorted_out(rest)
    # What the dataset holds is not of the model, whatever it is called.
    documents = by_name({f"doc.{key}": value for key, value in _document(row).items()} for row in rows)
    answers.fields |= {name: values for name, values in documents.items() if np.isfinite(values).any()}
    listed = [[pair[0] for pair in row["filtered_resps"] if _is_likelihood(pair)] for row in rows]
    if rows and all(len(one) == 1 for one in listed):
        answers.scores["sequence_nll"] = [0.0 - number(one[0]) for one in listed]
    elif rows and all(len(one) > 1 for one in listed):
        _add_choices(answers, rows, [[number(value) for value in one] for one in listed])
    elif (repeats := [_repeats(row) for row in rows]) and all(len(one) > 1 for one in repeats):
        answers.scores["answer_disagreement"] = [disagreement(one) for one in repeats]
    return [answers]


def _document(row: Row) -> dict[str, Any]:
    doc = row.get("doc")
    return doc if isinstance(doc, dict) else {}


def _qualities(path: str, task: str, rows: list[Row]) -> tuple[dict[str, Numbers], dict[str, Numbers]]:
    """Metrics that are high where an answer is good, and the others."""
    every = by_name({key: value for key, value in row.items() if key not in _OWN} for row in rows)
    every = {name: values for name, values in every.items() if not np.isnan(values).all()}  # pairs, as of f1
    told: dict[str, bool] = {}
    if every.keys() - set(_GOOD):
        for beside in sorted(Path(path).parent.glob("results_*.json")):
            told |= (json_of(str(beside)).get("higher_is_better") or {}).get(task) or {}
    good = [name for name in (*_GOOD, *every) if name in every and told.get(name, name in _GOOD)]
    return {name: every[name] for name in good}, {name: every[name] for name in every if name not in good}


def _is_likelihood(pair: Any) -> bool:
    """Whether a response is (log-probability, whether greedy), which the log writes as texts."""
    return isinstance(pair, list) and len(pair) == 2 and str(pair[1]) in ("True", "False")


def _repeats(row: Row) -> Sequence[str]:
    """Several answers to one document: as filtered, or else as they were."""
    for answers in (row["filtered_resps"], row.get("resps")):
        if answers and isinstance(answers[0], list) and len(answers[0]) > 1:
            return [str(answer) for answer in answers[0]]
    return []


# ---- multiple choice ------------------------------------------------------------------------------------------------


def _add_choices(answers: Answers, rows: list[Row], raw: list[Numbers]) -> None:
    """The numbers whose maximum each quality judges, and the right choice where the log tells it."""
    mutual = "acc_mutual_info" in answers.qualities and all(len(one) % 2 == 0 for one in raw)
    lls = [one[: len(one) // 2] for one in raw] if mutual else raw
    given = [one[len(one) // 2 :] for one in raw] if mutual else []
    texts = [_texts(row, len(one)) for row, one in zip(rows, lls, strict=True)]
    ways: dict[str, list[list[Numbers]]] = {"acc": [lls]}
    for name, size in (("acc_norm", len), ("acc_bytes", lambda text: len(text.encode()))):
        ways[name] = [_divided(lls, texts, size, cut) for cut in (1, 0)] if all(texts) else []
    if mutual:
        pairs = zip(lls, given, strict=True)
        ways["acc_mutual_info"] = [[list(np.subtract(one, other)) for one, other in pairs]]
    judged = next((name for name in ways if name in answers.qualities), "acc")
    values = answers.qualities.get(judged, [])
    for labels in (_by_number(rows, lls), _by_text(rows, texts)) if values else ():
        if labels is not None and any(_fits(way, labels, values) for way in ways[judged]):
            answers.labels = labels
            break
    for name, some in ways.items():
        told = answers.labels is not None and name in answers.qualities
        fitting = [way for way in some if not told or _fits(way, answers.labels or [], answers.qualities[name])]
        if fitting:
            answers.choices[name] = fitting[0]


def _texts(row: Row, count: int) -> list[str]:
    """What each choice reads, with the blank before it."""
    arguments = row.get("arguments") or {}
    pairs = list(arguments.values()) if isinstance(arguments, dict) else list(arguments)
    parts = [list(pair.values()) if isinstance(pair, dict) else pair for pair in pairs[:count]]
    return [str(part[1]) for part in parts if len(part) > 1]


def _divided(lls: list[Numbers], texts: list[list[str]], size: Callable[[str], int], cut: int) -> list[Numbers]:
    """Log-probabilities per character (or byte); `cut` leaves out the blank that stands before a choice."""
    lengths = [[max(1, size(text[cut:] if text[:1].isspace() else text)) for text in row] for row in texts]
    return [list(np.divide(one, own)) for one, own in zip(lls, lengths, strict=True)]


def _by_number(rows: list[Row], lls: list[Numbers]) -> list[int] | None:
    targets = [str(row.get("target", "")) for row in rows]
    if not all(re.fullmatch(r"\d+", text) for text in targets):
        return None
    labels = [int(text) for text in targets]
    return labels if all(label < len(one) for label, one in zip(labels, lls, strict=True)) else None


def _by_text(rows: list[Row], texts: list[list[str]]) -> list[int] | None:
    labels = []
    for row, choices in zip(rows, texts, strict=True):
        found = [k for k, text in enumerate(choices) if text.strip() == str(row.get("target", "")).strip()]
        if len(found) != 1:
            return None
        labels.append(found[0])
    return labels


def _fits(way: list[Numbers], labels: list[int], values: Numbers) -> bool:
    """Whether the maximum is the right choice just where the log says so, of the rows that it says so much of."""
    known = [
        (int(np.argmax(one)) == label, value)
        for one, label, value in zip(way, labels, values, strict=True)
        if not np.isnan([*one, value]).any()
    ]
    return all(float(right) == value for right, value in known)
