"""Files → `Predictions`: CSV, Parquet, Arrow, JSON lines and NPZ, one file or many.

Reads the columns that are needed and no others; columns are named in `columns`, turned into arrays in
`frame`. Every error names its file. pyarrow is imported on use.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from uqeval._check import nearest
from uqeval._errors import InputError
from uqeval.inputs.columns import DEFAULTS, ColumnOptions, Columns, Plan, listed, plan_columns, refuse_csv_options
from uqeval.inputs.paths import (
    PathLike,
    expand,
    format_of,
    may_be_log,
    named,
    reading,
    refuse_bomb,
    same_columns,
    sound,
)
from uqeval.inputs.predictions import Predictions, predictions_from_arrow
from uqeval.inputs.texts import Opened, open_csv, open_json

if TYPE_CHECKING:
    import pyarrow as pa


class _Late(Mapping[str, Any]):
    """Columns that are read when they are asked for, each time."""

    def __init__(self, names: list[str], column: Callable[[str], pa.ChunkedArray]) -> None:
        self._names, self._column = names, column

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self._column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_ARRAYS = (
    *("labels", "probs", "logits", "members", "member_logits", "alpha", "soft_labels", "pred", "error", "loss"),
    *("weights", "clusters", "groups", "classes", "ids"),
)
# Texts such as "007" must stay what they are: Arrow would read a number.
_TEXT_ROLES = ("label", "pred", "cluster", "group", "id")


def read_predictions(path: PathLike | Sequence[PathLike], **columns: Unpack[ColumnOptions]) -> Predictions:
    """Predictions from a file, a glob pattern or several of them, joined in sorted order.

    The extension tells the format: .csv, .tsv, .jsonl, .ndjson (also .gz, .zst, .bz2), .parquet, .arrow, .feather,
    .ipc or .npz. "-" is standard input; s3://, gs:// and https:// are fetched.

    Parameters
    ----------
    path : str, path or list of them
        Files or patterns such as "preds/*.parquet".
    **columns
        Column names, `classes`, `normalize` and `labels_by`, as in `Predictions.from_frame`. An NPZ file holds arrays
        named as the arguments of `Predictions`, and score_<name>. `sep`, `decimal` and `encoding` say how a CSV
        file is written.

    Returns
    -------
    Predictions

    Examples
    --------
    >>> read_predictions("preds.csv", label="y_true", prob="p_*")  # doctest: +SKIP
    Predictions(10000 rows, 10 classes: labels, probs)
    """
    return PredictionFiles(path, Columns(**columns)).read()


class PredictionFiles:
    """Files that hold the predictions of one model, each opened once."""

    def __init__(self, path: PathLike | Sequence[PathLike], options: Columns) -> None:
        self.paths, self.options = expand(path), options
        self.kinds = [format_of(name) for name in self.paths]
        if "npz" in self.kinds and set(self.kinds) != {"npz"}:
            raise InputError(f"{listed(self.paths)}: NPZ files and tables cannot be joined. Read them one by one.")
        if (other := next((k for k, kind in enumerate(self.kinds) if kind not in ("csv", "tsv")), None)) is not None:
            refuse_csv_options(options, f"{self.paths[other]} is none")
        self._opened: dict[str, Opened] = {}

    def open(self, name: str) -> Opened:
        """Columns, rows and reader of a file."""
        if name not in self._opened:
            with named(name), reading(name):
                self._opened[name] = _OPENERS[format_of(name)](name, self.options)
        return self._opened[name]

    @cached_property
    def plan(self) -> Plan:
        """The part that each column plays; all files have the same."""
        plans = []
        for name in self.paths:
            names = self.open(name).names
            with named(name):
                plans.append(plan_columns(names, self.options, name))
            same_columns(self.paths[0], plans[0].needed, name, plans[-1].needed)
        return plans[0]

    def read(self) -> Predictions:
        """The predictions, file after file; they remember where they are from."""
        found = self._read()
        object.__setattr__(found, "files", tuple(self.paths))
        if "npz" not in self.kinds:
            object.__setattr__(found, "columns", tuple(self.plan.parts.items()))
        return found

    def _read(self) -> Predictions:
        if "npz" in self.kinds:
            return _from_npz(self.paths, self.options)
        import pyarrow

        plan, parts = self.plan, []
        if len(self.paths) == 1 and (column := self.open(self.paths[0]).column) is not None:
            with named(self.paths[0]), reading(self.paths[0]):
                found = predictions_from_arrow(_Late(plan.needed, column), plan, self.options)
            pyarrow.default_memory_pool().release_unused()
            return found
        texts = [plan.single[role] for role in _TEXT_ROLES if role in plan.single]
        for name in self.paths:
            with named(name), reading(name):
                parts.append(self.open(name).read(plan.needed, texts))
        self._opened.clear()
        table = _join(self.paths, parts)
        try:
            with named(listed(self.paths, 3)):
                found = predictions_from_arrow(_columns_of(table), plan, self.options)
        except InputError:
            if len(self.paths) > 1:  # say which of the files it is, if one fails by itself
                for name, part in zip(self.paths, parts, strict=True):
                    if len(part) >= 2:
                        with named(name):
                            predictions_from_arrow(_columns_of(part), plan, self.options)
            raise
        del table, parts
        pyarrow.default_memory_pool().release_unused()
        return found

    def further(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Other columns as they are, in the same order of rows: what to show beside a row, not for a metric."""
        found: dict[str, list[Any]] = {name: [] for name in names}
        for file, kind in zip(self.paths, self.kinds, strict=True):
            if kind == "npz":
                raise InputError(f"{file}: an NPZ file has no further columns.")
            opened = self.open(file)
            for name in found:
                if name not in opened.names:
                    raise InputError(f'{file}: there is no column "{name}".{nearest(name, opened.names)}')
            with reading(file):
                table = opened.read(list(found), [])
            for name, values in found.items():
                values += table[name].to_pylist()
        return found


