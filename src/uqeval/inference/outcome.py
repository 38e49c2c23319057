"""Value, standard error and interval → `Estimate`, with what limits it; and what all kinds of intervals share."""

from typing import Any

from uqeval._lanes import Number, has_lanes, isnan, sqrt
from uqeval.inference.forms import NAN, UNKNOWN, Interval, settled
from uqeval.inference.result import Estimate, Estimates, noted
from uqeval.inference.sizes import Sizes

Found = Any  # Estimate, or Estimates where the tally has lanes
FEW = 10


def _limits(sizes: Sizes) -> tuple[Any, ...]:
    """What limits an estimate from these rows."""
    notes: tuple[Any, ...] = ()
    if sizes.binary:
        for rows, what in ((sizes.wrong.rows, "errors"), (sizes.right.rows, "right rows")):
            notes += noted(rows < FEW, f"few {what} ({{}}): the interval is wide and conservative", rows)
        if sizes.weighted and sizes.wrong.rows >= FEW and (size := sizes.wrong.size) < 20:
            notes += (f"the errors weigh as few as {size:.0f} rows: the interval is wide",)
    if sizes.clusters is not None and sizes.clusters.all == 1:
        notes += ("a single cluster: no standard error or interval",)
    elif sizes.clusters is not None and sizes.clusters.all < FEW:
        notes += (f"few clusters ({sizes.clusters.all}): the interval is unreliable",)
    return notes


def as_estimate(
    sizes: Sizes,
    level: float,
    n_eff: Number,
    value: Number,
    *,
    se: Number,
    method: str,
    interval: Interval = UNKNOWN,
    degenerate: bool = False,
    first: tuple[Any, ...] = (),
    notes: tuple[Any, ...] = (),
) -> Found:
    given: dict[str, Any] = {
        "value": value,
        "low": interval.low,
        "high": interval.high,
        "se": se,
        "level": level,
        "method": method,
        "n": sizes.rows,
        "n_errors": sizes.wrong.rows if sizes.binary else None,
        "n_clusters": None if sizes.clusters is None else sizes.clusters.all,
        "n_clusters_eff": sizes.clusters_eff,
        "n_eff": n_eff,
        "degenerate": degenerate or isnan(value),
        "warnings": (*first, *_limits(sizes), *notes),
    }
    return Estimates.of(**given) if has_lanes(sizes.rows) else Estimate(**given)


def single_cluster(sizes: Sizes) -> bool:
    return sizes.clusters is not None and sizes.clusters.all == 1


def cluster_se(squares: float, sizes: Sizes, scale: float = 1.0) -> Number:
    count = 0 if sizes.clusters is None else sizes.clusters.all
    return settled(sqrt(squares * count / (count - 1)), scale) if count > 1 else NAN
