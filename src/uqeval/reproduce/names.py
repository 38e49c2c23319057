"""How the studies call metrics and truths, in tables, figures and sentences."""

from typing import Any

Row = dict[str, Any]

TRUTHS = ("kendall_phi", "kendall_varphi")
MAIN = ("uq_auc", "uq_c_index")
METRICS = (*MAIN, "aurc", "augrc", "ece", "brier", "log_loss")
# As the paper's PDF prints its \phi and \varphi: the straight ϕ (U+03D5) and the curled φ (U+03C6).
SIGNS = dict(zip(TRUTHS, ("ϕ", "φ"), strict=True))
SYMBOLS = {truth: f"κ(s; {sign})" for truth, sign in SIGNS.items()}
MEANINGS = dict(zip(TRUTHS, ("error probability", "misalignment"), strict=True))
TITLES = dict(zip(METRICS, ("UQ-AUC", "UQ-C-index", "AURC", "AUGRC", "ECE", "Brier", "NLL"), strict=True))
TITLES |= {truth: f"{SYMBOLS[truth]} ({MEANINGS[truth]})" for truth in TRUTHS}
# Beyond the paper: a C-index with a best order for any number of classes, and that order.
TOP_LABEL = {"top_label_c_index": "top-label C-index", "kendall_top_label": "its best order, κ(s; c·sgn(ϕ − ½))"}
# Scores of one kind order inputs much alike; among them a high correlation is harder to have than with bad ones beside.
_KINDS = {
    "entropy": ("entropy", "total_entropy", "aleatoric_entropy"),
    "free energy": ("free_energy", "expected_free_energy"),
    "mutual information": ("mutual_information",),
    "variance": ("bernoulli_variance", "predicted_class_variance"),
}
KIND_OF = {score: kind for kind, scores in _KINDS.items() for score in scores}
FOUR = [(metric, truth) for metric in MAIN for truth in TRUTHS]
COLUMNS = dict(zip(TRUTHS, (f"{MEANINGS[truth]}, {SYMBOLS[truth]}" for truth in TRUTHS), strict=True))
HEADS = [f"{TITLES[metric]}, {MEANINGS[truth]}" for metric, truth in FOUR]
