"""The numbers of an evaluation under stable names, for whoever keeps them: TensorBoard, MLflow, a logger, a function.

What keeps them is told by its methods, so that none of it is imported here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from uqeval._errors import InputError
from uqeval.evaluation.table import Row

_ODD = re.compile(r"[^\w\-. ]")  # in a name: MLflow refuses most, and takes / for a folder


def named_numbers(rows: Iterable[Row], prefix: str = "", *, bounds: bool = True) -> dict[str, float]:
    """``score/metric`` → value, and its interval as ``…_low`` and ``…_high``; NaN where there is no value.

    Metrics of the model itself have ``model`` for a score, those of a group ``by_group/<group>/`` before it.
    """
    found = {}
    for row in rows:
        parts = [row.score or "model", row.metric]
        parts = parts if row.group is None else ["by_group", row.group, *parts]
        # Nothing lies below a value's own name: a store may keep it as a file, and cannot make a folder of it.
        name = prefix + "/".join(_ODD.sub(lambda odd: f"_{ord(odd[0]):x}_", part) for part in parts)
        found[name] = row.estimate.value
        if bounds:
            found |= {f"{name}_low": row.estimate.low, f"{name}_high": row.estimate.high}
    return found


def send(values: Mapping[str, float], to: Any, step: int | None) -> None:
    """Hands the numbers over, in the way that `to` takes them."""
    at = {} if step is None else {"step": step}
    if hasattr(to, "add_scalar"):  # a SummaryWriter
        for name, value in values.items():
            to.add_scalar(name, value, step)
        return
    # MLflow and loggers of Lightning, its modules, Weights & Biases. What else a client of MLflow logs are no numbers.
    names = ("log_metrics",) if hasattr(to, "log_batch") else ("log_metrics", "log_dict", "log")
    call = next((method for method in (*(getattr(to, name, None) for name in names), to) if callable(method)), None)
    if call is None:
        raise InputError(
            f"`to` is {to!r}, which takes no numbers. Pass a SummaryWriter, the module mlflow, a logger with "
            f"log_metrics or log, or a function of a dict; for a run or an address of MLflow, "
            f"uqeval.integrations.mlflow.MLflowRun."
        )
    call(dict(values), **at)
