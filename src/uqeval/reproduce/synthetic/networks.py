"""Many small networks on a draw of the data whose law is known: which there are, and what they say of the test rows.

The grid is data (`synthetic.toml`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uqeval._check import Float, Int
from uqeval._errors import InputError, MissingExtra
from uqeval.datasets.synthetic import Synthetic
from uqeval.datasets.synthetic import synthetic as draw_data
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


@dataclass(frozen=True)
class Outputs:
    """What the networks of one algorithm say of the test rows of a draw, and what is true there."""

    plan: Plan
    member_logits: Float  # (members, n, K)
    data: Synthetic

    @cached_property
    def labels(self) -> Int:
        return self.data.labels[self.data.test]

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
    def truths(self) -> dict[str, Float]:
        """ϕ and φ, by the name of the correlation with them."""
        x = self.data.x[self.data.test]
        return {"kendall_phi": self.data.phi(x, self.probs), "kendall_varphi": self.data.varphi(x, self.probs)}

    @property
    def model(self) -> str:
        """Its name in the table."""
        plan = self.plan
        size = f" m={plan['members']}" * (plan["members"] > 1)
        size += f" p={plan['dropout']:g} T={plan['samples']}" * (plan["samples"] > 0)
        return f"{plan['method']} {'-'.join(map(str, plan['hidden']))} lr={plan['lr']:g}{size}"

    def score(self, name: str) -> Float:
        """An uncertainty score of the test rows."""
        return compute(name, self)


def outputs(grid: dict[str, Any], seed: int, plans: Sequence[Plan]) -> Iterator[Outputs]:
    """Trains all networks of these algorithms on one draw, together."""
    data = draw_of(grid, seed)
    with trained(grid, seed, plans, data) as bank:
        for plan, _, logits in member_logits(bank, plans, data.x[data.test]):
            yield Outputs(plan, logits, data)


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
        import torch  # an extra

        from uqeval.methods.batched import Net, train
    except ModuleNotFoundError:
        raise MissingExtra("uqeval reproduce", "torch", "torch") from None
    nets = []
    for plan in plans:
        base = 1_000_000 * seed + 10_000 * plan["architecture"] + plan["first"]
        shape = plan["hidden"], plan["lr"], plan["dropout"]
        nets += [Net(base + k, *shape) for k in range(plan["members"])]
    x, y, training = data.x[data.train], data.labels[data.train], grid["training"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the numbers must not depend on the machine's cores
    try:
        settings = {"epochs": training["epochs"], "batch_size": training["batch_size"]}
        yield train(nets, x, y, classes=data.n_classes, **settings)
    finally:
        torch.set_num_threads(threads)
