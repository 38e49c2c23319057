"""HELM: `per_instance_stats.json` of a run, or `display_predictions.json` where it is all there is.

Perturbed copies of an instance are left out; several trials of one are a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from uqeval._errors import InputError
from uqeval.inputs.logs.answers import Answers, Wanted, by_name, json_of, number

NAME = "HELM"
KEYED_BY_CONTENT = False
_STATS, _DISPLAY = "per_instance_stats.json", "display_predictions.json"
# High where an answer is good, by HELM's own metadata of its metrics.
_GOOD = (
    *("exact_match", "quasi_exact_match", "prefix_exact_match", "quasi_prefix_exact_match", "final_number_exact_match"),
    *("math_equiv_chain_of_thought", "math_equiv", "chain_of_thought_correctness", "classification_macro_f1"),
    *("f1_score", "rouge_l", "rouge_2", "rouge_1", "bleu_4", "bleu_1", "ifeval_strict_accuracy"),
)


def sniff(path: str) -> bool:
    """By its name; the display file only where it stands alone."""
    name = Path(path).name
    return name == _STATS or (name == _DISPLAY and not Path(path).with_name(_STATS).exists())


def read(path: str, wanted: Wanted) -> list[Answers]:
    """The instances of one run."""
    found: dict[str, dict[str, Any]] = {}
    questions: dict[str, str] = {}
    records, perturbed = json_of(path), 0
    if not isinstance(records, list):
        raise InputError("holds no list of instances, as HELM writes it.")
    for record in records:
        if record.get("perturbation") is not None:
            perturbed += 1
            continue
        question = str(record["instance_id"])
        key = f"{question}/{record.get('train_trial_index', 0)}"
        questions[key] = question
        found.setdefault(key, {}).update(_means(record.get("stats") or []))  # metrics may come in several records
    every = by_name(found.values())
    _check_likelihoods(every)
    scores = {}
    if "max_prob" in every:
        scores["max_prob"] = [-value for value in every.pop("max_prob")]
    if "logprob" in every:
        scores["sequence_nll"] = [0.0 - value for value in every.pop("logprob")]
    run = Path(path).parent.name
    model = re.search(r"(?<![a-z_])model=([^,]+)", run)
    return [
        Answers(
            task=re.sub(r"[,:]?(?<![a-z_])model=[^,]+", "", run),  # so that runs of two models are one task
            keys=list(found),
            questions=[questions[key] for key in found],
            qualities={name: every.pop(name) for name in _GOOD if name in every},
            scores=scores,
            turned=frozenset({"max_prob"} & scores.keys()),
            fields=every,
            model=model[1] if model else "",
            notes=[f"{perturbed} perturbed instances are left out"] if perturbed else [],
        )
    ]


def _means(stats: Any) -> Iterator[tuple[str, float]]:
    """(metric, its mean on the instance)."""
    if isinstance(stats, Mapping):
        yield from ((name, number(value)) for name, value in stats.items())
        return
    for stat in stats:
        count = stat.get("count", 1)
        if count:
            yield stat["name"]["name"], number(stat.get("mean", stat.get("sum", float("nan")) / count))


def _check_likelihoods(every: Mapping[str, list[float]]) -> None:
    """A server that gives no log-probabilities is logged as if all were 0."""
    if "logprob" in every and not any(every["logprob"]):
        raise InputError(
            "all log-probabilities are 0: the model's server gave none, so that `logprob` and `max_prob` say nothing. "
            "Name a number of your own with score= or confidence=, or run a model that gives them."
        )
