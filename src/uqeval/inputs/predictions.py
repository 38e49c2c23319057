"""One model's predictions on one test set, checked once into clean arrays.

Holds what came and what follows from it by definition (softmax, mean over members). Errors, gaps and
scores are left to `truth` and `scores`; frames and files to `frame` and `files`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import (
    MEND,
    Bit,
    Float,
    Int,
    check_alpha,
    check_errors,
    check_lengths,
    check_logits,
    check_members,
    check_probs,
    check_weight_values,
    on_grid,
)
from uqeval._errors import InputError, UQWarning, notify
from uqeval.inputs.classes import Coded, Indices, check_class_indices, check_class_names
from uqeval.inputs.columns import ColumnOptions, Columns, Plan
from uqeval.inputs.doubts import doubt_ids, doubt_logits, doubt_rows
from uqeval.inputs.frame import arrow_arguments, frame_columns
from uqeval.inputs.rows import coded, finite_vector, own_scores, row_names, row_numbers
from uqeval.inputs.softmax import agrees, row_sums, softmax

if TYPE_CHECKING:
    import pyarrow as pa

    from uqeval.inputs.log_reading import LogReading


_BY_ROW = ("labels", "probs", "logits", "alpha", "soft_labels", "pred", "error", "loss", "weights")


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Predictions:
    """Labels and predictions of one model, one row per test example.

    Give `labels` and one of `probs`, `logits`, `members`, `member_logits`, `alpha`; or, without the model's output,
    `scores` and one of `error`, `loss`. Arrays may be NumPy, pandas, Polars, Arrow, lists or CPU tensors.

    Parameters
    ----------
    labels : array-like of shape (n,), optional
        True classes, 0..K-1, or values of `classes`. Needed unless `error` or `loss` is given.
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1. Default: softmax of `logits`, else the
        mean over `members`.
    logits : array-like of shape (n, K)
        Outputs before softmax.
    members : array-like of shape (m, n, K), or m arrays of shape (n, K)
        Probabilities of each ensemble member or stochastic pass. Default: softmax of `member_logits`.
    member_logits : array-like of shape (m, n, K)
        Logits of each member.
    alpha : array-like of shape (n, K)
        Dirichlet parameters > 0 of an evidential model. Its mean is the default of `probs`.
    soft_labels : array-like of shape (n, K)
        Label distribution; counts of votes need ``normalize=True``.
    pred : array-like of shape (n,)
        Predicted class where it is not the argmax of `probs`.
    error : array-like of shape (n,)
        1 where the prediction is wrong; taken as it is, never recomputed.
    loss : array-like of shape (n,)
        Any finite loss per row.
    scores : dict of name → array-like of shape (n,)
        Uncertainty scores, higher = less trustworthy; ±inf is allowed, NaN is not.
    weights : array-like of shape (n,)
        Row weights ≥ 0.
    clusters, groups : array-like of shape (n,)
        Independent units (patient id) and strata, of any type.
    classes : sequence of str
        Class names; default "0".."K-1".
    ids : array-like of shape (n,)
        Row names, kept as strings.
    normalize : bool
        Divide each row of `probs`, `members` and `soft_labels` by its sum.
    labels_by : "name" or "position", optional
        What numbers in `labels` and `pred` are where `classes` are numbers too: names of classes, or positions in
        `classes` from 0 on. By default whichever fits; where both fit and differ it must be said.

    Attributes
    ----------
    n, n_classes : int
        Rows and classes (0 where nothing tells the number of classes).
    logits_match : bool
        Whether `logits` belong to `probs`: softmax(logits) agrees within 1e-3.
    clusters, groups : int64 arrays of codes 0..G-1, or None
        `cluster_values` and `group_names` say what each code stands for.
    files : tuple of str
        The files that the rows were read from; empty for arrays.
    log : LogReading or None
        What was taken for what, where a log was read; `read_as` says it in one line.
    columns : tuple of (str, tuple of str)
        The columns of those files: the part, and which play it.

    Examples
    --------
    >>> Predictions([0, 1, 1], probs=[[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    Predictions(3 rows, 2 classes: labels, probs)
    """

    labels: Int | None
    probs: Float | None
    logits: Float | None
    members: Float | None
    member_logits: Float | None
    alpha: Float | None
    soft_labels: Float | None
    pred: Int | None
    error: Bit | None
    loss: Float | None
    scores: dict[str, Float]
    finite_scores: frozenset[str]  # those of `scores` without ±inf
    weights: Float | None
    clusters: Int | None
    cluster_values: NDArray[Any] | None
    groups: Int | None
    group_names: tuple[str, ...]
    classes: tuple[str, ...]
    ids: NDArray[np.str_] | None
    logits_match: bool
    n: int
    n_classes: int
    files: tuple[str, ...] = ()
    log: LogReading | None = None
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of those files: part, and who plays it

    def __init__(
        self,
        labels: ArrayLike | Indices | None = None,
        *,
        probs: ArrayLike | None = None,
        logits: ArrayLike | None = None,
        members: Any = None,
        member_logits: Any = None,
        alpha: ArrayLike | None = None,
        soft_labels: ArrayLike | None = None,
        pred: ArrayLike | Indices | None = None,
        error: ArrayLike | None = None,
        loss: ArrayLike | None = None,
        scores: Mapping[str, ArrayLike] | None = None,
        weights: ArrayLike | None = None,
        clusters: ArrayLike | Coded | None = None,
        groups: ArrayLike | Coded | None = None,
        classes: Sequence[str] | None = None,
        ids: ArrayLike | None = None,
        normalize: bool = False,
        labels_by: str | None = None,
    ) -> None:
        modelled = any(given is not None for given in (probs, logits, members, member_logits, alpha))
        _check_enough(modelled, labels is not None, error is not None or loss is not None, scores)
        p = None if probs is None else check_probs(probs, normalize=normalize)
        z = None if logits is None else check_logits(logits)
        ps = None if members is None else check_members(members, normalize=normalize)
        zs = None
        if member_logits is not None:
            zs = check_members(member_logits, name="member_logits", logits=True)
        evidence = None if alpha is None else check_alpha(alpha)
        soft = None
        if soft_labels is not None:
            soft = check_probs(soft_labels, name="soft_labels", normalize=normalize)
        names = None if classes is None else check_class_names(classes)
        # Widths first: a wrong number of classes would make every later message about rows misleading.
        width = _width(names, probs=p, logits=z, members=ps, member_logits=zs, alpha=evidence, soft_labels=soft)

        own = own_scores(scores)
        fields: dict[str, Any] = {
            **check_class_indices({"labels": labels, "pred": pred}, names, width, labels_by),
            "error": None if error is None else check_errors("error", error, MEND),
            "loss": None if loss is None else finite_vector("loss", loss),
            "scores": {name: score for name, (score, _) in own.items()},
            "weights": None if weights is None else finite_vector("weights", weights),
            "ids": None if ids is None else row_names(ids),
        }
        fields["clusters"], fields["cluster_values"] = coded("clusters", clusters)
        fields["groups"], group_values = coded("groups", groups)
        fields["group_names"] = () if group_values is None else tuple(map(str, group_values))
        rows = {
            name: array for name, array in fields.items() if name not in ("scores", "cluster_values", "group_names")
        }
        first = {"labels": rows.pop("labels"), "probs": p, "logits": z}
        first |= {"members": None if ps is None else ps[0], "member_logits": None if zs is None else zs[0]}
        fields["finite_scores"] = frozenset(name for name, (_, clean) in own.items() if clean)
        named = {f"scores[{name!r}]": score for name, score in fields["scores"].items()}
        n = check_lengths(**first, alpha=evidence, soft_labels=soft, **rows, **named)
        if fields["weights"] is not None:
            check_weight_values(fields["weights"])

        for name, given in (("logits", z), ("member_logits", zs)):
            if given is not None:
                doubt_logits(name, given)
        if fields["clusters"] is None:
            if fields["ids"] is not None:
                doubt_ids(fields["ids"])
            output = next((array for array in (p, z, ps, zs, evidence) if array is not None), None)
            own_columns = [] if output is None else _columns(output)
            whole = [fields[name] for name in ("labels", "error", "loss") if fields[name] is not None]
            doubt_rows([*fields["scores"].values(), *own_columns, *whole])
        match = z is not None
        if z is not None and p is not None:
            match = agrees(z, p)
            if not match:
                notify(
                    "probs is not softmax(logits) (temperature scaling?): the gap is taken from probs",
                    UQWarning,
                    stacklevel=2,
                )
        if ps is None and zs is not None:
            ps = softmax(zs)
        if p is None and z is not None:
            p = softmax(z)
        elif p is None and ps is not None:
            p = on_grid(ps.mean(axis=0))
        elif p is None and evidence is not None:
            share = evidence / evidence.max(axis=1, keepdims=True)
            p = on_grid(share / row_sums(share))
        if not width:
            width = max(
                (int(codes.max()) + 1 for codes in (fields["labels"], fields["pred"]) if codes is not None), default=0
            )
        fields |= {"probs": p, "logits": z, "members": ps, "member_logits": zs, "alpha": evidence, "soft_labels": soft}
        fields |= {"classes": names or tuple(map(str, range(width))), "n_classes": width, "n": n, "logits_match": match}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_frame(cls, frame: Any, **columns: Unpack[ColumnOptions]) -> Predictions:
        """Predictions from a pandas, Polars or Arrow frame with one row per test example.

        Parameters
        ----------
        frame : pandas.DataFrame, polars.DataFrame, pyarrow.Table
            An eager frame; collect a lazy one first.
        label, pred, error, loss, weight, cluster, group, id : str or None
            Column names. A default name may be absent, another one must exist; None leaves the part out.
        correct, quality : str, optional
            Columns in place of `error` and `loss` that are high where the prediction is good: 1 − it is meant.
        prob, logit, soft : str, list of str or None
            A pattern whose ``*`` is the class name, or the columns in class order. One column alone does for a
            binary task: ``prob_<class>`` belongs to that class, any other name to class 1 (a lone logit is the
            log-odds). By default ``prob_*``, ``logit_*`` and ``soft_*``.
        member, member_logit : str or None
            A pattern whose stars are the member and the class name; ``member*_prob_*`` and ``member*_logit_*``.
        score : str, list of str or None
            A pattern whose ``*`` is the score's name, or columns; ``score_*`` by default.
        classes : sequence of str, optional
            The class order; integer labels may then be positions in it. Default: numeric names in numeric order, others
            in the order of the columns.
        normalize : bool
            Divide each row of probabilities and of soft labels by its sum.
        labels_by : "name" or "position", optional
            What labels that are numbers mean where `classes` are numbers too, as in `Predictions`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> frame = pa.table({"label": ["cat", "dog"], "prob_cat": [0.7, 0.4], "prob_dog": [0.3, 0.6]})
        >>> Predictions.from_frame(frame).classes
        ('cat', 'dog')
        """
        return predictions_from_arrow(*frame_columns(frame, Columns(**columns)))

    @classmethod
    def from_estimator(
        cls, estimator: Any, x: Any, y: ArrayLike, *, members: bool = True, classes: Any = None, **arrays: Any
    ) -> Predictions:
        """Predictions of a fitted classifier in scikit-learn's style, with its members where it has some.

        Parameters
        ----------
        estimator : classifier with `classes_`, `predict_proba` and `predict`
            Where `predict` gives another class than the most probable one, it is what counts (`pred`).
        x : array, frame or sparse matrix of n rows
            Handed to the estimator as it is.
        y : array-like of shape (n,)
            True classes, by value.
        members : bool
            Look for members: the estimators inside a forest, bagging, soft voting or calibration, in a pipeline or a
            search too, if their plain mean is what `predict_proba` gives (so no boosting, stacking, weighted votes).
        classes : sequence, optional
            All classes, where `y` has some that the estimator never met: it gives them probability 0.
        **arrays
            weights, clusters, groups, … as in `Predictions`.

        Examples
        --------
        >>> from sklearn.ensemble import RandomForestClassifier
        >>> x, y = [[0.0], [0.1], [0.9], [1.0]], ["no", "no", "yes", "yes"]
        >>> forest = RandomForestClassifier(5, random_state=0).fit(x, y)
        >>> Predictions.from_estimator(forest, x, y)
        Predictions(4 rows, 2 classes: labels, probs, 5 members)
        """
        from uqeval.inputs.estimator import estimator_arguments  # files need none of it

        return cls(**estimator_arguments(estimator, x, y, classes, members), **arrays)

    def take(self, rows: ArrayLike) -> Predictions:
        """These rows only, from a boolean mask or from row numbers; absent clusters and groups are forgotten.

        Examples
        --------
        >>> Predictions([0, 1, 1], probs=[0.1, 0.8, 0.4]).take([True, False, True])
        Predictions(2 rows, 2 classes: labels, probs)
        """
        index = row_numbers(rows, self.n)
        taken = object.__new__(Predictions)
        fields = dict(vars(self))
        for name in (*_BY_ROW, "ids"):
            fields[name] = None if fields[name] is None else fields[name][index]
        for name in ("members", "member_logits"):
            fields[name] = None if fields[name] is None else fields[name][:, index]
        fields["scores"] = {name: score[index] for name, score in self.scores.items()}
        if self.clusters is not None and self.cluster_values is not None:
            present, fields["clusters"] = np.unique(self.clusters[index], return_inverse=True)
            fields["cluster_values"] = self.cluster_values[present]
        if self.groups is not None:
            present, fields["groups"] = np.unique(self.groups[index], return_inverse=True)
            fields["group_names"] = tuple(self.group_names[code] for code in present)
        fields["n"] = len(index)
        for name, value in fields.items():
            object.__setattr__(taken, name, value)
        return taken

    @property
    def read_as(self) -> str:
        """What was taken for what, where a log was read; empty for all else."""
        return "" if self.log is None else str(self.log)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        parts = [name for name in _BY_ROW if getattr(self, name) is not None]
        for name in ("members", "member_logits"):
            if (array := getattr(self, name)) is not None:
                parts.append(f"{len(array)} {name}")
        if self.scores:
            shown = list(self.scores)[:4] + ["…"] * (len(self.scores) > 4)
            parts.append(f"scores {' '.join(shown)}")
        if self.cluster_values is not None:
            parts.append(f"{len(self.cluster_values)} clusters")
        if self.groups is not None:
            parts.append(f"{len(self.group_names)} groups")
        classes = f", {self.n_classes} classes" if self.n_classes else ""
        return f"Predictions({self.n} rows{classes}: {', '.join(parts)})"


def predictions_from_arrow(columns: Mapping[str, pa.ChunkedArray], plan: Plan, options: Columns) -> Predictions:
    """Predictions from Arrow columns that a plan has named."""
    if options.normalize:
        from uqeval.inputs.strangers import refuse_strangers  # where it matters

        refuse_strangers(columns, plan, options)
    try:
        return Predictions(**arrow_arguments(columns, plan, options))
    except InputError as error:
        from uqeval.inputs.strangers import explain  # of what is wrong alone

        raise explain(error, columns, plan, options) from None


def _columns(output: Float) -> list[Float]:
    """Class by class, of each member."""
    return [part[:, k] for part in (output if output.ndim == 3 else [output]) for k in range(output.shape[-1])]


def _check_enough(modelled: bool, labelled: bool, targeted: bool, scores: Mapping[str, ArrayLike] | None) -> None:
    if not modelled and not (scores and targeted):
        raise InputError(
            "Predictions need `labels` and one of `probs`, `logits`, `members`, `member_logits`, `alpha`; "
            "or else `scores` and one of `error`, `loss`."
        )
    if not labelled and not targeted:
        raise InputError("`labels` are missing. Pass them, or else `error` or `loss`.")


def _width(names: tuple[str, ...] | None, **arrays: Float | None) -> int:
    """The number of classes that all arrays agree on; 0 where none tells."""
    widths: dict[str, int] = {name: array.shape[-1] for name, array in arrays.items() if array is not None}
    if names is not None:
        widths["classes"] = len(names)
    if not widths:
        return 0
    (first, width), *rest = widths.items()
    for name, other in rest:
        if other != width:
            raise InputError(f"`{name}` has {other} classes but `{first}` has {width}. Pass the same classes in both.")
    return width
