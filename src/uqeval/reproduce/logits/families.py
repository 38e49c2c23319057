"""Which family a model belongs to, and the paper's colour and mark of each family."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["OTHER", "TEXT", "VISION", "Look", "family_of", "look_of"]


class Look(NamedTuple):
    """How a family is drawn."""

    colour: str
    shape: str  # "circle" or "cross"


OTHER = "Other"
# The caption of the paper's figure: sixteen families of image classifiers, ten of language models.
VISION: dict[str, Look] = {
    "GoogLeNet": Look("#D55E00", "circle"),
    "AlexNet": Look("#D55E00", "cross"),
    "ResNet": Look("#56B4E9", "circle"),
    "RegNet": Look("#56B4E9", "cross"),
    "Swin": Look("#E69F00", "circle"),
    "ResNeXt": Look("#E69F00", "cross"),
    "MobileNet": Look("#0072B2", "circle"),
    "EfficientNet": Look("#0072B2", "cross"),
    "ViT": Look("#CC79A7", "circle"),
    "Wide ResNet": Look("#CC79A7", "cross"),
    "MNASNet": Look("#F0E442", "circle"),
    "ConvNeXt": Look("#F0E442", "cross"),
    "Inception": Look("#000000", "circle"),
    "DenseNet": Look("#000000", "cross"),
    "VGG": Look("#009E73", "circle"),
    "ShuffleNet": Look("#009E73", "cross"),
}
TEXT: dict[str, Look] = {
    "BART": Look("#D55E00", "cross"),
    "DistilBERT": Look("#D55E00", "circle"),
    "DeBERTa": Look("#000000", "cross"),
    "RoBERTa": Look("#56B4E9", "circle"),
    "BERT": Look("#E69F00", "cross"),
    "XLM": Look("#E69F00", "circle"),
    "MiniLM": Look("#0072B2", "cross"),
    "E5": Look("#0072B2", "circle"),
    "mContriever": Look("#CC79A7", "circle"),
    OTHER: Look("#56B4E9", "cross"),
}
_UNKNOWN = Look("#777777", "circle")

# The first that fits: a wide ResNet is no ResNet, a DistilBERT no BERT. The paper's list puts CamemBERT, RuBERT and
# Megatron among the others.
_PATTERNS = (
    ("Wide ResNet", r"wide_?-?resnet|wrn"),
    ("ResNeXt", r"resnext"),
    ("ResNet", r"resnet"),
    ("GoogLeNet", r"googlenet"),
    ("AlexNet", r"alexnet"),
    ("RegNet", r"regnet"),
    ("Swin", r"swin"),
    ("MobileNet", r"mobilenet"),
    ("EfficientNet", r"efficientnet"),
    ("ViT", r"(?:^|[-_/.])vit(?:[-_/.]|$)"),
    ("MNASNet", r"mnasnet"),
    ("ConvNeXt", r"convnext"),
    ("Inception", r"inception"),
    ("DenseNet", r"densenet"),
    ("VGG", r"vgg"),
    ("ShuffleNet", r"shufflenet"),
    (OTHER, r"camembert|rubert|megatron|flan"),
    ("mContriever", r"contriever"),
    ("MiniLM", r"minilm"),
    ("E5", r"(?:^|[-_/.])e5(?:[-_/.]|$)"),
    ("BART", r"bart(?!h)"),
    ("DeBERTa", r"deberta"),
    ("XLM", r"(?:^|[-_/.])xlm"),
    ("RoBERTa", r"roberta"),
    ("DistilBERT", r"distilbert"),
    ("BERT", r"bert"),
)


def family_of(name: str) -> str:
    """The family in the paper's figure; "Other" where the name tells nothing.

    Examples
    --------
    >>> family_of("wide_resnet50_2-e4"), family_of("facebook/bart-large-mnli"), family_of("mine")
    ('Wide ResNet', 'BART', 'Other')
    """
    low = name.lower()
    return next((family for family, pattern in _PATTERNS if re.search(pattern, low)), OTHER)


def look_of(family: str, *, text: bool = False) -> Look:
    """The paper's colour and mark of a family; a grey dot for one that the paper does not have.

    Examples
    --------
    >>> look_of("ResNet")
    Look(colour='#56B4E9', shape='circle')
    """
    return (TEXT if text else VISION).get(family, _UNKNOWN)
