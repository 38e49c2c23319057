"""Tables over the models of a study on real data: correlations by score and by accuracy, families, comparisons."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uqeval._errors import collected
from uqeval.distributed.compare import compare
from uqeval.inputs import Predictions
from uqeval.reproduce.human.judging import FIRST_ORDER, Reference, read_rows
from uqeval.reproduce.logits.file import Prediction
from uqeval.reproduce.names import FOUR, MAIN, TITLES, TOP_LABEL, TRUTHS, Row
from uqeval.reproduce.study import FEWEST, columns, fisher, partial, williams

FLOORS = (0.5, 0.7)  # accuracies above which the table shows the correlations again
_ENOUGH = 8  # models for a correlation above some accuracy: with fewer it is all noise
_BEST = 4  # models that are compared with each other
OVR = {"uq_auc": "uq_auc_ovr", "uq_c_index": "uq_c_index_ovr"}  # the metrics one versus rest


def main_rows(models: Sequence[Row], floor: float = 0.0, score: str = "entropy") -> list[Row]:
    """The paper's choice: the entropy of single models; those at least this accurate."""
    return [row for row in models if row["kind"] == "single" and row["score"] == score and row["accuracy"] >= floor]


def several_label(row: Row) -> str:
    """What an ensemble or passes are called."""
    return f"{row['model']} ({row['members']} {row['kind']})"


def known_rows(rows: Sequence[Row], names: Mapping[str, str] | None = None) -> list[Row]:
    """Those in which both metrics and both truths have a value, so that all four correlations are over the same models.

    `names` says which columns to take for the metrics.
    """
    keys = [*((names or {}).get(metric, metric) for metric in MAIN), *TRUTHS]
    return [row for row in rows if all(row[key] is not None and math.isfinite(row[key]) for key in keys)]


def undefined(rows: Sequence[Row]) -> list[Row]:
    """The models that `known_rows` leaves out, and why."""
    found = []
    for row in rows:
        bad = [TITLES[key] for key in (*MAIN, *TRUTHS) if row[key] is None or not math.isfinite(row[key])]
        if bad:
            cause = {1.0: "it makes no error", 0.0: "it is always wrong"}.get(
                row["accuracy"], "there is nothing to rank"
            )
            words = f"{' and '.join(bad)} {'is' if len(bad) == 1 else 'are'} undefined: {cause}"
            found.append({"model": row["model"], "reason": words})
    return found


def _four(rows: Sequence[Row], level: float, names: Mapping[str, str] | None = None, **how: Any) -> list[Row]:
    """UQ-AUC and UQ-C-index with both truths, over the same models; `names` says which columns to take for them."""
    rows = known_rows(rows, names)
    return [
        {"metric": metric, "truth": truth}
        | fisher(*columns(rows, (names or {}).get(metric, metric), truth), level=level, **how)
        for metric, truth in FOUR
    ]


def more(models: Sequence[Row], main: Sequence[Row], floor: float, level: float) -> dict[str, list[Row]]:
    """Every table beside the main one; `main` are the rows of that one."""
    return {
        "by_score": by_score(models, floor, level),
        "floors": floors(main, level),
        "families": families(main, level),
        "one_vs_rest": one_vs_rest(main, level),
        "top_label": top_label(main, level),
        "accuracy_fixed": accuracy_fixed(main, level),
        "questions": questions(main, level) + (questions(main, level, OVR) if known_rows(main, OVR) else []),
    }


def by_score(models: Sequence[Row], floor: float, level: float) -> list[Row]:
    """The four correlations for every score that at least four models have; single models and others by themselves."""
    groups: dict[str, list[Row]] = {}
    for row in models:
        if row["accuracy"] >= floor:
            of_mean = row["kind"] != "single" and row["score"] in FIRST_ORDER
            groups.setdefault(row["score"] + "_of_the_mean" * of_mean, []).append(row)
    return [
        {"score": score} | row
        for score, rows in groups.items()
        if len(known_rows(rows)) >= FEWEST
        for row in _four(rows, level)
    ]


def floors(rows: Sequence[Row], level: float) -> list[Row]:
    """The four correlations over the models above an accuracy, for rising accuracies."""
    steps = sorted({round(0.05 * k, 2) for k in range(20)} | set(FLOORS))
    found: list[Row] = []
    before = 0
    for step in steps:
        kept = [row for row in rows if row["accuracy"] > step]
        if len(kept) < (FEWEST if step == 0 else _ENOUGH):
            break
        if len(kept) != before or step in FLOORS:  # a step that leaves nobody out tells nothing
            found += [{"accuracy": step} | row for row in _four(kept, level)]
        before = len(kept)
    return found


def families(rows: Sequence[Row], level: float) -> list[Row]:
    """The same correlations with intervals that take the families, not the models, as independent."""
    groups = [row["family"] for row in rows]
    if len(rows) < FEWEST or len(set(groups)) < 2:
        return []
    found = _four(rows, level, groups=np.array(groups))
    return [row | {"families": len(set(groups))} for row in found]


def one_vs_rest(rows: Sequence[Row], level: float) -> list[Row]:
    """The four correlations with both metrics one versus rest, averaged over classes."""
    return _four(rows, level, OVR) if known_rows(rows, OVR) else []


