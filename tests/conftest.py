"""Shared by all tests: reproducible hypothesis runs."""

from __future__ import annotations

import atexit
import os
import sys

import pytest
from hypothesis import HealthCheck, settings


@atexit.register
def _quiet_end():
    """Beside torch, which keeps modules alive, DuckDB would end by listing its own types as leaks."""
    if {"duckdb", "torch"} <= sys.modules.keys():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


# Reproducible: the same cases on every run. Slow tests that compare a metric with its definition ask for 500.
settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", parent=settings.get_profile("default"), derandomize=False, max_examples=2000)
settings.load_profile("default")


if path := os.environ.get("UQEVAL_MESSAGES"):  # `make messages`
    import messages
    from uqeval import _errors

    def _noting(init, where=path):
        def noting(self, *args):
            init(self, *args)
            messages.note(self, where)

        return noting

    for kind in (_errors.InputError, _errors.MissingExtra):
        kind.__init__ = _noting(kind.__init__)


@pytest.fixture(scope="session")
def empty_sheets():
    """Takes a monkeypatch: figures are then empty sheets; networks and temperatures of the appendix are few."""
    import vl_convert

    from uqeval.reproduce.synthetic import networks, temperature

    def patch(monkeypatch):
        monkeypatch.setattr(temperature, "DEFAULT", [0.5, 2.0])
        monkeypatch.setitem(networks.GRID["training"], "epochs", 2)
        monkeypatch.setattr(vl_convert, "vegalite_to_svg", lambda spec, vl_version: '<svg width="1"></svg>')
        monkeypatch.setattr(vl_convert, "svg_to_png", lambda svg, scale: b"\x89PNG")

    return patch


@pytest.fixture
def undrawn(monkeypatch, empty_sheets):
    """No figure is made, and empty sheets stand in their places: for tests of other things."""
    from uqeval.reproduce import panels

    def save(makers, out, tell):
        (out / "figures").mkdir(exist_ok=True)
        for name in makers:
            (out / "figures" / f"{name}.svg").write_text('<svg width="1"></svg>')
            (out / "figures" / f"{name}.png").write_bytes(b"\x89PNG")
        return [panels.Picture(name, name, [], "") for name in makers]

    empty_sheets(monkeypatch)
    monkeypatch.setattr(panels, "save", save)


@pytest.fixture(scope="module")
def few_draws():
    """Intervals of many differences at once are simulated with few draws: for tests of other things."""
    from uqeval.inference import multiplicity

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiplicity, "_DRAWS", 2000)
        yield


@pytest.fixture(scope="module")
def one_thread():
    """Tiny networks are faster so. Not for longer: torch 2.13 corrupts memory in some convolutions on one thread."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(former)
