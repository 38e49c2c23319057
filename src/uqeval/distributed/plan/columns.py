"""Columns: from those of the source to those on the wire, which stages pass on to each other.

Row by row, so that any cut of the source gives the same numbers. Plain columns are taken as they are; the rest
(entropy from probabilities, …) goes through `RowData`, exactly as in memory. pyarrow loads on use (0.3 s).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uqeval import scores as score_functions
from uqeval._check import nearest
from uqeval._errors import InputError, collected
from uqeval.distributed.plan import wire
from uqeval.evaluation.row_data import RowData
from uqeval.inputs import Predictions
from uqeval.inputs.classes import LABELS_BY, ambiguous
from uqeval.inputs.columns import Columns, Plan, listed, plan_columns, refuse_csv_options, score_columns
from uqeval.inputs.frame import is_text, plain_column
from uqeval.inputs.predictions import predictions_from_arrow
from uqeval.metrics.registry import Metric

if TYPE_CHECKING:
    import pyarrow as pa


PLAIN_CSV = 'an engine reads plain CSV only (engine="memory" reads the rest)'


@dataclass(frozen=True)
class Wanted:
    """What is asked for, in the user's words: scores by name, columns of clusters and groups."""

    scores: tuple[str, ...] | None = None
    options: Columns = field(default_factory=Columns)
    cluster: str | None = None
    group: str | None = None
    largest_cluster: int | None = None  # the most rows that any can have, where a user says so

    def planned(self, names: list[str]) -> tuple[Plan, Columns]:
        """The part of each column, and the options with the scores that are asked for by their columns."""
        refuse_csv_options(self.options, PLAIN_CSV)
        for role, name in (("cluster", self.cluster), ("by", self.group)):
            if name is not None and name not in names:
                raise InputError(
                    f"There is no column `{name}` ({role}).{nearest(name, names)} Columns: {listed(names)}."
                )
        if self.options.weight in names:
            raise InputError(
                f"There is a column of weights (`{self.options.weight}`), which the engines do not know. Pass "
                f"weight=None to ignore it, or use uqeval.evaluate on data that fits in memory."
            )
        options = replace(self.options, cluster=None, group=None, weight=None, id=None, soft=None)
        rows = [name for name in names if name not in (self.cluster, self.group)]
        known = score_columns(options.score, names)
        own = [name for name in self.scores or () if name in names and name not in known]
        with suppress(InputError):  # nothing to compute scores from
            if (plan := plan_columns(rows, options)).tables or plan.members:  # computed, as in memory
                own = [name for name in own if name not in score_functions.available()]
        if own:  # beside those that the pattern finds, which may be asked for by their short names
            options = replace(options, score=tuple(dict.fromkeys([*known.values(), *own])))
        return plan_columns(rows, options), options

    def columns(self, names: list[str], metrics: Iterable[Metric] | None = None) -> tuple[str, ...]:
        """What to read: plain columns where they are enough for these metrics, else all that have a part."""
        plan, _ = self.planned(names)
        keys = [name for name in (self.cluster, self.group) if name is not None]
        by_name = {**plan.scores, **{column: column for column in plan.scores.values()}}
        chosen = None if metrics is None else list(metrics)
        if (
            chosen
            and all(m.uses_score for m in chosen)
            and self.scores
            and all(name in by_name for name in self.scores)
        ):
            targets = {"error", *(m.needs[1] for m in chosen)}
            if all(role in plan.single for role in targets):
                used = [by_name[name] for name in self.scores] + [plan.single[role] for role in sorted(targets)]
                return tuple(dict.fromkeys([*used, *keys]))
        return tuple(dict.fromkeys([*plan.needed, *keys]))


@dataclass(frozen=True)
class Bad:
    """Rows that cannot be used: what they hold, how many, and the first."""

    what: str
    count: int
    row: int


