"""SNGP: a network that keeps distances, and a Gaussian process on top that knows how far the training data are (Liu,
Lin, Padhy, Tran, Bedrax-Weiss & Lakshminarayanan 2020, "Simple and Principled Uncertainty Estimation with Deterministic
Deep Learning via Distance Awareness").

Two parts for the user's model and what to do with it once it is trained; the training loop is the user's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from uqeval._check import check_count
from uqeval._errors import InputError
from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import Device, Passes, Progress, check_device, check_model, check_number, ready
from uqeval.methods.weights import compute_weight

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_START = 30  # power iterations before training; then one a step, as the weights move little


class SpectralBound(nn.Module):
    """A weight whose largest singular value is at most `bound`, estimated by power iteration (Miyato et al. 2018).

    A kernel counts as the matrix (out, in × size); the convolution's own norm can be √size times as large.
    """

    left: Tensor
    right: Tensor

    def __init__(self, weight: Tensor, bound: float) -> None:
        super().__init__()
        self.bound = bound
        matrix = weight.detach().flatten(1)
        stream = torch.Generator().manual_seed(0)  # the global random state is nobody's business here
        self.register_buffer("left", torch.randn(len(matrix), generator=stream).to(matrix))
        self.register_buffer("right", torch.randn(matrix.shape[1], generator=stream).to(matrix))
        self._iterate(matrix, _START)

    def forward(self, weight: Tensor) -> Tensor:
        matrix = weight.flatten(1)
        if self.training:
            self._iterate(matrix, 1)
        # Clones: the next step changes the vectors, before a gradient may have passed through this one.
        norm = self.left.clone() @ matrix @ self.right.clone()
        return weight * (self.bound / norm.clamp(min=self.bound))

    @torch.no_grad()
    def _iterate(self, matrix: Tensor, times: int) -> None:
        for _ in range(times):
            self.right.copy_(nn.functional.normalize(matrix.T @ self.left, dim=0))
            self.left.copy_(nn.functional.normalize(matrix @ self.right, dim=0))


def spectral_bound(model: nn.Module, bound: float = 0.95) -> nn.Module:
    """Bounds the spectral norm of every linear and convolutional layer, in place, so that a residual network keeps
    distances: with blocks ``x + f(x)``, far inputs have far features.

    Parameters
    ----------
    model : torch.nn.Module
        The layers below the Gaussian process.
    bound : float
        Weights with a larger norm are divided so that it is this; others stay as they are.

    Returns
    -------
    torch.nn.Module
        The model itself.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(3, 3)
    >>> _ = torch.nn.init.constant_(layer.weight, 4.0)
    >>> spectral_bound(layer, bound=0.6).weight[0].tolist()
    [0.2..., 0.2..., 0.2...]
    """
    check_number("bound", bound)
    layers = [module for module in check_model("model", model).modules() if isinstance(module, _LAYERS)]
    if any(isinstance(module, RandomFeatureGP) for module in model.modules()):
        raise InputError("`model` has a RandomFeatureGP, whose weights must stay free. Pass the layers below it.")
    if not layers:
        raise InputError("`model` has no linear or convolutional layer. Pass the layers below the Gaussian process.")
    for layer in layers:
        compute_weight(layer, "weight", SpectralBound(layer.weight, bound))
    return model


class RandomFeatureGP(nn.Module):
    r"""The last layer: a Gaussian process with a Gaussian kernel, by random Fourier features (Rahimi & Recht 2007).

    .. math:: \phi(h) = \sqrt{2 / D}\, \cos(W h + b), \qquad \text{logits} = \beta \phi(h), \qquad
        \operatorname{var}(h) = \phi(h)^\top \Big(\tau I + \sum_i \phi(h_i) \phi(h_i)^\top\Big)^{-1} \phi(h)

    Until `SNGP.fit` it returns plain logits, and in train mode always. Then, in eval mode, logits divided by
    :math:`\sqrt{1 + \lambda \operatorname{var}}`, the mean-field approximation of the expected softmax (Lu, Ie & Sha
    2020).

    Parameters
    ----------
    in_features, classes : int
        Size of the features h, and K ≥ 2.
    random_features : int
        D; the covariance has D² entries.
    length_scale : float
        Features this far apart say little about each other. Default: √in_features.
    ridge : float
        τ, the precision of the prior on β; large values make distance matter less.
    mean_field : float
        λ ≥ 0; 0 leaves the logits as they are.
    seed : int
        Of W and b.

    Examples
    --------
    >>> import torch
    >>> layer = RandomFeatureGP(4, 3, random_features=64)
    >>> layer(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    frequencies: Tensor
    phases: Tensor
    covariance: Tensor
    rows: Tensor

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        random_features: int = 512,
        length_scale: float | None = None,
        ridge: float = 1.0,
        mean_field: float = math.pi / 8,
        seed: int = 0,
    ) -> None:
        super().__init__()
        size = check_count("random_features", random_features)
        width = check_count("in_features", in_features)
        scale = math.sqrt(width) if length_scale is None else check_number("length_scale", length_scale)
        self.ridge = check_number("ridge", ridge)
        self.mean_field = check_number("mean_field", mean_field, zero=True)
        stream = torch.Generator().manual_seed(check_count("seed", seed, 0))
        self.register_buffer("frequencies", torch.randn(size, width, generator=stream) / scale)
        self.register_buffer("phases", 2 * math.pi * torch.rand(size, generator=stream))
        self.register_buffer("covariance", torch.eye(size) / self.ridge)
        self.register_buffer("rows", torch.tensor(0))  # that the covariance has seen: with the weights in a file
        self.output = nn.Linear(size, check_count("classes", classes, 2), bias=False)

    def forward(self, features: Tensor) -> Tensor:
        phi = self.phi(features)
        logits: Tensor = self.output(phi)
        if self.training or not self.rows:
            return logits
        return logits / (1 + self.mean_field * self.variance(phi)[:, None]).sqrt()

    def phi(self, features: Tensor) -> Tensor:
        """Random features (batch, D); their inner products approximate the kernel."""
        size, width = self.frequencies.shape
        if features.ndim != 2 or features.shape[1] != width:
            raise InputError(f"RandomFeatureGP got features of shape {tuple(features.shape)}. Pass (batch, {width}).")
        return math.sqrt(2 / size) * torch.cos(features @ self.frequencies.T + self.phases)

    def variance(self, phi: Tensor) -> Tensor:
        """Posterior variance of every logit (batch,)."""
        return ((phi @ self.covariance) * phi).sum(dim=1).clamp(min=0)


