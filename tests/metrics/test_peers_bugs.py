"""Bugs of other libraries, named with what they give: uqeval must not have them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cases import noted, on_both_kernels
from uqeval import kernels, metrics
from uqeval._errors import InputError, UndefinedMetricWarning

RIGHT_FIRST = np.array([0] * 80 + [1] * 20)
WRONG_FIRST = RIGHT_FIRST[::-1].copy()
CONSTANT = np.full(100, 0.7)


@on_both_kernels
def test_a_constant_score_gets_the_error_rate_in_every_row_order():
    # Constant score gets the error rate in both row orders.
    # torch-uncertainty AURC .213/.085, AUGRC .131/.069; untangle AURC .212/.086; MAPIE AUARC .978/.482.
    for error in [RIGHT_FIRST, WRONG_FIRST]:
        with noted(error=error):
            assert metrics.aurc(CONSTANT, error) == pytest.approx(0.2, abs=1e-15)
            assert metrics.augrc(CONSTANT, error) == pytest.approx(0.1, abs=1e-15)
            assert metrics.auarc(CONSTANT, error) == pytest.approx(0.8, abs=1e-15)
            assert metrics.prr(CONSTANT, error) == pytest.approx(0.0, abs=1e-14)  # untangle rAULC −.07/.64

    # Risk at half coverage of a constant score is not made up.
    # torch-uncertainty Risk@50 .40/.00: with one score value there is one working point, coverage 1.
    for error in [RIGHT_FIRST, WRONG_FIRST]:
        with noted(error=error):
            curve = metrics.risk_coverage_curve(CONSTANT, error)
            assert curve.coverage.tolist() == [1.0]
            assert curve.risk.tolist() == [0.2]

    # Shuffling saturated float32 softmax does not move AURC.
    # torch-uncertainty: .1796–.1857.
    rng = np.random.default_rng(0)
    score = (1 - rng.beta(30, 0.05, 5000).astype(np.float32)).astype(np.float32)  # many exact zeros
    error = rng.random(5000) < 0.18
    assert (score == 0).mean() > 0.05
    orders = [rng.permutation(5000) for _ in range(20)]
    assert len({metrics.aurc(score[o], error[o]) for o in orders}) == 1


@on_both_kernels
def test_equal_scores_earn_one_half():
    # OOD auroc of equal scores is one half.
    # probly: evaluate_ood(zeros, zeros) → 1.0.
    assert metrics.ood_auroc(np.zeros(50), np.zeros(50)) == 0.5

    # Uninformative scores on five levels get one half.
    # probly: .597.
    levels = np.repeat(np.arange(5), 40) / 5
    assert metrics.ood_auroc(levels, levels) == 0.5


@on_both_kernels
def test_scores_of_any_size_are_ranked_as_they_are():
    # Scores outside [0, 1] are ranked as they are.
    # torchmetrics: a sigmoid per batch gives 0.0 here.
    assert metrics.uq_auc([0.9, 0.95, 1.2, 1.5], [0, 0, 1, 1]) == 1

    # Large scores are not squashed to ties.
    # torchmetrics: scores 17…22 → .5.
    assert metrics.uq_auc(np.arange(17, 23), [0, 0, 0, 1, 1, 1]) == 1
    assert metrics.uq_auc(np.arange(17, 23).astype(np.float32), [0, 0, 0, 1, 1, 1]) == 1

    # Scores near a thousandth are not binned.
    # torchmetrics with 200 thresholds: .5, exact .829.
    rng = np.random.default_rng(1)
    error = rng.random(2000) < 0.3
    score = 1e-3 * (1 + 0.1 * (rng.normal(size=2000) + 1.3 * error))
    assert metrics.uq_auc(score, error) == metrics.uq_auc(score * 1024, error) > 0.75

    # Concordance of tiny scores has no tolerance.
    # scikit-survival tied_tol=1e-8: .5.
    tiny = np.arange(1, 40) * 1e-9
    assert metrics.uq_c_index(tiny, np.arange(39)) == 1
    assert metrics.uq_c_index(np.arange(1, 40) * 5e-324, np.arange(39)) == 1
    assert metrics.uq_c_index(1 + np.arange(39) * 2.0**-52, np.arange(39)) == 1
    assert metrics.uq_auc(tiny, np.arange(39) > 20) == 1

    # Denormals rank.
    assert metrics.uq_auc([0.0, 5e-324], [0, 1]) == 1
    assert metrics.uq_auc([-5e-324, 0.0], [0, 1]) == 1
    assert metrics.uq_c_index([1e-310, 2e-310, 3e-310], [1e-320, 2e-320, 3e-320]) == 1
    assert metrics.uq_c_index([1, 2, 3], [1e-320, 2e-320, 3e-320], weights=[1, 2, 3]) == 1


def test_undefined_and_nan_are_never_a_number():
    # No errors at all is undefined and not zero.
    # torchmetrics: 0.0.
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(metrics.uq_auc([0.1, 0.2], [0, 0]))

    # NaN score is an error and not the best score.
    # torchmetrics: a NaN input → 1.0; torch-uncertainty: NaN ranks as most confident.
    for function in (metrics.uq_auc, metrics.aurc, metrics.augrc, metrics.h_auc, metrics.uq_c_index):
        with pytest.raises(InputError, match="`score` has 1 NaN"):
            function([0.1, math.nan, 0.3], [0, 1, 0])


@on_both_kernels
def test_counts_keep_full_precision_at_many_rows():
    # Counts do not overflow in the dtype of the score.
    # torch-uncertainty, fp16, n = 70k: AURC .110, truth .125.
    for dtype in [np.float16, np.float32]:
        with noted(dtype=dtype):
            n = 70_000
            error = np.arange(n) % 8 == 0
            score = np.zeros(n, dtype=dtype)
            assert metrics.aurc(score, error) == pytest.approx(0.125, abs=1e-14)
            assert metrics.augrc(score, error) == pytest.approx(0.0625, abs=1e-14)
            assert metrics.uq_auc(score, error) == 0.5

    # Ten thousand rows take no time and full precision.
    # torchsurv: fp32, 78 s at n = 10⁴; scipy.stats.somersd: 40 s at n = 500.
    rng = np.random.default_rng(0)
    s, d = rng.random(10_000), rng.random(10_000)
    c = metrics.uq_c_index(s, d)
    assert metrics.somers_d(s, d) == pytest.approx(2 * c - 1, abs=1e-15)
    pairs = 10_000 * 9_999 // 2
    assert c * pairs == pytest.approx(round(c * pairs), abs=1e-6)

    # AUC never passes one.
    # confidenceinterval: AUC > 1 from float32 midranks.
    for n in (1_000, 300_001):
        score = np.arange(n, dtype=np.float32)
        error = np.arange(n) >= n // 3
        assert metrics.uq_auc(score, error) == 1
        assert metrics.uq_auc(-score, error) == 0


def test_calibration_counts_every_row_once():
    # ECE of sure and right predictions is zero.
    # fd-shifts: 1.0, confidence 1 falls out of the last bin.
    for scheme in ("width", "mass"):
        for norm in ("l1", "l2"):
            assert metrics.ece(np.ones(100), np.ones(100), scheme=scheme, norm=norm) == 0
    assert metrics.ece_debiased(np.ones(100), np.ones(100)) == 0

    # Top label ECE weighs bins by rows and not labels.
    # MAPIE macro-averages labels: .451 instead of .011.
    confidence = np.array([0.9] * 1000 + [0.9] * 2)
    correct = np.array([1] * 900 + [0] * 100 + [0, 0])  # two rows of a rare label, both wrong
    assert metrics.ece(confidence, correct) == pytest.approx(abs(900 / 1002 - 0.9), abs=1e-12)


def test_working_points_are_those_of_the_rows():
    # Thresholds of a curve are scores of rows.
    # fd-shifts: the zero-risk working point is −inf, meaning "accept all".
    score = np.array([0.2, 0.4, 0.6, 0.8])
    for error in (np.zeros(4), np.ones(4), [0, 1, 0, 1]):
        curve = metrics.risk_coverage_curve(score, error)
        np.testing.assert_array_equal(curve.threshold, score)
        for t, coverage in zip(curve.threshold, curve.coverage, strict=True):
            assert coverage == (score <= t).mean()

    # A perfect classifier keeps every row.
    # untangle and others: coverage at accuracy for a perfect classifier → 0.
    curve = metrics.mce_curve(np.linspace(0, 1, 30), np.zeros(30))
    assert curve.coverage[curve.risk <= 0].max() == 1

    # A share of 0.55 of 100 rows is 55 rows.
    # torch-uncertainty: ceil(n·coverage) takes 56 since 0.55·100 = 55.00000000000001.
    inside, outside = np.arange(100), np.arange(100)
    assert metrics.fpr_at_tpr(inside, outside, tpr=0.55) == 0.55
    assert metrics.fpr_at_tpr(inside, outside, tpr=0.95) == 0.95
    assert metrics.fpr_at_tpr(np.arange(20), np.arange(20), tpr=0.95) == 0.95
    for percent in range(1, 101):
        assert metrics.fpr_at_tpr(inside, outside, tpr=percent / 100) == percent / 100


@on_both_kernels
def test_e_aurc_of_a_perfect_ranking_of_ten_rows_is_zero():
    """Asymptotic optimum: +.024 (untangle), −.0012 (fd-shifts)."""
    for wrong in range(11):
        error = np.arange(10) >= 10 - wrong
        assert metrics.e_aurc(np.arange(10), error) == pytest.approx(0, abs=1e-16)
        assert metrics.e_aurc(np.arange(10), error) >= 0


def weighted_perfect_rankings():
    """(score, error, weights) with every wrong row above every right one."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 60))
        yield np.arange(n), np.arange(n) >= n // 2, rng.lognormal(size=n)


