"""Manifests, rows and file names that are wrong: an error that names file and reason, never a crash or a mixed pair."""

import io
import json
import os
import zipfile

import numpy as np
import pytest

from uqeval._errors import InputError
from uqeval.reproduce.logits.file import hash_file
from uqeval.reproduce.logits.folder import check_prediction, find_predictions, scan_predictions
from uqeval.reproduce.logits.writer import finished, save_logits

N, K = 120, 4


@pytest.fixture
def labels():
    return np.random.default_rng(1).integers(0, K, N)


@pytest.fixture
def logits(labels):
    return np.random.default_rng(2).normal(size=(N, K)) + 2 * np.eye(K)[labels]


def save(folder, logits, labels, name="net", **more):
    return save_logits(folder, name, logits, labels=labels, source="test", **more)


def edit(path, **fields):
    beside = path.with_suffix(".json")
    beside.write_text(json.dumps(json.loads(beside.read_text()) | fields))


def test_every_field_of_a_manifest_is_checked(tmp_path, logits, labels):
    place = tmp_path
    for k, (fields, reason) in enumerate(
        (
            ({"rows": "../x.npy"}, "rows = '../x.npy'; it must be the name of a file"),
            ({"rows": "/etc/passwd"}, "it must be the name of a file"),
            ({"rows": "net.npy"}, "it must be the name of a file"),
            ({"rows": 5}, "rows = 5"),
            ({"rows": "net.rows.npy", "rows_sha256": "0"}, r"net\.rows\.npy, which tells the rows"),
            ({"rows": "net.rows.npy"}, "rows_sha256 = None"),
            ({"shape": 5}, "its manifest says 5"),
            ({"shape": None}, "its manifest says None"),
            ({"shape": [[N], K]}, "its shape is"),
            ({"accuracy": "abc"}, "accuracy = 'abc'; it must be a number from 0 to 1"),
            ({"accuracy": [1]}, r"accuracy = \[1\]"),
            ({"accuracy": float("nan")}, "accuracy = nan"),
            ({"accuracy": True}, "accuracy = True"),
            ({"kind": "members"}, "kind = 'members'; it must be single"),
            ({"kind": "other"}, "kind = 'other'"),
            ({"sha256": 5}, "sha256 = 5; it must be text"),
            ({"model": None}, "model = None; it must be a name"),
            ({"family": ["x"]}, "family = "),
        )
    ):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        edit(save(tmp_path, logits, labels), **fields)
        (failed,) = scan_predictions(tmp_path).failed
        assert failed[0].endswith("net.npy")
        with pytest.raises(InputError, match=rf"net\.npy: .*{reason}"):
            find_predictions(tmp_path)


def test_single_is_no_kind_of_three_dimensions(tmp_path, logits, labels):
    edit(save(tmp_path, np.stack([logits] * 2), labels), kind="single")
    with pytest.raises(InputError, match=r"kind = 'single'; it must be members or passes for logits of shape"):
        find_predictions(tmp_path)


def test_a_broken_manifest_is_listed_once(tmp_path, logits, labels):
    place = tmp_path
    for k, (text, reason) in enumerate(
        (("[]", "must hold a JSON object"), ('{"model"', "cannot be read as JSON"), ("[" * 100_000, "cannot be read"))
    ):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        save(tmp_path, logits, labels).with_suffix(".json").write_text(text)
        (failed,) = scan_predictions(tmp_path).failed
        assert reason in failed[1]
        assert "net.json" in failed[1]


def test_statements_beside_an_archive_are_checked_model_by_model(tmp_path, logits):
    np.savez(tmp_path / "x_logits.npz", a=logits, b=logits + 1, c=logits + 2)
    (tmp_path / "x_models.json").write_text('{"a": {"accuracy": "good"}, "b": 3, "c": {"accuracy": 0.5}}')
    scan = scan_predictions(tmp_path)
    assert [found.name for found in scan.predictions] == ["c"]
    assert [path.rsplit(" ")[-1] for path, _ in scan.failed] == ["[a]", "[b]"]


