"""A callback for Lightning: uncertainty judged on the rows of each validation, and logged with its bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uqeval._errors import InputError, MissingExtra
from uqeval.distributed.evaluate import evaluate
from uqeval.evaluation.log import named_numbers
from uqeval.inputs import Predictions

try:  # one project under two names; a callback of either works in both
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning import Callback
    except ModuleNotFoundError:
        raise MissingExtra("uqeval.integrations.lightning", "lightning", "lightning") from None

from torch import distributed

Rows = tuple[str, Any, Any]  # "logits" or "probs", those and the labels of a batch, on the host


class UQCallback(Callback):  # type: ignore[misc]  # of a package that may not be there
    """Collects what `validation_step` returns, evaluates it when the epoch ends, and logs values and bounds.

    `validation_step` returns a dict with "logits" (or "probs") of shape (batch, K) and "labels" of shape (batch,);
    without labels the batch must be a pair of which they are the second. The numbers are logged as by `self.log_dict`,
    so that loggers, `ModelCheckpoint` and `EarlyStopping` find them. With several processes all rows are judged
    together; a sampler that repeats rows to fill the last batches repeats them here.

    Parameters
    ----------
    scores, metrics, level
        As in `uqeval.evaluate`; None for all.
    prefix : str
        Before each name, as in ``val/entropy/uq_auc_low``.

    Examples
    --------
    >>> from lightning.pytorch import Trainer  # doctest: +SKIP
    >>> Trainer(callbacks=[UQCallback(scores="entropy", metrics=["uq_auc", "aurc"])])  # doctest: +SKIP
    """

    def __init__(
        self,
        scores: Sequence[str] | str | None = ("entropy", "gap_to_certain"),
        metrics: Sequence[str] | str | None = ("accuracy", "uq_auc", "aurc"),
        *,
        level: float = 0.95,
        prefix: str = "val/",
    ) -> None:
        super().__init__()
        self.scores, self.metrics, self.level, self.prefix = scores, metrics, level, prefix
        self._rows: dict[int, list[Rows]] = {}

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Forgets the rows of the epoch before."""
        self._rows = {}

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Keeps the outputs and labels of a batch."""
        kind = next((name for name in ("logits", "probs") if isinstance(outputs, Mapping) and name in outputs), None)
        labels = outputs.get("labels") if isinstance(outputs, Mapping) else None
        if labels is None and isinstance(batch, tuple | list) and len(batch) == 2:
            labels = batch[1]
        if kind is None or labels is None:
            came = list(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise InputError(f'validation_step returned {came}. Return {{"logits": …, "labels": …}} for UQCallback.')
        rows = (kind, outputs[kind].detach().cpu().double().numpy(), labels.detach().cpu().numpy())
        self._rows.setdefault(dataloader_idx, []).append(rows)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Evaluates and logs; not on the few batches of the sanity check."""
        if trainer.sanity_checking:
            return
        found = _of_all_processes(self._rows, trainer.world_size)
        for index, rows in found.items():
            kinds, outputs, labels = zip(*rows, strict=True)
            if len({*kinds}) > 1:
                raise InputError(
                    'validation_step returned "logits" for some batches and "probs" for others. Choose one.'
                )
            given: dict[str, Any] = {kinds[0]: np.concatenate(outputs)}
            pred = Predictions(np.concatenate(labels), **given)
            ev = evaluate(pred, scores=self.scores, metrics=self.metrics, level=self.level)
            prefix = f"{self.prefix}dataloader_{index}/" if len(found) > 1 else self.prefix
            pl_module.log_dict(named_numbers(ev, prefix))
        self._rows = {}


def _of_all_processes(rows: dict[int, list[Rows]], processes: int) -> dict[int, list[Rows]]:
    """The rows of every process, by data loader."""
    if processes == 1:
        return rows
    parts: list[Any] = [None] * processes
    distributed.all_gather_object(parts, rows)
    indices = sorted({index for part in parts for index in part})  # a process may have had no batch
    return {index: [batch for part in parts for batch in part.get(index, [])] for index in indices}
