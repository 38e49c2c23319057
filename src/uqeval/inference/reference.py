"""A confidence that no model under judgement made: learnt from held-out rows, for a C-index without self-reference.

The top-label C-index ranks (2·error − 1)·c; its best order is that of c·sgn(ϕ − ½), ϕ the error probability. With the
model's own confidence as c it rewards a score for repeating that. With c = |1 − 2ϕ̂|, ϕ̂ an estimate on the same side of
½ as ϕ, its best order is that of ϕ̂: of ϕ itself where the estimate is right.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Bit, Float, check_bits, check_codes, check_count, check_lengths, check_seed, check_vector
from uqeval._errors import InputError

_KNOTS = 4  # of the broken line in each feature
_RIDGE = 0.1  # on each of its pieces, so that slopes are bounded where the features separate the errors
_STEPS = 50


def reference_confidence(
    features: ArrayLike | Mapping[str, ArrayLike],
    error: ArrayLike,
    *,
    folds: int = 5,
    clusters: ArrayLike | None = None,
    seed: int | np.random.Generator = 0,
) -> Float:
    """|1 − 2·(estimated error probability)| of each row, learnt from the rows of the other folds.

    A logistic regression on broken lines in the ranks of the features, so that their scale does not matter. Give it as
    `confidence` to `top_label_c_index`: the best order is then that of the error probability, as far as the features
    tell it, and not that of the model's own confidence.

    Reference-dependence takes the place of self-reference: the metric rewards agreement with this reference. Take
    features that no score under judgement was made of. Of the scores themselves it prefers one of two equal scores in
    four of five samples (`docs/theory/beyond.md`). Read the result beside UQ-AUC, which needs no reference. Intervals
    take the reference as given.

    Parameters
    ----------
    features : array-like of shape (n, p) or (n,), or dict of (n,) arrays
        What tells where the model errs: properties of the inputs, the scores of another model.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0.
    folds : int
        How many parts the rows are cut into.
    clusters : array-like of shape (n,), optional
        Rows of a cluster are in the same fold.
    seed : int or numpy Generator
        For the folds.

    Returns
    -------
    ndarray of shape (n,)
        In [0, 1].

    Examples
    --------
    >>> from uqeval import estimate
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.beta(1, 4, 2000)
    >>> error = rng.random(2000) < phi
    >>> reference = reference_confidence(phi + 0.1 * rng.normal(size=2000), error)
    >>> print(estimate("top_label_c_index", phi, reference, error))
    0.753 (0.742–0.763)
    """
    x = _columns(features)
    e = check_bits("error", check_vector("error", error, hint="Drop or mend those rows."))
    g = None if clusters is None else check_codes("clusters", clusters)[0]
    n = check_lengths(features=x, error=e, clusters=g)
    units = n if g is None else int(g.max()) + 1
    k, rng = check_count("folds", folds, 2), check_seed(seed)
    if k > units:
        raise InputError(f"`folds` is {k}, but there are {units} {'rows' if g is None else 'clusters'}. Pass fewer.")
    fold = (rng.permutation(units) % k)[np.arange(n) if g is None else g]
    basis = np.concatenate([_pieces(column) for column in x.T], axis=1)
    found = np.empty(n)
    for j in range(k):
        inside = fold == j
        rest = e[~inside]
        if rest.min() == rest.max():
            raise InputError(
                f"`error` is {rest[0]} in all rows outside fold {j}: nothing can be learnt. Pass more rows."
            )
        weights = _logistic(basis[~inside], rest)
        found[inside] = np.abs(np.tanh((weights[0] + basis[inside] @ weights[1:]) / 2))  # |1 − 2·sigmoid|
    return found


def _columns(features: Any) -> Float:
    """(n, p)."""
    if isinstance(features, Mapping):
        if not features:
            raise InputError("`features` is an empty dict. Pass at least one column.")
        columns = [check_vector(f"features[{name!r}]", column, finite=False) for name, column in features.items()]
        check_lengths(**{f"features[{name!r}]": column for name, column in zip(features, columns, strict=True)})
        return np.stack(columns, axis=1)
    array = np.asarray(features)
    if array.ndim not in (1, 2) or not array.size:
        raise InputError(f"`features` has shape {array.shape}. Pass numbers of shape (n, p), or a dict of columns.")
    table = array.reshape(len(array), -1)
    return np.stack([check_vector("features", column, finite=False) for column in table.T], axis=1)


def _pieces(column: Float) -> Float:
    """A broken line in the ranks: the rank, and how far it lies above each knot; all with mean 0."""
    order = kernels.order_by(column)
    rank = np.empty(len(column))
    rank[order.row] = (order.start.astype(np.float64) + order.end) / (2 * len(column))
    knots = np.arange(1, _KNOTS + 1) / (_KNOTS + 1)
    knots[-1] = 0.95  # errors are among the least sure
    parts = np.concatenate([rank[:, None], np.maximum(rank[:, None] - knots, 0.0)], axis=1)
    centred: Float = parts - parts.mean(axis=0)
    return centred


def _logistic(basis: Float, error: Bit) -> Float:
    """Intercept and slopes, by Newton steps with a ridge that bounds them; halved where a step does not help."""
    x = np.concatenate([np.ones((len(basis), 1)), basis], axis=1)
    penalty = np.full(x.shape[1], _RIDGE)
    penalty[0] = 1e-9  # of the intercept next to none: a sum of errors is kept
    rate = error.mean()
    w = np.zeros(x.shape[1])
    w[0] = np.log(rate / (1 - rate))

    def cost(w: Float) -> float:
        z = x @ w
        return float((np.logaddexp(0.0, z) - error * z).sum() + (penalty * w * w).sum() / 2)

    now = cost(w)
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-(x @ w)))
        slope = x.T @ (p - error) + penalty * w
        step = np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + np.diag(penalty), slope)
        size = 1.0
        while (then := cost(w - size * step)) > now and size > 1e-6:
            size /= 2
        if then > now:
            break
        w, better, now = w - size * step, now - then, then
        if better < 1e-9 * (1 + abs(now)):
            break
    return w
