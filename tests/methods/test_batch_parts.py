"""Batches that do not fit into memory are halved, once and for all; what cannot be halved is one clear error."""

from __future__ import annotations

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import nn  # noqa: E402

from uqeval._errors import InputError  # noqa: E402
from uqeval.methods import DeepEnsemble, EvidentialNetwork, Softmax, TestTimeAugmentation  # noqa: E402

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(40) % 3
LOADER = [(X[:16], Y[:16]), (X[16:32], Y[16:32]), (X[32:], Y[32:])]


class Small(nn.Module):
    """Has memory for so many rows; notes how many it was given."""

    def __init__(self, most, error=torch.cuda.OutOfMemoryError):
        super().__init__()
        torch.manual_seed(0)
        self.head, self.most, self.error, self.seen = nn.Linear(4, 3), most, error, []

    def forward(self, x):
        self.seen.append(len(x))
        if len(x) > self.most:
            raise self.error("CUDA out of memory. Tried to allocate 2 GiB.")
        return self.head(x)


def test_halved_batches_give_the_same_and_what_fitted_is_kept_in_mind():
    small = Small(5)
    got = Softmax(small).predict(LOADER)
    assert small.seen == [16, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]  # tried in vain: 16 and 8, once
    expected = Softmax(Small(99)).predict(LOADER)
    np.testing.assert_allclose(got.logits, expected.logits, atol=1e-6)
    np.testing.assert_array_equal(got.labels, Y)


def test_all_methods_halve():
    flip = [lambda x: x, lambda x: x.flip(-1)]
    for make in (EvidentialNetwork, lambda m: DeepEnsemble([m, m]), lambda m: TestTimeAugmentation(m, flip)):
        small = Small(3)
        got, expected = make(small).predict(LOADER), make(Small(99)).predict(LOADER)
        np.testing.assert_allclose(got.probs, expected.probs, atol=1e-6)
        assert small.seen[:3] == [16, 8, 4]
        assert max(small.seen[3:]) == 2  # in later passes too


def test_the_cpus_own_message_counts_as_out_of_memory():
    class Hungry(Small):
        def forward(self, x):
            if len(x) > 4:
                torch.empty(1 << 60, dtype=torch.uint8)
            return self.head(x)

    assert Softmax(Hungry(99)).predict(LOADER).n == 40


def test_a_row_that_does_not_fit_is_one_error_and_the_modes_come_back():
    small = Small(0)
    small.head.eval()
    with pytest.raises(InputError, match="Softmax: not even one row fits into the memory of cpu"):
        Softmax(small).predict(LOADER)
    assert [module.training for module in small.modules()] == [True, False]


def test_another_error_of_torch_is_not_taken_for_memory():
    class Fails(nn.Module):
        def forward(self, x):
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        Softmax(Fails()).predict(LOADER)


def test_tensors_in_dicts_tuples_and_lists_are_cut_and_others_left():
    class Takes(Small):
        def forward(self, x):
            assert len(x["a"]) == len(x["b"][0]) == len(x["b"][1])
            assert x["table"].shape == (7, 4)
            assert x["ids"] == ["row"]
            return super().forward(x["a"] + x["b"][0] + x["b"][1] + x["table"][0] + x["scale"])

    x = {"a": X, "b": (X, [X][0]), "table": torch.ones(7, 4), "ids": ["row"], "scale": torch.tensor(2.0)}
    got, whole = (Softmax(Takes(most)).predict([(x, Y)]) for most in (6, 99))
    np.testing.assert_allclose(got.logits, whole.logits, atol=1e-6)


def test_what_works_in_place_changes_neither_the_next_pass_nor_the_users_batches():
    class InPlace(Small):
        def forward(self, x):
            x["a"] -= 1
            return super().forward(x["a"].relu_())

    kept = X.clone()
    batches = [({"a": X[:16]}, Y[:16]), ({"a": X[16:]}, Y[16:])]
    model = InPlace(5)  # halved, too
    members = DeepEnsemble([model, model]).predict(batches).members
    np.testing.assert_array_equal(members[0], members[1])
    turned = TestTimeAugmentation(Small(99), [lambda x: x, lambda x: x.neg_(), lambda x: x]).predict(LOADER)
    np.testing.assert_array_equal(turned.members[0], turned.members[2])
    assert torch.equal(X, kept)


def test_a_model_that_does_not_fit_on_the_device_is_one_error_and_comes_home():
    homes = []

    class Large(nn.Linear):
        def to(self, device):
            homes.append(str(device))
            if str(device) == "meta":
                raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
            return self

    large = Large(4, 3)
    with pytest.raises(InputError, match="The model does not fit into the memory of meta"):
        Softmax(large, device="meta").predict(LOADER)
    assert homes == ["meta", "cpu"]
    assert large.training


def test_a_batch_that_cannot_be_cut_is_an_error():
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3, 4), torch.zeros(2, 4)])

    class Packed(nn.Module):
        def forward(self, x):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(InputError, match=r"batch of 2 rows does not fit.*use a smaller batch"):
        Softmax(Packed()).predict([(packed, torch.tensor([0, 1]))])


def test_a_batch_that_cannot_be_cut_is_tried_whole_after_one_that_was():
    class Labels(Small):
        def forward(self, x):
            return super().forward(x) if torch.is_tensor(x) else torch.eye(3)[x[0]]

    got = Softmax(Labels(4)).predict([(X[:16], Y[:16]), ([list(range(3)) * 2], Y[:6])])
    np.testing.assert_array_equal(got.logits[16:], np.eye(3)[[0, 1, 2, 0, 1, 2]])


def test_nan_in_a_part_is_named_by_its_row_of_the_batch():
    x = X.clone()
    x[7] = torch.nan
    with pytest.raises(
        InputError, match=re.escape("batch 0 has NaN or infinity in 1 rows (first: row 7 of the batch)")
    ):
        Softmax(Small(4)).predict([(x[:16], Y[:16])])
