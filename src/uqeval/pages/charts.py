"""The charts of the page: Vega-Lite specs from `plot`, each with its title, a sentence and the numbers as a table."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from uqeval import plot
from uqeval._errors import InputError, collected
from uqeval._result import Grid
from uqeval.decide.threshold import Threshold
from uqeval.decide.threshold import shown as printed
from uqeval.evaluation.comparison import Comparison
from uqeval.evaluation.result import Evaluation
from uqeval.metrics.registry import REGISTRY
from uqeval.pages.words import cell, clip, count, percent, plural
from uqeval.plot.theme import drawn

_SHARES = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
_RISKS = (0.01, 0.02, 0.05, 0.1, 0.2)
_MOST_CANDIDATES = 30  # in the forest
Figure = dict[str, Any]


def of_evaluation(
    ev: Evaluation, shown: list[str], lead: str, act: Threshold | None, explorer: dict[str, Any] | None
) -> tuple[list[Figure], list[str]]:
    """All that the data allow, in the order of the page; and why one that should be there is not."""
    notes: list[str] = []
    wanted = _wanted(ev, shown, lead, act, explorer)
    found = [_figure(name, place, draw, tell, notes) for allowed, name, place, draw, tell in wanted if allowed]
    return [figure for figure in found if figure is not None], notes


def of_comparison(cmp: Comparison, like: Evaluation | None = None) -> tuple[list[Figure], list[str]]:
    """The forest of differences."""
    notes: list[str] = []
    if len(cmp.values) > _MOST_CANDIDATES:
        return [], [f"{len(cmp.values)} candidates are too many for a chart"]
    whole = [row for row in cmp.rows if row.group is None]
    shown = sum(row.p_adjusted <= 1 - cmp.level for row in whole)
    words = f"{shown} of {plural(len(whole), 'difference')} shown to be more than chance."
    figure = _figure("forest", "comparison", lambda: plot.forest(cmp, like=like), lambda _: (words, None), notes)
    return ([] if figure is None else [figure]), notes


_Words = Callable[[dict[str, Any]], tuple[str, Grid | None]]  # of a drawn chart: a sentence, and its numbers


def _figure(name: str, place: str, draw: Callable[[], Any], tell: _Words, notes: list[str]) -> Figure | None:
    try:
        with collected():  # the rows were warned about before
            spec = drawn(draw)
    except InputError as error:
        notes.append(f"chart left out: {error}")
        return None
    # The page shows title and subtitle as text, which wraps; and it names no address, not even that of a schema.
    title = spec.pop("title", None) or {}
    spec.pop("description", None)
    schema = spec.pop("$schema", "")
    heading, lines = (title, []) if isinstance(title, str) else (title.get("text", name), title.get("subtitle", []))
    text, table = tell(spec)
    return {
        "id": name,
        "place": place,
        "title": heading,
        "notes": [lines] if isinstance(lines, str) else list(lines),
        "text": text,
        "table": None if table is None else table._replace(caption=f"{heading}, as numbers"),
        "wide": "facet" in spec or place != "charts",
        "spec": spec,
        "schema": schema,
    }


def _wanted(
    ev: Evaluation, shown: list[str], lead: str, act: Threshold | None, explorer: dict[str, Any] | None
) -> Iterator[tuple[bool, str, str, Callable[[], Any], _Words]]:
    """Each chart: whether the rows allow it, its name and place, how it is drawn and what is said of it."""
    if (table := ev.source) is not None:
        errors = table.error if table.error is not None else table.share_loss
        ranked = errors is not None and errors.dtype == np.uint8 and 0 < int(errors.sum()) < len(errors)
        shares, pred = table.share_loss is not None, table.pred
        gaps = pred.loss is not None or (pred.labels is not None and pred.probs is not None)
        maps = {} if explorer is None else {part["name"]: part["map"] for part in explorer["scores"]}
        promised = shares and table.weights is None
        charts: list[tuple[bool, str, Callable[[], Any], _Words]] = [
            (ranked, "roc", lambda: plot.roc(ev, shown), lambda _: _estimates(ev, shown, "uq_auc")),
            (shares, "risk", lambda: plot.risk_coverage(ev, shown), lambda _: _risks(maps)),
            (ranked, "histogram", lambda: plot.score_histogram(ev, shown), lambda _: _medians(ev, shown)),
            (gaps, "gap", lambda: plot.score_vs_gap(ev, shown), lambda _: _estimates(ev, shown, "uq_c_index")),
            (ranked, "mce", lambda: plot.mce(ev, shown, x="threshold"), lambda _: _thresholds(maps)),
            (table["phi"] is not None, "mbc", lambda: plot.mbc(ev, shown, x="coverage"), lambda _: (_MBC, None)),
            (promised, "psi", lambda: plot.psi(ev, score=lead, threshold=act), lambda _: _promises(lead, explorer)),
            (table["confidence"] is not None, "reliability", lambda: plot.reliability(ev), partial(_bins, ev)),
        ]
        yield from ((allowed, name, "charts", draw, tell) for allowed, name, draw, tell in charts)
    metric = next((name for name in ev.metrics if REGISTRY[name].uses_score), None)
    if metric is not None:
        yield bool(ev.groups), "groups", "groups", lambda: plot.by_group(ev, metric, shown), lambda _: (_GROUPS, None)


# ---- the same in words and numbers ----------------------------------------------------------------------------

_MBC = "Rows whose majority label differs from the prediction, among the accepted ones."
_GROUPS = "The numbers are in the table above."


def _estimates(ev: Evaluation, shown: list[str], metric: str) -> tuple[str, Grid | None]:
    """The metric that sums the chart up."""
    if metric not in ev.metrics:
        return f"{REGISTRY[metric].title} was not asked for.", None
    values = {name: ev[name, metric].value for name in shown}
    order = sorted(shown, key=lambda name: math.inf if math.isnan(values[name]) else -values[name])
    title, rows = REGISTRY[metric].title, [[clip(name), str(ev[name, metric])] for name in order]
    text = f"{title}: {' '.join(rows[0])}" + (f", down to {' '.join(rows[-1])}." if len(order) > 1 else ".")
    return text, Grid(["score", title], rows)


def _risks(maps: dict[str, Any]) -> tuple[str, Grid | None]:
    if not maps:
        return "Risk of the accepted inputs against their share.", None
    rows = [[clip(name), *(percent(_at(found, "risk", share)) for share in _SHARES)] for name, found in maps.items()]
    half = [_at(found, "risk", _SHARES[0]) for found in maps.values()]
    text = (
        f"Accepting the surer half leaves a risk of {percent(min(half))}"
        + (f" to {percent(max(half))}, by score" if max(half) > min(half) else "")
        + f"; accepting everything, {percent(max(found['risk'][-1] for found in maps.values()))}."
    )
    return text, Grid(["score", *(f"at {percent(share)}" for share in _SHARES)], rows)


def _thresholds(maps: dict[str, Any]) -> tuple[str, Grid | None]:
    if not maps:
        return "Risk below each threshold.", None
    text = "The table gives the threshold that accepts a given share of the inputs."
    rows = [[clip(name), *(cell(_at(found, "threshold", share)) for share in _SHARES)] for name, found in maps.items()]
    return text, Grid(["score", *(f"accepts {percent(share)}" for share in _SHARES)], rows)


def _at(found: dict[str, Any], key: str, share: float) -> float:
    """The value at the smallest coverage of at least that share."""
    values = found[key]
    return float(values[min(int(np.searchsorted(found["coverage"], share - 1e-9)), len(values) - 1)])


def _medians(ev: Evaluation, shown: list[str]) -> tuple[str, Grid | None]:
    table = ev.source
    assert table is not None
    error = table.error if table.error is not None else table.share_loss
    assert error is not None
    wrong = error == 1
    rows = [[clip(name), *(cell(np.median(table.score(name)[part])) for part in (~wrong, wrong))] for name in shown]
    text = "The less the two colours overlap, the better the score tells wrong from right."
    return text, Grid(["score", "median, right", "median, wrong"], rows)


def _promises(lead: str, explorer: dict[str, Any] | None) -> tuple[str, Grid | None]:
    part = next((part for part in (explorer or {}).get("scores", ()) if part["name"] == lead), None)
    if explorer is None or part is None:
        return "Threshold for a prescribed risk.", None
    rows = []
    for target, found in zip(explorer["targets"], part["certified"], strict=True):
        if target in _RISKS or target == explorer["max_risk"]:
            value = "nothing" if found["value"] is None else printed(found["value"], 6)
            rows.append([percent(target), value, percent(found["coverage"])])
    text = (
        f"Find the risk that you accept on the x axis and read the threshold of {clip(lead)} above it. The table has "
        f"certified thresholds, each for a target fixed beforehand; the explorer below has more."
    )
    return text, Grid(["target risk", "certified: act at or below", "inputs accepted"], rows)


def _bins(ev: Evaluation, spec: dict[str, Any]) -> tuple[str, Grid | None]:
    """The bins, as the chart has them."""
    text = "Above the diagonal the model is right more often than it says, below it less often."
    keys = ("confidence", "accuracy", "low", "high", "count")
    rows = next((rows for rows in spec.get("datasets", {}).values() if rows and set(keys) <= set(rows[0])), None)
    if "ece" in ev.metrics:
        text = f"Expected calibration error {ev['ece']}. {text}"
    if rows is None:
        return text, None
    shares = [[percent(row[key]) for key in keys[:-1]] + [count(row["count"])] for row in rows]
    lines = [[mean, f"{right} ({low}–{high})", n] for mean, right, low, high, n in shares]
    return text, Grid(["mean confidence", "accuracy (interval)", "rows"], lines)
