"""Logs of language-model evaluations as they are → `Predictions`: which files, which format, which runs of them.

What a format says is the business of its module; which quality and scores are taken that of `chosen`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from uqeval._check import check_choice
from uqeval._errors import InputError, reason_of
from uqeval.inputs.columns import listed
from uqeval.inputs.logs import every_eval_ever, helm, inspect, lm_eval, lm_polygraph, uqlm
from uqeval.inputs.logs.answers import Answers, Format, Wanted
from uqeval.inputs.logs.chosen import Taken, predictions, refusal, take
from uqeval.inputs.paths import PathLike, expand, is_known, is_packed, may_be_log, named, reading
from uqeval.inputs.predictions import Predictions

FORMATS: dict[str, Format] = {
    "lm-eval": lm_eval,
    "inspect": inspect,
    "helm": helm,
    "every-eval-ever": every_eval_ever,
    "uqlm": uqlm,
    "lm-polygraph": lm_polygraph,
}


def read_logs(
    path: PathLike | Sequence[PathLike],
    *,
    format: str | None = None,
    quality: str | None = None,
    score: str | Sequence[str] | None = None,
    confidence: str | Sequence[str] | None = None,
    filter: str | None = None,
) -> Predictions:
    """Predictions from the logs of a language model's evaluation: a file, a folder, or several.

    Known are lm-evaluation-harness (`samples_*.jsonl`), Inspect (`.eval`, `.json`), HELM (`per_instance_stats.json`),
    Every Eval Ever (`*_samples.jsonl`), uqlm (`to_df()` as CSV or Parquet, or its data as JSON) and lm-polygraph
    (`ue_manager_seed*`). A judgement of 0 or 1 becomes `error`, any other `loss` = 1 − quality. Answers to one question
    are a cluster, several tasks are groups; of several runs of a task the last is taken. No direction is guessed: what
    the schema does not tell must be named.

    Parameters
    ----------
    path : str, path or list of them
        Logs of one model; a folder is searched with all below it.
    format : str, optional
        "lm-eval", "inspect", "helm", "every-eval-ever", "uqlm" or "lm-polygraph"; by default the one that is found.
    quality : str, optional
        The number that is high where an answer is good; by default the first that the schema knows as such.
    score, confidence : str or list of str, optional
        Numbers that are high where the model is unsure, or sure. By default all whose direction the schema tells.
    filter : str, optional
        Which of several judgements of one answer: a filter of the harness, a result of Every Eval Ever.

    Returns
    -------
    Predictions
        ``read_as`` says in one line what was taken for what; `ids` pair the runs of two models.

    Examples
    --------
    >>> pred = read_logs("results/llama/")  # doctest: +SKIP
    >>> print(pred.read_as)  # doctest: +SKIP
    lm-eval-harness: 1,172 answers of arc_challenge; quality acc (higher is better); uncertainty log-probabilities …
    """
    known = None if format is None else FORMATS[check_choice("format", format, tuple(FORMATS))]
    wanted = Wanted(quality, _names(score), _names(confidence), filter)
    files = _logs(path, known)
    kind = files[0][1]
    if other := next((file for file, own in files if own is not kind), None):
        raise InputError(
            f"{files[0][0]} is a log of {kind.NAME} and {other} of another kind. Name one of them, or the "
            f"kind: format= (--log-format)."
        )
    runs: list[tuple[str, Answers]] = []
    for file, _ in files:
        with named(file), reading(file):
            runs += [(file, answers) for answers in _read(kind, file, wanted)]
    taken = _taken(runs, wanted)
    names = [file for file, _ in files]
    with named(listed(names, 3)):
        found = predictions(kind, names, wanted, taken)
    object.__setattr__(found, "files", tuple(names))
    return found


def _read(kind: Format, file: str, wanted: Wanted) -> list[Answers]:
    try:
        return kind.read(file, wanted)
    except KeyError as error:
        raise InputError(f"is no whole log of {kind.NAME}: a record lacks {error}.") from None
    except (AttributeError, TypeError) as error:
        raise InputError(
            f"is no log of {kind.NAME} as it is known: a part of a record has another type ({reason_of(error)})."
        ) from None


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def kind_of(file: str) -> Format | None:
    """The format of a file; None where it is no log that is known."""
    return next((kind for kind in FORMATS.values() if kind.sniff(file)), None)


def _logs(path: PathLike | Sequence[PathLike], known: Format | None) -> list[tuple[str, Format]]:
    """The files that are logs, and the format of each."""
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    found: list[tuple[str, Format]] = []
    for item in paths:
        name = os.path.expanduser(os.fspath(item))
        inside = _below(name) if os.path.isdir(name) else expand(item)
        logs = [(file, kind) for file in inside if (kind := known or kind_of(file)) is not None]
        if known is not None and os.path.isdir(name):
            logs = [(file, kind) for file, kind in logs if known.sniff(file)]
        if not logs:
            what = "holds no log that is known" if os.path.isdir(name) else "is no log that is known"
            unpack = " Unpack it first." * (is_packed(name) and os.path.isfile(name))
            tables = [file for file in sorted(os.listdir(name)) if is_known(file)] if os.path.isdir(name) else []
            if tables:
                pattern = os.path.join(name, f"*{Path(tables[0]).suffix}")
                unpack = f' For a folder of tables name its files: "{pattern}".'
            raise InputError(f"{name}: {what}. Known are {', '.join(kind.NAME for kind in FORMATS.values())}.{unpack}")
        found += logs
    return sorted(found, key=lambda pair: pair[0])


def _below(folder: str) -> list[str]:
    files = [str(path) for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.stat().st_size]
    return list(filter(may_be_log, files))


def _taken(runs: list[tuple[str, Answers]], wanted: Wanted) -> list[Taken]:
    """The last run of each task, of one model; tasks that nothing can be said of are left out."""
    models = dict.fromkeys(answers.model for _, answers in runs)
    if len(models) > 1:
        raise InputError(
            f"{runs[0][0]}: the logs are of {len(models)} models: {listed(models, 4)}. Read one at a time; "
            f"`uqeval compare` takes the folders of two."
        )
    last: dict[str, tuple[str, Answers]] = {}
    for file, answers in sorted(runs, key=lambda run: run[1].when):
        if answers.task in last:
            if answers.when == last[answers.task][1].when:
                raise InputError(
                    f"{file}: holds the same task as {last[answers.task][0]} ({answers.task}), and nothing tells which "
                    f"is later. Name one of them."
                )
            answers.notes.append(f"an earlier run of {answers.task} left out")
        last[answers.task] = file, answers
    found: list[Taken] = []
    for file, answers in last.values():
        with named(file):
            if (one := take(answers, wanted)) is not None:
                found.append(one)
    if not found:
        with named(listed(dict.fromkeys(file for file, _ in last.values()), 3)):
            raise InputError(refusal((answers for _, answers in last.values()), wanted))
    if absent := [answers.task for _, answers in last.values() if all(one.answers is not answers for one in found)]:
        found[0].answers.notes.append(f"left out, as nothing tells how sure or how good: {listed(absent, 4)}")
    return found
