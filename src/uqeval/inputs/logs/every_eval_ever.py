"""Every Eval Ever: `<uuid>_samples.jsonl`, an instance-level record for each sample and aggregate result.

The schema has no field for a confidence. Several answers to one question tell how far they differ; a number in
`metadata` may be named `confidence` or `uncertainty`; of all else the caller says what it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from uqeval._errors import InputError
from uqeval._rows import disagreement
from uqeval.inputs.logs.answers import (
    Answers,
    Numbers,
    Wanted,
    beginning,
    by_name,
    latest,
    number,
    numbered,
    sorted_out,
)
from uqeval.inputs.texts import json_rows

NAME = "Every Eval Ever"
KEYED_BY_CONTENT = False
Record = Mapping[str, Any]


def sniff(path: str) -> bool:
    """The foreign key of its aggregate file, the model and the sample."""
    start = beginning(path) if ".jsonl" in path else ""
    return all(f'"{key}"' in start for key in ("evaluation_id", "model_id", "evaluation_name"))


def read(path: str, wanted: Wanted) -> list[Answers]:
    """The records, by evaluation; of several results for the same samples the first, or the one that is wanted."""
    groups: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in json_rows(path):
        if lacking := [key for key in ("sample_id", "evaluation") if key not in record]:
            raise InputError(f"a record lacks `{lacking[0]}`, which the schema requires.")
        group = groups.setdefault((str(record["evaluation_name"]), str(record["model_id"])), {})
        group.setdefault(str(record.get("evaluation_result_id") or ""), []).append(record)
    return [_answers(task, model, results, wanted) for (task, model), results in groups.items()]


def _answers(task: str, model: str, results: dict[str, list[Record]], wanted: Wanted) -> Answers:
    if wanted.filter is not None and wanted.filter not in results:
        raise InputError(f'has no result "{wanted.filter}" of {task}. Its results: {", ".join(results)}.')
    taken = wanted.filter or next(iter(results))
    records, twice = latest(results[taken], lambda record: json.dumps(record, sort_keys=True))
    judged: list[Record] = [record["evaluation"] or {} for record in records]
    questions = [str(record.get("sample_hash") or record["sample_id"]) for record in records]
    scores, turned, fields = sorted_out(by_name(record.get("metadata") or {} for record in records))
    if (spread := _spread(records, questions)) is not None:
        scores["answer_disagreement"] = spread
    return Answers(
        task=task,
        keys=numbered(questions),
        questions=questions,
        qualities={"is_correct": [number(one.get("is_correct")) for one in judged]},
        scores=scores,
        turned=turned,
        fields={"score": [number(one.get("score")) for one in judged]} | fields,
        model=model,
        notes=[f"result {taken} of {', '.join(results)}"] * (len(results) > 1) + twice,
    )


def _spread(records: list[Record], questions: list[str]) -> Numbers | None:
    """How far the answers to a question differ, in one record or in several; None where a question has one."""
    by_question: dict[str, list[str]] = {}
    for record, question in zip(records, questions, strict=True):
        by_question.setdefault(question, []).extend(_texts(record))
    if any(len(texts) < 2 for texts in by_question.values()):
        return None
    return [disagreement(by_question[question]) for question in questions]


def _texts(record: Record) -> list[str]:
    """What was taken from the output as the final answer; else the outputs as they are."""
    outputs = [str(text) for text in (record.get("output") or {}).get("raw") or []]
    finals = [str(one["extracted_value"]) for one in record.get("answer_attribution") or [] if one.get("is_terminal")]
    return finals if len(finals) >= max(1, len(outputs)) else outputs
