"""The documentation: every example runs and prints what its page says, every public name and command has its place."""

from __future__ import annotations

import ast
import contextlib
import doctest
import html.parser
import importlib
import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uqeval as uq
from commands import call
from uqeval.datasets.files import example_files
from uqeval.pages.paper import find_browser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if not path.parts[-2].startswith("_"))]
PAGES = [path for path in PAGES if not any(part.startswith("_") for part in path.relative_to(ROOT).parts)]
MODULES = ("", "truth", "scores", "metrics", "inference", "decide", "distributed", "plot", "datasets", "gate")
MODULES = (*MODULES, "schemas")
EXTRAS = {
    "methods": ["torch", "sklearn.base"],
    "torch": ["torch", "torchmetrics"],
    "sklearn": ["sklearn.base"],  # "sklearn" alone could be the folder of our tests
    "integrations": ["mlflow", "pytorch_lightning"],
}
BUILD = "-W --keep-going -b html docs"

_FENCE = re.compile(r"^```(?P<kind>[^\n`]*)\n(?P<body>.*?)^```[ \t]*$", re.M | re.S)
_ARROW = re.compile(r"#(?:\s*|.*\s{2})→\s*(?P<value>.+?)\s*$")  # "# → 0.5", "# in words  → 0.5"
_EXIT = re.compile(r"#.*exits with (?P<code>\d)")
_LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# ---- examples -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: Python, or calls of the command line; and what it prints, where the page says."""

    kind: str
    body: str
    line: int
    printed: str | None


def blocks_of(text: str) -> list[Block]:
    found = list(_FENCE.finditer(text))
    result = []
    for k, match in enumerate(found):
        kind, body = match["kind"].strip(), match["body"]
        after = found[k + 1] if k + 1 < len(found) else None
        # An output stands right behind what prints it.
        follows = (
            after is not None and after["kind"].strip() == "text" and not text[match.end() : after.start()].strip()
        )
        printed = after["body"] if after is not None and follows else None
        line = text.count("\n", 0, match.start()) + 2
        if kind == "python" or (kind in ("", "sh") and _calls(body)):
            result.append(Block(kind or "sh", body, line, printed))
    return result


def _calls(body: str) -> list[str]:
    return [line for line in body.splitlines() if line.startswith("uqeval ")]


_ITS_PART = {"sklearn": "sklearn.base"}  # "sklearn" alone could be the folder of our tests


def missing_packages(blocks: list[Block]) -> list[str]:
    """Packages that the examples import and that are not installed."""
    tops = set()
    for block in blocks:
        for node in ast.walk(ast.parse(block.body if block.kind == "python" else "")):
            if isinstance(node, ast.Import):
                tops |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                tops.add(node.module.split(".")[0])
    if any(block.kind == "python" and ".methods." in block.body for block in blocks):
        tops.add("torch")
    return sorted(name for name in tops if importlib.util.find_spec(_ITS_PART.get(name, name)) is None)


def run_python(block: Block, page: str, namespace: dict[str, Any]) -> list[str]:
    """Runs a block; what came out differently from what the page says."""
    problems, out, rows = [], io.StringIO(), block.body.splitlines()
    with contextlib.redirect_stdout(out):
        for node in ast.parse(block.body).body:
            where = f"{page}:{block.line + node.lineno - 1}"
            said = _ARROW.search(rows[node.end_lineno - 1])
            ast.increment_lineno(node, block.line - 1)
            if not isinstance(node, ast.Expr):
                exec(compile(ast.Module([node], []), page, "exec"), namespace)
                if said:
                    problems.append(f"{where}: only an expression can have a value")
                continue
            value = eval(compile(ast.Expression(node.value), page, "eval"), namespace)
            if said and not agrees(said["value"], value):
                problems.append(f"{where}: the page says {said['value']}, it is {value!r}")
    if block.printed is not None and not doctest.OutputChecker().check_output(block.printed, out.getvalue(), _LOOSE):
        problems.append(f"{page}:{block.line}: prints\n{out.getvalue()}")
    return problems


