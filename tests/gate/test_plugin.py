"""The pytest plugin: a test fails as a gate fails."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np

pytest_plugins = ["pytester"]

TESTS = """
    import uqeval as uq

    EXAMPLE = uq.datasets.example()

    def test_good(uq_gate):
        result = uq_gate(EXAMPLE, {"metric": "uq_auc", "score": "entropy", "at_least": 0.8})
        assert result.passed

    def test_bad(uq_gate):
        uq_gate(EXAMPLE, {"metric": "uq_auc", "score": "entropy", "at_least": 0.99})

    def test_unclear(uq_gate):
        uq_gate(EXAMPLE, policy="policy.toml", metrics=["uq_auc"])

    def test_same(uq_gate):
        uq_gate(EXAMPLE, {"metric": "uq_auc", "score": "entropy", "margin": 0.0}, baseline=EXAMPLE)

    def test_arrays(uq_gate):
        uq_gate(None, {"metric": "accuracy", "at_least": 0.1}, score=[1, 2, 3, 4], error=[0, 0, 0, 1])
"""


def test_a_test_passes_only_where_every_rule_does(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # of an environment that may have it already
    pytester.makepyfile(TESTS)
    pytester.path.joinpath("policy.toml").write_text('[[rule]]\nmetric = "uq_auc"\nscore = "entropy"\nat_least = 0.9\n')
    done = pytester.runpytest_subprocess("-p", "uqeval.pytest_plugin", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=3, failed=2)
    text = done.stdout.str()
    assert "uq_gate: fail: 1 rule on 1,547 rows" in text
    assert "uq_gate: too few rows to tell: 1 rule" in text
    assert "judge.py" not in text  # no traceback of ours


BASELINES = """
    import json
    from pathlib import Path

    import pytest
    import uqeval as uq

    RULE = {"metric": "uq_auc", "score": "mine", "margin": 0.0}
    HOW = {"error": "wrong", "by": "site", "cluster": "patient"}

    @pytest.mark.parametrize("path", [str, Path])
    def test_the_file_itself(uq_gate, path):
        found = uq_gate(path("new.csv"), RULE, baseline=path("new.csv"), **HOW)
        assert found.baseline == "the same rows and predictions"

    def test_paired(uq_gate):
        assert uq_gate("new.csv", RULE | {"margin": 0.9}, baseline=Path("old.csv"), **HOW).baseline == "paired"

    def test_stored(uq_gate):
        other = uq.evaluate("other.csv", metrics="uq_auc", **HOW)
        Path("other.json").write_text(other.to_json())
        for stored in ("other.json", Path("other.json"), other):
            assert uq_gate("new.csv", RULE | {"margin": 0.9}, baseline=stored, **HOW).baseline == "unpaired"
"""


def test_a_baseline_is_read_as_the_predictions_are_or_was_stored(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(BASELINES)
    rng = np.random.default_rng(0)
    for name, n in (("new", 300), ("other", 300)):
        score = rng.random(n)
        columns = {"score_mine": score, "wrong": (rng.random(n) < score).astype(int)}
        columns |= {"site": np.arange(n) % 2, "patient": np.arange(n) // 2}
        write_rows(pytester.path / f"{name}.csv", columns)
        if name == "new":
            write_rows(pytester.path / "old.csv", columns | {"score_mine": score + rng.normal(size=n)})
    done = pytester.runpytest_subprocess("-p", "uqeval.pytest_plugin", "-p", "no:cacheprovider", "-W", "ignore")
    done.assert_outcomes(passed=4)


def write_rows(path, columns):
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n")


def test_pytest_finds_the_plugin_and_loads_nothing_of_it_before_it_is_asked():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"uqeval": "uqeval.pytest_plugin"}
    code = "import sys, uqeval.pytest_plugin; print([m for m in ('numpy', 'scipy', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
