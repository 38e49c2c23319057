"""Inside scikit-learn: scorers for searches and cross-validation, a classifier that abstains (extra ``sklearn``)."""

from uqeval._errors import MissingExtra

try:
    from uqeval.sklearn.scorer import UQScorer, make_uq_scorer
    from uqeval.sklearn.selective import SelectiveClassifier
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    raise MissingExtra("uqeval.sklearn", "scikit-learn", "sklearn") from None

__all__ = ["SelectiveClassifier", "UQScorer", "make_uq_scorer"]
