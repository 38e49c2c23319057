"""Many small networks at once: MLPs that differ in seed, width, depth, learning rate and dropout.

Networks of one architecture share batched matrix products. Each has random streams of its own (initial weights, order
of rows, dropout), so that it comes out as if it had been trained alone, up to float32 rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from uqeval._check import Progress
from uqeval._errors import InputError

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # of Adam
_MOST = 32  # networks side by side
_AT_ONCE = 1 << 22  # hidden activations of a forward pass

Loss: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]  # of logits (rows, K), labels (rows,), epochs done: a mean


@dataclass(frozen=True)
class Net:
    """One network to train by Adam: hidden layers with ReLU and dropout behind each."""

    seed: int
    hidden: tuple[int, ...]
    lr: float
    dropout: float = 0.0


def initial_layers(net: Net, inputs: int, outputs: int) -> list[tuple[Tensor, Tensor]]:
    """(in, out) weights and (out,) biases as `torch.nn.Linear` draws them, from the net's own stream."""
    stream = _stream(net, 0)
    sizes = (inputs, *net.hidden, outputs)
    layers = []
    for a, b in itertools.pairwise(sizes):
        bound = 1 / math.sqrt(a)
        layers.append(tuple((torch.rand(shape, generator=stream) * 2 - 1) * bound for shape in ((a, b), (b,))))
    return layers  # type: ignore[return-value]


def _stream(net: Net, purpose: int) -> torch.Generator:
    # torch's generator takes 32 bits of a seed: mix them, or streams of neighbouring seeds would coincide.
    return torch.Generator().manual_seed(int(np.random.SeedSequence([net.seed, purpose]).generate_state(1)[0]))


def order_stream(net: Net) -> torch.Generator:
    """Where the order of rows comes from, one permutation an epoch."""
    return _stream(net, 1)


def dropout_stream(net: Net, passes: bool = False) -> torch.Generator:
    """Where dropout comes from: a stream for training and one for stochastic passes."""
    return _stream(net, 3 if passes else 2)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one core: the numbers must not depend on how many the machine has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train(
    nets: Sequence[Net],
    x: ArrayLike,
    labels: ArrayLike,
    *,
    classes: int = 2,
    epochs: int = 50,
    batch_size: int = 504,
    loss: Loss | None = None,
    progress: Progress | None = None,
) -> Bank:
    """Trains all networks on the same rows.

    Parameters
    ----------
    nets : list of Net
        What to train.
    x, labels : array-like of shape (n, inputs) and (n,)
        Training rows, classes 0..K-1.
    classes : int
        Outputs.
    epochs, batch_size, loss, progress
        As in `Bank.train`.
    """
    bank = Bank(nets, np.shape(x)[1], classes)
    bank.train(x, labels, epochs=epochs, batch_size=batch_size, loss=loss, progress=progress)
    return bank


def _together(nets: Sequence[Net]) -> list[list[int]]:
    """Networks of one architecture, with or without dropout; no more than keep their activations in the cache."""
    kinds: dict[tuple[tuple[int, ...], bool], list[int]] = {}
    for k, net in enumerate(nets):
        kinds.setdefault((net.hidden, net.dropout > 0), []).append(k)
    return [ks[at : at + _MOST] for ks in kinds.values() for at in range(0, len(ks), _MOST)]


