"""The same numbers from rows that do not fit in memory: files of any size on one machine, or a cluster."""

from uqeval.distributed.bounds.batches import approx_evaluate
from uqeval.distributed.bounds.bounds import Bounds, StreamResult
from uqeval.distributed.bounds.files import Certain, approx_scores
from uqeval.distributed.bounds.state import StreamState
from uqeval.distributed.compare import compare
from uqeval.distributed.engines.frames import open_frame
from uqeval.distributed.evaluate import evaluate

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
