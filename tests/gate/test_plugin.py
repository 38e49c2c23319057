"""The pytest plugin: a test fails as a gate fails."""

import subprocess
import sys
import tomllib
from pathlib import Path

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


def test_pytest_finds_the_plugin_and_loads_nothing_of_it_before_it_is_asked():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"uqeval": "uqeval.pytest_plugin"}
    code = "import sys, uqeval.pytest_plugin; print([m for m in ('numpy', 'scipy', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
