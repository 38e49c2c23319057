"""Uncertainty scores, one number per row; higher means less sure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uqeval._lazy import late
from uqeval.scores.dirichlet import (
    dirichlet_differential_entropy,
    dirichlet_entropy,
    dirichlet_mutual_information,
    vacuity,
)
from uqeval.scores.logits import free_energy, max_logit
from uqeval.scores.members import (
    aleatoric_entropy,
    expected_free_energy,
    mutual_information,
    predicted_class_variance,
    total_entropy,
    vote_entropy,
    vote_ratio,
)
from uqeval.scores.probs import bernoulli_variance, entropy, gap_to_certain, margin
from uqeval.scores.registry import available, compute

if TYPE_CHECKING:
    from uqeval.scores.features import KNNDistance, Mahalanobis, knn_distance, mahalanobis
    from uqeval.scores.samples import answer_disagreement, cluster_entropy, semantic_clusters
    from uqeval.scores.tokens import mean_token_entropy, mean_token_nll, perplexity, sequence_nll

__all__ = [
    "KNNDistance",
    "Mahalanobis",
    "aleatoric_entropy",
    "answer_disagreement",
    "available",
    "bernoulli_variance",
    "cluster_entropy",
    "compute",
    "dirichlet_differential_entropy",
    "dirichlet_entropy",
    "dirichlet_mutual_information",
    "entropy",
    "expected_free_energy",
    "free_energy",
    "gap_to_certain",
    "knn_distance",
    "mahalanobis",
    "margin",
    "max_logit",
    "mean_token_entropy",
    "mean_token_nll",
    "mutual_information",
    "perplexity",
    "predicted_class_variance",
    "semantic_clusters",
    "sequence_nll",
    "total_entropy",
    "vacuity",
    "vote_entropy",
    "vote_ratio",
]

# Those of features and of texts are loaded when first used: most evaluations have none.
_find = late(
    __name__,
    {
        "uqeval.scores.features": "KNNDistance Mahalanobis knn_distance mahalanobis",
        "uqeval.scores.samples": "answer_disagreement cluster_entropy semantic_clusters",
        "uqeval.scores.tokens": "mean_token_entropy mean_token_nll perplexity sequence_nll",
    },
)


def __getattr__(name: str) -> Any:
    return globals().setdefault(name, _find(name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
