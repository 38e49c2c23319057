"""Policies: what a rule may say, and one sentence for what it may not."""

import pytest

import uqeval as uq
from uqeval.gate import Policy, policy_of_limits, read_policy

GOOD = {"metric": "uq_auc", "score": "entropy", "at_least": 0.8}


def refusal(rule):
    with pytest.raises(uq.InputError) as error:
        read_policy({"rule": [rule]})
    return str(error.value)


def test_a_file_and_a_dictionary_say_the_same(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('min_rows = 50\nlevel = 0.9\n[[rule]]\nmetric = "uq_auc"\nscore = "entropy"\nat_least = 0.8\n')
    policy = read_policy(path)
    assert policy == read_policy({"min_rows": 50, "level": 0.9, "rule": [GOOD]})
    assert (policy.level, policy.rules[0].min_rows, policy.scores, policy.metrics) == (0.9, 50, ["entropy"], ["uq_auc"])
    assert read_policy(policy) is policy


def test_by_default_the_harder_end_of_the_interval_must_keep_the_limit():
    rules = read_policy(
        {
            "rule": [
                GOOD,
                {"metric": "aurc", "at_most": 0.1},
                {"metric": "uq_auc", "margin": 0.01},
                {"metric": "aurc", "margin": 0.01},
            ]
        }
    ).rules
    assert [(rule.end, rule.higher, rule.limit) for rule in rules] == [
        ("low", True, 0.8),
        ("high", False, 0.1),
        ("low", True, -0.01),
        ("high", False, 0.01),
    ]


def test_what_a_rule_may_not_say_is_named_with_what_it_is():
    for rule, text in (
        ({**GOOD, "atleast": 1}, "'atleast', which is not known. Did you mean"),
        ({**GOOD, "at_most": 0.9}, "exactly one of at_least, at_most, margin; it has at_least, at_most"),
        ({"metric": "uq_auc"}, "it has none"),
        ({"at_least": 0.8}, "either metric or coverage_at_risk"),
        ({**GOOD, "metric": "uq_acu"}, 'the policy: rule 1: There is no metric "uq_acu"'),
        ({**GOOD, "at_least": 80}, "at_least is 80, but values of uq_auc lie in [0, 1]. Did you mean 0.8?"),
        ({"metric": "ece", "at_most": 5}, "at_most is 5, but values of ece lie in [0, 1]. Did you mean 0.05?"),
        ({**GOOD, "at_least": -0.1}, "lie in [0, 1]"),
        ({"metric": "uq_auc", "margin": 2}, "margin is 2, but differences of uq_auc lie in [0, 1]"),
        ({"coverage_at_risk": 0.1, "at_least": 1.5}, "values of coverage lie in [0, 1]"),
        ({**GOOD, "at_least": "0.8"}, "must be a number; it is '0.8'"),
        ({**GOOD, "at_least": True}, "must be a number; it is True"),
        ({**GOOD, "at_least": float("nan")}, "must be finite"),
        ({**GOOD, "on": "mean"}, "'mean'"),
        ({**GOOD, "group": 3}, "group must be text; it is 3"),
        ({**GOOD, "min_rows": -1}, "min_rows must be a whole number"),
        ({"metric": "uq_auc", "margin": -0.1}, "It must be 0 or more"),
        ({"metric": "ece", "score": "entropy", "at_most": 0.1}, "belongs to the model"),
        ({"metric": "ood_auroc", "at_least": 0.8}, "two sets"),
        ({"coverage_at_risk": 1.2, "at_least": 0.8}, "rule 1: `coverage_at_risk` must lie strictly between 0 and 1"),
        ({"coverage_at_risk": 0.1, "at_least": 0.8, "group": "worst"}, "of all rows"),
    ):
        assert text in refusal(rule), rule
    for data in ({}, {"rule": []}, {"rule": [3]}, {"rules": [GOOD], "rule": [GOOD]}):
        with pytest.raises(uq.InputError, match=r"no rule|not known"):
            Policy.of(data)


def test_a_file_that_is_no_policy_is_one_sentence(tmp_path):
    path = tmp_path / "policy.toml"
    with pytest.raises(uq.InputError, match=r"there is no such file\. Pass a policy"):
        read_policy(path)
    path.write_text("rule = [")
    with pytest.raises(uq.InputError, match=r"policy\.toml: is no TOML"):
        read_policy(path)


def test_limits_in_words_say_which_side_is_bad():
    policy = policy_of_limits(["entropy:uq_auc=0.8", "accuracy=0.9"], ["aurc=0.1"])
    assert [(r.score, r.metric, r.higher) for r in policy.rules] == [
        ("entropy", "uq_auc", True),
        (None, "accuracy", True),
        (None, "aurc", False),
    ]
    for under, over, text in (
        (["aurc=0.1"], [], "Use --fail-over"),
        ([], ["uq_auc=0.1"], "Use --fail-under"),
        (["uq_auc"], [], "as uq_auc=0.8"),
        (["uq_auc=high"], [], "it is 'uq_auc=high'"),
        (["uq_auc=nan"], [], "as uq_auc=0.8"),
    ):
        with pytest.raises(uq.InputError, match=text):
            policy_of_limits(under, over)
