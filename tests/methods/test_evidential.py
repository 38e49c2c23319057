"""Evidential networks: the loss is that of hand-computed cases, and the Dirichlet reaches its scores."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import nn  # noqa: E402

from uqeval import scores  # noqa: E402
from uqeval._errors import InputError  # noqa: E402
from uqeval.methods import EvidentialNetwork  # noqa: E402
from uqeval.methods.evidential import kl_to_uniform  # noqa: E402

LOGITS = torch.tensor([[2.0, -1.0]], dtype=torch.float64)  # with relu: alpha (3, 1)


def loss(label, form, kl_weight=0.0):
    network = EvidentialNetwork(nn.Identity(), "relu")
    return float(network.loss(LOGITS, torch.tensor([label]), form=form, kl_weight=kl_weight))


def test_the_loss_equals_hand_computed_cases():
    # p̂ = (¾, ¼), S = 4; the variance of each share is (3/16) / 5.
    assert loss(0, "squared") == pytest.approx(1 / 16 + 1 / 16 + 2 * 3 / 80, abs=1e-12)
    assert loss(1, "squared") == pytest.approx(9 / 16 + 9 / 16 + 2 * 3 / 80, abs=1e-12)
    assert loss(0, "log") == pytest.approx(math.log(4 / 3), abs=1e-12)
    assert loss(1, "log") == pytest.approx(math.log(4), abs=1e-12)
    assert loss(0, "digamma") == pytest.approx(1 / 3, abs=1e-12)  # ψ(4) − ψ(3)
    assert loss(1, "digamma") == pytest.approx(1 + 1 / 2 + 1 / 3, abs=1e-12)  # ψ(4) − ψ(1)


def test_only_evidence_for_wrong_classes_is_penalised():
    for form in ("squared", "log", "digamma"):
        assert loss(0, form, 1.0) == loss(0, form)
        # KL(Dir(3, 1) ‖ Dir(1, 1)) = log(Γ(4) / Γ(3)) + 2 (ψ(3) − ψ(4))
        assert loss(1, form, 0.5) - loss(1, form) == pytest.approx(0.5 * (math.log(3) - 2 / 3), abs=1e-12)


def test_the_penalty_equals_torchs_divergence():
    alpha = 0.2 + 5 * torch.rand(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    dirichlet = torch.distributions.Dirichlet
    expected = torch.distributions.kl_divergence(dirichlet(alpha), dirichlet(torch.ones_like(alpha)))
    torch.testing.assert_close(kl_to_uniform(alpha), expected, rtol=1e-10, atol=1e-12)


def test_the_loss_is_the_mean_over_rows():
    network, z, y = EvidentialNetwork(nn.Identity()), torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    alone = [network.loss(z[k : k + 1], y[k : k + 1]) for k in range(5)]
    assert float(network.loss(z, y)) == pytest.approx(float(torch.stack(alone).mean()), abs=1e-6)


def test_alpha_is_one_more_than_the_evidence():
    z = torch.tensor([[-2.0, 0.0, 3.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    for name, evidence in [("softplus", nn.functional.softplus), ("relu", torch.relu), ("exp", torch.exp)]:
        got = EvidentialNetwork(nn.Identity(), name).predict([(z, torch.tensor([0, 1]))])
        np.testing.assert_allclose(got.alpha, 1 + evidence(z), atol=1e-12)
        np.testing.assert_allclose(got.probs, got.alpha / got.alpha.sum(axis=1, keepdims=True), atol=1e-12)
        np.testing.assert_allclose(scores.compute("vacuity", got), 3 / got.alpha.sum(axis=1), atol=1e-12)
        assert {"dirichlet_entropy", "dirichlet_mutual_information"} <= set(scores.available(got))


def test_what_cannot_be_used_is_an_error():
    network, z = EvidentialNetwork(nn.Identity()), torch.zeros(2, 3)
    for call, says in [
        (lambda: EvidentialNetwork(nn.Identity(), "tanh"), "`evidence` must be one of"),
        (lambda: network.loss(z, torch.tensor([0, 1]), form="mse"), "`form` must be one of"),
        (lambda: network.loss(z, torch.tensor([0, 1]), kl_weight=-1), "`kl_weight` must be a number ≥ 0; it is -1"),
        (lambda: network.loss(z, torch.tensor([0.0, 1.5])), "`labels` hold torch.float32. Pass class indices"),
        (lambda: network.loss(z, torch.tensor([0, 3])), r"`labels` must be class indices 0\.\.2; one is 3"),
        (lambda: network.loss(z, torch.tensor([-1, 0])), r"`labels` must be class indices 0\.\.2; one is -1"),
        (lambda: network.loss(z, np.array([0, 1])), "`labels` is a ndarray. Pass a tensor"),
        (lambda: network.loss(z[:, :1], torch.tensor([0, 0])), r"`logits` have shape \(2, 1\)"),
        (lambda: network.loss(z, torch.tensor([0, 1, 2])), r"`logits` have shape \(2, 3\) and `labels` \(3,\)"),
    ]:
        with pytest.raises(InputError, match=says):
            call()
