"""Small random tables in every format and type, what is meant by each, and what the reader makes of it."""

import json
import random
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from uqeval._errors import InputError
from uqeval.inputs import Predictions, read_predictions
from uqeval.truth import error_of

NAMES = (
    *(["0", "1"], ["0", "1", "2"], ["1", "2", "3"], ["10", "2", "1"], ["cat", "dog"], ["b", "a", "c"], ["-1", "1"]),
    *(["True", "False"], ["1.0", "2.0"], ["01", "1"], ["0", "cat"], ["tree frog", "cat"], ["ä", "a"]),
)


def draw(rng):
    """A small test set, what is meant by it, and the ways in which it is written down."""
    names = list(rng.choice(NAMES))
    n, k = rng.randint(2, 7), len(names)
    probs = [rng.sample(range(9), k) for _ in range(n)]  # no two alike: the most probable class is one
    probs = [[x / sum(row) for x in row] for row in probs]
    there = names if rng.random() < 0.6 else rng.sample(names, rng.randint(1, k))  # some classes have no rows
    labels = [rng.choice(there) for _ in range(n)]
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
    if rng.random() < 0.3:  # a list of columns in the order of the classes, with or without their names
        found = [name for name, _ in columns[1 : k + 1]]
        options |= {"prob": found, "classes": names} if rng.random() < 0.5 else {"prob": found}
    elif (
        k == 2 and names != ["01", "1"] and rng.random() < 0.2 and "prob" not in options
    ):  # the probability of one class says all
        del columns[rng.randint(1, 2)]
    elif rng.random() < 0.2:
        options["classes"] = rng.sample(names, k)
    return columns, options, truth


def spoiled(rng, columns, options, truth):
    """The same with something done to it, and what it means then; None where it has no meaning."""
    names, labels, probs = truth
    ordered = "classes" in options or isinstance(options.get("prob"), list)
    kind = rng.choice(["none", "none", "permute", "shift", "twice", "drop", "gap", "float", "rows", "bad", "swap"])
    if kind == "permute":
        rng.shuffle(columns)
    elif kind == "shift":  # positions in place of names: another meaning, where they are names too
        if _lone(columns):
            return columns, None, probs
        own = {name: str(j) for j, name in enumerate(options.get("classes", names))}
        moved = [own[label] for label in labels]
        columns = [(name, moved if values is labels else values) for name, values in columns]
        # Read as names where the columns say the names, as either where the order was given: both can be right.
        known = {float(name): name for name in names if _whole(name.removesuffix(".0"))} | {
            name: name for name in names
        }
        found = [known.get(text, known.get(float(text))) for text in moved]
        by_name = None if None in found else found
        return columns, [by_name, labels if ordered else None], probs
    elif kind == "twice":
        columns.append(rng.choice(columns))
        return columns, [], probs
    elif kind == "drop":
        _, values = columns.pop(rng.randrange(len(columns)))
        left = None if names == ["01", "1"] else [labels]  # without a column of its own "01" is the number 1
        return columns, [] if values is labels else left, probs
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
        if values is labels and _lone(columns):
            return columns, None, probs
        return columns, [labels] if name == "note" else [], probs
    elif kind == "swap":  # the order of rows of one column: another test set
        at = next(i for i, (_, values) in enumerate(columns) if values is labels)
        moved = labels[::-1]
        columns[at] = (columns[at][0], moved)
        return columns, [moved], probs
    return columns, [labels], probs


def _lone(columns):
    """Whether there is a probability of one class alone: anything beside it is the other."""
    return sum(name != "note" for name, _ in columns) == 2


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
    """The file, or a frame of the same."""
    kind = rng.choice(["csv", "parquet", "jsonl", "tsv", "arrow", "pandas"])
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
    table = pa.Table.from_arrays([pa.array(values) for _, values in columns], [name for name, _ in columns])
    if kind == "pandas":
        return table.to_pandas()
    (pq.write_table if kind == "parquet" else pa.feather.write_feather)(table, path)
    return path


def errors(names, labels, probs):
    """By definition: 1 where the most probable class is not the label."""
    return [int(names[row.index(max(row))] != label) for row, label in zip(probs, labels, strict=True)]


def outcome(seed, folder):
    """Whether the file is read as it was meant ("same"), refused, or cannot be judged."""
    rng = random.Random(seed)
    columns, options, truth = draw(rng)
    names = truth[0]
    columns, meant, probs = spoiled(rng, columns, options, truth)
    try:
        source = write(rng, columns, folder / f"f{seed % 8}")
    except (pa.ArrowException, TypeError):
        return "unwritable"  # the format cannot hold it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = read_predictions if isinstance(source, Path) else Predictions.from_frame
            found = read(source, **options)
            wrong = error_of(found).tolist()
    except InputError:
        return "refused"
    if meant is None:
        return "unjudged"
    allowed = [errors(names, labels, probs) for labels in meant if labels is not None]
    assert wrong in allowed, (seed, columns, options, wrong, allowed)
    order = [found.classes.index(name) if name in found.classes else None for name in names]
    if None not in order:
        assert np.allclose(found.probs[:, order], probs, rtol=1e-12), (seed, columns, options)
    return "same"
