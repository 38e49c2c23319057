"""Which family a model belongs to, and the paper's colour and mark of each family."""

import re
from typing import NamedTuple

from uqeval.reproduce.packaged import read_table


class Look(NamedTuple):
    """How a family is drawn."""

    colour: str
    shape: str  # "circle" or "cross"


OTHER = "Other"
_TABLE = read_table("logits/families.toml")
VISION, TEXT = ({name: Look(*look) for name, look in _TABLE[kind].items()} for kind in ("vision", "text"))
_UNKNOWN = Look("#777777", "circle")


def family_of(name: str) -> str:
    """The family in the paper's figure; "Other" where the name tells nothing.

    Examples
    --------
    >>> family_of("wide_resnet50_2-e4"), family_of("facebook/bart-large-mnli"), family_of("mine")
    ('Wide ResNet', 'BART', 'Other')
    """
    return next((family for family, part in _TABLE["patterns"].items() if re.search(part, name.lower())), OTHER)


def look_of(family: str, *, text: bool = False) -> Look:
    """The paper's colour and mark of a family; a grey dot for one that the paper does not have.

    Examples
    --------
    >>> look_of("ResNet")
    Look(colour='#56B4E9', shape='circle')
    """
    return (TEXT if text else VISION).get(family, _UNKNOWN)
