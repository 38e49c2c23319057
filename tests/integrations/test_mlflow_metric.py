"""What `mlflow.models.evaluate` calls: a metric of a column, with the numbers of `evaluate`."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import uqeval as uq
from uqeval._errors import InputError

mlflow = pytest.importorskip("mlflow")
pd = pytest.importorskip("pandas")
uncertainty_metric = uq.integrations.mlflow.uncertainty_metric
NAMES = np.array([f"digit {k}" for k in range(10)])


@pytest.fixture(scope="module")
def frame():
    pred = uq.datasets.example()
    entropy = uq.scores.entropy(pred.probs)
    columns = {"label": pred.labels, "pred": pred.probs.argmax(axis=1), "entropy": entropy, "sure": -entropy}
    return pd.DataFrame(columns | {"sheet": np.arange(pred.n) // 3})


def expected(frame, score, metrics, clusters=None):
    """Under the names that `Evaluation.log` gives them."""
    wrong = (frame["label"] != frame["pred"]).to_numpy()
    pred = uq.Predictions(scores={score: frame["entropy"]}, error=wrong, clusters=clusters)
    kept = {}
    uq.evaluate(pred, metrics=metrics).log(kept.update)
    return {f"{score}/{name.rpartition('/')[2]}": value for name, value in kept.items()}


def called(metric, frame, label="label", pred="pred"):
    """As MLflow calls it: by position, with the columns that the signature names."""
    asked = {"predictions": frame[pred], "targets": frame[label]}
    found = metric.eval_fn(*(asked.get(name, frame.get(name)) for name in inspect.signature(metric.eval_fn).parameters))
    return {f"{metric.name}/{name}": value for name, value in found.aggregate_results.items()}


def test_the_metric_is_what_evaluate_gives_of_the_column_in_either_direction(frame):
    for name, way in (("entropy", "uncertainty"), ("sure", "confidence")):
        metric = uncertainty_metric(**{way: name}, metrics=["aurc", "accuracy"], clusters="sheet")
        assert called(metric, frame) == expected(frame, name, ["aurc", "accuracy"], frame["sheet"])
        assert (metric.name, metric.greater_is_better) == (name, False)
    assert uncertainty_metric(uncertainty="entropy", metrics="uq_auc").greater_is_better


def test_classes_may_be_texts_or_numbers_of_another_type(frame):
    metric = uncertainty_metric(uncertainty="entropy")
    texts = frame.assign(label=NAMES[frame["label"]], pred=NAMES[frame["pred"]])
    assert called(metric, texts) == called(metric, frame.astype({"pred": float})) == called(metric, frame)


def test_of_one_row_which_mlflow_tries_first_nothing_is_said(frame):
    found = called(uncertainty_metric(uncertainty="entropy", metrics="uq_auc"), frame.iloc[:1])
    assert list(found) == ["entropy/uq_auc", "entropy/uq_auc_low", "entropy/uq_auc_high"]
    assert np.isnan(list(found.values())).all()


def test_what_would_count_every_row_as_wrong_or_cannot_be_passed_is_refused(frame):
    metric = uncertainty_metric(uncertainty="entropy")
    for column in (NAMES[frame["label"]], frame["label"].astype(str), frame["label"] + 0.5):
        with pytest.raises(InputError, match=r"No class is among both the predictions .* and the targets"):
            called(metric, frame.assign(label=column))
    with pytest.raises(InputError, match="`targets` has 1 missing entries"):
        called(metric, frame.assign(label=frame["label"].where(frame.index != 3)))
    with pytest.raises(InputError, match="`entropy` has 1 NaN"):
        called(metric, frame.assign(entropy=frame["entropy"].where(frame.index != 3)))
    for name in ("max prob", "targets", "metrics"):
        with pytest.raises(InputError, match="MLflow cannot pass the column"):
            uncertainty_metric(uncertainty=name)
    with pytest.raises(InputError, match="MLflow cannot pass the column 'entropy'"):
        uncertainty_metric(uncertainty="entropy", clusters="entropy")
    for both in ({}, {"confidence": "sure", "uncertainty": "entropy"}):
        with pytest.raises(InputError, match="Pass one of confidence= and uncertainty="):
            uncertainty_metric(**both)
    with pytest.raises(InputError, match=r"There is no metric .uq_acu."):
        uncertainty_metric(uncertainty="entropy", metrics="uq_acu")
    with pytest.raises(InputError, match="`metrics` names none"):
        uncertainty_metric(uncertainty="entropy", metrics=[])


@pytest.mark.filterwarnings("ignore")  # of MLflow about itself
def test_mlflow_evaluates_and_logs_it_for_classifiers_and_for_other_outputs(frame, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="mlflow.models.evaluate imports it")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    metrics = [uncertainty_metric(uncertainty="entropy"), uncertainty_metric(confidence="sure", clusters="sheet")]
    wanted = expected(frame, "entropy", ["uq_auc", "aurc"])
    wanted |= expected(frame, "sure", ["uq_auc", "aurc"], frame["sheet"])
    for kind in ("classifier", None):
        with mlflow.start_run() as run:
            options = {"targets": "label", "predictions": "pred", "model_type": kind, "extra_metrics": metrics}
            found = mlflow.models.evaluate(data=frame, **options).metrics
        assert {name: found[name] for name in wanted} == wanted
        stored = mlflow.get_run(run.info.run_id).data.metrics
        assert {name: stored[name] for name in wanted} == wanted

    def model(rows):
        return pd.DataFrame({"class": rows["pred"], "unsure": rows["entropy"]})

    with mlflow.start_run():
        options = {"targets": "label", "predictions": "class", "model_type": None}
        asked = [uncertainty_metric(uncertainty="unsure")]
        found = mlflow.models.evaluate(model=model, data=frame, **options, extra_metrics=asked).metrics
    assert found == expected(frame, "unsure", ["uq_auc", "aurc"])
