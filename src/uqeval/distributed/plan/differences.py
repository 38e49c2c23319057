"""All differences between the scores of the rows of an engine."""

from dataclasses import replace
from functools import partial
from typing import Any

from uqeval._errors import InputError, collected, notify
from uqeval.distributed.engines.protocol import Engine
from uqeval.distributed.plan.all_scores import joint_of_run
from uqeval.distributed.plan.by_group import by_group, differences_of_group
from uqeval.distributed.plan.run import Request, Run
from uqeval.distributed.plan.same_ranks import rank_alike_with
from uqeval.evaluation.candidates import find_pairs
from uqeval.evaluation.compare import Differences, Question, answered, few_notes, infinite_notes
from uqeval.evaluation.comparison import Comparison
from uqeval.inference.paired import ALIKE, contrast
from uqeval.metrics.copies import Copies
from uqeval.metrics.copies import Groups as SameRanking
from uqeval.scores.registry import one_of_two_classes

_MOST_NAMED = 20  # groups of a single row
_ROUNDING = 1e-12  # of the values: two scores that rank alike may have bins of their own


def compare_engine(engine: Engine, request: Request, question: Question) -> Comparison:
    """All pairs of scores of the rows of an engine; closes it, whatever happens."""
    metric = question.metric
    if not metric.uses_score:
        raise InputError(f"{metric.name} is the same for all scores of one model. Compare models instead.")
    if request.wanted.scores is not None and len(request.wanted.scores) < 2:
        raise InputError(f"Only one candidate ({', '.join(request.wanted.scores)}). Pass at least two.")
    try:
        with collected() as raised:
            run = Run(engine, request)
            if len(run.names) < 2:
                raise InputError(f"Only one candidate ({run.names[0]}). Pass at least two.")
            pairs = find_pairs(run.names, question.baseline)
            whole, clusters = _differences(run, pairs, question)
            groups: dict[str, Differences] = {}
            together = 0  # clusters, counted group by group
            if request.wanted.group is not None:
                work = partial(differences_of_group, run.names, metric.name, pairs)
                made = by_group(run, work, lambda part: _differences(part, pairs, question))
                groups = {name: one[0] for name, one in made.items() if one is not None}
                single = [name for name, one in made.items() if one is None]
                together = sum(one[1] for one in made.values() if one is not None)
                together += len(single) if run.prepare.cluster is not None else 0
                _note_single(single)
            computed = [name for name, column in run.prepare.scores if column is None]
            alike = one_of_two_classes(computed, len(run.prepare.classes))
            same = _same_ranking(run.names, pairs, whole, question.baseline, alike)
            copies = {name for group in same for name in group[1:]}
            kept = [k for k, pair in enumerate(pairs) if not copies & {run.names[side] for side in pair}]
            pairs, whole = [pairs[k] for k in kept], whole.only(kept)
            groups = {name: one.only(kept) for name, one in groups.items()}
            answer = answered(question, run.names, pairs, whole, groups, spans=together > clusters)
    finally:
        engine.close()
    wrong = int(run.state["wrong"])
    sides = (wrong, run.n - wrong) if "error" in metric.needs else ()
    notes = few_notes(sides, clusters if run.prepare.cluster is not None else None)
    notes += infinite_notes(dict(zip(run.names, run.state["infinite"].tolist(), strict=True)))
    notes = [*dict.fromkeys(raised), *notes]
    about: dict[str, Any] = {"target": run.prepare.target_of(metric), "two_targets": run.prepare.two_targets}
    return replace(answer, n=run.n, warnings=tuple(notes), same_ranking=same, run=run.summary, **about)


def _same_ranking(
    names: list[str], pairs: list[tuple[int, int]], whole: Differences, baseline: str | None, alike: list[str]
) -> SameRanking:
    """Scores that are one ranking, as far as the pairs tell: of those with a baseline, which rank as it does.

    Those that are `alike` by definition may differ in a last bit.
    """
    first: dict[str, str] = {}
    for (a, b), c in zip(pairs, whole.contrasts, strict=True):
        if c.alike or (names[a] in alike and names[b] in alike):
            own, copy = (names[b], names[a]) if baseline is not None else (names[a], names[b])
            first.setdefault(copy, first.get(own, own))
    return Copies(first).groups


def _differences(run: Run, pairs: list[tuple[int, int]], question: Question) -> tuple[Differences, int]:
    """All scores of a run in one chain of shuffles; and the number of clusters (0 without any)."""
    joint, clusters = joint_of_run(run, question.metric)
    contrasts = [contrast(joint, a, b, question.metric.span) for a, b in pairs]
    # Where there is no standard error and no difference: do the two rank all rows alike? Then there is none.
    unknown: dict[int, list[int]] = {}
    for k, ((a, _), c) in enumerate(zip(pairs, contrasts, strict=True)):
        if abs(c.difference) <= _ROUNDING * abs(float(joint.values[a])) and not c.se > 0:
            unknown.setdefault(a, []).append(k)
    for a, places in unknown.items():
        for k, same in zip(places, rank_alike_with(run, a, [pairs[k][1] for k in places]), strict=True):
            contrasts[k] = ALIKE if same else contrasts[k]
    return Differences(joint, contrasts), clusters if run.prepare.cluster is not None else 0


def _note_single(groups: list[str]) -> None:
    for name in groups[:_MOST_NAMED]:
        notify(f"group {name!r} has a single row and is left out")
    if len(groups) > _MOST_NAMED:
        notify(f"{len(groups) - _MOST_NAMED} more groups have a single row and are left out")
