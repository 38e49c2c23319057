"""Do the default 95% intervals hold, and are they no wider than they must be? Fixed seeds, exact true values.

The whole grid is `make validate`; these are cells of it and of an earlier simulation that was written apart from the
package, whose numbers are simulated too: the tolerance is three standard errors of the difference.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from inference_reference import estimates, quiet
from scipy import integrate, optimize, stats
from scipy.special import expit, logit, ndtr, ndtri

from cases import each, noted
from validation.grid import Cell
from validation.run import simulate as simulate_cell

pytestmark = pytest.mark.slow

KNOWN_REPS = {50: 4000, 200: 4000, 1000: 3000}
REPS = {50: 4000, 200: 4000, 1000: 2000}
RHO = 0.5  # correlation of score and gap inside a class


# ---- laws: scores given the error, with exact true values -------------------------------------------------------


@cache
def law(name):
    """Score laws of right and wrong rows, and UQ-AUC."""
    if name == "binormal":
        return stats.norm(0), stats.norm(math.sqrt(2) * ndtri(0.8)), 0.8
    shape, auc = 2.0, 0.84  # "gamma": the skewed law of the confirmatory run

    def excess(k):
        return integrate.quad(lambda x: stats.gamma.pdf(x, k) * stats.gamma.cdf(x, shape), 0, 80, limit=200)[0] - auc

    return stats.gamma(shape), stats.gamma(optimize.brentq(excess, shape, 20)), auc


@cache
def truth(name, acc):
    """Population values: AURC = E[V(−ln U)], AUGRC = E[V(1 − U)], U = F(S), by quantile quadrature."""
    right, wrong, auc = law(name)
    err = 1 - acc
    p = (np.arange(1_000_000) + 0.5) / 1_000_000
    x = wrong.ppf(p)
    u = acc * right.cdf(x) + err * p
    aurc = err * float(np.mean(-np.log(u)))
    values = {
        "uq_auc": auc,
        "aurc": aurc,
        "augrc": (1 - auc) * err * acc + err**2 / 2,
        "e_aurc": aurc - (err + acc * math.log(acc)),
        "h_auc": auc * err * acc,
        # Gaps of right rows lie below those of wrong ones; inside a class a normal copula of correlation RHO.
        "uq_c_index": 2 * acc * err * auc + (acc**2 + err**2) * (0.5 + math.asin(RHO) / math.pi),
    }
    assert err * float(np.mean(1 - u)) == pytest.approx(values["augrc"], rel=1e-5)
    return values


def draw(name, acc, shape, rng):
    """score, error, gap."""
    right, wrong, _ = law(name)
    v = (rng.random(shape) < 1 - acc).astype(np.uint8)
    z, other = rng.normal(size=shape), rng.normal(size=shape)
    gap = 0.5 * v + 0.5 * ndtr(RHO * z + math.sqrt(1 - RHO**2) * other)
    if name == "binormal":
        score = z + wrong.mean() * v
    else:
        u = ndtr(z)
        score = np.empty(shape)
        score[v == 0], score[v == 1] = right.ppf(u[v == 0]), wrong.ppf(u[v == 1])
    return score, v, gap


def tied(score, gap):
    """A handful of score values, twenty of the gap."""
    return np.round(2 * score) / 2, np.ceil(20 * gap) / 20


@cache
def tied_truth(acc):
    """From two million rows (exact for UQ-AUC, which is a finite sum)."""
    s, v, d = draw("binormal", acc, 2_000_000, np.random.default_rng(123))
    s, d = tied(s, d)
    names = {"uq_auc": v, "uq_c_index": d, "aurc": v, "augrc": v, "e_aurc": v, "h_auc": v}
    values = {name: quiet(name, s, target).value for name, target in names.items()}
    edges = np.arange(-40, 41) / 2
    cells = [ndtr(edges + 0.25 - m) - ndtr(edges - 0.25 - m) for m in (0.0, law("binormal")[1].mean())]
    exact = float(cells[1] @ (np.cumsum(cells[0]) - cells[0] / 2))
    assert values["uq_auc"] == pytest.approx(exact, abs=0.006)
    values["uq_auc"] = exact
    return values


# ---- comparison with the known coverage -------------------------------------------------------------------------

METRICS = ("uq_auc", "uq_c_index", "aurc", "augrc", "e_aurc", "h_auc")
# A pair is a range of cells, three numbers are n = 50, 200, 1000.
KNOWN_COVERAGE = {
    ("binormal", "uq_auc"): {0.6: (0.964, 0.954, 0.960), 0.9: (0.940, 0.952, 0.954), 0.99: (0.981, 0.935, 0.941)},
    ("ties", "uq_auc"): {0.6: (0.961, 0.952, 0.961), 0.9: (0.931, 0.953, 0.954), 0.99: (0.981, 0.919, 0.944)},
    ("gamma", "uq_auc"): {0.6: (0.966, 0.952, 0.944), 0.9: (0.951, 0.948, 0.944), 0.99: (0.986, 0.919, 0.932)},
    ("binormal", "uq_c_index"): {0.6: (0.948, 0.951, 0.955), 0.9: (0.955, 0.946, 0.947), 0.99: (0.960, 0.956, 0.952)},
    ("ties", "uq_c_index"): (0.935, 0.958),
    ("gamma", "uq_c_index"): {0.6: (0.958, 0.950, 0.951), 0.9: (0.960, 0.951, 0.946), 0.99: (0.956, 0.948, 0.947)},
    ("binormal", "aurc"): (0.944, 0.996),
    ("ties", "aurc"): (0.944, 0.996),
    ("gamma", "aurc"): {0.6: (0.966, 0.956, 0.950), 0.9: (0.987, 0.962, 0.948), 0.99: (0.996, 0.994, 0.982)},
    ("binormal", "augrc"): (0.940, 0.996),
    ("ties", "augrc"): (0.940, 0.996),
    ("gamma", "augrc"): {0.6: (0.960, 0.959, 0.954), 0.9: (0.982, 0.968, 0.954), 0.99: (0.994, 0.992, 0.984)},
    ("binormal", "e_aurc"): (0.943, 1.0),
    ("ties", "e_aurc"): (0.943, 1.0),
    ("gamma", "e_aurc"): (0.933, 1.0),
    ("binormal", "h_auc"): (0.945, 1.0),
    ("ties", "h_auc"): (0.945, 1.0),
    ("gamma", "h_auc"): (0.935, 0.991),
}


def slack(rate, reps, known_reps):
    rate = min(rate, 0.995)  # a rate of 1 has an error too
    return 3 * math.sqrt(rate * (1 - rate) * (1 / reps + 1 / known_reps))


def least(data, metric, acc, n, reps):
    """What was known, or 0.95 where that is less; intervals have become wider since."""
    known = KNOWN_COVERAGE[data, metric]
    low = min(0.95, known[0] if isinstance(known, tuple) else known[acc][(50, 200, 1000).index(n)])
    known_reps = 2000 if data == "gamma" else KNOWN_REPS[n]
    if metric == "uq_auc" and (acc, n) == (0.99, 50):
        known_reps *= 0.395  # samples with an error at all
    return low - slack(low, reps, known_reps)


def simulate(data, acc, n, reps, seed):
    """Share of intervals that hold, intervals counted, mean width; intervals that are NaN by design are left out."""
    rng = np.random.default_rng(seed)
    base = "binormal" if data == "ties" else data
    values = tied_truth(acc) if data == "ties" else truth(data, acc)
    scores, errors, gaps = draw(base, acc, (reps, n), rng)
    if data == "ties":
        scores, gaps = tied(scores, gaps)
    held = {name: [] for name in METRICS}
    width = {name: [] for name in METRICS}
    for s, v, d in zip(scores, errors, gaps, strict=True):
        by_error, by_gap = METRICS[:1] + METRICS[2:], METRICS[1:2]
        for name, result in (estimates(by_error, s, v) | estimates(by_gap, s, d)).items():
            if math.isnan(result.low):
                continue
            held[name].append(result.low <= values[name] <= result.high)
            width[name].append(result.high - result.low)
    return {name: (np.mean(held[name]), len(held[name]), np.mean(width[name])) for name in METRICS if held[name]}


@pytest.mark.parametrize("data", ["binormal", "ties", "gamma"])  # minutes: may run side by side
@each("n", [50, 200, 1000])
@each("acc", [0.6, 0.9, 0.99])
def test_default_intervals_hold_at_least_as_often_as_known(data, acc, n):
    found = simulate(data, acc, n, REPS[n], seed=round(1000 * acc) + n)
    wrong = {}
    for name, (share, count, _) in found.items():
        low = least(data, name, acc, n, count)
        if share < low:
            wrong[name] = f"{share:.4f} of {count}, expected {low:.4f} or more"
        if n * (1 - acc) >= 50 and n >= 1000 and share < 0.93:
            wrong[name] = f"{share:.4f} with {n * (1 - acc):.0f} errors"
    print(data, acc, n, {name: (round(float(x[0]), 4), x[1]) for name, x in found.items()})
    assert not wrong


@pytest.mark.parametrize("data", ["binormal", "ties"])
@each("acc", [0.6, 0.9, 0.99])
def test_default_intervals_hold_at_ten_thousand_rows(data, acc):
    """At least 100 errors everywhere: never under .93."""
    found = simulate(data, acc, 10_000, 1000, seed=round(1000 * acc) + 10_000)
    print(data, acc, {name: round(float(x[0]), 4) for name, x in found.items()})
    for name in ("uq_auc", "uq_c_index", "aurc", "augrc"):
        assert found[name][0] >= 0.93, name


@each(("acc", "width"), [(0.6, 0.055), (0.9, 0.091), (0.99, 0.304)])
def test_uq_auc_intervals_are_as_wide_as_known(acc, width):
    scores, errors, _ = draw("binormal", acc, (800, 1000), np.random.default_rng(7))
    found = [(r.high - r.low) for r in (quiet("uq_auc", s, v) for s, v in zip(scores, errors, strict=True))]
    assert 0.94 * width < np.nanmean(found) < 1.15 * width  # the unseen error takes 15% at most


# ---- clusters ---------------------------------------------------------------------------------------------------


def draw_clusters(acc, G, rng, icc=0.5):
    """Poisson sizes of mean 5; error, score and gap each share a cluster effect with intra-class correlation `icc`.

    Pairs across clusters follow the binormal law above, so the true values are the same.
    """
    size = np.maximum(1, rng.poisson(5, G))
    g = np.repeat(np.arange(G), size)
    n = len(g)

    def noise():
        return math.sqrt(icc) * rng.normal(size=G)[g] + math.sqrt(1 - icc) * rng.normal(size=n)

    v = (noise() > ndtri(acc)).astype(np.uint8)
    z = noise()
    gap = 0.5 * v + 0.5 * ndtr(RHO * z + math.sqrt(1 - RHO**2) * noise())
    return z + law("binormal")[1].mean() * v, v, gap, g


CLUSTERED = dict.fromkeys(("uq_auc", "uq_c_index", "aurc", "augrc"), 0.94)
NAIVE = {"uq_auc": 0.92, "uq_c_index": 0.935, "aurc": 0.90}  # what holds for independent rows alone


@each("G", [20, 50, 200])
@each("acc", [0.6, 0.9])
def test_cluster_intervals_hold_where_naive_ones_do_not(acc, G):
    rng = np.random.default_rng(G)
    reps = 1500 if G < 200 else 700
    values = truth("binormal", acc)
    held = {(name, way): [] for name in ("uq_auc", "uq_c_index", "aurc", "augrc") for way in ("cluster", "naive")}
    for _ in range(reps):
        s, v, d, g = draw_clusters(acc, G, rng)
        for way, clusters in (("cluster", g), ("naive", None)):
            of_errors = estimates(("uq_auc", "aurc", "augrc"), s, v, clusters=clusters)
            for name, result in (of_errors | estimates(("uq_c_index",), s, d, clusters=clusters)).items():
                if not math.isnan(result.low):
                    held[name, way].append(result.low <= values[name] <= result.high)
    share = {key: float(np.mean(found)) for key, found in held.items()}
    print(acc, G, share)
    for name, low in CLUSTERED.items():
        count = len(held[name, "cluster"])
        assert share[name, "cluster"] >= low - slack(low, count, 2000), name
    for name, most in NAIVE.items():
        if (1 - acc) * 5 * G < 25:
            continue  # few errors: the intervals leave so much room for an unseen one that it hides the clusters
        assert share[name, "naive"] < most, name
        assert share[name, "naive"] < share[name, "cluster"] - 0.02, name
    if G == 200:
        for name in ("aurc", "augrc"):
            assert share[name, "cluster"] > 0.93 - slack(0.93, reps, 1e9), name


def test_cluster_intervals_of_independent_rows_hold_like_naive_ones():
    rng = np.random.default_rng(0)
    held = {"cluster": [], "naive": []}
    for _ in range(1000):
        s, v, _, g = draw_clusters(0.6, 50, rng, icc=0.0)
        for way, clusters in (("cluster", g), ("naive", None)):
            result = quiet("uq_auc", s, v, clusters=clusters)
            held[way].append(result.low <= 0.8 <= result.high)
    assert np.mean(held["cluster"]) == pytest.approx(np.mean(held["naive"]), abs=0.03)
    assert min(np.mean(held["cluster"]), np.mean(held["naive"])) > 0.93


# ---- weights ----------------------------------------------------------------------------------------------------


def draw_oversampled(acc, n, rng):
    """Rows kept with probability 10^(U − 1), U the rank of the score: the least certain ten times as often."""
    s, v, d = draw("binormal", acc, 9 * n, rng)
    u = acc * ndtr(s) + (1 - acc) * ndtr(s - law("binormal")[1].mean())
    keep = np.flatnonzero(rng.random(9 * n) < 10 ** (u - 1))[:n]
    return s[keep], v[keep], d[keep], 10 ** (1 - u[keep])


@each("n", [100, 200, 1000])
@each("acc", [0.6, 0.9])
def test_weighted_intervals_hold(acc, n):
    rng = np.random.default_rng(n)
    reps = 2000 if n < 1000 else 1000
    values = truth("binormal", acc)
    held = {name: [] for name in ("uq_auc", "uq_c_index", "aurc", "augrc", "ignored")}
    for _ in range(reps):
        s, v, d, w = draw_oversampled(acc, n, rng)
        found = estimates(("uq_auc", "aurc", "augrc"), s, v, weights=w) | estimates(("uq_c_index",), s, d, weights=w)
        found["ignored"] = quiet("uq_auc", s, v)
        for name, result in found.items():
            if not math.isnan(result.low):
                held[name].append(result.low <= values["uq_auc" if name == "ignored" else name] <= result.high)
    share = {name: float(np.mean(found)) for name, found in held.items()}
    print(acc, n, share)
    for name in ("uq_auc", "uq_c_index", "aurc", "augrc"):
        assert share[name] >= 0.94 - slack(0.94, reps, math.inf), name
    if n == 1000:
        assert share["ignored"] < 0.9


# ---- few errors and a good score, few rows that rank at random --------------------------------------------------


@pytest.mark.parametrize("law", ["exponential", "random rows"])
def test_intervals_hold_where_a_good_score_meets_few_errors(law):
    """AUC .98 with about 15, 30 and 100 errors, where DeLong's interval held in 63–91%, and that of AURC in 61%."""
    for n, acc in ((500, 0.97), (1000, 0.97), (1000, 0.9)):
        cell = Cell("ranking", law, "plain", acc, 0.98, n, "", 800)
        for name, found in simulate_cell(cell)["outputs"].items():
            known = found["reps"] - found["unknown"]
            assert found["held"] / known >= 0.94 - slack(0.94, known, math.inf), (name, n, acc)


