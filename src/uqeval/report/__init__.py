"""The one-page report: ``uq.report(ev, "report.html")`` writes a single HTML file that opens offline.

`payload` gathers what the page says, `page` makes HTML of it. The module itself can be called: ``uq.report`` is this
module, and calling it is calling its function `report`.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from uqeval._errors import InputError
from uqeval._files import check_target, write_whole
from uqeval.decide.rows import check_targets
from uqeval.evaluation.comparison import Comparison
from uqeval.evaluation.result import Evaluation

__all__ = ["report"]

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
) -> str | Path:
    """One self-contained HTML page: verdict, table, charts, threshold explorer, confident mistakes, comparison.

    Parameters
    ----------
    result : Evaluation or Comparison
        From `uqeval.evaluate` (or, for a shorter page, `uqeval.compare`).
    path : str or Path, optional
        Where to write it; an existing file is replaced once the new one is complete. None returns the HTML text.
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
        raise InputError(f"`result` is a {type(result).__name__}. Pass what uqeval.evaluate or uqeval.compare returns.")
    if np.ndim(max_risk) != 0:
        raise InputError(f"`max_risk` must be one number, as 0.05; it is {max_risk!r}.")
    (risk,) = check_targets(max_risk)
    if title is not None and not isinstance(title, str):
        raise InputError(f"`title` must be text; it is {title!r}.")
    if isinstance(mistakes, bool) or not isinstance(mistakes, int | np.integer) or not 0 <= mistakes <= _MOST_MISTAKES:
        raise InputError(f"`mistakes` must be an int from 0 to {_MOST_MISTAKES}; it is {mistakes!r}.")
    target = None if path is None else check_target(path)
    from uqeval.report.page import render
    from uqeval.report.payload import comparison_payload, evaluation_payload

    if isinstance(result, Comparison):
        if columns is not None:
            raise InputError("`columns` belong to the rows of an Evaluation; a Comparison has none. Leave them out.")
        html = render(comparison_payload(result, title=title))
    else:
        html = render(
            evaluation_payload(
                result,
                max_risk=risk,
                title=title,
                columns=columns,
                most_mistakes=int(mistakes),
                compare=bool(compare),
            )
        )
    return html if target is None else write_whole(target, html)


class _CallableModule(ModuleType):
    """`uqeval.report` is the name of this package and of its function; Python binds the name to the package."""

    __signature__ = inspect.signature(report)

    def __call__(self, *args: Any, **options: Any) -> str | Path:
        return report(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
