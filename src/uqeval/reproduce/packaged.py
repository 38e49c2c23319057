"""Tables that come with the package: grids, lists of models, the paper's numbers, words of pages."""

import tomllib
from importlib.resources import files
from typing import Any


def read_table(name: str) -> dict[str, Any]:
    """A TOML file of this folder, as "synthetic/synthetic.toml"."""
    return tomllib.loads(files("uqeval.reproduce").joinpath(*name.split("/")).read_text(encoding="utf-8"))