# ---- accuracy of the surest share ---------------------------------------------------------------------------------


@cache
def selective_truth(data, acc, share=0.9):
    """Accuracy of the surest `share` of the population; of tied rows at the cut a part, right and wrong alike."""
    right, wrong, _ = law("gamma" if data == "gamma" else "binormal")
    if data == "ties":
        edges = np.arange(-40, 41) / 2
        mass = [ndtr(edges + 0.25 - d.mean()) - ndtr(edges - 0.25 - d.mean()) for d in (right, wrong)]
        block, errors = acc * mass[0] + (1 - acc) * mass[1], (1 - acc) * mass[1]
        part = np.clip((share - (np.cumsum(block) - block)) / np.maximum(block, 1e-300), 0, 1)
        return 1 - float(part @ errors) / share
    cut = optimize.brentq(lambda x: acc * right.cdf(x) + (1 - acc) * wrong.cdf(x) - share, -20, 80)
    return 1 - (1 - acc) * float(wrong.cdf(cut)) / share


def selective_rows(data, acc, rng):
    """About 500 rows: score, error and what `estimate` must know about them."""
    if data == "clusters":
        s, v, _, g = draw_clusters(acc, 100, rng)
        return s, v, {"clusters": g}
    if data == "weights":
        s, v, _, w = draw_oversampled(acc, 500, rng)
        return s, v, {"weights": w}
    s, v, d = draw("gamma" if data == "gamma" else "binormal", acc, 500, rng)
    return (tied(s, d)[0] if data == "ties" else s), v, {}


