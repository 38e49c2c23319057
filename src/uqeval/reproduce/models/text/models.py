"""Which language models classify the messages of OASST2, and how each is asked.

The paper names its models without saying which repository they come from; `models.toml` has our reading of that list.
Any other model does too: `nli:ID_OR_FOLDER`, `embedding:ID_OR_FOLDER`, `seq2seq:ID_OR_FOLDER`, or an object. Nothing is
loaded here.
"""

import importlib.util
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uqeval._errors import InputError
from uqeval.reproduce.logits.families import family_of
from uqeval.reproduce.logits.writer import check_once
from uqeval.reproduce.packaged import read_table

KINDS = ("nli", "embedding", "seq2seq", "function")
_DATA = read_table("models/text/models.toml")
TEMPLATES: dict[str, str] = _DATA["templates"]
# The wording of the 15 categories: a phrase each, or the bare name in the data.
WORDS = {"phrases": _DATA["phrases"], "names": {name: name.replace("_", " ") for name in _DATA["phrases"]}}

_TEMPERATURE = {"nli": 1.0, "seq2seq": 1.0, "function": 1.0, "embedding": 0.05}
_E5_TEMPERATURE = 0.01  # E5 was trained with it (Wang et al. 2022): its cosines lie close together
_INSTRUCTION = "Instruct: Say what kind of message this is.\nQuery: "


@dataclass(frozen=True)
class TextModel:
    """A model and how it is asked; nothing is loaded.

    Attributes
    ----------
    name : str
        What it is called in the study.
    target : str, Path or object
        A folder, a Hugging Face id, an installed package that carries the weights, or a live object: a
        (model, tokenizer) pair, something with `encode`, or a function of texts and 15 sentences.
    kind : str
        "nli", "embedding", "seq2seq" or "function".
    languages : tuple of str, optional
        Those that the model supports; None for all.
    template, words : str
        A key of `TEMPLATES` or a text with {}; a key of `WORDS`.
    temperature : float, optional
        What the 15 scores are divided by before softmax: 0.05 for cosines (0.01 for E5), otherwise 1.
    prefix : tuple of str
        Written before the message and before the category, as E5 demands.
    revision : str, optional
        Branch, tag or commit of a Hugging Face repository.
    entailment : int, optional
        Which output of an NLI model means entailment, where its configuration does not say.

    Examples
    --------
    >>> model, = text_models(["nli:facebook/bart-large-mnli:template=about@en"])
    >>> model.name, model.kind, model.languages, model.family
    ('bart-large-mnli-about', 'nli', ('en',), 'BART')
    """

    name: str
    target: Any
    kind: str
    languages: tuple[str, ...] | None = None
    template: str = ""
    words: str = "phrases"
    temperature: float | None = None
    prefix: tuple[str, str] = ("", "")
    revision: str | None = None
    entailment: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"{self.name}: `kind` is {self.kind!r}. Use one of {', '.join(KINDS)}.")
        if not self.template:
            object.__setattr__(self, "template", "bare" if self.kind == "seq2seq" else "shows")
        if self.template not in TEMPLATES and self.template.count("{}") != 1:
            raise InputError(
                f"{self.name}: `template` is {self.template!r}. Use one of {', '.join(TEMPLATES)}, "
                f"or a text with one {{}}."
            )
        if self.words not in WORDS:
            raise InputError(f"{self.name}: `words` is {self.words!r}. Use one of {', '.join(WORDS)}.")
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            raise InputError(f"{self.name}: `temperature` is {self.temperature}. Use a number above 0.")

    @property
    def family(self) -> str:
        """The family in the paper's figure."""
        return family_of(self.name)

    @property
    def scale(self) -> float:
        """The temperature that is used."""
        return _TEMPERATURE[self.kind] if self.temperature is None else self.temperature

    @property
    def live(self) -> bool:
        """Whether the target is an object rather than a name of files."""
        return not isinstance(self.target, str | Path)

    @property
    def pattern(self) -> str:
        """The template's text."""
        return TEMPLATES.get(self.template, self.template)

    def sentences(self, categories: Sequence[str]) -> list[str]:
        """What stands for each category."""
        words = WORDS[self.words]
        return [self.pattern.replace("{}", words.get(name, name.replace("_", " "))) for name in categories]


