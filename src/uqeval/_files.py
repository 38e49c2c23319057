"""Files that are written whole or not at all, and the error where one cannot be written."""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from uqeval._errors import InputError


def check_target(path: str | os.PathLike[str], name: str = "`path`") -> Path:
    """The file to write, checked before the work is done; `name` is what the user calls it."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise InputError(f'{name} must be a file name, as "report.html"; it is {path!r}.')
    target = Path(path)
    if target.is_dir():
        raise InputError(
            f"{name} is the folder {str(target)!r}. Pass a file name in it, as {str(target / 'report.html')!r}."
        )
    if target.exists() and not target.is_file():
        raise InputError(f"{name}: {str(target)!r} is no ordinary file. Pass the name of a file.")
    if not target.parent.is_dir():
        raise InputError(f"{name}: there is no folder {str(target.parent)!r}. Create it first.")
    return target


@contextmanager
def whole_file(path: str | os.PathLike[str], name: str = "`path`") -> Iterator[Path]:
    """A place beside the file to write to, which takes the file's place when the block ends well.

    A reader sees the old file or the new one, never a part; a failure leaves the old one and nothing else.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    part = target.with_name(f".{target.name}.{uuid4().hex[:12]}.tmp")
    try:
        try:
            yield part
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    except BrokenPipeError:  # not of this file
        raise
    except OSError as error:
        raise InputError(f"{name}: {os.fspath(path)!r} cannot be written ({error.strerror or error}).") from None


def write_whole(path: str | os.PathLike[str], content: str | bytes, name: str = "`path`") -> Path:
    """Writes text (UTF-8, Unix line ends) or bytes."""
    with whole_file(path, name) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def kept_text(name: str, make: Callable[[], str]) -> str:
    """What was made before, from the user's cache; made and kept where it is not there, made again where it is broken.

    Its first line is the hash of the rest. A folder that cannot be written to costs time and nothing else.
    """
    try:
        path = _cache_folder() / name
        digest, _, text = path.read_bytes().decode().partition("\n")
        if digest == hashlib.sha256(text.encode()).hexdigest():
            return text
    except RuntimeError:  # nobody's home
        return make()
    except (OSError, UnicodeDecodeError):
        pass
    text = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    except (OSError, InputError):
        pass
    return text


def _cache_folder() -> Path:
    """Where the system wants caches of this user, as `pooch` puts data."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "uqeval" / "uqeval" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "uqeval"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uqeval"
