"""Methods: they compute what a plain torch loop computes, and leave model, device and random state as they were."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from uqeval._errors import InputError, UQWarning  # noqa: E402
from uqeval.methods import (  # noqa: E402
    SWAG,
    BayesianNetwork,
    DeepEnsemble,
    EvidentialNetwork,
    MCDropout,
    Softmax,
    TemperatureScaling,
    TestTimeAugmentation,
    loop,
)
from uqeval.scores import mutual_information  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
ROWS, FEATURES, CLASSES = 23, 4, 3


def make_rows(rows=ROWS, classes=CLASSES, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(rows, FEATURES, generator=rng), torch.randint(classes, (rows,), generator=rng)


def make_loader(batch_size=5, *, shuffle=False, rows=ROWS, **options):
    return DataLoader(TensorDataset(*make_rows(rows)), batch_size=batch_size, shuffle=shuffle, **options)


def make_net(seed=0, dropout=0.5, classes=CLASSES):
    torch.manual_seed(seed)
    layers = [nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, classes)]
    net = nn.Sequential(*layers)
    net(torch.randn(64, FEATURES))  # batch-norm statistics that differ from those of any test batch
    return net


def make_learned(net, rows=100):
    """A loader whose labels the net mostly knows."""
    x, y = make_rows(rows)
    net.eval()
    with torch.no_grad():
        y[: 2 * rows // 3] = net(x).argmax(dim=1)[: 2 * rows // 3]
    net.train()
    return DataLoader(TensorDataset(x, y), batch_size=16)


def modes(model):
    return [module.training for module in model.modules()]


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_state(model, former):
    return all(torch.equal(value, former[name]) for name, value in model.state_dict().items())


class Recorder(nn.Module):
    """Notes which modules of the net are in train mode whenever it runs."""

    def __init__(self, net):
        super().__init__()
        self.net, self.seen = net, []

    def forward(self, x):
        self.seen.append([type(module).__name__ for module in self.modules() if module.training])
        return self.net(x)


class Fails(nn.Module):
    """Raises at the given call; counts calls."""

    def __init__(self, at, error):
        super().__init__()
        self.at, self.error, self.calls = at, error, 0
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(FEATURES, CLASSES)
        self.drop.eval()  # modes that differ inside the model must come back too

    def forward(self, x):
        self.calls += 1
        if self.calls > self.at:
            raise self.error
        return self.head(self.drop(x))


class Returns(nn.Module):
    """Turns the logits of a linear layer into something else."""

    def __init__(self, change):
        super().__init__()
        self.change, self.head, self.drop = change, nn.Linear(FEATURES, CLASSES), nn.Dropout(0.5)

    def forward(self, x):
        return self.change(self.head(self.drop(x)))


class CollectedSWAG(SWAG):
    def __init__(self, model, **options):
        super().__init__(model, **options)
        self.collect()
        self.collect()

    def predict(self, loader, **options):
        return super().predict(loader, train=make_loader(), **options)


METHODS = {
    "Softmax": Softmax,
    "DeepEnsemble": lambda model, **options: DeepEnsemble([model, model], **options),
    "MCDropout": lambda model, **options: MCDropout(model, samples=2, **options),
    "TemperatureScaling": lambda model, **options: TemperatureScaling(model, **options),
    "TestTimeAugmentation": lambda model, **options: TestTimeAugmentation(model, [lambda x: x] * 2, **options),
    "EvidentialNetwork": EvidentialNetwork,
    "BayesianNetwork": lambda model, **options: BayesianNetwork.from_model(model, samples=2, **options),
    "SWAG": lambda model, **options: CollectedSWAG(model, samples=2, **options),
}


def run(name, model, loader, **options):
    """predict, or fit where that is what meets the loader first."""
    method = METHODS[name](model)
    return (method.fit if name == "TemperatureScaling" else method.predict)(loader, **options)


def test_softmax_equals_a_plain_loop():
    net, loader = make_net(), make_loader()
    got = Softmax(net).predict(loader)
    net.eval()
    with torch.no_grad():
        logits = torch.cat([net(x) for x, _ in loader])
    np.testing.assert_array_equal(got.logits, logits.double().numpy())
    np.testing.assert_allclose(got.probs, torch.softmax(logits.double(), dim=1), atol=1e-15)
    np.testing.assert_array_equal(got.labels, make_rows()[1])
    assert got.members is None


def test_ensemble_equals_a_plain_loop():
    nets, loader = [make_net(seed) for seed in range(3)], make_loader()
    got = DeepEnsemble(nets).predict(loader)
    x, y = make_rows()
    with torch.no_grad():
        logits = torch.stack([net.eval()(x) for net in nets]).double()
    np.testing.assert_allclose(got.member_logits, logits, atol=1e-6)
    np.testing.assert_allclose(got.probs, torch.softmax(logits, dim=2).mean(dim=0), atol=1e-6)
    np.testing.assert_array_equal(got.labels, y)
    assert got.logits is None


def test_mc_dropout_equals_a_plain_loop_from_the_same_seeds():
    net, loader = make_net(), make_loader()
    method = MCDropout(net, samples=4, seed=7)
    got = method.predict(loader)
    net.eval()
    net[3].train()
    batches = list(loader)
    expected = []
    for seed in method._seeds:
        torch.manual_seed(seed)
        with torch.no_grad():
            expected.append(torch.cat([net(x) for x, _ in batches]))
    np.testing.assert_array_equal(got.member_logits, torch.stack(expected).double())
    np.testing.assert_allclose(got.probs, torch.softmax(torch.stack(expected).double(), 2).mean(0), atol=1e-15)


def test_double_precision_is_kept_and_half_precision_read():
    net = make_net().double().eval()
    x, y = make_rows()
    got = Softmax(net).predict([(x.double(), y)])
    with torch.no_grad():
        np.testing.assert_array_equal(got.logits, net(x.double()))
    half = Softmax(Returns(lambda z: z.bfloat16())).predict([(x, y)])
    assert half.logits.dtype == np.float64


def test_logits_are_copied_out_of_a_buffer_that_the_model_reuses():
    buffer = torch.zeros(5, CLASSES, dtype=torch.float64)

    class Reuses(nn.Module):
        def forward(self, x):
            return buffer.copy_(x[:, :CLASSES])

    x, y = make_rows(10)
    got = Softmax(Reuses()).predict([(x[:5], y[:5]), (x[5:], y[5:])])
    np.testing.assert_array_equal(got.logits, x[:, :CLASSES].double())


# --- deep ensembles


def test_copies_of_one_model_have_no_mutual_information():
    for count in [1, 2, 3, 5, 7]:
        got = DeepEnsemble([make_net()] * count).predict(make_loader())
        assert mutual_information(got.members).max() <= 1e-12
        assert mutual_information(got.members).min() >= 0


def make_fit(x, y):
    def fit(model, seed):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            rows = torch.randperm(len(x))[:16]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()

    return fit


def train(members=3, seed=0):
    return DeepEnsemble.train(
        lambda seed: nn.Linear(FEATURES, CLASSES), make_fit(*make_rows(64)), members=members, seed=seed
    )


def weights(ensemble):
    return [model.weight.detach().numpy() for model in ensemble.models]


def test_training_an_ensemble_equals_training_its_members_one_by_one():
    seeds = []

    def factory(seed):
        seeds.append(seed)
        return nn.Linear(FEATURES, CLASSES)

    fit = make_fit(*make_rows(64))
    ensemble = DeepEnsemble.train(factory, fit, members=3)
    for seed, model in zip(list(seeds), ensemble.models, strict=True):
        torch.manual_seed(seed)
        alone = factory(seed)
        fit(alone, seed)
        assert torch.equal(alone.weight, model.weight)
    assert len(set(seeds)) == 3


def test_one_seed_gives_one_ensemble_and_more_members_keep_the_first():
    first, again, more, other = weights(train()), weights(train()), weights(train(5)), weights(train(seed=1))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, more[:3])
    for i, a in enumerate(more):
        assert not any(np.array_equal(a, b) for b in more[:i])
        assert not any(np.array_equal(a, b) for b in other)


def test_training_leaves_the_global_random_state_also_when_it_fails():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    train()
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ZeroDivisionError):
        DeepEnsemble.train(lambda seed: nn.Linear(2, 2), lambda model, seed: 1 / 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_training_takes_a_numpy_generator():
    assert len(train(members=2, seed=np.random.default_rng(5)).models) == 2


def test_a_factory_that_returns_no_new_model_is_an_error():
    model = nn.Linear(2, 2)
    with pytest.raises(InputError, match="same model twice"):
        DeepEnsemble.train(lambda seed: model, lambda model, seed: None)
    with pytest.raises(InputError, match=re.escape("`factory(seed)` is None")):
        DeepEnsemble.train(lambda seed: None, lambda model, seed: None)
    with pytest.raises(InputError, match="`members` must be an int ≥ 1; it is 0"):
        DeepEnsemble.train(lambda seed: model, lambda model, seed: None, members=0)


def test_models_that_are_no_ensemble_are_an_error():
    for models, says in [
        (nn.Sequential(nn.Linear(2, 2)), "`models` is a Sequential. Pass a list of models."),
        (3, "`models` is an int"),
        ([], "`models` is empty"),
        ([nn.Linear(2, 2), "net"], "`models[1]` is a str"),
    ]:
        with pytest.raises(InputError, match=re.escape(says)):
            DeepEnsemble(models)


def test_a_module_list_is_an_ensemble():
    models = nn.ModuleList([make_net(0), make_net(1)])
    assert len(DeepEnsemble(models).predict(make_loader()).members) == 2


def test_members_with_other_classes_are_an_error():
    with pytest.raises(
        InputError, match="DeepEnsemble: the model's output for batch 0 in pass 1 has 2 classes, pass 0"
    ):
        DeepEnsemble([make_net(), make_net(classes=2)]).predict(make_loader())


# --- MC dropout


def test_passes_differ_but_runs_with_one_seed_do_not():
    net, loader = make_net(), make_loader()
    method = MCDropout(net, samples=6, seed=1)
    first = method.predict(loader).member_logits
    for i in range(6):
        assert not any(np.array_equal(first[i], first[j]) for j in range(i))
    torch.manual_seed(99)
    np.testing.assert_array_equal(method.predict(loader).member_logits, first)
    np.testing.assert_array_equal(MCDropout(net, samples=6, seed=1).predict(loader).member_logits, first)
    np.testing.assert_array_equal(MCDropout(net, samples=9, seed=1).predict(loader).member_logits[:6], first)
    other = MCDropout(net, samples=6, seed=2).predict(loader).member_logits
    assert not any(np.array_equal(a, b) for a in first for b in other)


def test_a_numpy_generator_seeds_once():
    method = MCDropout(make_net(), samples=3, seed=np.random.default_rng(1))
    first = method.predict(make_loader()).member_logits
    np.testing.assert_array_equal(method.predict(make_loader()).member_logits, first)
    same = MCDropout(make_net(), samples=3, seed=1).predict(make_loader()).member_logits
    np.testing.assert_array_equal(same, first)


def test_masks_do_not_depend_on_what_the_loader_draws():
    method, loader = MCDropout(make_net(), samples=3), make_loader()
    np.testing.assert_array_equal(  # a DataLoader draws a number per pass, a list does not
        method.predict(loader).member_logits, method.predict(list(loader)).member_logits
    )


def test_only_dropout_is_switched_on_whatever_the_batches():
    for batch_size in [1, 5, ROWS]:
        recorder = Recorder(make_net())
        former = state(recorder)
        MCDropout(recorder, samples=2).predict(make_loader(batch_size))
        assert recorder.seen
        assert all(names == ["Dropout"] for names in recorder.seen)
        assert same_state(recorder, former)  # batch-norm's running statistics and its batch counter among them


def test_every_kind_of_dropout_layer_is_switched_on():
    for layer in [nn.Dropout1d(), nn.Dropout2d(), nn.Dropout3d(), nn.AlphaDropout(), nn.FeatureAlphaDropout()]:

        class Net(nn.Module):
            def __init__(self, layer):
                super().__init__()
                self.layer, self.head = layer, nn.Linear(FEATURES, CLASSES)

            def forward(self, x):
                cube = x[:, :, None, None, None]
                shape = {nn.Dropout1d: (ROWS, FEATURES, 1), nn.Dropout2d: (ROWS, FEATURES, 1, 1)}
                return self.head(
                    self.layer(cube.reshape(shape.get(type(self.layer), cube.shape))).reshape(ROWS, FEATURES)
                )

        got = MCDropout(Net(layer), samples=3).predict(make_loader(ROWS))
        assert not np.array_equal(got.members[0], got.members[1])


def test_dropout_inside_a_fused_transformer_layer_is_switched_on():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(FEATURES, 2, 8, dropout=0.5, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.head = nn.Linear(FEATURES, CLASSES)

        def forward(self, x):
            return self.head(self.encoder(x[:, None, :])[:, 0])

    got = MCDropout(Net(), samples=3).predict(make_loader())
    assert not np.array_equal(got.members[0], got.members[1])
    assert torch.backends.mha.get_fastpath_enabled()


def test_an_old_torch_says_that_it_cannot_switch_a_transformer(monkeypatch):
    net = make_net()
    monkeypatch.setattr(torch.backends, "mha", None)
    assert MCDropout(net, samples=2).predict(make_loader()).n == ROWS
    with pytest.raises(InputError, match=r"torch >= 2\.3"):
        MCDropout(nn.TransformerEncoderLayer(4, 2, 8), samples=2).predict(make_loader())


def test_mc_dropout_leaves_the_global_random_state_also_when_it_fails():
    torch.manual_seed(3)
    net, loader = make_net(), make_loader()
    before = torch.get_rng_state()
    MCDropout(net, samples=3).predict(loader)
    assert torch.equal(torch.get_rng_state(), before)
    model = Fails(2, KeyboardInterrupt())
    before = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        MCDropout(model, samples=3).predict(loader)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_without_dropout_is_an_error():
    with pytest.raises(InputError, match="no dropout layer"):
        MCDropout(nn.Linear(2, 2))
    with pytest.raises(InputError, match="p = 0 only"):
        MCDropout(make_net(dropout=0.0))
    net = make_net()
    method = MCDropout(net)
    net[3] = nn.Identity()
    with pytest.raises(InputError, match="no dropout layer"):
        method.predict(make_loader())


def test_dropout_that_does_nothing_is_told():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused, self.head = nn.Dropout(0.5), nn.Linear(FEATURES, CLASSES)

        def forward(self, x):
            return self.head(nn.functional.dropout(x, 0.5, training=self.training))

    with pytest.warns(UQWarning, match=r"all passes are equal.*F\.dropout"):
        MCDropout(Net(), samples=2).predict(make_loader())


def test_samples_must_be_a_count():
    for samples in [0, -1, 2.0, True]:
        with pytest.raises(InputError, match="`samples` must be an int ≥ 1"):
            MCDropout(make_net(), samples=samples)


def test_a_seed_must_be_an_int_or_a_generator():
    with pytest.raises(InputError, match="`seed` must be"):
        MCDropout(make_net(), seed="x")


# --- temperature scaling


def nll_slope(logits, labels, temperature):
    t = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)
    nn.functional.cross_entropy(torch.as_tensor(logits) / t, torch.as_tensor(labels)).backward()
    return float(t.grad)


def draw_calibrated(rows, classes, seed, sharpness=2.0):
    """Logits, and labels drawn from their softmax."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, sharpness, (rows, classes))
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def test_a_temperature_for_a_model_that_ends_in_softmax_is_doubted():
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=40)
    with pytest.warns(UQWarning, match="look like probabilities.*softmax is taken twice"):
        TemperatureScaling.from_logits(p, p.argmax(axis=1) * (np.arange(40) % 4 > 0))


