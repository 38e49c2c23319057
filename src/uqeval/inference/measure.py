"""A metric and the clean rows that it is measured on: estimate it, resample it, compare several."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Progress, check_seed
from uqeval.inference.bootstrap import resample_ece, resample_means, resample_samples
from uqeval.inference.calibrated import miscalibrated
from uqeval.inference.count import calibration_cells, count_ece, count_mean, count_sample
from uqeval.inference.influence import ece_influence
from uqeval.inference.intervals import estimate_ranking
from uqeval.inference.joint import joint_of_rows, joint_of_samples
from uqeval.inference.means import estimate_ece, estimate_mean
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Confidences, Rows, Sample
from uqeval.inference.tally import JointTally
from uqeval.metrics.proper import weighted_mean
from uqeval.metrics.registry import REGISTRY, Metric


@dataclass(frozen=True)
class Measurement:
    """What is measured: a score against a target, numbers whose mean counts, or confidences."""

    metric: Metric
    given: Sample | Confidences | Float
    rows: Rows

    def estimate(self, level: float, seed: int | np.random.Generator) -> Estimate:
        """Value, standard error and the interval of the metric; the seed is for intervals that draw."""
        metric, given = self.metric, self.given
        if isinstance(given, Sample):
            return _one(estimate_ranking(metric, count_sample(metric, given), level))
        if not isinstance(given, Confidences):
            return _one(estimate_mean(metric, count_mean(given, self.rows, metric.interval == "binomial"), level))
        tally, confidences = count_ece(given), given

        def rejected(_: bool) -> bool:
            if level not in confidences.tested:
                confidences.tested[level] = miscalibrated(
                    tally, calibration_cells(confidences), 1 - level, check_seed(seed)
                )
            return confidences.tested[level]

        return _one(estimate_ece(metric, tally, level, rejected))


def _one(found: Any) -> Estimate:
    assert isinstance(found, Estimate)
    return found


def estimate_share(hits: NDArray[Any], rows: Rows, level: float) -> Estimate:
    """The share of the rows that are hit (1, else 0), with the interval of the accuracy."""
    metric = REGISTRY["accuracy"]
    return _one(estimate_mean(metric, count_mean(hits.astype(np.float64), rows, share=True), level))


def resample(
    measured: list[Measurement], resamples: int, rng: np.random.Generator, progress: Progress | None = None
) -> Float:
    """(K, resamples) values on resampled rows or clusters, the same draws for all; NaN where undefined."""
    metric, given, how = measured[0].metric, [one.given for one in measured], (resamples, rng, progress)
    if metric.uses_score:
        return resample_samples(metric, [one for one in given if isinstance(one, Sample)], *how)
    if metric.tally == "ece":
        return resample_ece(metric, [one for one in given if isinstance(one, Confidences)], *how)
    return resample_means(np.stack([one for one in given if isinstance(one, np.ndarray)]), measured[0].rows, *how)


def joint(measured: list[Measurement]) -> JointTally:
    """Values of several candidates on the same rows, and their covariance."""
    metric, rows = measured[0].metric, measured[0].rows
    if metric.uses_score:
        return joint_of_samples(metric, [one.given for one in measured if isinstance(one.given, Sample)])
    values, influence = [], []
    for one in (one.given for one in measured):
        if isinstance(one, Confidences):
            assert metric.by_bin is not None
            values.append(metric.by_bin(one.bins))
            influence.append(ece_influence(one.bins, one.confidence, one.correct))
        elif not isinstance(one, Sample):
            values.append(weighted_mean(one, rows.weights))
            influence.append(one - values[-1] if math.isfinite(values[-1]) else np.full(rows.n, math.nan))
    return joint_of_rows(values, influence, rows)
