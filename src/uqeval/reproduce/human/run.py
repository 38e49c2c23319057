"""The paper's studies on real data: many models' logits against human labels, each read piece by piece.

What each dataset brings is in `cifar10h`, `imagenet_real` and `oasst2`; how one model is judged, in `judging`; the
tables over all models, in `tables`. Finished models are stored, so a killed run goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from uqeval._check import Progress, check_level
from uqeval._errors import InputError
from uqeval._result import Grid
from uqeval.kernels import cores
from uqeval.pages.words import plural
from uqeval.reproduce.human import tables
from uqeval.reproduce.human.judging import Reference, judge, read_rows, scores_of
from uqeval.reproduce.human.page import page
from uqeval.reproduce.logits.file import Prediction
from uqeval.reproduce.logits.folder import Scan, check_shape, scan_predictions
from uqeval.reproduce.page import Makers, Page
from uqeval.reproduce.store import Store, cell_key, run_cells
from uqeval.reproduce.study import Row, Study, Timing, correlate, csv_text, percent_cell, pick, summarise

__all__ = ["Failures", "Options", "Paths", "RealStudy", "required", "run_study"]

Paths = str | Path | Sequence[str | Path]
Failures = Sequence[dict[str, str]]  # "model", "file" and "reason" of each
_REVISION = 2  # raise it when a model's numbers change: stored cells of another revision are computed anew
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


@dataclass(frozen=True)
class RealStudy(Study):
    """A study on real data: with tables beyond the main one, and the files that could not be used."""

    tables: dict[str, list[Row]] = field(default_factory=dict, repr=False)
    failures: list[dict[str, str]] = field(default_factory=list, repr=False)
    ignored: list[dict[str, str]] = field(default_factory=list, repr=False)

    def grid(self) -> Grid:
        """The correlations over the entropy of single models, the paper's above ours."""
        s, several = self.settings, plural(self.settings["single_models"], "single model")
        label = f"paper ({s['paper_models']} models)"
        found = self.table_rows(label, lambda m, t: percent_cell(pick(self.correlations, m, t)), self.paper)
        note = (
            f"r with its {100 * s['level']:g}% Fisher interval, which takes models as independent. Low AURC, AUGRC, "
            f"ECE, Brier and NLL are better, so a useful one lies near −100%."
        )
        caption = f"Pearson correlations over {several}, by entropy: each metric with each human truth"
        return found._replace(caption=caption, notes=[note])

    def markdown(self) -> str:
        """The table, the paper's row beside ours, what to beware of, and what could not be used."""
        failed = ["", "Not used:", "", *(f"- {failure['reason']}" for failure in self.failures), ""]
        return super().markdown() + ("\n".join(failed) if self.failures else "")

    def files(self) -> dict[str, str]:
        """What its files are called, and what is in them; `models.csv` has a row per model and score."""
        return super().files() | {"models.csv": csv_text(self.models)}

    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws each figure, by name."""
        from uqeval.reproduce.human.figures import makers  # altair takes a second to load

        return makers(self)

    def page(self) -> Page:
        """What its page says."""
        return page(self)


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
    study = _study(reference, scan, broken, models, compared, level, min_accuracy, timing)
    if out is not None:
        study.publish(out, progress=progress)
    return study


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


def _study(
    reference: Reference,
    scan: Scan,
    failures: list[dict[str, str]],
    models: list[Row],
    compared: list[Row],
    level: float,
    min_accuracy: float,
    timing: Timing,
) -> RealStudy:
    asked = tables.main_rows(models, min_accuracy)
    main, unknown = tables.known_rows(asked), tables.undefined(asked)
    correlations, tests = correlate(main, [None], level)
    majority, tied = reference.majority()
    rated = reference.rated
    same = float((majority[rated] == reference.labels[rated]).mean())
    settings = {
        "title": reference.title,
        "rows": len(rated),
        "rated": int(rated.sum()),
        "classes": reference.classes,
        "tied_majorities": tied,
        "majority_is_label": same,
        "level": level,
        "min_accuracy": min_accuracy,
        "single_models": len(main),
        "accuracies": [float(f(row["accuracy"] for row in main)) for f in (min, max)] if main else None,
        "models": len({row["model"] for row in models}),
        "undefined": unknown,
        "text": reference.text,
        "paper_models": reference.paper.get("models", 0),
        **reference.facts,
    }
    notes = [*reference.notes]
    notes.append(
        f"The majority of the human votes is the label on {same:.1%} of the {int(rated.sum()):,} rows. There the "
        f"commitment ϕ against the Bayes label is the gap that UQ-C-index ranks, so the higher that share, the closer "
        f"to 100% the correlation of the two must be. {plural(tied, 'row')} {'has' if tied == 1 else 'have'} a tied "
        f"majority; the lowest class is taken."
    )
    if len(main) < 4:
        notes.append(
            f"Correlations over models need at least 4 single models with their entropy; there are {len(main)}."
        )
    if unknown:
        listed = "; ".join(f"{row['model']} ({row['reason']})" for row in unknown)
        notes.append(f"Left out of the correlations, so that all are over the same models: {listed}.")
    if scan.ignored:
        listed = "; ".join(f"{Path(path).name} {why}" for path, why in scan.ignored)
        notes.append(f"Left aside: {listed}.")
    if failures:
        notes.append(f"{plural(len(failures), 'prediction')} could not be used; see the list with the reasons.")
    return RealStudy(
        study=reference.study,
        settings=settings,
        correlations=correlations,
        summary=summarise(correlations),
        tests=tests,
        models=models,
        paper=reference.paper.get("printed", []),
        notes=notes,
        timing=timing,
        tables={
            "by_score": tables.by_score(models, min_accuracy, level),
            "floors": tables.floors(models, min_accuracy, level),
            "families": tables.families(main, level),
            "one_vs_rest": tables.one_vs_rest(main, level),
            "preferences": tables.preferences(main, level),
            "comparisons": compared,
        },
        failures=failures,
        ignored=[{"file": path, "reason": why} for path, why in scan.ignored],
    )