def test_the_log_loss_is_flat_at_the_temperature_and_higher_beside_it():
    for rows, classes in [(30, 2), (500, 3), (2000, 10)]:
        for seed in range(4):
            logits, labels = draw_calibrated(rows, classes, seed)
            t = TemperatureScaling.from_logits(3 * logits, labels).temperature
            assert abs(nll_slope(3 * logits, labels, t)) < 1e-12
            tried = (torch.as_tensor(3 * logits / value) for value in (t, 0.9 * t, 1.1 * t))
            at, *beside = (float(nn.functional.cross_entropy(x, torch.as_tensor(labels))) for x in tried)
            assert at < min(beside)


def test_calibrated_logits_have_temperature_one():
    t = TemperatureScaling.from_logits(*draw_calibrated(100_000, 5, 0)).temperature
    assert t == pytest.approx(1, abs=0.02)


def test_the_temperature_scales_with_the_logits():
    for factor in [1e-9, 0.1, 3.0, 1e9]:
        logits, labels = draw_calibrated(400, 4, 1)
        t = TemperatureScaling.from_logits(logits, labels).temperature
        scaled = TemperatureScaling.from_logits(factor * logits, labels).temperature
        assert scaled == pytest.approx(factor * t, rel=1e-10)


def test_shifted_rows_and_row_blocks_change_nothing(monkeypatch):
    logits, labels = draw_calibrated(400, 4, 1)
    t = TemperatureScaling.from_logits(logits, labels).temperature
    shifted = TemperatureScaling.from_logits(logits + np.arange(400)[:, None], labels).temperature
    monkeypatch.setattr("uqeval.methods.temperature._BLOCK", 12)
    blocks = TemperatureScaling.from_logits(logits, labels).temperature
    assert shifted == pytest.approx(t, rel=1e-10)
    assert blocks == pytest.approx(t, rel=1e-12)


