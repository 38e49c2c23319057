"""The same numbers as in memory, whatever the ties, the partitions and the edges: integers, and variances to 1e-10."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed_cases import (
    METRICS,
    absurd_edges,
    as_table,
    assert_same,
    assert_same_integers,
    cases,
    close,
    cut,
    make_rows,
    request,
    run_plan,
    some,
)
from hypothesis import given
from hypothesis import strategies as st
from list_engine import ListEngine

import uqeval
from strategies import each_backend
from uqeval import InputError, distributed
from uqeval._errors import UQWarning
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.plan.differences import _differences
from uqeval.distributed.plan.run import Run
from uqeval.evaluation.compare import Question
from uqeval.metrics import REGISTRY

PAIRS = ("uq_auc", "uq_c_index", "aurc", "e_aurc", "naurc", "augrc", "g_auc", "h_auc", "auarc", "prr", "prr_50")


@pytest.fixture(autouse=True)
def no_notes():
    """What limits an estimate is compared, not raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        yield


def in_memory(rows, **more):
    return uqeval.evaluate(
        score={"s": rows["s"], "t": rows["t"]}, error=rows["error"], loss=rows["loss"], metrics=METRICS, **more
    )


@some(0.25)
@given(cases())
def test_pair_counts_equal_the_kernels_integers_on_any_partition_and_edges(case):
    rows, tables, edges = case
    for _ in each_backend():
        assert_same_integers(ListEngine(tables, piece=17), request(edges=edges), rows, ("s", "t"))


@some(0.3)
@given(cases())
def test_values_and_intervals_equal_those_in_memory(case):
    rows, tables, edges = case
    assert_same(in_memory(rows), run_plan(ListEngine(tables, piece=17), request(edges=edges)))


@some(0.2)
@given(cases())
def test_cluster_robust_errors_equal_those_in_memory(case):
    rows, tables, edges = case
    found = run_plan(ListEngine(tables, piece=17), request(edges=edges, cluster="patient"))
    assert_same(in_memory(rows, clusters=rows["cluster"]), found)


@some(0.4)
@given(cases())
def test_risks_behind_a_cut_equal_those_in_memory(case):
    rows, tables, edges = case
    given, names = {"error": rows["error"], "loss": rows["loss"]}, ["prr_50", "uq_c_index"]
    for cluster in (None, "patient"):
        clusters = None if cluster is None else rows["cluster"]
        memory = uqeval.evaluate(score={name: rows[name] for name in "st"}, clusters=clusters, metrics=names, **given)
        asked = request(metrics=names, edges=edges, cluster=cluster)
        assert_same(memory, run_plan(ListEngine(tables, piece=17), asked))


def test_the_largest_cluster_that_is_declared_counts_as_in_memory():
    rows = make_rows(3, 400)
    given = {"error": rows["error"], "loss": rows["loss"], "clusters": rows["cluster"], "groups": rows["group"]}
    scores, most = {name: rows[name] for name in "st"}, int(np.bincount(rows["cluster"]).max()) + 40
    where = {"engine": ListEngine(cut(as_table(rows), [150])), "cluster": "patient", "by": "site"}
    assert_same(
        uqeval.evaluate(score=scores, largest_cluster=most, metrics=METRICS, **given),
        distributed.evaluate(largest_cluster=most, metrics=METRICS, **where),
    )
    for metric in ("uq_auc", "uq_c_index", "aurc"):
        memory = uqeval.compare(scores, metric=metric, largest_cluster=most, **given)
        found = distributed.compare(None, metric=metric, largest_cluster=most, **where)
        assert_same_pairs(memory, found)
        without = uqeval.compare(scores, metric=metric, **given)
        assert memory.rows[0].high - memory.rows[0].low > without.rows[0].high - without.rows[0].low

    with pytest.raises(InputError, match="the largest here; it is 2"):
        distributed.evaluate(largest_cluster=2, **where)
    with pytest.raises(InputError, match="`largest_cluster` needs `clusters`"):
        distributed.evaluate(largest_cluster=2, engine=where["engine"])


@some(0.12)
@given(cases())
def test_groups_equal_those_in_memory(case):
    rows, tables, edges = case
    memory = in_memory(rows, groups=rows["group"])
    found = run_plan(ListEngine(tables, piece=17), request(edges=edges, group="site"))
    assert_same(memory, found)
    assert [(m.score, m.metric) for m in memory.heterogeneity] == [(m.score, m.metric) for m in found.heterogeneity]
    assert all(close(a.p, b.p) for a, b in zip(memory.heterogeneity, found.heterogeneity, strict=True))
    assert set(memory.warnings) == set(found.warnings)


