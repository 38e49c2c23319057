"""The synthetic study over draws of its data: its tables, its figures and its page."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from uqeval._check import Progress
from uqeval._result import Grid, csv_text
from uqeval.reproduce.names import FOUR, HEADS, MAIN, TITLES, TRUTHS, Row
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import Makers, Page, setting, span
from uqeval.reproduce.study import Study, median_cell, percent_cell, summarise
from uqeval.reproduce.synthetic import by_method, figures, verdicts
from uqeval.reproduce.synthetic.temperature import temperature

_TABLE = read_table("words.toml")
_WORDS = _TABLE["synthetic"]
_PAPER_ECE = {"kendall_phi": 0.0009, "kendall_varphi": -0.1057}  # the paper's appendix on calibration
_NO_SIZES = ("name", "title", "scores")


@dataclass(frozen=True)
class SyntheticStudy(Study):
    """The synthetic study over draws of its data.

    Its correlations are of draws whose d is in a range; `any_d` has those of the first seeds, whatever their d,
    `within` those among the scores of one kind, `by_method` those among the scores of one method. `by_score` has
    medians over the models of each method with each of its scores.
    """

    any_d: list[Row] = field(default_factory=list, repr=False, kw_only=True)
    within: list[Row] = field(default_factory=list, repr=False, kw_only=True)
    by_method: list[Row] = field(default_factory=list, repr=False, kw_only=True)
    by_score: list[Row] = field(default_factory=list, repr=False, kw_only=True)

    @property
    def shown_draw(self) -> int:
        """The draw whose d is the median: the one that the scatter plots show."""
        d = {int(seed): value for seed, value in self.settings["d"].items()}
        return sorted(d, key=lambda seed: (d[seed], seed))[(len(d) - 1) // 2]

    @property
    def printed(self) -> list[Row]:
        """What the paper prints: its table, and ECE from its appendix."""
        ece = [{"metric": "ece", "truth": truth, "r": r} for truth, r in _PAPER_ECE.items()]
        return [*self.paper, *(ece if self.paper else ())]

    def grid(self) -> Grid:
        """Median and range over draws of each correlation, the paper's number above ours."""

        def ours(metric: str, truth: str) -> str:
            return median_cell(self.summary, metric, truth)

        found = self.table_rows(figures.PAPER, ours, self.printed)
        first, *others = _WORDS["below"]
        rows, notes = [*found.rows], [first if self.paper else _WORDS["without_paper"], *others]
        if self.any_d:
            whole = summarise(self.any_d)
            for metric in MAIN:
                at = next(k for k, row in enumerate(rows) if row[0] == TITLES[metric])
                cells = [median_cell(whole, metric, truth) for truth in TRUTHS]
                rows.insert(at + 1, [f"{TITLES[metric]}, any d", *cells])
            notes.append(verdicts.selection(self.settings))
        return found._replace(rows=rows, caption=_WORDS["caption"], notes=notes)

    def method_grids(self) -> list[Grid]:
        """Method by method: the correlations among its scores, and how its scores order inputs."""
        return [by_method.correlations_grid(self, self.by_method), by_method.scores_grid(self, self.by_score)]

    def files(self) -> dict[str, str]:
        """What its files are called, and what is in them; correlations of draws of any d, and of some scores, too."""
        more = {"any_d.csv": self.any_d, "within.csv": self.within}
        more |= {"by_method.csv": self.by_method, "by_score.csv": self.by_score}
        return super().files() | {name: csv_text(rows) for name, rows in more.items() if rows}

    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws each figure, by name."""
        with self.timing.stage("temperature", progress):
            scaled = temperature()
        methods = {"methods_and_truths": lambda: by_method.methods_and_truths(self, self.by_score)}
        return {**methods, **figures.makers(self, self.shown_draw, self.printed, self.any_d), **scaled.figures()}

    def page(self) -> Page:
        """What its page says."""
        grid, d, draws = self.settings["grid"], self.settings["d"], self.settings["draws"]
        training = {name.replace("_", " "): setting(value) for name, value in grid["training"].items()}
        settings = [
            ("draws of the data", ", ".join(f"{seed} (d = {d[str(seed)]:.2f})" for seed in draws)),
            ("data", ", ".join(f"{name} = {setting(value)}" for name, value in grid["data"].items())),
            ("training", "; ".join(f"{name}: {value}" for name, value in training.items())),
        ]
        for method in self.settings["methods"]:
            words = [f"{key.replace('_', ' ')}: {setting(method[key])}" for key in method if key not in _NO_SIZES]
            words.append("scores: " + ", ".join(method["scores"]).replace("_", " "))
            settings.append((method.get("title", method["name"]), "; ".join(words)))
        return Page(
            title="The paper's synthetic study, reproduced",
            lead=_WORDS["lead"].format(count=len(self.models) // len(draws)),
            facts=[
                ("draws of the data", str(len(draws))),
                ("scored models", f"{len(self.models):,}"),
                ("d, the distance of the means", span([d[str(seed)] for seed in draws], "{:.2f}")),
            ],
            short=[
                *verdicts.verdicts(self).items(),
                ("With any d", verdicts.with_any_d(self.any_d, self.settings)),
                ("Among scores of one kind", verdicts.among_one_kind(self.within)),
                ("Between methods", by_method.agreement(self, self.by_score)),
            ],
            tables=[self.grid(), _within(self.within), *self.method_grids(), _by_draw(self)],
            notes=self.notes,
            settings=settings,
            texts=_WORDS["figures"]
            | _TABLE["temperature"]["figures"]
            | verdicts.captions(self, self.any_d, self.shown_draw),
            shown=4,
        )


def _within(within: Sequence[Row]) -> Grid:
    """A line for each kind of scores."""
    rows = []
    for kind in dict.fromkeys(row["scores"] for row in within):
        part = [row for row in within if row["scores"] == kind]
        found = summarise(part)
        rows.append([kind, f"{max(row['n'] for row in part)}", *(median_cell(found, *pair) for pair in FOUR)])
    return Grid(["scores", "a draw", *HEADS], rows, "Among scores of one kind alone", [_WORDS["within"]])


def _by_draw(study: Study) -> Grid:
    cells = {(row["draw"], row["metric"], row["truth"]): percent_cell(row) for row in study.correlations}
    d = study.settings["d"]
    rows = [
        [str(draw), f"{d[str(draw)]:.2f}", *(cells[draw, metric, truth] for metric, truth in FOUR)]
        for draw in sorted(study.settings["draws"], key=lambda seed: d[str(seed)])
    ]
    return Grid(["draw", "d", *HEADS], rows, "Draw by draw", [_WORDS["by_draw"]])
