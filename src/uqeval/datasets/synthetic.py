"""A mixture of Gaussians whose label distribution is known: the one place where uncertainty has a ground truth."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from uqeval import truth
from uqeval._check import Bit, Float, Int, check_count, check_probs, check_seed
from uqeval._errors import InputError


@dataclass(frozen=True)
class Synthetic:
    """A drawn dataset with its law: `pi(x)` is exact.

    So are the Bayes label, the error probability ϕ and the misalignment φ of any predictor.
    """

    x: Float  # (n, dim)
    labels: Int
    train: Int  # rows
    test: Int
    means: Float  # (K, dim)
    sigma: float
    prior: Float  # (K,)

    @property
    def n_classes(self) -> int:
        return len(self.means)

    @cached_property
    def d(self) -> float:
        """The smallest distance between two means: how hard the task is; it drives every correlation of the study."""
        gaps = self.means[:, None] - self.means[None]
        return float(np.linalg.norm(gaps, axis=-1)[np.triu_indices(self.n_classes, 1)].min())

    def log_joint(self, x: ArrayLike) -> Float:
        """log p(class)·p(x | class) up to a constant, (n, K)."""
        points = np.asarray(x, dtype=np.float64)
        squared = ((points[:, None] - self.means[None]) ** 2).sum(axis=-1)
        return np.log(self.prior) - squared / (2 * self.sigma**2)

    def pi(self, x: ArrayLike) -> Float:
        """P(Y = k | x), exact."""
        p = self._joint(x)
        return p / p.sum(axis=1, keepdims=True)

    def _joint(self, x: ArrayLike) -> Float:
        """p(class)·p(x | class), 1 for the most probable class."""
        joint = self.log_joint(x)
        return np.exp(joint - joint.max(axis=1, keepdims=True))

    def bayes_labels(self, x: ArrayLike) -> Int:
        """The most probable class."""
        return self.log_joint(x).argmax(axis=1).astype(np.int64, copy=False)

    def phi(self, x: ArrayLike, probs: ArrayLike) -> Float:
        """The error probability ϕ: how likely the prediction (the most probable class of `probs`) is wrong."""
        p, chosen = self._joint(x), truth.predicted_labels(probs)
        total = p.sum(axis=1)
        # 1 − π rounds where π is near 1: sum the other classes instead.
        p[np.arange(len(p)), chosen] = 0.0
        return p.sum(axis=1) / total

    def varphi(self, x: ArrayLike, probs: ArrayLike) -> Float:
        """The misalignment φ: the probability that the model gives to all other labels."""
        p = check_probs(probs).copy()
        p[np.arange(len(p)), self.bayes_labels(x)] = 0.0
        return p.sum(axis=1)

    def misaligned(self, x: ArrayLike, probs: ArrayLike) -> Bit:
        """1 where the prediction is not the Bayes label."""
        return (truth.predicted_labels(probs) != self.bayes_labels(x)).view(np.uint8)


def synthetic(
    n: int = 1000,
    *,
    tau: float = 1.0,
    sigma: float = 1.0,
    prior: float | ArrayLike = 0.5,
    dim: int = 2,
    classes: int = 2,
    train: float = 0.6,
    seed: int | np.random.Generator = 0,
) -> Synthetic:
    """The paper's toy data: a Gaussian for each class, its mean drawn from N(0, tau·I).

    Parameters
    ----------
    n : int
        Rows; of these a share `train` is for training, stratified by label.
    tau, sigma : float
        Variance of the means, and standard deviation around them.
    prior : float or array-like of shape (K,)
        Probability of class 1, or of each class. With more than two classes the default is equal shares.
    dim, classes : int
        Of the input, and number of classes. With more than two the paper's theorem on UQ-C-index does not hold.
    train : float
        Share of rows for training.
    seed : int or numpy Generator
        One seed, one dataset.

    Examples
    --------
    >>> data = synthetic(seed=1)
    >>> len(data.train), len(data.test), data.pi(data.x).sum(axis=1).round(12).tolist() == [1.0] * 1000
    (600, 400, True)
    """
    for name, value, least in (("n", n, 4), ("dim", dim, 1), ("classes", classes, 2)):
        check_count(name, value, least)
    for name, scale in (("tau", tau), ("sigma", sigma)):
        if not scale > 0:
            raise InputError(f"`{name}` must be positive; it is {scale!r}.")
    if not 0 < train < 1:
        raise InputError(f"`train` must lie strictly between 0 and 1; it is {train!r}.")
    rng = check_seed(seed)
    shares = _prior(prior, classes)
    means = rng.normal(scale=np.sqrt(tau), size=(classes, dim))
    labels = rng.choice(classes, size=n, p=shares).astype(np.int64)
    x = means[labels] + rng.normal(scale=sigma, size=(n, dim))
    first, second = _stratified(labels, round(train * n), rng)
    return Synthetic(x, labels, first, second, means, float(sigma), shares)


def _prior(prior: float | ArrayLike, classes: int) -> Float:
    if np.ndim(prior) == 0:
        p = float(prior)  # type: ignore[arg-type]
        if not 0 < p < 1:
            raise InputError(f"`prior` must lie strictly between 0 and 1; it is {prior!r}.")
        if classes == 2:
            return np.array([1 - p, p])
        if p != 0.5:
            raise InputError(f"`prior` must give a probability for each of the {classes} classes; it is {prior!r}.")
        return np.full(classes, 1 / classes)
    shares = np.asarray(prior, dtype=np.float64)
    if shares.shape != (classes,) or (shares <= 0).any() or abs(shares.sum() - 1) > 1e-9:
        raise InputError(f"`prior` must be {classes} positive probabilities that sum to 1; it is {prior!r}.")
    return shares / shares.sum()


def _stratified(labels: Int, size: int, rng: np.random.Generator) -> tuple[Int, Int]:
    """`size` rows with the label shares of all rows (largest remainders), and the others; each in random order."""
    counts = np.bincount(labels)
    exact = counts * size / len(labels)
    take = np.floor(exact).astype(np.int64)
    for k in np.argsort(-(exact - take), kind="stable")[: size - take.sum()]:
        take[k] += 1
    parts = [rng.permutation(np.flatnonzero(labels == k)) for k in range(len(counts))]
    first = np.concatenate([part[:k] for part, k in zip(parts, take, strict=True)])
    second = np.concatenate([part[k:] for part, k in zip(parts, take, strict=True)])
    return rng.permutation(first), rng.permutation(second)