def top_label(rows: Sequence[Row], level: float) -> list[Row]:
    """Both metrics and the top-label C-index with both truths and with its best order; none for two classes."""
    metric, truth = TOP_LABEL
    rows = [row for row in known_rows(rows) if all(row[key] is not None for key in TOP_LABEL)]
    if len(rows) < FEWEST:
        return []
    return [
        {"metric": m, "truth": t} | fisher(*columns(rows, m, t), level=level)
        for m in (*MAIN, metric)
        for t in (*TRUTHS, truth)
    ]


def accuracy_fixed(rows: Sequence[Row], level: float) -> list[Row]:
    """The four correlations among models as if all were equally accurate: partial correlations."""
    rows = known_rows(rows)
    return [
        {"metric": metric, "truth": truth} | partial(*columns(rows, metric, truth, "accuracy"), level=level)
        for metric, truth in FOUR
    ]


def questions(rows: Sequence[Row], level: float, names: Mapping[str, str] | None = None) -> list[Row]:
    """What the paper's table says, asked of our models: two correlations each, the larger first, and Williams' test.

    Does each metric follow its truth better than the other metric does ("better"), and its truth more than the other
    one ("closer")? `names` says which columns to take for the metrics.
    """
    kept, names = known_rows(rows, names), names or {}
    r = {(row["metric"], row["truth"]): row for row in _four(rows, level, names)}
    found = []
    for asked in ("better", "closer"):
        for metric, truth, other_metric, other_truth in zip(MAIN, TRUTHS, MAIN[::-1], TRUTHS[::-1], strict=True):
            pair = (metric, truth), (other_metric, truth) if asked == "better" else (metric, other_truth)
            mine, other = (columns(kept, names.get(m, m), t) for m, t in pair)
            compared = (mine[0], other[0], mine[1]) if asked == "better" else (mine[1], other[1], mine[0])
            if (test := williams(*compared, level=level)) is not None:
                row = {"asked": asked, "one_vs_rest": bool(names), "metric": metric, "truth": truth}
                row |= {"other": pair[1][asked == "closer"], "r_other": r[pair[1]]["r"]}
                row |= {key: r[pair[0]][key] for key in ("r", "low", "high", "n")}
                found.append(row | {key: test[key] for key in ("difference", "p_williams", "p_steiger")})
    return found


def four_of(correlations: Sequence[Row]) -> dict[tuple[str, str], float] | None:
    """r of both metrics with both truths; None where one of them is unknown."""
    r = {(row["metric"], row["truth"]): row["r"] for row in correlations}
    found = {pair: r.get(pair, math.nan) for pair in FOUR}
    return None if any(map(math.isnan, found.values())) else found


# ---- comparisons -----------------------------------------------------------------------------------------------


def comparisons(
    models: Sequence[Row],
    predictions: Mapping[str, tuple[Prediction, list[str]]],
    reference: Reference,
    level: float,
    floor: float,
) -> list[Row]:
    """The best models with each other, and the scores of the best model, of ensembles and of passes, through `compare`.

    Differences of one question hold together (max-t). Models are compared by UQ-AUC alone, since UQ-C-index contains
    the model's own probabilities.
    """
    found: list[Row] = []
    best = _best(main_rows(models, floor), predictions)
    if len(best) > 1:
        tables = {name: _vectors(predictions[name][0], reference, ["entropy"]) for name in best}
        found += _compared("models, by entropy", tables, "uq_auc", None, level)
    several = [name for name in dict.fromkeys(row["model"] for row in models) if predictions[name][0].kind != "single"]
    for name in best[:1] + several:
        prediction, names = predictions[name]
        if len(names) < 2:
            continue
        table = _vectors(prediction, reference, names)
        size = "" if prediction.kind == "single" else f", {prediction.shape[0]} {prediction.kind}"
        baseline = "entropy" if prediction.kind == "single" else "total_entropy"
        for metric in MAIN:
            found += _compared(f"{name}{size}", table, metric, baseline if baseline in names else None, level)
    return found


def _best(rows: Sequence[Row], predictions: Mapping[str, tuple[Prediction, list[str]]]) -> list[str]:
    """The most accurate single models that cover the same rows as most do."""
    covered: dict[Any, list[Row]] = {}
    for row in rows:
        cover = predictions[row["model"]][0].covered()
        covered.setdefault(None if cover is None else cover.tobytes(), []).append(row)
    most = max(covered.values(), key=len, default=[])
    return [row["model"] for row in sorted(most, key=lambda row: -row["accuracy"])[:_BEST]]


def _vectors(prediction: Prediction, reference: Reference, names: list[str]) -> Predictions:
    rows = read_rows(prediction, reference, prediction.covered(), names, allow_chance=True)
    return Predictions(scores=rows.scores, error=rows.error, loss=rows.gap)


def _compared(what: str, candidates: Any, metric: str, baseline: str | None, level: float) -> list[Row]:
    with collected():
        result = compare(candidates, metric=metric, baseline=baseline, level=level)
    keys = ("difference", "low", "high", "p", "p_adjusted")
    return [
        {"of": what, "metric": metric, "a": pair.a, "b": pair.b}
        | {"value_a": result.values[pair.a], "value_b": result.values[pair.b]}
        | {key: getattr(pair, key) for key in keys}
        for pair in result.rows
    ]
