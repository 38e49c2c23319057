"""Random small files against an independent reader: the same number or an error, never another number.

`UQEVAL_FUZZ=100000 pytest tests/inputs/test_fuzz.py` tries as many files (about ten minutes).
"""

import json
import os
import random
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from uqeval._errors import InputError
from uqeval.inputs import read_predictions
from uqeval.truth import error_of

FILES = int(os.environ.get("UQEVAL_FUZZ", "300"))
NAMES = (
    *(["0", "1"], ["0", "1", "2"], ["1", "2", "3"], ["10", "2", "1"], ["cat", "dog"], ["b", "a", "c"], ["-1", "1"]),
    *(["True", "False"], ["1.0", "2.0"], ["01", "1"], ["0", "cat"], ["tree frog", "cat"], ["ä", "a"]),
)


def draw(rng):
    """A small test set, what is meant by it, and the ways in which it is written down."""
    names = list(rng.choice(NAMES))
    n, k = rng.randint(2, 7), len(names)
    probs = [[rng.randint(0, 8) for _ in range(k)] for _ in range(n)]
    probs = [[(x + (sum(row) == 0)) / (sum(row) or k) for x in row] for row in probs]
    labels = [rng.choice(names) for _ in range(n)]
    columns = [("label", labels), *((f"prob_{name}", [row[j] for row in probs]) for j, name in enumerate(names))]
    if rng.random() < 0.2:
        columns.append(("note", [rng.choice(["x", "1", ""]) for _ in range(n)]))
    options, truth = {}, (names, labels, probs)
    if rng.random() < 0.3:  # other names, which must be said
        prefix = rng.choice(["p_", "proba ", "prob.", "p"])
        columns = [
            (name.replace("prob_", prefix) if name.startswith("prob_") else "y" if name == "label" else name, values)
            for name, values in columns
        ]
        options = {"label": "y", "prob": prefix + "*"}
        if rng.random() < 0.3:
            options.pop(rng.choice(["label", "prob"]))
    if rng.random() < 0.2:  # a list of columns, and the names of the classes in their order
        found = [name for name, _ in columns[1 : k + 1]]
        options |= {"prob": found, "classes": names}
    elif rng.random() < 0.2:
        options["classes"] = rng.sample(names, k)
    return columns, options, truth


def spoiled(rng, columns, options, truth):
    """The same with something done to it, and what it means then; None where it has no meaning."""
    names, labels, probs = truth
    kind = rng.choice(["none", "none", "permute", "shift", "twice", "drop", "gap", "float", "rows", "bad", "swap"])
    if kind == "permute":
        rng.shuffle(columns)
    elif kind == "shift":  # positions in place of names: another meaning, where they are names too
        own = {name: str(j) for j, name in enumerate(options.get("classes", names))}
        moved = [own[label] for label in labels]
        columns = [(name, moved if values is labels else values) for name, values in columns]
        # Read as names where the columns say the names, as either where the order was given: both can be right.
        known = {float(name): name for name in names if _whole(name.removesuffix(".0"))} | {
            name: name for name in names
        }
        found = [known.get(text, known.get(float(text))) for text in moved]
        by_name = None if None in found else found
        return columns, [by_name, labels if "classes" in options else None], probs
    elif kind == "twice":
        columns.append(rng.choice(columns))
        return columns, [], probs
    elif kind == "drop":
        columns.pop(rng.randrange(len(columns)))
        if len(columns) < len(names) + 1 or columns[-1][0] != "note":
            return columns, None, probs
    elif kind == "gap":
        at = rng.randrange(len(columns))
        name, values = columns[at]
        columns[at] = (name, [*values[:-1], None])
        return columns, [labels] if name == "note" else [], probs
    elif kind == "float":
        columns = [
            (name, [f"{v}.0" for v in values] if values is labels and all(map(_whole, values)) else values)
            for name, values in columns
        ]
    elif kind == "rows":
        order = rng.sample(range(len(labels)), len(labels))
        columns = [(name, [values[i] for i in order]) for name, values in columns]
        return columns, [[labels[i] for i in order]], [probs[i] for i in order]
    elif kind == "bad":
        at = rng.randrange(len(columns))
        name, values = columns[at]
        columns[at] = (name, [*values[:-1], rng.choice(["zebra", "7,5", "1e999", "-3", "17"])])
        return columns, [labels] if name == "note" else [], probs
    elif kind == "swap":  # the order of rows of one column: another test set
        at = next(i for i, (_, values) in enumerate(columns) if values is labels)
        moved = labels[::-1]
        columns[at] = (columns[at][0], moved)
        return columns, [moved], probs
    return columns, [labels], probs


def _whole(text):
    return text.lstrip("-").isdecimal()


def typed(rng, values):
    """Labels as another type that holds the same."""
    if all(isinstance(v, str) and _whole(v) and str(int(v)) == v for v in values) and rng.random() < 0.5:
        return [int(v) for v in values] if rng.random() < 0.5 else [float(v) for v in values]
    if set(values) <= {"True", "False"} and rng.random() < 0.5:
        return [v == "True" for v in values]
    return values


def write(rng, columns, path):
    kind = rng.choice(["csv", "parquet", "jsonl", "tsv"])
    path = path.with_suffix(f".{kind}")
    if kind in ("csv", "tsv"):
        sep = "," if kind == "csv" else "\t"
        lines = [[name for name, _ in columns], *zip(*(values for _, values in columns), strict=True)]
        quoted = [
            [f'"{cell}"' if sep in str(cell) else "" if cell is None else str(cell) for cell in row] for row in lines
        ]
        path.write_text("\n".join(sep.join(row) for row in quoted) + "\n")
        return path
    columns = [(name, typed(rng, values) if name in ("label", "y") else values) for name, values in columns]
    if kind == "jsonl":
        names = [json.dumps(name) for name, _ in columns]  # by hand: a dict would hold a name once
        rows = zip(*(values for _, values in columns), strict=True)
        cells = [", ".join(f"{name}: {json.dumps(v)}" for name, v in zip(names, row, strict=True)) for row in rows]
        path.write_text("".join(f"{{{row}}}\n" for row in cells))
        return path
    pq.write_table(
        pa.Table.from_arrays([pa.array(values) for _, values in columns], [name for name, _ in columns]), path
    )
    return path


def errors(names, labels, probs):
    """By definition: 1 where the most probable class is not the label."""
    return [int(names[row.index(max(row))] != label) for row, label in zip(probs, labels, strict=True)]


def test_a_random_file_gives_its_number_or_an_error(tmp_path):
    read = refused = 0
    for seed in range(FILES):
        rng = random.Random(seed)
        columns, options, truth = draw(rng)
        names = truth[0]
        columns, meant, probs = spoiled(rng, columns, options, truth)
        ties = any(row.count(max(row)) > 1 for row in probs)
        try:
            path = write(rng, columns, tmp_path / f"f{seed % 8}")
        except (pa.ArrowException, TypeError):
            continue  # the format cannot hold it
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = read_predictions(path, **options)
                wrong = error_of(found).tolist()
        except InputError:
            refused += 1
            continue
        if meant is None or ties:
            continue
        read += 1
        allowed = [errors(names, labels, probs) for labels in meant if labels is not None]
        assert wrong in allowed, (seed, columns, options, wrong, allowed)
        order = [found.classes.index(name) if name in found.classes else None for name in names]
        if None not in order:
            assert np.allclose(found.probs[:, order], probs, rtol=1e-12), (seed, columns, options)
    assert read > FILES / 4
    assert refused > FILES / 10
