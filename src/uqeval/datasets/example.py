"""The built-in example: an ensemble of five small networks on handwritten digits, no network needed."""

from uqeval.inputs import Predictions, read_predictions


def example() -> Predictions:
    """Predictions of a deep ensemble for 1,547 digits after training on 250; groups by stroke width.

    Examples
    --------
    >>> example()
    Predictions(1547 rows, 10 classes: labels, probs, 5 members, 5 member_logits, 3 groups)
    """
    from importlib.resources import as_file, files

    with as_file(files("uqeval.datasets") / "example.npz") as path:
        return read_predictions(path)
