"""`python -m validation`: runs the grid, resumes what was stopped, writes the page."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from uqeval import __version__
from uqeval.reproduce.study import Timing
from validation.grid import KEPT, cells, skipped
from validation.page import Validation, docs_page, judged, title_of
from validation.promises import PROMISES
from validation.run import as_rows, code_version, refusals, run, to_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "validation" / "results.json"
DOCS = ROOT / "docs" / "validation.md"


def wanted(names: list[str]) -> tuple[set[str], set[str]]:
    """Promises to run, and outputs to show (all where none is named)."""
    promises, outputs = set(), set()
    of_metric = {metric: name for name, promise in PROMISES.items() for metric in promise.metrics}
    for name in names:
        if name not in PROMISES and name not in of_metric:
            sys.exit(f"There is no promise {name!r}. Pick from {', '.join((*PROMISES, *of_metric))}.")
        promises.add(name if name in PROMISES else of_metric[name])
        outputs |= set() if name in PROMISES else {name}
    return promises, outputs


class Progress:
    """Cells done and the time that is left, on one line of a terminal, or a line every minute."""

    def __init__(self) -> None:
        self._start = self._said = time.monotonic()
        self._first: float | None = None  # work that an earlier run had done
        self._terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int, share: float) -> None:
        now = time.monotonic()
        if self._first is None or now - self._start < 0.5:  # what was there comes at once
            self._first = share
        if now - self._said < (0.5 if self._terminal else 60) and done < total:
            return
        self._said = now
        fresh = share - self._first
        left = f"about {_words((1 - share) / fresh * (now - self._start))} left" if fresh > 0.002 else "…"
        line = f"{done:,} of {total:,} cells, {share:.0%} of the work, {left}"
        print(
            f"\r{line:<70}" if self._terminal else line, end="" if self._terminal else "\n", file=sys.stderr, flush=True
        )


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m validation", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fixed part of the grid, fewer samples: minutes")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="promises or metrics, as uq_auc threshold"
    )
    parser.add_argument(
        "--laws", choices=(*KEPT, "all"), default="all", help="for tuning, for confirming, or all (default)"
    )
    parser.add_argument("--out", default=str(ROOT / "build" / "validation"), help="folder of the store and the page")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; all cores by default")
    parser.add_argument("--publish", action="store_true", help="the docs show this run, even if it is not a whole one")
    options = parser.parse_args()
    promises, outputs = wanted(options.only)
    grid = cells(options.laws, quick=options.quick, only=sorted(promises))
    out, timing, start = Path(options.out), Timing(), time.monotonic()
    try:
        with timing.stage("cells"):
            found = run(grid, out, jobs=options.jobs, tell=Progress())
    except KeyboardInterrupt:
        again = shlex.join([sys.executable, "-m", "validation", *sys.argv[1:]])
        print(f"\nStopped. What is finished is in {out / 'store.sqlite'}; go on with: {again}", file=sys.stderr)
        return 130
    print(file=sys.stderr)
    settings = {
        "date": datetime.now(UTC).date().isoformat(),
        "grid": "quick" if options.quick else "full",
        "laws": options.laws,
        "only": sorted(options.only),
        "version": __version__,
        "code": code_version(),
        "core_seconds": round(sum(value["seconds"] for value in found.values())),
    }
    rows = [row for row in as_rows(found) if not outputs or row["output"] in outputs]
    made = Validation(settings, rows, [*skipped(options.laws), *refusals(found)], timing=timing)
    made.publish(out)
    if options.publish or (not options.quick and not options.only and options.laws == "all"):
        RESULTS.write_text(to_text(made.to_dict()), encoding="utf-8")
        DOCS.write_text(docs_page(made.to_dict()), encoding="utf-8")
    for one in judged(rows, given=True)[:10]:
        row = one.row
        where = f"{row['law']}, {row['design']}, accuracy {row['accuracy']:g}, AUC {row['auc']:g}, n = {row['n']:,}"
        print(f"{one.share:.3f} ± {one.error:.3f}  {title_of(*one.output)}: {where} {row['variant']}")
    print(f"{out / 'index.html'}  ({_words(time.monotonic() - start)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
