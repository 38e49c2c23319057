"""The report on paper, without JavaScript, and as wide as a phone, a tablet and a desk: nothing lost, nothing cut."""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings

import numpy as np
import pytest

pytest.importorskip("playwright")

from playwright.sync_api import expect

import uqeval as uq
from uqeval.cli import demo as demo_command
from uqeval.pages.paper import print_pdf

pytestmark = pytest.mark.slow

WIDTHS = (390, 768, 1300)
# What a reader would not see whole: parts beyond the window or their box, and cells whose text is cut.
CUT = """() => {
    const wide = document.documentElement.clientWidth, bad = [];
    const shown = (e) => e.getClientRects().length && !e.closest(".hidden, .skip");
    for (const e of document.querySelectorAll("main *, header *, footer *")) {
        if (!shown(e)) continue;
        const box = e.getBoundingClientRect();
        if (box.width && (box.right > wide + 1 || box.left < -1)) bad.push(`outside: ${e.outerHTML.slice(0, 90)}`);
    }
    for (const e of document.querySelectorAll(".scroll, td, th, .card, figure")) {
        if (shown(e) && e.tagName !== "PRE" && e.scrollWidth > e.clientWidth + 1 && !e.querySelector("pre"))
            bad.push(`cut by ${e.scrollWidth - e.clientWidth}: ${e.outerHTML.slice(0, 120)}`);
    }
    for (const svg of document.querySelectorAll(".chart svg")) {
        if (!shown(svg)) continue;
        const frame = svg.getBoundingClientRect();
        for (const text of svg.querySelectorAll("text")) {
            const box = text.getBoundingClientRect();
            if (text.textContent && (box.left < frame.left - 2 || box.right > frame.right + 2))
                bad.push(`label of ${svg.closest(".chart").id}: ${text.textContent}`);
        }
    }
    for (const text of document.querySelectorAll(".chart .role-legend-label text, .chart .role-axis-label text"))
        if (shown(text) && text.textContent.endsWith("…")) bad.push(`shortened at its end: ${text.textContent}`);
    return [...new Set(bad)].slice(0, 8);
}"""


# What sticks out of the window.
BEYOND = """() => [...document.querySelectorAll(".still, .card, h1, h2, p")].filter((e) => e.getClientRects().length
    && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"""


def quiet(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def demo(folder):
    ev = quiet(uq.evaluate, uq.datasets.example(), metrics=demo_command._METRICS)
    return uq.report(ev, folder / "demo.html", title="Digits: can this uncertainty be trusted?")


@pytest.fixture(scope="module")
def forty(folder):
    rng = np.random.default_rng(0)
    hard = rng.random(1500)
    error = (rng.random(1500) < 0.3 * hard).astype(int)
    scores = {
        f"model-{'abcdefgh'[k % 8]}/layer{k:02d}_temperature-scaled_seed={k}_entropy": hard
        + rng.normal(0, 0.1 + k / 30, 1500)
        for k in range(40)
    }
    metrics = ["uq_auc", "uq_c_index", "aurc", "e_aurc", "augrc", "g_auc", "h_auc", "prr", "naurc", "auarc"]
    ev = quiet(uq.evaluate, score=scores, error=error, loss=error * hard, metrics=metrics)
    return uq.report(ev, folder / "forty.html")


@pytest.fixture
def page_of(browser):
    """Opens a page at a width, with or without JavaScript."""
    contexts = []

    def opened(path, width=1300, script=True):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, java_script_enabled=script
        )
        contexts.append(context)
        page = context.new_page()
        page.goto(path.as_uri())
        if script:
            page.wait_for_selector("html[data-charts=ready]", state="attached", timeout=60_000)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("which", ["demo", "forty"])
def test_nothing_is_clipped_at_the_widths_of_a_phone_a_tablet_and_a_desk(page_of, request, which):
    for width in WIDTHS:
        page = page_of(request.getfixturevalue(which), width)
        page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        page.wait_for_timeout(600)
        assert page.evaluate(CUT) == [], width


def test_forty_scores_are_sorted_and_sortable_and_the_best_eight_are_drawn(page_of, forty):
    page = page_of(forty)
    table = page.locator("#table table").first
    first = lambda: [float(text.split()[0]) for text in table.locator("tbody td:nth-child(2)").all_inner_texts()]  # noqa: E731
    assert len(first()) == 40
    assert first() == sorted(first(), reverse=True)
    names = table.locator("tbody th").all_inner_texts()
    assert len(set(names)) == 40
    assert max(map(len, names)) <= 32
    assert all("…" in name and name.endswith("entropy") for name in names)
    assert table.locator("tbody th abbr").first.get_attribute("title").count("temperature-scaled") == 1
    head = table.locator("thead th").nth(1)
    head.get_by_role("button").press("Enter")  # best first
    assert head.get_attribute("aria-sort") == "descending"
    assert first() == sorted(first(), reverse=True)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert first() == sorted(first())
    assert page.locator("#charts").get_by_text("The 8 best of 40 scores that rank differently").count() == 1
    for place in ("explorer", "comparison"):
        assert "The 8 best of 40 scores that rank differently" in page.locator(f"#{place}").inner_text()
    assert page.locator("#chart-roc .role-legend-label text").count() == 8


