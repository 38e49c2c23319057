"""A first look at the source: some rows to plan with, and where in which file the row lies that cannot be used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uqeval._errors import InputError, collected
from uqeval.distributed.engines.protocol import Engine, Place, State
from uqeval.distributed.plan.columns import _planned, needed_columns, shifted
from uqeval.inputs.columns import Columns, Plan
from uqeval.inputs.frame import predictions_from_arrow

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Look"]

_ROWS = 1000


@dataclass(frozen=True)
class _First:
    """Some rows as they are."""

    columns: tuple[str, ...]

    def __call__(self, table: pa.Table) -> pa.Table:
        return table.select(list(self.columns))


@dataclass(frozen=True)
class _Try:
    """Whether the rows can be used: an error that names the file and the row in it."""

    plan: Plan
    options: Columns
    parts: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.plan.needed)

    def __call__(self, table: pa.Table, place: Place) -> State:
        import pyarrow as pa

        if len(table) == 1:
            table = pa.concat_tables([table, table])
        if len(table):
            try:
                with collected():
                    predictions_from_arrow({name: table.column(name) for name in self.columns}, self.plan, self.options)
            except InputError as error:
                if _of_a_row(error):
                    raise InputError(f"{self.parts[place.part]}: {shifted(error, place.row)}") from None
        return {}


def _neither(a: State, b: State) -> State:
    return {}


def _of_a_row(error: InputError) -> bool:
    return re.search(r"\brow \d", str(error)) is not None


@dataclass(frozen=True)
class Look:
    """Columns that a request needs."""

    engine: Engine
    names: list[str]
    options: Columns
    score: str | list[str] | None
    cluster: str | None = None
    group: str | None = None

    def rows(self) -> pa.Table:
        """Some rows, with these columns."""
        needed = needed_columns(self.names, self.options, self.score, self.cluster, self.group)
        first = self.engine.sample(_First(needed), _ROWS)
        if len(first) < 2:
            raise InputError("There are fewer than 2 rows. Ranking needs at least 2.")
        return first

    def located(self, error: InputError) -> InputError:
        """The same error with the file and the row in it, where it is about a row."""
        if not _of_a_row(error):
            return error
        plan, options, _ = _planned(self.names, self.options, self.score, self.cluster, self.group)
        parts = tuple(part.name for part in self.engine.parts())
        try:
            self.engine.fold("check", _Try(plan, options, parts), _neither)
        except InputError as found:
            return found
        return error