_TAG = r"[A-Za-z]{2,3}(?:-[A-Za-z]{2,4})?"


def _tags(languages: str | Iterable[str]) -> tuple[str, ...]:
    parts = re.split(r"[,+\s]+", languages) if isinstance(languages, str) else list(languages)
    found = tuple(dict.fromkeys(part.lower() for part in parts if part))
    bad = [part for part in found if not re.fullmatch(_TAG, part)]
    if bad or not found:
        raise InputError(f"`languages` is {languages!r}. Use codes such as en, de or pt-BR.")
    return found


_E5 = ("passage: ", "query: ")  # the category asks, the message is what is found


def _made(name: str, target: str, kind: str, languages: str = "") -> TextModel:
    """A model as its kind and name want it asked; `languages` may name a list of `models.toml`."""
    spoken = _tags(_DATA["languages"].get(languages, languages)) if languages else None
    if kind == "embedding" and re.search(r"(?:^|[-_])e5(?:[-_]|$)", name.lower()):
        prefix = (_INSTRUCTION, "") if "instruct" in name.lower() else _E5
        return TextModel(name, target, kind, spoken, temperature=_E5_TEMPERATURE, prefix=prefix)
    return TextModel(name, target, kind, spoken)


PAPER_MODELS = tuple(_made(name, **about) for name, about in _DATA["models"].items())
_KNOWN = {text.lower(): model for model in PAPER_MODELS for text in (model.name, model.target)}

_LANGUAGES = re.compile(rf"@({_TAG}(?:[,+]{_TAG})*)$")
# Ids that tell their kind, by the habits of the Hugging Face hub.
_TELLING = (("embedding", r"^sentence-transformers/|/.*\be5\b"), ("nli", r"/.*(?:mnli|xnli|zero-?shot|\bnli\b)"))
_OPTION = re.compile(r":(name|template|words|temperature|languages|revision|entailment)=([^:]*)$")


def text_models(
    models: str | TextModel | Sequence[Any] | Mapping[str, Any] = "paper",
    *,
    languages: str | Iterable[str] | None = None,
) -> list[TextModel]:
    """The models that a list of names means.

    Parameters
    ----------
    models : str, object, or a list of them, or a dict of name and object
        "paper" for the paper's list; a name of that list or its Hugging Face id; or
        `KIND:TARGET:option=value@languages` with KIND nli, embedding or seq2seq, TARGET a folder, a Hugging Face id or
        an installed package with weights, options name, template, words, temperature, languages, revision, entailment,
        and languages such as `en+de`. KIND may be left out for a folder or id that tells it. Live
        objects: see `TextModel`.
    languages : str or list of str, optional
        Those of the models that declare none.

    Returns
    -------
    list of TextModel
        With different names.

    Examples
    --------
    >>> [m.name for m in text_models(["E5-base", "embedding:me/mine:temperature=0.1@en+de"])]
    ['E5-base', 'mine-t0.1']
    >>> len(text_models("paper"))
    32
    """
    if isinstance(models, Mapping):
        found = [_model_of(value, name) for name, value in models.items()]
    elif isinstance(models, str) and models.lower() == "paper":
        found = list(PAPER_MODELS)
    elif isinstance(models, list | tuple) and not _is_pair(models):
        found = [m for one in models for m in (PAPER_MODELS if one == "paper" else [_model_of(one)])]
    else:
        found = [_model_of(models)]
    if languages is not None:
        declared = _tags(languages)
        found = [replace(m, languages=declared) if m.languages is None else m for m in found]
    if not found:
        raise InputError('`models` is empty. Name models, or pass "paper".')
    check_once("models", [model.name for model in found], "Give each its own with :name=….")
    return found


def supports(model: TextModel, language: str) -> bool:
    """Whether the model takes a message in this language; `pt` covers `pt-BR`.

    Examples
    --------
    >>> model, = text_models("nli:me/mine@pt+en")
    >>> supports(model, "pt-BR"), supports(model, "de")
    (True, False)
    """
    tag = language.lower()
    return model.languages is None or tag in model.languages or tag.split("-")[0] in model.languages


