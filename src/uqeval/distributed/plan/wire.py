"""The wire: every column that stages pass on to each other, by name, and tables of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval.distributed.engines.protocol import Table

Rows = dict[str, NDArray[Any]]

ERROR = "error"  # 0 or 1
LOSS = "loss"
LOSS_BIN = "loss bin"  # its code on the axis of the loss
TIED = "tied in loss"  # rows with the same loss, the row itself included
CLUSTER = ("cluster high", "cluster low")  # 128 bits that tell clusters apart
GROUP = "group"  # its number


def score(k: int) -> str:
    """Score k."""
    return f"score {k}"


def bin_code(k: int) -> str:
    """The code of score k on its axis."""
    return f"bin {k}"


def pairs(k: int) -> str:
    """Twice the credit of the row for UQ-C-index of score k, as far as it is counted."""
    return f"pairs {k}"


def credit(k: int) -> str:
    """Twice the credit of the row for UQ-AUC of score k."""
    return f"credit {k}"


def own(k: int) -> str:
    """What the row's bin knows of its influence on AURC of score k."""
    return f"own {k}"


def places(k: int) -> tuple[str, str]:
    """Where the row's tied block of score k begins and ends among all rows: only where a metric needs it."""
    return f"start {k}", f"stop {k}"


def rows_of(table: Table) -> Rows:
    """Columns of the wire in a table."""
    return {name: table.column(name).to_numpy() for name in table.column_names}


def table_of(rows: Rows) -> Table:
    """The table that goes on the wire."""
    import pyarrow as pa

    return pa.table({name: np.ascontiguousarray(column) for name, column in rows.items()})


def take(rows: Rows, keep: NDArray[Any]) -> Rows:
    """Some of the rows."""
    return {name: column[keep] for name, column in rows.items()}
