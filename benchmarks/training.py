"""The 300 networks of the synthetic study: all at once, against loops over tensor slices and over DataLoaders."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np


def compare() -> list[dict[str, Any]]:
    """Seconds of each way, one thread, in one run, and the two ratios that we promise."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from uqeval.methods.batched import Net, train
    from uqeval.reproduce.synthetic.networks import GRID, algorithms, draw_of

    torch.set_num_threads(1)
    data = draw_of(GRID, 1)
    x, y = data.x[data.train].astype(np.float32), data.labels[data.train]
    epochs, size = GRID["training"]["epochs"], GRID["training"]["batch_size"]
    plans = [plan for k in range(len(GRID["training"]["hidden"])) for plan in algorithms(GRID, k)]
    nets = [
        Net(k, plan["hidden"], plan["lr"], plan["dropout"])
        for k, plan in enumerate(plan for plan in plans for _ in range(plan["members"]))
    ]
    rows, labels = torch.as_tensor(x), torch.as_tensor(y)

    def build(net: Net) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        sizes = (x.shape[1], *net.hidden)
        layers: list[torch.nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            layers += [
                torch.nn.Linear(a, b),
                torch.nn.ReLU(),
                *([torch.nn.Dropout(net.dropout)] if net.dropout else []),
            ]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 2))
        return model, torch.optim.Adam(model.parameters(), lr=net.lr)

    def step(model: torch.nn.Module, optimiser: torch.optim.Optimizer, a: Any, b: Any) -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(a), b).backward()
        optimiser.step()

    def slices() -> None:
        for net in nets:
            model, optimiser = build(net)
            for _ in range(epochs):
                for batch in torch.randperm(len(rows)).split(size):
                    step(model, optimiser, rows[batch], labels[batch])

    def loaders() -> None:
        for net in nets:
            model, optimiser = build(net)
            loader = DataLoader(TensorDataset(rows, labels), batch_size=size, shuffle=True)
            for _ in range(epochs):
                for a, b in loader:
                    step(model, optimiser, a, b)

    ways = {
        "batched": lambda: train(nets, x, y, epochs=epochs, batch_size=size),
        "slices": slices,
        "DataLoader": loaders,
    }
    seconds = {}
    for name, run in ways.items():
        start = time.perf_counter()
        run()
        seconds[name] = time.perf_counter() - start
        print(f"training of {len(nets)} networks, {name:<12}{seconds[name]:>8.1f} s")
    return [
        {
            "claim": f"Training the {len(nets)} networks of the synthetic study: times faster than a loop over {other}",
            "value": seconds[other] / seconds["batched"],
            "bound": least,
            "holds": seconds[other] / seconds["batched"] >= least,
        }
        for other, least in (("slices", 4.0), ("DataLoader", 8.0))
    ]
