"""Damaged files that coverage guides: what reaches new lines is kept and damaged further (atheris, libFuzzer).

An input is the number of a kind of file and its bytes; what must hold of it is what `fuzz.readers` asks of that kind.
"""

from __future__ import annotations

import importlib
import random
import sys
import tempfile
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_LARGEST = 1 << 16  # bytes of an input
_FOUND = Path("build/guided")


def one_input(cases: Mapping[str, Any], data: bytes, folder: Path) -> None:
    """Reads the bytes as the kind that the first of them says; an exception where it went wrong."""
    readers = importlib.import_module("fuzz.readers")  # after atheris has prepared it
    if not data:
        return
    names = sorted(cases)
    case = cases[names[data[0] % len(names)]]
    path = folder / case.names[0]
    path.write_bytes(data[1:])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.attempt(path)
    except readers.OURS as error:
        readers.require(0 < len(str(error).strip()) < 3000, f"no sentence: {error}")
    finally:
        path.unlink(missing_ok=True)


def whole_files(cases: Mapping[str, Any]) -> list[bytes]:
    """What the search begins with."""
    return [bytes([k]) + data for k, name in enumerate(sorted(cases)) for data in cases[name].files]


def main(seconds: float, seed: int, file: str | None = None) -> int:
    """Searches from the whole files on; with `file` just that input, as a failure left it."""
    if find_spec("atheris") is None and file is None:
        print("guided: skipped, atheris is not installed (pip install atheris; it has no wheels for Python 3.14 yet).")
        return 0
    if file is not None:
        cases = importlib.import_module("fuzz.readers").make_cases()
        with tempfile.TemporaryDirectory() as folder:
            one_input(cases, Path(file).read_bytes(), Path(folder))
        print(f"{file}: right")
        return 0
    import atheris

    with atheris.instrument_imports(include=["uqeval"]):
        for name in ("uqeval", "fuzz.readers"):
            importlib.import_module(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases = sys.modules["fuzz.readers"].make_cases()
        seeds = whole_files(cases)
        with tempfile.TemporaryDirectory() as folder:  # what is imported late
            for data in seeds:
                one_input(cases, data, Path(folder))
    names = sorted(cases)

    def mutate(data: bytes, most: int, number: int) -> bytes:
        """Half of the time by somebody who knows the format."""
        rng = random.Random(number)
        if not data or rng.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        kind = data[0] % len(names)
        case = cases[names[kind]]
        try:
            changed = case.damage(rng, data[1:], rng.choice(case.files))
        except Exception:  # it is too broken for that
            return bytes(atheris.Mutate(data, most))
        return (bytes([kind]) + changed)[:most]

    with tempfile.TemporaryDirectory() as work:
        corpus, place = Path(work) / "corpus", Path(work) / "file"
        corpus.mkdir()
        place.mkdir()
        for k, data in enumerate(seeds):
            (corpus / str(k)).write_bytes(data)
        _FOUND.mkdir(parents=True, exist_ok=True)
        limits = [f"-max_total_time={seconds:.0f}", f"-seed={seed + 1}", "-timeout=20", "-rss_limit_mb=6000"]
        limits += [f"-max_len={_LARGEST}", f"-artifact_prefix={_FOUND}/", "-print_final_stats=1"]
        print(f"guided: what goes wrong is left in {_FOUND}; once more: python -m fuzz guided --file FILE", flush=True)
        atheris.Setup(
            ["guided", *limits, str(corpus)], lambda data: one_input(cases, data, place), custom_mutator=mutate
        )
        atheris.Fuzz()  # leaves the process
    return 0