def test_intervals_of_selective_accuracy_hold():
    """In 95%, less three standard errors of 1,500 samples (.017) and .01 for samples of 500 rows."""
    reps = 1500
    low = 0.95 - 3 * math.sqrt(0.95 * 0.05 / reps) - 0.01
    for data, acc in product(["binormal", "ties", "gamma", "clusters", "weights"], [0.6, 0.9]):
        with noted(data=data, acc=acc):
            rng, truth_here, held = np.random.default_rng(round(100 * acc)), selective_truth(data, acc), 0
            for _ in range(reps):
                s, v, options = selective_rows(data, acc, rng)
                result = quiet("selective_accuracy_90", s, v, **options)
                held += result.low <= truth_here <= result.high
            print(data, acc, round(truth_here, 4), held / reps)
            assert held / reps >= low


# ---- calibration, accuracy, out-of-distribution -----------------------------------------------------------------


@cache
def true_ece(T):
    """15 bins of equal width; the true chance of being right is σ(|L|/T) where σ(|L|) is claimed, L ~ N(0, 2²)."""
    total = 0.0
    for b in range(7, 15):
        ends = [max(0.0, math.log(p / (1 - p))) if 0 < p < 1 else 60.0 for p in (max(0.5, b / 15), (b + 1) / 15)]

        def gap(x):
            return (stats.logistic.cdf(x / T) - stats.logistic.cdf(x)) * 2 * stats.norm.pdf(x, scale=2)

        total += abs(integrate.quad(gap, *ends, limit=200)[0])
    return total


