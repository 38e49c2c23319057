"""What the paper prints in Table 1, held against itself: a Fisher interval tells its number of models."""

import math
from typing import Any

import numpy as np

from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.synthetic.networks import GRID

_HUMAN = read_table("human/paper.toml")
_DATA = {"Synth.": GRID["paper"]} | {
    name: _HUMAN[key]["printed"]
    for name, key in (("CIFAR10-H", "cifar10h"), ("R-ImageNet", "imagenet_real"), ("OASST2", "oasst2"))
}
_MENDED = {("CIFAR10-H", 0.5399): 0.5299, ("Synth.", 0.943): 0.9463}  # ends that fit with one digit changed or added


def table(_: np.random.Generator, __: int) -> tuple[str, dict[str, Any], dict[str, Any]]:
    rows = [
        {"dataset": name, "r": row["r"]} | implied(row["low"], row["high"])
        for name, printed in _DATA.items()
        for row in printed
    ]
    mended = [
        {"dataset": name, "r": row["r"]}
        | implied(_MENDED.get((name, row["low"]), row["low"]), _MENDED.get((name, row["high"]), row["high"]))
        for name, printed in _DATA.items()
        for row in printed
    ]
    odd = next(row["centre"] for row in rows if row["r"] == -0.0004)
    synth = next(row["centre"] for row in mended if row["r"] == 0.9344)
    counts = {name: [row["n"] for row in mended if row["dataset"] == name] for name in _DATA}
    as_printed = next(row["n"] for row in rows if row["r"] == 0.6518)
    words: dict[str, Any] = {"odd": abs(100 * odd), "mended_percent": 100 * synth, "as_printed": as_printed}
    words |= {"low": 100 * interval(0.6518, 111)[0], "models": {n: [min(v), max(v)] for n, v in counts.items()}}
    return "holds in part", {"rows": rows, "mended": mended}, words


def implied(low: float, high: float) -> dict[str, float]:
    """Centre of a Fisher interval, and how many models have one so wide."""
    a, b = math.atanh(low), math.atanh(high)
    return {"centre": math.tanh((a + b) / 2), "n": 3 + (2 * 1.959964 / (b - a)) ** 2}


def interval(r: float, models: int) -> tuple[float, float]:
    """Fisher's 95% interval."""
    half = 1.959964 / math.sqrt(models - 3)
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