class Bank:
    """Networks with the weights that they start with; `train` trains them."""

    def __init__(self, nets: Sequence[Net], inputs: int, outputs: int) -> None:
        if not nets:
            raise InputError("`nets` is empty. Pass at least one network.")
        self.nets = list(nets)
        self._places = _together(nets)
        self._groups = [_Group([nets[k] for k in ks], inputs, outputs) for ks in self._places]
        pairs = zip(self._groups, self._places, strict=True)
        self._home = {k: (group, at) for group, ks in pairs for at, k in enumerate(ks)}

    def train(
        self,
        x: ArrayLike,
        labels: ArrayLike,
        *,
        epochs: int,
        batch_size: int,
        loss: Loss | None = None,
        progress: Progress | None = None,
    ) -> None:
        """So many epochs more: one and then another are the same path as two.

        Parameters
        ----------
        x, labels : array-like of shape (n, inputs) and (n,)
            Training rows, classes 0..K-1.
        epochs, batch_size : int
            Passes over the rows, rows a step (the last step of an epoch takes what is left).
        loss : callable(logits, labels, epochs done), optional
            Mean over the rows of one network or of several; the cross entropy by default.
        progress : callable(stage, done, total), optional
            Called after every epoch of every architecture.
        """
        rows = torch.as_tensor(np.asarray(x, dtype=np.float32))
        targets = torch.as_tensor(np.asarray(labels, dtype=np.int64))
        done = 0
        for group in self._groups:
            for _ in range(epochs):
                group.epoch(rows, targets, batch_size, loss)
                done += 1
                if progress is not None:
                    progress("training", done, epochs * len(self._groups))

    def module(self, k: int) -> nn.Sequential:
        """Network k as torch's own layers. They share its weights: training either trains both."""
        group, at = self._home[k]
        layers: list[nn.Module] = []
        for weight, bias in zip(group.weights[::2], group.weights[1::2], strict=True):
            if layers:
                layers += [nn.ReLU(), *([nn.Dropout(self.nets[k].dropout)] if self.nets[k].dropout else [])]
            layer = nn.Linear(weight.shape[1], weight.shape[2], device="meta")  # which draws no random weights
            layer.weight, layer.bias = nn.Parameter(weight[at].T), nn.Parameter(bias[at, 0])
            layers.append(layer)
        return nn.Sequential(*layers)

    def logits(self, x: ArrayLike) -> NDArray[np.float64]:
        """(nets, n, K), dropout off."""
        rows = torch.as_tensor(np.asarray(x, dtype=np.float32))
        result = np.empty((len(self.nets), len(rows), self._groups[0].outputs))
        for group, ks in zip(self._groups, self._places, strict=True):
            result[ks] = group.logits(rows).double().numpy()
        return result

    def features(self, k: int, x: ArrayLike) -> NDArray[np.float64]:
        """(n, width) last hidden activations of network k, dropout off; without a hidden layer the rows themselves."""
        rows = torch.as_tensor(np.asarray(x, dtype=np.float32))
        group, at = self._home[k]
        return group.features(at, rows).double().numpy()

    def passes(self, k: int, x: ArrayLike, samples: int) -> NDArray[np.float64]:
        """(samples, n, K) of network k with dropout on, from its own stream."""
        rows = torch.as_tensor(np.asarray(x, dtype=np.float32))
        group, at = self._home[k]
        return group.passes(at, rows, samples).double().numpy()


