"""Who runs what: uqeval with the 95% interval, the peers with the value alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

import uqeval
from uqeval import kernels
from uqeval.metrics import REGISTRY


@dataclass(frozen=True)
class Contestant:
    """One tool on one task; `growth` is how its time grows with n (for skipping hopeless sizes)."""

    name: str
    run: Callable[[dict[str, np.ndarray]], object]
    growth: float = 1.1
    needs: str = "numpy"  # a package; the tool sits out where it is not installed

    @property
    def there(self) -> bool:
        return find_spec(self.needs) is not None


def make_data(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Scores without ties, errors that follow them (a tenth or half of the rows), a loss; and with 3 decimals."""
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    loss = 0.3 * score + 0.7 * rng.random(n)
    error, half = rng.random(n) < 0.2 * score, rng.random(n) < 0.25 + 0.5 * score
    more = {"score3": score.round(3), "loss3": loss.round(3)}
    return {"score": score, "loss": loss, "error": error, "half": half, **more}


def _with(
    backend: str, call: Callable[[dict[str, np.ndarray]], object], threads: int = 1
) -> Callable[[dict[str, np.ndarray]], object]:
    def run(data: dict[str, np.ndarray]) -> object:
        former, own = kernels.use(backend), os.environ.get("UQEVAL_THREADS")
        os.environ["UQEVAL_THREADS"] = str(threads)
        try:
            return call(data)
        finally:
            kernels.use(former)
            if own is None:
                del os.environ["UQEVAL_THREADS"]
            else:
                os.environ["UQEVAL_THREADS"] = own

    return run


def _auc(data: dict[str, np.ndarray]) -> object:
    return uqeval.estimate("uq_auc", data["score"], data["error"])


def _auc_half(data: dict[str, np.ndarray]) -> object:
    return uqeval.estimate("uq_auc", data["score"], data["half"])


BITS = [metric.name for metric in REGISTRY.values() if metric.needs == ("score", "error")]


def _all(data: dict[str, np.ndarray]) -> object:
    return uqeval.evaluate(score=data["score"], error=data["error"], metrics=BITS)


def _c_index(data: dict[str, np.ndarray]) -> object:
    return uqeval.estimate("uq_c_index", data["score"], data["loss"])


def _c_index_ties(data: dict[str, np.ndarray]) -> object:
    return uqeval.estimate("uq_c_index", data["score3"], data["loss3"])


def _sklearn(data: dict[str, np.ndarray]) -> object:
    from sklearn.metrics import roc_auc_score

    return roc_auc_score(data["error"], data["score"])


def _sklearn_half(data: dict[str, np.ndarray]) -> object:
    from sklearn.metrics import roc_auc_score

    return roc_auc_score(data["half"], data["score"])


def _torchmetrics(data: dict[str, np.ndarray]) -> object:
    import torch
    from torchmetrics.functional.classification import binary_auroc

    return binary_auroc(torch.from_numpy(data["score"]), torch.from_numpy(data["error"].astype(np.int64)))


def _kendall(data: dict[str, np.ndarray]) -> object:
    from scipy.stats import kendalltau

    return kendalltau(data["score"], data["loss"])


def _kendall_ties(data: dict[str, np.ndarray]) -> object:
    from scipy.stats import kendalltau

    return kendalltau(data["score3"], data["loss3"])


def _lifelines(data: dict[str, np.ndarray]) -> object:
    from lifelines.utils import concordance_index

    return concordance_index(data["loss"], data["score"])


def _sksurv(data: dict[str, np.ndarray]) -> object:
    from sksurv.metrics import concordance_index_censored

    return concordance_index_censored(np.ones(len(data["loss"]), dtype=bool), data["loss"], -data["score"])


def _threshold(data: dict[str, np.ndarray]) -> object:
    return uqeval.choose_threshold(data["score"], data["error"], max_risk=0.05)


FLOOR = Contestant("np.argsort", lambda data: np.argsort(data["score"]))
SKLEARN = Contestant("scikit-learn roc_auc_score", _sklearn, needs="sklearn")
SCIPY = Contestant("SciPy kendalltau", _kendall, needs="scipy")
TASKS: dict[str, list[Contestant]] = {
    "UQ-AUC": [
        FLOOR,
        Contestant("uqeval (native)", _with("native", _auc)),
        Contestant("uqeval (NumPy)", _with("numpy", _auc)),
        SKLEARN,
        Contestant("torchmetrics binary_auroc", _torchmetrics, needs="torchmetrics"),
    ],
    "UQ-AUC, half of the rows wrong": [
        FLOOR,
        Contestant("uqeval (native)", _with("native", _auc_half)),
        Contestant("scikit-learn roc_auc_score", _sklearn_half, needs="sklearn"),
    ],
    "All metrics of 0/1 errors": [
        FLOOR,
        Contestant("uqeval (native)", _with("native", _all)),
        Contestant("uqeval (NumPy)", _with("numpy", _all)),
    ],
    "UQ-C-index": [
        FLOOR,
        Contestant("uqeval (native)", _with("native", _c_index)),
        Contestant("uqeval (native, two threads)", _with("native", _c_index, threads=2)),
        Contestant("uqeval (NumPy)", _with("numpy", _c_index)),
        SCIPY,
        Contestant("lifelines concordance_index", _lifelines, growth=1.2, needs="lifelines"),
        Contestant("scikit-survival concordance_index_censored", _sksurv, growth=2.0, needs="sksurv"),
    ],
    "UQ-C-index, 3 decimals": [
        FLOOR,
        Contestant("uqeval (native)", _with("native", _c_index_ties)),
        Contestant("uqeval (NumPy)", _with("numpy", _c_index_ties)),
        Contestant("SciPy kendalltau", _kendall_ties, needs="scipy"),
    ],
    "Certified threshold, risk 5%": [FLOOR, Contestant("uqeval", _with("native", _threshold))],
}