@each("n", [200, 1000])
@each("T", [1.0, 1.3])
def test_ece_intervals_hold_as_often_as_known(T, n):
    rng = np.random.default_rng(n)
    reps, value = 1000 if n == 200 else 700, true_ece(T)
    held = []
    for seed in range(reps):
        x = np.abs(rng.normal(scale=2, size=n))
        result = quiet("ece", stats.logistic.cdf(x), rng.random(n) < stats.logistic.cdf(x / T), seed=seed)
        held.append(result.low <= value <= result.high)
    print(T, n, value, np.mean(held))
    assert 0.930 - slack(0.930, reps, 2000) <= np.mean(held) <= 0.964 + slack(0.964, reps, 2000)


def patients(law, clusters, rng):
    """Confidences, rights and clusters of a calibrated model."""
    centre = rng.normal(3.2, 1.0, clusters)
    if law == "informative":  # all rows of a patient are alike, and a wrong one has four times as many
        chance = stats.logistic.cdf(centre)
        right = rng.random(clusters) < chance
        g = np.repeat(np.arange(clusters), np.where(right, 1, 4) * (1 + rng.poisson(1.0, clusters)))
        return (chance / (chance + 4 * (1 - chance)))[g], right[g].astype(float), g
    g = np.repeat(np.arange(clusters), 1 + rng.poisson(5, clusters))
    c = stats.logistic.cdf(centre[g] + rng.normal(0, 0.7, len(g)))
    common = math.sqrt(0.3) * rng.standard_normal(clusters)[g] + math.sqrt(0.7) * rng.standard_normal(len(g))
    return c, (stats.norm.cdf(common) < c).astype(float), g


