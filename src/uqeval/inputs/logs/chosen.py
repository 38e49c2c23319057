"""Which quality and scores of a log are taken, and the predictions that they make; what is not known is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, nearest
from uqeval._errors import InputError
from uqeval.inputs.columns import listed
from uqeval.inputs.log_reading import LogReading
from uqeval.inputs.logs.answers import Answers, Format, Numbers, Wanted
from uqeval.inputs.predictions import Predictions
from uqeval.inputs.softmax import softmax


class Taken(NamedTuple):
    """The part of one run that is judged and scored."""

    answers: Answers
    quality: str
    rows: NDArray[np.int64]  # with a quality and with every score
    judged: int  # rows with a quality
    scores: dict[str, Float]
    choices: list[Numbers] | None


def take(answers: Answers, wanted: Wanted) -> Taken | None:
    """Quality, scores and complete rows; None where the run has no score or no judgement at all."""
    quality = _quality(answers, wanted)
    if quality is None:
        return None
    values = _named(quality, (answers.qualities, answers.fields), "quality")
    judged = np.flatnonzero(~np.isnan(np.array(values, dtype=np.float64)))
    scores, choices = _scores(answers, wanted, quality, judged)
    complete = judged
    for column in scores.values():
        complete = complete[~np.isnan(column[complete])]
    if choices is not None:
        complete = complete[[_ranks(choices[row]) for row in complete]]
    if not len(complete) or not (scores or choices):
        return None
    return Taken(answers, quality, complete, len(judged), scores, choices)


def _ranks(logs: Numbers) -> bool:
    """Whether log-probabilities make a distribution: −∞ is a probability of 0, but not of all."""
    return -np.inf < float(np.max(logs)) < np.inf


def _quality(answers: Answers, wanted: Wanted) -> str | None:
    if wanted.quality is not None:
        return wanted.quality
    return next(iter(_judged(answers)), None)


def _judged(answers: Answers) -> list[str]:
    """The qualities that some answers have."""
    return [name for name, values in answers.qualities.items() if any(v == v for v in values)]


def _scores(
    answers: Answers, wanted: Wanted, quality: str, judged: NDArray[np.int64]
) -> tuple[dict[str, Float], list[Numbers] | None]:
    """Scores by name, and log-probabilities of choices where nothing else was asked for."""
    found: dict[str, Float] = {}
    for name in wanted.score:
        found[name] = np.array(_named(name, (answers.scores, answers.fields), "score"), dtype=np.float64)
    told = {name: answers.scores[name] for name in answers.turned}  # as confidences, which they are: turned already
    for name in wanted.confidence:
        own = np.array(_named(name, (told, answers.fields), "confidence"), dtype=np.float64)
        found[name] = own if name in told else 0.0 - own
    if found:
        return found, None
    columns = {name: np.array(values, dtype=np.float64) for name, values in answers.scores.items()}
    # A score that most rows lack is left out; rows that lack another are.
    found = {name: column for name, column in columns.items() if np.isnan(column[judged]).mean() <= 0.5}
    judged_choices = quality if quality.startswith("acc") else "acc"
    if answers.choices and judged_choices not in answers.choices:
        raise InputError(
            f"`{quality}` cannot be had again from the log-probabilities of the choices, so that these do not "
            f"score it. Choose another quality, as {', '.join(answers.choices)}."
        )
    return found, answers.choices.get(judged_choices)


def _named(name: str, places: Sequence[Mapping[str, Numbers]], role: str) -> Numbers:
    for place in places:
        if name in place:
            return place[name]
    names = [known for place in places for known in place]
    raise InputError(f"has no number `{name}` ({role}).{nearest(name, names)} There are: {listed(names) or 'none'}.")


def refusal(every: Iterable[Answers], wanted: Wanted) -> str:
    """Why nothing can be judged, and what to say."""
    first = next(iter(every))
    if not first.keys:
        return "holds no answers. Did the run end?"
    if _quality(first, wanted) is None:
        names = listed(first.fields) or "none"
        notes = f" ({'; '.join(first.notes)})" if first.notes else ""
        return (
            f"says of no answer whether it is good{notes}. Name a number that is high where it is: quality= "
            f"(--quality). Numbers in it: {names}."
        )
    names = listed(first.fields)
    return "holds no uncertainty: no log-probabilities, no repeated answers, no score whose direction is known. " + (
        f"Name a number: score= (--score-columns) where higher is less sure, confidence= (--confidence) where "
        f"higher is more sure. Numbers in it: {names}."
        if names
        else "Ask the model for log-probabilities, or for several answers to each question."
    )


# ---- several runs → predictions -------------------------------------------------------------------------------------


def predictions(kind: Format, files: Sequence[str], wanted: Wanted, taken: Sequence[Taken]) -> Predictions:
    """The rows of all runs; answers to one question are a cluster, several tasks are groups."""
    several = len(taken) > 1
    quality = _joined(taken, lambda one: np.array(_values(one))[one.rows])
    places = [(one, int(row)) for one in taken for row in one.rows]
    task = [one.answers.task for one, _ in places]
    prefix = {id(one): f"{one.answers.task}/" * several for one in taken}
    questions = [prefix[id(one)] + one.answers.questions[row] for one, row in places]
    keys = [prefix[id(one)] + one.answers.keys[row] for one, row in places]
    bits = bool(np.isin(quality, (0.0, 1.0)).all())
    given: dict[str, Any] = {"error" if bits else "loss": 1.0 - quality, "ids": keys}
    if len(set(questions)) < len(questions):
        given["clusters"] = questions
    if several:
        given["groups"] = task
    choices = all(one.choices is not None for one in taken)
    common = [name for name in taken[0].scores if all(name in one.scores for one in taken)]
    scores = {name: _joined(taken, lambda one, name=name: one.scores[name][one.rows]) for name in common}
    if choices:
        given |= _of_choices(taken, bits)
    if not scores and not choices:
        raise InputError(
            f"the tasks {listed((one.answers.task for one in taken), 3)} have no score in common. Read them one by one."
        )
    found = Predictions(scores=scores or None, **given)
    object.__setattr__(found, "log", _reading(kind, files, wanted, taken, questions, [*scores], choices))
    return found


def _values(one: Taken) -> Numbers:
    return _named(one.quality, (one.answers.qualities, one.answers.fields), "quality")


def _joined(taken: Sequence[Taken], part: Any) -> Float:
    return np.concatenate([np.asarray(part(one), dtype=np.float64) for one in taken])


def _of_choices(taken: Sequence[Taken], bits: bool) -> dict[str, Any]:
    """Logits where every question has as many choices; else probabilities, 0 for the choices that a question lacks."""
    rows = [one.choices[row] for one in taken for row in one.rows if one.choices is not None]
    width = max(map(len, rows))
    labelled = bits and all(one.answers.labels is not None for one in taken)
    labels = [one.answers.labels[row] for one in taken for row in one.rows if one.answers.labels is not None]
    found: dict[str, Any] = {"labels": labels} if labelled else {}
    if all(len(row) == width for row in rows):
        return found | {"logits": np.array(rows, dtype=np.float64)}
    probs = np.zeros((len(rows), width))
    for place, row in enumerate(rows):
        probs[place, : len(row)] = softmax(np.array(row, dtype=np.float64))
    return found | {"probs": probs}


def _reading(
    kind: Format,
    files: Sequence[str],
    wanted: Wanted,
    taken: Sequence[Taken],
    questions: Sequence[str],
    scores: Sequence[str],
    choices: bool,
) -> LogReading:
    """What was read as what."""
    notes = [note for one in taken for note in one.answers.notes]
    if others := dict.fromkeys(name for one in taken for name in _judged(one.answers) if name != one.quality):
        notes.append(f"other judgements: {listed(others, 6)}")
    turned = {*wanted.confidence, *(name for one in taken for name in one.answers.turned)}
    return LogReading(
        format=kind.NAME,
        keyed_by_content=kind.KEYED_BY_CONTENT,
        files=tuple(files),
        model=taken[0].answers.model,
        tasks=tuple(one.answers.task for one in taken),
        answers=len(questions),
        questions=len(set(questions)),
        quality=tuple(dict.fromkeys(one.quality for one in taken)),
        uncertainty=("log-probabilities of the choices",) * choices + tuple(scores),
        turned_round=tuple(name for name in scores if name in turned),
        unjudged=sum(len(one.answers.keys) - one.judged for one in taken),
        unscored=sum(one.judged - len(one.rows) for one in taken),
        notes=tuple(dict.fromkeys(notes)),
    )
