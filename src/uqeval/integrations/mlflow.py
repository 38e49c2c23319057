"""MLflow (extra ``mlflow``): a run that `Evaluation.log` writes to, and a metric for `mlflow.models.evaluate`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import check_codes, clean_vector
from uqeval._errors import InputError, MissingExtra
from uqeval.distributed.evaluate import evaluate
from uqeval.evaluation.log import named_numbers
from uqeval.inputs import Predictions
from uqeval.metrics.registry import get_metric

try:
    import mlflow
    from mlflow import MlflowClient
    from mlflow.entities import Metric
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "mlflow":
        raise
    raise MissingExtra("uqeval.integrations.mlflow", "mlflow", "mlflow") from None

_AT_ONCE = 1000  # metrics that MLflow takes in one call


class MLflowRun:
    """A run to log to: ``ev.log(MLflowRun("sqlite:///mlflow.db"))``. For the active run ``ev.log(mlflow)`` does.

    Parameters
    ----------
    to : str or mlflow.entities.Run
        The address of a tracking server or store, where a new run begins; or a run, of `client` or of MLflow's current
        tracking address.
    experiment : str
        Where the new run belongs; made if it is not there.
    client : mlflow.MlflowClient, optional
        In place of the one that the address gives.

    Attributes
    ----------
    run_id : str
        Of the run that is written to.

    Examples
    --------
    >>> import uqeval as uq
    >>> ev = uq.evaluate(uq.datasets.example(), scores="entropy", metrics="uq_auc")
    >>> ev.log(MLflowRun("sqlite:///mlflow.db", experiment="digits"), step=3)  # doctest: +SKIP
    """

    def __init__(self, to: Any, *, experiment: str = "uqeval", client: MlflowClient | None = None) -> None:
        if isinstance(to, str):
            self.client = MlflowClient(tracking_uri=to) if client is None else client
            there = self.client.get_experiment_by_name(experiment)
            home = self.client.create_experiment(experiment) if there is None else there.experiment_id
            self.run_id: str = self.client.create_run(home).info.run_id
            self.client.set_terminated(self.run_id)  # which takes numbers all the same, and is never left open
        elif hasattr(to, "info"):
            self.client = MlflowClient() if client is None else client
            self.run_id = to.info.run_id
        else:
            raise InputError(f"`to` is {to!r}. Pass the address of a tracking store, as sqlite:///mlflow.db, or a run.")

    def __call__(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Writes the numbers, as many as there are."""
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step or 0) for name, value in values.items()]
        for start in range(0, len(metrics), _AT_ONCE):
            self.client.log_batch(self.run_id, metrics=metrics[start : start + _AT_ONCE])


def uncertainty_metric(
    *,
    confidence: str | None = None,
    uncertainty: str | None = None,
    metrics: Sequence[str] | str = ("uq_auc", "aurc"),
    clusters: str | None = None,
    level: float = 0.95,
) -> Any:
    """For ``mlflow.models.evaluate(…, extra_metrics=[…])``: how well a column tells right predictions from wrong ones.

    Rows whose prediction is not the target are errors. The results are named as those of `Evaluation.log`.

    Parameters
    ----------
    confidence, uncertainty : str
        One of the two: a column of the data, or of the model's output, that is high where the model is sure, or unsure.
    metrics, level
        As in `uqeval.evaluate`; MLflow is told of the first whether greater is better.
    clusters : str, optional
        The column that says which rows belong together, as those of a patient.

    Returns
    -------
    mlflow.models.EvaluationMetric
        ``entropy/uq_auc``, ``entropy/uq_auc_low``, ``entropy/uq_auc_high``, …; NaN where a metric has no value.

    Examples
    --------
    >>> import mlflow
    >>> entropy = uncertainty_metric(uncertainty="entropy", metrics="uq_auc")
    >>> mlflow.models.evaluate(
    ...     data=frame, targets="label", predictions="pred", extra_metrics=[entropy]
    ... )  # doctest: +SKIP
    """
    if (confidence is None) == (uncertainty is None):
        raise InputError('Pass one of confidence= and uncertainty=: a column, as uncertainty="entropy".')
    score, sign = (str(confidence), -1.0) if uncertainty is None else (uncertainty, 1.0)
    asked = ["predictions", "targets", score, *([] if clusters is None else [clusters])]
    for name in asked[2:]:  # MLflow finds a column by the name of a parameter, and gives some names a meaning
        if not name.isidentifier() or asked.count(name) > 1 or name == "metrics":
            raise InputError(f"MLflow cannot pass the column {name!r}. Give it a name of letters, digits and _ alone.")
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    if not names:
        raise InputError('`metrics` names none. Pass one or more, as metrics="uq_auc".')
    greater = [get_metric(name).direction == "higher" for name in names]

    def compute(predictions: Any, targets: Any, values: Any, units: Any = None) -> Any:
        if len(predictions) == 1:  # MLflow tries the first row alone, of which there is nothing to say
            found = {f"{metric}{end}": float("nan") for metric in names for end in ("", "_low", "_high")}
        else:
            numbers, _ = clean_vector(score, values, finite=False)
            given: dict[str, Any] = {"error": _wrong(predictions, targets), "clusters": units}
            ev = evaluate(Predictions(scores={score: sign * numbers}, **given), metrics=names, level=level)
            found = {name.rpartition("/")[2]: value for name, value in named_numbers(ev).items()}
        return mlflow.metrics.MetricValue(aggregate_results=found)

    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in asked]
    vars(compute)["__signature__"] = Signature(parameters)
    make: Any = mlflow.models.make_metric
    return make(eval_fn=compute, greater_is_better=greater[0], name=score)


def _wrong(predictions: Any, targets: Any) -> NDArray[np.bool_]:
    """1 where the prediction is another class than the target."""
    (said, classes), (true, labels) = check_codes("predictions", predictions), check_codes("targets", targets)
    if (classes.dtype.kind == "U") != (labels.dtype.kind == "U") or not np.isin(classes, labels).any():
        first, other = classes.tolist()[0], labels.tolist()[0]
        raise InputError(
            f"No class is among both the predictions ({first!r}, …) and the targets ({other!r}, …). Pass classes, "
            f"written alike."
        )
    return np.asarray(classes[said] != labels[true])
