"""Certain bounds of one score from one pass over files, or over batches from anywhere: for the impatient.

`distributed.evaluate` gives exact values and confidence intervals, and needs several passes.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from uqeval._check import MEND, check_vector, nearest
from uqeval._errors import InputError, a_type
from uqeval.distributed.bounds.bounds import StreamResult
from uqeval.distributed.bounds.files import count_rows
from uqeval.distributed.bounds.state import StreamState
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.plan.columns import Prepare
from uqeval.inputs.columns import Columns, Plan

_ROLES = ("score", "error", "loss")
Names = tuple[str, str | None, str | None]  # of the columns for these roles


def approx_evaluate(
    source: Any,
    *,
    score: str = "score",
    error: str | None = "error",
    loss: str | None = "loss",
    approx: float = 1e-4,
    sample: int | None = None,
    joint_cells: int | None = None,
) -> StreamResult:
    """Certain lower and upper bounds of UQ-AUC, UQ-C-index, AURC and AUGRC, in one pass and bounded memory.

    Not a confidence interval: the bounds hold the value of exactly these rows, for certain. The width that was asked
    for is promised by nobody; the result says what was reached.

    Parameters
    ----------
    source : path, pattern, list of them, or iterable of batches
        Parquet, Arrow, CSV or JSON lines; or batches, each a frame, a mapping of columns or a tuple
        (score, error, loss) where a missing column is None.
    score, error, loss : str
        Columns. `error` and `loss` may be absent under their default names; None leaves the part out.
    approx : float
        The width (upper − lower) to aim at. With 1e-4, 36 MB and a fair sample UQ-AUC gets narrower than that and
        UQ-C-index about 1e-3 wide.
    sample : int, optional
        Rows that lay out the cells, 8/approx by default. From files they come from up to 32 places (and are read
        twice), from batches they are the first rows: if those are sorted, pass 0, which needs no sample.
    joint_cells : int, optional
        See `StreamState`: cells of each axis for UQ-C-index, 8·joint_cells² bytes.

    Returns
    -------
    StreamResult

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> batches = ({"score": (s := rng.random(1000)), "error": rng.random(1000) < s} for _ in range(50))
    >>> found = approx_evaluate(batches, approx=0.01)
    >>> found.n, found.reached, found.uq_auc.width < 0.01
    (50000, True, True)
    """
    names: Names = (score, error, loss)
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int) or sample < 0):
        raise InputError(f"`sample` is {sample!r}. Pass a number of rows, or 0.")
    blank = StreamState(approx=approx, joint_cells=joint_cells)
    rows = int(8 / approx) if sample is None else sample
    if _is_path(source):
        return _of_files(source, names, blank, rows).compute()
    try:
        batches = iter(source)
    except TypeError:
        raise InputError(f"`source` is {a_type(source)}. Pass files or an iterable of batches.") from None
    return _of_batches(batches, names, blank, rows).compute()


def _is_path(source: Any) -> bool:
    first = source[0] if isinstance(source, list | tuple) and source else source
    return isinstance(first, str | os.PathLike)


def _of_files(source: Any, names: Names, blank: StreamState, sample: int) -> StreamState:
    engine = LocalEngine(source, workers=1)  # each thread would have counts of its own
    with _at(engine.parts()[0].name):
        score, error, loss = _present(engine.schema().names, names)
    plain = Prepare(((score, score),), error, loss, Plan({}, {}, {}, {}), Columns())
    prepare = replace(plain, wants_error=error is not None, wants_loss=loss is not None)
    try:
        return count_rows(engine, prepare, blank, sample)[0][0]
    finally:
        engine.close()


def _of_batches(batches: Iterator[Any], names: Names, blank: StreamState, sample: int) -> StreamState:
    first: list[list[Any]] = []
    columns: Iterator[list[Any]] = (_taken(batch, names) for batch in batches)
    while sum(len(batch[0]) for batch in first) < sample and (batch := next(columns, None)) is not None:
        first.append([None if x is None else _vector(role, x) for role, x in zip(_ROLES, batch, strict=True)])
    state = blank
    if first:
        alone = any(loss is None for _, _, loss in first)
        losses = None if alone else np.concatenate([loss[:sample] for _, _, loss in first])
        state = blank.laid_out(np.concatenate([score[:sample] for score, _, _ in first]), losses)
    for k, (score, error, loss) in enumerate(chain(first, columns)):
        with _at(f"batch {k} (its rows start at {state.n})"):
            state.update(score, error=error, loss=loss)
    return state


def _vector(role: str, x: Any) -> Any:
    return check_vector(role, x, finite=role != "score", hint=MEND)


def _taken(batch: Any, wanted: Names) -> list[Any]:
    """Score, error and loss of a batch; None where absent."""
    if isinstance(batch, tuple | list):
        if not 2 <= len(batch) <= 3:
            raise InputError(f"A batch is a tuple of {len(batch)}. Pass (score, error) or (score, error, loss).")
        return [*batch, None][:3]
    arrow = type(batch).__module__.startswith("pyarrow")
    if not (arrow or isinstance(batch, Mapping) or hasattr(batch, "columns")):
        raise InputError(f"A batch is {a_type(batch)}. Pass frames, mappings of columns, or tuples.")
    names = batch if isinstance(batch, Mapping) else batch.column_names if arrow else batch.columns
    return [None if name is None else _plain(batch[name]) for name in _present(list(map(str, names)), wanted)]


def _plain(column: Any) -> Any:
    """Arrow with nulls as NaN; other columns as they are."""
    if type(column).__module__.startswith("pyarrow"):
        import pyarrow as pa

        return column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    return column


def _present(names: Sequence[str], wanted: Names) -> Names:
    """The columns there are; a default name may be absent, another one must exist."""
    for role, name in zip(_ROLES, wanted, strict=True):
        if name is not None and name not in names and (role == "score" or name != role):
            near = nearest(name, names) or f" There are {', '.join(list(names)[:8])}."
            raise InputError(f"There is no column `{name}` for {role}=.{near}")
    error, loss = (name if name in names else None for name in wanted[1:])
    if error is None and loss is None:
        raise InputError("There is neither a column for error= nor one for loss=. Name one of them, or both.")
    return wanted[0], error, loss


@contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
