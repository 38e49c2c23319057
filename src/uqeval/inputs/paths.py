"""Which files are meant, of which format, and messages that name them."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from uqeval._check import nearest
from uqeval._errors import InputError, reason_of
from uqeval._files import identity
from uqeval.inputs.columns import listed
from uqeval.inputs.elsewhere import fetched, is_elsewhere

PathLike = str | os.PathLike[str]

# The extension tells the format; that of a packer may follow where the reader can undo it.
_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npz": "npz",
}
_LOGS = (".jsonl", ".jsonl.gz", ".json", ".eval", ".csv", ".parquet")  # of language models
_TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")
_PACKED = (".gz", ".zst", ".bz2")
_HAVE_LETTERS = tuple(text + packer for text in (".csv", ".tsv") for packer in ("", *_PACKED))  # of any encoding


@contextmanager
def named(name: str) -> Iterator[None]:
    """Put the file's name before every message."""
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(f"{name}:") else f"{name}: {text}") from None


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn whatever a reader raises into one line that names the file."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(
            f"{name}: does not fit into memory, or is corrupt and says that it is larger than it is. "
            f'Tables can be read piece by piece: engine="local".'
        ) from None
    except RecursionError:
        raise InputError(f"{name}: cannot be read; it is nested too deeply.") from None
    except UnicodeEncodeError:
        raise InputError(f"{name}: the file's name is not UTF-8, which Arrow needs. Rename it.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: {_other_format(name) or _other_letters(error.object[error.start])}") from None
    except Exception as error:  # Arrow, zip, zlib, csv and Unicode each have kinds of their own
        if other := _other_format(name):
            raise InputError(f"{name}: {other}") from None
        if name.lower().endswith(_HAVE_LETTERS) and re.search("invalid utf-?8", str(error), re.IGNORECASE):
            raise InputError(f"{name}: {_other_letters(None)}") from None
        if "allow_pickle" in str(error):
            raise InputError(f"{name}: cannot be read; it is no NPZ archive of plain arrays.") from None
        raise InputError(
            f"{name}: cannot be read; it may be truncated, corrupt or in another format ({reason_of(error)})."
        ) from None


def _other_format(name: str) -> str:
    """What a file is, by its first bytes, where its name says something else."""
    try:
        with open(name, "rb") as file:
            start = file.read(8)
    except OSError:
        return ""
    bare = name.lower().rsplit(".", 1)[0] if is_packed(name.lower()) else name.lower()
    found = next(((what, ends) for first, what, ends in _STARTS if start.startswith(first)), None)
    if found is None:
        texts = start.isascii() and start.decode("ascii", "replace").isprintable()
        if not texts or bare.endswith(_TEXTS):
            return ""
        found = ("a text", _TEXTS)
    what, ends = found
    if name.lower().endswith(ends):
        return ""
    return f"cannot be read as what its name says: it begins as {what}. {_RENAME.get(ends, f'Name it {ends[0]}.')}"


# First bytes, what begins so, and the names that it has.
_STARTS: tuple[tuple[bytes, str, tuple[str, ...]], ...] = (
    (b"PAR1", "a Parquet file", (".parquet",)),
    (b"ARROW1", "an Arrow file", (".arrow", ".feather", ".ipc")),
    (b"PK\x03\x04", "a ZIP archive (an Excel sheet, or NPZ)", (".npz", ".eval")),
    (b"\xd0\xcf\x11\xe0", "an old Excel sheet", (".xls",)),
    (b"\x93NUMPY", "a single NumPy array", (".npy",)),
    (b"\x1f\x8b", "a gzip file", (".gz",)),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", (".zst",)),
    (b"BZh", "a bzip2 file", (".bz2",)),
)
# What to do with a file of such a name.
_INSTEAD = dict.fromkeys((".xlsx", ".xls", ".ods"), "Save the sheet as CSV.")
_INSTEAD |= dict.fromkeys((".pkl", ".pickle", ".pt", ".pth"), "Write it as Parquet or NPZ: a pickle can run any code.")
_INSTEAD |= dict.fromkeys((".txt", ".dat", ""), "If it is such a table, rename it.")
_INSTEAD |= {".npy": 'Save the arrays together, by name: numpy.savez("preds.npz", labels=…, probs=…).'}
_RENAME = {
    (".npz", ".eval"): "Save a sheet as CSV; name an archive of arrays .npz.",
    (".xls",): _INSTEAD[".xls"],
    (".npy",): _INSTEAD[".npy"],
    _TEXTS: "Name it .csv, .tsv or .jsonl, whichever it is.",
}


