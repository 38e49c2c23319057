"""OASST2: messages that several people judged in 15 categories (Köpf et al. 2023), as a binary task.

The categories are sorted into positive and negative; the votes of a message give its soft label.
"""

from __future__ import annotations

import gzip
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int, check_choice, check_count, check_seed
from uqeval._errors import InputError, a_type
from uqeval.datasets.fetch import fetch, lookup, published
from uqeval.datasets.reading import table_of

#: The 15 categories, as Open-Assistant's data schema names them.
CATEGORIES = (
    *("spam", "fails_task", "lang_mismatch", "pii", "not_appropriate", "hate_speech", "sexual_content"),
    *("moral_judgement", "political_content", "quality", "toxicity", "humor", "helpfulness", "creativity", "violence"),
)
POSITIVE = ("quality", "humor", "helpfulness", "creativity")
Names = NDArray[np.str_]
_COLUMNS = ("message_id", "text", "lang", "labels")


@dataclass(frozen=True)
class OASST2:
    """Messages with a soft label: [probability of negative, of positive].

    `values` and `counts` are those of the file, a column for each category: the mean vote in [0, 1] (NaN where
    nobody voted) and the number of votes. `left_out` says which messages were dropped, and why.
    """

    texts: tuple[str, ...] = field(repr=False)
    languages: Names = field(repr=False)
    soft_labels: Float = field(repr=False)  # (n, 2)
    votes: Float = field(repr=False)  # (n,): weight of the votes that count
    values: Float = field(repr=False)  # (n, 15)
    counts: Int = field(repr=False)  # (n, 15)
    message_ids: tuple[str, ...] = field(repr=False)
    positive: tuple[str, ...] = POSITIVE
    left_out: Mapping[str, int] = field(default_factory=dict)
    generated: bool = False

    classes = ("negative", "positive")
    categories = CATEGORIES

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        dropped = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items() if count)
        return (
            f"OASST2({'generated: ' if self.generated else ''}{len(self)} messages in {len(set(self.languages))} "
            f"languages, {self.labels.mean():.0%} positive; left out: {dropped or 'none'})"
        )

    @property
    def labels(self) -> Int:
        """1 where positive is the more probable, else 0 (also with a tie)."""
        return self.soft_labels.argmax(axis=1).astype(np.int64)

    @property
    def negative(self) -> tuple[str, ...]:
        """The other categories."""
        return tuple(name for name in self.categories if name not in self.positive)

    def rows(self, languages: str | Iterable[str] | None) -> Int:
        """Rows in these languages; all when None. "en" also finds "en-US", "pt" finds "pt-BR"."""
        if languages is None:
            return np.arange(len(self))
        wanted = {languages} if isinstance(languages, str) else set(languages)
        keep = [tag in wanted or tag.split("-")[0] in wanted for tag in self.languages.tolist()]
        return np.flatnonzero(keep)

    def only(self, languages: str | Iterable[str]) -> OASST2:
        """The messages in these languages; an error where there are none."""
        found = self.take(self.rows(languages))
        if not len(found):
            there = ", ".join(sorted(set(self.languages.tolist())))
            raise InputError(f"`languages` is {languages!r}, but all messages are in {there}.")
        return found

    def take(self, rows: Int) -> OASST2:
        """Some messages."""
        texts, ids = (tuple(column[k] for k in rows) for column in (self.texts, self.message_ids))
        arrays = ("languages", "soft_labels", "votes", "values", "counts")
        return replace(self, texts=texts, message_ids=ids, **{name: getattr(self, name)[rows] for name in arrays})