@each("law", ["poisson", "informative"])
def test_ece_intervals_with_clusters_hold_as_often_as_they_claim(law):
    # Claimed: σ(2L) where the chance is σ(L). Measured with 1,000 samples each: .937 to .999.
    rng = np.random.default_rng(3)
    reps = 300
    c, _, _ = patients(law, 200_000, rng)
    claimed = expit(2 * logit(c))
    index = np.ceil(claimed * 15)
    value = sum(abs((c - claimed)[index == b].sum()) for b in np.unique(index)) / len(c)
    for clusters, twice in product([10, 20, 50, 200], [False, True]):
        held = []
        for _ in range(reps):
            c, a, g = patients(law, clusters, rng)
            result = quiet("ece", expit(2 * logit(c)) if twice else c, a, clusters=g)
            held.append(result.low <= (value if twice else 0.0) <= result.high)
        print(law, clusters, twice, np.mean(held))
        assert np.mean(held) >= 0.95 - slack(0.95, reps, 1000), (clusters, twice)


@each("n", [2, 10, 50, 200])
def test_accuracy_intervals_hold_at_least_as_often_as_they_claim(n):
    """Exactly, by enumeration over the number of errors."""
    intervals = [quiet("accuracy", (np.arange(n) < k).astype(int)) for k in range(n + 1)]
    low, high = np.array([r.low for r in intervals]), np.array([r.high for r in intervals])
    for acc in np.linspace(0.005, 0.995, 199):
        chance = stats.binom.pmf(np.arange(n + 1), n, 1 - acc)
        assert chance[(low <= acc) & (acc <= high)].sum() >= 0.95 - 1e-12


