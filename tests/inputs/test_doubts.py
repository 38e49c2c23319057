"""Mistakes that cannot be known for sure are said: copies of rows, repeated ids, probabilities passed as logits."""

import os
import warnings

import numpy as np
import pytest

from cases import noted
from uqeval._errors import InputError, UQWarning
from uqeval.inputs import Predictions, read_predictions


def notes(*args, **kwargs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Predictions(*args, **kwargs)
    return [str(warning.message) for warning in caught]


def drawn(rng, n, k, grid=None):
    p = rng.dirichlet(np.full(k, 0.5), size=n)
    return (p if grid is None else rng.multinomial(grid, p) / grid), rng.integers(0, k, n)


def test_copies_of_rows_are_told_from_rows_that_are_alike_by_chance():
    rng = np.random.default_rng(0)
    for n in (50, 1000, 40_000):
        p, y = drawn(rng, n, 4)
        twice = np.r_[0:n, 0:n]
        thrice = np.r_[twice, 0:n]
        for name, rows in (("joined", twice), ("mixed", rng.permutation(twice)), ("thrice", rng.permutation(thrice))):
            with noted(n=n, name=name):
                (said,) = notes(y[rows], probs=p[rows])
                assert "exact copies of others, more than chance" in said
                assert notes(y[rows], probs=p[rows], clusters=rows) == []  # which say so themselves
        first, second = np.argwhere((p[twice] == p[7]).all(axis=1)).ravel()
        assert (first, second) == (7, 7 + n)
    # Half a file again, and scores alone.
    rows = np.r_[0:1000, 0:300]
    p, y = drawn(rng, 1000, 4)
    assert "300 rows are exact copies" in notes(y[rows], probs=p[rows])[0]
    score, error = rng.random(1000), rng.integers(0, 2, 1000)
    assert "300 rows are exact copies" in notes(scores={"s": score[rows]}, error=error[rows])[0]


def test_rows_that_are_alike_by_chance_are_not_called_copies():
    rng = np.random.default_rng(1)
    for n in (30, 200, 3000):
        for k, grid in ((2, 10), (2, 100), (2, 1000), (3, 10), (3, 50), (3, 1000), (10, 10), (10, 100), (2, None)):
            for _ in range(5):
                p, y = drawn(rng, n, k, grid)
                order = np.lexsort((y, p[:, 0]))
                with noted(n=n, k=k, grid=grid):
                    assert not any("copies" in said for said in notes(y, probs=p))
                    assert not any("copies" in said for said in notes(y[order], probs=p[order]))


def test_ids_that_come_twice_are_said():
    p = [0.1, 0.6, 0.3, 0.7]
    assert notes([0, 1, 0, 1], probs=p, ids=["a", "b", "c", "d"]) == []
    (said,) = notes([0, 1, 0, 1], probs=p, ids=["a", "b", "a", "a"])
    assert said.startswith("2 rows repeat an id (first: 'a' in row 2)")
    assert notes([0, 1, 0, 1], probs=p, ids=["a", "b", "a", "a"], clusters=[1, 2, 1, 1]) == []


def test_the_same_file_by_another_name_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("label,prob\n0,0.5\n1,0.6\n")
    os.symlink(tmp_path / "a.csv", tmp_path / "b.csv")
    (tmp_path / "folder").mkdir()
    os.symlink(tmp_path, tmp_path / "folder" / "up")
    os.link(tmp_path / "a.csv", tmp_path / "folder" / "hard.csv")
    for other in ("b.csv", "folder/up/a.csv", "folder/../a.csv", "folder/hard.csv"):
        with noted(other=other), pytest.raises(InputError, match=r"named twice \(as .*rows would count twice"):
            read_predictions([tmp_path / "a.csv", os.path.join(tmp_path, other)])
    with pytest.raises(InputError, match="named twice"):
        read_predictions(tmp_path / "*.csv")


def test_logits_that_are_probabilities_are_said():
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(3), size=(2, 50))
    y = rng.integers(0, 3, 50)
    for given in ({"logits": p[0]}, {"logits": p[0].astype("f4")}, {"logits": p[0].round(2)}, {"member_logits": p}):
        with pytest.warns(UQWarning, match="look like probabilities.*softmax is taken twice"):
            Predictions(y, **given)
    for z in (np.log(p[0]), p[0] * 2, np.vstack([p[0][:-1], [[3.0, 1, 2]]]), np.ones((50, 3))):
        assert notes(y, logits=z) == []
