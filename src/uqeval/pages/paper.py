"""A page as PDF, printed by a Chromium that is on this machine: none is ever fetched."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from uqeval._errors import InputError
from uqeval._files import check_target, whole_file

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "microsoft-edge", "msedge")
_MAC = ("Google Chrome", "Chromium", "Microsoft Edge")
_WINDOWS = (r"Google\Chrome\Application\chrome.exe", r"Microsoft\Edge\Application\msedge.exe")
_VARIABLE = "UQEVAL_CHROMIUM"
_QUIET = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-pdf-header-footer",
)
_SECONDS = 180


def find_browser(name: str = "`path`") -> str:
    """The Chromium of this machine; `name` is what the user calls the PDF."""
    if asked := os.environ.get(_VARIABLE):
        if (found := shutil.which(asked)) is None:
            raise InputError(f"{_VARIABLE} is {asked!r}, which is no program. Name a Chromium, or unset it.")
        return found
    found = next((path for place in (*_NAMES, *_places()) if (path := shutil.which(place)) is not None), None)
    if found is not None:
        return found
    raise InputError(
        f"{name}: a PDF is printed by Chromium, Chrome or Edge, and there is none here (looked for "
        f"{', '.join(_NAMES)}). Install one (Debian: apt-get install chromium), or name it in {_VARIABLE}. Without "
        "one: write the report as HTML and use its print button in any browser."
    )


def _places() -> Iterator[str]:
    """Where macOS and Windows keep what is on no path; elsewhere there is nothing of that name."""
    for folder in (Path("/Applications"), Path.home() / "Applications"):
        yield from (str(folder / f"{app}.app/Contents/MacOS/{app}") for app in _MAC)
    roots = (os.environ.get(key) for key in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"))
    yield from (str(Path(root) / place) for root in roots if root for place in _WINDOWS)


def check_pdf(path: str | os.PathLike[str], name: str = "`path`") -> None:
    """Says before the work whether the PDF can be written: its folder, and who would print it."""
    check_target(path, name)
    find_browser(name)


def print_pdf(html: str, path: str | os.PathLike[str], name: str = "`path`") -> Path:
    """Writes the page as PDF, whole or not at all."""
    target, browser = Path(path), find_browser(name)
    # Beside the target: a Chromium in a box of its own (snap) sees the user's folders and no temporary ones.
    with (
        whole_file(target, name) as part,
        TemporaryDirectory(prefix="uqeval-", dir=target.absolute().parent, ignore_cleanup_errors=True) as folder,
    ):
        page, printed = Path(folder) / "report.html", Path(folder) / "report.pdf"
        page.write_text(html, encoding="utf-8")
        places = [f"--user-data-dir={Path(folder) / 'profile'}", f"--print-to-pdf={printed}", page.as_uri()]
        # Its sandbox refuses to be run by root.
        rights = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        _run([browser, *_QUIET, *rights, *places], printed, name)
        os.replace(printed, part)
    return target


def _run(command: list[str], printed: Path, name: str) -> None:
    hint = "Write the report as HTML and use its print button."
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"{name}: {command[0]} did not print within {_SECONDS} s. {hint}") from None
    except OSError as error:
        raise InputError(f"{name}: {command[0]} cannot be run ({error.strerror or error}). {hint}") from None
    if done.returncode != 0 or not printed.is_file() or printed.read_bytes()[:5] != b"%PDF-":
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise InputError(f"{name}: {command[0]} printed no PDF (exit {done.returncode}; {said[0][:300]}). {hint}")
