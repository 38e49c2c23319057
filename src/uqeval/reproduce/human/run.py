"""The paper's studies on real data: many models' logits against human labels, each read piece by piece.

What each dataset brings is in `cifar10h`, `imagenet_real` and `oasst2`; how one model is judged, in `judging`; the
tables over all models, in `tables`. Finished models are stored, so a killed run goes on.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._check import check_level
from uqeval._errors import InputError
from uqeval.kernels import cores
from uqeval.report.words import plural
from uqeval.reproduce.human import tables
from uqeval.reproduce.human.judging import Reference, judge, read_rows, scores_of
from uqeval.reproduce.logits.file import Prediction
from uqeval.reproduce.logits.folder import check_shape, scan_predictions
from uqeval.reproduce.store import Store, cell_key
from uqeval.reproduce.study import TITLES, TRUTHS, Study, summarise, write_whole

__all__ = ["Failures", "Paths", "RealStudy", "run_study"]

Progress = Callable[[int, int], None]
Paths = str | Path | Sequence[str | Path]
Failures = Sequence[dict[str, str]]  # "model", "file" and "reason" of each
_REVISION = 2  # raise it when a model's numbers change: stored cells of another revision are computed anew
_AT_ONCE = 128 << 20  # bytes of logits that are read at once by default


@dataclass(frozen=True)
class RealStudy(Study):
    """A study on real data: with tables beyond the main one, and the files that could not be used."""

    more: dict[str, list[dict[str, Any]]] = field(default_factory=dict, repr=False)
    failures: list[dict[str, str]] = field(default_factory=list, repr=False)
    ignored: list[dict[str, str]] = field(default_factory=list, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape."""
        return super().to_dict() | {"tables": self.more, "failures": self.failures, "ignored": self.ignored}

    def paper_rows(self) -> list[list[str]]:
        """The paper's own numbers, marked as such."""
        rows = []
        for metric in dict.fromkeys(row["metric"] for row in self.paper):
            cells = [tables.cell(tables.pick(self.paper, metric, truth)) for truth in TRUTHS]
            rows.append([f"{TITLES[metric]}, paper ({self.settings['paper_models']} models)", *cells])
        return rows

    def table_rows(self) -> list[tuple[str, list[str], bool]]:
        """(label, a cell for each truth, whether it is the paper's) of each line, the paper's above ours."""
        printed = {row[0].split(",")[0]: row for row in self.paper_rows()}
        found: list[tuple[str, list[str], bool]] = []
        for metric in dict.fromkeys(row["metric"] for row in self.correlations):
            if TITLES[metric] in printed:
                label, *cells = printed[TITLES[metric]]
                found.append((label, cells, True))
            cells = [tables.cell(tables.pick(self.correlations, metric, truth)) for truth in TRUTHS]
            found.append((TITLES[metric], cells, False))
        return found

    def markdown(self) -> str:
        """The table, the paper's row beside ours, and what to beware of."""
        head = ["", *(f"with {TITLES[truth]}" for truth in TRUTHS)]
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += ["| " + " | ".join([label, *cells]) + " |" for label, cells, _ in self.table_rows()]
        lines += ["", *(f"- {note}" for note in self.notes)]
        if self.failures:
            lines += ["", "Not used:", "", *(f"- {failure['reason']}" for failure in self.failures)]
        return "\n".join(lines) + "\n"

    def write(self, folder: str | Path) -> Path:
        """`table.json`, `table.csv`, `table.md`, and `models.csv` with a row per model and score."""
        target = super().write(folder)
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(self.models[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.models)
        write_whole(target / "models.csv", text.getvalue())
        return target


def run_study(
    reference: Reference,
    predictions: Paths,
    *,
    paper: list[dict[str, Any]],
    paper_models: int,
    out: str | Path | None = None,
    scores: Sequence[str] | None = None,
    level: float = 0.95,
    min_accuracy: float = 0.0,
    keep_going: bool = False,
    allow_chance: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
    failures: Failures = (),
) -> RealStudy:
    """Judges every model of the predictions and correlates over models; arguments as for `cifar10h`."""
    level = check_level(level)
    if not 0 <= min_accuracy < 1:
        raise InputError(f"`min_accuracy` must lie in [0, 1); it is {min_accuracy!r}.")
    scan = scan_predictions(predictions)
    if scan.failed and not keep_going:
        raise InputError(scan.failed[0][1])
    broken: list[dict[str, str]] = [
        *failures,
        *({"model": Path(path).stem, "file": path, "reason": why} for path, why in scan.failed),
    ]
    names = {found.name: scores_of(found.kind, scores) for found in scan.predictions}
    found = [prediction for prediction in scan.predictions if names[prediction.name]]
    if scan.predictions and not found:
        raise InputError(f"`scores`: no model of the predictions allows {', '.join(scores or ())}.")
    for other in scan.predictions:
        if not names[other.name]:
            scan.ignored.append((other.where, f"has none of the scores asked for ({', '.join(scores or ())})"))
    folder = None if out is None else Path(out)
    same = {"study": reference.study, "revision": _REVISION, "reference": reference.digest()}
    cells: dict[str, list[dict[str, Any]]] = {}
    digests: dict[str, str] = {}
    with Store(":memory:" if folder is None else folder / "store.sqlite") as store:
        done = 0

        def work(prediction: Prediction, digest: str) -> list[dict[str, Any]]:
            rows = check_shape(prediction, reference.labels, reference.classes, digest)
            vectors = read_rows(prediction, reference, rows, names[prediction.name], allow_chance=allow_chance)
            return judge(prediction, vectors, reference.classes)

        waiting = []
        for prediction in found:
            try:
                digest = prediction.digest()
                key = _key(same, prediction, digest, names[prediction.name], allow_chance)
            except InputError as error:
                broken.append(_failure(prediction, error, keep_going))
                done += 1
                continue
            digests[prediction.name] = key
            if store.missing([key]):
                waiting.append((prediction, digest))
            else:
                cells[prediction.name] = store.get(key)
                done += 1
        if progress is not None:
            progress(done, len(found))  # first what an earlier run had finished
        for prediction, value in _run(work, waiting, _threads(found) if jobs is None else jobs):
            if isinstance(value, InputError):
                broken.append(_failure(prediction, value, keep_going))
                del digests[prediction.name]
            else:
                store.put(digests[prediction.name], value)
                cells[prediction.name] = value
            done += 1
            if progress is not None:
                progress(done, len(found))
        broken.sort(key=lambda failure: failure["file"])  # threads finish in any order
        if not cells:
            listed = " ".join(failure["reason"] for failure in broken)
            raise InputError(f"None of the {len(broken)} predictions can be used. {listed}")
        used = [prediction for prediction in found if prediction.name in cells]
        models = [row for prediction in used for row in cells[prediction.name]]
        key = cell_key(same | {"compared": [digests[p.name] for p in used], "level": level, "floor": min_accuracy})
        if store.missing([key]):
            with_scores = {prediction.name: (prediction, names[prediction.name]) for prediction in used}
            store.put(key, tables.comparisons(_known(models), with_scores, reference, level, min_accuracy))
        compared = store.get(key)
    study = _study(reference, scan.ignored, broken, models, compared, level, min_accuracy, paper, paper_models)
    if folder is not None:
        study.write(folder)
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
    return cell_key(
        same
        | {
            "model": [prediction.name, prediction.family, prediction.kind],
            "file": digest,
            "rows": prediction.rows_digest(),
            "stated": [prediction.accuracy, prediction.sha256, prediction.labels_sha256, prediction.rows_sha256],
            "scores": names,
            "allow_chance": allow_chance,
        }
    )


def _failure(prediction: Prediction, error: InputError, keep_going: bool) -> dict[str, str]:
    if not keep_going:
        raise error
    return {"model": prediction.name, "file": prediction.where, "reason": str(error)}


def _threads(predictions: Sequence[Prediction]) -> int:
    """Up to four models at once where they are small; large ones one at a time, so that memory is bounded."""
    largest = max((math.prod(p.shape) * np.dtype(p.dtype).itemsize for p in predictions), default=1)
    return max(1, min(4, cores(), _AT_ONCE // largest))


def _run(
    work: Callable[[Prediction, str], list[dict[str, Any]]], waiting: list[tuple[Prediction, str]], jobs: int
) -> Iterator[tuple[Prediction, list[dict[str, Any]] | InputError]]:
    """Models as they finish, on several threads: sorting and counting leave the interpreter free for others."""

    def guarded(prediction: Prediction, digest: str) -> list[dict[str, Any]] | InputError:
        try:
            return work(prediction, digest)
        except InputError as error:
            return error
        except (OSError, MemoryError) as error:  # a file that went away, or one that does not fit
            return InputError(f"{prediction.where}: could not be judged ({type(error).__name__}: {error}).")

    if jobs <= 1 or len(waiting) <= 1:
        for prediction, digest in waiting:
            yield prediction, guarded(prediction, digest)
        return
    with ThreadPoolExecutor(min(jobs, len(waiting))) as pool:
        running: dict[Future[list[dict[str, Any]] | InputError], Prediction] = {
            pool.submit(guarded, *item): item[0] for item in waiting
        }
        try:
            while running:
                ready, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield running.pop(future), future.result()
        finally:  # Ctrl-C or an error: what runs is finished, what waits is not begun
            pool.shutdown(wait=True, cancel_futures=True)


def _known(models: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: math.nan if v is None and k != "draw" else v for k, v in row.items()} for row in models]


def _study(
    reference: Reference,
    ignored: list[tuple[str, str]],
    failures: list[dict[str, str]],
    models: list[dict[str, Any]],
    compared: list[dict[str, Any]],
    level: float,
    min_accuracy: float,
    paper: list[dict[str, Any]],
    paper_models: int,
) -> RealStudy:
    rows = _known(models)
    asked = tables.main_rows(rows, min_accuracy)
    main, unknown = tables.known_rows(asked), tables.undefined(asked)
    correlations, tests = tables.correlate_known(main, level)
    majority, tied = reference.majority()
    rated = reference.rated
    same = float((majority[rated] == reference.labels[rated]).mean())
    more = {
        "by_score": tables.by_score(rows, min_accuracy, level),
        "floors": tables.floors(rows, min_accuracy, level),
        "families": tables.families(main, level),
        "one_vs_rest": tables.one_vs_rest(main, level),
        "preferences": tables.preferences(main, level),
        "comparisons": compared,
    }
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
        "paper_models": paper_models,
        **reference.facts,
    }
    notes = [*reference.notes]
    notes.append(
        f"The majority of the human votes is the label on {same:.1%} of the {int(rated.sum()):,} rows. There ϕ is the "
        f"gap that UQ-C-index ranks, so the higher that share, the closer to 100% the correlation of the two must be. "
        f"{plural(tied, 'row')} {'has' if tied == 1 else 'have'} a tied majority; the lowest class is taken."
    )
    if len(main) < 4:
        notes.append(
            f"Correlations over models need at least 4 single models with their entropy; there are {len(main)}."
        )
    if unknown:
        listed = "; ".join(f"{row['model']} ({row['reason']})" for row in unknown)
        notes.append(f"Left out of the correlations, so that all are over the same models: {listed}.")
    if ignored:
        listed = "; ".join(f"{Path(path).name} {why}" for path, why in ignored)
        notes.append(f"Left aside: {listed}.")
    if failures:
        notes.append(f"{plural(len(failures), 'prediction')} could not be used; see the list with the reasons.")
    return RealStudy(
        study=reference.study,
        settings=settings,
        models=models,
        correlations=correlations,
        summary=summarise(correlations),
        tests=tests,
        paper=paper,
        notes=notes,
        more=more,
        failures=failures,
        ignored=[{"file": path, "reason": why} for path, why in ignored],
    )
