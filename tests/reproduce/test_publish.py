"""Every study leaves itself in a folder: tables, figures and a page; from Python as from the command line."""

import csv
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tiny_grid import TINY, TINY_OOD

import commands
import uqeval
from uqeval import datasets, reproduce
from uqeval.reproduce.logits.writer import save_logits

SRC = Path(uqeval.__file__).parent
COUNT = 60
DATA = os.environ.get("UQEVAL_DATA")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """What each study is given: from Python, and on the command line."""
    place = tmp_path_factory.mktemp("given")
    one = TINY.replace("[[8], [6, 4]]", "[[6]]").replace("[0.02, 0.05]", "[0.05]")
    (place / "tiny.toml").write_text(one, encoding="utf-8")
    (place / "ood.toml").write_text(TINY_OOD.replace("[[8], [6, 4]]", "[[6]]"), encoding="utf-8")
    messages = datasets.oasst2_sample(COUNT)
    rng = np.random.default_rng(0)
    for k in range(5):
        logits = (0.5 + 0.4 * k) * np.log(messages.soft_labels + 0.05) + rng.normal(size=(COUNT, 2))
        save_logits(place / "logits", f"bert-{k}", logits, labels=messages.labels, source="test")
    tiny = {"grid": place / "tiny.toml", "seeds": 1, "jobs": 1}
    return {
        "synthetic": (tiny, ("--grid", place / "tiny.toml", "--seeds", 1, "--jobs", 1)),
        "ood": (tiny | {"grid": place / "ood.toml"}, ("--grid", place / "ood.toml", "--seeds", 1, "--jobs", 1)),
        "temperature": ({"seed": 2}, ("--seed", 2)),
        "theorems": ({"populations": 2}, ("--populations", 2)),
        "oasst2": (
            {"predictions": place / "logits", "data": messages},
            ("--predictions", place / "logits", "--sample", COUNT),
        ),
    }


class Page(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.ids = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def assert_same_from_call_and_command(name, options, arguments, tmp_path):
    study = getattr(reproduce, name)(out=tmp_path / "call", **options)
    commands.succeed("reproduce", name.replace("_", "-"), "--out", tmp_path / "command", "--quiet", *arguments)
    again = study.publish(tmp_path / "again")
    kept = {"store.sqlite"} & names(tmp_path / "call")  # of the run, not of the study
    assert names(tmp_path / "call") == names(tmp_path / "command") == names(again) | kept

    tables = ["table.json", "table.csv", "table.md"] + ["models.csv"] * hasattr(study, "failures")
    for table in tables:
        content = (again / table).read_bytes()
        assert (tmp_path / "call" / table).read_bytes() == (tmp_path / "command" / table).read_bytes() == content
    assert json.loads((again / "table.json").read_text(encoding="utf-8"))["study"] == name
    with open(again / "table.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(study.frame_rows()) == len(study.to_frame("pandas"))
    assert (again / "table.md").read_text(encoding="utf-8") == study.markdown()

    figures = {path.stem for path in (again / "figures").glob("*.svg")}
    assert figures
    assert figures == {path.stem for path in (again / "figures").glob("*.png")}
    for path in (tmp_path / "call", tmp_path / "command", again):
        html = (path / "index.html").read_text(encoding="utf-8")
        assert {*figures, "short", "table", "notes", "settings", "timing"} <= set(Page(html).ids)
        assert "<script" not in html
        times = json.loads((path / "timing.json").read_text(encoding="utf-8"))["seconds"]
        assert {"figures", "page"} <= set(times) == set(study.timing.seconds)
        for stage in times.keys() - {"page"}:
            assert f">{stage}</th>" in html
    assert not any(path.name.endswith(".tmp") for path in again.rglob("*"))
    assert "<table>" in study._repr_html_()


def test_every_study_publishes_tables_figures_and_a_page_as_its_command_does(given, tmp_path, undrawn):
    pytest.importorskip("torch")
    for name, (options, arguments) in given.items():
        assert_same_from_call_and_command(name, options, arguments, tmp_path / name)


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="UQEVAL_DATA is not set")
def test_studies_of_images_publish_as_their_commands_do(tmp_path, undrawn):
    real = datasets.imagenet_real(DATA)
    rows = np.flatnonzero(real.rated)[:200]
    for k in range(4):
        logits = np.random.default_rng(k).normal(size=(200, 1000)).astype(np.float32)
        logits[np.arange(200), real.labels[rows]] += 2 + k
        about = {"labels": real.labels, "rows": rows, "source": "test"}
        save_logits(tmp_path / "logits", f"resnet{k}", logits, **about)
    images = Path(DATA) / "cifar10h"
    for name, paths in {
        "cifar10h": [images / "ensemble_logits.npz", images / "mc_dropout_logits.npz"],
        "imagenet_real": [tmp_path / "logits"],
    }.items():
        arguments = ["--data", DATA, *(part for path in paths for part in ("--predictions", path))]
        assert_same_from_call_and_command(name, {"predictions": paths, "data": DATA}, arguments, tmp_path / name)


def assert_drawn(name, options, out):
    getattr(reproduce, name)(out=out, **options)
    figures = list((out / "figures").glob("*.svg"))
    assert figures
    for path in figures:
        assert "<path" in path.read_text(encoding="utf-8")
        assert path.with_suffix(".png").stat().st_size > 5000


def test_the_figure_of_the_theorems_can_be_drawn(given, tmp_path):
    assert_drawn("theorems", given["theorems"][0], tmp_path)


@pytest.mark.slow
def test_figures_of_studies_on_real_data_can_be_drawn(given, tmp_path):
    # Those of the synthetic study, temperature among them, are in `test_figures`.
    assert_drawn("oasst2", given["oasst2"][0], tmp_path)


def test_progress_names_its_stage(given):
    told = []
    reproduce.theorems(populations=1, progress=lambda *step: told.append(step))
    reproduce.oasst2(**given["oasst2"][0], progress=lambda *step: told.append(step))
    assert {stage for stage, _, _ in told} == {"checks", "scoring"}
    assert all(done <= total for _, done, total in told)


def test_there_is_one_jinja_environment_and_one_stylesheet():
    made = [path for path in SRC.rglob("*.py") if re.search(r"\bEnvironment\(", path.read_text(encoding="utf-8"))]
    assert made == [SRC / "pages" / "builder.py"]
    assert made[0].read_text(encoding="utf-8").count(" Environment(\n") == 1
    assert [path.name for path in SRC.rglob("*.css")] == ["page.css"]
    assert {path.parent for path in SRC.rglob("*.j2")} == {SRC / "pages" / "templates"}
    tables = [path.name for path in SRC.rglob("*.j2") if "<table" in path.read_text(encoding="utf-8")]
    assert tables == ["parts.html.j2"]
