"""`uqeval compare`: one file or several, what it prints and writes, and what it says when rows do not match."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import commands
import uqeval as uq
from cases import each, noted
from commands import loaded

N = 160
PAIR_KEYS = {"df", "a", "b", "group", "difference", "low", "high", "se", "p", "p_adjusted"}


call, spawn, succeed, fail = (
    partial(function, "compare") for function in (commands.call, commands.spawn, commands.succeed, commands.fail)
)


def data(*args):
    return loaded(succeed(*args, "--json", "-"))


def columns(seed=1, n=N, classes=("cat", "dog")):
    """A model on the same rows whatever the seed; its predictions depend on the seed."""
    rows = np.random.default_rng(0)
    label = rows.integers(0, 2, n)
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-(rng.normal(size=n) + 0.6 * (2 * label - 1))))
    probs = {"cat": 1 - p, "dog": p}
    return {
        "id": [f"row{k}" for k in range(n)],
        "label": np.array(["cat", "dog"])[label],
        **{f"prob_{name}": probs[name] for name in classes},
        "score_mine": rng.random(n),
        "hospital": np.array(["north", "south"])[np.arange(n) * 2 // n],
        "patient": [f"p{k // 4}" for k in range(n)],
        "weight": rows.uniform(0.5, 2, n),
    }


def write(path, table, order=None):
    frame = pa.table({name: np.asarray(column).tolist() for name, column in table.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = frame if order is None else frame.take(np.asarray(order))
    if path.suffix == ".parquet":
        pq.write_table(frame, path)
    else:
        pa.csv.write_csv(frame, path)
    return path


@pytest.fixture
def one(tmp_path):
    return write(tmp_path / "one.csv", columns(1))


@pytest.fixture
def two(tmp_path):
    return write(tmp_path / "two.csv", columns(2))


@pytest.fixture
def shuffled(tmp_path):
    return write(tmp_path / "two.csv", columns(2), np.random.default_rng(5).permutation(N))


# ---- one file -----------------------------------------------------------------------------------------------------


def test_one_file_compares_its_scores(one):
    found = data(one, "--scores", "entropy,mine")
    assert (found["metric"], found["adjust"], found["n"]) == ("uq_auc", "max-t", N)
    (pair,) = found["pairs"]
    assert pair.keys() == PAIR_KEYS
    expected = uq.compare(uq.read_predictions(one), scores=["entropy", "mine"])["entropy", "mine"]
    assert pair["difference"] == expected.difference
    assert pair["p"] == expected.p


def test_all_scores_by_default(one):
    names = list(uq.scores.available(uq.read_predictions(one)))
    assert list(data(one)["values"]) == names


def test_scores_may_be_repeated_or_listed(one):
    listed = data(one, "--scores", "entropy,mine")
    assert data(one, "--scores", "entropy", "--scores", " mine,")["pairs"] == listed["pairs"]


def test_the_table_shows_the_difference_and_the_words(one):
    out = succeed(one, "--scores", "entropy,mine")
    for part in ("UQ-AUC (higher is better), 160 rows", "entropy − mine", "adjusted p", "not shown to differ", "95%"):
        assert part in out


def test_a_baseline_is_compared_with_all_others(one):
    found = data(one, "--baseline", "mine")
    assert found["baseline"] == "mine"
    assert {pair["b"] for pair in found["pairs"]} == {"mine"}
    copies = sum(len(group) - 1 for group in found["same_ranking"])  # compared once, for all
    assert len(found["pairs"]) == len(found["values"]) - copies - 1 == 1
    assert "Better than mine" in succeed(one, "--baseline", "mine")


def test_an_unknown_baseline_suggests_the_nearest(one):
    assert 'Did you mean "entropy"' in fail(one, "--baseline", "entrop")


@each("adjust", ["max-t", "holm", "none"])
def test_every_adjustment_runs(one, adjust):
    assert data(one, "--adjust", adjust)["adjust"] == adjust


def test_several_metrics_give_a_list_and_several_tables(one):
    found = data(one, "--metric", "uq_auc,aurc,uq_c_index")
    assert [result["metric"] for result in found] == ["uq_auc", "aurc", "uq_c_index"]
    assert data(one, "--metric", "aurc")["pairs"] == found[1]["pairs"]
    out = succeed(one, "--metric", "uq_auc,aurc")
    assert "UQ-AUC (higher is better)" in out
    assert "AURC (lower is better)" in out


def test_groups_are_reported_apart_and_tested(one):
    found = data(one, "--scores", "entropy,mine", "--by", "hospital")
    assert [pair["group"] for pair in found["pairs"]] == [None, "north", "south"]
    (test,) = found["heterogeneity"]
    assert 0 <= test["p"] <= 1
    assert "entropy − mine [north]" in succeed(one, "--scores", "entropy,mine", "--by", "hospital")


def test_a_difference_between_groups_is_said(tmp_path):
    rng = np.random.default_rng(0)
    error = (rng.random(800) < 0.3).astype(int)
    site = np.repeat(["x", "y"], 400)
    table = {
        "error": error,
        "score_a": error * 3.0 * (site == "y") + rng.normal(size=800),
        "score_b": rng.normal(size=800),
        "site": site,
    }
    path = write(tmp_path / "sites.csv", table)
    assert "! a − b differs between groups (p = 0.0000)" in succeed(path, "--by", "site")


def test_clusters_change_the_standard_error_only(one):
    plain = data(one, "--scores", "entropy,mine")["pairs"][0]
    clustered = data(one, "--scores", "entropy,mine", "--cluster", "patient")["pairs"][0]
    assert clustered["difference"] == pytest.approx(plain["difference"])
    assert clustered["se"] != plain["se"]


def test_clusters_that_span_groups_are_said(tmp_path):
    table = columns(1)
    table["patient"] = [f"p{k % 40}" for k in range(N)]
    path = write(tmp_path / "spread.csv", table)
    found = data(path, "--scores", "entropy,mine", "--by", "hospital", "--cluster", "patient")
    assert found["heterogeneity"] == []
    assert any("clusters span several groups" in note for note in found["warnings"])


def test_permutation_is_asked_for_by_name(one):
    found = data(one, "--scores", "entropy,mine", "--method", "permutation", "--resamples", "99")
    assert found["method"] == "permutation"
    assert found["adjust"] == "holm"
    assert (100 * found["pairs"][0]["p"]) == pytest.approx(round(100 * found["pairs"][0]["p"]))  # of 1 + 99


def test_bootstrap_is_seeded(one):
    asked = (one, "--scores", "entropy,mine", "--method", "bootstrap", "--resamples", "100")
    found = data(*asked)
    assert found["method"] == "bootstrap"
    assert data(*asked) == found
    assert data(*asked, "--seed", "1")["pairs"] != found["pairs"]


def test_the_level_is_used(one):
    narrow, wide = (data(one, "--scores", "entropy,mine", "--level", level)["pairs"][0] for level in (0.8, 0.99))
    assert wide["high"] - wide["low"] > narrow["high"] - narrow["low"]


def test_columns_can_be_renamed(tmp_path):
    table = columns(1)
    renamed = {"truth" if name == "label" else name.replace("prob_", "p."): value for name, value in table.items()}
    path = write(tmp_path / "renamed.csv", renamed)
    found = data(path, "--label", "truth", "--prob", "p.*", "--scores", "entropy,mine")
    assert found["pairs"] == data(write(tmp_path / "plain.csv", table), "--scores", "entropy,mine")["pairs"]


def test_what_reading_warns_of_is_told(tmp_path):
    table = columns(1)
    table["logit_cat"], table["logit_dog"] = np.zeros(N), 5 * np.ones(N)
    path = write(tmp_path / "logits.csv", table)
    found = data(path, "--scores", "entropy,mine")
    assert any("softmax" in note for note in found["warnings"])
    assert "! probs is not softmax" in succeed(path, "--scores", "entropy,mine")


# ---- several files --------------------------------------------------------------------------------------------------


def test_two_files_are_two_models_named_by_their_stems(one, two):
    found = data(one, two, "--scores", "entropy")
    assert list(found["values"]) == ["one", "two"]
    models = {path.stem: uq.read_predictions(path) for path in (one, two)}
    assert found["pairs"][0]["difference"] == uq.compare(models, scores="entropy")["one", "two"].difference


def test_three_files_give_three_pairs(one, two, tmp_path):
    third = write(tmp_path / "three.parquet", columns(3))
    found = data(one, two, third, "--scores", "entropy")
    assert [(pair["a"], pair["b"]) for pair in found["pairs"]] == [("one", "two"), ("one", "three"), ("two", "three")]
    against = data(one, two, third, "--scores", "entropy", "--baseline", "two")
    assert [(pair["a"], pair["b"]) for pair in against["pairs"]] == [("one", "two"), ("three", "two")]


@each("metric", ["accuracy", "brier", "log_loss", "ece"])
def test_metrics_of_the_model_need_several_files(one, two, metric):
    assert data(one, two, "--metric", metric)["metric"] == metric
    assert "Compare models instead" in fail(one, "--metric", metric)


def test_files_of_the_same_stem_are_named_by_their_paths(tmp_path):
    paths = [write(tmp_path / folder / "preds.csv", columns(seed)) for seed, folder in enumerate(("a", "b"))]
    other = write(tmp_path / "other.csv", columns(3))
    found = data(*paths, other, "--scores", "entropy")
    assert list(found["values"]) == [*map(str, paths), "other"]


def test_rows_are_joined_by_key_whatever_their_order(one, two, tmp_path):
    other = write(tmp_path / "mixed" / "two.csv", columns(2), np.random.default_rng(5).permutation(N))
    for extra in ([], ["--by", "hospital"], ["--cluster", "patient"], ["--by", "hospital", "--cluster", "patient"]):
        asked = ["--scores", "entropy", "--metric", "uq_auc,brier", *extra]
        expected = data(one, two, *asked)
        assert data(one, other, "--key", "id", *asked) == expected


def test_the_key_may_be_any_column_also_of_numbers(tmp_path):
    tables = [columns(seed) for seed in (1, 2)]
    for table in tables:
        table["case"] = np.arange(N)
        del table["id"]
    a = write(tmp_path / "a.csv", tables[0])
    b = write(tmp_path / "b.parquet", tables[1], np.arange(N)[::-1])
    straight = write(tmp_path / "straight" / "b.csv", tables[1])
    assert data(a, b, "--key", "case", "--scores", "entropy") == data(a, straight, "--scores", "entropy")


def test_groups_in_another_order_of_appearance_are_the_same_groups(tmp_path):
    order = np.arange(N)[::-1]
    a, b = write(tmp_path / "a.csv", columns(1)), write(tmp_path / "b.csv", columns(2), order)
    found = data(a, b, "--key", "id", "--by", "hospital", "--scores", "entropy")
    assert [pair["group"] for pair in found["pairs"]] == [None, "north", "south"]


def test_class_columns_may_come_in_another_order(one, two, tmp_path):
    turned = write(tmp_path / "turned" / "two.csv", columns(2, classes=("dog", "cat")))
    asked = ("--scores", "entropy", "--metric", "brier")
    assert data(one, turned, *asked) == data(one, two, *asked)


def test_rows_that_do_not_match_are_counted_both_ways(tmp_path):
    a = write(tmp_path / "a.csv", columns(1), range(150))
    b = write(tmp_path / "b.csv", columns(2), range(20, N))
    message = fail(a, b, "--key", "id")
    assert "20 rows of" in message
    assert "10 the other way round" in message
    c = write(tmp_path / "c.csv", columns(2), range(100))
    assert "50 rows of" in fail(a, c, "--key", "id")


def test_a_key_that_repeats_is_an_error(one, tmp_path):
    b = write(tmp_path / "b.csv", columns(2), [*range(N), 3, 4])
    assert "2 rows repeat a key" in fail(one, b, "--key", "id")
    assert "2 rows repeat a key" in fail(b, one, "--key", "id")


def test_a_key_that_is_not_there_is_an_error(one, two):
    assert "nope" in fail(one, two, "--key", "nope")


def test_without_a_key_rows_must_agree(one, tmp_path):
    table = columns(2)
    del table["id"]
    table["label"] = table["label"].copy()
    table["label"][:3] = np.where(table["label"][:3] == "cat", "dog", "cat")
    plain = columns(1)
    del plain["id"]
    a, b = write(tmp_path / "a.csv", plain), write(tmp_path / "b.csv", table)
    assert "`labels` of 'a' and 'b' differ in 3 rows" in fail(a, b)


def test_without_a_key_ids_must_agree(one, shuffled):
    assert "`ids` of 'one' and 'two' differ" in fail(one, shuffled)


def test_with_a_key_labels_must_agree_too(one, tmp_path):
    table = columns(2)
    table["label"] = table["label"][::-1]
    assert "`labels` of 'one' and 'b' differ" in fail(one, write(tmp_path / "b.csv", table), "--key", "id")


def test_without_a_key_the_number_of_rows_must_agree(one, tmp_path):
    assert "'b' has 100 rows but 'one' has 160" in fail(one, write(tmp_path / "b.csv", columns(2), range(100)))


def test_a_column_that_only_one_file_has_is_an_error(one, tmp_path):
    table = columns(2)
    del table["weight"]
    assert "Only one of 'one' and 'b' has `weights`" in fail(one, write(tmp_path / "b.csv", table))
    del table["hospital"]
    assert "hospital" in fail(one, tmp_path / "b.csv", "--by", "hospitl")


def test_a_file_named_twice_is_an_error(one):
    assert "named twice" in fail(one, one)


@each(("metric", "text"), [("h_auc", "H-AUC depends"), ("uq_c_index", "do not rank models by it")])
def test_metrics_that_must_not_rank_models_warn(one, two, metric, text):
    assert text in " ".join(succeed(one, two, "--metric", metric).split())
    assert any(text in note for note in data(one, two, "--metric", metric)["warnings"])


# ---- output -------------------------------------------------------------------------------------------------------


def test_json_on_stdout_is_json_and_nothing_else(one):
    done = spawn(one, "--json", "-", "--method", "bootstrap", "--resamples", "50")
    assert done.returncode == 0
    assert done.stderr == b""
    loaded(done.stdout.decode())


def test_json_to_a_file_leaves_the_table(one, tmp_path):
    target = tmp_path / "out.json"
    assert "adjusted p" in succeed(one, "--json", target)
    assert loaded(target.read_text())["metric"] == "uq_auc"
    assert succeed(one, "--json", target, "--quiet") == ""


def test_json_to_a_folder_that_is_not_there_is_an_error(one, tmp_path):
    assert "--json: there is no folder" in fail(one, "--json", tmp_path / "none" / "out.json")


def test_json_is_valid_where_nothing_is_defined(tmp_path):
    path = write(tmp_path / "clean.csv", {"error": [0] * 20, "score_a": range(20), "score_b": range(20, 0, -1)})
    assert data(path)["pairs"][0]["p"] is None
    assert "best" not in succeed(path)


def test_quiet_prints_nothing(one):
    assert succeed(one, "--quiet") == ""
    assert succeed(one, "-q", "--method", "bootstrap", "--resamples", "20") == ""


def test_help_shows_an_example_and_the_options():
    out = " ".join(succeed("--help").replace("│", " ").split())
    assert "Example: uqeval compare preds.parquet" in out
    for option in ("--metric", "--scores", "--baseline", "--adjust", "--key", "--by", "--cluster", "--json", "--quiet"):
        assert option in out


def test_no_colour_where_it_is_not_wanted(one):
    done = commands.call("compare", one, env={"NO_COLOR": "1", "FORCE_COLOR": ""})
    assert done.code == 0
    assert "\x1b[" not in done.out


def test_markup_in_names_is_printed_as_it_is(tmp_path):
    table = {"error": [0, 1] * 20, "score_[red]a[/]": np.random.default_rng(0).random(40), "score_[/b]": np.arange(40)}
    table["site"] = ["[i]x", ":smile:"] * 20
    out = succeed(write(tmp_path / "m.csv", table), "--by", "site")
    for part in ("[red]a[/]", "[/b]", "[i]x", ":smile:"):
        assert part in out
    a, b = (write(tmp_path / name, columns(seed)) for seed, name in enumerate(("[red]m.csv", "plain.csv")))
    assert "[red]m" in succeed(a, b, "--scores", "entropy")
    assert "[bold]x[/]" in fail(a, "--baseline", "[bold]x[/]")


# ---- bad input ----------------------------------------------------------------------------------------------------


@each(
    ("options", "text"),
    [
        (["--adjust", "bonferroni"], '"max-t", "holm", "none"'),
        (["--method", "exact"], '"influence", "bootstrap"'),
        (["--metric", "uqauc"], 'Did you mean "uq_auc"'),
        (["--metric", ""], "names no metric"),
        (["--metric", "ood_auroc"], "two sets of rows"),
        (["--metric", "kendall_phi"], "soft_labels"),
        (["--scores", "entrop"], 'Did you mean "entropy"'),
        (["--scores", "entropy"], "at least two"),
        (["--scores", ","], "empty"),
        (["--by", "nope"], "nope"),
        (["--cluster", "nope"], "nope"),
        (["--label", "nope"], "nope"),
        (["--level", "95"], "0.95"),
        (["--method", "bootstrap", "--resamples", "0"], "resamples"),
        (["--seed", "-1"], "seed"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else None,
)
def test_bad_options_are_one_message(one, options, text):
    assert text in fail(one, *options)


@each("args", [[], ["--nope"], ["x.csv", "--level", "high"], ["x.csv", "--resamples", "1.5"]])
def test_misuse_leaves_with_2(args):
    result = call(*args)
    assert result.code == 2
    assert result.out == ""
    assert "Traceback" not in result.err
    assert "Usage:" in result.err


def test_a_missing_file_is_one_message(one, tmp_path):
    assert "no such file" in fail(tmp_path / "none.csv")
    assert "no such file" in fail(one, tmp_path / "none.csv")


def test_names_by_comma_and_one_by_one_mean_the_same_at_every_command(one):
    for command, option, names, more in (
        ("evaluate", "score", ["entropy", "mine"], []),
        ("evaluate", "metric", ["uq_auc", "aurc"], ["--scores", "mine"]),
        ("compare", "score", ["entropy", "mine"], []),
        ("compare", "metric", ["uq_auc", "aurc"], []),
        ("threshold", "score", ["entropy", "mine"], ["--max-risk", 0.3]),
        ("power", "score", ["entropy", "mine"], ["--difference", 0.02]),
    ):
        a, b = names
        ways = (["--x", f"{a},{b}"], ["--x", a, "--x", b], ["--xs", a, "--x", b], ["--xs", f" {a}, {b},{a}"])
        found = []
        for way in ways:
            with noted(command=command, way=way):
                given = [part.replace("--x", f"--{option}") for part in way]
                result = commands.call(command, one, *given, *more, "--json", "-")
                assert result.err == ""
                found.append(json.dumps(loaded(result.out)))
        assert len(set(found)) == 1, (command, option)
        assert all(name in found[0] for name in names) or command in ("threshold", "power")
    power = commands.succeed(
        "power", one, "--score", "entropy", "--versus", "mine", "--difference", 0.02, "--json", "-"
    )
    assert loaded(power) == json.loads(found[0])
    assert "there are 3" in commands.fail("power", one, "--score", "entropy,mine", "--versus", "margin", "--rows", 10)
