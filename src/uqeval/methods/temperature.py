"""Temperature scaling: one number that makes the probabilities as sharp as they deserve (Guo et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from torch import nn

from uqeval._check import Float, Int, check_labels, check_lengths, check_logits
from uqeval._errors import InputError
from uqeval.inputs.doubts import doubt_logits
from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import Device, Progress, check_device, check_model, logits_of

_BLOCK = 1 << 20  # numbers worked on at once: no second copy of all logits


class TemperatureScaling:
    r"""Logits divided by the temperature T > 0 that minimises the log-loss on held-out rows.

    The log-loss is convex in 1/T, so there is one best temperature and nothing to tune. Predicted labels do not
    change.

    Parameters
    ----------
    model : torch.nn.Module
        ``model(x)`` returns logits of shape (batch, K), K ≥ 2.
    device : str or torch.device, optional
        Where to run. Default: where the model's parameters are. ``"auto"``: on CUDA if there is any. The model
        is moved back afterwards.

    Attributes
    ----------
    temperature : float or None
        Above 1 where the model is too sure of itself; None before `fit`.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, 0.0], [0.0, 3.0]])
    >>> held_out = [(x, torch.tensor([0, 1, 1, 1]))]
    >>> scaling = TemperatureScaling(torch.nn.Identity()).fit(held_out)
    >>> round(scaling.temperature, 4)
    2.7307
    >>> scaling.predict(held_out).probs[0].round(4)
    array([0.75, 0.25])
    """

    temperature: float | None

    def __init__(self, model: nn.Module, *, device: Device = None) -> None:
        self.model: nn.Module | None = check_model("model", model)
        self.device = check_device(device)
        self.temperature = None

    @classmethod
    def from_logits(cls, logits: ArrayLike, labels: ArrayLike) -> TemperatureScaling:
        """The temperature from arrays, without a model; `scale` then applies it to others.

        Parameters
        ----------
        logits : array-like of shape (n, K)
            Finite outputs before softmax on held-out rows.
        labels : array-like of shape (n,)
            Their true classes, 0..K-1.

        Returns
        -------
        TemperatureScaling
            Fitted; it has no model, so it cannot `predict`.

        Examples
        --------
        >>> scaling = TemperatureScaling.from_logits([[3, 0], [0, 3], [3, 0], [0, 3]], [0, 1, 1, 1])
        >>> scaling.scale([[3, 0]]).round(4)
        array([[1.0986, 0.    ]])
        """
        z = check_logits(logits)
        y = check_labels(labels, z.shape[1])
        check_lengths(logits=z, labels=y)
        if not np.isfinite(z).all():
            raise InputError("`logits` has -inf: no temperature changes such a class. Pass finite logits.")
        fitted = cls.__new__(cls)
        fitted.model, fitted.device = None, None
        fitted.temperature = _best_temperature(z, y)
        return fitted

    def fit(self, loader: Iterable[Any], *, progress: Progress = None) -> TemperatureScaling:
        """Finds the temperature on held-out rows, not on those the model was trained on.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, as in `predict`.
        progress : None, False or callable
            As in `predict`.

        Returns
        -------
        TemperatureScaling
            This object.
        """
        logits, labels = logits_of("TemperatureScaling", self._needed_model(), loader, self.device, progress)
        self.temperature = _best_temperature(logits, labels)
        return self

    def predict(self, loader: Iterable[Any], *, progress: Progress = None) -> Predictions:
        """Labels, scaled logits and their probabilities for every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, as a DataLoader gives them: x is a tensor, or a tuple, list or dict of tensors, handed to the model
            as it is; y are class indices of shape (batch,).
        progress : None, False or callable
            None shows a bar when stderr is a terminal and the work takes more than a second; False shows none; a
            function is called as ``progress(stage, done, total)`` after each batch (total is None while unknown).

        Returns
        -------
        Predictions
            With `logits` divided by the temperature, rows in the loader's order.
        """
        model, temperature = self._needed_model(), self._fitted()
        logits, labels = logits_of("TemperatureScaling", model, loader, self.device, progress)
        return Predictions(labels, logits=logits / temperature)

    def scale(self, logits: ArrayLike) -> Float:
        """Logits of shape (n, K) divided by the temperature.

        Parameters
        ----------
        logits : array-like of shape (n, K)
            Outputs before softmax.

        Returns
        -------
        ndarray of shape (n, K)
            For ``Predictions(labels, logits=...)``.
        """
        temperature = self._fitted()
        return check_logits(logits) / temperature

    def _fitted(self) -> float:
        if self.temperature is None:
            raise InputError("TemperatureScaling has no temperature yet. Call fit(loader) on held-out rows first.")
        return self.temperature

    def _needed_model(self) -> nn.Module:
        if self.model is None:
            raise InputError(
                "TemperatureScaling.from_logits has no model. Use scale(logits), or TemperatureScaling(model)."
            )
        return self.model


def _best_temperature(logits: Float, labels: Int) -> float:
    """The root of the log-loss' slope in β = 1/T, which rises in β: from below 0 to above 0, or there is no best T."""
    doubt_logits("logits", logits)
    own = np.take_along_axis(logits, labels[:, None], axis=1)
    spread = float(max(abs(logits.max(axis=1, keepdims=True) - own).max(), abs(logits.min(axis=1) - own[:, 0]).max()))
    rows = max(1, _BLOCK // logits.shape[1])

    def slope(beta: float) -> float:
        """Mean over rows of Σ_k p_k d_k, where d = (logits − own logit) / spread and p = softmax(β d)."""
        total = 0.0
        for start in range(0, len(logits), rows):
            stop = start + rows
            d = (logits[start:stop] - own[start:stop]) / spread
            p = np.exp(beta * (d - d.max(axis=1, keepdims=True)))
            total += float(((p * d).sum(axis=1) / p.sum(axis=1)).sum())
        return total / len(logits)

    if spread == 0 or slope(0.0) >= 0:
        raise InputError(
            "TemperatureScaling: the logits are no better than chance on these rows, so that no finite temperature is "
            "the best. Check that logits and labels belong together."
        )
    if (logits.max(axis=1) <= own[:, 0]).all():
        raise InputError(
            f"TemperatureScaling: all {len(labels)} rows are predicted right, so that the log-loss falls for ever as "
            f"the temperature goes to 0. Pass more held-out rows, not those of training."
        )
    low, high = 0.0, 1.0
    while slope(high) <= 0:  # the limit is the mean of max d > 0
        low, high = high, 2 * high
    return spread / float(brentq(slope, low, high, xtol=1e-300, rtol=4 * np.finfo(np.float64).eps))
