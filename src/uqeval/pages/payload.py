"""An evaluation or a comparison → what the page says, as a plain dict of text and numbers.

Nothing here is HTML, and nothing is escaped: that is for `builder`. Rows are aggregated, so that the dict is as small
for a million of them as for a thousand.
"""

import hashlib
import math
from typing import Any

import numpy as np

from uqeval._errors import InputError, collected
from uqeval._result import Grid, number, p_text, versions
from uqeval.decide.choose import choose_threshold
from uqeval.decide.threshold import Threshold
from uqeval.evaluation.compare import Question, compare_data
from uqeval.evaluation.comparison import Comparison
from uqeval.evaluation.result import Evaluation
from uqeval.inference.sample import kish
from uqeval.metrics.registry import REGISTRY
from uqeval.pages import builder, charts, mistakes
from uqeval.pages.explorer import explore, steady
from uqeval.pages.origin import Files, Origin
from uqeval.pages.stills import Pen
from uqeval.pages.words import clip, signed
from uqeval.plot.data import prepare
from uqeval.plot.names import shortened
from uqeval.plot.theme import SCHEMA

MOST_SCORES = 8  # in charts and explorer; the table has all
_MOST_GROUPS = 20
_MOST_PAIRS = 60
_WORDS = ((0.9, "very well"), (0.8, "well"), (0.7, "fairly well"), (0.0, "weakly"))


