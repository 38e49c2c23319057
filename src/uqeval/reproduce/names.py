"""How the studies call metrics and truths, in tables, figures and sentences."""

from typing import Any

Row = dict[str, Any]

TRUTHS = ("kendall_phi", "kendall_varphi")
MAIN = ("uq_auc", "uq_c_index")
METRICS = (*MAIN, "aurc", "augrc", "ece", "brier", "log_loss")
SYMBOLS = dict(zip(TRUTHS, ("κ(s; φ)", "κ(s; ϕ)"), strict=True))
MEANINGS = dict(zip(TRUTHS, ("chance of error φ", "commitment against the Bayes label ϕ"), strict=True))
TITLES = dict(zip(METRICS, ("UQ-AUC", "UQ-C-index", "AURC", "AUGRC", "ECE", "Brier", "NLL"), strict=True))
TITLES |= {truth: f"{SYMBOLS[truth]} ({MEANINGS[truth]})" for truth in TRUTHS}
FOUR = [(metric, truth) for metric in MAIN for truth in TRUTHS]
HEADS = [f"{TITLES[metric]}, {MEANINGS[truth]}" for metric, truth in FOUR]
