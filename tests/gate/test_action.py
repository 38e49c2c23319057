"""The GitHub Action: its shell step, run as GitHub runs it."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ACTION = Path(__file__).parents[2] / "action.yml"


def script():
    """The lines of the last `run: |`, and the names that the environment gives it."""
    text = ACTION.read_text()
    body = textwrap.dedent(text.split("      run: |\n")[1])
    names = dict(re.findall(r"(UQEVAL_\w+): \$\{\{ inputs\.([\w-]+) \}\}", text))
    return body, names


@pytest.fixture
def judged(tmp_path):
    rng = np.random.default_rng(0)
    error = (rng.random(400) < 0.3).astype(int)
    score = error + rng.normal(size=400)
    pq.write_table(pa.table({"score_mine": score, "error": error}), tmp_path / "my preds.parquet")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "uqeval"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m uqeval.cli.main "$@"\n')
    command.chmod(0o755)

    def run(limit, **more):
        (tmp_path / "policy.toml").write_text(f'[[rule]]\nmetric = "uq_auc"\nat_least = {limit}\n')
        body, names = script()
        given = {"policy": "policy.toml", "predictions": "my preds.parquet", "junit": "gate.xml"}
        given |= {"baseline": "", "options": "", "allow-unclear": "false", **more}
        env = {name: given[what] for name, what in names.items() if what in given}
        env |= {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "GITHUB_ACTIONS": "true", "PYTHONUTF8": "1"}
        env |= {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
        # As GitHub does with `shell: bash`.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", body]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, encoding="utf-8", check=False)
        return done, (tmp_path / "output").read_text().splitlines()[-1]

    return run


def test_every_input_that_the_step_uses_is_declared():
    text = ACTION.read_text()
    declared = re.findall(r"^  ([\w-]+):$", text.split("\noutputs:")[0], re.M)
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(declared)
    assert "${{" not in script()[0]  # an input in the script itself could be a command


def test_the_step_passes_fails_or_cannot_tell_as_the_command_does(judged, tmp_path):
    done, output = judged(0.6, options="--quiet")
    assert (done.returncode, output, done.stdout) == (0, "code=0", "")
    done, output = judged(0.99)
    assert (done.returncode, output) == (1, "code=1")
    assert "::error title=uqeval gate%3A fail::" in done.stdout
    assert (tmp_path / "gate.xml").exists()
    summary = (tmp_path / "summary.md").read_text()
    assert summary.count("### ") == 2
    done, output = judged(0.75, options="--seed 1 --level-is-no-option")
    assert (done.returncode, output) == (2, "code=2")


def test_too_few_rows_to_tell_stops_the_job_unless_it_is_allowed(judged):
    done, output = judged(0.76)
    assert (done.returncode, output) == (3, "code=3")
    done, output = judged(0.76, **{"allow-unclear": "true"})
    assert (done.returncode, output) == (0, "code=3")
