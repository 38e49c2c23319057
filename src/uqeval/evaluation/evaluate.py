"""Every score against every metric, overall and by group, of rows in memory."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from uqeval import kernels
from uqeval import scores as score_functions
from uqeval._check import (
    MEND,
    Progress,
    all_finite,
    check_errors,
    check_lengths,
    check_seed,
    check_vector,
    omits,
    to_array,
    without_nan,
)
from uqeval._errors import InputError, collected, notify
from uqeval.evaluation.across import same_in_groups
from uqeval.evaluation.groups import Groups
from uqeval.evaluation.notes import notes_of
from uqeval.evaluation.result import Evaluation
from uqeval.evaluation.row_data import RowData
from uqeval.evaluation.table import Column, Mixed, Row, Table
from uqeval.inference.estimate import bootstrapped
from uqeval.inference.forms import load_beside
from uqeval.inference.measure import resample
from uqeval.inference.result import Estimate, Estimates
from uqeval.inputs import Predictions
from uqeval.inputs.columns import OPPOSITE
from uqeval.metrics.registry import REGISTRY, Metric, get_metric

_MOST_NAMED = 5  # groups that are left out


@dataclass(frozen=True)
class How:
    """How rows are judged: level, resamples (0: the default intervals), seed of what draws."""

    level: float
    resamples: int = 0
    seed: int = 0
    progress: Progress | None = None
    risk: str | None = None  # what the selective metrics take
    largest_cluster: int | None = None  # the most rows that any can have, where a user says so


def evaluate_rows(
    pred: Predictions, scores: Sequence[str] | str | None, metrics: Sequence[str] | str | None, how: How
) -> Evaluation:
    """All estimates of predictions in memory; what limits them is in `warnings`."""
    load_beside()
    with collected() as raised:
        data = RowData.of(without_zero_weights(pred), how.risk, how.largest_cluster)
        names = check_scores(pred, scores)
        if metrics is None:
            data.find_columns()
        chosen = check_metrics(data, metrics)
        data.compute_scores(names)
        data.find_copies(names)
        for name in names:
            if name not in pred.finite_scores and not all_finite(data.score(name)):
                count = int(np.isinf(data.score(name)).sum())
                notify(f"{name}: {count} infinite values; they rank first or last and tie")
        groups = [name for name, size in _sizes(data).items() if size >= 2]
        told = _Counter(how, names, chosen, 1 + len(groups))
        rows = list(told(estimates(data, names, chosen, how, by_row=bool(groups))))
        table = _by_group(data, rows, names, chosen, how, told, groups) if groups else Table(rows)
        known = set(groups)
        note_small([name for name in pred.group_names if name not in known])
        mixed: tuple[Mixed, ...] = ()
        if groups and spans_groups(data):
            notify("clusters span several groups: no test across groups")
        elif groups:
            mixed = same_in_groups(table)
    return Evaluation(
        n=data.n,
        n_errors=None if data.error is None else int(np.count_nonzero(data.error)),
        accuracy=data.accuracy,
        level=how.level,
        tie_rate={name: data.tie_rate(name) for name in names},
        rows=table,
        warnings=tuple(notes_of(table, raised)),
        heterogeneity=mixed,
        same_ranking=data.copies.groups,
        targets={metric.name: data.target_of(metric) for metric in chosen if metric.uses_score},
        two_targets=data.two_targets,
        mean_loss=data.mean_loss,
        source=data,
        classes=pred.classes if pred.probs is not None else (),
    )


# ---- input ------------------------------------------------------------------------------------------------------


def from_arrays(score: Any, plain: dict[str, Any], nan: str) -> Predictions:
    """Plain arrays as predictions."""
    omit = omits(nan)
    if score is None:
        raise InputError("Nothing to evaluate. Pass predictions, or score= and one of error=, loss=.")
    own = dict(score) if isinstance(score, Mapping) else {"score": score}
    plain = {name: value for name, value in plain.items() if name not in OPPOSITE.values()} | _turned(plain, omit)
    if omit:
        own, plain = _omit(own, plain)
    if type(plain.get("error")) is np.ndarray:  # used as it lies, like the scores
        plain = plain | {"error": plain["error"].view()}
        plain["error"].flags.writeable = False
    return Predictions(scores=own, **plain)


def _turned(plain: Mapping[str, Any], missing: bool) -> dict[str, Any]:
    """Error and loss from what says the opposite."""
    found = {}
    for role, name in OPPOSITE.items():
        if plain.get(name) is None:
            continue
        if plain[role] is not None:
            raise InputError(f"Pass `{role}` or `{name}`, not both: one is 1 − the other.")
        values = check_vector(name, plain[name], missing=missing)
        if role == "error":
            check_errors(name, values[~np.isnan(values)], MEND, right=1)
        found[role] = 1.0 - values
    return found


def _omit(own: dict[str, Any], plain: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Without the rows in which any number is NaN."""
    numbers = {f"score[{name!r}]": value for name, value in own.items()}
    numbers |= {name: plain[name] for name in ("error", "loss", "weights") if plain[name] is not None}
    clean = {name: check_vector(name, value, finite=False, missing=True) for name, value in numbers.items()}
    names = {name: to_array(name, plain[name]) for name in ("clusters", "groups") if plain[name] is not None}
    check_lengths(**clean, **names)
    if (keep := without_nan(*clean.values())) is None:
        return own, plain
    plain = {name: None if value is None else np.asarray(value)[keep] for name, value in plain.items()}
    return {name: np.asarray(value)[keep] for name, value in own.items()}, plain


