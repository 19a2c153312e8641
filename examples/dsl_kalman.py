"""A Kalman filter: a scan over measurements that carries the state's mean and covariance.

The equations are those of Kalman (1960) for a point that moves at a nearly constant speed and is seen with noise.

    python examples/dsl_kalman.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import irkit as ik
from irkit.frontends import dsl

F = np.float32([[1, 1], [0, 1]])
"""How the state, position and speed, goes on."""

H = np.float32([[1, 0]])
"""What is measured of it."""

Q = np.float32([[1e-4, 0], [0, 1e-4]])
R = np.float32([[0.25]])


def data(n: int = 60) -> np.ndarray:
    """Noisy positions of a point that moves at the speed 0.5."""
    rng = np.random.default_rng(2)
    return (0.5 * np.arange(n) + rng.normal(size=n) * 0.5).astype(np.float32)[:, None]


def step(state: Any, measured: Any) -> Any:
    """One measurement: what is expected of it, and the correction."""
    mean, cov = state
    mean, cov = F @ mean, F @ cov @ F.T + Q
    surprise = measured - H @ mean
    spread = H @ cov @ H.T + R
    gain = cov @ H.T / spread
    mean, cov = mean + gain @ surprise, cov - gain @ H @ cov
    return (mean, cov), (mean, dsl.reshape(spread, ()))


def program() -> dict[str, Any]:
    """The estimates after each measurement, and the last covariance."""
    measured = dsl.placeholder("measured", "float32", ["n", 1])
    start = (np.float32([0, 0]), np.eye(2, dtype=np.float32) * np.float32(10))
    (_, cov), (means, spreads) = dsl.scan(step, start, measured)
    return {"means": means, "spreads": spreads, "covariance": cov}


def main(backend: str = "numpy") -> dict[str, np.ndarray]:
    """Filters."""
    found = ik.compile(program(), backend=backend).run({"measured": data()})
    position, speed = found["means"][-1]
    print(f"position {position:.2f}, speed {speed:.3f}, their covariance {found['covariance'].round(4).tolist()}")
    return found


if __name__ == "__main__":
    main()
