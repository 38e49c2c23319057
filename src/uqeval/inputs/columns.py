"""Which column plays which part: names and patterns in, a plan out.

Knows column names only; the data is read by `frame` and `files`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypedDict

from uqeval._check import nearest
from uqeval._errors import InputError

Names = str | Sequence[str] | None

# Roles that one column plays; the rest are patterns.
SINGLE = ("label", "pred", "error", "loss", "weight", "cluster", "group", "id")
OPPOSITE = {"error": "correct", "loss": "quality"}  # what a file may hold in their place
_NEEDED = (
    "One needs `label` and the model's output (prob_<class>, logit_<class> or member<i>_prob_<class>), "
    "or score_<name> and one of `error`, `loss` (what is high where it is right or good: correct=, quality=)"
)


class ColumnOptions(TypedDict, total=False):
    """The options of `Columns`, for signatures."""

    label: str | None
    prob: Names
    logit: Names
    member: str | None
    member_logit: str | None
    soft: Names
    pred: str | None
    error: str | None
    loss: str | None
    correct: str | None
    quality: str | None
    score: Names
    weight: str | None
    cluster: str | None
    group: str | None
    id: str | None
    classes: Sequence[str] | None
    normalize: bool
    labels_by: str | None
    sep: str | None
    decimal: str | None
    encoding: str | None


@dataclass(frozen=True)
class Columns:
    """Names of the columns; `*` stands for a class, a member or a score's name, None leaves a part out."""

    label: str | None = "label"
    prob: Names = "prob_*"
    logit: Names = "logit_*"
    member: str | None = "member*_prob_*"
    member_logit: str | None = "member*_logit_*"
    soft: Names = "soft_*"
    pred: str | None = "pred"
    error: str | None = "error"
    loss: str | None = "loss"
    correct: str | None = None  # in place of `error`: 1 where the prediction is right
    quality: str | None = None  # in place of `loss`: high where it is good
    score: Names = "score_*"
    weight: str | None = "weight"
    cluster: str | None = "cluster"
    group: str | None = "group"
    id: str | None = "id"
    classes: Sequence[str] | None = None
    normalize: bool = False
    labels_by: str | None = None
    # How a CSV file is written: by default "," (tabs in .tsv), "." and UTF-8.
    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None


OF_CSV = ("sep", "decimal", "encoding")
DEFAULTS = {field.name: field.default for field in fields(Columns)}


def column_options(columns: Mapping[str, Any]) -> Columns:
    """Names of columns as a call gives them (groups and clusters have words of their own)."""
    known = [name for name in DEFAULTS if name not in ("group", "cluster")]
    for name in columns:
        if name not in known:
            raise InputError(f"There is no option `{name}`.{nearest(name, known)} Column options: {', '.join(known)}.")
    return Columns(**columns)


def refuse_csv_options(options: Columns, reason: str) -> None:
    """How a CSV file is written says nothing about anything else."""
    for name in OF_CSV:
        if getattr(options, name) is not None:
            raise InputError(f"`{name}` (--{name}) says how a CSV file is written, but {reason}. Leave it out.")


class ClassColumns(NamedTuple):
    """The columns of one (n, K) array; without names they follow the class order, a lone one is class 1."""

    role: str
    columns: tuple[str, ...]
    names: tuple[str, ...] | None


@dataclass(frozen=True)
class Plan:
    """What to read, and what each column is."""

    single: dict[str, str]
    scores: dict[str, str]
    tables: dict[str, ClassColumns]
    members: dict[str, list[ClassColumns]]
    turned: frozenset[str] = frozenset()  # roles whose column says the opposite: 1 − its numbers is meant

    @property
    def needed(self) -> list[str]:
        """Every column that is used, once."""
        return list(dict.fromkeys(name for names in self.parts.values() for name in names))

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The columns by the part that they play."""
        found: dict[str, tuple[str, ...]] = {role: (name,) for role, name in self.single.items()}
        found |= {"score": tuple(self.scores.values())} if self.scores else {}
        found |= {role: part.columns for role, part in self.tables.items()}
        return found | {
            role: tuple(name for part in parts for name in part.columns) for role, parts in self.members.items()
        }


def listed(names: Iterable[object], limit: int = 12) -> str:
    """Names for a message, shortened where there are many."""
    texts = [text if len(text := str(name)) <= 200 else f"{text[:160]}…" for name in names]
    more = f", … ({len(texts) - limit} more)" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more


def repeated(names: Iterable[str]) -> list[str]:
    """The names that come more than once."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def plan_columns(names: Sequence[str], options: Columns, file: str | None = None) -> Plan:
    """The part that each column plays; an error where a named column or the minimum is missing, with what to try."""
    try:
        return _plan(names, options)
    except InputError as error:
        raise InputError(f"{error}{_to_try(names, options, file)}") from None


