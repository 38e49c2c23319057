"""How well each of a few sentences fits each text: by entailment, by cosine of embeddings, or by likelihood.

Gives an (n, k) array of scores from a network that `loading` has read. What they are turned into is for
`zeroshot`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uqeval._check import Float, Int
from uqeval._errors import InputError
from uqeval.reproduce.models.text.models import TextModel

Tick = Callable[[int], None]

_LEAST_ROOM = 8  # tokens of a message that must fit beside the sentence


class Scorer(ABC):
    """Scores of sentences for texts, batch by batch; `cut` counts the texts that the last call shortened."""

    limit: int  # tokens: a text beyond them is shortened; 0 where it is not known
    precision = "as given"
    commit: str | None = None
    cut = 0

    @abstractmethod
    def scores(self, texts: Sequence[str], sentences: Sequence[str], model: TextModel, size: int, tick: Tick) -> Float:
        """The (n, k) scores; `tick` is told how many texts are done."""


class Function(Scorer):
    """A user's function of texts and sentences."""

    def __init__(self, function: Callable[[list[str], list[str]], Any]) -> None:
        self._function, self.limit = function, 0

    def scores(self, texts: Sequence[str], sentences: Sequence[str], model: TextModel, size: int, tick: Tick) -> Float:
        """The function's values, in pieces of `size` texts in their order."""
        out = np.empty((len(texts), len(sentences)))
        for start in range(0, len(texts), size):
            part = list(texts[start : start + size])
            found = np.asarray(self._function(part, list(sentences)), dtype=np.float64)
            if found.shape != (len(part), len(sentences)):
                raise InputError(
                    f"{model.name}: the function gave an array of shape {found.shape} for {len(part)} texts and "
                    f"{len(sentences)} sentences. It must be ({len(part)}, {len(sentences)})."
                )
            out[start : start + size] = found
            tick(start + len(part))
        return out


class _Network(Scorer):
    """A scorer that runs a network of transformers itself."""

    def __init__(self, network: Any, tokenizer: Any, device: Any, limit: int) -> None:
        self._network, self._tokenizer, self._device, self.limit = network, tokenizer, device, limit

    def _tokens(self, *texts: list[str], truncation: Any, **more: Any) -> Any:
        """A batch on the device, cut at the limit and filled up."""
        options = {"max_length": self.limit, "padding": True, "return_tensors": "pt"}
        return self._tokenizer(*texts, truncation=truncation, **options, **more).to(self._device)


