"""One model's logits on disk: opened memory-mapped, hashed, walked through piece by piece.

Every error names its file. Arrays inside archives that are not compressed are memory-mapped too; no pickle is loaded.
"""

import hashlib
import json
import math
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Int
from uqeval._errors import InputError, a_type
from uqeval._files import whole_file
from uqeval.inputs.softmax import softmax

KINDS = ("single", "members", "passes")
_STEP = 1 << 21  # values per step where whole files are walked through


@dataclass(frozen=True)
class Prediction:
    """One model's logits on disk and what is known of them."""

    name: str
    family: str
    kind: str  # "single", "members" or "passes"
    path: Path
    member: str | None  # the array inside an .npz
    shape: tuple[int, ...]
    dtype: str
    source: str = ""
    accuracy: float | None = None  # as stated beside the file
    sha256: str | None = None
    labels_sha256: str | None = None
    key: str | None = None
    rows: Path | None = None
    rows_sha256: str | None = None

    @property
    def where(self) -> str:
        """The file, for messages."""
        return str(self.path) if self.member is None else f"{self.path} [{self.member}]"

    def open(self) -> NDArray[Any]:
        """The (n, K) or (m, n, K) logits, memory-mapped unless the archive is compressed."""
        return open_array(self.path, self.member)

    def digest(self) -> str:
        """The SHA-256 of the file, or of the array inside an archive."""
        if self.member is None:
            with reading(self.where):
                return hash_file(self.path)
        found = hashlib.sha256()
        with reading(self.where), zipfile.ZipFile(self.path) as archive, archive.open(f"{self.member}.npy") as file:
            while piece := file.read(1 << 20):  # to the end, so that the archive's own checksum is compared
                found.update(piece)
        return found.hexdigest()

    def covered(self) -> Int | None:
        """Indices of the reference rows that the model covers; None for all of them."""
        if self.rows is None:
            return None
        found = open_array(self.rows)
        if found.dtype.kind not in "iu" or found.ndim != 1:
            raise InputError(
                f"{self.rows}: row numbers must be whole numbers in a vector; it holds {found.dtype.name} of shape "
                f"{found.shape}."
            )
        return np.array(found, dtype=np.int64)

    def rows_digest(self) -> str | None:
        """The SHA-256 of the file of rows."""
        if self.rows is None:
            return None
        with reading(str(self.rows)):
            return hash_file(self.rows)


def hash_labels(labels: ArrayLike) -> str:
    """A hash of the reference labels, in their order."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()


def save_array(path: Path, array: NDArray[Any]) -> str:
    """Writes a `.npy` whole or not at all; returns its hash."""
    with whole_file(path) as part:
        with open(part, "wb") as file:
            np.save(file, array, allow_pickle=False)
        return hash_file(part)


def hash_file(path: str | Path) -> str:
    """The SHA-256 of a file, read piece by piece."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mean_probs(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Softmax in float64, averaged over members: (n, K) from (n, K) or (m, n, K)."""
    return mean_of(softmax(logits.astype(np.float64)))


def mean_of(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, K) from (n, K) or (m, n, K)."""
    if probs.ndim == 2:
        return probs
    total: NDArray[np.float64] = probs[0].copy()
    for member in probs[1:]:  # one by one: the same bits for every size of a piece
        total += member
    return total / len(probs)


def pieces(shape: tuple[int, ...], values: int = _STEP) -> list[slice]:
    """Slices of rows so that a piece of all members has about so many values."""
    n = shape[-2]
    step = max(1, values * n // max(1, math.prod(shape)))
    return [slice(start, min(n, start + step)) for start in range(0, n, step)]


def reject_not_finite(name: str, logits: NDArray[Any]) -> None:
    """An error that counts the rows with NaN or infinity and names the first."""
    count, first = 0, -1
    for part in pieces(logits.shape):
        bad = ~np.isfinite(logits[..., part, :]).all(axis=-1)
        rows = bad if bad.ndim == 1 else bad.any(axis=0)
        if rows.any():
            first = part.start + int(rows.argmax()) if first < 0 else first
            count += int(rows.sum())
    if count:
        raise InputError(
            f"{name}: NaN or infinite logits in {count} row{'s' * (count > 1)} (first at row {first}). Mend the model "
            f"or leave it out. In float16 a value beyond 65504 becomes infinite."
        )


def read_manifest(path: Path) -> dict[str, Any] | None:
    """What `NAME.json` beside `NAME.npy` says; None where there is none."""
    beside = path.with_name(f"{path.name.removesuffix('.npy')}.json")
    return read_json(beside) if beside.is_file() else None


def open_array(path: Path, member: str | None = None) -> NDArray[Any]:
    """An array, memory-mapped where it can be."""
    where = str(path) if member is None else f"{path} [{member}]"
    with reading(where):
        if member is None:
            with open(path, "rb") as file:
                shape, fortran, dtype = _header(file)
                offset, size = file.tell(), path.stat().st_size
        else:
            with zipfile.ZipFile(path) as archive:
                info = archive.getinfo(f"{member}.npy")
                if info.compress_type != zipfile.ZIP_STORED:
                    with archive.open(info) as file:
                        shape, _, dtype = _header(file)
                        # Before anything is allocated: a header may ask for more than there is memory.
                        _check_size(where, info.file_size, file.tell() + math.prod(shape) * dtype.itemsize)
                    with archive.open(info) as file:
                        return np.lib.format.read_array(file, allow_pickle=False)
            with open(path, "rb") as file:
                file.seek(info.header_offset)
                lengths = struct.unpack("<HH", file.read(30)[26:])  # the local header's own name and extra field
                start = info.header_offset + 30 + sum(lengths)
                file.seek(start)
                shape, fortran, dtype = _header(file)
                offset, size = file.tell(), start + info.file_size
        _check_size(where, size, offset + math.prod(shape) * dtype.itemsize)
        return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


def _check_size(where: str, size: int, needed: int) -> None:
    if size != needed:
        raise InputError(
            f"{where}: truncated or corrupt: {size:,} bytes where its header asks for {needed:,}. Write it again."
        )


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise InputError("it holds pickled Python objects, which are never loaded. Save plain numbers.")
    return shape, fortran, dtype


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turns whatever a reader raises into one line that names the file."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
    except MemoryError:
        raise InputError(f"{where}: does not fit into memory. Save it as .npy, which is read piece by piece.") from None
    except Exception as error:  # zip, zlib, numpy and the system each have kinds of their own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].removesuffix(".")
        raise InputError(f"{where}: cannot be read; truncated, corrupt or no array file ({reason}).") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file of JSON holds."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}). Write it again or delete it.") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: must hold a JSON object; it holds {a_type(found)}. Write it again or delete it.")
    return found
