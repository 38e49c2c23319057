"""A fixture for pytest: `uq_gate(predictions, {"metric": "uq_auc", "at_least": 0.8})` fails a test as a gate fails.

Loaded by every run of pytest where uqeval is installed, so it loads nothing else before somebody asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from uqeval.gate.result import GateResult


@pytest.fixture
def uq_gate() -> Callable[..., GateResult]:
    """Judges a policy and fails the test where a rule fails, or where there are too few rows to tell.

    ``uq_gate(source, *rules, policy=None, baseline=None, **how)``: the source, and `how`, as for `uqeval.evaluate`;
    rules as dictionaries, or a policy (a TOML file, or a dictionary). Returns the `GateResult`.
    """
    return _gate


def _gate(source: Any, *rules: dict[str, Any], policy: Any = None, baseline: Any = None, **how: Any) -> GateResult:
    __tracebackhide__ = True  # the message says it all
    from uqeval.distributed.evaluate import evaluate
    from uqeval.gate.judge import judge
    from uqeval.gate.policy import read_policy
    from uqeval.inputs.files import read_predictions

    chosen = read_policy({"rule": list(rules)} if policy is None else policy)
    asked: dict[str, Any] = {"scores": chosen.scores, "metrics": chosen.metrics, "level": chosen.level}
    ev = evaluate(source, **asked | how)
    result = judge(ev, chosen, baseline=read_predictions(baseline) if isinstance(baseline, str) else baseline)
    if not result.passed:
        pytest.fail(f"uq_gate: {result}", pytrace=False)
    return result
