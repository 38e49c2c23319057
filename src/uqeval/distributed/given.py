"""What a call gives beside its source: arrays or names of columns, and who counts the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from uqeval._check import check_choice
from uqeval._errors import InputError

if TYPE_CHECKING:
    from uqeval.distributed.engines.protocol import Engine

MEMORY = "memory"


def _on_device(value: Any) -> bool:
    """Of a torch tensor, which need not be imported to be asked."""
    return bool(getattr(value, "is_cuda", False))


@dataclass(frozen=True)
class Arrays:
    """What was given beside the source: arrays where there is none, else names of columns."""

    score: Any = None
    error: Any = None
    loss: Any = None
    correct: Any = None
    quality: Any = None
    weights: Any = None
    clusters: Any = None
    groups: Any = None

    def given(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def on_device(self) -> bool:
        """Whether these are tensors of a CUDA device, and what tensors can be judged by: scores, errors and a loss."""
        given = self.given()
        scores = self.score.values() if isinstance(self.score, Mapping) else [self.score]
        tensors = [*scores, self.error, *([] if self.loss is None else [self.loss])]
        return given.keys() <= {"score", "error", "loss"} and bool(scores) and all(map(_on_device, tensors))

    def named(self) -> dict[str, Any]:
        """The scores by name."""
        return dict(self.score) if isinstance(self.score, Mapping) else {"score": self.score}

    def columns(self) -> dict[str, Any]:
        """As names of columns of a file or frame."""
        for name, value in self.given().items():
            texts = isinstance(value, str) or (name == "score" and isinstance(value, list | tuple))
            if name not in ("score", "error", "loss", "correct", "quality") or not texts:
                raise InputError(f"Pass `{name}` inside the predictions, or plain arrays only; not both.")
        return self.given()


def check_risk(risk: str | None) -> str | None:
    """What the selective metrics take: what there is by default."""
    return None if risk is None else check_choice("risk", risk, ("error", "loss"))


def refuse_risk(risk: str | None) -> None:
    """An engine knows the selective metrics of errors only."""
    if risk == "loss":
        raise InputError(
            'risk="loss" needs all rows in memory: piece by piece AURC and its relatives are computed of 0/1 errors. '
            'Leave it out, or pass engine="memory".'
        )


@dataclass(frozen=True)
class Where:
    """Who counts the rows: an engine by name or itself, what it may use, and the columns of groups and clusters."""

    engine: str | Engine | None = None
    memory_limit: str | int | None = None
    client: Any = None
    spill: str | None = None
    by: str | None = None
    cluster: str | None = None
    largest_cluster: int | None = None

    def elsewhere(self) -> bool:
        """Whether something was asked for that only an engine knows."""
        given = (self.memory_limit, self.client, self.spill)
        return self.engine not in (None, MEMORY) or any(value is not None for value in given)
