"""Zero-shot classification of OASST2's messages: language models give each message a chance of being positive.

Scores of 15 categories come from `scorers`, models from `models`; here they become two classes, with the
messages in languages that a model does not support left out. The study itself reads the files that are written.
"""

import gc
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Float, Int, Progress
from uqeval._errors import InputError, MissingExtra
from uqeval.datasets.oasst2 import CATEGORIES, POSITIVE
from uqeval.reproduce.logits.file import hash_labels
from uqeval.reproduce.logits.writer import Making
from uqeval.reproduce.models.device import pick_device
from uqeval.reproduce.models.text.loading import NoNetwork, load_scorer, weights_key
from uqeval.reproduce.models.text.models import TextModel, supports, text_models
from uqeval.reproduce.models.text.scorers import Scorer, question_of
from uqeval.reproduce.store import cell_key

_REVISION = 1  # raised when the same configuration gives other numbers
_HOW = {
    "nli": "entailment logit of an NLI model, the message as premise, the sentence as hypothesis",
    "embedding": "cosine of the embeddings of message and sentence",
    "seq2seq": "mean log-likelihood per token of the sentence as the answer to a question about the message",
    "function": "scores of a user's function of messages and sentences",
}


def classify_messages(
    models: str | TextModel | Sequence[Any] | Mapping[str, Any],
    messages: Any,
    folder: str | Path,
    *,
    batch_size: int = 32,
    device: Any = None,
    progress: Progress | None = None,
    languages: str | Iterable[str] | None = None,
    max_length: int | None = None,
    precision: str | None = None,
    download: bool = True,
    keep_going: bool = False,
    min_rows: int = 50,
    failures: list[dict[str, str]] | None = None,
) -> list[str]:
    """Predictions of language models that were never trained for the task, one file per model.

    Each of the 15 categories becomes a sentence (`TextModel.template`). A model scores how well it fits the message:
    by the logit of entailment (NLI), by the cosine of two embeddings, or by its likelihood as an answer (sequence to
    sequence). Softmax of scores over temperature gives 15 probabilities that sum to one; those of the positive
    categories are summed, and so are the others. The logarithms of the two sums are saved as the logits of the classes
    negative and positive. The paper says neither its sentences nor its temperature: these are our choices, and each
    file's `source` states them.

    Parameters
    ----------
    models : str, object, or a list of them
        See `uqeval.reproduce.models.text.models.text_models`.
    messages : OASST2
        As `uqeval.datasets.oasst2` gives it: `texts`, `languages`, `labels` (0 negative, 1 positive).
    folder : path
        Where the predictions go. A model whose file is there, whole and of the same configuration, is not run again.
    batch_size : int
        Sequences per pass: messages, or pairs of message and sentence for NLI.
    device : str or torch.device, optional
        A GPU where there is one.
    progress : callable(stage, done, total), optional
        Told how many messages of all models are done.
    languages : str or list of str, optional
        Those of models that declare none. Messages in other languages are left out for that model.
    max_length : int, optional
        Fewer tokens than the model's own most. What is longer is cut at the end of the message.
    precision : str, optional
        "float64", "float32", "float16" or "bfloat16"; float32 on a CPU, otherwise 16 bits. A file of another
        precision is made anew.
    download : bool
        False to use folders and the cache of Hugging Face alone.
    keep_going : bool
        Goes on without a model that cannot be used, with a warning; an error only if none is left.
    min_rows : int
        A model that supports the language of fewer messages is an error.
    failures : list, optional
        With `keep_going`, gets "model", "file" and "reason" of each model that was left out, instead of warnings and
        of the error if none is left.

    Returns
    -------
    list of str
        Names of the models whose predictions are in the folder.

    Examples
    --------
    >>> import tempfile
    >>> from types import SimpleNamespace
    >>> def polite(texts, sentences):
    ...     return [[float("thanks" in text and "help" in s) for s in sentences] for text in texts]
    >>> mail = SimpleNamespace(texts=["thanks", "buy now"], languages=["en", "en"], labels=[1, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     classify_messages(polite, mail, folder, min_rows=1)
    ['polite']
    """
    if batch_size < 1:
        raise InputError(f"`batch_size` is {batch_size}. Use 1 or more.")
    chosen = text_models(models, languages=languages)
    making = Making(folder, keep_going, failures)
    run = _Run(messages, making, batch_size, progress)
    plan: list[tuple[TextModel, Int]] = []
    for model in chosen:
        rows = run.rows(model)
        with making.guard(model.name):
            if len(rows) < min_rows:
                raise InputError(
                    f"{model.name} supports {', '.join(model.languages or ['all languages'])}: {len(rows)} of "
                    f"{len(run.texts)} messages, fewer than {min_rows}. Leave it out, or pass a smaller `min_rows`."
                )
            plan.append((model, rows))
    run.total = sum(len(rows) for _, rows in plan)
    loaded: tuple[Any, Scorer] | None = None
    for model, rows in plan:
        try:
            key = run.key(model, rows, max_length, precision, device)
            if making.open(model.name, key):
                same = (model.kind, str(model.target) if not model.live else id(model.target), model.revision)
                if loaded is None or loaded[0] != same:
                    loaded = None  # the last network goes before the next comes
                    gc.collect()
                    where = None if model.kind == "function" else pick_device(device)
                    options: dict[str, Any] = {"precision": precision, "max_length": max_length, "download": download}
                    loaded = same, load_scorer(model, device=where, **options)
                run.classify(model, rows, loaded[1], key)
        except (InputError, MissingExtra) as error:
            download = download and not isinstance(error, NoNetwork)  # each try of the network takes half a minute
            making.leave(model.name, error)
        run.advance(len(rows))
    return making.done(model.name for model, _ in plan)


