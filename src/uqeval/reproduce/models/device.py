"""Where models run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uqeval._errors import MissingExtra

if TYPE_CHECKING:
    import torch


def pick_device(device: str | torch.device | None = None) -> torch.device:
    """The device asked for; None and "auto" mean CUDA where there is any, else the CPU."""
    try:
        import torch  # an extra

        from uqeval.methods.loop import check_device
    except ModuleNotFoundError:
        raise MissingExtra("zero-shot classification", "torch", "text") from None
    if device is None or device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(check_device(device))  # type: ignore[arg-type]
