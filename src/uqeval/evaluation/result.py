"""The table that a user reads: scores × metrics × groups with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uqeval._errors import InputError
from uqeval._result import SCHEMA_VERSION, Grid, Result, as_html, as_text, number, versions
from uqeval.evaluation.table import ESTIMATE, Mixed, Panel, Row, Table
from uqeval.inference.power import detectable_difference
from uqeval.inference.result import Estimate
from uqeval.inputs.columns import listed
from uqeval.metrics.copies import Groups, copies_notes, one_of_each
from uqeval.metrics.registry import REGISTRY

if TYPE_CHECKING:
    from uqeval.evaluation.row_data import RowData

_MOST_GROUPS = 20  # printed; all are in the data
_LEAST_ERRORS = 10
_CLOTHES = {
    ("g_auc", "augrc"): "G-AUC = 2·AUGRC",
    ("auarc", "aurc"): "AUARC = 1 − AURC",
    ("prr", "naurc"): "PRR = 1 − nAURC",
}


@dataclass(frozen=True)
class Evaluation(Result):
    """All estimates of one test set."""

    n: int
    n_errors: int | None
    accuracy: float | None
    level: float
    tie_rate: dict[str, float]
    rows: Table = field(repr=False)
    warnings: tuple[str, ...] = ()
    heterogeneity: tuple[Mixed, ...] = field(default=(), repr=False)
    same_ranking: Groups | None = ()  # scores that rank all rows alike; None: the rows never were in one place
    targets: dict[str, str] = field(default_factory=dict, repr=False)  # what each metric ranks the scores against
    two_targets: bool = field(default=False, repr=False)  # whether there are errors and a loss of the user's own
    mean_loss: float | None = None  # of what the selective metrics take: the share of errors, or a loss in [0, 1]
    # The rows themselves, for plots and reports; None where they never were in one place.
    source: RowData | None = field(default=None, repr=False, compare=False)
    run: Result | None = field(default=None, repr=False, compare=False)  # what it cost, from an engine
    classes: tuple[str, ...] = field(default=(), repr=False)  # as they were found; none without a model's output
    provenance: dict[str, Any] | None = field(default=None, repr=False, compare=False)  # files, columns, command, seed
    created_with: dict[str, str] | None = field(
        default=None, repr=False, compare=False
    )  # versions, where it was stored

    # ---- look-up ----

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores."""
        return tuple(self.tie_rate)

    @property
    def distinct(self) -> tuple[str, ...]:
        """Names of the scores, one of each ranking."""
        return tuple(one_of_each(self.scores, self.same_ranking or ()))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return self.rows.metrics

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return self.rows.groups

    def __getitem__(self, key: str | tuple[str | None, ...]) -> Estimate:
        """``ev["entropy", "uq_auc"]``, ``ev["entropy", "uq_auc", "group"]``, or ``ev["accuracy"]`` of the model."""
        parts = key if isinstance(key, tuple) else (None, key)
        score, metric, group = (*parts, None)[:3] if 2 <= len(parts) <= 3 else (None, None, None)
        group = None if group is None else str(group)
        if score is None or score in self.scores:
            for name in (score, None):  # a metric of the model is the same whatever the score
                if (found := self.rows.find(name, metric, group)) is not None:
                    return found
        raise InputError(
            f"There is no estimate {key!r}. Scores: {', '.join(self.scores)}. Metrics: {', '.join(self.metrics)}."
            + (f" Groups: {', '.join(self.groups)}." if self.groups else "")
        )

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def best(self, metric: str, group: str | None = None) -> tuple[str, ...]:
        """The scores with the best value of a metric (several where they tie; none where all are undefined)."""
        return self._best_of(self.scores, metric, group)

    def _best_of(self, names: tuple[str, ...], metric: str, group: str | None) -> tuple[str, ...]:
        found = {name: self.rows.find(name, metric, group) for name in names}
        values = {name: e.value for name, e in found.items() if e is not None and not math.isnan(e.value)}
        if not values:
            return ()
        top = max(values.values()) if REGISTRY[metric].direction == "higher" else min(values.values())
        return tuple(name for name, value in values.items() if value == top)

    def leader(self, metric: str) -> str | None:
        """The score with the best value of a metric, one of `distinct`; None where all are undefined."""
        return next(iter(self._best_of(self.distinct, metric, None)), None)

    # ---- data ----

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape (`schema_version` inside)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "n": self.n,
            "n_errors": self.n_errors,
            "accuracy": self.accuracy,
            "mean_loss": self.mean_loss,
            "tie_rate": dict(self.tie_rate),
            "same_ranking": None if self.same_ranking is None else [list(group) for group in self.same_ranking],
            "estimates": [
                {"score": row.score, "metric": row.metric, "group": row.group, "target": self.targets.get(row.metric)}
                | {name: getattr(row.estimate, name) for name in ESTIMATE}
                | {"undefined": row.estimate.undefined, "warnings": list(row.estimate.warnings)}
                for row in self.rows
            ],
            "wrong_way_round": [{"score": score, "metrics": names} for score, names in self.wrong_way().items()],
            "heterogeneity": [dict(vars(test)) for test in self.heterogeneity],
            "detectable_difference": self.detectable(),
            "warnings": list(self.warnings),
            "versions": versions() if self.created_with is None else self.created_with,
            "classes": list(self.classes),
            "level": self.level,
            "two_targets": self.two_targets,
            **({} if self.run is None else {"run": self.run.to_dict()}),
            **({} if self.provenance is None else {"provenance": self.provenance}),
        }

    @classmethod
    def from_json(cls, text: str | Path) -> Evaluation:
        """What `to_json` wrote: its text, or a path. The rows are not stored, so that charts of them are refused.

        Examples
        --------
        >>> import uqeval as uq
        >>> ev = uq.evaluate(score=[0.9, 0.2, 0.8, 0.1], error=[1, 0, 0, 0], metrics="accuracy")
        >>> Evaluation.from_json(ev.to_json())["accuracy"].value
        0.75
        """
        from uqeval.evaluation.stored import stored_evaluation  # few read what was stored

        return cls(**stored_evaluation(text))

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row per estimate."""
        return [row | {"warnings": "; ".join(row["warnings"])} for row in self.to_dict()["estimates"]]

    def log(self, to: Any, step: int | None = None, prefix: str = "") -> None:
        """Hands value, low and high of all estimates to whatever keeps them, as ``<prefix>entropy/uq_auc_low``.

        `to`: a TensorBoard writer, the module `mlflow`, a logger with `log_metrics` or `log`, or a function of a dict.
        """
        from uqeval.evaluation.log import named_numbers, send  # few keep them elsewhere

        send(named_numbers(self, prefix), to, step)

    # ---- print ----

    def panels(self, width: int = 3) -> list[Panel]:
        """Tables of at most `width` columns: metrics of all rows, then the first metric by group (at most 20)."""
        ranking = [name for name in self.metrics if REGISTRY[name].uses_score]
        whole = [(self.heading(name), name, None) for name in ranking]
        found = [Panel(None, tuple(whole[at : at + width])) for at in range(0, len(whole), width)]
        groups = [(group, ranking[0], group) for group in self.groups[:_MOST_GROUPS]] if ranking else []
        for at in range(0, len(groups), width):
            found.append(Panel(f"{self.heading(ranking[0])} by group", tuple(groups[at : at + width])))
        return found

    def group_counts(self) -> Grid | None:
        """Rows, errors and clusters of each group (at most 20)."""
        return self.rows.counts_grid(self.groups[:_MOST_GROUPS])

    def heading(self, metric: str) -> str:
        """Title with the direction that is better; and which it used, where there are errors and a loss."""
        of = self.targets.get(metric) if self.two_targets else None
        return heading(metric) + (f" ({of})" if of else "")

    def cells(self, panel: Panel) -> Iterator[tuple[str, list[tuple[str, bool]]]]:
        """Score by score: its name, and for each column the text and whether it is the best of the column."""
        several = len(self.distinct) > 1
        best = {column: self.best(*column[1:]) if several else () for column in panel.columns}
        for name in self.scores:
            found = [self.rows.find(name, *column[1:]) for column in panel.columns]
            cells = ["" if e is None else e.cell for e in found]
            yield name, [(text, name in best[column]) for text, column in zip(cells, panel.columns, strict=True)]

    def headline(self) -> str:
        """Rows, errors, accuracy."""
        text = f"{self.n:,} rows"
        if self.n_errors is not None and self.accuracy is not None:
            text += f", {self.n_errors:,} errors, accuracy {self.accuracy:.3f}"
        return f"{text}; {100 * self.level:.6g}% intervals"

    def classes_line(self) -> str | None:
        """The classes that were found: a pattern may take a column for one that it is not."""
        return f"{len(self.classes)} classes: {listed(self.classes)}" if self.classes else None

    def too_few(self) -> str | None:
        """The row that says that nothing can be ranked, where that is so."""
        if self.n_errors is None:
            return None
        right = self.n - self.n_errors
        if min(self.n_errors, right) >= _LEAST_ERRORS:
            return None
        which, count = ("errors", self.n_errors) if self.n_errors <= right else ("right rows", right)
        return (
            f"Too few {which} ({count}) to rank scores by them: an interval that wide tells little. "
            f"Collect at least {_LEAST_ERRORS}, better 50 or more."
        )

    def verdict(self) -> list[str]:
        """Plain words: how far to trust which score."""
        known = {
            row.score: row.estimate
            for row in self.rows.whole
            if row.metric == "uq_auc" and row.score in self.distinct and not math.isnan(row.estimate.value)
        }
        lines = []
        if (name := self.leader("uq_auc")) is not None:
            e = known[name]
            if e.low > 0.5:
                lines.append(
                    f"{name} ranks errors best: UQ-AUC {e}. Of a wrong and a right prediction it puts the "
                    f"wrong one higher {e.value:.0%} of the time."
                )
        useless = [str(name) for name, e in known.items() if e.low <= 0.5 <= e.high]
        if useless:
            lines.append(f"Not shown to rank errors better than chance (interval holds 0.5): {', '.join(useless)}.")
        return lines + [
            f"{score} looks the wrong way round: {', '.join(REGISTRY[name].title for name in metrics)} "
            f"{'are' if len(metrics) > 1 else 'is'} worse than by chance. A score must be high where the model is less "
            "sure, an error 1 where it is wrong, a loss high where it is bad. What is high where it is right or good "
            "goes in as `correct` or `quality`."
            for score, metrics in self.wrong_way().items()
        ]

    def undefined(self, *, groups: bool = True) -> list[tuple[Row, str]]:
        """Estimates of all rows, and of groups, that have no value, and why."""
        rows = self.rows if groups else self.rows.whole
        return [(row, why) for row in rows if (why := row.estimate.undefined) is not None]

    def undefined_lines(self, *, groups: bool = True) -> list[str]:
        """The same in words: metrics by reason, of all rows and, where only some lack them, of groups."""
        said: dict[tuple[str, bool], dict[str, None]] = {}
        found = self.undefined(groups=groups)
        whole = {(row.score, row.metric) for row, _ in found if row.group is None}
        for row, why in found:
            if row.group is None or (row.score, row.metric) not in whole:
                said.setdefault((why, row.group is not None), {})[REGISTRY[row.metric].title] = None
        return [
            f"{', '.join(titles)} {'has' if len(titles) == 1 else 'have'} no value{' in some groups' * inside}: {why}"
            for (why, inside), titles in said.items()
        ]

    def wrong_way(self) -> dict[str, list[str]]:
        """Of each score that looks the wrong way round: the metrics whose whole interval is worse than by chance."""
        found: dict[str, list[str]] = {}
        for row in self.rows.whole:
            known = REGISTRY[row.metric]
            rate = None if self.accuracy is None else 1 - self.accuracy
            useless = known.useless(self.mean_loss if known.losses else rate) if row.score in self.distinct else None
            if row.score is None or useless is None:
                continue
            e, higher = row.estimate, known.direction == "higher"
            if e.high < useless if higher else e.low > useless:
                found.setdefault(row.score, []).append(row.metric)
        return found

    def detectable(self, power: float = 0.8) -> float | None:
        """The smallest difference in UQ-AUC between two scores that this test set can show, with that power.

        For scores whose influence values correlate 0.5, the best score's standard error taken for both; None
        without UQ-AUC. `compare` gives the standard error of an actual pair.
        """
        if (name := self.leader("uq_auc")) is not None and (best := self[name, "uq_auc"]).se > 0:
            return detectable_difference(best.n, sd=best.se * math.sqrt(best.n), power=power, level=self.level)
        return None

    def detectable_line(self) -> str | None:
        """The same in words."""
        least = self.detectable()
        if least is None:
            return None
        return f"Scores closer than about {number(least)} in UQ-AUC cannot be told apart on this test set (80% power)."

    def mixed_lines(self) -> list[str]:
        """Scores whose first metric differs between groups."""
        first = next((name for name in self.metrics if REGISTRY[name].uses_score), None)
        return [
            f"{test.score}: {REGISTRY[test.metric].title} differs between groups (p = {test.p:.4f}"
            + (f"; {test.left_out} of {test.left_out + test.df + 1} groups left out)" if test.left_out else ")")
            for test in self.heterogeneity
            if test.metric == first and test.p <= 1 - self.level
        ]

    def model_lines(self, group: str | None = None) -> list[tuple[str, Estimate]]:
        """The metrics of the model itself, which are the same for every score."""
        return [(REGISTRY[row.metric].title, row.estimate) for row in self.rows.of_group(group) if row.score is None]

    def same_numbers(self) -> list[str]:
        """Columns that are one number in other clothes: see `docs/theory/beyond.md`."""
        shown = set(self.metrics)
        of_two = [text for pair, text in _CLOTHES.items() if shown.issuperset(pair)]
        if "uq_auc" in shown and (told := [REGISTRY[name].title for name in ("augrc", "h_auc") if name in shown]):
            of_two.append(f"{' and '.join(told)} follow{'s' * (len(told) == 1)} from UQ-AUC and the accuracy")
        both = ("top_label_c_index", "uq_c_index")
        # Without errors they are equal for any number of classes.
        alike = shown.issuperset(both) and all(self[s, both[0]].value == self[s, both[1]].value for s in self.scores)
        if alike and self.n_errors:
            of_two.append("with two classes, top-label C-index = UQ-C-index")
        lines = [f"The same number in other clothes: {'; '.join(of_two)}."] if of_two else []
        for metric in both:
            if names := [name for name in self.scores if self._follows(name, metric)]:
                who = "every score" if len(names) == len(self.scores) > 1 else ", ".join(names)
                lines.append(
                    f"{REGISTRY[metric].title} of {who} = 1 − 2·AUGRC (over pairs of rows), so that UQ-AUC and the "
                    f"accuracy give it too: the score falls with the confidence."
                )
        return lines

    def _follows(self, score: str, metric: str) -> bool:
        """Whether the C-index is what UQ-AUC and the errors alone make of it, as where the score falls with c."""
        c, auc = (self.rows.find(score, name) for name in (metric, "uq_auc"))
        weighted = self.source is not None and self.source.weights is not None
        if c is None or auc is None or not self.n_errors or weighted:
            return False
        n, wrong = self.n, self.n_errors
        own = 1 - (2 * (n - wrong) * wrong * (1 - auc.value) + wrong * (wrong - 1)) / (n * (n - 1))
        return abs(c.value - own) < 1e-12

    def tie_notes(self) -> list[str]:
        """Scores that are one ranking, and tie rates above 1%."""
        return copies_notes(self.same_ranking or ()) + [
            f"{name}: {rate:.1%} of the pairs of rows have the same score"
            for name in self.distinct
            if (rate := self.tie_rate[name]) > 0.01
        ]

    def view(self) -> Iterator[str | Grid]:
        """Headline, verdict, tables, the model itself, what to beware of."""
        yield self.headline()
        if classes := self.classes_line():
            yield classes
        if few := self.too_few():
            yield f"! {few}"
        yield from self.verdict()
        for panel in self.panels():
            cells = [(name, *(f"{text} *" if top else text for text, top in row)) for name, row in self.cells(panel)]
            yield ""
            yield Grid(("score", *(title for title, _, _ in panel.columns)), cells, panel.title)
        if (counts := self.group_counts()) is not None:
            yield from ("", counts)
        if (hidden := len(self.groups) - _MOST_GROUPS) > 0:
            yield f"… and {hidden} more groups (see to_frame())"
        if model := self.model_lines():
            yield "\nthe model itself:"
            yield from (f"  {title:<16}{estimate}" for title, estimate in model)
        if detectable := self.detectable_line():
            yield f"\n{detectable}"
        yield "\n* best score of the column; higher ↑ or lower ↓ is better"
        yield from self.same_numbers()
        yield from (f"! {note}" for note in (*self.mixed_lines(), *self.tie_notes(), *self.warnings))

    def __str__(self) -> str:
        return as_text(self.view())

    def _repr_html_(self) -> str:
        """The same in a notebook: the verdict stands out, and the model's metrics are a table."""
        model = [(title, str(estimate)) for title, estimate in self.model_lines()]
        lines = [f"  {title:<16}{estimate}" for title, estimate in model]
        parts = [part for part in self.view() if part not in lines]
        parts = [part.replace("* best", "Bold: best") if isinstance(part, str) else part for part in parts]
        if model:
            at = parts.index("\nthe model itself:")
            parts[at] = Grid(("metric", "value (interval)"), model, "the model itself")
        return as_html(parts, strong=self.verdict())


def heading(metric: str) -> str:
    """Title with the direction that is better."""
    known = REGISTRY[metric]
    return f"{known.title} {'↑' if known.direction == 'higher' else '↓'}"
