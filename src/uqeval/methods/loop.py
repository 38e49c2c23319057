"""Runs models over a loader, pass by pass, and gathers their logits as float64 NumPy arrays.

Knows about modes, devices, random numbers, shapes and progress, so that a method says only which model runs how often.
What the logits mean is left to `Predictions`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from uqeval._check import Float, Int, check_labels, check_seed, to_array
from uqeval._errors import InputError, a_type
from uqeval.methods.parts import Parts, is_full

Device: TypeAlias = str | torch.device | None
Model: TypeAlias = Callable[[Any], Any]
Progress: TypeAlias = Callable[[str, int, int | None], object] | Literal[False] | None

_PATIENCE = 1.0  # seconds of work before a bar appears


def check_model(name: str, model: object) -> nn.Module:
    """A torch module, or an error that names the argument."""
    if not isinstance(model, nn.Module):
        raise InputError(f"`{name}` is {a_type(model)}. Pass a torch.nn.Module that returns logits (batch, K).")
    return model


def check_device(device: Device) -> Device:
    """None, "auto" or a device that torch knows and this machine has."""
    if device is None or device == "auto":
        return device
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError):
        raise InputError(f'`device` is {device!r}. Pass None, "auto", "cpu", "cuda" or a torch.device.') from None
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f'`device` is {str(wanted)!r} but torch sees no CUDA device. Pass None, "auto" or "cpu".')
    return wanted


def check_number(name: str, value: Any, *, zero: bool = False) -> float:
    """A finite number above 0, or 0 where that is one."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf or (value == 0 and not zero):
        raise InputError(f"`{name}` must be a number {'≥' if zero else 'above'} 0; it is {value!r}.")
    return float(value)


def draw_seeds(seed: int | np.random.Generator, count: int) -> list[int]:
    """One torch seed per member; the first ones stay the same when `count` grows."""
    # Not seed, seed + 1, …: ensembles with neighbouring seeds would share members. Torch's CPU generator uses 32 bits.
    return [int(word) for word in check_seed(seed).integers(0, 2**32, size=count)]


@contextmanager
def ready(model: nn.Module, device: Device, *, active: Iterable[nn.Module] = ()) -> Iterator[torch.device]:
    """The model in eval mode on its device, `active` layers in train mode; all as before when the block ends.

    Yields the device that inputs go to.
    """
    homes = list(dict.fromkeys(tensor.device for tensor in chain(model.parameters(), model.buffers())))
    home = homes[0] if homes else torch.device("cpu")
    target = _target(home, device)
    if target != home and len(homes) > 1:
        raise InputError(
            f"`device` is {str(device)!r} but the model lies on {', '.join(sorted(map(str, homes)))}. Pass device=None."
        )
    modes = [(module, module.training) for module in model.modules()]
    try:
        if target != home:
            _move(model, target)
        model.eval()
        for layer in active:
            layer.training = True
        yield target
    finally:
        for module, training in modes:
            module.training = training  # not .train(): it would recurse, and users override it
        if target != home:
            model.to(home)


def _move(model: nn.Module, target: torch.device) -> None:
    try:
        model.to(target)  # outside inference mode, where the parameters could not be trained any more
    except RuntimeError as error:
        if not is_full(error):
            raise
        raise InputError(
            f"The model does not fit into the memory of {target}. Free some, use a smaller model, or pass device=None."
        ) from None


def _target(home: torch.device, device: Device) -> torch.device:
    if device is None:
        return home
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else home
    wanted = torch.device(device)
    # "cuda" means the card where the model already is, not another one.
    return home if str(wanted) == home.type else wanted


