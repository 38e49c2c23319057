"""Whom the sums of a tally are of: rows and units, right and wrong, their weights and how unevenly those lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from uqeval import kernels
from uqeval._check import Float
from uqeval._lanes import Number, choose


class Mass(NamedTuple):
    """Rows, Σ weight, Σ weight²."""

    rows: Number
    weight: Number
    squares: Number

    @property
    def size(self) -> Number:
        """Effective number of rows of unequal weight (Kish); 0 for none."""
        return choose(self.squares > 0, lambda: self.weight**2 / self.squares, lambda: 0.0)

    def merge(self, other: Mass) -> Mass:
        return Mass(self.rows + other.rows, self.weight + other.weight, self.squares + other.squares)


class Held(NamedTuple):
    """Clusters: all, those that hold a right row, and those that hold a wrong one."""

    all: int
    right: int
    wrong: int

    def merge(self, other: Held) -> Held:
        """Of parts without a common cluster."""
        return Held(*(a + b for a, b in zip(self, other, strict=True)))


class Powers(NamedTuple):
    """Weights of units: Σ x, Σ x², Σ x³."""

    first: float
    second: float
    third: float

    @classmethod
    def of(cls, x: Float) -> Powers:
        """Does not depend on the order of x."""
        return cls(*(kernels.order_free_sum(part) for part in (x, x * x, x * x * x)))

    @property
    def number(self) -> float:
        """Effective number of units (Kish); 0 for none."""
        return self.first**2 / self.second if self.second > 0 else 0.0

    @property
    def typical(self) -> float:
        """Weight of the unit in which a random part of the weight lives; 0 for none."""
        return self.second / self.first if self.first > 0 else 0.0

    @property
    def heavy(self) -> float:
        """The same of a unit drawn by its weight: one of the heavy ones."""
        return self.third / self.second if self.second > 0 else 0.0

    def merge(self, other: Powers) -> Powers:
        return Powers(*(a + b for a, b in zip(self, other, strict=True)))


class Loads(NamedTuple):
    """How unevenly weight lies on rows and on units (clusters, or rows), and on their right and their wrong part."""

    rows: Powers
    units: Powers
    right: Powers
    wrong: Powers  # of weight times loss

    def merge(self, other: Loads) -> Loads:
        """Of parts without a common cluster."""
        return Loads(*(a.merge(b) for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Sizes:
    """Right rows (no loss), wrong rows (a positive loss), their clusters, and what an effective number is made of."""

    right: Mass
    wrong: Mass
    loss: Mass  # Σ weight·loss and Σ (weight·loss)²
    clusters: Held | None = None
    largest: float = 1.0  # weight of the heaviest row, or of the heaviest cluster
    weighted: bool = False
    binary: bool = False  # the loss is 0/1: wrong rows are errors
    loads: Loads | None = None  # None where every row is a unit of weight 1
    possible: float = 0.0  # weight of the largest cluster that there can be; 0 where nobody said

    @classmethod
    def of_rows(cls, right: Number, wrong: Number, *, binary: bool) -> Sizes:
        """Of plain rows."""
        good, bad = (Mass(rows, 1.0 * rows, 1.0 * rows) for rows in (right, wrong))
        return cls(good, bad, bad, binary=binary)

    @property
    def rows(self) -> Number:
        return self.right.rows + self.wrong.rows

    @property
    def total(self) -> Mass:
        return self.right.merge(self.wrong)

    @property
    def plain(self) -> bool:
        """Independent rows of equal weight."""
        return self.clusters is None and not self.weighted

    @property
    def grouped(self) -> bool:
        """Some cluster holds more than one row."""
        return self.clusters is not None and bool(self.clusters.all < self.rows)

    @property
    def unevenness(self) -> float:
        """How many times as many rows as they are worth: rows over Kish's size of their weights."""
        return 1.0 if self.loads is None or self.grouped else float(self.rows / self.loads.units.number)

    @property
    def units(self) -> Number:
        """Independent units: clusters, or effective rows."""
        return self.clusters.all if self.clusters is not None else self.total.size if self.weighted else self.rows

    @property
    def sides(self) -> tuple[Number, Number]:
        """Units among the right and among the wrong rows."""
        return self.clusters[1:] if self.clusters is not None else (self.right.size, self.wrong.size)

    @property
    def errors(self) -> Number:
        """Effective number of errors: the count, or Kish's size of weights times losses."""
        return 1.0 * self.wrong.rows if self.binary and not self.weighted else self.loss.size

    @property
    def numbers(self) -> tuple[Number, Number]:
        """Effective numbers of units that hold the right and the wrong rows."""
        if self.clusters is not None and self.loads is not None:
            return self.loads.right.number, self.loads.wrong.number
        return self.right.size, self.wrong.size

    @property
    def clusters_eff(self) -> float | None:
        """Effective number of clusters: of all rows, or of the right or the wrong ones where that is smaller."""
        if self.clusters is None or self.loads is None:
            return None
        return min(side.number for side in self.loads[1:] if side.first > 0)

    def merge(self, other: Sizes) -> Sizes:
        clusters = None if self.clusters is None or other.clusters is None else self.clusters.merge(other.clusters)
        loads = None if self.loads is None or other.loads is None else self.loads.merge(other.loads)
        return Sizes(
            self.right.merge(other.right),
            self.wrong.merge(other.wrong),
            self.loss.merge(other.loss),
            clusters,
            max(self.largest, other.largest),
            self.weighted or other.weighted,
            self.binary and other.binary,
            loads,
            max(self.possible, other.possible),
        )
