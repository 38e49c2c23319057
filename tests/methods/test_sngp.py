"""SNGP: the variance is the Gaussian process' own and grows with distance; norms stay below their bound."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import nn  # noqa: E402

from toys import TOYS, Residual, draw, fit  # noqa: E402
from uqeval._errors import InputError  # noqa: E402
from uqeval.methods import SNGP, RandomFeatureGP, spectral_bound  # noqa: E402

X = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(30) % 3
LOADER = [(X[:16], Y[:16]), (X[16:], Y[16:])]


def make_model(**options):
    torch.manual_seed(0)
    below = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh())
    return nn.Sequential(below, RandomFeatureGP(8, 3, **{"random_features": 32, "ridge": 0.5} | options))


def test_the_variance_and_the_logits_are_those_of_the_formulas():
    model = make_model(mean_field=0.7)
    got = SNGP(model).fit(LOADER).predict(LOADER)
    model.eval()
    with torch.no_grad():
        phi = model[1].phi(model[0](X)).double().numpy()
        plain = phi @ model[1].output.weight.double().numpy().T
    covariance = np.linalg.inv(0.5 * np.eye(32) + phi.T @ phi)
    variance = (phi @ covariance * phi).sum(axis=1)
    np.testing.assert_allclose(got.scores["gp_variance"], variance, atol=1e-5)
    np.testing.assert_allclose(got.logits, plain / np.sqrt(1 + 0.7 * variance)[:, None], atol=1e-5)
    np.testing.assert_array_equal(got.labels, Y)
    with torch.no_grad():
        np.testing.assert_allclose(model(X), got.logits, atol=1e-6)  # the model itself says the same
        np.testing.assert_allclose(model.train()[1](model[0].eval()(X)), plain, atol=1e-5)


def test_the_variance_stays_its_own_whatever_stands_behind_the_layer():
    class Flipped(nn.Module):
        def forward(self, z):
            return z.flip(1) / 10

    model = make_model()
    plain = SNGP(model).fit(LOADER).predict(LOADER)
    got = SNGP(nn.Sequential(model, Flipped())).predict(LOADER)
    np.testing.assert_array_equal(got.scores["gp_variance"], plain.scores["gp_variance"])
    np.testing.assert_allclose(got.logits, plain.logits[:, ::-1] / 10, atol=1e-6)


def test_a_model_that_passes_its_last_layer_by_or_uses_it_twice_is_an_error():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.times = make_model(), 1

        def forward(self, x):
            return sum((self.model(x) for _ in range(self.times)), x[:, :3])

    twice = Twice()
    sngp = SNGP(twice).fit(LOADER)
    for twice.times in (0, 2):
        with pytest.raises(InputError, match=f"SNGP: the model ran its RandomFeatureGP {twice.times} times"):
            sngp.predict(LOADER)
    assert not twice.model[1]._forward_hooks


def test_random_features_approximate_the_gaussian_kernel():
    layer = RandomFeatureGP(4, 2, random_features=4_000, length_scale=1.5)
    phi = layer.phi(X)
    kernel = torch.exp(-(torch.cdist(X, X) ** 2) / (2 * 1.5**2))
    torch.testing.assert_close(phi @ phi.T, kernel, atol=5 / math.sqrt(4_000), rtol=0)
    assert RandomFeatureGP(9, 2).frequencies.std().item() == pytest.approx(1 / 3, rel=0.05)  # √in_features


def test_the_variance_grows_with_the_distance_from_the_data():
    for name in TOYS:
        x, y = draw(name, 400, seed=0)
        torch.manual_seed(0)
        below = nn.Sequential(nn.Linear(2, 32), spectral_bound(nn.Sequential(Residual(32), Residual(32))))
        model = fit(nn.Sequential(below, RandomFeatureGP(32, 2, random_features=256)), x, y, steps=60)
        axis = torch.linspace(-6, 6, 31)
        places = torch.cartesian_prod(axis, axis)
        sngp = SNGP(model).fit([(x, y)])
        variance = sngp.predict([(places, torch.arange(len(places)) % 2)]).scores["gp_variance"]
        distance = torch.cdist(places, x).min(dim=1).values.numpy()
        edges = [0, 0.3, 1, 2, 9]
        means = [variance[(distance >= a) & (distance < b)].mean() for a, b in itertools.pairwise(edges)]
        assert means == sorted(means)
        assert means[-1] > 5 * means[0]
        assert 0 <= variance.min() <= variance.max() <= 1.2  # of the prior: about 1


def test_the_spectral_norm_stays_below_its_bound_through_training():
    x, y = draw("moons", 200, seed=0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 5
    spectral_bound(model, 0.9)
    norms = [torch.linalg.matrix_norm(model[k].weight.detach(), 2).item() for k in (0, 2, 4)]
    fit(model, x, y, steps=50)
    norms += [torch.linalg.matrix_norm(model[k].weight.detach(), 2).item() for k in (0, 2, 4)]
    assert 0.8 < max(norms) <= 0.9 * 1.02  # power iteration comes from below


def test_weights_below_the_bound_stay_as_they_are_and_kernels_are_bounded_as_matrices():
    torch.manual_seed(0)
    small, kernel = nn.Linear(3, 3), nn.Conv2d(2, 4, 3)
    former = small.weight.detach().clone()
    nn.init.normal_(kernel.weight)
    before = torch.get_rng_state()
    spectral_bound(nn.ModuleList([small, kernel]), 3.0)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(small.eval().weight, former)
    assert torch.linalg.matrix_norm(kernel.weight.detach().flatten(1), 2).item() == pytest.approx(3.0, rel=1e-3)


def test_the_covariance_is_part_of_the_models_file():
    model, other = make_model(), make_model(seed=4)
    sngp = SNGP(model).fit(LOADER)
    other.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(SNGP(other).predict(LOADER).logits, sngp.predict(LOADER).logits)


def test_fitting_again_starts_anew_in_any_order_of_the_rows():
    model = make_model()
    first = SNGP(model).fit(LOADER).predict(LOADER)
    again = SNGP(model).fit([(X.flip(0), Y.flip(0))]).predict(LOADER)
    np.testing.assert_allclose(first.logits, again.logits, atol=1e-5)
    assert int(model[1].rows) == 30


def test_modes_and_weights_come_back_also_after_a_failure_and_no_hook_stays():
    model = make_model()
    model[0].eval()
    modes = [module.training for module in model.modules()]
    sngp = SNGP(model).fit(LOADER)
    former = {name: value.clone() for name, value in model.state_dict().items()}
    for call in (sngp.fit, sngp.predict):
        with pytest.raises(InputError, match="SNGP: the model's output for batch 1 has NaN"):
            call([LOADER[0], (X * torch.nan, Y)])
        with pytest.raises(InputError, match="gave no rows"):
            call([])
    sngp.predict(LOADER)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, former[name]) for name, value in model.state_dict().items())
    assert model(X).shape == (30, 3)
    model(X).sum().backward()


def test_batches_that_do_not_fit_are_counted_once():
    class Small(nn.Module):
        def forward(self, x):
            if len(x) > 7:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
            return x

    whole = make_model()
    halved = nn.Sequential(Small(), whole)
    expected = SNGP(whole).fit(LOADER).predict(LOADER)
    got = SNGP(halved).fit(LOADER).predict(LOADER)
    np.testing.assert_allclose(got.logits, expected.logits, atol=1e-5)
    assert int(whole[1].rows) == 30


def test_what_cannot_be_used_is_an_error():
    bounded = spectral_bound(nn.Linear(2, 2))
    for call, says in [
        (lambda: SNGP(make_model()).predict(LOADER), "SNGP has no covariance yet. Call fit(loader)"),
        (lambda: SNGP(nn.Linear(4, 3)), "`model` has 0 layers RandomFeatureGP"),
        (lambda: SNGP(nn.ModuleList([make_model(), make_model()])), "`model` has 2 layers RandomFeatureGP"),
        (lambda: make_model()[1](torch.zeros(2, 5)), "features of shape (2, 5). Pass (batch, 8)"),
        (lambda: SNGP(make_model()).fit([(X, torch.zeros(30, 2))]), "labels of batch 0 have shape (30, 2)"),
        (lambda: RandomFeatureGP(4, 1), "`classes` must be an int ≥ 2"),
        (lambda: RandomFeatureGP(4, 2, length_scale=0), "`length_scale` must be a number above 0"),
        (lambda: RandomFeatureGP(4, 2, ridge=-1), "`ridge` must be a number above 0"),
        (lambda: RandomFeatureGP(4, 2, mean_field=-1), "`mean_field` must be a number ≥ 0"),
        (lambda: spectral_bound(nn.ReLU()), "no linear or convolutional layer"),
        (
            lambda: spectral_bound(make_model()),
            "a RandomFeatureGP, whose weights must stay free. Pass the layers below",
        ),
        (lambda: spectral_bound(bounded), "parametrized already"),
        (lambda: spectral_bound(nn.Linear(2, 2), 0), "`bound` must be a number above 0"),
    ]:
        with pytest.raises(InputError, match=re.escape(says)):
            call()
