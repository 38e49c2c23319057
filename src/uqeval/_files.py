"""Files that are written whole or not at all, the error where one cannot be written, and JSON from anywhere."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from uqeval._errors import InputError, reason_of

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_USUAL = {"--json": "json", "--state": "json", "--pdf": "pdf"}  # endings of what is written
_PATIENCE = 60.0  # seconds that one process waits for another, which needs a part of one


def check_target(path: str | os.PathLike[str], name: str = "`path`") -> Path:
    """The file to write, checked before the work is done; `name` is what the user calls it."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise InputError(f'{name} must be a file name, as "report.html"; it is {path!r}.')
    target = Path(path)
    try:
        target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name that is too long, or holds a zero byte
        raise InputError(f"{name}: {str(target)!r} is no name for a file ({reason_of(error)}).") from None
    if target.is_dir():
        example = target / f"report.{_USUAL.get(name, 'html')}"
        raise InputError(f"{name} is the folder {str(target)!r}. Pass a file name in it, as {str(example)!r}.")
    if target.exists() and not target.is_file():
        raise InputError(f"{name}: {str(target)!r} is no ordinary file. Pass the name of a file.")
    if not target.parent.is_dir():
        raise InputError(f"{name}: there is no folder {str(target.parent)!r}. Create it first.")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{name}: nothing can be written to the folder {str(target.parent)!r}. Name another one.")
    return target


def identity(path: str | os.PathLike[str]) -> tuple[int, int] | str:
    """Equal for all names of one file, links of both kinds included; "-" is the file that standard input comes from."""
    try:
        found = os.fstat(0) if path == "-" else os.stat(path)
        return found.st_dev, found.st_ino
    except (OSError, ValueError):  # the latter of a zero byte
        return os.path.abspath(path) if "\0" in os.fspath(path) else os.path.realpath(path)


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


@contextmanager
def locked(
    path: str | os.PathLike[str], name: str = "`path`", tell: Callable[[str], object] = lambda message: None
) -> Iterator[None]:
    """One process at a time reads and writes the file: others wait, are told who holds it, and at last give up.

    The system ends a lock with its process, however that died. It lies on a file beside it, which says who holds it:
    the file itself is replaced by `whole_file`.
    """
    target = Path(os.path.realpath(path))
    beside, start, told = target.with_name(f".{target.name}.lock"), time.monotonic(), False
    held: list[int] = []  # filled inside `_lock`: Ctrl-C on the way back from there would lose what it returns
    try:
        try:
            while not _lock(beside, held):
                waited, used = time.monotonic() - start, f"{name} {os.fspath(path)} is in use by {_holder(beside)}"
                if waited > _PATIENCE:
                    raise InputError(f"{used}. Wait until that has ended, or end it.")
                if waited > 1 and not told:
                    tell(f"{used}; waiting.")
                    told = True
                time.sleep(0.02)
        except OSError as error:
            raise InputError(f"{name}: {os.fspath(path)!r} cannot be locked ({error.strerror or error}).") from None
        for left in target.parent.iterdir():  # by a process that was killed while it wrote
            if left.name.startswith(f".{target.name}.") and left.suffix == ".tmp":
                left.unlink(missing_ok=True)
        yield
    finally:
        for handle in held:
            _let_go(handle, beside)


def _lock(beside: Path, held: list[int]) -> bool:
    """Whether `held` has a handle that holds the lock now; it has none where another process does."""
    held.append(handle := os.open(beside, os.O_RDWR | os.O_CREAT, 0o666))
    try:
        _claim(handle, beside)
        os.lseek(handle, 0, os.SEEK_SET)
        os.truncate(handle, 0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        host = os.environ.get("COMPUTERNAME", "?") if sys.platform == "win32" else os.uname().nodename
        os.write(handle, f"process {os.getpid()} on {host}, since {since}".encode())
    except (BlockingIOError, FileNotFoundError, PermissionError):  # the last is Windows' word for a held lock
        os.close(held.pop())
        return False
    return True


def _claim(handle: int, beside: Path) -> None:
    """Takes the lock, or raises; takes it again where this handle has it."""
    if sys.platform == "win32":
        os.lseek(handle, 1 << 20, os.SEEK_SET)  # behind the text, which stays readable
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(beside).st_ino != os.fstat(handle).st_ino:  # another process has just ended and removed it
            raise BlockingIOError


def _let_go(handle: int, beside: Path) -> None:
    if sys.platform != "win32":
        with suppress(OSError):  # another process has it: Ctrl-C came before we did
            _claim(handle, beside)
            beside.unlink(missing_ok=True)  # while it is locked, or somebody else's would go
    os.close(handle)
    if sys.platform == "win32":
        with suppress(OSError):  # somebody else has opened it
            beside.unlink(missing_ok=True)


def _holder(beside: Path) -> str:
    """Whoever holds the lock, by their own words."""
    try:
        return beside.read_text(encoding="utf-8").strip() or "another process"
    except (OSError, UnicodeDecodeError):
        return "another process"


def write_whole(path: str | os.PathLike[str], content: str | bytes, name: str = "`path`") -> Path:
    """Writes text (UTF-8, Unix line ends) or bytes."""
    with whole_file(path, name) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def json_value(text: str | bytes, **how: Any) -> Any:
    """What a JSON text holds; whatever is wrong with it is a ValueError, too deep a nesting as well."""
    try:
        return json.loads(text, **how)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def kept_text(name: str, make: Callable[[], str]) -> str:
    """What was made before, from the user's cache; made and kept where it is not there, made again where it is broken.

    Its first line is the hash of the rest. A folder that cannot be written to costs time and nothing else.
    """
    try:
        path = cache_folder() / name
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


def cache_folder() -> Path:
    """Where the system wants caches of this user, as `pooch` puts data."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "uqeval" / "uqeval" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "uqeval"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uqeval"
