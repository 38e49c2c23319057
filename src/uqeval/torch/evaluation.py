"""`uq.evaluate` on tensors of a device: every score against every metric that needs a score, errors and a loss.

The rows stay where they are. Whatever is odd about them is left to the evaluation of arrays, which says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from uqeval._errors import InputError, collected, notify
from uqeval.evaluation.evaluate import How
from uqeval.evaluation.notes import notes_of
from uqeval.evaluation.result import Evaluation
from uqeval.evaluation.table import Row, Table
from uqeval.inference.count import count_share
from uqeval.inference.intervals import estimate_ranking
from uqeval.inference.means import estimate_mean
from uqeval.inference.tally import PairTally
from uqeval.metrics.registry import REGISTRY, Metric
from uqeval.torch.checks import check_tensors
from uqeval.torch.counting import SweptTensor
from uqeval.torch.tallies import count_errors, count_pairs, counts, error_tally, one


class _Counted(NamedTuple):
    """All that is needed of a score."""

    swept: SweptTensor
    pairs: PairTally | None  # where the UQ-C-index is wanted


def evaluate_tensors(
    scores: Mapping[str, Any], error: Any, loss: Any, metrics: Sequence[str] | None, how: How
) -> Evaluation | None:
    """As of the same numbers in arrays; None where tensors are not enough, or something is odd about them."""
    there = {"score", "error"} | ({"loss"} if loss is not None else set())
    known = [metric.name for metric in REGISTRY.values() if counts(metric) and there >= {*metric.needs}]
    names = known if metrics is None else list(dict.fromkeys(metrics))
    if not names or not {*names} <= {*known}:
        return None
    chosen = [REGISTRY[name] for name in names]
    with collected() as raised:
        counted: dict[str, _Counted] = {}
        for name, score in scores.items():
            if (found := _counted(name, score, error, loss, chosen)) is None:
                return None
            counted[name] = found
    sums = next(iter(counted.values())).swept.sums
    table = Table(list(_rows(counted, chosen, how)))
    return Evaluation(
        n=sums.rows,
        n_errors=sums.wrong,
        accuracy=(sums.rows - sums.wrong) / sums.rows,
        level=how.level,
        tie_rate={name: each.swept.sums.tied_pairs / (sums.rows * (sums.rows - 1)) for name, each in counted.items()},
        rows=table,
        warnings=tuple(notes_of(table, raised)),
        same_ranking=() if len(counted) == 1 else None,
        targets={metric.name: metric.needs[1] for metric in chosen if metric.uses_score},
        two_targets=loss is not None,
        mean_loss=sums.wrong / sums.rows,
    )


def _counted(name: str, score: Any, error: Any, loss: Any, metrics: Sequence[Metric]) -> _Counted | None:
    """None where some row is odd."""
    try:
        given: list[Tensor] = check_tensors(score=score, error=error, **({} if loss is None else {"loss": loss}))
    except InputError:
        return None
    swept, odd = count_errors(
        given[0], given[1], [metric.formula for metric in metrics if metric.needs == ("score", "error")]
    )
    if odd.refused:
        return None
    if odd.infinite:
        notify(f"{name}: {int(given[0].isinf().sum())} infinite values; they rank first or last and tie")
    pairs = None
    if any(metric.tally == "pairs" for metric in metrics):
        pairs, odd = count_pairs(given[0], given[2])
        if odd.refused or odd.target:
            return None
    return _Counted(swept, pairs)


def _rows(counted: Mapping[str, _Counted], metrics: Sequence[Metric], how: How) -> Iterator[Row]:
    """Every score with every metric that ranks, then the accuracy, if it was asked for."""
    asked: list[tuple[str | None, Metric]] = [(name, m) for name in counted for m in metrics if m.uses_score]
    asked += [(None, metric) for metric in metrics if not metric.uses_score]
    for done, (name, metric) in enumerate(asked, 1):
        each = next(iter(counted.values())) if name is None else counted[name]
        yield Row(name, metric.name, None, one(_estimated(each, metric, how.level)))
        if how.progress is not None:
            how.progress("evaluating", done, len(asked))


def _estimated(counted: _Counted, metric: Metric, level: float) -> Any:
    if metric.tally == "mean":
        return estimate_mean(metric, count_share(counted.swept.sums.rows, counted.swept.sums.wrong), level)
    if metric.tally == "pairs":
        assert counted.pairs is not None
        return estimate_ranking(metric, counted.pairs, level)
    return estimate_ranking(metric, error_tally(metric, counted.swept), level)
