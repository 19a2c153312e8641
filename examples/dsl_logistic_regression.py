"""Logistic regression: variables, a loss, and gradient descent with the gradients written out as expressions.

python examples/dsl_logistic_regression.py
"""

from __future__ import annotations

import numpy as np

from irkit.frontends import dsl


def data(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and on which side of a line they lie."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, 2)).astype(np.float32)
    return points, (points @ np.float32([2.0, -1.0]) + 0.5 > 0).astype(np.float32)


x = dsl.placeholder("x", "float32", ["n", 2])
label = dsl.placeholder("label", "float32", ["n"])
w = dsl.variable(np.zeros(2, np.float32), "w")
b = dsl.variable(np.float32(0), "b")

score = x @ w + b
probability = dsl.sigmoid(score)
loss = dsl.mean(dsl.softplus(score) - label * score)
accuracy = dsl.mean(dsl.cast(dsl.equal(score > 0, label > 0.5), "float32"))

dw, db = dsl.gradients(loss, [w, b])
step = dsl.group(w.assign_sub(2.0 * dw), b.assign_sub(2.0 * db))

FETCHES = {"loss": loss, "accuracy": accuracy, "step": step}


def main(backend: str = "numpy") -> dict[str, np.ndarray]:
    """Trains; returns the loss and accuracy of the last step, and the parameters."""
    points, labels = data()
    session = dsl.Session(backend)
    found = {}
    for _ in range(100):
        found = session.run(FETCHES, {x: points, label: labels})
    print(f"loss {found['loss']:.4f}, accuracy {found['accuracy']:.3f}, w {session.state['w']}, b {session.state['b']}")
    return {"loss": found["loss"], "accuracy": found["accuracy"], **session.state}


if __name__ == "__main__":
    main()
