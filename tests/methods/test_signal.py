"""Every method recovers signal: its own score ranks errors, and what is far from the data looks uncertain."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import nn  # noqa: E402

import uqeval as uq  # noqa: E402
from toys import TOYS, Residual, cross_entropy, draw, fit, make_net  # noqa: E402
from uqeval.methods import (  # noqa: E402
    SNGP,
    SWAG,
    BayesianNetwork,
    DeepEnsemble,
    EvidentialNetwork,
    MCDropout,
    RandomFeatureGP,
    Softmax,
    TemperatureScaling,
    TestTimeAugmentation,
    spectral_bound,
)

# Errors in these problems come from noise in the labels: a score of the weights' uncertainty alone need not find them.
OWN = {
    "Softmax": "entropy",
    "TemperatureScaling": "entropy",
    "MCDropout": "total_entropy",
    "TestTimeAugmentation": "vote_entropy",
    "DeepEnsemble": "mutual_information",
    "EvidentialNetwork": "vacuity",
    "BayesianNetwork": "total_entropy",
    "SNGP": "free_energy",
    "SWAG": "mutual_information",
}


def trained_ensemble(x, y):
    return DeepEnsemble.train(lambda seed: make_net(), lambda model, seed: fit(model, x, y), members=5)


def trained_swag(x, y):
    model = fit(make_net(0.0), x, y)
    swag, optimizer = SWAG(model), torch.optim.SGD(model.parameters(), lr=0.2)
    for step in range(60):
        rows = torch.randperm(len(x))[:64]
        optimizer.zero_grad()
        cross_entropy(model(x[rows]), y[rows], 0).backward()
        optimizer.step()
        if step % 3 == 2:
            swag.collect()
    return swag


def trained(x, y):
    """All methods, on the same rows."""
    net = fit(make_net(), x, y)
    found = {
        "Softmax": Softmax(net),
        "TemperatureScaling": TemperatureScaling(net).fit([(x[:100], y[:100])]),
        "MCDropout": MCDropout(net, samples=20),
        "TestTimeAugmentation": TestTimeAugmentation(net, [lambda x: x + 0.5 * torch.randn_like(x)] * 20),
        "DeepEnsemble": trained_ensemble(x, y),
        "EvidentialNetwork": EvidentialNetwork(make_net(0.0)),
        "BayesianNetwork": BayesianNetwork.from_model(make_net(0.0), samples=20),
        "SWAG": trained_swag(x, y),
    }
    evidential, bayesian = found["EvidentialNetwork"], found["BayesianNetwork"]
    fit(evidential.model, x, y, lambda z, y, done: evidential.loss(z, y, kl_weight=done))
    fit(bayesian.model, x, y, lambda z, y, done: bayesian.loss(z, y, rows=len(x)), steps=200)
    below = nn.Sequential(nn.Linear(2, 32), spectral_bound(nn.Sequential(Residual(32), Residual(32))))
    found["SNGP"] = SNGP(fit(nn.Sequential(below, RandomFeatureGP(32, 2, random_features=256)), x, y)).fit([(x, y)])
    return found


@pytest.mark.parametrize("toy", TOYS)
def test_every_methods_own_score_beats_a_random_one(toy):
    torch.manual_seed(0)
    methods, test = trained(*draw(toy, 400, seed=0)), draw(toy, 1000, seed=1)
    assert methods.keys() == OWN.keys()
    random = np.random.default_rng(2).random(1000)
    lows = {}
    for name, method in methods.items():
        pred = method.predict([test])
        error = uq.truth.error_of(pred)
        assert error.mean() < 0.25, name
        found = uq.compare({"own": uq.scores.compute(OWN[name], pred), "random": random}, error=error)
        (lows[name],) = [pair["low"] for pair in found.to_dict()["pairs"]]
    assert {name: low for name, low in lows.items() if not low > 0} == {}


@pytest.mark.parametrize("toy", TOYS)
def test_a_classifier_of_mistakes_beats_a_random_score_with_and_without_the_inputs(toy):
    pytest.importorskip("sklearn")
    torch.manual_seed(0)
    net, held, test = fit(make_net(), *draw(toy, 400, seed=0)), draw(toy, 400, seed=3), draw(toy, 1000, seed=1)
    (seen, pred), random = (
        (Softmax(net).predict([part]) for part in (held, test)),
        np.random.default_rng(2).random(1000),
    )
    for given, asked in ((seen, pred), ((seen, held[0].numpy()), (pred, test[0].numpy()))):
        own = uq.methods.MetaClassifier().fit(given).score_samples(asked)
        found = uq.compare({"own": own, "random": random}, error=uq.truth.error_of(pred))
        (pair,) = found.to_dict()["pairs"]
        assert pair["low"] > 0


def test_an_ensembles_mutual_information_rises_away_from_the_data():
    for toy in TOYS:
        x, y = draw(toy, 400, seed=0)
        axis = torch.linspace(-6, 6, 31)
        places = torch.cartesian_prod(axis, axis)
        pred = trained_ensemble(x, y).predict([(places, torch.arange(len(places)) % 2)])
        information = uq.scores.compute("mutual_information", pred)
        distance = torch.cdist(places, x).min(dim=1).values.numpy()
        assert information[distance > 1].mean() > 2 * information[distance < 0.3].mean(), toy
