"""Many networks at once come out as if each had been trained alone."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.usefixtures("one_thread")

from uqeval._errors import InputError  # noqa: E402
from uqeval.datasets import synthetic  # noqa: E402
from uqeval.methods import batched  # noqa: E402
from uqeval.methods.batched import Bank, Net, train  # noqa: E402

DATA = synthetic(400, classes=3, seed=3)
X, Y = DATA.x[DATA.train].astype(np.float32), DATA.labels[DATA.train]
NEW = DATA.x[DATA.test].astype(np.float32)
NETS = [
    Net(0, (16, 8), 0.01),
    Net(1, (16, 8), 0.05),
    Net(2, (16, 8), 0.01, 0.3),
    Net(3, (16, 8), 0.02, 0.5),
    Net(4, (12,), 0.01),
    Net(5, (12,), 0.01, 0.1),
    Net(6, (), 0.05),
]
HOW = {"classes": 3, "epochs": 8, "batch_size": 100}


def alone(net, samples=0):
    """The same network by torch's own layers, optimiser and autograd; its logits, or those of stochastic passes."""
    layers = []
    for weight, bias in batched.initial_layers(net, 2, 3):
        layer = torch.nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = weight.T.clone(), bias.clone()
        layers.append(layer)

    def forward(x, stream):
        drawn = [torch.rand((len(x), width), generator=stream) for width in net.hidden] if stream else None
        for k, layer in enumerate(layers[:-1]):
            x = layer(x).relu()
            if drawn:
                x = x * (drawn[k] < 1 - net.dropout) / (1 - net.dropout)
        return layers[-1](x)

    optimiser = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=net.lr)
    order, dropout = batched.order_stream(net), batched.dropout_stream(net) if net.dropout else None
    rows, labels = torch.as_tensor(X), torch.as_tensor(Y)
    for _ in range(HOW["epochs"]):
        shuffled = torch.randperm(len(rows), generator=order)
        for batch in shuffled.split(HOW["batch_size"]):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(forward(rows[batch], dropout), labels[batch]).backward()
            optimiser.step()
    with torch.no_grad():
        if not samples:
            return forward(torch.as_tensor(NEW), None).numpy()
        stream = batched.dropout_stream(net, passes=True)
        return torch.stack([forward(torch.as_tensor(NEW), stream) for _ in range(samples)]).numpy()


@pytest.fixture(scope="module")
def bank():
    return train(NETS, X, Y, **HOW)


def test_a_network_of_the_batch_equals_the_same_network_trained_alone(bank):
    together = bank.logits(NEW)
    for k, net in enumerate(NETS):
        np.testing.assert_allclose(together[k], alone(net), rtol=1e-4, atol=1e-4)


def test_stochastic_passes_equal_those_of_the_network_alone(bank):
    for k in [k for k, net in enumerate(NETS) if net.dropout]:
        np.testing.assert_allclose(bank.passes(k, NEW, 3), alone(NETS[k], samples=3), rtol=1e-4, atol=1e-4)


def test_fewer_passes_are_the_first_of_more(bank):
    np.testing.assert_array_equal(bank.passes(2, NEW, 5), bank.passes(2, NEW, 40)[:5])


def test_passes_differ_from_each_other_and_not_between_calls(bank):
    first = bank.passes(2, NEW, 4)
    assert np.abs(np.diff(first, axis=0)).max() > 0
    np.testing.assert_array_equal(first, bank.passes(2, NEW, 4))


def test_what_else_is_trained_does_not_matter(bank):
    some = train([NETS[5], NETS[1]], X, Y, **HOW)
    np.testing.assert_allclose(some.logits(NEW), bank.logits(NEW)[[5, 1]], rtol=1e-5, atol=1e-5)


def test_the_same_networks_give_the_same_bits(bank):
    np.testing.assert_array_equal(train(NETS, X, Y, **HOW).logits(NEW), bank.logits(NEW))


def test_streams_of_neighbouring_seeds_and_purposes_differ():
    streams = [f(Net(seed, (4,), 0.1)) for seed in range(50) for f in (batched.order_stream, batched.dropout_stream)]
    drawn = {float(torch.rand(1, generator=stream, dtype=torch.float64)) for stream in streams}
    assert len(drawn) == 100


def test_training_goes_on_where_it_was(bank):
    parts = Bank(NETS, 2, 3)
    for epochs in (3, 5):
        parts.train(X, Y, epochs=epochs, batch_size=100)
    np.testing.assert_array_equal(parts.logits(NEW), bank.logits(NEW))


def test_a_network_as_torchs_layers_says_the_same_and_follows_the_training():
    bank = Bank(NETS, 2, 3)
    state = torch.get_rng_state()
    modules = [bank.module(k).eval() for k in range(len(NETS))]
    assert torch.equal(torch.get_rng_state(), state)
    rows = torch.as_tensor(NEW)
    for _ in range(2):
        for module, own in zip(modules, bank.logits(NEW), strict=True):
            np.testing.assert_allclose(module(rows).detach().numpy(), own, rtol=1e-5, atol=1e-5)
        bank.train(X, Y, epochs=1, batch_size=100)
    assert [m.p for m in modules[3] if isinstance(m, torch.nn.Dropout)] == [0.5, 0.5]


def test_any_loss_can_be_learnt_and_is_told_the_epoch(bank):
    epochs = []

    def cross_entropy(logits, labels, epoch):
        epochs.append(epoch)
        return torch.nn.functional.cross_entropy(logits, labels)

    found = train(NETS, X, Y, **HOW, loss=cross_entropy)
    np.testing.assert_allclose(found.logits(NEW), bank.logits(NEW), rtol=1e-3, atol=1e-3)
    assert set(epochs) == set(range(HOW["epochs"]))


def test_adam_takes_torchs_steps():
    own, theirs = (torch.nn.Linear(3, 2) for _ in range(2))
    theirs.load_state_dict(own.state_dict())
    adam, optimiser = batched.Adam(list(own.parameters()), 0.05), torch.optim.Adam(theirs.parameters(), lr=0.05)
    for k in range(20):
        x = torch.full((4, 3), k / 10)
        adam.step(torch.autograd.grad(own(x).square().sum(), list(own.parameters())))
        optimiser.zero_grad()
        theirs(x).square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(own.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-6)


def test_networks_learn(bank):
    accuracy = (bank.logits(X).argmax(axis=2) == Y).mean(axis=1)
    bayes = (DATA.bayes_labels(X) == Y).mean()
    assert (accuracy > bayes - 0.1).all()


def test_progress_counts_to_the_end():
    seen = []
    train(
        NETS[:1],
        X,
        Y,
        classes=3,
        epochs=3,
        batch_size=50,
        progress=lambda stage, done, total: seen.append((done, total)),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_no_network_is_refused():
    with pytest.raises(InputError, match="nets"):
        train([], X, Y)


def test_the_features_are_what_the_last_layer_takes(bank):
    for k, net in enumerate(NETS):
        features = bank.features(k, NEW)
        assert features.shape == (len(NEW), *net.hidden[-1:]) if net.hidden else (features == NEW).all()
        line = np.column_stack([np.ones(len(NEW)), features])
        logits = bank.logits(NEW)[k]
        left = logits - line @ np.linalg.lstsq(line, logits, rcond=None)[0]
        assert np.abs(left).max() < 1e-4 * np.abs(logits).max()  # float32
