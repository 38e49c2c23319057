"""What a monitor knows as text for Prometheus: the textfile collector of the node exporter reads it from a folder."""

import math
from collections.abc import Iterable, Iterator

from uqeval.decide.monitor import Check
from uqeval.decide.threshold import Threshold
from uqeval.monitor.state import Status

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_Sample = tuple[str | None, float]  # group, value


def prometheus_text(promise: Threshold, status: Status, seconds: float) -> str:
    """Metrics with a line of help each; `seconds` is when the last look was."""
    return "".join(f"{line}\n" for line in _lines(promise, status, seconds))


def _lines(promise: Threshold, status: Status, seconds: float) -> Iterator[str]:
    known: list[tuple[str | None, Check]] = [] if status.check is None else [(None, status.check)]
    known += status.groups.items()

    def of(field: str) -> list[_Sample]:
        return [(name, float(getattr(check, field))) for name, check in known]

    broken: list[_Sample] = [(None, float(status.check is not None and not status.check.holds))]
    broken += [(name, float(name in status.named)) for name in status.groups]
    drift = status.drift or {}
    metrics: list[tuple[str, str, str, Iterable[_Sample]]] = [
        ("max_risk", "gauge", "The risk that was promised.", [(None, promise.max_risk)]),
        ("alarm", "gauge", "1 where the promise on the risk was found broken.", broken),
        ("e_value", "gauge", "Evidence that the risk is above the promise.", of("e_value")),
        ("risk", "gauge", "Observed risk of the accepted rows so far.", of("risk")),
        ("rows_total", "counter", "Labelled rows that were looked at.", of("n")),
        ("accepted_rows_total", "counter", "Those of them that were accepted.", of("n_accepted")),
        ("errors_total", "counter", "Errors (or loss) among the accepted rows.", of("errors_accepted")),
        ("waiting_rows", "gauge", "Rows whose label has not come.", [(None, float(status.waiting))]),
        ("looks_total", "counter", "Looks so far.", [(None, float(status.looks))]),
        ("last_look_timestamp_seconds", "gauge", "When the last look was.", [(None, seconds)]),
    ]
    if drift:
        shifted = float(drift["alarm_after"] is not None)
        metrics += [
            ("score_drift_e_value", "gauge", "Evidence that the scores have changed.", [(None, drift["e_value"])]),
            ("score_drift_alarm", "gauge", "1 where the scores were found to have changed.", [(None, shifted)]),
        ]
    for name, kind, text, samples in metrics:
        yield f"# HELP uqeval_{name} {text}"
        yield f"# TYPE uqeval_{name} {kind}"
        for group, value in samples:
            label = "" if group is None else f'{{group="{group.translate(_ESCAPES)}"}}'
            yield f"uqeval_{name}{label} {'NaN' if math.isnan(value) else repr(value)}"
