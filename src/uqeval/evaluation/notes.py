"""What limits the estimates, in few lines: each thing once, with whom it concerns; groups are folded."""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval.evaluation.table import Table
from uqeval.metrics.registry import REGISTRY

_MOST = 5  # of one kind, group by group
_NUMBER = re.compile(r" ?\([\d,]+\)|^\d+ ")


class _Said(NamedTuple):
    """A note of one estimate; they sort group by group, column by column."""

    group: int  # -1 for all rows
    column: int
    place: int
    text: str
    who: str


def notes_of(table: Table, raised: list[str]) -> list[str]:
    """`raised` first, then the notes of all rows, then those of groups, of which many are counted."""
    every = {score for score, _ in table.columns if score is not None}
    kinds = _kinds(table)
    first = {kind: min(said) for kind, (said, _) in kinds.items()}
    notes, in_groups = list(dict.fromkeys(raised)), list[str]()
    for kind in sorted(kinds, key=lambda kind: first[kind]):
        said, groups = kinds[kind]
        lines: dict[tuple[str, int], dict[str, None]] = {}
        for one in sorted(said):
            lines.setdefault((one.text, one.group), {})[one.who] = None
        told = {key: f"{'' if every <= set(who) else ', '.join(who) + ': '}{key[0]}" for key, who in lines.items()}
        notes += [line for (_, group), line in told.items() if group < 0]
        if groups > _MOST:
            in_groups.append(f"{kind}: {groups} times in groups")
        else:
            in_groups += [f"{line} in group {table.groups[g]!r}" for (_, g), line in told.items() if g >= 0]
    return notes + in_groups


def _kinds(table: Table) -> dict[str, tuple[list[_Said], int]]:
    """Of each kind of note, numbers apart: who says it (one of many), and in how many groups."""
    columns = {column: k for k, column in enumerate(table.columns)}
    groups = {group: k for k, group in enumerate(table.groups)}
    said: dict[str, list[_Said]] = {}
    for (score, metric, group), estimate in table.single.items():
        for place, text in enumerate(estimate.warnings):
            at = -1 if group is None else groups[group]
            who = score or REGISTRY[metric].title
            said.setdefault(_NUMBER.sub("", text), []).append(_Said(at, columns[score, metric], place, text, who))
    counted = {kind: len({(one.text, one.group) for one in all_ if one.group >= 0}) for kind, all_ in said.items()}
    lanes = np.array([groups[group] for group in table.lanes], dtype=np.int64)
    reached: dict[str, NDArray[np.bool_]] = {}  # the lanes with a kind of note
    for many in table.stacked.values():
        for note in many.warnings:
            reached[note.kind] = reached.get(note.kind, False) | note.where
    for kind, where in reached.items():
        if where.any():
            counted[kind] = counted.get(kind, 0) + int(where.sum())
            said.setdefault(kind, [])
    for (score, metric), many in table.stacked.items():
        for place, note in enumerate(many.warnings):
            if note.kind in said:
                hits = np.flatnonzero(note.where)
                for lane in hits[: 1 if counted[note.kind] > _MOST else None].tolist():
                    at, who = int(lanes[lane]), score or REGISTRY[metric].title
                    said[note.kind].append(_Said(at, columns[score, metric], place, note.at(lane), who))
    return {kind: (all_, counted[kind]) for kind, all_ in said.items()}
