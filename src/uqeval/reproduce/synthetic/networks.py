"""Many small networks on a draw of the data whose law is known: which there are, and what they say of the test rows.

The grid is data (`synthetic.toml`), and so are the methods that the paper did not run (`methods.toml`); `beyond` fits
those.
"""

from __future__ import annotations

import re
import tomllib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uqeval import truth
from uqeval._check import Float, Int, nearest
from uqeval._errors import InputError, MissingExtra
from uqeval.datasets.synthetic import Synthetic
from uqeval.datasets.synthetic import synthetic as draw_data
from uqeval.inputs.predictions import Predictions
from uqeval.inputs.softmax import softmax
from uqeval.reproduce.packaged import read_table
from uqeval.scores import compute

if TYPE_CHECKING:
    from uqeval.methods.batched import Bank

Plan = dict[str, Any]


def read_grid(path: str | Path | None = None) -> dict[str, Any]:
    """The grid that came with the package, or one of your own."""
    if path is None:
        return read_table("synthetic/synthetic.toml")
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"The grid {str(path)!r} cannot be read ({error}).") from None


GRID = read_grid()
_MORE = read_table("synthetic/methods.toml")
OWN: dict[str, str] = _MORE["own"]  # what a method brings that a single softmax network does not have
_COMMON = ("name", "title", "scores")


def draw_of(grid: dict[str, Any], seed: int) -> Synthetic:
    """The dataset of one seed."""
    return draw_data(**grid["data"], seed=seed)


def algorithms(grid: dict[str, Any], architecture: int) -> list[Plan]:
    """Every UQ algorithm of one architecture: method, learning rate, sizes, and which networks are its own."""
    found: list[Plan] = []
    first, hidden = 0, tuple(grid["training"]["hidden"][architecture])
    for lr, method in product(grid["training"]["learning_rates"], grid["methods"]):
        name, scores = method["name"], tuple(method["scores"])
        common = {"method": name, "title": method.get("title", name), "scores": scores}
        common |= {"hidden": hidden, "lr": lr, "architecture": architecture}
        sizes = (method.get(*size) for size in (("members", [1]), ("dropout", [0.0]), ("samples", [0])))
        for members, rate, samples in product(*sizes):
            found.append(common | {"members": members, "dropout": rate, "samples": samples, "first": first})
            first += members
    return found


def choose(grid: dict[str, Any], methods: str | Sequence[str] | None) -> list[Plan]:
    """The methods of that name, those of the grid first: "paper", all of the grid; "all", the others too."""
    own = list(grid["methods"])
    every = {method["name"]: method for method in [*_MORE["methods"], *own]}
    names = ["paper"] if methods is None else re.split(r"\s*,\s*", methods) if isinstance(methods, str) else methods
    chosen: set[str] = set()
    for name in names:
        if name not in every and name not in ("paper", "all"):
            known = ", ".join(["paper", "all", *every])
            raise InputError(
                f"`methods` has {name!r}, which is none.{nearest(str(name), every)} Pass some of: {known}."
            )
        several = {"paper": [method["name"] for method in own], "all": list(every)}
        chosen.update(several.get(name, [name]))
    if not chosen:
        raise InputError("`methods` is empty. Pass names, or leave it out for those of the grid.")
    others = [method for name, method in every.items() if method not in own]
    return [method for method in [*own, *others] if method["name"] in chosen]


def plans_of(grid: dict[str, Any], architecture: int, part: str) -> list[Plan]:
    """Every algorithm of one architecture: "paper", of all methods of the grid; or of another method by its name."""
    if part == "paper":
        return algorithms(grid, architecture)
    (method,) = choose(grid, part)
    return _more_algorithms(grid, architecture, method)


def _more_algorithms(grid: dict[str, Any], architecture: int, method: Plan) -> list[Plan]:
    """Every algorithm of a method that is not the grid's; each list of the method is gone through.

    Its networks start as the first of the grid with that learning rate does, which is the softmax network.
    """
    start = {plan["lr"]: plan["first"] for plan in reversed(algorithms(grid, architecture))}
    common = {"method": method["name"], "title": method["title"], "scores": tuple(method["scores"])}
    common |= {"hidden": tuple(grid["training"]["hidden"][architecture]), "architecture": architecture}
    axes = {name: values for name, values in method.items() if name not in _COMMON}
    return [
        common | {"lr": lr, "first": start[lr], "sizes": dict(zip(axes, values, strict=True))}
        for values in product(*axes.values())
        for lr in grid["training"]["learning_rates"]
    ]


def net_seed(plan: Plan, seed: int) -> int:
    """Of the first network of an algorithm, on the draw of this seed."""
    return int(1_000_000 * seed + 10_000 * plan["architecture"] + plan["first"])


@dataclass(frozen=True)
class Fitted:
    """What an algorithm says of the test rows of a draw, and what is true there."""

    plan: Plan
    data: Synthetic

    @property
    @abstractmethod
    def probs(self) -> Float:
        """(n, K)."""

    @property
    @abstractmethod
    def gap(self) -> Float:
        """What the UQ-C-index ranks: the gap in a form that does not saturate."""

    @property
    @abstractmethod
    def sizes(self) -> str:
        """Its sizes, as its name in the table has them."""

    @property
    @abstractmethod
    def words(self) -> list[str]:
        """Its sizes, as a figure has them."""

    @abstractmethod
    def score(self, name: str) -> Float:
        """An uncertainty score of the test rows."""

    @cached_property
    def labels(self) -> Int:
        return self.data.labels[self.data.test]

    @cached_property
    def truths(self) -> dict[str, Float]:
        """ϕ and φ, by the name of the correlation with them."""
        x = self.data.x[self.data.test]
        return {"kendall_phi": self.data.phi(x, self.probs), "kendall_varphi": self.data.varphi(x, self.probs)}

    @property
    def model(self) -> str:
        """Its name in the table."""
        plan = self.plan
        return f"{plan['method']} {'-'.join(map(str, plan['hidden']))} lr={plan['lr']:g}{self.sizes}"


