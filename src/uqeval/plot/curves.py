"""Charts of curves: how do risk and found errors change as more inputs are accepted?"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import altair as alt
import numpy as np
from numpy.typing import NDArray

from uqeval._check import check_choice
from uqeval._errors import InputError
from uqeval.evaluation.result import Evaluation
from uqeval.plot import data, parts, theme
from uqeval.plot.data import Columns
from uqeval.plot.parts import HEIGHT, NUMBER, PANEL, PERCENT, WIDTH, bands_and_lines, more, size

_COVERAGE = "coverage (share of inputs accepted)"
_FEW = 0.05  # the y axis need not reach the noise at lower coverages


def roc(ev: Evaluation, scores: Sequence[str] | str | None = None) -> theme.Figure:
    """ROC of each score against the errors: which share of the errors has a score above a threshold, at what price?

    Parameters
    ----------
    ev : Evaluation
        From `uqeval.evaluate`, with 0/1 errors.
    scores : list of str, optional
        Which scores; the best six by UQ-AUC by default.

    Returns
    -------
    Altair chart
        ``.save("roc.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> chart = uq.plot.roc(uq.evaluate(uq.datasets.example(), metrics="uq_auc"), scores=["entropy", "margin"])
    >>> chart.to_dict()["title"]["text"]
    'ROC of the score against errors: 1,547 rows, 90 errors'
    """
    error = data.errors_of(ev, "roc")
    table, names = data.rows_of(ev), data.shown(ev, scores)
    rows = []
    for name in names:
        points = data.roc_of(table, name, error, ev.level)
        rows += theme.joined(points, score=name)
    share = alt.Scale(domain=[0, 1])
    x = alt.X("x:Q", scale=share, axis=PERCENT, title="share of the right predictions above the threshold")
    y = alt.Y("y:Q", scale=share, axis=PERCENT, title="share of the errors above the threshold")
    shares = "y|.1%|errors above it", *_limits(table.weights is None), "x|.1%|right above it"
    tooltip = parts.tips("score", "threshold|.3~g", *shares)
    diagonal = _reference([{"at": 0.0, "to": 0.0}, {"at": 1.0, "to": 1.0}], [4, 4])
    chart = alt.layer(diagonal, *bands_and_lines(ev, names, rows, x, y, tooltip)).properties(width=360, height=360)
    note = parts.band_words(data.band_note(table, error, ev.level), names)
    return theme.finish(
        chart,
        f"ROC of the score against errors: {size(ev)}",
        [f"{note}; dashed diagonal: a useless score", more(ev, names, scores)],
    )


def risk_coverage(ev: Evaluation, scores: Sequence[str] | str | None = None) -> theme.Figure:
    """Risk of the accepted inputs against their share, between the best possible score and a random one.

    Parameters
    ----------
    ev : Evaluation
        From `uqeval.evaluate`, with 0/1 errors or a loss in [0, 1].
    scores : list of str, optional
        Which scores; the best six by UQ-AUC by default.

    Returns
    -------
    Altair chart
        ``.save("risk.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> ev = uq.evaluate(uq.datasets.example(), scores=["entropy", "vote_ratio"], metrics="aurc")
    >>> uq.plot.risk_coverage(ev).to_dict()["title"]["text"]
    'Risk against coverage: 1,547 rows, 90 errors'
    """
    table, names = data.rows_of(ev), data.shown(ev, scores)
    loss = table.share_loss
    if loss is None:
        raise InputError("risk_coverage needs errors or a loss in [0, 1]. Rescale the loss, or evaluate with error=.")
    curves = {name: data.risk_of(table, name, loss, ev.level) for name in names}
    rate = float(np.average(loss, weights=table.weights))
    top = _top(curves, rate)
    best = [{"at": row["coverage"], "to": row["risk"]} for row in theme.joined(data.oracle(loss, table.weights))]
    labels = [_word("random score", 0.2, min(rate, top), 4, -7), _best_label(best)]
    lines = [_reference([{"at": 0.0, "to": rate}, {"at": 1.0, "to": rate}], [4, 4]), _reference(best, [2, 2])]
    share = data.is_share(table)
    chart = _against_coverage(ev, curves, _risk_title(share), top, [*lines, *labels], table.weights is None, share)
    subtitle = [parts.band_words(data.band_note(table, loss, ev.level), names), more(ev, names, scores)]
    return theme.finish(chart, f"Risk against coverage: {size(ev)}", subtitle)


def mce(ev: Evaluation, scores: Sequence[str] | str | None = None, x: str = "threshold") -> theme.Figure:
    """Misclassification error inside the sub-level sets {score ≤ β}, against β or against their coverage.

    Parameters
    ----------
    ev : Evaluation
        From `uqeval.evaluate`, with 0/1 errors.
    scores : list of str, optional
        Which scores; the best six by UQ-AUC by default.
    x : "threshold" or "coverage"
        Thresholds get a panel per score, because scores have different scales.

    Returns
    -------
    Altair chart
        ``.save("mce.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> ev = uq.evaluate(uq.datasets.example(), scores="entropy", metrics="uq_auc")
    >>> chart = uq.plot.mce(ev, x="coverage")
    """
    error = data.errors_of(ev, "mce")
    title = "Misclassification error below a threshold (MCE)"
    return _sub_level(ev, scores, x, error, None, title, "risk (share of the accepted that are wrong)", None)


def mbc(ev: Evaluation, scores: Sequence[str] | str | None = None, x: str = "threshold") -> theme.Figure:
    """Misalignment with the majority label inside the sub-level sets {score ≤ β}; needs soft labels.

    Parameters
    ----------
    ev, scores, x
        As for `mce`; rows whose majority label is a tie are left out.

    Returns
    -------
    Altair chart
        ``.save("mbc.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> digits = uq.datasets.example()
    >>> pred = uq.Predictions(digits.labels, probs=digits.probs, soft_labels=digits.members[0])  # as if it were votes
    >>> chart = uq.plot.mbc(uq.evaluate(pred, scores="entropy", metrics="uq_auc"))
    """
    apart, kept = data.misaligned_rows(ev)
    left = int((~kept).sum())
    note = f"{left:,} rows without a majority label are left out" if left else None
    title = "Misalignment below a threshold (MBC)"
    axis = "risk (share of the accepted unlike the majority label)"
    return _sub_level(ev, scores, x, apart, kept, title, axis, note)


def _sub_level(
    ev: Evaluation,
    scores: Sequence[str] | str | None,
    x: str,
    bad: NDArray[np.uint8],
    kept: NDArray[np.bool_] | None,
    title: str,
    axis: str,
    note: str | None,
) -> theme.Figure:
    check_choice("x", x, ("threshold", "coverage"))
    table, names = data.rows_of(ev), data.shown(ev, scores)
    cut: Callable[[Any], Any] = lambda rows: rows if rows is None or kept is None else rows[kept]  # noqa: E731
    loss, weights, clusters = cut(bad), cut(table.weights), cut(table.pred.clusters)
    if kept is None:
        curves = {name: data.risk_of(table, name, bad, ev.level) for name in names}
    else:
        curves = {name: data.risk_points(table.score(name)[kept], loss, weights, clusters, ev.level) for name in names}
    rate = float(np.average(loss, weights=weights))
    top = _top(curves, rate)
    of = f"{len(loss):,} rows, {parts.counted(int(loss.sum()), 'error' if kept is None else 'misalignment')}"
    band = data.band_note(table, loss, ev.level)
    if x == "coverage":
        chart = _against_coverage(ev, curves, axis, top, [], weights is None)
        return theme.finish(chart, f"{title}: {of}", [parts.band_words(band, names), note, more(ev, names, scores)])
    rows = []
    for place, (name, points) in enumerate(curves.items()):
        finite = np.isfinite(points["threshold"])
        rows += theme.joined({key: column[finite] for key, column in points.items()}, score=name, place=place)
    if not rows:
        raise InputError("`scores` are infinite in all rows: there is no threshold to draw. Leave those scores out.")
    panels = _against_threshold(ev, names, rows, axis, top, weights is None)
    return theme.finish(panels, f"{title}: {of}", [band, note, more(ev, names, scores)])


def _against_threshold(
    ev: Evaluation, names: list[str], rows: list[dict[str, Any]], axis: str, top: float, banded: bool
) -> alt.FacetChart:
    width, height = PANEL if len(names) > 1 else (WIDTH, HEIGHT)
    xs = alt.X("threshold:Q", title="threshold β (accept score ≤ β)", scale=alt.Scale(zero=False, nice=False))
    ys = alt.Y(
        "risk:Q", title=axis if len(names) == 1 else parts.wrapped(axis), axis=PERCENT, scale=alt.Scale(domain=[0, top])
    )
    layers = bands_and_lines(ev, names, rows, xs, ys, _risk_tooltip(banded), legend=False)
    layered = alt.layer(*layers, data=theme.as_data(rows)).properties(width=width, height=height)
    return parts.small_multiples(layered, own_x=True)


# ---- parts -----------------------------------------------------------------------------------------------------


def _against_coverage(
    ev: Evaluation,
    curves: dict[str, Columns],
    axis: str,
    top: float,
    under: list[Any],
    banded: bool,
    share: bool = True,
) -> Any:
    rows = [row for name, points in curves.items() for row in theme.joined(points, score=name)]
    x = alt.X("coverage:Q", scale=alt.Scale(domain=[0, 1]), axis=PERCENT, title=_COVERAGE)
    y = alt.Y("risk:Q", scale=alt.Scale(domain=[0, top]), axis=PERCENT if share else NUMBER, title=axis)
    layers = bands_and_lines(ev, list(curves), rows, x, y, _risk_tooltip(banded, share))
    return alt.layer(*under, *layers).properties(width=WIDTH, height=HEIGHT)


def _reference(rows: list[dict[str, float]], dash: list[int]) -> alt.Chart:
    base = alt.Chart(theme.as_data(rows)).mark_line(color=theme.GREY, strokeDash=dash, strokeWidth=1.5, clip=True)
    return base.encode(x="at:Q", y="to:Q")


def _best_label(best: list[dict[str, float]]) -> alt.Chart:
    """Left of the bend of the oracle's line, or else below the line."""
    bend = max((row["at"] for row in best if row["to"] == 0), default=0.0)
    if bend > 0.3:
        return _word("best possible score", bend, 0.0, -6, -7, "right")
    middle = min(best, key=lambda row: abs(row["at"] - 0.6))
    return _word("best possible score", middle["at"], middle["to"], 8, 10)


def _word(text: str, at: float, to: float, dx: int, dy: int, align: Literal["left", "right"] = "left") -> alt.Chart:
    rows = theme.as_data([{"at": at, "to": to, "text": text}])
    mark = alt.Chart(rows).mark_text(align=align, dx=dx, dy=dy, color=theme.GREY, fontSize=11)
    return mark.encode(x="at:Q", y="to:Q", text="text:N")


def _risk_tooltip(banded: bool, share: bool = True) -> list[alt.Tooltip]:
    accepted = "threshold|.4~g", "coverage|.1%", "accepted|,|rows accepted"
    if not share:
        return parts.tips("score", *accepted, "risk|.4~g|mean loss", *_limits(banded, ".4~g"))
    return parts.tips("score", *accepted, "risk|.2%", *_limits(banded))


def _limits(banded: bool, form: str = ".1%") -> list[str]:
    return [f"low|{form}|band, low", f"high|{form}|band, high"] if banded else []


def _top(curves: dict[str, Columns], rate: float) -> float:
    """Upper end of the risk axis: all curves from a coverage of 5% on, the upper half with their bands."""
    ends = [1.3 * rate]
    for points in curves.values():
        ends += [1.05 * points["risk"][points["coverage"] >= _FEW].max()]
        upper = points["high"][points["coverage"] >= 0.5]
        ends += [1.05 * float(upper.max())] if np.isfinite(upper).all() else []
    return min(1.0, max(ends)) or 1.0


def _risk_title(share: bool) -> str:
    return f"risk ({'share of the accepted that are wrong' if share else 'mean loss of the accepted'})"
