"""What a model puts out: labels, probabilities, logits, ensemble members, Dirichlet parameters, features."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check.grid import on_grid
from uqeval._check.rows import Float, Int, numeric, to_array
from uqeval._errors import InputError

ROW_SUM_TOLERANCE = 1e-3  # real files are rounded: 2e-5 is normal, 0.98 is not


class Widened(NamedTuple):
    """Numbers that a reader has made float64, in an array of its own; and whether they came with fewer digits."""

    values: Float
    narrow: bool


def check_labels(labels: ArrayLike, classes: int, *, name: str = "labels") -> Int:
    """Integers 0..K-1."""
    array = numeric(name, labels)
    if array.ndim != 1:
        raise InputError(f"`{name}` has shape {array.shape}. Pass one class index per row: shape (n,).")
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(array) | (array != np.floor(array)))
        if len(bad):
            raise InputError(f"`{name}` must be class indices 0..{classes - 1}; row {bad[0]} holds {array[bad[0]]:g}.")
    outside = np.flatnonzero((array < 0) | (array >= classes))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"`{name}` must be class indices 0..{classes - 1} (there are {classes} classes); "
            f"row {row} holds {int(array[row])} ({len(outside)} such row{'s' * (len(outside) != 1)})."
        )
    return array.astype(np.int64)


def check_probs(probs: ArrayLike | Widened, *, name: str = "probs", normalize: bool = False, ndim: int = 2) -> Float:
    """(n, K) probabilities, K ≥ 2; (n,) is the probability of class 1. With ndim=3: (m, n, K) members.

    Values within rounding of [0, 1] are clipped, those within float noise of a plain fraction become it (`grid`);
    a row sum further than 1e-3 from 1 is an error.
    """
    if isinstance(probs, Widened):
        array, narrow = probs
    else:
        raw = numeric(name, probs)
        narrow = raw.dtype.kind == "f" and raw.dtype.itemsize < 8
        array = raw.astype(np.float64)  # a copy, in the layout that it has
    tolerance = 1e-3 if narrow else 1e-6
    binary = array.ndim == ndim - 1
    shape = "(m, n, K) with K ≥ 2 classes, or (m, n)" if ndim == 3 else "(n, K) with K ≥ 2 classes, or (n,)"
    if array.ndim not in (ndim - 1, ndim) or (not binary and array.shape[-1] < 2):
        raise InputError(f"`{name}` has shape {array.shape}. Pass {shape}, the probability of class 1.")
    least, most = (float(find(array, initial=0.0)) for find in (np.min, np.max))  # NaN where there is one
    if not math.isfinite(least + most):
        _reject_missing(name, array)
    if normalize and not binary and least >= -tolerance:
        array = np.maximum(array, 0.0)
        sums = array.sum(axis=-1)
        if (sums == 0).any():
            empty = _row(sums == 0)
            raise InputError(f"`{name}` sums to 0 in row {empty}, which cannot be normalised. Drop or mend that row.")
        return on_grid(array / sums[..., None])
    off = np.zeros(0) if binary else np.abs(array.sum(axis=-1) - 1)
    if least < -tolerance or most > 1 + tolerance:
        outside = (array < -tolerance) | (array > 1 + tolerance)
        place = np.unravel_index(int(outside.argmax()), array.shape)
        row = int(place[-1] if binary else place[-2])
        raise InputError(f"`{name}` holds {array[place]:g} in row {row}. {_instead(array, off, binary)}")
    clipped = array if least >= 0 and most <= 1 else np.clip(array, 0.0, 1.0, out=array)
    if least < 0 and not binary:  # what is used must sum to 1
        off = np.abs(clipped.sum(axis=-1) - 1)
    if off.max(initial=0.0) > ROW_SUM_TOLERANCE:
        place = np.unravel_index(int(off.argmax()), off.shape)
        raise InputError(
            f"`{name}` does not sum to 1: worst row {place[-1]} sums to {clipped[place].sum():.6g} "
            f"({(rows := int((off > ROW_SUM_TOLERANCE).sum()))} row{'s' * (rows != 1)} off by more than "
            f"{ROW_SUM_TOLERANCE:g}). "
            f"Pass normalize=True to divide each row by its sum."
        )
    clipped = on_grid(clipped, narrow)
    return np.stack([on_grid(1.0 - clipped), clipped], axis=-1) if binary else clipped


def _instead(array: Float, off: Float, binary: bool) -> str:
    """What numbers outside [0, 1] look like, from all of them."""
    least, most = float(array.min()), float(array.max())
    # Of one column nobody can tell the sum; logits that are all positive, and above 20, are rare.
    if (20 < most <= 100 and least >= 0) if binary else bool((abs(off - 99) <= 1).mean() > 0.5 and least >= 0):
        return "These look like percent: divide them by 100."
    if not binary and (off > ROW_SUM_TOLERANCE).mean() <= 0.5:
        return "Probabilities lie in [0, 1]."
    if least < 0 or binary:
        return "These look like logits: pass them as `logits`, or apply softmax first."
    if bool((array == np.rint(array)).all()):
        return "These look like counts: pass normalize=True to divide each row by its sum."
    return (
        "Probabilities lie in [0, 1] and sum to 1 in each row: mend the columns, or pass normalize=True (shares of "
        "another whole), or pass them as `logits`."
    )


def check_members(members: Any, *, name: str = "members", logits: bool = False, normalize: bool = False) -> Float:
    """(m, n, K) from an array or a list of m arrays (n, K)."""
    if isinstance(members, Sequence) and len(members):
        parts = [to_array(f"{name}[{i}]", member) for i, member in enumerate(members)]
        for i, part in enumerate(parts):
            if part.shape != parts[0].shape:
                raise InputError(
                    f"`{name}[{i}]` has shape {part.shape} but `{name}[0]` has {parts[0].shape}. "
                    f"Every member must predict the same rows and classes."
                )
        members = np.stack(parts)
    if logits:
        array = check_logits(members, name=name, ndim=3)
    else:
        array = check_probs(members, name=name, normalize=normalize, ndim=3)
    if not len(array):
        raise InputError(f"`{name}` has no member (shape {array.shape}). Pass at least one.")
    return array


def check_logits(logits: ArrayLike, *, name: str = "logits", ndim: int = 2) -> Float:
    """(n, K) finite numbers, K ≥ 2; with ndim=3 (m, n, K). -inf (a masked class) is allowed beside a finite one."""
    array = numeric(name, logits).astype(np.float64)
    shape = "(m, n, K)" if ndim == 3 else "(n, K)"
    if array.ndim != ndim or array.shape[-1] < 2:
        raise InputError(f"`{name}` has shape {array.shape}. Pass {shape} with K ≥ 2 classes.")
    if np.isnan(array).any():
        _reject_missing(name, array)
    top = array.max(axis=-1, initial=-np.inf)
    if np.isinf(top).any():
        raise InputError(f"`{name}` has no finite maximum in row {_row(np.isinf(top))}. Pass finite logits.")
    return array


def check_alpha(alpha: ArrayLike, *, name: str = "alpha") -> Float:
    """(n, K) Dirichlet parameters above 0, K ≥ 2."""
    array = numeric(name, alpha).astype(np.float64)
    if array.ndim != 2 or array.shape[-1] < 2:
        raise InputError(f"`{name}` has shape {array.shape}. Pass (n, K) with K ≥ 2 classes.")
    _reject_missing(name, array)
    bad = (array <= 0).any(axis=-1)
    if bad.any():
        row, count = int(bad.argmax()), int(bad.sum())
        raise InputError(
            f"`{name}` must be above 0; row {row} holds {array[row].min():g} ({count} such row{'s' * (count != 1)}). "
            f"Evidence e ≥ 0 becomes alpha = e + 1."
        )
    return array


def check_features(features: ArrayLike, *, name: str = "features", columns: int | None = None) -> Float:
    """(n, d) finite numbers, n and d ≥ 1; with as many columns as the rows that they are held against."""
    array = numeric(name, features).astype(np.float64)
    if array.ndim != 2 or 0 in array.shape:
        hint = f" For one feature: {name}.reshape(-1, 1)." if array.ndim == 1 else ""
        raise InputError(f"`{name}` has shape {array.shape}. Pass (n, d), the d features of each row.{hint}")
    if columns is not None and array.shape[1] != columns:
        raise InputError(
            f"`{name}` has {array.shape[1]} columns but those it is compared with have {columns}. "
            f"Pass the same features of both."
        )
    _reject_missing(name, array)
    return np.ascontiguousarray(array)


def _reject_missing(name: str, array: Float) -> None:
    if not np.isfinite(array).all():
        bad = np.asarray(~np.isfinite(array).all(axis=-1) if array.ndim > 1 else ~np.isfinite(array))
        count = int(bad.sum())
        raise InputError(
            f"`{name}` has NaN or infinity in {count} row{'s' * (count != 1)} (first at row {_row(bad)}). "
            f"Drop or mend those rows."
        )


def _row(bad: NDArray[np.bool_]) -> int:
    return int(np.unravel_index(int(bad.argmax()), bad.shape)[-1])
