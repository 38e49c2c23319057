"""SWAG: moments and draws are those of the collected weights, batch-norm belongs to each draw, the model stays."""

from __future__ import annotations

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import nn  # noqa: E402

from uqeval._errors import InputError  # noqa: E402
from uqeval.methods import SWAG  # noqa: E402

X = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(30) % 3
ONES = [(torch.ones(2, 1), torch.tensor([0, 1]))]  # of a layer without bias: the weights themselves
LOADER = [(X[:16], Y[:16]), (X[16:], Y[16:])]


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def collected(model, times=5, **options):
    """After some steps with noise."""
    swag, stream = SWAG(model, **options), torch.Generator().manual_seed(1)
    for _ in range(times):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=stream)
        swag.collect()
    return swag


def test_draws_have_the_mean_and_the_covariance_that_the_paper_gives():
    model = nn.Linear(1, 2, bias=False)
    swag, path = SWAG(model, rank=3, samples=2000), np.random.default_rng(0).normal(size=(7, 2)) + 3
    for weights in path:
        with torch.no_grad():
            model.weight.copy_(torch.tensor(weights)[:, None])
        swag.collect()
    drawn = swag.predict(ONES).member_logits[:, 0]
    means = np.cumsum(path, axis=0) / np.arange(1, 8)[:, None]
    deviations = (path - means)[-3:]
    covariance = np.diag(path.var(axis=0)) / 2 + deviations.T @ deviations / (2 * (3 - 1))
    # 2000 draws: five standard errors
    np.testing.assert_allclose(drawn.mean(axis=0), path.mean(axis=0), atol=5 * np.sqrt(covariance.max() / 2000))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=5 * np.sqrt(2 / 2000) * covariance.max())


def test_weights_far_from_zero_lose_no_variance_to_rounding():
    model = nn.Linear(1, 2, bias=False)
    swag, path = SWAG(model), 1e3 + np.arange(4) / 128  # its squares need 30 bits, float32 has 24
    for weight in path:
        nn.init.constant_(model.weight, weight)
        swag.collect()
    drawn = swag.predict(ONES).member_logits
    assert 0.001 < drawn.std() < 0.05


def test_statistics_of_batch_norm_are_those_of_each_draw():
    net = make_net()
    nn.init.constant_(net[1].running_mean, 5.0)  # of other weights
    swag = SWAG(net, samples=2)
    swag.collect()
    swag.collect()  # the same weights twice: every draw is these weights
    got = swag.predict(LOADER, train=[(X, Y)])
    net.eval()
    with torch.no_grad():
        hidden = net[0](X)
        scaled = (hidden - hidden.mean(dim=0)) / (hidden.var(dim=0) + net[1].eps).sqrt()
        expected = net[4](torch.relu(net[1].weight * scaled + net[1].bias))
    np.testing.assert_allclose(got.member_logits[0], expected, atol=1e-5)
    np.testing.assert_allclose(got.member_logits[1], expected, atol=1e-5)


def test_the_models_weights_statistics_modes_and_momenta_come_back_also_after_a_failure():
    net = make_net()
    swag = collected(net, samples=2)
    net[3].eval()
    former = {name: value.clone() for name, value in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    swag.predict(LOADER, train=LOADER)
    with pytest.raises(InputError, match="NaN"):
        swag.predict([(X * torch.nan, Y)], train=LOADER)
    with pytest.raises(InputError, match=re.escape("SWAG: the model's output for batch 0")):
        swag.predict(LOADER, train=[(X * torch.nan, Y)])
    assert all(torch.equal(value, former[name]) for name, value in net.state_dict().items())
    assert [module.training for module in net.modules()] == modes
    assert net[1].momentum == 0.1
    net.train()(X).sum().backward()
    assert net[0].weight.grad is not None


def test_one_seed_gives_one_set_of_draws_and_the_random_state_stays():
    swag = collected(make_net(), samples=3, seed=5)
    before = torch.get_rng_state()
    first = swag.predict(LOADER, train=LOADER).member_logits
    assert torch.equal(torch.get_rng_state(), before)
    more = collected(make_net(), samples=5, seed=5).predict(LOADER, train=LOADER).member_logits
    np.testing.assert_array_equal(first, more[:3])
    assert not np.allclose(first[0], first[1])


def test_the_training_data_may_come_in_any_order():
    swag = collected(make_net(), samples=2)
    whole = swag.predict(LOADER, train=[(X, Y)])
    turned = swag.predict(LOADER, train=[(X.flip(0), Y.flip(0))])
    np.testing.assert_allclose(whole.member_logits, turned.member_logits, atol=1e-4)


def test_what_cannot_be_used_is_an_error():
    once = SWAG(make_net())
    once.collect()
    broken = nn.Linear(2, 2)
    nn.init.constant_(broken.weight, torch.nan)
    for call, says in [
        (lambda: once.predict(LOADER, train=LOADER), "SWAG has collected weights 1 times. Call collect()"),
        (lambda: collected(make_net()).predict(LOADER), "`model` has batch-norm.*Pass train="),
        (lambda: collected(make_net()).predict(LOADER, train=[]), "`train` gave no rows"),
        (lambda: SWAG(broken).collect(), "NaN or infinity. Lower the learning rate"),
        (lambda: SWAG(make_net(), rank=1), "`rank` must be an int ≥ 2"),
        (lambda: SWAG(nn.ReLU()), "`model` has no parameters"),
    ]:
        with pytest.raises(InputError, match=says.replace("()", r"\(\)")):
            call()