@on_both_kernels
def test_weighted_values_reach_their_bounds_and_never_pass_them():
    # Weighted values never pass their bounds.
    # The same with weights: never 1.0000000000000002.
    values = []
    for s, e, w in weighted_perfect_rankings():
        values += [metrics.uq_auc(s, e, weights=w), metrics.uq_c_index(s, s, weights=w)]
        values += [metrics.kendall_tau(s, s, weights=w), -metrics.somers_d(s, -s, weights=w)]
    assert max(values) <= 1

    # Weighted perfect rankings are exactly one.
    # Not 0.9999999999999998, which would miss the interval's fallback for A in {0, 1}.
    values = []
    for s, e, w in weighted_perfect_rankings():
        values += [metrics.uq_auc(s, e, weights=w), metrics.uq_c_index(s, s, weights=w)]
        values += [1 - metrics.uq_auc(-s, e, weights=w), 1 - metrics.uq_c_index(-s, s, weights=w)]
    assert set(values) == {1.0}


@pytest.mark.filterwarnings("ignore:.*infinite values:uqeval._errors.UQWarning")
@on_both_kernels
def test_minus_zero_is_zero_and_infinities_tie_with_each_other():
    # Minus zero is zero.
    assert metrics.uq_auc([0.0, -0.0], [0, 1]) == metrics.uq_auc([-0.0, 0.0], [0, 1]) == 0.5
    assert metrics.uq_c_index([-0.0, 0.0], [0, 1]) == 0.5
    assert metrics.uq_c_index([0, 1, 1], [-0.0, 0.0, 1.0]) == 0.75
    assert metrics.aurc([-0.0, 0.0], [1, 0]) == metrics.aurc([0.0, -0.0], [1, 0]) == 0.5
    assert len(metrics.risk_coverage_curve([-0.0, 0.0, 1.0], [0, 1, 0])) == 2
    assert metrics.ood_aupr([0.0], [-0.0]) == metrics.ood_aupr([-0.0], [0.0]) == 0.5
    assert metrics.uq_auc([0.0, -0.0, 1], [0, 1, 1], weights=[1, 2, 3]) == pytest.approx((0.5 * 2 + 3) / 5)
    assert not kernels.order_by(np.array([-0.0, 1.0])).ties

    # Infinite scores are legal and tie with each other.
    inf = math.inf
    assert metrics.uq_auc([0.0, inf], [0, 1]) == metrics.uq_auc([-inf, 0.0], [0, 1]) == 1
    assert metrics.uq_auc([inf, inf], [0, 1]) == metrics.uq_auc([-inf, -inf], [0, 1]) == 0.5
    assert metrics.aurc([-inf, 1e308, inf], [0, 0, 1]) == pytest.approx(1 / 9)
    assert metrics.uq_c_index([-inf, 0, inf, inf], [0, 1, 2, 2]) == 1
    assert metrics.fpr_at_tpr([inf, inf], [0.0, inf]) == 1
