"""What a user has, checked once: arrays, frames and files → `Predictions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uqeval.inputs.predictions import Predictions

if TYPE_CHECKING:
    from uqeval.inputs.files import read_predictions
    from uqeval.inputs.frame import predictions_from_frame

__all__ = ["Predictions", "predictions_from_frame", "read_predictions"]


def __getattr__(name: str) -> Any:
    # Readers load when first used: `import uqeval` stays fast.
    if name == "read_predictions":
        from uqeval.inputs.files import read_predictions

        return read_predictions
    if name == "predictions_from_frame":
        from uqeval.inputs.frame import predictions_from_frame

        return predictions_from_frame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