def test_header_that_asks_for_more_than_there_is_allocates_nothing(tmp_path):
    place = tmp_path
    for k, how in enumerate((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        head = io.BytesIO()
        about = {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)}
        np.lib.format.write_array_header_1_0(head, about)
        with zipfile.ZipFile(tmp_path / "x.npz", "w", how) as archive:
            archive.writestr("a.npy", head.getvalue())
        with pytest.raises(InputError, match=r"x\.npz \[a\]: truncated or corrupt"):
            find_predictions(tmp_path)


def test_dangling_links_and_folders_are_mentioned(tmp_path, logits, labels):
    save(tmp_path, logits, labels)
    (tmp_path / "gone.npy").symlink_to(tmp_path / "nothing")
    (tmp_path / "sub.npy").mkdir()
    scan = scan_predictions(tmp_path)
    assert [why.split(": ")[1] for _, why in scan.failed] == [
        "a link to a file that is not there. Mend it or delete it."
    ]
    assert [(path.rsplit("/")[-1], why) for path, why in scan.ignored] == [("sub.npy", "is a folder")]


def test_the_later_of_two_models_of_one_name_fails_and_one_file_twice_is_one(tmp_path, logits, labels):
    path = save(tmp_path / "a", logits, labels)
    save(tmp_path / "b", logits + 1, labels)
    scan = scan_predictions([tmp_path / "a", path, tmp_path / "b"])
    assert [found.path for found in scan.predictions] == [path]
    assert ["is also in" in why for _, why in scan.failed] == [True]


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_rows_must_be_a_vector_of_whole_numbers(tmp_path, logits, labels):
    place = tmp_path
    for k, rows in enumerate((np.array(5), np.array(["1"] * 10), np.arange(10) + 0.7, np.zeros((10, 1), int))):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        path = save(tmp_path, logits[:10], labels, rows=np.arange(10))
        np.save(tmp_path / "net.rows.npy", rows)
        edit(path, rows_sha256=hash_file(tmp_path / "net.rows.npy"))
        with pytest.raises(InputError, match=r"net\.rows\.npy: row numbers must be whole numbers in a vector"):
            check_prediction(find_predictions(tmp_path)[0], labels, K)
        with pytest.raises(InputError, match="`rows` must be whole numbers"):
            save(tmp_path / "other", logits[:10], labels, rows=rows)


def test_rows_must_lie_in_the_reference_each_once(tmp_path, logits, labels):
    place = tmp_path
    for k, (rows, reason) in enumerate(
        (([0, 1, 1], "row 1 comes more than once"), ([0, 1, N], "must lie in"), ([-1, 0, 1], "lie in"))
    ):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        path = save(tmp_path, logits[:3], labels, rows=np.arange(3))
        np.save(tmp_path / "net.rows.npy", np.array(rows))
        edit(path, rows_sha256=hash_file(tmp_path / "net.rows.npy"))
        with pytest.raises(InputError, match=rf"net\.rows\.npy: .*{reason}"):
            check_prediction(find_predictions(tmp_path)[0], labels, K)
        with pytest.raises(InputError, match=reason):
            save(tmp_path / "other", logits[:3], labels, rows=rows)


def test_changed_rows_are_found_by_their_hash(tmp_path, logits, labels):
    save(tmp_path, logits[:10], labels, rows=np.arange(10), key="k")
    assert finished(tmp_path, "net", "k")
    np.save(tmp_path / "net.rows.npy", np.arange(10)[::-1])
    assert not finished(tmp_path, "net", "k")
    with pytest.raises(InputError, match=r"net\.rows\.npy: its hash differs"):
        check_prediction(find_predictions(tmp_path)[0], labels, K)


def test_a_kill_between_two_files_never_pairs_old_and_new(tmp_path, logits, labels, monkeypatch):
    place, replace = tmp_path, os.replace
    for k, stop in enumerate(("net.rows.npy", "net.npy", "net.json")):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        save(tmp_path, logits[:50], labels, rows=np.arange(50), key="old")

        def killed(source, target, stop=stop):
            if str(target).endswith(stop):
                raise KeyboardInterrupt
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                save(tmp_path, logits[50:100], labels, rows=np.arange(50, 100), key="new")
        assert not finished(tmp_path, "net", "new")
        assert finished(tmp_path, "net", "old") == (stop == "net.rows.npy")  # before the first: the old ones are whole
        save(tmp_path, logits[50:100], labels, rows=np.arange(50, 100), key="new")
        assert finished(tmp_path, "net", "new")


def test_names_of_other_files_and_endless_ones_are_refused(tmp_path, logits, labels):
    place = tmp_path
    for k, name in enumerate(("labels", "Labels", "a.rows", "q" * 300)):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        with pytest.raises(InputError, match="`name` is"):
            save(tmp_path, logits, labels, name=name)