def test_one_error_by_a_hair_is_enough():
    logits = np.tile([2.0, 0.0], (1000, 1))
    logits[0] = [0.0, 1e-9]
    t = TemperatureScaling.from_logits(logits, np.zeros(1000, dtype=int)).temperature
    assert 0 < t < 0.2


def test_temperature_from_a_model_equals_that_from_its_logits():
    net = make_net()
    scaling = TemperatureScaling(net)
    assert scaling.temperature is None
    assert scaling.fit(make_loader(rows=200)) is scaling
    raw = Softmax(net).predict(make_loader(rows=200))
    assert scaling.temperature == TemperatureScaling.from_logits(raw.logits, raw.labels).temperature
    got = scaling.predict(make_loader())
    raw = Softmax(net).predict(make_loader())
    np.testing.assert_array_equal(got.logits, raw.logits / scaling.temperature)
    np.testing.assert_array_equal(scaling.scale(raw.logits), got.logits)
    np.testing.assert_array_equal(got.probs.argmax(axis=1), raw.probs.argmax(axis=1))


def test_scaling_keeps_the_ranking_of_two_classes():
    logits, labels = draw_calibrated(200, 2, 0)
    scaling = TemperatureScaling.from_logits(5 * logits, labels)
    margins, scaled = (np.diff(z)[:, 0] for z in (5 * logits, scaling.scale(5 * logits)))
    np.testing.assert_array_equal(np.argsort(margins), np.argsort(scaled))
    assert scaling.temperature > 3


