"""Charts of results, as Altair charts: `.save("x.png")`, .svg, .pdf or .html, without a browser and offline.

A score has the same colour in every chart. Charts hold aggregates, never the rows: a million rows draw as fast and as
small as a thousand.
"""

from uqeval.plot.curves import mbc, mce, risk_coverage, roc
from uqeval.plot.decisions import dominance, label_noise, psi
from uqeval.plot.differences import forest
from uqeval.plot.panels import by_group, reliability, score_histogram, score_vs_gap

__all__ = [
    "by_group",
    "dominance",
    "forest",
    "label_noise",
    "mbc",
    "mce",
    "psi",
    "reliability",
    "risk_coverage",
    "roc",
    "score_histogram",
    "score_vs_gap",
]
