"""The paper's theorems, tried on random finite populations: which hold, which fail, and what is true instead.

The claims and their checks are in `claims`; here they are run, put into words and published.
"""

import textwrap
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval._result import Grid
from uqeval.pages.builder import build
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import Makers, Page
from uqeval.reproduce.study import Publishable, Timing, check_natural
from uqeval.reproduce.theorems.claims import CLAIMS, Check, check
from uqeval.reproduce.theorems.figures import not_optimal

_WORDS = read_table("words.toml")["theorems"]
VERDICTS = ("holds", "holds in part", "fails")
SCOPES = ("inside", "outside")  # of the paper: two classes and one predictor
_HEADINGS = {"holds": "What holds", "holds in part": "What holds in part", "fails": "What does not hold"}


@dataclass(frozen=True)
class Theorems(Publishable):
    """All checks; `publish` leaves them in a folder."""

    study: str = field(default="theorems", kw_only=True)
    settings: dict[str, Any]
    checks: tuple[Check, ...] = field(repr=False)
    timing: Timing = field(default_factory=Timing, repr=False, compare=False)

    def __getitem__(self, name: str) -> Check:
        known = {check.name: check for check in self.checks}
        if name not in known:
            raise InputError(f"There is no check {name!r}. Known: {', '.join(known)}.")
        return known[name]

    def frame_rows(self) -> list[dict[str, Any]]:
        """A row per check."""
        return [{key: getattr(c, key) for key in ("name", "where", "scope", "claim", "verdict")} for c in self.checks]

    def grid(self) -> Grid:
        """A line per claim."""
        rows = [[c.where, c.claim, c.scope, c.verdict] for scope in SCOPES for c in self.within(scope)]
        return Grid(["in the paper", "claim", "scope", "verdict"], rows, self.headline())

    def within(self, scope: str) -> list[Check]:
        """The checks "inside" the paper's scope, or "outside" of it."""
        return [c for c in self.checks if c.scope == scope]

    def headline(self) -> str:
        """How many claims hold."""
        inside, outside = (self.within(scope) for scope in SCOPES)
        return f"Of {len(inside)} claims of the paper, {_counts(inside)}. {_WORDS['outside'].format(_counts(outside))}"

    def markdown(self) -> str:
        """The page of the documentation."""
        return build("theorems.md.j2", study=self, method=_WORDS["method"].format(**self.settings), words=_WORDS)

    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws its figure."""
        two, many = self["uq_c_index"].numbers, self["many_classes"].numbers
        return {"not_optimal": lambda: not_optimal(many, two["best"], self.settings["populations"])}

    def page(self) -> Page:
        """What its page says."""
        return Page(
            title="What of the paper's theory holds",
            lead=f"{self.headline()} {_WORDS['lead']}",
            facts=[(name, str(value)) for name, value in self.settings.items()],
            short=[
                (heading, [f"{c.where}: {c.truth}" for c in self.within("inside") if c.verdict == verdict])
                for verdict, heading in _HEADINGS.items()
            ]
            + [("Outside the paper's scope", [f"{c.where}: {c.verdict}. {c.truth}" for c in self.within("outside")])],
            tables=[self.grid()._replace(caption="All claims")],
            notes=[_WORDS["method"].format(**self.settings)],
            settings=[(name, str(value)) for name, value in self.settings.items()],
            texts={"not_optimal": self._caption()},
            claims=self.checks,
        )

    def _caption(self) -> str:
        two, many = self["uq_c_index"].numbers, self["many_classes"].numbers
        most, loss = max(many["not_optimal"].values()), max(many["largest_loss"].values())
        return _WORDS["caption"].format(two["best"], self.settings["populations"], most, loss)

    def __str__(self) -> str:
        lines = [self.headline()]
        for c in self.checks:
            lines += ["", f"{c.where}: {c.verdict}{' (outside its scope)' * (c.scope == 'outside')}"]
            lines += textwrap.wrap(c.claim, 100, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)

    def view(self) -> Iterator[str | Grid]:
        """The table."""
        yield self.grid()


def _counts(checks: list[Check]) -> str:
    counts = [(sum(c.verdict == verdict for c in checks), verdict) for verdict in VERDICTS]
    words = [f"{n} {v.replace('holds', 'hold').replace('fails', 'fail') if n != 1 else v}" for n, v in counts if n]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def theorems(
    out: str | Path | None = None, *, seed: int = 0, populations: int = 200, progress: Progress | None = None
) -> Theorems:
    """Tries each theorem and lemma of the paper on random finite populations, and where it fails.

    Parameters
    ----------
    out : path, optional
        Folder for tables, figure and page; nothing is written without it.
    seed : int
        One seed, one result.
    populations : int
        How many random populations each claim is tried on.
    progress : callable(stage, done, total), optional
        Called after every check and every figure.

    Returns
    -------
    Theorems
        ``result["uq_auc"].verdict`` is "holds", "holds in part" or "fails"; ``.numbers`` has the evidence.

    Examples
    --------
    >>> result = theorems(populations=20)
    >>> result["nested_phi"].verdict, result["aurc"].verdict
    ('holds in part', 'fails')
    """
    settings = {"seed": check_natural("seed", seed, 0), "populations": check_natural("populations", populations, 1)}
    found, timing = [], Timing()
    with timing.stage("checks", progress) as tell:
        for k, words in enumerate(CLAIMS):
            # By its name, so that a new claim does not change the numbers of the others.
            rng = np.random.default_rng([settings["seed"], zlib.crc32(words["name"].encode())])
            found.append(check(words, rng, settings["populations"]))
            tell(k + 1, len(CLAIMS))
    return Theorems(settings, tuple(found), timing).published(out, progress)
