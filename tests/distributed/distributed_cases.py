"""Rows with heavy ties, cut anywhere; what it means that two evaluations are the same; and trouble for engines."""

from __future__ import annotations

import math
import os
import signal
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import settings
from hypothesis import strategies as st

from uqeval import kernels
from uqeval.distributed.engines.protocol import Input, Routed
from uqeval.distributed.plan.columns import Wanted
from uqeval.distributed.plan.estimates import evaluate_engine
from uqeval.distributed.plan.run import Request, Run
from uqeval.evaluation.evaluate import How
from uqeval.inputs.columns import Columns
from uqeval.metrics import REGISTRY

METRICS = [m.name for m in REGISTRY.values() if m.streams and m.usual and set(m.needs) <= {"score", "error", "loss"}]

FIELDS = ("value", "low", "high", "se", "n_eff")


def some(share):
    """A share of the examples that the profile asks for."""
    return settings(max_examples=max(1, round(share * settings().max_examples)))


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


def make(n=1200, seed=0, heavy=0.0):
    """Scores and losses with many ties; a share of the rows has one and the same score."""
    rng = np.random.default_rng(seed)
    s = np.where(rng.random(n) < heavy, 0.5, np.round(rng.normal(size=n) * 10) / 60)
    return {
        "s": s,
        "error": (rng.random(n) < 0.3 + 0.2 * np.sign(s)).astype(np.uint8),
        "loss": np.round(rng.exponential(size=n) * 20 + 5 * s) / 7,
        "cluster": rng.integers(0, 40, n),
        "group": rng.choice(["a", "b"], n),
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


def write(folder, tables, group=300):
    """A Parquet file for each table."""
    folder.mkdir(exist_ok=True)
    paths = [str(folder / f"part-{k:02}.parquet") for k in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, row_group_size=group)
    return paths


def spoil(path):
    """Zeros in the pages of a Parquet file; its footer stays whole."""
    data = bytearray(Path(path).read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    Path(path).write_bytes(bytes(data))


def assert_same_integers(engine, request, rows, scores=("s",)):
    """Credits of UQ-AUC and UQ-C-index, comparable pairs and their sums of squares are those of the kernels."""
    try:
        run = Run(engine, request)
        for k, name in enumerate(scores):
            sums = run.score(k)
            credit2, comparable = kernels.pair_counts(rows[name][None], rows["loss"])
            assert sums.n == len(rows[name])
            assert sums.concordance[:2] == (int(credit2.sum()), int(comparable.sum()))
            assert sum(two for _, _, two in sums.sizes.values()) == sum(int(x) ** 2 for x in credit2[0])
            auc = (sums.wrong, sums.credit2, sums.wrong_squares, sums.right_squares)
            assert auc == tuple(kernels.auc_sums(rows[name], rows["error"]))
    finally:
        engine.close()


# ---- probabilities ----------------------------------------------------------------------------------------------


@st.composite
def rounded_models(draw, most=80):
    """(labels and probabilities, cut): rounded to float16 or float32, so that some p are 1 exactly."""
    n, classes = draw(st.integers(2, most)), draw(st.integers(2, 4))
    kind = draw(st.sampled_from([np.float16, np.float32]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = rng.normal(size=(n, classes)) * rng.choice([2.0, 20.0, 200.0])
    logits[rng.random(n) < 0.3] *= 50  # p = 1 after rounding, the others at or near 0
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs = (probs / probs.sum(axis=1, keepdims=True)).astype(kind)
    labels = np.where(rng.random(n) < 0.7, probs.argmax(axis=1), rng.integers(0, classes, n))
    labels[:classes] = np.arange(classes)[: len(labels)]
    table = pa.table({"label": labels} | {f"prob_{k}": probs[:, k] for k in range(classes)})
    return table, cut(table, draw(st.lists(st.integers(0, n), max_size=3)))


# ---- trouble ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Everything:
    """All columns of some rows, as they are."""

    columns = None

    def __call__(self, table):
        return table


@dataclass(frozen=True)
class UpperHalf:
    """The upper half of the values moves, to buckets 0 and 7."""

    columns = ("x",)

    def __call__(self, table):
        x = table.column("x").to_numpy()
        upper = np.flatnonzero(x >= 50)
        return Routed(table.take(upper), np.where(x[upper] % 2 == 0, 0, 7))


@dataclass(frozen=True)
class Carry:
    """Sums a bucket and carries its rows on."""

    def __call__(self, bucket, table):
        return {"bucket": bucket, "sum": int(table.column("x").to_numpy().sum())}, table


@dataclass(frozen=True)
class ToZero:
    """All rows move to bucket 0."""

    columns = None

    def __call__(self, table):
        return Routed(table, np.zeros(len(table), dtype=np.int64))


def first_time(marker):
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def wait_for(path, seconds=120):
    deadline = time.monotonic() + seconds
    while not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(0.01)


@dataclass(frozen=True)
class Trouble:
    """A function that kills its process or fails ("kill", "raise": once; "kill always"), waits for a file ("wait"),
    loses or doubles a row, or writes down each call ("note")."""

    inner: Any
    kind: str
    marker: str

    @property
    def columns(self):
        return self.inner.columns

    def __call__(self, *args):
        table = next(x for x in args if isinstance(x, pa.Table))
        if len(table) and (self.kind == "kill always" or (self.kind in ("kill", "raise") and first_time(self.marker))):
            if self.kind != "raise":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("a task fails\nonce")
        if self.kind == "wait":
            Path(self.marker).touch()
            wait_for(f"{self.marker} go")
        done = self.inner(*args)
        if self.kind == "lose":
            return Routed(done.table.slice(1), done.bucket[1:])
        if self.kind == "double":
            twice = pa.concat_tables([done.table, done.table.slice(0, 1)])
            return Routed(twice, np.concatenate([done.bucket, done.bucket[:1]]))
        if self.kind == "note":
            with open(self.marker, "a") as file:
                file.write(f"{args[0]}\n")
        return done


class Troubled:
    """An engine with trouble in some places: "sample", "fold", or "route" and "finish" of a stage, as "route score"."""

    def __init__(self, engine, kind, marker, *places, before=None):
        self.engine, self.kind, self.marker, self.places, self.before = engine, kind, str(marker), places, before

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def _armed(self, place, function):
        if not any(place.startswith(one) for one in self.places):
            return function
        return Trouble(function, self.kind, f"{self.marker} {place}".replace(" ", "-"))

    def sample(self, function, rows):
        return self.engine.sample(self._armed("sample", function), rows)

    def fold(self, stage, function, merge):
        return self.engine.fold(stage, self._armed("fold", function), merge)

    def shuffle(self, stage, inputs, buckets, finish):
        if self.before is not None:
            self.before(stage)
        armed = [Input(self._armed(f"route {stage}", given.route), given.rows) for given in inputs]
        return self.engine.shuffle(stage, armed, buckets, self._armed(f"finish {stage}", finish))


PLACES = ["sample", "fold", "route score", "finish score", "route loss", "finish loss"]
CLUSTER_PLACES = ["route units", "finish units", "route clusters", "finish clusters"]


def alive(folder):
    """Processes whose folder for temporary files is this one."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TMPDIR={folder}".encode() in entry.read_bytes().split(b"\0"):
                pids.append(entry.parent.name)
        except OSError:  # gone, or not ours
            continue
    return pids
