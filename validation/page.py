"""What a run found: the page with its heat maps, the JSON, and the page of the docs. Worst cells first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import altair as alt

from uqeval._check import Progress
from uqeval._result import Grid, number
from uqeval.metrics import REGISTRY
from uqeval.plot import theme
from uqeval.reproduce.page import Makers, Page
from uqeval.reproduce.panels import chart, finish
from uqeval.reproduce.study import Publishable, Timing
from validation.designs import DESIGNS
from validation.grid import CONFIRMING, KEPT, SEEN, TUNING, kept_of
from validation.promises import PROMISES, UNDECLARED
from validation.run import to_text

Row = dict[str, Any]
BEYOND = 2.0  # Monte-Carlo errors that a cell must lie off by to be coloured
BAR = 0.02  # so far below its promise, beyond the Monte-Carlo error, a cell falls short
FEWEST = 20  # samples with an answer that a cell needs to be judged
WORST = 30  # cells in a table
_WORDS = {"tuning": "laws that the methods were tuned on", "confirming": "laws that nobody who tuned a method had seen"}


@dataclass(frozen=True)
class Judged:
    """An output of a cell: how often its promise held, of the samples that gave an answer.

    A number without an interval is a promise not held; or, looking at what was `given` alone, no answer.
    """

    row: Row
    answered: int
    share: float
    error: float  # Monte-Carlo standard error

    @classmethod
    def of(cls, row: Row, *, given: bool = False) -> Judged:
        answered = row["reps"] - row["unknown"] - (row["missing"] if given else 0)
        share = row["held"] / answered if answered else math.nan
        near = (row["held"] + 1) / (answered + 2)  # a share of 1 has an error too
        return cls(row, answered, share, math.sqrt(near * (1 - near) / max(answered, 1)))

    @property
    def nominal(self) -> float:
        return PROMISES[self.row["promise"]].nominal

    @property
    def off(self) -> float:
        """How far it lies from its promise beyond Monte-Carlo error; negative: it held too seldom."""
        gap = self.share - self.nominal
        return math.copysign(max(0.0, abs(gap) - BEYOND * self.error), gap)

    @property
    def short(self) -> bool:
        return self.share + BEYOND * self.error < self.nominal - BAR

    @property
    def output(self) -> tuple[str, str]:
        return self.row["promise"], self.row["output"]


def judged(rows: Iterable[Row], kept: str | None = None, *, given: bool = False) -> list[Judged]:
    """Promised outputs with enough answers, the worst first."""
    found = [Judged.of(row, given=given) for row in rows if PROMISES[row["promise"]].holds(row["output"])]
    found = [one for one in found if one.answered >= FEWEST and (kept is None or _kept(one.row) == kept)]
    return sorted(found, key=lambda one: (one.off, one.share))


def _kept(row: Row) -> str:
    return kept_of(row["promise"], row["law"])


def title_of(promise: str, output: str) -> str:
    """ "UQ-AUC", "compare: equal UQ-AUC", "threshold: fallback"."""
    what, comma, rest = output.partition(",")
    text = " ".join(REGISTRY[word].title if word in REGISTRY else word for word in what.split(" ")) + comma + rest
    return text if what in PROMISES[promise].metrics else f"{promise}: {text}"


# ---- tables -----------------------------------------------------------------------------------------------------


def _percent(x: float) -> str:
    return "–" if math.isnan(x) else f"{100 * x:.1f}%"


def _with_error(one: Judged) -> str:
    return f"{100 * one.share:.1f}\u00a0±\u00a0{100 * one.error:.1f}%"  # on one line


def worst_table(rows: Sequence[Row], kept: str, *, given: bool = False, count: int = WORST) -> Grid:
    """The cells that fall shortest of their promise; of what was `given` alone, or with no interval for a miss."""
    head = [
        "promise",
        "law",
        "design",
        "accuracy",
        "AUC",
        "n",
        "held ± MC",
        "below / above",
        "none",
        "no answer",
        "size",
    ]
    lines = []
    for one in judged(rows, kept, given=given)[:count]:
        row = one.row
        what = title_of(*one.output) + (f" ({row['variant']})" if row["variant"] else "")
        missed = " / ".join(f"{100 * row[side] / one.answered:.1f}" for side in ("below", "above")) + "%"
        size = "–" if row["size"] is None else number(row["size"])
        cells = [what, row["law"], row["design"], f"{row['accuracy']:g}", f"{row['auc']:g}", f"{row['n']:,}"]
        without = [_percent(row[name] / row["reps"]) for name in ("missing", "unknown")]
        lines.append([*cells, _with_error(one), missed, *without, size])
    notes = (
        "held: of the samples that gave "
        + ("an interval or a p-value" if given else "an answer, where a number without an interval is not held")
        + ", with its Monte-Carlo error",
        "below, above: the truth lies below or above the interval; none: there is a number, but no interval",
        "no answer: samples without such a number (as UQ-AUC where no row is wrong), tests without a p-value",
        "size: median width, share accepted, or rows to the alarm",
    )
    title = "Worst cells where an interval is given" if given else "Worst cells, no interval counted as a miss"
    return Grid(head, lines, f"{title}: {_WORDS[kept]}", notes)


def summary_table(rows: Sequence[Row], kept: str) -> Grid:
    """A line for each promise: how its cells are spread."""
    by_output: dict[tuple[str, str], list[Judged]] = {}
    for one in judged(rows, kept):
        by_output.setdefault(one.output, []).append(one)
    order = list(dict.fromkeys((row["promise"], row["output"]) for row in rows))
    head = ["promise", "cells", "lowest ± MC", "of given", "median", "cells short", "whole range", "none", "no answer"]
    by_share = sorted(judged(rows, kept, given=True), key=lambda one: one.share, reverse=True)
    given = {one.output: one for one in by_share}  # the last: the lowest
    lines = []
    for output in sorted(by_output, key=order.index):
        found = by_output[output]
        shares = sorted(one.share for one in found)
        least = min(found, key=lambda one: one.share)
        reps = sum(one.row["reps"] for one in found)
        shown = [sum(one.row[name] for one in found) / reps for name in ("vacuous", "missing", "unknown")]
        short = sum(one.short for one in found)
        lines.append(
            [
                title_of(*output),
                f"{len(found):,}",
                _with_error(least),
                _with_error(given[output]) if output in given else "–",
                _percent(shares[len(shares) // 2]),
                f"{short:,}" + (" *" if short else ""),
                *map(_percent, shown),
            ]
        )
    note = (
        f"cells short: held in less than {95 - 100 * BAR:g}% by more than {BEYOND:g} Monte-Carlo errors; "
        f"of given: the lowest where an interval is given; whole range: intervals that say nothing, which hold; "
        f"none: a number without an interval, not held; no answer: not even a number, left out"
    )
    return Grid(head, lines, f"All promises: {_WORDS[kept]}", (note,))


def numbers_table(rows: Sequence[Row]) -> Grid:
    """What is measured and not promised."""
    lines = [
        [
            title_of(row["promise"], row["output"]) + f" (batches of {row['variant']})",
            row["law"],
            f"{1 - row['accuracy']:g}",
            _percent(row["held"] / row["reps"]),
            "–" if row["size"] is None else f"{row['size']:,.0f}",
        ]
        for row in rows
        if row["output"] in PROMISES[row["promise"]].numbers
    ]
    return Grid(["what", "law", "promised risk", "alarms", "median rows to it"], lines, "Measured, not promised")


def numbers_tables(rows: Sequence[Row]) -> list[Grid]:
    """What is measured and not promised, where there is any."""
    return [table for table in (undeclared_table(rows), numbers_table(rows)) if table.rows]


def undeclared_table(rows: Sequence[Row]) -> Grid:
    """What happens where clusters that were not seen are unlike those seen, and nobody said how large they can be."""
    by_output: dict[tuple[str, str], list[Judged]] = {}
    for row in rows:
        if row["output"].endswith(UNDECLARED) and (one := Judged.of(row)).answered >= FEWEST:
            by_output.setdefault(one.output, []).append(one)
    lines = []
    for output, found in by_output.items():
        least, shares = min(found, key=lambda one: one.share), sorted(one.share for one in found)
        short = sum(one.short for one in found)
        cells = [f"{len(found):,}", _with_error(least), _percent(shares[len(shares) // 2]), f"{short:,}"]
        lines.append([title_of(*output).removesuffix(UNDECLARED), least.row["design"], *cells])
    note = (
        "Half of all errors, or all of them, sit in few large clusters that a sample may not hold: it then looks like "
        "one of a population without any. With largest_cluster= these are among the promises above (largest declared)."
    )
    head = ["what", "design of the lowest", "cells", "lowest ± MC", "median", "cells short"]
    return Grid(head, lines, "Clusters unlike those seen, nothing declared", (note,))


# ---- heat maps --------------------------------------------------------------------------------------------------


def heat_map(rows: Sequence[Row], output: tuple[str, str], kept: str) -> theme.Figure:
    """Rows: law × design; columns: n, and in them accuracy × AUC (and the variant, where there are several)."""
    own = [Judged.of(row) for row in rows if (row["promise"], row["output"]) == output and _kept(row) == kept]
    variants = len({one.row["variant"] for one in own}) > len({one.row["auc"] for one in own})
    data: list[Row] = []
    for one in own:
        row, known = one.row, one.answered >= FEWEST
        setting = f"{_short(row['accuracy'])} / {_short(row['auc'])}" + (f" ({row['variant']})" if variants else "")
        data.append(
            {
                "where": f"{row['law']}, {row['design']}",
                "n": f"n = {row['n']:,}",
                "setting": setting,
                "off": 100 * one.off if known else None,
                "held": f"{100 * one.share:.0f}" if known and one.off < 0 else "",
            }
        )
    sizes = [f"n = {n:,}" for n in sorted({one.row["n"] for one in own})]
    places = list(dict.fromkeys(point["where"] for point in data))
    settings = sorted({point["setting"] for point in data})
    wide = 15 if len(settings) <= 30 else 11
    x = alt.X("setting:N", sort=settings, title=None, axis=alt.Axis(labelAngle=-90, labelFontSize=8))
    y = alt.Y("where:N", sort=places, title=None, axis=alt.Axis(labelFontSize=10))
    scale = alt.Scale(domain=[-20, 0, 5], range=["#B2182B", "#EDEDE6", "#4393C3"], clamp=True, interpolate="rgb")
    legend = alt.Legend(
        title=["points off 95%", "beyond 2 MC errors"], titleFontSize=10, labelFontSize=10, gradientLength=110
    )
    base = chart(data)
    cells = base.mark_rect(stroke="#ffffff", strokeWidth=0.5).encode(
        x=x, y=y, color=alt.Color("off:Q", scale=scale, legend=legend)
    )
    blank = base.transform_filter("datum.off === null").mark_rect(color="#B8B8B8").encode(x=x, y=y)
    ink = alt.condition("datum.off < -10", alt.value("#FFFFFF"), alt.value("#222222"))
    words = base.mark_text(fontSize=7.5).encode(x=x, y=y, text="held:N", color=ink)
    layers = alt.layer(cells, blank, words).properties(width=alt.Step(wide), height=alt.Step(15))
    faceted = layers.facet(column=alt.Column("n:N", title=None, sort=sizes), spacing=12)
    share = sum(Judged.of(one.row).short for one in own)
    notes = [
        f"{_WORDS[kept].capitalize()}; {share} of {len(own):,} cells short. Columns: accuracy / AUC",
        "Red: holds too seldom, with its percentage; pale: as promised; blue: more often; grey: too few answers",
    ]
    return finish(faceted, title_of(*output), notes)


def _short(x: float) -> str:
    return f"{x:.4g}".lstrip("0")


def figure_name(output: tuple[str, str], kept: str) -> str:
    words = "-".join((*output, kept)).replace(",", "").replace(" ", "-")
    return "".join(c for c in words if c.isalnum() or c in "-_")


# ---- the page ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Validation(Publishable):
    """All cells of a run; `publish` leaves its page, its tables and its JSON in a folder."""

    settings: dict[str, Any]
    rows: list[Row] = field(repr=False)
    notes: list[str] = field(repr=False)
    timing: Timing = field(default_factory=Timing, repr=False, compare=False, kw_only=True)

    @property
    def kept(self) -> list[str]:
        """Which of the two kinds of laws there are: confirming ones first, which is what one can rely on."""
        return [kept for kept in reversed(KEPT) if any(_kept(row) == kept for row in self.rows)]

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape."""
        return {"settings": self.settings, "notes": self.notes, "rows": self.rows}

    def frame_rows(self) -> list[Row]:
        """A row for each output of each cell."""
        return self.rows

    def grid(self) -> Grid:
        """The main table."""
        return worst_table(self.rows, self.kept[0], given=True)

    def files(self) -> dict[str, str]:
        """The JSON, and a short summary."""
        return {"results.json": to_text(self.to_dict()), "summary.md": docs_page(self.to_dict(), pictures=False)}

    def tables(self) -> list[Grid]:
        worst = [worst_table(self.rows, kept, given=given) for given in (True, False) for kept in self.kept]
        return [*worst, *(summary_table(self.rows, kept) for kept in self.kept), *numbers_tables(self.rows)]

    def figures(self, progress: Progress | None = None) -> Makers:
        """A heat map of each output, on the laws of each kind."""
        makers: dict[str, Callable[[], Any]] = {}
        for kept in self.kept:
            for output in _outputs(self.rows, kept):
                makers[figure_name(output, kept)] = partial(heat_map, self.rows, output, kept)
        return makers

    def page(self) -> Page:
        """What its page says."""
        words, cells = self.settings, {_cell(row) for row in self.rows}
        short = [(f"Of the {_WORDS[kept]}", verdicts(self.rows, kept)) for kept in self.kept]
        texts = {
            figure_name(output, kept): f"Promised: {PROMISES[output[0]].claim}."
            for kept in self.kept
            for output in _outputs(self.rows, kept)
        }
        return Page(
            title="Do the promises hold?",
            lead="Every interval, test, band and guarantee, on samples of laws whose true values are known.",
            facts=[
                ("cells", f"{len(cells):,}"),
                ("samples", f"{samples(self.rows):,}"),
                ("date", words["date"]),
                ("grid", words["grid"]),
                ("code", words["code"]["uqeval"]),
            ],
            short=short,
            tables=self.tables(),
            notes=self.notes,
            settings=settings_of(self.to_dict()),
            texts=texts,
            of_paper=False,
        )


