"""The synthetic study method by method: does each order inputs as the truths do, and do the metrics see which does?

Two scores stand for a method: its own, which a single softmax network does not have, and the entropy of its
probabilities, which all have.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from uqeval._result import Grid
from uqeval.metrics import kendall_tau
from uqeval.plot import theme
from uqeval.reproduce import panels as draw
from uqeval.reproduce.names import COLUMNS, FOUR, HEADS, MAIN, TITLES, TRUTHS, Row
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.study import Study, correlate, median_cell, percent_cell, pick, summarise
from uqeval.reproduce.synthetic.networks import OWN

_WORDS = read_table("words.toml")["synthetic"]["by_method"]
_ENTROPIES = ("entropy", "total_entropy")  # of one network, of the mean of several
_VALUES = (*TRUTHS, *MAIN)
_LOOKS = {"its own score": draw.RED, "entropy of its probabilities": draw.BLUE}


def medians(models: Sequence[Row], draws: Sequence[Any]) -> list[Row]:
    """Draw by draw, each method with each of its scores: medians over its models."""
    parts: dict[tuple[Any, str, str], list[Row]] = {}
    for model in models:
        parts.setdefault((model["draw"], model["family"], model["score"]), []).append(model)
    found = []
    for (of, method, score), part in parts.items():
        if of in draws:
            row = {"method": method, "score": score, "draw": of, "models": len(part)}
            found.append(row | {name: _median([model[name] for model in part]) for name in _VALUES})
    return found


def _median(values: Sequence[float | None]) -> float:
    known = [value for value in values if draw.known(value)]
    return float(np.median(known)) if known else math.nan  # type: ignore[arg-type]


def scores_of(method: Mapping[str, Any]) -> dict[str, str]:
    """The two scores that stand for a method, which may be the same; one where it has no entropy."""
    names = method["scores"]
    own = OWN.get(method["name"], names[0])
    entropies = [name for name in names if name in _ENTROPIES]
    return dict(zip(_LOOKS, [own if own in names else names[0], *entropies[:1]], strict=False))


# ---- tables ----------------------------------------------------------------------------------------------------


def correlations_grid(study: Study, by_method: Sequence[Row]) -> Grid:
    """A line for each method: do the metrics follow the truths among its own scores?"""
    printed, names = study.settings["grid"].get("paper", []), _titles(study)
    of_grid = [method["name"] for method in study.settings["grid"]["methods"]]
    rows, marked = [], set()
    if printed and set(of_grid) <= set(names):
        marked.add(_WORDS["printed"])
        rows.append([_WORDS["printed"], "–", *(percent_cell(pick(printed, *pair)) for pair in FOUR)])
    if set(of_grid) < set(names):
        part = [model for model in study.models if model["family"] in of_grid]
        rows.append(_line(_WORDS["grid"], correlate(part, study.settings["draws"])[0]))
    if len(names) > 1:
        rows.append(_line(_WORDS["all"], study.correlations))
    for name, title in names.items():
        rows.append(_line(title, [row for row in by_method if row["method"] == name]))
    return Grid(["scores of", "a draw", *HEADS], rows, _WORDS["correlations"], [_WORDS["below"]], marked)


def _line(title: str, rows: Sequence[Row]) -> list[str]:
    found = summarise(rows)
    return [title, str(max(row["n"] for row in rows)), *(median_cell(found, *pair) for pair in FOUR)]


def scores_grid(study: Study, by_score: Sequence[Row]) -> Grid:
    """A line for each method and score: how it orders, by the truths and by the metrics."""
    rows, over_draws = [], _over_draws(by_score)
    for method in study.settings["methods"]:
        for k, score in enumerate(dict.fromkeys(scores_of(method).values())):
            title = f"{_titles(study)[method['name']]}: {_readable(score)}{' (its own)' if k == 0 else ''}"
            values = over_draws[method["name"], score]
            rows.append([title, *(_spread(values[name]) for name in _VALUES)])
    head = ["method and score", *(COLUMNS[name] for name in TRUTHS), *(TITLES[name] for name in MAIN)]
    return Grid(head, rows, _WORDS["scores"], [_WORDS["below_scores"]])


def _over_draws(by_score: Sequence[Row]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """The values of all draws, by method and score."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in by_score:
        values = found.setdefault((row["method"], row["score"]), {name: [] for name in _VALUES})
        for name in _VALUES:
            values[name].append(row[name])
    return found


