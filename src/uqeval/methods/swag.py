"""SWAG: a Gaussian around the weights that training passes through (Maddox, Garipov, Izmailov, Vetrov & Wilson 2019,
"A Simple Baseline for Bayesian Uncertainty in Deep Learning").

The training loop is the user's; it calls `collect` now and then.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uqeval._check import check_count
from uqeval._errors import InputError
from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import Device, Passes, Progress, check_device, check_model, draw_seeds, forked_rng, ready

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class SWAG:
    r"""Several passes of one model, each with weights drawn from a Gaussian that was fitted to the path of training.

    Its covariance is half a diagonal, the variance of the collected weights, and half a matrix of low rank, made of
    their last `rank` deviations from the running mean:

    .. math:: w = \bar w + \tfrac{1}{\sqrt 2}\, \sigma \odot z_1 + \tfrac{1}{\sqrt{2 (r - 1)}}\, D z_2

    Parameters
    ----------
    model : torch.nn.Module
        The model in training; ``model(x)`` returns logits of shape (batch, K), K ≥ 2.
    rank : int
        How many deviations to keep, each as large as the model.
    samples : int
        How many passes.
    seed : int or numpy Generator
        The same seed gives the same weights, on any device; the first draws stay the same when `samples` grows. The
        global random state is left as it is.
    device : str or torch.device, optional
        Where `predict` runs, as in `Softmax`.

    Attributes
    ----------
    collected : int
        How often `collect` was called.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.ones(6, 4), torch.tensor([0, 2, 1, 0, 0, 0])
    >>> model = torch.nn.Linear(4, 3)
    >>> swag = SWAG(model, samples=10)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # a constant, high learning rate
    >>> for epoch in range(5):
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.cross_entropy(model(x), y).backward()
    ...     optimizer.step()
    ...     swag.collect()
    >>> swag.predict([(x, y)])
    Predictions(6 rows, 3 classes: labels, probs, 10 members, 10 member_logits)
    """

    def __init__(
        self,
        model: nn.Module,
        rank: int = 20,
        samples: int = 30,
        seed: int | np.random.Generator = 0,
        *,
        device: Device = None,
    ) -> None:
        self.model = check_model("model", model)
        if not any(True for _ in self.model.parameters()):
            raise InputError("`model` has no parameters. Pass a model that is trained.")
        self.samples = check_count("samples", samples)
        self.device = check_device(device)
        self.collected = 0
        self._seeds = draw_seeds(seed, self.samples)
        self._deviations: deque[Tensor] = deque(maxlen=check_count("rank", rank, 2))

    @torch.no_grad()
    def collect(self) -> None:
        """Takes the model's weights as they are now: at the end of an epoch, late in training."""
        # On the CPU: rank + 2 copies of the model would crowd a card.
        weights = torch.cat([parameter.float().cpu().flatten() for parameter in self.model.parameters()])
        if not weights.isfinite().all():
            raise InputError("SWAG: the model's weights have NaN or infinity. Lower the learning rate.")
        if not self.collected:
            self._mean, self._squares = torch.zeros_like(weights), torch.zeros_like(weights)
        self.collected += 1
        step = weights - self._mean
        self._mean += step / self.collected
        # Welford (1962): the mean of the squares less the square of the mean would cancel in float32.
        self._squares += (1 - 1 / self.collected) * step**2
        self._deviations.append(weights - self._mean)

    def predict(
        self, loader: Iterable[Any], *, train: Iterable[Any] | None = None, progress: Progress = None
    ) -> Predictions:
        """Labels, every draw's logits and their mean probability for every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, as in `Softmax.predict`, gone through once per pass in the same order (``shuffle=False``).
        train : iterable of (x, y), optional
            Batches of the training set. Needed where the model has batch-norm, whose statistics belong to its weights:
            they are taken anew for each draw, dropout off.
        progress : None, False or callable
            As in `Softmax.predict`.

        Returns
        -------
        Predictions
            With `members` and `member_logits` (samples, n, K); `probs` is the mean of the passes' probabilities.
        """
        if self.collected < 2:
            raise InputError(
                f"SWAG has collected weights {self.collected} times. Call collect() at least twice in training."
            )
        norms = [layer for layer in self.model.modules() if isinstance(layer, _NORMS) and layer.track_running_stats]
        if norms and train is None:
            raise InputError("`model` has batch-norm, whose statistics belong to its weights. Pass train=, a loader.")
        with ExitStack() as stack:
            passes = stack.enter_context(Passes("SWAG", loader, self.samples, progress))
            taking = None
            if norms and train is not None:
                taking = stack.enter_context(Passes("SWAG", train, self.samples, progress, name="train"))
            stack.enter_context(_put_back(self.model))
            where = stack.enter_context(ready(self.model, self.device))
            stack.enter_context(forked_rng(where))
            for seed in self._seeds:
                _load(self.model, self._draw(seed))
                if taking is not None:
                    _take_statistics(self.model, norms, taking, where)
                passes.run(self.model, where)
        logits, labels = passes.result()
        return Predictions(labels, member_logits=logits)

    def _draw(self, seed: int) -> Tensor:
        """Weights, the same whatever the device."""
        stream = torch.Generator().manual_seed(seed)
        own, shared = (torch.randn(size, generator=stream) for size in (len(self._mean), len(self._deviations)))
        diagonal = (self._squares / self.collected).sqrt() * own
        low_rank = sum(z * deviation for z, deviation in zip(shared, self._deviations, strict=True))
        return self._mean + (diagonal + low_rank / math.sqrt(len(self._deviations) - 1)) / math.sqrt(2)


@torch.no_grad()
def _load(model: nn.Module, weights: Tensor) -> None:
    start = 0
    for parameter in model.parameters():
        stop = start + parameter.numel()
        parameter.copy_(weights[start:stop].view_as(parameter))
        start = stop


def _take_statistics(model: nn.Module, norms: list[Any], passes: Passes, device: torch.device) -> None:
    """The mean over all batches of a pass, not the moving one of training."""
    momenta = [layer.momentum for layer in norms]
    try:
        for layer in norms:
            layer.reset_running_stats()
            layer.momentum, layer.training = None, True
        passes.sweep(model, device)
    finally:
        for layer, momentum in zip(norms, momenta, strict=True):
            layer.momentum, layer.training = momentum, False


@contextmanager
def _put_back(model: nn.Module) -> Iterator[None]:
    """The model's own weights and batch-norm statistics, when the block ends."""
    kept = {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    try:
        yield
    finally:
        # Asked for again: a model that has moved meanwhile has other buffers.
        for name, value in model.state_dict().items():
            if name in kept:
                value.copy_(kept[name])
