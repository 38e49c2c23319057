"""`python -m fuzz WHAT --seconds 60 --seed 0`; exits with 1 at the first wrong answer, crash or hang."""

from __future__ import annotations

import argparse
import importlib
import sys

TARGETS = ("kernels", "readers", "guided", "soak")


def run(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("what", choices=TARGETS, help="what gets the input")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="where the random input starts (default: 0)")
    parser.add_argument("--batch", type=int, help="kernels: just this batch of the seed, as a failure names it")
    parser.add_argument("--file", help="guided: just this input, as a failure left it")
    given = parser.parse_args(arguments)
    only = {name: value for name in ("batch", "file") if (value := getattr(given, name)) is not None}
    return int(importlib.import_module(f"fuzz.{given.what}").main(given.seconds, given.seed, **only) or 0)


if __name__ == "__main__":
    sys.exit(run())