def _spread(values: Sequence[float]) -> str:
    """Median and range."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "–"
    middle = f"{np.median(known):.2f}"
    return (middle if len(known) < 2 else f"{middle} ({min(known):.2f} to {max(known):.2f})").replace("-", "−")


def _titles(study: Study) -> dict[str, str]:
    return {method["name"]: method.get("title", method["name"]) for method in study.settings["methods"]}


def _readable(score: str) -> str:
    return score.replace("_", " ")


# ---- lines -----------------------------------------------------------------------------------------------------


def agreement(study: Study, by_score: Sequence[Row]) -> list[str]:
    """Whether the metrics put the methods in the order that the truths do, draw by draw; of three methods or more."""
    lines, draws = [], study.settings["draws"]
    values = {(row["draw"], row["method"], row["score"]): row for row in by_score}
    for kind in _LOOKS:
        chosen = {m["name"]: scores_of(m)[kind] for m in study.settings["methods"] if kind in scores_of(m)}
        for metric, truth in zip(MAIN, TRUTHS, strict=True) if len(chosen) > 2 else ():
            taus, same = [], 0
            for of in draws:
                rows = [values[of, name, score] for name, score in chosen.items()]
                pair = np.array([[row[metric], row[truth]] for row in rows if draw.known(row[metric], row[truth])])
                if len(pair) > 2:
                    taus.append(kendall_tau(*pair.T))
                    same += int(pair[:, 0].argmax() == pair[:, 1].argmax())
            if taus:
                what = (len(chosen), TITLES[metric], TITLES[truth])
                lines.append(_WORDS["agreement"].format(kind, *what, _spread(taus), same, len(draws)))
    return lines


# ---- the figure ------------------------------------------------------------------------------------------------


def methods_and_truths(study: Study, by_score: Sequence[Row]) -> theme.Figure:
    """Above the truth, below its metric: a row for each method, those first that order best by the truth."""
    lines = [[_panel(study, by_score, value, truth) for truth, value in pairs] for pairs in _PANELS]
    count = len(study.settings["draws"])
    words = f"ticks: each of {count} draws, the median over a method's models; dots: the median of the ticks"
    notes = [words, "methods stand in the order of their own score's rank correlation above"]
    chart = draw.stack(lines, across=24, down=30).resolve_scale(color="shared", shape="shared")
    return draw.finish(chart, "Which methods order inputs as the truths do, and do the metrics see it?", notes)


_PANELS = ([(truth, truth) for truth in TRUTHS], list(zip(TRUTHS, MAIN, strict=True)))


def _panel(study: Study, by_score: Sequence[Row], value: str, truth: str) -> Any:
    """One value of all methods, in the order of a truth."""
    ticks, dots, ranks = [], [], {}
    values: list[float] = []
    over_draws = _over_draws(by_score)
    for method in study.settings["methods"]:
        scores = scores_of(method)
        own = next(iter(scores.values()))
        label = draw.label(f"{_titles(study)[method['name']]}: {_readable(own)}")
        ranks[label] = _median(over_draws[method["name"], own][truth])
        for kind, score in scores.items():
            known = [x for x in over_draws[method["name"], score][value] if not math.isnan(x)]
            values += known
            ticks += [{"method": label, "score": kind, "value": x} for x in known]
            dots.append({"method": label, "score": kind, "value": _median(known)})
    order = sorted(ranks, key=lambda label: (math.isnan(ranks[label]), -ranks[label]))
    useless = 0.5 if value in MAIN else 0.0
    across = draw.airy([useless, *values], 0.04)
    x = alt.X("value:Q", title=None, scale=across, axis=alt.Axis(tickCount=6))
    y = alt.Y("method:N", title=None, sort=order)
    apart = alt.YOffset("score:N", sort=list(_LOOKS), scale=alt.Scale(paddingInner=0.1, paddingOuter=0.35))
    key = alt.Legend(title=None, orient="bottom", symbolOpacity=1, labelLimit=320)
    color = draw.by_name(alt.Color, "score", _LOOKS, key)
    layers = [
        draw.rule("x", useless, across),
        draw.chart(ticks).mark_tick(opacity=0.55, thickness=1.3, height=9).encode(x=x, y=y, yOffset=apart, color=color),
        draw.chart(dots).mark_circle(size=58, opacity=1).encode(x=x, y=y, yOffset=apart, color=color),
    ]
    height = 34 * len(order) + 10
    return draw.panel(*layers, size=(280, height), words=TITLES[value])
