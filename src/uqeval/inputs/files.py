"""Files → `Predictions`: CSV, Parquet, Arrow, JSON lines and NPZ, one file or many.

Reads the columns that are needed and no others; columns are named in `_columns`, turned into arrays in
`frame`. Every error names its file. pyarrow is imported on use.
"""

from __future__ import annotations

import csv
import glob
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from uqeval._errors import InputError, reason_of
from uqeval.inputs.columns import (
    DEFAULTS,
    ColumnOptions,
    Columns,
    Plan,
    listed,
    nearest,
    plan_columns,
    repeated,
)
from uqeval.inputs.frame import predictions_from_arrow
from uqeval.inputs.predictions import Predictions

if TYPE_CHECKING:
    import pyarrow as pa

    Source = tuple[list[str], Callable[[Plan], pa.Table]]  # the columns there are, and how to read some

__all__ = ["expand", "format_of", "is_number", "read_predictions", "reading"]

PathLike = str | os.PathLike[str]

_ARRAYS = (
    *(
        "labels",
        "probs",
        "logits",
        "members",
        "member_logits",
        "alpha",
        "soft_labels",
        "pred",
        "error",
        "loss",
    ),
    *("weights", "clusters", "groups", "classes", "ids"),
)
# Texts such as "007" must stay what they are: Arrow would read a number.
_TEXT_ROLES = ("label", "pred", "cluster", "group", "id")
_BLOCK = 1 << 24  # bytes; a row longer than Arrow's block (1 MiB by default) cannot be read


# The extension tells the format; .gz may follow where the reader can undo it.
_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npz": "npz",
}
_GZIPPED = (".csv", ".tsv", ".jsonl", ".ndjson")


def read_predictions(path: PathLike | Sequence[PathLike], **columns: Unpack[ColumnOptions]) -> Predictions:
    """Predictions from a file, a glob pattern or several of them, joined in sorted order.

    The extension tells the format: .csv, .tsv (also .csv.gz, .tsv.gz), .parquet, .arrow, .feather, .ipc,
    .jsonl, .ndjson (also .gz) or .npz.

    Parameters
    ----------
    path : str, path or list of them
        Files or patterns such as "preds/*.parquet".
    **columns
        Column names, `classes` and `normalize`, as in `predictions_from_frame`. An NPZ file holds arrays
        named as the arguments of `Predictions`, and score_<name>.

    Returns
    -------
    Predictions

    Examples
    --------
    >>> read_predictions("preds.csv", label="y_true", prob="p*")  # doctest: +SKIP
    Predictions(10000 rows, 10 classes: labels, probs)
    """
    options = Columns(**columns)
    paths = expand(path)
    formats = [format_of(name) for name in paths]
    if "npz" in formats:
        if set(formats) != {"npz"}:
            raise InputError(f"{listed(paths)}: NPZ files and tables cannot be joined. Read them one by one.")
        return _from_npz(paths, options)
    plans, readers = [], []
    for name, kind in zip(paths, formats, strict=True):
        with _named(name), reading(name):
            names, read = _OPENERS[kind](name)
        with _named(name):
            plans.append(plan_columns(names, options))
        readers.append(read)
        _same_columns(paths[0], plans[0].needed, name, plans[-1].needed)
    plan, parts = plans[0], []
    for name, read in zip(paths, readers, strict=True):
        with reading(name):
            parts.append(read(plan))
    table = _join(paths, parts)
    try:
        with _named(listed(paths, 3)):
            return predictions_from_arrow(_columns_of(table), plan, options)
    except InputError:
        if len(paths) > 1:  # say which of the files it is, if one fails by itself
            for name, part in zip(paths, parts, strict=True):
                if len(part) >= 2:
                    with _named(name):
                        predictions_from_arrow(_columns_of(part), plan, options)
        raise


def _columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Put the file's name before every message."""
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(f"{name}:") else f"{name}: {text}") from None


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn whatever a reader raises into one line that names the file."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # Arrow, zip, zlib, csv and Unicode each have kinds of their own
        raise InputError(
            f"{name}: cannot be read; it may be truncated, corrupt or in another format ({reason_of(error)})."
        ) from None


def expand(path: PathLike | Sequence[PathLike]) -> list[str]:
    """Existing files, in sorted order."""
    asked = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not asked:
        raise InputError("`path` is an empty list. Pass at least one file.")
    found = []
    for item in asked:
        if not isinstance(item, str | os.PathLike):
            raise InputError(f"`path` holds {item!r}. Pass file names.")
        name = os.path.expanduser(os.fspath(item))
        if not os.path.exists(name) and glob.has_magic(name):
            matches = [match for match in glob.glob(name, recursive=True) if os.path.isfile(match)]
            if not matches:
                raise InputError(f"{name}: no file matches this pattern.")
            found += matches
        else:
            found.append(name)
    found.sort()
    if twice := repeated(found):
        raise InputError(f"{twice[0]}: named twice, so its rows would count twice.")
    for name in found:
        _check_file(name)
    return found