def test_logits_without_a_best_temperature_are_an_error():
    for logits, labels, says in [
        ([[2, 0], [0, 1]], [0, 1], "all 2 rows are predicted right"),
        ([[2, 0], [0, 1]], [1, 0], "no better than chance"),
        ([[1, 1], [3, 3]], [0, 1], "no better than chance"),
        ([[1, 0], [0, -np.inf]], [0, 1], "Pass finite logits"),
        ([[1, 0], [0, np.nan]], [0, 1], "NaN"),
        ([[1, 0]], [2], "class indices 0..1"),
        ([[1, 0]], [0, 1], "rows"),
        (np.empty((0, 2)), [], "0 rows"),
    ]:
        with pytest.raises(InputError, match=says):
            TemperatureScaling.from_logits(logits, labels)


def test_predicting_before_fitting_or_without_a_model_is_an_error():
    with pytest.raises(InputError, match="Call fit"):
        TemperatureScaling(make_net()).predict(make_loader())
    with pytest.raises(InputError, match="Call fit"):
        TemperatureScaling(make_net()).scale([[0, 1]])
    alone = TemperatureScaling.from_logits(*draw_calibrated(50, 2, 0))
    with pytest.raises(InputError, match="no model"):
        alone.predict(make_loader())
    with pytest.raises(InputError, match="no model"):
        alone.fit(make_loader())


