"""Models of other packages: a Hugging Face classifier and a Laplace approximation give what they give by themselves."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import nn  # noqa: E402

from uqeval._errors import InputError  # noqa: E402
from uqeval.methods import DeepEnsemble, HuggingFaceModel, LaplaceModel, MCDropout, Softmax  # noqa: E402

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3
LOADER = [(X[:7], Y[:7]), (X[7:], Y[7:])]


# --- transformers


@pytest.fixture(scope="module")
def bert():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=30, num_labels=3, hidden_dropout_prob=0.3, **sizes)
    return transformers.BertForSequenceClassification(config)


def make_texts(rows=10):
    stream = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 30, (rows, 6), generator=stream)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.arange(rows) % 3


def test_a_sequence_classifier_gives_its_own_logits(bert):
    x, y = make_texts()
    with torch.no_grad():
        expected = bert.eval()(**x).logits
    for loader in ([(x, y)], [{**x, "labels": y}]):
        got = Softmax(HuggingFaceModel(bert)).predict(loader)
        np.testing.assert_allclose(got.logits, expected, atol=1e-6)
        np.testing.assert_array_equal(got.labels, y)


def test_a_tokenizers_batch_with_labels_is_a_batch(bert):
    from transformers import BatchEncoding

    x, y = make_texts()
    got = Softmax(HuggingFaceModel(bert)).predict([BatchEncoding({**x, "labels": y})])
    np.testing.assert_allclose(got.logits, Softmax(HuggingFaceModel(bert)).predict([(x, y)]).logits, atol=1e-6)


def test_all_methods_take_it(bert):
    x, y = make_texts()
    model = HuggingFaceModel(bert)
    dropped = MCDropout(model, samples=3).predict([{**x, "labels": y}])
    assert not np.allclose(dropped.members[0], dropped.members[1])
    assert DeepEnsemble([model, model]).predict([(x, y)]).members.shape == (2, 10, 3)


def test_what_is_no_classifier_of_dicts_is_an_error(bert):
    x, y = make_texts()
    headless = HuggingFaceModel(bert.bert)
    for call, says in [
        (lambda: HuggingFaceModel("bert-base"), "`model` is a str"),
        (lambda: Softmax(HuggingFaceModel(bert)).predict([(x["input_ids"], y)]), "got a batch of type Tensor"),
        (lambda: Softmax(headless).predict([(x, y)]), "without logits. Pass a model with a classification head"),
        (lambda: Softmax(HuggingFaceModel(bert)).predict([x]), "batch 0 of `loader` is a dict. Yield pairs"),
    ]:
        with pytest.raises(InputError, match=re.escape(says)):
            call()


# --- laplace-torch


class Laplace:
    """The interface of laplace-torch 0.3 that the adapter uses, of a linear model with one variance for all weights.

    As there, the linear model's Jacobian is taken when it predicts, for which gradients must be on.
    """

    likelihood, n_data, std = "classification", 100, 0.4

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 3)

    def _moments(self, x):
        x = x.clone().requires_grad_()
        logits = self.model(x)
        (slope,) = torch.autograd.grad(logits.sum(), x)  # fails where gradients are off
        assert slope.shape == x.shape
        return logits.detach(), self.std * (x.detach().norm(dim=1, keepdim=True) ** 2 + 1).sqrt()

    def __call__(self, x, pred_type="glm", joint=False, link_approx="probit", n_samples=100):
        assert (pred_type, link_approx) == ("glm", "probit")
        mean, std = self._moments(x)
        return torch.softmax(mean / (1 + torch.pi / 8 * std**2).sqrt(), dim=1)

    def predictive_samples(self, x, pred_type="glm", n_samples=100):
        mean, std = self._moments(x)
        return torch.softmax(mean + std * torch.randn(n_samples, *mean.shape), dim=2)


def test_the_closed_form_and_the_draws_are_those_of_the_approximation():
    laplace = Laplace()
    got = LaplaceModel(laplace, samples=400).predict(LOADER)
    np.testing.assert_allclose(got.probs, laplace(X), atol=1e-6)
    assert got.members.shape == (400, 12, 3)
    mean = laplace.predictive_samples(X, n_samples=4000).mean(dim=0)
    np.testing.assert_allclose(got.members.mean(axis=0), mean, atol=5 * 0.35 / np.sqrt(400))
    np.testing.assert_array_equal(got.labels, Y)


def test_without_a_closed_form_the_probabilities_are_the_mean_of_the_draws():
    for options in ({"link_approx": "mc"}, {"pred_type": "nn"}):
        got = LaplaceModel(Laplace(), samples=5, **options).predict(LOADER)
        np.testing.assert_allclose(got.probs, got.members.mean(axis=0), atol=1e-12)


def test_draws_repeat_by_seed_and_the_random_state_and_the_mode_stay():
    laplace = Laplace()
    before = torch.get_rng_state()
    first = LaplaceModel(laplace, seed=1).predict(LOADER).members
    assert torch.equal(torch.get_rng_state(), before)
    assert laplace.model.training
    np.testing.assert_array_equal(first, LaplaceModel(laplace, seed=1).predict(LOADER).members)
    assert not np.array_equal(first, LaplaceModel(laplace, seed=2).predict(LOADER).members)


def test_what_is_no_fitted_classifier_is_an_error():
    other, unfitted = Laplace(), Laplace()
    other.likelihood, unfitted.n_data = "regression", 0
    for call, says in [
        (lambda: LaplaceModel(nn.Linear(4, 3)), "`laplace` is a Linear. Pass a fitted model of laplace-torch"),
        (lambda: LaplaceModel(SimpleNamespace(model=nn.Linear(4, 3))), "`laplace` is a SimpleNamespace"),
        (lambda: LaplaceModel(other), "the likelihood 'regression'"),
        (lambda: LaplaceModel(unfitted), "`laplace` has seen no data. Call its fit(train_loader)"),
        (lambda: LaplaceModel(Laplace(), pred_type="gp"), "`pred_type` must be one of"),
        (lambda: LaplaceModel(Laplace(), link_approx="logit"), "`link_approx` must be one of"),
        (lambda: LaplaceModel(Laplace()).predict([(X, Y + 1)]), "class indices 0..2"),
        (lambda: LaplaceModel(Laplace()).predict([(X * torch.nan, Y)]), "LaplaceModel: the model's output for batch 0"),
    ]:
        with pytest.raises(InputError, match=re.escape(says)):
            call()


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_laplace_torch_itself_gives_its_closed_forms_and_the_mean_of_its_draws():
    laplace = pytest.importorskip("laplace")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    for weights, structure in (("last_layer", "kron"), ("all", "full"), ("all", "diag")):
        fitted = laplace.Laplace(model, "classification", subset_of_weights=weights, hessian_structure=structure)
        with pytest.raises(InputError, match="`laplace` has seen no data"):
            LaplaceModel(fitted)
        fitted.fit(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=4))
        own = {name: value.clone() for name, value in model.state_dict().items()}
        model.train()
        for link in ("probit", "bridge", "bridge_norm"):
            got = LaplaceModel(fitted, link_approx=link, samples=5).predict(LOADER)
            np.testing.assert_allclose(got.probs, fitted(X, pred_type="glm", link_approx=link).detach(), atol=1e-5)
            assert got.members.shape == (5, 12, 3)
        for kind in ("glm", "nn"):
            got = LaplaceModel(fitted, pred_type=kind, link_approx="mc", samples=400).predict(LOADER)
            draws = fitted.predictive_samples(X, pred_type=kind, n_samples=400).numpy()
            spread = np.hypot(draws.std(axis=0), got.members.std(axis=0)) / np.sqrt(400)
            assert (abs(got.probs - draws.mean(axis=0)) < 6 * spread).all()
            again = LaplaceModel(fitted, pred_type=kind, link_approx="mc", samples=400).predict(LOADER)
            np.testing.assert_array_equal(again.members, got.members)
        assert model.training
        for name, value in model.state_dict().items():
            torch.testing.assert_close(value, own[name])
