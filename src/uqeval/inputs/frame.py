"""Columns of a frame → arguments of `Predictions`: pandas, Polars and Arrow, through narwhals.

Which column plays which part is settled in `columns`, what a label means in `classes`; arrays are checked
by `Predictions`. pyarrow and narwhals are imported on use, so that `import uqeval` stays fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import MEND, Widened, all_finite, check_errors
from uqeval._errors import InputError, a_type
from uqeval.inputs.classes import Coded, Encoded, Indices, class_indices, settle_classes
from uqeval.inputs.columns import ClassColumns, Columns, Plan, plan_columns, refuse_csv_options
from uqeval.kernels import side_by_side

if TYPE_CHECKING:
    import pyarrow as pa


_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*")


def frame_columns(frame: Any, options: Columns) -> tuple[dict[str, pa.ChunkedArray], Plan, Columns]:
    """The Arrow columns of an eager frame that are needed, and the part of each."""
    refuse_csv_options(options, "a frame is no file")
    columns = _column_names(frame)
    if columns is not None and len(columns) == len(set(columns)):
        frame = _string_names(frame, columns)
    elif columns is not None:
        plan_columns(columns, options)  # says which names are duplicated
    eager = _eager(frame)
    plan = plan_columns(list(eager.columns), options)
    return {name: _arrow(eager, name) for name in plan.needed}, plan, options


def _column_names(frame: Any) -> list[str] | None:
    """The names before narwhals sees them: it may refuse duplicates in words of its own."""
    names = getattr(frame, "column_names", None)
    if names is None and hasattr(frame, "set_axis"):
        names = frame.columns
    return None if names is None else [str(name) for name in names]


def _string_names(frame: Any, columns: list[str]) -> Any:
    """pandas allows column names that are not strings."""
    if hasattr(frame, "set_axis") and list(frame.columns) != columns:
        return frame.set_axis(columns, axis=1)
    return frame


def _eager(frame: Any) -> Any:
    import narwhals as nw

    try:
        wrapped = nw.from_native(frame)
    except TypeError:
        raise InputError(
            f"`frame` is {a_type(frame)}. Pass a pandas, Polars or Arrow frame; "
            f"arrays go to Predictions(labels, probs=...)."
        ) from None
    if isinstance(wrapped, nw.LazyFrame):
        raise InputError(
            f"`frame` is lazy ({type(frame).__module__.split('.')[0]} {type(frame).__name__}). "
            f"Collect it first, as in frame.collect()."
        )
    return wrapped


def _arrow(frame: Any, name: str) -> pa.ChunkedArray:
    import pyarrow as pa

    try:
        column = frame.get_column(name).to_arrow()
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"Column `{name}` mixes types ({reason}). Give it one type.") from None
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def arrow_arguments(columns: Mapping[str, pa.ChunkedArray], plan: Plan, options: Columns) -> dict[str, Any]:
    """Arguments for `Predictions` from Arrow columns that a plan has named."""
    head = next(iter(columns))  # a column may be read whenever it is asked for: each is, once
    read = {head: columns[head]}
    n = len(read[head])
    if n < 2:
        raise InputError(f"There {'is 1 row' if n else 'are no rows'}. Ranking needs at least 2.")
    late = {name for part in plan.tables.values() if _as_floats(part, options) for name in part.columns}
    read |= {name: columns[name] for name in columns if name not in late and name != head}
    plain = {name: _checked(name, column) for name, column in read.items()}
    labels: dict[str, Encoded] = {
        role: _encode(plan.single[role], plain) for role in ("label", "pred") if role in plan.single
    }
    classes = settle_classes(plan, options.classes, list(labels.values()))
    found = class_indices(labels, classes, options.labels_by)
    rows = {role: Indices(indices) for role, indices in found.items()}

    def table(part: ClassColumns | None) -> NDArray[Any] | Widened | None:
        if part is None or not _as_floats(part, options):
            return None if part is None else _matrix(part, classes.names, plain)
        floats = _float_matrix(part, classes.names, columns, n)
        return floats or _matrix(part, classes.names, {name: _checked(name, columns[name]) for name in part.columns})

    def stack(parts: list[ClassColumns] | None) -> NDArray[Any] | None:
        return None if parts is None else np.stack([_matrix(part, classes.names, plain) for part in parts])

    def vector(role: str) -> NDArray[Any] | None:
        if role not in plan.single:
            return None
        values = _numbers(plan.single[role], plain)
        return _turned(plan.single[role], values, role) if role in plan.turned else values

    def coded(role: str) -> Coded | None:
        if role not in plan.single:
            return None
        codes, dictionary = _dictionary(plain[plan.single[role]])
        return Coded(codes, dictionary if isinstance(dictionary, np.ndarray) else numpy_values(dictionary))

    return {
        "labels": rows.get("label"),
        "probs": table(plan.tables.get("prob")),
        "logits": table(plan.tables.get("logit")),
        "members": stack(plan.members.get("member")),
        "member_logits": stack(plan.members.get("member_logit")),
        "soft_labels": table(plan.tables.get("soft")),
        "pred": rows.get("pred"),
        "error": vector("error"),
        "loss": vector("loss"),
        "scores": {score: _numbers(name, plain) for score, name in plan.scores.items()} or None,
        "weights": vector("weight"),
        "clusters": coded("cluster"),
        "groups": coded("group"),
        "classes": classes.names or None,
        "ids": _texts(plain[plan.single["id"]]) if "id" in plan.single else None,
        "normalize": options.normalize,
    }


def _turned(name: str, values: NDArray[Any], role: str) -> NDArray[np.float64]:
    """1 − what is right, or good."""
    checked = check_errors(name, values, MEND, right=1) if role == "error" else values
    return 1.0 - checked.astype(np.float64)


def _as_floats(part: ClassColumns, options: Columns) -> bool:
    """Whether a table is read column by column, straight into one array."""
    return part.role in ("prob", "soft") and len(part.columns) > 1 and not options.normalize


def _checked(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A plain column without gaps."""
    column = plain_column(name, column)
    _reject_nulls(name, column)
    return column


