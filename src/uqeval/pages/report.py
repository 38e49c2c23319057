"""``uq.report(ev, "report.html")``: an evaluation or a comparison as one HTML file that opens offline."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._errors import InputError, a_type
from uqeval._files import check_target, write_whole
from uqeval.decide.rows import check_targets
from uqeval.evaluation.comparison import Comparison
from uqeval.evaluation.result import Evaluation
from uqeval.pages import builder
from uqeval.pages.explorer import in_words
from uqeval.pages.origin import Files
from uqeval.pages.paper import find_browser, print_pdf
from uqeval.pages.payload import comparison_payload, evaluation_payload

__all__ = ["render", "report"]

_MOST_MISTAKES = 50


def report(
    result: Evaluation | Comparison,
    path: str | os.PathLike[str] | None = None,
    *,
    max_risk: float = 0.05,
    title: str | None = None,
    columns: Any = None,
    mistakes: int = 20,
    compare: bool = True,
    files: Files | None = None,
    command: str | None = None,
) -> str | Path:
    """One self-contained HTML page: verdict, table, charts, threshold explorer, confident mistakes, comparison.

    Parameters
    ----------
    result : Evaluation or Comparison
        From `uqeval.evaluate` (or, for a shorter page, `uqeval.compare`).
    path : str or Path, optional
        Where to write it; an existing file is replaced once the new one is complete. None returns the HTML text. A
        name that ends in ".pdf" is printed by a Chromium, Chrome or Edge of this machine.
    max_risk : float
        The risk of the accepted inputs that the verdict speaks of. Fix it before you look at the rows.
    title : str, optional
        Heading of the page.
    columns : dict of name → values, or dataframe, optional
        Shown beside the confident mistakes; one value per evaluated row, 12 columns at most.
    mistakes : int
        How many confident mistakes to list, 50 at most; 0 leaves them out.
    compare : bool
        Whether to compare the scores pair by pair.
    files : str, path or list of them, optional
        The files of the rows, which the page names with their SHA-256; known without being told where
        `uqeval.read_predictions` or `uqeval.evaluate` read them into memory.
    command : str, optional
        The command that made the page, which it names.

    Returns
    -------
    Path, or str where `path` is None
        The file that was written, or its text.

    Examples
    --------
    >>> import uqeval as uq
    >>> ev = uq.evaluate(uq.datasets.example(), scores=["entropy", "vote_entropy"], metrics=["uq_auc", "aurc"])
    >>> html = uq.report(ev, max_risk=0.02)
    >>> len(html) < 3_000_000, "<h1>Can this uncertainty be trusted?</h1>" in html
    (True, True)
    """
    if not isinstance(result, Evaluation | Comparison):
        raise InputError(f"`result` is {a_type(result)}. Pass what uqeval.evaluate or uqeval.compare returns.")
    if np.ndim(max_risk) != 0:
        raise InputError(f"`max_risk` must be one number, as 0.05; it is {max_risk!r}.")
    (risk,) = check_targets(max_risk)
    if title is not None and not isinstance(title, str):
        raise InputError(f"`title` must be text; it is {title!r}.")
    if isinstance(mistakes, bool) or not isinstance(mistakes, int | np.integer) or not 0 <= mistakes <= _MOST_MISTAKES:
        raise InputError(f"`mistakes` must be an int from 0 to {_MOST_MISTAKES}; it is {mistakes!r}.")
    target = None if path is None else check_target(path)
    if printed := target is not None and target.suffix.lower() == ".pdf":
        find_browser()  # before the work
    if isinstance(result, Comparison):
        if columns is not None:
            raise InputError("`columns` belong to the rows of an Evaluation; a Comparison has none. Leave them out.")
        payload = comparison_payload(result, title=title, files=files, command=command)
    else:
        payload = evaluation_payload(
            result,
            max_risk=risk,
            title=title,
            columns=columns,
            most_mistakes=int(mistakes),
            compare=bool(compare),
            files=files,
            command=command,
        )
    html = render(payload)
    if target is None:
        return html
    return print_pdf(html, target) if printed else write_whole(target, html)


def render(payload: dict[str, Any]) -> str:
    """The whole page."""
    figures = [*payload["charts"], *((payload["comparison"] or {}).get("charts", []))]
    data: dict[str, Any] = {"charts": {figure["id"]: figure["spec"] for figure in figures}}
    if payload["explorer"] is not None and payload["explorer"]["scores"]:
        data["explorer"] = in_words(payload["explorer"])
    scripts = [builder.vega_script(figures[0]["schema"])] if figures else []
    scripts.append(builder.template_text("report.js"))
    return builder.build("report.html.j2", scripts=tuple(scripts), data=data, page=payload)