def without_zero_weights(pred: Predictions) -> Predictions:
    """Without the rows of weight 0."""
    if pred.weights is None or (keep := pred.weights > 0).all():
        return pred
    if keep.sum() < 2:
        raise InputError("`weights` is positive in 1 row only. Ranking needs at least 2.")
    return pred.take(keep)


def check_scores(pred: Predictions, scores: Sequence[str] | str | None) -> list[str]:
    """The scores asked for, or all that the predictions allow."""
    known = score_functions.available(pred)
    names = list(known) if scores is None else [scores] if isinstance(scores, str) else list(dict.fromkeys(scores))
    for name in names:
        if name not in known:
            score_functions.compute(name, pred)  # raises, and says what is missing
    if not names:
        raise InputError("No score to evaluate. Pass probabilities, logits, members, or scores of your own.")
    return names


def check_metrics(data: RowData, metrics: Sequence[str] | str | None) -> list[Metric]:
    """The metrics asked for, or all that the rows allow."""
    if metrics is None:
        usual = (metric for metric in REGISTRY.values() if metric.usual and metric.tally != "two sets")
        found = [metric for metric in usual if not data.missing(metric) and not data.repeats(metric)]
        if not any(metric.uses_score for metric in found):
            raise InputError("No metric can rank a score here. Pass `error`, `loss`, or labels and probabilities.")
        return found
    chosen = [get_metric(name) for name in ([metrics] if isinstance(metrics, str) else metrics)]
    for metric in chosen:
        if metric.tally == "two sets":
            raise InputError(
                f"{metric.name} needs {', '.join(metric.needs)}, which these predictions do not give. "
                f"Pass them, or leave it out."
            )
        if missing := data.missing(metric):
            raise InputError(
                f"{metric.name} needs {', '.join(missing)}, which these predictions do not give. "
                f"Pass them, or leave it out."
            )
    if not chosen:
        raise InputError(f"`metrics` is empty. Leave it out for all, or pick from {', '.join(REGISTRY)}.")
    return list(dict.fromkeys(chosen))


def _sizes(data: RowData) -> dict[str, int]:
    """Rows of each group."""
    groups, names = data.pred.groups, data.pred.group_names
    counts = () if groups is None else np.bincount(groups, minlength=len(names)).tolist()
    return dict(zip(names, counts, strict=False))


# ---- rows → estimates -------------------------------------------------------------------------------------------


class _Counter:
    """Passes rows on and tells how many there were, over all rows and all groups."""

    def __init__(self, how: How, scores: list[str], metrics: list[Metric], parts: int) -> None:
        self._progress = None if how.resamples else how.progress  # the bootstrap tells its own
        self._total = parts * sum(len(scores) if metric.uses_score else 1 for metric in metrics)
        self._done = 0
        self._lock = threading.Lock()  # groups share the cores

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            yield row
            self.add(1)

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            if self._progress is not None:
                self._progress("evaluating", self._done, self._total)


