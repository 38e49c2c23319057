"""Right and wrong rows of each stretch of scores, in memory of a fixed size: for bounds that are certain.

A stretch holds the scores whose float32 starts with the same bits: stretches are in order. With the least and the
largest score of each, those of a single value are known: their rows tie.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqeval._check import check_count
from uqeval._errors import InputError
from uqeval.metrics.bounds import Bounds, error_bounds
from uqeval.torch.checks import as_bits, as_floats

_MOST = 1 << 24
# name: what a stretch without rows has, how processes join, dtype
STATES: dict[str, tuple[float, str, torch.dtype]] = {
    "right": (0, "sum", torch.int64),
    "wrong": (0, "sum", torch.int64),
    "least": (torch.inf, "min", torch.float64),
    "most": (-torch.inf, "max", torch.float64),
}


def check_bins(bins: Any) -> int:
    """How many stretches: a power of two."""
    if check_count("bins", bins, 1 << 10) > _MOST or bins & (bins - 1):
        raise InputError(f"`bins` must be a power of two from 1,024 to {_MOST:,}; it is {bins:,}.")
    return int(bins)


def add_rows(states: dict[str, Tensor], score: Tensor, error: Tensor) -> Tensor:
    """Counts rows, in place; whether one of them is no score or no error."""
    bits, odd = as_bits(error)
    values = as_floats("score", score) + 0  # −0.0 becomes 0.0
    stretch = stretch_of(values, len(states["right"]))
    wrong = bits.to(torch.int64)
    states["right"].scatter_add_(0, stretch, 1 - wrong)
    states["wrong"].scatter_add_(0, stretch, wrong)
    states["least"].scatter_reduce_(0, stretch, values, "amin")
    states["most"].scatter_reduce_(0, stretch, values, "amax")
    return odd | values.isnan().any()


def stretch_of(values: Tensor, bins: int) -> Tensor:
    """The stretch of each score: the first bits of its float32, in the order of the numbers."""
    bits = values.to(torch.float32).view(torch.int32).to(torch.int64)
    ordered = torch.where(bits < 0, ~bits, bits | 0x80000000)
    return (ordered & 0xFFFFFFFF) >> (32 - (bins - 1).bit_length())


def bounds_of(right: Tensor, wrong: Tensor, least: Tensor, most: Tensor) -> tuple[Bounds, Bounds, Bounds]:
    """UQ-AUC, AURC and AUGRC."""
    filled = (right + wrong > 0).nonzero().squeeze(1)
    if not len(filled):
        raise InputError("No rows were seen. Call update first.")
    single, *counts = (x[filled].cpu().numpy() for x in (least == most, right, wrong))
    return error_bounds(single.astype(np.bool_), *counts)
