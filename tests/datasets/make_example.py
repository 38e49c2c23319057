"""Makes `example.npz`: five small networks on few handwritten digits. Needs scikit-learn; run once, the file is kept.

    python tests/datasets/make_example.py

Data: scikit-learn's digits (UCI Optical Recognition of Handwritten Digits, test part; CC BY 4.0).
250 images to train, 1,547 to test. Members differ by seed and by the bootstrap sample they train on.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier


def logits_of(net: MLPClassifier, x: np.ndarray) -> np.ndarray:
    """Outputs before softmax, which scikit-learn does not expose."""
    for k, (weight, bias) in enumerate(zip(net.coefs_, net.intercepts_, strict=True)):
        x = x @ weight + bias
        if k < len(net.coefs_) - 1:
            x = np.maximum(x, 0.0)
    return x


def main() -> None:
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, test = order[:250], np.sort(order[250:])
    members = []
    for seed in range(5):
        drawn = rng.choice(train, size=len(train))
        net = MLPClassifier((32,), alpha=1e-2, max_iter=400, random_state=seed).fit(x[drawn], y[drawn])
        members.append(logits_of(net, x[test]))
    ink = x[test].mean(axis=1)
    stroke = np.array(["thin", "medium", "thick"])[np.digitize(ink, np.quantile(ink, [1 / 3, 2 / 3]))]
    np.savez_compressed(
        Path(__file__).parents[2] / "src" / "uqeval" / "datasets" / "example.npz",
        labels=y[test].astype(np.int64),
        member_logits=np.stack(members).astype(np.float16),
        groups=stroke,
    )


if __name__ == "__main__":
    main()
