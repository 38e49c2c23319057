"""The plain classifier: one pass, softmax of its logits (Hendrycks & Gimpel 2017)."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import Device, Progress, check_device, check_model, logits_of


class Softmax:
    """One model's softmax, in eval mode.

    Parameters
    ----------
    model : torch.nn.Module
        ``model(x)`` returns logits of shape (batch, K), K ≥ 2.
    device : str or torch.device, optional
        Where to run. Default: where the model's parameters are. ``"auto"``: on CUDA if there is any. The model
        is moved back afterwards.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(4, 3)
    >>> loader = [(torch.zeros(2, 4), torch.tensor([0, 2])), (torch.ones(1, 4), torch.tensor([1]))]
    >>> Softmax(model).predict(loader)
    Predictions(3 rows, 3 classes: labels, probs, logits)
    """

    def __init__(self, model: nn.Module, *, device: Device = None) -> None:
        self.model = check_model("model", model)
        self.device = check_device(device)

    def predict(self, loader: Iterable[Any], *, progress: Progress = None) -> Predictions:
        """Labels, logits and probabilities of every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, as a DataLoader gives them: x is a tensor, or a tuple, list or dict of tensors, handed to the model
            as it is; y are class indices of shape (batch,). A batch may also be a dict with y under ``"labels"``; the
            rest of it is x.
        progress : None, False or callable
            None shows a bar when stderr is a terminal and the work takes more than a second; False shows none; a
            function is called as ``progress(stage, done, total)`` after each batch (total is None while unknown).

        Returns
        -------
        Predictions
            With `logits`, rows in the loader's order.
        """
        logits, labels = logits_of("Softmax", self.model, loader, self.device, progress)
        return Predictions(labels, logits=logits)