class SNGP:
    """A model whose last layer is a Gaussian process: its variance grows with the distance from the training data.

    Parameters
    ----------
    model : torch.nn.Module
        Trained with the cross entropy like any other; ends in one `RandomFeatureGP`, the layers below best bounded by
        `spectral_bound`.
    device : str or torch.device, optional
        Where to run, as in `Softmax`.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.ones(6, 4), torch.tensor([0, 2, 1, 0, 0, 0])
    >>> features = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    >>> model = torch.nn.Sequential(spectral_bound(features), RandomFeatureGP(8, 3, random_features=64))
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    >>> for epoch in range(3):
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.cross_entropy(model(x), y).backward()
    ...     optimizer.step()
    >>> SNGP(model).fit([(x, y)]).predict([(x, y)])
    Predictions(6 rows, 3 classes: labels, probs, logits, scores gp_variance)
    """

    def __init__(self, model: nn.Module, *, device: Device = None) -> None:
        self.model = check_model("model", model)
        self.device = check_device(device)
        layers = [module for module in self.model.modules() if isinstance(module, RandomFeatureGP)]
        if len(layers) != 1:
            raise InputError(f"`model` has {len(layers)} layers RandomFeatureGP. Put one at its end.")
        self._layer = layers[0]

    def fit(self, loader: Iterable[Any], *, progress: Progress = None) -> SNGP:
        """The covariance of the last layer, from one pass over the training data once the weights are learnt.

        Each row counts fully, as in a regression, so that there is one covariance for all classes and a row of which
        the model is sure counts as much as others. (With the softmax likelihood it would count p(1 − p), and each class
        would have a covariance of its own.)

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches of the training data, in any order.
        progress : None, False or callable
            As in `predict`.

        Returns
        -------
        SNGP
            This object; the covariance is part of the model.
        """
        layer, rows = self._layer, 0
        with Passes("SNGP", loader, 1, progress) as passes, ready(self.model, self.device) as where:
            precision = torch.diag(torch.full_like(layer.phases, layer.ridge))

            def gather(layer: RandomFeatureGP, inputs: tuple[Tensor], output: Tensor) -> None:
                nonlocal rows
                phi = layer.phi(inputs[0])
                precision.addmm_(phi.T, phi)
                rows += len(phi)

            hook = layer.register_forward_hook(gather)
            try:
                passes.sweep(self.model, where)
            finally:
                hook.remove()
            # On the CPU in double precision: an inverse, and some devices have no doubles.
            factor = torch.linalg.cholesky(precision.double().cpu())
            layer.covariance.copy_(torch.cholesky_inverse(factor))
            layer.rows.fill_(rows)
        return self

    def predict(self, loader: Iterable[Any], *, progress: Progress = None) -> Predictions:
        """Labels, mean-field logits, their probabilities and the variance for every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, as in `Softmax.predict`.
        progress : None, False or callable
            As in `Softmax.predict`.

        Returns
        -------
        Predictions
            With `logits` and the score ``gp_variance``, which looks at the inputs alone; `free_energy` of the logits
            ranks as the authors' own score, K / (K + Σ exp logits), does.
        """
        if not self._layer.rows:
            raise InputError("SNGP has no covariance yet. Call fit(loader) on the training data first.")
        with (
            Passes("SNGP", loader, 1, progress, classes=lambda columns: columns - 1) as passes,
            ready(self.model, self.device) as where,
        ):
            passes.run(self._with_variance, where)
        outputs, labels = passes.result()
        return Predictions(labels, logits=outputs[0, :, :-1], scores={"gp_variance": outputs[0, :, -1]})

    def _with_variance(self, x: Any) -> Any:
        """The model's output, whatever stands behind the layer, and the variance as one more column."""
        seen: list[Tensor] = []

        def note(layer: RandomFeatureGP, inputs: tuple[Tensor], output: Tensor) -> None:
            seen.append(layer.variance(layer.phi(inputs[0])))

        hook = self._layer.register_forward_hook(note)
        try:
            output = self.model(x)
        finally:
            hook.remove()
        if len(seen) != 1:
            raise InputError(f"SNGP: the model ran its RandomFeatureGP {len(seen)} times for a batch. Run it once.")
        fits = isinstance(output, Tensor) and output.ndim == 2 and len(output) == len(seen[0])
        return torch.cat([output, seen[0][:, None]], dim=1) if fits else output
