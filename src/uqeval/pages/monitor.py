"""The page of a monitor: the answer, evidence and risk over time in all rows and in each group, when alarms came."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from uqeval._result import Grid, number, versions
from uqeval.decide.threshold import Threshold
from uqeval.monitor.state import Status
from uqeval.monitor.words import group_grid, status_lines
from uqeval.pages.builder import build

_MOST = 20  # groups that are drawn: those named, then those with the most evidence
_POINTS = 400  # of a line
_WIDE, _HIGH = 520.0, 150.0
_LINES = 30  # looks in the table


def monitor_page(promise: Threshold, status: Status, looks: list[dict[str, Any]]) -> str:
    """One HTML file that needs no network."""
    first, *more = status_lines(promise, status)
    level = promise.level if status.check is None else status.check.level
    page = {
        "title": "Does the promise hold?",
        "answer": first,
        "lines": more,
        "holds": status.holds,
        "promise": promise.promise,
        "groups": group_grid(status),
        "charts": list(_charts(promise, status, looks, level)),
        "looks": _looks(looks),
        "delay": _delay(promise, level),
        "facts": [
            ("looks", f"{status.looks:,}"),
            ("labelled rows", f"{0 if status.check is None else status.check.n:,}"),
            ("waiting", f"{status.waiting:,}"),
            ("promised risk", f"≤ {promise.max_risk:g}"),
        ],
        "versions": versions(),
    }
    return build("monitor.html.j2", page=page)


def _delay(promise: Threshold, level: float) -> str | None:
    if promise.max_risk > 0.5 or math.isnan(rows := promise.expected_delay(level=level)):
        return None
    return (
        f"If the risk doubles, it is noticed after about {float(f'{rows:.2g}'):,.0f} labelled accepted rows on average."
    )


def _charts(promise: Threshold, status: Status, looks: list[dict[str, Any]], level: float) -> Iterator[dict[str, Any]]:
    names = sorted(status.groups, key=lambda name: (name not in status.named, -status.groups[name].e_value))
    for name in [None, *names[:_MOST]]:
        points = []
        for entry in looks:
            check = entry["all"] if name is None else entry["groups"].get(name)
            if check is not None and check["units"]:
                points.append((check["all"]["n"], check["e_value"], check["batch"]["risk"], check["all"]["risk"]))
        if not points:
            continue
        after = status.named.get(name) if name is not None else status.check.alarm_after if status.check else None
        # A group alone is named at so much (e-BH); one among others that are bad too, sooner.
        enough = (1 if name is None else len(status.groups)) / (1 - level)
        yield _chart("all rows" if name is None else name, points, promise.max_risk, enough, after)
    if status.drift is not None:
        evidence = [
            (d["n"], sum(c["e_value"] if c else 1.0 for c in d["checks"]) / len(d["checks"]), math.nan, math.nan)
            for entry in looks
            if (d := entry["drift"]) is not None
        ]
        if evidence:
            title = "the scores (without labels; says nothing of the risk)"
            yield _chart(title, evidence, None, 1 / (1 - level), status.drift["alarm_after"])


def _chart(
    title: str, points: Sequence[tuple[float, ...]], max_risk: float | None, enough: float, after: int | None
) -> dict[str, Any]:
    """Lines in units of a drawing: evidence above, the risk of each look and of all rows so far below."""
    kept = list(points[:: math.ceil(len(points) / _POINTS)])
    kept += [] if kept[-1] is points[-1] else [points[-1]]
    most = kept[-1][0]
    x = [_WIDE * point[0] / most for point in kept]
    alarm = math.log10(enough)
    logs = [math.log10(min(max(point[1] or 0.0, 1e-3), 1e12)) for point in kept]
    top, low = max(alarm + 0.5, *logs), min(-1.0, *logs)
    risks = [[math.nan if p[k] is None else float(p[k]) for p in kept] for k in (2, 3)]
    highest = max([2 * (max_risk or 0.0), *(r for part in risks for r in part if not math.isnan(r))])
    return {
        "title": title,
        "text": f"Evidence {kept[-1][1] or 0:.3g} after {most:,.0f} rows; an alarm at {enough:.4g}.",
        "alarmed": None if after is None else _WIDE * min(1.0, after / most),
        "after": "" if after is None else f"noticed after {after:,} rows",
        "evidence": _line(x, [(top - value) / (top - low) for value in logs]),
        "alarm": round(_HIGH * (top - alarm) / (top - low), 1),
        "even": round(_HIGH * top / (top - low), 1),
        "at": f"{enough:.4g}",
        "most": f"{most:,.0f}",
        "batches": None if max_risk is None else _line(x, [1 - r / highest for r in risks[0]]),
        "risk": None if max_risk is None else _line(x, [1 - r / highest for r in risks[1]]),
        "target": None if max_risk is None else round(_HIGH * (1 - max_risk / highest), 1),
        "max_risk": "" if max_risk is None else f"{max_risk:g}",
        "highest": f"{highest:.3g}",
    }


def _line(x: list[float], y: list[float]) -> str:
    """Points of a polyline."""
    return " ".join(f"{a:.1f},{_HIGH * b:.1f}" for a, b in zip(x, y, strict=True) if not math.isnan(b))


def _looks(looks: list[dict[str, Any]]) -> Grid:
    rows = []
    for entry in reversed(looks[-_LINES:]):
        check = entry["all"]
        batch = {"n_accepted": 0, "errors_accepted": 0, "risk": None} if check is None else check["batch"]
        risk = "–" if batch["risk"] is None else number(batch["risk"])
        evidence = "–" if check is None else f"{check['e_value'] or 0:.3g}"
        named = ", ".join(entry["named"]) or "–"
        counts = (f"{entry['counted']:,}", f"{batch['n_accepted']:,}", f"{batch['errors_accepted']:,.6g}")
        rows.append((str(entry["look"]), entry["time"], entry["source"], *counts, risk, evidence, named))
    head = ("look", "time", "file", "labelled", "accepted", "errors", "risk", "e-value", "groups named")
    return Grid(head, rows, "The last looks", (f"Of {len(looks):,} looks the last {len(rows):,}.",))
