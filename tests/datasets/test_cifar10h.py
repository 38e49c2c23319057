"""CIFAR10-H and CIFAR-10 images in every form; real files where UQEVAL_DATA names them."""

from __future__ import annotations

import csv
import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uqeval import InputError, UQWarning
from uqeval.datasets import cifar10_images, cifar10h
from uqeval.datasets.cifar10_images import _TEST_ORDER, CLASSES, _unpack

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def real():
    folder = os.environ.get("UQEVAL_DATA")
    if not folder or not (Path(folder) / "cifar10h").exists():
        pytest.skip("UQEVAL_DATA names no folder with cifar10h/")
    return Path(folder)


@pytest.fixture(scope="module")
def made():
    """50 images that PNG keeps exactly, with labels."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, size=(50, 32, 32, 3), dtype=np.uint8), rng.permutation(np.arange(50) % 10)


def png(image) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


def binary(images, labels) -> bytes:
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels.astype(np.uint8)[:, None], planes], axis=1).tobytes()


def as_bins(folder, images, labels):
    (folder / "cifar-10-batches-bin").mkdir()
    for k, part in enumerate(np.array_split(np.arange(len(images)), 5), 1):
        (folder / "cifar-10-batches-bin" / f"data_batch_{k}.bin").write_bytes(binary(images[part], labels[part]))
    return folder


def as_tar(folder, images, labels):
    as_bins(folder, images, labels)
    with tarfile.open(folder / "cifar.tar.gz", "w:gz") as tar:
        tar.add(folder / "cifar-10-batches-bin", "cifar-10-batches-bin")
    return folder / "cifar.tar.gz"


def as_parquet(folder, images, labels):
    (folder / "plain_text").mkdir()
    rows = [{"bytes": png(image), "path": None} for image in images]
    for k, part in enumerate((slice(0, 20), slice(20, None))):
        table = pa.table({"img": rows[part], "label": labels[part]})
        pq.write_table(table, folder / "plain_text" / f"train-{k:05d}-of-00002.parquet")
    pq.write_table(pa.table({"img": rows[:1], "label": [0]}), folder / "plain_text" / "test-00000-of-00001.parquet")
    return folder


def as_class_folders(folder, images, labels):
    for k, (image, label) in enumerate(zip(images, labels, strict=True)):
        home = folder / "train" / CLASSES[label]
        home.mkdir(parents=True, exist_ok=True)
        (home / f"{k}.png").write_bytes(png(image))
    return folder


def as_npz(folder, images, labels):
    parts = [png(image) for image in images]
    data = np.frombuffer(b"".join(parts), dtype=np.uint8)
    np.savez(folder / "cifar10_train_jpeg.npz", data=data, off=np.r_[0, np.cumsum([len(p) for p in parts])], y=labels)
    return folder


def test_every_form_on_disk_gives_the_same_images(tmp_path, made):
    for form in [as_bins, as_tar, as_parquet, as_class_folders, as_npz]:
        (folder := tmp_path / form.__name__).mkdir()
        images, labels = cifar10_images("train", source=form(folder, *made))
        np.testing.assert_array_equal(images, made[0])
        np.testing.assert_array_equal(labels, made[1])
        assert labels.dtype == np.int64


def test_loaded_datasets_give_the_same_images(made):
    class Torchvision:
        data, targets = made[0], made[1].tolist()

    pairs = [(Image.fromarray(image), int(label)) for image, label in zip(*made, strict=True)]
    dicts = [{"img": image, "label": label} for image, label in pairs]
    raw = [{"img": {"bytes": png(image), "path": None}, "label": label} for image, label in zip(*made, strict=True)]
    for source in (Torchvision(), pairs, dicts, raw):
        images, labels = cifar10_images("train", source=source)
        np.testing.assert_array_equal(images, made[0])
        np.testing.assert_array_equal(labels, made[1])


def test_the_data_folder_is_used_when_no_source_is_given(tmp_path, made, monkeypatch):
    (tmp_path / "cifar10h").mkdir()
    as_npz(tmp_path / "cifar10h", *made)
    monkeypatch.setenv("UQEVAL_DATA", str(tmp_path))
    for options in ({}, {"data": tmp_path}):
        np.testing.assert_array_equal(cifar10_images("train", **options)[0], made[0])


def test_the_pickled_version_is_refused_with_a_way_out(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    for source in (tmp_path, tmp_path / "cifar-10-batches-py"):
        with pytest.raises(InputError, match=r"pickle.*torchvision\.datasets\.CIFAR10\(root, train=False\)"):
            cifar10_images("test", source=source)


def broken_tar(folder, made):
    path = as_tar(folder, *made)
    path.write_bytes(path.read_bytes()[:-5000])
    return path


def other_tar(folder, made):
    with tarfile.open(folder / "other.tar.gz", "w:gz"):
        pass
    return folder / "other.tar.gz"


def short_bin(folder, made):
    (folder / "x.bin").write_bytes(binary(*made)[:-1])
    return folder / "x.bin"


def broken_parquet(folder, made):
    (folder / "train.parquet").write_bytes(b"PAR1 nothing")
    return folder / "train.parquet"


def other_parquet(folder, made):
    pq.write_table(pa.table({"x": [1]}), folder / "train.parquet")
    return folder / "train.parquet"


def no_image(folder, made):
    as_npz(folder, *made)
    np.savez(folder / "x.npz", data=np.zeros(10, np.uint8), off=[0, 10], y=[1])
    return folder / "x.npz"


def cut_npz(folder, made):
    np.savez(folder / "x.npz", data=np.zeros(10, np.uint8), off=[0, 20], y=[1])
    return folder / "x.npz"


def half_npz(folder, made):
    np.savez(folder / "x.npz", data=np.zeros(1000, np.uint8), off=[0, 1000], y=[1])
    (folder / "x.npz").write_bytes((folder / "x.npz").read_bytes()[:700])
    return folder / "x.npz"


def no_labels(folder, made):
    np.savez(folder / "x.npz", data=np.zeros(10, np.uint8), off=[0, 10])
    return folder / "x.npz"


def odd_labels(folder, made):
    np.savez(folder / "x.npz", data=np.zeros(10, np.uint8), off=[0, 10], y=["cat"])
    return folder / "x.npz"


def test_a_source_that_cannot_be_read_says_why(tmp_path, made):
    sources = [
        (half_npz, r"x\.npz' is not a whole \.npz file"),
        (no_labels, r"x\.npz' must hold data, off, y; it lacks y"),
        (odd_labels, "must be vectors of whole numbers"),
        (broken_tar, "not a whole tar|lacks data_batch"),
        (other_tar, "lacks data_batch_1.bin"),
        (short_bin, "not a multiple of 3073"),
        (broken_parquet, "not a whole parquet"),
        (other_parquet, "columns img and label"),
        (no_image, "cannot be read"),
        (cut_npz, "not whole"),
        (lambda folder, made: folder, "no train images in a known form"),
        (lambda folder, made: folder / "none", "does not exist"),
        (lambda folder, made: 3, "is an int"),
        (lambda folder, made: [(np.zeros((3, 32, 32), np.float32), 1)], "Leave out transforms"),
        (lambda folder, made: [(np.zeros((32, 32, 3), np.uint8), 11)], "labels from 0 to 9"),
        (lambda folder, made: [], "0 images"),
    ]
    for k, (make, reason) in enumerate(sources):
        (folder := tmp_path / str(k)).mkdir()
        with pytest.raises(InputError, match=reason):
            cifar10_images("train", source=make(folder, made))


def test_the_test_set_must_be_whole(made):
    with pytest.raises(InputError, match="50 test images"):
        cifar10_images("test", source=list(zip(*made, strict=True)))
    with pytest.raises(InputError, match="`split`"):
        cifar10_images("val")


def test_shuffled_test_images_are_refused():
    class Torchvision:
        data, targets = np.zeros((10_000, 32, 32, 3), np.uint8), np.arange(10_000) % 10

    with pytest.raises(InputError, match="another order"):
        cifar10_images("test", source=Torchvision())


def test_binary_rows_are_planes_of_colour():
    row = np.concatenate([[7], np.full(1024, 1), np.full(1024, 2), np.full(1024, 3)]).astype(np.uint8)
    images, labels = _unpack({"x.bin": row.tobytes()}, ["x.bin"], Path("x.bin"))
    assert labels.tolist() == [7]
    assert images[0, 5, 9].tolist() == [1, 2, 3]


# ---- the real files -------------------------------------------------------------------------------------------


def test_real_votes_and_labels_fit(real):
    found = cifar10h(real)
    assert repr(found) == "CIFAR10H(10000 images, 511000 votes, 47 to 63 per image)"
    np.testing.assert_array_equal(found.counts / found.counts.sum(axis=1, keepdims=True), found.probs)
    assert (found.counts.argmax(axis=1) == found.labels).mean() == pytest.approx(0.9921)
    assert len(found.classes) == 10
    assert np.bincount(found.labels).tolist() == [1000] * 10


def test_labels_from_elsewhere_are_taken_and_checked(real, tmp_path):
    from pathlib import Path

    home = Path(real) / "cifar10h"
    for name in ("cifar10h-counts.npy", "cifar10h-probs.npy"):
        (tmp_path / name).symlink_to(home / name)
    labels = cifar10h(real).labels
    np.testing.assert_array_equal(cifar10h(tmp_path, labels=labels).labels, labels)
    with pytest.raises(InputError, match="another order"):
        cifar10h(tmp_path, labels=labels[::-1])
    for broken in (b"PK", b""):
        (tmp_path / "cifar10_test_jpeg.npz").write_bytes(broken)
        with pytest.raises(InputError, match=r"cifar10_test_jpeg\.npz' is not a whole \.npz file"):
            cifar10h(tmp_path)


def test_real_test_images_are_in_the_standard_order(real):
    images, labels = cifar10_images("test", data=real)
    assert images.shape == (10_000, 32, 32, 3)
    np.testing.assert_array_equal(labels, cifar10h(real).labels)
    turned = np.roll(labels, 1)
    with pytest.raises(InputError, match="another order"):
        cifar10_images("test", source=type("T", (), {"data": images, "targets": turned})())
    assert len(_TEST_ORDER) == 64


def raw_csv(counts, labels, extra=0) -> str:
    """A file in the published form with these tallies, and an attention check for each annotator."""
    out = io.StringIO()
    names = "annotator_id,trial_index,is_attn_check,true_category,chosen_category,true_label,chosen_label"
    writer = csv.writer(out)
    writer.writerow([*names.split(","), "correct_guess", "cifar10_test_test_idx", "image_filename", "reaction_time"])
    at = np.repeat(np.arange(counts.size), counts.ravel())
    at = np.concatenate([at, at[:extra]])
    for k, (image, chosen) in enumerate(zip(*np.divmod(at, 10), strict=True)):
        who, trial = divmod(k, 200)
        true = labels[image]
        right = int(true == chosen)
        names = (CLASSES[true], CLASSES[chosen])
        writer.writerow([who, trial, 0, *names, true, chosen, right, image, f"{image}.png", 1500.0])
        if trial == 0:
            writer.writerow([who, 200, 1, "cat", "cat", 3, 3, 1, -99999, "check.png", 900.0])
    return out.getvalue()


@pytest.fixture(scope="module")
def with_raw(real, tmp_path_factory):
    """A folder with the real counts and a generated raw file that tallies to them."""
    folder = tmp_path_factory.mktemp("cifar10h")
    for name in ("cifar10h-counts.npy", "cifar10h-probs.npy", "cifar10_test_jpeg.npz"):
        (folder / name).symlink_to(real / "cifar10h" / name)
    found = cifar10h(folder)
    text = raw_csv(found.counts, found.labels)
    with zipfile.ZipFile(folder / "cifar10h-raw.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cifar10h-raw.csv", text)
    return folder, text


def test_raw_votes_tally_to_the_counts(with_raw):
    found = cifar10h(with_raw[0])
    table = found.annotations()
    assert table.num_rows == found.counts.sum() == 511_000
    assert {"annotator_id", "chosen_label", "cifar10_test_test_idx", "reaction_time"} <= set(table.column_names)


@pytest.fixture
def other_raw(with_raw, tmp_path):
    """The same folder, for another raw file (a .csv comes before the zip)."""
    for path in with_raw[0].iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path, with_raw[1]


def test_a_few_votes_more_are_a_warning_and_another_file_is_an_error(other_raw):
    folder, text = other_raw
    head, *lines = text.splitlines(keepends=True)
    (folder / "cifar10h-raw.csv").write_text(head + "".join(lines + lines[1:3001]))
    with pytest.warns(UQWarning, match="differ from the 511000"):
        assert cifar10h(folder).annotations().num_rows > 511_000
    (folder / "cifar10h-raw.csv").write_text(head + "".join(lines[: len(lines) // 2]))
    with pytest.raises(InputError, match="does not belong to the counts"):
        cifar10h(folder).annotations()
    (folder / "cifar10h-raw.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="lacks the columns annotator_id"):
        cifar10h(folder).annotations()
    (folder / "cifar10h-raw.csv").unlink()
    (folder / "cifar10h-raw.zip").unlink()
    (folder / "cifar10h-raw.zip").write_bytes(b"PK nothing")
    with pytest.raises(InputError, match="not a whole zip"):
        cifar10h(folder).annotations()


def test_a_changed_counts_file_is_refused(other_raw):
    folder, _ = other_raw
    counts = np.load(folder / "cifar10h-counts.npy")
    (folder / "cifar10h-counts.npy").unlink()
    np.save(folder / "cifar10h-counts.npy", counts[::-1])
    with pytest.raises(InputError, match="not the published file"):
        cifar10h(folder)
