"""The methods of `uqeval.methods` that the paper did not run, on a draw of its data: a function for each. Needs torch.

A network starts, and goes through the rows, as the softmax network of its size and learning rate does, by the same
Adam; where its layers are that network's, all learning rates are trained together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uqeval import methods
from uqeval.datasets.synthetic import Synthetic
from uqeval.inputs.predictions import Predictions
from uqeval.methods import (
    SNGP,
    SWAG,
    BayesianNetwork,
    EvidentialNetwork,
    RandomFeatureGP,
    Softmax,
    TemperatureScaling,
    TestTimeAugmentation,
    spectral_bound,
)
from uqeval.methods.batched import Adam, Bank, Loss, Net, one_thread, order_stream
from uqeval.methods.loop import draw_seeds, forked_rng
from uqeval.truth import error_of

_ANNEALED = 10  # epochs until evidence for wrong classes has its whole penalty (Sensoy et al. 2018)
_FEATURES = 256  # random ones of SNGP


@dataclass(frozen=True)
class _Task:
    """Networks that differ in their learning rate, and what they learn."""

    nets: Sequence[Net]
    x: Tensor
    y: Tensor
    classes: int
    epochs: int
    batch_size: int

    def rows_but(self, held_out: float) -> int:
        """How many rows to train on: they are in random order, so that the last ones are as good as any to hold out."""
        return len(self.x) - round(held_out * len(self.x))

    def fresh(self) -> Bank:
        """The networks as they start."""
        return Bank(self.nets, self.x.shape[1], self.classes)

    def trained(self, *, epochs: int | None = None, rows: int | None = None, loss: Loss | None = None) -> Bank:
        """The networks after so many epochs, of the first rows; of all by default."""
        bank = self.fresh()
        self.go_on(bank, self.epochs if epochs is None else epochs, rows, loss)
        return bank

    def go_on(self, bank: Bank, epochs: int, rows: int | None = None, loss: Loss | None = None) -> None:
        """Trains them for so many epochs more."""
        bank.train(self.x[:rows], self.y[:rows], epochs=epochs, batch_size=self.batch_size, loss=loss)

    def learn(self, model: nn.Module, net: Net, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        """The same steps for a model that no bank can train."""
        weights, order = list(model.parameters()), order_stream(net)
        adam = Adam(weights, net.lr)
        model.train()
        for _ in range(self.epochs):
            for batch in torch.split(torch.randperm(len(self.x), generator=order), self.batch_size):
                adam.step(torch.autograd.grad(loss(model(self.x[batch]), self.y[batch]), weights))


def fit(
    plans: Sequence[Mapping[str, Any]], data: Synthetic, *, seeds: Sequence[int], epochs: int, batch_size: int
) -> Iterator[Predictions]:
    """What each algorithm predicts for the test rows; `seeds` are those of their networks."""
    x, y = torch.as_tensor(data.x, dtype=torch.float32), torch.as_tensor(data.labels)
    test = [(x[data.test], y[data.test])]
    pairs = groupby(zip(plans, seeds, strict=True), key=lambda pair: (pair[0]["method"], pair[0]["sizes"]))
    with one_thread():
        for (method, sizes), group in pairs:
            own, firsts = zip(*group, strict=True)
            nets = [Net(seed, plan["hidden"], plan["lr"]) for plan, seed in zip(own, firsts, strict=True)]
            task = _Task(nets, x[data.train], y[data.train], data.n_classes, epochs, batch_size)
            yield from (model.predict(test, progress=False) for model in _FITS[method](task, **sizes))


def _temperature(task: _Task, held_out: float) -> Iterator[TemperatureScaling]:
    kept = task.rows_but(held_out)
    bank = task.trained(rows=kept)
    for k in range(len(task.nets)):
        yield TemperatureScaling(bank.module(k)).fit([(task.x[kept:], task.y[kept:])], progress=False)


def _tta(task: _Task, noise: float, samples: int) -> Iterator[TestTimeAugmentation]:
    def jitter(x: Tensor) -> Tensor:
        return x + noise * torch.randn_like(x)

    bank = task.trained()
    for k, net in enumerate(task.nets):
        yield TestTimeAugmentation(bank.module(k), [jitter] * samples, net.seed)


def _evidential(task: _Task, kl_weight: float) -> Iterator[EvidentialNetwork]:
    bank = task.fresh()
    networks = [EvidentialNetwork(bank.module(k)) for k in range(len(task.nets))]

    def loss(logits: Tensor, labels: Tensor, epoch: int) -> Tensor:
        return networks[0].loss(logits, labels, kl_weight=kl_weight * min(1.0, epoch / _ANNEALED))

    task.go_on(bank, task.epochs, loss=loss)
    yield from networks


def _bayesian(task: _Task, kl_weight: float, samples: int) -> Iterator[BayesianNetwork]:
    bank = task.fresh()
    for k, net in enumerate(task.nets):
        network = BayesianNetwork.from_model(bank.module(k), samples=samples, seed=net.seed)

        def loss(logits: Tensor, labels: Tensor, network: BayesianNetwork = network) -> Tensor:
            return network.loss(logits, labels, rows=len(task.x), kl_weight=kl_weight)

        with _seeded(net):  # weights are drawn in every step
            task.learn(network.model, net, loss)
        yield network


def _sngp(task: _Task, length_scale: float) -> Iterator[SNGP]:
    bank = task.fresh()
    for k, net in enumerate(task.nets):
        *features, _ = bank.module(k)
        how: dict[str, Any] = {"random_features": _FEATURES, "length_scale": length_scale, "seed": net.seed}
        with _seeded(net):
            last = RandomFeatureGP(net.hidden[-1], task.classes, **how)
        model = nn.Sequential(spectral_bound(nn.Sequential(*features)), last)
        task.learn(model, net, nn.functional.cross_entropy)
        yield SNGP(model).fit([(task.x, task.y)], progress=False)


@contextmanager
def _seeded(net: Net) -> Iterator[None]:
    """Torch's global random numbers are the network's own, and as before at the end."""
    with forked_rng(torch.device("cpu")) as seed_all:
        seed_all(*draw_seeds(net.seed, 1))
        yield


def _swag(task: _Task, rank: int, samples: int) -> Iterator[SWAG]:
    """The path is that of the softmax networks: the second half of their epochs, whose Adam has a constant rate."""
    first = task.epochs // 2
    bank = task.trained(epochs=first)
    found = [SWAG(bank.module(k), rank, samples, net.seed) for k, net in enumerate(task.nets)]
    for _ in range(task.epochs - first):
        task.go_on(bank, 1)
        for swag in found:
            swag.collect()
    yield from found


@dataclass(frozen=True)
class _Learned:
    """A softmax network, and a classifier of its mistakes; None where it made none, or nothing else."""

    network: Softmax
    meta: Any
    inputs: bool

    def predict(self, loader: Sequence[tuple[Tensor, Tensor]], *, progress: Any = None) -> Predictions:
        pred = self.network.predict(loader, progress=progress)
        x = torch.cat([inputs for inputs, _ in loader]).numpy()
        error = np.zeros(pred.n) if self.meta is None else self.meta.score_samples((pred, x) if self.inputs else pred)
        return Predictions(pred.labels, logits=pred.logits, scores={"learned_error": error})


def _meta(task: _Task, held_out: float, inputs: int) -> Iterator[_Learned]:
    kept = task.rows_but(held_out)
    bank, x = task.trained(rows=kept), task.x[kept:]
    for k in range(len(task.nets)):
        network = Softmax(bank.module(k))
        met = network.predict([(x, task.y[kept:])], progress=False)
        error, meta = error_of(met), None
        if error is not None and 0 < error.sum() < len(error):
            meta = methods.MetaClassifier().fit((met, x.numpy()) if inputs else met)
        yield _Learned(network, meta, bool(inputs))


_FITS: dict[str, Callable[..., Iterator[Any]]] = {
    "temperature": _temperature,
    "tta": _tta,
    "evidential": _evidential,
    "bayesian": _bayesian,
    "sngp": _sngp,
    "swag": _swag,
    "meta": _meta,
}