def _to_try(names: Sequence[str], options: Columns, file: str | None) -> str:
    """The command (for a frame: the arguments) that would do, from common names; nothing where none is known."""
    changed: dict[str, Any] = {role: getattr(options, role) for role in (*SINGLE, "prob", "logit", "score")}
    changed = {role: name for role, name in changed.items() if name not in (None, DEFAULTS[role])}
    there = {role: name for role, name in changed.items() if _is_there(name, names)}
    standard: dict[str, Any] = {role: DEFAULTS[role] for role in changed.keys() - there.keys()}
    from uqeval.inputs.guess import as_arguments, as_command, guess_columns  # of what is wrong alone

    guessed: dict[str, Any] = guess_columns(names, [role for role in DEFAULTS if role not in there])
    guessed = {role: name for role, name in guessed.items() if name != DEFAULTS[role]}
    if "prob" in guessed and "label" not in {*guessed, *there} and "label" not in names:
        return ""
    tried = {role: name for role in DEFAULTS if (name := {**there, **guessed}.get(role)) is not None}
    try:
        _plan(names, replace(options, **(standard | guessed)))
    except InputError:
        return ""
    if not tried:  # the standard names do
        return f" Leave `{next(iter(changed))}` out." if changed else ""
    tried |= {name: value for name in OF_CSV if (value := getattr(options, name)) is not None}
    return f" Try: {as_command(file, tried)}" if file else f" Try {as_arguments(tried)}."


