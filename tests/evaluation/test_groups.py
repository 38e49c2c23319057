"""Groups: each has the numbers that its rows have by themselves, however many there are."""

from __future__ import annotations

import itertools
import time
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uqeval as uq
from cases import noted, on_both_kernels
from commands import spawn
from uqeval import UQWarning
from uqeval.evaluation.notes import notes_of
from uqeval.evaluation.table import Row, Table
from uqeval.inference import parts
from uqeval.inference.result import Estimate

FIELDS = ("method", "n", "n_errors", "n_clusters", "degenerate", "warnings")


def quiet(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return uq.evaluate(*args, **kwargs)


def predictions(seed, n, *, sure=1.0, grid=None, zeros=0.0):
    """A model that is right about as often as it says; on a grid of probabilities, or with some that are 0 and 1."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(3, 1 / sure), n)
    if grid is not None:
        probs = (probs * grid).round() + 0.01
        probs /= probs.sum(axis=1, keepdims=True)
    probs[rng.random(n) < zeros] = np.eye(3)[rng.integers(0, 3)]
    draw = rng.random((n, 1)) * (1 + 3e-3)
    return {"labels": (draw > np.cumsum(probs + 1e-3, axis=1)[:, :2]).sum(axis=1), "probs": probs}


def assert_each_group_is_its_rows_alone(data, groups, **asked):
    together = quiet(uq.Predictions(**data, groups=groups), **asked)
    for group in np.unique(groups):
        rows = groups == group
        if rows.sum() < 2:
            assert str(group) not in together.groups
            continue
        alone = quiet(uq.Predictions(**{name: value[rows] for name, value in data.items()}), **asked)
        for row in alone.rows:
            found = together[row.score, row.metric, group]
            with noted(group=group, score=row.score, metric=row.metric, found=found, alone=row.estimate):
                assert [getattr(found, name) for name in FIELDS] == [getattr(row.estimate, name) for name in FIELDS]
                for name in ("value", "low", "high", "se", "n_eff"):
                    pair = getattr(found, name), getattr(row.estimate, name)
                    np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-12, equal_nan=True, err_msg=name)
    return together


@on_both_kernels
def test_many_groups_at_once_have_the_numbers_of_each_alone():
    # Few rows: no errors, no right rows, one of them, constant scores, perfect rankings all occur.
    for seed, (n, count), how in zip(
        itertools.count(),
        [(60, 25), (90, 12), (400, 40), (300, 3)],
        [{}, {"grid": 3}, {"sure": 20.0, "zeros": 0.2}, {"sure": 0.1}],
        strict=False,
    ):
        with noted(seed=seed, how=how):
            groups = np.random.default_rng(seed + 100).integers(0, count, n)
            found = assert_each_group_is_its_rows_alone(predictions(seed, n, **how), groups)
            assert len(found.rows.lanes) == len(found.groups)
            assert len(list(found.rows)) == len(found.rows) == len(found)
            assert found.rows[0].group is None
            assert found.rows[len(found.rows) - 1].group == found.groups[-1]


def test_groups_of_any_size_stand_in_their_order_whoever_counts_them(monkeypatch):
    data, rng = predictions(0, 500), np.random.default_rng(1)
    groups = np.repeat(np.arange(8), [3, 150, 1, 20, 200, 2, 60, 64])
    rng.shuffle(groups)
    at_once = quiet(uq.Predictions(**data, groups=groups))
    monkeypatch.setattr("uqeval.evaluation.groups.MOST", 100)
    mixed = assert_each_group_is_its_rows_alone(data, groups)
    assert sorted(mixed.rows.lanes) == ["0", "3", "5", "6", "7"]
    assert mixed.groups == at_once.groups == ("0", "1", "3", "4", "5", "6", "7")
    assert [(row.score, row.metric, row.group) for row in mixed] == [(r.score, r.metric, r.group) for r in at_once]
    assert mixed.warnings == at_once.warnings
    for one, other in zip(mixed.heterogeneity, at_once.heterogeneity, strict=True):
        assert (one.score, one.metric, one.df) == (other.score, other.metric, other.df)
        assert (one.statistic, one.p) == pytest.approx((other.statistic, other.p), rel=1e-9, nan_ok=True)


def test_metrics_without_lanes_are_there_for_every_group_too():
    data = predictions(3, 200)
    data["soft_labels"] = np.random.default_rng(0).dirichlet(np.ones(3), 200)
    found = assert_each_group_is_its_rows_alone(data, np.arange(200) % 9, scores=["entropy", "margin"])
    assert found["entropy", "kendall_phi", "3"].n == found["entropy", "somers_phi", "3"].n == 22

    # Losses in [0, 1] have no lanes for the areas, but for pairs; weights and clusters have none at all.
    rng = np.random.default_rng(4)
    arrays = {"score": rng.random(90), "loss": rng.random(90).round(1)}
    for more in ({}, {"weights": rng.random(90) + 0.1}, {"clusters": np.arange(90) // 2}):
        with noted(more=list(more)):
            groups = np.arange(90) // 2 % 5
            together = quiet(**arrays, **more, groups=groups)
            rows = groups == 2
            alone = quiet(**{name: value[rows] for name, value in (arrays | more).items()})
            for row in alone.rows:
                found, expected = together[row.score, row.metric, "2"], row.estimate
                assert found.value == pytest.approx(expected.value, rel=1e-12)
                assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9, nan_ok=True)


def test_thousands_of_groups_are_arrays_until_somebody_looks(monkeypatch):
    made = []
    init = Estimate.__init__
    monkeypatch.setattr(Estimate, "__init__", lambda self, *a, **k: (made.append(1), init(self, *a, **k))[1])
    rng = np.random.default_rng(0)
    ev = quiet(score=rng.random(6000), error=rng.random(6000) < 0.3, groups=np.arange(6000) // 3)
    columns = len(ev.rows.columns)
    assert len(ev.rows) == columns * (1 + len(ev.groups)) == columns * 2001
    assert len(made) <= 2 * columns  # those of all rows
    before = len(made)
    assert ev["score", "uq_auc", "17"].n == 3
    assert len(made) == before + 1
    assert len(str(ev).splitlines()) < 120


def test_notes_of_groups_are_named_where_they_are_few_and_counted_where_they_are_many():
    def row(group, *notes, score="s", metric="uq_auc"):
        return Row(score, metric, group, Estimate(0.5, 0.1, 0.9, 0.1, 0.95, "t", 5, warnings=notes))

    few = [row(None, "few errors (9)"), row("a", "few errors (3)"), row("b", "few errors (4)", "odd")]
    assert notes_of(Table(few), ["first"]) == [
        "first",
        "few errors (9)",
        "few errors (3) in group 'a'",
        "few errors (4) in group 'b'",
        "odd in group 'b'",
    ]
    many = Table([row(str(k), f"few errors ({k})") for k in range(7)])
    assert notes_of(many, []) == ["few errors: 7 times in groups"]
    # Who is meant is said, unless it is everybody.
    two = [row("a", "odd", score="s"), row("a", score="t")]
    assert notes_of(Table(two), []) == ["s: odd in group 'a'"]


def test_a_group_with_a_lane_has_no_more_rows_than_whole_numbers_of_64_bits_allow():
    # The largest sums: n · Σ credit2² and Σ rows · own², each below 4n⁵, and three of them are added.
    assert 3 * 4 * parts.MOST**5 < 2**63

    # At that size the numbers are still those of Python's unlimited ones.
    n = parts.MOST
    rng = np.random.default_rng(0)
    for wrong in (n // 2, 1, n - 1, 7):
        error = np.zeros(n, dtype=int)
        error[rng.choice(n, wrong, replace=False)] = 1
        for score in (error + 0.0, -error, rng.normal(size=n), rng.integers(0, 3, n)):
            with noted(wrong=wrong):
                ev = quiet(score=np.tile(score, 2), error=np.tile(error, 2), groups=np.arange(2 * n) // n)
                assert len(ev.rows.lanes) == 2
                for row in quiet(score=score, error=error).rows:
                    found = ev[row.score, row.metric, "1"]
                    pairs = [(getattr(e, k) for k in ("value", "low", "high", "se")) for e in (found, row.estimate)]
                    np.testing.assert_allclose(*map(list, pairs), rtol=1e-9, atol=1e-12, err_msg=row.metric)


@pytest.mark.slow
@pytest.mark.alone
def test_ten_thousand_groups_cost_at_most_three_times_one_group_of_all(tmp_path):
    data = predictions(0, 200_000)
    table = pa.table({"label": data["labels"]} | {f"prob_{k}": data["probs"][:, k] for k in range(3)})
    for name, group in (("one", np.zeros(200_000, dtype=int)), ("many", np.arange(200_000) // 20)):
        pq.write_table(table.append_column("group", pa.array(group)), tmp_path / f"{name}.parquet")
    best = {"one": np.inf, "many": np.inf}
    for _ in range(4):
        for name in best:
            start = time.perf_counter()
            done = spawn("evaluate", tmp_path / f"{name}.parquet", "--by", "group")
            best[name] = min(best[name], time.perf_counter() - start)
            assert done.returncode == 0, done.stderr
        if best["many"] <= 3 * best["one"]:
            break
    print(f"one group {best['one']:.2f} s, 10,000 groups {best['many']:.2f} s")
    assert best["many"] <= 3 * best["one"]


# ---- are the groups alike? --------------------------------------------------------------------------------------


def test_groups_with_fewer_than_two_errors_take_no_part_in_the_test_across_groups_and_are_counted():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(5), 60)
    error = rng.random(300) < 0.3
    error[groups == 1] = np.arange(60) == 7
    score = rng.normal(size=300) + error
    found = quiet(score=score, error=error, groups=groups)
    by_metric = {test.metric: test for test in found.heterogeneity}
    assert (by_metric["uq_auc"].df, by_metric["uq_auc"].left_out) == (3, 1)
    assert (by_metric["accuracy"].df, by_metric["accuracy"].left_out) == (4, 0)
    assert "test across groups: up to 1 of 5 groups left out (fewer than 2 errors, or no spread)" in found.warnings
    without = quiet(score=score[groups != 1], error=error[groups != 1], groups=groups[groups != 1])
    assert {t.metric: t.p for t in without.heterogeneity}["uq_auc"] == pytest.approx(by_metric["uq_auc"].p, rel=1e-12)
    assert not any("test across" in note for note in without.warnings)


@pytest.mark.slow
def test_the_test_across_groups_keeps_its_level_and_finds_what_differs():
    # 10 groups of 200 rows, 10% errors. Exponential scores of AUC .95 were rejected in 41% without a made-up error.
    rng, reps = np.random.default_rng(1), 400
    groups = np.repeat(np.arange(10), 200)

    def rejected(odds):
        error = rng.random(2000) < 0.1
        score = rng.exponential(size=2000) * np.where(error, np.resize(odds, 10)[groups], 1.0)
        found = quiet(score=score, error=error, groups=groups, metrics=["uq_auc", "aurc", "accuracy"])
        return [test.p <= 0.05 for test in found.heterogeneity]

    for odds in ([4.0], [19.0]):
        with noted(odds=odds):
            shares = np.mean([rejected(odds) for _ in range(reps)], axis=0)
            assert (shares <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / reps)).all(), shares
    assert np.mean([rejected([7 / 3, 9.0]) for _ in range(100)], axis=0)[0] > 0.9  # AUC .7 and .9
