"""A folder that remembers what was promised and all looks: safe to ask again, from several processes, after a crash.

Everything is in one file, `history.jsonl`: what was promised, then a line for each look, with all that the next one
needs. The test is that of `Threshold.check`: a chain for all rows and one for each group.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._check import Float
from uqeval._errors import InputError
from uqeval._files import locked
from uqeval._result import Result
from uqeval.decide.monitor import Check
from uqeval.decide.repeats import MOST_BATCHES
from uqeval.decide.threshold import Threshold
from uqeval.monitor.drift import Drift
from uqeval.monitor.groups import e_bh
from uqeval.monitor.journal import Journal

HISTORY = "history.jsonl"
_VERSION = 1


@dataclass(frozen=True)
class Options:
    """What all looks share; None is the default of `Threshold.check`."""

    level: float
    run_length: int | None = None
    largest_cluster: int | None = None
    key: str | None = None  # column of ids: then no row counts twice, and labels may come later
    by: str | None = None  # column of groups


@dataclass(frozen=True)
class Batch:
    """Rows that came together: scored and labelled, scored, or labelled (ids and what came true)."""

    source: str
    ids: tuple[str, ...] | None = None
    score: Float | None = None
    error: Float | None = None
    groups: tuple[str, ...] | None = None
    clusters: tuple[str, ...] | None = None
    predicted: tuple[str, ...] | None = None  # the class, for those whose label will come
    labels: tuple[str, ...] | None = None  # of labels alone: the class, where no error is given

    @property
    def digest(self) -> str:
        """Of the rows and the file's name: the same file once more is no new look."""
        parts = (self.source, self.ids, self.groups, self.clusters, self.labels)
        found = hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass"))
        for part in (self.score, self.error):
            found.update(b"-" if part is None else part.astype(np.float64).tobytes())
        return found.hexdigest()[:24]


@dataclass(frozen=True)
class Waiting:
    """A row whose label has not come: the score that was decided on."""

    score: float
    group: str | None
    cluster: str | None
    predicted: str | None


@dataclass(frozen=True)
class Status(Result):
    """What is known after a look."""

    looks: int
    holds: bool  # False once the promise was found broken, for all rows or in a group
    units: int  # rows (clusters) that counted
    check: Check | None  # of all rows
    groups: dict[str, Check]
    named: dict[str, int]  # groups where the promise is broken, and rows of theirs seen when that was said
    waiting: int  # rows whose label has not come
    drift: dict[str, Any] | None  # of the scores: no statement on the risk

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        checks = {name: _stored(check) for name, check in self.groups.items()}
        own = {"check": None if self.check is None else _stored(self.check), "groups": checks}
        return {"schema_version": _VERSION} | {k: v for k, v in vars(self).items() if k not in own} | own


