"""One model against human labels: its logits are read once, piece by piece, and only vectors of rows are kept.

What is per row is found here with the library's own functions in float64; the metrics then see whole vectors, so the
numbers do not depend on the size of the pieces.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels, metrics, truth
from uqeval._check import Bit, Float, Int, nearest
from uqeval._errors import InputError, collected
from uqeval.inputs.softmax import softmax
from uqeval.metrics.multiclass import class_gap
from uqeval.metrics.proper import brier_rows, log_loss_rows, weighted_mean
from uqeval.reproduce.logits.file import Prediction, hash_labels, mean_of, pieces, reject_not_finite
from uqeval.reproduce.logits.folder import check_accuracy
from uqeval.reproduce.study import judge_score, stored
from uqeval.scores import available, compute

OVR_CLASSES = 20  # one-versus-rest UQ-C-index needs a column per class: that many, evenly spaced, where there are more
_VALUES = 1 << 20  # logits per piece: 8 MiB in float64
_NEEDS = {name: needs[0] for name, needs in available().items()}
FIRST_ORDER = tuple(name for name, need in _NEEDS.items() if need in ("probs", "logits"))
# The entropy of the mean is `total_entropy`; the last three are of the mean probabilities, too.
SECOND_ORDER = (
    *(name for name, need in _NEEDS.items() if need in ("members", "member_logits")),
    *("gap_to_certain", "margin", "bernoulli_variance"),
)


@dataclass(frozen=True)
class Reference:
    """What all models of a study are held against."""

    study: str  # "cifar10h", "imagenet_real" or "oasst2"
    title: str
    labels: Int = field(repr=False)  # (N,)
    classes: int
    soft: Callable[[Int], Float] = field(repr=False)  # row numbers → their (rows, K) human label distribution
    rated: NDArray[np.bool_] = field(repr=False)  # (N,): rows that have one; the others are left out
    paper: dict[str, Any] = field(default_factory=dict, repr=False)  # "printed" rows over so many "models", and "notes"
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    text: bool = False  # language models: other families

    def majority(self) -> tuple[Int, int]:
        """The class that most people chose (−1 where nobody did), the lowest where several lead; how many such rows."""
        found = np.full(len(self.labels), -1, dtype=np.int64)
        tied = 0
        for rows in self._steps():
            soft = self.soft(rows)
            found[rows] = soft.argmax(axis=1)
            tied += int((np.count_nonzero(soft == soft.max(axis=1, keepdims=True), axis=1) > 1).sum())
        return found, tied

    def digest(self) -> str:
        """A hash of labels and soft labels."""
        found = hashlib.sha256(hash_labels(self.labels).encode())
        found.update(self.rated.tobytes())
        for rows in self._steps():
            found.update(np.ascontiguousarray(self.soft(rows), dtype="<f8").tobytes())
        return found.hexdigest()

    def _steps(self) -> list[Int]:
        rows = np.flatnonzero(self.rated)
        step = max(1, _VALUES // self.classes)
        return [rows[start : start + step] for start in range(0, len(rows), step)]


@dataclass
class Rows:
    """Vectors of one model over the rows that have human labels."""

    labels: Int
    predicted: Int
    error: Bit
    gap: Float
    own: Float  # the gap that the prediction would have as the label: low where the model is sure
    phi: Float
    varphi: Float
    confidence: Float
    brier: Float
    log_loss: Float
    columns: Float  # (n, C): probabilities of the classes in `chosen`
    chosen: Int
    scores: dict[str, Float]


def scores_of(kind: str, asked: Sequence[str] | None = None) -> list[str]:
    """Which scores a single model, or members and passes, allow; those of them that are asked for."""
    known = dict.fromkeys([*FIRST_ORDER, *SECOND_ORDER])
    for name in asked or ():
        if name not in known:
            raise InputError(f"`scores`: there is no score {name!r}.{nearest(name, known)} Use {', '.join(known)}.")
    allowed = FIRST_ORDER if kind == "single" else SECOND_ORDER
    return [name for name in allowed if asked is None or name in asked]


def read_rows(
    prediction: Prediction, reference: Reference, rows: Int | None, scores: Sequence[str], *, allow_chance: bool = False
) -> Rows:
    """One pass over a model's logits; `rows` are the reference rows that it covers, None for all."""
    logits = prediction.open()
    several = logits.ndim == 3
    place = np.arange(len(reference.labels)) if rows is None else rows
    chosen = np.unique(np.linspace(0, reference.classes - 1, min(reference.classes, OVR_CLASSES)).round()).astype(int)
    top: list[Int] = []
    parts: defaultdict[str, list[Any]] = defaultdict(list)
    scored: defaultdict[str, list[Float]] = defaultdict(list)
    with collected():  # tied top classes: the lowest index is taken
        for part in pieces(logits.shape, _VALUES):
            z = np.asarray(logits[..., part, :], dtype=np.float64)
            if not np.isfinite(z).all():
                reject_not_finite(prediction.where, logits)
            members = softmax(z)
            p = mean_of(members)
            top.append(p.argmax(axis=1))
            where = place[part]
            rated = reference.rated[where]
            if not rated.any():
                continue
            if not rated.all():
                z, members, p, where = z[..., rated, :], members[..., rated, :], p[rated], where[rated]
            y, predicted = reference.labels[where], p.argmax(axis=1)
            at, soft = np.arange(len(y)), reference.soft(where)
            best = truth.bayes_labels(soft)
            # The gap to the label and that to the answer of most people, both so that a sure model does not tie rows.
            of, values = (_own_and_rest, p) if several else (_gap_of_logits, z)
            gap, other, wrong = of(values, y), best != y, predicted != y
            own = gap.copy()
            if wrong.any():
                own[wrong] = of(values[wrong], predicted[wrong])
            varphi = gap.copy()
            if other.any():  # few rows, and the gap of many classes takes a sort
                varphi[other] = of(values[other], best[other])
            found = {
                "labels": y,
                "predicted": predicted,
                "confidence": p[at, predicted],
                "columns": p[:, chosen],
                "phi": -soft[at, predicted],  # minus the probability ranks as one minus it does, and does not round
                "brier": brier_rows(p, y),
                "gap": gap,
                "own": own,
                "varphi": varphi,
                "log_loss": log_loss_rows(p, y) if several else gap,  # the log-loss itself, without underflow
            }
            for name, vector in found.items():
                parts[name].append(vector)
            outputs = SimpleNamespace(probs=p, logits=z, members=members, member_logits=z)
            for name in scores:
                scored[name].append(compute(name, outputs))
        if not parts:
            raise InputError(f"{prediction.where}: none of the rows that it covers has a human label.")
        covered = reference.labels[place]
        check_accuracy(prediction, np.concatenate(top), covered, reference.classes, allow_chance=allow_chance)
        whole = {name: np.concatenate(found) for name, found in parts.items()}
        if several:  # from the whole, because rows that round to a gap of 0 are told apart by their rank
            zeros = np.zeros(len(whole["labels"]), dtype=np.int64)
            whole |= {name: truth.rank_loss(whole[name], zeros) for name in ("gap", "own", "varphi")}
    return Rows(
        **whole,
        error=(whole["predicted"] != whole["labels"]).view(np.uint8),
        chosen=chosen,
        scores={name: np.concatenate(values) for name, values in scored.items()},
    )