def folder_of(target: str | Path) -> Path | None:
    """The folder with a model's files: itself, or inside an installed package; None for a Hugging Face id."""
    path = Path(target).expanduser()
    if path.is_dir():
        return path
    name = str(target).replace("-", "_")
    if not name.isidentifier():  # a dotted name would import its parent
        return None
    spec = importlib.util.find_spec(name)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        inside = sorted(config.parent for config in Path(place).rglob("config.json"))
        whole = [folder for folder in inside if any(folder.glob("*.safetensors"))]
        if whole:
            return whole[0]
    return None


def _model_of(value: Any, name: str | None = None) -> TextModel:
    if isinstance(value, TextModel):
        return value if name is None else replace(value, name=name)
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, str):
        model = _parse(value)
        return model if name is None else replace(model, name=name)
    if _is_pair(value) or (hasattr(value, "model") and hasattr(value, "tokenizer") and not hasattr(value, "encode")):
        pair = tuple(value) if _is_pair(value) else (value.model, value.tokenizer)
        config = getattr(pair[0], "config", None)
        label = name or str(getattr(config, "_name_or_path", "") or type(pair[0]).__name__)
        return TextModel(Path(label).name, pair, _kind_of([type(pair[0]).__name__]))
    if hasattr(value, "encode"):
        return TextModel(name or type(value).__name__, value, "embedding")
    if callable(value):
        return TextModel(name or str(getattr(value, "__name__", type(value).__name__)), value, "function")
    raise InputError(
        f"`models` holds {value!r}. Use a name, `nli:ID_OR_FOLDER`, `embedding:ID_OR_FOLDER`, "
        f"a (model, tokenizer) pair, an object with `encode`, or a function of texts and sentences."
    )


def _parse(text: str) -> TextModel:
    rest, options = text.strip(), dict[str, str]()
    while True:
        if found := _LANGUAGES.search(rest):
            options.setdefault("languages", found[1])
        elif found := _OPTION.search(rest):
            options.setdefault(found[1], found[2])
        else:
            break
        rest = rest[: found.start()]
    kind, _, target = rest.partition(":")
    if kind.lower() in KINDS[:3] and target:
        kind = kind.lower()
    else:
        kind, target = "", rest
    known = _KNOWN.get(target.lower())
    if known is not None and kind in ("", known.kind):
        base = known if target.lower() == known.name.lower() else replace(known, name=Path(target).name)
    else:
        base = _unlisted(text, kind, target)
    return _with_options(base, options)


def _unlisted(text: str, kind: str, target: str) -> TextModel:
    if not kind:
        folder = folder_of(target)
        guess = next((kind for kind, part in _TELLING if folder is None and re.search(part, target.lower())), None)
        if folder is None and guess is None:
            raise InputError(
                f"`models` holds {text!r}, which is neither a name of the paper's list nor a folder. Say what it is: "
                f"nli:{text} or embedding:{text}; languages are joined by +, as in @en+de. Names: "
                f"{', '.join(model.name for model in PAPER_MODELS)}."
            )
        kind = guess or _kind_of_folder(Path(folder or target))
    return _made(Path(target).name, target, kind)


def _with_options(base: TextModel, options: dict[str, str]) -> TextModel:
    change: dict[str, Any] = {key: options[key] for key in ("template", "words", "revision") if key in options}
    for key, number in (("temperature", float), ("entailment", int)):
        if key in options:
            try:
                change[key] = number(options[key])
            except ValueError:
                raise InputError(f"{base.name}: `{key}` is {options[key]!r}. Use a number.") from None
    if "languages" in options:
        change["languages"] = None if options["languages"] == "all" else _tags(options["languages"])
    marks = [options[key] for key in ("template", "words") if key in options]
    marks += [f"t{options['temperature']}"] if "temperature" in options else []
    change["name"] = options.get("name") or "-".join([base.name, *marks])
    return replace(base, **change)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and hasattr(value[0], "config") and callable(value[1])


def _kind_of_folder(folder: Path) -> str:
    if (folder / "modules.json").is_file():
        return "embedding"
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} has no config.json that can be read ({error}), so it holds no model.") from None
    return _kind_of(config.get("architectures") or [])


def _kind_of(architectures: Sequence[str]) -> str:
    text = " ".join(architectures)
    if "SequenceClassification" in text:
        return "nli"
    return "seq2seq" if "ConditionalGeneration" in text else "embedding"
