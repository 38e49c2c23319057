"""CIFAR-10 images and labels, from whatever form the user has them in; never from a pickle."""

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Int, check_choice
from uqeval._errors import InputError, MissingExtra, a_type
from uqeval.datasets.fetch import Source, fetch, lookup, published
from uqeval.datasets.reading import arrays_of, lacking, table_of

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
Images = NDArray[np.uint8]

_BATCHES = {"test": ["test_batch.bin"], "train": [f"data_batch_{k}.bin" for k in range(1, 6)]}
_ROW = 1 + 3 * 32 * 32  # a label, then the red, green and blue planes
# Of the 10,000 test labels as uint8, in the order of the original files.
_TEST_ORDER = "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"
_FORMS = (
    "the binary version (cifar-10-binary.tar.gz, or its .bin files), Hugging Face parquet files of uoft-cs/cifar10, a "
    "folder with an image folder for each class, an .npz of JPEGs (data, off, y), or a loaded torchvision or Hugging "
    "Face dataset"
)


def cifar10_images(split: str = "test", *, source: Any = None, data: Source | None = None) -> tuple[Images, Int]:
    """CIFAR-10 images, (n, 32, 32, 3) uint8, and their labels.

    Parameters
    ----------
    split : {"test", "train"}
        The test images come in the standard order, that of CIFAR10-H; any other order is an error.
    source : path or dataset, optional
        A file or folder: the binary version (`cifar-10-binary.tar.gz`, or the folder of its `.bin` files), Hugging
        Face parquet files of uoft-cs/cifar10 (`img.bytes`, `label`), a folder with one image folder for each class,
        an `.npz` of JPEGs (`data`, `off`, `y`). Or a loaded dataset: torchvision's `CIFAR10`, a Hugging Face
        dataset, any sequence of (image, label) pairs. torchvision's own files are pickles and are not read: pass the
        loaded object. By default what is in the data folder, else the binary version (170 MB), downloaded once.
    data : path, optional
        The data folder; by default that of the environment variable UQEVAL_DATA.

    Examples
    --------
    >>> pairs = [(np.full((32, 32, 3), 10 * k, dtype=np.uint8), k) for k in range(10)]
    >>> images, labels = cifar10_images("train", source=pairs)
    >>> images.shape, labels.tolist()
    ((10, 32, 32, 3), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    check_choice("split", split, tuple(_BATCHES))
    if source is None:
        images, labels = _default(split, data)
    elif isinstance(source, str | Path) or hasattr(source, "__fspath__"):
        images, labels = _from_path(Path(source).expanduser(), split)
    else:
        images, labels = _from_object(source)
    return _checked(images, labels, split)


def cifar10_test_labels(data: Source | None = None, labels: ArrayLike | None = None) -> Int:
    """The labels of the test set, without decoding an image where that can be; those given, checked."""
    if labels is not None:
        return _standard(np.asarray(labels, dtype=np.int64))
    packed = lookup("cifar10h/cifar10_test_jpeg.npz", data)
    if packed is None:
        return cifar10_images("test", data=data)[1]
    (found,) = arrays_of(packed, "y")
    return _standard(_whole(found, packed))


def _checked(images: Images, labels: Int, split: str) -> tuple[Images, Int]:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3):
        raise InputError(f"`source` must give 32×32 RGB images of uint8; it gives {images.shape} of {images.dtype}.")
    if len(images) != len(labels) or not len(labels):
        raise InputError(f"`source` gives {len(images)} images and {len(labels)} labels.")
    if labels.min() < 0 or labels.max() > 9:
        raise InputError(f"`source` must give labels from 0 to 9; they go from {labels.min()} to {labels.max()}.")
    return images, _standard(labels) if split == "test" else labels


def _standard(labels: Int) -> Int:
    if len(labels) != 10_000:
        raise InputError(f"`source` gives {len(labels)} test images; the CIFAR-10 test set has 10000.")
    if hashlib.sha256(labels.astype(np.uint8).tobytes()).hexdigest() != _TEST_ORDER:
        raise InputError(
            "`source` gives the test images in another order than the original files: the labels differ, so the "
            f"human votes would go to the wrong images. Use {_FORMS}, unshuffled."
        )
    return labels


def _default(split: str, data: Source | None) -> tuple[Images, Int]:
    if packed := lookup(f"cifar10h/cifar10_{split}_jpeg.npz", data):
        return _from_npz(packed)
    if bins := lookup("cifar10h/cifar-10-batches-bin", data):
        return _from_bins(bins, split)
    return _from_tar(fetch(published("cifar10h/cifar-10-binary.tar.gz"), data), split)


def _from_path(path: Path, split: str) -> tuple[Images, Int]:
    if not path.exists():
        raise InputError(f"`source` {str(path)!r} does not exist.")
    if path.is_dir():
        return _from_folder(path, split)
    if path.name.endswith((".tar.gz", ".tgz", ".tar")):
        return _from_tar(path, split)
    readers: dict[str, Callable[[Path], tuple[Images, Int]]] = {
        ".npz": _from_npz,
        ".bin": lambda file: _unpack({file.name: file.read_bytes()}, [file.name], file),
        ".parquet": lambda file: _from_parquet([file]),
    }
    if path.suffix not in readers:
        raise InputError(f"`source` {str(path)!r} has no form that can be read. Give {_FORMS}.")
    return readers[path.suffix](path)


def _from_folder(folder: Path, split: str) -> tuple[Images, Int]:
    if (folder / f"cifar10_{split}_jpeg.npz").exists():
        return _from_npz(folder / f"cifar10_{split}_jpeg.npz")
    for bins in (folder, folder / "cifar-10-batches-bin"):
        if (bins / _BATCHES[split][0]).exists():
            return _from_bins(bins, split)
    if (folder / "cifar-10-binary.tar.gz").exists():
        return _from_tar(folder / "cifar-10-binary.tar.gz", split)
    tables = sorted(path for path in folder.rglob("*.parquet") if path.name.startswith(split))
    if tables:
        return _from_parquet(tables)
    for parent in (folder / split, folder):
        if all((parent / name).is_dir() for name in CLASSES):
            return _from_class_folders(parent)
    if folder.name == "cifar-10-batches-py" or (folder / "cifar-10-batches-py").exists():
        raise InputError(
            f"`source` {str(folder)!r} holds the Python version of CIFAR-10, which is pickles; a pickle can run any "
            f"code and is not read. Pass the loaded object, torchvision.datasets.CIFAR10(root, train={split == 'train'}"
            "), or the binary version, cifar-10-binary.tar.gz."
        )
    raise InputError(f"`source` {str(folder)!r} has no {split} images in a known form. Give {_FORMS}.")


def _from_npz(path: Path) -> tuple[Images, Int]:
    data, ends, labels = arrays_of(path, "data", "off", "y")
    ends, labels = _whole(ends, path), _whole(labels, path)
    if data.ndim != 1 or len(ends) != len(labels) + 1 or ends[-1] != len(data):
        raise InputError(f"{str(path)!r} is not whole: `off` does not fit `data` and `y`.")
    parts = (data[ends[k] : ends[k + 1]].tobytes() for k in range(len(labels)))
    return _stack(parts, len(labels)), labels


def _whole(values: NDArray[Any], path: Path) -> Int:
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InputError(
            f"{str(path)!r}: `y` and `off` must be vectors of whole numbers; one is {values.dtype} of {values.shape}."
        )
    return values.astype(np.int64)


def _from_bins(folder: Path, split: str) -> tuple[Images, Int]:
    return _unpack({path.name: path.read_bytes() for path in folder.glob("*.bin")}, _BATCHES[split], folder)


def _from_tar(path: Path, split: str) -> tuple[Images, Int]:
    wanted: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as tar:  # read in memory: nothing is extracted to disk
            for member in tar:
                name = Path(member.name).name
                if name in _BATCHES[split] and member.isfile():
                    stream = tar.extractfile(member)
                    wanted[name] = stream.read() if stream is not None else b""
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(f"{str(path)!r} is not a whole tar file: {error}") from None
    return _unpack(wanted, _BATCHES[split], path)


def _unpack(batches: Mapping[str, bytes], names: Sequence[str], where: Path) -> tuple[Images, Int]:
    if missing := lacking(names, batches):
        raise InputError(f"{str(where)!r} lacks {missing} of the binary version (cifar-10-binary.tar.gz).")
    raw = np.frombuffer(b"".join(batches[name] for name in names), dtype=np.uint8)
    if not len(raw) or len(raw) % _ROW:
        raise InputError(f"{str(where)!r} is not whole: {len(raw)} bytes are not a multiple of {_ROW}.")
    rows = raw.reshape(-1, _ROW)
    images = np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return images, rows[:, 0].astype(np.int64)


def _from_parquet(paths: list[Path]) -> tuple[Images, Int]:
    images: list[bytes] = []
    labels: list[int] = []
    for path in paths:
        table = table_of(path, "parquet", ())
        column = next((name for name in ("img", "image") if name in table.column_names), None)
        if column is None or "label" not in table.column_names:
            raise InputError(f"{str(path)!r} must have the columns img and label; it has {table.column_names}.")
        images += [row["bytes"] for row in table[column].to_pylist()]
        labels += table["label"].to_pylist()
    return _stack(images, len(images)), np.asarray(labels, dtype=np.int64)


def _from_class_folders(parent: Path) -> tuple[Images, Int]:
    """Files in the order of the number in their name (else of the name): the index in the original file."""
    files = [(path, k) for k, name in enumerate(CLASSES) for path in (parent / name).iterdir() if path.is_file()]
    numbers = [re.findall(r"\d+", path.stem)[:1] for path, _ in files]
    if all(numbers) and len({int(found[0]) for found in numbers}) == len(files):
        files = [files[k] for k in np.argsort([int(found[0]) for found in numbers])]
    else:
        files.sort(key=lambda pair: pair[0].name)
    return _stack((path.read_bytes() for path, _ in files), len(files)), np.array([k for _, k in files], dtype=np.int64)


def _from_object(source: Any) -> tuple[Images, Int]:
    if hasattr(source, "targets") and isinstance(getattr(source, "data", None), np.ndarray):  # torchvision
        return source.data, np.asarray(source.targets, dtype=np.int64)
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise InputError(f"`source` is {a_type(source)}; give {_FORMS}.")
    labels = np.empty(len(source), dtype=np.int64)

    def images() -> Iterator[Any]:
        for k in range(len(source)):
            row = source[k]
            image, label = (row.get("img", row.get("image")), row.get("label")) if isinstance(row, Mapping) else row
            if label is None:
                raise InputError(f"`source` must give a label with each image; row {k} has none.")
            labels[k] = label
            yield image["bytes"] if isinstance(image, Mapping) else image  # of Hugging Face, and not decoded

    return _stack(images(), len(source)), labels


def _stack(parts: Iterable[Any], n: int) -> Images:
    """Images as they are, or as the bytes of their files."""
    images = np.empty((n, 32, 32, 3), dtype=np.uint8)
    for k, part in enumerate(parts):
        pixels = _decode(part) if isinstance(part, bytes) else np.asarray(part)
        if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3):
            raise InputError(
                f"`source` must give 32×32 RGB images of uint8; image {k} is {pixels.shape} of {pixels.dtype}. "
                "Leave out transforms."
            )
        images[k] = pixels
    return images


def _decode(part: bytes) -> Images:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtra("Reading images", "pillow", "reproduce") from None
    try:
        with Image.open(io.BytesIO(part)) as image:
            return np.asarray(image.convert("RGB"), dtype=np.uint8)
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"`source` holds an image that cannot be read: {error}") from None
