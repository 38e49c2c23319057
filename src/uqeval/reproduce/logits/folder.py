"""Which models a folder of logits holds, and whether they belong to the reference. Every error names its file."""

import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Int
from uqeval._errors import InputError
from uqeval.reproduce.logits import file as files
from uqeval.reproduce.logits.families import family_of
from uqeval.reproduce.logits.file import Prediction
from uqeval.reproduce.logits.manifest import check_manifest, check_rows

LABELS = "labels.npy"  # a folder of predictions may hold the reference labels too
_ROUNDING = 0.005  # a stated accuracy may be rounded, and from logits that were not: float16 moves a few near-ties


@dataclass
class Scan:
    """What some folders and files hold."""

    predictions: list[Prediction] = field(default_factory=list)
    ignored: list[tuple[str, str]] = field(default_factory=list)  # file, why it is plainly no logits
    failed: list[tuple[str, str]] = field(default_factory=list)  # file, what is wrong with it


def find_predictions(folder: str | Path | Sequence[str | Path]) -> list[Prediction]:
    """The models of a folder, or of several folders and files; an error for the first file that cannot be used.

    Examples
    --------
    >>> import tempfile
    >>> from uqeval.reproduce.logits.writer import save_logits
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_logits(folder, "resnet18", [[2.0, 1.0], [0.0, 3.0]], labels=[0, 1], source="by hand")
    ...     [(found.name, found.family, found.accuracy) for found in find_predictions(folder)]
    [('resnet18', 'ResNet', 1.0)]
    """
    scan = scan_predictions(folder)
    if scan.failed:
        raise InputError(scan.failed[0][1])
    return scan.predictions


def scan_predictions(paths: str | Path | Sequence[str | Path]) -> Scan:
    """Everything in these folders and files: the models, what is no logits, and what is broken.

    Files of a folder that plainly are no logits (whole numbers, vectors, probabilities) are left aside; one that is
    named by itself must hold logits. Of two models of one name the later is broken; a file that is named twice counts
    once.
    """
    asked = [paths] if isinstance(paths, str | Path) else list(paths)
    scan = Scan()
    for item in asked:
        path = Path(item).expanduser()
        if path.is_dir():
            with files.reading(str(path)):
                inside = sorted(entry for entry in path.iterdir() if entry.name[0] != ".")
            before = len(scan.predictions) + len(scan.failed)
            for entry in inside:
                if entry.suffix in (".npy", ".npz", ".json"):
                    _look(entry, scan, named=False)
            if len(scan.predictions) + len(scan.failed) == before:
                raise InputError(_empty(path, scan))
        elif path.suffix in (".npy", ".npz") and path.is_file():
            _look(path, scan, named=True)
        elif path.exists():
            raise InputError(f"{path}: predictions are .npy or .npz files of logits, or folders of them.")
        else:
            raise InputError(f"{path}: there is no such file or folder.")
    seen: dict[str, Prediction] = {}
    for found in scan.predictions:
        first = seen.setdefault(found.name, found)
        if first is not found and (first.path.resolve(), first.member) != (found.path.resolve(), found.member):
            why = f"{found.where}: the model {found.name!r} is also in {first.where}. Rename one of them."
            scan.failed.append((found.where, why))
    scan.predictions = list(seen.values())
    return scan


def _empty(path: Path, scan: Scan) -> str:
    inside = [f"{Path(name).name} {why}" for name, why in scan.ignored if Path(name).parent == path]
    more = f" Left aside: {'; '.join(inside)}." if inside else ""
    return f"{path}: the folder holds no logits (.npy or .npz files).{more}"


def _look(path: Path, scan: Scan, *, named: bool) -> None:
    try:
        if path.is_symlink() and not path.exists():
            raise InputError(f"{path}: a link to a file that is not there. Mend it or delete it.")
        if not path.is_file():
            scan.ignored.append((str(path), "is a folder"))
        elif path.suffix == ".json":
            _look_json(path)
        elif path.suffix == ".npz":
            _look_npz(path, scan, named)
        elif not path.name.endswith(".rows.npy") and path.name != LABELS:
            _look_npy(path, scan, named)
    except InputError as error:
        scan.failed.append((str(path), str(error)))


