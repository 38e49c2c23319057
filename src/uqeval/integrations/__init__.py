"""Where people log, train and evaluate: MLflow, Hugging Face, Lightning, Inspect. Each loads when it is used."""

from typing import TYPE_CHECKING, Any

from uqeval._lazy import late

if TYPE_CHECKING:
    from uqeval.integrations import huggingface, inspect, lightning, mlflow

__all__ = ["huggingface", "inspect", "lightning", "mlflow"]

_find = late(__name__, {f"{__name__}.{name}": name for name in __all__})


def __getattr__(name: str) -> Any:
    return globals().setdefault(name, _find(name))
