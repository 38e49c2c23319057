"""A run of MLflow that `Evaluation.log` writes to, by its address or from a run that is there (extra ``mlflow``)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from uqeval._errors import InputError, MissingExtra

try:
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