def agrees(said: str, value: Any) -> bool:
    """Whether a page's text is the value, floats rounded to the digits that the page gives."""
    if repr(value) == said or (isinstance(value, str) and value == said):
        return True
    try:
        return _same(ast.parse(said, mode="eval").body, said, value)
    except SyntaxError:
        return False


def _same(node: ast.expr, said: str, value: Any) -> bool:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(node, ast.Tuple | ast.List):
        if not isinstance(value, list | tuple) or len(value) != len(node.elts):
            return False
        return all(_same(part, said, item) for part, item in zip(node.elts, value, strict=True))
    text = ast.get_source_segment(said, node) or ""
    if isinstance(value, float) and re.fullmatch(r"-?\d+\.\d+", text):
        return f"{value:.{len(text.partition('.')[2])}f}" == text
    return repr(value) == text


def run_console(block: Block, page: str, studies: bool = False) -> list[str]:
    """Runs the commands; those that reproduce a study only up to their options, unless they are asked for."""
    problems, out = [], ""
    for line in _calls(block.body):
        said, words = _EXIT.search(line), shlex.split(line, comments=True)[1:]
        if words[0] == "reproduce":
            words += ["--seeds", "1"] * ("--seeds" in words) if studies else ["--help"]
        done = call(*words)
        if done.code == 2 and "--pdf" in words and not has_browser():  # told, then done without
            assert "a PDF is printed by Chromium" in done.err
            done = call(*without_pdf(words))
        out += done.out + done.err
        if done.code != int(said["code"] if said else 0):
            problems.append(f"{page}:{block.line}: {line}\nleft with {done.code}: {done.err or done.out}")
    if block.printed is not None and not doctest.OutputChecker().check_output(block.printed, out, _LOOSE):
        problems.append(f"{page}:{block.line}: prints\n{out}")
    return problems


def has_browser() -> bool:
    try:
        find_browser()
    except uq.InputError:
        return False
    return True


def without_pdf(words: list[str]) -> list[str]:
    at = words.index("--pdf")
    return words[:at] + words[at + 2 :]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of, as a reader gets them: `uqeval demo --files`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "88")
    example_files(tmp_path)
    return tmp_path


def with_studies(path: Path) -> bool:
    return "\nuqeval reproduce" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "studies"),
    [
        *((path, False) for path in PAGES),
        *(pytest.param(path, True, marks=pytest.mark.slow) for path in PAGES if with_studies(path)),
    ],
    ids=lambda value: name_of(value) if isinstance(value, Path) else "studies" if value else "",
)
def test_examples_of_the_page_run_and_print_what_it_says(path, studies, folder):
    page, blocks = name_of(path), blocks_of(path.read_text(encoding="utf-8"))
    if absent := missing_packages(blocks):
        pytest.skip(f"the examples of {page} need {', '.join(absent)}")
    namespace = {"__name__": "__main__"}
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", uq.UQWarning)  # as a reader sees them: not as errors
        warnings.filterwarnings("ignore", module=r"mlflow|pytorch_lightning|lightning_fabric|torch\.")  # of each other
        for block in blocks:
            run = run_python(block, page, namespace) if block.kind == "python" else run_console(block, page, studies)
            problems += run
    assert not problems, "\n".join(problems)


def test_a_wrong_value_or_output_is_noticed():
    wrong = Block("python", "x = 2\nx / 3  # → 0.68\nprint(x)\n", 7, "3\n")
    found = run_python(wrong, "page.md", {})
    assert [problem.split(" ")[0] for problem in found] == ["page.md:8:", "page.md:7:"]
    right = Block("python", "x = 2\n(x / 3, [x])  # → (0.667, [2])\nprint(x)\n", 7, "2\n")
    assert run_python(right, "page.md", {}) == []
    assert run_console(Block("sh", "uqeval doctor  # exits with 1\n", 1, None), "page.md")


# ---- completeness ---------------------------------------------------------------------------------------------


