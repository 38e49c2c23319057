"""`uqeval monitor`: does a threshold's promise hold month after month, in every group, with labels that come late?"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import uqeval
from uqeval._errors import InputError, collected
from uqeval._files import write_whole
from uqeval.cli import options as o
from uqeval.cli.check import _name, _only, _target, _waiting, load_threshold
from uqeval.cli.interrupt import stop_if_asked
from uqeval.cli.output import check_outputs, grid_table, stderr, stdout, write_json
from uqeval.cli.progress import status_console

if TYPE_CHECKING:
    from uqeval.inputs import Predictions
    from uqeval.monitor import Batch, Options, Status

_PAUSE = 2.0  # seconds between two looks at a folder


@o.with_columns
def monitor(
    threshold: Annotated[str, typer.Argument(help="What `uqeval threshold --json FILE` wrote.")],
    state: Annotated[str, o.option("Folder that remembers all looks; made at the first.", metavar="DIR")],
    predictions: Annotated[
        list[str] | None,
        typer.Argument(help="New rows, with labels or without; or labels of rows that wait. A file is a look."),
    ] = None,
    by: o.By = None,
    key: Annotated[str | None, o.option("Column of ids: no id counts twice, and labels may come later.")] = None,
    cluster: o.Cluster = None,
    largest_cluster: o.LargestAccepted = None,
    reference: Annotated[
        str | None, o.option("Calibration rows, at the first look: are new scores like theirs?", metavar="FILE")
    ] = None,
    score: o.OwnScore = None,
    max_risk: o.WhichRisk = None,
    level: o.AlarmLevel = None,
    run_length: Annotated[
        int | None, o.option("Promise so many accepted rows between false alarms on average; not with --by.")
    ] = None,
    watch: Annotated[
        str | None, o.option("Go on with each new file of this folder, until Ctrl-C.", metavar="DIR")
    ] = None,
    again: Annotated[bool, o.option("Count rows that were counted before.", "--again")] = False,
    json: o.Json = None,
    html: Annotated[str | None, o.option("Write a page of all looks to this file.", metavar="FILE")] = None,
    prometheus: Annotated[
        str | None, o.option("Write metrics for the node exporter's textfile collector.", metavar="FILE")
    ] = None,
    quiet: o.Quiet = False,
    *,
    columns: dict[str, Any],
) -> None:
    """Watch a promise: look after look, in all groups, safe to run again, twice at once, or after a crash.

    Leaves with 0 where nothing speaks against the promise, with 1 where it is broken, with 3 where no labelled row
    counted yet. A drift of the scores is told, and changes no exit code.

    Example:  uqeval monitor threshold.json --state watch monday.parquet --by site --key id
    """
    outputs = {"--json": json, "--html": html, "--prometheus": prometheus}
    inputs = [threshold, *(predictions or ()), *([] if reference is None else [reference])]
    check_outputs(outputs, [*inputs, str(Path(state) / "history.jsonl")])
    if not predictions and watch is None:
        raise InputError("There is nothing to look at. Name files of new rows, or a folder with --watch.")
    if run_length is not None and by is not None:
        raise InputError(
            "--run-length and --by: groups are named by e-values, which a run length has none of. Pass one."
        )
    promise = load_threshold(threshold, max_risk)
    from uqeval.monitor import Options  # NumPy, which --help need not wait for

    options = Options(promise.level if level is None else level, run_length, largest_cluster, key, by)
    reader = _Reader(threshold, promise, _only(score), cluster, options, columns)
    session = _Session(Path(state), promise, options, reader, reference, outputs, quiet, again)
    found = session.look(_each_file(predictions or []))
    if watch is not None:
        session.watch(Path(watch))
    if not found.holds:
        raise typer.Exit(1)
    if not found.units:
        raise typer.Exit(3)


def _each_file(names: list[str]) -> list[str]:
    """Files in the order named; those of a pattern sorted."""
    from uqeval.inputs.paths import expand  # NumPy, which --help need not wait for

    return [path for name in names for path in expand(name)]


@dataclass
class _Reader:
    """From a file to the rows of a look."""

    threshold: str
    promise: uqeval.Threshold
    score: str | None
    cluster: str | None
    options: Options
    columns: dict[str, Any]

    def read(self, path: str) -> Batch:
        """Labelled rows, rows or labels, as the columns say; every message names the file."""
        from uqeval.inputs.paths import named  # NumPy, which --help need not wait for

        with named(path):
            try:
                return self._read(path)
            except InputError as error:
                said = str(error).replace(
                    "Ranking needs at least 2.", "A look needs at least 2: put them with the next."
                )
                raise InputError(said) from None

    def _read(self, path: str) -> Batch:
        from uqeval.inputs.columns import Columns  # NumPy, which --help need not wait for
        from uqeval.inputs.late_labels import kind_of_file, read_labels, read_unlabelled
        from uqeval.monitor import Batch

        source = Path(path).name
        roles = {"id": self.options.key, "group": self.options.by, "cluster": self.cluster}
        named = Columns(**self.columns | {role: name for role, name in roles.items() if name is not None})
        kind = "labelled" if self.options.key is None else kind_of_file(path, named)
        if kind == "labels":
            if self.promise.what == "misaligned":
                raise InputError(f"{path}: labels alone say nothing of the majority. Pass rows with their soft labels.")
            found = read_labels(path, named)
            classes = None if found.classes is None else tuple(found.classes.tolist())
            return Batch(source, tuple(found.ids.tolist()), error=found.loss, labels=classes)
        if kind == "unlabelled":
            return self._batch(source, read_unlabelled(path, named), None)
        pred = o.read(
            [path], cluster=self.cluster, columns=self.columns | self._own("id", self.options.key), by=self.options.by
        )
        target = _target(self.threshold, self.promise, pred, "drop")
        if target.kept is not None:
            pred = pred.take(target.kept.nonzero()[0])
        return self._batch(source, pred, target.rows)

    @staticmethod
    def _own(role: str, name: str | None) -> dict[str, str]:
        return {} if name is None else {role: name}

    def _batch(self, source: str, pred: Predictions, error: Any) -> Batch:
        from uqeval.monitor import Batch

        if pred.weights is not None:
            raise InputError(f"{source}: there is a column of weights, but each row counts once. Leave it out.")
        values = uqeval.scores.compute(_name(self.threshold, self.promise, self.score, pred), pred)
        told = error is None and (pred.pred is not None or pred.probs is not None)
        classes = [pred.classes[k] for k in uqeval.truth.predicted_of(pred)] if told else None
        groups = None if self.options.by is None or pred.groups is None else [pred.group_names[k] for k in pred.groups]
        units = None if pred.clusters is None or pred.cluster_values is None else pred.cluster_values[pred.clusters]
        return Batch(
            source,
            ids=None if self.options.key is None or pred.ids is None else tuple(pred.ids.tolist()),
            score=values,
            error=None if error is None else error * 1.0,
            groups=None if groups is None else tuple(groups),
            clusters=None if units is None else tuple(map(str, units.tolist())),
            predicted=None if classes is None else tuple(classes),
        )

    def reference(self, path: str) -> list[float]:
        """Scores of calibration rows, with labels or without."""
        from uqeval.inputs.columns import Columns  # NumPy, which --help need not wait for
        from uqeval.inputs.late_labels import kind_of_file, read_unlabelled
        from uqeval.monitor.drift import reference

        named = Columns(**self.columns)
        alone = kind_of_file(path, named) == "unlabelled"
        pred = read_unlabelled(path, named) if alone else o.read([path], cluster=None, columns=self.columns)
        return reference(uqeval.scores.compute(_name(self.threshold, self.promise, self.score, pred), pred))


@dataclass
class _Session:
    """Looks at files, one by one, and what is written of them."""

    folder: Path
    promise: uqeval.Threshold
    options: Options
    reader: _Reader
    reference: str | None
    outputs: dict[str, str | None]
    quiet: bool
    again: bool

    def look(self, paths: list[str]) -> Status:
        """A look at each file; each is on the disk before the next begins."""
        from uqeval.inputs.paths import named  # NumPy, which --help need not wait for
        from uqeval.monitor import opened

        with status_console(self.quiet).status("Reading…"), collected() as notes:
            kept = None if self.reference is None else self.reader.reference(self.reference)
            batches = [self.reader.read(path) for path in paths]
            with opened(
                self.folder, self.promise, self.options, kept, name="--state", tell=_waiting(self.quiet)
            ) as found:
                for batch in batches:
                    with named(batch.source):
                        said = found.add(batch, again=self.again)
                    notes += [f"{batch.source} came before and is not counted again."] if said is None else said
                status = found.status
                stop_if_asked()
                self._write(status, found.looks)
        if self.outputs["--json"] == "-":
            write_json(status.to_json(), "-")
        elif not self.quiet:
            print_status(self.promise, status, notes)
        return status

    def _write(self, status: Status, looks: list[dict[str, Any]]) -> None:
        if (target := self.outputs["--json"]) not in (None, "-"):
            write_json(status.to_json(), target)
        if (page := self.outputs["--html"]) is not None:
            from uqeval.pages.monitor import monitor_page  # Jinja, for those who make pages

            write_whole(page, monitor_page(self.promise, status, looks), "--html")
        if (text := self.outputs["--prometheus"]) is not None:
            from uqeval.monitor.prometheus import prometheus_text

            write_whole(text, prometheus_text(self.promise, status, time.time()), "--prometheus")

    def watch(self, folder: Path) -> None:
        """Each file once it has stopped growing, in the order of time; one that cannot be read is named and left."""
        from uqeval.inputs.paths import is_known, named  # NumPy, which --help need not wait for

        if not folder.is_dir():
            raise InputError(f"--watch: there is no folder {str(folder)!r}. Create it first.")
        done: dict[Path, tuple[float, int]] = {}
        before: dict[Path, tuple[float, int]] = {}
        while True:
            now = {}
            for path in folder.iterdir():
                with suppress(FileNotFoundError):  # taken away meanwhile
                    if path.is_file() and not path.name.startswith(".") and is_known(path.name):
                        found = path.stat()
                        now[path] = (found.st_mtime, found.st_size)
            for path in sorted(now, key=lambda path: (now[path], path.name)):
                if now[path] == before.get(path) != done.get(path):
                    done[path] = now[path]
                    try:
                        with named(str(path)):
                            self.look([str(path)])
                    except InputError as problem:
                        stderr().print(Text.assemble(("Error:", "bold red"), f" {problem}"), soft_wrap=True)
            before = now
            time.sleep(_PAUSE)


def print_status(promise: uqeval.Threshold, status: Status, notes: list[str]) -> None:
    """The answer over all looks, group by group; then the scores; then what to beware of."""
    from uqeval.monitor.words import group_grid, status_lines  # NumPy, which --help need not wait for

    out = stdout()
    style = "bold red" if not status.holds else "green" if status.units else "bold yellow"
    first, *more = status_lines(promise, status)
    out.print(Text(first, style=style))
    for line in more:
        out.print(Text(line))
    if (grid := group_grid(status)) is not None:
        out.print(grid_table(grid))
    for note in dict.fromkeys(notes):
        out.print(Text(f"! {note}", style="yellow"))
