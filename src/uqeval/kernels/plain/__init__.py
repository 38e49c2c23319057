"""All kernels in plain NumPy: the definitions made fast, readable, and working everywhere."""

from uqeval.kernels.plain.bootstrap import bootstrap_areas, bootstrap_precision, bootstrap_totals, draw_units
from uqeval.kernels.plain.calibration import exceeding
from uqeval.kernels.plain.grid import to_grid
from uqeval.kernels.plain.order import cut_order, mark, mark_ordered, order_by
from uqeval.kernels.plain.pairs import (
    concordance,
    concordance_parts,
    ordered_concordance,
    ordered_counts,
    pair_counts,
    within_sums,
)
from uqeval.kernels.plain.sums import cell_sums, concordance_sums, order_free_sum, running_moments
from uqeval.kernels.plain.sweep import auc_sums, count_wrong, credits, sweep, sweep_parts, sweep_rows, unit_sums
from uqeval.kernels.plain.weighted import weighted_credit

__all__ = [
    "auc_sums",
    "bootstrap_areas",
    "bootstrap_precision",
    "bootstrap_totals",
    "cell_sums",
    "concordance",
    "concordance_parts",
    "concordance_sums",
    "count_wrong",
    "credits",
    "cut_order",
    "draw_units",
    "exceeding",
    "mark",
    "mark_ordered",
    "order_by",
    "order_free_sum",
    "ordered_concordance",
    "ordered_counts",
    "pair_counts",
    "running_moments",
    "sweep",
    "sweep_parts",
    "sweep_rows",
    "to_grid",
    "unit_sums",
    "weighted_credit",
    "within_sums",
]
