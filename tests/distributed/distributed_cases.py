"""Rows with heavy ties, cut anywhere; and what it means that two evaluations are the same."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from uqeval.distributed.evaluate import evaluate_engine
from uqeval.distributed.plan.columns import Wanted
from uqeval.distributed.plan.run import Request
from uqeval.evaluation.evaluate import How
from uqeval.inputs.columns import Columns
from uqeval.metrics import REGISTRY

METRICS = [m.name for m in REGISTRY.values() if m.streams and set(m.needs) <= {"score", "error", "loss"}]
FIELDS = ("value", "low", "high", "se", "n_eff")


def request(scores=None, metrics=None, cluster=None, group=None, bins=None, edges=None, **columns):
    """What is asked of a plan."""
    asked = (scores,) if isinstance(scores, str) else None if scores is None else tuple(scores)
    return Request(Wanted(asked, Columns(**columns), cluster, group), metrics, bins, edges)


def run_plan(engine, asked, level=0.95, seed=0):
    return evaluate_engine(engine, asked, How(level, seed=seed))


def make_rows(seed, n):
    """Score, second score, error, loss, cluster and group of n rows: few values, or one that holds 90%, or no ties."""
    rng = np.random.default_rng(seed)
    s = rng.integers(0, rng.choice([2, 5, 20, 10**6]), n) / 7.0
    if rng.random() < 0.3:
        s = np.where(rng.random(n) < 0.9, 0.5, s)
    if rng.random() < 0.2:
        s = rng.choice([-np.inf, np.inf, -0.0, 0.0, 1e-310, 1.0, 1.0 + 2**-52], n)
    if rng.random() < 0.2:
        s = np.sort(s)
    d = rng.integers(0, rng.choice([1, 2, 5, 20, 10**6]), n) / 3.0
    e = (rng.random(n) < rng.choice([0.0, 0.05, 0.3, 0.9, 1.0], p=[0.05, 0.25, 0.4, 0.25, 0.05])).astype(np.uint8)
    return {
        "s": s,
        "t": np.where(np.isfinite(s), s, 0.0) + rng.normal(size=n),
        "error": e,
        "loss": d,
        "cluster": rng.integers(0, rng.choice([1, 3, 15, 100]), n),
        "group": rng.choice(["a", "b", "c", "dd"], n),
    }


def as_table(rows):
    names = {"s": "score_s", "t": "score_t", "cluster": "patient", "group": "site"}
    return pa.table({names.get(name, name): column for name, column in rows.items()})


def cut(table, places):
    """The table in partitions; some may be empty."""
    bounds = [0, *sorted(places), len(table)]
    return [table.slice(a, b - a) for a, b in pairwise(bounds)]


def absurd_edges(seed, *columns):
    """A few values of each column, and some that it does not hold; or none."""
    rng = np.random.default_rng(seed)
    found = []
    for column in columns:
        outside = np.array([*rng.normal(size=3), np.inf, -np.inf, 1e300])
        found.append(rng.choice(np.concatenate([column, outside]), rng.integers(0, 7)))
    return found


@st.composite
def cases(draw, most=200):
    """(rows, partitions, edges of s, t and the loss)."""
    n = draw(st.integers(2, most))
    seed = draw(st.integers(0, 2**32 - 1))
    places = draw(st.lists(st.integers(0, n), max_size=4))
    rows = make_rows(seed, n)
    return rows, cut(as_table(rows), places), absurd_edges(seed + 1, rows["s"], rows["t"], rows["loss"])


def close(a, b, rel=1e-10):
    """Equal, both undefined, or the same to 10 digits (or nothing but rounding: below 1e-13)."""
    if a is None or b is None or math.isnan(a) or math.isnan(b):
        return (a is None) == (b is None) and (a is None or math.isnan(a) == math.isnan(b))
    return a == b or abs(a - b) <= max(rel * max(abs(a), abs(b)), 1e-13)


def assert_same(memory, found):
    """Every estimate of an evaluation in memory is in the other, with the same value, interval, method and notes."""
    assert [(r.score, r.metric, r.group) for r in memory] == [(r.score, r.metric, r.group) for r in found]
    assert (memory.n, memory.n_errors) == (found.n, found.n_errors)
    for a, b in zip(memory, found, strict=True):
        what = (a.score, a.metric, a.group, a.estimate, b.estimate)
        for name in FIELDS:
            assert close(getattr(a.estimate, name), getattr(b.estimate, name)), (name, *what)
        assert a.estimate.method == b.estimate.method, what
        assert a.estimate.warnings == b.estimate.warnings, what
        assert (a.estimate.n, a.estimate.n_clusters) == (b.estimate.n, b.estimate.n_clusters), what
    for name, rate in memory.tie_rate.items():
        assert close(rate, found.tie_rate[name])
