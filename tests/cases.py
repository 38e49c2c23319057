"""Many cases in one test: a claim is run on each of them, and a failure says on which."""

from __future__ import annotations

import functools
import inspect
from contextlib import closing, contextmanager

from strategies import each_backend


@contextmanager
def noted(**what):
    """Notes the case on whatever fails inside."""
    try:
        yield
    except BaseException as problem:
        problem.add_note("case: " + ", ".join(f"{name} = {_short(value)}" for name, value in what.items()))
        raise


def each(names, values, ids=None):
    """The test runs once for each value of the named arguments; stacked, for each combination."""
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = list(values)
    assert values, "no cases"
    labels = list(map(ids, values)) if callable(ids) else list(ids or [None] * len(values))

    def decorate(test):
        def run(*fixed, **given):
            for value, label in zip(values, labels, strict=True):
                arguments = dict(zip(names, [value] if len(names) == 1 else value, strict=True))
                with noted(**(arguments if label is None else {"/".join(names): label})):
                    test(*fixed, **given, **arguments)

        return _without(names, test, run)

    return decorate


def on_both_kernels(test):
    """The test runs on the NumPy kernels and, where built, on the native ones."""

    def run(*fixed, **given):
        with closing(each_backend()) as backends:  # so that a failure leaves the former kernels behind
            for backend in backends:
                with noted(kernels=backend):
                    test(*fixed, **given)

    return _without([], test, run)


def _without(names, test, run):
    """`run` in the place of `test`, asking for no fixture of those names."""
    wrapped = functools.wraps(test, updated=())(run)  # not what hypothesis notes on its tests: `run` is none
    wrapped.pytestmark = list(getattr(test, "pytestmark", []))
    signature = inspect.signature(test)
    missing = set(names) - set(signature.parameters)
    assert not missing, f"{test.__name__} does not take {missing}"
    kept = [p for name, p in signature.parameters.items() if name not in names]
    wrapped.__signature__ = signature.replace(parameters=kept)
    return wrapped


def _short(value):
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
