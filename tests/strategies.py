"""Test cases for the metrics: heavy ties, infinities, signed zeros, denormals, wild magnitudes, weights with zeros.

A case is built by NumPy from a drawn seed: thousands of cases cost seconds, and hypothesis still shrinks n and kinds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from uqeval import kernels

BACKENDS = kernels.available()
TINY = 5e-324
SPECIAL = np.array(
    [
        -np.inf,
        np.inf,
        -0.0,
        0.0,
        TINY,
        -TINY,
        1e-310,
        2.2e-308,
        1e308,
        -1e308,
        1e-300,
        1.0,
        1.0 + 2**-52,
        1.0 - 2**-53,
        -1.0,
    ]
)
SCORES = ("grid", "continuous", "constant", "special", "mixture", "magnitudes", "neighbours", "bits")
FINITE_SCORES = tuple(kind for kind in SCORES if kind not in ("special", "bits"))
LOSSES01 = ("grid", "errors", "continuous", "constant", "mixture")
WEIGHTS = ("none", "none", "integers", "eighths", "floats", "equal")


def each_backend():
    """Runs the loop body on the NumPy kernels and, where built, on the native ones."""
    former = kernels.backend()
    try:
        for name in BACKENDS:
            kernels.use(name)
            yield name
    finally:
        kernels.use(former)


class Case(NamedTuple):
    score: np.ndarray
    target: np.ndarray
    weights: np.ndarray | None


def make_scores(rng, n, kind):
    """(n,) float64 of the given kind."""
    if kind == "grid":
        return rng.integers(0, rng.integers(1, 7), n).astype(np.float64) - rng.integers(0, 3)
    if kind == "continuous":
        return rng.normal(size=n)
    if kind == "constant":
        return np.full(n, rng.choice([0.0, -0.0, 0.3, 1e300, -7.0]))
    if kind == "special":
        return rng.choice(SPECIAL, n)
    if kind == "mixture":
        return np.where(rng.random(n) < 0.5, rng.integers(0, 3, n), rng.normal(size=n))
    if kind == "magnitudes":
        return rng.choice([-1.0, 1.0], n) * np.exp(rng.uniform(-700, 700, n))
    if kind == "neighbours":  # a few units in the last place apart: a tolerance would tie them
        return 1.0 + rng.integers(0, 5, n) * 2.0**-52
    bits = rng.integers(0, 2**64, n, dtype=np.uint64)  # any double but NaN
    x = bits.view(np.float64)
    return np.where(np.isnan(x), 0.0, x)


def make_errors(rng, n):
    """(n,) of 0.0 and 1.0; sometimes all alike."""
    return (rng.random(n) < rng.choice([0.0, 0.1, 0.3, 0.5, 0.8, 1.0], p=[0.04, 0.2, 0.3, 0.3, 0.12, 0.04])).astype(
        np.float64
    )


def make_losses01(rng, n, kind):
    """(n,) in [0, 1]."""
    if kind == "errors":
        return make_errors(rng, n)
    if kind == "grid":
        return rng.integers(0, 5, n) / 4
    if kind == "constant":
        return np.full(n, rng.choice([0.0, 0.25, 0.3, 1.0]))
    if kind == "mixture":
        return np.where(rng.random(n) < 0.6, rng.integers(0, 2, n), rng.random(n))
    return rng.random(n)


def make_weights(rng, n, kind):
    """None, or (n,) ≥ 0 with two positive entries at least."""
    if kind == "none":
        return None
    if kind == "integers":
        w = rng.integers(0, 4, n).astype(np.float64)
    elif kind == "eighths":
        w = rng.integers(0, 17, n) / 8
    elif kind == "equal":
        w = np.full(n, rng.choice([1.0, 0.1, 3.0]))
    else:
        w = rng.lognormal(size=n) * (rng.random(n) > 0.1)
    w[:2] = np.maximum(w[:2], 0.5)
    return w


def make_probs(rng, n, classes, *, dyadic=False):
    """(n, K) rows that sum to 1; with `dyadic` exactly, in 64ths."""
    if dyadic:
        return rng.multinomial(64, rng.dirichlet(np.ones(classes)), n) / 64
    p = rng.dirichlet(np.full(classes, rng.choice([0.1, 1.0, 10.0])), n)
    p[rng.random(n) < 0.2] = np.eye(classes)[rng.integers(classes)]
    return p


seeds = st.integers(0, 2**32 - 1)


@st.composite
def rows(draw, *, target="error", most=60, least=2, weighted=True, kinds=SCORES):
    """Score, target ("error", "loss01" or "loss") and weights."""
    n = draw(st.integers(least, most))
    kind = draw(st.sampled_from(kinds))
    weight = draw(st.sampled_from(WEIGHTS)) if weighted else "none"
    loss = draw(st.sampled_from(LOSSES01 if target == "loss01" else kinds)) if target != "error" else ""
    rng = np.random.default_rng(draw(seeds))
    score = make_scores(rng, n, kind)
    if target == "error":
        t = make_errors(rng, n)
    else:
        t = make_losses01(rng, n, loss) if target == "loss01" else make_scores(rng, n, loss)
    return Case(score, t, make_weights(rng, n, weight))


@st.composite
def confidences(draw, most=60):
    """Confidence (continuous, on bin edges, at 0 and 1), correct, weights."""
    n = draw(st.integers(2, most))
    kind = draw(st.sampled_from(["continuous", "fifteenths", "tenths", "ends", "constant", "high"]))
    weight = draw(st.sampled_from(WEIGHTS))
    rng = np.random.default_rng(draw(seeds))
    c = {
        "continuous": lambda: rng.random(n),
        "fifteenths": lambda: rng.integers(0, 16, n) / 15,
        "tenths": lambda: rng.integers(0, 11, n) / 10,
        "ends": lambda: rng.choice([0.0, 1.0, 5e-324, 1 - 2**-53], n),
        "constant": lambda: np.full(n, rng.choice([0.0, 0.2, 1.0, 0.73])),
        "high": lambda: rng.beta(20, 1, n),
    }[kind]()
    correct = make_errors(rng, n) if draw(st.booleans()) else (rng.random(n) < c).astype(np.float64)
    return Case(c, correct, make_weights(rng, n, weight))


@st.composite
def tables(draw, most=40, *, dyadic=False, least_classes=2, most_classes=5):
    """(probs, labels, weights)."""
    n, classes = draw(st.integers(2, most)), draw(st.integers(least_classes, most_classes))
    weight = draw(st.sampled_from(WEIGHTS))
    rng = np.random.default_rng(draw(seeds))
    probs = make_probs(rng, n, classes, dyadic=dyadic)
    labels = rng.integers(0, draw(st.integers(1, classes)), n)  # sometimes classes without a row
    return probs, labels, make_weights(rng, n, weight), rng


@st.composite
def in_out(draw, most=40):
    """(score_in, score_out)."""
    kind = draw(st.sampled_from(SCORES))
    a, b = draw(st.integers(1, most)), draw(st.integers(1, most))
    rng = np.random.default_rng(draw(seeds))
    return make_scores(rng, a, kind), make_scores(rng, b, kind if draw(st.booleans()) else "grid")
