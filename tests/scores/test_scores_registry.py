"""Scores by name."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from cases import each, noted
from uqeval import scores
from uqeval._errors import InputError
from uqeval.scores import available, compute

RNG = np.random.default_rng(0)
MEMBERS = RNG.dirichlet(np.ones(3), size=(4, 6))
FULL = {
    "probs": MEMBERS[0],
    "logits": np.log(MEMBERS[0]),
    "members": MEMBERS,
    "member_logits": np.log(MEMBERS),
    "alpha": 1 + MEMBERS[0],
}


def predictions(**kept):
    return SimpleNamespace(**{**dict.fromkeys(FULL), "scores": None, **kept})


def test_every_score_function_is_registered_under_its_name():
    fitted = {"Mahalanobis", "KNNDistance", "mahalanobis", "knn_distance"}  # on training rows, not of predictions
    texts = {"sequence_nll", "mean_token_nll", "perplexity", "mean_token_entropy"}  # of what was generated
    texts |= {"answer_disagreement", "cluster_entropy", "semantic_clusters"}
    assert sorted(available()) == sorted(set(scores.__all__) - {"available", "compute"} - fitted - texts)
    assert available()["entropy"] == ("probs",)
    assert available()["free_energy"] == ("logits",)
    assert available()["vote_entropy"] == ("members",)
    assert available()["expected_free_energy"] == ("member_logits",)
    assert available()["vacuity"] == ("alpha",)


@each("name", available())
def test_compute_is_the_function_on_what_it_needs(name):
    (need,) = available()[name]
    value = compute(name, predictions(**FULL))
    assert value.shape == (6,)
    assert value.dtype == np.float64
    np.testing.assert_array_equal(value, getattr(scores, name)(FULL[need]))


def test_predictions_list_the_scores_that_they_allow():
    # Predictions list only what they allow.
    for need in FULL:
        with noted(need=need):
            found = available(predictions(**{need: FULL[need]}))
            assert found == {name: needs for name, needs in available().items() if needs == (need,)}
            for name in found:
                assert np.isfinite(compute(name, predictions(**{need: FULL[need]}))).all()

    # An object may lack attributes.
    assert available(SimpleNamespace()) == {}
    assert "entropy" in available(SimpleNamespace(probs=FULL["probs"]))


def test_a_users_own_score_wins_and_is_checked():
    # A user's own score wins and is listed.
    pred = predictions(probs=FULL["probs"], scores={"entropy": [1, 2, 3], "mine": np.float32([0.5, 1, np.inf])})
    assert compute("entropy", pred).tolist() == [1.0, 2.0, 3.0]
    assert compute("mine", pred).dtype == np.float64
    assert compute("mine", pred).tolist() == [0.5, 1.0, np.inf]
    assert available(pred)["entropy"] == available(pred)["mine"] == ("scores",)
    assert available(pred)["margin"] == ("probs",)

    # A user's own score is checked.
    with pytest.raises(InputError, match=r'`scores\["mine"\]` has 1 NaN \(first at row 1\)'):
        compute("mine", predictions(scores={"mine": [0.0, np.nan]}))


def test_an_unknown_name_or_a_missing_input_says_what_to_do():
    # An unknown name lists the names and suggests the nearest.
    with pytest.raises(InputError, match=r'no score "entorpy"\. Did you mean "entropy"\?.*margin.*vacuity'):
        compute("entorpy", predictions(**FULL))
    with pytest.raises(InputError, match=r'Did you mean "my_score"\?'):
        compute("my_scor", predictions(scores={"my_score": [0.0, 1.0]}))
    with pytest.raises(InputError, match=r'no score "zzz"\. Scores: entropy'):
        compute("zzz", predictions(**FULL))
    with pytest.raises(InputError, match=r'no score "7"\. Scores'):
        compute(7, predictions(**FULL))

    # A missing input says what to pass.
    with pytest.raises(InputError, match=r'"mutual_information" needs `members`.*Pass members= \(\(m, n, K\)'):
        compute("mutual_information", predictions(probs=FULL["probs"]))
    with pytest.raises(InputError, match="need nothing more: entropy, gap_to_certain"):
        compute("free_energy", predictions(probs=FULL["probs"]))
    with pytest.raises(InputError, match="need nothing more: none"):
        compute("free_energy", predictions())


def test_importing_the_scores_does_not_import_scipy():
    code = "import sys, uqeval.scores, uqeval.truth; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