def test_thousands_of_groups_are_reported_one_by_one():
    rng = np.random.default_rng(0)
    n, groups = 4000, 1000
    table = pa.table({"score_s": rng.random(n), "error": rng.random(n) < 0.4, "site": np.arange(n) % groups})
    found = run_plan(ListEngine(cut(table, [700])), request(group="site", metrics=["uq_auc"]))
    assert found.groups == tuple(map(str, range(groups)))
    s, e, g = (table.column(name).to_numpy(zero_copy_only=False) for name in ("score_s", "error", "site"))
    for group in (0, 17, 999):
        one = uqeval.estimate("uq_auc", s[g == group], e[g == group])
        assert close(found["s", "uq_auc", str(group)].value, one.value)
        assert close(found["s", "uq_auc", str(group)].se, one.se)


def test_a_group_too_large_for_a_task_gets_a_plan_of_its_own():
    rows = make_rows(7, 3000)
    rows["group"] = np.where(np.arange(3000) % 10 < 8, "large", rows["group"])
    engine = ListEngine(cut(as_table(rows), [700, 2000]))
    engine.task_rows = 1000
    assert_same(in_memory(rows, groups=rows["group"]), run_plan(engine, request(group="site")))


@some(0.4)
@given(cases(), st.sampled_from(PAIRS), st.booleans())
def test_paired_differences_equal_those_in_memory(case, metric, clustered):
    rows, tables, _ = case
    memory = uqeval.compare(
        {"s": rows["s"], "t": rows["t"]},
        error=rows["error"],
        loss=rows["loss"],
        metric=metric,
        clusters=rows["cluster"] if clustered else None,
    )
    engine = ListEngine(tables, piece=17)
    found = distributed.compare(None, engine=engine, metric=metric, cluster="patient" if clustered else None)
    assert all(close(memory.values[name], found.values[name]) for name in memory.values)
    assert_same_pairs(memory, found)
    assert memory.warnings == found.warnings


def assert_same_pairs(memory, found, names=("difference", "se", "df", "p", "p_adjusted", "low", "high")):
    assert [(r.a, r.b, r.group) for r in memory] == [(r.a, r.b, r.group) for r in found]
    for a, b in zip(memory.rows, found.rows, strict=True):
        for name in names:
            assert close(getattr(a, name), getattr(b, name)), (name, a, b)


@some(0.25)
@given(cases(), st.sampled_from(PAIRS), st.sampled_from([None, "cluster", "inside"]))
def test_paired_differences_of_groups_equal_those_in_memory(case, metric, clusters):
    rows, tables, _ = case
    if clusters == "inside":  # each cluster lies in one group, so the groups can be tested together
        rows["cluster"] = np.char.add(rows["group"], rows["cluster"].astype(str))
        tables = cut(as_table(rows), np.cumsum([len(table) for table in tables])[:-1])
    memory = uqeval.compare(
        {"s": rows["s"], "t": rows["t"]},
        error=rows["error"],
        loss=rows["loss"],
        metric=metric,
        clusters=rows["cluster"] if clusters else None,
        groups=rows["group"],
    )
    options = {"metric": metric, "by": "site", "cluster": "patient" if clusters else None}
    found = distributed.compare(None, engine=ListEngine(tables, piece=17), **options)
    assert_same_pairs(memory, found)
    assert memory.heterogeneity.keys() == found.heterogeneity.keys()
    assert all(close(p, found.heterogeneity[pair], 1e-7) for pair, p in memory.heterogeneity.items())
    assert memory.warnings == found.warnings


@pytest.mark.parametrize("metric", ["uq_auc", "uq_c_index", "aurc"])
def test_differences_of_a_group_too_large_for_a_task_equal_those_in_memory(metric):
    rows = make_rows(7, 3000)
    rows["group"] = np.where(np.arange(3000) % 10 < 8, "large", rows["group"])
    engine = ListEngine(cut(as_table(rows), [700, 2000]))
    engine.task_rows = 1000
    scores = {"s": rows["s"], "t": rows["t"]}
    memory = uqeval.compare(scores, error=rows["error"], loss=rows["loss"], metric=metric, groups=rows["group"])
    found = distributed.compare(None, engine=engine, metric=metric, by="site")
    assert_same_pairs(memory, found)
    assert found.heterogeneity == pytest.approx(memory.heterogeneity, rel=1e-8)


