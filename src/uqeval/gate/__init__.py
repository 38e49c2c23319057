"""Is a model good enough to go on? A policy judged on an evaluation: pass, fail, or too few rows to tell."""

from uqeval.gate.judge import judge
from uqeval.gate.policy import Policy, Rule, policy_of_limits, read_policy
from uqeval.gate.result import GateResult, Verdict

__all__ = ["GateResult", "Policy", "Rule", "Verdict", "judge", "policy_of_limits", "read_policy"]
