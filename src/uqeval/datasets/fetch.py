"""Where a data file is: in the user's folder, in the cache, or on the web; and whether it is the right one.

Readers of the files live in the modules of the datasets.
"""

import hashlib
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from uqeval._errors import InputError, MissingExtra

Source = str | os.PathLike[str]


@dataclass(frozen=True)
class Remote:
    """A file with a place on the web.

    `name` is its path below a data folder, `hash` is "sha256:…" or "md5:…", or None where none is known: then the
    reader must check what is inside.
    """

    name: str
    url: str
    hash: str | None

    @property
    def file(self) -> str:
        return PurePosixPath(self.name).name


def published(name: str) -> Remote:
    """One of the files in `sources.toml`."""
    listed = tomllib.loads((files("uqeval.datasets") / "sources.toml").read_text(encoding="utf-8"))[name]
    return Remote(name, listed["url"], listed.get("hash"))


def folder_of(data: Source | None) -> Path | None:
    """The folder given as `data`, checked, or None."""
    if data is None:
        return None
    folder = Path(data).expanduser()
    if not folder.is_dir():
        raise InputError(f"`data` must be a folder with the files; {str(folder)!r} is none.")
    return folder


def lookup(name: str, data: Source | None = None) -> Path | None:
    """A file or folder `name` in `data`, or, when `data` is None, in the folder that UQEVAL_DATA names; else None.

    `data` may also be the folder of the dataset itself: "cifar10h/x.npy" is found as "x.npy", too.
    """
    return next((path for path in _places(name, data) if path.exists()), None)


def _places(name: str, data: Source | None) -> Iterator[Path]:
    folder = folder_of(data)
    if folder is None:
        given = os.environ.get("UQEVAL_DATA")
        if not given:
            return
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise InputError(f"The environment variable UQEVAL_DATA must name a folder; {given!r} is none.")
    yield folder / name
    yield folder / PurePosixPath(name).name


def fetch(remote: Remote, data: Source | None = None) -> Path:
    """The path of a file: from `data`, or UQEVAL_DATA, or the cache; downloaded there when it is not yet.

    With `data` given nothing is downloaded.
    """
    found = lookup(remote.name, data)
    if found is not None:
        return verify(found, remote.hash)
    if data is not None:
        raise InputError(
            f"`data` {str(folder_of(data))!r} has no {remote.file}. Put it there (as {remote.name} or {remote.file}) "
            f"from {remote.url}, or leave `data` out to have it downloaded."
        )
    return _download(remote)


def verify(path: Path, known: str | None) -> Path:
    """The path, when the file has the known hash."""
    if known is not None:
        method, _, expected = known.partition(":")
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, method).hexdigest()
        if found != expected:
            raise InputError(
                f"{str(path)!r} is not the published file: its {method} is {found}, expected {expected}. "
                "Remove it and get it again."
            )
    return path


def _download(remote: Remote) -> Path:
    try:
        import pooch
    except ImportError:
        raise MissingExtra(f"Downloading {remote.file}", "pooch", "reproduce") from None
    target = Path(pooch.os_cache("uqeval")) / remote.name
    by_hand = (
        f"Get it by hand from {remote.url} and put it at {str(target)!r}, or in a folder that you pass as `data` or "
        "name in the environment variable UQEVAL_DATA."
    )
    answers: list[Any] = []  # pooch leaves the connection open when a transfer fails
    to_file = pooch.HTTPDownloader(timeout=30, hooks={"response": lambda answer, **_: answers.append(answer)})
    try:
        # pooch writes to a temporary file and moves it only when the hash is right: no partial file is ever found.
        path = pooch.retrieve(remote.url, remote.hash, target.name, target.parent, downloader=to_file)
    except ValueError as error:
        if "hash" not in str(error).lower():
            raise
        raise InputError(f"{remote.url} is not the published {remote.file}: {error}") from None
    except OSError as error:  # the errors of requests are OSErrors
        raise InputError(
            f"{remote.file} could not be downloaded ({type(error).__name__}: {error}). {by_hand}"
        ) from None
    finally:
        for answer in answers:
            answer.close()
    return Path(path)
