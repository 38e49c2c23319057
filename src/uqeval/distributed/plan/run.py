"""The exact algorithm, for any engine: sample, count, shuffle by score bin, shuffle by loss bin.

Pass 0 samples rows and chooses edges. Pass 1 counts rows by score bin, loss bin and error. Shuffle 1 finishes score
bins (`by_score`), shuffle 2 loss bins (`by_loss`). Every bin must come back exactly once with exactly the rows that
were counted.
"""

from __future__ import annotations

import copy
import math
import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from uqeval._check import nearest
from uqeval._errors import InputError, notify
from uqeval.distributed.engines.protocol import Engine, Folded, Input, Place, Shuffled, State, Table
from uqeval.distributed.plan import tallies, wire
from uqeval.distributed.plan.by_loss import FinishLoss, RouteLoss, Stayed
from uqeval.distributed.plan.by_score import FinishScore, RouteScore
from uqeval.distributed.plan.columns import Prepare, Reading, Wanted, find_rows
from uqeval.distributed.plan.count import Count, Draw, FirstRows, TryRows, merge, of_a_row
from uqeval.distributed.plan.edges import Axis, Grid, RowsChanged, check_buckets, choose_edges, split_edges
from uqeval.distributed.plan.late import cut_of
from uqeval.distributed.result import Summary
from uqeval.evaluation.row_data import RowData
from uqeval.inputs.columns import listed
from uqeval.metrics.areas import Accepted, Formula
from uqeval.metrics.registry import REGISTRY, Metric, get_metric

STREAMED = [metric for metric in REGISTRY.values() if metric.streams]
_SAMPLE = 200_000
_FIRST = 1000  # rows to plan with
_ROUNDS = 3  # of cutting bins that are too large
_MOST_BINS = 1024  # of an axis, from the sample
_MOST_EDGES = 4096  # the grid grows with their square


@dataclass(frozen=True)
class Request:
    """What is asked for; `bins` and `edges` (score by score, the loss last) only for tests of the balance."""

    wanted: Wanted
    metrics: list[str] | None = None
    bins: int | None = None
    edges: list[Any] | None = None

    def chosen(self) -> list[Metric] | None:
        """The metrics; None for all that the columns allow."""
        names = ", ".join(metric.name for metric in STREAMED)
        chosen = None if self.metrics is None else list(dict.fromkeys(map(get_metric, self.metrics)))
        for metric in chosen or []:
            if not metric.streams:
                raise InputError(
                    f"{metric.name} cannot be computed piece by piece.{nearest(metric.name, names.split(', '))} "
                    f"Engines know {names}; uqeval.evaluate does the rest in memory."
                )
        if chosen == []:
            raise InputError(f"`metrics` is empty. Leave it out for all, or pick from {names}.")
        return chosen


@dataclass(frozen=True)
class _Thin(Reading):
    """Every so-many-th row of the intervals that are too large: (column, code, step)."""

    prepare: Prepare
    axes: dict[str, Axis]
    wanted: tuple[tuple[str, int, int], ...]

    def __call__(self, table: Table, place: Place) -> State:
        rows = self.prepare(table)
        state: State = {}
        for name, code, step in self.wanted:
            inside = rows[name][self.axes[name].codes(rows[name]) == code]
            state[f"{name} {code}"] = inside[:: max(1, step)].astype(np.float64)
        return state


def _join_thin(a: State, b: State) -> State:
    return {name: np.concatenate([a[name], b[name]]) for name in a}