def evaluation_payload(
    ev: Evaluation,
    *,
    max_risk: float,
    title: str | None,
    columns: Any,
    most_mistakes: int,
    compare: bool,
    files: Files | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Everything on the page of an evaluation."""
    known = () if ev.source is None else ev.source.pred.files
    origin = Origin(files or known, command)
    with Pen() as pen:
        said = _evaluation(ev, pen, max_risk, title, columns, most_mistakes, compare)
    return said | {"origin": origin.found()}


def _evaluation(
    ev: Evaluation, pen: Pen, max_risk: float, title: str | None, columns: Any, most_mistakes: int, compare: bool
) -> dict[str, Any]:
    table = ev.source
    lead_metric, lead = _lead(ev)
    listed = mistakes.find(ev, lead, columns, most_mistakes)  # first: bad columns are said before the long work
    builder.begin_script(SCHEMA)
    shown = _shown(ev, lead_metric)
    if table is not None:
        prepare(table, shown, ev.level)
    explorer = explore(ev, shown, max_risk)
    act, act_note = _act(ev, lead, max_risk)
    drawn, chart_notes = charts.of_evaluation(ev, shown, lead, act, explorer)
    pen.draw(drawn)
    cmp, cmp_notes = _compared(ev, shown) if compare else (None, [])
    compared = None if cmp is None else comparison_section(cmp, pen, ev)
    return {
        "kind": "evaluation",
        "title": title or "Can this uncertainty be trusted?",
        "headline": ev.headline(),
        "classes": ev.classes_line(),
        "n": ev.n,
        "errors": None if ev.accuracy is None else ev.n_errors,
        "accuracy": ev.accuracy,
        "tried": len(ev.scores),
        "split": len(ev.groups),
        "verdict": _verdict(ev, lead_metric, lead, act, act_note) | {"more": _accepts_more(act, explorer)},
        "table": _metric_table(ev, lead_metric),
        "model": _model(ev),
        "glossary": _glossary(ev.metrics),
        "charts": drawn,
        "explorer": explorer,
        "steady": [] if explorer is None else steady(explorer, lead),
        "kept": table is not None,
        "mistakes": listed,
        "groups": _groups(ev, shown, lead_metric),
        "comparison": compared,
        "shown": shown,
        "hidden": len(ev.distinct) - len(shown),
        "level": f"{100 * ev.level:.6g}%",
        "clusters": None if table is None or table.pred.clusters is None else int(table.pred.clusters.max()) + 1,
        "equal_rows": None if table is None or table.weights is None else round(kish(table.weights)),
        "words": _WORDS,
        "warned": [*ev.tie_notes(), *ev.warnings, *cmp_notes, *(explorer or {}).get("notes", []), *chart_notes],
        "versions": versions(),
        "data_hash": data_hash(ev),
    }


def comparison_payload(
    cmp: Comparison, *, title: str | None, files: Files | None = None, command: str | None = None
) -> dict[str, Any]:
    """Everything on the shorter page of a comparison."""
    origin = Origin(files, command)
    with Pen() as pen:
        section = comparison_section(cmp, pen)
    return {
        "kind": "comparison",
        "title": title or "Is the difference real?",
        "headline": cmp.headline(),
        "comparison": section,
        "origin": origin.found(),
        "glossary": _glossary((cmp.metric,)),
        "charts": [],
        "explorer": None,
        "warned": [*cmp.copies_notes(), *cmp.warnings],
        "versions": versions(),
        "data_hash": None,
    }


# ---- the verdict ----------------------------------------------------------------------------------------------


def _lead(ev: Evaluation) -> tuple[str | None, str]:
    """The metric that picks the score to speak of, and that score."""
    ranking = [name for name in ev.metrics if REGISTRY[name].uses_score]
    if ev.n_errors in (0, ev.n):  # nothing to rank: the order of the losses of right answers is no verdict
        return None, ev.distinct[0]
    for metric in sorted(ranking, key=lambda name: {"uq_auc": 0, "top_label_c_index": 1, "uq_c_index": 2}.get(name, 2)):
        if (best := ev.leader(metric)) is not None:
            return metric, best
    return None, ev.scores[0]


def _shown(ev: Evaluation, metric: str | None) -> list[str]:
    """The best few scores, one of each ranking, in the order of the table."""
    best = [name for name in _best_first(ev, metric) if name in ev.distinct][:MOST_SCORES]
    return [name for name in ev.distinct if name in best]


def _best_first(ev: Evaluation, metric: str | None) -> list[str]:
    """All scores; those without a value last."""
    if metric is None:
        return list(ev.scores)
    sign = -1 if REGISTRY[metric].direction == "higher" else 1
    values = {name: ev[name, metric].value for name in ev.scores}
    return sorted(ev.scores, key=lambda name: (math.isnan(values[name]), sign * values[name]))


def _act(ev: Evaluation, lead: str, max_risk: float) -> tuple[Threshold | None, str | None]:
    """The certified threshold of the leading score, or why there is none."""
    table = ev.source
    if table is None:
        return None, "The rows were not kept, so no threshold can be certified here."
    if table.weights is not None:
        return None, (
            "No threshold is certified on this page, since the rows are weighted. uqeval.choose_threshold (uqeval "
            "threshold on the command line) takes weights."
        )
    if table.share_loss is None:
        return None, "No threshold is certified: that needs errors, or a loss between 0 and 1."
    rows: dict[str, Any] = {"error": table.share_loss, "clusters": table.pred.clusters, "n_scores": len(ev.distinct)}
    rows |= {"risk": "loss"} if table.risk == "loss" else {}
    try:
        with collected():
            return choose_threshold({lead: table.score(lead)}, max_risk=max_risk, level=ev.level, **rows), None
    except InputError as error:
        return None, f"No threshold is certified: {error}"


def _verdict(ev: Evaluation, metric: str | None, lead: str, act: Threshold | None, note: str | None) -> dict[str, Any]:
    """What the first lines of the page are made of; `note` says why there is no threshold."""
    e = None if metric is None else ev[lead, metric]
    return {
        "score": lead,
        "few": ev.too_few(),
        "metric": metric,
        "title": None if metric is None else REGISTRY[metric].title,
        "estimate": e,
        "how": None if e is None else next((word for least, word in _WORDS if e.value >= least), None),
        "act": act,
        "note": note,
        "tried": len(ev.distinct),
        "lines": [line for line in ev.verdict() if not line.startswith(f"{lead} ranks errors best")],
    }


def _accepts_more(act: Threshold | None, explorer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Another score that accepts more at the same promise, which holds for all scores together."""
    if act is None or explorer is None:
        return None
    at = explorer["targets"].index(act.max_risk)
    best = max(explorer["scores"], key=lambda part: part["certified"][at]["coverage"], default=None)
    found = {"coverage": 0.0} if best is None else best["certified"][at] | {"name": best["name"]}
    return found if found["coverage"] > act.coverage else None


# ---- tables ---------------------------------------------------------------------------------------------------


def _metric_table(ev: Evaluation, by: str | None) -> Grid | None:
    panel = next((panel for panel in ev.panels(width=len(ev.metrics) or 1) if panel.title is None), None)
    if panel is None:
        return None
    found = {name: [clip(name), *(signed(text) + " *" * top for text, top in cells)] for name, cells in ev.cells(panel)}
    rows = [found[name] for name in _best_first(ev, by)]
    note = "Value and interval. ↑ higher is better, ↓ lower is better; the best of each column is marked. "
    note += "" if by is None or len(rows) == 1 else f"Best {REGISTRY[by].title} first. "
    note += (ev.detectable_line() or "") if len(ev.distinct) > 1 else ""
    notes = [note, *ev.same_numbers(), *(f"Empty: {line}." for line in ev.undefined_lines(groups=False))]
    return Grid(["score", *(title for title, _, _ in panel.columns)], rows, "Metrics by score, with intervals", notes)


def _model(ev: Evaluation) -> Grid | None:
    rows = [[name, signed(str(estimate))] for name, estimate in ev.model_lines()]
    return Grid(["metric", "value (interval)"], rows, "Metrics of the model") if rows else None


def _glossary(metrics: tuple[str, ...]) -> list[list[str]]:
    """What each metric means: the first line of its documentation."""
    found = []
    for known in (REGISTRY[name] for name in metrics):
        words = (known.function.__doc__ or "").strip().splitlines()[0].replace("`", "")
        found.append([known.title, f"{words.rstrip('.')}; {known.direction} is better."])
    return found


def _groups(ev: Evaluation, shown: list[str], metric: str | None) -> dict[str, Any] | None:
    if not ev.groups:
        return None
    groups = ev.groups[:_MOST_GROUPS]
    models = list(dict.fromkeys(row.metric for row in ev.rows.whole if row.score is None))[:1]
    scored = [] if metric is None else shown
    keys = [*((None, name) for name in models), *((name, metric) for name in scored)]
    counts, rows = ev.group_counts(), []
    assert counts is not None
    for group, (_, *sizes) in zip(groups, counts.rows, strict=True):
        rows.append([clip(group), *sizes, *(signed(ev[*key, group].cell) for key in keys)])
    head = [*counts.head, *(ev.heading(name) for name in models), *map(clip, scored)]
    hidden = len(ev.groups) - len(groups)
    notes = [f"… and {hidden} more groups, in the Evaluation itself."] if hidden else []
    table = Grid(head, rows, "Metrics by group", notes)
    return {"metric": None if metric is None else ev.heading(metric), "table": table, "lines": ev.mixed_lines()}


def comparison_section(cmp: Comparison, pen: Pen, like: Evaluation | None = None) -> dict[str, Any]:
    """Verdict, ranking, pairs and who cannot be told from whom."""
    drawn, notes = charts.of_comparison(cmp, like)
    pen.draw(drawn)
    whole, names = [row for row in cmp.rows if row.group is None], shortened(cmp.values)
    parts = [row for row in cmp.rows if row.group is not None]
    rows = [
        [
            f"{names[row.a]} − {names[row.b]}",
            *([clip(row.group or "all rows")] if parts else []),
            signed(f"{number(row.difference)} ({number(row.low)} to {number(row.high)})"),
            p_text(row.p),
            p_text(row.p_adjusted),
        ]
        for row in [*whole, *parts][:_MOST_PAIRS]
    ]
    hidden, title = len(cmp.rows) - len(rows), REGISTRY[cmp.metric].title
    head = ["pair", *(["group"] if parts else []), "difference (interval)", "p", "adjusted p"]
    more = [f"… and {hidden} more, in the Comparison itself."] if hidden else []
    values = [[clip(name), signed(number(cmp.values[name]))] for name in cmp.ranking()]
    return {
        "headline": cmp.headline(),
        "verdict": cmp.verdict(),
        "title": title,
        "ranking": Grid(["candidate", title], values, f"{title} of each candidate"),
        "pairs": Grid(head, rows, "Paired differences", more),
        "alike": [[clip(name) for name in run] for run in cmp.groups()],
        "count": len(whole),
        "adjust": cmp.adjust,
        "level": f"{100 * cmp.level:.6g}%",
        "charts": drawn,
        "notes": notes,
    }


def _compared(ev: Evaluation, shown: list[str]) -> tuple[Comparison | None, list[str]]:
    """The shown scores against each other, on UQ-AUC, or on UQ-C-index where only a loss is known."""
    if (table := ev.source) is None or len(shown) < 2:
        return None, []
    metric = REGISTRY["uq_auc" if table.error is not None else "uq_c_index"]
    with collected() as notes:
        found = compare_data(table, shown, Question(metric, None, "max-t", ev.level, 0))
    return found, [f"comparison: {note}" for note in notes]


def data_hash(ev: Evaluation) -> str | None:
    """SHA-256 of what was judged: scores by name, errors, loss, weights, clusters and groups, in the order of rows."""
    if (table := ev.source) is None:
        return None
    found, pred = hashlib.sha256(), table.pred
    parts: dict[str, Any] = {f"score {name!r}": table.score(name) for name in ev.scores}
    parts |= {"error": table.error, "loss": pred.loss, "labels": pred.labels, "weights": pred.weights}
    parts |= {"clusters": pred.clusters, "groups": pred.groups}
    for name, values in parts.items():
        if values is not None:
            found.update(f"{name} {len(values)} {values.dtype.str}\n".encode("utf-8", "backslashreplace"))
            found.update(np.ascontiguousarray(values).data)
    return found.hexdigest()
