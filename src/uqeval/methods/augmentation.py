"""Test-time augmentation: one network sees each input several times, changed as training data may be (Ayhan & Berens
2018, "Test-time data augmentation for estimation of heteroscedastic aleatoric uncertainty in deep neural networks").

The changes are the user's functions; the disagreement of the answers is measured by `uqeval.scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import nn

from uqeval._errors import InputError, a_type
from uqeval.inputs.predictions import Predictions
from uqeval.methods.loop import Device, Passes, Progress, check_device, check_model, draw_seeds, forked_rng, ready


class TestTimeAugmentation:
    """One pass of one model per augmentation; its usual score is `vote_entropy`.

    Parameters
    ----------
    model : torch.nn.Module
        ``model(x)`` returns logits of shape (batch, K), K ≥ 2.
    augmentations : sequence of callables
        Each is called as ``augmentation(x)`` with a batch of inputs on the model's device and returns as many rows.
        Include ``lambda x: x`` for the inputs as they are. One that draws from torch's random numbers may stand several
        times: every pass has its own seed.
    seed : int or numpy Generator
        Source of the passes' seeds for torch (not for NumPy or `random`). The global random state is left as it is.
    device : str or torch.device, optional
        Where to run, as in `Softmax`.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(4, 3)
    >>> loader = [(torch.zeros(2, 4), torch.tensor([0, 2])), (torch.ones(1, 4), torch.tensor([1]))]
    >>> flip, noise = lambda x: x.flip(-1), lambda x: x + 0.1 * torch.randn_like(x)
    >>> pred = TestTimeAugmentation(model, [lambda x: x, flip, noise, noise]).predict(loader)
    >>> pred
    Predictions(3 rows, 3 classes: labels, probs, 4 members, 4 member_logits)
    """

    __test__: ClassVar[bool] = False  # pytest collects classes by their names

    def __init__(
        self,
        model: nn.Module,
        augmentations: Iterable[Callable[[Any], Any]],
        seed: int | np.random.Generator = 0,
        *,
        device: Device = None,
    ) -> None:
        self.model = check_model("model", model)
        # A Sequential of transforms is a callable and iterable too: its steps would pass for augmentations.
        if not isinstance(augmentations, Iterable) or callable(augmentations):
            raise InputError(f"`augmentations` is {a_type(augmentations)}. Pass a list of functions of x.")
        self.augmentations = tuple(augmentations)
        if not self.augmentations:
            raise InputError("`augmentations` is empty. Pass at least one function of x.")
        for index, function in enumerate(self.augmentations):
            if not callable(function):
                raise InputError(f"`augmentations[{index}]` is {a_type(function)}. Pass functions of x.")
        self.device = check_device(device)
        self._seeds = draw_seeds(seed, len(self.augmentations))

    def predict(self, loader: Iterable[Any], *, progress: Progress = None) -> Predictions:
        """Labels, the logits under every augmentation and their mean probability for every row of the loader.

        Parameters
        ----------
        loader : iterable of (x, y)
            Batches, as in `Softmax.predict`, gone through once per augmentation in the same order (``shuffle=False``).
        progress : None, False or callable
            As in `Softmax.predict`.

        Returns
        -------
        Predictions
            With `members` and `member_logits` (augmentations, n, K); `probs` is the mean of their probabilities.
        """
        with (
            Passes("TestTimeAugmentation", loader, len(self.augmentations), progress) as passes,
            ready(self.model, self.device) as where,
            forked_rng(where) as seed_all,
        ):
            for function, seed in zip(self.augmentations, self._seeds, strict=True):
                passes.run(partial(_changed, self.model, function), where, partial(seed_all, seed))
        logits, labels = passes.result()
        return Predictions(labels, member_logits=logits)


def _changed(model: nn.Module, change: Callable[[Any], Any], x: Any) -> Any:
    return model(change(x))