def refuse_bomb(unpacked: float, packed: float) -> None:
    """Refuses what a few bytes say that they become: zeros by the terabyte would fill any memory."""
    try:
        most = float(os.environ.get(_MOST_GB, "")) * 1e9
    except ValueError:
        most = max(_ALWAYS, _AT_MOST * packed)
    if unpacked > most:
        raise InputError(
            f"unpacks to more than {most / 1e9:.3g} GB from {packed / 1e6:.3g} MB, as files do that are made to fill a "
            f"memory. If it is none, say how much it may: set {_MOST_GB}, as {_MOST_GB}=64."
        )


_MOST_GB = "UQEVAL_MAX_UNPACKED_GB"
_ALWAYS, _AT_MOST = 2e9, 100  # bytes, and times as many as are packed: tables of numbers reach about 20


def sound(rows: Any) -> Any:
    """A table or batch of Arrow's that holds what it says it holds.

    A writer may be wrong, or a disk: Arrow would follow the place of a text to anywhere in memory.
    """
    rows.validate(full=True)
    return rows


def _other_letters(byte: int | None) -> str:
    held = "" if byte is None else f" (it holds the byte 0x{byte:02x})"
    usual = '"utf-16"' if byte in (0xFE, 0xFF) else '"latin-1" or "cp1252"'  # those two begin UTF-16
    return f"cannot be read as UTF-8{held}. Say how it is encoded, as encoding={usual} (--encoding)."


def expand(path: PathLike | Sequence[PathLike]) -> list[str]:
    """Existing files, in sorted order."""
    asked = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not asked:
        raise InputError("`path` is an empty list. Pass at least one file.")
    found = []
    for item in asked:
        if not isinstance(item, str | os.PathLike):
            raise InputError(f"`path` holds {item!r}. Pass file names.")
        name = os.path.expanduser(os.fspath(item))
        if is_elsewhere(name):
            found += fetched(name)
        elif not os.path.exists(name) and glob.has_magic(name):
            matches = [match for match in glob.glob(name, recursive=True) if os.path.isfile(match)]
            if not matches:
                raise InputError(f"{name}: no file matches this pattern.")
            found += matches
        else:
            found.append(name)
    found.sort()
    places: dict[object, str] = {}
    for name in found:
        if (other := places.setdefault(identity(name), name)) != name or found.count(name) > 1:
            alias = f" (as {other} too)" if other != name else ""
            raise InputError(f"{name}: named twice{alias}, so its rows would count twice.")
    for name in found:
        _check_file(name)
    return found


def _check_file(name: str) -> None:
    if os.path.isdir(name):
        raise InputError(
            f'{name}: is a folder. Name its files, as in "{os.path.join(name, "*.parquet")}"; logs of LLMs are read '
            f"by uqeval.read_logs."
        )
    if os.path.islink(name) and not os.path.exists(name):
        raise InputError(f"{name}: is a link to {os.readlink(name)}, where there is no file.")
    if not os.path.exists(name):
        there: list[str] = []
        with suppress(OSError, ValueError):  # no folder, or none that we may look into
            there = os.listdir(Path(name).parent)
        raise InputError(f"{name}: there is no such file.{nearest(Path(name).name, there)}")
    if not os.path.isfile(name) and name != os.devnull:
        raise InputError(f"{name}: is no file but a pipe or a device. Save what it gives, or pipe it to `uqeval … -`.")
    if os.path.getsize(name) == 0:
        raise InputError(f"{name}: the file is empty (0 bytes).")


def format_of(name: str) -> str:
    lower = name.lower()
    bare = lower.rsplit(".", 1)[0] if is_packed(lower) else lower
    for extension, kind in _EXTENSIONS.items():
        if bare.endswith(extension) and (bare == lower or extension in _TEXTS):
            return kind
    raise InputError(
        f"{name}: the extension {Path(name).suffix or '(none)'} is not known. "
        f"Supported are {', '.join(_EXTENSIONS)}, and {', '.join(_PACKED)} after {', '.join(_TEXTS)}. "
        f"{_INSTEAD.get(Path(name).suffix.lower(), 'Write it as one of them.')}"
    )


def may_be_log(name: str) -> bool:
    """Whether a file can be a log of a language model, by its name."""
    return name.lower().endswith(_LOGS) or Path(name).name.startswith("ue_manager")


def is_known(name: str) -> bool:
    """Whether the extension is that of a file that can be read."""
    try:
        return bool(format_of(name))
    except InputError:
        return False


def is_packed(name: str) -> bool:
    """Whether the file is compressed as a whole."""
    return name.lower().endswith(_PACKED)


def same_columns(first: str, there: Sequence[str], name: str, here: Sequence[str]) -> None:
    if set(there) != set(here):
        lacking, extra = sorted(set(there) - set(here)), sorted(set(here) - set(there))
        differences = [f"lacks {listed(lacking)}"] * bool(lacking) + [f"also has {listed(extra)}"] * bool(extra)
        raise InputError(f"{name}: {' and '.join(differences)}, unlike {first}. Files are joined by column.")
