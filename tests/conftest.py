"""Shared by all tests: reproducible hypothesis runs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Reproducible: the same cases on every run. Tests that compare a metric with its definition ask for 2,000.
settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", parent=settings.get_profile("default"), derandomize=False, max_examples=2000)
settings.load_profile("default")
