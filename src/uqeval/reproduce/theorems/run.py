"""The paper's theorems, tried on random finite populations: which hold, which fail, and what is true instead.

The claims and their checks are in `claims` and `claims_metrics`; here they are run, put into words and written.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._errors import InputError
from uqeval._result import strict, to_frame
from uqeval.reproduce.study import write_whole

__all__ = ["Check", "Theorems", "theorems"]

Progress = Callable[[int, int], None]
VERDICTS = ("holds", "holds in part", "fails")


@dataclass(frozen=True)
class Check:
    """One claim of the paper and what became of it."""

    name: str
    where: str  # in the paper
    claim: str
    verdict: str  # "holds", "holds in part" or "fails"
    found: tuple[str, ...]  # in words, with the numbers that matter
    truth: str  # what may be relied on
    numbers: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Theorems:
    """All checks; `write` puts them into a folder."""

    seed: int
    populations: int
    checks: tuple[Check, ...] = field(repr=False)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise InputError(f"There is no check {name!r}. Known: {', '.join(check.name for check in self.checks)}.")

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape."""
        rows = [
            {"name": c.name, "where": c.where, "claim": c.claim, "verdict": c.verdict}
            | {"found": list(c.found), "truth": c.truth, "numbers": c.numbers}
            for c in self.checks
        ]
        return {"study": "theorems", "settings": {"seed": self.seed, "populations": self.populations}, "checks": rows}

    def to_frame(self, kind: str | None = None) -> Any:
        """A row per check: see `Result.to_frame` for `kind`."""
        rows = [{"name": c.name, "where": c.where, "claim": c.claim, "verdict": c.verdict} for c in self.checks]
        return to_frame(rows, kind)

    def headline(self) -> str:
        """How many claims hold."""
        counts = [(sum(c.verdict == verdict for c in self.checks), verdict) for verdict in VERDICTS]
        words = [f"{count} {verdict.replace('holds', 'hold').replace('fails', 'fail')}" for count, verdict in counts]
        return f"Of {len(self.checks)} claims of the paper, " + f"{', '.join(words[:-1])} and {words[-1]}."

    def markdown(self) -> str:
        """The page of the documentation."""
        rows = [f"| [{c.where}](#{_anchor(c)}) | {c.claim} | **{c.verdict}** |" for c in self.checks]
        parts = [
            "# What of the paper's theory holds",
            _INTRODUCTION.format(headline=self.headline(), populations=self.populations, seed=self.seed),
            "\n".join(["| in the paper | claim | |", "|---|---|---|", *rows]),
        ]
        for c in self.checks:
            lines = [f"({_anchor(c)})=", "", f"## {c.where}: {c.verdict}", "", f"> {c.claim}", ""]
            lines += [f"- {words}" for words in c.found]
            lines += ["", f"**What may be relied on.** {c.truth}"]
            parts.append("\n".join(lines))
        return "\n\n".join(parts) + "\n"

    def write(self, folder: str | Path) -> Path:
        """`theorems.md` and `theorems.json`, each written whole."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        write_whole(target / "theorems.md", self.markdown())
        write_whole(target / "theorems.json", json.dumps(strict(self.to_dict()), indent=1, allow_nan=False) + "\n")
        return target

    def __str__(self) -> str:
        lines = [self.headline()]
        for c in self.checks:
            lines += ["", f"{c.where}: {c.verdict}"]
            lines += textwrap.wrap(c.claim, 100, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


def _anchor(check: Check) -> str:
    return f"theorems-{check.name.replace('_', '-')}"


_INTRODUCTION = """\
The paper is Pignet, Regniez and Klein, *Legitimate ground-truth-free metrics for deep uncertainty classification
scoring*, AISTATS 2025. {headline}

φ is the chance that the prediction is wrong, ϕ the probability that the model gives to all but the Bayes class (the
most probable one), Δ the probability that it gives to all but the observed class; 𝓔 stands for the scores that order
inputs as φ or ϕ do.

Each claim is tried on {populations} random finite populations (seed {seed}): a few inputs whose masses, true label
distributions and predicted probabilities are known, so that every metric is exact and a maximum is found by trying
all rankings, ties included (541 of five inputs). Where a claim fails, a counter-example is given that can be checked
by hand. This page is what `uqeval reproduce theorems` writes."""


def theorems(
    out: str | Path | None = None, *, seed: int = 0, populations: int = 200, progress: Progress | None = None
) -> Theorems:
    """Tries each theorem and lemma of the paper on random finite populations, and where it fails.

    Parameters
    ----------
    out : path, optional
        Folder for ``theorems.md`` and ``theorems.json``; nothing is written without it.
    seed : int
        One seed, one result.
    populations : int
        How many random populations each claim is tried on.
    progress : callable(done, total), optional
        Called after every check.

    Returns
    -------
    Theorems
        ``result["uq_auc"].verdict`` is "holds", "holds in part" or "fails"; ``.numbers`` has the evidence.

    Examples
    --------
    >>> result = theorems(populations=20)
    >>> result["nested_phi"].verdict, result["aurc"].verdict
    ('holds', 'fails')
    """
    for name, value, least in (("seed", seed, 0), ("populations", populations, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"`{name}` must be an int ≥ {least}; it is {value!r}.")
    from uqeval.reproduce.theorems.claims import THEOREMS
    from uqeval.reproduce.theorems.claims_metrics import METRICS

    claims = (*THEOREMS, *METRICS)
    found = []
    for k, claim in enumerate(claims):
        found.append(claim(np.random.default_rng([int(seed), k]), int(populations)))
        if progress is not None:
            progress(k + 1, len(claims))
    result = Theorems(int(seed), int(populations), tuple(found))
    if out is not None:
        result.write(out)
    return result