def _gap_of_logits(z: Float, label: Int) -> Float:
    """`truth.gap_from_logits`, which wants rows to rank, of a single row too."""
    if len(z) > 1:
        return truth.gap_from_logits(z, label)
    return truth.gap_from_logits(np.repeat(z, 2, axis=0), np.repeat(label, 2))[:1]


def _own_and_rest(p: Float, label: Int) -> Float:
    """(n, 2): the probability of the label, and that of all other classes, summed by itself."""
    at = np.arange(len(p))
    rest = p.copy()
    rest[at, label] = 0.0
    return np.stack([p[at, label], rest.sum(axis=1)], axis=1)


def judge(prediction: Prediction, rows: Rows, classes: int) -> list[dict[str, Any]]:
    """A row per score: every metric, both Kendall correlations (tau-b), one-versus-rest and the top-label C-index."""
    if not rows.scores:
        return []
    right = 1.0 - rows.error
    shared = {
        "accuracy": float(right.mean()),
        "n": len(right),
        "members": prediction.shape[0] if len(prediction.shape) == 3 else 1,
        "ece": metrics.ece(rows.confidence, right),
        "brier": weighted_mean(rows.brier, None),
        "log_loss": weighted_mean(rows.log_loss, None),
    }
    found = []
    signed, best = top_label(rows)
    with collected():
        for (name, s), c_index in zip(rows.scores.items(), _ovr_concordance(rows, classes), strict=True):
            row = {"model": prediction.name, "family": prediction.family, "kind": prediction.kind, "score": name}
            more = {
                "somers_phi": metrics.somers_d(s, rows.phi),
                "somers_varphi": metrics.somers_d(s, rows.varphi),
                "uq_auc_ovr": _ovr_auc(s, rows, classes) if classes > 2 else math.nan,
                "uq_c_index_ovr": c_index,
                "top_label_c_index": metrics.uq_c_index(s, signed) if classes > 2 else math.nan,
                "kendall_top_label": metrics.kendall_tau(s, best) if classes > 2 else math.nan,
            }
            metrics_of = judge_score(s, rows.error, rows.gap, rows.phi, rows.varphi)
            found.append(stored(row | {"draw": None} | metrics_of | more | shared))
    return found


