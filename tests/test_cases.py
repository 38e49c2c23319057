"""A loop inside a test must say where it failed, and leave the kernels as they were."""

from __future__ import annotations

import pytest

from cases import each, noted, on_both_kernels
from uqeval import kernels


def test_a_failing_loop_names_its_case():
    @each("n", [1, 2, 3])
    @each(("low", "high"), [(0, 1), (0, 2)])
    def claim(n, low, high):
        assert low < n < 2 + high

    with pytest.raises(AssertionError) as caught:
        claim()
    assert caught.value.__notes__ == ["case: low = 0, high = 1", "case: n = 3"]
    with pytest.raises(ZeroDivisionError) as caught, noted(n=0, call=max):
        1 / 0  # noqa: B018
    assert caught.value.__notes__ == ["case: n = 0, call = max"]


def test_a_failure_on_one_kernel_names_it_and_leaves_the_former_one():
    former = kernels.backend()

    @on_both_kernels
    def claim():
        assert kernels.backend() != "numpy"

    with pytest.raises(AssertionError) as caught:
        claim()
    assert caught.value.__notes__ == ["case: kernels = 'numpy'"]
    assert kernels.backend() == former


def test_a_loop_over_nothing_is_no_test():
    with pytest.raises(AssertionError, match="no cases"):
        each("n", [])
    with pytest.raises(AssertionError, match="does not take"):
        each("m", [1])(lambda n: None)
