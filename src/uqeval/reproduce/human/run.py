"""The paper's studies on real data: many models' logits against human labels, each read piece by piece.

What each dataset brings is in `cifar10h`, `imagenet_real` and `oasst2`; how one model is judged, in `judging`; the
tables over all models, in `tables`. Finished models are stored, so a killed run goes on.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from uqeval._check import Progress, check_level
from uqeval._errors import InputError
from uqeval.kernels import cores
from uqeval.pages.words import plural
from uqeval.reproduce.human import tables
from uqeval.reproduce.human.judging import Reference, judge, read_rows, scores_of
from uqeval.reproduce.human.study import RealStudy
from uqeval.reproduce.human.verdicts import WORDS
from uqeval.reproduce.logits.file import Prediction
from uqeval.reproduce.logits.folder import Scan, check_shape, scan_predictions
from uqeval.reproduce.names import Row
from uqeval.reproduce.store import Store, cell_key, run_cells
from uqeval.reproduce.study import FEWEST, Timing, correlate, summarise

Paths = str | Path | Sequence[str | Path]
Failures = Sequence[dict[str, str]]  # "model", "file" and "reason" of each
_REVISION = 3  # raise it when a model's numbers change: stored cells of another revision are computed anew
_AT_ONCE = 128 << 20  # bytes of logits that are read at once by default


class Options(TypedDict, total=False):
    """What all three studies take: see `cifar10h`."""

    out: str | Path | None
    scores: Sequence[str] | None
    level: float
    min_accuracy: float
    keep_going: bool
    allow_chance: bool
    jobs: int | None
    progress: Progress | None
    failures: Failures
    before: Mapping[str, float]


def run_study(
    reference: Reference,
    predictions: Paths,
    *,
    out: str | Path | None = None,
    scores: Sequence[str] | None = None,
    level: float = 0.95,
    min_accuracy: float = 0.0,
    keep_going: bool = False,
    allow_chance: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
    failures: Failures = (),
    before: Mapping[str, float] | None = None,
) -> RealStudy:
    """Judges every model of the predictions and correlates over models; arguments as for `cifar10h`."""
    level = check_level(level)
    if not 0 <= min_accuracy < 1:
        raise InputError(f"`min_accuracy` must lie in [0, 1); it is {min_accuracy!r}.")
    scan = scan_predictions(predictions)
    if scan.failed and not keep_going:
        raise InputError(scan.failed[0][1])
    broken = [*failures, *({"model": Path(path).stem, "file": path, "reason": why} for path, why in scan.failed)]
    names = {found.name: scores_of(found.kind, scores) for found in scan.predictions}
    found = {prediction.name: prediction for prediction in scan.predictions if names[prediction.name]}
    if scan.predictions and not found:
        raise InputError(f"`scores`: no model of the predictions allows {', '.join(scores or ())}.")
    for other in scan.predictions:
        if other.name not in found:
            scan.ignored.append((other.where, f"has none of the scores asked for ({', '.join(scores or ())})"))

    def leave(name: str, error: Exception) -> None:
        if not keep_going:
            raise error
        broken.append({"model": name, "file": found[name].where, "reason": str(error)})

    same = {"study": reference.study, "revision": _REVISION, "reference": reference.digest()}
    digests: dict[str, str] = {}
    keys: dict[str, str] = {}
    for name, prediction in found.items():
        try:
            digests[name] = prediction.digest()
            keys[name] = _key(same, prediction, digests[name], names[name], allow_chance)
        except InputError as error:
            leave(name, error)

    def work(name: str) -> list[Row] | InputError:
        prediction = found[name]
        try:
            rows = check_shape(prediction, reference.labels, reference.classes, digests[name])
            vectors = read_rows(prediction, reference, rows, names[name], allow_chance=allow_chance)
            return judge(prediction, vectors, reference.classes)
        except InputError as error:
            return error
        except (OSError, MemoryError) as error:  # a file that went away, or one that does not fit
            return InputError(f"{prediction.where}: could not be judged ({type(error).__name__}: {error}).")

    timing = Timing(dict(before or {}))
    threads = _threads(list(found.values())) if jobs is None else jobs
    with timing.stage("scoring", progress, resumes=True) as tell, Store(out) as store:
        cells: dict[str, list[Row]] = {}
        # Threads: sorting and counting leave the interpreter free for others.
        for name, value in run_cells(store, keys, work, ThreadPoolExecutor, threads, tell):
            if isinstance(value, InputError):
                leave(name, value)
            else:
                cells[name] = value
        broken.sort(key=lambda failure: failure["file"])  # threads finish in any order
        if not cells:
            listed = " ".join(failure["reason"] for failure in broken)
            raise InputError(f"None of the {len(broken)} predictions can be used. {listed}")
        used = {name: (prediction, names[name]) for name, prediction in found.items() if name in cells}
        models = [row for name in used for row in cells[name]]
        key = cell_key(same | {"compared": [keys[name] for name in used], "level": level, "floor": min_accuracy})
        if key not in store:
            store.put(key, tables.comparisons(models, used, reference, level, min_accuracy))
        compared = store.get(key)
    settings = _settings(reference, models, level, min_accuracy)
    main = tables.known_rows(tables.main_rows(models, min_accuracy))
    correlations, tests = correlate(main, [None], level)
    return RealStudy(
        study=reference.study,
        settings=settings,
        correlations=correlations,
        summary=summarise(correlations),
        tests=tests,
        models=models,
        paper=reference.paper.get("printed", []),
        notes=_notes(reference, settings, scan, broken),
        timing=timing,
        tables=tables.more(models, main, min_accuracy, level) | {"comparisons": compared},
        failures=broken,
        ignored=[{"file": path, "reason": why} for path, why in scan.ignored],
    ).published(out, progress)


def required(predictions: Paths | None) -> Paths:
    """What a study cannot do without."""
    if predictions is None:
        raise InputError(
            "`predictions` is missing: a folder of logits. `uqeval reproduce` makes one from models, "
            "uqeval.reproduce.save_logits from arrays."
        )
    return predictions


def _key(same: dict[str, Any], prediction: Prediction, digest: str, names: list[str], allow_chance: bool) -> str:
    own = {
        "model": [prediction.name, prediction.family, prediction.kind],
        "file": digest,
        "rows": prediction.rows_digest(),
        "stated": [prediction.accuracy, prediction.sha256, prediction.labels_sha256, prediction.rows_sha256],
        "scores": names,
        "allow_chance": allow_chance,
    }
    return cell_key(same | own)


def _threads(predictions: Sequence[Prediction]) -> int:
    """Up to four models at once where they are small; large ones one at a time, so that memory is bounded."""
    largest = max((math.prod(p.shape) * np.dtype(p.dtype).itemsize for p in predictions), default=1)
    return max(1, min(4, cores(), _AT_ONCE // largest))


def _settings(reference: Reference, models: list[Row], level: float, floor: float) -> dict[str, Any]:
    asked, (majority, tied), rated = tables.main_rows(models, floor), reference.majority(), reference.rated
    main = tables.known_rows(asked)
    return {
        "title": reference.title,
        "rows": len(rated),
        "rated": int(rated.sum()),
        "classes": reference.classes,
        "tied_majorities": tied,
        "majority_is_label": float((majority[rated] == reference.labels[rated]).mean()),
        "level": level,
        "min_accuracy": floor,
        "single_models": len(main),
        "accuracies": [float(f(row["accuracy"] for row in main)) for f in (min, max)] if main else None,
        "models": len({row["model"] for row in models}),
        "undefined": tables.undefined(asked),
        "text": reference.text,
        "paper_models": reference.paper.get("models", 0),
        **reference.facts,
    }


def _notes(reference: Reference, settings: dict[str, Any], scan: Scan, failures: Failures) -> list[str]:
    words, tied = WORDS["notes"], settings["tied_majorities"]
    have = f"{plural(tied, 'row')} {'has' if tied == 1 else 'have'}"
    notes = [*reference.notes, words["majority"].format(settings["majority_is_label"], settings["rated"], have)]
    if settings["single_models"] < FEWEST:
        notes.append(words["few"].format(settings["single_models"]))
    if unknown := settings["undefined"]:
        notes.append(words["undefined"].format("; ".join(f"{row['model']} ({row['reason']})" for row in unknown)))
    if scan.ignored:
        notes.append(words["aside"].format("; ".join(f"{Path(path).name} {why}" for path, why in scan.ignored)))
    if failures:
        notes.append(words["failed"].format(plural(len(failures), "prediction")))
    return notes
