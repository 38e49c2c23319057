"""`UQCallback`: what it logs at the end of a validation is what `evaluate` says of all its rows."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

import uqeval as uq

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("pytorch_lightning")
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from uqeval.integrations.lightning import UQCallback  # noqa: E402


def both(logits, labels):
    return {"logits": logits, "labels": labels}


class Net(lightning.LightningModule):
    """A linear net that gives its validation outputs in one of several ways."""

    def __init__(self, answer=both):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.answer = torch.nn.Linear(4, 3), answer

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, _, dataloader_idx=0):
        return self.answer(self.layer(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def rows(seed=0):
    rng = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(40, 4, generator=rng), torch.randint(3, (40,), generator=rng))


def trainer(callback, tmp_path, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "barebones": False}
    quiet |= {"enable_checkpointing": False, "accelerator": "cpu", "default_root_dir": str(tmp_path)}
    return lightning.Trainer(callbacks=[callback], **(quiet | options))


def expected(net, data=None):
    x, y = (rows() if data is None else data).tensors
    with torch.no_grad():
        return uq.evaluate(uq.Predictions(y, logits=net.layer(x)), scores="entropy", metrics=["accuracy", "uq_auc"])


def check(found, ev, prefix="val/"):
    for score, metric in (("entropy", "uq_auc"), (None, "accuracy")):
        name, estimate = f"{prefix}{score or 'model'}/{metric}", ev[score, metric]
        for end, value in (("", estimate.value), ("_low", estimate.low), ("_high", estimate.high)):
            assert float(found[name + end]) == pytest.approx(value, rel=1e-6)  # logged as float32


def callback(**options):
    return UQCallback("entropy", ["accuracy", "uq_auc"], **options)


def test_a_validation_logs_values_and_bounds_of_all_its_batches(tmp_path):
    answers = [
        both,
        lambda logits, labels: {"logits": logits, "loss": 0.0},  # the labels are the batch's
        lambda logits, labels: {"probs": logits.softmax(dim=1), "labels": labels},
    ]
    for answer in answers:
        net = Net(answer)
        found = trainer(callback(), tmp_path).validate(net, DataLoader(rows(), batch_size=25), verbose=False)
        check(found[0], expected(net))


def test_each_epoch_of_a_fit_is_judged_on_its_own_rows_and_can_be_monitored(tmp_path):
    net, run = Net(), trainer(callback(), tmp_path, max_epochs=2)
    run.fit(net, DataLoader(rows(1), batch_size=20), DataLoader(rows(), batch_size=25))
    check(run.callback_metrics, expected(net))


def test_several_loaders_have_names_of_their_own(tmp_path):
    net, sets = Net(), [rows(), rows(5)]
    loaders = [DataLoader(data, batch_size=25) for data in sets]
    found = trainer(callback(prefix=""), tmp_path).validate(net, loaders, verbose=False)
    logged = found[0] | found[1]
    for index, data in enumerate(sets):
        check(logged, expected(net, data), prefix=f"dataloader_{index}/")


def test_outputs_that_it_cannot_read_are_refused_in_words(tmp_path):
    turns = iter(["logits", "probs"])
    net = Net(lambda logits, labels: {next(turns): logits.softmax(dim=1), "labels": labels})
    with pytest.raises(uq.InputError, match='"logits" for some batches and "probs" for others'):
        trainer(callback(), tmp_path).validate(net, DataLoader(rows(), batch_size=20), verbose=False)
    for answer, came in ((lambda *_: None, "NoneType"), (lambda *_: {"loss": 1.0}, r"\['loss'\]")):
        with pytest.raises(uq.InputError, match=f"validation_step returned {came}. Return"):
            trainer(callback(), tmp_path).validate(Net(answer), DataLoader(rows(), batch_size=40), verbose=False)


def test_a_process_without_a_batch_logs_what_the_others_log(tmp_path, monkeypatch):
    net = Net(lambda logits, labels: {"probs": logits.softmax(dim=1), "labels": labels})
    run = trainer(callback(), tmp_path)
    run.validate(net, DataLoader(rows(), batch_size=25), verbose=False)
    logged, here, there = {}, callback(), callback()
    with torch.no_grad():
        for index, batch in enumerate(DataLoader(rows(), batch_size=25)):
            there.on_validation_batch_end(run, net, net.validation_step(batch, index), batch, index)

    def gather(parts, own):
        parts[:] = [own, there._rows]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    monkeypatch.setattr(net, "log_dict", logged.update)
    here.on_validation_epoch_end(SimpleNamespace(sanity_checking=False, world_size=2), net)
    check(logged, expected(net))


@pytest.mark.slow
def test_two_processes_judge_all_rows_together(tmp_path):
    net = Net(both)
    run = trainer(callback(), tmp_path, devices=2, strategy="ddp_spawn")
    check(run.validate(net, DataLoader(rows(), batch_size=8), verbose=False)[0], expected(net))


@pytest.mark.slow
def test_it_is_a_callback_of_lightning_under_either_name_and_says_which_extra_is_missing():
    code = (
        "import sys, types\n"
        "sys.modules['lightning'] = types.ModuleType('lightning')\n"
        "sys.modules['lightning.pytorch'] = fake = types.ModuleType('lightning.pytorch')\n"
        "fake.Callback = type('Callback', (), {})\n"
        "import uqeval\n"
        "print(uqeval.integrations.lightning.UQCallback.__mro__[1] is fake.Callback)\n"
        "del sys.modules['uqeval.integrations.lightning'], uqeval.integrations.lightning\n"
        "sys.modules['lightning'] = sys.modules['lightning.pytorch'] = sys.modules['pytorch_lightning'] = None\n"
        "try: import uqeval.integrations.lightning\n"
        "except uqeval.MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    line = 'uqeval.integrations.lightning needs lightning. Install it with: pip install "uqeval[lightning]"'
    assert done.stdout.splitlines() == ["True", line]