class Monitor:
    """The state of a folder; use `opened`, which holds its lock."""

    def __init__(self, journal: Journal, promise: Threshold, options: Options, kept: list[float] | None) -> None:
        self.promise, self.options, self._journal = promise, options, journal
        self.drift = None if kept is None else Drift(kept, options.level)
        self._stored: dict[str | None, dict[str, Any]] = {}  # checks as they are written; None: of all rows
        self._read: dict[str | None, Check] = {}  # those that somebody asked for: few looks of many are
        self._named: dict[str, int] = {}
        self._waiting: dict[str, Waiting] = {}
        self._counted: set[str] = set()  # ids
        self._seen: set[str] = set()  # digests of batches without ids
        for entry in journal.entries[1:]:
            self._apply(entry)

    @property
    def looks(self) -> list[dict[str, Any]]:
        """What was written of each."""
        return self._journal.entries[1:]

    @property
    def status(self) -> Status:
        """What is known now."""
        check, drift = self._check(None), self.drift
        groups = {name: self._check(name) for name in sorted(n for n in self._stored if n is not None)}
        return Status(
            looks=len(self.looks),
            holds=(check is None or check.holds) and not self._named,
            units=0 if check is None else check.units,
            check=check,
            groups={name: found for name, found in groups.items() if found is not None},
            named=dict(self._named),
            waiting=len(self._waiting),
            drift=None
            if drift is None
            else {
                "n": drift.n,
                "e_value": drift.e_value,
                "direction": drift.direction,
                "alarm_after": drift.alarm_after,
            },
        )

    def add(self, batch: Batch, *, again: bool = False) -> list[str] | None:
        """One more look, written before it returns its notes; None where there was nothing new."""
        if batch.ids is None and batch.digest in self._seen and not again:
            return None
        notes, rows, ids, waiting = self._sorted_out(batch)
        if batch.ids is not None and not rows and not waiting:
            return notes or (None if batch.ids else [f"{batch.source} holds no rows."])
        entry: dict[str, Any] = {
            "look": len(self.looks) + 1,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "source": batch.source,
            "batch": batch.digest if batch.ids is None else None,
            "counted": len(rows),
            "waiting": {name: list(asdict(row).values()) for name, row in waiting.items()},
            "done": ids,
        }
        checks = self._checked(rows, again) if rows else {}
        every = {name: data["e_value"] for name, data in self._stored.items()}
        every |= {name: check.e_value for name, check in checks.items()}
        e_values = {name: e_value for name, e_value in every.items() if name is not None}
        # A look at other groups may name one too: what each has to reach depends on all.
        named = {name: self._rows(name, checks) for name in e_bh(e_values, self.options.level)}
        entry["all"] = _stored(checks[None]) if None in checks else None
        entry["groups"] = {name: _stored(check) for name, check in checks.items() if name is not None}
        entry["named"] = {name: n for name, n in named.items() if name not in self._named}
        scores = self._new_scores(batch)
        entry["drift"] = self.drift.look(scores) if self.drift is not None and len(scores) else None
        self._apply(self._journal.append(entry))
        return notes

    def _check(self, name: str | None) -> Check | None:
        """That of a group after all looks so far."""
        if name not in self._read and name in self._stored:
            self._read[name] = Check.from_json(json.dumps(self._stored[name]))
        return self._read.get(name)

    def _rows(self, name: str, checks: dict[str | None, Check]) -> int:
        found = checks.get(name) or self._check(name)
        return 0 if found is None else found.n

    def _new_scores(self, batch: Batch) -> Float:
        """Those of rows that were not seen before."""
        if batch.score is None:
            return np.empty(0)
        if batch.ids is None:
            return batch.score
        return batch.score[[k for k, name in enumerate(batch.ids) if not self._known(name)]]

    def _known(self, name: str) -> bool:
        return name in self._counted or name in self._waiting

    def _sorted_out(self, batch: Batch) -> tuple[list[str], list[tuple[Waiting, float]], list[str], dict[str, Waiting]]:
        """Notes; the rows that count now, with what they lost; their ids; the rows that will wait."""
        n = len(batch.score if batch.score is not None else batch.ids or ())
        rows = [_row(batch, k) for k in range(n)]
        if batch.ids is None:
            if batch.error is None:
                raise InputError("The rows have no label. Pass --key, a column of ids, so that labels can come later.")
            return [], list(zip(rows, batch.error.tolist(), strict=True)), [], {}
        if len(set(batch.ids)) < n:
            twice = next(name for k, name in enumerate(batch.ids) if name in batch.ids[:k])
            raise InputError(f"{batch.source}: the id {twice!r} comes twice. Give each row an id of its own.")
        labelled = batch.error is not None or batch.labels is not None
        now, waiting, unknown, old = list[tuple[Waiting, float]](), dict[str, Waiting](), 0, 0
        done = []
        for k, name in enumerate(batch.ids):
            if name in self._counted or (name in self._waiting and not labelled):
                old += 1
            elif not labelled:
                waiting[name] = rows[k]
            elif batch.score is None and name not in self._waiting:
                unknown += 1
            else:
                decided = self._waiting.get(name, rows[k])  # the score of then is what counts
                now.append((decided, _lost(batch, k, decided)))
                done.append(name)
        notes = [f"{batch.source}: {old:,} rows came before and are not counted again."] if old else []
        notes += [
            f"{batch.source}: {unknown:,} labels are of no row that waits: pass their scores, then these once more."
        ] * (unknown > 0)
        return notes, now, done, waiting

    def _checked(self, rows: list[tuple[Waiting, float]], again: bool) -> dict[str | None, Check]:
        """One look at the chain of all rows, and at that of each group that has some of them."""
        parts: dict[str | None, list[tuple[Waiting, float]]] = {None: rows}
        for row in rows:
            if row[0].group is not None:
                parts.setdefault(row[0].group, []).append(row)
        found: dict[str | None, Check] = {}
        for name, part in parts.items():
            clusters = [row.cluster for row, _ in part]
            found[name] = self.promise.check(
                np.array([row.score for row, _ in part]),
                np.array([lost for _, lost in part]),
                clusters=None if clusters[0] is None else np.array(clusters),
                previous=self._check(name),
                largest_cluster=self.options.largest_cluster,
                level=self.options.level,
                run_length=self.options.run_length,
                again=again,
            )
        return found

    def _apply(self, entry: dict[str, Any]) -> None:
        """From one line of the history to the next."""
        if entry["batch"] is not None:
            self._seen.add(entry["batch"])
        for name in entry["done"]:
            self._waiting.pop(name, None)
            self._counted.add(name)
        self._waiting |= {name: Waiting(*row) for name, row in entry["waiting"].items()}
        stored = {None: entry["all"]} if entry["all"] is not None else {}
        for name, data in (stored | entry["groups"]).items():
            before = self._stored[name]["batches"] if name in self._stored else []
            self._stored[name] = data | {"batches": [*before, *data["batches"]][-MOST_BATCHES:]}
            self._read.pop(name, None)
        self._named |= entry["named"]
        if entry["drift"] is not None and self.drift is not None:
            self.drift.apply(entry["drift"])


