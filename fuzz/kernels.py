"""Every native kernel on hostile input: small test sets against all pairs, larger ones against the NumPy twin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuzz import loop
from fuzz.cases import KINDS, Cases, Pairs, drawn, errors, numbers, stable, starts, weights
from fuzz.loop import Tally
from uqeval import kernels
from uqeval.kernels import Order, native, plain

_PAIRS = 60_000  # of rows, in all cases of a batch
_NEAR = 1e-12
# What sums of parts of C or of risks, which may cancel, are off by.
_ROUNDING = {"sweep": 1e-9, "sweep_parts": 1e-9, "sweep_rows": 1e-12, "unit_sums": 1e-9} | dict.fromkeys(
    ("concordance", "ordered_concordance", "concordance_sums", "concordance_parts"), 1e-12
)


def few(rng: np.random.Generator, tally: Tally) -> None:
    """Many cases of one small length, by definition."""
    n = int(rng.choice([rng.integers(0, 9), rng.integers(0, 65)]))
    cases = Cases(rng, int(np.clip(_PAIRS // (n * n + 1), 16, 256)), n)
    threads = 1 if rng.random() < 0.97 else int(rng.integers(2, 5))
    check_orders(cases, threads, tally)
    check_sweeps(cases, threads, tally)
    check_pairs(cases, threads, tally)
    check_sums(rng, cases, tally)
    if n:
        check_parts(rng, cases, threads, tally)
        check_clusters(cases, tally)
        check_resamples(rng, cases, threads, tally)
        check_exceeding(rng, cases, tally)


def orders_of(cases: Cases) -> tuple[list[Order], list[Order]]:
    """By definition: of the scores and of the losses."""
    row = stable(cases.loss)
    losses = zip(row.astype(np.uint32), starts(cases.loss, row), strict=True)
    return [Order(*of) for of in zip(cases.row.astype(np.uint32), cases.new, strict=True)], [
        Order(*of) for of in losses
    ]


def check_orders(cases: Cases, threads: int, tally: Tally) -> None:
    found = [native.order_by(x, threads) for x in cases.score]
    tally.equal("order_by", [order.row for order in found], cases.row)
    tally.equal("order_by", [order.new for order in found], cases.new, seen=True)
    marked = [native.mark_ordered(order, e, threads) for order, e in zip(found, cases.error, strict=True)]
    tally.equal("mark_ordered", marked, cases.marks)
    free = np.reshape(
        [native.mark(x, e, threads) for x, e in zip(cases.score, cases.error, strict=True)], cases.row.shape
    )
    tally.equal("mark", free >> 1, cases.new.astype(np.uint8))
    ends = np.roll(cases.new, -1, axis=1)  # tied rows may change places: so many wrong ones until the end of each value
    wrong = [np.cumsum(marks & 1, axis=1) * ends for marks in (free, cases.marks)]
    tally.equal("mark", wrong[0], wrong[1], seen=True)
    tally.equal("count_wrong", [native.count_wrong(m) for m in cases.marks], cases.error.sum(axis=1, dtype=np.int64))


def check_sweeps(cases: Cases, threads: int, tally: Tally) -> None:
    of_auc = [native.auc_sums(x, e, threads) for x, e in zip(cases.score, cases.error, strict=True)]
    tally.equal("auc_sums", of_auc, cases.auc)
    right, marks = cases.swept, cases.marks
    found = [native.sweep(own) for own in marks]
    tally.equal("sweep", [sums[:8] for sums in found], right.whole)
    tally.near("sweep", [sums[8:] for sums in found], right.real, _NEAR * (1 + np.abs(right.real)), seen=True)
    twin = plain.sweep(marks[0])
    areas = [[np.float64(x).view(np.int64) for x in (sums.aurc, sums.best, sums.rate)] for sums in (found[0], twin)]
    tally.equal("sweep", areas[:1], np.array(areas[1:]), seen=True)
    credit2 = np.take_along_axis(cases.of_error.credit2, cases.row, 1)
    tally.equal("credits", [native.credits(own) for own in marks], credit2)
    rows = [native.sweep_rows(own) for own in marks]
    tally.equal("sweep_rows", [row[1] for row in rows], credit2)
    tally.near("sweep_rows", [row[0] for row in rows], np.take_along_axis(right.e, cases.row, 1), 10 * _NEAR, seen=True)


def check_pairs(cases: Cases, threads: int, tally: Tally) -> None:
    right, other = cases.pairs, cases.other_pairs
    both = np.stack([cases.score, cases.other], axis=1)
    found = [native.pair_counts(s, d, threads) for s, d in zip(both, cases.loss, strict=True)]
    tally.equal("pair_counts", [credit2 for credit2, _ in found], np.stack([right.credit2, other.credit2], axis=1))
    tally.equal("pair_counts", [comparable for _, comparable in found], right.comparable, seen=True)
    orders, losses = orders_of(cases)
    counted = [native.ordered_counts(a, b, threads) for a, b in zip(orders, losses, strict=True)]
    tally.equal("ordered_counts", counted, right.credit2)
    same_sums(
        tally,
        "concordance",
        [native.concordance(*x, threads) for x in zip(cases.score, cases.loss, strict=True)],
        right,
    )
    joined = [native.ordered_concordance(*x, threads) for x in zip(orders, losses, strict=True)]
    same_sums(tally, "ordered_concordance", joined, right)
    rows = zip(right.credit2, right.comparable, strict=True)
    same_sums(tally, "concordance_sums", [native.concordance_sums(*row) for row in rows], right)
    weighed = [kernels.weighted_pair_counts(*x) for x in zip(orders, losses, cases.weight, strict=True)]
    largest = cases.weight.max(axis=1, initial=0.0)[:, None, None] * max(1, cases.n)
    tally.near("weighted_credit", weighed, right.weighted(cases.weight), 1e-14 * largest)


def same_sums(tally: Tally, name: str, found: Sequence[Any], right: Pairs) -> None:
    tally.equal(name, [sums[:2] for sums in found], right.totals)
    tally.near(name, [sums[2:] for sums in found], *right.shifts, seen=True)


def check_sums(rng: np.random.Generator, cases: Cases, tally: Tally) -> None:
    for x in (cases.weight, cases.score):
        size = np.abs(x).max(axis=1, initial=0.0)
        finite = np.flatnonzero(np.isfinite(size) & (size < 1e300))  # what sums beyond is theirs
        found = [native.order_free_sum(own) for own in x[finite]]
        exact = np.array([math.fsum(own) for own in x[finite].tolist()])
        tally.near(
            "order_free_sum", found, exact, np.maximum(np.spacing(np.abs(exact)), cases.n * size[finite] * 2.0**-90)
        )
        turned = rng.permuted(x[finite], axis=1)
        tally.equal("order_free_sum", [native.order_free_sum(own) for own in turned], np.array(found))
    units = max(1, cases.units)
    cells = [native.cell_sums(x, cell, units) for x, cell in zip(cases.weight, cases.cluster, strict=True)]
    tally.near("cell_sums", cells, cases.by_cluster(cases.weight), _NEAR * cases.weight.sum(axis=1, keepdims=True))
    turn = rng.permutation(cases.n)
    moved = [native.cell_sums(x[turn], cell[turn], units) for x, cell in zip(cases.weight, cases.cluster, strict=True)]
    tally.equal("cell_sums", moved, np.array(cells))
    parts, narrow = float(rng.integers(1, 300)), bool(rng.random() < 0.5)
    grid = rng.integers(0, int(parts) + 1, cases.score.shape) / parts
    grid += rng.choice([0.0, 2.0**-53, -(2.0**-47), 2.0**-46, 2.0**-45, -(2.0**-40), 1e-9], grid.shape)
    grid = np.clip(grid.astype(np.float32).astype(np.float64) if narrow else grid, 0, 1)
    right = grid.copy()
    plain.to_grid(right.reshape(-1), parts, narrow)
    for own in grid:
        native.to_grid(own, parts, narrow)
    tally.equal("to_grid", grid.view(np.int64), right.view(np.int64))


def check_parts(rng: np.random.Generator, cases: Cases, threads: int, tally: Tally) -> None:
    """Some cases as the parts of one array, their rows mixed."""
    for some in np.split(np.arange(cases.count), np.sort(rng.integers(0, cases.count, cases.count // 6))):
        if not len(some):
            continue
        parts, n, start = len(some), cases.n, np.arange(len(some) + 1) * cases.n
        place = rng.permutation(parts * n)  # of row i of part k: place[k, i]
        place = np.sort(place.reshape(parts, n), axis=1)  # a part's rows stay in their order
        part = np.empty(parts * n, dtype=np.uint32)
        part[place] = np.arange(parts, dtype=np.uint32)[:, None]

        def glued(x: Any, place: Any = place, some: Any = some) -> Any:
            whole = np.empty(place.size, dtype=x.dtype)
            whole[place] = x[some]
            return whole

        score, loss = glued(cases.score), glued(cases.loss)
        by_score, by_loss = plain.order_by(score), plain.order_by(loss)
        order, losses = native.cut_order(by_score, part, start[:-1]), plain.cut_order(by_loss, part, start[:-1])
        tally.equal("cut_order", [order.row], np.take_along_axis(place, cases.row[some], 1).reshape(1, -1))
        tally.equal("cut_order", [order.new], cases.new[some].reshape(1, -1), seen=True)
        marks = np.ascontiguousarray(cases.marks[some].reshape(-1))
        swept = native.sweep_parts(marks, start)
        tally.equal("sweep_parts", [np.stack(swept[:8], axis=1)], cases.swept.whole[some][None])
        real = cases.swept.real[some][None]
        tally.near("sweep_parts", [np.stack(swept[8:], axis=1)], real, _NEAR * (1 + np.abs(real)), seen=True)
        pairs, (shifts, within) = native.concordance_parts(order, losses, start), cases.pairs.shifts
        tally.equal("concordance_parts", [np.stack(pairs[:2], axis=1)], cases.pairs.totals[some][None])
        tally.near(
            "concordance_parts", [np.stack(pairs[2:], axis=1)], shifts[some][None], within[some][None], seen=True
        )
        clusters = kernels.group(part)
        found = native.within_sums(score, loss, clusters, threads)
        tally.equal("within_sums", [np.stack(found, axis=1)], cases.pairs.totals[some][None])
        weight = glued(cases.weight)
        weighed = kernels.weighted_pair_counts(by_score, by_loss, weight, clusters)
        right = cases.pairs.weighted(cases.weight)[some].swapaxes(0, 1).reshape(1, 2, -1)
        got = [np.stack([x[place].reshape(-1) for x in weighed])]
        largest = np.repeat(cases.weight[some].max(axis=1), n) * n
        tally.near("weighted_credit", got, right, 1e-14 * largest)


def check_clusters(cases: Cases, tally: Tally) -> None:
    rows, marks = cases.row.astype(np.uint32), cases.marks
    swept = [native.sweep_rows(own) for own in marks]
    given = zip(rows, marks, swept, cases.cluster, strict=True)
    found = [native.unit_sums(row, own, e, credit2, code, cases.units) for row, own, (e, credit2), code in given]
    right = cases.by_cluster(cases.of_error.credit2), cases.by_cluster(cases.error)
    tally.equal("unit_sums", [sums[1:] for sums in found], np.stack(right, axis=1))
    tally.near("unit_sums", [sums[0] for sums in found], cases.by_cluster(cases.swept.e), 100 * _NEAR, seen=True)
    moments = [native.running_moments(code, x) for code, x in zip(cases.cluster, cases.weight, strict=True)]
    tally.near("running_moments", moments, cases.moments, _NEAR * cases.moments[:, :, -1:])


def check_resamples(rng: np.random.Generator, cases: Cases, threads: int, tally: Tally) -> None:
    """Of a few cases: each needs draws that are made one by one."""
    for k in rng.integers(0, cases.count, 4):
        n, by_row = cases.n, rng.random() < 0.5
        units, unit = (n, np.arange(n)) if by_row else (cases.units, cases.cluster[k])
        seeds = rng.integers(0, 2**64, 3, dtype=np.uint64)
        times = drawn(seeds, units)
        tally.equal("draw_units", [kernels.draw_units(seed, units) for seed in seeds], times)
        times = times[:, unit]
        score, loss = (np.repeat(x[k : k + 1], 3, axis=0) for x in (cases.score, cases.loss))
        found = native.bootstrap_totals(cases.score[k], cases.loss[k], unit, units, seeds, threads)
        right = Pairs(score, loss).resampled(times)
        tied = np.einsum("bi,bij,bj->b", times, score[:, :, None] < score[:, None, :], times)
        tally.equal("bootstrap_totals", [found], np.stack([right[:, 0], right[:, 1], tied, right[:, 2]], axis=1)[None])
        lost = cases.error[k].astype(np.float64) if rng.random() < 0.5 else rng.random(n)
        areas = native.bootstrap_areas(cases.score[k], lost, unit, units, seeds, True, threads)
        right = areas_of(score, lost, times)
        tally.near("bootstrap_areas", [areas], right[None], _NEAR * (1 + np.abs(right)))
        bad = int(cases.error[k].sum())
        if bad:
            pairs = rng.integers(0, 2**64, (3, 2), dtype=np.uint64)
            found = native.bootstrap_precision(cases.marks[k], pairs, threads)
            tally.near("bootstrap_precision", [found], precision_of(cases.marks[k], pairs)[None], _NEAR)


def areas_of(score: Any, loss: Any, times: Any) -> Any:
    """(resamples, 5): rows, loss, twice the credit of good under bad, twice the accepted loss, mean risk."""
    below, tied = score[:, None, :] < score[:, :, None], score[:, None, :] == score[:, :, None]
    lost, good = times * loss, times * (1 - loss)
    before, upto = (np.einsum("bij,bj->bi", x, times) for x in (below, below | tied))
    rows = times.sum(axis=1)
    credit = np.einsum("bi,bij,bj->b", lost, 2 * below + tied, good)
    accepted = np.einsum("bi,bij,bj->b", times, 2 * below + tied, lost)
    aurc = np.zeros(len(times))
    for b in range(len(times)):
        k = np.arange(1, rows[b] + 1)[:, None]
        share = np.clip((k - before[b]) / np.maximum(upto[b] - before[b], 1), 0, 1)
        aurc[b] = (share @ lost[b] / k[:, 0]).sum() / max(1, rows[b])
    return np.stack([rows, lost.sum(axis=1), credit, accepted, aurc], axis=1)


def precision_of(marks: Any, seeds: Any) -> Any:
    """Mean over the foreign rows drawn of the share of foreign rows up to the end of their ties."""
    foreign, value = (marks & 1).astype(bool), np.cumsum(marks > 1)
    times = np.empty((len(seeds), len(marks)), dtype=np.int64)
    times[:, ~foreign], times[:, foreign] = (drawn(seeds[:, k], int((foreign == k).sum())) for k in (0, 1))
    upto = value[None, :] <= value[:, None]
    seen = np.maximum(times @ upto.T, 1)
    return (times * foreign * ((times * foreign) @ upto.T) / seen).sum(axis=1) / foreign.sum()


def check_exceeding(rng: np.random.Generator, cases: Cases, tally: Tally) -> None:
    for k in rng.integers(0, cases.count, 2):
        n = cases.n
        of_bin = np.unique(np.sort(rng.integers(0, 6, n)), return_inverse=True)[1]
        bins, rows = int(of_bin[-1]) + 1, np.bincount(of_bin)
        mean, weight = rng.random(n).round(2), cases.weight[k]
        uniform, share = rng.random((20, n)), rng.dirichlet(np.ones(bins))
        hot = np.eye(bins)[of_bin]
        total, total2 = weight @ hot, weight**2 @ hot
        diff = (uniform < mean) - mean
        gap = (weight * diff) @ hot / total
        spread = (weight * (diff - gap @ hot.T)) ** 2 @ hot / total**2
        size = total**2 / total2
        statistics = ((gap**2 - np.where(rows > 1, spread * size / np.maximum(size - 1, 1e-12), 0)) * share).sum(axis=1)
        ordered = np.unique(statistics)
        gaps = np.flatnonzero(np.diff(ordered) > 1e-8)
        if not len(gaps) or (size - 1 < 1e-3)[rows > 1].any():  # a weight has all of a bin: its factor is rounding
            continue
        at = rng.choice(gaps)
        observed, most = float(ordered[at] + ordered[at + 1]) / 2, int(rng.integers(0, 21))
        right = int((statistics >= observed).sum())
        found = native.exceeding(
            uniform, mean, weight, np.flatnonzero(np.diff(of_bin, prepend=-1)), share, observed, most
        )
        enough = right > most and found > most  # counting may stop there
        tally.equal("exceeding", [right if enough else found], np.array([right]))


def many(rng: np.random.Generator, tally: Tally) -> None:
    """Few cases of any length, on both twins."""
    sizes = [rng.integers(60, 400), rng.integers(200, 5_000), np.exp(rng.uniform(np.log(5_000), np.log(100_000)))]
    n, threads = int(rng.choice(sizes, p=[0.6, 0.33, 0.07])), int(rng.integers(1, 4))
    score, loss = (numbers(rng, (1, n), str(rng.choice([*KINDS, "mixed"])))[0] for _ in range(2))
    if rng.random() < 0.3:  # few values, which a table takes the place of sorting for
        score = rng.choice(score[: rng.integers(1, 3000)], n)
    error, weight = errors(rng, score[None])[0], weights(rng, (1, n))[0]
    units = int(rng.integers(1, n + 1))
    cluster = rng.integers(0, units, n)
    parts = rng.integers(1 + n // 20_000, min(n, 200))  # the NumPy twin takes them one by one
    part = np.unique(rng.integers(0, parts, n), return_inverse=True)[1].astype(np.uint32)
    start = np.concatenate([[0], np.cumsum(np.bincount(part))])
    seeds = rng.integers(0, 2**64, (2, 2), dtype=np.uint64)
    order, losses = plain.order_by(score), plain.order_by(loss)
    cut, cut_losses = (plain.cut_order(x, part, start[:-1]) for x in (order, losses))
    marks, group = plain.mark_ordered(order, error), kernels.group(cluster)
    rows = plain.sweep_rows(marks)
    counts = plain.pair_counts(score[None], loss)
    lost = np.where(rng.random(n) < 0.5, error, rng.random(n).round(2))
    grid = rng.integers(0, 101, n) / 100 + rng.choice([0.0, 2.0**-47, -(2.0**-46), 1e-9], n)

    def moved(twin: Any) -> Any:
        x = grid.copy()
        twin.to_grid(x, 100.0, False)
        return x.view(np.int64)

    calls: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
        "order_by": lambda twin, t: (twin.order_by(score, *t).row, twin.order_by(score, *t).new),
        "mark_ordered": lambda twin, t: twin.mark_ordered(order, error, *t),
        "count_wrong": lambda twin, t: twin.count_wrong(marks),
        "auc_sums": lambda twin, t: twin.auc_sums(score, error, *t),
        "sweep": lambda twin, t: twin.sweep(marks),
        "credits": lambda twin, t: twin.credits(marks),
        "sweep_rows": lambda twin, t: twin.sweep_rows(marks),
        "pair_counts": lambda twin, t: twin.pair_counts(np.stack([score, loss]), loss, *t),
        "ordered_counts": lambda twin, t: twin.ordered_counts(order, losses, *t),
        "concordance": lambda twin, t: twin.concordance(score, loss, *t),
        "ordered_concordance": lambda twin, t: twin.ordered_concordance(order, losses, *t),
        "concordance_sums": lambda twin, t: twin.concordance_sums(counts[0][0], counts[1]),
        "within_sums": lambda twin, t: twin.within_sums(score, loss, group, *t),
        "unit_sums": lambda twin, t: twin.unit_sums(order.row, marks, *rows, cluster, units),
        "running_moments": lambda twin, t: twin.running_moments(cluster, weight),
        "cut_order": lambda twin, t: tuple(vars(twin.cut_order(order, part, start[:-1])).values()),
        "order_free_sum": lambda twin, t: exactly(twin.order_free_sum(weight)),
        "cell_sums": lambda twin, t: exactly(twin.cell_sums(weight, cluster, units)),
        "to_grid": lambda twin, t: moved(twin),
        "bootstrap_totals": lambda twin, t: twin.bootstrap_totals(score, loss, cluster, units, seeds[0], *t),
        "bootstrap_areas": lambda twin, t: twin.bootstrap_areas(score, lost, cluster, units, seeds[0], True, *t),
    }
    if len(part) and np.diff(start).max() <= 32_767:
        own = plain.mark_ordered(cut, error)
        calls["sweep_parts"] = lambda twin, t: twin.sweep_parts(own, start)
        calls["concordance_parts"] = lambda twin, t: twin.concordance_parts(cut, cut_losses, start)
    if error.any():
        calls["bootstrap_precision"] = lambda twin, t: twin.bootstrap_precision(marks, seeds, *t)
    for name, call in calls.items():
        alike(tally, name, call(native, (threads,)), call(plain, ()))


def exactly(x: Any) -> Any:
    return np.atleast_1d(np.float64(x)).view(np.int64)


def alike(tally: Tally, name: str, found: Any, right: Any) -> None:
    """Integers are equal, floats near."""
    if not isinstance(found, tuple):
        found, right = (found,), (right,)
    for k, (got, other) in enumerate(zip(found, right, strict=True)):
        got, other = np.atleast_1d(got), np.atleast_1d(other)
        if np.issubdtype(other.dtype, np.floating):
            size = np.abs(other).max(initial=0.0, where=np.isfinite(other))
            tally.near(name, [got], other[None], 1e-9 * size + _ROUNDING.get(name, 0.0), seen=k > 0)
        else:
            tally.equal(name, [got], other[None], seen=k > 0)


def refused(rng: np.random.Generator, tally: Tally) -> None:
    """What no caller should pass is an error and touches no memory."""
    n = int(rng.integers(1, 20))
    x, error = rng.normal(size=n), rng.integers(0, 2, n).astype(np.uint8)
    order, more = plain.order_by(x), np.zeros(n + 1)
    marks = plain.mark_ordered(order, error)
    far = Order(order.row + np.uint32(rng.choice([1, n, 2**31, 2**32 - n])), order.new)
    outside = np.full(n, rng.choice([-1, n, 2**31, -(2**63), 2**63 - 1]))
    seeds = rng.integers(0, 2**64, 2, dtype=np.uint64)
    wrong_type = x.astype(str(rng.choice(["f4", ">f8", "i8", "c16", "O", "S8"])))
    calls: list[Callable[[], Any]] = [
        lambda: native.order_by(wrong_type),
        lambda: native.order_by(x.reshape(1, n)),
        lambda: native.auc_sums(x, error.astype(np.int64)),
        lambda: native.auc_sums(more, error),
        lambda: native.concordance(wrong_type, x),
        lambda: native.concordance(x, more),
        lambda: native.pair_counts(x[None], more),
        lambda: native.pair_counts(x, x),
        lambda: native.mark(more, error),
        lambda: native.mark_ordered(far, error),
        lambda: native.ordered_counts(far, order),
        lambda: native.ordered_concordance(order, far),
        lambda: native.sweep(marks & np.uint8(1)),
        lambda: native.sweep_rows(marks & np.uint8(1)),
        lambda: native.sweep_parts(marks, np.array([0, n + 1])),
        lambda: native.sweep_parts(marks, np.array([-1, n])),
        lambda: native.sweep_parts(marks, np.array([0, 0, n])),
        lambda: native.cut_order(far, np.zeros(n, dtype=np.uint32), np.array([0])),
        lambda: native.cut_order(order, np.full(n, 7, dtype=np.uint32), np.array([0])),
        lambda: native.cell_sums(x, outside, n),
        lambda: native.cell_sums(more, np.zeros(n, dtype=np.int64), n),
        lambda: native.running_moments(np.where(np.arange(n) == 0, -1, 0), x),
        lambda: native.unit_sums(order.row, marks, x, error.astype(np.uint32), outside, n),
        lambda: native.unit_sums(far.row, marks, x, error.astype(np.uint32), np.zeros(n, dtype=np.int64), n),
        lambda: native.bootstrap_totals(x, x, outside, n, seeds),
        lambda: native.bootstrap_areas(x, more, np.zeros(n, dtype=np.int64), n, seeds),
        lambda: native.bootstrap_precision(marks, seeds),
        lambda: native.within_sums(x, x, Order(far.row, order.new)),
        lambda: native.weighted_credit(outside % -n - 1, np.zeros(n, np.int64), x, np.zeros(1, np.int64)),
        lambda: native.weighted_credit(np.zeros(n, np.int64), np.zeros(n, np.int64), x, np.array([0, n + 1])),
        lambda: native.exceeding(x[None], x, x, np.array([0, 0]), more[:2], 0.0, 1),
        lambda: native.order_by(np.broadcast_to(np.float64(1.0), (n, 2))),
    ]
    for k in rng.permutation(len(calls)):
        try:
            calls[k]()
        except (TypeError, ValueError, IndexError):
            tally.executions["refused"] += 1
        else:
            tally.refuse("refused", int(k), "an answer", "an error")


def one(rng: np.random.Generator, tally: Tally) -> None:
    """A batch of one of the kinds."""
    kernels.use("native")
    kind = rng.random()
    with np.errstate(over="ignore", under="ignore"):  # numbers are as large and as small as they get
        (few if kind < 0.75 else many if kind < 0.98 else refused)(rng, tally)


def main(seconds: float, seed: int, batch: int | None = None) -> int:
    """0 if no answer is wrong; `batch` runs just that one, in this process."""
    return loop.run("kernels", one, seconds, seed) if batch is None else loop.one_batch(one, seed, batch)
