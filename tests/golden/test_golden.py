"""Numbers stay what they are: version by version, and on both kernels, any number of threads and pieces of any size."""

from __future__ import annotations

import math

import golden_cases
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import stdtrit

import oracle
import uqeval as uq
from cases import noted
from strategies import BACKENDS
from uqeval import kernels

# The bound that docs/theory/numbers.md states.
RELATIVE, ABSOLUTE = 1e-12, 1e-14
# Quantiles of t, by its closed form and 20 digits by mpmath: SciPy before 1.17 has 9 to 11; ends of intervals follow.
QUANTILES = {2: 0.95 / math.sqrt(2 * 0.975 * 0.025), 57.9: 2.0017910949800028223}
RIGHT = all(abs(stdtrit(df, 0.975) / t - 1) < 1e-14 for df, t in QUANTILES.items())
ENDS = (RELATIVE, ABSOLUTE) if RIGHT else (1e-8, 1e-8)


def same(x, y, end=False):
    relative, absolute = ENDS if end else (RELATIVE, ABSOLUTE)
    return x == y or (math.isnan(x) and math.isnan(y)) or abs(x - y) <= relative * abs(y) + absolute


def check(cases, backend):
    """Numbers of the cases, which are those of the file."""
    golden, former, every = golden_cases.read(), kernels.use(backend), {}
    assert len(golden) == golden_cases.COUNT == 200
    try:
        for k in cases:
            every[k] = golden_cases.numbers_of(k)
            assert list(every[k]) == list(golden[k])
            for name, numbers in every[k].items():
                with noted(case=k, number=name, kernels=backend, found=numbers, golden=golden[k][name]):
                    assert len(numbers) == len(golden[k][name])
                    ends = [name != "threshold" and at in (1, 2) for at in range(len(numbers))]
                    assert all(map(same, numbers, golden[k][name], ends))
    finally:
        kernels.use(former)
    return every


def test_every_number_is_found_again_and_metrics_have_the_same_bits_on_both_kernels():
    first = check(range(golden_cases.COUNT), BACKENDS[-1])
    for k, found in check([k for k in range(golden_cases.COUNT) if k // 10 % 4 == 1], "numpy").items():
        for name, numbers in found.items():
            with noted(case=k, number=name):
                assert repr(numbers[0]) == repr(first[k][name][0])  # the metric or the difference; for thresholds: it


@pytest.mark.slow
def test_every_number_is_found_again_on_the_numpy_kernels():
    check(range(golden_cases.COUNT), "numpy")


def test_metrics_of_the_file_are_their_definitions():
    golden, metrics = (
        golden_cases.read(),
        ("uq_auc", "aurc", "e_aurc", "naurc", "augrc", "g_auc", "h_auc", "auarc", "prr"),
    )
    checked = 0
    for k in range(50):  # up to 100 rows
        design, data, _ = golden_cases.make_case(k)
        if design not in ("continuous", "tied", "weights", "clusters", "both"):
            continue
        for metric in metrics:
            with noted(case=k, metric=metric):
                right = getattr(oracle, metric)(data["score"]["a"], data["error"], data.get("weights"))
                assert golden[k][f"a {metric}"][0] == pytest.approx(float(right), rel=1e-12, abs=1e-13)
                checked += 1
    assert checked == 25 * len(metrics)


@pytest.mark.filterwarnings("ignore::uqeval.UQWarning")  # small sets, degenerate intervals
def test_the_order_of_rows_changes_no_bit_of_any_estimate():
    for k in (k for k in range(golden_cases.COUNT) if k // 10 in (4, 6, 13, 15) and k % 10 not in (6, 7, 9)):
        _, data, draw = golden_cases.make_case(k)
        turn = np.argsort(draw.uniform(len(data["error"])))
        moved = {name: x[turn] for name, x in data.items() if name != "score"}
        moved["score"] = {name: x[turn] for name, x in data["score"].items()}
        for one, other in zip(uq.evaluate(**data), uq.evaluate(**moved), strict=True):
            with noted(case=k, metric=one.metric, group=one.group):
                assert repr(one) == repr(other)


def large(n=140_000):
    """More rows than one thread takes."""
    draw = golden_cases.Draws(n)
    hard = draw.uniform(n)
    loss = (hard + draw.uniform(n)) / 2
    score = {"fine": (hard + draw.uniform(n)) / 2, "coarse": np.floor(40 * (hard + draw.uniform(n))) / 40}
    return {"score": score, "error": (draw.uniform(n) < hard / 3).astype(np.int64), "loss": loss}


def test_any_number_of_threads_gives_the_same_bits_of_every_number(monkeypatch):
    data, found = large(), set()
    score, error = data["score"], data["error"]
    for threads in ("1", "2", "7"):
        monkeypatch.setenv("UQEVAL_THREADS", threads)
        every = [row.estimate for row in uq.evaluate(**data)]
        every += [row for metric in ("uq_auc", "aurc") for row in uq.compare(score, error=error, metric=metric).rows]
        found.add(repr([*every, uq.choose_threshold(score["fine"], error, max_risk=0.1).value]))
    assert len(found) == 1


def test_pieces_of_any_size_on_an_engine_give_the_metrics_of_the_rows_in_memory(tmp_path):
    data = large(9_000)
    columns = {**data["score"], "error": data["error"], "loss": data["loss"]}
    metrics = ["uq_auc", "uq_c_index", "aurc", "augrc"]
    right = uq.evaluate(**data, metrics=metrics)
    for size in (9_000, 1_000, 77):
        pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=size)
        given = {"score": ["fine", "coarse"], "error": "error", "loss": "loss"}
        found = uq.evaluate(str(tmp_path / "rows.parquet"), **given, metrics=metrics, engine="local")
        for row in right:
            other = found[row.score, row.metric]
            with noted(size=size, score=row.score, metric=row.metric, found=other, right=row.estimate):
                numbers = [(getattr(other, x), getattr(row.estimate, x)) for x in ("value", "low", "high", "se")]
                assert all(same(*pair) for pair in numbers)
