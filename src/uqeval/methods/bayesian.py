"""Bayesian networks: every weight is a Gaussian, learnt by variational inference (Blundell, Cornebise, Kavukcuoglu &
Wierstra 2015, "Weight Uncertainty in Neural Networks").

Turns the linear and convolutional layers of any model into such layers and gives the loss; the training loop is the
user's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from uqeval._check import check_count
from uqeval._errors import InputError
from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import (
    Device,
    Passes,
    Progress,
    check_device,
    check_model,
    check_number,
    draw_seeds,
    forked_rng,
    ready,
)
from uqeval.methods.weights import compute_weight

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class GaussianWeight(nn.Module):
    """A weight as N(mean, σ²) in each entry: the layer's own parameter is the mean, ρ with σ = log(1 + e^ρ) is ours.

    In train mode every use of the weight is a new draw; in eval mode it is the mean, or the draw that is `held`.

    Parameters
    ----------
    mean : tensor
        The weight at the start.
    prior_std, std : float
        Standard deviations of the prior, N(0, prior_std²), and of the weight at the start.
    """

    held: Tensor | None

    def __init__(self, mean: Tensor, prior_std: float, std: float) -> None:
        super().__init__()
        self.rho = nn.Parameter(torch.full_like(mean, math.log(math.expm1(std))))
        self.prior_std, self.held = prior_std, None

    def forward(self, mean: Tensor) -> Tensor:
        if self.training:
            return mean + nn.functional.softplus(self.rho) * torch.randn_like(mean)
        return mean if self.held is None else mean + nn.functional.softplus(self.rho) * self.held

    def kl(self, mean: Tensor) -> Tensor:
        """KL of the weight's distribution from its prior, in nats."""
        std = nn.functional.softplus(self.rho)
        ratio = (std / self.prior_std) ** 2
        return 0.5 * (ratio - 1 - ratio.log() + (mean / self.prior_std) ** 2).sum()