# --- what all methods share


def test_modes_come_back_and_parameters_stay():
    for name in METHODS:
        net = make_net()
        loader = make_learned(net)
        net[1].eval()
        before, former = modes(net), state(net)
        run(name, net, loader)
        assert modes(net) == before
        assert same_state(net, former)
        net.train()(torch.randn(8, FEATURES)).sum().backward()  # nothing was left in inference mode
        assert net[0].weight.grad is not None


def test_modes_come_back_when_the_model_fails():
    for name in METHODS:
        for error in [RuntimeError("boom"), KeyboardInterrupt()]:
            model = Fails(1, error)
            before = modes(model)
            with pytest.raises(type(error)):
                run(name, model, make_loader())
            assert modes(model) == before == [True, False, True]


def test_the_model_runs_in_eval_mode_without_a_graph():
    for name in ["Softmax", "DeepEnsemble", "TemperatureScaling", "TestTimeAugmentation", "EvidentialNetwork"]:
        net = make_net()
        loader, recorder = make_learned(net), Recorder(net)
        run(name, recorder, loader)
        assert recorder.seen
        assert all(names == [] for names in recorder.seen)


def test_a_shuffled_loader_is_caught():
    for name in ["DeepEnsemble", "MCDropout", "TestTimeAugmentation", "BayesianNetwork", "SWAG"]:
        with pytest.raises(InputError, match=f"{name}.*pass 1.*shuffle=False"):
            run(name, make_net(), make_loader(shuffle=True, rows=200))


