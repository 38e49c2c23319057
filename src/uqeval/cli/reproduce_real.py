"""`uqeval reproduce cifar10h`, `imagenet-real` and `oasst2`: the paper's studies on real data.

Predictions come from folders of logits, from models that are run here, or from both; then one study judges them all.
"""

from __future__ import annotations

import json as codec
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from uqeval._errors import InputError, MissingExtra
from uqeval._result import number, strict
from uqeval.cli import options as o
from uqeval.cli.output import stderr, stdout, write_json
from uqeval.cli.reproduce_parts import Clock, Out, make_folder, print_end, print_table, print_verdicts, resumable
from uqeval.report.words import plural

__all__ = ["cifar10h", "imagenet_real", "oasst2"]

Predictions = Annotated[
    list[Path] | None,
    typer.Option(help="Folder or file of logits (.npy, .npz); may be given several times.", metavar="PATH"),
]
Data = Annotated[Path | None, typer.Option(help="Folder of the dataset; UQEVAL_DATA by default.", metavar="DIR")]
Device = Annotated[str, typer.Option(help="Where models run: auto, cpu or cuda.")]
Scores = Annotated[list[str] | None, typer.Option(help="Scores to judge, by comma; all by default.")]
Floor = Annotated[float, typer.Option(help="Leave less accurate models out of the correlations.", min=0, max=1)]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="List predictions that cannot be used, and go on.")]
Chance = Annotated[
    bool, typer.Option("--allow-chance", help="Take models that are right no more often than shuffled rows.")
]
Jobs = Annotated[int | None, typer.Option(help="Models judged at once; 4 small or 1 large by default.", min=1)]
Seed = Annotated[int, typer.Option(help="For models that are trained.", min=0)]
Weights = Annotated[
    Path | None, typer.Option(help="Folder of files of weights, for machines without network.", metavar="DIR")
]

_MOST_LINES = 30
_FEWEST_IN_SAMPLE = 2  # messages that a model must support in a dry run
Study = Callable[..., Any]  # (predictions, progress) → RealStudy


