"""What a run on Dask reads, and how a task gets at it: files that every worker can open, or partitions."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import dask
import pyarrow as pa

from uqeval.distributed.engines import limits, pieces
from uqeval.distributed.engines.files import Files
from uqeval.distributed.engines.protocol import Part, Place
from uqeval.distributed.engines.source import Chunk, Source

R = TypeVar("R")
_dask: Any = dask  # its functions have no types


class Partitions(Source):
    """A Dask dataframe, or a list of delayed tables; each pass computes the partitions again and keeps none."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self._delayed = isinstance(frame, list | tuple)
        count = len(frame) if self._delayed else frame.npartitions
        self.parts = [Part(f"partition {k}") for k in range(count)]
        self.chunks = [Chunk(k) for k in range(count)]
        self.schema = None if self._delayed else schema_of(frame._meta)  # None: only computing one tells

    def graph(self, columns: Sequence[str] | None) -> tuple[dict[Any, Any], list[Any]]:
        """Tasks that compute the partitions, and the name of each."""
        if not self._delayed:
            frame = (self.frame if columns is None else self.frame[list(columns)]).optimize()
            return dict(frame.__dask_graph__()), list(frame.__dask_keys__())
        graph: dict[Any, Any] = {}
        for item in self.frame:
            graph |= dict(item.__dask_graph__()) if _dask.is_dask_collection(item) else {item.key: item}
        return graph, [item.key for item in self.frame]


def open_source(source: Any, texts: Sequence[str]) -> Files | Partitions:
    """What `source` is: a frame, a list of delayed tables or futures, or names of files."""
    if hasattr(source, "npartitions") and hasattr(source, "_meta"):
        return Partitions(source)
    if isinstance(source, list | tuple) and source and all(hasattr(item, "key") for item in source):
        return Partitions(source)
    files = Files(source, texts)
    files.paths = [os.path.abspath(path) for path in files.paths]  # workers run in other folders
    return files


def schema_of(frame: Any) -> pa.Schema:
    """Columns of a table, or of a pandas frame without its index."""
    return frame.schema if hasattr(frame, "schema") else pa.Schema.from_pandas(frame, preserve_index=False)


@dataclass(frozen=True)
class Lot:
    """What a task reads. In an object, because Dask takes texts and tuples for names of tasks."""

    columns: tuple[str, ...] | None = None
    most: int = limits.PIECE_ROWS  # rows in a piece
    chunks: tuple[Chunk, ...] = (Chunk(pieces.CARRIED),)


def on_pieces(function: Callable[[pieces.Pieces], R], given: Any, lot: Lot) -> R:
    """`function` of a lot: of files, of a partition (a table or a pandas frame), or of rows carried here."""
    return function(_pieces(given, lot))


def _pieces(given: Any, lot: Lot) -> Iterator[tuple[Place, pa.Table]]:
    if isinstance(given, Files):
        for chunk in lot.chunks:
            yield from given.read(chunk, lot.columns, lot.most)
        return
    if not isinstance(given, pa.Table):
        frame = given if lot.columns is None else given[list(lot.columns)]
        given = pa.Table.from_pandas(frame, preserve_index=False)
    table = given if lot.columns is None else given.select(list(lot.columns))
    yield from pieces.cut(table, lot.chunks[0].part, lot.most)
