"""uqlm: `UQResult` as its `to_df()` writes it (CSV, Parquet), or its data as JSON.

Its scorers are confidences, but for the entropies. It does not know which responses are right: the column `correct`, or
one that the caller names, does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uqeval._errors import InputError
from uqeval.inputs.columns import Columns
from uqeval.inputs.logs.answers import Answers, Wanted, beginning, json_of, number, numbered
from uqeval.inputs.texts import open_csv

NAME = "uqlm"
KEYED_BY_CONTENT = True
_CONFIDENCES = (
    *("semantic_negentropy", "noncontradiction", "exact_match", "cosine_sim", "bert_score", "entailment"),
    *("semantic_sets_confidence", "normalized_probability", "sequence_probability", "min_probability", "p_true"),
    *("min_token_negentropy", "mean_token_negentropy", "probability_margin", "semantic_density"),
    *("semantic_density_value", "monte_carlo_probability", "consistency_and_confidence", "ensemble_score"),
    *("discrete_confidence_score", "tokenprob_confidence_score", "functional_equivalence_rate", "bleurt"),
    *("functional_negentropy", "functional_sets_confidence", "verbalized_confidence", "code_bleu"),
)
_OF_JUDGES = ("avg", "max", "min", "median")  # words that mean a confidence only beside the judges of a panel
_ENTROPIES = ("discrete_entropy_value", "tokenprob_entropy_value")
_RIGHT = ("correct", "is_correct", "response_correct")


def sniff(path: str) -> bool:
    """Columns of a prompt or response, and one of its scorers'."""
    lower = path.lower()
    if lower.endswith((".csv", ".parquet")):
        try:
            return _is_ours(_columns(path))
        except (InputError, OSError, ValueError):
            return False
    start = beginning(path) if lower.endswith(".json") else ""
    return re.search(r'"(prompt|response)s?"\s*:\s*\[', start) is not None  # lists of texts


def _is_ours(names: list[str]) -> bool:
    known = {_single(name) for name in names}
    return bool(known & {"prompt", "response"}) and bool(known & {*_CONFIDENCES, *_ENTROPIES, "judge_1"})


def _single(name: str) -> str:
    """`to_df()` takes the last "s" off a name."""
    return name[:-1] if name.endswith("s") and name != "sampled_responses" else name


def _columns(path: str) -> list[str]:
    if path.lower().endswith(".csv"):
        return open_csv(path, Columns()).names
    import pyarrow.parquet as pq

    return list(pq.read_schema(path).names)


def read(path: str, wanted: Wanted) -> list[Answers]:
    """The responses in one file."""
    table = {_single(name): values for name, values in _table(path).items()}
    if not _is_ours(list(table)):
        raise InputError(f"has no scorer of uqlm among {', '.join(table)}.")
    if texts := [name for name in _RIGHT if name in table and isinstance(table[name][0], str)]:
        raise InputError(
            f"`{texts[0]}` holds texts, as {table[texts[0]][0]!r}. Write 1 or true where an answer is right."
        )
    numbers = {name: values for name, values in table.items() if not isinstance(values[0], str | list | dict)}
    every = {name: [number(value) for value in values] for name, values in numbers.items()}
    judges = [name for name in every if re.fullmatch(r"judge_\d+", name)]
    known = (*_CONFIDENCES, *judges, *(_OF_JUDGES if judges else ()))
    scores = {name: [-value for value in every.pop(name)] for name in known if name in every}
    turned = frozenset(scores)
    scores |= {name: every.pop(name) for name in _ENTROPIES if name in every}
    rows = len(next(iter(table.values())))
    prompts = [str(prompt) for prompt in table.get("prompt", range(rows))]
    return [
        Answers(
            task=Path(path).stem,
            keys=numbered(prompts),
            questions=prompts,
            qualities={name: every.pop(name) for name in _RIGHT if name in every},
            scores=scores,
            turned=turned,
            fields=every,
        )
    ]


def _table(path: str) -> Mapping[str, list[Any]]:
    """Columns of the file."""
    lower = path.lower()
    if lower.endswith(".json"):
        held = json_of(path)
        data = held.get("data", held) if isinstance(held, dict) else {}
        found = {str(name): value for name, value in data.items() if isinstance(value, list) and value}
    elif lower.endswith(".csv"):
        opened = open_csv(path, Columns())
        found = opened.read(opened.names, []).to_pydict()
    else:
        import pyarrow.parquet as pq

        found = pq.read_table(path).to_pydict()
    if not found or len({len(values) for values in found.values()}) > 1 or not next(iter(found.values())):
        raise InputError("holds no rows, or lists of different lengths.")
    return found
