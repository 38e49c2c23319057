"""Uncertainty scores from features: how far is an input from those that the model was trained on?

Features are what the model computes of an input, usually its penultimate layer, or the input itself. A score is fitted
on the features of training rows, then scores any others; higher means further away, less trustworthy. Neighbours are
found in `neighbours`.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Float, Int, check_codes, check_count, check_features
from uqeval._errors import InputError, UQWarning, notify
from uqeval.scores.neighbours import neighbour_distances

_BLOCK = 1 << 20  # values per block: 8 MiB
_EPS = float(np.finfo(np.float64).eps)


class Mahalanobis:
    """Squared Mahalanobis distance to the nearest class mean, with one covariance for all classes (Lee et al. 2018).

    Parameters
    ----------
    relative : bool
        Less the squared distance to the mean of all rows with their own covariance (Ren et al. 2021), which takes
        away what all classes share. Without `labels` that is 0 everywhere, so they are needed.
    shrinkage : float
        Share a in [0, 1] of (trace Σ / d)·I in place of the covariance Σ. At 0 directions without any spread in the
        training rows are left out (pseudo-inverse), with a warning: a row that differs there is not seen.

    Examples
    --------
    >>> fitted = Mahalanobis().fit([[0, 0], [0, 2], [2, 0], [2, 2]])
    >>> fitted.score([[1, 1], [1, 3], [5, 1]])
    array([ 0.,  4., 16.])
    """

    def __init__(self, *, relative: bool = False, shrinkage: float = 0.0) -> None:
        if isinstance(shrinkage, bool) or not isinstance(shrinkage, int | float) or not 0 <= shrinkage <= 1:
            raise InputError(f"`shrinkage` must lie in [0, 1], as 0.01; it is {shrinkage!r}.")
        self.relative, self.shrinkage = bool(relative), float(shrinkage)
        self._classes: _Gaussians | None = None
        self._all: _Gaussians | None = None

    def fit(self, features: ArrayLike, labels: ArrayLike | None = None) -> Self:
        """Means and covariance of training rows.

        Parameters
        ----------
        features : array-like of shape (n, d)
            Of training rows.
        labels : array-like of shape (n,), optional
            Their classes, of any kind; without them all rows are one class.
        """
        x = check_features(features)
        if len(x) < 2:
            raise InputError(f"`features` has {len(x)} row. A covariance needs at least 2.")
        if labels is None and self.relative:
            raise InputError("`labels` is missing: relative=True compares class means with the mean of all. Pass them.")
        together = np.zeros(len(x), dtype=np.int64)
        codes = together if labels is None else check_codes("labels", labels)[0]
        if len(codes) != len(x):
            raise InputError(f"`labels` has {len(codes)} rows but `features` has {len(x)}. Pass one label per row.")
        self._classes = _Gaussians.of(x, codes, self.shrinkage)
        self._all = _Gaussians.of(x, together, self.shrinkage) if self.relative else None
        return self

    def score(self, features: ArrayLike) -> Float:
        """Distance of each row (n, d); with `relative` it may be negative."""
        if self._classes is None:
            raise InputError("Mahalanobis has not been fitted. Call fit(features, labels) with training rows first.")
        x = check_features(features, columns=len(self._classes.shift))
        found = self._classes.squared(x)
        if not np.isfinite(found).all():
            row = int((~np.isfinite(found)).argmax())
            raise InputError(f"`features` row {row} is too far from the training rows for float64. Scale or drop it.")
        return found if self._all is None else found - self._all.squared(x)


class KNNDistance:
    """Distance to the k-th nearest training row (Sun et al. 2022).

    Parameters
    ----------
    k : int
        Which neighbour.
    normalize : bool
        Divide each row by its length first, as the source does; a row of zeros stays at the origin.

    Examples
    --------
    >>> fitted = KNNDistance(k=2, normalize=False).fit([[0, 0], [3, 4], [3, 4]])
    >>> fitted.score([[0, 0], [3, 4], [3, 0]])
    array([5., 0., 4.])
    """

    def __init__(self, k: int = 50, *, normalize: bool = True) -> None:
        self.k, self.normalize = check_count("k", k), bool(normalize)
        self._rows: Float | None = None

    def fit(self, features: ArrayLike) -> Self:
        """Keeps the training rows, (n, d), n ≥ k."""
        x = check_features(features)
        if len(x) < self.k:
            raise InputError(f"`k` is {self.k} but `features` has {len(x)} rows. Pass k ≤ {len(x)}, or more rows.")
        self._rows = _unit(x) if self.normalize else x
        return self

    def score(self, features: ArrayLike) -> Float:
        """Distance of each row (n, d). A training row counts itself among its neighbours."""
        if self._rows is None:
            raise InputError("KNNDistance has not been fitted. Call fit(features) with training rows first.")
        x = check_features(features, columns=self._rows.shape[1])
        return neighbour_distances(_unit(x) if self.normalize else x, self._rows, self.k)


def mahalanobis(
    features: ArrayLike, labels: ArrayLike | None = None, *, relative: bool = False, shrinkage: float = 0.0
) -> Mahalanobis:
    """`Mahalanobis` fitted on training rows; its `score` takes others.

    Examples
    --------
    >>> train, labels = [[0, 0], [0, 2], [2, 0], [2, 2], [9, 0], [9, 2], [11, 0], [11, 2]], [0, 0, 0, 0, 1, 1, 1, 1]
    >>> mahalanobis(train, labels).score([[1, 1], [5.5, 1], [10, 4]])
    array([ 0.  , 20.25,  9.  ])
    """
    return Mahalanobis(relative=relative, shrinkage=shrinkage).fit(features, labels)


def knn_distance(features: ArrayLike, *, k: int = 50, normalize: bool = True) -> KNNDistance:
    """`KNNDistance` fitted on training rows; its `score` takes others.

    Examples
    --------
    >>> knn_distance([[1, 0], [0, 1]], k=1).score([[5, 0], [0.6, 0.8]]).round(4)
    array([0.    , 0.6325])
    """
    return KNNDistance(k, normalize=normalize).fit(features)


@dataclass(frozen=True)
class _Gaussians:
    """Class means, and what makes their common covariance the identity."""

    exponent: int  # features are taken in units of 2^exponent: squares of others leave the range of float64
    shift: Float  # (d,), near all means: an offset costs digits of sums and products
    whitening: Float  # (directions, d)
    means: Float  # (classes, directions), whitened

    @classmethod
    def of(cls, features: Float, codes: Int, shrinkage: float) -> Self:
        exponent = int(np.frexp(np.abs(features).max())[1])
        x, counts = np.ldexp(features, -exponent), np.bincount(codes)
        shift, means = x.mean(axis=0), np.empty((len(counts), x.shape[1]))
        for c, rows in enumerate(np.split(np.argsort(codes, kind="stable"), counts.cumsum()[:-1])):
            means[c] = (x[rows] - shift).mean(axis=0)
        # Singular values of the rows themselves: as roots of those of the covariance they would have half the digits.
        left = np.empty((0, x.shape[1]))
        step = max(x.shape[1], _BLOCK // x.shape[1])
        for start in range(0, len(x), step):
            part = slice(start, start + step)
            rest = x[part] - shift - means[codes[part]]
            left = np.asarray(np.linalg.qr(np.concatenate([left, rest]), mode="r"), dtype=np.float64)
        spread = np.sqrt(np.einsum("ij,ij->j", left, left) / len(x))
        top = np.abs(x).max(axis=0)
        constant = spread <= 8 * _EPS * top  # nothing but the rounding of the means
        if constant.all():
            raise InputError("`features` do not vary inside the classes, so there is no covariance. Pass other ones.")
        if shrinkage:
            whitening = _shrunk(left, len(x), shrinkage)
        else:
            noise = _EPS * (max(x.shape) + 8 * np.sqrt(x.shape[1]) * float((top[~constant] / spread[~constant]).max()))
            whitening = _inverted(left / np.sqrt(len(x)), np.where(constant, 0.0, spread), noise)
        return cls(exponent, shift, whitening, _product(means, whitening))

    def squared(self, features: Float) -> Float:
        """Squared distance to the nearest mean, from differences, so that nothing cancels."""
        found, step = np.empty(len(features)), max(1, _BLOCK // features.shape[1])
        for start in range(0, len(features), step):
            rows = slice(start, start + step)
            with np.errstate(over="ignore", invalid="ignore"):  # `score` looks
                z = _product(np.ldexp(features[rows], -self.exponent) - self.shift, self.whitening)
                nearest = np.full(len(z), np.inf)
                for mean in self.means:
                    apart = z - mean
                    np.minimum(nearest, np.einsum("ij,ij->i", apart, apart), out=nearest)
            found[rows] = nearest
        return found


def _product(x: Float, axes: Float) -> Float:
    """x · axesᵀ without BLAS, which gives equal rows other last digits at other places of a batch: they must tie."""
    return np.einsum("ij,kj->ik", x, axes)


def _inverted(left: Float, spread: Float, noise: float) -> Float:
    """Root of the pseudo-inverse of leftᵀ · left; says so where directions are left out."""
    varies = spread > 0
    # In units of each feature: a small unit is not little spread.
    _, values, axes = np.linalg.svd(left[:, varies] / spread[varies], full_matrices=False)
    kept = values > noise * values[0]
    if (rank := int(kept.sum())) < len(spread):
        notify(
            f"`features` of the training rows spread in {rank} of {len(spread)} directions; rows that differ in the "
            f"others only are not told apart. Pass shrinkage=0.01 to tell them apart.",
            UQWarning,
            stacklevel=5,
        )
    found = np.zeros((rank, len(spread)))
    found[:, varies] = axes[kept] / spread[varies] / values[kept][:, None]
    return found


def _shrunk(left: Float, n: int, share: float) -> Float:
    """Root of the inverse of (1 − share)·Σ + share·(trace Σ / d)·I, with Σ = leftᵀ · left / n."""
    _, values, axes = np.linalg.svd(left, full_matrices=True)
    variance = np.zeros(len(axes))
    variance[: len(values)] = values**2 / n
    variance = (1 - share) * variance + share * variance.sum() / len(axes)
    return np.asarray(axes / np.sqrt(variance)[:, None])


def _unit(x: Float) -> Float:
    """Rows of length 1; those of zeros as they are."""
    top = np.abs(x).max(axis=1, keepdims=True)
    top[top == 0] = 1.0
    scaled = x / top  # squares of very large or small numbers leave the range of float64
    length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    length[length == 0] = 1.0
    return scaled / length