def estimates(
    data: RowData,
    names: Sequence[str],
    metrics: Sequence[Metric],
    how: How,
    *,
    group: str | None = None,
    by_row: bool = False,
) -> Iterator[Row]:
    """Every score with every metric that ranks, then the metrics of the model itself."""
    ranking, model = ([m for m in metrics if m.uses_score is ranks] for ranks in (True, False))
    data.count(names, ranking, by_row=by_row)
    by_name: dict[str, Estimate] = {}

    def work(some: list[Metric]) -> None:
        by_name.update((metric.name, _estimated(data, None, metric, how)) for metric in some)

    if not how.resamples:  # which share the cores themselves
        bins = [metric for metric in model if metric.tally == "ece"]  # of the same work
        alone = [[metric] for metric in model if metric not in bins]
        kernels.side_by_side([partial(work, some) for some in (bins, *alone) if some], data.n)
    for name in names:
        for metric in ranking:
            yield Row(name, metric.name, group, _estimated(data, name, metric, how))
    for metric in model:
        yield Row(None, metric.name, group, by_name.get(metric.name) or _estimated(data, None, metric, how))


def _estimated(data: RowData, name: str | None, metric: Metric, how: How) -> Estimate:
    measured = data.measured(metric, name)
    # The same seed for all: an interval does not depend on what else is asked for.
    found = measured.estimate(how.level, how.seed)
    if how.resamples:
        drawn = resample([measured], how.resamples, check_seed(how.seed), how.progress)
        found = bootstrapped(found, drawn[0])
    return found


# ---- groups -----------------------------------------------------------------------------------------------------


def note_small(groups: list[str]) -> None:
    """Says which groups are left out."""
    if groups:
        named = ", ".join(map(repr, groups[:_MOST_NAMED])) + (", …" if len(groups) > _MOST_NAMED else "")
        notify(f"{len(groups)} groups have fewer than 2 rows of positive weight and are left out: {named}")


def spans_groups(data: RowData) -> bool:
    """Whether some cluster has rows in several groups: then the groups are not independent."""
    pred = data.pred
    if pred.clusters is None or pred.groups is None:
        return False
    pairs = np.unique(np.stack([pred.clusters, pred.groups]), axis=1)
    return pairs.shape[1] > len(np.unique(pred.clusters))


def _by_group(
    data: RowData,
    rows: list[Row],
    names: Sequence[str],
    metrics: Sequence[Metric],
    how: How,
    told: _Counter,
    known: list[str],
) -> Table:
    """`rows`, and those of each group that is known: small groups all at once, the others one by one."""
    assert data.pred.groups is not None
    every = data.pred.group_names
    groups = Groups(data, data.pred.groups, len(every))
    at_once = [metric for metric in metrics if not how.resamples and groups.has_lanes(metric)]
    lanes = {every[g]: lane for lane, g in enumerate(groups.order[: groups.lanes].tolist())}
    stacked: dict[Column, Estimates] = {}

    def work(score: str | None, some: list[Metric]) -> None:
        for metric in some:
            stacked[score, metric.name] = groups.estimated(metric, score, how.level, how.seed)
            told.add(len(lanes))

    ranking, bins = ([m for m in at_once if m.uses_score], [m for m in at_once if m.tally == "ece"])
    alone = [[metric] for metric in at_once if metric not in (*ranking, *bins)]
    if at_once:
        groups.prepare({metric.target for metric in ranking})
        jobs = [partial(work, None, some) for some in (bins, *alone) if some]
        jobs += [partial(work, name, ranking) for name in names if ranking]
        kernels.side_by_side(jobs, data.n)
    rest = [metric for metric in metrics if metric not in at_once]
    wanted = set(known)
    for k, g in enumerate(groups.order.tolist()):
        left = rest if k < groups.lanes else list(metrics)
        if left and every[g] in wanted:
            rows += told(estimates(groups.part(k), names, left, how, group=every[g]))
    return Table(rows, known, lanes if at_once else None, stacked)
