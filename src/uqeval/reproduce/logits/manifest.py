"""What a manifest of predictions may say: every field is checked before it is used. Every error names its file."""

import math
from typing import Any

import numpy as np

from uqeval._check import Int
from uqeval._errors import InputError
from uqeval.reproduce.logits.file import KINDS

ROWS = ".rows.npy"  # how the file ends that tells the rows that a model covers
_TEXTS = ("family", "source", "key", "sha256", "labels_sha256", "rows_sha256")


def check_manifest(where: str, about: Any, shape: tuple[int, ...], *, alone: bool = True) -> None:
    """An error for the first field that cannot be used; `alone` is False for an array of an archive.

    An array of an archive is called what the archive calls it, and its manifest states what it likes beside the fields
    that count.
    """
    if not isinstance(about, dict):
        raise InputError(f"{where}: what is stated of it must be a JSON object; it is {_shown(about)}.")
    if "model" in about and alone and not (isinstance(about["model"], str) and about["model"].strip()):
        _refuse(where, about, "model", "a name")
    for name in _TEXTS:
        if about.get(name) is not None and not isinstance(about[name], str):
            _refuse(where, about, name, "text")
    kind = about.get("kind")
    if kind is not None and (kind not in KINDS or (kind == "single") != (len(shape) == 2)):
        wanted = "single" if len(shape) == 2 else "members or passes"
        _refuse(where, about, "kind", f"{wanted} for logits of shape {shape}")
    stated = about.get("shape", list(shape))
    if not isinstance(stated, list) or stated != list(shape):
        told = tuple(stated) if isinstance(stated, list) else stated
        raise InputError(f"{where}: its shape is {shape} but its manifest says {_shown(told)}.")
    accuracy = about.get("accuracy")
    if accuracy is not None:
        number = isinstance(accuracy, int | float) and not isinstance(accuracy, bool)
        if not number or not math.isfinite(accuracy) or not 0 <= accuracy <= 1:
            _refuse(where, about, "accuracy", "a number from 0 to 1")
    rows = about.get("rows")
    if rows is not None and alone:
        plain = isinstance(rows, str) and not set(rows) & set("/\\\0") and rows.endswith(ROWS)
        if not plain:
            _refuse(where, about, "rows", f"the name of a file NAME{ROWS} beside it")
        if about.get("sha256") is not None and about.get("rows_sha256") is None:
            _refuse(where, about, "rows_sha256", f"the hash of {rows}")


def check_rows(where: str, rows: Int, n: int) -> None:
    """Row numbers must lie in 0..n−1, each at most once."""
    if len(rows) and (rows.min() < 0 or rows.max() >= n):
        raise InputError(f"{where}: row numbers must lie in 0..{n - 1}; they go from {rows.min()} to {rows.max()}.")
    values, counts = np.unique(rows, return_counts=True)
    if len(values) < len(rows):
        raise InputError(f"{where}: row {values[counts > 1][0]} comes more than once. Name each row once.")


def _refuse(where: str, about: dict[str, Any], name: str, wanted: str) -> None:
    raise InputError(f"{where}: its manifest says {name} = {_shown(about.get(name))}; it must be {wanted}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
