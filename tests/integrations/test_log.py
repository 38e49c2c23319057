"""`Evaluation.log`: the same names and numbers wherever they are kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

import uqeval as uq


@pytest.fixture(scope="module")
def ev():
    pred = uq.datasets.example()
    groups = np.array(["north", "a/b & c"])[np.arange(pred.n) % 2]
    grouped = uq.Predictions(pred.labels, probs=pred.probs, groups=groups)
    return uq.evaluate(grouped, scores=["entropy", "margin"], metrics=["uq_auc", "accuracy"])


@pytest.fixture(scope="module")
def expected(ev):
    """Every number by its name, written out."""
    found = {}
    for group, before in ((None, ""), ("north", "by_group/north/"), ("a/b & c", "by_group/a_2f_b _26_ c/")):
        for score in ("entropy", "margin", None):
            metric = "accuracy" if score is None else "uq_auc"
            key = (score, metric) if score else (None, metric)
            estimate = ev[(*key, group)] if group else ev[key]
            for end, value in (("", estimate.value), ("_low", estimate.low), ("_high", estimate.high)):
                found[f"{before}{score or 'model'}/{metric}{end}"] = value
    return found


def kept(values):
    """As a store of float32 or of text keeps them."""
    return pytest.approx(values, rel=1e-6)


def test_a_function_gets_a_dict_of_all_numbers_and_the_step_if_there_is_one(ev, expected):
    calls = []
    ev.log(lambda *given, **named: calls.append((given, named)))
    ev.log(lambda *given, **named: calls.append((given, named)), step=7, prefix="val/")
    assert calls[0] == ((expected,), {})
    assert calls[1] == (({f"val/{name}": value for name, value in expected.items()},), {"step": 7})


def test_a_logger_is_called_by_its_own_method(ev, expected):
    class Run:  # as wandb's
        def log(self, values, step=None):
            self.seen = (values, step)

    class Logger(Run):  # as Lightning's
        def log_metrics(self, metrics, step=None):
            self.seen = (metrics, step)

        def log(self, *_):
            raise AssertionError

    class Module(Run):  # as Lightning's, whose `log` takes one number
        def log_dict(self, values, step=None):
            self.seen = (values, step)

        def log(self, *_):
            raise AssertionError

    for logger in (Run(), Logger(), Module()):
        ev.log(logger, 2)
        assert logger.seen == (expected, 2)


def test_what_takes_no_numbers_is_refused_in_words(ev):
    for to in ("sqlite:///mlflow.db", None, object()):
        with pytest.raises(uq.InputError, match=r"takes no numbers\. Pass a SummaryWriter.*MLflowRun"):
            ev.log(to)


def test_an_undefined_metric_keeps_its_name():
    with pytest.warns(uq.UQWarning):
        none = uq.evaluate(score=[0.1, 0.2, 0.3], error=[0, 0, 0], metrics="uq_auc")
    seen = {}
    none.log(seen.update)
    assert list(seen) == ["score/uq_auc", "score/uq_auc_low", "score/uq_auc_high"]
    assert all(math.isnan(value) for value in seen.values())


def test_tensorboard_holds_them_as_scalars(ev, expected, tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        ev.log(writer, step=5)
    events = EventAccumulator(str(tmp_path)).Reload()
    found = {tag: events.Scalars(tag)[0] for tag in events.Tags()["scalars"]}
    assert {tag: event.value for tag, event in found.items()} == kept(expected)
    assert {event.step for event in found.values()} == {5}


def test_mlflow_holds_them_in_the_active_run_in_a_given_one_and_at_an_address(ev, expected, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database would need sqlalchemy
    address = (tmp_path / "store").as_uri()
    mlflow.set_tracking_uri(address)
    with mlflow.start_run() as active:
        ev.log(mlflow, step=3)
    given = mlflow.MlflowClient().create_run("0")
    ev.log(uq.integrations.mlflow.MLflowRun(given), step=3)
    for _ in range(2):  # the experiment is there the second time
        new = uq.integrations.mlflow.MLflowRun(address, experiment="digits")
        ev.log(new, step=3)
    client = mlflow.MlflowClient(address)
    for run_id in (active.info.run_id, given.info.run_id, new.run_id):
        assert client.get_run(run_id).data.metrics == kept(expected)
        assert [m.step for m in client.get_metric_history(run_id, "entropy/uq_auc_low")] == [3]
    assert client.get_run(new.run_id).info.status == "FINISHED"
    with pytest.raises(uq.InputError, match="which takes no numbers"):
        ev.log(client)
    with pytest.raises(uq.InputError, match=r"`to` is 3\. Pass the address"):
        uq.integrations.mlflow.MLflowRun(3)
