"""Reads a language model for `scorers`: from a folder, the cache of Hugging Face, or the network.

Safetensors alone, never pickled weights; no code of the repository is run.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uqeval._errors import InputError, MissingExtra
from uqeval.reproduce.logits.file import hash_file
from uqeval.reproduce.models.stack import broken, unusable
from uqeval.reproduce.models.text.models import TextModel, folder_of
from uqeval.reproduce.models.text.scorers import Embedding, Entailment, Function, Likelihood, Scorer

# Positions of these start after the padding index, so two of the stated ones cannot be used.
_SHIFTED = {"roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl"}
# These overflow in float16.
_WIDE = {"t5", "mt5", "umt5", "longt5", "deberta", "deberta-v2"}
_LONGEST = 100_000  # a tokenizer that states more states no limit


class NoNetwork(InputError):
    """A model is not on this machine and the network cannot be reached."""


def load_scorer(
    model: TextModel, *, device: Any, precision: str | None = None, max_length: int | None = None, download: bool = True
) -> Scorer:
    """The scorer of a model, with its weights read."""
    scorer = _loaded(model, device, precision, download)
    if max_length is not None and scorer.limit:
        scorer.limit = min(scorer.limit, max_length)
    return scorer


def weights_key(model: TextModel) -> dict[str, Any]:
    """What tells a model's weights apart: hashes of a folder's files, or id and revision."""
    folder = folder_of(model.target)
    if folder is None:
        return {"id": str(model.target), "revision": model.revision}
    kinds = {".safetensors", ".json", ".txt", ".model"}
    files = sorted(path for path in folder.rglob("*") if path.suffix in kinds and path.is_file())
    text = json.dumps([(path.relative_to(folder).as_posix(), hash_file(path)) for path in files])
    return {"files": hashlib.sha256(text.encode()).hexdigest()}


def _loaded(model: TextModel, device: Any, precision: str | None, download: bool) -> Scorer:
    if model.kind == "function":
        return Function(model.target)
    if model.kind == "embedding" and model.live and hasattr(model.target, "encode"):
        return _encoder_of(model.target)
    if not model.live:
        _check_files(model)
    if model.kind == "embedding" and not model.live and _has_sentence_transformers():
        return _sentence_transformer(model, device, precision, download)
    if model.kind == "embedding":
        return _mean_pooling(*_pair(model, "AutoModel", download), model, device, precision)
    what = "AutoModelForSequenceClassification" if model.kind == "nli" else "AutoModelForSeq2SeqLM"
    network, tokenizer = _pair(model, what, download)
    tokenizer = _padded(tokenizer, model)
    network, used = _placed(network, device, precision)
    made = Entailment if model.kind == "nli" else Likelihood
    scorer = made(network, tokenizer, device, _limit(tokenizer, network.config))
    scorer.precision, scorer.commit = used, getattr(network.config, "_commit_hash", None)
    return scorer


def _pair(model: TextModel, loader: str, download: bool) -> tuple[Any, Any]:
    if model.live:
        network, tokenizer = model.target
        return network, tokenizer
    try:
        import transformers  # an extra
    except Exception as error:  # it may load torchvision
        raise unusable(f"the model {model.name}", "transformers", "text", error) from None
    tokenizer = _fetched(transformers.AutoTokenizer.from_pretrained, model, download)
    options = {"use_safetensors": True, "output_loading_info": True}
    network, read = _fetched(getattr(transformers, loader).from_pretrained, model, download, **options)
    lost = sorted(str(key) for key in read["missing_keys"] if re.search(r"classif|score|head", str(key)))
    if lost and loader != "AutoModel":
        raise InputError(
            f"{model.name}: {model.target} has no weights for {', '.join(lost[:3])}, so its answers would be random. "
            f"Use a model that was trained for NLI, or pass it as embedding:{model.target}."
        )
    return network, tokenizer


def _sentence_transformer(model: TextModel, device: Any, precision: str | None, download: bool) -> Scorer:
    from sentence_transformers import SentenceTransformer  # an extra

    network = _fetched(SentenceTransformer, model, download, device=str(device), model_kwargs={"use_safetensors": True})
    network, used = _placed(network, device, precision)
    scorer = _encoder_of(network)
    scorer.precision = used
    scorer.commit = getattr(getattr(network[0], "config", None), "_commit_hash", None)
    return scorer


def _encoder_of(network: Any) -> Embedding:
    if not hasattr(network, "max_seq_length"):
        return Embedding(network.encode)

    def encode(texts: list[str]) -> Any:
        # An empty prompt: the prefixes are ours, so that they are the same with and without sentence-transformers.
        network.max_seq_length = scorer.limit
        return network.encode(texts, prompt="", batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)

    scorer = Embedding(encode, network.tokenizer, network.max_seq_length)
    return scorer


def _mean_pooling(network: Any, tokenizer: Any, model: TextModel, device: Any, precision: str | None) -> Scorer:
    import torch  # an extra

    folder = None if model.live else folder_of(model.target)
    if not model.live and not _plain_mean(folder):
        raise MissingExtra(f"the embedding of {model.name}", "sentence-transformers", "text")
    tokenizer = _padded(tokenizer, model)
    network, used = _placed(network, device, precision)
    limit = _limit(tokenizer, network.config)
    settings = folder / "sentence_bert_config.json" if folder is not None else None
    if settings is not None and settings.is_file():
        limit = min(limit, int(json.loads(settings.read_text(encoding="utf-8")).get("max_seq_length") or limit))

    def encode(texts: list[str]) -> Any:
        with torch.inference_mode():
            batch = tokenizer(texts, truncation=True, max_length=scorer.limit, padding=True, return_tensors="pt").to(
                device
            )
            tokens = network(**batch).last_hidden_state
            tokens = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
            mask = batch["attention_mask"][..., None].to(tokens.dtype)
            return ((tokens * mask).sum(1) / mask.sum(1).clamp(min=1)).cpu().numpy()

    scorer = Embedding(encode, tokenizer, limit)
    scorer.precision = used
    return scorer


def _plain_mean(folder: Path | None) -> bool:
    """Whether the folder's embedding is the mean of the last layer and nothing more."""
    if folder is None:
        return False
    if not (folder / "modules.json").is_file():
        return True
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    if any(module["type"].split(".")[-1] not in {"Transformer", "Pooling", "Normalize"} for module in modules):
        return False
    for module in modules:
        if module["type"].endswith("Pooling"):
            settings = json.loads((folder / module["path"] / "config.json").read_text(encoding="utf-8"))
            used = {key for key, value in settings.items() if key.startswith("pooling_mode_") and value}
            if used and used != {"pooling_mode_mean_tokens"}:
                return False
    return True


