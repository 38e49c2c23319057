"""In which groups is the promise broken? False discoveries are controlled over all of them."""

from collections.abc import Mapping


def e_bh(e_values: Mapping[str, float], level: float) -> tuple[str, ...]:
    """Groups to name: of those named, at most 1 − `level` on average are named wrongly (e-BH: Wang & Ramdas 2022).

    The k groups with the largest e-values are named where each of these is at least G / (k·(1 − level)), for the
    largest such k; whatever the dependence between groups.

    Parameters
    ----------
    e_values : mapping of group → e-value
        One per group; at most 1 on average while the group keeps the promise.
    level : float
        1 − the false discovery rate.

    Returns
    -------
    tuple of str
        Largest e-value first.

    Examples
    --------
    >>> e_bh({"north": 45.0, "south": 31.0, "west": 0.2}, level=0.95)
    ('north', 'south')
    """
    order = sorted(e_values, key=lambda group: -e_values[group])
    needed = len(order) / (1 - level)
    # Rounding must not cost a group whose e-value is just enough.
    enough = [k for k, group in enumerate(order, 1) if k * e_values[group] >= needed * (1 - 1e-12)]
    return tuple(order[: max(enough, default=0)])
