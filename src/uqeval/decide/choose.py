"""Below which value of a score may one act without a human, and how sure is that?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Int, Nan, check_choice, check_codes, check_count, check_level, check_seed
from uqeval._errors import InputError, notify
from uqeval.decide.bounds import made_up_clusters
from uqeval.decide.calibration import Calibration, split_rows
from uqeval.decide.certification import Certification
from uqeval.decide.rows import (
    CLUSTER_METHODS,
    bounded_rows,
    bounded_weight,
    check_candidates,
    check_targets,
    clean_rows,
    find_scores,
    find_target,
    warned,
)
from uqeval.decide.thresholds import Thresholds
from uqeval.decide.walks import DEFAULT, METHODS
from uqeval.inputs import Predictions
from uqeval.metrics.areas import Ranking
from uqeval.metrics.copies import copies_notes, find_copies
from uqeval.scores.registry import one_ranking


def choose_threshold(
    score: ArrayLike | Mapping[str, ArrayLike] | str | Sequence[str],
    error: ArrayLike | None = None,
    max_risk: float | Sequence[float] | None = None,
    level: float = 0.95,
    method: str = DEFAULT,
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
    largest_weight: float | None = None,
    groups: ArrayLike | None = None,
    each: bool = False,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
) -> Any:
    """The largest region {score ≤ value} whose risk is at most `max_risk`, with confidence `level`.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure. Or several, as a dict of name → array: the one that accepts most is
        chosen, each tested at its share of 1 − level; those that rank all rows alike are one score, the first. With
        `predictions`: the name of a score, or a list of names.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1]; or what `truth.misaligned` gives.
    max_risk : float or list of float
        The risk that you accept among the inputs below the threshold (for "rcps" and "crc": the share of all inputs
        that are accepted and wrong). A list gives `Thresholds` that hold jointly.
    level : float
        Confidence.
    method : str
        "step-down" (default; for 0/1 errors of independent rows, elsewhere it is "fallback"), "fallback", "fst" (fixed
        sequence), "sgr", "bonferroni", "holm"; "rcps", "crc" for the joint risk, where "crc" holds on average and not
        with confidence `level`.
    predictions : Predictions, optional
        Where score and error come from instead; see `risk`.
    risk : "error", "loss" or "misaligned"
        With `predictions`: wrong, their own loss in [0, 1], or unlike the majority of the soft labels. With arrays it
        says what `error` holds: pass "loss" for a loss that happens to be 0/1 on these rows.
    clusters : array-like of shape (n,), optional
        Independent units, as a patient id; rows of one cluster may depend on each other.
    cluster_method : "t", "exact" or "subsample"
        With clusters: a t-test on their excess loss (asymptotic); a bet on it (exact, but certifies next to nothing
        below about 1,000 clusters); or one random row of each (exact). The promise of the last, and of "crc", is for
        one random input of each cluster.
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
        The most rows that a cluster can ever have; the largest one here by default. No promise about clusters holds
        without such a bound: a large wrong one may be missing here by luck.
    weights : array-like of shape (n,), optional
        How many inputs to come each row stands for, known before its error was; the risk, the coverage and the
        promise are then weighted. Every method holds (a bet on w·(loss − max_risk), exact); with clusters it needs
        ``cluster_method="exact"``. Equal weights are no weights.
    largest_weight : float, optional
        The largest weight that an input (with clusters: all inputs of a cluster together) can ever have, in the unit of
        `weights`; the largest one here by default.
    groups : array-like of shape (n,), optional
        Strata, as a hospital: ``threshold.groups`` then has the coverage and the risk seen in each. The promise is for
        all inputs together. With ``each=True`` those of `predictions` by default.
    each : bool
        Promise the risk in every group, all at once. The threshold is then the largest that can be certified in each of
        them at the whole of 1 − level; a group with too few rows is named, and nothing is accepted.
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
    This holds if inputs to come are drawn as these rows were, each independently of the others.
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
        codes, names = _find_groups(groups, predictions, each, method)
        cals = clean_rows(find_scores(score, predictions), target, nan, bound, groups=codes)
        if fixed is None:  # which lie elsewhere in each
            cals = _one_of_each(cals, predictions)
        tried = max(len(cals), int(n_scores))
        delta = (1 - level) / (len(targets) * tried)
        first = next(iter(cals.values()))
        _refuse(method, first, cluster_method)
        rows = bounded_rows(largest_cluster, first.cluster_rows)
        sizes = None if first.weights is None else np.ldexp(first.unit_sizes, first.exponent)
        weight = bounded_weight(largest_weight, sizes)
        exact = first.clusters is not None and cluster_method == "exact"
        largest = rows if weight is None else float(np.ldexp(weight, -first.exponent))
        known: dict[str, Any] = {"exact": exact, "largest": largest, "made_up": made_up_clusters(delta)}
        cals = {name: replace(cal, **known) for name, cal in cals.items()}
        rule = Certification(
            method=method,
            targets=tuple(targets),
            level=level,
            delta=delta,
            cluster_method=cluster_method,
            n_scores=tried,
            thresholds=fixed,
            largest_cluster=None if rows is None else int(rows),
            largest_weight=weight,
            declared=(largest_cluster if weight is None else largest_weight) is not None,
            groups=names,
            each=each,
        )
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


def _find_groups(
    groups: Any, predictions: Predictions | None, each: bool, method: str
) -> tuple[Int | None, tuple[str, ...]]:
    """The group of each row, and their names."""
    codes: Int | None = None
    names: tuple[str, ...] = ()
    if groups is not None:
        codes, values = check_codes("groups", groups)
        names = tuple(map(str, values.tolist()))
    elif each and predictions is not None and predictions.groups is not None:
        codes, names = predictions.groups, predictions.group_names
    if each and codes is None:
        raise InputError("`each` is about groups, and there are none. Pass groups=, one entry per row.")
    if each and method == "crc":
        raise InputError('method="crc" holds on average over calibration sets, not in each group. Pass another method.')
    return codes, names


def _one_of_each(cals: dict[str | None, Calibration], predictions: Predictions | None) -> dict[str | None, Calibration]:
    """Without scores that accept the same rows as an earlier one does: they are one hypothesis."""
    rankings = {str(name): Ranking(cal.score) for name, cal in cals.items()}
    copies = find_copies(rankings, [] if predictions is None else one_ranking(rankings, predictions))
    for note in copies_notes(copies.groups):
        notify(note)
    found = {name: cal for name, cal in cals.items() if str(name) not in copies.first}
    for name, cal in found.items():
        if (ranking := rankings[str(name)]).ordered:
            found[name] = replace(cal, ranking=ranking)
    return found


def _refuse(method: str, cal: Calibration, cluster_method: str) -> None:
    """What is not known to hold."""
    if cal.clusters is None:
        return
    if method == "rcps" and cluster_method == "t":
        raise InputError(
            'method="rcps" with clusters needs cluster_method="subsample" or cluster_method="exact": its t-test '
            "did not hold in simulations with clusters of uneven size."
        )
    if cal.weights is not None and (cluster_method != "exact" or method == "crc"):
        raise InputError(
            f'`weights` with `clusters` need cluster_method="exact" and a method other than "crc"; here they are '
            f'"{cluster_method}" and "{method}". Or leave the weights out: the promise is then for inputs as these '
            f"rows are drawn."
        )
