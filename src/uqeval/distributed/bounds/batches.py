"""Certain bounds from one pass over files, or over batches from anywhere: for the impatient.

`evaluate` of this room gives exact values and confidence intervals, and needs several passes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from uqeval._check import MEND, check_vector, nearest
from uqeval._errors import InputError
from uqeval.distributed.bounds.bounds import StreamResult
from uqeval.distributed.bounds.state import StreamState
from uqeval.distributed.engines.files import Files

__all__ = ["approx_evaluate"]

_ROWS = 1 << 17  # at a time
_PLACES = 32  # where a sample is taken
_ROLES = ("score", "error", "loss")
Columns = tuple[str, str | None, str | None]


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
    wanted: Columns = (score, error, loss)
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int) or sample < 0):
        raise InputError(f"`sample` is {sample!r}. Pass a number of rows, or 0.")
    blank = StreamState(approx=approx, joint_cells=joint_cells)
    rows = int(8 / approx) if sample is None else sample
    if _is_path(source):
        return _of_files(Files(source), wanted, blank, rows).compute()
    try:
        batches = iter(source)
    except TypeError:
        raise InputError(f"`source` is a {type(source).__name__}. Pass files or an iterable of batches.") from None
    return _of_batches(batches, wanted, blank, rows).compute()


def _is_path(source: Any) -> bool:
    if isinstance(source, str | os.PathLike):
        return True
    return isinstance(source, list | tuple) and len(source) > 0 and isinstance(source[0], str | os.PathLike)


def _laid_out(blank: StreamState, parts: list[tuple[Any, Any]]) -> StreamState:
    """An empty state with rulers from the score and the loss of sampled pieces."""
    filled = [(s, d) for s, d in parts if len(s)]
    if not filled:
        return blank
    scores = np.concatenate([s for s, _ in filled])
    losses = None if filled[0][1] is None else np.concatenate([d for _, d in filled])
    return StreamState.from_sample(scores, losses, approx=blank.approx, joint_cells=blank.joint_cells)


# ---- batches --------------------------------------------------------------------------------------------------


def _of_batches(batches: Iterator[Any], wanted: Columns, blank: StreamState, sample: int) -> StreamState:
    first: list[list[Any]] = []
    seen, start = 0, 0
    columns: Iterator[list[Any]] = (_taken(batch, wanted) for batch in batches)
    while seen < sample and (batch := next(columns, None)) is not None:
        first.append([None if x is None else _vector(role, x) for role, x in zip(_ROLES, batch, strict=True)])
        seen += len(first[-1][0])
    state = _laid_out(blank, [(s[:sample], None if d is None else d[:sample]) for s, _, d in first])
    for k, batch in enumerate(chain(first, columns)):
        with _where(f"batch {k} (its rows start at {start})"):
            state.update(batch[0], error=batch[1], loss=batch[2])
        start = state.n
    return state


def _vector(role: str, x: Any) -> Any:
    return check_vector(role, x, finite=role != "score", hint=MEND)


def _taken(batch: Any, wanted: Columns) -> list[Any]:
    """Score, error and loss of a batch; None where absent."""
    if isinstance(batch, tuple | list):
        if not 2 <= len(batch) <= 3:
            raise InputError(f"A batch is a tuple of {len(batch)}. Pass (score, error) or (score, error, loss).")
        return [*batch, None][:3]
    names = batch.keys() if isinstance(batch, Mapping) else getattr(batch, "column_names", None)
    names = getattr(batch, "columns", None) if names is None else names
    if names is None:
        raise InputError(f"A batch is a {type(batch).__name__}. Pass frames, mappings of columns, or tuples.")
    return [None if name is None else _plain(batch[name]) for name in _present(list(map(str, names)), wanted)]


def _plain(column: Any) -> Any:
    """Arrow with nulls as NaN; other columns as they are."""
    if type(column).__module__.startswith("pyarrow"):
        import pyarrow as pa

        return column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    return column


def _present(names: Sequence[str], wanted: Columns) -> Columns:
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
def _where(place: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


# ---- files ----------------------------------------------------------------------------------------------------


def _of_files(files: Files, wanted: Columns, blank: StreamState, sample: int) -> StreamState:
    with _where(files.paths[0]):
        columns = _present(files.schema.names, wanted)
    read = [name for name in dict.fromkeys(columns) if name is not None]

    def pieces(chunk: Any) -> Iterator[tuple[str, list[Any]]]:
        for place, table in files.read(chunk, read, _ROWS):
            arrays = [None if name is None else _plain(table.column(name)) for name in columns]
            yield f"{files.paths[place.part]} (rows from {place.row})", arrays

    state = _laid_out(blank, list(_sampled(files, pieces, sample)))
    for chunk in files.chunks:
        for where, (s, e, d) in pieces(chunk):
            with _where(where):
                state.update(s, error=e, loss=d)
    return state


def _sampled(files: Files, pieces: Any, sample: int) -> Iterable[tuple[Any, Any]]:
    """Scores and losses from the beginnings of up to 32 evenly spread row groups or files."""
    if sample == 0 or not files.chunks:
        return
    chosen = files.chunks[:: -(-len(files.chunks) // _PLACES)]
    each = -(-sample // len(chosen))
    for chunk in chosen:
        where, (s, _, d) = next(pieces(chunk), ("", ([], None, None)))
        if len(s):
            spread = slice(None, None, -(-len(s) // each))
            with _where(where):
                yield _vector("score", s)[spread], None if d is None else _vector("loss", d)[spread]
