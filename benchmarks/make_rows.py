"""Parquet files of scores, errors and losses: `python -m benchmarks.make_rows FOLDER 100000000`.

Written piece by piece, so that memory does not grow with the rows; the same seed gives the same rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PIECE = 1_000_000  # rows of a row group


def make_piece(rows: int, seed: int, piece: int, skew: float = 0.0, groups: int = 0) -> pa.Table:
    """Errors and losses that follow the score; a share `skew` of the rows has one and the same score.

    With `groups` there are two more columns: that many sites, and patients with 20 rows each on average.
    """
    rng = np.random.default_rng([seed, piece])
    score = rng.random(rows)
    loss = 0.3 * score + 0.7 * rng.random(rows)
    error = (rng.random(rows) < 0.3 * score).astype(np.uint8)
    if skew:
        score[rng.random(rows) < skew] = 0.5
    columns = {"score_s": score, "score_noisy": score + 0.2 * rng.random(rows), "error": error, "loss": loss}
    if groups:
        columns["patient"] = piece * PIECE + rng.integers(0, max(1, rows // 20), rows)
        columns["site"] = rng.integers(0, groups, rows)
    return pa.table(columns)


def make_rows(
    folder: Path, rows: int, *, files: int = 10, seed: int = 0, skew: float = 0.0, groups: int = 0
) -> list[Path]:
    """The files, each with several row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [min(PIECE, rows - at) for at in range(0, rows, PIECE)]
    paths = []
    for k, pieces in enumerate(np.array_split(np.arange(len(sizes)), min(files, len(sizes)))):
        path = folder / f"rows-{k:03d}.parquet"
        schema = make_piece(1, seed, 0, groups=groups).schema
        with pq.ParquetWriter(path, schema, compression="snappy") as writer:
            for piece in pieces:
                writer.write_table(make_piece(sizes[piece], seed, int(piece), skew, groups), row_group_size=PIECE)
        paths.append(path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", type=int)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skew", type=float, default=0.0)
    parser.add_argument("--groups", type=int, default=0)
    given = parser.parse_args()
    for path in make_rows(
        given.folder, given.rows, files=given.files, seed=given.seed, skew=given.skew, groups=given.groups
    ):
        print(path)


if __name__ == "__main__":
    main()
