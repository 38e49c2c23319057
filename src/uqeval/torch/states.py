"""Rows that come batch after batch: what the metrics of `metrics` keep, how processes join, and when it is counted.

The state is exact, also between processes: batches of any length and dtype, ranks without a row. With `bins` it has a
fixed size, and gives certain bounds in place of an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from uqeval._check import check_level
from uqeval._errors import InputError, UndefinedMetricWarning, notify
from uqeval.inference.estimate import announce
from uqeval.inference.result import Estimate
from uqeval.metrics.bounds import Bounds
from uqeval.metrics.registry import Metric as Record
from uqeval.torch.bins import STATES, add_rows, bounds_of, check_bins
from uqeval.torch.checks import as_floats, check_tensors
from uqeval.torch.functional import value_of
from uqeval.torch.tallies import estimate_of

# What a state may hold: a rank without rows must know what the others send.
_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Ranking(Metric):
    """Rows as they came, for a metric of the registry."""

    full_state_update = False
    is_differentiable = False
    _metric: Record

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._make_states()

    def _make_states(self) -> None:
        for name in self._metric.needs:
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def _add(self, **batch: Tensor) -> None:
        for name, rows in zip(batch, check_tensors(0, **batch), strict=True):
            if rows.dtype not in _DTYPES:  # integers; errors are 0 or 1
                rows = rows.to(torch.float32) if name == "error" else as_floats(name, rows)
            getattr(self, name).append(rows)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Self:
        """Moves the states, as part of a model too; what was given stays as exact as it came, whatever the dtype."""

        def kept(state: Tensor) -> Tensor:
            found = fn(state)
            return found if found.dtype == state.dtype else state.to(found.device)

        super()._apply(kept, exclude_state)
        return self

    def _rows(self) -> list[Tensor]:
        states = [getattr(self, name) for name in self._metric.needs]
        empty = torch.empty(0, device=self.device)
        return [x if isinstance(x, Tensor) else torch.cat(x) if x else empty for x in states]

    def compute(self) -> Tensor:
        """The metric of all rows so far; NaN (with a warning) where it is undefined, as it is of a single row."""
        rows = self._rows()
        if len(rows[0]) == 1:
            notify(f"{self._metric.title} is undefined: there is one row.", UndefinedMetricWarning, stacklevel=3)
            return torch.tensor(torch.nan, dtype=torch.float64, device=rows[0].device)
        return value_of(self._metric, rows)

    def compute_estimate(self, level: float = 0.95) -> Estimate:
        """The metric of all rows so far, of all processes, with its standard error and confidence interval."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn):
            found = estimate_of(self._metric, self._rows(), check_level(level))
        announce(found, stacklevel=3)
        return found

    def sync(
        self,
        dist_sync_fn: Callable[..., Any] | None = None,
        process_group: Any | None = None,
        should_sync: bool = True,
        distributed_available: Callable[..., Any] | None = None,
    ) -> None:
        """Rows of all processes; those of one kind are made of one dtype first, which holds all of them exactly."""
        available = distributed_available or self.distributed_available_fn
        if should_sync and not self._is_synced and available is not None and available():
            self._agree(dist_sync_fn or gather_all_tensors, process_group or self.process_group)
        super().sync(dist_sync_fn, process_group, should_sync, distributed_available)

    def _agree(self, gather: Callable[..., Any], group: Any | None) -> None:
        for name in self._metric.needs:
            if not isinstance(rows := getattr(self, name, None), list):
                continue
            own = torch.cat(rows) if rows else torch.empty(0, dtype=torch.uint8, device=self.device)
            code = torch.tensor([_DTYPES.index(own.dtype)], device=self.device)
            common = reduce(torch.promote_types, (_DTYPES[int(one)] for one in gather(code, group)))
            setattr(self, name, [own.to(common)])


class Errors(Ranking):
    """Of 0/1 errors."""

    score: list[Tensor]
    error: list[Tensor]

    def update(self, score: Tensor, error: Tensor) -> None:
        """Adds a batch.

        Parameters
        ----------
        score : Tensor of shape (n,)
            Uncertainty; higher means less sure.
        error : Tensor of shape (n,)
            1 where the prediction is wrong, else 0.
        """
        self._add(score=score, error=error)


class Bounded(Errors):
    """Where counts by stretches of the score give certain bounds.

    Parameters
    ----------
    bins : int, optional
        Keep counts of so many stretches of the score (a power of two, as 2**20), 32 bytes each, in place of the rows:
        `compute` is then the middle of the bounds that `compute_bounds` gives.
    **kwargs
        Options of `torchmetrics.Metric`.
    """

    _area: ClassVar[int]  # in `bounds_of`
    odd: Tensor

    def __init__(self, bins: int | None = None, **kwargs: Any) -> None:
        self.bins = None if bins is None else check_bins(bins)
        super().__init__(**kwargs)

    def _make_states(self) -> None:
        if self.bins is None:
            super()._make_states()
            return
        for name, (empty, join, dtype) in STATES.items():
            self.add_state(name, default=torch.full((self.bins,), empty, dtype=dtype), dist_reduce_fx=join)
        self.add_state("odd", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, score: Tensor, error: Tensor) -> None:
        """Adds a batch, as the other metrics do."""
        if self.bins is None:
            super().update(score, error)
            return
        score, error = check_tensors(0, score=score, error=error)
        self.odd += add_rows({name: getattr(self, name) for name in STATES}, score, error)

    def compute(self) -> Tensor:
        """The metric of all rows so far; with `bins` the middle of its bounds."""
        if self.bins is None:
            return super().compute()
        return torch.tensor(self._bounds().value, dtype=torch.float64, device=self.device)

    def compute_bounds(self) -> Bounds:
        """What holds the metric of all rows so far for certain; not a confidence interval. Exact without `bins`."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn):
            if self.bins is not None:
                return self._bounds()
            value = float(super().compute())
            return Bounds(value, value)

    def compute_estimate(self, level: float = 0.95) -> Estimate:
        """The metric with its standard error and confidence interval; not with `bins`."""
        if self.bins is not None:
            raise InputError("With `bins` no rows are kept for an interval. Use compute_bounds(), or leave bins= out.")
        return super().compute_estimate(level)

    def _bounds(self) -> Bounds:
        if self.odd:
            raise InputError("`score` has NaN or `error` something else than 0 and 1. Drop or mend those rows.")
        return bounds_of(*(getattr(self, name) for name in STATES))[self._area]
