"""The same numbers from rows that do not fit in memory: files of any size on one machine, or a cluster."""

from typing import TYPE_CHECKING

from uqeval._lazy import late
from uqeval.distributed.compare import compare
from uqeval.distributed.evaluate import evaluate

if TYPE_CHECKING:
    from uqeval.distributed.bounds.batches import approx_evaluate
    from uqeval.distributed.bounds.bounds import StreamResult
    from uqeval.distributed.bounds.files import Certain, approx_scores
    from uqeval.distributed.bounds.state import StreamState
    from uqeval.distributed.engines.frames import open_frame
    from uqeval.metrics.bounds import Bounds

__all__ = [
    "Bounds",
    "Certain",
    "StreamResult",
    "StreamState",
    "approx_evaluate",
    "approx_scores",
    "compare",
    "evaluate",
    "open_frame",
]

# Engines and bounds take a tenth of a second to load, which rows in memory need not wait for.
__getattr__ = late(
    __name__,
    {
        "uqeval.distributed.bounds.batches": "approx_evaluate",
        "uqeval.distributed.bounds.bounds": "StreamResult",
        "uqeval.distributed.bounds.files": "Certain approx_scores",
        "uqeval.distributed.bounds.state": "StreamState",
        "uqeval.distributed.engines.frames": "open_frame",
        "uqeval.metrics.bounds": "Bounds",
    },
)
