"""The charts of the page: Vega-Lite specs from `plot`, each with its title, a sentence and the numbers as a table."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from uqeval import plot
from uqeval._errors import InputError, collected
from uqeval._result import Grid, number
from uqeval.decide.threshold import Threshold
from uqeval.decide.threshold import shown as printed
from uqeval.evaluation.comparison import Comparison
from uqeval.evaluation.result import Evaluation
from uqeval.metrics.registry import REGISTRY
from uqeval.pages.words import cell, clip, count, percent, plain, plural, signed
from uqeval.plot import data
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
    if clearest := min((row for row in whole if not math.isnan(row.p)), key=lambda row: row.p, default=None):
        far = signed(f"{number(clearest.difference)} ({number(clearest.low)} to {number(clearest.high)})")
        words += f" The clearest: {clip(clearest.a)} − {clip(clearest.b)} {far}."
    figure = _figure("forest", "comparison", lambda: plot.forest(cmp, like=like), lambda _: (words, None), notes)
    return ([] if figure is None else [figure]), notes


# What a chart shows to those who see it, for those who hear it.
_WHAT = {
    "roc": "A curve per score: share of the errors above each threshold against the share of right ones above it",
    "risk": "A curve per score: risk of the accepted inputs against their share",
    "histogram": "Per score, two histograms: that of right and that of wrong predictions",
    "gap": "Per score, a map of how many rows have which score and which loss",
    "mce": "Per score, a curve: share of wrong predictions among those with a score below each threshold",
    "mbc": "A curve per score: share of the accepted unlike the majority label, against the share of inputs accepted",
    "psi": "A step curve: the threshold that keeps each prescribed risk",
    "reliability": "Points: accuracy against mean confidence, bin by bin, and bars of the rows in each bin",
    "groups": "Per score, a point and an interval for each group",
    "forest": "A point and an interval for each difference, then the value of each candidate",
}
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
        "alt": f"{heading}. {_WHAT[name]}. {text}",
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
            (shares, "risk", lambda: plot.risk_coverage(ev, shown), lambda _: _risks(maps, data.is_share(table))),
            (ranked, "histogram", lambda: plot.score_histogram(ev, shown), lambda _: _medians(ev, shown, lead)),
            (gaps, "gap", lambda: plot.score_vs_gap(ev, shown), lambda _: _estimates(ev, shown, "uq_c_index")),
            (ranked, "mce", lambda: plot.mce(ev, shown, x="threshold"), lambda _: _thresholds(maps)),
            (table["phi"] is not None, "mbc", lambda: plot.mbc(ev, shown, x="coverage"), _unlike),
            (promised, "psi", lambda: plot.psi(ev, score=lead, threshold=act), lambda _: _promises(lead, explorer)),
            (table["confidence"] is not None, "reliability", lambda: plot.reliability(ev), partial(_bins, ev)),
        ]
        yield from ((allowed, name, "charts", draw, tell) for allowed, name, draw, tell in charts)
    metric = next((name for name in ev.metrics if REGISTRY[name].uses_score), None)
    if metric is not None:
        draw = lambda: plot.by_group(ev, metric, shown)  # noqa: E731
        yield bool(ev.groups), "groups", "groups", draw, lambda _: (_by_group(ev, metric, lead), None)


# ---- the same in words and numbers ----------------------------------------------------------------------------


def _unlike(spec: dict[str, Any]) -> tuple[str, Grid | None]:
    """The share of rows unlike their majority label when all are accepted, and at about half, by score."""
    rows = [
        row for rows in spec.get("datasets", {}).values() for row in rows if {"coverage", "risk", "score"} <= set(row)
    ]
    names = list(dict.fromkeys(row["score"] for row in rows))
    if not names:
        return "Rows whose majority label differs from the prediction, among the accepted ones.", None
    halves = {
        name: min((r for r in rows if r["score"] == name), key=lambda r: abs(r["coverage"] - 0.5)) for name in names
    }
    best = min(names, key=lambda name: halves[name]["risk"])
    text = (
        f"Accepting everything, {percent(max(rows, key=lambda row: row['coverage'])['risk'])} are unlike their "
        f"majority label; accepting {percent(halves[best]['coverage'])} by {best}, {percent(halves[best]['risk'])}."
    )
    return text, None


def _by_group(ev: Evaluation, metric: str, lead: str) -> str:
    """The best and the worst group of the leading score."""
    known = REGISTRY[metric]
    found = {group: ev[lead, metric, group] for group in ev.groups}
    found = {group: e for group, e in found.items() if not math.isnan(e.value)}
    if not found:
        return f"{known.title} is defined in none of the {plural(len(ev.groups), 'group')}."
    order = sorted(found, key=lambda group: found[group].value, reverse=known.direction == "higher")
    best, worst = order[0], order[-1]
    text = f"{known.title} of {clip(lead)} in {plural(len(found), 'group')}: {clip(best)} {found[best]}"
    return f"{text}, down to {clip(worst)} {found[worst]}." if worst != best else f"{text}."


def _estimates(ev: Evaluation, shown: list[str], metric: str) -> tuple[str, Grid | None]:
    """The metric that sums the chart up."""
    if metric not in ev.metrics:
        return f"{REGISTRY[metric].title} was not asked for.", None
    values = {name: ev[name, metric].value for name in shown}
    order = sorted(shown, key=lambda name: math.inf if math.isnan(values[name]) else -values[name])
    title, rows = REGISTRY[metric].title, [[clip(name), str(ev[name, metric])] for name in order]
    text = f"{title}: {' '.join(rows[0])}" + (f", down to {' '.join(rows[-1])}." if len(order) > 1 else ".")
    return text, Grid(["score", title], rows)


def _risks(maps: dict[str, Any], share: bool) -> tuple[str, Grid | None]:
    if not maps:
        return "Risk of the accepted inputs against their share.", None
    written = percent if share else plain
    rows = [[clip(name), *(written(_at(found, "risk", part)) for part in _SHARES)] for name, found in maps.items()]
    half = [_at(found, "risk", _SHARES[0]) for found in maps.values()]
    text = (
        f"Accepting the surer half leaves a {'risk' if share else 'mean loss'} of {written(min(half))}"
        + (f" to {written(max(half))}, by score" if max(half) > min(half) else "")
        + f"; accepting everything, {written(max(found['risk'][-1] for found in maps.values()))}."
    )
    return text, Grid(["score", *(f"at {percent(part)}" for part in _SHARES)], rows)


def _thresholds(maps: dict[str, Any]) -> tuple[str, Grid | None]:
    if not maps:
        return "Risk below each threshold.", None
    lead, found = next(iter(maps.items()))
    half, most = ((_at(found, "threshold", share), _at(found, "risk", share)) for share in (_SHARES[0], _SHARES[3]))
    text = (
        f"{clip(lead)} at or below {cell(half[0])} accepts {percent(_SHARES[0])} of the inputs at a risk of "
        f"{percent(half[1])}; at or below {cell(most[0])}, {percent(_SHARES[3])} at {percent(most[1])}."
    )
    rows = [[clip(name), *(cell(_at(found, "threshold", share)) for share in _SHARES)] for name, found in maps.items()]
    return text, Grid(["score", *(f"accepts {percent(share)}" for share in _SHARES)], rows)


def _at(found: dict[str, Any], key: str, share: float) -> float:
    """The value at the smallest coverage of at least that share."""
    values = found[key]
    return float(values[min(int(np.searchsorted(found["coverage"], share - 1e-9)), len(values) - 1)])


def _medians(ev: Evaluation, shown: list[str], lead: str) -> tuple[str, Grid | None]:
    table = ev.source
    assert table is not None
    error = table.error if table.error is not None else table.share_loss
    assert error is not None
    wrong = error == 1
    order = sorted(shown, key=lambda name: name != lead)
    rows = [[clip(name), *(cell(np.median(table.score(name)[part])) for part in (~wrong, wrong))] for name in order]
    name, right_, wrong_ = rows[0]
    text = (
        f"The median of {name} is {right_} for right and {wrong_} for wrong predictions. The less the two colours "
        "overlap, the better a score tells wrong from right."
    )
    return text, Grid(["score", "median, right", "median, wrong"], rows)


def _promises(lead: str, explorer: dict[str, Any] | None) -> tuple[str, Grid | None]:
    part = next((part for part in (explorer or {}).get("scores", ()) if part["name"] == lead), None)
    if explorer is None or part is None:
        return "Threshold for a prescribed risk.", None
    rows, written = [], percent if explorer["what"] == "error" else plain
    for target, found in zip(explorer["targets"], part["certified"], strict=True):
        if target in _RISKS or target == explorer["max_risk"]:
            value = "nothing" if found["value"] is None else printed(found["value"], 6)
            rows.append([written(target), value, percent(found["coverage"])])
    at = explorer["targets"].index(explorer["max_risk"])
    now, risk = part["certified"][at], written(explorer["max_risk"])
    promised = (
        f"nothing can be certified at a risk of {risk}"
        if now["value"] is None
        else f"{printed(now['value'], 6)} is certified for a risk of {risk} and accepts {percent(now['coverage'])}"
    )
    text = (
        f"Find the risk that you accept on the x axis and read the threshold of {clip(lead)} above it: {promised}. The "
        f"table has certified thresholds, each for a target fixed beforehand; the explorer below has more."
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