def test_a_loader_that_changes_its_rows_is_caught():
    class Shrinks:
        def __init__(self):
            self.passes = 0

        def __iter__(self):
            self.passes += 1
            return iter(list(make_loader())[self.passes - 1 :][::-1][self.passes - 1 :][::-1])

    class Loses(Shrinks):
        def __iter__(self):
            self.passes += 1
            return iter(list(make_loader())[: 6 - self.passes])

    for loader in (Shrinks(), Loses()):
        with pytest.raises(InputError, match="other labels in pass 1"):
            DeepEnsemble([make_net()] * 2).predict(loader)


def test_a_generator_serves_one_pass_only():
    assert Softmax(make_net()).predict(batch for batch in make_loader()).n == ROWS
    with pytest.raises(InputError, match="generator, which can be gone through once, but DeepEnsemble needs 2 passes"):
        DeepEnsemble([make_net()] * 2).predict(batch for batch in make_loader())


def test_outputs_that_are_no_logits_are_an_error():
    for name in METHODS:
        for change, says in [
            (lambda z: z[:, :1], r"has shape \(5, 1\)\. Return two logits"),
            (lambda z: z[:, 0], r"has shape \(5,\)"),
            (lambda z: z[:, :, None], r"has shape \(5, 3, 1\)"),
            (lambda z: z[:2], "has 2 rows for 5 labels"),
            (lambda z: (z,), "is a tuple"),
            (lambda z: z * torch.nan, "has NaN or infinity in 5 rows"),
            (lambda z: z.index_fill(0, torch.tensor([3]), torch.inf), r"has NaN or infinity in 1 rows \(first: row 3"),
        ]:
            with pytest.raises(InputError, match=f"{name}: the model's output for batch 0.* {says}"):
                run(name, Returns(change), make_loader())


def test_the_batch_with_nan_is_named():
    x, y = make_rows(12)
    x[9] = torch.nan
    with pytest.raises(InputError, match=r"Softmax: the model's output for batch 2 has NaN.*row 1 of the batch"):
        Softmax(make_net()).predict([(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)])


def test_batches_with_other_classes_are_an_error():
    widths = iter([3, 2])
    with pytest.raises(InputError, match="batch 1 has 2 classes, batch 0 has 3"):
        Softmax(Returns(lambda z: z[:, : next(widths)])).predict(make_loader(12))


X, Y = torch.zeros(2, FEATURES), torch.tensor([0, 1])


def test_loaders_without_rows_or_labels_are_an_error():
    for loader, says in [
        ([], "gave no rows"),
        ([(X[:0], Y[:0])], "gave no rows"),
        (3, "`loader` is an int"),
        ([X], "batch 0 of `loader` is a Tensor. Yield pairs"),
        ([[X]], "batch 0 of `loader` is a list of 1"),
        ([(X, Y), (X, Y, Y)], "batch 1 of `loader` is a tuple of 3"),
        ([(X, Y[:, None])], "labels of batch 0 have shape (2, 1)"),
        ([(X, torch.tensor(1))], "labels of batch 0 have shape ()"),
        ([(X, torch.tensor([0, 3]))], "`labels` must be class indices 0..2"),
        ([(X, torch.tensor([0.0, 0.5]))], "row 1 holds 0.5"),
        ([(X, ["cat", "dog"])], "`labels` holds"),
    ]:
        for name in METHODS:
            with pytest.raises(InputError, match=re.escape(says)):
                run(name, make_net(), loader)


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


