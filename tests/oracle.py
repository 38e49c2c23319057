"""Every metric straight from its definition: all pairs, plain sums, exact rationals where that is cheap.

Nothing here is imported from uqeval. Speed does not matter and cleverness is forbidden: n ≤ 120.
Undefined values are NaN. `weights=None` means one for every row; rows of weight 0 do not exist.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import numpy as np

NAN = float("nan")


def present(weights, *arrays):
    """Weights as floats (ones for None) and the arrays, without the rows of weight 0."""
    arrays = [np.asarray(a) for a in arrays]
    if weights is None:
        return np.ones(len(arrays[0])), *arrays
    w = np.asarray(weights, dtype=np.float64)
    return w[w > 0], *(a[w > 0] for a in arrays)


# ---- pairs ----------------------------------------------------------------------------------------------------


def twice_credit(score):
    """[i, j]: 2 if s_i < s_j, 1 if tied, 0 if s_i > s_j."""
    s = np.asarray(score, dtype=np.float64)
    return 2 * (s[:, None] < s[None, :]).astype(np.int64) + (s[:, None] == s[None, :])


def pair_counts(score, loss):
    """Per row: 2·(concordant + ½ tied) over the rows with another loss, and the number of those rows."""
    credit, d = twice_credit(score), np.asarray(loss, dtype=np.float64)
    below = d[:, None] < d[None, :]  # i below j
    credit2 = (below * credit).sum(axis=1) + (below * credit).sum(axis=0)
    return credit2, (d[:, None] != d[None, :]).sum(axis=1)


def weighted_pair_counts(score, loss, weights):
    """Credit and comparable weight of each row, as correctly rounded sums over the others."""
    n = len(score)
    credit, d, w = twice_credit(score), np.asarray(loss), [float(x) for x in weights]
    c, m = np.empty(n), np.empty(n)
    for i in range(n):
        terms = [w[j] * (credit[j, i] if d[j] < d[i] else credit[i, j]) / 2 for j in range(n) if d[j] != d[i]]
        c[i] = math.fsum(terms)
        m[i] = math.fsum(w[j] for j in range(n) if d[j] != d[i])
    return c, m


def within_counts(score, loss, clusters, weights=None):
    """The same over pairs of rows of one cluster."""
    n = len(score)
    credit, d = twice_credit(score), np.asarray(loss)
    one = weights is None
    w = np.ones(n, dtype=np.int64) if one else np.asarray(weights)
    c, m = np.zeros(n, dtype=w.dtype), np.zeros(n, dtype=w.dtype)
    for i in range(n):
        for j in range(n):
            if clusters[i] == clusters[j] and d[i] != d[j]:
                gain = credit[j, i] if d[j] < d[i] else credit[i, j]
                c[i] += w[j] * gain if one else w[j] * gain / 2
                m[i] += w[j]
    return c, m


def uq_c_index(score, loss, weights=None):
    w, s, d = present(weights, score, loss)
    below, credit = d[:, None] < d[None, :], twice_credit(s)
    if weights is None:
        pairs = int(below.sum())
        return float(Fraction(int((below * credit).sum()), 2 * pairs)) if pairs else NAN
    product = np.outer(w, w)
    pairs = math.fsum(product[below])
    return math.fsum((product * credit / 2)[below]) / pairs if below.any() else NAN


def distance_c_index(score, features, reference, weights=None):
    """Distances from exact squares, each to the nearest of the reference or to the nearest other row."""
    x = [[Fraction(float(v)) for v in row] for row in features]
    known = None if reference is None else [[Fraction(float(v)) for v in row] for row in reference]
    squares = [
        min(
            sum((a - b) ** 2 for a, b in zip(row, other, strict=True))
            for j, other in enumerate(x if known is None else known)
            if known is not None or i != j
        )
        for i, row in enumerate(x)
    ]
    ranks = {square: k for k, square in enumerate(sorted(set(squares)))}
    return uq_c_index(score, np.array([ranks[square] for square in squares]), weights)


def top_label_c_index(score, confidence, error, weights=None):
    """Concordance with −c of right and c of wrong rows."""
    signed = [Fraction(float(c)) * (1 if e else -1) for c, e in zip(confidence, error, strict=True)]
    rank = {x: r for r, x in enumerate(sorted(set(signed)))}
    return uq_c_index(score, [rank[x] for x in signed], weights)


def uq_auc(score, error, weights=None):
    w, s, e = present(weights, score, error)
    right, wrong = e == 0, e == 1
    if not right.any() or not wrong.any():
        return NAN
    credit = twice_credit(s)[np.ix_(right, wrong)]
    if weights is None:
        return float(Fraction(int(credit.sum()), 2 * credit.size))
    return math.fsum((np.outer(w[right], w[wrong]) * credit / 2).flat) / (math.fsum(w[right]) * math.fsum(w[wrong]))


def kendall_tau(score, truth, weights=None):
    """tau-b."""
    w, s, t = present(weights, score, truth)
    upper = np.triu(np.ones((len(s), len(s)), dtype=bool), 1)
    pair = np.outer(w, w)[upper]
    x = ((s[:, None] < s[None, :]).astype(int) - (s[:, None] > s[None, :]))[upper]
    y = ((t[:, None] < t[None, :]).astype(int) - (t[:, None] > t[None, :]))[upper]
    in_score, in_truth = math.fsum(pair[x != 0]), math.fsum(pair[y != 0])
    if not in_score or not in_truth:
        return NAN
    return math.fsum(pair * x * y) / math.sqrt(in_score) / math.sqrt(in_truth)


def somers_d(score, truth, weights=None):
    """D of the score given the truth: (C − D)/(pairs untied in the truth)."""
    w, s, t = present(weights, score, truth)
    pair, below = np.outer(w, w), t[:, None] < t[None, :]
    sign = (s[:, None] < s[None, :]).astype(int) - (s[:, None] > s[None, :])
    return math.fsum((pair * sign)[below]) / math.fsum(pair[below]) if below.any() else NAN


# ---- selective prediction -------------------------------------------------------------------------------------


def blocks(score, loss, weights=None):
    """(score, rows, weight, weighted loss) of each group of tied scores, most certain first; exact."""
    w, s, v = present(weights, score, loss)
    found: dict[float, list] = {}
    for a, b, c in zip(s.tolist(), v.tolist(), w.tolist(), strict=True):
        block = found.setdefault(a, [0, Fraction(0), Fraction(0)])
        block[0] += 1
        block[1] += Fraction(c)
        block[2] += Fraction(c) * Fraction(b)
    return [(key, *found[key]) for key in sorted(found)]


def aurc(score, loss, weights=None):
    """Every row of a block of b rows counts for weight B/b and error rate E/B."""
    terms, weight, bad = [], Fraction(0), Fraction(0)
    for _, rows, block_weight, block_bad in blocks(score, loss, weights):
        for _ in range(rows):
            weight += block_weight / rows
            bad += block_bad / rows
            terms.append(float(block_weight / rows * bad / weight))
    return math.fsum(terms) / float(weight)


def aurc_over_tie_breaks(score, loss):
    """The mean of (1/n) Σ_k (loss of the k most certain)/k over all orders that respect the score. Tiny n."""
    s, v = [float(x) for x in score], [Fraction(float(x)) for x in loss]
    n, values = len(s), []
    for order in permutations(range(n)):
        if all(s[order[k]] <= s[order[k + 1]] for k in range(n - 1)):
            values.append(sum(sum(v[i] for i in order[:k]) / k for k in range(1, n + 1)) / n)
    return sum(values) / len(values)


def aurc_opt(loss, weights=None):
    """AURC of the score that is the loss itself."""
    return aurc(loss, loss, weights)


def aurc_opt_of_errors(n, wrong):
    """(1/n) Σ_{k=n0+1}^n (k − n0)/k."""
    return sum((Fraction(k - (n - wrong), k) for k in range(n - wrong + 1, n + 1)), Fraction(0)) / n


def mean(x, weights=None):
    w, x = present(weights, x)
    return float(sum(Fraction(a) * Fraction(float(b)) for a, b in zip(w, x, strict=True)) / sum(map(Fraction, w)))


def e_aurc(score, error, weights=None):
    return aurc(score, error, weights) - aurc_opt(error, weights)


def naurc(score, loss, weights=None):
    _, kept = present(weights, loss)
    if len(set(kept.tolist())) == 1:
        return NAN
    best = aurc_opt(loss, weights)
    return (aurc(score, loss, weights) - best) / (mean(loss, weights) - best)


def naurc_condition(loss, weights=None):
    """How much nAURC magnifies rounding: 1/(err − AURC_opt)."""
    gap = mean(loss, weights) - aurc_opt(loss, weights)
    return 1 / gap if gap > 0 else 1.0


def prr(score, loss, weights=None, max_rejection=1.0):
    """1 − nAURC; with less to reject of the mean risk over the last steps, so large a share of the weight."""
    if max_rejection == 1.0:
        return 1 - naurc(score, loss, weights)
    w, s, v = present(weights, score, loss)
    late = Fraction(max(1, int(max_rejection * len(s))), len(s))
    useless, own, best = (late_risk(x, v, w, late) for x in (np.zeros(len(s)), s, v))
    return float((useless - own) / (useless - best)) if useless > best else NAN


def late_risk(score, loss, w, late):
    """Mean risk over the steps of the tie-averaged walk that lie in the last share of the weight."""
    steps = [(x / rows, bad / rows) for _, rows, x, bad in blocks(score, loss, w) for _ in range(rows)]
    start = (1 - late) * sum(step for step, _ in steps)
    weight = bad = total = parts = Fraction(0)
    for step, own in steps:
        weight, bad = weight + step, bad + own
        part = min(step, max(Fraction(0), weight - start))
        total, parts = total + part * bad / weight, parts + part
    return total / parts


def auarc(score, loss, weights=None):
    return 1 - aurc(score, loss, weights)


def augrc(score, loss, weights=None):
    """Trapezoid of (loss weight accepted)/W against coverage from (0, 0), a vertex per distinct score."""
    area, x, y = Fraction(0), Fraction(0), Fraction(0)
    for _, _, weight, bad in blocks(score, loss, weights):
        area += weight * (y + y + bad) / 2
        x, y = x + weight, y + bad
    return float(area / x**2)


def augrc_unbiased(score, loss, weights=None):
    """Mean over ordered pairs i ≠ j of v_i credit(i, j)."""
    w, s, v = present(weights, score, loss)
    credit, product = twice_credit(s) / 2, np.outer(w, w)
    other = ~np.eye(len(s), dtype=bool)
    return math.fsum((product * credit * v[:, None])[other]) / math.fsum(product[other])


def g_auc(score, error, weights=None):
    return 2 * augrc(score, error, weights)


def h_auc(score, error, weights=None):
    """Trapezoid of P(correct, s ≤ t) against P(error, s ≤ t)."""
    area, right, total = Fraction(0), Fraction(0), Fraction(0)
    for _, _, weight, bad in blocks(score, error, weights):
        good = weight - bad
        area += bad * (right + right + good) / 2
        right, total = right + good, total + weight
    return float(area / total**2)


def selective_accuracy(score, loss, weights=None, *, coverage):
    """1 − mean loss of the surest share of the weight; of the block at the cut, as much as still fits."""
    found = blocks(score, loss, weights)
    room = whole = Fraction(coverage) * sum(weight for _, _, weight, _ in found)
    bad = Fraction(0)
    for _, _, weight, block_bad in found:
        taken = min(room, weight)
        bad += block_bad * taken / weight
        room -= taken
    return float(1 - bad / whole)


def risk_curve(score, loss, weights=None):
    """(threshold, coverage, risk, rows accepted) at every distinct score t, of the set {s ≤ t}."""
    w, s, v = present(weights, score, loss)
    out = []
    for t in sorted(set(s.tolist())):
        inside = s <= t
        weight, bad = math.fsum(w[inside]), math.fsum(w[inside] * v[inside])
        out.append((t, weight / math.fsum(w), bad / weight, int(inside.sum())))
    return out


# ---- calibration and proper scores ----------------------------------------------------------------------------


def ece_bins(confidence, correct, weights=None, *, bins=15, scheme="width"):
    """[(share, gap, sd of the gap or 0)] of the non-empty bins; sd without weights only."""
    w, c, a = present(weights, confidence, correct)
    n = len(c)
    if scheme == "width":
        edges = [k / bins for k in range(1, bins)]
    else:
        ordered = sorted(c.tolist())
        edges = sorted({ordered[math.ceil(Fraction(n * k, bins)) - 1] for k in range(1, bins)})
    where = [sum(1 for edge in edges if x > edge) for x in c.tolist()]  # (lower, upper]
    out = []
    for b in sorted(set(where)):
        rows = [i for i in range(n) if where[i] == b]
        weight = math.fsum(w[rows])
        gap = math.fsum(w[i] * (float(a[i]) - c[i]) for i in rows) / weight
        sd = 0.0
        if weights is None and len(rows) > 1:
            square = math.fsum((float(a[i]) - c[i] - gap) ** 2 for i in rows) / (len(rows) - 1)
            sd = math.sqrt(square / len(rows))
        out.append((weight / math.fsum(w), gap, sd))
    return out


def ece(confidence, correct, weights=None, *, bins=15, scheme="width", norm="l1", debias=False):
    found = ece_bins(confidence, correct, weights, bins=bins, scheme=scheme)
    if norm == "l2":
        return math.sqrt(max(0.0, math.fsum(p * (g * g - (sd * sd if debias else 0.0)) for p, g, sd in found)))
    if not debias:
        return math.fsum(p * abs(g) for p, g, _ in found)
    return max(0.0, math.fsum(p * (abs(g) - folded_bias(g, sd)) for p, g, sd in found))


def folded_bias(gap, sd):
    """Mean of |N(gap, sd²)| − |gap|."""
    if sd == 0:
        return 0.0
    if abs(gap) / sd > 40:
        return 0.0
    below = math.erfc(gap / sd / math.sqrt(2)) / 2  # Φ(−gap/sd)
    return sd * math.sqrt(2 / math.pi) * math.exp(-(gap**2) / (2 * sd**2)) + gap * (1 - 2 * below) - abs(gap)


def brier(probs, labels, weights=None):
    rows = [
        sum((Fraction(float(p)) - (k == y)) ** 2 for k, p in enumerate(row))
        for row, y in zip(probs, labels, strict=True)
    ]
    w = [Fraction(1)] * len(rows) if weights is None else [Fraction(float(x)) for x in weights]
    return float(sum(a * b for a, b in zip(w, rows, strict=True)) / sum(w))


def log_loss(probs, labels, weights=None):
    w, p, y = present(weights, probs, labels)
    at = [float(row[k]) for row, k in zip(p, y, strict=True)]
    if min(at) == 0:
        return math.inf
    return math.fsum(-a * math.log(b) for a, b in zip(w, at, strict=True)) / math.fsum(w)


def accuracy(error, weights=None):
    return 1 - mean(error, weights)


# ---- one versus rest ------------------------------------------------------------------------------------------


def ovr_target(metric, probs, labels, decision="argmax"):
    """(n, K) target: v_k, or Delta_k = |1{y=k} − p_k| as exact dense ranks."""
    p = np.asarray(probs, dtype=np.float64)
    n, classes = p.shape
    if metric == "uq_auc":
        top = [max(range(classes), key=lambda k: (row[k], -k)) for row in p]
        chosen = [[(top[i] == k) if decision == "argmax" else p[i, k] > 0.5 for k in range(classes)] for i in range(n)]
        return np.array([[int((labels[i] == k) != chosen[i][k]) for k in range(classes)] for i in range(n)])
    delta = [[abs(int(labels[i] == k) - Fraction(p[i, k])) for k in range(classes)] for i in range(n)]
    rank = {x: r for r, x in enumerate(sorted({x for row in delta for x in row}))}
    return np.array([[rank[x] for x in row] for row in delta])


def one_vs_rest(metric, score, labels, probs, average="macro", decision="argmax", weights=None):
    w, s, y, p = present(weights, score, labels, probs)
    target = ovr_target(metric, p, y, decision)
    n, classes = target.shape
    s = np.repeat(s[:, None], classes, axis=1) if s.ndim == 1 else s
    given = None if weights is None else w
    if average == "micro":
        rows = np.repeat(np.arange(n), classes)
        d, t, v = target.reshape(-1), s.reshape(-1), np.repeat(w, classes)
        allowed = (d[:, None] < d[None, :]) & (rows[:, None] != rows[None, :])
        product = np.outer(v, v)
        pairs = math.fsum(product[allowed])
        credit = math.fsum((product * twice_credit(t) / 2)[allowed])
        return credit / pairs if allowed.any() else NAN
    values = [uq_c_index(s[:, k], target[:, k], given) for k in range(classes)]
    share = [1.0 if average == "macro" else math.fsum(w[y == k]) for k in range(classes)]
    defined = [k for k in range(classes) if not math.isnan(values[k])]
    total = math.fsum(share[k] for k in defined)
    return math.fsum(share[k] * values[k] for k in defined) / total if total else NAN


# ---- out of distribution --------------------------------------------------------------------------------------


def ood_auroc(score_in, score_out):
    wins = sum(Fraction(2 * int(a < b) + int(a == b), 2) for a in score_in for b in score_out)
    return float(wins / (len(score_in) * len(score_out)))


def fpr_at_tpr(score_in, score_out, tpr=0.95):
    """t = the smallest in-score that accepts a share ≥ tpr of the in-scores, the decimal as typed."""
    share, n = Fraction(str(tpr)), len(score_in)
    t = min(t for t in score_in if Fraction(sum(int(x <= t) for x in score_in), n) >= share)
    return float(Fraction(sum(int(x <= t) for x in score_out), len(score_out)))


def ood_aupr(score_in, score_out, positive="out"):
    """Σ over thresholds of precision · gained recall, the most extreme score first."""
    if positive == "out":
        good, bad = [-float(x) for x in score_out], [-float(x) for x in score_in]
    else:
        good, bad = [float(x) for x in score_in], [float(x) for x in score_out]
    area, before = Fraction(0), 0
    for t in sorted(set(good)):
        hits, misses = sum(x <= t for x in good), sum(x <= t for x in bad)
        area += Fraction(hits, hits + misses) * (hits - before)
        before = hits
    return float(area / len(good))
