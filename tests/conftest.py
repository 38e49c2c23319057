"""Shared by all tests: reproducible hypothesis runs."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# Reproducible: the same cases on every run. Tests that compare a metric with its definition ask for 2,000.
settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", parent=settings.get_profile("default"), derandomize=False, max_examples=2000)
settings.load_profile("default")


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are empty sheets, and the synthetic study has one, because drawing takes seconds: for other tests."""
    import vl_convert

    from uqeval.reproduce.synthetic import figures, study

    every, scaled = figures.makers, study.temperature
    monkeypatch.setattr(figures, "makers", lambda *of: dict([next(iter(every(*of).items()))]))
    monkeypatch.setattr(study, "temperature", lambda: scaled(temperatures=[0.5, 2]))
    monkeypatch.setattr(vl_convert, "vegalite_to_svg", lambda spec, vl_version: '<svg width="1"></svg>')
    monkeypatch.setattr(vl_convert, "svg_to_png", lambda svg, scale: b"\x89PNG")
