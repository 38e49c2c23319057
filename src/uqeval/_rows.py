"""Row-wise quantities on checked arrays: a row has the same bits whatever rows stand beside it.

A difference in the last bit would break a tie that the ranking metrics must see. Checking is the job of the callers.
"""

import numpy as np

from uqeval._check import Float, Int
from uqeval._errors import UQWarning, notify

_BIG = 30.0  # log1p(x) and log(x) agree beyond e^30, and exp() overflows only at 709
_ONE = np.int64(np.float64(1.0).view(np.int64))


def rank_loss_rows(probs: Float, labels: Int) -> Float:
    """`truth.rank_loss`."""
    loss = 0.0 - pick(probs, labels)  # not -p: that would give -0.0
    full = loss == -1.0
    if full.any():
        # p̂(label) rounded to 1. Mirrored in the order of floats about 1, what is left to the others (0 … 1) becomes a
        # number from 2¹⁰²³ down to 1, none twice: 1/rest would do, but rounds and overflows.
        rest = others(probs[full]) + 0.0  # no -0.0
        loss[full] = -(2 * _ONE - rest.view(np.int64)).view(np.float64)
    return loss


def others(probs: Float) -> Float:
    """All but the largest probability, added up in an order that does not depend on that of the classes."""
    return np.sort(probs, axis=-1)[..., :-1].sum(axis=-1)


def logit_loss_rows(z: Float, y: Int) -> Float:
    """`truth.gap_from_logits`."""
    rows = np.arange(len(z))
    own = z[rows, y]
    masked = np.isneginf(own)
    with np.errstate(over="ignore"):  # finite logits may lie further apart than the largest float
        excess = z - np.where(masked, 0.0, own)[:, None]
        excess[rows, y] = -np.inf
        np.minimum(excess, np.finfo(np.float64).max, out=excess)
        excess.sort(axis=-1)  # so that the order of the classes cannot break a tie in the last bit of the sum
        top = excess[:, -1]
        shift = np.where(top > _BIG, top, 0.0)
        excess -= shift[:, None]
    total: Float = np.exp(excess, out=excess).sum(axis=-1)
    loss: Float = np.log1p(total)
    big = shift > 0
    loss[big] = shift[big] + np.log(np.exp(-shift[big]) + total[big])
    loss[masked] = np.inf
    return loss


def pick(array: Float, classes: Int) -> Float:
    return np.take_along_axis(array, classes[:, None], axis=1)[:, 0]


def top_class(name: str, array: Float) -> Int:
    """Arg-max; called straight from the public functions, so that the warning points at the user's line."""
    top: Int = array.argmax(axis=1).astype(np.int64, copy=False)
    tied = np.count_nonzero(array == pick(array, top)[:, None], axis=1) > 1
    if tied.any():
        count = int(tied.sum())
        notify(
            f"`{name}` has a tied top class in {count} row{'s' * (count != 1)} "
            f"(first at row {int(tied.argmax())}); the lowest class index is taken.",
            UQWarning,
            stacklevel=3,
        )
    return top
