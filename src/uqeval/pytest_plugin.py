"""A fixture for pytest: `uq_gate(predictions, {"metric": "uq_auc", "at_least": 0.8})` fails a test as a gate fails.

Loaded by every run of pytest where uqeval is installed, so it loads nothing else before somebody asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from uqeval.gate.result import GateResult


@pytest.fixture
def uq_gate() -> Callable[..., GateResult]:
    """Judges a policy and fails the test where a rule fails, or where there are too few rows to tell.

    ``uq_gate(source, *rules, policy=None, baseline=None, **how)``: the source, and `how`, as for `uqeval.evaluate`;
    rules as dictionaries, or a policy (a TOML file, or a dictionary). The baseline may be all that the source may be,
    read with the same options, or a stored evaluation (`Evaluation`, or its JSON file). Returns the `GateResult`.
    """
    return _gate


def _gate(source: Any, *rules: dict[str, Any], policy: Any = None, baseline: Any = None, **how: Any) -> GateResult:
    __tracebackhide__ = True  # the message says it all
    from uqeval.distributed.evaluate import evaluate
    from uqeval.gate.judge import judge
    from uqeval.gate.policy import read_policy

    chosen = read_policy({"rule": list(rules)} if policy is None else policy)
    asked: dict[str, Any] = {"scores": chosen.scores, "metrics": chosen.metrics, "level": chosen.level, **how}
    result = judge(evaluate(source, **asked), chosen, baseline=_baseline(baseline, asked))
    if not result.passed:
        pytest.fail(f"uq_gate: {result}", pytrace=False)
    return result


def _baseline(given: Any, asked: dict[str, Any]) -> Any:
    """Rows, read as the others were; or what was stored of other rows."""
    from uqeval.cli.options import is_stored, stored_evaluation
    from uqeval.distributed.evaluate import evaluate
    from uqeval.evaluation.result import Evaluation
    from uqeval.inputs import Predictions

    if isinstance(given, str | PathLike) and is_stored(fspath(given)):
        return stored_evaluation(fspath(given))
    if given is None or isinstance(given, Evaluation | Predictions):
        return given
    found = evaluate(given, **asked)
    return found if found.source is None else found.source.pred