def _check_file(name: str) -> None:
    if os.path.isdir(name):
        raise InputError(f'{name}: is a folder. Name its files, as in "{os.path.join(name, "*.parquet")}".')
    if not os.path.exists(name):
        folder = Path(name).parent
        there = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        raise InputError(f"{name}: there is no such file.{nearest(Path(name).name, there)}")
    if os.path.getsize(name) == 0:
        raise InputError(f"{name}: the file is empty (0 bytes).")


def format_of(name: str) -> str:
    lower = name.lower()
    for extension, kind in _EXTENSIONS.items():
        if lower.endswith(extension) or (extension in _GZIPPED and lower.endswith(extension + ".gz")):
            return kind
    raise InputError(
        f"{name}: the extension {Path(name).suffix or '(none)'} is not known. "
        f"Supported are {', '.join(_EXTENSIONS)}, and .gz after {', '.join(_GZIPPED)}."
    )


def _same_columns(first: str, there: Sequence[str], name: str, here: Sequence[str]) -> None:
    if set(there) != set(here):
        lacking, extra = sorted(set(there) - set(here)), sorted(set(here) - set(there))
        differences = [f"lacks {listed(lacking)}"] * bool(lacking) + [f"also has {listed(extra)}"] * bool(extra)
        raise InputError(f"{name}: {' and '.join(differences)}, unlike {first}. Files are joined by column.")


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


def _open_csv(name: str, delimiter: str = ",") -> Source:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with (
        pa.input_stream(name, compression="detect") as raw,
        io.TextIOWrapper(raw, "utf-8-sig", newline="") as text,
    ):
        names = next((row for row in csv.reader(text, delimiter=delimiter) if row), [])
    if not names:
        raise InputError("holds no header line. The first line names the columns.")

    def read(plan: Plan) -> pa.Table:
        texts = {plan.single[role]: pa.string() for role in _TEXT_ROLES if role in plan.single}
        convert = arrow_csv.ConvertOptions(include_columns=plan.needed, column_types=texts)
        parse = arrow_csv.ParseOptions(delimiter=delimiter)
        try:
            return arrow_csv.read_csv(name, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid:
            # Slower, but quoted texts may hold line breaks and rows may be long.
            parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
            block = arrow_csv.ReadOptions(block_size=_BLOCK)
            return arrow_csv.read_csv(name, read_options=block, parse_options=parse, convert_options=convert)

    return names, read


def _open_parquet(name: str) -> Source:
    import pyarrow.parquet as pq

    def read(plan: Plan) -> pa.Table:
        with pq.ParquetFile(name) as file:
            return file.read(columns=plan.needed).select(plan.needed)

    with pq.ParquetFile(name) as file:
        return list(file.schema_arrow.names), read


def _open_arrow(name: str) -> Source:
    """The file form (Feather too) or the stream form."""
    import pyarrow as pa

    def opened(source: Any, options: Any = None) -> Any:
        try:
            return pa.ipc.open_file(source, options=options)
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source, options=options)

    with pa.memory_map(name) as source:
        schema = opened(source).schema

    def read(plan: Plan) -> pa.Table:
        fields = sorted(schema.get_field_index(column) for column in plan.needed)
        with pa.memory_map(name) as source:
            table = opened(source, pa.ipc.IpcReadOptions(included_fields=fields)).read_all()
            return table.select(plan.needed)

    return list(schema.names), read


def _open_json(name: str) -> Source:
    from pyarrow import json as arrow_json

    # Keys may come late, so that only the whole file tells the columns.
    table = arrow_json.read_json(name, read_options=arrow_json.ReadOptions(block_size=_BLOCK))
    return list(table.column_names), lambda plan: table.select(plan.needed)


_OPENERS: dict[str, Callable[[str], Source]] = {
    "csv": _open_csv,
    "tsv": lambda name: _open_csv(name, "\t"),
    "parquet": _open_parquet,
    "arrow": _open_arrow,
    "jsonl": _open_json,
}


def _from_npz(paths: list[str], options: Columns) -> Predictions:
    changed = [name for name in DEFAULTS if getattr(options, name) != DEFAULTS[name]]
    if columns := [name for name in changed if name not in ("classes", "normalize")]:
        raise InputError(
            f"{paths[0]}: `{columns[0]}` names a column, but the arrays of an NPZ file have fixed names: "
            f"{', '.join(_ARRAYS)} and score_<name>."
        )
    parts = []
    for name in paths:
        with _named(name), reading(name):
            parts.append(_load_npz(name))
        _same_columns(paths[0], list(parts[0]), name, list(parts[-1]))
    arguments: dict[str, Any] = {}
    with _named(listed(paths, 3)):
        for key in parts[0]:
            arrays = [part[key] for part in parts]
            if key == "classes":
                if any(not np.array_equal(arrays[0], other) for other in arrays):
                    raise InputError("`classes` differ between the files.")
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
        return Predictions(arguments.pop("labels", None), normalize=options.normalize, **arguments)


def _load_npz(name: str) -> dict[str, Any]:
    with open(name, "rb") as file:
        loaded = np.load(file, allow_pickle=False)  # a pickle can run any code
        return _arrays(loaded)


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
            if arrays[key].ndim == 0:
                raise InputError(f"the array `{key}` is a single value. Pass one entry per row.")
    return arrays
