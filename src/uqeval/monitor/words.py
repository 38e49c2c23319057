"""What a monitor knows, in words and as a table: for the terminal and for the page."""

from uqeval._result import Grid, number
from uqeval.decide.threshold import Threshold
from uqeval.monitor.state import Status


def status_lines(promise: Threshold, status: Status) -> list[str]:
    """What is broken first, of all rows or of groups; then who waits, and the scores."""
    lines = [_answer(promise, status)]
    if status.groups:
        lines += [_groups(status, 1 - promise.level if status.check is None else 1 - status.check.level)]
    if status.named and status.check is not None and status.check.holds:
        lines = [lines[1], f"All rows together: {lines[0][0].lower()}{lines[0][1:]}"]
    if status.check is not None and status.check.alarm_after is not None:
        lines += [f"The alarm for all rows came after {status.check.alarm_after:,} labelled rows."]
    if status.waiting:
        lines += [f"{status.waiting:,} rows wait for their labels."]
    if (drift := status.drift) is not None:
        lines += [_drift(drift["n"], drift["e_value"], drift["direction"], drift["alarm_after"])]
    return lines


def _answer(promise: Threshold, status: Status) -> str:
    if not promise.feasible:
        return "Nothing to tell: the threshold accepts nothing."
    if status.check is None:
        return f"Nothing to tell yet: no row has a label (promised ≤ {promise.max_risk:g})."
    return str(status.check)


def _groups(status: Status, rate: float) -> str:
    if not status.named:
        return (
            f"No group of {len(status.groups)} is named. While all keep the promise, the chance that one ever is, is "
            f"at most {100 * rate:.6g}%."
        )
    each = ", ".join(f"{name} (after {n:,} rows)" for name, n in status.named.items())
    return (
        f"The promise no longer holds in {len(status.named)} of {len(status.groups)} groups: {each}. Of the groups "
        f"that a look names, at most {100 * rate:.6g}% are named wrongly on average."
    )


def _drift(n: int, e_value: float, direction: str, alarm_after: int | None) -> str:
    seen = f"{n:,} scores beside the reference, e-value {e_value:.3g}"
    if alarm_after is None:
        return f"Scores come as before: {seen}. This says nothing of the risk."
    return (
        f"Scores have changed ({direction}), noticed after {alarm_after:,}: {seen}. This says nothing of the risk: "
        f"label some rows."
    )


def group_grid(status: Status) -> Grid | None:
    """Group by group; None where there are none."""
    if not status.groups:
        return None
    rows = []
    for name, check in status.groups.items():
        low, high = check.all.risk_interval
        risk = f"{number(check.risk)} ({number(low)}–{number(high)})" if check.units else "–"
        said = "broken" if name in status.named else "no sign against" if check.units else "–"
        counts = (f"{check.n:,}", f"{check.n_accepted:,}", f"{check.errors_accepted:,.6g}")
        rows.append((name, *counts, risk, f"{check.e_value:.2g}", said))
    return Grid(("group", "rows", "accepted", "errors", "risk", "e-value", "promise"), rows, "groups")
