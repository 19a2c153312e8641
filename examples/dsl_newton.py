"""Newton's method for a minimum, by a while loop whose body takes a gradient and a Hessian.

python examples/dsl_newton.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import irkit as ik
from irkit.frontends import dsl


def rosenbrock(x: Any) -> Any:
    """Rosenbrock's valley (1960); its minimum is at (1, 1)."""
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] * x[0]) ** 2


def solve(matrix: Any, right: Any) -> Any:
    """The solution of two linear equations."""
    a, b, c, d = matrix[0, 0], matrix[0, 1], matrix[1, 0], matrix[1, 1]
    return dsl.stack([d * right[0] - b * right[1], a * right[1] - c * right[0]]) / (a * d - b * c)


def program() -> dict[str, Any]:
    """The minimum, its value, and the number of steps."""
    start = dsl.placeholder("start", "float64", [2])

    def far(state: Any) -> Any:
        x, steps = state
        slope = dsl.grad(rosenbrock)(x)
        return (dsl.max(abs(slope)) > 1e-10) & (steps < 50)

    def step(state: Any) -> Any:
        x, steps = state
        return x - solve(dsl.hessian(rosenbrock)(x), dsl.grad(rosenbrock)(x)), steps + 1

    x, steps = dsl.while_loop(far, step, (start, 0))
    return {"x": x, "value": rosenbrock(x), "steps": steps}


def main(backend: str = "numpy") -> dict[str, np.ndarray]:
    """Finds the minimum."""
    found = ik.compile(program(), backend=backend).run({"start": np.array([-1.2, 1.0])})
    print(f"x = {found['x'].round(6).tolist()} after {int(found['steps'])} steps")
    return found


if __name__ == "__main__":
    main()