def oasst2(
    data: Any = None,
    *,
    languages: str | Iterable[str] | None = None,
    split: str = "validation",
    positive: Sequence[str] = POSITIVE,
) -> OASST2:
    """OASST2 as a binary task with soft labels.

    A category c of a message has a mean vote v_c in [0, 1] and n_c votes, so v_c·n_c of the votes say that it holds.
    With P the sum of v_c·n_c over the positive categories and N that over the others, the probability of
    positive is P / (P + N). Messages with P + N = 0, without text and deleted ones are left out and counted. Where a
    message has a category more than once, its votes are added.

    The paper sorts "15 text content categories" into positive and negative and does not list them: the default
    (quality, humor, helpfulness, creativity are positive) is our reading; pass `positive` for another.

    Parameters
    ----------
    data : path, dataset or list, optional
        A parquet or JSON-lines file of messages (`.jsonl`, `.jsonl.gz`), or a folder with them; a loaded Hugging
        Face dataset; a list of dicts. By default the folder of the environment variable UQEVAL_DATA, then the cache,
        then a download from the Hugging Face hub. There is no hash for that download; its columns are checked.
    languages : str or list of str, optional
        Keeps messages in these languages only.
    split : {"validation", "train"}
        Which file of a folder.
    positive : list of str
        Categories that are positive.

    Examples
    --------
    >>> votes = {"name": ["quality", "toxicity"], "value": [0.75, 0.5], "count": [4, 2]}
    >>> found = oasst2([{"message_id": "1", "text": "Yes.", "lang": "en", "labels": votes}])
    >>> found.soft_labels.tolist()  # 3 votes for quality, 1 for toxicity
    [[0.25, 0.75]]
    """
    check_choice("split", split, ("validation", "train"))
    chosen = tuple(positive)
    unknown = [name for name in chosen if name not in CATEGORIES]
    if unknown or not 0 < len(set(chosen)) < len(CATEGORIES):
        raise InputError(f"`positive` must be some of {', '.join(CATEGORIES)}; it is {list(positive)!r}.")
    found = _collect(_messages(data, split), chosen)
    return found.only(languages) if languages is not None else found


def _collect(messages: Iterable[Mapping[str, Any]], positive: tuple[str, ...]) -> OASST2:
    rows, left = [], {"deleted": 0, "without text": 0, "without votes": 0}
    for k, message in enumerate(messages):
        if message.get("deleted"):
            left["deleted"] += 1
        elif not message.get("text"):
            left["without text"] += 1
        else:
            value, count = _judged(message.get("labels"), k)
            if np.nansum(value * count) > 0:
                names = (
                    str(entry) for entry in (message["text"], message.get("lang") or "", message.get("message_id"))
                )
                rows.append((*names, value, count))
            else:
                left["without votes"] += 1
    if not rows:
        raise InputError(f"`data` has no message with votes; left out: {left}.")
    texts, languages, ids, values, counts = zip(*rows, strict=True)
    sign = np.array([name in positive for name in CATEGORIES])
    mean, n = np.array(values), np.array(counts)
    weight = np.nan_to_num(mean) * n
    total = weight.sum(axis=1)
    share = weight[:, sign].sum(axis=1) / total
    soft = np.stack([1 - share, share], axis=1)
    return OASST2(texts, np.array(languages), soft, total, mean, n, ids, positive, left)


def _judged(labels: Any, row: int) -> tuple[Float, Int]:
    """Mean vote and number of votes for each category; names that are none of the 15 are no votes."""
    value, count = np.full(len(CATEGORIES), np.nan), np.zeros(len(CATEGORIES), dtype=np.int64)
    if labels is None or (isinstance(labels, Mapping) and not labels):
        return value, count
    try:
        if "name" in labels and "count" in labels:  # the columns of Hugging Face
            entries = list(zip(labels["name"] or (), labels["value"] or (), labels["count"] or (), strict=True))
        else:  # the JSON lines
            entries = [(name, entry["value"], entry["count"]) for name, entry in labels.items()]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"`data`: labels of message {row} must have name, value and count; got {labels!r}.") from None
    for name, mean, n in entries:
        if name not in CATEGORIES or mean is None or n is None or n == 0:
            continue
        if not _is_vote(mean, n):
            raise InputError(f"`data`: message {row} has {n!r} votes of mean {mean!r} for {name}; expected 0 to 1.")
        at = CATEGORIES.index(name)
        value[at] = mean if not count[at] else (count[at] * value[at] + n * mean) / (count[at] + n)
        count[at] += int(n)
    return value, count


def _is_vote(mean: Any, n: Any) -> bool:
    numbers = isinstance(mean, Real) and isinstance(n, Real)
    return numbers and bool(0 <= float(mean) <= 1 and float(n) >= 0 and float(n).is_integer())


def _messages(data: Any, split: str) -> Iterator[Mapping[str, Any]]:
    if data is None:
        home = lookup("oasst2")
        files = _files(home, split) if home is not None else []
        yield from _read(files or [fetch(published(f"oasst2/{split}.parquet"))])
    elif isinstance(data, str | os.PathLike):
        path = Path(data).expanduser()
        if not path.exists():
            raise InputError(f"`data` {str(path)!r} does not exist.")
        files = [path] if path.is_file() else _files(path, split)
        if not files:
            raise InputError(
                f"`data` {str(path)!r} has no {split} file: {split}-….parquet (or …{split}….jsonl.gz) of "
                "https://huggingface.co/datasets/OpenAssistant/oasst2."
            )
        yield from _read(files)
    elif isinstance(data, Mapping) and split in data:  # a Hugging Face DatasetDict
        yield from _checked(data[split])
    elif isinstance(data, Iterable) and not isinstance(data, Mapping):
        yield from _checked(data)
    else:
        raise InputError(f"`data` must be a path, a loaded dataset or a list of dicts; it is {a_type(data)}.")


