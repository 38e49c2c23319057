"""Writes predictions of models into a folder of logits, one file per model, with a manifest beside it.

A model is `NAME.npy`, opened memory-mapped, with `NAME.json` that says what it holds and how it was made. `folder`
finds them again, `file` opens them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Int
from uqeval._errors import InputError, MissingExtra, UQWarning, notify
from uqeval._files import whole_file, write_whole
from uqeval._result import to_json
from uqeval.reproduce.logits import file as files
from uqeval.reproduce.logits.families import family_of
from uqeval.reproduce.logits.file import KINDS
from uqeval.reproduce.logits.manifest import ROWS, check_rows

_LONGEST = 200  # bytes of a file's name, with room for what comes after it


def file_name(name: str) -> str:
    """What a model's files are called: its name, with what no file may be called replaced.

    Examples
    --------
    >>> file_name("facebook/bart-large-mnli")
    'facebook--bart-large-mnli'
    """
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"`name` must be a model's name; it is {name!r}.")
    clean = re.sub(r"[^\w.+=-]", "_", name.replace("/", "--"))
    clean = clean if clean[0] != "." else "_" + clean
    if len(clean.encode()) > _LONGEST:
        raise InputError(
            f"`name` is too long for a file: {len(clean.encode())} bytes, at most {_LONGEST}: {name[:40]}…"
        )
    return clean


class About(TypedDict, total=False):
    """What may be said of a model: see `save_logits`."""

    family: str | None
    kind: str | None
    key: str | None
    rows: ArrayLike | None


def save_logits(
    folder: str | Path, name: str, logits: ArrayLike, *, labels: ArrayLike, source: str, **about: Unpack[About]
) -> Path:
    """Writes a model's logits and their manifest, each whole or not at all.

    Parameters
    ----------
    folder : path
        Made where it is missing.
    name : str
        The model's name.
    logits : array-like of shape (n, K) or (m, n, K)
        Finite; m members or stochastic passes. Kept in their type if it is float16, float32 or float64.
    labels : array-like of shape (N,)
        The reference labels of all rows, not only of those in `rows`.
    source : str
        How the logits were made.
    family, kind : str, optional
        By default from the name, and "single" or "members" from the shape; "passes" has to be said.
    key : str, optional
        Hash of the configuration, for `finished`.
    rows : array-like of shape (n,), optional
        Which of the N rows the model covers; all by default.

    Returns
    -------
    Path
        The `.npy` file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_logits(folder, "mine", [[2.0, 1.0], [0.0, 3.0]], labels=[0, 1], source="by hand").name
    'mine.npy'
    """
    array = np.asarray(logits)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    with LogitsWriter(folder, name, array.shape, array.dtype, labels=labels, source=source, **about) as out:
        out[...] = array
    return out.path


class LogitsWriter:
    """Logits written piece by piece into a memory-mapped file that appears, with its manifest, when all are there.

    Arguments as for `save_logits`, with the shape and type of the whole. An error inside the block leaves nothing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with LogitsWriter(folder, "mine", (4, 2), np.float16, labels=[0, 1, 1, 0], source="by hand") as out:
    ...         out[:2] = [[2, 1], [0, 3]]
    ...         out[2:] = [[1, 2], [5, 3]]
    ...     out.accuracy
    1.0
    """

    def __init__(
        self,
        folder: str | Path,
        name: str,
        shape: tuple[int, ...],
        dtype: Any = np.float32,
        *,
        labels: ArrayLike,
        source: str,
        **about: Unpack[About],
    ) -> None:
        self.shape = tuple(int(size) for size in shape)
        self.dtype = np.dtype(dtype)
        self.accuracy: float | None = None
        if len(self.shape) not in (2, 3) or min(self.shape) < 1 or self.shape[-1] < 2:
            raise InputError(f"`shape` is {shape}. Logits are (n, K) or (m, n, K) with K ≥ 2 classes.")
        if self.dtype.kind != "f":
            raise InputError(f"`dtype` is {self.dtype}. Logits are float16, float32 or float64.")
        rows, kind = about.get("rows"), about.get("kind") or ("single" if len(self.shape) == 2 else "members")
        if kind not in KINDS or (kind == "single") != (len(self.shape) == 2):
            raise InputError(f"`kind` is {kind!r} for logits of shape {self.shape}. Use one of {', '.join(KINDS)}.")
        self._reference = np.asarray(labels, dtype=np.int64)
        self._rows = None if rows is None else _row_numbers(name, rows, len(self._reference))
        self._labels = self._reference if self._rows is None else self._reference[self._rows]
        if self._labels.shape != self.shape[-2:-1]:
            raise InputError(
                f"{name}: the logits have {self.shape[-2]} rows but there are {len(self._labels)} labels. "
                f"Pass the labels of all reference rows, and `rows` where the model covers some of them."
            )
        stem = file_name(name)
        if stem.lower() == "labels" or f"{stem}.npy".lower().endswith(ROWS):
            raise InputError(f"`name` is {name!r}, which is kept for other files of the folder. Rename the model.")
        self.path = Path(folder) / f"{stem}.npy"
        family = about.get("family") or family_of(name)
        self._about = {"model": name, "family": family, "kind": kind, "source": source, "key": about.get("key")}

    def __enter__(self) -> LogitsWriter:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        about = files.read_manifest(self.path)
        if about is not None and about.get("model") != self._about["model"]:
            raise InputError(
                f"{self.path}: holds the model {about.get('model')!r}, so {self._about['model']!r} cannot be written "
                f"there. Rename one of them."
            )
        self._whole = ExitStack()
        self._part = self._whole.enter_context(whole_file(self.path))
        self._array: Any = np.lib.format.open_memmap(self._part, mode="w+", dtype=self.dtype, shape=self.shape)
        self._written = np.zeros(self.shape[:-1], dtype=bool)
        return self

    def __setitem__(self, place: Any, values: ArrayLike) -> None:
        self._array[place] = values
        self._written[place] = True

    def __exit__(self, kind: object, *_: object) -> None:
        if self._array is not None:
            self.close(keep=kind is None)

    def close(self, *, keep: bool = True) -> None:
        """Ends before the block does: writes the files, or with `keep=False` leaves nothing."""
        try:
            about = self._finish() if keep else None
            self._array = None
            if about is not None:
                self._whole.close()
                # Last: after a kill in between, an old manifest has other hashes than the new files: not finished.
                write_whole(self.path.with_suffix(".json"), to_json(about) + "\n")
        finally:
            self._array = None
            self._whole.__exit__(InputError, InputError(), None)  # what was not finished leaves nothing

    def _finish(self) -> dict[str, Any]:
        """Checks what was written; what the manifest says."""
        name = str(self._about["model"])
        if not self._written.all():
            first = np.argwhere(~self._written)[0][-1]
            raise InputError(f"{name}: {int((~self._written).sum())} rows were not written (first row {first}).")
        files.reject_not_finite(name, self._array)
        right = [
            (files.mean_probs(self._array[..., part, :]).argmax(axis=1) == self._labels[part]).sum()
            for part in files.pieces(self.shape)
        ]
        self.accuracy = int(sum(right)) / self.shape[-2]
        self._array.flush()
        rows = None if self._rows is None else self.path.with_name(self.path.stem + ROWS)
        return self._about | {
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "sha256": files.hash_file(self._part),
            "accuracy": self.accuracy,
            "labels_sha256": files.hash_labels(self._reference),
            "rows": None if rows is None else rows.name,
            "rows_sha256": None if rows is None or self._rows is None else files.save_array(rows, self._rows),
        }


def finished(folder: str | Path, name: str, key: str | None) -> bool:
    """Whether the whole, unchanged logits of this configuration are there."""
    path = Path(folder) / f"{file_name(name)}.npy"
    try:
        about = files.read_manifest(path)
    except InputError:
        return False
    if about is None or not path.is_file() or about.get("key") != key or about.get("model") != name:
        return False
    if about.get("rows") is not None:
        beside = path.with_name(path.stem + ROWS)
        if about["rows"] != beside.name or not beside.is_file() or about.get("rows_sha256") != files.hash_file(beside):
            return False
    return bool(about.get("sha256") == files.hash_file(path))


def _row_numbers(name: str, rows: ArrayLike, n: int) -> Int:
    found = np.asarray(rows)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise InputError(f"{name}: `rows` must be whole numbers in a vector; it is {found.dtype} of {found.shape}.")
    check_rows(f"{name}: `rows`", found.astype(np.int64), n)
    return found.astype(np.int64)


class Making:
    """Models that are made into a folder: what is there whole stays; what fails is an error, or a line in a list.

    Without `keep_going` the first error is raised. With it, a failure is added to the list that the caller gave, as
    "model", "file" and "reason"; without a list it is a warning, and an error if nothing is left.
    """

    def __init__(
        self, folder: str | Path, keep_going: bool = False, failures: list[dict[str, str]] | None = None
    ) -> None:
        self.folder, self.keep_going, self.failures = Path(folder), keep_going, failures
        self.there: set[str] = set()
        self._reasons: list[str] = []

    def open(self, name: str, key: str | None) -> bool:
        """Whether the model is still to be made."""
        if key is not None and finished(self.folder, name, key):
            self.there.add(name)
        return name not in self.there

    def save(self, name: str, logits: ArrayLike, **about: Any) -> None:
        """Writes a model that was made, as `save_logits` does."""
        save_logits(self.folder, name, logits, **about)
        self.there.add(name)

    def leave(self, name: str, error: Exception) -> None:
        """The model of this name cannot be used."""
        if not self.keep_going:
            raise error
        reason = str(error) if name in str(error) else f"{name}: {error}"
        self._reasons.append(reason)
        if self.failures is None:
            notify(f"A model was left out. {reason}", UQWarning, stacklevel=4)
        else:
            self.failures.append({"model": name, "file": name, "reason": reason})

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """An error inside the block leaves the model of this name out; RuntimeError is what torch raises."""
        try:
            yield
        except (InputError, MissingExtra, RuntimeError) as error:
            self.leave(name, error)

    def done(self, names: Iterable[str]) -> list[str]:
        """Those that are there; an error where none is and nobody has the list of failures."""
        if not self.there and self._reasons and self.failures is None:
            raise InputError("No model could be used. " + " ".join(self._reasons))
        return [name for name in names if name in self.there]


def check_once(what: str, names: Sequence[str], advice: str = "Name each model once.") -> None:
    """An error where a name comes more than once."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"`{what}` has {', '.join(twice)} more than once. {advice}")
