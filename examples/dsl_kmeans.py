"""K-means: a function of points and centres, traced once, repeated until the centres stand still.

python examples/dsl_kmeans.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import irkit as ik
from irkit.frontends import dsl

K = 3


def data() -> tuple[np.ndarray, np.ndarray]:
    """Points around three centres, and three of them to start from."""
    rng = np.random.default_rng(1)
    centres = np.float32([[0, 0], [4, 4], [0, 5]])
    points = np.concatenate([c + rng.normal(size=(50, 2)).astype(np.float32) * 0.5 for c in centres])
    return points.astype(np.float32), points[[0, 1, 60]].astype(np.float32)


@dsl.function
def nearest(points: Any, centres: Any) -> Any:
    """Per point the index of its nearest centre."""
    difference = points[:, None, :] - centres[None, :, :]
    return dsl.argmin(dsl.sum(difference * difference, -1), 1)


@dsl.function
def improved(points: Any, centres: Any) -> Any:
    """The means of the points that belong to each centre; one without points stays where it is."""
    member = dsl.one_hot(nearest(points, centres), K)
    count = dsl.sum(member, 0)[:, None]
    return dsl.where(count > 0, dsl.matrix_transpose(member) @ points / dsl.maximum(count, 1), centres)


def program() -> dict[str, Any]:
    """The centres at the end, to which the points belong, and how many steps it took."""
    points = dsl.placeholder("points", "float32", ["n", 2])
    start = dsl.placeholder("start", "float32", [K, 2])

    def moves(state: Any) -> Any:
        _, moved, steps = state
        return (moved > 1e-6) & (steps < 100)

    def step(state: Any) -> Any:
        centres, _, steps = state
        new = improved(points, centres)
        return new, dsl.max(abs(new - centres)), steps + 1

    centres, _, steps = dsl.while_loop(moves, step, (start, np.float32(np.inf), 0))
    return {"centres": centres, "labels": nearest(points, centres), "steps": steps}


def main(backend: str = "numpy") -> dict[str, np.ndarray]:
    """Finds the centres."""
    points, start = data()
    found = ik.compile(program(), backend=backend).run({"points": points, "start": start})
    print(f"{int(found['steps'])} steps; centres {found['centres'].round(2).tolist()}")
    return found


if __name__ == "__main__":
    main()
