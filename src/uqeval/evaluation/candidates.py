"""What is compared in memory: scores of one model, plain arrays, or models on the same rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from uqeval import scores as score_functions
from uqeval._check import Int, nearest
from uqeval._errors import InputError
from uqeval.evaluation.evaluate import check_scores, without_zero_weights
from uqeval.evaluation.groups import Groups
from uqeval.evaluation.row_data import RowData
from uqeval.inference.measure import Measurement
from uqeval.inputs import Predictions
from uqeval.metrics.copies import Groups as SameRanking
from uqeval.metrics.registry import Metric


@dataclass(frozen=True)
class Candidate:
    """A score of a model."""

    name: str
    data: RowData
    score: str | None  # None: the metric judges the model itself

    def measured(self, metric: Metric) -> Measurement:
        return self.data.measured(metric, self.score)


def find_candidates(
    given: Predictions | Mapping[str, Predictions],
    scores: Sequence[str] | str | None,
    metric: Metric,
    risk: str | None = None,
    largest_cluster: int | None = None,
) -> list[Candidate]:
    """Scores of one model, or models by name."""
    asked = [scores] if isinstance(scores, str) else None if scores is None else list(dict.fromkeys(scores))
    if asked == []:
        raise InputError("`scores` is empty. Leave it out for all, or name at least two.")
    if not isinstance(given, Predictions):
        found = _models(given, asked, metric, risk, largest_cluster)
    elif not metric.uses_score:
        raise InputError(f"{metric.name} is the same for all scores of one model. Compare models instead.")
    else:
        data = RowData.of(without_zero_weights(given), risk, largest_cluster)
        names = check_scores(given, asked)
        data.compute_scores(names)
        data.find_copies(names)
        found = [Candidate(name, data, name) for name in names]
    if len(found) < 2:
        raise InputError(f"Only one candidate ({found[0].name}). Pass at least two.")
    for candidate in found:
        if missing := candidate.data.missing(metric):
            raise InputError(
                f"{metric.name} needs {', '.join(missing)}, which {candidate.name} does not give. "
                f"Pass them, or leave it out."
            )
    return found


def without_copies(found: list[Candidate], baseline: str | None) -> tuple[list[Candidate], SameRanking]:
    """One candidate of each ranking of a model, the baseline where it is one of them; and who is one ranking."""
    together: dict[tuple[int, str | None], list[Candidate]] = {}
    for c in found:
        score = c.score if c.score is None else c.data.copies.first.get(c.score, c.score)
        together.setdefault((id(c.data), score), []).append(c)
    same = [sorted(group, key=lambda c: c.name != baseline) for group in together.values()]
    kept = {group[0].name for group in same}
    groups = tuple(tuple(c.name for c in group) for group in same if len(group) > 1)
    return [c for c in found if c.name in kept], groups


def by_group(found: list[Candidate], groups: Int, parts: int) -> Iterator[list[Candidate]]:
    """The same candidates on the rows of each group."""
    whole = {id(c.data): c.data for c in found}
    for cut in zip(*(Groups(data, groups, parts) for data in whole.values()), strict=True):
        own = dict(zip(whole, cut, strict=True))
        yield [replace(c, data=own[id(c.data)]) for c in found]


def _models(
    given: Mapping[str, Predictions],
    asked: list[str] | None,
    metric: Metric,
    risk: str | None,
    largest_cluster: int | None,
) -> list[Candidate]:
    (first, reference), *rest = given.items()
    for name, pred in rest:
        _same_rows(first, reference, name, pred)
    rows = {name: RowData.of(without_zero_weights(pred), risk, largest_cluster) for name, pred in given.items()}
    if not metric.uses_score:
        return [Candidate(name, data, None) for name, data in rows.items()]
    if asked is None:
        common = [
            s for s in score_functions.available(reference) if all(s in score_functions.available(p) for _, p in rest)
        ]
        if not common:
            raise InputError("The models have no score in common. Name one for all with scores=.")
        asked = common[:1]
    for name, data in rows.items():
        data.find_copies(check_scores(given[name], asked))
    return [
        Candidate(name if len(asked) == 1 else f"{name} / {score}", data, score)
        for name, data in rows.items()
        for score in check_scores(given[name], asked)
    ]


def _same_rows(first: str, a: Predictions, name: str, b: Predictions) -> None:
    """Models must be compared on the same rows."""
    if a.n != b.n:
        raise InputError(f"{name!r} has {b.n} rows but {first!r} has {a.n}. Compare models on the same rows.")
    for field in ("ids", "labels", "weights", "clusters", "groups"):
        x, y = _by_name(a, field), _by_name(b, field)
        if (x is None) != (y is None) and field in ("weights", "clusters", "groups"):
            raise InputError(f"Only one of {first!r} and {name!r} has `{field}`. Give the same to both.")
        if x is not None and y is not None and not np.array_equal(x, y):
            count = int((x != y).sum())
            raise InputError(
                f"`{field}` of {first!r} and {name!r} differ in {count} rows. Compare them on the same rows."
            )


def _by_name(pred: Predictions, field: str) -> np.ndarray | None:
    """A field as the user wrote it: two models may number the same classes, clusters or groups differently."""
    codes: np.ndarray | None = getattr(pred, field)
    names = {"labels": pred.classes, "clusters": pred.cluster_values, "groups": pred.group_names}.get(field)
    return codes if codes is None or names is None else np.asarray(names).astype(np.str_)[codes]


def find_pairs(names: list[str], baseline: str | None) -> list[tuple[int, int]]:
    """All pairs, or those with the baseline."""
    if baseline is None:
        return [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
    if baseline not in names:
        raise InputError(
            f'There is no candidate "{baseline}".{nearest(baseline, names)} Candidates: {", ".join(names)}.'
        )
    base = names.index(baseline)
    return [(a, base) for a in range(len(names)) if a != base]