@dataclass(frozen=True)
class Prepare:
    """A piece of the source → columns of the wire: scores, error, loss, clusters, quantities of the model's metrics.

    `scores` are pairs (name, column); the column is None where the score is computed.
    """

    scores: tuple[tuple[str, str | None], ...]
    error: str | None
    loss: str | None
    plan: Plan
    options: Columns
    model: tuple[str, ...] = ()
    cluster: str | None = None
    group: str | None = None
    wants_error: bool = True
    wants_loss: bool = True
    target: str = "loss"  # what stands as the loss: that, or the signed confidence
    logits_match: bool | None = None
    only: tuple[str, str] | None = None  # a column, and the text that it must hold
    classes: tuple[str, ...] = ()  # of the model's output, as they were found

    @property
    def modelled(self) -> bool:
        """Whether there is a model's output."""
        return "prob" in self.plan.tables or "logit" in self.plan.tables or bool(self.plan.members)

    @property
    def two_targets(self) -> bool:
        """Whether there are errors and a loss of the user's own."""
        labelled = "label" in self.plan.single and (self.modelled or "pred" in self.plan.single)
        return self.loss is not None and (self.error is not None or labelled)

    def target_of(self, metric: Metric) -> str:
        """What the metric ranks the score against, in the user's words."""
        what = metric.needs[1]
        return "gap" if what == "loss" and self.loss is None else what

    @property
    def plain(self) -> dict[str, str] | None:
        """The columns that are taken as they are, by name on the wire; None where something must be computed."""
        found = {wire.score(k): column for k, (_, column) in enumerate(self.scores)}
        found |= {wire.ERROR: self.error} if self.wants_error else {}
        found |= {wire.LOSS: self.loss if self.target == "loss" else None} if self.wants_loss else {}
        known = {name: column for name, column in found.items() if column is not None}
        return None if self.model or len(known) < len(found) else known

    @property
    def columns(self) -> tuple[str, ...]:
        """What to read."""
        own = [name for name in (self.cluster, self.group, self.only and self.only[0]) if name is not None]
        used = self.plan.needed if (plain := self.plain) is None else plain.values()
        return tuple(dict.fromkeys([*used, *own]))

    @property
    def labels(self) -> dict[str, str]:
        """What each prepared column is called in a message."""
        named = {wire.score(k): column or f"score {name}" for k, (name, column) in enumerate(self.scores)}
        return named | {
            wire.ERROR: self.error or "error",
            wire.LOSS: (self.loss if self.target == "loss" else None) or self.target,
        }

    def scores_in(self, names: Iterable[str]) -> tuple[int, ...]:
        """Numbers of the scores among columns of the wire."""
        wanted = set(names)
        return tuple(k for k in range(len(self.scores)) if wire.score(k) in wanted)

    def __call__(self, table: pa.Table, scores: tuple[int, ...] | None = None) -> wire.Rows:
        """Clean columns; of the scores only those with these numbers, where given."""
        chosen = range(len(self.scores)) if scores is None else scores
        if self.only is not None:
            names, index = group_names(table.column(self.only[0]))
            table = table.take(
                np.flatnonzero(np.array([name == self.only[1] for name in names], dtype=np.bool_)[index])
            )
        if (plain := self.plain) is None:
            rows = self._modelled(table, chosen)
        else:
            names = [wire.score(k) for k in chosen] + [name for name in (wire.ERROR, wire.LOSS) if name in plain]
            rows = {name: (_bits if name == wire.ERROR else _numbers)(table, plain[name]) for name in names}
            if "error" in self.plan.turned and wire.ERROR in rows:
                rows[wire.ERROR] = np.where(rows[wire.ERROR] > 1, 2, 1 - rows[wire.ERROR]).astype(np.uint8)
            if "loss" in self.plan.turned and wire.LOSS in rows:
                rows[wire.LOSS] = 1.0 - rows[wire.LOSS].astype(np.float64)
        if self.cluster is not None:
            rows |= dict(zip(wire.CLUSTER, keys_of(table.column(self.cluster)), strict=True))
        return rows

    def _modelled(self, table: pa.Table, chosen: Iterable[int]) -> wire.Rows:
        import pyarrow as pa

        n = len(table)
        wanted = {wire.score(k): f"score {self.scores[k][0]}" for k in chosen} | {name: name for name in self.model}
        wanted |= {wire.ERROR: "error"} if self.wants_error else {}
        wanted |= {wire.LOSS: self.target} if self.wants_loss else {}
        if n == 0:
            return {name: np.empty(0, dtype=np.uint8 if name == wire.ERROR else np.float64) for name in wanted}
        if n == 1:  # predictions need two rows; the numbers of a row do not depend on the others
            table = pa.concat_tables([table, table])
        with collected():  # notes on rows of a piece would not say which rows of the source
            made = RowData.of(self.predictions(table))
            found = {name: made[what] for name, what in wanted.items()}
        return {name: column[:n] for name, column in found.items() if column is not None}

    def predictions(self, table: pa.Table) -> Predictions:
        """The rows as in memory."""
        pred = predictions_from_arrow({name: table.column(name) for name in self.plan.needed}, self.plan, self.options)
        if self.logits_match is not None and pred.logits is not None and pred.logits_match != self.logits_match:
            raise InputError("The logits belong to the probabilities in some rows only. Leave one of them out.")
        return pred

    def missing(self, table: pa.Table) -> list[Bad]:
        """Rows without a cluster or a group: nothing, NaN or an empty text, as in memory."""
        found: list[Bad] = []
        for name in (self.cluster, self.group):
            wrong = None if name is None else _missing(plain_column(name, table.column(name)))
            if wrong is not None and wrong.any():
                found.append(Bad(f"`{name}` has missing values", int(wrong.sum()), int(wrong.argmax())))
        return found

    def bad(self, rows: wire.Rows) -> list[Bad]:
        """NaN in a score, infinity or NaN in a loss, errors other than 0 and 1."""
        found: list[Bad] = []
        for name, column in rows.items():
            if name.startswith("score "):
                wrong, what = np.isnan(column), "NaN or nothing"
            elif name == wire.LOSS:
                wrong, what = ~np.isfinite(column), "NaN, infinity or nothing"
            elif name == wire.ERROR:
                wrong, what = column > 1, "something else than 0 and 1"
            else:
                continue
            if wrong.any():
                place = int(wrong.argmax())
                found.append(Bad(f"`{self.labels[name]}` holds {what}", int(wrong.sum()), place))
        return found


