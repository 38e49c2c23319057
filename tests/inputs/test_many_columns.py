"""Files of 10,000 columns: what is not asked for costs next to nothing, and what is said stays short."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import uqeval as uq
from cases import each
from commands import fail, succeed

pytestmark = pytest.mark.filterwarnings("ignore::uqeval.UQWarning")  # small sets
MANY = 10_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("wide")
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(MANY, 0.01), 20)
    top = np.where(rng.random(20) < 0.5, probs.argmax(axis=1), 0)
    classes = {"label": [f"c{k}" for k in top]} | {f"prob_c{k}": probs[:, k] for k in range(MANY)}
    error = (np.arange(20) % 3 == 0).astype(int)
    beside = {"error": error, "score_a": rng.random(20)} | {f"x{k}": probs[:, k] for k in range(MANY)}
    for name, table in (("classes", pa.table(classes)), ("beside", pa.table(beside))):
        pq.write_table(table, found / f"{name}.parquet")
        pa.csv.write_csv(table, found / f"{name}.csv")
    return found


@each("kind", ["csv", "parquet"])
def test_10_000_classes_are_told_on_half_a_page(folder, kind):
    out = succeed("evaluate", folder / f"classes.{kind}", "--score", "entropy", "--metrics", "uq_auc")
    assert "10000 classes: c0, c1, " in out
    assert len(out.splitlines()) < 30
    assert len(fail("evaluate", folder / f"classes.{kind}", "--label", "none")) < 800


@each("kind", ["csv", "parquet"])
def test_beside_10_000_other_columns_a_score_is_the_same_in_memory_and_in_pieces(folder, kind):
    found = [
        uq.evaluate(folder / f"beside.{kind}", metrics="uq_auc", engine=engine)["a", "uq_auc"].value
        for engine in ("memory", "local")
    ]
    assert found[0] == found[1]
    assert len(fail("evaluate", folder / f"beside.{kind}", "--score", "none")) < 800


def test_a_parquet_file_is_opened_once_for_each_thread_and_not_for_each_column(folder, monkeypatch):
    opened, real = [], pq.ParquetFile

    def counted(*args, **how):
        opened.append(args)
        return real(*args, **how)

    monkeypatch.setenv("UQEVAL_THREADS", "2")
    monkeypatch.setattr(pq, "ParquetFile", counted)
    assert uq.read_predictions(folder / "classes.parquet").n_classes == MANY
    assert len(opened) <= 4