def cifar10h(
    predictions: Predictions = None,
    out: Out = Path("uqeval-cifar10h"),
    data: Data = None,
    backbones: Annotated[
        list[str] | None,
        typer.Option(help="Train linear probes on these networks: names by comma, paper, or all.", metavar="NAMES"),
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Train a zoo of networks from scratch.")] = False,
    zoo: Annotated[str, typer.Option(help="What --train trains: default, tiny, or names by comma.")] = "default",
    images: Annotated[
        Path | None,
        typer.Option(help="CIFAR-10 images with their labels, where they are not in the data folder.", metavar="PATH"),
    ] = None,
    image_size: Annotated[int, typer.Option(help="Pixels that the backbones get.", min=16)] = 224,
    weights: Weights = None,
    device: Device = "auto",
    seed: Seed = 0,
    scores: Scores = None,
    level: o.Level = 0.95,
    min_accuracy: Floor = 0.0,
    keep_going: KeepGoing = False,
    allow_chance: Chance = False,
    jobs: Jobs = None,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """CIFAR10-H: do UQ-AUC and UQ-C-index rank models as people's votes on 10,000 images do?

    Writes table.json, .csv and .md, models.csv, figures and index.html. Run the same command again to go on after a
    stop.

    Example:  uqeval reproduce cifar10h --predictions zoo/ --out study
    """
    names = o.listed(backbones)
    _some_way(
        predictions, names, train, "--backbones NAMES|paper|all (linear probes)", "--train (networks from scratch)"
    )
    if names or train:
        _needs("uqeval reproduce cifar10h --train/--backbones", "torch", "reproduce")
    run = _Run(out, predictions, quiet, json)
    from uqeval import datasets
    from uqeval import reproduce as library

    with run.going():
        chosen = o.listed(scores)
        run.check(chosen, level, keep_going)
        where = None if device == "auto" else device
        test = datasets.cifar10_images("test", source=images, data=data) if names or train or images else None
        votes = datasets.cifar10h(data, labels=None if test is None else test[1])
        if names and test is not None:
            from uqeval.reproduce.models.vision.probe import probe_backbones

            with run.clock.stage("linear probes") as progress:
                wanted = names[0] if names in (["paper"], ["all"]) else names
                run.made(
                    probe_backbones(
                        wanted,
                        *test,
                        run.folder,
                        image_size=image_size,
                        weights=weights or "DEFAULT",
                        device=where,
                        seed=seed,
                        progress=progress,
                        keep_going=keep_going,
                        failures=run.failures,
                    )
                )
        if train and test is not None:
            from uqeval.reproduce.models.vision.zoo import train_zoo

            with run.clock.stage("training") as progress:
                first = datasets.cifar10_images("train", source=images, data=data)
                run.made(train_zoo(first, test, run.folder, models=zoo, device=where, seed=seed, progress=progress))
        options = {"data": votes, "scores": chosen, "level": level, "min_accuracy": min_accuracy}
        more = {"keep_going": keep_going, "allow_chance": allow_chance, "jobs": jobs}
        run.study(library.cifar10h, options | more)
    run.show()


def imagenet_real(
    predictions: Predictions = None,
    out: Out = Path("uqeval-imagenet-real"),
    data: Data = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the validation images, for --models.", metavar="DIR")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="Run these classifiers of torchvision: names by comma, or paper.", metavar="NAMES"),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="The images' original labels: .npy, or a class index per line.", metavar="FILE")
    ] = None,
    weights: Weights = None,
    device: Device = "auto",
    batch_size: Annotated[int, typer.Option(help="Images at once.", min=1)] = 64,
    scores: Scores = None,
    level: o.Level = 0.95,
    min_accuracy: Floor = 0.0,
    keep_going: KeepGoing = False,
    allow_chance: Chance = False,
    jobs: Jobs = None,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """ReaL-ImageNet: do UQ-AUC and UQ-C-index rank classifiers as people's judgements of 50,000 images do?

    Writes table.json, .csv and .md, models.csv, figures and index.html. Run the same command again to go on after a
    stop. Logits are read piece by piece, one model of this size at a time, so that many fit.

    Example:  uqeval reproduce imagenet-real --predictions logits/ --labels val.npy --out study
    """
    names = o.listed(models)
    _some_way(predictions, names, False, "--models NAMES|paper with --images DIR (classifiers of torchvision)")
    if names and images is None:
        raise InputError("--models needs --images DIR, the folder of the ImageNet validation images.")
    if names:
        _needs("uqeval reproduce imagenet-real --models", "torch", "reproduce")
    run = _Run(out, predictions, quiet, json)
    from uqeval import datasets
    from uqeval import reproduce as library
    from uqeval.reproduce.human.imagenet_real import labels_beside, read_labels

    with run.going():
        chosen = o.listed(scores)
        run.check(chosen, level, keep_going)
        real = datasets.imagenet_real(data)
        given = labels or labels_beside(run.paths)
        own = None if given is None else read_labels(given)
        if names and images is not None:
            from uqeval.reproduce.models.vision.classify import classify_folder, find_images

            own = find_images(images).labels if own is None else own
            with run.clock.stage("classification") as progress:
                where = None if device == "auto" else device
                wanted = names[0] if names in (["paper"], ["all"]) else names
                run.made(
                    classify_folder(
                        wanted,
                        images,
                        run.folder,
                        batch_size=batch_size,
                        labels=own,
                        data=data,
                        weights=weights or "DEFAULT",
                        device=where,
                        progress=progress,
                        keep_going=keep_going,
                        failures=run.failures,
                    )
                )
        options = {"data": real, "scores": chosen, "level": level, "min_accuracy": min_accuracy}
        more = {"keep_going": keep_going, "allow_chance": allow_chance, "jobs": jobs, "labels": own}
        run.study(library.imagenet_real, options | more)
    run.show()


def oasst2(
    predictions: Predictions = None,
    out: Out = Path("uqeval-oasst2"),
    data: Data = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="Run these zero-shot classifiers: names or folders by comma, or paper.", metavar="NAMES"),
    ] = None,
    languages: Annotated[
        list[str] | None, typer.Option(help="Messages in these languages only, by comma.", metavar="CODES")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(help="A dry run on so many generated messages instead of the data.", min=20)
    ] = None,
    device: Device = "auto",
    batch_size: Annotated[int, typer.Option(help="Texts at once.", min=1)] = 32,
    scores: Scores = None,
    level: o.Level = 0.95,
    min_accuracy: Floor = 0.0,
    keep_going: KeepGoing = False,
    allow_chance: Chance = False,
    jobs: Jobs = None,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """OASST2: do UQ-AUC and UQ-C-index rank zero-shot text classifiers as people's votes on messages do?

    Writes table.json, .csv and .md, models.csv, figures and index.html. Run the same command again to go on after a
    stop.

    Example:  uqeval reproduce oasst2 --models facebook/bart-large-mnli,intfloat/multilingual-e5-base --out study
    """
    names = o.listed(models)
    _some_way(predictions, names, False, "--models NAMES|paper (zero-shot classifiers)")
    if names:
        _needs("uqeval reproduce oasst2 --models", "transformers", "text")
    run = _Run(out, predictions, quiet, json)
    from uqeval import datasets
    from uqeval import reproduce as library

    with run.going():
        run.check(o.listed(scores), level, keep_going)
        chosen = o.listed(languages)
        messages = datasets.oasst2_sample(sample) if sample else datasets.oasst2(data, languages=chosen)
        if sample and chosen:
            messages = messages.only(chosen)
        if names:
            from uqeval.reproduce.models.text.zeroshot import classify_messages

            with run.clock.stage("zero-shot classification") as progress:
                where = None if device == "auto" else device
                wanted = names[0] if names == ["paper"] else names
                run.made(
                    classify_messages(
                        wanted,
                        messages,
                        run.folder,
                        batch_size=batch_size,
                        device=where,
                        progress=progress,
                        keep_going=keep_going,
                        failures=run.failures,
                        min_rows=_FEWEST_IN_SAMPLE if sample else 50,
                    )
                )
        options = {"data": messages, "scores": o.listed(scores), "level": level, "min_accuracy": min_accuracy}
        more = {"keep_going": keep_going, "allow_chance": allow_chance, "jobs": jobs}
        run.study(library.oasst2, options | more)
    run.show()


# ---- parts -----------------------------------------------------------------------------------------------------


class _Run:
    """One command: its stages, what it has made, and what it shows."""

    def __init__(self, out: Path, predictions: list[Path] | None, quiet: bool, json: str | None) -> None:
        self.out, self.json, self.quiet = out, json, quiet
        self.paths = list(predictions or [])
        self.folder = out / "predictions"  # where models write their logits
        self.failures: list[dict[str, str]] = []  # models that could not be made
        self.clock = Clock(quiet or json == "-")
        make_folder(out)
        self.going = resumable

    def check(self, scores: list[str] | None, level: float, keep_going: bool) -> None:
        """What can be known to be wrong before a model runs for hours."""
        from uqeval._check import check_level
        from uqeval.reproduce.human.judging import scores_of
        from uqeval.reproduce.logits.folder import scan_predictions

        check_level(level)
        scores_of("single", scores)
        if self.paths:
            scan = scan_predictions(self.paths)
            if scan.failed and not keep_going:
                raise InputError(scan.failed[0][1])

    def made(self, names: list[str]) -> None:
        """Models that are in the folder now; those of other runs there are left alone."""
        from uqeval.reproduce.logits.writer import file_name

        self.paths += [self.folder / f"{file_name(name)}.npy" for name in names]

    def study(self, function: Study, options: dict[str, Any]) -> None:
        """Judges all predictions; tables, figures, page."""
        from uqeval.reproduce import page, panels
        from uqeval.reproduce.human import figures as real_figures
        from uqeval.reproduce.human import page as real_page

        with self.clock.stage("scoring", resumes=True) as progress:
            self.found = function(self.paths, out=self.out, progress=progress, failures=self.failures, **options)
        with self.clock.stage("figures"):
            drawn = panels.save(real_figures.draw(self.found), self.out)
        with self.clock.stage("page"):
            text = real_page.real_page(self.found, drawn, self.clock.spent, self.clock.remark())
            self.page = page.write_page(text, self.out)
        self.clock.write(self.out)

    def show(self) -> None:
        """The table, what reproduces, what could not be used, and where things are."""
        from uqeval.reproduce.human import page as real_page
        from uqeval.reproduce.human.tables import MAIN
        from uqeval.reproduce.study import TITLES, TRUTHS

        study = self.found
        if study.failures:
            console = stderr()
            console.print(Text(f"{plural(len(study.failures), 'prediction')} could not be used:", style="bold red"))
            for failure in study.failures:
                console.print(Text(f"- {failure['reason']}"), soft_wrap=True)
        if self.json is not None:
            write_json(codec.dumps(strict(study.to_dict()), indent=2), self.json)
        if self.json == "-" or self.quiet:
            return
        console = stdout()
        head = ["", *(f"with {TITLES[truth]}" for truth in TRUTHS)]
        rows = [([label, *cells], "dim italic" if paper else "") for label, cells, paper in study.table_rows()]
        words = f"Pearson correlations over {plural(study.settings['single_models'], 'single model')}, by entropy"
        print_table(console, words, head, rows)
        if not study.tests:  # too few for a correlation: the models themselves
            columns = ["accuracy", *MAIN, *TRUTHS]
            lines = [
                [row["model"], row["score"], *("–" if row[key] is None else number(row[key]) for key in columns)]
                for row in study.models
            ]
            titles = ["model", "score", *(TITLES.get(key, key) for key in columns)]
            print_table(console, "Models", titles, [(line, "") for line in lines[:_MOST_LINES]])
        good, weak, bad = real_page.verdicts(study)
        print_verdicts(console, good, bad, **{real_page.WEAK: weak})
        if drivers := real_page.drivers(study):
            console.print(Text("What drives the correlations", style="bold"))
            for sentence in drivers:
                console.print(Text(f"- {sentence}"))
        for item in study.ignored:
            console.print(Text(f"left aside: {item['file']} {item['reason']}", style="dim"), soft_wrap=True)
        tables = {"tables": self.out / "table.csv", "models": self.out / "models.csv"}
        print_end(console, self.clock, {"page": self.page, **tables, "figures": self.out / "figures"})


def _some_way(predictions: Any, names: Any, train: bool, *ways: str) -> None:
    if not (predictions or names or train):
        listed = ", or ".join(["--predictions PATH (a folder of logits)", *ways])
        raise InputError(f"There is nothing to judge. Pass {listed}.")


def _needs(what: str, package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise MissingExtra(what, package, extra)