def _has_sentence_transformers() -> bool:
    try:
        import sentence_transformers  # noqa: F401 (an extra)
    except Exception as error:  # it may load torchvision
        if (why := broken(error)) is not None:
            raise why from None
        if not isinstance(error, ImportError):
            raise
        return False
    return True


def _fetched(loader: Callable[..., Any], model: TextModel, download: bool, **options: Any) -> Any:
    """What the loader gives: from the folder or the cache, and only then from the network."""
    folder = folder_of(model.target)
    place = str(model.target if folder is None else folder)
    cause: Exception | None = None
    for local in (True,) if folder is not None or not download else (True, False):
        try:
            with _quiet():
                return loader(
                    place, revision=model.revision, local_files_only=local, trust_remote_code=False, **options
                )
        except Exception as error:  # each reader of files raises its own
            cause = error
            if (why := broken(error)) is not None:  # other files would not help
                raise why from None
    reason = str(cause).strip().split("\n")[0]
    where = "" if folder is not None else f" Looked in the cache {_cache()}{' and on the network' if download else ''}."
    unreached = (
        download and folder is None and re.search(r"couldn't connect|offline|resolve host|unreachable", str(cause))
    )
    raise (NoNetwork if unreached else InputError)(
        f"{model.name}: {place!r} could not be loaded ({type(cause).__name__}: {reason}).{where} Put its files into a "
        f"folder (config.json, *.safetensors, the tokenizer's files) and pass {model.kind}:FOLDER."
    ) from cause


def _check_files(model: TextModel) -> None:
    folder = folder_of(model.target)
    if folder is None and (str(model.target).startswith((".", "/", "~")) or str(model.target).count("/") > 1):
        raise InputError(f"{model.name}: there is no folder {str(model.target)!r}.")
    if folder is not None and not any(folder.rglob("*.safetensors")):
        raise InputError(
            f"{model.name}: {folder} has no .safetensors file, and pickled weights are not loaded. Write them with "
            f"`save_pretrained` of transformers."
        )


def _cache() -> str:
    home = os.environ.get("HF_HOME") or os.path.join("~", ".cache", "huggingface")
    return os.path.expanduser(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))


@contextmanager
def _quiet() -> Iterator[None]:
    from transformers.utils import logging as log  # an extra

    logging: Any = log  # some of its functions have no types
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _placed(network: Any, device: Any, precision: str | None) -> tuple[Any, str]:
    """The network on its device, ready to predict: float32 on a CPU, 16 bits on a GPU unless said otherwise."""
    import torch  # an extra

    config = getattr(network, "config", None)
    kind = getattr(config if config is not None else getattr(network[0], "config", None), "model_type", "")
    if precision is None:
        precision = "float32" if device.type == "cpu" else "bfloat16" if kind in _WIDE else "float16"
    if precision not in ("float16", "bfloat16", "float32", "float64"):
        raise InputError(f"`precision` is {precision!r}. Use float64, float32, float16 or bfloat16.")
    return network.to(device=device, dtype=getattr(torch, precision)).eval(), precision


def _padded(tokenizer: Any, model: TextModel) -> Any:
    if getattr(tokenizer, "pad_token", None) is None:
        raise InputError(f"{model.name}: its tokenizer has no padding token, so texts cannot go in batches. Set one.")
    return tokenizer


def _limit(tokenizer: Any, config: Any) -> int:
    """The most tokens that both the tokenizer and the positions of the network allow."""
    stated = int(min(getattr(tokenizer, "model_max_length", _LONGEST + 1), _LONGEST + 1))
    places = getattr(config, "max_position_embeddings", None)
    if isinstance(places, int) and places > 0:
        stated = min(stated, places - 2 if getattr(config, "model_type", "") in _SHIFTED else places)
    return stated if stated <= _LONGEST else 512