class BayesianNetwork:
    """Several passes of one model with Gaussian weights, each with weights drawn once for all rows.

    Parameters
    ----------
    model : torch.nn.Module
        ``model(x)`` returns logits of shape (batch, K), K ≥ 2. Has Gaussian weights, as `from_model` makes them.
    samples : int
        How many passes.
    seed : int or numpy Generator
        The same seed gives the same passes in every run, on one device; the first ones stay the same when `samples`
        grows. The global random state is left as it is.
    device : str or torch.device, optional
        Where to run, as in `Softmax`.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.ones(6, 4), torch.tensor([0, 2, 1, 0, 0, 0])
    >>> bayesian = BayesianNetwork.from_model(torch.nn.Linear(4, 3), prior_std=1.0, samples=10)
    >>> optimizer = torch.optim.Adam(bayesian.model.parameters(), lr=0.01)
    >>> for epoch in range(3):
    ...     optimizer.zero_grad()
    ...     bayesian.loss(bayesian.model(x), y, rows=6).backward()
    ...     optimizer.step()
    >>> bayesian.predict([(x, y)])
    Predictions(6 rows, 3 classes: labels, probs, 10 members, 10 member_logits)
    """

    def __init__(
        self, model: nn.Module, samples: int = 50, seed: int | np.random.Generator = 0, *, device: Device = None
    ) -> None:
        self.model = check_model("model", model)
        self.samples = check_count("samples", samples)
        self.device = check_device(device)
        self._seeds = draw_seeds(seed, self.samples)
        _weights(self.model)

    @classmethod
    def from_model(
        cls,
        model: nn.Module,
        *,
        prior_std: float = 1.0,
        std: float = 0.05,
        samples: int = 50,
        seed: int | np.random.Generator = 0,
        device: Device = None,
    ) -> BayesianNetwork:
        """A copy of the model whose linear and convolutional layers have Gaussian weights and biases.

        Parameters
        ----------
        model : torch.nn.Module
            Trained or not: its weights are the first means. `Linear`, `Conv1d` to `Conv3d` and `ConvTranspose1d` to
            `ConvTranspose3d` are converted, all others (batch-norm, embeddings) stay plain.
        prior_std, std : float
            Standard deviations of the prior, a Gaussian around 0, and of the weights at the start.
        samples, seed, device
            As in `BayesianNetwork`.

        Returns
        -------
        BayesianNetwork
            Train its `model` with `loss`.

        Examples
        --------
        >>> import torch
        >>> bayesian = BayesianNetwork.from_model(torch.nn.Conv1d(2, 3, kernel_size=1))
        >>> len(list(bayesian.model.parameters()))  # means and ρ of weight and bias
        4
        """
        check_number("prior_std", prior_std)
        check_number("std", std)
        copied = copy.deepcopy(check_model("model", model))
        for layer in [module for module in copied.modules() if isinstance(module, _LAYERS)]:
            for name in ("weight", "bias"):
                mean = getattr(layer, name)
                if mean is not None:
                    compute_weight(layer, name, GaussianWeight(mean.detach(), prior_std, std))
        return cls(copied, samples, seed, device=device)

    def kl(self) -> Tensor:
        """KL of all weights' distributions from their priors, in nats: a tensor with a gradient."""
        return torch.stack([weight.kl(mean) for weight, mean in _weights(self.model)]).sum()

    def loss(self, logits: Tensor, labels: Tensor, *, rows: int, kl_weight: float = 1.0) -> Tensor:
        r"""The negative evidence lower bound per training row: cross entropy + KL / rows.

        Parameters
        ----------
        logits : tensor of shape (batch, K)
            What the model returned in train mode.
        labels : tensor of shape (batch,)
            Class indices.
        rows : int
            How many rows the whole training set has; the KL is of all of them together.
        kl_weight : float
            ≥ 0. Below 1 the posterior is colder than Bayes' rule makes it.

        Returns
        -------
        tensor of shape ()
        """
        check_count("rows", rows)
        if logits.requires_grad and not any(weight.training for weight, _ in _weights(self.model)):
            raise InputError("`model` is in eval mode, where weights are not drawn. Call model.train() first.")
        check_number("kl_weight", kl_weight, zero=True)
        return nn.functional.cross_entropy(logits, labels) + kl_weight / rows * self.kl()

    def predict(self, loader: Iterable[Any], *, progress: Progress = None) -> Predictions:
        """Labels, every draw's logits and their mean probability for every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, as in `Softmax.predict`, gone through once per pass in the same order (``shuffle=False``).
        progress : None, False or callable
            As in `Softmax.predict`.

        Returns
        -------
        Predictions
            With `members` and `member_logits` (samples, n, K); `probs` is the mean of the passes' probabilities.
        """
        weights = [weight for weight, _ in _weights(self.model)]
        with (
            Passes("BayesianNetwork", loader, self.samples, progress) as passes,
            ready(self.model, self.device) as where,
            forked_rng(where) as seed_all,
        ):
            for seed in self._seeds:
                seed_all(seed)
                with _held(weights):
                    passes.run(self.model, where)
        logits, labels = passes.result()
        return Predictions(labels, member_logits=logits)


@contextmanager
def _held(weights: list[GaussianWeight]) -> Iterator[None]:
    """One draw of all weights, the same for all batches."""
    try:
        for weight in weights:
            weight.held = torch.randn_like(weight.rho)
        yield
    finally:
        for weight in weights:
            weight.held = None


def _weights(model: nn.Module) -> list[tuple[GaussianWeight, Tensor]]:
    """All Gaussian weights of a model, each with its mean."""
    found: list[tuple[GaussianWeight, Tensor]] = []
    for module in model.modules():
        if isinstance(module, parametrize.ParametrizationList):
            found += [(part, module.original) for part in module if isinstance(part, GaussianWeight)]
    if not found:
        raise InputError(
            "`model` has no Gaussian weights. Use BayesianNetwork.from_model(model), of a model with linear or "
            "convolutional layers."
        )
    return found
