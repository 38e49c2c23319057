"""Scores that are one ranking in other clothes: found without sorting any of them twice.

All metrics that rank, all regions {score ≤ value} and all comparisons of such scores are the same. To count them as
several would share a confidence among them that one of them has alone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from uqeval._check import Float
from uqeval.metrics.areas import Ranking

_SAMPLE = 1024  # rows, at least; two scores that order these alike are looked at in full
_AT_ONCE = 1 << 16

Groups = tuple[tuple[str, ...], ...]  # scores that are one ranking, the one that stands for all of them first


@dataclass(frozen=True)
class Copies:
    """Which scores stand for which others."""

    first: Mapping[str, str] = field(default_factory=dict)  # of a score that ranks as another does: that one
    exact: Mapping[str, str] = field(default_factory=dict)  # the same where every tie is the same too

    @property
    def groups(self) -> Groups:
        """Scores that are one ranking."""
        firsts = dict.fromkeys(self.first.values())
        return tuple((own, *(name for name, first in self.first.items() if first == own)) for own in firsts)


def find_copies(rankings: Mapping[str, Ranking], by_definition: Collection[str] = ()) -> Copies:
    """Which of the scores rank all rows, ties included, as an earlier one does.

    Where a sample of the rows shows that two may be one ranking, the first is sorted, and the other only compared with
    it: it then has the same order. Those `by_definition` are one ranking but for rounding.
    """
    rivals: dict[bytes, list[str]] = {}  # by the order of the sample
    exact: dict[str, str] = {}
    for name, ranking in rankings.items():
        alike = rivals.setdefault(_order_of_sample(ranking.values), [])
        own = next((other for other in alike if _follows(rankings[other], ranking.values)), None)
        if own is None:
            alike.append(name)
        else:
            exact[name], ranking.order = own, rankings[own].order
    stands = {name: exact.get(name, name) for name in rankings}
    together = {stands[name] for name in rankings if name in by_definition}
    leader = next((name for name in rankings if name in together), None)
    first = {name: str(leader) if own in together else own for name, own in stands.items()}
    return Copies({name: own for name, own in first.items() if own != name}, exact)


def _order_of_sample(values: Float) -> bytes:
    sample = values[:: max(1, len(values) // _SAMPLE)]
    return np.unique(sample, return_inverse=True)[1].astype(np.uint16).tobytes()


def _follows(ranking: Ranking, values: Float) -> bool:
    """Whether the values rise where the ranking does, and nowhere else."""
    order = ranking.order
    for start in range(0, len(values) - 1, _AT_ONCE):
        part = slice(start, start + _AT_ONCE + 1)
        inside = values[order.row[part]]
        if not np.array_equal(inside[1:] > inside[:-1], order.new[part][1:]) or (inside[1:] < inside[:-1]).any():
            return False
    return True


def one_of_each(names: Iterable[str], groups: Iterable[Sequence[str]]) -> list[str]:
    """The names without those that rank as an earlier one does."""
    place = {name: group[0] for group in groups for name in group}
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(place.get(name, name), name)
    return list(found.values())


def copies_notes(groups: Iterable[Sequence[str]]) -> list[str]:
    """What is said of scores that are one ranking."""
    return [f"{', '.join(group)} rank all rows alike: they count as one score" for group in groups]