@dataclass(frozen=True)
class Reading:
    """A function of rows of the source, or (where `prepare` is None) of rows that an earlier shuffle carries."""

    prepare: Prepare | None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """What to read of the source."""
        return None if self.prepare is None else self.prepare.columns


def shifted(error: InputError, row: int) -> str:
    """The message about a piece of the source, with the rows counted from the start of its file."""
    return re.sub(r"\brow (\d+)", lambda found: f"row {row + int(found[1])}", str(error))


def find_rows(names: list[str], wanted: Wanted, first: pa.Table) -> Prepare:
    """What to take from columns of these names; `first` are some rows of the source, to try it on."""
    plan, options = wanted.planned(names)
    pred = None
    if "prob" in plan.tables or "logit" in plan.tables or plan.members:
        pred = predictions_from_arrow({name: first.column(name) for name in plan.needed}, plan, options)
        if options.classes is None and any(len(part.columns) == 1 for part in plan.tables.values()):
            options = replace(options, classes=pred.classes, labels_by="name")
        else:
            if any(part.names is None for part in plan.tables.values()):  # the labels of a piece might name others
                options = replace(options, classes=pred.classes)
            if ambiguous(pred.classes) and options.labels_by is None:
                options = replace(options, labels_by=_labels_by(first, plan, options))
    known = dict(plan.scores)
    computed = [] if pred is None else [n for n in score_functions.available(pred) if n not in known]
    by_column = {column: name for name, column in plan.scores.items()}
    chosen: list[tuple[str, str | None]] = []
    for name in wanted.scores if wanted.scores is not None else [*known, *computed]:
        if name in by_column:
            chosen.append((by_column[name], name))
        elif name in known or name in computed:
            chosen.append((name, known.get(name)))
        else:
            there = [*by_column, *computed]
            raise InputError(f'There is no score "{name}".{nearest(name, there)} There are: {listed(there)}.')
    return Prepare(
        scores=tuple(dict.fromkeys(chosen)),
        error=plan.single.get("error"),
        loss=plan.single.get("loss"),
        plan=plan,
        options=options,
        cluster=wanted.cluster,
        group=wanted.group,
        logits_match=None if pred is None or pred.logits is None else pred.logits_match,
        classes=() if pred is None else pred.classes,
    )