def test_inputs_may_be_dicts_tuples_and_lists():
    for wrap in [
        lambda a, b: {"a": a, "b": b, "ids": ["row"]},
        lambda a, b: {"nested": [{"a": a}, b]},
        lambda a, b: (a, b),
        lambda a, b: [a, b],
        Pair,
    ]:

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(FEATURES, CLASSES)

            def forward(self, x):
                if isinstance(x, dict):
                    a, b = (x["nested"][0]["a"], x["nested"][1]) if "nested" in x else (x["a"], x["b"])
                else:
                    a, b = (x.a, x.b) if isinstance(x, Pair) else x
                return self.head(a + 2 * b)

        net, (x, y) = Net(), make_rows()
        got = Softmax(net).predict([(wrap(x, x), y)])
        with torch.no_grad():
            np.testing.assert_allclose(got.logits, net.head(3 * x), atol=1e-6)


def test_a_model_without_parameters_runs_on_the_cpu():
    got = Softmax(nn.Identity()).predict([(2 * torch.eye(3), torch.arange(3))])
    np.testing.assert_array_equal(got.logits, 2 * np.eye(3))


def test_a_device_that_is_not_there_is_an_error(monkeypatch):
    for device, says in [
        ("gpu", "`device` is 'gpu'"),
        (1.5, "`device` is 1.5"),
        ("cuda:0", "torch sees no CUDA device"),
    ]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(InputError, match=re.escape(says)):
            Softmax(make_net(), device=device)


def test_devices_of_all_spellings_give_the_same():
    for device in [None, "auto", "cpu", torch.device("cpu")]:
        net = make_net()
        got = Softmax(net, device=device).predict(make_loader())
        np.testing.assert_allclose(got.logits, Softmax(net).predict(make_loader()).logits, atol=1e-3)
        assert next(net.parameters()).device.type == "cpu"


def test_a_model_is_moved_to_the_device_and_back():
    moves = []

    class Travels(nn.Linear):
        def to(self, device):
            moves.append(str(device))
            return self

    model = Travels(FEATURES, CLASSES)
    with loop.ready(model, torch.device("meta")) as where:
        assert where == torch.device("meta")
        assert moves == ["meta"]
    assert moves == ["meta", "cpu"]
    spread = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, device="meta")])
    with pytest.raises(InputError, match=r"lies on cpu, meta\. Pass device=None"), loop.ready(spread, "meta"):
        pass


def test_what_is_no_module_is_an_error():
    for what in ["model", None, 3]:
        for method in [Softmax, MCDropout, TemperatureScaling]:
            with pytest.raises(InputError, match=r"`model` is (a|an|None)\b"):
                method(what)


def test_asking_for_a_result_too_early_is_a_bug():
    with pytest.raises(RuntimeError, match="0 of 2 passes"):
        loop.Passes("Softmax", make_loader(), 2).result()


# --- progress


def test_progress_counts_the_batches_of_all_passes():
    passes_of = {"Softmax": 1, "EvidentialNetwork": 1, "DeepEnsemble": 2, "MCDropout": 2, "TestTimeAugmentation": 2}
    for name, passes in {**passes_of, "BayesianNetwork": 2}.items():
        seen = []
        run(name, make_net(), make_loader(), progress=lambda *args, seen=seen: seen.append(args))
        assert seen == [(name, i, 5 * passes) for i in range(1, 5 * passes + 1)]


def test_progress_has_no_total_until_the_length_is_known():
    class Rows(IterableDataset):
        def __iter__(self):
            return iter(zip(*make_rows(6), strict=True))

    seen = []
    DeepEnsemble([make_net()] * 2).predict(DataLoader(Rows(), batch_size=3), progress=lambda *args: seen.append(args))
    assert seen == [
        ("DeepEnsemble", 1, None),
        ("DeepEnsemble", 2, None),
        ("DeepEnsemble", 3, 4),
        ("DeepEnsemble", 4, 4),
    ]


