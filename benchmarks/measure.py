"""Interleaved timing, and peak memory in a process of its own."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from benchmarks.contestants import TASKS, Contestant, make_data

ROUNDS = {10**3: 60, 10**4: 30, 10**5: 12, 10**6: 5, 10**7: 3}
MOST_SECONDS = 40.0  # a contestant that would need longer for one call sits out


def one_call(contestant: Contestant, data: dict) -> float:  # type: ignore[type-arg]
    start = time.perf_counter()
    contestant.run(data)
    return time.perf_counter() - start


def time_task(task: str, sizes: list[int]) -> Iterator[dict[str, object]]:
    """Seconds of every contestant at every size: one call each in turn, round after round."""
    expected = dict.fromkeys((c.name for c in TASKS[task]), 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for contestant in TASKS[task]:
            if contestant.there:
                contestant.run(make_data(1000))  # imports are not part of it
    for n in sizes:
        data = make_data(n)
        running = [c for c in TASKS[task] if c.there and expected[c.name] <= MOST_SECONDS]
        times: dict[str, list[float]] = {c.name: [] for c in running}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            slow = set()
            for contestant in running:  # warm up; slow ones count this call and one more, or this one alone
                seconds = one_call(contestant, data)
                if seconds > 3.0:
                    slow.add(contestant.name)
                    times[contestant.name].append(seconds)
                    if seconds < 10.0:
                        times[contestant.name].append(one_call(contestant, data))
            for _ in range(ROUNDS[n]):
                for contestant in running:
                    if contestant.name not in slow:
                        times[contestant.name].append(one_call(contestant, data))
        for contestant in running:
            found = times[contestant.name]
            expected[contestant.name] = min(found) * 10**contestant.growth
            yield {
                "task": task,
                "tool": contestant.name,
                "n": n,
                "median": statistics.median(found),
                "min": min(found),
                "calls": len(found),
            }


def peak_memory(task: str, tool: str, n: int) -> float:
    """MiB that one call adds at its peak to a process that holds the data."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.measure", task, tool, str(n)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(field))) / 1024


def _peak(task: str, tool: str, n: int) -> float:
    contestant = next(c for c in TASKS[task] if c.name == tool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        contestant.run(make_data(1000))  # imports
        data = make_data(n)
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far (Linux)
        before = _status("VmRSS:")
        contestant.run(data)
    return _status("VmHWM:") - before


if __name__ == "__main__":
    print(_peak(sys.argv[1], sys.argv[2], int(sys.argv[3])))
