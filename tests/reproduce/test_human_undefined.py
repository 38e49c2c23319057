"""Studies in which something is undefined, not significant, saturated or left out: the table says what it is of."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy.stats import kendalltau
from test_human import K, N, folder, logits_of, reference, study_of

from uqeval._errors import InputError
from uqeval.reproduce import panels
from uqeval.reproduce.human import figures
from uqeval.reproduce.human import run as real
from uqeval.reproduce.human.verdicts import BAD, GOOD, OPEN, WEAK, inside_words
from uqeval.reproduce.logits.writer import save_logits
from uqeval.reproduce.page import setting
from uqeval.reproduce.study import partial

pytestmark = pytest.mark.usefixtures("undrawn", "few_draws")
__all__ = ["folder", "reference"]  # fixtures


def save_models(place, reference, count, **others):
    for k in range(count):
        save_logits(place, f"m{k}", logits_of(reference, 0.5 + 0.3 * k, k), labels=reference.labels, source="test")
    for name, logits in others.items():
        save_logits(place, name, logits, labels=reference.labels, source="test")
    return place


def perfect(reference, seed=1):
    return 20.0 * np.eye(K)[reference.labels] + np.random.default_rng(seed).normal(size=(N, K))


def test_undefined_metrics_leave_one_set_of_models_for_all_cells(tmp_path, reference):
    place = tmp_path
    for k, (count, clean) in enumerate(((0, 5), (3, 1), (3, 0), (5, 1))):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        others = {f"perfect{k}": perfect(reference, k) for k in range(clean)}
        study = study_of(reference, save_models(tmp_path / "p", reference, count, **others), out=tmp_path / "out")
        assert {row["n"] for row in study.correlations} == {count}
        assert all(math.isnan(row["r"]) == (count < 4) for row in study.correlations if row["metric"] == "uq_auc")
        assert study.settings["single_models"] == count
        assert [row["model"] for row in study.settings["undefined"]] == sorted(others)
        assert len(study.tests) == (2 if count >= 4 else 0)
        assert len(study.tables["questions"]) == 4 * len(study.tests)  # direct, and one versus rest
        page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
        assert ("it makes no error" in page) == bool(clean)
        if clean and count < 4:
            assert f"({count}; {clean} more had an undefined metric" in study.verdicts()[OPEN][0]


def test_phi_of_a_very_sure_model_has_the_ties_of_the_gap(tmp_path, reference):
    # Where the majority is the label, φ and the gap are one thing, so Somers' D of φ must be 2C − 1.
    hard = np.eye(K)[reference.labels]
    sure = dataclasses.replace(reference, soft=lambda rows: hard[rows])
    z = 40 * np.random.default_rng(3).normal(size=(N, K)) + 60 * hard
    save_models(tmp_path, sure, 0, one=z, several=np.stack([z, 2 * z]))
    rows = {(row["model"], row["score"]): row for row in study_of(sure, tmp_path).models}
    for row in rows.values():
        if row["uq_c_index"] is not None:
            assert row["somers_varphi"] == pytest.approx(2 * row["uq_c_index"] - 1, abs=1e-12)
    others = np.where(hard > 0, -np.inf, z)
    exact = np.logaddexp.reduce(others, axis=1) - z[np.arange(N), reference.labels]
    kept = reference.rated
    tau = kendalltau(-z.max(axis=1)[kept], exact[kept]).statistic
    assert rows["one", "max_logit"]["kendall_varphi"] == pytest.approx(tau, abs=1e-9)


def test_order_without_significance_is_no_reproduction(folder, reference):
    study = study_of(reference, folder)
    asked = [row for row in study.tables["questions"] if not row["one_vs_rest"]]
    assert len(asked) == 4

    def said(p, r=0.9, other=0.5, low=0.4, known=30):
        rows = [row | {"p_williams": p, "r": r, "r_other": other, "low": low} for row in asked]
        settings = study.settings | {"single_models": known}
        changed = dataclasses.replace(study, settings=settings, tables=study.tables | {"questions": rows}, paper=[])
        assert changed.verdicts().items() <= dict(changed.page().short).items()
        return changed.verdicts()

    def counts(*args, **more):
        return [len(said(*args, **more)[heading]) for heading in (GOOD, WEAK, BAD, OPEN)]

    assert counts(0.01) == [4, 0, 0, 0]
    for p in (0.2, 0.05, math.nan):
        assert counts(p) == [0, 4, 0, 0]
    assert "p = 0.2" in said(0.2)[WEAK][0]
    assert counts(0.01, r=0.1, other=0.9, low=-0.2) == [0, 0, 4, 0]
    # The larger of two correlations shows nothing where it is not above 0 itself, nor do six models.
    assert counts(0.01, r=-0.1, other=-0.9, low=-0.4) == [0, 0, 4, 0]
    assert counts(0.01, low=-0.1) == [0, 4, 0, 0]
    assert counts(0.01, known=6) == [0, 0, 0, 1]
    assert "Nothing is concluded from 6 models" in said(0.01, known=6)[OPEN][0]


def test_one_versus_rest_is_judged_beside_the_direct_metric(folder, reference):
    study = study_of(reference, folder)
    rows = [row | {"p_williams": 0.001, "low": 0.1} for row in study.tables["questions"]]
    rows = [row | {"r": 0.5, "r_other": 0.9 if row["one_vs_rest"] else 0.2} for row in rows]
    changed = dataclasses.replace(
        study, settings=study.settings | {"single_models": 30}, tables=study.tables | {"questions": rows}, paper=[]
    )
    said = changed.verdicts()
    assert [len(said[heading]) for heading in (GOOD, BAD)] == [4, 4]
    assert all(line.startswith("One versus rest, it does not hold that") for line in said[BAD])
    page = changed.page()
    assert "One versus rest (mean over classes)" in [grid.caption for grid in page.tables[: page.shown]]


def test_accuracy_is_held_fixed_by_a_partial_correlation():
    rng = np.random.default_rng(5)
    held = rng.random(40)
    x, y = (3 * held + rng.normal(size=40) for _ in range(2))
    r = np.corrcoef([x, y, held])
    expected = (r[0, 1] - r[0, 2] * r[1, 2]) / math.sqrt((1 - r[0, 2] ** 2) * (1 - r[1, 2] ** 2))
    found = partial(x, y, held)
    assert found["r"] == pytest.approx(expected, abs=1e-12)
    ends = [math.tanh(math.atanh(expected) + s * 1.959963984540054 / math.sqrt(40 - 4)) for s in (-1, 1)]
    assert [found["low"], found["high"]] == pytest.approx(ends, abs=1e-9)
    assert math.isnan(partial(x[:4], y[:4], held[:4])["r"])


def test_of_six_models_it_is_not_concluded_which_correlations_are_nearer_to_the_papers(folder, reference):
    study = study_of(reference, folder)
    printed = [row | {"r": 0.5} for row in study.correlations if row["metric"] in ("uq_auc", "uq_c_index")]
    for known, concluded in ((6, False), (30, True)):
        changed = dataclasses.replace(study, settings=study.settings | {"single_models": known}, paper=printed)
        assert ("points from the four numbers that the paper prints" in " ".join(changed.drivers())) == concluded


def test_numbers_inside_the_papers_intervals_are_counted_in_words():
    for count, words in (
        (0, "None of our four numbers lies inside the paper's interval."),
        (1, "One of our four numbers lies inside the paper's interval: a."),
        (2, "Two of our four numbers lie inside the paper's intervals: a and b."),
        (3, "Three of our four numbers lie inside the paper's intervals: a, b and c."),
        (4, "All four of our numbers lie inside the paper's intervals."),
    ):
        assert inside_words(list("abcd")[:count], 4).startswith(words)


def test_reason_for_no_table_is_the_right_one(folder, reference, tmp_path):
    assert (
        "entropy, which is not among the scores" in study_of(reference, folder, scores=["margin"]).verdicts()[OPEN][0]
    )
    several = save_models(tmp_path / "s", reference, 0, e=logits_of(reference, 1.0, 3, members=2))
    assert "there are no single models" in study_of(reference, several).verdicts()[OPEN][0]
    assert "of accuracy 0.98 or more" in study_of(reference, folder, min_accuracy=0.98).verdicts()[OPEN][0]


def test_models_without_any_score_asked_for_are_named(folder, reference):
    study = study_of(reference, folder, scores=["entropy"])
    assert [item["file"].rsplit("/")[-1] for item in study.ignored] == ["dropout.npy", "ensemble.npy"]
    assert any("ensemble.npy has none of the scores asked for (entropy)" in note for note in study.notes)


def test_single_models_and_means_of_members_are_not_mixed_in_one_correlation(folder, reference):
    study = study_of(reference, folder, scores=["margin"])
    assert {row["kind"] for row in study.models} == {"single", "members", "passes"}
    assert {(row["score"], row["n"]) for row in study.tables["by_score"]} == {("margin", 8)}


def test_failures_of_models_that_were_run_join_the_others(folder, reference, tmp_path):
    made = [{"model": "x", "file": "x", "reason": "x: has no weights."}]
    study = study_of(reference, folder, failures=made, out=tmp_path / "out")
    assert study.failures == made
    assert "x: has no weights." in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "x: has no weights." in (tmp_path / "out" / "table.json").read_text()
    with pytest.raises(InputError, match=r"None of the 1 predictions can be used. x: has no weights"):
        study_of(reference, [], failures=made)


def test_large_files_are_judged_one_at_a_time_by_default(folder, monkeypatch):
    found = real.scan_predictions(folder).predictions
    monkeypatch.setattr(real, "cores", lambda: 8)
    sizes = {10_000: 4, 500_000: 4, 10_000_000: 3, 50_000_000: 1}
    for values, threads in sizes.items():
        big = [dataclasses.replace(p, shape=(values // 4, 4), dtype="float32") for p in found]
        assert real._threads(big) == threads


def test_a_file_that_goes_away_is_a_failure_of_its_own(folder, reference, monkeypatch):
    judge = real.read_rows

    def lost(prediction, *args, **more):
        if prediction.name == "alexnet-h":
            raise OSError("stale file handle")
        return judge(prediction, *args, **more)

    monkeypatch.setattr(real, "read_rows", lost)
    study = study_of(reference, folder, keep_going=True, scores=["entropy"])
    assert [failure["model"] for failure in study.failures] == ["alexnet-h"]
    assert "stale file handle" in study.failures[0]["reason"]


def test_one_tied_row_is_one_row(tmp_path, reference):
    soft = np.eye(K)[reference.labels]
    soft[3] = 0
    soft[3, :2] = 0.5
    study = study_of(dataclasses.replace(reference, soft=lambda rows: soft[rows]), save_models(tmp_path, reference, 1))
    assert any("1 row has a tied majority" in note for note in study.notes)


def test_rows_without_any_human_label_are_refused(tmp_path, reference):
    rows = np.array([7])  # the one that is not rated
    save_logits(tmp_path, "m", logits_of(reference, 1, 1)[rows], labels=reference.labels, source="test", rows=rows)
    with pytest.raises(InputError, match=r"m\.npy: none of the rows that it covers has a human label"):
        study_of(reference, tmp_path)


# ---- the page --------------------------------------------------------------------------------------------------


def test_a_perfect_correlation_stays_in_the_panels(folder, reference):
    study = study_of(reference, folder)
    perfect = [row | {"r": 1.0, "low": math.nan, "high": math.nan} for row in study.tables["floors"]]
    perfect += [row | {"accuracy": 0.5} for row in perfect]
    some = [row | {"r": 1.0, "low": math.nan, "high": math.nan} for row in study.tables["by_score"]]
    tables = study.tables | {"floors": perfect, "by_score": some}
    for name in ("accuracy_floor", "by_score"):
        spec = json.dumps(figures.makers(study, tables)[name]().to_dict())
        assert '"low": 100.0' in spec
        assert '"metric": "UQ-C-index"' in spec


def test_models_that_are_too_few_to_leave_any_out_have_no_figure_of_that_and_near_accuracies_an_axis(folder, reference):
    study = study_of(reference, folder)
    one = [row for row in study.tables["floors"] if row["accuracy"] == 0.0]
    assert "accuracy_floor" not in figures.makers(study, study.tables | {"floors": one})
    near = one + [row | {"accuracy": 0.05} for row in one]
    spec = figures.makers(study, study.tables | {"floors": near})["accuracy_floor"]().to_dict()
    low, high = spec["vconcat"][0]["hconcat"][0]["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert high - low == pytest.approx(0.1)


def test_long_labels_are_not_cut_where_they_differ(folder, reference):
    spec = figures.by_score(study_of(reference, folder).tables["by_score"], "95%").to_dict()
    assert spec["config"]["axis"]["labelLimit"] == spec["config"]["legend"]["labelLimit"] == 0
    names = ["a" * 300 + end for end in ("1", "2")]
    shown = [panels.label(name) for name in names]
    assert shown[0] != shown[1]
    assert max(map(len, shown)) < 110


def test_settings_are_words_and_no_python():
    assert setting([[64, 32], [64]]) == "64-32, 64"
    assert setting([0.005, 0.05]) == "0.005, 0.05"
    assert setting(1.2345678901234567) == "1.235"
    assert setting(20) == "20"
