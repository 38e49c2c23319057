"""The paper's appendix on out-of-distribution inputs, run where what is foreign is known.

Which scores find it, does the AUROC of known against foreign rows follow the truth, and can a C-index of distances,
which needs no foreign row, stand in for it?

One cell is one architecture on one draw of the data, or the inputs of a draw; finished cells are stored, so a killed
run goes on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from uqeval import metrics, truth
from uqeval._check import Bit, Float, Progress
from uqeval._errors import InputError, collected
from uqeval.datasets.synthetic import Synthetic
from uqeval.inference.estimate import estimate, estimate_distance_c_index
from uqeval.inference.result import Estimate
from uqeval.kernels import cores
from uqeval.reproduce.names import Row
from uqeval.reproduce.ood.laws import KINDS, all_foreign, foreign_log_odds
from uqeval.reproduce.ood.study import OUTPUTS, OODStudy, correlate
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.store import Store, cell_key, processes, run_cells
from uqeval.reproduce.study import Timing, check_natural, stored
from uqeval.reproduce.synthetic.networks import Outputs, Plan, algorithms, draw_of, member_logits, read_grid, trained
from uqeval.scores import knn_distance, mahalanobis

_REVISION = 1  # raise it when a cell's numbers change: stored cells of another revision are computed anew
_OF_TWO = {"auroc": "ood_auroc", "fpr": "fpr_at_tpr", "aupr": "ood_aupr"}
INPUTS = "inputs"  # the cell of no network


def ood(
    out: str | Path | None = None,
    *,
    seeds: int = 20,
    grid: str | Path | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> OODStudy:
    """Judges scores of networks by known and foreign inputs of the synthetic data.

    Parameters
    ----------
    out : path, optional
        Folder for tables, figures and page, and for the store that lets a killed run go on; nothing is written without
        it.
    seeds : int
        How many draws of the data: the seeds 0, 1, 2, …, none left out.
    grid : path, optional
        Another grid (see ood.toml of this package).
    jobs : int, optional
        Processes; all cores by default. The numbers do not depend on it.
    progress : callable(stage, done, total), optional
        Called after every cell and after every figure.

    Returns
    -------
    OODStudy
        `models` has a row for each score of each network and kind of foreign inputs, with AUROC, FPR and AUPR and their
        intervals; `correlations` how what can be measured follows what is true, draw by draw.
    """
    draws, timing = list(range(check_natural("seeds", seeds, 1))), Timing()
    table = read_table("ood/ood.toml") if grid is None else read_grid(grid)
    _check_grid(table)
    same = {"study": "ood", "revision": _REVISION, "grid": table}
    cells = [(seed, k) for seed in draws for k in (INPUTS, *range(len(table["training"]["hidden"])))]
    keys = {cell: cell_key(same | {"cell": cell}) for cell in cells}
    with timing.stage("training and scoring", progress, resumes=True) as tell, Store(out) as store:
        work = partial(run_cell, table)
        found = dict(run_cells(store, keys, work, processes, cores() if jobs is None else jobs, tell))
    models = [row for cell in cells for row in found[cell]]
    settings = {"grid": table, "draws": draws, "d": {str(seed): draw_of(table, seed).d for seed in draws}}
    return OODStudy(settings=settings, models=models, correlations=correlate(models, draws), timing=timing).published(
        out, progress
    )


def _check_grid(table: dict[str, Any]) -> None:
    if (table["data"].get("classes", 2), table["data"].get("dim", 2)) != (2, 2):
        raise InputError("`grid` must have two classes and two coordinates: foreign inputs are placed around those.")
    if missing := [name for name in ("features", "foreign") if name not in table]:
        raise InputError(f"`grid` has no [{missing[0]}]. Start from the ood.toml of this package.")
    names = [method["name"] for method in table["methods"]]
    if strange := [name for name in names if name not in OUTPUTS]:
        raise InputError(f'`grid` has the method "{strange[0]}". Methods of this study: {", ".join(OUTPUTS)}.')


def run_cell(grid: dict[str, Any], cell: tuple[int, int | str]) -> list[Row]:
    """Judges all scores of one architecture, or those of the inputs and the truth, on one draw."""
    seed, architecture = cell
    scene = Scene(grid, seed)
    with collected():  # tied top classes of saturated members, constant scores
        if isinstance(architecture, str):
            return list(of_inputs(scene))
        return list(of_networks(scene, algorithms(grid, architecture)))


@dataclass(frozen=True)
class Scene:
    """A draw of the data with its foreign inputs, and how a score is judged on them."""

    grid: dict[str, Any]
    seed: int

    @cached_property
    def data(self) -> Synthetic:
        return draw_of(self.grid, self.seed)

    @cached_property
    def others(self) -> dict[str, Synthetic]:
        """Foreign inputs of each kind."""
        return all_foreign(self.data, self.grid["foreign"], self.seed)

    @cached_property
    def known(self) -> Float:
        return self.data.x[self.data.test]

    @cached_property
    def train(self) -> Float:
        return self.data.x[self.data.train]

    @cached_property
    def asked(self) -> Float:
        """All inputs that are scored: known rows, then each kind of foreign ones."""
        return np.concatenate([self.known, *(other.x for other in self.others.values())])

    @cached_property
    def odds(self) -> dict[str, Float]:
        """Of being foreign, for the known rows and those of each kind."""
        return {
            kind: foreign_log_odds(self.data, other, np.concatenate([self.known, other.x]))
            for kind, other in self.others.items()
        }

    def features(self, train: Float, asked: Float) -> dict[str, Float]:
        """The scores of features, fitted on training rows."""
        labels, own = self.data.labels[self.data.train], self.grid["features"]
        shrinkage = own["shrinkage"]
        return {
            "mahalanobis": mahalanobis(train, labels, shrinkage=shrinkage).score(asked),
            "relative_mahalanobis": mahalanobis(train, labels, relative=True, shrinkage=shrinkage).score(asked),
            "knn_distance": knn_distance(train, k=own["k"], normalize=False).score(asked),
        }

    def judge(self, names: Row, score: Float, error: Bit) -> Iterator[Row]:
        """A row for each kind of foreign inputs of a score of all that is asked."""
        known, *others = np.split(score, len(KINDS) + 1)
        shared = self.of_known(known) | {"uq_auc": metrics.uq_auc(known, error)}
        for kind, other in zip(KINDS, others, strict=True):
            yield stored(names | self.of_kind(kind, known, other) | shared)

    def of_kind(self, kind: str, known: Float, other: Float) -> Row:
        """How a score tells foreign rows of a kind from known ones, and its rank correlation with the best order."""
        row: Row = {"draw": self.seed, "kind": kind}
        for short, name in _OF_TWO.items():
            row |= _ends(short, estimate(name, known, other))
        return row | {"kendall": metrics.kendall_tau(np.concatenate([known, other]), self.odds[kind])}

    def of_known(self, score: Float) -> Row:
        """What can be said without a foreign row."""
        found = estimate_distance_c_index(score, self.known, reference=self.train)
        return _ends("distance_c_index", found) | {"own_c_index": metrics.distance_c_index(score, self.known)}


def _ends(name: str, found: Estimate) -> Row:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def of_networks(scene: Scene, plans: list[Plan]) -> Iterator[Row]:
    """All scores of some algorithms; of each softmax network those of its last hidden layer, too."""
    n, labels = len(scene.known), scene.data.labels[scene.data.test]
    with trained(scene.grid, scene.seed, plans, scene.data) as bank:
        for plan, at, logits in member_logits(bank, plans, scene.asked):
            found = Outputs(plan, scene.data, logits)
            error = truth.misclassified(found.probs[:n], labels)
            names = {"model": found.model, "family": plan["method"]}
            for score in plan["scores"]:
                yield from scene.judge(names | {"score": score}, found.score(score), error)
            hidden = bank.features(at, scene.train)
            if plan["method"] == "softmax" and np.ptp(hidden, axis=0).any():  # units that are all dead tell nothing
                for score, values in scene.features(hidden, bank.features(at, scene.asked)).items():
                    yield from scene.judge(names | {"family": "features", "score": score}, values, error)


def of_inputs(scene: Scene) -> Iterator[Row]:
    """The scores that need no network: distances of the inputs, and the best order there is."""
    for score, values in scene.features(scene.train, scene.asked).items():
        known, *others = np.split(values, len(KINDS) + 1)
        for kind, other in zip(KINDS, others, strict=True):
            yield _without_network(scene, "inputs", score, kind, known, other)
    for kind, odds in scene.odds.items():
        known, other = np.split(odds, 2)
        yield _without_network(scene, "truth", "foreign_probability", kind, known, other)


def _without_network(scene: Scene, family: str, score: str, kind: str, known: Float, other: Float) -> Row:
    names: Row = {"model": "none", "family": family, "score": score}
    return stored(names | scene.of_kind(kind, known, other) | scene.of_known(known) | {"uq_auc": None})
