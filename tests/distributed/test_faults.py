"""Bad rows, unreadable files, full disks, changed data, cancelled runs: a clear error, no number, no file left."""

from __future__ import annotations

import errno
import os
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed_cases import request, run_plan
from list_engine import ListEngine

from uqeval import distributed
from uqeval._errors import InputError
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.plan.edges import RowsChanged


def table(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.random(n)
    return pa.table({"score_s": s, "error": (rng.random(n) < 0.2).astype(np.int64), "loss": s + rng.random(n)})


@pytest.fixture
def folder(tmp_path):
    for k in range(3):
        pq.write_table(table(seed=k), tmp_path / f"part-{k}.parquet", row_group_size=500)
    (tmp_path / "spill").mkdir()
    return tmp_path


def run(folder, **more):
    return distributed.evaluate(str(folder / "*.parquet"), spill=str(folder / "spill"), **more, engine="local")


def rewrite(folder, k, **columns):
    changed = table(seed=k)
    for name, values in columns.items():
        changed = changed.set_column(changed.column_names.index(name), name, pa.array(values))
    pq.write_table(changed, folder / f"part-{k}.parquet", row_group_size=500)


def with_values(name, k, **places):
    values = table(seed=k).column(name).to_pylist()
    for place, value in places.items():
        values[int(place.removeprefix("row"))] = value
    return values


def test_bad_rows_are_counted_and_the_first_is_named(folder):
    for column, value, words in (
        ("score_s", None, "`score_s` holds NaN or nothing"),
        ("score_s", float("nan"), "`score_s` holds NaN or nothing"),
        ("loss", float("inf"), "`loss` holds NaN, infinity or nothing"),
        ("loss", None, "`loss` holds NaN, infinity or nothing"),
        ("error", 2, "`error` holds something else than 0 and 1"),
        ("error", None, "`error` holds something else than 0 and 1"),
    ):
        rewrite(folder, 1, **{column: with_values(column, 1, row712=value, row1999=value)})
        rewrite(folder, 2, **{column: with_values(column, 2, row3=value)})
        with pytest.raises(InputError, match=rf"{words} in 3 rows, first in .*part-1.parquet, row 712\."):
            run(folder)
        assert os.listdir(folder / "spill") == []


def test_minus_zero_ties_with_zero():
    rows = {"score_s": [0.0, -0.0, 1.0, 0.0], "error": [0, 1, 1, 0], "loss": [0.0, -0.0, 1.0, 2.0]}
    found = run_plan(ListEngine([pa.table(rows)]), request(edges=[[-0.0], [0.0]]))
    assert found["s", "uq_auc"].value == 0.75
    assert found["s", "uq_c_index"].value == 0.6


def test_a_folder_without_files_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no file matches"):
        distributed.evaluate(str(tmp_path / "*.parquet"), engine="local")


def when(stage, action):
    """A progress function that acts once, when the stage begins."""
    done = []

    def progress(name, *_):
        if name == stage and not done:
            done.append(True)
            action()

    return progress


def test_a_file_that_changes_its_rows_between_passes_is_an_error(folder):
    for rows in (1999, 2001):
        change = when(
            "count", lambda rows=rows: pq.write_table(table(rows, 2), folder / "part-2.parquet", row_group_size=500)
        )
        engine = LocalEngine(str(folder / "*.parquet"), progress=change, workers=1, spill=str(folder / "spill"))
        with pytest.raises(InputError, match=r"part-2.parquet: changed while it was read"):
            run_plan(engine, request())
        assert os.listdir(folder / "spill") == []


def test_a_file_that_changes_its_values_between_passes_is_an_error(folder):
    engine = Changing([table(), table(seed=1)])
    with pytest.raises(RowsChanged, match="The data changed while it was read"):
        run_plan(engine, request(bins=4))


class Changing(ListEngine):
    """The same number of rows in every pass, but others after the first."""

    def shuffle(self, stage, inputs, buckets, finish):
        self.tables = [table(seed=8), *self.tables[1:]]
        return super().shuffle(stage, inputs, buckets, finish)


def test_a_full_disk_ends_with_a_clear_error_and_no_file(folder, monkeypatch):
    pwrite = os.pwrite
    for after in (0, 5, 13):
        written = []

        def full(file, data, offset, written=written, after=after):
            written.append(len(data))
            if len(written) > after:
                raise OSError(errno.ENOSPC, "No space left on device")
            return pwrite(file, data, offset)

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(InputError, match=r"could not be written to .*No space left on device.*spill="):
            run(folder)
        assert os.listdir(folder / "spill") == []
        assert len(written) > after


def test_a_spill_folder_that_is_not_there_is_an_error(folder):
    with pytest.raises(InputError, match=r"could not be written to .*nowhere"):
        distributed.evaluate(str(folder / "*.parquet"), spill=str(folder / "nowhere"), engine="local")


def test_an_interrupt_from_the_keyboard_leaves_nothing(folder):
    def press():
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run(folder, progress=when("score s", press))
    assert os.listdir(folder / "spill") == []
    assert threading.active_count() == before


def test_an_error_inside_a_task_reaches_the_caller_as_it_is(folder):
    engine = LocalEngine(str(folder / "*.parquet"), spill=str(folder / "spill"))

    def broken(bucket, rows):
        raise ZeroDivisionError("in a task")

    shuffle = engine.shuffle
    engine.shuffle = lambda stage, inputs, buckets, finish: shuffle(stage, inputs, buckets, broken)
    with pytest.raises(ZeroDivisionError, match="in a task"):
        run_plan(engine, request())
    assert os.listdir(folder / "spill") == []


def test_a_score_that_is_text_in_one_file_is_an_error(folder):
    rewrite(folder, 2, score_s=["a"] * 2000)
    with pytest.raises(InputError, match="not numbers"):
        run(folder)


def test_a_column_with_two_widths_is_widened(folder):
    rewrite(folder, 2, score_s=np.asarray(table(seed=2).column("score_s").to_numpy(), dtype=np.float32))
    assert run(folder)["s", "uq_auc"].n == 6000
