"""What of a log of a language model's evaluation was taken for what: in one line, and beside a stored result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from uqeval.inputs.columns import listed


@dataclass(frozen=True)
class LogReading:
    """One model's logs as they were read."""

    format: str
    files: tuple[str, ...]
    model: str  # "" where the log does not name it
    tasks: tuple[str, ...]  # groups where there are several
    answers: int
    questions: int  # clusters where there are fewer than answers
    quality: tuple[str, ...]  # higher is better
    uncertainty: tuple[str, ...]  # as higher = less sure
    turned_round: tuple[str, ...]  # of those, what the log holds as higher = more sure
    unjudged: int  # answers without a judgement, left out
    unscored: int  # judged answers without a score, left out
    notes: tuple[str, ...]  # what else was chosen or left out
    keyed_by_content: bool = False  # answers of other tasks have other keys

    def __str__(self) -> str:
        parts = [f"{self.format}: {self.answers:,} answers of {listed((task or '?' for task in self.tasks), 4)}"]
        parts += [f"{self.unjudged:,} without a judgement left out"] * (self.unjudged > 0)
        parts += [f"{self.unscored:,} without a score left out"] * (self.unscored > 0)
        parts.append(f"quality {', '.join(self.quality)} (higher is better)")
        parts.append(f"uncertainty {', '.join(self.uncertainty)} (as higher = less sure)")
        repeated = self.questions < self.answers
        parts.append(f"clusters: {self.questions:,} questions" if repeated else "one answer to each question")
        parts += ["groups: tasks"] * (len(self.tasks) > 1)
        return "; ".join([*parts, *self.notes])

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": self.format,
            "files": list(self.files),
            "model": self.model or None,
            "tasks": list(self.tasks),
            "answers": self.answers,
            "questions": self.questions,
            "cluster": "question" if self.questions < self.answers else None,
            "group": "task" if len(self.tasks) > 1 else None,
            "quality": [{"name": name, "higher_is": "better"} for name in self.quality],
            "uncertainty": [
                {"name": name, "higher_is": "less sure", "turned_round": name in self.turned_round}
                for name in self.uncertainty
            ],
            "left_out": {"without_judgement": self.unjudged, "without_score": self.unscored},
            "notes": list(self.notes),
        }