def _files(folder: Path, split: str) -> list[Path]:
    """The parts of a split: all of one kind, in one place, so that no message comes twice."""
    for home in (folder / "oasst2", folder):
        for place in (home, home / "data", home / split, home / "default" / split):
            for kind in (".parquet", ".jsonl", ".jsonl.gz"):
                inside = sorted(place.glob(f"*{kind}")) if place.is_dir() else []
                found = [path for path in inside if place.name == split or split in path.name]
                if found:
                    return found
    return []


def _read(files: list[Path]) -> Iterator[Mapping[str, Any]]:
    for path in files:
        if path.suffix == ".parquet":
            table = table_of(path, "parquet", _COLUMNS)
            kept = table.select([name for name in (*_COLUMNS, "deleted") if name in table.column_names])
            for batch in kept.to_batches(max_chunksize=1000):
                yield from batch.to_pylist()
        elif path.name.endswith((".jsonl", ".jsonl.gz")):
            yield from _checked(_read_lines(path), str(path))
        else:
            raise InputError(f"`data` {str(path)!r} must end in .parquet, .jsonl or .jsonl.gz.")


def _read_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)
    except (EOFError, OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} is not a whole file of JSON lines: {error}") from None


def _checked(messages: Iterable[Any], where: str = "`data`") -> Iterator[Mapping[str, Any]]:
    for k, message in enumerate(messages):
        if not isinstance(message, Mapping) or "text" not in message or "lang" not in message:
            has = sorted(message) if isinstance(message, Mapping) else type(message).__name__
            raise InputError(
                f"{where} must hold messages with {', '.join(_COLUMNS)}; row {k} has {has}. Of the JSON lines take "
                "those named messages, not trees."
            )
        yield message


# ---- generated messages ---------------------------------------------------------------------------------------


def oasst2_sample(
    n: int = 300, *, seed: int | np.random.Generator = 0, languages: Sequence[str] = ("en", "de", "es", "fr")
) -> OASST2:
    """Generated messages in the form of OASST2, for a dry run without the data; no person wrote or judged them.

    A message has a hidden share of friendly sentences; the votes of 1 to 6 invented raters follow it.

    Examples
    --------
    >>> sample = oasst2_sample(100, seed=1)
    >>> sample
    OASST2(generated: 100 messages in 4 languages, 62% positive; left out: none)
    """
    check_count("n", n)
    written = _sentences()["good"]
    if not languages or any(tag not in written for tag in languages):
        raise InputError(f"`languages` must be some of {', '.join(written)}; it is {languages!r}.")
    return replace(_collect(_sample_rows(int(n), seed, tuple(languages)), POSITIVE), generated=True)


def _sentences() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads((files("uqeval.datasets") / "oasst2_sample.toml").read_text(encoding="utf-8"))


def _sample_rows(n: int, seed: int | np.random.Generator, languages: Sequence[str]) -> list[dict[str, Any]]:
    """Rows with the columns of the Hugging Face parquet file."""
    rng, sentences, rows = check_seed(seed), _sentences(), []
    for k in range(n):
        tag = languages[int(rng.integers(len(languages)))]
        good = rng.beta(0.8, 0.6)
        parts = [
            str(rng.choice(sentences["good" if rng.random() < good else "bad"][tag])) for _ in range(rng.integers(2, 5))
        ]
        raters = int(rng.integers(1, 7))
        names, values, counts = [], [], []
        for name in CATEGORIES:
            likely = good if name in POSITIVE else (1 - good) / 3
            if name == "quality" or rng.random() < 0.8:
                names.append(name)
                likert = rng.binomial(4, likely, raters) / 4
                values.append(float(likert.mean()))
                counts.append(raters)
        if not sum(values):
            values[names.index("quality")] = 0.25
        row: dict[str, Any] = {"message_id": f"generated-{k:06d}", "parent_id": None}
        row |= {"text": f"{' '.join(parts)} ({k})", "role": "assistant" if k % 2 else "prompter", "lang": tag}
        rows.append(
            row | {"deleted": False, "review_result": True, "labels": {"name": names, "value": values, "count": counts}}
        )
    return rows
