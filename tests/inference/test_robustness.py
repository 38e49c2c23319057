"""Counter-examples that an independent review found, each as the claim that now holds."""

import datetime
import math
import threading
import warnings

import numpy as np
import pytest

import uqeval as uq
from cases import each, noted
from uqeval import metrics
from uqeval._errors import UQWarning


def quiet(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return uq.estimate(*args, **kwargs)


def test_no_interval_is_made_of_rounding_noise():
    # Equal clusters never give an interval of rounding noise.
    for count in [10, 11, 12, 13, 17]:
        with noted(count=count):
            g = np.repeat(np.arange(count), 4)
            s, d = np.tile([0.3, 0.1, 0.2, 0.15], count), np.tile([0.9, 0.2, 0.3, 0.1], count)
            found = quiet("uq_c_index", s, d, clusters=g)
            assert (found.se, found.method) == (0.0, "Wilson")
            assert found.high - found.low > 0.1
            e = np.tile([1, 0, 0, 0], count)
            found = quiet("accuracy", e, clusters=g)
            assert found.low < found.value < found.high
            for name in ("aurc", "augrc"):
                found = quiet(name, s, e, clusters=g)
                assert math.isnan(found.low) or found.low < found.value < found.high

    # All wrong with weights has no interval of rounding noise.
    rng = np.random.default_rng(0)
    found = quiet("augrc", rng.random(50), np.ones(50), weights=rng.random(50))
    assert found.value == 0.5
    assert math.isnan(found.low)
    found = quiet("aurc", rng.random(50), np.full(50, 0.3))
    assert found.value == pytest.approx(0.3)
    assert found.se == 0

    # Weighted Kendall without a cluster that matters has no interval.
    s, d = np.array([0.06, 0.9, 0.68, 0.58, 0.98, 0.4]), np.array([0.54, 0.73, 0.93, 0.18, 0.92, 0.26])
    w, g = np.array([0.1, 2, 5, 5, 2, 1]), np.array([0, 1, 0, 0, 0, 0])
    for order in (np.arange(6), np.arange(6)[::-1]):
        assert math.isnan(quiet("kendall_phi", s[order], d[order], weights=w[order], clusters=g[order]).se)

    # A single cluster has no interval even for a constant score.
    e = np.arange(200) % 4 == 0
    found = quiet("uq_auc", np.ones(200), e, clusters=np.zeros(200))
    assert found.value == 0.5
    assert math.isnan(found.se)
    assert math.isnan(found.low)


@each("scale", [1e-200, 1e-30, 1e30, 1e160, 2.0**300])
def test_only_the_ratios_of_weights_matter(scale):
    rng = np.random.default_rng(0)
    s, d, e, w = rng.random(200), rng.random(200), rng.random(200) < 0.3, rng.random(200) + 0.1
    data = {"error": e, "loss": d, "phi": d, "varphi": d, "score": s, "confidence": d, "correct": e}
    data |= {"probs": np.stack([d, 1 - d], axis=1), "labels": e.astype(int)}
    for metric in metrics.REGISTRY.values():
        if "score_in" in metric.needs:
            continue
        values = [data[name] for name in metric.needs]
        plain, scaled = (quiet(metric.name, *values, weights=w * k) for k in (1.0, scale))
        for field in ("value", "low", "high", "se"):
            a, b = getattr(plain, field), getattr(scaled, field)
            assert a == pytest.approx(b, rel=1e-9, nan_ok=True), (metric.name, field)


def test_bools_that_are_not_0_or_1_in_memory_still_count_once():
    bits = np.zeros(1001, np.uint8)
    bits[-1] = 255
    assert metrics.uq_auc(np.arange(1001.0), bits.view(bool)) == 1.0


def test_clusters_of_any_type_stay_apart_and_must_not_be_missing():
    # Clusters of any type stay apart.
    for make in [
        lambda k: [2**53 + x for x in k],
        lambda k: [2**64 + x for x in k],
        lambda k: np.array([2**53 + x for x in k], dtype=object),
        lambda k: [datetime.date(2020, 1, 1 + x) for x in k],
        lambda k: [f"{x:03d}" for x in k],
        lambda k: np.array(k) + 0.5,
    ]:
        with noted(make=make):
            rng = np.random.default_rng(0)
            k = [int(x) for x in rng.integers(0, 20, 200)]
            assert quiet("uq_auc", rng.random(200), rng.random(200) < 0.3, clusters=make(k)).n_clusters == 20

    # Missing clusters are refused.
    rng = np.random.default_rng(0)
    s, e = rng.random(20), np.arange(20) % 3 == 0
    days = np.array(["2020-01-01"] * 20, "M8[D]")
    days[3] = "NaT"
    for clusters in (days, [None] + [1] * 19, ["a"] * 19 + [None], [float("nan")] + [1.0] * 19):
        with pytest.raises(uq.InputError, match="`clusters` has 1 missing"):
            uq.estimate("uq_auc", s, e, clusters=clusters)

    # Score names that read alike are refused.
    s, e = np.arange(20.0), np.arange(20) % 3 == 0
    with pytest.raises(uq.InputError, match="read alike"):
        uq.evaluate(score={1: s, "1": -s}, error=e)


def test_evaluate_keeps_its_warnings_apart_between_threads():
    rng = np.random.default_rng(0)
    s, e = rng.random(300), rng.random(300) < 0.3
    odd = s.copy()
    odd[:7] = np.inf
    before = list(warnings.filters)
    wrong = []

    def work(score, expected):
        for _ in range(60):
            found = uq.evaluate(score=score, error=e, metrics=["uq_auc"])
            if any("infinite" in note for note in found.warnings) != expected:
                wrong.append(found.warnings)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inside = list(warnings.filters)
        threads = [threading.Thread(target=work, args=(odd if k % 2 else s, bool(k % 2))) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(warnings.filters) == inside
    assert not wrong
    assert list(warnings.filters) == before


def test_nan_omit_is_refused_where_it_would_be_ignored():
    with pytest.raises(uq.InputError, match='nan="omit" is for the metrics that rank rows'):
        uq.estimate("brier", [[0.5, 0.5], [0.2, 0.8]], [0, 1], nan="omit")


def test_many_groups_fold_their_warnings():
    rng = np.random.default_rng(0)
    s, e, g = rng.random(600), rng.random(600) < 0.3, np.arange(600) // 6
    with pytest.warns(UQWarning) as raised:
        ev = uq.evaluate(score=s, error=e, groups=g, metrics=["uq_auc"])
    assert len(ev.groups) == 100
    assert len(raised) < 20
    assert len(str(ev)) < 10_000
