"""The threshold that a user acts on: what it promises, whom it accepts, whether the promise still holds."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import MEND, Nan, check_choice, check_count, check_level, check_rows, check_vector
from uqeval._errors import InputError, notify
from uqeval._result import Grid, number, strict, to_json
from uqeval.decide.apply import apply_frame
from uqeval.decide.monitor import Check, expected_delay, look
from uqeval.decide.outcome import count
from uqeval.decide.repeats import Remembered, refuse_repeats
from uqeval.decide.results import GroupRisk, Holdout, Stored, groups_table, with_notes
from uqeval.decide.results import shown as shown
from uqeval.decide.rows import CLUSTER_METHODS, RISKS, UNWEIGHTED, check_target, new_rows, own_score
from uqeval.decide.walks import JOINT, METHODS
from uqeval.inputs import Predictions

_OLD_TEST = (
    "This threshold was chosen by an earlier version, whose test for clusters broke its promise where large clusters "
    "are wrong more often than small ones. Choose it again."
)


@dataclass(frozen=True, eq=False)
class Threshold(Stored):
    """Act where score ≤ `value`: with confidence `level` the risk there is at most `max_risk`."""

    value: float  # accept score ≤ value; −inf accepts nothing
    max_risk: float
    level: float
    method: str
    feasible: bool
    coverage: float = math.nan  # share of the calibration rows accepted
    coverage_interval: tuple[float, float] = (math.nan, math.nan)
    # On the rows that chose the threshold (optimistic); clusters have one vote each where `cluster_method` says so.
    risk: float = math.nan
    risk_bound: float = math.nan
    n: int = 0
    n_accepted: int = 0
    errors_accepted: float = 0  # an int for 0/1 errors; the total loss otherwise
    what: str = "error"  # "error", "loss" or "misaligned"
    score: str | None = None
    n_clusters: int | None = None
    largest_cluster: int | None = None
    # "t" or "exact"; "subsample": the promise is for one random input of each cluster.
    cluster_method: str | None = None
    n_scores: int = 1  # scores that were tried on these rows
    n_targets: int = 1  # targets that hold jointly
    rows_needed: int | None = None  # to certify anything, at least about, were the rows like these; None: not known
    hopeful: bool = True  # whether some region has an observed risk below the target
    holdout: Holdout | None = None
    data_hash: str = ""
    created_with: dict[str, str] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
    largest_weight: float | None = None  # rows are weighted: then so are coverage and risk, here and to come
    declared: bool = False  # whether the largest cluster (or weight) was declared; else it is the largest seen
    # To know calibration rows again: digests of all and of those that chose, marks of some (`decide.repeats`).
    batches: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    groups: tuple[GroupRisk, ...] = ()  # what was seen in each; no promise by itself
    each: bool = False  # whether the promise is for every one of `groups`, all at once

    # ---- use ----

    @property
    def joint(self) -> bool:
        """Whether the promise is on P(accepted and wrong), over all inputs, rather than on the accepted ones."""
        return self.method in JOINT

    def accept(self, score: ArrayLike | Mapping[str, ArrayLike]) -> NDArray[np.bool_]:
        """True where one may act: score ≤ value. A dict of a name and its values is refused for another score.

        Examples
        --------
        >>> Threshold.from_value(0.5, max_risk=0.05).accept([0.1, 0.5, 0.7])
        array([ True,  True, False])
        """
        values = check_vector("score", own_score(score, None, self.score), finite=False, hint=MEND)
        inside: NDArray[np.bool_] = values <= self.value
        # A score of −inf is not below a threshold that accepts nothing.
        return inside if self.feasible else np.zeros(len(inside), dtype=np.bool_)

    def apply(self, frame: Any, *, score: str | None = None, column: str = "accept", **columns: Any) -> Any:
        """The frame with a column that is true where one may act; `decide.apply_file` does the same to files.

        Parameters
        ----------
        frame : pandas.DataFrame, polars.DataFrame, pyarrow.Table, or a lazy frame
            New rows; labels are not needed. A lazy frame (Polars, DuckDB, Ibis, Dask, Spark) stays one and must hold
            the score as a column; a row without a score is never accepted there, and refused in memory.
        score, column, **columns
            As in `decide.apply_file`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = pa.table({"score_mine": [0.1, 0.7]})
        >>> Threshold.from_value(0.5, max_risk=0.05).apply(rows, score="mine")["accept"].to_pylist()
        [True, False]
        """
        return apply_frame(self, frame, score=score, column=column, columns=columns)

    def check(
        self,
        score: ArrayLike | Mapping[str, ArrayLike] | str,
        error: ArrayLike | None = None,
        *,
        clusters: ArrayLike | None = None,
        previous: Check | None = None,
        largest_cluster: int | None = None,
        level: float | None = None,
        run_length: int | None = None,
        nan: Nan = "raise",
        predictions: Predictions | None = None,
        again: bool = False,
    ) -> Check:
        """Whether the promised risk still holds on new labelled rows.

        Call it again with the next rows and ``previous=`` the last answer, as often as you like: the chance of a
        false alarm stays below 1 − level over all looks together (a betting test, see `uqeval.decide.monitor`).
        One call is one look. Small looks in the order of time notice a change soonest: within a look the order is
        not seen, so that a call on all rows of a year asks for the year as a whole, and says nothing of its last week.

        Parameters
        ----------
        score, error : array-like of shape (n,)
            New rows, as for `choose_threshold`. Where it had weights: rows drawn as inputs come, not the weighted
            sample, since each counts once here. A score may be a dict of its name and values, or a name with
            `predictions`: one that the threshold was not chosen for is refused.
        clusters : array-like of shape (n,), optional
            Needed where the threshold was chosen with clusters; all rows of a cluster belong into one call.
        previous : Check, optional
            The answer to the rows before these.
        largest_cluster : int, optional
            The most accepted rows that any cluster can have; the largest cluster of the calibration by default.
        level : float, optional
            Confidence of an alarm; that of the threshold by default.
        run_length : int, optional
            Promise so many accepted rows (clusters; all rows where the promise is joint) between false alarms on
            average, or more, in place of hardly one in a lifetime: a change is noticed sooner. Among the first n,
            a false alarm has a chance of at most (1 − level) + n / run_length.
        nan : "raise" or "omit"
            What to do with rows that hold NaN.
        predictions : Predictions, optional
            Where the score, the errors and the clusters come from.
        again : bool
            Count rows although they are those of an earlier look (or of the calibration), which is refused.

        Returns
        -------
        Check
            ``check.holds``, ``check.e_value`` over all looks; ``check.batch`` and ``check.all``, what these rows and
            all rows so far show.

        Examples
        --------
        >>> promise = Threshold.from_value(0.5, max_risk=0.1)
        >>> promise.check([0.1, 0.2, 0.9], [0, 0, 1]).holds
        True
        """
        if self.largest_weight is not None and previous is None:
            notify(UNWEIGHTED)
        values, bad, clusters = new_rows(score, error, predictions, clusters, self.score, self.what)
        if clusters is None and self.n_clusters is not None:
            raise InputError("The threshold was chosen with `clusters`. Pass the clusters of the new rows too.")
        most = self.largest_cluster if largest_cluster is None else check_count("largest_cluster", largest_cluster)
        if clusters is not None and most is None:
            raise InputError("The threshold knows no clusters. Pass largest_cluster=, the most rows that one can have.")
        # A service may look after every row, or at a batch that happens to be empty.
        s, e, _, g = check_rows(values, bad, kind="loss01", clusters=clusters, nan=nan, least=0)
        if self.what != "loss" and e.dtype != np.uint8 and len(e):
            row = int(np.flatnonzero((e != 0) & (e != 1))[0])
            raise InputError(
                f"The threshold was chosen for 0/1 errors; `error` holds {e[row]:g} at row {row}. For a loss choose it "
                f'with risk="loss".'
            )
        start = Check(
            max_risk=self.max_risk,
            level=self.level if level is None else check_level(level),
            run_length=None if run_length is None else check_count("run_length", run_length),
            threshold_hash=self._identity(),
            largest_cluster=None if clusters is None else most,
        )
        inside, one_vote = self.accept(s), self.cluster_method == "subsample"
        seen = count(inside, e, g, joint=self.joint, one_vote=one_vote)
        after = look(start, previous, inside, seen, one_vote=one_vote)
        chose, before = Remembered(self.batches, self.marks), Remembered(after.batches, after.marks)
        known = refuse_repeats(s, e, chose, before, again=again)
        return replace(after, batches=known.batches, marks=known.marks)

    def expected_delay(
        self, factor: float = 2.0, *, level: float | None = None, after: int = 10_000, run_length: int | None = None
    ) -> float:
        """Labelled rows that count until `check` notices a risk of `factor` times the promise; see `expected_delay`.

        Clusters with one vote each count as rows do. NaN where it depends on more than the promise (rows of clusters),
        and where the threshold accepts nothing.
        """
        if not self.feasible or self.cluster_method not in (None, "subsample"):
            return math.nan
        level = self.level if level is None else level
        return expected_delay(self.max_risk, level, factor=factor, after=after, run_length=run_length)

    def _identity(self) -> str:
        parts = (repr(self.value), repr(self.max_risk), self.method, str(self.cluster_method), self.data_hash)
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    @classmethod
    def from_value(cls, value: float, *, max_risk: float, level: float = 0.95, what: str = "error") -> Threshold:
        """A threshold fixed by hand, to `accept` and `check` with; its coverage and risk are not known."""
        max_risk = check_target(max_risk)
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(value):
            raise InputError(f"`value` is {value!r}. Pass the score up to which one may act.")
        check_choice("what", what, RISKS)
        return cls(float(value), max_risk, check_level(level), "by hand", bool(value > -math.inf), what=what)

    # ---- store ----

    def to_dict(self) -> dict[str, Any]:
        """Plain values by field name, and the promise in words."""
        return super().to_dict() | {"promise": self.promise}

    def to_json(self) -> str:
        """JSON that `from_json` reads and a service can load: value, promise, method, version, hash of the data."""
        data = strict(self.to_dict())
        if self.feasible and math.isinf(self.value):
            data["value"] = "inf"  # accepts everything; JSON has no infinity
        return to_json(data)

    @classmethod
    def _from_dict(cls, data: dict[str, Any]) -> Self:
        if data.get("method") not in (*METHODS, "by hand"):
            raise InputError(f"The threshold was chosen by {data.get('method')!r}, which this uqeval does not know.")
        if data.get("feasible") is False:
            data["value"] = -math.inf
        elif data.get("value") == "inf":
            data["value"] = math.inf
        data.pop("promise", None)  # the other fields say it
        # What files of version 0.1 lack. Their t-test took the average cluster for the largest.
        old = "declared" not in data
        more: dict[str, Any] = {
            "largest_weight": None,
            "declared": False,
            "batches": [],
            "marks": [],
            "groups": [],
            "each": False,
        }
        data = more | data
        if old and data.get("cluster_method") == "t" and isinstance(data.get("warnings"), list):
            data["warnings"].append(_OLD_TEST)
        stored = super()._from_dict(data)
        known = stored.what in RISKS and stored.cluster_method in (None, *CLUSTER_METHODS)
        if math.isnan(stored.value) or not known:
            raise InputError(
                f"This is not the JSON of a Threshold: its value is {stored.value} for {stored.what!r}. "
                f"Pass what to_json wrote."
            )
        return stored

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row."""
        skipped = ("coverage_interval", "holdout", "created_with", "warnings", "batches", "marks", "groups")
        row = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in skipped}
        row |= {"coverage_low": self.coverage_interval[0], "coverage_high": self.coverage_interval[1]}
        if self.holdout is not None:
            risk, row["holdout_coverage"] = self.holdout.risk, self.holdout.coverage.value
            row |= {"holdout_risk": risk.value, "holdout_risk_low": risk.low, "holdout_risk_high": risk.high}
        return [row]

    # ---- print ----

    def statement(self) -> str:
        """The promise in plain words."""
        name = self.score or "the score"
        if not self.feasible:
            text = f"Nothing can be certified: no region of {name} is shown to be such that {self._promised()}."
            if not self.hopeful and self.each:
                return (
                    f"{text} No part has so low an observed risk in every group; more rows like these would not help."
                )
            if not self.hopeful:
                return f"{text} No part of these rows has so low an observed risk; more rows would not help."
            if self.rows_needed is None:
                return f"{text} How many rows it would take is not known; try another method or target."
            return f"{text} At least about {self.rows_needed:,} rows like these would be needed (there are {self.n:,})."
        if self.method == "by hand":
            return f"Act where {name} ≤ {shown(self.value)}. {self.promise}"
        low, high = self.coverage_interval
        inputs = "inputs" if self.largest_weight is None else "inputs, by weight"
        region = f"Act where {name} ≤ {shown(self.value)}: {self.coverage:.1%} of {inputs} ({low:.1%}–{high:.1%})."
        return f"{region} {self.promise}"

    @property
    def promise(self) -> str:
        """What holds, how surely, and under which assumption, in two sentences.

        Examples
        --------
        >>> import uqeval as uq
        >>> t = uq.choose_threshold("entropy", predictions=uq.datasets.example(), max_risk=0.05)
        >>> print(t.promise)  # doctest: +NORMALIZE_WHITESPACE
        With 95% confidence, at most 5% of the accepted inputs are wrong.
        This holds if inputs to come are drawn as these rows were, each independently of the others.
        """
        if not self.feasible:
            return "Nothing is promised: no input is accepted."
        if self.method == "by hand":
            return f"It was promised that {self._promised()}."
        sure = f"With {100 * self.level:.6g}% confidence{' (asymptotic)' if self.cluster_method == 't' else ''}"
        if self.method == "crc":
            sure = "On average over calibration sets"
        return f"{sure}, {self._promised()}. This holds if {self._assumed()}."

    def _assumed(self) -> str:
        come, here = ("inputs", "these rows") if self.n_clusters is None else ("clusters", "these")
        inside = "inside each group, whatever its share, " if self.each else ""
        drawn = f"{inside}{come} to come are drawn as {here} were, each independently of the others"
        source = "as declared" if self.declared else "the largest here"
        if self.largest_weight is not None:
            unit = "row" if self.n_clusters is None else "cluster"
            return (
                f"{inside}these {unit}s were drawn independently of each other, the weights say how many inputs each "
                f"row stands for and were set before the errors were known, and no {unit} can weigh more than "
                f"{self.largest_weight:g} ({source})"
            )
        if self.cluster_method in ("t", "exact"):
            return f"{drawn}, and no cluster has more than {self.largest_cluster:,} rows ({source})"
        return drawn

    def _promised(self) -> str:
        share = f"at most {100 * self.max_risk:.6g}% of"
        groups = f"in each of {len(self.groups)} groups " if self.each else ""
        inputs = "inputs" if self.cluster_method != "subsample" else "inputs (one from each cluster)"
        inputs += "" if self.largest_weight is None else ", counted by weight,"
        if self.what == "loss":
            spread = f"{inputs.removesuffix(',')}, spread over all," if self.joint else inputs
            return f"{groups}the mean loss of the accepted {spread} is at most {self.max_risk:g}"
        bad = "wrong" if self.what == "error" else "unlike the majority label"
        among = f"all {inputs} are accepted and" if self.joint else f"the accepted {inputs} are"
        return f"{groups}{share} {among} {bad}"

    def group_table(self) -> Grid | None:
        """What was seen in each group; None where nothing is accepted or there are no groups."""
        if not self.groups or not self.feasible:
            return None
        return groups_table(self.groups, self.each, self.holdout is not None)

    def _delay(self) -> str | None:
        """How soon a doubled risk would be noticed, in words."""
        rows = self.expected_delay() if self.max_risk <= 0.5 else math.nan
        if math.isnan(rows):
            return None
        loss = f"mean loss rises to {2 * self.max_risk:g}"
        bad = loss if self.what == "loss" else f"risk rises to {200 * self.max_risk:.6g}%"
        units = "rows" if self.cluster_method is None else "clusters"
        counted = f"labelled {units}" if self.joint else f"labelled accepted {units}"
        counted += "" if self.largest_weight is None else " drawn as inputs come"
        about = f"about {float(f'{rows:.2g}'):,.0f}"
        return f"if the {bad}, check notices after {about} {counted}, even after 10,000 good ones"

    def __str__(self) -> str:
        lines = [self.statement()]
        if self.feasible and self.n:
            lines.append(
                f"{self.n_accepted:,} of {self.n:,} calibration rows accepted, observed risk {number(self.risk)} "
                f"(on the rows that chose the threshold: optimistic)"
            )
        lines += [] if (delay := self._delay()) is None else [delay]
        if (held := self.holdout) is not None:
            lines.append(f"on {held.n:,} other rows: coverage {held.coverage}, risk {held.risk}")
        if (table := self.group_table()) is not None:
            lines += ["", table.text()]
        return with_notes(lines, self.warnings)