def _cell(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("promise", "law", "design", "accuracy", "auc", "n", "variant"))


def samples(rows: Sequence[Row]) -> int:
    """How many were drawn; one serves all outputs of its cell."""
    return sum({_cell(row): row["reps"] for row in rows}.values())


def _outputs(rows: Sequence[Row], kept: str) -> list[tuple[str, str]]:
    return list(dict.fromkeys(one.output for one in sorted(judged(rows, kept), key=lambda one: _place(one.output))))


def _place(output: tuple[str, str]) -> tuple[int, int]:
    promise = PROMISES[output[0]]
    known = promise.metrics.index(output[1]) if output[1] in promise.metrics else len(promise.metrics)
    return list(PROMISES).index(output[0]), known


def verdicts(rows: Sequence[Row], kept: str) -> list[str]:
    """A line for each promise: in how many of its cells it falls short, and where most."""
    lines = []
    for name, promise in PROMISES.items():
        own = [one for one in judged(rows, kept) if one.row["promise"] == name]
        if not own:
            continue
        short = sum(one.short for one in own)
        line = f"{promise.title}: {promise.claim}. "
        if short:
            worst = own[0]
            row = worst.row
            line += (
                f"Falls short in {short:,} of {len(own):,} cells; most for {title_of(*worst.output)}, {row['law']}, "
                f"{row['design']}, accuracy {row['accuracy']:g}, AUC {row['auc']:g}, n = {row['n']:,}: held in "
                f"{_with_error(worst)}."
            )
        else:
            line += f"Falls short in none of {len(own):,} cells; lowest {_percent(min(one.share for one in own))}."
        lines.append(line)
    return lines