def _look_json(path: Path) -> None:
    """A manifest without its logits; one that is beside them is read with them."""
    stem = path.name.removesuffix(".json")
    logits = [f"{stem}.npy", f"{stem}.npz", f"{stem.removesuffix('_models')}_logits.npz"]
    if any(path.with_name(name).is_file() for name in logits):
        return
    about = files.read_json(path)
    if {"model", "sha256", "shape"} <= set(about):
        raise InputError(f"{path}: the logits {stem}.npy that it describes are not there.")


def _look_npy(path: Path, scan: Scan, named: bool) -> None:
    about = files.read_manifest(path) or {}
    array = files.open_array(path)
    why = _no_logits(array, stated="model" in about)
    if why and "model" not in about:
        _leave(str(path), why, scan, named)
        return
    if why:
        raise InputError(f"{path}: {why}, though its manifest says that it is a model.")
    check_manifest(str(path), about, array.shape)
    rows = about.get("rows")
    beside = None if rows is None else path.with_name(rows)
    if beside is not None and not beside.is_file():
        raise InputError(f"{path}: {beside.name}, which tells the rows that it covers, is not there.")
    scan.predictions.append(_made(about.get("model", path.stem), path, None, array, about, beside))


def _look_npz(path: Path, scan: Scan, named: bool) -> None:
    with files.reading(str(path)), zipfile.ZipFile(path) as archive:
        members = [name.removesuffix(".npy") for name in archive.namelist()]
    abouts: dict[str, Any] = {}
    for beside in (path.with_suffix(".json"), path.with_name(path.stem.removesuffix("_logits") + "_models.json")):
        if beside.is_file():
            abouts = files.read_json(beside)
    aside = []
    for member in members:
        where, about = f"{path} [{member}]", abouts.get(member, {})
        try:
            array = files.open_array(path, member)
            if why := _no_logits(array):
                aside.append((where, why))
                continue
            check_manifest(where, about, array.shape, alone=False)
            scan.predictions.append(_made(member, path, member, array, about, None))
        except InputError as error:
            scan.failed.append((where, str(error)))
    if len(aside) == len(members):
        why = aside[0][1] if aside else "is an empty archive"
        _leave(str(path), why, scan, named)
    else:
        scan.ignored += aside


def _leave(where: str, why: str, scan: Scan, named: bool) -> None:
    if named:
        raise InputError(f"{where}: {why}. Pass logits: floats of shape (n, K), or (m, n, K) for members.")
    scan.ignored.append((where, why))


