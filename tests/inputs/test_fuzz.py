"""Random small files against an independent reader: the same number or an error, never another number.

`UQEVAL_FUZZ=100000 pytest tests/inputs/test_fuzz.py` tries as many files (about ten minutes).
"""

import os
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import noted
from fuzz import guided
from fuzz.readers import make_cases
from fuzz.tables import outcome

FILES = int(os.environ.get("UQEVAL_FUZZ", "300"))


def test_a_random_file_gives_its_number_or_an_error(tmp_path):
    pytest.importorskip("pandas")
    count = Counter(outcome(seed, tmp_path) for seed in range(FILES))
    assert count["same"] > FILES / 3
    assert count["refused"] > FILES / 10
    assert count["unwritable"] + count["unjudged"] < FILES / 20


@pytest.fixture(scope="module")
def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_cases()


def damages(case):
    """Bytes of no format; its own files, cut or with something in the place of something; damage that knows them."""
    whole = st.sampled_from(case.files)
    place, some = st.integers(0, 1 << 16), st.binary(max_size=40)
    spliced = st.builds(lambda data, at, to, by: data[:at] + by + data[to:], whole, place, place, some)
    knowing = st.builds(lambda rng, data, other: case.damage(rng, data, other), st.randoms(), whole, whole)
    return st.binary(max_size=400) | whole.flatmap(lambda data: st.just(data) | spliced) | knowing


def test_whatever_the_bytes_each_reader_takes_them_for_what_they_say_or_refuses_in_one_sentence(cases):
    tried = Counter()
    for k, kind in enumerate(sorted(cases)):
        with noted(kind=kind):
            settings(max_examples=8, deadline=None, database=None)(
                given(damages(cases[kind]))(reads(cases, k, tried))
            )()
    assert tried.keys() == {*range(len(cases))}


def reads(cases, k, tried):
    def holds(data):
        tried[k] += 1
        with tempfile.TemporaryDirectory() as folder:
            guided.one_input(cases, bytes([k]) + data, Path(folder))

    return holds


def test_guided_inputs_are_whole_files_at_first_and_a_wrong_reader_is_found_by_each_kind(cases, tmp_path):
    seeds = guided.whole_files(cases)
    assert {data[0] for data in seeds} == set(range(len(cases)))
    for data in {data[0]: data for data in seeds}.values():
        guided.one_input(cases, data, tmp_path)

    def wrong(path):
        raise ZeroDivisionError

    broken = {kind: case._replace(attempt=wrong) for kind, case in cases.items()}
    for k in range(len(cases)):
        with pytest.raises(ZeroDivisionError):
            guided.one_input(broken, bytes([k, 1]), tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_atheris_the_guided_search_says_so_and_one_file_is_tried_all_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(guided, "find_spec", lambda name: None)
    assert guided.main(1, 0) == 0
    assert capsys.readouterr().out.startswith("guided: skipped, atheris is not installed")
    (tmp_path / "input").write_bytes(b"\x00no CSV")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert guided.main(1, 0, file=str(tmp_path / "input")) == 0
    assert capsys.readouterr().out.endswith("input: right\n")
