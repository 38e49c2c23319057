"""Models of other packages: Hugging Face classifiers and Laplace approximations by laplace-torch, neither imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uqeval._check import check_choice, check_count
from uqeval._errors import InputError, a_type
from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import Passes, Progress, check_model, draw_seeds, forked_rng, ready


class HuggingFaceModel(nn.Module):
    """A classifier of transformers (text, images, audio) as a model of ``x``, for all methods of `uqeval.methods`.

    Batches are dicts as a data collator makes them, with the class indices under ``"labels"``, or pairs of such a dict
    without labels and the class indices.

    Parameters
    ----------
    model : torch.nn.Module
        Returns an object with ``logits`` of shape (batch, K), as ``AutoModelForSequenceClassification`` does.

    Examples
    --------
    >>> import torch
    >>> from types import SimpleNamespace
    >>> class Tiny(torch.nn.Module):  # in place of AutoModelForSequenceClassification.from_pretrained(...)
    ...     def forward(self, input_ids):
    ...         return SimpleNamespace(logits=3.0 * torch.nn.functional.one_hot(input_ids[:, 0], 3))
    >>> loader = [{"input_ids": torch.tensor([[0, 1], [2, 1]]), "labels": torch.tensor([0, 1])}]
    >>> from uqeval.methods import Softmax
    >>> Softmax(HuggingFaceModel(Tiny())).predict(loader)
    Predictions(2 rows, 3 classes: labels, probs, logits)
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = check_model("model", model)

    def forward(self, x: Mapping[str, Any]) -> Any:
        if not isinstance(x, Mapping):
            raise InputError(
                f"HuggingFaceModel got a batch of type {type(x).__name__}. Yield dicts, as a data collator makes them."
            )
        output = self.model(**x)
        logits = getattr(output, "logits", None)
        if logits is None:
            raise InputError(
                f"`model` returned {a_type(output)} without logits. Pass a model with a classification head."
            )
        return logits


class LaplaceModel:
    """A Laplace approximation by laplace-torch, fitted there (Daxberger et al. 2021, "Laplace Redux").

    Parameters
    ----------
    laplace : laplace.BaseLaplace
        ``Laplace(model, "classification", ...)`` after its `fit`. It runs where it was fitted.
    pred_type : {"glm", "nn"}
        Of the network made linear around its weights, or of networks with drawn weights.
    link_approx : {"probit", "bridge", "bridge_norm", "mc"}
        What `probs` are with "glm"; with "mc" and with "nn" they are the mean of the members.
    samples : int
        How many members.
    seed : int or numpy Generator
        The same seed gives the same members in every run. The global random state is left as it is.

    Examples
    --------
    >>> import torch
    >>> class Fitted:  # in place of la = laplace.Laplace(model, "classification"); la.fit(train_loader)
    ...     model = torch.nn.Linear(4, 3)
    ...     def __call__(self, x, pred_type, link_approx):
    ...         return torch.softmax(self.model(x), dim=1)
    ...     def predictive_samples(self, x, pred_type, n_samples):
    ...         return torch.softmax(self.model(x) + torch.randn(n_samples, len(x), 3), dim=2)
    >>> LaplaceModel(Fitted(), samples=20).predict([(torch.zeros(2, 4), torch.tensor([0, 2]))])
    Predictions(2 rows, 3 classes: labels, probs, 20 members)
    """

    def __init__(
        self,
        laplace: Any,
        pred_type: str = "glm",
        link_approx: str = "probit",
        samples: int = 100,
        seed: int | np.random.Generator = 0,
    ) -> None:
        known = callable(laplace) and callable(getattr(laplace, "predictive_samples", None))
        if not known or not isinstance(getattr(laplace, "model", None), nn.Module):
            raise InputError(
                f"`laplace` is {a_type(laplace)}. Pass a fitted model of laplace-torch, with `model` and "
                f"`predictive_samples`."
            )
        if (likelihood := getattr(laplace, "likelihood", "classification")) != "classification":
            raise InputError(f"`laplace` has the likelihood {str(likelihood)!r}. Pass one for classification.")
        if getattr(laplace, "n_data", None) == 0:  # unfitted it would predict from its prior, or fail somewhere inside
            raise InputError("`laplace` has seen no data. Call its fit(train_loader) first.")
        self.laplace = laplace
        self.pred_type = check_choice("pred_type", pred_type, ("glm", "nn"))
        self.link_approx = check_choice("link_approx", link_approx, ("probit", "bridge", "bridge_norm", "mc"))
        self.samples = check_count("samples", samples)
        self._seed = draw_seeds(seed, 1)[0]

    def predict(self, loader: Iterable[Any], *, progress: Progress = None) -> Predictions:
        """Labels, probabilities and drawn probabilities for every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, as in `Softmax.predict`; x goes to `laplace` as it is.
        progress : None, False or callable
            As in `Softmax.predict`.

        Returns
        -------
        Predictions
            With `members` (samples, n, K).
        """
        closed = self.pred_type == "glm" and self.link_approx != "mc"
        blocks = self.samples + closed
        model = self.laplace.model
        with (
            Passes("LaplaceModel", loader, 1, progress, classes=lambda columns: columns // blocks) as passes,
            ready(model, None) as where,
            forked_rng(where) as seed_all,
        ):
            passes.run(partial(self._run, closed), where, partial(seed_all, self._seed))
        outputs, labels = passes.result()
        found = outputs[0].reshape(len(labels), blocks, -1).swapaxes(0, 1)
        return Predictions(labels, probs=found[-1] if closed else None, members=found[: self.samples])

    def _run(self, closed: bool, x: Any) -> Tensor:
        """The members side by side, (batch, samples × K), the closed form behind them."""
        # The linear model needs gradients of the network, even to predict.
        with torch.inference_mode(False), torch.enable_grad():
            drawn = self.laplace.predictive_samples(x, pred_type=self.pred_type, n_samples=self.samples)
            parts = list(drawn)
            if closed:
                parts.append(self.laplace(x, pred_type=self.pred_type, link_approx=self.link_approx))
        return torch.cat(parts, dim=1)