def test_a_progress_function_that_raises_leaves_the_modes():
    net = make_net()
    with pytest.raises(ZeroDivisionError):
        MCDropout(net, samples=2).predict(make_loader(), progress=lambda stage, done, total: 1 / 0)
    assert modes(net) == [True] * 6


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_appears_on_a_terminal_after_a_while(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    Softmax(make_net()).predict(make_loader())
    assert screen.getvalue() == ""  # the work was done at once
    monkeypatch.setattr(loop, "_PATIENCE", -1.0)
    Softmax(make_net()).predict(make_loader(), progress=False)
    assert screen.getvalue() == ""
    monkeypatch.setenv("TERM", "xterm")
    Softmax(make_net()).predict(make_loader())
    assert "Softmax" in screen.getvalue()


def test_no_bar_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(loop, "_PATIENCE", -1.0)
    Softmax(make_net()).predict(make_loader())
    assert capsys.readouterr().err == ""


def test_progress_must_be_a_function():
    with pytest.raises(InputError, match="`progress` is True"):
        Softmax(make_net()).predict(make_loader(), progress=True)


# --- the extra


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_without_torch_the_pip_line_is_given():
    for statement in ["uqeval.methods.Softmax", "from uqeval.methods import Softmax"]:
        code = f"import sys, uqeval\nsys.modules['torch'] = None\ntry: {statement}\n"
        code += "except uqeval.MissingExtra as e: print(e)"
        assert run_python(code) == 'uqeval.methods.Softmax needs torch. Install it with: pip install "uqeval[torch]"'


def test_another_missing_package_is_not_blamed_on_torch():
    code = (
        "import sys\nsys.modules['scipy.optimize']=None\ntry: from uqeval.methods import TemperatureScaling\n"
        "except ImportError as e: print(e)"
    )
    assert "scipy.optimize" in run_python(code)


def test_import_uqeval_does_not_import_torch():
    code = "import sys, uqeval; print('torch' in sys.modules); uqeval.methods.Softmax; print('torch' in sys.modules)"
    assert run_python(code).split() == ["False", "True"]


# --- on a card


@needs_cuda
def test_a_model_visits_the_card_and_comes_home():
    for device in ["auto", "cuda", "cuda:0"]:
        recorder = Recorder(make_net())
        before = modes(recorder)
        got = DeepEnsemble([recorder, make_net(1)], device=device).predict(make_loader())
        assert next(recorder.parameters()).device.type == "cpu"
        assert modes(recorder) == before
        expected = DeepEnsemble([recorder, make_net(1)]).predict(make_loader())
        np.testing.assert_allclose(got.members, expected.members, atol=1e-3)


@needs_cuda
def test_mc_dropout_on_a_card_repeats_itself_and_leaves_its_random_state():
    net = make_net().cuda()
    torch.cuda.manual_seed(5)
    before, cpu = torch.cuda.get_rng_state(), torch.get_rng_state()
    first = MCDropout(net, samples=4, seed=1).predict(make_loader()).member_logits
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert torch.equal(torch.get_rng_state(), cpu)
    torch.rand(3, device="cuda")
    again = MCDropout(net, samples=4, seed=1).predict(make_loader()).member_logits
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])


@needs_cuda
def test_training_leaves_the_random_state_of_the_card():
    torch.cuda.manual_seed(5)
    before = torch.cuda.get_rng_state()
    DeepEnsemble.train(lambda seed: nn.Linear(2, 2).cuda(), lambda model, seed: torch.rand(3, device="cuda"), members=2)
    assert torch.equal(torch.cuda.get_rng_state(), before)


@needs_cuda
def test_every_method_gives_on_a_card_what_it_gives_on_the_cpu():
    for name in METHODS.keys() - {"MCDropout", "BayesianNetwork"}:  # those draw other numbers there
        net = make_net()
        loader = make_learned(net)
        method = METHODS[name](net, device="cuda"), METHODS[name](net, device="cpu")
        if name == "TemperatureScaling":
            method = [scaling.fit(loader) for scaling in method]
        card, cpu = (each.predict(loader).probs for each in method)
        np.testing.assert_allclose(card, cpu, atol=1e-3, err_msg=name)
        assert {tensor.device.type for tensor in net.state_dict().values()} == {"cpu"}


@needs_cuda
def test_a_batch_that_does_not_fit_on_a_card_is_halved():
    third = torch.cuda.mem_get_info()[1] // 3

    class Hungry(nn.Module):
        def forward(self, x):
            torch.empty(len(x) * third, dtype=torch.uint8, device=x.device)
            return x[:, :CLASSES]

    got = Softmax(Hungry(), device="cuda").predict(make_loader(8))
    np.testing.assert_allclose(got.logits, make_rows()[0][:, :CLASSES])
