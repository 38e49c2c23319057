"""Do two scores rank all rows alike, ties included? One shuffle by the bins of the first.

Inside an interval of the first score the ranks are compared; from interval to interval the second score must rise.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from uqeval.distributed.engines.protocol import Finished, Input, State, Table
from uqeval.distributed.plan import wire
from uqeval.distributed.plan.by_score import RouteScore
from uqeval.distributed.plan.edges import Axis, changed
from uqeval.distributed.plan.run import Run
from uqeval.inference.paired import rank_alike
from uqeval.inference.sample import Sample


@dataclass(frozen=True)
class FinishAlike:
    """Rows of an interval, and riders: by code of score `k`, the lowest and highest of each other score."""

    k: int
    others: tuple[int, ...]
    axis: Axis

    def __call__(self, bucket: int, table: Table) -> Finished:
        rows = {name: column.astype(np.float64) for name, column in wire.rows_of(table).items()}
        s = rows[wire.score(self.k)]
        codes = self.axis.codes(s)
        inside = codes == 2 * bucket
        order = np.argsort(codes, kind="stable")
        first = np.flatnonzero(np.diff(codes[order].astype(np.int64), prepend=-1))
        state: State = {"bucket": bucket, "rows": len(s), "codes": codes[order][first]}
        for other in self.others:
            x = rows[wire.score(other)]
            target = np.zeros(int(inside.sum()))
            state[f"alike {other}"] = not len(target) or rank_alike(
                *(Sample.of(np.ascontiguousarray(side[inside]), target) for side in (s, x))
            )
            state[f"range {other}"] = np.stack([f.reduceat(x[order], first) for f in (np.minimum, np.maximum)], axis=1)
        return Finished(state)


def rank_alike_with(run: Run, k: int, others: list[int]) -> list[bool]:
    """Whether each of the other scores of a run ranks all rows as score `k` does."""
    axis = run.grids[k].score
    keep = tuple(wire.score(j) for j in (k, *dict.fromkeys(others)))
    rides = np.ones(axis.n_codes, dtype=np.bool_)
    done = run.shuffle(
        f"ranks, {run.names[k]}",
        [Input(RouteScore(run.prepare, k, axis, None, rides, keep))],
        len(axis.edges) + 1,
        FinishAlike(k, tuple(dict.fromkeys(others)), axis),
    )
    run.release(done.carried)
    if (rows := sum(int(state["rows"]) for state in done.states)) != run.n:
        raise changed("The ranks", rows, run.n)
    return [_rises(done.states, other) for other in others]


def _rises(states: list[State], other: int) -> bool:
    """One value in each point bin, and more from bin to bin."""
    spans: dict[int, tuple[float, float]] = {}
    for state in states:
        if not state[f"alike {other}"]:
            return False
        for code, (low, high) in zip(state["codes"].tolist(), state[f"range {other}"].tolist(), strict=True):
            before = spans.get(code, (low, high))
            spans[code] = (min(before[0], low), max(before[1], high))
    found = [spans[code] for code in sorted(spans)]
    flat = all(spans[code][0] == spans[code][1] for code in spans if code % 2)
    return flat and all(a[1] < b[0] for a, b in pairwise(found))
