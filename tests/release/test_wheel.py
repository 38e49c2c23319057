"""What is published: the wheel holds all that the package reads and no more, the archive what it is built from."""

from __future__ import annotations

import subprocess
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import uqeval

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ONLY_FOR_BUILDING = {".cpp", ".hpp"}


def package_files():
    """The files of the package as they lie in the repository, without what Python or a compiler put there."""
    files = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(ROOT / "src").as_posix() for path in files if path.suffix not in (".so", ".pyd")}


def built(kind, folder, monkeypatch):
    """A wheel without native kernels, or a source archive."""
    backend = pytest.importorskip("scikit_build_core.build")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("UQEVAL_PURE", "1")
    return folder / getattr(backend, f"build_{kind}")(str(folder))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield built("wheel", tmp_path_factory.mktemp("wheel"), monkeypatch)


def test_the_wheel_has_every_file_of_the_package_but_the_cpp_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = {name for name in names if ".dist-info/" in name}
    assert names - info == {name for name in package_files() if Path(name).suffix not in ONLY_FOR_BUILDING}
    parts = {name.partition("/")[2] for name in info}
    assert parts == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_every_file_of_the_package_that_is_not_python_is_read_by_somebody():
    sources = {
        name: (ROOT / "src" / name).read_text(encoding="utf-8") for name in package_files() if name[-3:] == ".py"
    }
    templates = [path.read_text(encoding="utf-8") for path in (ROOT / "src/uqeval/pages/templates").glob("*.j2")]
    words = "\n".join([*sources.values(), *templates])
    for name in package_files() - sources.keys():
        path = Path(name)
        if path.suffix in ONLY_FOR_BUILDING or path.name == "py.typed":
            continue
        by_stem = path.parent.name == "schemas"  # a schema is read by the name of its output
        assert (f'"{path.stem}"' if by_stem else path.name) in words, f"nobody reads {name}"


def test_a_wheel_without_native_kernels_is_for_every_platform_and_says_what_pyproject_says(wheel):
    assert wheel.name == f"uqeval-{uqeval.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        (at,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(at).decode())
        entries = archive.read(at.replace("METADATA", "entry_points.txt")).decode()
    project = PYPROJECT["project"]
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    always = {str(one) for one in needed if one.marker is None}
    assert always == {str(Requirement(text)) for text in project["dependencies"]}
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_payload().startswith("# uqeval")
    for group in ("inspect_ai", "pytest11"):
        assert f"[{group}]" in entries
    assert f"uqeval = {project['scripts']['uqeval']}" in entries


def test_the_source_archive_holds_the_repository_and_nothing_that_git_ignores(tmp_path, monkeypatch):
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.splitlines()
    with tarfile.open(built("sdist", tmp_path, monkeypatch)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == {name for name in tracked if (ROOT / name).exists()} | {"PKG-INFO"}