def documented() -> set[str]:
    """Full names of what the API pages describe."""
    names, module = set(), ""
    for path in sorted((DOCS / "api").glob("*.md")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if found := re.match(r"\.\. (currentmodule|module|automodule|auto\w+):: (\S+)", line):
                kind, name = found.groups()
                if kind in ("currentmodule", "module"):
                    module = name
                if kind != "currentmodule":
                    names.add(name if name.startswith("uqeval") else f"{module}.{name}")
    return names


def resolve(name: str) -> Any:
    parts = name.split(".")
    value: Any = importlib.import_module(parts[0])
    for k, part in enumerate(parts[1:], 2):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(".".join(parts[:k]))
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("module", [*MODULES, *EXTRAS])
def test_every_public_name_is_in_the_api_reference(module):
    for package in EXTRAS.get(module, ()):
        pytest.importorskip(package)
    home = importlib.import_module(f"uqeval.{module}".rstrip("."))
    others = tuple(f"uqeval.{name}" for name in EXTRAS.keys() - {module})
    described = [resolve(name) for name in documented() if not name.startswith(others)]
    absent = [name for name in home.__all__ if not any(getattr(home, name) is value for value in described)]
    if module == "":
        absent = [name for name in absent if name not in EXTRAS]
    assert absent == []


def test_the_api_reference_lists_every_name_at_the_top():
    text = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    assert [name for name in uq.__all__ if not re.search(rf"uqeval\.{name}\b", text)] == []


def test_every_command_has_a_section_with_an_example():
    import typer.main

    from uqeval.cli.main import make_app

    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name in typer.main.get_command(make_app()).commands:
        _, _, section = text.partition(f"\n## uqeval {name}\n")
        section = section.partition("\n## ")[0]
        assert f"\nuqeval {name}" in section, f"cli.md has no section, or no example, for uqeval {name}"
        assert f"_made/help/{name}.md" in section


def test_every_chart_is_shown_or_named():
    text = (DOCS / "charts.md").read_text(encoding="utf-8")
    assert [name for name in uq.plot.__all__ if f"uq.plot.{name}(" not in text] == []


def checked(text: str) -> bool:
    return any(_ARROW.search(line) for block in blocks_of(text) for line in block.body.splitlines())


def test_every_correction_has_a_runnable_cell():
    text = (DOCS / "theory" / "corrections.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    numbered = [part for part in sections if re.match(r"\d+\.", part)]
    assert len(numbered) == 13
    assert [part.splitlines()[0] for part in numbered if not checked(part)] == []


def test_the_benchmark_page_is_made_from_its_results():
    pytest.importorskip("benchmarks")
    pytest.importorskip("psutil")
    from benchmarks.__main__ import page, readme_table

    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    made = page(results).splitlines()  # may have headings of tasks that were not timed yet
    assert [
        line for line in (DOCS / "benchmarks.md").read_text(encoding="utf-8").splitlines() if line not in made
    ] == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"<!-- bench -->\n{readme_table(results)}\n<!-- /bench -->" in readme


# ---- the site -------------------------------------------------------------------------------------------------


class Loaded(html.parser.HTMLParser):
    """Addresses that a browser fetches by itself when it opens the page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.found.append(given.get("src") or "")
        if tag == "link" and given.get("rel") not in ("canonical", "author", "next", "prev", "index", "search"):
            self.found.append(given.get("href") or "")


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    assert f"sphinx-build {BUILD} docs/_build/html" in (ROOT / "Makefile").read_text(encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", *BUILD.split(), str(tmp_path / "html"), "-d", str(tmp_path / "trees")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "example-report.html").exists()
    for path in (tmp_path / "html").rglob("*.html"):
        page = Loaded()
        page.feed(path.read_text(encoding="utf-8"))
        assert [address for address in page.found if re.match(r"(https?:)?//", address)] == [], path.name
    for path in (tmp_path / "html").rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", text), path.name


def test_the_symbols_are_those_that_the_papers_pdf_prints():
    pytest.importorskip("latex2mathml")
    from latex2mathml.converter import convert

    from uqeval.reproduce.names import SIGNS

    # Computer Modern draws \phi straight (U+03D5) and \varphi curled (U+03C6).
    straight, curled = "\u03d5", "\u03c6"
    assert list(SIGNS.values()) == [straight, curled]
    assert f"&#x{ord(straight):05X};" in convert(r"\phi")
    assert f"&#x{ord(curled):05X};" in convert(r"\varphi")
    bends = re.search(r"_MACROS = (.*)", (DOCS / "conf.py").read_text(encoding="utf-8"))
    assert bends is not None
    assert "phi" not in bends[1]
    sources = [path for kind in ("py", "toml", "j2", "js") for path in (ROOT / "src").rglob(f"*.{kind}")]
    for path in (*PAGES, *sources):
        text = " ".join(path.read_text(encoding="utf-8").split())
        mirrored = rf"[Ee]rror probability\W{{0,3}}{curled}|misalignment\W{{0,3}}{straight}|chance of error|commitment"
        mirrored += rf"|(sgn\(|1 − 2){curled}"  # the sign, and the reference, of the top-label C-index
        assert not re.search(mirrored, text), path


def test_readmes_first_screen_has_one_command_one_picture_one_number_one_line_on_the_paper_and_a_way_for_each_user():
    screen, _, _ = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Try it")
    assert [block["body"].split("#")[0].strip() for block in _FENCE.finditer(screen)] == ["make demo"]
    (picture,) = re.findall(r"!\[.*?\]\((.*?)\)", screen)
    assert (ROOT / picture).exists()
    best = uq.evaluate(uq.datasets.example(), scores=["gap_to_certain"], metrics=["uq_auc"])["gap_to_certain", "uq_auc"]
    assert f"here it is {best.value:.3f}, and at least {best.low:.3f} with 95% confidence" in " ".join(screen.split())
    assert len([line for line in screen.splitlines() if "docs/reproduction.md" in line]) == 1
    for page in (screen, (DOCS / "index.md").read_text(encoding="utf-8")):
        for user in ("file", "torch", "llm", "clusters"):
            assert f"howto/{user}.md)" in page


def test_the_page_of_dependencies_has_each_that_pyproject_asks_for_and_no_other_with_its_extras():
    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements} - {"uqeval"}

    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    of_developers = {"dev", "bench", "docs", "test"}
    core, extras = pyproject["project"]["dependencies"], pyproject["project"]["optional-dependencies"]
    users = {name: set() for extra in extras.keys() - of_developers for name in names(extras[extra])}
    for name, of in users.items():
        of |= {extra for extra in extras.keys() - of_developers if name in names(extras[extra])}
    ours = names(pyproject["build-system"]["requires"]).union(*(names(extras[e]) for e in of_developers))
    always, more, others = (
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")][1:]
        for section in (DOCS / "dependencies.md").read_text(encoding="utf-8").split("\n## ")[1:4]
    )
    assert {row[0] for row in always} == names(core)
    assert {row[0]: set(row[1].split(", ")) for row in more} == users
    assert {row[0] for row in others} == ours - users.keys() - names(core)
    for row in (*always, *more, *others):
        assert all(row), row  # a purpose, a licence and a size
        assert re.match(r"\d", row[-1]), row


def test_the_inventory_has_every_figure_and_table_of_the_paper_and_names_that_exist():
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in (DOCS / "inventory.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| item")
    ]
    assert len(rows) > 50
    for item, where, state, why in rows:
        assert state in ("works", "in part", "not"), item
        assert where or state == "not", item
        assert why or state == "works", item  # what does not work says why
        for name in re.findall(r"`((?:truth|metrics|scores|datasets|inference)\.\w+)", where):
            part, _, rest = name.partition(".")
            assert hasattr(getattr(uq, part), rest), name
    items = " ".join(row[0] for row in rows)
    for panel in ("1 (a, e)", "1 (b, f)", "1 (c, g)", "1 (d, h)", "2", "3 (a)", "3 (b, c)", "3 (d)", "4", "5", "6"):
        assert f"Figure {panel}" in items
    for dataset in ("Synth.", "CIFAR10-H", "ReaL-ImageNet", "OASST2"):
        assert f"Table 1, {dataset}" in items
    drawn = set(re.findall(r"`(\w+)`", " ".join(row[1] for row in rows)))
    for figure in ("metric_vs_kendall", "metric_vs_kendall_by_method", "dataset", "phi_and_varphi", "risk_control"):
        assert figure in drawn
