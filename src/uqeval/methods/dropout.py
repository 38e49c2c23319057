"""Monte Carlo dropout: one network, several passes with dropout left on (Gal & Ghahramani 2016)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from uqeval._check import check_count
from uqeval._errors import InputError, UQWarning, notify
from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import Device, Passes, Progress, check_device, check_model, draw_seeds, forked_rng, ready

_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class MCDropout:
    """Several passes of one model with its dropout layers on and everything else, batch-norm too, in eval mode.

    Parameters
    ----------
    model : torch.nn.Module
        ``model(x)`` returns logits of shape (batch, K), K ≥ 2. Needs dropout layers with p > 0: `Dropout`,
        `Dropout1d`, `Dropout2d`, `Dropout3d`, `AlphaDropout`, `FeatureAlphaDropout`.
    samples : int
        How many passes.
    seed : int or numpy Generator
        The same seed gives the same passes in every run, for one loader and device; the first ones stay the same when
        `samples` grows. The global random state is left as it is.
    device : str or torch.device, optional
        Where to run. Default: where the model's parameters are. ``"auto"``: on CUDA if there is any. The model
        is moved back afterwards.

    Notes
    -----
    Only layers can be switched on. Dropout that is a function call inside another module stays off
    (``F.dropout(x, training=self.training)``; the ``dropout=`` of `LSTM` and of `MultiheadAttention`), because turning
    it on would put that module's other parts into train mode as well: use an `nn.Dropout` layer instead. A warning says
    so when all passes come out equal.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))
    >>> loader = [(torch.zeros(2, 4), torch.tensor([0, 2])), (torch.ones(1, 4), torch.tensor([1]))]
    >>> MCDropout(model, samples=10, seed=0).predict(loader)
    Predictions(3 rows, 3 classes: labels, probs, 10 members, 10 member_logits)
    """

    def __init__(
        self, model: nn.Module, samples: int = 50, seed: int | np.random.Generator = 0, *, device: Device = None
    ) -> None:
        self.model = check_model("model", model)
        self.samples = check_count("samples", samples)
        self.device = check_device(device)
        self._seeds = draw_seeds(seed, self.samples)
        _dropout_layers(self.model)

    def predict(self, loader: Iterable[Any], *, progress: Progress = None) -> Predictions:
        """Labels, every pass's logits and their mean probability for every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, gone through once per pass in the same order (``shuffle=False``): x is a tensor, or a tuple, list
            or dict of tensors, handed to the model as it is; y are class indices of shape (batch,).
        progress : None, False or callable
            None shows a bar when stderr is a terminal and the work takes more than a second; False shows none; a
            function is called as ``progress(stage, done, total)`` after each batch (total is None while unknown).

        Returns
        -------
        Predictions
            With `members` and `member_logits` (samples, n, K); `probs` is the mean of the passes' probabilities.
        """
        layers = _dropout_layers(self.model)
        with (
            Passes("MCDropout", loader, self.samples, progress) as passes,
            ready(self.model, self.device, active=layers) as where,
            forked_rng(where) as seed_all,
            _without_fused_kernels(self.model),
        ):
            for seed in self._seeds:
                passes.run(self.model, where, partial(seed_all, seed))
        logits, labels = passes.result()
        if self.samples > 1 and (logits == logits[0]).all():
            notify(
                "MCDropout: all passes are equal. Are the dropout layers on the way from input to output? "
                "F.dropout cannot be switched on.",
                UQWarning,
            )
        return Predictions(labels, member_logits=logits)


def _dropout_layers(model: nn.Module) -> list[nn.Module]:
    layers = [module for module in model.modules() if isinstance(module, _LAYERS)]
    if not layers:
        raise InputError(
            "`model` has no dropout layer (nn.Dropout and its kin; F.dropout cannot be switched on). "
            "Add one, or use DeepEnsemble."
        )
    if all(layer.p == 0 for layer in layers):
        raise InputError(
            "`model` has dropout layers with p = 0 only: all passes would be equal. Pass a model with p > 0."
        )
    return list(layers)


@contextmanager
def _without_fused_kernels(model: nn.Module) -> Iterator[None]:
    # A TransformerEncoderLayer in eval mode runs one fused kernel instead of its layers, which ignores dropout.
    switch = getattr(torch.backends, "mha", None)
    if switch is None:
        if any(isinstance(module, nn.TransformerEncoderLayer) for module in model.modules()):
            raise InputError(
                "`model` has a TransformerEncoderLayer, whose dropout MCDropout can switch in torch >= 2.3."
            )
        yield
        return
    fused = switch.get_fastpath_enabled()
    switch.set_fastpath_enabled(False)
    try:
        yield
    finally:
        switch.set_fastpath_enabled(fused)
