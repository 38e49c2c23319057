"""Where rows come from: parts that a user knows, cut into chunks that tasks read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uqeval.distributed.engines.protocol import Part

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Chunk:
    """The least that a task reads: a row group, some batches, a partition, or a whole file of another kind."""

    part: int
    group: int | None = None  # a row group, or the first batch
    row: int = 0  # the first, inside the part
    rows: int | None = None  # None where only reading tells
    stop: int | None = None  # behind the last batch


class Source:
    """Files, a query or a dataframe."""

    schema: pa.Schema
    parts: list[Part]
    chunks: list[Chunk]

    @property
    def rows(self) -> int | None:
        """All rows, where that is known."""
        known = [part.rows for part in self.parts if part.rows is not None]
        return sum(known) if len(known) == len(self.parts) else None

    def close(self) -> None:
        """Frees what the source took of the disk."""