@contextmanager
def forked_rng(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Yields a function that seeds the CPU and `device`; the CPU's and the cards' states are as before at the end."""
    # torch.manual_seed would reach every card, also those not in use yet, whose states nobody has saved.
    cpu = torch.get_rng_state()
    cards = torch.cuda.get_rng_state_all() if device.type == "cuda" else []

    def seed_all(seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        elif device.type != "cpu":
            getattr(torch, device.type).manual_seed(seed)

    try:
        yield seed_all
    finally:
        torch.set_rng_state(cpu)
        if cards:
            torch.cuda.set_rng_state_all(cards)


class Passes:
    """Gathers the logits of several passes over one loader, and the labels, which must come in the same order.

    Parameters
    ----------
    method : str
        Whose passes they are, for messages.
    loader : iterable of (x, y) batches
        Gone through once per pass.
    count : int
        How many passes there will be.
    progress : None, False or callable
        None: a bar on the terminal after a second; False: none; else called as ``progress(stage, done, total)``.
    classes : function of int, optional
        How many classes an output of so many columns has. Default: as many.
    name : str
        Of the argument that `loader` is, for messages.
    """

    def __init__(
        self,
        method: str,
        loader: Iterable[Any],
        count: int,
        progress: Progress = None,
        *,
        classes: Callable[[int], int] = int,
        name: str = "loader",
    ) -> None:
        if not isinstance(loader, Iterable):
            raise InputError(f"`{name}` is {a_type(loader)}. Pass an iterable of (x, y) batches.")
        if count > 1 and isinstance(loader, Iterator):
            raise InputError(
                f"`{name}` is {a_type(loader)}, which can be gone through once, but {method} needs {count} "
                f"passes. Pass a DataLoader or a list of batches."
            )
        self.method, self.loader, self.count = method, loader, count
        self._classes, self._name = classes, name
        self._meter = _Meter(method, progress, count, _length(loader))
        self._logits: Float | None = None
        self._labels: Int = np.empty(0, dtype=np.int64)
        self._parts: Parts | None = None
        self._done = 0

    def __enter__(self) -> Passes:
        return self

    def __exit__(self, *error: object) -> None:
        self._meter.close()

    def run(self, model: Model, device: torch.device, reseed: Callable[[], None] | None = None) -> None:
        """One pass of a `ready` model; `reseed` makes its random numbers those of this pass."""
        if reseed is not None:
            reseed()  # what the loader draws for itself
        batches = iter(self.loader)
        if reseed is not None:
            reseed()  # what the model draws, whether or not the loader has drawn: persistent workers do so only once
        logits: list[Float] = []
        labels: list[Any] = []
        ask = "All outputs must have the same classes."
        start = 0
        for index, block, y in self._outputs(model, device, batches):
            stop = start + len(y)
            if self._logits is None:
                if logits and block.shape[1] != logits[0].shape[1]:
                    self._fail(index, f"has {block.shape[1]} classes, batch 0 has {logits[0].shape[1]}", ask)
                logits.append(block)
                labels.append(y)
            else:
                if block.shape[1] != self._logits.shape[2]:
                    self._fail(index, f"has {block.shape[1]} classes, pass 0 has {self._logits.shape[2]}", ask)
                if not np.array_equal(y, self._labels[start:stop]):
                    self._other_rows()
                self._logits[self._done, start:stop] = block
            start = stop
        if self._logits is None:
            self._check_rows(start)
            first = np.concatenate(logits)
            self._labels = check_labels(np.concatenate(labels), self._classes(first.shape[1]))
            self._logits = np.empty((self.count, *first.shape))
            self._logits[0] = first
            self._meter.batches(len(logits))
        elif start != len(self._labels):
            self._other_rows()
        self._done += 1

    def sweep(self, model: Model, device: torch.device) -> None:
        """One pass whose outputs nobody keeps, for what layers gather on the way; rows may come in any order."""
        rows = batches = 0
        for _, _, y in self._outputs(model, device, self.loader):
            rows, batches = rows + len(y), batches + 1
        self._check_rows(rows)
        self._meter.batches(batches)
        self._done += 1

    def _outputs(
        self, model: Model, device: torch.device, batches: Iterable[Any]
    ) -> Iterator[tuple[int, Float, NDArray[Any]]]:
        """(index, checked output, labels) of each batch."""
        if self._parts is None or self._parts.device != device:
            self._parts = Parts(self.method, device)
        for index, batch in enumerate(batches):
            x, y = self._pair(index, batch)
            blocks = [self._checked(index, output, *at) for *at, output in self._parts.run(model, x, len(y))]
            yield index, blocks[0] if len(blocks) == 1 else np.concatenate(blocks), y
            self._meter.step()

    def result(self) -> tuple[Float, Int]:
        """Logits (passes, n, K) and labels (n,)."""
        if self._logits is None or self._done != self.count:
            raise RuntimeError(f"{self._done} of {self.count} passes were run")
        return self._logits, self._labels

    def _pair(self, index: int, batch: Any) -> tuple[Any, Any]:
        if isinstance(batch, Mapping) and "labels" in batch:  # as Hugging Face's collators make them
            batch = ({key: value for key, value in batch.items() if key != "labels"}, batch["labels"])
        if not isinstance(batch, Sequence) or isinstance(batch, str) or len(batch) != 2:
            what = a_type(batch) + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
            raise InputError(f"{self.method}: batch {index} of `{self._name}` is {what}. Yield pairs (x, y).")
        y = to_array("labels", batch[1])
        if y.ndim != 1:
            raise InputError(
                f"{self.method}: the labels of batch {index} have shape {y.shape}. Yield class indices (batch,)."
            )
        return batch[0], y

    def _checked(self, index: int, output: Any, start: int, rows: int) -> Float:
        """The logits of a batch's rows from `start` on, as a float64 copy."""
        ask = "Return a tensor of logits (batch, K)."
        if not isinstance(output, torch.Tensor):
            self._fail(index, f"is {a_type(output)}", ask)
        shape = tuple(output.shape)
        if len(shape) == 2 and shape[1] == 1:
            self._fail(index, f"has shape {shape}", "Return two logits for two classes: [0, z] for a single logit z.")
        if len(shape) != 2 or shape[1] < 2:
            self._fail(index, f"has shape {shape}", ask)
        if shape[0] != rows:
            self._fail(index, f"has {shape[0]} rows for {rows} labels", ask)
        block: Float = np.array(output.detach().cpu().to(torch.float64).numpy())
        bad = ~np.isfinite(block).all(axis=1)
        if bad.any():
            where = f"(first: row {start + int(bad.argmax())} of the batch)"
            self._fail(index, f"has NaN or infinity in {int(bad.sum())} rows {where}", "Mend the model or its inputs.")
        return block

    def _fail(self, index: int, what: str, advice: str) -> NoReturn:
        where = f"batch {index}" + (f" in pass {self._done}" if self.count > 1 else "")
        raise InputError(f"{self.method}: the model's output for {where} {what}. {advice}")

    def _check_rows(self, rows: int) -> None:
        if not rows:
            raise InputError(f"{self.method}: `{self._name}` gave no rows. Pass at least one batch (x, y).")

    def _other_rows(self) -> NoReturn:
        raise InputError(
            f"{self.method}: `{self._name}` gave other labels in pass {self._done} than in pass 0. "
            f"Use shuffle=False, so that all passes see the same rows in the same order."
        )


def logits_of(
    method: str, model: nn.Module, loader: Iterable[Any], device: Device, progress: Progress
) -> tuple[Float, Int]:
    """Logits (n, K) and labels of one pass in eval mode."""
    with Passes(method, loader, 1, progress) as passes, ready(model, device) as where:
        passes.run(model, where)
    logits, labels = passes.result()
    return logits[0], labels


def _length(loader: Iterable[Any]) -> int | None:
    try:
        return len(loader)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):  # also a DataLoader of an iterable dataset
        return None


class _Meter:
    """Counts batches over all passes, for a bar on the terminal or for a function."""

    def __init__(self, title: str, progress: Progress, passes: int, batches: int | None) -> None:
        if not (progress is None or progress is False or callable(progress)):
            raise InputError(f"`progress` is {progress!r}. Pass None, False or a function of (stage, done, total).")
        self._call = progress if callable(progress) else None
        self._wanted = progress is None and sys.stderr is not None and sys.stderr.isatty()
        self._title, self._passes = title, passes
        self._total = None if batches is None else passes * batches
        self._count = 0
        self._start = time.monotonic()
        self._bar: Any = None

    def batches(self, count: int) -> None:
        """So many batches there are in a pass."""
        self._total = self._passes * count

    def step(self) -> None:
        self._count += 1
        if self._call is not None:
            self._call(self._title, self._count, self._total)
        if self._wanted and self._bar is None and time.monotonic() - self._start > _PATIENCE:
            self._open()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._count, total=self._total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._title, total=self._total)
        self._bar.start()
