"""Deep ensembles: several networks, trained alike from different seeds (Lakshminarayanan et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from uqeval._check import check_count
from uqeval._errors import InputError, a_type
from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import Device, Passes, Progress, check_device, check_model, draw_seeds, ready


class DeepEnsemble:
    """Several models of one task; their probabilities are averaged, their disagreement is the uncertainty.

    Parameters
    ----------
    models : sequence of torch.nn.Module
        Each ``model(x)`` returns logits of shape (batch, K), K ≥ 2.
    device : str or torch.device, optional
        Where to run. Default: where each model's parameters are. ``"auto"``: on CUDA if there is any; a model
        is there only while it runs.

    Examples
    --------
    >>> import torch
    >>> models = [torch.nn.Linear(4, 3) for _ in range(5)]
    >>> loader = [(torch.zeros(2, 4), torch.tensor([0, 2])), (torch.ones(1, 4), torch.tensor([1]))]
    >>> DeepEnsemble(models).predict(loader)
    Predictions(3 rows, 3 classes: labels, probs, 5 members, 5 member_logits)
    """

    def __init__(self, models: Iterable[nn.Module], *, device: Device = None) -> None:
        # A Sequential is iterable too: its layers would pass for members.
        listed = isinstance(models, nn.ModuleList)
        if not listed and (isinstance(models, nn.Module) or not isinstance(models, Iterable)):
            raise InputError(f"`models` is {a_type(models)}. Pass a list of models.")
        self.models = tuple(check_model(f"models[{index}]", model) for index, model in enumerate(models))
        if not self.models:
            raise InputError("`models` is empty. Pass at least one model.")
        self.device = check_device(device)

    @classmethod
    def train(
        cls,
        factory: Callable[[int], nn.Module],
        fit: Callable[[nn.Module, int], object],
        *,
        members: int = 5,
        seed: int | np.random.Generator = 0,
        device: Device = None,
    ) -> DeepEnsemble:
        """An ensemble whose members are made and trained one after the other, each from its own seed.

        Torch is seeded before each member, so that the same `seed` gives the same ensemble; the first members stay the
        same when `members` grows. The global random state is put back at the end.

        Parameters
        ----------
        factory : function of seed
            Returns a new, untrained model.
        fit : function of (model, seed)
            Trains the model in place; what it returns is ignored.
        members : int
            How many models to train.
        seed : int or numpy Generator
            Source of the members' seeds (32-bit ints).
        device : str or torch.device, optional
            Where `predict` runs, as in `DeepEnsemble`.

        Returns
        -------
        DeepEnsemble
            The trained members.

        Examples
        --------
        >>> import torch
        >>> x, y = torch.randn(64, 2), torch.arange(64) % 2
        >>> def fit(model, seed):
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     for _ in range(3):
        ...         optimizer.zero_grad()
        ...         torch.nn.functional.cross_entropy(model(x), y).backward()
        ...         optimizer.step()
        >>> ensemble = DeepEnsemble.train(lambda seed: torch.nn.Linear(2, 2), fit, members=3)
        >>> ensemble.predict([(x, y)])
        Predictions(64 rows, 2 classes: labels, probs, 3 members, 3 member_logits)
        """
        place = check_device(device)
        models: list[nn.Module] = []
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            for number in draw_seeds(seed, check_count("members", members)):
                torch.manual_seed(number)
                model = check_model("factory(seed)", factory(number))
                if any(model is other for other in models):
                    raise InputError("`factory` returned the same model twice. Return a new model on every call.")
                fit(model, number)
                models.append(model)
        return cls(models, device=place)

    def predict(self, loader: Iterable[Any], *, progress: Progress = None) -> Predictions:
        """Labels, the members' logits and their mean probability for every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, gone through once per member in the same order (``shuffle=False``): x is a tensor, or a tuple, list
            or dict of tensors, handed to the model as it is; y are class indices of shape (batch,).
        progress : None, False or callable
            None shows a bar when stderr is a terminal and the work takes more than a second; False shows none; a
            function is called as ``progress(stage, done, total)`` after each batch (total is None while unknown).

        Returns
        -------
        Predictions
            With `members` and `member_logits` (m, n, K); `probs` is the mean of the members' probabilities.
        """
        with Passes("DeepEnsemble", loader, len(self.models), progress) as passes:
            for model in self.models:
                with ready(model, self.device) as where:
                    passes.run(model, where)
        logits, labels = passes.result()
        return Predictions(labels, member_logits=logits)