@dataclass(frozen=True)
class Outputs(Fitted):
    """An algorithm of the grid: the networks of its own, or the stochastic passes of one."""

    member_logits: Float  # (members, n, K)

    @cached_property
    def members(self) -> Float:
        return softmax(self.member_logits)

    @cached_property
    def probs(self) -> Float:
        return self.members.mean(axis=0)

    @property
    def logits(self) -> Float:
        return self.member_logits[0]

    @cached_property
    def gap(self) -> Float:
        if len(self.member_logits) == 1:
            return truth.gap_from_logits(self.logits, self.labels)
        return truth.rank_loss(self.probs, self.labels)

    @property
    def sizes(self) -> str:
        plan = self.plan
        size = f" m={plan['members']}" * (plan["members"] > 1)
        return size + f" p={plan['dropout']:g} T={plan['samples']}" * (plan["samples"] > 0)

    @property
    def words(self) -> list[str]:
        plan = self.plan
        found = [f"{plan['members']} networks"] * (plan["members"] > 1)
        return found + [f"dropout {plan['dropout']:g}", f"{plan['samples']} passes"] * (plan["samples"] > 0)

    def score(self, name: str) -> Float:
        return compute(name, self)


@dataclass(frozen=True)
class Answers(Fitted):
    """An algorithm of another method: what that method predicts."""

    predictions: Predictions

    @property
    def probs(self) -> Float:
        assert self.predictions.probs is not None
        return self.predictions.probs

    @cached_property
    def gap(self) -> Float:
        found = truth.gap_rank_of(self.predictions)
        assert found is not None
        return found

    @property
    def sizes(self) -> str:
        return "".join(f" {name}={value:g}" for name, value in self.plan["sizes"].items())

    @property
    def words(self) -> list[str]:
        return [f"{name.replace('_', ' ')} {value:g}" for name, value in self.plan["sizes"].items()]

    def score(self, name: str) -> Float:
        return compute(name, self.predictions)


def fitted(grid: dict[str, Any], seed: int, plans: Sequence[Plan]) -> Iterator[Fitted]:
    """Trains these algorithms on one draw, those of the grid first."""
    of_grid, others = ([plan for plan in plans if ("sizes" in plan) == more] for more in (False, True))
    if of_grid:
        yield from outputs(grid, seed, of_grid)
    if others:
        yield from _answers(grid, seed, others)


def outputs(grid: dict[str, Any], seed: int, plans: Sequence[Plan]) -> Iterator[Outputs]:
    """Trains all networks of these algorithms of the grid on one draw, together."""
    data = draw_of(grid, seed)
    with trained(grid, seed, plans, data) as bank:
        for plan, _, logits in member_logits(bank, plans, data.x[data.test]):
            yield Outputs(plan, data, logits)


def member_logits(bank: Bank, plans: Sequence[Plan], x: Float) -> Iterator[tuple[Plan, int, Float]]:
    """Each algorithm, which network is its first, and its (members or passes, n, K) logits at some inputs."""
    logits, at = bank.logits(x), 0
    for plan in plans:
        own = logits[at : at + plan["members"]]
        yield plan, at, bank.passes(at, x, plan["samples"]) if plan["samples"] else own
        at += plan["members"]


@contextmanager
def trained(grid: dict[str, Any], seed: int, plans: Sequence[Plan], data: Synthetic) -> Iterator[Bank]:
    """All networks of these algorithms, trained on the training rows; inside, torch has one thread."""
    try:
        from uqeval.methods.batched import Net, one_thread, train
    except ModuleNotFoundError:
        raise MissingExtra("uqeval reproduce", "torch", "torch") from None
    nets = []
    for plan in plans:
        base, shape = net_seed(plan, seed), (plan["hidden"], plan["lr"], plan["dropout"])
        nets += [Net(base + k, *shape) for k in range(plan["members"])]
    x, y, training = data.x[data.train], data.labels[data.train], grid["training"]
    with one_thread():
        settings = {name: training[name] for name in ("epochs", "batch_size")}
        yield train(nets, x, y, classes=data.n_classes, **settings)


def _answers(grid: dict[str, Any], seed: int, plans: Sequence[Plan]) -> Iterator[Answers]:
    """The same of algorithms that are not the grid's."""
    try:
        from uqeval.reproduce.synthetic.beyond import fit
    except ModuleNotFoundError:
        raise MissingExtra("uqeval reproduce", "torch", "torch") from None
    data = draw_of(grid, seed)
    settings = {name: grid["training"][name] for name in ("epochs", "batch_size")}
    found = fit(plans, data, seeds=[net_seed(plan, seed) for plan in plans], **settings)
    yield from (Answers(plan, data, predictions) for plan, predictions in zip(plans, found, strict=True))
