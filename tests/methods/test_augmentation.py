"""Test-time augmentation computes what a plain loop over the changed inputs computes, and repeats itself."""

from __future__ import annotations

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import nn  # noqa: E402

from uqeval import scores  # noqa: E402
from uqeval._errors import InputError  # noqa: E402
from uqeval.methods import Softmax, TestTimeAugmentation  # noqa: E402

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
LOADER = [(X[:7], torch.arange(7) % 3), (X[7:], torch.arange(5) % 3)]


def make_model():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def same(x):
    return x


def noise(x):
    return x + torch.randn_like(x)


def test_members_are_the_models_outputs_on_changed_inputs():
    model, changes = make_model(), [same, lambda x: x.flip(-1), lambda x: 2 * x]
    got = TestTimeAugmentation(model, changes).predict(LOADER)
    with torch.no_grad():
        expected = torch.stack([model(change(X)) for change in changes])
    np.testing.assert_allclose(got.member_logits, expected, atol=1e-6)
    np.testing.assert_allclose(got.probs, torch.softmax(expected, 2).mean(0), atol=1e-6)
    np.testing.assert_array_equal(got.member_logits[0], Softmax(model).predict(LOADER).logits)
    assert scores.compute("vote_entropy", got).max() > 0


def test_random_augmentations_differ_by_pass_and_repeat_by_seed():
    model = make_model()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = TestTimeAugmentation(model, [noise] * 3, seed=1).predict(LOADER).member_logits
    assert torch.equal(torch.get_rng_state(), before)
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(first, TestTimeAugmentation(model, [noise] * 3, seed=1).predict(LOADER).member_logits)
    more = TestTimeAugmentation(model, [noise] * 5, seed=1).predict(LOADER).member_logits
    np.testing.assert_array_equal(more[:3], first)


def test_what_is_no_list_of_functions_is_an_error():
    for given, says in [
        (same, "`augmentations` is a function. Pass a list"),
        (nn.Sequential(nn.Identity()), "`augmentations` is a Sequential. Pass a list"),
        (None, "`augmentations` is None"),
        ([], "`augmentations` is empty"),
        ([same, "flip"], "`augmentations[1]` is a str"),
    ]:
        with pytest.raises(InputError, match=re.escape(says)):
            TestTimeAugmentation(make_model(), given)


def test_an_augmentation_that_changes_the_number_of_rows_is_an_error():
    with pytest.raises(InputError, match="batch 0 in pass 1 has 2 rows for 7 labels"):
        TestTimeAugmentation(make_model(), [same, lambda x: x[:2]]).predict(LOADER)


def test_pytest_does_not_take_the_class_for_a_test():
    assert TestTimeAugmentation.__test__ is False
