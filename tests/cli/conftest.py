"""Commands run in an empty folder: what one writes by default stays there."""

import pytest


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))