def plain_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values behind a dictionary (pandas and Polars categories) and behind views; lists and records are refused."""
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = column.cast(kind.storage_type)
        kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.chunked_array([[None if x is None else x.hex() for x in column.to_pylist()]], type=pa.large_string())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if pa.types.is_dictionary(kind):
        return plain_column(name, column.cast(kind.value_type))
    if pa.types.is_nested(kind):
        raise InputError(f"Column `{name}` holds {kind}. Give every row a single number or text.")
    if str(kind) == "string_view":  # not every kernel knows views
        return column.cast(pa.large_string())
    return column


def is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _reject_nulls(name: str, column: pa.ChunkedArray) -> None:
    """A null, a NaN or an empty text is a missing value."""
    import pyarrow as pa

    rows: NDArray[Any] = np.empty(0)
    if column.null_count:
        rows = np.flatnonzero(numpy_values(column.is_null(nan_is_null=True)))
    elif pa.types.is_floating(column.type):
        values = numpy_values(column)
        rows = rows if all_finite(values) else np.flatnonzero(np.isnan(values))
    elif is_text(column.type):
        rows = np.flatnonzero(_text_sizes(column) == 0)
    if len(rows):
        raise InputError(
            f"Column `{name}` has {len(rows)} missing value{'s' * (len(rows) > 1)} (first at row {rows[0]}). "
            f"Drop or mend those rows."
        )


def _text_sizes(column: pa.ChunkedArray) -> NDArray[Any]:
    """Bytes of each text, from where each starts: to compare with "", Arrow would import pandas (0.3 s)."""
    import pyarrow as pa

    kind = np.int64 if pa.types.is_large_string(column.type) else np.int32
    parts = [
        np.diff(np.frombuffer(chunk.buffers()[1], kind, len(chunk) + 1, chunk.offset * kind().itemsize))
        for chunk in column.chunks
        if len(chunk)  # an empty one may have no starts at all
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)


def _numbers(name: str, columns: Mapping[str, pa.ChunkedArray]) -> NDArray[Any]:
    import pyarrow as pa

    column = columns[name]
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InputError(
            f"Column `{name}` holds {'text' if is_text(kind) else kind}, not numbers{_first_text(column)}."
        )
    return numpy_values(column)


def _first_text(column: pa.ChunkedArray) -> str:
    """Where a column of numbers in texts stops being one, and what to do."""
    if not is_text(column.type):
        return ""
    strange = {row: text for row, text in enumerate(column.to_pylist()) if not _is_written(text)}
    if not strange:
        return " (numbers written as text: convert them first)"
    row, text = next(iter(strange.items()))
    if _COMMA.fullmatch(text):
        return f' (row {row}: {text!r}, a decimal comma: pass decimal="," (--decimal ","))'
    if len(strange) == 1:
        return f" (row {row}: {text!r}). Mend that cell"
    return f" (row {row}: {text!r}, {len(strange)} such rows). Write numbers: 0.25 for 25%, 1 and 0 for yes and no"


def _is_written(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _float_matrix(
    part: ClassColumns, classes: tuple[str, ...], columns: Mapping[str, pa.ChunkedArray], n: int
) -> Widened | None:
    """(n, K) in class order as float64, column after column: each goes as soon as it is copied. None of integers."""
    # Columns stay columns where nobody adds up rows in the order of memory.
    out = np.empty((n, len(classes)), order="F")
    position = {name: k for k, name in enumerate(classes)}
    kinds: dict[str, np.dtype[Any]] = {}

    def fill(name: str, at: int) -> None:
        values = _numbers(name, {name: _checked(name, columns[name])})
        kinds[name] = values.dtype
        out[:, at] = values

    fills = [
        partial(fill, column, position[name]) for column, name in zip(part.columns, part.names or classes, strict=True)
    ]
    side_by_side(fills, n)
    kind = np.result_type(*kinds.values())
    return Widened(out, kind.itemsize < 8) if kind.kind == "f" else None


def _matrix(part: ClassColumns, classes: tuple[str, ...], columns: Mapping[str, pa.ChunkedArray]) -> NDArray[Any]:
    """(n, K) in class order; a lone probability of class 1 stays (n,)."""
    arrays = [_numbers(name, columns) for name in part.columns]
    n = len(arrays[0])
    kind = np.result_type(*arrays)  # it decides the tolerance of `check_probs`: float32 stays float32
    logits = part.role in ("logit", "member_logit")
    if len(arrays) > 1:
        out = np.empty((n, len(classes)), dtype=kind)
        names = part.names or classes
        position = {name: k for k, name in enumerate(classes)}
        for name, array in zip(names, arrays, strict=True):
            out[:, position[name]] = array
        return out
    k = 1 if part.names is None else classes.index(part.names[0])
    if logits:
        out = np.zeros((n, 2), dtype=np.result_type(kind, np.float32))
        out[:, k] = arrays[0]
        return out
    return arrays[0] if k == 1 else np.stack([arrays[0], 1 - arrays[0].astype(kind)], axis=-1)


def numpy_values(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The values of a column without nulls. Numbers are not copied; Arrow's own ways to NumPy would import pandas."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        parts = [numpy_values(chunk) for chunk in column.chunks]
        if len(parts) != 1:
            return np.concatenate(parts) if parts else numpy_values(pa.array([], type=column.type))
        return parts[0]
    kind = column.type
    if pa.types.is_boolean(kind) and not column.null_count:
        return numpy_values(column.cast(pa.uint8())).view(np.bool_)
    if column.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.array(column.to_pylist(), dtype=object) if is_text(kind) else column.to_numpy(zero_copy_only=False)
    # Only as much of the buffer as is used: its end may be anything, as half a number.
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    start = column.offset * kind.bit_width // 8
    return np.frombuffer(column.buffers()[1] or b"", f"{letter}{kind.bit_width // 8}", len(column), start)


def _dictionary(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[Any] | pa.Array]:
    """Codes and distinct values in order of their first row: by a table, or by Arrow's hash, as fast for strings."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and not column.null_count and len(column):
        values = numpy_values(column)
        low, span = int(values.min()), int(values.max()) - int(values.min()) + 1
        if span <= 4 * len(values):
            return _tabulated(values, low, span)
    encoded = column.dictionary_encode().unify_dictionaries()
    codes = np.concatenate([numpy_values(chunk.indices) for chunk in encoded.chunks])
    return codes.astype(np.int64), encoded.chunk(0).dictionary


def _tabulated(values: NDArray[Any], low: int, span: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    at = (values - values.dtype.type(low)).astype(np.int64) if values.itemsize == 8 else values.astype(np.int64) - low
    first = np.full(span, -1)
    first[at[::-1]] = np.arange(len(at))[::-1]  # the last one written is the first of the rows
    there = np.flatnonzero(first >= 0)
    there = there[np.argsort(first[there])]
    rows = first[there]
    first[there] = np.arange(len(there))
    return first[at], values[rows]


def _encode(name: str, columns: Mapping[str, pa.ChunkedArray]) -> Encoded:
    codes, dictionary = _dictionary(columns[name])
    return Encoded(name, codes, dictionary.tolist())


def _texts(column: pa.ChunkedArray) -> NDArray[np.str_]:
    import pyarrow as pa

    if not is_text(column.type):
        column = column.cast(pa.large_string())
    return numpy_values(column).astype(np.str_)
