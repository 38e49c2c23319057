"""What to try where names of columns do not fit: common names, and the command to write.

Only for messages: nothing is read under a guessed name.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

_LABELS = (
    *("label", "labels", "y_true", "y", "target", "targets", "truth", "true", "true_label", "true_class", "gt"),
    *("ground_truth", "groundtruth", "gold", "actual", "class", "category"),
)
_PREDICTED = ("y_pred", "prediction", "predicted", "predicted_label", "pred_label")
_WRONG = ("wrong", "errors", "is_error", "is_wrong", "incorrect", "mistake", "misclassified")
_RIGHT = ("correct", "is_correct", "right", "hit")
_LOSSES = ("losses", "nll", "log_loss", "brier", "cost")
_PROBS = (
    *("proba", "prob", "probs", "p", "probability", "probabilities", "pred_proba", "predict_proba", "y_prob"),
    *("y_proba", "softmax", "posterior", "phat"),
)
_LOGITS = ("logit", "logits", "z")
_SCORES = ("unc", "uncertainty", "entropy", "score", "scores", "uncertainties")
_QUALITIES = ("confidence", "conf", "max_prob", "maxprob", "msp", "certainty")
_ALONE = {"label": _LABELS, "error": _WRONG, "correct": _RIGHT, "loss": _LOSSES, "pred": _PREDICTED}
_PARTS = re.compile(r"(.*?[ _.\-:/]+|[A-Za-z]+(?=\d+$))(.+)", re.DOTALL)


Guess = str | list[str]


def guess_columns(names: Sequence[str], roles: Iterable[str]) -> dict[str, Guess]:
    """Role → a column, a pattern or a list of columns, from common names; only those of `roles`."""
    known = set(roles)
    plain = {_plain(name): name for name in reversed(names)}
    found: dict[str, Guess] = {}
    for role, usual in _ALONE.items():
        if role in known and (hit := next((plain[name] for name in usual if name in plain), None)) is not None:
            found[role] = hit
    for role, stems in (("prob", _PROBS), ("logit", _LOGITS), ("score", _SCORES)):
        if role in known and (pattern := _pattern(names, stems)) is not None:
            found[role] = pattern
    for role, usual in (("prob", _PROBS), ("score", _SCORES), ("quality", _QUALITIES)):
        modelled = any(part in found for part in ("prob", "logit", "score"))
        if role in known and not modelled and (hit := next((plain[n] for n in usual if n in plain), None)) is not None:
            found[role] = hit
    return found


def _plain(name: str) -> str:
    return re.sub(r"[ .\-]+", "_", name.strip().lower())


def _pattern(names: Sequence[str], stems: Sequence[str]) -> Guess | None:
    """The pattern of the widest family that begins with one of the stems; its columns where `p*` takes more."""
    families: dict[str, list[str]] = {}
    for name in names:
        if (parts := _PARTS.fullmatch(name)) is not None and _plain(parts[1]).strip("_") in stems:
            families.setdefault(parts[1], []).append(name)
    wide = [prefix for prefix, family in families.items() if len(family) > 1]
    if not wide:
        return None
    prefix = max(wide, key=lambda one: len(families[one]))
    alone = sum(name.startswith(prefix) and name != prefix for name in names) == len(families[prefix])
    return f"{prefix}*" if alone else families[prefix]


def narrower(pattern: str, kept: Sequence[str], strangers: Sequence[str]) -> str | None:
    """A pattern for `kept` that leaves the strangers out; None where a longer beginning does not do."""
    first, last = min(kept, default=""), max(kept, default="")
    same = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    prefix = first[:same]
    if len(kept) < 2 or len(prefix) <= pattern.find("*") or any(name.startswith(prefix) for name in strangers):
        return None
    return None if prefix in kept else f"{prefix}*"


def as_arguments(options: Mapping[str, Guess]) -> str:
    """`label="y", prob="p_*"`, as in Python."""
    return ", ".join(f"{role}={json.dumps(value, ensure_ascii=False)}" for role, value in options.items())


def as_options(options: Mapping[str, Guess]) -> str:
    """`--label y --prob "p_*"`, for a shell."""
    words = {"score": "score-columns", "member_logit": "member-logit", "labels_by": "labels-by"}
    texts = {role: value if isinstance(value, str) else ",".join(value) for role, value in options.items()}
    return " ".join(f"--{words.get(role, role)} {_quoted(text)}" for role, text in texts.items())


def as_command(file: str, options: Mapping[str, Guess]) -> str:
    """`uqeval evaluate preds.csv --label y --prob "p_*"`, for a shell."""
    return f"uqeval evaluate {_quoted(file)} {as_options(options)}"


def _quoted(text: str) -> str:
    if re.fullmatch(r"[\w./:=+,-]+", text):
        return text
    return f'"{text}"' if re.fullmatch(r'[^"$`\\!]+', text) else shlex.quote(text)