def settings_of(results: dict[str, Any]) -> list[tuple[str, str]]:
    """How it was run, and the laws and designs in words."""
    given = results["settings"]
    found = [
        ("date", given["date"]),
        ("grid", given["grid"]),
        (
            "code",
            f"uqeval {given['version']}; hash of its methods {given['code']['uqeval']}, of the laws and "
            f"judgements {given['code']['validation']}",
        ),
        ("laws for tuning", f"{', '.join(TUNING.laws)} (written down {TUNING.date})"),
        ("laws for confirming", f"{', '.join(CONFIRMING.laws)} (written down {CONFIRMING.date})"),
        *(
            (f"laws for confirming {promise}", f"{', '.join(kept[-1].laws)} (written down {kept[-1].date})")
            for promise, kept in SEEN.items()
        ),
    ]
    used = {row["design"] for row in results["rows"]}
    return [*found, *((name, DESIGNS[name].words) for name in DESIGNS if name in used)]


# ---- the docs ---------------------------------------------------------------------------------------------------

SHOWN = (
    ("ranking", "uq_auc"),
    ("ranking", "uq_c_index"),
    ("ranking", "aurc"),
    ("ranking", "augrc"),
    ("ranking", "accuracy"),
    ("calibration", "ece_debiased"),
    ("compare", "equal uq_auc"),
    ("threshold", "fallback"),
    ("threshold", "t"),
)