def is_log(paths: Sequence[str]) -> bool:
    """Whether all are logs of language models, not tables of predictions: a folder, or a file of a known format."""
    names = [os.path.expanduser(path) for path in paths]
    if not names or not all(os.path.isdir(name) or (os.path.isfile(name) and _may_be_log(name)) for name in names):
        return False
    from uqeval.inputs.logs.reading import kind_of  # six formats, of which a table of predictions needs none

    return all(os.path.isdir(name) or kind_of(name) is not None for name in names)


def _may_be_log(name: str) -> bool:
    """By its name, and of a table by its columns: those of a log hold texts."""
    if not name.lower().endswith((".csv", ".parquet")):
        return may_be_log(name)
    try:
        names = _OPENERS[format_of(name)](name, Columns()).names
    except Exception:  # whoever reads it says what is wrong
        return False
    return not {"prompt", "prompts", "response", "responses"}.isdisjoint(names)


def _columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _join(paths: list[str], parts: list[pa.Table]) -> pa.Table:
    """One table; texts where files disagree on the type of a label."""
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    filled = [part for part in parts if len(part)] or parts[:1]  # a part without rows has no types
    joined = {}
    for name in parts[0].column_names:
        chunks = [part.column(name) for part in filled]
        kinds = [chunk.type for chunk in chunks]
        if any(kind != kinds[0] for kind in kinds):
            common = pa.float64() if all(map(is_number, kinds)) else pa.large_string()
            try:
                chunks = [chunk.cast(common) for chunk in chunks]
            except pa.ArrowException:
                raise InputError(
                    f"{listed(paths, 3)}: column `{name}` has types that cannot be joined: "
                    f"{listed(dict.fromkeys(kinds))}."
                ) from None
        joined[name] = pa.chunked_array([piece for chunk in chunks for piece in chunk.chunks], type=chunks[0].type)
    return pa.table(joined)


def is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _open_parquet(name: str, options: Columns) -> Opened:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(name, pre_buffer=False)  # the bytes of the file need not lie in memory all at once

    rows, size = file.metadata.num_rows, os.path.getsize(name)
    opened = threading.local()  # once for each thread: opening goes through all columns, of which there may be 10,000

    def read(columns: list[str], texts: list[str]) -> pa.Table:
        refuse_bomb(8 * rows * len(columns), size)
        return sound(file.read(columns=columns)).select(columns)

    def column(label: str) -> pa.ChunkedArray:
        refuse_bomb(8 * rows, size)
        if (own := getattr(opened, "file", None)) is None:
            own = opened.file = pq.ParquetFile(name, metadata=file.metadata, pre_buffer=False)
        found = sound(own.read(columns=[label], use_threads=False)).column(label)
        if len(found) != rows:
            raise InputError(f"is corrupt: column `{label}` has {len(found)} rows of {rows}.")
        return found

    return Opened(list(file.schema_arrow.names), read, rows, column)


