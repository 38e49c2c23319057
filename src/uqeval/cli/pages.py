"""The page of a result, as HTML and as PDF: made once, written to both."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import uqeval
from uqeval._files import write_whole
from uqeval.cli.interrupt import stop_if_asked

if TYPE_CHECKING:
    from uqeval.evaluation.comparison import Comparison
    from uqeval.evaluation.result import Evaluation


def check_pdf(pdf: str | None) -> None:
    """Says before the work if the PDF cannot be printed."""
    if pdf is not None:
        from uqeval.pages import paper  # what makes pages takes long to load, and most commands make none

        paper.check_pdf(pdf, "--pdf")


def write_pages(result: Evaluation | Comparison, html: str | None, pdf: str | None, **how: Any) -> list[str]:
    """Writes what was asked for, and says where it is; the page names the command."""
    targets = [target for target in (html, pdf) if target]
    if not targets:
        return []
    import shlex  # most commands make no page

    stop_if_asked()
    page = str(uqeval.report(result, command=shlex.join(["uqeval", *sys.argv[1:]]), **how))
    if html:
        write_whole(html, page, "--html")
    if pdf:
        from uqeval.pages.paper import print_pdf  # see above

        print_pdf(page, pdf, "--pdf")
    return targets
