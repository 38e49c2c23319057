"""OASST2: votes to soft labels by the stated rule, every form of the file, languages, generated messages."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uqeval import InputError
from uqeval.datasets import fetch, oasst2, oasst2_sample
from uqeval.datasets.oasst2 import CATEGORIES, POSITIVE, _sample_rows

SCHEMA = pa.schema(
    {
        "message_id": pa.string(),
        "parent_id": pa.string(),
        "text": pa.string(),
        "role": pa.string(),
        "lang": pa.string(),
        "deleted": pa.bool_(),
        "review_result": pa.bool_(),
        "labels": pa.struct(
            {"name": pa.list_(pa.string()), "value": pa.list_(pa.float64()), "count": pa.list_(pa.int32())}
        ),
    }
)


def message(labels, **other):
    row = {"message_id": "m", "text": "Hello", "lang": "en", "deleted": False, "labels": labels}
    return row | other


def votes(**given):
    """quality=(0.5, 2) → the columns of Hugging Face."""
    return {
        "name": list(given),
        "value": [value for value, _ in given.values()],
        "count": [count for _, count in given.values()],
    }


@pytest.fixture
def rows():
    """Generated messages, one without votes and one deleted."""
    made = _sample_rows(40, 3, ("en", "de", "fr"))
    made[5]["labels"] = None
    made[6]["deleted"] = True
    return made


@pytest.fixture
def parquet(rows, tmp_path):
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "validation-00000-of-00001-abc.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    pq.write_table(pa.Table.from_pylist(rows[:3], schema=SCHEMA), tmp_path / "data" / "train-00000-of-00001.parquet")
    return path


def test_soft_label_is_the_share_of_positive_votes():
    labels = votes(quality=(0.5, 4), helpfulness=(1.0, 2), toxicity=(0.25, 4), spam=(0.0, 4), violence=(0.5, 2))
    found = oasst2([message(labels)])
    # positive: 0.5·4 + 1·2 = 4; negative: 0.25·4 + 0 + 0.5·2 = 2
    np.testing.assert_allclose(found.soft_labels, [[2 / 6, 4 / 6]])
    assert found.votes.tolist() == [6.0]
    assert found.labels.tolist() == [1]
    assert found.counts[0, CATEGORIES.index("spam")] == 4
    assert np.isnan(found.values[0, CATEGORIES.index("pii")])


def test_every_category_is_on_one_side_and_another_split_can_be_given():
    found = oasst2([message(votes(quality=(0.5, 2), humor=(1.0, 3)))], positive=["quality"])
    np.testing.assert_allclose(found.soft_labels, [[0.75, 0.25]])
    assert sorted((*found.positive, *found.negative)) == sorted(CATEGORIES)
    assert len(CATEGORIES) == 15
    assert set(POSITIVE) == {"quality", "helpfulness", "creativity", "humor"}
    for wrong in ([], ["kindness"], CATEGORIES):
        with pytest.raises(InputError, match="`positive`"):
            oasst2([message(votes(quality=(1, 1)))], positive=wrong)


def test_a_tie_is_negative():
    assert oasst2([message(votes(quality=(0.5, 2), spam=(1.0, 1)))]).labels.tolist() == [0]


def test_messages_that_nobody_voted_on_are_counted_and_left_out():
    kept = message(votes(quality=(0.5, 2), lang_mismatch=(None, 2), unknown_name=(1.0, 9)))
    dropped = [
        message(None),
        message(votes()),
        message(votes(spam=(0.0, 3), quality=(0.0, 3))),  # nothing holds
        message(votes(quality=(0.5, 2)), deleted=True),
        message(votes(quality=(0.5, 2)), text=None),
    ]
    found = oasst2([*dropped, kept])
    assert len(found) == 1
    assert dict(found.left_out) == {"deleted": 1, "without text": 1, "without votes": 3}
    assert "3 without votes" in repr(found)
    np.testing.assert_allclose(found.soft_labels, [[0, 1]])
    with pytest.raises(InputError, match="no message with votes"):
        oasst2(dropped)


def test_every_form_of_the_file_gives_the_same(rows, parquet, tmp_path, monkeypatch):
    reference = oasst2(rows)
    assert dict(reference.left_out) == {"deleted": 1, "without text": 0, "without votes": 1}
    lines = []
    for row in rows:
        given = row["labels"] or {"name": [], "value": [], "count": []}
        nested = {
            name: {"value": value, "count": count}
            for name, value, count in zip(given["name"], given["value"], given["count"], strict=True)
        }
        lines.append(json.dumps(row | {"labels": nested}))
    (tmp_path / "x.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with gzip.open(tmp_path / "x.jsonl.gz", "wt", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n\n")
    home = tmp_path / "home"
    (home / "oasst2").mkdir(parents=True)
    (home / "oasst2" / "validation.parquet").symlink_to(parquet)
    monkeypatch.setenv("UQEVAL_DATA", str(home))
    forms = [parquet, parquet.parent, parquet.parents[1], tmp_path / "x.jsonl", tmp_path / "x.jsonl.gz"]
    for form in (*forms, {"validation": rows, "train": []}, iter(rows), home, None):
        found = oasst2(form)
        np.testing.assert_array_equal(found.soft_labels, reference.soft_labels)
        assert found.texts == reference.texts
        assert found.languages.tolist() == reference.languages.tolist()
    assert len(oasst2(parquet.parent, split="train")) == 3


def test_languages_choose_rows():
    tags = ("en", "pt-BR", "de", "uk-UA", "en")
    found = oasst2([message(votes(quality=(1, 1)), lang=tag, message_id=str(k)) for k, tag in enumerate(tags)])
    assert found.rows("en").tolist() == [0, 4]
    assert found.rows(["pt", "de"]).tolist() == [1, 2]
    assert found.rows(["pt-BR"]).tolist() == [1]
    assert found.rows(None).tolist() == [0, 1, 2, 3, 4]
    again = oasst2([message(votes(quality=(1, 1)), lang=tag) for tag in tags], languages=["de", "uk"])
    assert again.languages.tolist() == ["de", "uk-UA"]
    assert found.take(np.array([3, 0])).message_ids == ("3", "0")


def test_data_that_is_not_oasst2_is_refused():
    for data, reason in [
        ([{"prompt": {"text": "a tree"}}], "not trees"),
        (["text"], "row 0 has str"),
        ([message({"name": ["quality"], "value": [0.5, 1], "count": [1]})], "name, value and count"),
        ([message({"quality": 0.5})], "name, value and count"),
        ([message(votes(quality=(1.5, 2)))], "expected 0 to 1"),
        ([message(votes(quality=("1", "1")))], "'1' votes of mean '1'"),
        ([message(votes(quality=(0.5, 1.5)))], "1.5 votes"),
        ([message([1, 2])], "labels of message 0 must have name, value and count"),
        ([message("x")], "labels of message 0 must have name, value and count"),
        (7, "`data` must be a path"),
        ("no/such/file.parquet", "does not exist"),
    ]:
        with pytest.raises(InputError, match=reason):
            oasst2(data)


def test_votes_of_a_category_that_comes_twice_are_added():
    twice = {"name": ["quality", "quality", "spam"], "value": [1.0, 0.5, 1.0], "count": [3, 2, 1]}
    found = oasst2([message(twice)])
    assert found.counts[0, CATEGORIES.index("quality")] == 5
    assert found.values[0, CATEGORIES.index("quality")] == pytest.approx(0.8)
    assert found.soft_labels[0].tolist() == pytest.approx([0.2, 0.8])


def test_a_language_of_no_message_is_refused():
    with pytest.raises(InputError, match=r"`languages` is 'de', but all messages are in en"):
        oasst2([message(votes(quality=(1, 1)))], languages="de")


def test_broken_files_are_named(tmp_path, parquet):
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(parquet.read_bytes()[:-200])
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"text": ["a"]}), other)
    lines = tmp_path / "cut.jsonl.gz"
    lines.write_bytes(gzip.compress(b'{"text": "a"}' * 1000)[:-20])
    text = tmp_path / "x.txt"
    text.touch()
    (tmp_path / "empty").mkdir()
    for path, reason in (
        (cut, "not a whole parquet"),
        (other, "lacks the columns message_id, lang, labels"),
        (lines, "not a whole file of JSON lines"),
        (text, "must end in"),
        (tmp_path / "empty", "no validation file"),
    ):
        with pytest.raises(InputError, match=reason) as caught:
            oasst2(path)
        assert path.name in str(caught.value)
    with pytest.raises(InputError, match="`split`"):
        oasst2(parquet, split="test")


def test_without_a_file_the_hub_is_asked(monkeypatch, parquet):
    monkeypatch.delenv("UQEVAL_DATA", raising=False)
    asked = []
    monkeypatch.setattr(fetch, "_download", lambda remote: asked.append(remote) or parquet)
    assert len(oasst2()) == 38
    assert asked[0].url.startswith("https://huggingface.co/datasets/OpenAssistant/oasst2/resolve/")
    assert asked[0].url.endswith("/validation/0000.parquet")


def test_generated_messages_are_marked_repeatable_and_schema_true(tmp_path):
    sample = oasst2_sample(200, seed=4)
    assert sample.generated
    assert "generated" in repr(sample)
    assert len(sample) == 200
    assert oasst2_sample(200, seed=4).texts == sample.texts
    assert oasst2_sample(200, seed=5).texts != sample.texts
    assert 0.2 < sample.labels.mean() < 0.9
    assert ((sample.soft_labels > 0.05) & (sample.soft_labels < 0.95)).any(axis=1).mean() > 0.5
    assert set(oasst2_sample(50, languages=["de"]).languages) == {"de"}
    table = pa.Table.from_pylist(_sample_rows(200, 4, ("en", "de", "es", "fr")), schema=SCHEMA)
    pq.write_table(table, tmp_path / "validation.parquet")
    np.testing.assert_array_equal(oasst2(tmp_path).soft_labels, sample.soft_labels)


def test_sample_options_that_mean_nothing_are_refused():
    for options in [{"n": 0}, {"n": True}, {"languages": ["tlh"]}, {"languages": []}]:
        with pytest.raises(InputError, match=f"`{next(iter(options))}`"):
            oasst2_sample(**options)
