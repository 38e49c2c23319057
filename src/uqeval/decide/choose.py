"""Below which value of a score may one act without a human, and how sure is that?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Nan, check_choice, check_count, check_level, check_seed
from uqeval._errors import InputError, notify
from uqeval.decide.calibration import Calibration, split_rows
from uqeval.decide.certification import Certification
from uqeval.decide.rows import (
    CLUSTER_METHODS,
    check_candidates,
    check_targets,
    clean_rows,
    find_scores,
    find_target,
    warned,
)
from uqeval.decide.threshold import Thresholds
from uqeval.decide.walks import METHODS
from uqeval.inputs import Predictions


def choose_threshold(
    score: ArrayLike | Mapping[str, ArrayLike] | str | Sequence[str],
    error: ArrayLike | None = None,
    max_risk: float | Sequence[float] | None = None,
    level: float = 0.95,
    method: str = "fallback",
    *,
    predictions: Predictions | None = None,
    risk: str = "error",
    clusters: ArrayLike | None = None,
    cluster_method: str = "t",
    thresholds: ArrayLike | None = None,
    split: float | None = None,
    bound: str = "betting",
    tie: str = "drop",
    n_scores: int = 1,
    largest_cluster: int | None = None,
    weights: ArrayLike | None = None,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
) -> Any:
    """The largest region {score ≤ value} whose risk is at most `max_risk`, with confidence `level`.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure. Or several, as a dict of name → array: the one that accepts most is
        chosen, each tested at its share of 1 − level. With `predictions`: the name of a score, or a list of names.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1]; or what `truth.misaligned` gives.
    max_risk : float or list of float
        The risk that you accept among the inputs below the threshold (for "rcps" and "crc": the share of all inputs
        that are accepted and wrong). A list gives `Thresholds` that hold jointly.
    level : float
        Confidence.
    method : str
        "fallback" (default), "fst" (fixed sequence), "sgr", "bonferroni", "holm"; "rcps", "crc" for the joint risk,
        where "crc" holds on average and not with confidence `level`.
    predictions : Predictions, optional
        Where score and error come from instead; see `risk`.
    risk : "error", "loss" or "misaligned"
        With `predictions`: wrong, their own loss in [0, 1], or unlike the majority of the soft labels. With arrays it
        says what `error` holds: pass "loss" for a loss that happens to be 0/1 on these rows.
    clusters : array-like of shape (n,), optional
        Independent units, as a patient id; rows of one cluster may depend on each other.
    cluster_method : "t" or "subsample"
        With clusters: a t-test on their excess loss (asymptotic), or one random row of each (exact, fewer rows). The
        promise of the latter, and of "crc", is for one random input of each cluster.
    thresholds : array-like, optional
        Candidates fixed beforehand, in place of quantiles of these rows.
    split : float, optional
        Share of the rows (or clusters) that choose the threshold; the others give honest estimates (`holdout`).
    bound : "betting" or "hoeffding-bentkus"
        For losses that are not 0/1.
    tie : "drop" or "error"
        With ``risk="misaligned"``: rows whose majority is a tie are left out, or counted as misaligned.
    n_scores : int
        How many scores you tried on these rows, this one included: each then gets its share of 1 − level.
    largest_cluster : int, optional
        The most rows that a cluster can ever have, for `Threshold.check`; the largest one here by default.
    weights : not supported
        There is no exact bound for weighted rows.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.
    seed : int or numpy Generator
        For `split` and ``cluster_method="subsample"``.

    Returns
    -------
    Threshold, or Thresholds for a list of targets
        Where nothing can be certified, it accepts nothing (``value = -inf``, ``feasible = False``) and says how
        many rows would be needed.

    Examples
    --------
    >>> import uqeval as uq
    >>> t = uq.choose_threshold("entropy", predictions=uq.datasets.example(), max_risk=0.05)
    >>> print(t.statement())  # doctest: +NORMALIZE_WHITESPACE
    Act where entropy ≤ 1.150497354: 94.1% of inputs (92.8%–95.2%).
    With 95% confidence, at most 5% of the accepted inputs are wrong.
    """
    level = check_level(level)
    check_choice("method", method, METHODS)
    check_choice("cluster_method", cluster_method, CLUSTER_METHODS)
    check_choice("bound", bound, ("betting", "hoeffding-bentkus"))
    targets = check_targets(max_risk)
    rng = check_seed(seed)
    check_count("n_scores", n_scores)
    if split is not None and not (isinstance(split, int | float | np.floating) and 0 < split < 1):
        raise InputError(f"`split` must lie strictly between 0 and 1, as 0.5; it is {split!r}.")
    fixed = check_candidates(thresholds)
    with warned() as notes:
        target = find_target(error, predictions, risk, clusters, tie, weights)
        cals = clean_rows(find_scores(score, predictions), target, nan, bound)
        tried = max(len(cals), int(n_scores))
        delta = (1 - level) / (len(targets) * tried)
        first = next(iter(cals.values()))
        if method == "rcps" and first.clusters is not None and cluster_method != "subsample":
            raise InputError(
                'method="rcps" with clusters needs cluster_method="subsample": its t-test did not hold in simulations '
                "with clusters of uneven size."
            )
        most = _largest_cluster(first, largest_cluster)
        rule = Certification(method, tuple(targets), level, delta, cluster_method == "subsample", tried, fixed, most)
        chosen = None if split is None else split_rows(list(cals.values()), float(split), rng)
        if chosen is not None and not 2 <= int(chosen.sum()) <= len(chosen) - 2:
            raise InputError(f"`split` = {split:g} leaves fewer than 2 rows on one side. Pass more rows.")
        draws = int(rng.integers(2**63))  # one for all: a score's result does not depend on the others
        certified = [rule.certify(cal, name=name, chosen=chosen, seed=draws) for name, cal in cals.items()]
        best = max(certified, key=lambda ts: sum(t.coverage for t in ts))  # the first of those that accept most
        if tried > 1 and split is None:
            share = "max_risk" if method == "crc" else "1 − level"
            notify(
                f"The same rows chose among {tried} scores, the threshold, and give its risk. The promise holds (each "
                f"score was tested at its share of {share}), but the observed risk is optimistic: pass split=0.5."
            )
    best = Thresholds(replace(t, warnings=tuple(notes)) for t in best)
    return best[0] if np.ndim(max_risk) == 0 else best  # type: ignore[arg-type]


def _largest_cluster(cal: Calibration, given: int | None) -> int | None:
    if cal.cluster_rows is None:
        if given is not None:
            raise InputError("`largest_cluster` needs `clusters`.")
        return None
    seen = int(cal.cluster_rows.max())
    return seen if given is None else check_count("largest_cluster", given, seen, reason=", the largest here")
