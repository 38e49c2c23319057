"""The report in a real browser: offline, from a file, by keyboard, on a phone, in the dark, and with hostile names."""

from __future__ import annotations

import json
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import uqeval as uq
from uqeval.decide.threshold import shown as printed
from uqeval.pages.words import count, percent

pytestmark = pytest.mark.slow

EVIL = "</script><img src=x onerror=alert(1)>"
SCORES = ["entropy", "gap_to_certain", "mutual_information", "vote_entropy"]
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}


def quiet(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


@pytest.fixture(scope="module")
def example():
    return quiet(uq.evaluate, uq.datasets.example(), scores=SCORES)


@pytest.fixture(scope="module")
def report(example, tmp_path_factory):
    return uq.report(example, tmp_path_factory.mktemp("report") / "report.html", title="Handwritten digits")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    rng = np.random.default_rng(0)
    hard = rng.random(600)
    error = (rng.random(600) < 0.3 * hard).astype(int)
    labels = np.arange(600) % 2
    probs = np.where(error == labels, 0.5 - 0.4 * (1 - hard), 0.5 + 0.4 * (1 - hard))
    pred = uq.Predictions(
        labels,
        probs=probs,
        scores={f"{EVIL}{k}": hard + rng.normal(0, 0.2, 600) for k in range(2)},
        classes=[f"{EVIL}no", f"{EVIL}yes"],
        groups=[f"{EVIL}{'ab'[k % 2]}" for k in range(600)],
        ids=[f"{EVIL}{k}" for k in range(600)],
    )
    ev = quiet(uq.evaluate, pred, metrics=["uq_auc", "uq_c_index", "accuracy", "ece"])
    columns = {f"{EVIL} column": [f"{EVIL} value"] * 600}
    return uq.report(ev, tmp_path_factory.mktemp("hostile") / "report.html", title=EVIL, columns=columns)


@contextmanager
def opened(browser, path, viewport=DESKTOP, **options):
    """The page, drawn, and all that should not happen while it is open."""
    context = browser.new_context(viewport=viewport, offline=True, **options)
    page = context.new_page()
    bad = []
    page.on("console", lambda message: bad.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: bad.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (bad.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda asked: asked.url == path.as_uri() or bad.append(f"request: {asked.url[:200]}"))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-charts=ready]", state="attached", timeout=60_000)
    yield page, bad
    context.close()


def drag(page, slider, to):
    page.locator(slider).fill(str(to))


def settle(page):
    """Waits until nothing moves: charts are drawn again when their part of the page opens."""
    page.evaluate(
        """async () => {
            const height = () => document.documentElement.scrollHeight;
            const wait = () => new Promise(done => setTimeout(done, 100));
            for (let same = 0, last = height(), k = 0; same < 5 && k < 100; k++) {
                await wait();
                same = height() === last ? same + 1 : 0;
                last = height();
            }
        }"""
    )


def tips(page, chart, most=6):
    """What the tips of some marks of a chart say."""
    marks, found = page.locator(f"#chart-{chart} svg .role-mark path"), []
    for k in range(min(most, marks.count())):
        marks.nth(k).scroll_into_view_if_needed()
        box = marks.nth(k).bounding_box()  # where it is now: a step further it may have moved
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_timeout(50)
        found += page.locator("#vg-tooltip-element.visible").all_inner_texts()
    return found


def texts(page, *ids):
    return [page.locator(f"#{name}").inner_text() for name in ids]


def threshold(example, name, target):
    return quiet(
        uq.choose_threshold,
        example.source.score(name),
        example.source.error,
        max_risk=target,
        level=example.level,
        n_scores=len(example.distinct),
    )


def test_it_opens_offline_without_errors_or_requests_and_draws_all_charts(browser, report):
    with opened(browser, report) as (page, bad):
        charts = page.locator("[data-chart]")
        assert charts.count() >= 9
        for k in range(charts.count()):
            assert charts.nth(k).locator("svg").count() == 1, charts.nth(k).get_attribute("id")
        # Resizing and opening everything draws again.
        page.set_viewport_size(PHONE)
        page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        page.wait_for_timeout(800)
        page.emulate_media(media="print")
        page.wait_for_timeout(200)
        assert bad == []


def test_the_explorer_shows_what_choose_threshold_gives_at_ten_positions(browser, report, example):
    with opened(browser, report) as (page, bad):
        data = json.loads(page.locator("#uq-data").text_content())
        targets = data["explorer"]["risks"]
        seen = set()
        for name in ("mutual_information", "vote_entropy"):
            page.locator("#ex-score").select_option(label=name)
            for k in np.linspace(0, len(targets) - 1, 10).astype(int):
                drag(page, "#ex-target", k)
                t = threshold(example, name, targets[k])
                seen.add(t.feasible)
                shown = texts(page, "b-threshold", "b-coverage", "b-accepted", "b-errors", "b-risk", "b-bound")
                exact = page.locator("#b-threshold").get_attribute("data-value")
                said = page.locator("#ex-b-out").inner_text()
                assert said.startswith(percent(targets[k]))
                if not t.feasible:
                    assert shown[0] == "nothing"
                    assert exact == ""
                    more = "would not help" if t.rows_needed is None else f"about {count(t.rows_needed)} rows needed"
                    assert "nothing can be certified; " in said
                    assert more in said
                    continue
                assert float(exact) == t.value
                assert shown == [
                    printed(t.value, 6),
                    percent(t.coverage),
                    count(t.n_accepted),
                    count(t.errors_accepted),
                    percent(t.risk),
                    f"at most {percent(t.max_risk)}",
                ]
        assert seen == {True, False}
        assert bad == []


def test_the_other_slider_shows_the_risk_map(browser, report, example):
    with opened(browser, report) as (page, bad):
        page.locator("#ex-score").select_option(label="entropy")
        found = uq.risk_map(example.source.score("entropy"), example.source.error, level=example.level)
        for k in np.linspace(0, len(found) - 1, 10).astype(int):
            drag(page, "#ex-coverage", k)
            assert page.locator("#ex-a-out").inner_text() == percent(found.coverage[k])
            assert texts(page, "a-threshold", "a-accepted", "a-errors", "a-risk", "a-high", "a-band") == [
                printed(found.threshold[k], 6),
                count(found.accepted[k]),
                count(found.bad[k]),
                percent(found.risk[k]),
                percent(found.high[k]),
                percent(found.band_high[k]),
            ]
        assert bad == []


def test_the_sliders_and_the_skip_link_obey_the_keyboard(browser, report):
    with opened(browser, report) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        slider = page.locator("#ex-target")
        slider.focus()
        before = int(slider.input_value()), page.locator("#ex-b-out").inner_text()
        page.keyboard.press("ArrowRight")
        assert int(slider.input_value()) == before[0] + 1
        assert page.locator("#ex-b-out").inner_text() != before[1]
        assert slider.get_attribute("aria-valuetext") in page.locator("#ex-b-out").inner_text()
        page.keyboard.press("Home")
        assert slider.input_value() == "0"


def test_hostile_names_stay_text(browser, hostile):
    with opened(browser, hostile) as (page, bad):
        assert page.locator("h1").inner_text() == EVIL
        assert page.title() == EVIL
        page.locator("#ex-score").select_option(index=1)
        drag(page, "#ex-coverage", 3)
        page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        settle(page)
        # The tips of the charts are made of names too.
        for chart in ("groups", "forest"):
            assert any(EVIL in tip for tip in tips(page, chart)), chart
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 3
        assert page.evaluate(
            "[...document.querySelectorAll('*')].every(e => ![...e.attributes].some(a => /^on/.test(a.name)))"
        )
        for part in (f"{EVIL}0", f"{EVIL}yes", f"{EVIL}a", f"{EVIL} column", f"{EVIL} value"):
            short = page.locator("abbr").and_(page.get_by_title(part, exact=True))
            assert page.get_by_text(part, exact=True).or_(short).first.is_visible()
        assert bad == []


def test_a_phone_has_no_sideways_scroll(browser, request):
    for which in ("report", "hostile"):
        with opened(browser, request.getfixturevalue(which), PHONE) as (page, bad):
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
            page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert bad == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious(browser, report, axe, scheme, viewport):
    with opened(browser, report, viewport, color_scheme=scheme) as (page, _):
        page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        page.wait_for_timeout(300)
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        serious = [
            (item["id"], item["impact"], [node["html"][:160] for node in item["nodes"][:3]])
            for item in found
            if item["impact"] in ("serious", "critical")
        ]
        assert serious == []


def test_dark_is_dark_and_light_is_light(browser, report):
    brightness = "(e) => { const c = getComputedStyle(e); return [c.backgroundColor, c.color] }"

    def shade(color):
        return sum(int(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]) / 3

    for scheme, dark in (("dark", True), ("light", False)):
        with opened(browser, report, color_scheme=scheme) as (page, bad):
            back, ink = page.locator("body").evaluate(brightness)
            assert (shade(back) < 60) == dark
            assert (shade(ink) > 180) == dark
            label = page.locator("#chart-roc .role-axis-label text").first
            assert (shade(label.evaluate("(e) => getComputedStyle(e).fill")) > 180) == dark
            assert bad == []


def test_a_comparison_opens_too(browser, example, tmp_path):
    table = example.source
    cmp = uq.compare({name: table.score(name) for name in SCORES}, error=table.error)
    with opened(browser, uq.report(cmp, tmp_path / "cmp.html"), PHONE) as (page, bad):
        assert page.locator("#chart-forest svg").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert bad == []


def test_weighted_rows_open_without_the_certified_slider(browser, example, tmp_path):
    table = example.source
    rng = np.random.default_rng(0)
    scores = {name: table.score(name) for name in SCORES[:2]}
    ev = quiet(uq.evaluate, score=scores, error=table.error, weights=1 + rng.random(example.n))
    with opened(browser, uq.report(ev, tmp_path / "weighted.html")) as (page, bad):
        assert page.locator("#ex-target").count() == 0
        drag(page, "#ex-coverage", 5)
        assert page.locator("#a-risk").inner_text().endswith("%")
        assert bad == []
