"""Bayesian networks: the KL is torch's, draws are those of the weights' distribution, the user's model stays."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import nn  # noqa: E402
from torch.distributions import Normal, kl_divergence  # noqa: E402

from uqeval._errors import InputError  # noqa: E402
from uqeval.methods import BayesianNetwork, Softmax  # noqa: E402
from uqeval.methods.bayesian import GaussianWeight  # noqa: E402

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3
LOADER = [(X[:7], Y[:7]), (X[7:], Y[7:])]


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def make_bayesian(**options):
    return BayesianNetwork.from_model(make_net(), **{"samples": 4, "std": 0.3} | options)


def weights_of(model):
    """(mean, ρ) of every Gaussian weight."""
    lists = [module for module in model.modules() if isinstance(module, nn.utils.parametrize.ParametrizationList)]
    return [(weights.original, weights[0].rho) for weights in lists]


def test_the_kl_equals_torchs():
    bayesian = make_bayesian(prior_std=0.7)
    for _, rho in weights_of(bayesian.model):
        nn.init.normal_(rho)
    expected = sum(
        kl_divergence(Normal(mean, nn.functional.softplus(rho)), Normal(0.0, 0.7)).sum()
        for mean, rho in weights_of(bayesian.model)
    )
    torch.testing.assert_close(bayesian.kl(), expected, rtol=1e-5, atol=0)
    at_prior = BayesianNetwork.from_model(nn.Linear(2, 2), prior_std=0.7, std=0.7)
    for mean, _ in weights_of(at_prior.model):
        nn.init.zeros_(mean)
    assert at_prior.kl().item() == pytest.approx(0, abs=1e-6)


def test_the_loss_is_the_cross_entropy_and_the_kl_shared_by_all_rows():
    bayesian, z = make_bayesian(), torch.randn(5, 3)
    expected = nn.functional.cross_entropy(z, Y[:5]) + 0.5 * bayesian.kl() / 1000
    torch.testing.assert_close(bayesian.loss(z, Y[:5], rows=1000, kl_weight=0.5), expected)


def test_draws_have_the_mean_and_the_spread_of_the_weights():
    net = nn.Linear(2, 2)
    bayesian = BayesianNetwork.from_model(net, std=0.3, samples=4000)
    x = torch.tensor([[2.0, -1.0], [0.0, 0.0]])
    drawn = bayesian.predict([(x, torch.tensor([0, 1]))]).member_logits[:, 0]
    spread = 0.3 * np.sqrt(2.0**2 + 1 + 1)  # two weights and the bias
    with torch.no_grad():
        # 4000 draws: five standard errors of a mean and of a standard deviation
        np.testing.assert_allclose(drawn.mean(axis=0), net(x)[0], atol=5 * spread / np.sqrt(4000))
    np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=5 / np.sqrt(8000))


def test_a_draw_is_one_network_whatever_the_batches():
    bayesian = make_bayesian()
    parts, whole = bayesian.predict(LOADER), bayesian.predict([(X, Y)])
    np.testing.assert_allclose(parts.member_logits, whole.member_logits, atol=1e-5)
    assert not np.allclose(whole.member_logits[0], whole.member_logits[1])


def test_one_seed_gives_one_set_of_draws_and_the_random_state_stays():
    first = make_bayesian().predict(LOADER).member_logits
    torch.manual_seed(3)
    before = torch.get_rng_state()
    more = make_bayesian(samples=6).predict(LOADER).member_logits
    np.testing.assert_array_equal(first, more[:4])
    bayesian = make_bayesian()
    torch.set_rng_state(before)
    bayesian.predict(LOADER)
    assert torch.equal(torch.get_rng_state(), before)


def test_in_eval_mode_it_is_the_network_of_the_means_and_in_train_mode_every_pass_differs():
    net, bayesian = make_net(), make_bayesian()
    np.testing.assert_array_equal(Softmax(bayesian.model).predict(LOADER).logits, Softmax(net).predict(LOADER).logits)
    bayesian.predict(LOADER)
    np.testing.assert_array_equal(Softmax(bayesian.model).predict(LOADER).logits, Softmax(net).predict(LOADER).logits)
    bayesian.model.train()
    assert not torch.equal(bayesian.model(X), bayesian.model(X))


def test_from_model_leaves_the_model_its_mode_and_the_random_state():
    net = make_net()
    net[1].eval()
    former, before = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    bayesian = BayesianNetwork.from_model(net)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, former[name]) for name, value in net.state_dict().items())
    assert bayesian.model.training
    assert not bayesian.model[1].training


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)  # convolutions: see one_thread
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_threads")
def test_all_convolutional_layers_are_converted_with_and_without_bias():
    x = torch.randn(2, 2, 5, 5, 5)
    for make, shape in [
        (nn.Conv1d, (2, 2, 5)),
        (nn.Conv2d, (2, 2, 5, 5)),
        (nn.Conv3d, (2, 2, 5, 5, 5)),
        (nn.ConvTranspose1d, (2, 2, 5)),
        (nn.ConvTranspose2d, (2, 2, 5, 5)),
        (nn.ConvTranspose3d, (2, 2, 5, 5, 5)),
    ]:
        for bias in (True, False):
            model = BayesianNetwork.from_model(make(2, 3, kernel_size=2, bias=bias)).model
            gaussians = [part for part in model.modules() if isinstance(part, GaussianWeight)]
            assert len(gaussians) == 1 + bias
            part = x.reshape(-1)[: int(np.prod(shape))].reshape(shape)
            model(part).sum().backward()
            assert all(parameter.grad is not None for parameter in model.parameters())


def test_training_lowers_the_loss():
    x = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    bayesian = BayesianNetwork.from_model(nn.Linear(1, 2), std=0.5)
    optimizer = torch.optim.Adam(bayesian.model.parameters(), lr=0.05)
    torch.manual_seed(0)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = bayesian.loss(bayesian.model(x), y, rows=200)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:10])


def test_a_file_of_weights_brings_the_distribution_back():
    bayesian, other = make_bayesian(), BayesianNetwork.from_model(make_net(), samples=4)
    other.model.load_state_dict(bayesian.model.state_dict())
    np.testing.assert_array_equal(other.predict(LOADER).members, bayesian.predict(LOADER).members)


def test_a_failure_leaves_no_draw_behind():
    bayesian = make_bayesian()
    with pytest.raises(InputError, match="NaN"):
        bayesian.predict([(X * torch.nan, Y)])
    assert all(part.held is None for part in bayesian.model.modules() if isinstance(part, GaussianWeight))
    assert bayesian.model.training


def test_the_loss_of_held_out_rows_may_be_asked_for_in_eval_mode():
    bayesian = make_bayesian()
    bayesian.model.eval()
    with torch.no_grad():
        assert bayesian.loss(bayesian.model(X), Y, rows=12).isfinite()


def test_what_cannot_be_used_is_an_error():
    resting = make_bayesian()
    resting.model.eval()
    for call, says in [
        (lambda: BayesianNetwork(make_net()), "no Gaussian weights. Use BayesianNetwork.from_model"),
        (lambda: BayesianNetwork.from_model(nn.ReLU()), "no Gaussian weights"),
        (lambda: BayesianNetwork.from_model(make_bayesian().model), "Linear that is parametrized already"),
        (lambda: BayesianNetwork.from_model(make_net(), prior_std=0), "`prior_std` must be a number above 0; it is 0"),
        (lambda: BayesianNetwork.from_model(make_net(), std=-1.0), "`std` must be a number above 0"),
        (lambda: make_bayesian().loss(X, Y, rows=0), "`rows` must be an int ≥ 1"),
        (lambda: make_bayesian().loss(X, Y, rows=1, kl_weight=-1), "`kl_weight` must be a number ≥ 0"),
        (lambda: BayesianNetwork.from_model("net"), "`model` is a str"),
        (lambda: resting.loss(resting.model(X), Y, rows=12), "`model` is in eval mode, where weights are not drawn"),
    ]:
        with pytest.raises(InputError, match=says):
            call()
