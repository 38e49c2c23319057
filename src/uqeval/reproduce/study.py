"""A reproduced experiment: models with their metrics and their true ranks, and how the two correlate."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._errors import collected
from uqeval._result import strict, to_frame
from uqeval.inference.correlations import compare_correlations, pearson

__all__ = ["METRICS", "TRUTHS", "Study", "correlate", "summarise", "write_tables", "write_whole"]

TRUTHS = ("kendall_phi", "kendall_varphi")
METRICS = ("uq_auc", "uq_c_index", "aurc", "augrc", "ece", "brier", "log_loss")
TITLES = {
    "uq_auc": "UQ-AUC",
    "uq_c_index": "UQ-C-index",
    "aurc": "AURC",
    "augrc": "AUGRC",
    "ece": "ECE",
    "brier": "Brier",
    "log_loss": "NLL",
    "kendall_phi": "κ(s; φ)",
    "kendall_varphi": "κ(s; ϕ)",
}


@dataclass(frozen=True)
class Study:
    """Everything that a study found; `write` puts its tables into a folder."""

    study: str
    settings: dict[str, Any]
    models: list[dict[str, Any]] = field(repr=False)  # one row per scored model
    correlations: list[dict[str, Any]] = field(repr=False)  # metric × truth × draw
    summary: list[dict[str, Any]] = field(repr=False)  # metric × truth over draws
    tests: list[dict[str, Any]] = field(repr=False)  # is UQ-C-index better than UQ-AUC, draw by draw?
    paper: list[dict[str, Any]] = field(repr=False)
    notes: list[str] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape."""
        names = ("study", "settings", "correlations", "summary", "tests", "models", "paper", "notes")
        return {name: getattr(self, name) for name in names}

    def to_frame(self, kind: str | None = None) -> Any:
        """The correlations: see `Result.to_frame` for `kind`."""
        return to_frame(self.correlations, kind)

    def markdown(self) -> str:
        """The table, the paper's row beside ours, and what to beware of."""
        head = ["", *(f"with {TITLES[truth]}" for truth in TRUTHS)]
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for row in self.paper_rows():
            lines.append("| " + " | ".join(row) + " |")
        for metric in dict.fromkeys(row["metric"] for row in self.summary):
            cells = [
                _cell(row)
                for truth in TRUTHS
                for row in self.summary
                if (row["metric"], row["truth"]) == (metric, truth)
            ]
            lines.append("| " + " | ".join([TITLES[metric], *cells]) + " |")
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]) + "\n"

    def paper_rows(self) -> list[list[str]]:
        """The paper's own numbers, marked as such."""
        rows = []
        for metric in dict.fromkeys(row["metric"] for row in self.paper):
            cells = [
                f"{100 * row['r']:.2f}% ({100 * row['low']:.2f}–{100 * row['high']:.2f})"
                for truth in TRUTHS
                for row in self.paper
                if (row["metric"], row["truth"]) == (metric, truth)
            ]
            rows.append([f"{TITLES[metric]}, paper (one draw, d unknown)", *cells])
        return rows

    def write(self, folder: str | Path) -> Path:
        """`table.json`, `table.csv` and `table.md`, each written whole."""
        return write_tables(folder, self.to_dict(), self.correlations, self.markdown())

    def __str__(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.markdown())}</pre>"


def _cell(row: dict[str, Any]) -> str:
    if math.isnan(row["median"]):
        return "–"
    if row["draws"] == 1:
        return f"{100 * row['median']:.2f}%"
    return (
        f"{100 * row['median']:.2f}% ({100 * row['lowest']:.2f}–{100 * row['highest']:.2f} over {row['draws']} draws)"
    )


def write_tables(folder: str | Path, data: dict[str, Any], rows: list[dict[str, Any]], markdown: str) -> Path:
    """A result as `table.json`, its rows as `table.csv`, its page as `table.md`."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_whole(target / "table.json", json.dumps(strict(data), indent=1, allow_nan=False) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(target / "table.csv", text.getvalue())
    write_whole(target / "table.md", markdown)
    return target


def write_whole(path: Path, text: str) -> None:
    """The old file or the new one, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def correlate(
    models: Sequence[dict[str, Any]], draws: Sequence[Any], level: float = 0.95
) -> tuple[list[Any], list[Any]]:
    """Pearson's r of every metric with both truths, draw by draw, Fisher's interval; and UQ-C-index against UQ-AUC.

    Fisher's interval takes the models of a draw as independent, as the paper does; it says nothing of other draws.
    """
    rows: list[dict[str, Any]] = []
    tests: list[dict[str, Any]] = []
    for draw in draws:
        part = [model for model in models if model["draw"] == draw]
        column = {name: np.array([model[name] for model in part], dtype=np.float64) for name in (*METRICS, *TRUTHS)}
        for truth in TRUTHS:
            for metric in METRICS:
                keep = np.isfinite(column[metric]) & np.isfinite(column[truth])
                r = low = high = math.nan
                if keep.sum() >= 4:
                    with collected():
                        found = pearson(column[metric][keep], column[truth][keep], method="fisher", level=level)
                    r, low, high = found.value, found.low, found.high
                rows.append(
                    {
                        "metric": metric,
                        "truth": truth,
                        "r": r,
                        "low": low,
                        "high": high,
                        "n": int(keep.sum()),
                        "draw": draw,
                    }
                )
            keep = np.isfinite(column["uq_auc"]) & np.isfinite(column["uq_c_index"]) & np.isfinite(column[truth])
            if keep.sum() < 4:
                continue
            test = compare_correlations(
                column["uq_c_index"][keep], column["uq_auc"][keep], column[truth][keep], level=level
            )
            tests.append(
                {
                    "draw": draw,
                    "truth": truth,
                    "difference": test.difference,
                    "low": test.low,
                    "high": test.high,
                    "p_williams": test.p,
                    "p_steiger": test.p_steiger,
                }
            )
    return rows, tests


def summarise(correlations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Median and range over draws."""
    found = []
    for metric in METRICS:
        for truth in TRUTHS:
            values = [row["r"] for row in correlations if (row["metric"], row["truth"]) == (metric, truth)]
            known = [r for r in values if not math.isnan(r)]
            found.append(
                {
                    "metric": metric,
                    "truth": truth,
                    "median": float(np.median(known)) if known else math.nan,
                    "lowest": min(known, default=math.nan),
                    "highest": max(known, default=math.nan),
                    "draws": len(values),
                }
            )
    return found
