"""Evidential networks: a classifier whose outputs are the evidence for each class, the parameters of a Dirichlet
(Sensoy, Kaplan & Kandemir 2018, "Evidential Deep Learning to Quantify Classification Uncertainty").

The training loop is the user's: here are its loss and what the trained network says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from uqeval._check import check_choice
from uqeval._errors import InputError, a_type
from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import Device, Progress, check_device, check_model, check_number, logits_of

_EVIDENCE: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": nn.functional.softplus,
    "relu": nn.functional.relu,
    "exp": torch.exp,
}


def _squared(alpha: Tensor, total: Tensor, truth: Tensor) -> Tensor:
    """E‖y − p‖² of p ~ Dir(α): squared bias and variance (their eq. 5)."""
    mean = alpha / total
    return ((truth - mean) ** 2 + mean * (1 - mean) / (total + 1)).sum(dim=1)


def _log(alpha: Tensor, total: Tensor, truth: Tensor) -> Tensor:
    """−log E p_y, the type II maximum likelihood (their eq. 3)."""
    return (truth * (total.log() - alpha.log())).sum(dim=1)


def _digamma(alpha: Tensor, total: Tensor, truth: Tensor) -> Tensor:
    """E(−log p_y), the Bayes risk of the cross entropy (their eq. 4)."""
    return (truth * (total.digamma() - alpha.digamma())).sum(dim=1)


_RISKS = {"squared": _squared, "log": _log, "digamma": _digamma}


class EvidentialNetwork:
    r"""One model read as evidence: :math:`\alpha = 1 + \text{evidence}(\text{logits})`; scores come from `alpha`.

    Parameters
    ----------
    model : torch.nn.Module
        ``model(x)`` returns (batch, K) numbers, K ≥ 2, trained with `loss`.
    evidence : {"softplus", "relu", "exp"}
        What makes an output ≥ 0. With "relu" a row without evidence has no gradient; "exp" overflows above 88.
    device : str or torch.device, optional
        Where to run, as in `Softmax`.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(4, 3)
    >>> evidential = EvidentialNetwork(model)
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    >>> x, y = torch.ones(6, 4), torch.tensor([0, 2, 1, 0, 0, 0])
    >>> for epoch in range(3):
    ...     optimizer.zero_grad()
    ...     evidential.loss(model(x), y, kl_weight=min(1.0, epoch / 10)).backward()
    ...     optimizer.step()
    >>> evidential.predict([(x, y)])
    Predictions(6 rows, 3 classes: labels, probs, alpha)
    """

    def __init__(self, model: nn.Module, evidence: str = "softplus", *, device: Device = None) -> None:
        self.model = check_model("model", model)
        self.evidence = check_choice("evidence", evidence, list(_EVIDENCE))
        self.device = check_device(device)

    def loss(self, logits: Tensor, labels: Tensor, *, form: str = "squared", kl_weight: float = 1.0) -> Tensor:
        r"""Mean over the rows of the Bayes risk and a penalty on evidence for wrong classes, for training.

        .. math:: R(\alpha, y) + \lambda\, KL\big(Dir(\tilde\alpha) \,\|\, Dir(1, \dots, 1)\big), \qquad
            \tilde\alpha = y + (1 - y) \odot \alpha

        Parameters
        ----------
        logits : tensor of shape (batch, K)
            What the model returns.
        labels : tensor of shape (batch,)
            Class indices.
        form : {"squared", "log", "digamma"}
            The risk R: of the squared error (the authors' choice), −log of the expected probability (type II maximum
            likelihood), or the expected cross entropy.
        kl_weight : float
            λ ≥ 0. Let it rise over the epochs, as ``min(1, epoch / 10)`` does, or the network learns to have no
            evidence at all before it has learnt anything else.

        Returns
        -------
        tensor of shape ()
        """
        check_choice("form", form, list(_RISKS))
        check_number("kl_weight", kl_weight, zero=True)
        classes = _check_batch(logits, labels)
        alpha = self._alpha(logits)
        truth = nn.functional.one_hot(labels.long(), classes).to(alpha.dtype)
        risk = _RISKS[form](alpha, alpha.sum(dim=1, keepdim=True), truth)
        return (risk + kl_weight * kl_to_uniform(truth + (1 - truth) * alpha)).mean()

    def predict(self, loader: Iterable[Any], *, progress: Progress = None) -> Predictions:
        """Labels, Dirichlet parameters and their mean probability for every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, as in `Softmax.predict`.
        progress : None, False or callable
            As in `Softmax.predict`.

        Returns
        -------
        Predictions
            With `alpha`, for `dirichlet_entropy`, `dirichlet_mutual_information` and `vacuity`.
        """
        logits, labels = logits_of("EvidentialNetwork", self.model, loader, self.device, progress)
        return Predictions(labels, alpha=self._alpha(torch.from_numpy(logits)).numpy())

    def _alpha(self, logits: Tensor) -> Tensor:
        return _EVIDENCE[self.evidence](logits) + 1


def _check_batch(logits: Any, labels: Any) -> int:
    """How many classes there are; refuses what is no batch of logits and class indices."""
    for name, value in (("logits", logits), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise InputError(f"`{name}` is {a_type(value)}. Pass a tensor.")
    if logits.ndim != 2 or logits.shape[1] < 2 or labels.shape != logits.shape[:1]:
        raise InputError(
            f"`logits` have shape {tuple(logits.shape)} and `labels` {tuple(labels.shape)}. "
            f"Pass (batch, K), K ≥ 2, and class indices (batch,)."
        )
    classes = int(logits.shape[1])
    if labels.is_floating_point() or labels.is_complex():
        raise InputError(f"`labels` hold {labels.dtype}. Pass class indices, as labels.long() if they are whole.")
    if (bad := (labels < 0) | (labels >= classes)).any():  # `one_hot` looks too, but does not say which
        raise InputError(f"`labels` must be class indices 0..{classes - 1}; one is {int(labels[bad][0])}.")
    return classes


def kl_to_uniform(alpha: Tensor) -> Tensor:
    """KL(Dir(α) ‖ Dir(1, …, 1)) of each row, in nats."""
    total = alpha.sum(dim=1)
    normalisers = total.lgamma() - alpha.lgamma().sum(dim=1) - math.lgamma(alpha.shape[1])
    return normalisers + ((alpha - 1) * (alpha.digamma() - total.digamma()[:, None])).sum(dim=1)
