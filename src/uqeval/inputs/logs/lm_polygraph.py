"""lm-polygraph: `ue_manager_seed<k>`, which PyTorch saves as a pickle, or its numbers exported as JSON.

A pickle can run any code. It is read by `torch.load(weights_only=True)`, which builds nothing but numbers, texts and
their containers; where a manager holds more, the refusal says how to export it.
"""

from __future__ import annotations

import codecs
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._errors import InputError, MissingExtra
from uqeval.inputs.logs.answers import Answers, Numbers, Wanted, beginning, json_of, number, numbered

NAME = "lm-polygraph"
KEYED_BY_CONTENT = True
_EXPORT = (
    'json.dump({part: {"|".join(name): [float(x) for x in values] for name, values in getattr(man, part).items() if '
    'name[0] == "sequence"} for part in ("estimations", "gen_metrics")}, open("ue_manager.json", "w"))'
)


def sniff(path: str) -> bool:
    """Its name in an archive of PyTorch, or the two parts of an export."""
    if path.endswith(".json"):
        start = beginning(path)
        return '"estimations"' in start or '"gen_metrics"' in start
    return Path(path).name.startswith("ue_manager") and zipfile.is_zipfile(path)


def read(path: str, wanted: Wanted) -> list[Answers]:
    """Estimations and qualities of whole answers; those of tokens and claims have rows of their own."""
    held = json_of(path) if path.endswith(".json") else _loaded(path)
    estimations, qualities = (_of_sequences(held, part) for part in ("estimations", "gen_metrics"))
    if not estimations or not qualities:
        raise InputError(f"holds no {'estimations' if not estimations else 'gen_metrics'} of whole sequences.")
    rows = len(next(iter(qualities.values())))
    for name, values in (*estimations.items(), *qualities.items()):
        if len(values) != rows:
            raise InputError(f"{name} has {len(values)} numbers and another part {rows}: the run is not whole.")
    stats = held.get("stats")
    texts = stats.get("input_texts") if isinstance(stats, Mapping) else None
    questions = (
        [str(text) for text in texts] if texts is not None and len(texts) == rows else list(map(str, range(rows)))
    )
    return [
        Answers(
            task=Path(path).parent.name,
            keys=numbered(questions),
            questions=questions,
            qualities=qualities,
            scores=estimations,
            when=Path(path).name,
        )
    ]


def _of_sequences(held: Any, part: str) -> dict[str, Numbers]:
    """Name → numbers, of the level of sequences."""
    found = {}
    for name, values in ((held.get(part) if isinstance(held, Mapping) else None) or {}).items():
        level, _, own = name.partition("|") if isinstance(name, str) else (name[0], "", name[1])
        if level == "sequence":
            found[str(own)] = [number(value.item() if isinstance(value, np.generic) else value) for value in values]
    return found


def _loaded(path: str) -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("Reading a manager of lm-polygraph", "torch", "torch") from None
    kinds = [
        getattr(np.dtypes, name) for name in np.dtypes.__all__ if name.startswith(("Float", "Int", "UInt", "Bool"))
    ]
    rebuild, scalar = np.zeros(0).__reduce__()[0], np.float64(0).__reduce__()[0]
    inert: list[Any] = [list, np.ndarray, np.dtype, codecs.encode, *kinds, (_dict, "collections.defaultdict")]
    for core in ("numpy._core", "numpy.core"):  # NumPy 2 and 1
        inert += [(rebuild, f"{core}.multiarray._reconstruct"), (scalar, f"{core}.multiarray.scalar")]
    try:
        with torch.serialization.safe_globals(inert):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # of many kinds, with advice to load the pickle after all
        raise InputError(
            f"holds more than numbers and texts, and a pickle that can run code is not loaded. Export it where you "
            f"trust it: {_EXPORT}"
        ) from None


def _dict(*_: Any) -> dict[Any, Any]:
    """In place of `defaultdict(list)`, which may not be filled."""
    return {}