def _is_there(pattern: Any, names: Sequence[str]) -> bool:
    """Whether columns that were named, or match, exist."""
    if not isinstance(pattern, str):
        return all(name in names for name in pattern)
    if pattern in names or "*" not in pattern:
        return pattern in names
    regex = re.compile(".+?".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    return any(regex.fullmatch(name) for name in names)


def _plan(names: Sequence[str], options: Columns) -> Plan:
    if twice := repeated(names):
        raise InputError(f"Duplicated column names: {listed(map(repr, twice))}. Rename or drop one of each.")
    single, turned = {}, {}
    for role, opposite in (("error", options.correct), ("loss", options.quality)):
        if opposite is not None:
            turned[role] = opposite
            if getattr(options, role) not in (None, DEFAULTS[role]):
                raise InputError(f"Pass `{role}` or `{OPPOSITE[role]}`, not both: one is 1 − the other.")
    for role in SINGLE:
        name = turned.get(role, getattr(options, role))
        if name is None:
            continue
        if name in names:
            single[role] = name
        elif name != DEFAULTS[role]:
            raise _absent(OPPOSITE[role] if role in turned else role, name, names)
    # `p*` must not take the column `pred` for the class "red".
    free = [name for name in names if name not in single.values()]
    scores = score_columns(options.score, free)
    tables = {}
    for role in ("prob", "logit", "soft"):
        if (found := _class_columns(role, getattr(options, role), free)) is not None:
            tables[role] = found
    members = {}
    for role in ("member", "member_logit"):
        if parts := _member_columns(role, getattr(options, role), free):
            members[role] = parts
    plan = Plan(single, scores, tables, members, frozenset(turned))
    _check_minimum(plan, names)
    return plan


def _check_minimum(plan: Plan, names: Sequence[str]) -> None:
    modelled = "prob" in plan.tables or "logit" in plan.tables or bool(plan.members)
    targeted = "error" in plan.single or "loss" in plan.single
    labelled = "label" in plan.single
    if (modelled and (labelled or targeted)) or (plan.scores and targeted):
        return
    if modelled:
        hint = "There is no `label` column." + (nearest("label", names) or " Name it with label=...")
    elif plan.scores and labelled and "pred" in plan.single:
        hint = "Add an `error` column: 1 where pred is not label."
    elif plan.scores:
        hint = "There is no `error` or `loss` column." + nearest("error", names)
    else:
        hint = "There is no probability or score column."
    raise InputError(f"{hint} {_NEEDED}. The columns are: {listed(names)}.")


def _absent(role: str, name: str, names: Sequence[str]) -> InputError:
    what = "No column matches" if "*" in name else "There is no column"
    return InputError(f"{what} `{name}` ({role}).{nearest(name, names)} The columns are: {listed(names)}.")


def _match(role: str, pattern: str, stars: int, names: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """(column, what the stars stand for) of the columns that the pattern matches."""
    pieces = pattern.split("*")
    if len(pieces) - 1 > stars:
        raise InputError(f"`{role}` is {pattern!r}, with {len(pieces) - 1} stars. At most {stars} can be told apart.")
    regex = re.compile("(.+?)".join(map(re.escape, pieces)), re.DOTALL)
    return [(name, found.groups()) for name in names if (found := regex.fullmatch(name))]


def _exact(role: str, wanted: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    for name in wanted:
        if name not in names:
            raise _absent(role, name, names)
    return tuple(wanted)


def _class_columns(role: str, pattern: Names, names: Sequence[str]) -> ClassColumns | None:
    default = str(DEFAULTS[role])
    if pattern is None:
        return None
    if isinstance(pattern, str) and "*" in pattern:
        found = _match(role, pattern, 1, names)
        if found:
            classes = tuple(stars[0].strip() or stars[0] for _, stars in found)  # "proba*" and "proba cat"
            if twice := repeated(classes):
                raise InputError(
                    f"{role}={pattern!r} finds class {twice[0]!r} twice, but for blanks. Rename one column."
                )
            return ClassColumns(role, tuple(name for name, _ in found), classes)
        if pattern != default:
            raise _absent(role, pattern, names)
        return ClassColumns(role, (role,), None) if role in names else None
    columns = _exact(role, [pattern] if isinstance(pattern, str) else list(pattern), names)
    if not columns:
        return None
    prefix = default.removesuffix("*")
    # `prob="prob_0"` is the probability of class 0, not of class 1.
    if all(name.startswith(prefix) and name != prefix for name in columns):
        return ClassColumns(role, columns, tuple(name.removeprefix(prefix) for name in columns))
    return ClassColumns(role, columns, None)


def _member_columns(role: str, pattern: str | None, names: Sequence[str]) -> list[ClassColumns]:
    """One entry per member; every member has the same classes."""
    if pattern is None:
        return []
    found = _match(role, pattern, 2, names)
    if not found and pattern == DEFAULTS[role]:
        found = _match(role, pattern.removesuffix("_*"), 2, names)  # a binary task: member<i>_prob
    if not found:
        if pattern != DEFAULTS[role]:
            raise _absent(role, pattern, names)
        return []
    members: dict[str, dict[str, str]] = {}
    for name, stars in found:
        members.setdefault(stars[0] if stars else name, {})["".join(stars[1:])] = name
    classes = list(dict.fromkeys(cls for columns in members.values() for cls in columns))
    for member, columns in members.items():
        if missing := [cls for cls in classes if cls not in columns]:
            raise InputError(
                f"Member {member} has no column for class {listed(missing)}; it has "
                f"{listed(columns.values())}. Every member needs every class."
            )
    order = sorted(members, key=int) if all(member.isdecimal() for member in members) else list(members)
    bare = classes == [""]
    return [
        ClassColumns(role, tuple(members[member][cls] for cls in classes), None if bare else tuple(classes))
        for member in order
    ]


def score_columns(pattern: Names, names: Sequence[str]) -> dict[str, str]:
    """Score name → column."""
    if pattern is None:
        return {}
    if isinstance(pattern, str) and "*" in pattern:
        found = {stars[0]: name for name, stars in _match("score", pattern, 1, names)}
        if found and pattern == DEFAULTS["score"]:
            _refuse_inspect(next(iter(found.values())), names)
        if not found and pattern != DEFAULTS["score"]:
            raise _absent("score", pattern, names)
        if not found and "score" in names:
            found = {"score": "score"}
        return found
    try:
        columns = _exact("score", [pattern] if isinstance(pattern, str) else list(pattern), names)
    except InputError as error:
        raise InputError(f"{error} To choose scores by their names, pass scores=.") from None
    return {name.removeprefix("score_") or name: name for name in columns}


def _refuse_inspect(column: str, names: Sequence[str]) -> None:
    """The samples of an Inspect log have columns named as ours, which mean something else."""
    if "epoch" in names and not {"sample_id", "eval_id"}.isdisjoint(names):
        raise InputError(
            f"These look like samples of an Inspect log (samples_df): there `{column}` says how good an answer is, and "
            f"`error` is the text of a crash. Read the log with uqeval.read_logs (uqeval evaluate logs/), or name "
            f'columns: quality="{column}", error=None and score= a column that is high where the model is unsure.'
        )
