"""Do the promises of `decide` hold as often as they claim? Simulation, fixed seeds, exact true risks.

A promise with probability 1 − δ may be broken in a share δ of the runs; the tolerance is three Monte-Carlo standard
errors. The rates in comments were measured with the number of runs given there, beforehand and with other seeds.
"""

from __future__ import annotations

import math
import warnings
from zlib import crc32

import numpy as np
import pytest
from guarantee_laws import (
    GAINS,
    ICC,
    LAWS,
    STEPS,
    TELLING,
    WAVES,
    Draw,
    Remembering,
    bump,
    draw,
    draw_moderate,
    draw_telling,
    draw_weighted,
    flat,
    mono,
    shared,
    stairs,
    wave,
)
from scipy import stats
from scipy.special import ndtr

import uqeval as uq
from uqeval.decide import bounds
from uqeval.decide.calibration import Calibration
from uqeval.decide.monitor import Purse, expected_delay
from uqeval.decide.threshold import Threshold
from uqeval.decide.walks import JOINT, largest_certified

pytestmark = pytest.mark.slow

SELECTIVE = ("fallback", "fst", "sgr", "bonferroni", "holm")
TARGETS = (0.01, 0.05, 0.2)
DELTAS = (0.05, 0.1)


def quiet(function, *data, **options):
    """Without its warnings (few clusters, the same rows chose the score)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", uq.UQWarning)
        return function(*data, **options)


def noise(share, reps):
    """Three Monte-Carlo standard errors."""
    return 3 * math.sqrt(share * (1 - share) / reps)


def seeded(*names):
    return np.random.default_rng(crc32(repr(names).encode()))


# ---- 1. validity: methods × ties and clusters × rows × targets × laws -------------------------------------------

# What is drawn, what is counted, and for how many runs at 100, 1000, 10000 rows (of the flat law; half for the others).
SETTINGS = {
    ("rows", "errors"): (800, 500, 300),
    ("ties", "errors"): (800, 500, 300),
    ("poisson", "errors"): (400, 260, 160),
    ("tens", "errors"): (400, 260, 160),
    ("uneven", "errors"): (400, 260, 160),
    ("poisson, one row", "errors"): (400, 400, 300),
    ("tens, one row", "errors"): (400, 400, 300),
    ("rows", "betting"): (200, 120, 40),
    ("ties", "betting"): (200, 120, 40),
    ("rows", "hoeffding-bentkus"): (300, 200, 100),
    ("ties", "hoeffding-bentkus"): (300, 200, 100),
    ("poisson", "losses"): (120, 80, 40),
    ("tens", "losses"): (120, 80, 40),
}
MATRIX = [(design, what, n) for design, what in SETTINGS for n in (100, 1000, 10_000)]


def calibrations(design, what, law, n, rng):
    """One draw; a calibration of it for each target."""
    design, _, one = design.partition(", ")
    d = draw(design, n, rng)
    for gamma in TARGETS:
        truth = LAWS[law](gamma)
        bound = what if what in ("betting", "hoeffding-bentkus") else "betting"
        loss = d.errors(truth) if what == "errors" else d.losses(truth)
        cal = Remembering(d.score, loss, d.patients, bound)
        yield gamma, cal.one_row_per_cluster(rng) if one else cal


def chosen(design, what, n):
    """Thresholds of every method by (law, target, method, δ), an array over runs."""
    found = {}
    for law in LAWS:
        reps = SETTINGS[design, what][(100, 1000, 10_000).index(n)] // (1 if law == "flat" else 2)
        rng = seeded(design, what, law, n)
        for _ in range(reps):
            for gamma, cal in calibrations(design, what, law, n, rng):
                # "rcps" takes independent rows only: the t-test did not hold for it where patients are uneven.
                for method in (*SELECTIVE, *(("rcps",) if cal.clusters is None else ()), "crc"):
                    for delta in DELTAS if method != "crc" else (None,):
                        value = largest_certified(method, cal, gamma, delta)
                        found.setdefault((law, gamma, method, delta), []).append(value)
    return {key: np.array(values) for key, values in found.items()}


@pytest.mark.parametrize(("design", "what", "n"), MATRIX)  # one by one: a cell takes up to a minute
def test_every_method_keeps_its_promise_and_the_default_accepts_most(design, what, n):
    """Measured in up to 6000 runs, the worst of all cells.

    Rows and ties: 0.050 and 0.100, exact. Losses of rows: at most 0.02. With the t-test alone clusters broke the
    promise (0.061 of 6000 runs for "fst", 0.37 where 10% of the patients have 20 rows): `cluster_p` asks for more.
    """
    found = chosen(design, what, n)
    check_risk_exceeds_the_target_as_rarely_as_promised(found)
    check_conformal_risk_control_keeps_the_joint_risk_on_average(found)
    # In the flat law whatever is accepted is a violation: less is not worse.
    keys = [(law, gamma, delta) for law in ("mono", "bump") for gamma in TARGETS for delta in DELTAS]
    check_default_accepts_no_less(found, keys)


def check_risk_exceeds_the_target_as_rarely_as_promised(found):
    wrong = {}
    for (law, gamma, method, delta), values in found.items():
        if method == "crc":
            continue
        truth = LAWS[law](gamma)
        risk = truth.joint(values) if method == "rcps" else truth.risk(values)
        share = float(np.mean(risk > gamma))
        if share > delta + noise(delta, len(values)):
            wrong[law, gamma, method, delta] = f"{share:.4f} of {len(values)} runs"
    assert not wrong


def check_conformal_risk_control_keeps_the_joint_risk_on_average(found):
    wrong = {}
    for (law, gamma, method, _), values in found.items():
        if method != "crc":
            continue
        risk = LAWS[law](gamma).joint(values)
        if risk.mean() > gamma + 3 * risk.std(ddof=1) / math.sqrt(len(risk)):
            wrong[law, gamma] = f"mean joint risk {risk.mean():.5f} over {len(risk)} runs"
    assert not wrong


# ---- 2. tightness -----------------------------------------------------------------------------------------------


def check_default_accepts_no_less(found, keys):
    wrong = {}
    for law, gamma, delta in keys:
        for other in ("sgr", "bonferroni"):
            # P(score ≤ t) = t
            accepted = [np.maximum(found[law, gamma, method, delta], 0.0) for method in ("fallback", other)]
            gain = accepted[0] - accepted[1]
            if gain.mean() < -3 * gain.std(ddof=1) / math.sqrt(len(gain)):
                wrong[law, gamma, delta, other] = f"{accepted[0].mean():.4f}, not {accepted[1].mean():.4f}"
    assert not wrong


def test_default_accepts_at_least_as_much_in_the_closest_cells():
    """With more runs than the matrix."""
    for design, what, law, gamma, delta, n, reps in [
        # A hundred patients leave room for a single start, and the bump fails it.
        ("tens", "errors", "bump", 0.05, 0.1, 1000, 800),
        ("rows", "errors", "mono", 0.2, 0.05, 10_000, 700),
    ]:
        rng, found = seeded("closest", design, what), {}
        for _ in range(reps):
            d = draw(design, n, rng)
            loss = d.errors(LAWS[law](gamma)) if what == "errors" else d.losses(LAWS[law](gamma))
            cal = Remembering(d.score, loss, d.patients)
            for method in ("fallback", "sgr", "bonferroni"):
                found.setdefault((law, gamma, method, delta), []).append(largest_certified(method, cal, gamma, delta))
        check_default_accepts_no_less(found, [(law, gamma, delta)])


# ---- 3. choosing among scores, 4. several targets ---------------------------------------------------------------


def ten_scores(d, rng):
    """Ten scores that know nothing, on the same rows."""
    n = len(d.score)
    return {f"score {k}": rng.random(n) if d.patients is None else shared(d.patients, ICC, rng) for k in range(10)}


def test_choosing_among_ten_scores_keeps_the_promise_that_the_best_of_ten_breaks():
    rng, law, reps = seeded("ten"), flat(0.05), 300
    naive, honest = [], []
    for _ in range(reps):
        d = draw("rows", 1000, rng)
        scores, error = ten_scores(d, rng), d.errors(law)
        values = [largest_certified("fallback", Calibration(s, error), 0.05, 0.05) for s in scores.values()]
        naive.append(max(values) > 0)
        honest.append(quiet(uq.choose_threshold, scores, error, 0.05, 0.95).feasible)
    print(np.mean(naive), np.mean(honest))
    assert np.mean(naive) > 0.05 + noise(0.05, reps)
    assert np.mean(honest) <= 0.05 + noise(0.05, reps)


def test_choosing_among_ten_scores_keeps_the_promise_with_clusters():
    """Measured in 300 runs of "tens": 0.13."""
    for design in ["poisson", "tens"]:
        rng, law, reps, broken = seeded("ten", design), flat(0.05), 120, []
        for k in range(reps):
            d = draw(design, 3000, rng)
            scores, error = ten_scores(d, rng), d.errors(law)
            cals = [Calibration(s, error, d.patients) for s in scores.values()]
            broken.append(any(largest_certified("fallback", cal, 0.05, 0.05 / 10) > 0 for cal in cals))
            if k < 3:  # the walks are what a user gets, who would wait for `rows_needed` too
                assert quiet(uq.choose_threshold, scores, error, 0.05, clusters=d.patients).feasible == broken[-1]
        print(design, np.mean(broken))
        assert np.mean(broken) <= 0.05 + noise(0.05, reps)


def test_several_targets_hold_together():
    for n in [1000, 10_000]:
        for design in ["rows", "ties", "poisson", "tens"]:
            rng, law = seeded("targets", design, n), stairs(*TARGETS)
            reps = 600 if design in ("rows", "ties") else 100
            broken = []
            for _ in range(reps):
                d = draw(design, n, rng)
                found = quiet(uq.choose_threshold, d.score, d.errors(law), TARGETS, 0.95, clusters=d.patients)
                broken.append(any(law.risk(t.value) > t.max_risk for t in found))
            print(design, n, np.mean(broken))
            assert np.mean(broken) <= 0.05 + noise(0.05, reps)


# ---- the test behind clusters -----------------------------------------------------------------------------------


def test_cluster_p_value_is_small_about_as_rarely_as_it_claims():
    """By enumeration: clusters of one row each, at the target.

    The levels below 0.05 are those that several targets or scores, or level = 0.99, ask for.
    """
    for delta in [0.1, 0.05, 0.01, 0.005]:
        for gamma in TARGETS:
            sizes = {}
            for count in (*range(10, 100, 3), *range(100, 500, 15)):
                total = [np.repeat([1.0, 0.0], [k, count - k]) for k in range(count // 5)]
                p = [bounds.cluster_p(bounds.moments(t, np.ones(count)), gamma, largest=1.0)[0] for t in total]
                sizes[count] = float(stats.binom.pmf(np.arange(len(p)), count, gamma)[np.array(p) <= delta].sum())
            worst = max(sizes, key=sizes.get)
            print(gamma, delta, worst, sizes[worst])
            assert sizes[worst] <= delta * (1 + 1e-9)


# ---- clusters whose size says something about their risk --------------------------------------------------------


def test_promise_holds_where_wrong_clusters_are_the_large_ones():
    """Measured in 1000 runs of each cell: at most 0.052 and 0.100 (5 rows, 300 patients); with a made-up cluster of
    average size, as it was before, 0.43 (5 rows) and 0.79 (20 rows)."""
    for big, patients, whole in TELLING:
        rng, reps, found = seeded("telling", big, patients, whole), 200, {}
        for _ in range(reps):
            score, error, g = draw_telling(patients, big, whole, 1.002 * 0.05, rng)
            cal = Remembering(score, error, g, largest=big)
            for method in ("fallback", "fst", "holm"):
                for delta in DELTAS:
                    certified = largest_certified(method, cal, 0.05, delta) > -math.inf
                    found.setdefault((method, delta), []).append(certified)
        for (method, delta), broken in found.items():
            assert np.mean(broken) <= delta + noise(delta, reps), (big, patients, whole, method)


def test_bets_on_clusters_keep_the_promise_and_certify_something_from_a_thousand_clusters():
    for law, big in ((flat, 20), (flat, 5), (mono, None)):
        rng, reps, found = seeded("exact", big), 60, []
        for _ in range(reps):
            if big is None:
                score, error, g = draw_moderate(3000, law(0.05), rng)
            else:
                score, error, g = draw_telling(3000, big, True, 1.002 * 0.05, rng)
            cal = Calibration(score, error, g, exact=True, largest=big)
            found.append(max(largest_certified("fallback", cal, 0.05, 0.1), 0.0))
        print(law.__name__, big, np.mean(np.array(found) > 0), np.mean(found))
        broken = np.mean(law(0.05).risk(np.array(found)) > 0.05)
        assert broken <= 0.1 + noise(0.1, reps)
        assert big is not None or np.mean(found) > 0.5  # the oracle accepts 0.8


# ---- weighted rows ----------------------------------------------------------------------------------------------


def test_promise_holds_for_weighted_rows():
    for design in ("oversampled", "lognormal"):
        for law, n in ((flat, 300), (flat, 2000), (mono, 2000)):
            for what in ("errors", "losses"):
                rng, reps, found, delta, gamma = seeded("weights", design, n, what), 100, {}, 0.1, 0.1
                truth = law(gamma)
                for _ in range(reps):
                    score, luck, weights, most = draw_weighted(design, n, rng)
                    d = Draw(score, score, luck, None)
                    loss = d.errors(truth) if what == "errors" else d.losses(truth)
                    cal = Remembering(score, loss, weights=weights, largest=most)
                    for method in ("fallback", "fst", "holm", "rcps", "crc"):
                        found.setdefault(method, []).append(largest_certified(method, cal, gamma, delta))
                for method, values in found.items():
                    risk = truth.joint(np.array(values)) if method in JOINT else truth.risk(np.array(values))
                    print(design, law.__name__, n, what, method, np.mean(risk > gamma), np.maximum(values, 0).mean())
                    if method == "crc":
                        assert risk.mean() <= gamma + 3 * risk.std(ddof=1) / math.sqrt(reps)
                    else:
                        assert np.mean(risk > gamma) <= delta + noise(delta, reps)


# ---- the step-down walk -----------------------------------------------------------------------------------------


def test_step_down_keeps_its_promise_whatever_the_shape_of_the_risk():
    """Measured in 2000 runs of each of 188 shapes: at most 0.108 (target 0.05, 1000 rows), 0.10 allowed; where what the
    failed regions use was not held back, 0.13."""
    for gamma, delta, n in STEPS:
        for turns, depth in WAVES if n <= 300 else WAVES[2:4] + WAVES[-1:]:
            law, rng, reps = wave(gamma, turns, depth), seeded("wave", gamma, n, turns), 500 if n <= 1000 else 200
            values = np.array([certified("rows", law, gamma, delta, n, rng)["step-down"] for _ in range(reps)])
            broken = np.mean(law.risk(values) > gamma * (1 + 1e-9))
            print(gamma, delta, n, turns, depth, broken)
            assert broken <= delta + noise(delta, reps)


def test_step_down_keeps_its_promise_for_tied_scores():
    for gamma, delta, n in STEPS[:3]:
        law, rng, reps = flat(gamma), seeded("tied steps", gamma, n), 500
        found = [certified("ties", law, gamma, delta, n, rng)["step-down"] > -math.inf for _ in range(reps)]
        assert np.mean(found) <= delta + noise(delta, reps)


def test_step_down_accepts_no_less_than_fallback_anywhere_and_much_more_on_average():
    gains = []
    for law, gamma, delta, n in GAINS:
        rng, reps = seeded("gain", law.__name__, gamma, n), 400 if n <= 1000 else 150
        runs = [certified("rows", law(gamma), gamma, delta, n, rng) for _ in range(reps)]
        new, old = (np.array([max(run[method], 0.0) for run in runs]) for method in ("step-down", "fallback"))
        print(law.__name__, gamma, delta, n, new.mean(), old.mean())
        assert (new - old).mean() >= -3 * (new - old).std(ddof=1) / math.sqrt(reps)
        gains.append(new.mean() / old.mean() - 1)
    assert np.mean(gains) >= 0.15


def certified(design, law, gamma, delta, n, rng):
    """The thresholds of one draw, by method."""
    d = draw(design, n, rng)
    cal = Calibration(d.score, d.errors(law))
    return {method: largest_certified(method, cal, gamma, delta) for method in ("step-down", "fallback")}


# ---- 5. estimates at the threshold ------------------------------------------------------------------------------


def check_intervals_hold(design, what, n, gamma, *, split, level=0.9, reps=400):
    """Of the runs that certify something: does the interval hold the true coverage, the held-out one the risk?"""
    rng, law = seeded("intervals", design, what, n, gamma, split), mono(gamma)
    held = []
    for seed in range(reps):
        d = draw(design, n, rng)
        loss = d.errors(law) if what == "errors" else d.losses(law)
        t = quiet(uq.choose_threshold, d.score, loss, gamma, level, clusters=d.patients, split=split, seed=seed)
        if not t.feasible:
            continue
        if split is None:
            held.append(t.coverage_interval[0] <= t.value <= t.coverage_interval[1])
        else:
            held.append(t.holdout.risk.low <= law.risk(t.value) <= t.holdout.risk.high)
    print(design, what, n, gamma, split, np.mean(held), len(held))
    assert len(held) >= 100
    assert np.mean(held) >= level - noise(level, len(held)) - 0.01


def test_coverage_interval_holds_although_the_same_rows_chose_the_threshold():
    for design, n in [*((d, n) for d in ("rows", "ties") for n in (300, 1000)), ("poisson", 1000), ("tens", 2000)]:
        check_intervals_hold(design, "errors", n, 0.2, split=None, reps=500 if design in ("rows", "ties") else 250)


def test_held_out_risk_interval_holds():
    for design, n in [("rows", 300), ("rows", 1000), ("ties", 300), ("ties", 1000)]:
        for gamma in [0.05, 0.2]:
            check_intervals_hold(design, "errors", n, gamma, split=0.5, reps=500)


def test_held_out_risk_interval_holds_with_clusters():
    for design, n in [("poisson", 1000), ("poisson", 3000), ("tens", 3000)]:
        check_intervals_hold(design, "errors", n, 0.2, split=0.5, reps=300)


def test_held_out_interval_of_a_mean_loss_holds():
    for design, n, gamma in [("rows", 300, 0.2), ("rows", 1000, 0.05), ("rows", 1000, 0.2), ("poisson", 1000, 0.2)]:
        check_intervals_hold(design, "losses", n, gamma, split=0.5, reps=500 if design == "rows" else 250)


# ---- 6. the monitor ---------------------------------------------------------------------------------------------


class Monitors:
    """Many at once, a look at a time; that one of them is what chained checks give is a claim below."""

    def __init__(self, gamma, runs, *, run_length=None, level=0.95):
        self.purse = Purse(gamma, level, run_length)
        self.share, self.bound = self.purse.shares, 1 / (1 - level)
        self.wealth = np.tile(self.purse.first, (runs, 1))
        self.e, self.units = np.ones(runs), 0
        self.alarm = np.full(runs, np.inf)  # units seen

    def look(self, factors, units):
        """`factors` is what the look makes of each stake."""
        self.wealth *= factors
        self.e = self.wealth.sum(axis=1) + self.purse.saved(self.units)
        self.wealth += min(1.0, self.purse.added(self.units, units)) * self.share
        self.units += units
        self.alarm[(self.e >= self.bound) & np.isinf(self.alarm)] = self.units

    def forget(self):
        """Leave out those that raised the alarm: the units that each had seen."""
        silent = np.isinf(self.alarm)
        alarm, self.wealth, self.alarm = self.alarm[~silent], self.wealth[silent], self.alarm[silent]
        return alarm


def of_counts(gamma, size):
    """What a look at so many rows makes of each stake, by the errors among them."""
    up, down = (bounds.rise_log_e(np.full(1, x), gamma) for x in (1.0, 0.0))
    wrong = np.arange(size + 1)[:, None]
    return np.exp(np.minimum(wrong * up + (size - wrong) * down, 700))


def of_losses(losses, gamma):
    """What single losses make of each stake."""
    return 1 + bounds.rise_excesses(gamma) / (1 - gamma) * (losses[..., None] - gamma)


def watch_errors(monitors, gamma, risk, size, looks, rng):
    """Looks at `size` rows each; in blocks, for the generator is slow to be called."""
    table = of_counts(gamma, size)
    for start in range(0, looks, 1000):
        wrong = rng.binomial(size, risk, (min(1000, looks - start), len(monitors.wealth)))
        for row in wrong:
            monitors.look(table[row], size)


def delays(gamma, risk, size, rng, *, good=0, good_risk=0.0, runs=1000, run_length=None):
    """Rows from the change to the alarm, of those that were silent before; `good` rows came first."""
    monitors = Monitors(gamma, runs, run_length=run_length)
    watch_errors(monitors, gamma, good_risk, size, good // size, rng)
    monitors.forget()
    table, waited = of_counts(gamma, size), []
    while len(monitors.wealth):
        monitors.look(table[rng.binomial(size, risk, len(monitors.wealth))], size)
        waited += (monitors.forget() - good).tolist()
    return np.array(waited)


class Cusum:
    """The likelihood-ratio CUSUM that knows both risks, as a Markov chain on a grid (Brook & Evans 1972)."""

    def __init__(self, gamma, risk):
        self.step = -math.log((1 - risk) / (1 - gamma)) / 8  # a right row goes down by exactly 8 of them
        self.up = round(math.log(risk / gamma) / self.step)

    def left(self, height, risk, least=1e-10):
        """The share that has not reached the height after each row, until what is left falls by a constant factor."""
        mass, shares = np.zeros(height), [1.0]
        mass[0] = 1
        while len(shares) < 3000 or (least and shares[-1] > least):
            after = np.zeros(height)
            after[self.up :] += risk * mass[: -self.up]
            after[0] += (1 - risk) * mass[:9].sum()
            after[1:-8] += (1 - risk) * mass[9:]
            mass = after
            shares.append(float(mass.sum()))
        return np.array(shares)

    def false_alarms(self, height, gamma, rows):
        shares = self.left(height, gamma, least=0)
        return 1 - shares[-1] * (shares[-1] / shares[-2]) ** (rows - len(shares) + 1)

    def run_length(self, height, gamma):
        shares = self.left(height, gamma, least=0)
        return shares.sum() + shares[-1] / max(1e-15, 1 - shares[-1] / shares[-2])

    def delay(self, height, risk):
        """From 0, where it stands after a good time."""
        return self.left(height, risk).sum()

    def tuned(self, enough):
        """The lowest height that will do."""
        low, high = self.up + 10, 60 * self.up + 200
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high


def cluster_losses(gamma, risk, shape, rng):
    """What a cluster of 1 to 10 rows that are all wrong or all right counts for, where 10 is the largest."""
    size, wrong = rng.integers(1, 11, shape), rng.random(shape) < risk
    return size, wrong, size * (wrong - gamma) / 10 + gamma


def test_simulated_evidence_is_what_chained_checks_give():
    """One row (or cluster) per look, rejected rows in between."""
    for gamma in TARGETS:
        for run_length in (None, 500):
            rng = seeded("chain", gamma, run_length)
            error = (rng.random(300) < 2 * gamma).astype(np.uint8)
            loss = rng.random(300) ** (1 / gamma - 1)
            size, wrong, counted = cluster_losses(gamma, 2 * gamma, 60, rng)
            exact, mean = (Threshold.from_value(0.5, max_risk=gamma, what=what) for what in ("error", "loss"))
            last = [None, None, None]
            for k in range(300):
                # A row above the threshold comes along and must not count.
                options = {"run_length": run_length}
                last[0] = exact.check([0.1, 0.9], [error[k], 1], previous=last[0], **options)
                last[1] = mean.check([0.1, 0.9], [loss[k], 1.0], previous=last[1], **options)
                if k < 60:
                    options |= {"previous": last[2], "largest_cluster": 10, "clusters": np.full(size[k], k)}
                    last[2] = exact.check(np.full(size[k], 0.1), np.full(size[k], int(wrong[k])), **options)
            for found, counts in zip(last, (error.astype(float), loss, counted), strict=True):
                monitors = Monitors(gamma, 1, run_length=run_length)
                for k in range(len(counts)):
                    monitors.look(of_losses(counts[k : k + 1], gamma), 1)
                assert found.e_value == pytest.approx(monitors.e[0], rel=1e-9)
                assert found.holds == np.isinf(monitors.alarm[0])
            monitors = Monitors(gamma, 1, run_length=run_length)
            watched = exact.check(np.zeros(300), error, run_length=run_length)
            monitors.look(of_counts(gamma, 300)[error.sum()][None], 300)
            assert watched.e_value == pytest.approx(monitors.e[0], rel=1e-9)


def test_monitor_raises_no_more_false_alarms_than_promised_over_a_hundred_thousand_looks():
    """The risk is exactly what was promised."""
    for gamma, size, looks, runs in [
        (0.05, 1, 100_000, 600),
        (0.01, 1, 20_000, 600),
        (0.2, 1, 20_000, 600),
        (0.05, 50, 20_000, 600),
        (0.2, 500, 5_000, 600),
    ]:
        monitors = Monitors(gamma, runs)
        watch_errors(monitors, gamma, gamma, size, looks, seeded("false", gamma, size))
        alarms = np.isfinite(monitors.alarm).mean()
        print(gamma, size, alarms)
        assert alarms <= 0.05 + noise(0.05, runs)


def test_monitor_of_losses_and_of_clusters_raises_no_more_false_alarms_than_promised():
    for what in ["losses", "clusters", "larger where wrong"]:
        for gamma in TARGETS:
            rng, runs = seeded("false", what, gamma), 600
            monitors = Monitors(gamma, runs)
            for _ in range(10_000):
                if what == "losses":
                    counted = rng.random(runs) ** (1 / gamma - 1)
                elif what == "clusters":
                    counted = cluster_losses(gamma, gamma, runs, rng)[2]
                else:  # a wrong cluster has five rows, a right one a single row
                    wrong = rng.random(runs) < gamma / (5 - 4 * gamma)
                    counted = np.where(wrong, 5 * (1 - gamma), -gamma) / 5 + gamma
                monitors.look(of_losses(counted, gamma), 1)
            alarms = np.isfinite(monitors.alarm).mean()
            print(gamma, what, alarms)
            assert alarms <= 0.05 + noise(0.05, runs)


def draw_telling_sizes(patients, big, small, rng):
    """Patients of one row or of nine, equally many, with an error rate of their own: score, error, patient."""
    size = rng.choice([1, 9], patients)
    g = np.repeat(np.arange(patients), size)
    error = rng.random(len(g)) < np.where(size == 9, big, small)[g]
    return rng.random(len(g)), error.astype(np.uint8), g


def test_monitor_raises_no_more_false_alarms_where_small_clusters_are_worse():
    """A fifth of the rows is wrong, as promised, but two fifths of the rows of a patient on average."""
    rng, reps, alarms = seeded("by hand"), 100, 0
    promise = Threshold.from_value(1.0, max_risk=0.2)
    for _ in range(reps):
        s, e, g = draw_telling_sizes(60, 0.15, 0.65, rng)
        last = None
        for k in range(60):
            last = promise.check(s[g == k], e[g == k], clusters=g[g == k], previous=last, largest_cluster=9)
        alarms += not last.holds
    print(alarms / reps)
    assert alarms / reps <= 0.05 + noise(0.05, reps)


def test_false_alarms_are_as_far_apart_on_average_as_the_run_length_says():
    """The risk is exactly what was promised, and what is not over after 20 run lengths counts as so long."""
    for gamma, size, run_length in [
        (0.01, 1, 1000),
        (0.05, 1, 1000),
        (0.2, 1, 1000),
        (0.05, 50, 1000),
        (0.05, 20, 300),
    ]:
        rng, runs = seeded("run length", gamma, size, run_length), 500
        monitors, table, lengths = Monitors(gamma, runs, run_length=run_length), of_counts(gamma, size), []
        while len(monitors.wealth) and monitors.units < 20 * run_length:
            monitors.look(table[rng.binomial(size, gamma, len(monitors.wealth))], size)
            lengths += monitors.forget().tolist()
        lengths += [20 * run_length] * len(monitors.wealth)
        print(gamma, size, run_length, np.mean(lengths))
        assert np.mean(lengths) >= run_length - 3 * np.std(lengths) / math.sqrt(runs)


def test_after_a_good_time_a_rise_is_noticed_nearly_as_soon_as_by_a_cusum_that_knows_it():
    """The CUSUM has the same chance of a false alarm, 5% in 100,000 rows at the promised risk."""
    for gamma, factor, most in [
        (0.05, 4, 1.3),
        (0.05, 2, 2.0),
        (0.2, 4, 1.3),
        (0.2, 2, 2.0),
        (0.01, 4, 1.3),
        (0.01, 2, 2.0),
    ]:
        rival = Cusum(gamma, factor * gamma)
        height = rival.tuned(lambda h, rival=rival, gamma=gamma: rival.false_alarms(h, gamma, 100_000) <= 0.05)
        best = rival.delay(height, factor * gamma)
        rng = seeded("cusum", gamma, factor)
        own = delays(gamma, factor * gamma, 1, rng, good=5000, good_risk=0.6 * gamma, runs=600)
        print(gamma, factor, own.mean(), best)
        assert own.mean() <= most * best


def test_between_false_alarms_a_rise_is_noticed_nearly_as_soon_as_by_a_cusum_of_that_run_length():
    for factor in (2, 4):
        rival = Cusum(0.05, factor * 0.05)
        height = rival.tuned(lambda h, rival=rival: rival.run_length(h, 0.05) >= 10_000)
        best = rival.delay(height, factor * 0.05)
        rng = seeded("cusum", factor)
        own = delays(0.05, factor * 0.05, 1, rng, good=5000, good_risk=0.03, run_length=10_000)
        print(factor, own.mean(), best)
        assert own.mean() <= 1.3 * best


def test_a_rise_from_the_start_is_noticed_as_soon_as_when_all_was_at_stake():
    """The means of the monitor that saved nothing were measured over 40,000 runs."""
    for gamma, factor, before in [
        (0.01, 2, 1071.5),
        (0.01, 4, 169.2),
        (0.05, 2, 204.9),
        (0.05, 4, 31.7),
        (0.2, 2, 42.0),
        (0.2, 4, 5.7),
    ]:
        own = delays(gamma, factor * gamma, 1, seeded("cold", gamma, factor), runs=4000)
        print(gamma, factor, own.mean())
        assert own.mean() <= before + 3 * own.std() / math.sqrt(len(own))


def test_monitor_notices_a_doubled_mean_loss_and_a_doubled_risk_of_clusters_after_a_good_time():
    """Losses vary less than errors and are noticed sooner than said; clusters are bet on as shares of the largest."""
    for gamma in TARGETS:
        said = expected_delay(gamma, after=round(250 / gamma))
        for what, most in [("losses", 1.0), ("clusters", 2.0)]:
            rng, monitors = seeded("double", what, gamma), Monitors(gamma, 100)
            for unit in range(round(1250 / gamma)):
                risk = 0.6 * gamma if unit < 250 / gamma else 2 * gamma
                if what == "losses":
                    counted = rng.random(100) ** (1 / risk - 1)
                else:
                    counted = cluster_losses(gamma, risk, 100, rng)[2]
                monitors.look(of_losses(counted, gamma), 1)
                if np.isfinite(monitors.alarm).all():
                    break
            waited = monitors.alarm - round(250 / gamma)
            print(gamma, what, waited[waited > 0].mean(), said)
            assert waited[waited > 0].mean() <= most * said


# ---- 7. the risk map --------------------------------------------------------------------------------------------

FINE = np.concatenate([np.geomspace(1e-4, 0.01, 40), np.linspace(0.011, 0.6, 110)])


def check_risk_map(design, what, n, law, *, reps, slack=0.0, level=0.95):
    """The band holds at all thresholds of the grid, and the safe end of ψ is safe for all risks, both at once."""
    truth = {"mono 0.2": mono(0.2), "bump 0.05": bump(0.05), "flat 0.05": flat(0.05)}[law]
    rng = seeded("map", design, what, n, law)
    band, safe = [], []
    for _ in range(reps):
        d = draw(design, n, rng)
        loss = d.errors(truth) if what == "errors" else d.losses(truth)
        found = quiet(uq.risk_map, d.score, loss, level=level, clusters=d.patients)
        risk = truth.risk(found.threshold)
        band.append(bool(((found.band_low <= risk) & (risk <= found.band_high)).all()))
        lows = np.array([psi.low for psi in found.table(FINE)])
        safe.append(bool((truth.risk(lows) <= FINE).all()))
    print(design, what, n, law, "band", np.mean(band), "psi", np.mean(safe))
    least = level - noise(level, reps) - slack
    assert np.mean(safe) >= least
    assert np.mean(band) >= least


def test_risk_map_holds_at_all_thresholds_and_risks_at_once():
    for law in ["mono 0.2", "bump 0.05", "flat 0.05"]:
        for n in [300, 1000]:
            for design in ["rows", "ties"]:
                check_risk_map(design, "errors", n, law, reps=300)


def test_risk_map_of_losses_holds_at_all_thresholds_and_risks_at_once():
    for law in ["mono 0.2", "bump 0.05", "flat 0.05"]:
        for design in ["rows", "ties"]:
            check_risk_map(design, "losses", 1000, law, reps=60)


def test_risk_map_of_clusters_holds_nearly_as_often_as_claimed():
    """A t interval is asymptotic and the smallest regions hold a handful of clusters: two points are allowed."""
    for law in ["mono 0.2", "bump 0.05", "flat 0.05"]:
        for design in ["poisson", "tens"]:
            check_risk_map(design, "errors", 1000, law, reps=120, slack=0.02)


def test_risk_map_of_losses_in_clusters_holds_nearly_as_often_as_claimed():
    """Skewed losses, as most real ones: of many small ones and a few near 1."""
    for law in ["mono 0.2", "bump 0.05", "flat 0.05"]:
        for design in ["poisson", "tens"]:
            check_risk_map(design, "losses", 1000, law, reps=60, slack=0.05)


# ---- 7. dominance -----------------------------------------------------------------------------------------------


def accepted_and_right(shift, rate, risks):
    """Binormal score: the risk of {score ≤ t} rises with t."""
    t = np.linspace(-10, 12, 200_001)
    wrong, right = rate * ndtr(t - shift), (1 - rate) * ndtr(t)
    last = np.searchsorted(wrong / (wrong + right), risks, side="right") - 1
    return np.where(last >= 0, right[last], 0.0)


def compare(n, shifts, rate, rng, seed):
    """Two scores of correlation 0.5 given the error."""
    error = (rng.random(n) < rate).astype(np.uint8)
    z, other = rng.normal(size=n), rng.normal(size=n)
    scores = z + shifts[0] * error, 0.5 * z + math.sqrt(0.75) * other + shifts[1] * error
    return quiet(uq.dominance, *scores, error, resamples=200, seed=seed)


def test_dominance_band_holds_at_all_risks_at_once():
    for n in [500, 2000]:
        rng, reps, shifts, rate = seeded("dominance", n), 200, (2.0, 1.2), 0.2
        held, verdicts = [], []
        for seed in range(reps):
            found = compare(n, shifts, rate, rng, seed)
            a, b = (accepted_and_right(shift, rate, found.max_risk) for shift in shifts)
            held.append(bool(((found.low <= a - b) & (a - b <= found.high)).all()))
            verdicts.append(found.verdict)
        print(n, np.mean(held), {v: verdicts.count(v) / reps for v in ("a", "b", "neither")})
        assert np.mean(held) >= 0.95 - noise(0.95, reps) - 0.02
        assert verdicts.count("a") >= (0.5 if n == 500 else 0.95) * reps
        assert "b" not in verdicts


def test_equally_good_scores_are_rarely_told_apart():
    rng, reps = seeded("equal"), 200
    verdicts = [compare(500, (2.0, 2.0), 0.2, rng, seed).verdict for seed in range(reps)]
    print({v: verdicts.count(v) / reps for v in ("a", "b", "neither")})
    assert 1 - verdicts.count("neither") / reps <= 0.05 + noise(0.05, reps)