def top_label(rows: Rows) -> tuple[Float, Float]:
    """What the top-label C-index ranks, and the order that is best for it: confidences as ranks, which do not round.

    The first is minus the confidence of right predictions and that of wrong ones; the second the same, by whether most
    people contradict the prediction (0 where half of them do).
    """
    levels, level = np.unique(rows.own, return_inverse=True)
    sure = (len(levels) - level).astype(np.float64)
    return np.where(rows.error == 1, sure, -sure), sure * np.sign(rows.phi + 0.5)


def _ovr_auc(score: Float, rows: Rows, classes: int) -> float:
    """Macro UQ-AUC of the tasks "class k or not" for a shared score, all classes at once from one ranking.

    Task k is wrong where the row is misclassified and k is its label or its prediction.
    """
    order = kernels.order_by(score)
    rank = np.empty(len(score))
    rank[order.row] = (order.start + order.end + 1) / 2  # midranks
    wrong = rows.error.astype(bool)
    count = np.zeros(classes)
    total = np.zeros(classes)
    for of in (rows.labels[wrong], rows.predicted[wrong]):
        count += np.bincount(of, minlength=classes)
        total += np.bincount(of, weights=rank[wrong], minlength=classes)
    defined = (count > 0) & (count < len(score))
    if not defined.any():
        return math.nan
    ones, ranks = count[defined], total[defined]
    return float(((ranks - ones * (ones + 1) / 2) / (ones * (len(score) - ones))).mean())


def _ovr_concordance(rows: Rows, classes: int) -> list[float]:
    """Macro UQ-C-index of the tasks of the chosen classes, for each score; two classes are the direct metric."""
    if classes == 2:
        return [math.nan] * len(rows.scores)
    target = class_gap(rows.columns, rows.labels[:, None] == rows.chosen)
    stack = np.stack(list(rows.scores.values()))
    values = []
    for k in range(len(rows.chosen)):
        credit2, comparable = kernels.pair_counts(stack, np.ascontiguousarray(target[:, k]))
        pairs = int(comparable.sum())
        if pairs:
            values.append([int(credit.sum()) / (2 * pairs) for credit in credit2])
    return [float(value) for value in np.mean(values, axis=0)] if values else [math.nan] * len(stack)
