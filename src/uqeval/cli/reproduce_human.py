"""`uqeval reproduce cifar10h`, `imagenet-real` and `oasst2`: the paper's studies on real data.

Predictions come from folders of logits, from models that are run here, or from both; then one study judges them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

import uqeval
from uqeval._errors import InputError
from uqeval.cli import options as o
from uqeval.cli.output import stderr
from uqeval.cli.reproduce import Out, needs, reproduce, running, show

if TYPE_CHECKING:
    from uqeval._result import Grid

__all__ = ["reproduce"]

Weights = Annotated[Path | None, o.option("Folder of files of weights, for machines without network.", metavar="DIR")]

_MOST_LINES = 30
_FEWEST_IN_SAMPLE = 2  # messages that a model must support in a dry run


def _shared(
    predictions: Annotated[
        list[Path] | None,
        o.option("Folder or file of logits (.npy, .npz); may be given several times.", metavar="PATH"),
    ] = None,
    out: Out = Path(),
    data: Annotated[Path | None, o.option("Folder of the dataset; UQEVAL_DATA by default.", metavar="DIR")] = None,
    device: Annotated[str, o.option("Where models run: auto, cpu or cuda.")] = "auto",
    scores: Annotated[
        list[str] | None, o.option("Scores to judge, by comma or one by one; all by default.", "--scores", "--score")
    ] = None,
    level: o.Level = 0.95,
    min_accuracy: Annotated[float, o.option("Leave less accurate models out of the correlations.", min=0, max=1)] = 0.0,
    keep_going: Annotated[bool, o.option("List predictions that cannot be used, and go on.", "--keep-going")] = False,
    allow_chance: Annotated[
        bool, o.option("Take models that are right no more often than shuffled rows.", "--allow-chance")
    ] = False,
    jobs: Annotated[int | None, o.option("Models judged at once; 4 small or 1 large by default.", min=1)] = None,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """What the three commands share; a command adds options of its own behind the first three."""


class _Run(SimpleNamespace):
    """The shared options as a command gets them, and what it has made of models."""

    def some_way(self, given: Any, package: str, extra: str, *ways: str) -> None:
        """An error where there is nothing to judge, or where a package that runs models is not installed."""
        if given:
            needs(f"uqeval reproduce {self.name}", package, extra)
        elif not self.predictions:
            listed = ", or ".join(["--predictions PATH (a folder of logits)", *ways])
            raise InputError(f"There is nothing to judge. Pass {listed}.")

    @contextmanager
    def going(self) -> Iterator[None]:
        """The folder and the progress bar, once all that can be known before a model runs for hours is checked."""
        from uqeval._check import check_level  # NumPy, which --help need not wait for

        library = uqeval.reproduce  # loaded here, which takes a second
        with running(self.out, self.quiet, self.json) as self.progress:
            self.paths, self.timing = list(self.predictions or []), library.study.Timing()
            self.chosen = o.listed(self.scores)
            check_level(self.level)
            library.human.judging.scores_of("single", self.chosen)
            scan = library.logits.folder.scan_predictions(self.paths)
            if scan.failed and not self.keep_going:
                raise InputError(scan.failed[0][1])
            yield

    def make(self, stage: str, run: Callable[..., list[str]], /, *args: Any, **options: Any) -> None:
        """Runs models, which write their logits; those of other runs in the same folder are left alone."""
        folder, device = self.out / "predictions", None if self.device == "auto" else self.device
        with self.timing.stage(stage):
            names = run(*args, folder, device=device, progress=self.progress, **options)
        self.paths += [folder / f"{uqeval.reproduce.logits.writer.file_name(name)}.npy" for name in names]

    @property
    def leaving_out(self) -> dict[str, Any]:
        """What to do with models that cannot be used."""
        return {"keep_going": self.keep_going, "failures": self.failures}

    def judge(self, study: Callable[..., Any], **options: Any) -> Any:
        """The study of all predictions."""
        same = {key: getattr(self, key) for key in ("out", "level", "min_accuracy", "allow_chance", "jobs")}
        return study(
            self.paths,
            progress=self.progress,
            scores=self.chosen,
            before=self.timing.seconds,
            **same,
            **self.leaving_out,
            **options,
        )


def _command(own: Callable[..., Any]) -> Callable[..., Any]:
    """A command of `uqeval reproduce` with the shared options beside its own."""
    name = own.__name__.replace("_", "-")
    given = list(inspect.signature(own, eval_str=True).parameters.values())[1:]
    shared = dict(inspect.signature(_shared, eval_str=True).parameters)
    shared["out"] = shared["out"].replace(default=Path(f"uqeval-{name}"))
    first, *rest = list(shared.values())[:3], *list(shared.values())[3:]

    def command(**options: Any) -> None:
        run = _Run(name=name, failures=[], **{key: options.pop(key) for key in shared})
        study = own(run, **options)
        if study.failures:
            from uqeval.pages.words import plural  # NumPy, which --help need not wait for

            console = stderr()
            console.print(Text(f"{plural(len(study.failures), 'prediction')} could not be used:", style="bold red"))
            for failure in study.failures:
                console.print(Text(f"- {failure['reason']}"), soft_wrap=True)
        aside = [f"left aside: {item['file']} {item['reason']}" for item in study.ignored]
        show(study, run.out, run.quiet, run.json, *_models(study), *aside)

    command.__doc__ = own.__doc__
    command.__signature__ = inspect.Signature([*first, *given, *rest])  # type: ignore[attr-defined]
    reproduce.command(name)(command)
    return own


def _models(study: Any) -> Iterator[Grid]:
    """The models themselves, where they are too few for a correlation."""
    if not study.tests:
        from uqeval._result import Grid, number  # NumPy, which --help need not wait for

        names = uqeval.reproduce.names
        columns = ["accuracy", *names.MAIN, *names.TRUTHS]
        rows = [
            [row["model"], row["score"], *("–" if row[key] is None else number(row[key]) for key in columns)]
            for row in study.models[:_MOST_LINES]
        ]
        yield Grid(["model", "score", *(names.TITLES.get(key, key) for key in columns)], rows, "Models")


@_command
def cifar10h(
    run: _Run,
    backbones: Annotated[
        list[str] | None,
        o.option("Train linear probes on these networks: names by comma, paper, listed, or all.", metavar="NAMES"),
    ] = None,
    train: Annotated[bool, o.option("Train a zoo of networks from scratch.", "--train")] = False,
    zoo: Annotated[str, o.option("What --train trains: default, tiny, or names by comma.")] = "default",
    images: Annotated[
        Path | None,
        o.option("CIFAR-10 images with their labels, where they are not in the data folder.", metavar="PATH"),
    ] = None,
    image_size: Annotated[int, o.option("Pixels that the backbones get.", min=16)] = 224,
    weights: Weights = None,
    seed: Annotated[int, o.option("For models that are trained.", min=0)] = 0,
) -> Any:
    """CIFAR10-H: do UQ-AUC and UQ-C-index rank models as people's votes on 10,000 images do?

    Writes table.json, .csv and .md, models.csv, figures and index.html. Run the same command again to go on after a
    stop.

    Example:  uqeval reproduce cifar10h --predictions zoo/ --out study
    """
    ways = ("--backbones NAMES|paper|listed|all (linear probes)", "--train (networks from scratch)")
    run.some_way(backbones or train, "torch", "reproduce", *ways)
    with run.going():
        pictures = partial(uqeval.datasets.cifar10_images, source=images, data=run.data)
        test = pictures("test") if backbones or train or images else None
        votes = uqeval.datasets.cifar10h(run.data, labels=None if test is None else test[1])
        if backbones and test is not None:
            from uqeval.reproduce.models.vision.probe import probe_backbones  # torch is an extra

            options = {"image_size": image_size, "weights": weights or "DEFAULT", "seed": seed, **run.leaving_out}
            run.make("linear probes", probe_backbones, _wanted(backbones), *test, **options)
        if train and test is not None:
            from uqeval.reproduce.models.vision.zoo import train_zoo  # torch is an extra

            run.make("training", train_zoo, pictures("train"), test, models=zoo, seed=seed)
        return run.judge(uqeval.reproduce.cifar10h, data=votes)


@_command
def imagenet_real(
    run: _Run,
    images: Annotated[Path | None, o.option("Folder of the validation images, for --models.", metavar="DIR")] = None,
    models: Annotated[
        list[str] | None, o.option("Run these classifiers of torchvision: names by comma, or paper.", metavar="NAMES")
    ] = None,
    labels: Annotated[
        Path | None, o.option("The images' original labels: .npy, or a class index per line.", metavar="FILE")
    ] = None,
    weights: Weights = None,
    batch_size: Annotated[int, o.option("Images at once.", min=1)] = 64,
) -> Any:
    """ReaL-ImageNet: do UQ-AUC and UQ-C-index rank classifiers as people's judgements of 50,000 images do?

    Writes table.json, .csv and .md, models.csv, figures and index.html. Run the same command again to go on after a
    stop. Logits are read piece by piece, one model of this size at a time, so that many fit.

    Example:  uqeval reproduce imagenet-real --predictions logits/ --labels val.npy --out study
    """
    if models and images is None:
        raise InputError("--models needs --images DIR, the folder of the ImageNet validation images.")
    ways = "--models NAMES|paper with --images DIR (classifiers of torchvision)"
    run.some_way(models, "torch", "reproduce", ways)
    with run.going():
        real, reading = uqeval.datasets.imagenet_real(run.data), uqeval.reproduce.human.imagenet_real
        given = labels or reading.labels_beside(run.paths)
        own = None if given is None else reading.read_labels(given)
        if models and images is not None:
            from uqeval.reproduce.models.vision.classify import classify_folder, find_images  # torch is an extra

            own = find_images(images).labels if own is None else own
            options = {"labels": own, "data": run.data, "weights": weights or "DEFAULT", "batch_size": batch_size}
            run.make("classification", classify_folder, _wanted(models), images, **options, **run.leaving_out)
        return run.judge(uqeval.reproduce.imagenet_real, data=real, labels=own)


@_command
def oasst2(
    run: _Run,
    models: Annotated[
        list[str] | None,
        o.option("Run these zero-shot classifiers: names or folders by comma, or paper.", metavar="NAMES"),
    ] = None,
    languages: Annotated[
        list[str] | None, o.option("Messages in these languages only, by comma.", metavar="CODES")
    ] = None,
    sample: Annotated[
        int | None, o.option("A dry run on so many generated messages instead of the data.", min=20)
    ] = None,
    batch_size: Annotated[int, o.option("Texts at once.", min=1)] = 32,
) -> Any:
    """OASST2: do UQ-AUC and UQ-C-index rank zero-shot text classifiers as people's votes on messages do?

    Writes table.json, .csv and .md, models.csv, figures and index.html. Run the same command again to go on after a
    stop.

    Example:  uqeval reproduce oasst2 --models facebook/bart-large-mnli,intfloat/multilingual-e5-base --out study
    """
    run.some_way(models, "transformers", "text", "--models NAMES|paper (zero-shot classifiers)")
    with run.going():
        chosen, datasets = o.listed(languages), uqeval.datasets
        messages = datasets.oasst2_sample(sample) if sample else datasets.oasst2(run.data, languages=chosen)
        if sample and chosen:
            messages = messages.only(chosen)
        if models:
            from uqeval.reproduce.models.text.zeroshot import classify_messages  # transformers are an extra

            options = {"batch_size": batch_size, "min_rows": _FEWEST_IN_SAMPLE if sample else 50, **run.leaving_out}
            run.make("zero-shot classification", classify_messages, _wanted(models), messages, **options)
        return run.judge(uqeval.reproduce.oasst2, data=messages)


def _wanted(names: list[str]) -> str | list[str]:
    """Names by comma; one that stands for many, by itself."""
    found = o.listed(names) or []
    return found[0] if found in (["paper"], ["listed"], ["all"]) else found