def _stored(check: Check) -> dict[str, Any]:
    """Of the digests of its looks the last alone: those before are on earlier lines."""
    data = check.to_dict()
    return data | {"batches": data["batches"][-1:] if check.batch.n > 1 else []}


def _row(batch: Batch, k: int) -> Waiting:
    of = (batch.groups, batch.clusters, batch.predicted)
    return Waiting(
        0.0 if batch.score is None else float(batch.score[k]), *(None if part is None else part[k] for part in of)
    )


def _lost(batch: Batch, k: int, decided: Waiting) -> float:
    if batch.error is not None:
        return float(batch.error[k])
    assert batch.labels is not None
    if decided.predicted is None:
        raise InputError(
            f"{batch.source}: labels do not tell the errors of rows whose predicted class is not known. Pass a column "
            f"of errors instead."
        )
    return float(batch.labels[k] != decided.predicted)


@contextmanager
def opened(
    folder: Path,
    promise: Threshold,
    options: Options,
    kept: list[float] | None,
    *,
    name: str = "`state`",
    tell: Callable[[str], object] = lambda message: None,
) -> Iterator[Monitor]:
    """The monitor of a folder, which is made where there is none; nobody else looks meanwhile.

    `kept` are calibration scores for the test of drift (`drift.reference`): they are taken at the first look, and None
    later on.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as problem:
        raise InputError(f"{name}: the folder {str(folder)!r} cannot be made ({problem.strerror}).") from None
    with locked(folder / HISTORY, name, tell):
        journal = Journal(folder / HISTORY, name)
        if not journal.entries:
            start = {"version": _VERSION, "threshold": json.loads(promise.to_json()), "options": asdict(options)}
            journal.append(start | {"reference": kept})
        first = journal.entries[0]
        _same_promise(first, promise, options, kept, name)
        yield Monitor(journal, promise, options, first["reference"])


def _same_promise(first: dict[str, Any], promise: Threshold, options: Options, kept: Any, name: str) -> None:
    if first.get("version") != _VERSION:
        raise InputError(f"{name}: the folder was made by another version of uqeval. Start a new one.")
    if first["threshold"] != json.loads(promise.to_json()):
        raise InputError(
            f"{name}: the folder watches another threshold. Name the one that it began with, or a new folder."
        )
    for option, value in asdict(options).items():
        if first["options"][option] != value:
            there, here = (
                f"{option} = {x!r}" if x is not None else f"no {option}" for x in (first["options"][option], value)
            )
            raise InputError(
                f"{name}: the folder was begun with {there}, and this look has {here}. Keep one for all looks."
            )
    if kept is not None and kept != first["reference"]:
        raise InputError(f"{name}: the folder was begun with other reference scores, or none. Name a new folder.")