class Entailment(_Network):
    """The entailment logit of an NLI model: the text is the premise, the sentence the hypothesis."""

    def scores(self, texts: Sequence[str], sentences: Sequence[str], model: TextModel, size: int, tick: Tick) -> Float:
        """One pass per pair of text and sentence, `size` pairs at a time, texts of like length together."""
        import torch  # an extra

        index = model.entailment if model.entailment is not None else entailment_index(self._network.config, model.name)
        parts = getattr(self._network.config, "type_vocab_size", None) or 0
        lengths, k = _lengths(self._tokenizer, texts, special=False), len(sentences)
        longest = int(_lengths(self._tokenizer, sentences, special=False).max())
        room = self.limit - longest - int(self._tokenizer.num_special_tokens_to_add(pair=True))
        _check_room(room, self.limit, model)
        self.cut = int((lengths > room).sum())
        order = np.argsort(-lengths, kind="stable")
        out = np.empty((len(texts), k))
        with torch.inference_mode():
            for start in range(0, len(texts) * k, size):
                pairs = np.arange(start, min(start + size, len(texts) * k))
                rows, columns = order[pairs // k], pairs % k
                # Some tokenizers leave out which part a token is of, though the network was trained with it.
                kinds = True if parts > 1 else None
                both = [texts[int(i)] for i in rows], [sentences[int(j)] for j in columns]
                batch = self._tokens(*both, truncation="only_first", return_token_type_ids=kinds)
                out[rows, columns] = self._network(**batch).logits[:, index].cpu().double().numpy()
                tick(int(pairs[-1] + 1) // k)
        return out


class Embedding(Scorer):
    """The cosine of the embeddings of text and sentence. Texts of the last call are kept for other sentences."""

    def __init__(self, encode: Callable[[list[str]], Any], tokenizer: Any = None, limit: int = 0) -> None:
        self._encode, self._tokenizer, self.limit = encode, tokenizer, limit
        self._kept: tuple[tuple[str, ...], Float] | None = None

    def scores(self, texts: Sequence[str], sentences: Sequence[str], model: TextModel, size: int, tick: Tick) -> Float:
        """Each text and each sentence is embedded once, with the prefixes that the model wants."""
        before, mark = model.prefix
        asked = tuple(before + text for text in texts)
        if self._kept is None or self._kept[0] != asked:
            self._kept = asked, self._embed(asked, size, tick)
        tick(len(texts))
        return self._kept[1] @ self._unit([mark + sentence for sentence in sentences]).T

    def _embed(self, texts: tuple[str, ...], size: int, tick: Tick) -> Float:
        if self._tokenizer is None:
            lengths = np.array([len(text) for text in texts])
        else:
            lengths = _lengths(self._tokenizer, texts, special=True)
            self.cut = int((lengths > self.limit).sum())
        order = np.argsort(-lengths, kind="stable")
        found: Float | None = None
        for start in range(0, len(texts), size):
            rows = order[start : start + size]
            part = self._unit([texts[i] for i in rows])
            found = np.empty((len(texts), part.shape[1])) if found is None else found
            found[rows] = part
            tick(start + len(rows))
        assert found is not None
        return found

    def _unit(self, texts: list[str]) -> Float:
        found = np.asarray(self._encode(texts), dtype=np.float64)
        if found.ndim != 2 or len(found) != len(texts):
            raise InputError(f"`encode` gave an array of shape {found.shape} for {len(texts)} texts, not one row each.")
        length = np.linalg.norm(found, axis=1, keepdims=True)
        return found / np.where(length > 0, length, 1.0)


class Likelihood(_Network):
    """The mean log-likelihood per token of the sentence as the answer of a sequence-to-sequence model."""

    def scores(self, texts: Sequence[str], sentences: Sequence[str], model: TextModel, size: int, tick: Tick) -> Float:
        """The question comes before the text, so that shortening takes the end of the text."""
        import torch  # an extra

        question = question_of(sentences)
        _check_room(self.limit - int(_lengths(self._tokenizer, [question], special=True)[0]), self.limit, model)
        asked = [question + text for text in texts]
        lengths = _lengths(self._tokenizer, asked, special=True)
        self.cut = int((lengths > self.limit).sum())
        order = np.argsort(-lengths, kind="stable")
        answers = [self._tokenizer(text_target=s, return_tensors="pt")["input_ids"].to(self._device) for s in sentences]
        out = np.empty((len(texts), len(sentences)))
        with torch.inference_mode():
            for start in range(0, len(texts), size):
                rows = order[start : start + size]
                batch = self._tokens([asked[i] for i in rows], truncation=True)
                mask = batch["attention_mask"]
                read = self._network.get_encoder()(input_ids=batch["input_ids"], attention_mask=mask)
                for j, answer in enumerate(answers):
                    labels = answer.repeat(len(rows), 1)
                    logits = self._network(encoder_outputs=read, attention_mask=mask, labels=labels).logits
                    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
                    chance = wide.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
                    out[rows, j] = chance.mean(dim=1).cpu().double().numpy()
                tick(start + len(rows))
        return out


def question_of(sentences: Sequence[str]) -> str:
    """What a sequence-to-sequence model is asked before it reads the text."""
    return f"Which of these fits the message best: {'; '.join(sentences)}? Message: "


def entailment_index(config: Any, name: str) -> int:
    """Which output means entailment, from the names of the labels in any order and case."""
    labels = {str(label).lower(): int(index) for label, index in (getattr(config, "label2id", None) or {}).items()}
    labels |= {str(label).lower(): int(index) for index, label in (getattr(config, "id2label", None) or {}).items()}
    found = {index for label, index in labels.items() if re.match(r"entail", label)}
    if len(found) != 1:
        raise InputError(
            f"{name}: the labels are {', '.join(sorted(labels)) or 'not named'}, so which one means entailment is not "
            f"known. Say it with :entailment=INDEX, or use a model that was trained on NLI."
        )
    return found.pop()


def _lengths(tokenizer: Any, texts: Sequence[str], *, special: bool) -> Int:
    ids = tokenizer(list(texts), add_special_tokens=special, truncation=False, verbose=False)["input_ids"]
    return np.array([len(row) for row in ids], dtype=np.int64)


def _check_room(room: int, limit: int, model: TextModel) -> None:
    if room < _LEAST_ROOM:
        raise InputError(
            f"{model.name}: {limit} tokens leave {max(room, 0)} for the message. "
            f"Use a larger `max_length` or a shorter template."
        )
