"""Layers whose weights are computed from others: bounded ones, random ones."""

from torch import nn
from torch.nn.utils import parametrize

from uqeval._errors import InputError, a_type


def compute_weight(layer: nn.Module, name: str, part: nn.Module) -> None:
    """From now on the layer's weight of that name is what `part` makes of it, in the layer's mode."""
    if parametrize.is_parametrized(layer, name):
        raise InputError(f"`model` has {a_type(layer)} that is parametrized already. Undo that.")
    # unsafe: the check that is left out would run `part`, which may draw random numbers.
    parametrize.register_parametrization(layer, name, part.train(layer.training), unsafe=True)
