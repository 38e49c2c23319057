"""What the figures show of the data itself: its law, the truths of a predictor, a few networks trained again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uqeval import metrics, truth
from uqeval._check import Float
from uqeval._errors import collected
from uqeval.datasets.synthetic import Synthetic
from uqeval.inputs.softmax import softmax
from uqeval.reproduce.synthetic.networks import Fitted, Plan, draw_of, fitted, plans_of

_SIDE, _SHADES = 64, 40  # cells of a map along each axis, and how many colours they have
_FINE = 700  # of the grid that the law is integrated on
_BETTER = 0.6  # accuracy from which the arbitrary predictor is better than chance, and not by luck
_PER_METHOD = 3
_MOST = 200  # draws to look at


@dataclass(frozen=True)
class Scene:
    """A draw of the data with the paper's arbitrary predictor: logit = second coordinate − its mean."""

    seed: int
    data: Synthetic
    words: str  # why this draw

    @property
    def level(self) -> float:
        """Where the predictor changes its mind."""
        return float(self.data.x[:, 1].mean())

    def predict(self, x: Float) -> Float:
        """(n, 2) probabilities."""
        z = x[:, 1] - self.level
        return softmax(np.column_stack([np.zeros(len(z)), z]))

    @property
    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Ends of the two axes of the maps."""
        low, high = self.data.x.min(axis=0) - 0.2, self.data.x.max(axis=0) + 0.2
        return (float(low[0]), float(high[0])), (float(low[1]), float(high[1]))

    def map(self, name: str) -> dict[str, Float]:
        """π, ϕ or φ as few rectangles: a fine grid, its cells of one shade joined along each line."""
        a, b = (np.linspace(*ends, _SIDE + 1) for ends in self.limits)
        x = np.column_stack([axis.ravel() for axis in np.meshgrid((a[1:] + a[:-1]) / 2, (b[1:] + b[:-1]) / 2)])
        if name == "pi":
            values = self.data.pi(x)[:, 1]
        else:
            probs = self.predict(x)
            values = self.data.phi(x, probs) if name == "kendall_phi" else self.data.varphi(x, probs)
        shade = np.rint(values * _SHADES).astype(int).reshape(_SIDE, _SIDE)
        line, column = np.nonzero(np.diff(shade, axis=1, prepend=-1))  # where a rectangle begins
        end = np.where(np.append(line[1:], -1) == line, np.append(column[1:], 0), _SIDE)
        found = {"left": a[column], "right": a[end], "below": b[line], "above": b[line + 1]}
        return found | {"value": shade[line, column] / _SHADES}


def arbitrary(grid: dict[str, Any], draws: list[int], d_range: tuple[float, float] | None) -> Scene | None:
    """The first draw, of the study or after it, on which the arbitrary predictor is better than chance.

    None where the data have more than two classes or coordinates: there is no such predictor, and no map.
    """
    if (grid["data"].get("classes", 2), grid["data"].get("dim", 2)) != (2, 2):
        return None
    others = [seed for seed in range(_MOST) if seed not in draws]
    passed: list[tuple[int, float]] = []
    for seed in [*draws, *others]:
        data = draw_of(grid, seed)
        if seed not in draws and d_range is not None and not d_range[0] <= data.d <= d_range[1]:
            continue
        scene = Scene(seed, data, "")
        right = float((scene.predict(data.x).argmax(axis=1) == data.labels).mean())
        if right >= _BETTER:
            words = f"Draw {seed}{'' if seed in draws else ', not one of the study'}: right on {right:.0%} of the rows"
            return Scene(seed, data, words + _passed(passed))
        passed.append((seed, right))
    return None


def _passed(draws: list[tuple[int, float]]) -> str:
    if not draws:
        return ""
    named = ", ".join(f"{seed} ({right:.0%})" for seed, right in draws[:5])
    more = f" and {len(draws) - 5} more" * (len(draws) > 5)
    return f"; draws passed over, where it is right on too few: {named}{more}"


def risk_curves(scene: Scene) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Error rate in {ϕ ≤ β} and share of misaligned rows in {φ ≤ β} against β: by the law, and observed."""
    data = scene.data
    spread = 6 * data.sigma
    ends = [np.linspace(data.means[:, k].min() - spread, data.means[:, k].max() + spread, _FINE) for k in (0, 1)]
    x = np.column_stack([axis.ravel() for axis in np.meshgrid(*ends)])
    density = np.exp(data.log_joint(x)).sum(axis=1)
    probs = scene.predict(x)
    with collected():  # the frontier itself
        phi, varphi = data.phi(x, probs), data.varphi(x, probs)
        apart = data.misaligned(x, probs)
        own = scene.predict(data.x)
        error = truth.misclassified(own, data.labels)
        seen = (
            metrics.mce_curve(data.phi(data.x, own), error),
            metrics.mbc_curve(data.varphi(data.x, own), data.misaligned(data.x, own)),
        )
    beta = np.linspace(0.01, 1.0, 100)
    found = []
    for score, bad, curve in ((phi, phi, seen[0]), (varphi, apart.astype(np.float64), seen[1])):
        order = np.argsort(score, kind="stable")
        weight, lost = np.cumsum(density[order]), np.cumsum((density * bad)[order])
        inside = np.searchsorted(score[order], beta, side="right")
        rows = [
            {"beta": float(b), "risk": float(lost[k - 1] / weight[k - 1]), "kind": "exact"}
            for b, k in zip(beta, inside, strict=True)
            if k > 0
        ]
        kept = np.unique(np.linspace(0, len(curve) - 1, 120).astype(int))
        rows += [
            {"beta": float(curve.threshold[k]), "risk": float(curve.risk[k]), "kind": "observed"}
            for k in kept.tolist()
            if curve.accepted[k] >= 10  # a share of fewer rows is noise
        ]
        rows.append({"beta": 1.0, "risk": float(curve.risk[-1]), "kind": "observed"})
        found.append(rows)
    return found[0], found[1]


def few_models(grid: dict[str, Any], seed: int, methods: Sequence[Plan]) -> list[tuple[Fitted, str]]:
    """A few models of each method with a score each, picked at random, trained again (to float32 rounding)."""
    chosen = _choose(grid, methods)
    again = fitted(grid, seed, [plan for plan, _ in chosen])
    return [(found, score) for found, (_, score) in zip(again, chosen, strict=True)]


def _choose(grid: dict[str, Any], methods: Sequence[Plan]) -> list[tuple[Plan, str]]:
    """Plan and score of each model to show, by method."""
    rng = np.random.default_rng(0)
    found = []
    for method in methods:
        part = "paper" if method in grid["methods"] else method["name"]
        every = [plan for k in range(len(grid["training"]["hidden"])) for plan in plans_of(grid, k, part)]
        plans = [plan for plan in every if plan["method"] == method["name"]]
        picked = rng.permutation(len(plans))[:_PER_METHOD]
        scores = rng.permutation(len(method["scores"]))
        for place, k in enumerate(sorted(picked.tolist())):
            found.append((plans[k], method["scores"][scores[place % len(scores)]]))
    return found
