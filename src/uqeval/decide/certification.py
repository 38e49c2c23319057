"""Which thresholds a sample certifies for several targets, what was observed below them, how many rows are missing."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float
from uqeval._result import versions
from uqeval.decide.by_group import in_each_group, seen_by_group, too_small
from uqeval.decide.calibration import Calibration
from uqeval.decide.outcome import Outcome, count
from uqeval.decide.repeats import digest, marks, row_hashes
from uqeval.decide.results import Holdout
from uqeval.decide.threshold import Threshold
from uqeval.decide.thresholds import Thresholds
from uqeval.decide.walks import JOINT, largest_certified, shares
from uqeval.inference.result import Estimate

_MOST_LOOKED = 1000  # candidates
_MOST_COPIES = 1e9  # the largest sample that `rows_needed` looks for, in samples like this one


@dataclass(frozen=True)
class Certification:
    """How thresholds are certified, whatever the rows."""

    method: str
    targets: tuple[float, ...]
    level: float
    delta: float  # of each score and target
    cluster_method: str = "t"
    n_scores: int = 1
    thresholds: Float | None = None
    largest_cluster: int | None = None
    largest_weight: float | None = None
    declared: bool = False  # the largest cluster (or weight), rather than seen in the rows
    groups: tuple[str, ...] = ()  # names of those that the rows are in
    each: bool = False  # whether the risk of every group is bounded

    @property
    def joint(self) -> bool:
        """Whether the promise is on P(accepted and wrong)."""
        return self.method in JOINT

    @property
    def one_vote(self) -> bool:
        """Whether clusters have one vote each: then the promise is for one random input of each."""
        return self.cluster_method == "subsample" or self.method == "crc"

    def certify(
        self, everything: Calibration, *, name: str | None, chosen: NDArray[np.bool_] | None, seed: int
    ) -> Thresholds:
        """All targets for one score; `chosen` rows choose, the others give the held-out estimates."""
        cal, rest = everything, None
        if chosen is not None:
            cal, rest = everything.take(np.flatnonzero(chosen)), everything.take(np.flatnonzero(~chosen))
        alone = self.cluster_method == "subsample" and cal.clusters is not None
        rng = np.random.default_rng(seed) if alone else None
        if self.each:
            tested: Calibration = in_each_group(cal, len(self.groups), rng)
        else:
            tested = cal if rng is None else cal.one_row_per_cluster(rng)
        # What holds on average has no delta to share among scores: each gets its share of the risk.
        parts = self.n_scores if self.method == "crc" else 1
        values = {
            gamma: largest_certified(self.method, tested, gamma / parts, self.delta, self.thresholds)
            for gamma in self.targets
        }
        # A region that is good enough for a smaller risk is good enough for a larger one.
        best = {gamma: max(values[other] for other in values if other <= gamma) for gamma in self.targets}
        source: dict[str, Any] = {"score": name, "data_hash": everything.data_hash(), "created_with": versions()}
        hashes = row_hashes(cal.score, cal.loss)
        whole = hashes if cal is everything else row_hashes(everything.score, everything.loss)
        batches = digest(whole), digest(hashes)
        source |= {"batches": tuple(dict.fromkeys(batches)), "marks": marks(cal.score, hashes, cal.sorted)}
        return Thresholds(
            replace(self._threshold(cal, tested, rest, gamma, best[gamma]), **source) for gamma in self.targets
        )

    def _threshold(
        self, cal: Calibration, tested: Calibration, rest: Calibration | None, max_risk: float, value: float
    ) -> Threshold:
        feasible, sizes = value > -math.inf, cal.cluster_rows
        accepted, bad = _accepted(cal, value)
        coverage, observed = self._observed(cal, value)
        if self.each and not feasible:
            too_small(tested, self.groups, self.delta, max_risk)
        return Threshold(
            value=value,
            max_risk=max_risk,
            level=self.level,
            method=self.method,
            feasible=feasible,
            coverage=coverage.value,
            coverage_interval=(coverage.low, coverage.high),
            # A candidate fixed beforehand may lie below all rows: it accepts none, and nothing was observed.
            risk=observed.value if feasible else math.nan,
            risk_bound=max_risk if feasible else math.nan,
            n=cal.n,
            n_accepted=accepted,
            errors_accepted=bad,
            what=cal.what,
            n_clusters=None if sizes is None else len(sizes),
            largest_cluster=self.largest_cluster,
            cluster_method=None if sizes is None else "subsample" if self.one_vote else self.cluster_method,
            largest_weight=self.largest_weight,
            declared=self.declared,
            n_scores=self.n_scores,
            n_targets=len(self.targets),
            rows_needed=None if feasible else self.rows_needed(cal, tested, max_risk),
            hopeful=feasible or bool(self._hopeful(tested, max_risk)[1].any()),
            holdout=None if rest is None else Holdout(rest.n, *_accepted(rest, value), *self._observed(rest, value)),
            groups=seen_by_group(
                cal if rest is None else rest, self.groups, value, max_risk, self._outcomes, self.level
            ),
            each=self.each,
        )

    def _observed(self, cal: Calibration, value: float) -> tuple[Estimate, Estimate]:
        """The coverage and the risk that these rows show."""
        covered, risk = self._outcomes(cal, value)
        return covered.estimate(self.level), risk.estimate(self.level)

    def _outcomes(self, cal: Calibration, value: float) -> tuple[Outcome, Outcome]:
        inside = cal.score <= value
        covered = count(inside, inside, cal.clusters, joint=True, weights=cal.weights)
        risk = count(inside, cal.loss, cal.clusters, joint=self.joint, one_vote=self.one_vote, weights=cal.weights)
        return covered, risk

    def _hopeful(self, tested: Calibration, max_risk: float) -> tuple[Float, NDArray[np.bool_]]:
        """Candidates, and whether the observed risk below each is under the target."""
        candidates = self.thresholds
        if candidates is None:
            candidates = tested.grid()
            if self.method == "crc":
                candidates = np.unique(tested.sorted)
            elif self.method == "sgr":  # the search halves until a test passes: these are the sizes that it looks at
                candidates = tested.at_size(-(-tested.n // 2 ** np.arange(1, 1 + tested.n.bit_length())))
        return candidates, tested.hopeful(candidates, max_risk, self.joint)

    def rows_needed(self, cal: Calibration, tested: Calibration, max_risk: float) -> int | None:
        """About how many rows like these would certify something, at least; None where none is known."""
        candidates, hopeful = self._hopeful(tested, max_risk)
        if not hopeful.any():
            return None
        if self.method != "fst":  # which stops at the first region that fails, hopeful or not
            candidates = candidates[hopeful]
        if self.method == "crc":
            every, most = tested.ballots
            room = max_risk * every - min(tested.votes(float(t)) for t in candidates[:_MOST_LOOKED])
            copies = (1 - max_risk) * most / room if room > 0 else math.inf
            return max(cal.n + 1, math.ceil(cal.n * copies - 1e-9)) if copies < _MOST_COPIES else None

        def enough(copies: float) -> bool:
            if self.method == "fst":
                start = candidates[tested.best_p(candidates, max_risk, copies=copies) <= self.delta][:1]
                return bool((tested.p_values(start, max_risk, copies=copies) <= self.delta).any())
            share = self.delta / shares(self.method, tested, max_risk, self.delta, self.thresholds, copies)
            return bool((tested.p_values(candidates, max_risk, joint=self.joint, copies=copies) <= share).any())

        low, high = 1.0, 2.0
        while not enough(high):
            low, high = high, 2 * high
            if high > _MOST_COPIES:
                return None
        while high - low > 0.01 * low:
            middle = (low + high) / 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return max(cal.n + 1, math.ceil(high * cal.n))


def _accepted(cal: Calibration, value: float) -> tuple[int, float]:
    """Rows below the threshold, and their loss: an int for errors."""
    at = np.array([value])
    bad = float(cal.bad(at)[0])
    return int(cal.accepted(at)[0]), int(bad) if cal.binary else bad
