"""The page of a monitor in a real browser: charts beside each other where there is room, nothing cut off on a phone."""

from __future__ import annotations

import numpy as np
import pytest

from uqeval.decide import Threshold
from uqeval.monitor import Batch, Options, opened
from uqeval.pages.monitor import monitor_page

pytestmark = pytest.mark.slow
PROMISE = Threshold.from_value(0.5, max_risk=0.1)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitor")
    rng = np.random.default_rng(0)
    with opened(folder / "state", PROMISE, Options(level=0.95, key="id", by="site"), None) as monitor:
        for look in range(5):
            error = (rng.random(80) < 0.05) * 1.0
            error[::2] = look > 2
            rows = {"score": rng.random(80), "error": error, "groups": ("<b>bad</b>", "a long name " * 4) * 40}
            monitor.add(Batch(f"{look}.csv", ids=tuple(f"{look}-{k}" for k in range(80)), **rows))
        text = monitor_page(PROMISE, monitor.status, monitor.looks)
    (folder / "page.html").write_text(text, encoding="utf-8")
    return folder / "page.html"


@pytest.mark.parametrize(("width", "beside"), [(1280, True), (960, True), (390, False)])
def test_the_two_charts_of_a_chain_stand_side_by_side_where_there_is_room(browser, page_file, width, beside):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(page_file.as_uri())
    figures = page.locator("figure.card")
    assert figures.count() == 3  # all rows, and two groups
    for k in range(3):
        first, second = (figures.nth(k).locator("svg").nth(i).bounding_box() for i in (0, 1))
        assert (abs(first["y"] - second["y"]) < 2) == beside
        assert (second["y"] > first["y"] + first["height"] / 2) != beside
        for box in (first, second):
            assert box["width"] > (300 if width < 900 else 0.35 * width)
            assert box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