def binary_log_probs(scores: ArrayLike, positive: ArrayLike, temperature: float = 1.0) -> Float:
    r"""Log-probabilities of negative and positive from scores of categories.

    .. math:: \log \sum_{k \in C} \exp(s_k / T) - \log \sum_k \exp(s_k / T)

    Parameters
    ----------
    scores : array-like of shape (n, k)
        Higher means that the category fits better.
    positive : array-like of shape (k,)
        True for positive categories.
    temperature : float
        T > 0.

    Returns
    -------
    ndarray of shape (n, 2)
        [negative, positive].

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(binary_log_probs([[0.0, 0.0, 0.0, 0.0]], [True, False, False, False])).round(2)
    array([[0.75, 0.25]])
    """
    z = np.asarray(scores, dtype=np.float64) / temperature
    mask = np.asarray(positive, dtype=bool)
    z = z - _log_sum(z)[:, None]
    return np.stack([_log_sum(z[:, ~mask]), _log_sum(z[:, mask])], axis=1)


class _Run:
    """The messages and where their predictions go."""

    def __init__(self, messages: Any, making: Making, size: int, progress: Progress | None) -> None:
        self.texts = [str(text) for text in messages.texts]
        self.languages = [str(language) for language in messages.languages]
        self.labels = np.asarray(messages.labels, dtype=np.int64)
        if not len(self.texts) == len(self.languages) == len(self.labels):
            raise InputError(
                f"`messages` has {len(self.texts)} texts, {len(self.languages)} languages and {len(self.labels)} "
                f"labels. There must be as many of each."
            )
        self.categories = list(getattr(messages, "categories", None) or CATEGORIES)
        positive = set(getattr(messages, "positive", None) or POSITIVE)
        self.positive = np.array([name in positive for name in self.categories])
        if self.positive.all() or not self.positive.any():
            raise InputError(f"`messages` has the positive categories {sorted(positive)}: both kinds are needed.")
        self._making, self._size, self._progress = making, size, progress
        self.total = self._done = 0

    def rows(self, model: TextModel) -> Int:
        known = {language: supports(model, language) for language in set(self.languages)}
        return np.array([i for i, language in enumerate(self.languages) if known[language]], dtype=np.int64)

    def key(
        self, model: TextModel, rows: Int, max_length: int | None, precision: str | None, device: Any
    ) -> str | None:
        """A hash of all that the file depends on; None for a live object, which has none."""
        if model.live:
            return None
        if precision is None:
            precision = "32 bits" if pick_device(device).type == "cpu" else "16 bits"
        texts = hashlib.sha256(json.dumps([self.texts[i] for i in rows]).encode()).hexdigest()
        return cell_key(
            {
                "study": "oasst2",
                "revision": _REVISION,
                "weights": weights_key(model),
                "kind": model.kind,
                "entailment": model.entailment,
                "sentences": model.sentences(self.categories),
                "question": question_of(model.sentences(self.categories)) if model.kind == "seq2seq" else None,
                "prefix": list(model.prefix),
                "temperature": model.scale,
                "max_length": max_length,
                "positive": [name for name, yes in zip(self.categories, self.positive, strict=True) if yes],
                "rows": hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest(),
                "texts": texts,
                "labels": hash_labels(self.labels),
                "precision": precision,
            }
        )

    def classify(self, model: TextModel, rows: Int, scorer: Scorer, key: str | None) -> None:
        sentences = model.sentences(self.categories)
        scores = scorer.scores([self.texts[i] for i in rows], sentences, model, self._size, self._tick)
        if not np.isfinite(scores).all():
            bad = int((~np.isfinite(scores)).any(axis=1).sum())
            raise InputError(
                f"{model.name}: NaN or infinite scores for {bad} of {len(rows)} messages in {scorer.precision}. "
                f'Try precision="float32".'
            )
        self._making.save(
            model.name,
            binary_log_probs(scores, self.positive, model.scale),
            labels=self.labels,
            source=self._source(model, rows, scorer),
            family=model.family,
            key=key,
            rows=None if len(rows) == len(self.texts) else rows,
        )

    def advance(self, rows: int) -> None:
        self._done += rows
        self._tick(0)

    def _tick(self, rows: int) -> None:
        if self._progress is not None:
            self._progress("zero-shot classification", self._done + rows, self.total)

    def _source(self, model: TextModel, rows: Int, scorer: Scorer) -> str:
        what = (
            type(model.target).__name__ if model.live else Path(model.target).name if _is_path(model) else model.target
        )
        commit = scorer.commit or model.revision
        parts = [
            f"zero-shot by {what}{f' at {commit}' if commit else ''} ({model.kind}): {_HOW[model.kind]}",
            f"sentence {model.pattern!r} with {model.words} for {len(self.categories)} categories",
            f"softmax at temperature {model.scale:g}, then summed over {int(self.positive.sum())} positive and "
            f"{int((~self.positive).sum())} negative categories; logarithms of the two sums",
            f"{len(rows)} of {len(self.texts)} messages, languages {' '.join(model.languages or ['all'])}",
        ]
        if any(model.prefix):
            parts.append(f"prefixes {model.prefix[0]!r} before a message and {model.prefix[1]!r} before a sentence")
        if scorer.limit:
            parts.append(f"{scorer.cut} messages cut at {scorer.limit} tokens")
        return ". ".join([*parts, f"precision {scorer.precision}"]) + "."


def _is_path(model: TextModel) -> bool:
    """A path says where things lie on one machine, which is nobody else's concern: its last part is enough."""
    return isinstance(model.target, Path) or Path(model.target).is_dir()


def _log_sum(z: Float) -> Float:
    top = z.max(axis=1)
    return top + np.log(np.exp(z - top[:, None]).sum(axis=1))
