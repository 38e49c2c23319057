"""Which files are meant, of which format, and messages that name them."""

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from uqeval._check import nearest
from uqeval._errors import InputError, reason_of
from uqeval.inputs.columns import listed, repeated

PathLike = str | os.PathLike[str]

# The extension tells the format; .gz may follow where the reader can undo it.
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
_GZIPPED = (".csv", ".tsv", ".jsonl", ".ndjson")


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
    except (InputError, MemoryError):
        raise
    except Exception as error:  # Arrow, zip, zlib, csv and Unicode each have kinds of their own
        raise InputError(
            f"{name}: cannot be read; it may be truncated, corrupt or in another format ({reason_of(error)})."
        ) from None


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
        if not os.path.exists(name) and glob.has_magic(name):
            matches = [match for match in glob.glob(name, recursive=True) if os.path.isfile(match)]
            if not matches:
                raise InputError(f"{name}: no file matches this pattern.")
            found += matches
        else:
            found.append(name)
    found.sort()
    if twice := repeated(found):
        raise InputError(f"{twice[0]}: named twice, so its rows would count twice.")
    for name in found:
        _check_file(name)
    return found


def _check_file(name: str) -> None:
    if os.path.isdir(name):
        raise InputError(f'{name}: is a folder. Name its files, as in "{os.path.join(name, "*.parquet")}".')
    if not os.path.exists(name):
        folder = Path(name).parent
        there = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        raise InputError(f"{name}: there is no such file.{nearest(Path(name).name, there)}")
    if os.path.getsize(name) == 0:
        raise InputError(f"{name}: the file is empty (0 bytes).")


def format_of(name: str) -> str:
    lower = name.lower()
    for extension, kind in _EXTENSIONS.items():
        if lower.endswith(extension) or (extension in _GZIPPED and lower.endswith(extension + ".gz")):
            return kind
    raise InputError(
        f"{name}: the extension {Path(name).suffix or '(none)'} is not known. "
        f"Supported are {', '.join(_EXTENSIONS)}, and .gz after {', '.join(_GZIPPED)}."
    )


def same_columns(first: str, there: Sequence[str], name: str, here: Sequence[str]) -> None:
    if set(there) != set(here):
        lacking, extra = sorted(set(there) - set(here)), sorted(set(here) - set(there))
        differences = [f"lacks {listed(lacking)}"] * bool(lacking) + [f"also has {listed(extra)}"] * bool(extra)
        raise InputError(f"{name}: {' and '.join(differences)}, unlike {first}. Files are joined by column.")
