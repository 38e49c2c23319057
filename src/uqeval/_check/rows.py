"""One entry per row: scores, errors, losses, weights, clusters; and the small options."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._errors import InputError, UQWarning, notify, share_hint

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bit = NDArray[np.uint8]
Nan = Literal["raise", "omit"]
# progress(stage, done, total), whatever takes long; the total is None while it is unknown.
Progress = Callable[[str, int, int | None], object]

_EXACT_INT = 2**53
_MOST_ROWS = 2**31 - 1  # twice the pairs of so many fit in an int64
_DROP = 'Drop those rows or pass nan="omit".'
MEND = "Drop or mend those rows."  # where there is no nan= option


def to_array(name: str, value: Any) -> NDArray[Any]:
    """A NumPy array from NumPy, pandas, Polars, Arrow, lists, or PyTorch/JAX/CuPy tensors."""
    if hasattr(value, "mask") and isinstance(value, np.ma.MaskedArray):  # np.ma takes 8 ms to load
        if np.ma.is_masked(value):
            _check_whole(name, (int(value.min()), int(value.max())) if value.dtype.kind in "iu" else ())
            value = np.ma.filled(value.astype(np.float64), np.nan)
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        return value
    if value is None:
        raise InputError(f"`{name}` is missing (None). Pass an array with one entry per row.")
    if hasattr(value, "detach"):  # torch: leave the graph and the card; NumPy has no bfloat16
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return np.asarray(value)
    if type(value).__module__.startswith("cupy"):
        return np.asarray(value.get())
    if isinstance(value, str | bytes | dict) or np.isscalar(value):
        raise InputError(f"`{name}` is {value!r}. Pass an array with one entry per row.")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        raise InputError(f"`{name}` is not a rectangular array. Give every row the same length.") from None
    if array.dtype == object:
        array = _from_objects(name, value, array)
    return array


def _from_objects(name: str, value: Any, array: NDArray[Any]) -> NDArray[Any]:
    """Numbers hidden in an object array (None and pandas' NA become NaN); strings stay as they are."""
    gaps = [item is None or str(item) == "<NA>" or item != item for item in array.flat]
    missing = np.array(gaps, dtype=np.bool_).reshape(array.shape)
    if missing.any():
        array = array.copy()
        array[missing] = np.nan
    # float64 would read the strings "007" and "7" as the same number.
    if any(isinstance(item, str) for item in array.flat):
        kinds = sorted({type(item).__name__ for item in array[~missing].flat})
        if kinds == ["str"] and not missing.any():
            return array
        if kinds == ["str"]:
            row = np.argwhere(missing)[0][0]
            raise InputError(f"`{name}` has {int(missing.sum())} missing entries (first at row {row}). Fill them in.")
        raise InputError(f"`{name}` mixes {', '.join(kinds[:4])}. Pass one kind of value, row by row.")
    _check_whole(name, [int(item) for item in array.flat if isinstance(item, int | np.integer)])
    try:
        return array.astype(np.float64)
    except (ValueError, TypeError):
        kinds = sorted({type(item).__name__ for item in array.flat})
        raise InputError(f"`{name}` mixes {', '.join(kinds[:4])}. Pass one kind of number, row by row.") from None


def numeric(name: str, value: Any) -> NDArray[Any]:
    array = to_array(name, value)
    if array.dtype.kind not in "biuf":
        text = array.dtype.kind in "UST" or any(isinstance(item, str) for item in array.flat)
        what = "text" if text else "Python objects" if array.dtype == object else array.dtype
        raise InputError(f"`{name}` holds {what}, not numbers. Convert it to numbers first.")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        _check_whole(name, (int(array.min()), int(array.max())))
    return array


def _check_whole(name: str, numbers: Iterable[int]) -> None:
    if worst := next((x if x.bit_length() < 100 else "…" for x in numbers if abs(x) > _EXACT_INT), None):
        raise InputError(
            f"`{name}` holds the integer {worst}, which float64 cannot tell from its neighbours. "
            f"Subtract a constant or rank the values first."
        )


def _narrowed(name: str, array: NDArray[Any]) -> Float:
    """As float64; numbers of more digits that would become one are an error, not a tie."""
    with np.errstate(over="ignore"):
        found: Float = array.astype(np.float64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8 and len(np.unique(found)) < len(np.unique(array)):
        raise InputError(f"`{name}` holds {array.dtype} numbers that float64 cannot tell apart. Pass their ranks.")
    return found


def all_finite(array: Float) -> bool:
    """A sum is finite if all numbers are, unless it overflows: one pass, and nothing of that size is made."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.add.reduce(array))
    return math.isfinite(total) or bool(np.isfinite(array).all())


def check_vector(
    name: str, value: ArrayLike, *, finite: bool = True, missing: bool = False, hint: str = _DROP
) -> Float:
    """A (n,) float64 array; NaN is an error unless `missing`, infinity unless `finite` is False."""
    return clean_vector(name, value, finite=finite, missing=missing, hint=hint)[0]


def clean_vector(
    name: str, value: ArrayLike, *, finite: bool = True, missing: bool = False, hint: str = _DROP
) -> tuple[Float, bool]:
    """`check_vector`, and whether all numbers are finite: a pass over many rows that need not be made again."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.ndim == 1:
        array: Float = value
    else:
        raw = numeric(name, value)
        if raw.ndim == 2 and raw.shape[1] == 1:
            raise InputError(f"`{name}` has shape {raw.shape}. Pass it with shape ({raw.shape[0]},): {name}.ravel().")
        if raw.ndim != 1:
            raise InputError(f"`{name}` has shape {raw.shape}. Pass one number per row: shape (n,).")
        array = _narrowed(name, raw)
    clean = all_finite(array)
    if not clean:
        bad = np.isnan(array)
        if bad.any() and not missing:
            rows = np.flatnonzero(bad)
            raise InputError(f"`{name}` has {len(rows)} NaN (first at row {rows[0]}). {hint}")
        if finite and (infinite := np.isinf(array)).any():
            rows = np.flatnonzero(infinite)
            raise InputError(
                f"`{name}` has {len(rows)} infinite value{'s' * (len(rows) != 1)} (first at row {rows[0]}: "
                f"{array[rows[0]]}). "
                f"Replace them by finite numbers."
            )
    return array, clean


def check_lengths(least: int = 2, /, **arrays: NDArray[Any] | None) -> int:
    """The common number of rows, at least 2 unless fewer will do."""
    lengths = {name: len(array) for name, array in arrays.items() if array is not None}
    (first, n), *rest = lengths.items()
    for name, length in rest:
        if length != n:
            raise InputError(f"`{name}` has {length} rows but `{first}` has {n}. Pass one entry per row in both.")
    if n < least:
        raise InputError(f"`{first}` has {n} row{'s' * (n != 1)}. Ranking needs at least {least}.")
    if n > _MOST_ROWS:
        raise InputError(f"`{first}` has {n:,} rows. In memory there may be {_MOST_ROWS:,}; evaluate() reads files.")
    return n


def check_bits(name: str, array: Float, *, right: int = 0) -> Bit:
    bits = array != 0
    if not np.array_equal(array, bits):
        row = int(np.flatnonzero(array != bits)[0])
        meant, instead = "0 (right) or 1 (wrong)", "For a continuous loss use uq_c_index, aurc, augrc, auarc or prr."
        if right:
            meant, instead = "1 (right) or 0 (wrong)", "What is right by degrees is a quality: quality=."
        raise InputError(f"`{name}` must be {meant}; row {row} holds {array[row]:g}. {instead}")
    return bits.view(np.uint8)


def check_errors(name: str, value: ArrayLike, hint: str, *, right: int = 0) -> Bit:
    """0/1 errors, in an array of their own or a read-only one: a copy of 10⁷ costs a sixth of all their metrics."""
    if type(value) is np.ndarray and value.ndim == 1 and value.dtype in (np.bool_, np.uint8):
        bits: Bit = value.view(np.uint8)
        if bits.max(initial=0) <= 1:  # a bool may hold any byte in memory
            return bits.copy() if bits.flags.writeable else bits
    return check_bits(name, check_vector(name, value, hint=hint), right=right)


def check_loss(name: str, array: Float) -> Float:
    """A loss in [0, 1]: what the selective metrics accept in place of 0/1 errors."""
    bad = np.flatnonzero((array < 0) | (array > 1))
    if len(bad):
        raise InputError(
            f"`{name}` must lie in [0, 1]; row {bad[0]} holds {array[bad[0]]:g} ({len(bad)} such "
            f"row{'s' * (len(bad) != 1)}). Rescale the loss, or use uq_c_index, which needs its order only."
        )
    return array


def check_weight_values(weights: Float) -> Float | None:
    """None where all weights are equal: then the unweighted, exact path applies."""
    if len(weights) == 0:
        return None
    low, high = weights.min(), weights.max()
    if low < 0:
        row = int(weights.argmin())
        raise InputError(f"`weights` must be ≥ 0; row {row} holds {low:g}. Remove or correct those rows.")
    if high == 0:
        raise InputError("`weights` are all zero. Give at least two rows a positive weight.")
    if low == high:
        return None
    # Only ratios matter: an exact power of two keeps squares and products of weights in range.
    exponent = int(np.frexp(high)[1])
    return weights if -32 < exponent < 32 else np.ldexp(weights, -exponent)


def check_weights(weights: ArrayLike, n: int) -> tuple[Float | None, NDArray[np.bool_] | None]:
    """(weights, rows to keep): rows of weight 0 go (None: all stay), equal weights come back as None."""
    w = check_vector("weights", weights)
    if len(w) != n:
        raise InputError(f"`weights` has {len(w)} rows but the data have {n}. Pass one weight per row.")
    checked = check_weight_values(w)
    if checked is None or (keep := checked > 0).all():
        return checked, None
    if (left := int(keep.sum())) < 2:
        raise InputError(f"Only {left} row has a positive weight. At least 2 are needed.")
    return check_weight_values(np.ascontiguousarray(checked[keep])), keep


def check_bits_and_weights(
    name: str, value: ArrayLike, weights: ArrayLike | None, *, beside: dict[str, Float] | None = None
) -> tuple[Bit, Float | None, NDArray[np.bool_] | None]:
    """(0/1 rows, weights, rows kept) for the metrics that need no score; `beside` must have the same length."""
    bits = check_bits(name, check_vector(name, value, hint=MEND))
    check_lengths(**(beside or {}), **{name: bits})
    if weights is None:
        return bits, None, None
    w, keep = check_weights(weights, len(bits))
    return bits if keep is None else bits[keep], w, keep


def drop_rows(keep: NDArray[np.bool_], *arrays: NDArray[Any] | None) -> list[Any]:
    """Every array (n first) without the rows that are not kept."""
    return [None if array is None else np.ascontiguousarray(array[keep]) for array in arrays]


def omits(nan: str) -> bool:
    """The one policy for NaN: "raise" an error that says where, or "omit" the rows and say how many."""
    return check_choice("nan", nan, ("raise", "omit")) == "omit"


def without_nan(*columns: NDArray[Any] | None) -> NDArray[np.bool_] | None:
    """The rows in which no number is NaN, for ``nan="omit"``; None where that is all."""
    gone = np.any([np.isnan(x.astype(np.float64, copy=False)) for x in columns if x is not None], axis=0)
    if not gone.any():
        return None
    notify(f"{int(gone.sum())} rows with NaN left out", UQWarning, stacklevel=5)
    return ~gone


def check_rows(
    score: ArrayLike,
    target: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    kind: Literal["error", "loss01", "loss"],
    name: str | None = None,
    clusters: ArrayLike | None = None,
    nan: Nan = "raise",
    least: int = 2,
) -> tuple[Float, NDArray[Any], Float | None, Int | None]:
    """Clean (score, target, weights, clusters) for the metrics that rank rows.

    `kind` says what the target is: a 0/1 error, a loss in [0, 1], or any loss. Errors come back as uint8,
    and so does a loss in [0, 1] that holds only 0 and 1.
    Rows of weight 0 are dropped; equal weights come back as None.
    """
    name = name or ("error" if kind != "loss" else "loss")
    omit = omits(nan)
    s, clean = clean_vector("score", score, finite=False, missing=omit)
    # A bool array is the common form of `error`; its bits need no look.
    if kind == "error" and type(target) is np.ndarray and target.dtype == np.bool_ and target.ndim == 1:
        t: NDArray[Any] = target.view(np.uint8)
        if t.max(initial=0) > 1:  # a bool may hold any byte in memory
            t = (t != 0).view(np.uint8)
    else:
        t = check_vector(name, target, finite=kind != "loss", missing=omit)
    w = None if weights is None else check_vector("weights", weights, missing=omit)
    g = None if clusters is None else check_codes("clusters", clusters)[0]
    if len(s) != len(t) or not least <= len(s) <= _MOST_ROWS or w is not None or g is not None:
        check_lengths(least, score=s, **{name: t}, weights=w, clusters=g)
    if omit and (keep := without_nan(s, t, w)) is not None:
        s, t, w, g = drop_rows(keep, s, t, w, g)
        g = recode(g)
    if t.dtype != np.uint8:
        if kind == "error":
            t = check_bits(name, t)
        elif kind == "loss01":
            t = check_loss(name, t)
            t = bits.view(np.uint8) if np.array_equal(t, bits := t != 0) else t
    if w is not None:
        w, kept = check_weights(w, len(s))
        if kept is not None:
            s, t, g = drop_rows(kept, s, t, g)
            g = recode(g)
    if len(s) < least:
        raise InputError(
            f"Only {len(s)} row is left after dropping NaN and zero weights. Ranking needs at least {least}."
        )
    if not clean and (count := int(np.isinf(s).sum())):
        notify(f"`score` has {count} infinite values; they rank first or last and tie.", UQWarning, stacklevel=4)
    return s, t, w, g


def recode(codes: Int | None) -> Int | None:
    """Codes 0..G-1 again after rows were dropped: a cluster without rows must not count."""
    if codes is None or not len(codes):
        return codes
    present = np.bincount(codes) > 0
    return codes if present.all() else (np.cumsum(present) - 1)[codes]


def check_codes(name: str, value: ArrayLike) -> tuple[Int, NDArray[Any]]:
    """Clusters, groups: integer codes 0..G-1 and the values that they stand for, sorted."""
    array = np.asarray(value, dtype=object) if _holds_objects(value) else to_array(name, value)
    if array.ndim != 1:
        raise InputError(f"`{name}` has shape {array.shape}. Pass one entry per row: shape (n,).")
    if array.dtype == object:
        missing = np.array([item is None or str(item) in ("<NA>", "NaT") or item != item for item in array], dtype=bool)
    elif array.dtype.kind in "mM":
        missing = np.isnat(array)
    else:
        missing = np.isnan(array) if array.dtype.kind == "f" else np.zeros(len(array), dtype=bool)
    if missing.any():
        row = int(missing.argmax())
        raise InputError(f"`{name}` has {int(missing.sum())} missing entries (first at row {row}). Fill them in.")
    if array.dtype == object:  # as text: exact for any type, where float64 would merge large integers
        array = np.array([str(item) for item in array], dtype=np.str_)
    if array.dtype.kind in "iu" and len(array):
        low, span = int(array.min()), int(array.max()) - int(array.min())
        if span < 4 * len(array):  # a table of all numbers between is faster than sorting
            least = array.min()  # of uint64 beyond int64 too: subtracted in its own type
            place = (array - least).astype(np.int64) if array.dtype.itemsize == 8 else array.astype(np.int64) - low
            present = np.bincount(place) > 0
            return (np.cumsum(present) - 1)[place], np.flatnonzero(present).astype(array.dtype) + least
    values, codes = np.unique(array, return_inverse=True)
    return codes.astype(np.int64, copy=False), values


def _holds_objects(value: Any) -> bool:
    """Whether entries must be taken one by one: a list, or anything that NumPy sees as objects."""
    if isinstance(value, list | tuple):
        return not all(isinstance(item, str | bool | float | np.generic) for item in value)
    return bool(np.dtype(object) == getattr(value, "dtype", None))


def check_level(level: float) -> float:
    """A confidence level strictly between 0 and 1."""
    if not isinstance(level, int | float | np.floating) or not 0 < level < 1:
        raise InputError(f"`level` must lie strictly between 0 and 1, as 0.95; it is {level!r}.{share_hint(level)}")
    return float(level)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of the named choices."""
    if value not in choices:
        options = ", ".join(f'"{choice}"' for choice in choices)
        raise InputError(f"`{name}` must be one of {options}; it is {value!r}.")
    return str(value)


def check_count(name: str, value: Any, least: int = 1, *, reason: str = "") -> int:
    """An int that is large enough; `reason` says why so large."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"`{name}` must be an int ≥ {least}{reason}; it is {value!r}.")
    return int(value)


def check_largest(given: Any, largest: int | None) -> int | None:
    """The most rows that a cluster can have, as a user declares it; `largest` is the largest here, None without any."""
    if given is None:
        return None
    if largest is None:
        raise InputError("`largest_cluster` needs `clusters`. Pass them, or leave it out.")
    return check_count("largest_cluster", given, largest, reason=", the largest here")


def check_seed(seed: int | np.random.Generator) -> np.random.Generator:
    """A Generator from an int or a Generator."""
    return np.random.default_rng(check_seed_kind(seed))  # a Generator stays itself


def check_seed_kind(seed: int | np.random.Generator) -> int | np.random.Generator:
    """The seed itself, for those who may not draw at all: making a Generator takes longer than many a metric."""
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"`seed` must be a non-negative int or a numpy Generator; it is {seed!r}.")
    return int(seed)
