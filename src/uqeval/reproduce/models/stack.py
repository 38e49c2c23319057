"""The packages that run models: one line where one is not installed, another where it is but does not load."""

from collections.abc import Iterator

from uqeval._errors import InputError, MissingExtra, reason_of

# What torch, torchvision and those built on them say when their versions do not belong together.
_SIGNS = ("torchvision::", "torchvision", "undefined symbol", "could not load this library", "could not import module")


def unusable(what: str, package: str, extra: str, error: BaseException) -> Exception:
    """The error to raise where importing `package` has failed: not there, or there but broken."""
    if isinstance(error, ModuleNotFoundError) and error.__cause__ is None and error.name is not None:
        return MissingExtra(what, error.name.split(".")[0], extra)
    return _broken(package, list(_causes(error))[-1])


def broken(error: BaseException) -> InputError | None:
    """The error to raise if another one comes from torchvision or its kind failing to load, else None."""
    chain = list(_causes(error))
    if any(sign in str(part).lower() for part in chain for sign in _SIGNS):
        return _broken("transformers or torchvision", chain[-1])
    return None


def _broken(package: str, error: BaseException) -> InputError:
    import torch  # an extra: whatever needs this has loaded it

    return InputError(
        f"{package} is installed but does not load with torch {torch.__version__} ({reason_of(error)}). "
        "Install versions that belong together: pip install --upgrade torch torchvision timm."
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on to the first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
