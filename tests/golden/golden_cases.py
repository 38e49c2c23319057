"""200 small test sets from seeds, and what is computed of them: numbers that each later version must give again.

`python tests/golden/golden_cases.py` writes the numbers of this version to numbers.json, a case a line, where a change
of a number is meant: the diff says which. The inputs need raw bits and exact arithmetic only: the same everywhere.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np

import uqeval as uq

FILE = Path(__file__).with_name("numbers.json")
DESIGNS = ("continuous", "tied", "weights", "clusters", "both", "losses", "probs", "soft labels", "groups", "two sets")
SIZES = (8, 13, 30, 61, 100, 257, 400, 1000, 2000, 6000)
COUNT = 200


class Draws:
    """Numbers from the raw bits of PCG64, a stream that NumPy keeps for good."""

    def __init__(self, seed):
        self._bits = np.random.PCG64(seed)

    def uniform(self, *shape):
        """Multiples of 2⁻²⁰ in [0, 1): sums of some stay exact."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        return (raw >> np.uint64(44)).astype(np.float64).reshape(shape) * 2.0**-20

    def below(self, most, n):
        return (self.uniform(n) * most).astype(np.int64)


def make_case(k):
    """What goes into case k, by argument."""
    design, n = DESIGNS[k % 10], SIZES[k // 10 % 10]
    draw = Draws(k)
    hard = draw.uniform(n)  # how hard a row is
    error = (draw.uniform(n) < 0.1 + 0.4 * hard).astype(np.int64)
    error[:4] = 0, 1, 1, 0
    steps = 2.0**20 if design not in ("tied", "both") else (4.0, 16.0, 64.0)[k // 100 + k % 2]
    score = {
        name: np.floor((share * hard + (1 - share) * draw.uniform(n)) * steps) / steps
        for name, share in (("a", 0.5), ("b", 0.25), ("c", 0.75))
    }
    data = {"score": score, "error": error}
    if design in ("weights", "both"):
        data["weights"] = (1 + draw.below(16, n)) / 4
    if design in ("clusters", "both"):
        data["clusters"] = draw.below(max(3, n // 3), n)
    if design == "groups":
        data["groups"] = draw.below(3, n)
    if design == "losses":
        data["loss"] = np.floor(8 * (hard + draw.uniform(n)) / 2) / 8 if k // 100 else (hard + draw.uniform(n)) / 2
    return design, data, draw


def predictions_of(draw, n, design):
    """Probabilities in 1024ths of three classes, with labels, and people's votes."""
    parts = 1 + draw.below(600, n), 1 + draw.below(400, n)
    probs = np.stack([*parts, 1024 - parts[0] - parts[1]], axis=1) / 1024
    edges = np.cumsum(probs, axis=1)
    labels = (draw.uniform(n)[:, None] >= edges[:, :2]).sum(axis=1)
    labels[:3] = 0, 1, 2
    votes = (draw.uniform(n, 8)[:, :, None] >= edges[:, None, :2]).sum(axis=2)
    soft = (votes[:, :, None] == np.arange(3)).sum(axis=1) / 8 if design == "soft labels" else None
    return uq.Predictions(labels, probs=probs, soft_labels=soft)


def numbers_of(k):
    """Name → number of all that is computed of case k."""
    design, data, draw = make_case(k)
    n, found = len(data["error"]), {}
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", uq.UQWarning
        )  # small sets, degenerate intervals: that is what they are here for
        if design == "two sets":
            known, foreign = data["score"]["a"], (data["score"]["a"] + 3 * draw.uniform(n)) / 4
            for metric in ("ood_auroc", "fpr_at_tpr", "ood_aupr"):
                note(found, metric, uq.estimate(metric, known, foreign, resamples=200))
            for name in ("uq_auc", "aurc", "uq_c_index"):
                estimate = uq.estimate(name, data["score"]["a"], data["error"], method="bootstrap", resamples=200)
                note(found, f"bootstrap {name}", estimate)
            return found
        if design in ("probs", "soft labels"):
            of = predictions_of(draw, n, design)
            evaluation = uq.evaluate(of, scores=["entropy", "margin"])
            for row in evaluation:
                note(found, f"{row.score} {row.metric}", row.estimate)
            comparisons = [uq.compare(of, scores=["entropy", "margin"], metric=m) for m in ("uq_auc", "uq_c_index")]
            threshold = uq.choose_threshold("entropy", predictions=of, max_risk=0.5)
        else:
            chosen = ["uq_auc", "aurc", "prr"] if design == "groups" else None
            for row in uq.evaluate(score={"a": data["score"]["a"]}, **rest(data), metrics=chosen):
                note(found, f"{row.score} {row.metric} {row.group or ''}".strip(), row.estimate)
            metrics = ["uq_auc", "aurc", *(["uq_c_index"] if "loss" in data else [])]
            comparisons = [uq.compare(data["score"], **rest(data), metric=m, adjust="holm") for m in metrics]
            own = {name: data[name] for name in ("weights", "clusters") if name in data}
            if len(own) == 2:
                own["cluster_method"] = "exact"
            wrong = data.get("loss", data["error"])
            threshold = uq.choose_threshold(data["score"]["a"], wrong, max_risk=0.4, **own)
        for comparison in comparisons:
            for row in comparison.rows:
                name = f"{comparison.metric} {row.a} - {row.b} {row.group or ''}".strip()
                found[name] = [row.difference, row.low, row.high, row.se, row.p, row.p_adjusted]
        names = "value", "coverage", "risk", "risk_bound", "n_accepted", "errors_accepted"
        found["threshold"] = [float(getattr(threshold, name)) for name in names]
    return found


def rest(data):
    return {name: value for name, value in data.items() if name != "score"}


def note(found, name, estimate):
    found[name] = [estimate.value, estimate.low, estimate.high, estimate.se]


def written(numbers):
    """As text of 15 digits: NaN and infinities, too."""
    return {name: " ".join(f"{x:.15g}" for x in values) for name, values in numbers.items()}


def digest(cases=range(12)):
    """Of all bits of the numbers of these cases, and of what a file and JSON make of one."""
    every = [
        sorted((name, [float(x).hex() for x in numbers]) for name, numbers in numbers_of(k).items()) for k in cases
    ]
    _, data, _ = make_case(31)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.csv")
        rows = zip(data["score"]["a"].tolist(), data["error"].tolist(), strict=True)
        file.write_text("I,error\n" + "".join(f"{score!r},{error}\n" for score, error in rows), encoding="utf-8")
        text = uq.evaluate(str(file), score="I", error="error").to_json()
    return hashlib.sha256((repr(every) + text).encode()).hexdigest()


def read():
    """(numbers of case 0, 1, …) as they were written."""
    cases = json.loads(FILE.read_text(encoding="utf-8"))
    return [{name: [float(x) for x in text.split()] for name, text in case.items()} for case in cases]


if __name__ == "__main__":
    lines = [json.dumps(written(numbers_of(k)), ensure_ascii=False) for k in range(COUNT)]
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
