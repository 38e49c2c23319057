"""Bootstrap values of the concordance metrics: rows stay in place, only their multiplicities change."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Float, check_choice, check_rows, check_seed
from uqeval._errors import InputError

__all__ = ["bootstrap"]

_CELLS = 1 << 24  # draws held at a time


def bootstrap(
    metric: str,
    score: ArrayLike,
    target: ArrayLike,
    *,
    resamples: int = 1000,
    clusters: ArrayLike | None = None,
    seed: int | np.random.Generator = 0,
    threads: int = 1,
) -> Float:
    """Values of UQ-AUC or UQ-C-index on resampled rows (or clusters); NaN where a resample leaves it undefined.

    Sorting is done once. Prefer the intervals of `estimate`: a percentile interval of these values covers too
    little when errors are few.

    Parameters
    ----------
    metric : "uq_auc" or "uq_c_index"
    score, target : array-like of shape (n,)
        The score, and the error or loss.
    resamples : int
        How many.
    clusters : array-like of shape (n,), optional
        Units drawn in place of rows.
    seed : int or numpy Generator
    threads : int
        Does not change the result.

    Examples
    --------
    >>> values = bootstrap("uq_c_index", score=range(50), target=range(50), resamples=200)
    >>> values.min(), values.max()
    (np.float64(1.0), np.float64(1.0))
    """
    name = check_choice("metric", metric, ("uq_auc", "uq_c_index"))
    if not isinstance(resamples, int) or resamples < 1:
        raise InputError(f"`resamples` must be a whole number ≥ 1; it is {resamples!r}.")
    s, t, _, g = check_rows(score, target, kind="error" if name == "uq_auc" else "loss", clusters=clusters)
    rng = check_seed(seed)
    unit = np.arange(len(s)) if g is None else g
    units = int(unit.max()) + 1
    values = np.empty(resamples)
    chunk = max(1, _CELLS // units)
    for at in range(0, resamples, chunk):
        draws = rng.integers(0, units, size=(min(chunk, resamples - at), units), dtype=np.uint32)
        credit2, comparable = kernels.bootstrap_totals(s, t.astype(np.float64), unit, units, draws, threads)
        with np.errstate(invalid="ignore"):
            values[at : at + len(draws)] = credit2 / (2.0 * comparable)
    return values
