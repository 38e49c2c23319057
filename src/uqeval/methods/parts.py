"""Batches of any shape: moved to a device, cut into rows, run in halves where they do not fit into memory.

Which batches there are and what their outputs must look like is left to `loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from uqeval._errors import InputError

# What allocators that have no exception class of their own say: torch's on the CPU, Apple's, cuDNN's.
_FULL = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


def moved(x: Any, device: torch.device) -> Any:
    """Tensors in tuples, lists and dicts too; whatever else has a method `to` (packed sequences) moves itself."""
    if isinstance(x, Tensor):
        return x.to(device, copy=True)  # a model or augmentation that works in place would change the next pass
    return x.to(device) if hasattr(x, "to") else _inside(x, lambda part: moved(part, device))


def cut(x: Any, start: int, stop: int, rows: int) -> Any:
    """These rows of a batch: of its tensors with so many rows, in tuples, lists and dicts too."""
    if isinstance(x, Tensor):
        return x[start:stop] if x.ndim and len(x) == rows else x
    return _inside(x, lambda part: cut(part, start, stop, rows))


def can_cut(x: Any, rows: int) -> bool:
    """Whether a batch has tensors with a row per label."""
    if isinstance(x, Tensor):
        return x.ndim > 0 and len(x) == rows
    if isinstance(x, Mapping):
        return any(can_cut(part, rows) for part in x.values())
    # A packed sequence is a tuple that moves itself: its tensors have no row per label.
    return isinstance(x, tuple | list) and not hasattr(x, "to") and any(can_cut(part, rows) for part in x)


def _inside(x: Any, change: Callable[[Any], Any]) -> Any:
    """The same tuple, list or dict of changed parts."""
    if isinstance(x, Mapping):
        return {key: change(value) for key, value in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(change(value) for value in x))
    if isinstance(x, tuple | list):
        return type(x)(change(value) for value in x)
    return x


class Parts:
    """Runs a model on batches, in parts where a batch does not fit; keeps in mind how many rows did."""

    def __init__(self, method: str, device: torch.device) -> None:
        self.method, self.device = method, device
        self._most: int | None = None

    def run(self, model: Callable[[Any], Any], x: Any, rows: int) -> Iterator[tuple[int, int, Any]]:
        """(first row, rows, output) of each part of a batch."""
        start = 0
        while True:
            count = rows - start
            if self._most is not None and count > self._most and can_cut(x, rows):
                count = self._most
            try:
                part = moved(x if count == rows else cut(x, start, start + count, rows), self.device)
                with torch.inference_mode():
                    output = model(part)
            except RuntimeError as error:
                if not is_full(error):
                    raise
                if count < 2:
                    self._fail("not even one row fits", 'Free some, use a smaller model, or pass device="cpu".')
                if not can_cut(x, rows):
                    self._fail(f"a batch of {rows} rows does not fit", "It cannot be halved here: use a smaller batch.")
                self._most = count // 2
            else:
                yield start, count, output
                start += count
                if start >= rows:
                    return
                continue
            # Only here, where nothing holds the failed pass any more, can its memory be given back.
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _fail(self, what: str, advice: str) -> NoReturn:
        raise InputError(f"{self.method}: {what} into the memory of {self.device}. {advice}") from None


def is_full(error: RuntimeError) -> bool:
    said = str(error).lower()
    return isinstance(error, torch.cuda.OutOfMemoryError) or any(words in said for words in _FULL)