def test_bands_are_faint_until_a_curve_is_pointed_at_and_start_at_one_percent(page_of, forty):
    page = page_of(forty)
    page.locator("#chart-risk").scroll_into_view_if_needed()
    opacities = """(e) => [...e.querySelectorAll('.mark-area path')].map(
        (p) => Number(p.getAttribute('fill-opacity') ?? p.getAttribute('opacity') ?? 1))"""
    chart = page.locator("#chart-risk")
    before = chart.evaluate(opacities)
    assert len(before) == 8
    assert max(before) <= 0.03
    inside = chart.evaluate(
        """(e) => [e.querySelector('.mark-area path').getBBox().x,
            e.querySelector('.role-axis-domain line').getBBox().width]"""
    )
    assert inside[0] >= 0.0099 * inside[1] - 1
    mark = chart.locator(".mark-symbol path").nth(300)
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(300)
    assert max(chart.evaluate(opacities)) >= 0.2


def test_without_javascript_no_label_of_a_drawing_is_cut(page_of, demo, forty):
    for path in (demo, forty):
        page = page_of(path, 1300, script=False)
        cut = page.evaluate(
            """() => [...document.querySelectorAll(".still text")].filter((e) => {
                const box = e.getBoundingClientRect(), frame = e.closest(".scroll").getBoundingClientRect();
                return e.textContent && (box.right > frame.right + 1 || box.left < frame.left - 1);
            }).map((e) => e.textContent).slice(0, 5)"""
        )
        assert cut == []


def test_without_javascript_there_are_drawings_and_numbers(page_of, demo):
    for width in WIDTHS:
        page = page_of(demo, width, script=False)
        cards = page.locator("figure.card")
        assert cards.count() == 9
        for k in range(cards.count()):
            card = cards.nth(k)
            drawing = card.locator(".still svg")
            expect(drawing).to_be_visible()
            assert drawing.bounding_box()["width"] > 250
            assert drawing.bounding_box()["width"] <= card.bounding_box()["width"]
            expect(card.locator(".chart")).to_be_hidden()
        assert page.locator("#explorer noscript table").count() == 2
        expect(page.locator("#print")).to_be_hidden()
        assert page.evaluate(BEYOND) == []


def test_with_javascript_the_drawings_wait_for_paper(page_of, demo):
    page = page_of(demo)
    expect(page.locator("#print")).to_be_visible()
    assert page.locator(".still:visible").count() == 0
    page.emulate_media(media="print")
    assert page.locator(".still:visible").count() == 9
    assert page.locator(".chart:visible").count() == 0
    expect(page.locator("#print")).to_be_hidden()


def test_table_cells_stand_on_one_line_on_paper(page_of, demo, forty):
    for path in (demo, forty):
        page = page_of(path, 718)
        page.emulate_media(media="print")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.wait_for_timeout(300)
        tall = page.evaluate(
            """() => [...document.querySelectorAll("td, tbody th")].filter((e) => {
                const style = getComputedStyle(e), line = parseFloat(style.lineHeight);
                const inner = e.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
                return e.getClientRects().length && inner > 1.6 * line;
            }).map((e) => e.textContent).slice(0, 5)"""
        )
        assert tall == []
        beyond = page.evaluate(
            """() => [...document.querySelectorAll("td, th, svg text")].filter((e) =>
                e.getClientRects().length && e.getBoundingClientRect().right > document.documentElement.clientWidth + 2)
                .map((e) => e.textContent).slice(0, 5)"""
        )
        assert beyond == []
        closed = page.evaluate(
            """() => { window.dispatchEvent(new Event('afterprint'));
                return document.querySelectorAll('details:not([open])').length; }"""
        )
        assert closed > 3  # as they were


def pages_of(pdf):
    """The words of each page."""
    done = subprocess.run(["pdftotext", "-layout", str(pdf), "-"], capture_output=True, text=True, check=True)
    return done.stdout.split("\f")[:-1]


def test_the_demo_prints_on_ten_pages_none_blank_and_headings_stay_with_what_they_head(browser, demo, folder):
    if shutil.which("pdftotext") is None:
        pytest.skip("there is no pdftotext (Debian: apt-get install poppler-utils)")
    pages = pages_of(print_pdf(demo.read_text(encoding="utf-8"), folder / "demo.pdf"))
    assert 3 <= len(pages) <= 10
    headings = re.findall(r"<h[23][^>]*>([^<]*)</h[23]>", demo.read_text(encoding="utf-8"))
    assert len(headings) > 15
    for text in pages:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        assert len(lines) >= 5
        assert not any(lines[-1].startswith(heading[:40]) for heading in headings), lines[-1]
    whole = " ".join(" ".join(pages).split())
    for words in ("Verdict", "What the metrics mean", "Confident mistakes", "Files and versions", "SHA-256"):
        assert words in whole
