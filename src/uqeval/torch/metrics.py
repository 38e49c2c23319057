"""The metrics that rank rows as `torchmetrics.Metric`s. Class and function of `functional` have the same stem."""

from typing import Any

from torch import Tensor

from uqeval.metrics.registry import REGISTRY
from uqeval.torch.functional import selective_record
from uqeval.torch.states import Bounded, Errors, Ranking


class UQAUC(Bounded):
    """Probability that a wrong prediction gets a higher score than a right one: `uqeval.metrics.uq_auc`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = UQAUC()
    >>> metric.update(tensor([0.9, 0.8]), tensor([1, 0]))
    >>> metric.update(tensor([0.3, 0.8]), tensor([0, 1]))
    >>> metric.compute()
    tensor(0.8750, dtype=torch.float64)
    """

    higher_is_better = True
    _metric = REGISTRY["uq_auc"]
    _area = 0


class AURC(Bounded):
    """Area under the risk–coverage curve: `uqeval.metrics.aurc`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = AURC()
    >>> metric.update(tensor([0.9, 0.8]), tensor([1, 0]))
    >>> metric.update(tensor([0.3, 0.8]), tensor([0, 1]))
    >>> metric.compute()
    tensor(0.2708, dtype=torch.float64)
    """

    higher_is_better = False
    _metric = REGISTRY["aurc"]
    _area = 1


class AUGRC(Bounded):
    """Area under the generalised risk–coverage curve: `uqeval.metrics.augrc`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = AUGRC()
    >>> metric.update(tensor([0.9, 0.8]), tensor([1, 0]))
    >>> metric.update(tensor([0.3, 0.8]), tensor([0, 1]))
    >>> metric.compute()
    tensor(0.1562, dtype=torch.float64)
    """

    higher_is_better = False
    _metric = REGISTRY["augrc"]
    _area = 2


class EAURC(Errors):
    """AURC less that of the oracle: `uqeval.metrics.e_aurc`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = EAURC()
    >>> metric.update(tensor([0.9, 0.8]), tensor([1, 0]))
    >>> metric.update(tensor([0.3, 0.8]), tensor([0, 1]))
    >>> metric.compute()
    tensor(0.0625, dtype=torch.float64)
    """

    higher_is_better = False
    _metric = REGISTRY["e_aurc"]


class NAURC(Errors):
    """AURC between the oracle and a useless score: `uqeval.metrics.naurc`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = NAURC()
    >>> metric.update(tensor([0.9, 0.8]), tensor([1, 0]))
    >>> metric.update(tensor([0.3, 0.8]), tensor([0, 1]))
    >>> metric.compute()
    tensor(0.2143, dtype=torch.float64)
    """

    higher_is_better = False
    _metric = REGISTRY["naurc"]


class GAUC(Errors):
    """The paper's G-AUC, 2·AUGRC: `uqeval.metrics.g_auc`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = GAUC()
    >>> metric.update(tensor([0.9, 0.8]), tensor([1, 0]))
    >>> metric.update(tensor([0.3, 0.8]), tensor([0, 1]))
    >>> metric.compute()
    tensor(0.3125, dtype=torch.float64)
    """

    higher_is_better = False
    _metric = REGISTRY["g_auc"]


class HAUC(Errors):
    """The paper's H-AUC: `uqeval.metrics.h_auc`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = HAUC()
    >>> metric.update(tensor([0.9, 0.8]), tensor([1, 0]))
    >>> metric.update(tensor([0.3, 0.8]), tensor([0, 1]))
    >>> metric.compute()
    tensor(0.2188, dtype=torch.float64)
    """

    higher_is_better = True
    _metric = REGISTRY["h_auc"]


class AUARC(Errors):
    """Area under the accuracy–rejection curve, 1 − AURC: `uqeval.metrics.auarc`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = AUARC()
    >>> metric.update(tensor([0.9, 0.8]), tensor([1, 0]))
    >>> metric.update(tensor([0.3, 0.8]), tensor([0, 1]))
    >>> metric.compute()
    tensor(0.7292, dtype=torch.float64)
    """

    higher_is_better = True
    _metric = REGISTRY["auarc"]


class PRR(Errors):
    """Prediction–rejection ratio, 1 − nAURC: `uqeval.metrics.prr`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = PRR()
    >>> metric.update(tensor([0.9, 0.8]), tensor([1, 0]))
    >>> metric.update(tensor([0.3, 0.8]), tensor([0, 1]))
    >>> metric.compute()
    tensor(0.7857, dtype=torch.float64)
    """

    higher_is_better = True
    _metric = REGISTRY["prr"]


class SelectiveAccuracy(Errors):
    """Accuracy of the surest share of the rows: `uqeval.metrics.selective_accuracy`.

    Parameters
    ----------
    coverage : float
        Share of the rows that is accepted, above 0 and at most 1.
    **kwargs
        Options of `torchmetrics.Metric`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = SelectiveAccuracy(coverage=0.5)
    >>> metric.update(tensor([0.9, 0.8, 0.3, 0.8]), tensor([1, 0, 0, 1]))
    >>> metric.compute()
    tensor(0.7500, dtype=torch.float64)
    """

    higher_is_better = True

    def __init__(self, coverage: float = 0.9, **kwargs: Any) -> None:
        self._metric = selective_record(coverage)
        super().__init__(**kwargs)


class UQCIndex(Ranking):
    """Probability that of two rows the one with the larger loss has the higher score: `uqeval.metrics.uq_c_index`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = UQCIndex()
    >>> metric.update(tensor([0.1, 0.4]), tensor([0.0, 0.2]))
    >>> metric.update(tensor([0.4, 0.9]), tensor([0.3, 0.3]))
    >>> metric.compute()
    tensor(0.9000, dtype=torch.float64)
    """

    higher_is_better = True
    _metric = REGISTRY["uq_c_index"]

    def update(self, score: Tensor, loss: Tensor) -> None:
        """Adds a batch.

        Parameters
        ----------
        score : Tensor of shape (n,)
            Uncertainty; higher means less sure.
        loss : Tensor of shape (n,)
            Any per-row loss; only its order matters.
        """
        self._add(score=score, loss=loss)


class TopLabelCIndex(Ranking):
    """UQ-C-index against the signed confidence: `uqeval.metrics.top_label_c_index`.

    Examples
    --------
    >>> from torch import tensor
    >>> metric = TopLabelCIndex()
    >>> confidence, error = tensor([0.9, 0.6, 0.5, 0.7]), tensor([0, 0, 1, 1])
    >>> metric.update(tensor([0.1, 0.4, 0.4, 0.9]), confidence, error)
    >>> metric.compute()
    tensor(0.9167, dtype=torch.float64)
    """

    higher_is_better = True
    _metric = REGISTRY["top_label_c_index"]

    def update(self, score: Tensor, confidence: Tensor, error: Tensor) -> None:
        """Adds a batch.

        Parameters
        ----------
        score : Tensor of shape (n,)
            Uncertainty; higher means less sure.
        confidence : Tensor of shape (n,)
            Probability of the predicted class, in [0, 1].
        error : Tensor of shape (n,)
            1 where the prediction is wrong, else 0.
        """
        self._add(score=score, confidence=confidence, error=error)
