"""What a run cost: rows, passes, shuffles, bytes, seconds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from uqeval._result import Result


@dataclass
class Summary(Result):
    """What a run cost."""

    engine: str
    rows: int = 0
    parts: int = 0
    passes: int = 0  # over the source
    sampled_rows: int = 0  # read beside the passes, to choose where to cut; 0 where the engine does not tell
    shuffles: int = 0
    moved_rows: int = 0
    moved_bytes: int = 0
    largest_task: int = 0  # rows
    seconds: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**vars(self), "seconds": {**self.seconds, "total": sum(self.seconds.values())}}

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.parts:,} parts, {self.engine} engine: {self.passes} passes "
            f"and {self.sampled_rows:,} rows sampled, "
            f"{self.shuffles} shuffles, {self.moved_rows:,} rows ({self.moved_bytes / 1e6:,.0f} MB) moved, "
            f"largest task {self.largest_task:,} rows, {sum(self.seconds.values()):.1f} s"
        )

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds the seconds inside the block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start