def _no_logits(array: NDArray[Any], stated: bool = False) -> str:
    """Why an array plainly is no logits; nothing where it may be. One with a manifest may look like probabilities."""
    if array.dtype.kind != "f":
        return f"holds {array.dtype.name} numbers, not logits"
    if array.ndim not in (2, 3) or array.shape[-1] < 2 or not array.size:
        return f"has shape {array.shape}, not (n, K) or (m, n, K)"
    if stated:
        return ""
    first = array[..., : max(1, (1 << 16) // array.shape[-1]), :].astype(np.float64)
    if (first >= 0).all() and np.abs(first.sum(axis=-1) - 1).max() < 1e-2:
        return "holds probabilities, not logits (their logarithms would do)"
    return ""


def _made(
    name: str, path: Path, member: str | None, array: NDArray[Any], about: dict[str, Any], rows: Path | None
) -> Prediction:
    several = "passes" if "dropout" in f"{path.stem}/{name}".lower() else "members"
    accuracy = about.get("accuracy")
    return Prediction(
        name,
        about.get("family") or family_of(name),
        about.get("kind") or ("single" if array.ndim == 2 else several),
        path,
        member,
        tuple(array.shape),
        array.dtype.name,
        about.get("source") or "",
        None if accuracy is None else float(accuracy),
        rows=rows,
        **{key: about.get(key) for key in ("sha256", "labels_sha256", "key", "rows_sha256")},
    )


# ---- can it be trusted? --------------------------------------------------------------------------------------------


def check_prediction(prediction: Prediction, labels: ArrayLike, classes: int, *, allow_chance: bool = False) -> None:
    """An error that names file and reason where the logits do not belong to these rows and classes.

    Parameters
    ----------
    prediction : Prediction
        From `find_predictions`.
    labels : array-like of shape (N,)
        The reference labels.
    classes : int
        How many classes there are.
    allow_chance : bool
        Take a model without a stated accuracy that is right no more often than shuffled rows would be.

    Examples
    --------
    >>> import tempfile
    >>> from uqeval.reproduce.logits.writer import save_logits
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_logits(folder, "mine", [[2.0, 1.0], [0.0, 3.0]], labels=[0, 1], source="by hand")
    ...     check_prediction(find_predictions(folder)[0], labels=[0, 1], classes=2)
    """
    reference = np.asarray(labels, dtype=np.int64)
    rows = check_shape(prediction, reference, classes)
    y = reference if rows is None else reference[rows]
    logits = prediction.open()
    files.reject_not_finite(prediction.where, logits)
    found = [files.mean_probs(logits[..., part, :]).argmax(axis=1) for part in files.pieces(logits.shape)]
    check_accuracy(prediction, np.concatenate(found), y, classes, allow_chance=allow_chance)


def check_shape(prediction: Prediction, labels: Int, classes: int, digest: str | None = None) -> Int | None:
    """Shape, hash and reference labels; returns the rows that the model covers, None for all."""
    where = prediction.where
    if prediction.shape[-1] != classes:
        raise InputError(f"{where}: {prediction.shape[-1]} classes, but the reference has {classes}.")
    rows = prediction.covered()
    expected = len(labels) if rows is None else len(rows)
    if prediction.shape[-2] != expected:
        of = "the reference has" if rows is None else f"{prediction.rows.name if prediction.rows else ''} names"
        raise InputError(f"{where}: {prediction.shape[-2]:,} rows, but {of} {expected:,}.")
    if rows is not None:
        check_rows(str(prediction.rows), rows, len(labels))
        if prediction.rows_sha256 is not None and prediction.rows_digest() != prediction.rows_sha256:
            raise InputError(f"{prediction.rows}: its hash differs from the one in the manifest: it was changed.")
    if prediction.sha256 is not None and (digest or prediction.digest()) != prediction.sha256:
        raise InputError(f"{where}: its hash differs from the one in its manifest: it was changed or is corrupt.")
    if prediction.labels_sha256 is not None and prediction.labels_sha256 != files.hash_labels(labels):
        raise InputError(
            f"{where}: made with other reference labels, or in another order of rows (labels_sha256 differs). "
            f"Make it again with these data."
        )
    return rows


def check_accuracy(
    prediction: Prediction, predicted: Int, labels: Int, classes: int, *, allow_chance: bool = False
) -> None:
    """Whether the rows are in the order of the reference, as far as the accuracy tells."""
    n = len(labels)
    accuracy = float((predicted == labels).mean())
    # A row without a label has −1 there and counts as wrong, as it does where predictions are written.
    shares = [np.bincount(part[part >= 0], minlength=classes) / n for part in (predicted, labels)]
    chance = float(shares[0] @ shares[1])
    if prediction.accuracy is not None:
        if abs(accuracy - prediction.accuracy) > _ROUNDING + 1e-9:
            raise InputError(
                f"{prediction.where}: accuracy {accuracy:.4f} against the reference labels, but "
                f"{prediction.accuracy:.4f} is stated beside it (chance is {chance:.4f}). Are its rows shuffled, or is "
                f"it another model?"
            )
    elif not allow_chance and accuracy <= chance + 4 * math.sqrt(chance * (1 - chance) / n):
        raise InputError(
            f"{prediction.where}: right on {accuracy:.4f} of the rows, no more than shuffled rows would be "
            f"({chance:.4f}). Its rows seem to be in another order. If the model is that bad, state its accuracy in a "
            f"manifest or allow chance (allow_chance=True, --allow-chance)."
        )
