"""What a run on Spark reads, and how a worker gets at it: chunks of files, or the rows of a dataframe."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from uqeval._errors import InputError
from uqeval.distributed.engines import pieces
from uqeval.distributed.engines.files import Files
from uqeval.distributed.engines.protocol import Part, Place
from uqeval.distributed.engines.source import Chunk, Source
from uqeval.distributed.engines.spark.workers import reason

Batches = Iterable[pa.RecordBatch]
Reader = Callable[[Batches], Iterator[tuple[Place, pa.Table]]]


T = TypeVar("T")


class Frame(Source):
    """A Spark dataframe. A job, which `run` runs, counts its rows when somebody asks for them."""

    def __init__(self, frame: Any, run: Callable[..., list[Any]]) -> None:
        self.frame, self._run = frame, run

    @cached_property
    def schema(self) -> pa.Schema:
        try:
            return to_arrow_schema(self.frame.schema)
        except Exception as error:
            raise InputError(f"The dataframe has a column that Arrow does not know: {reason(error)}") from error

    @cached_property
    def _counts(self) -> list[int]:
        counted = self.frame.groupBy(F.spark_partition_id()).count()
        return [int(row["count"]) for row in self._run("count rows", 0, counted.collect)]

    @property
    def parts(self) -> list[Part]:  # type: ignore[override]
        return [Part("the Spark dataframe (rows numbered within a partition)", sum(self._counts))]

    @property
    def chunks(self) -> list[Chunk]:  # type: ignore[override]
        return [Chunk(0, k) for k in range(len(self._counts))]

    def select(self, columns: Sequence[str] | None) -> Any:
        """The dataframe with these columns."""
        if columns is None:
            return self.frame
        try:
            return self.frame.select(*("`" + name.replace("`", "``") + "`" for name in columns))
        except Exception as error:
            raise InputError(f"The dataframe does not give {', '.join(columns)}: {reason(error)}") from error


def read_files(
    files: Files, chunks: Sequence[Chunk], columns: Sequence[str] | None, most: int, batches: Batches
) -> Iterator[tuple[Place, pa.Table]]:
    """Spark hands out numbers of chunks; the worker reads the files itself."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from files.read(chunks[number], columns, most)


def read_frame(most: int, batches: Batches) -> Iterator[tuple[Place, pa.Table]]:
    """Spark hands out rows, in batches too small for the functions of the plan."""
    row = 0
    for some in gathered(filter(len, batches), most, len):
        table = pa.Table.from_batches(some)
        yield from pieces.cut(table, 0, most, row)
        row += len(table)


def gathered(items: Iterable[T], most: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Items in lists that are just large enough."""
    waiting: list[T] = []
    total = 0
    for item in items:
        waiting.append(item)
        total += size(item)
        if total >= most:
            yield waiting
            waiting, total = [], 0
    if waiting:
        yield waiting
