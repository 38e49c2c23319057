"""What a Hugging Face `Trainer` computes at each evaluation. Told by attributes: transformers is not imported here."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uqeval._errors import InputError
from uqeval.distributed.evaluate import evaluate
from uqeval.evaluation.log import named_numbers
from uqeval.inputs import Predictions


def compute_metrics(
    scores: Sequence[str] | str | None = ("entropy", "gap_to_certain"),
    metrics: Sequence[str] | str | None = ("accuracy", "uq_auc", "aurc"),
    *,
    level: float = 0.95,
    bounds: bool = True,
) -> Callable[[Any], dict[str, float]]:
    """A function for ``Trainer(compute_metrics=…)`` of a model that classifies sequences (or images).

    Parameters
    ----------
    scores, metrics, level
        As in `uqeval.evaluate`; None for all.
    bounds : bool
        The ends of the intervals too.

    Returns
    -------
    function of an EvalPrediction
        Its logits (the first array of a tuple) and labels → ``{"entropy/uq_auc": …, "entropy/uq_auc_low": …}``; the
        `Trainer` puts ``eval_`` before each name. NaN where a metric has no value, as without any mistake.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import uqeval as uq
    >>> pred = uq.datasets.example()
    >>> outputs = SimpleNamespace(predictions=np.log(pred.probs + 1e-9), label_ids=pred.labels)
    >>> found = compute_metrics("entropy", ["accuracy", "uq_auc"])(outputs)
    >>> {name: round(value, 3) for name, value in found.items() if "accuracy" not in name}
    {'entropy/uq_auc': 0.907, 'entropy/uq_auc_low': 0.88, 'entropy/uq_auc_high': 0.926}
    """

    def compute(prediction: Any) -> dict[str, float]:
        logits, labels = _first(prediction.predictions), _first(prediction.label_ids)
        if np.ndim(logits) != 2 or np.ndim(labels) != 1:
            raise InputError(
                f"The model gave logits of shape {np.shape(logits)} and labels of shape {np.shape(labels)}. "
                f"compute_metrics is for one class per row: (n, K) and (n,)."
            )
        ev = evaluate(Predictions(labels, logits=logits), scores=scores, metrics=metrics, level=level)
        return named_numbers(ev, bounds=bounds)

    return compute


def _first(arrays: Any) -> Any:
    """Some models give hidden states behind their logits."""
    return arrays[0] if isinstance(arrays, tuple | list) else arrays