def shown(rows: Sequence[Row]) -> list[tuple[tuple[str, str], str]]:
    """The heat maps of the docs."""
    return [(output, kept) for kept in reversed(KEPT) for output in _outputs(rows, kept) if output in SHOWN]


def docs_page(results: dict[str, Any], *, pictures: bool = True) -> str:
    """The page of the docs, from the JSON of a run."""
    rows = results["rows"]
    given = results["settings"]
    lines = [
        "# Do the promises hold?",
        "",
        "Made by `make validate`; do not edit. Every interval, test, band and guarantee is run on samples of laws",
        "whose true values are known; a cell is one law, one design, one accuracy, AUC and number of rows. Methods",
        "were tuned on one kind of laws alone; the other was kept apart, and is what one can rely on. Both were",
        f"written down on {TUNING.date}, before any run. The methods of {', '.join(SEEN)} were changed after a",
        "look at the laws for confirming: for them these count as laws for tuning, and new ones confirm",
        f"({'; '.join(f'{promise}: ' + ', '.join(kept[-1].laws) for promise, kept in SEEN.items())}).",
        "",
        f"{given['grid'].capitalize()} grid, {given['date']}: {len({_cell(row) for row in rows}):,} cells, "
        f"{samples(rows):,} samples; uqeval {given['version']}, code `{given['code']['uqeval']}`.",
    ]
    lines += ["", *(f"- {note}" for note in results["notes"])]
    for kept in reversed(KEPT):
        if not judged(rows, kept):
            lines += ["", f"## {_WORDS[kept].capitalize()}", "", "Not in this run."]
            continue
        lines += ["", f"## {_WORDS[kept].capitalize()}", ""]
        worst = (worst_table(rows, kept, given=given) for given in (True, False))
        for table in (summary_table(rows, kept), *worst):
            text = table.markdown().replace(" * |", " |")  # stars are for pages
            lines += [f"### {(table.caption or '').partition(':')[0]} ({kept})", "", text, ""]
            lines += [f"- {note}" for note in table.notes] + [""]
        if pictures:
            for output, own in shown(rows):
                if own == kept:
                    title = title_of(*output)
                    lines += [
                        f"![{title}: share of samples that hold](_made/validation/{figure_name(output, kept)}.svg)",
                        "",
                    ]
    for table in numbers_tables(rows):
        lines += ["", f"## {table.caption}", "", table.markdown(), *(f"\n{note}" for note in table.notes)]
    lines += ["", "## Settings", ""]
    lines += [f"- **{name}**: {words}" for name, words in settings_of(results)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"