@pytest.mark.parametrize("adjust", ["max-t", "holm", "none"])
def test_differences_of_several_scores_are_adjusted_inside_each_group_as_in_memory(adjust):
    rng = np.random.default_rng(1)
    n = 900
    e = (rng.random(n) < 0.3).astype(np.uint8)
    scores = {f"s{k}": e + rng.normal(size=n) * (1 + k / 4) for k in range(4)}
    site = rng.integers(0, 11, n)
    memory = uqeval.compare(scores, error=e, groups=site, adjust=adjust, seed=3)
    table = pa.table({f"score_{name}": x for name, x in scores.items()} | {"error": e, "site": site})
    found = distributed.compare(None, engine=ListEngine(cut(table, [100, 333])), by="site", adjust=adjust, seed=3)
    assert_same_pairs(memory, found, ("difference", "se", "df", "p"))
    for a, b in zip(memory.rows, found.rows, strict=True):
        assert b.p_adjusted == pytest.approx(a.p_adjusted, abs=1e-4)  # a draw may fall to the other side of a tie
        assert (b.low, b.high) == pytest.approx((a.low, a.high), abs=1e-8)
    assert found.heterogeneity == pytest.approx(memory.heterogeneity, rel=1e-8)


@pytest.mark.parametrize("groups", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_differences_of_thousands_of_groups_come_from_one_shuffle(groups):
    rng = np.random.default_rng(0)
    n = 4 * groups
    e = (rng.random(n) < 0.4).astype(np.uint8)
    table = pa.table({"score_s": rng.random(n), "score_t": rng.random(n), "error": e, "site": np.arange(n) % groups})
    engine = ListEngine(cut(table, [700]))
    found = distributed.compare(None, engine=engine, by="site")
    assert len(found) == groups + 1
    assert found.run.shuffles == 2 + 1 + 1  # a score each, their units, the groups
    assert ("s", "t") in found.heterogeneity  # the test needs no system of 10⁴ equations
    s, t = (table.column(name).to_numpy() for name in ("score_s", "score_t"))
    for group in (0, 17, groups - 1):
        inside = np.arange(n) % groups == group
        one = uqeval.compare({"s": s[inside], "t": t[inside]}, error=e[inside])
        assert close(found["s", "t", str(group)].difference, one["s", "t"].difference)
        assert close(found["s", "t", str(group)].se, one["s", "t"].se)


@some(0.5)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.sampled_from(["same", "swapped", "split", "joined"]))
def test_scores_that_rank_alike_are_told_from_those_that_nearly_do(seed, n, how):
    rng = np.random.default_rng(seed)
    s = rng.integers(0, rng.choice([2, 5, 1000]), n).astype(np.float64)
    t = np.exp(s / 100)
    if how == "swapped":
        t[rng.choice(n, 2, replace=False)] = t[rng.choice(n, 2, replace=False)]
    elif how != "same":
        value = rng.choice(t)
        t[t == value] += 1e-9 * rng.integers(0, 2, int((t == value).sum())) if how == "split" else np.ptp(t)
    e = np.zeros(n, dtype=np.uint8)
    e[rng.integers(n)] = 1  # a single error: nothing has a standard error
    memory = uqeval.compare({"s": s, "t": t}, error=e)
    table = pa.table({"score_s": s, "score_t": t, "error": e})
    edges = absurd_edges(seed, s, t, s)
    run = Run(ListEngine(cut(table, [n // 3]), piece=7), request(metrics=["uq_auc"], edges=edges))
    whole, _ = _differences(run, [(0, 1)], Question(REGISTRY["uq_auc"], None, "none", 0.95, 0))
    a, b = memory["s", "t"], whole.contrasts[0]
    assert (np.isnan(a.se), a.difference) == (np.isnan(b.se), b.difference)


def test_a_comparison_tells_what_its_run_cost():
    found = distributed.compare(None, engine=ListEngine([as_table(make_rows(7, 300))]), by="site")
    assert (found.run.rows, found.run.engine) == (300, "list")
    assert found.to_dict()["run"]["shuffles"] == found.run.shuffles


def test_max_t_over_several_scores_equals_that_in_memory():
    rng = np.random.default_rng(0)
    e = (rng.random(800) < 0.3).astype(np.uint8)
    scores = {f"s{k}": e + rng.normal(size=800) * (1 + k / 4) for k in range(4)}
    memory = uqeval.compare(scores, error=e)
    table = pa.table({f"score_{name}": x for name, x in scores.items()} | {"error": e})
    found = distributed.compare(None, engine=ListEngine(cut(table, [100, 333])), scores=None)
    for a, b in zip(memory.rows, found.rows, strict=True):
        for name in ("difference", "se", "df", "p"):
            assert close(getattr(a, name), getattr(b, name))
        assert abs(a.p_adjusted - b.p_adjusted) < 2e-3  # a draw may fall to the other side of a tie
        assert a.low == pytest.approx(b.low, abs=1e-6)
    assert memory.groups() == found.groups()


def write(folder, tables):
    for k, table in enumerate(tables):
        pq.write_table(table, Path(folder) / f"part-{k}.parquet", row_group_size=23)
    return str(Path(folder) / "*.parquet")


@some(0.1)
@given(cases())
def test_the_local_engine_gives_the_same_integers_from_files(case):
    rows, tables, edges = case
    with tempfile.TemporaryDirectory() as folder:
        source = write(folder, tables)
        with closing(LocalEngine(source)) as engine:
            assert_same_integers(engine, request(edges=edges), rows, ("s", "t"))
        assert_same(in_memory(rows), run_plan(LocalEngine(source), request(edges=edges)))


@some(0.05)
@given(cases())
def test_the_local_engine_gives_the_same_clusters_and_groups_from_files(case):
    rows, tables, edges = case
    with tempfile.TemporaryDirectory() as folder:
        source = write(folder, tables)
        asked = request(edges=edges, cluster="patient")
        assert_same(in_memory(rows, clusters=rows["cluster"]), run_plan(LocalEngine(source), asked))
        asked = request(edges=edges, group="site")
        assert_same(in_memory(rows, groups=rows["group"]), run_plan(LocalEngine(source), asked))


@pytest.mark.parametrize("kind", ["90% one value", "sorted", "one value", "no ties", "two values"])
def test_skew_and_order_do_not_change_a_digit(kind):
    rng = np.random.default_rng(3)
    n = 20_000
    s = rng.random(n)
    if kind == "90% one value":
        s[rng.random(n) < 0.9] = 0.5
    elif kind == "sorted":
        s.sort()
    elif kind == "one value":
        s[:] = 0.25
    elif kind == "two values":
        s = (s > 0.5).astype(np.float64)
    e, d = (rng.random(n) < 0.3 * s + 0.1).astype(np.uint8), np.round(s + rng.random(n), 3)
    table = pa.table({"score_s": s, "error": e, "loss": d})
    memory = uqeval.evaluate(score={"s": s}, error=e, loss=d, metrics=METRICS)
    for bins in (2, 64):
        found = run_plan(ListEngine(cut(table, [1, 8000]), piece=3000), request(bins=bins))
        assert_same(memory, found)


def predictions(seed, n, sharpen):
    """A model that is `sharpen` times as sure as it should be, with a label of probability 0."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3)) * 2
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(3, p=p) for p in probs])
    probs = np.exp(logits * sharpen) / np.exp(logits * sharpen).sum(axis=1, keepdims=True)
    probs[0], labels[0] = (0.0, 0.5, 0.5), 0
    columns = {"label": labels} | {f"prob_{k}": probs[:, k] for k in range(3)}
    return pa.table(columns | {"site": rng.choice(["a", "b"], n)})


@pytest.mark.parametrize(
    ("n", "sharpen"),  # in memory, rows of the calibration test are pooled above 4,096
    [(900, 1.0), (900, 2.5), (4500, 2.5), pytest.param(4500, 1.0, marks=pytest.mark.slow)],
)
def test_calibration_and_proper_scores_equal_those_in_memory_by_group_too(n, sharpen):
    table = predictions(2, n, sharpen)
    names = ["uq_auc", "accuracy", "ece", "ece_debiased", "brier", "log_loss"]
    memory = uqeval.evaluate(uqeval.Predictions.from_frame(table, group="site"), metrics=names, scores="entropy")
    asked = request(scores="entropy", metrics=names, group="site", bins=4)
    found = run_plan(ListEngine(cut(table, [n // 3])), asked)
    assert_same(memory, found)
    assert np.isinf(found["log_loss"].value)
    assert (found["ece"].low > 0) == (sharpen > 1)


@pytest.mark.parametrize("left_out", ["error", "loss"])
def test_errors_alone_or_a_loss_alone_are_enough(left_out):
    rows = make_rows(5, 700)
    table = as_table(rows).drop_columns([left_out, "score_t", "patient", "site"])
    names = ["uq_c_index"] if left_out == "error" else [name for name in METRICS if name != "uq_c_index"]
    given_rows = {name: rows[name] for name in ("error", "loss") if name != left_out}
    memory = uqeval.evaluate(score={"s": rows["s"]}, metrics=names, **given_rows)
    assert_same(memory, run_plan(ListEngine(cut(table, [3, 300])), request(bins=6)))


@pytest.mark.parametrize("kind", ["text", "whole numbers", "categories", "truth values", "fractions"])
def test_groups_and_clusters_of_any_type_are_told_apart_as_in_memory(kind):
    rows = make_rows(11, 600)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 12, 600)
    keys = {
        "text": pa.array([f"site {k}" for k in codes]),
        "whole numbers": pa.array(codes),
        "categories": pa.array([f"{k:02d}" for k in codes]).dictionary_encode(),
        "truth values": pa.array(codes % 2 == 0),
        "fractions": pa.array(codes / 4),
    }[kind]
    table = pa.table({"score_s": rows["s"], "error": rows["error"], "loss": rows["loss"], "key": keys})
    values = np.array(keys.to_pylist())
    columns = {"score": {"s": rows["s"]}, "error": rows["error"], "loss": rows["loss"], "metrics": METRICS}
    tables = cut(table, [100, 101, 400])
    found = run_plan(ListEngine(tables), request(cluster="key", bins=4))
    assert_same(uqeval.evaluate(clusters=values, **columns), found)
    assert_same(uqeval.evaluate(groups=values, **columns), run_plan(ListEngine(tables), request(group="key", bins=4)))


def test_float32_columns_are_widened_not_rounded():
    rng = np.random.default_rng(0)
    s, d = rng.random(2000).astype(np.float32), rng.random(2000).astype(np.float32)
    e = rng.random(2000) < 0.3
    table = pa.table({"score_s": s, "error": e, "loss": d})
    memory = uqeval.evaluate(score={"s": s}, error=e, loss=d, metrics=METRICS)
    assert_same(memory, run_plan(ListEngine(cut(table, [400])), request(bins=8)))


def test_scores_and_model_metrics_from_probabilities_equal_those_in_memory():
    rng = np.random.default_rng(1)
    n, classes = 1500, 3
    logits = rng.normal(size=(n, classes)) * 2
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(classes, p=p) for p in probs])
    columns = {"label": [f"c{k}" for k in labels]}
    columns |= {f"prob_c{k}": probs[:, k] for k in range(classes)} | {
        f"logit_c{k}": logits[:, k] for k in range(classes)
    }
    table = pa.table(columns | {"patient": rng.integers(0, 90, n)})
    names = [*METRICS, "ece", "ece_debiased", "brier", "log_loss"]
    memory = uqeval.evaluate(uqeval.Predictions.from_frame(table), metrics=names)
    assert_same(memory, run_plan(ListEngine(cut(table, [1, 2, 700])), request(bins=5)))
    memory = uqeval.evaluate(uqeval.Predictions.from_frame(table, cluster="patient"), metrics=names, scores="margin")
    found = run_plan(ListEngine(cut(table, [1, 2, 700])), request(scores="margin", bins=5, cluster="patient"))
    assert_same(memory, found)


def test_the_lower_end_of_the_ece_with_clusters_is_the_one_in_memory():
    for sharpen in (1.0, 2.5):
        table = predictions(2, 900, sharpen).append_column("patient", pa.array(np.arange(900) // 4))
        frame = uqeval.Predictions.from_frame(table, cluster="patient")
        memory = uqeval.evaluate(frame, metrics=["ece", "uq_auc"], scores="entropy")
        asked = request(scores="entropy", metrics=["ece", "uq_auc"], bins=4, cluster="patient")
        found = run_plan(ListEngine(cut(table, [300])), asked)
        assert_same(memory, found)
        assert (found["ece"].low > 0) == (sharpen > 1)
