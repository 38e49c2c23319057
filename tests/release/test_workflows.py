"""The GitHub workflows name what exists, may do little, and publish only what was tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
FLOWS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.yml"))}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", name)]
JOBS = [(f"{flow}.{name}", job) for flow, found in FLOWS.items() for name, job in found["jobs"].items()]
STEPS = [(name, step) for name, job in JOBS for step in job.get("steps", ())]
ON_TAG = "startsWith(github.ref, 'refs/tags/v')"


def test_there_are_workflows_for_tests_wheels_and_docs():
    assert set(FLOWS) == {"tests", "wheels", "docs"}


def test_every_make_target_and_file_that_a_step_names_exists():
    targets = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    called = [target for _, step in STEPS for target in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))]
    assert set(called) <= targets
    assert {"lint", "test", "test-minimal", "test-lowest", "docs"} <= set(called)
    for pattern in FLOWS["wheels"][True]["pull_request"]["paths"]:  # YAML takes `on` for true
        assert list(ROOT.glob(pattern)), pattern
    extras = [extra for _, step in STEPS for extra in re.findall(r'"\.\[(\w+)\]"', step.get("run", ""))]
    assert extras == ["test"]
    assert "test" in PROJECT["project"]["optional-dependencies"]


def test_tests_and_wheels_are_for_every_python_that_the_package_is_for():
    matrix = FLOWS["tests"]["jobs"]["linux"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp{name.replace('.', '')}-*" for name in PYTHONS]
    for _, step in STEPS:
        version = step.get("with", {}).get("python-version", PYTHONS[0])
        assert version in [*PYTHONS, "${{ matrix.python }}"]


def test_each_kind_of_dependencies_runs_its_own_tests_and_the_lowest_run_on_the_lowest_python():
    job = FLOWS["tests"]["jobs"]["linux"]
    matrix = job["strategy"]["matrix"]
    assert matrix["include"] == [{"python": PYTHONS[0], "dependencies": "lowest"}]
    ran = {}
    for step in job["steps"]:
        if found := re.fullmatch(r"matrix\.dependencies == '(\w+)'", step.get("if", "")):
            ran[found[1]] = step["run"]
    assert set(ran) == {*matrix["dependencies"], "lowest"}
    assert len(set(ran.values())) == 3


def test_a_workflow_may_read_and_only_publishing_may_identify_itself():
    for name, flow in FLOWS.items():
        assert flow["permissions"] == {"contents": "read"}, name
        assert "concurrency" in flow, name
    more = {name: job["permissions"] for name, job in JOBS if "permissions" in job}
    assert more == {"wheels.publish": {"id-token": "write"}}
    for _, step in STEPS:
        assert "${{" not in step.get("run", ""), "a value in a script could be a command"
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False
    assert not any("secrets." in path.read_text(encoding="utf-8") for path in FOLDER.iterdir())


def test_every_job_ends_and_every_action_has_a_major_version():
    for name, job in JOBS:
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file(), name
        else:
            assert 0 < job["timeout-minutes"] <= 60, name
    used = {step["uses"] for _, step in STEPS if "uses" in step}
    publisher = "pypa/gh-action-pypi-publish@release/v1"
    assert publisher in used
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", name) for name in used - {publisher})
    versions = {}
    for name in used:
        assert versions.setdefault(name.partition("@")[0], name) == name, "one version of each"


def test_only_a_tag_is_published_after_the_tests_the_archive_and_all_wheels():
    jobs = FLOWS["wheels"]["jobs"]
    publish = jobs["publish"]
    assert publish["if"] == jobs["tests"]["if"] == ON_TAG
    assert set(publish["needs"]) == set(jobs) - {"publish"}
    assert jobs["tests"]["uses"] == "./.github/workflows/tests.yml"
    assert "workflow_call" in FLOWS["tests"][True]
    given = [step["with"] for job in jobs.values() for step in job.get("steps", ()) if "with" in step]
    names = [options["name"] for options in given if "name" in options]
    (taken,) = (options["pattern"] for options in given if "pattern" in options)
    assert len(names) == 2
    assert all(name.startswith(taken.rstrip("*")) for name in names)
    systems = " ".join(jobs["wheels"]["strategy"]["matrix"]["os"])
    for system in ("ubuntu-24.04 ", "-arm", "macos-15-intel", "macos-15 ", "windows"):
        assert system in f"{systems} "
