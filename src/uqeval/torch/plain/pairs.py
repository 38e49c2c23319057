"""Pair counts of rows with a loss, in torch alone: three sorts, two gathers and a wavelet tree."""

from typing import NamedTuple

import torch
from torch import Tensor

from uqeval.torch.plain.order import run_ends, run_sizes
from uqeval.torch.plain.wavelet import add_below
from uqeval.torch.reading import ends_of, squares


class PairSums(NamedTuple):
    """What a backend hands over. Nothing of it has been read."""

    ints: Tensor  # credit2, comparable pairs, least and most comparable rows of a row; halves of Σ credit2²
    floats: Tensor  # Σ and Σ² of what leaving a row out changes
    constant: Tensor  # whether all scores are equal
    ends: Tensor  # least and largest score, least and largest loss


class Credits(NamedTuple):
    """Of every row, in order of (loss, score)."""

    credit2: Tensor  # modulo 2³², in int32
    tied: Tensor  # rows with the same loss
    constant: Tensor
    ends: Tensor


def ordered(score: Tensor, loss: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores in the order of (score, loss), the places there in that of (loss, score); scores and losses in that.

    Rows with both equal stand in the same order in both, whichever that is.
    """
    values, row = torch.sort(score + 0)  # −0.0 becomes 0.0: a radix sort would tell them apart
    by_loss, place = torch.sort((loss + 0).index_select(0, row), stable=True)
    del row
    of_score = values.index_select(0, place)
    del values, place
    by_score, rank = torch.sort(of_score, stable=True)
    return by_score, rank.to(torch.int32), of_score, by_loss


def credits_of(score: Tensor, loss: Tensor) -> Credits:
    """Pair counts of every row.

    With p and q the places in both orders, C the earlier rows of lower rank and S, D and J the rows tied in score, loss
    and both: credit2 = 4C + J − S − 2p + 2(n − q − D). What p knows of it rides along to q.
    """
    n, device = len(score), score.device
    by_score, rank, of_score, by_loss = ordered(score, loss)
    ends, constant = torch.cat([ends_of(by_score), ends_of(by_loss)]), by_score[0] == by_score[-1]
    start = run_sizes(run_ends(by_score)).neg_()
    del by_score
    start.sub_(torch.arange(n, dtype=torch.int32, device=device), alpha=2)
    found = add_below(rank, start)
    del rank, start
    last = run_ends(by_loss)
    tied = run_sizes(last)
    found.sub_(tied, alpha=2).add_(run_sizes(last.logical_or_(run_ends(of_score))))
    found.add_(torch.arange(n, 0, -1, dtype=torch.int32, device=device), alpha=2)
    return Credits(found, tied, constant, ends)


def pair_sums(score: Tensor, loss: Tensor) -> PairSums:
    """Totals and delete-one moments."""
    found, tied, constant, ends = credits_of(score, loss)
    credit2 = found.to(torch.int64).bitwise_and_(0xFFFFFFFF)
    comparable = len(tied) - tied
    del found, tied
    total, pairs = credit2.sum(), comparable.sum()
    some = torch.stack([total, pairs, *(x.to(torch.int64) for x in torch.aminmax(comparable))])
    ints = torch.cat([some, squares(credit2)])
    m = comparable.to(torch.float64)
    shift = (m * (total.to(torch.float64) / pairs.to(torch.float64))).sub_(credit2).div_(m.mul_(-2).add_(pairs))
    return PairSums(ints, torch.stack([shift.sum(), shift.square_().sum()]), constant, ends)
