"""Who runs what: uqeval with per-row counts and the 95% interval, the peers with the value alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import uqeval
from uqeval import kernels


@dataclass(frozen=True)
class Contestant:
    """One tool on one task; `growth` is how its time grows with n (for skipping hopeless sizes)."""

    name: str
    run: Callable[[dict[str, np.ndarray]], object]
    growth: float = 1.1


def make_data(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Scores without ties, errors that follow them, a loss, and the same with 3 decimals."""
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    loss = 0.3 * score + 0.7 * rng.random(n)
    error = rng.random(n) < 0.3 * score
    return {"score": score, "loss": loss, "error": error, "score3": score.round(3), "loss3": loss.round(3)}


def _with(backend: str, call: Callable[[dict[str, np.ndarray]], object]) -> Callable[[dict[str, np.ndarray]], object]:
    def run(data: dict[str, np.ndarray]) -> object:
        former = kernels.use(backend)
        try:
            return call(data)
        finally:
            kernels.use(former)

    return run


def _auc(data: dict[str, np.ndarray]) -> object:
    return uqeval.estimate("uq_auc", data["score"], data["error"])


def _c_index(data: dict[str, np.ndarray]) -> object:
    return uqeval.estimate("uq_c_index", data["score"], data["loss"])


def _c_index_ties(data: dict[str, np.ndarray]) -> object:
    return uqeval.estimate("uq_c_index", data["score3"], data["loss3"])


def _sklearn(data: dict[str, np.ndarray]) -> object:
    from sklearn.metrics import roc_auc_score

    return roc_auc_score(data["error"], data["score"])


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
TASKS: dict[str, list[Contestant]] = {
    "UQ-AUC": [
        FLOOR,
        Contestant("uqeval (native)", _with("native", _auc)),
        Contestant("uqeval (NumPy)", _with("numpy", _auc)),
        Contestant("scikit-learn roc_auc_score", _sklearn),
        Contestant("torchmetrics binary_auroc", _torchmetrics),
    ],
    "UQ-C-index": [
        FLOOR,
        Contestant("uqeval (native)", _with("native", _c_index)),
        Contestant("uqeval (NumPy)", _with("numpy", _c_index)),
        Contestant("SciPy kendalltau", _kendall),
        Contestant("lifelines concordance_index", _lifelines, growth=1.2),
        Contestant("scikit-survival concordance_index_censored", _sksurv, growth=2.0),
    ],
    "UQ-C-index, 3 decimals": [
        FLOOR,
        Contestant("uqeval (native)", _with("native", _c_index_ties)),
        Contestant("uqeval (NumPy)", _with("numpy", _c_index_ties)),
        Contestant("SciPy kendalltau", _kendall_ties),
    ],
    # Sorting is NumPy's here: both kernels do the same.
    "Certified threshold, risk 5%": [FLOOR, Contestant("uqeval", _threshold)],
}