class Adam:
    """Kingma & Ba (2015) on these tensors, in place, each learning rate as broadcast; torch's own loads a compiler."""

    def __init__(self, weights: Sequence[Tensor], lr: Tensor | float) -> None:
        self.weights, self.lr, self.steps = weights, lr, 0
        self.first, self.second = ([torch.zeros_like(w) for w in weights] for _ in range(2))

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step down."""
        self.steps += 1
        c1, c2 = 1 - _BETA1**self.steps, 1 - _BETA2**self.steps
        for w, g, m, v in zip(self.weights, gradients, self.first, self.second, strict=True):
            m.lerp_(g, 1 - _BETA1)
            v.mul_(_BETA2).addcmul_(g, g, value=1 - _BETA2)
            w -= self.lr / c1 * m / ((v / c2).sqrt_().add_(_EPS))


class _Group:
    """Networks of one architecture, their weights stacked."""

    def __init__(self, nets: list[Net], inputs: int, outputs: int) -> None:
        self.nets, self.outputs = nets, outputs
        drawn = [initial_layers(net, inputs, outputs) for net in nets]
        self.weights: list[Tensor] = []
        for layer in zip(*drawn, strict=True):
            self.weights += [torch.stack([w for w, _ in layer]), torch.stack([b for _, b in layer])[:, None]]
        self.adam = Adam(self.weights, torch.tensor([net.lr for net in nets])[:, None, None])
        self.epochs = 0
        self.orders = [order_stream(net) for net in nets]
        self.drops = [dropout_stream(net) for net in nets]
        self.kept = 1 - torch.tensor([net.dropout for net in nets])[:, None, None]

    def epoch(self, rows: Tensor, targets: Tensor, batch_size: int, loss: Loss | None) -> None:
        order = torch.stack([torch.randperm(len(rows), generator=stream) for stream in self.orders])
        for start in range(0, len(rows), batch_size):
            batch = order[:, start : start + batch_size]
            self._step(rows[batch], targets[batch], loss)
        self.epochs += 1

    def _stays(self, count: int) -> list[Tensor | None]:
        """What a hidden activation is multiplied by, layer by layer: 0 where it is dropped, else 1 / kept."""
        if self.nets[0].dropout == 0:
            return [None] * len(self.nets[0].hidden)
        stays: list[Tensor | None] = []
        for width in self.nets[0].hidden:
            drawn = torch.empty(len(self.nets), count, width)
            for k, stream in enumerate(self.drops):
                torch.rand((count, width), generator=stream, out=drawn[k])
            stays.append(drawn.lt_(self.kept).div_(self.kept))
        return stays

    @torch.no_grad()
    def _step(self, x: Tensor, y: Tensor, loss: Loss | None) -> None:
        """One Adam step of every network on its own rows; the gradient is written out, for speed."""
        inputs, h = [x], x
        last = len(self.weights) // 2 - 1
        for layer, stays in enumerate(self._stays(x.shape[1])):
            h = _hidden(self.weights, layer, h, stays)
            inputs.append(h)
        logits = torch.baddbmm(self.weights[2 * last + 1], h, self.weights[2 * last])
        delta = _slope(logits, y) if loss is None else self._slope_of(loss, logits, y)
        gradients: list[Tensor] = []
        for layer in range(last, -1, -1):
            gradients = [torch.bmm(inputs[layer].mT, delta), delta.sum(dim=1, keepdim=True), *gradients]
            if layer:
                delta = torch.bmm(delta, self.weights[2 * layer].mT)
                # An activation is 0 where ReLU or dropout cut it, and so is its slope; elsewhere it is 1 / kept.
                delta = torch.ops.aten.threshold_backward(delta, inputs[layer], 0.0)
                if self.nets[0].dropout > 0:
                    delta /= self.kept
        self.adam.step(gradients)

    @torch.enable_grad()
    def _slope_of(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """Of a loss in its logits."""
        logits.requires_grad_()
        # A mean over all networks: each has its own share of it.
        total = len(self.nets) * loss(logits.flatten(0, 1), y.flatten(), self.epochs)
        (slope,) = torch.autograd.grad(total, logits)
        return slope

    @torch.no_grad()
    def logits(self, rows: Tensor) -> Tensor:
        widest = max(self.nets[0].hidden, default=1)
        chunk = max(1, _AT_ONCE // (len(self.nets) * widest))
        parts = []
        for start in range(0, len(rows), chunk):
            part = rows[start : start + chunk]
            h = part.expand(len(self.nets), *part.shape)
            parts.append(_forward(self.weights, h, [None] * len(self.nets[0].hidden)))
        return torch.cat(parts, dim=1)

    @torch.no_grad()
    def features(self, at: int, rows: Tensor) -> Tensor:
        own, h = [w[at : at + 1] for w in self.weights], rows[None]
        for layer in range(len(self.nets[at].hidden)):
            h = _hidden(own, layer, h, None)
        return h[0]

    @torch.no_grad()
    def passes(self, at: int, rows: Tensor, samples: int) -> Tensor:
        net, stream = self.nets[at], dropout_stream(self.nets[at], passes=True)
        kept = 1 - net.dropout
        chunk = max(1, _AT_ONCE // (len(rows) * max(net.hidden, default=1)))
        parts = []
        for start in range(0, samples, chunk):
            count = min(chunk, samples - start)
            drawn = [torch.empty(count, len(rows), width) for width in net.hidden]
            for k in range(count):  # pass by pass, so that fewer passes are the first of more
                for part in drawn:
                    torch.rand(part.shape[1:], generator=stream, out=part[k])
            own = [w[at : at + 1].expand(count, *w.shape[1:]) for w in self.weights]
            stays = [part.lt_(kept).div_(kept) for part in drawn]
            parts.append(_forward(own, rows.expand(count, *rows.shape), stays))
        return torch.cat(parts)


def _slope(logits: Tensor, y: Tensor) -> Tensor:
    """Of the mean cross entropy of each network in its logits."""
    delta = torch.softmax(logits, dim=2)
    delta.scatter_add_(2, y[:, :, None], torch.full_like(delta[:, :, :1], -1.0))
    return delta.div_(logits.shape[1])


def _hidden(weights: list[Tensor], layer: int, h: Tensor, stays: Tensor | None) -> Tensor:
    """The activations of one hidden layer."""
    h = torch.baddbmm(weights[2 * layer + 1], h, weights[2 * layer]).relu_()
    return h if stays is None else h.mul_(stays)


def _forward(weights: list[Tensor], h: Tensor, stays: Sequence[Tensor | None]) -> Tensor:
    last = len(weights) // 2 - 1
    for layer in range(last):
        h = _hidden(weights, layer, h, stays[layer])
    return torch.baddbmm(weights[2 * last + 1], h, weights[2 * last])