@each(("n", "shift"), [(200, 1.0), (500, 2.0), (1000, 1.0)])
def test_fpr_intervals_hold_and_are_not_much_wider_than_a_bootstrap(n, shift):
    """A stratified bootstrap holds in these cells, but not with fewer rows or heavier tails."""
    rng = np.random.default_rng(n)
    value, reps = float(ndtr(ndtri(0.95) - shift)), 1000
    held, binomial, widths, usual = [], [], [], []
    for seed in range(reps):
        inside, outside = rng.normal(size=n), rng.normal(size=n) + shift
        result = quiet("fpr_at_tpr", inside, outside, seed=seed)
        held.append(result.low <= value <= result.high)
        low, high = stats.binomtest(round(result.value * n), n).proportion_ci(0.95)
        binomial.append(low <= value <= high)
        widths.append(result.high - result.low)
        cut = np.sort(rng.choice(inside, (200, n)), axis=1)[:, math.ceil(0.95 * n) - 1]
        low, high = np.quantile((rng.choice(outside, (200, n)) <= cut[:, None]).mean(axis=1), [0.025, 0.975])
        usual.append(high - low)
    assert np.mean(held) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / reps)
    assert np.median(widths) <= 1.15 * np.median(usual)
    assert np.mean(binomial) < np.mean(held) - 0.03


@each("name", ["brier", "log_loss"])
def test_proper_score_intervals_hold(name):
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(size=4_000_000)))
    rows = p * (1 - p) * 2 if name == "brier" else -(p * np.log(p) + (1 - p) * np.log1p(-p))
    value, held = rows.mean(), []
    for _ in range(1500):
        p = 1 / (1 + np.exp(-rng.normal(size=200)))
        result = quiet(name, np.stack([1 - p, p], axis=1), (rng.random(200) < p).astype(int))
        held.append(result.low <= value <= result.high)
    assert np.mean(held) > 0.95 - 0.017