def _labels_by(first: pa.Table, plan: Plan, options: Columns) -> str | None:
    """What labels are: settled once, because the labels of a single piece might fit both."""
    fits = []
    for by in LABELS_BY:
        with suppress(InputError):
            predictions_from_arrow(
                {name: first.column(name) for name in plan.needed}, plan, replace(options, labels_by=by)
            )
            fits.append(by)
    if len(fits) == 2 and (options.classes is not None or any(part.names is None for part in plan.tables.values())):
        raise InputError(
            "The first labels could be names of classes or positions in `classes`. Say which is meant: "
            'labels_by="name" or labels_by="position".'
        )
    return fits[0] if fits else None


def _numbers(table: pa.Table, name: str) -> NDArray[Any]:
    """A column as float64 or float32; nulls become NaN."""
    import pyarrow as pa

    column = table.column(name)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        what = "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else kind
        raise InputError(f"Column `{name}` holds {what}, not numbers. Convert it first.")
    array: NDArray[Any] = column.to_numpy()
    if array.dtype == object:  # booleans with nulls
        array = np.array([np.nan if value is None else float(value) for value in array])
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and len(array) and _largest(array) > 2**53:
        raise InputError(f"Column `{name}` holds integers above 2⁵³, which float64 cannot tell apart. Rank them first.")
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float64)


def _largest(array: NDArray[Any]) -> int:
    return max(-int(array.min()), int(array.max()))  # the least int64 has no absolute value of its kind


def _bits(table: pa.Table, name: str) -> NDArray[np.uint8]:
    """0 and 1; everything else becomes 2, which `Prepare.bad` reports."""
    import pyarrow as pa

    column = table.column(name)
    if pa.types.is_uint8(column.type) and not column.null_count:
        return column.to_numpy()
    if pa.types.is_boolean(column.type) and not column.null_count:
        return column.to_numpy().astype(np.uint8)
    error = _numbers(table, name)
    return np.where(error == 1, 1, np.where(error == 0, 0, 2)).astype(np.uint8)


def _missing(column: pa.ChunkedArray) -> NDArray[np.bool_] | None:
    """Which values are missing; None where none can be."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        wrong = column.is_null(nan_is_null=True)
        if is_text(column.type):
            wrong = pc.or_(wrong, pc.fill_null(pc.equal(column, pa.scalar("", type=column.type)), False))
    elif pa.types.is_floating(column.type):
        wrong = pc.is_nan(column)
    elif is_text(column.type):
        wrong = pc.equal(column, pa.scalar("", type=column.type))
    else:
        return None
    return wrong.to_numpy()


def group_names(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int64]]:
    """Distinct groups as texts, the same as in memory, and which of them each row holds."""
    encoded = _encoded(plain_column("by", column))
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    names = [str(value) for value in (values.astype(np.str_) if values.dtype.kind in "UTO" else values)]
    index = encoded.indices.to_numpy().astype(np.int64)
    if len(set(names)) < len(names):  # texts that end in \0
        distinct, place = np.unique(names, return_inverse=True)
        names, index = distinct.tolist(), place[index]
    return names, index


def _encoded(column: pa.ChunkedArray) -> Any:
    """A dictionary array."""
    import pyarrow as pa

    whole = column.combine_chunks()
    return (whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole).dictionary_encode()


def keys_of(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """128 bits that tell the values of a column apart: an integer itself, else a digest of the text."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        first = column.to_numpy().astype(np.int64)
        return first, np.zeros(len(first), dtype=np.int64)
    encoded = _encoded(plain_column("cluster", column))
    texts = encoded.dictionary.to_pylist()
    digests = b"".join(hashlib.blake2b(str(text).encode(), digest_size=16).digest() for text in texts)
    both = np.frombuffer(digests, dtype=np.int64).reshape(-1, 2)[encoded.indices.to_numpy()]
    return both[:, 0].copy(), both[:, 1].copy()
