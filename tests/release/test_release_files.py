"""What is published beside the wheel says what pyproject.toml says, and what it promises of safety holds."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import uqeval
from uqeval.inputs import paths

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def needs(lines):
    """Name → the versions that will do."""
    found = [Requirement(line) for line in lines]
    return {canonicalize_name(one.name): one.specifier for one in found}


def words(text):
    return " ".join(text.split())


def written():
    """The files that users read or run."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    return [*ROOT.glob("*.md"), *pages, *(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.j2")]


# ---- citation, recipe, image -------------------------------------------------------------------------------------


def test_the_citation_has_this_version_and_the_paper_that_the_docs_name():
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load(text_of("CITATION.cff"))
    assert cited["version"] == uqeval.__version__
    assert cited["license"] == PROJECT["project"]["license"]
    assert cited["authors"] == PROJECT["project"]["authors"]
    (paper,) = cited["references"]
    bibtex = words(text_of("docs/howto/paper.md"))
    assert f"{{{paper['title']}}}" in bibtex
    authors = " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"])
    assert f"{{{authors}}}" in bibtex
    assert f"{{{paper['year']}}}" in bibtex
    assert paper["url"] == PROJECT["project"]["urls"]["Paper"]


def test_the_conda_recipe_needs_what_the_wheel_needs_and_builds_this_version():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load(text_of("recipe/recipe.yaml"))
    assert recipe["context"]["version"] == uqeval.__version__
    assert recipe["about"]["summary"] == PROJECT["project"]["description"]
    assert recipe["about"]["license"] == PROJECT["project"]["license"]
    run, host = (needs(recipe["requirements"][part]) for part in ("run", "host"))
    assert run.pop("python") == host.pop("python") == ""
    host.pop("pip")
    assert run == needs(PROJECT["project"]["dependencies"])
    assert host == needs(PROJECT["build-system"]["requires"])
    least = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert recipe["build"]["skip"] == f'match(python, "<{least}")'


def test_the_image_gets_what_the_wheel_is_built_from_and_runs_uqeval_without_rights():
    kept = {line[1:] for line in text_of(".dockerignore").splitlines() if line.startswith("!")}
    project = PROJECT["project"]
    assert kept == {"pyproject.toml", "CMakeLists.txt", "src", "constraints.txt", project["readme"], "LICENSE"}
    assert project["license-files"] == ["LICENSE"]
    assert all((ROOT / name).exists() for name in kept)
    docker = text_of("Dockerfile")
    assert (entry := re.search(r'^ENTRYPOINT \["(.*)"\]$', docker, re.M)) is not None
    assert entry[1] in project["scripts"]
    (user,) = re.findall(r"^USER (\d+)$", docker, re.M)
    assert int(user) > 0
    bases = set(re.findall(r"^FROM python:(3\.\d+)-slim", docker, re.M))
    assert len(bases) == 1  # the environment is copied from one stage to the next
    assert f"Programming Language :: Python :: {bases.pop()}" in project["classifiers"]


# ---- what can be installed ---------------------------------------------------------------------------------------


def test_the_pinned_versions_are_versions_that_pyproject_allows():
    allowed = [Requirement(line) for lines in [PROJECT["project"]["dependencies"], *EXTRAS.values()] for line in lines]
    pins = needs(re.findall(r"^[^#\n].*", text_of("constraints.txt"), re.M))
    for one in allowed:
        for pin in pins.get(canonicalize_name(one.name), ()):
            assert one.specifier.contains(pin.version), f"{one} is pinned to {pin}"


def test_whoever_develops_has_what_the_extra_of_the_tests_has():
    assert needs(EXTRAS["test"]).keys() <= needs(EXTRAS["dev"]).keys()


def test_every_line_to_install_with_names_an_extra_that_exists():
    named = {}
    for path in written():
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"(?:uqeval|\"\.)\[([a-z][a-z,_-]*)\]", text) if "pip install" in text else []
        if "MissingExtra(" in text:
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            missing = [call.args[-1] for call in calls if getattr(call.func, "id", "") == "MissingExtra"]
            found += [last.value for last in missing if isinstance(last, ast.Constant)]
        named |= {extra: path for extras in found for extra in extras.split(",")}
    assert {"torch", "sklearn", "dask", "spark", "remote", "reproduce"} <= set(named)
    for extra, path in named.items():
        assert extra in EXTRAS, f"{path} installs {extra}"


def test_no_page_has_a_place_that_nobody_filled_in():
    gap = re.compile(r"<(?:this|your) repo\w*>|\bTODO\b|\bFIXME\b")
    for path in written():
        assert not gap.search(path.read_text(encoding="utf-8")), path


# ---- what SECURITY.md and docs/versions.md promise ---------------------------------------------------------------


def test_importing_evaluating_and_reporting_opens_no_connection_and_loads_no_pickle(tmp_path):
    code = """
import sys
def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.bind", "pickle.find_class"):
        raise SystemExit(f"{event} {args}")
sys.addaudithook(watch)
import numpy as np, uqeval as uq
np.savez("p.npz", score_a=np.arange(80.0), error=[0, 1, 0, 0] * 20)
ev = uq.evaluate(uq.read_predictions("p.npz"))
uq.Evaluation.from_json(ev.to_json())
uq.report(ev, "p.html")
print(ev["a", "uq_auc"].value)
import socket
socket.create_connection(("localhost", 9))  # would be noticed
"""

    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False)
    assert 0 < float(done.stdout) < 1, done.stderr
    assert done.stderr.startswith("socket.getaddrinfo ('localhost', 9"), done.stderr


def test_the_limit_of_what_may_be_unpacked_is_the_one_that_the_security_page_names():
    page = words(text_of("SECURITY.md"))
    assert f"more than {paths._ALWAYS / 1e9:.0f} GB *and* to more than {paths._AT_MOST} times its size" in page
    assert paths._MOST_GB in page


def test_the_public_variables_are_those_that_the_package_reads():
    row = next(line for line in text_of("docs/versions.md").splitlines() if line.startswith("| environment"))
    promised = set(re.findall(r"UQEVAL_\w+", row))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    assert promised == {name for text in sources for name in re.findall(r"\"(UQEVAL_\w+)\"", text)}