def _open_arrow(name: str, options: Columns) -> Opened:
    """The file form (Feather too) or the stream form."""
    import pyarrow as pa

    def opened(source: Any, options: Any = None) -> Any:
        try:
            return pa.ipc.open_file(source, options=options)
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source, options=options)

    source = pa.memory_map(name)
    schema = opened(source).schema

    def read(columns: list[str], texts: list[str]) -> pa.Table:
        fields = sorted(schema.get_field_index(column) for column in columns)
        source.seek(0)
        return sound(opened(source, pa.ipc.IpcReadOptions(included_fields=fields)).read_all()).select(columns)

    return Opened(list(schema.names), read)


_OPENERS: dict[str, Callable[[str, Columns], Opened]] = {
    "csv": open_csv,
    "tsv": lambda name, options: open_csv(name, options, "\t"),
    "parquet": _open_parquet,
    "arrow": _open_arrow,
    "jsonl": open_json,
}


def _from_npz(paths: list[str], options: Columns) -> Predictions:
    changed = [name for name in DEFAULTS if getattr(options, name) != DEFAULTS[name]]
    if columns := [name for name in changed if name not in ("classes", "normalize", "labels_by")]:
        raise InputError(
            f"{paths[0]}: `{columns[0]}` names a column, but the arrays of an NPZ file have fixed names: "
            f"{', '.join(_ARRAYS)} and score_<name>."
        )
    parts = []
    for name in paths:
        with named(name), reading(name):
            parts.append(_load_npz(name))
        same_columns(paths[0], list(parts[0]), name, list(parts[-1]))
    arguments: dict[str, Any] = {}
    with named(listed(paths, 3)):
        for key in parts[0]:
            arrays = [part[key] for part in parts]
            if key == "classes":
                if any(not np.array_equal(arrays[0], other) for other in arrays):
                    raise InputError("`classes` differ between the files. Write the same in all of them.")
                arguments[key] = [str(item) for item in arrays[0]]
            elif len(arrays) == 1:
                arguments[key] = arrays[0]
            else:
                arguments[key] = np.concatenate(arrays, axis=1 if key in ("members", "member_logits") else 0)
        scores = {key: arguments.pop(key) for key in list(arguments) if key not in _ARRAYS}
        if scores:
            arguments["scores"] = {key.removeprefix("score_"): score for key, score in scores.items()}
        if options.classes is not None:
            arguments["classes"] = options.classes
        return Predictions(
            arguments.pop("labels", None), normalize=options.normalize, labels_by=options.labels_by, **arguments
        )


def _load_npz(name: str) -> dict[str, Any]:
    with open(name, "rb") as file:
        loaded = np.load(file, allow_pickle=False)  # a pickle can run any code
        if isinstance(loaded, np.lib.npyio.NpzFile):
            _check_sizes(loaded.zip, os.path.getsize(name))
        return _arrays(loaded)


def _check_sizes(archive: Any, packed: int) -> None:
    """Each array is as large as it says it is, which NumPy would make room for before it looks."""
    refuse_bomb(sum(info.file_size for info in archive.infolist()), packed)
    for info in archive.infolist():
        with archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, kind = read(member)
            said, held = math.prod(shape) * kind.itemsize, info.file_size - member.tell()
        if said != held and not kind.hasobject:  # which is refused by its own words
            raise InputError(
                f"is corrupt: the array `{info.filename.removesuffix('.npy')}` says it has {said:,} bytes, and there "
                f"are {held:,}."
            )


def _arrays(loaded: Any) -> dict[str, Any]:
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise InputError(
            "is a single array, not an NPZ archive. Save it with numpy.savez(file, labels=..., probs=...)."
        )
    arrays = {}
    with loaded:
        for key in loaded.files:
            if key not in _ARRAYS and key != "score" and not (key.startswith("score_") and len(key) > 6):
                raise InputError(
                    f"the array `{key}` is not known.{nearest(key, _ARRAYS)} "
                    f"Known are {', '.join(_ARRAYS)} and score_<name>."
                )
            try:
                arrays[key] = loaded[key]
            except ValueError as error:
                raise InputError(
                    f"the array `{key}` cannot be read ({error}). Pickled objects are refused: "
                    f"save texts as a str array."
                ) from None
            _check_letters(key, arrays[key])
            if arrays[key].ndim == 0:
                raise InputError(f"the array `{key}` is a single value. Pass one entry per row.")
    return arrays


def _check_letters(key: str, array: NDArray[Any]) -> None:
    """NumPy makes texts of any numbers, and the first that looks at one beyond Unicode gets an error of the system."""
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        letters = np.frombuffer(array.tobytes(), np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if letters.max() > sys.maxunicode:
            raise InputError(f"is corrupt: the array `{key}` holds letters that there are not.")
