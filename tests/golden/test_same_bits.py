"""The same bits from any thread, process and surroundings."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import golden_cases
import pytest

from cases import noted

pytestmark = pytest.mark.filterwarnings("ignore::uqeval.UQWarning")  # small sets, degenerate intervals


@pytest.fixture(scope="module")
def right():
    return golden_cases.digest()


def test_threads_that_call_at_once_get_the_same_bits(right):
    with ThreadPoolExecutor(4) as pool:
        assert {job.result() for job in [pool.submit(golden_cases.digest) for _ in range(8)]} == {right}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # the pool of the tests has threads
def test_processes_that_are_forked_or_spawned_get_the_same_bits(right):
    for method in ("fork", "spawn"):
        if method in multiprocessing.get_all_start_methods():
            with noted(method=method), ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
                assert pool.submit(golden_cases.digest).result(timeout=300) == right


SCRIPT = """
import locale, sys
locale.setlocale(locale.LC_ALL, "")
assert locale.localeconv()["decimal_point"] == sys.argv[1], locale.localeconv()
import golden_cases
print(golden_cases.digest())
"""


def surrounded(script, argument, **surroundings):
    """What a new process prints."""
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent)]), **surroundings}
    command = [sys.executable, "-c", script, argument]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_hash_seeds_time_zones_and_the_plain_locale_change_no_bit(right):
    for seed, zone, name in (("1", "Pacific/Kiritimati", "C"), ("77", "America/St_Johns", "POSIX")):
        with noted(seed=seed, zone=zone, locale=name):
            assert surrounded(SCRIPT, ".", PYTHONHASHSEED=seed, TZ=zone, LC_ALL=name) == right


@pytest.mark.slow  # compiling them takes seconds
@pytest.mark.skipif(shutil.which("localedef") is None, reason="locales are compiled by localedef")
def test_locales_with_a_decimal_comma_or_a_dotless_i_change_no_bit(right, tmp_path):
    for name in ("de_DE", "tr_TR"):
        made = subprocess.run(["localedef", "-i", name, "-f", "UTF-8", tmp_path / f"{name}.UTF-8"], capture_output=True)
        if made.returncode:
            pytest.skip(f"the source of the locale {name} is not installed")
        with noted(locale=name):
            assert surrounded(SCRIPT, ",", LC_ALL=f"{name}.UTF-8", LOCPATH=str(tmp_path)) == right
