"""The same numbers from rows that do not fit in memory: files of any size on one machine, or a cluster."""

from uqeval.distributed.approx import Certain, approx_scores
from uqeval.distributed.certain import Bounds, StreamResult
from uqeval.distributed.compare import DistributedComparison, compare
from uqeval.distributed.evaluate import DistributedEvaluation, evaluate
from uqeval.distributed.frames import compare_frame, evaluate_frame, open_frame
from uqeval.distributed.onepass import approx_evaluate
from uqeval.distributed.stream import StreamState

__all__ = [
    "Bounds",
    "Certain",
    "DistributedComparison",
    "DistributedEvaluation",
    "StreamResult",
    "StreamState",
    "approx_evaluate",
    "approx_scores",
    "compare",
    "compare_frame",
    "evaluate",
    "evaluate_frame",
    "open_frame",
]
