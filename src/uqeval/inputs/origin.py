"""Where a result comes from: files with their hashes, columns, the command, the seed, the date. Pages show the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uqeval.inputs.predictions import Predictions

if TYPE_CHECKING:
    from uqeval.inputs.log_reading import LogReading

_MOST_BYTES = 4 * 2**30  # of all files: hashing them takes some ten seconds
MOST_FILES = 50


class HashedFile(NamedTuple):
    """A file as it was; without a hash where all files together are very large."""

    path: str
    bytes: int
    sha256: str | None


def hashed(paths: Sequence[str]) -> list[HashedFile]:
    """The first files, each with its hash."""
    sizes = {path: Path(path).stat().st_size for path in paths}
    small = sum(sizes.values()) <= _MOST_BYTES
    return [HashedFile(path, sizes[path], _sha256(path) if small else None) for path in paths[:MOST_FILES]]


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def made_at() -> str:
    """Universal time; the date of the sources where a build wants the same page again (reproducible-builds.org)."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    at = datetime.fromtimestamp(int(fixed), UTC) if fixed.isdecimal() else datetime.now(UTC)
    return f"{at:%Y-%m-%d %H:%M} UTC"


def provenance_of(
    paths: Sequence[str],
    predictions: Predictions | None = None,
    *,
    columns: Mapping[str, Any],
    by: str | None = None,
    cluster: str | None = None,
    seed: int | None = None,
    command: str | None = None,
    logs: Iterable[LogReading | None] = (),
) -> dict[str, Any]:
    """What stands beside a stored result; `columns` are the user's words where no predictions tell what was read.

    `logs` are how each model's logs were read, where there are several.
    """
    labels = None if predictions is None else predictions.labels
    if predictions is not None and predictions.log is not None:
        logs = (predictions.log,)
    used = columns if predictions is None or not predictions.columns else dict(predictions.columns)
    return {
        "made": made_at(),
        "command": command,
        "files": [file._asdict() for file in hashed(paths)],
        "files_left_out": max(0, len(paths) - MOST_FILES),
        "columns": {role: list(names) if isinstance(names, list | tuple) else names for role, names in used.items()},
        "by": by,
        "cluster": cluster,
        "seed": seed,
        "logs": [one.record() for one in logs if one is not None],
        "labels_sha256": None if labels is None else hashlib.sha256(labels.tobytes()).hexdigest(),
    }
