"""Scores that are one ranking in other clothes count as one: in thresholds, comparisons, charts, and in words."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import commands
import uqeval as uq
from cases import noted, on_both_kernels
from uqeval._errors import collected
from uqeval.metrics.areas import Ranking
from uqeval.metrics.copies import find_copies
from uqeval.pages.payload import evaluation_payload

DEFAULTS = ("entropy", "gap_to_certain", "margin", "bernoulli_variance")


def binary(n=2000, seed=0):
    """A calibrated binary model: (n,) probabilities of class 1, and labels."""
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-3 * rng.normal(size=n)))
    return p, (rng.random(n) < p).astype(int)


def shapes(p):
    """The same probabilities as files have them."""
    two = np.stack([1 - p, p], axis=1)
    return {"(n,)": p, "(n, 2)": two, "float32": two.astype(np.float32), "grid": np.round(two, 2)}


def ranks(values):
    return np.unique(values, return_inverse=True)[1]


def quietly(function, *args, **options):
    with collected():
        return function(*args, **options)


@on_both_kernels
def test_copies_are_the_scores_whose_ranks_are_equal():
    rng = np.random.default_rng(1)
    for n in (2, 3, 40, 1023, 5000, 70_000):
        with noted(n=n):
            s = rng.integers(0, max(2, n // 3), n).astype(float)
            broken, moved = s.copy(), s.copy()
            broken[n // 2] += 0.25  # a single tie less …
            row = n - 1
            moved[row] = s.min() - 1  # … and a single row elsewhere: no sample need see them
            scores = {"s": s, "broken": broken, "grown": np.exp(s / n), "moved": moved, "less": -s, "zero": 0 * s}
            scores |= {"signed zero": -0.0 * s, "again": broken**3, "end": np.where(s == s.max(), np.inf, s)}
            rankings = {name: Ranking(values) for name, values in scores.items()}
            found = find_copies(rankings)
            for name, values in scores.items():
                own = next(other for other in scores if np.array_equal(ranks(scores[other]), ranks(values)))
                assert found.first.get(name, name) == own, name
                np.testing.assert_array_equal(rankings[name].order.ranks, ranks(values))


@pytest.mark.filterwarnings("ignore::uqeval._errors.UQWarning")
def test_the_four_default_scores_of_a_binary_problem_count_as_one():
    p, labels = binary(20_000)
    for shape, probs in shapes(p).items():
        with noted(shape=shape):
            pred = uq.Predictions(labels, probs=probs)
            ev = uq.evaluate(pred, metrics=["uq_auc", "aurc"])
            assert ev.same_ranking == (DEFAULTS,)
            assert ev.distinct == ("entropy",)
            alone = uq.choose_threshold("entropy", predictions=pred, max_risk=0.03)
            four = quietly(uq.choose_threshold, list(DEFAULTS), predictions=pred, max_risk=0.03)
            assert alone.feasible
            assert (four.value, four.score, four.n_scores) == (alone.value, "entropy", 1)
            assert any("rank all rows alike" in note for note in four.warnings)
            page = evaluation_payload(ev, max_risk=0.03, title=None, columns=None, most_mistakes=0, compare=True)
            assert page["verdict"]["act"].value == alone.value
            assert (page["verdict"]["tried"], page["explorer"]["tried"], page["shown"]) == (1, 1, ["entropy"])
    # Of three classes they are four.
    three = np.stack([p / 2, p / 2, 1 - p], axis=1)
    three[:, 0] += 0.1 * three[:, 2] * (1 + np.sin(np.arange(len(p)))) / 2
    assert uq.evaluate(uq.Predictions(labels, probs=three, normalize=True), metrics="uq_auc").same_ranking == ()


def test_every_number_of_a_copy_is_that_of_the_score_alone():
    p, labels = binary(600)
    rng = np.random.default_rng(2)
    ways = {"plain": {}, "weights": {"weights": rng.random(600)}, "clusters": {"clusters": np.arange(600) % 50}}
    for way, more in {**ways, "groups": {"groups": np.arange(600) % 3}}.items():
        pred = uq.Predictions(labels, probs=p, **more)
        both = uq.evaluate(pred)
        alone = uq.evaluate(pred, scores="margin")
        for row in alone:
            with noted(way=way, metric=row.metric, group=row.group):
                found = both["margin", row.metric, row.group] if row.group else both["margin", row.metric]
                numbers = [(e.value, e.low, e.high, e.se, e.n_eff or 0) for e in (found, row.estimate)]
                assert numbers[0] == pytest.approx(numbers[1], rel=1e-12, nan_ok=True)
        assert both.tie_rate["margin"] == alone.tie_rate["margin"]


def test_a_comparison_counts_a_ranking_once():
    rng = np.random.default_rng(3)
    n = 500
    error = rng.random(n) < 0.2
    scores = {name: rng.normal(size=n) + k * 0.3 * error for k, name in enumerate("abc")}
    more = scores | {"b again": np.exp(scores["b"]), "c again": scores["c"] ** 3, "b too": 2 * scores["b"]}
    for adjust in ("max-t", "holm", "none"):
        for method in ("influence", "bootstrap", "permutation"):
            with noted(adjust=adjust, method=method):
                how = {"error": error, "adjust": adjust, "method": method, "resamples": 50}
                three, six = uq.compare(scores, **how), uq.compare(more, **how)
                assert six.rows == three.rows
                assert six.same_ranking == (("b", "b again", "b too"), ("c", "c again"))
                assert list(six.values) == list(more)
                assert six.values["c again"] == six.values["c"]
                assert six["b again", "c again"].p_adjusted == three["b", "c"].p_adjusted
                assert six["c again", "b"].difference == -three["b", "c"].difference
                alike = six["b", "b too"]
                assert (alike.difference, alike.low, alike.high, alike.p_adjusted) == (0, 0, 0, 1)
                whose = [[name[0] for name in run] for run in six.groups()]
                assert [list(dict.fromkeys(run)) for run in whose] == three.groups()
    # The baseline stands for its own ranking.
    against = uq.compare(more, error=error, baseline="b too")
    assert [(row.a, row.b) for row in against] == [("a", "b too"), ("c", "b too")]
    assert against.same_ranking[0] == ("b too", "b", "b again")
    # Nothing else to compare with.
    same = uq.compare({"b": scores["b"], "b again": more["b again"]}, error=error)
    assert same.rows == ()
    assert "there is nothing to compare" in str(same)


def test_thresholds_fixed_beforehand_are_other_regions_of_each_score():
    p, labels = binary(800)
    pred = uq.Predictions(labels, probs=p)
    found = quietly(
        uq.choose_threshold, ["entropy", "margin"], predictions=pred, max_risk=0.1, thresholds=[-0.9, -0.6, 0.2]
    )
    assert found.n_scores == 2


def test_an_engine_compares_a_ranking_once(tmp_path):
    rng = np.random.default_rng(4)
    n = 3000
    error = (rng.random(n) < 0.2).astype(int)
    s, other = rng.normal(size=n) + error, rng.normal(size=n) + 0.5 * error
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"score_s": s, "score_other": other, "score_grown": np.exp(s), "error": error}), path)
    for baseline in (None, "grown"):
        with noted(baseline=baseline):
            memory, local = (uq.compare(path, baseline=baseline, engine=engine) for engine in ("memory", "local"))
            assert local.same_ranking == memory.same_ranking != ()
            assert [(row.a, row.b) for row in local] == [(row.a, row.b) for row in memory]
            assert local.rows[0].p_adjusted == pytest.approx(memory.rows[0].p_adjusted, rel=1e-6)
    # An evaluation there does not know, and does not say that there are none.
    assert uq.evaluate(path, metrics="uq_auc", engine="local").to_dict()["same_ranking"] is None


def test_terminal_json_report_and_charts_say_so(tmp_path):
    p, labels = binary(400)
    path = tmp_path / "two.csv"
    pa.csv.write_csv(pa.table({"label": labels, "prob": p}), path)
    words = f"{', '.join(DEFAULTS)} rank all rows alike: they count as one score"
    plain = lambda text: " ".join(text.split())  # noqa: E731
    page = tmp_path / "page.html"
    assert words in plain(commands.succeed("evaluate", path, "--metrics", "uq_auc", "--html", page))
    assert words in page.read_text(encoding="utf-8")
    assert words in plain(commands.succeed("compare", path))
    assert words in plain(commands.call("threshold", path, "--score", ",".join(DEFAULTS), "--max-risk", 0.2).out)
    for command in (("evaluate", path, "--metrics", "uq_auc"), ("compare", path)):
        assert json.loads(commands.succeed(*command, "--json", "-"))["same_ranking"] == [list(DEFAULTS)]
    ev = uq.evaluate(uq.Predictions(labels, probs=p))
    for chart in (uq.plot.roc(ev), uq.plot.risk_coverage(ev), uq.plot.mce(ev, x="coverage")):
        drawn = chart.to_dict()
        points = [row for rows in drawn["datasets"].values() for row in rows]
        assert {row["score"] for row in points if "score" in row} == {"entropy"}
        assert "entropy stands for gap_to_certain, margin, bernoulli_variance too" in drawn["title"]["subtitle"][-1]
