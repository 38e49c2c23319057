"""Random small files against an independent reader: the same number or an error, never another number.

`UQEVAL_FUZZ=100000 pytest tests/inputs/test_fuzz.py` tries as many files (about ten minutes).
"""

import os
from collections import Counter

import pytest

from fuzz.tables import outcome

FILES = int(os.environ.get("UQEVAL_FUZZ", "300"))


def test_a_random_file_gives_its_number_or_an_error(tmp_path):
    pytest.importorskip("pandas")
    count = Counter(outcome(seed, tmp_path) for seed in range(FILES))
    assert count["same"] > FILES / 3
    assert count["refused"] > FILES / 10
    assert count["unwritable"] + count["unjudged"] < FILES / 20
