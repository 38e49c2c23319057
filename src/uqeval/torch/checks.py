"""Tensors that users pass → clean ones on their device. What takes a look at the numbers is a flag, read with the sums.

Where a flag is up, the rows are given to the checks of arrays, which say what is wrong in their own words (`tallies`).
"""

from typing import Any

import torch
from torch import Tensor

from uqeval._check import check_lengths, check_vector
from uqeval._errors import InputError

MOST_ROWS = 2**31 - 2**16  # places are int32, and blocks of them are filled up
_EXACT = 2**53  # up to here float64 holds every integer
# Of others, as float8 and the wide unsigned ones, torch knows neither the sum nor the order.
_ORDERED = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_ORDERED |= {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def check_tensor(name: str, value: Any) -> Tensor:
    """(n,) numbers, out of the graph."""
    if not isinstance(value, Tensor):
        raise InputError(f"`{name}` is no tensor ({type(value).__name__}). Pass one; uqeval.metrics takes arrays.")
    if value.layout != torch.strided or value.is_nested:
        raise InputError(f"`{name}` is a sparse or nested tensor. Pass a dense one, of shape (n,).")
    shape = tuple(value.shape)
    if len(shape) == 2 and shape[1] == 1:
        raise InputError(f"`{name}` has shape {shape}. Pass it with shape ({shape[0]},): {name}.ravel().")
    if len(shape) != 1:
        raise InputError(f"`{name}` has shape {shape}. Pass one number per row: shape (n,).")
    if value.is_complex():
        raise InputError(f"`{name}` holds {value.dtype}, not numbers. Convert it to numbers first.")
    if value.dtype not in _ORDERED:
        raise InputError(f"`{name}` holds {value.dtype}, which torch cannot sort. Pass {name}.to(torch.float64).")
    if value.dtype == torch.bool:
        return value.detach().view(torch.uint8)
    return value.detach()


def check_tensors(least: int = 2, /, **given: Any) -> list[Tensor]:
    """As many rows of each, on one device."""
    found = {name: check_tensor(name, value) for name, value in given.items()}
    (first, one), *rest = found.items()
    for name, value in rest:
        if value.device != one.device:
            raise InputError(f"`{name}` is on {value.device} but `{first}` on {one.device}. Move one of them: .to(…).")
    lengths: dict[str, Any] = dict(found)  # whatever has a length
    if check_lengths(least, **lengths) > MOST_ROWS:
        raise InputError(f"`{first}` has {len(one):,} rows. A tensor may have {MOST_ROWS:,}; evaluate() reads files.")
    return list(found.values())


def as_floats(name: str, value: Tensor) -> Tensor:
    """As float64; integers that would become others, and tie, are an error. Only int64 takes a look."""
    found = value.to(torch.float64)
    if value.dtype == torch.int64 and (found.abs() > _EXACT).any():
        check_vector(name, value)  # says which
    return found


def as_bits(error: Tensor) -> tuple[Tensor, Tensor]:
    """0/1 errors as uint8, and whether something else is among them."""
    bits = error != 0
    return bits.view(torch.uint8), (error != bits).any()


def signed(confidence: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """c where the prediction is wrong, −c where it is right; and whether something is no confidence or no error."""
    bits, odd = as_bits(error)
    c = confidence if confidence.is_floating_point() else confidence.to(torch.float64)
    inside = (c >= 0) & (c <= 1)  # not of NaN
    return torch.where(bits != 0, c, 0 - c), odd | ~inside.all()