class Run:
    """One run of the plan on one engine: prepared columns, edges, counts; then scores one by one."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self.engine, self.request = engine, request
        self.parts = engine.parts()
        self.summary = Summary(engine.name, parts=len(self.parts))
        self.metrics, self.prepare = prepared(engine, request.chosen(), request.wanted)
        self.names = [name for name, _ in self.prepare.scores]
        self.rows: list[int] | None = None
        self._start()
        if self.n < 2:
            raise InputError(f"There {'is 1 row' if self.n else 'are no rows'}. Ranking needs at least 2.")

    def _start(self) -> None:
        with self.summary.timed("sample"):
            self.axes = self._edges()
        self.summary.sampled_rows = self.engine.sampled_rows
        self.state = self._count()
        self.n = int(self.state["rows"])

    def narrowed(self, group: str) -> Run:
        """The same on the rows of one group, with edges and counts of their own."""
        found = copy.copy(self)
        assert self.prepare.group is not None
        found.prepare = replace(self.prepare, group=None, only=(self.prepare.group, group))
        found._start()
        return found

    def against(self, metrics: list[Metric]) -> Run:
        """The same for metrics of pairs against another target than the loss, which takes its place."""
        found = copy.copy(self)
        found.metrics = metrics
        found.prepare = replace(self.prepare, target=metrics[0].target, wants_loss=True, wants_error=False, model=())
        found._start()
        return found

    # ---- pass 0 and 1 ----

    def _edges(self) -> dict[str, Axis]:
        columns = [wire.score(k) for k in range(len(self.names))] + [wire.LOSS] * self.prepare.wants_loss
        if self.request.edges is not None:
            given = [np.unique(np.asarray(edges, dtype=np.float64) + 0.0) for edges in self.request.edges]
            return {name: Axis(edges) for name, edges in zip(columns, given, strict=False)}
        sample = self.engine.sample(Draw(self.prepare), _SAMPLE)
        axes = {}
        for name in columns:
            values = sample.column(name).to_numpy()
            axes[name] = choose_edges(values[~np.isnan(values)], self._bins(len(sample)))
        return axes

    def _bins(self, sampled: int) -> int:
        """Enough for bins that a task holds, few enough for the grid: 2·(2B + 1)² counts a score."""
        if self.request.bins is not None:
            return self.request.bins
        known = [part.rows for part in self.parts if part.rows is not None]
        n = sum(known)
        if len(known) < len(self.parts):  # a short sample is the whole source
            n = sampled if sampled < _SAMPLE // 2 else 10**8
        usual = min(256, max(1, n // 20_000))
        room = self.engine.grid_bytes // (16 * len(self.names))
        most = max(16, min(_MOST_BINS, (math.isqrt(room) - 1) // 2))
        return min(most, max(usual, -(-3 * n // (2 * self.task_rows))))

    @property
    def task_rows(self) -> int:
        """Small tasks balance better; with very many rows they grow, as far as memory allows."""
        rows = sum(part.rows or 0 for part in self.parts)
        return min(max(1 << 22, -(-3 * rows // (2 * _MOST_BINS))), self.engine.task_rows)

    def _count(self) -> State:
        for attempt in range(_ROUNDS + 1):
            with self.summary.timed("count"):
                loss = self.axes.get(wire.LOSS, Axis(np.empty(0)))
                axes = tuple(self.axes[wire.score(k)] for k in range(len(self.names)))
                counted = Count(self.prepare, axes, loss, tuple(part.name for part in self.parts))
                folded = self.engine.fold("count", counted, merge)
            self._check_parts(folded.rows)
            self._check_bad(folded)
            self.grids = [
                Grid(axis, loss, folded.state[f"cells{k}"].reshape(axis.n_codes, loss.n_codes, 2))
                for k, axis in enumerate(axes)
            ]
            wide = self._too_wide()
            if not wide or self.request.edges is not None:
                return folded.state
            if attempt < _ROUNDS:
                self._refine(wide)
            if attempt == _ROUNDS or max(len(axis.edges) for axis in self.axes.values()) > _MOST_EDGES:
                break
        name, _, rows = max(wide, key=lambda item: item[2])
        if rows > self.task_rows:
            raise InputError(
                f"{rows:,} rows of {self.prepare.labels[name]} fall between two neighbouring edges, but a task holds "
                f"{self.task_rows:,}. Raise memory_limit."
            )
        return folded.state

    def _too_wide(self) -> list[tuple[str, int, int]]:
        """Intervals that no task can hold, or that would keep all others waiting: (column, code, rows)."""
        found = []
        grid_of = {wire.score(k): grid for k, grid in enumerate(self.grids)}
        for name, axis in self.axes.items():
            counts = self.grids[0].by_loss if name == wire.LOSS else grid_of[name].by_score.sum(axis=1)
            fair = 8 * counts.sum() / (len(axis.edges) + 1)
            most = min(self.task_rows, max(fair, 200_000))
            found += [(name, int(code), int(counts[code])) for code in np.flatnonzero(counts > most) if code % 2 == 0]
        return found

    def _refine(self, wide: list[tuple[str, int, int]]) -> None:
        """Cuts the intervals that are too large, by rows from all over the source."""
        with self.summary.timed("refine"):
            wanted = tuple((name, code, rows // 20_000) for name, code, rows in wide)
            folded = self.engine.fold("refine", _Thin(self.prepare, self.axes, wanted), _join_thin)
            self._check_parts(folded.rows)
            axes = dict(self.axes)
            for name, code, rows in wide:
                counts = self.axes[name]
                fair = max(1, min(self.task_rows // 2, self.summary.rows // 256 or 100_000))
                pieces = min(256, -(-rows // fair) + 1)
                cut = split_edges(counts, folded.state[f"{name} {code}"], code, pieces)
                axes[name] = Axis(np.unique(np.concatenate([axes[name].edges, cut.edges])))
            self.axes = axes

    def _check_parts(self, rows: list[int] | None) -> None:
        if rows is None:
            return
        self.summary.passes += 1
        expected = [part.rows for part in self.parts] if self.rows is None else self.rows
        for part, found, before in zip(self.parts, rows, expected, strict=True):
            if before is not None and found != before:
                raise RowsChanged(
                    f"{part.name}: {found:,} rows were read, but {before:,} were there before. "
                    f"The data changed while it was read; no result is given."
                )
        self.rows = list(rows)
        self.summary.rows = sum(rows)

    def _check_bad(self, folded: Folded) -> None:
        if not folded.state["bad"]:
            return
        what, count, part, row = folded.state["bad"][0]
        raise InputError(
            f"{what} in {count:,} row{'s' * (count > 1)}, first in {self.parts[part].name}, row {row}. "
            f"Drop or mend those rows."
        )

    # ---- shuffles ----

    def shuffle(self, stage: str, inputs: list[Input], buckets: int, finish: Any) -> Shuffled:
        """One shuffle, counted and checked against the parts."""
        with self.summary.timed(stage):
            done = self.engine.shuffle(stage, inputs, buckets, finish)
        self._check_parts(done.rows)
        self.summary.shuffles += 1
        self.summary.moved_rows += done.moved_rows
        self.summary.moved_bytes += done.moved_bytes
        self.summary.largest_task = max(self.summary.largest_task, done.largest)
        return done

    def release(self, carried: Any) -> None:
        """Frees rows that no later shuffle needs."""
        if carried is not None:
            self.engine.release(carried)

    @property
    def accepted(self) -> tuple[Accepted, ...]:
        """The surest shares whose risk is wanted."""
        return tuple(metric.formula for metric in self.metrics if isinstance(metric.formula, Accepted))

    @property
    def cuts(self) -> tuple[int, ...]:
        """The places behind which the risks are wanted apart."""
        formulas = (metric.formula for metric in self.metrics if metric.tally == "late area")
        return tuple(dict.fromkeys(cut_of(one.rejected, self.n) for one in formulas if isinstance(one, Formula)))

    def score(self, k: int) -> tallies.ScoreSums:
        """Sums of score `k`: two shuffles of the rows that lie in intervals."""
        grid, prepare, own = self.grids[k], self.prepare, wire.score(k)
        loss = (wire.LOSS, wire.LOSS_BIN) if prepare.wants_loss else ()
        moved = (own, *([wire.ERROR] * prepare.wants_error), *loss)
        sums, carried = self.score_bins(k, moved, (own, *loss, wire.pairs(k)) if loss else ())
        if not loss:
            self.release(carried)
            return sums
        keep = (own, wire.LOSS, wire.pairs(k))
        inputs = [Input(RouteLoss(None, k, grid.loss, keep), carried)]
        stayed = ~grid.small
        stayed[::2] = False
        if grid.rows[stayed][:, ::2].any():  # rows of large point bins whose loss lies in an interval
            inputs.append(Input(RouteLoss(prepare, k, grid.loss, keep, Stayed(grid.score, stayed, grid.at_point))))
        self.release(self.loss_bins(f"loss, {self.names[k]}", inputs, FinishLoss((k,), grid.by_loss), [sums]))
        return sums

    def score_bins(
        self, k: int, moved: tuple[str, ...], carry: tuple[str, ...], rows: Any = None, every: bool = False
    ) -> tuple[tallies.ScoreSums, Any]:
        """The shuffle by score `k`, of the source or of carried rows: sums of the bins, and the rows that go on.

        Rows of point bins ride along where the bin is small, or where `every` row is needed later.
        """
        grid, prepare = self.grids[k], self.prepare if rows is None else None
        loss = grid.loss if self.prepare.wants_loss else None
        rides = np.arange(grid.score.n_codes) % 2 == 1 if every else grid.small
        route, finish = RouteScore(prepare, k, grid.score, loss, rides, moved), self.finish_score(k, carry, every)
        done = self.shuffle(f"score {self.names[k]}", [Input(route, rows)], len(grid.score.edges) + 1, finish)
        self.release(rows)
        counts = grid.by_score.sum(axis=1)
        check_buckets("Bin of the score", done.states, counts, int(counts[rides].sum()))
        constant = bool(self.state["low"][k] == self.state["high"][k])
        found = tallies.sum_score(grid, done.states, constant, self.prepare.wants_error, self.accepted, self.cuts)
        return found, done.carried

    def loss_bins(self, stage: str, inputs: list[Input], finish: FinishLoss, found: list[tallies.ScoreSums]) -> Any:
        """The shuffle by loss, which completes the pair counts of the scores; the rows that go on."""
        by_loss = finish.by_loss
        done = self.shuffle(stage, inputs, len(by_loss) // 2 + 1, finish)
        for given in inputs:
            self.release(given.rows)
        check_buckets("Bin of the loss", done.states, by_loss, int(by_loss[1::2].sum()) if finish.ride else 0)
        for k, sums in zip(finish.scores, found, strict=True):
            for state in done.states:
                tallies.add_sizes(sums.sizes, state.get(f"sizes {k}", []))
            tallies.add_point_pairs(sums, self.grids[k])
            if sum(rows for rows, _, _ in sums.sizes.values()) != self.n:
                raise RowsChanged("Rows were lost between the two shuffles. No result is given.")
        return done.carried

    def finish_score(self, k: int, carry: tuple[str, ...], every: bool = False) -> FinishScore:
        """The finish of score bins; `every` row is carried where clusters or a comparison need it."""
        grid, pairs, ranks = self.grids[k], self.prepare.wants_loss, self.prepare.wants_error
        credit, own = tallies.point_values(grid) if ranks and every else (None, None)
        accepted, cuts = (self.accepted, self.cuts) if ranks else ((), ())
        return FinishScore(k, grid, ranks, pairs, credit, own, accepted, cuts, every, carry)


# ---- what is asked for --------------------------------------------------------------------------------------------


def prepared(engine: Engine, chosen: list[Metric] | None, wanted: Wanted) -> tuple[list[Metric], Prepare]:
    """The metrics, and what to take from the columns, tried on some rows."""
    names = list(engine.schema().names)
    first = engine.sample(FirstRows(wanted.columns(names)), _FIRST)
    if len(first) < 2:
        raise InputError("There are fewer than 2 rows. Ranking needs at least 2.")
    try:
        return _planned(chosen, names, wanted, first)
    except InputError as error:
        raise _located(engine, wanted, error) from None


def _planned(
    chosen: list[Metric] | None, names: list[str], wanted: Wanted, first: Table
) -> tuple[list[Metric], Prepare]:
    prepare = find_rows(names, wanted, first)
    if not prepare.scores:
        raise InputError("No score to evaluate. Name score columns, or give probabilities or logits.")
    can = _allowed(prepare, first)
    if chosen is None:
        usual = [metric for metric in STREAMED if metric in can and metric.usual]
        chosen = [metric for metric in usual if metric.made is None]  # which costs as much again
        if not any(metric.uses_score for metric in chosen):
            raise InputError("No metric can rank a score here. Give `error` or `loss`, or label and prob_*.")
        if REGISTRY["aurc"] not in can:
            notify("no 0/1 errors: AURC and its relatives are left out (uqeval.evaluate takes them of a loss)")
    for metric in chosen:
        if metric not in can:
            raise InputError(
                f"{metric.name} needs {', '.join(metric.needs)}, which the columns ({listed(names)}) do not give."
            )
    own = dict.fromkeys(what for metric in chosen if not metric.uses_score for what in metric.quantities)
    model = tuple(what for what in own if what not in ("accuracy", "error"))
    error, loss = REGISTRY["accuracy"] in can, any(metric.target == "loss" for metric in chosen if metric.uses_score)
    return chosen, replace(prepare, model=model, wants_error=error, wants_loss=loss)


def _allowed(prepare: Prepare, first: Table) -> list[Metric]:
    """The metrics that the columns allow. Unlike in memory, AURC and relatives need errors, not a loss."""
    if not prepare.modelled:
        have = {"error": prepare.error is not None, "loss": prepare.loss is not None, "score": True}
        return [metric for metric in STREAMED if all(have.get(need, False) for need in metric.needs)]
    data = RowData.of(prepare.predictions(first))
    return [m for m in STREAMED if not data.missing(m) and ("error" not in m.needs or data.error is not None)]


def _located(engine: Engine, wanted: Wanted, error: InputError) -> InputError:
    """The same error with the file and the row in it, where it is about a row."""
    if not of_a_row(error):
        return error
    plan, options = wanted.planned(list(engine.schema().names))
    parts = tuple(part.name for part in engine.parts())
    try:
        engine.fold("check", TryRows(plan, options, parts), operator.or_)
    except InputError as found:
        return found
    return error
