"""How weights begin, by Keras's names.

An initializer is a function of a shape and a dtype. Random ones draw from NumPy's Philox generator, seeded by their
``seed``, or else by ``set_seed`` and how many have been drawn since.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from irkit.errors import IrkitError

__all__ = ["Initializer", "get", "names", "set_seed"]

Array = np.ndarray[Any, Any]
_STATE = {"seed": 0, "drawn": 0}


def set_seed(seed: int) -> None:
    """Makes what is drawn from here on the same every time."""
    _STATE.update(seed=seed, drawn=0)


def _generator(seed: int | None) -> np.random.Generator:
    if seed is not None:
        return np.random.Generator(np.random.Philox(seed))
    _STATE["drawn"] += 1
    return np.random.Generator(np.random.Philox([_STATE["seed"], _STATE["drawn"]]))


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """How many inputs and outputs a unit has: of a matrix (in, out), a kernel (*window, in, out), a vector (n,)."""
    if len(shape) < 2:
        size = shape[0] if shape else 1
        return size, size
    window = math.prod(shape[:-2])
    return window * shape[-2], window * shape[-1]


class Initializer:
    """The base of initializers; subclasses are dataclasses whose fields are Keras's arguments."""

    def draw(self, shape: tuple[int, ...]) -> Array:
        """The values, in float64 or any other dtype."""
        raise NotImplementedError

    def __call__(self, shape: Sequence[int], dtype: str = "float32") -> Array:
        return np.asarray(self.draw(tuple(shape))).astype(dtype)


@dataclass
class Zeros(Initializer):
    """All 0."""

    def draw(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape)


@dataclass
class Ones(Initializer):
    """All 1."""

    def draw(self, shape: tuple[int, ...]) -> Array:
        return np.ones(shape)


@dataclass
class Constant(Initializer):
    """All one number, or an array that broadcasts."""

    value: Any = 0.0

    def draw(self, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(np.asarray(self.value), shape)


@dataclass
class Identity(Initializer):
    """A multiple of the identity matrix."""

    gain: float = 1.0

    def draw(self, shape: tuple[int, ...]) -> Array:
        return self.gain * np.eye(shape[0], shape[1])


@dataclass
class RandomNormal(Initializer):
    """Normal."""

    mean: float = 0.0
    stddev: float = 0.05
    seed: int | None = None

    def draw(self, shape: tuple[int, ...]) -> Array:
        return _generator(self.seed).normal(self.mean, self.stddev, shape)


@dataclass
class TruncatedNormal(Initializer):
    """Normal; what lies more than two standard deviations from the mean is drawn again."""

    mean: float = 0.0
    stddev: float = 0.05
    seed: int | None = None

    def draw(self, shape: tuple[int, ...]) -> Array:
        return self.mean + self.stddev * _truncated(_generator(self.seed), shape)


def _truncated(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    drawn = rng.standard_normal(shape)
    while (far := np.abs(drawn) > 2).any():
        drawn[far] = rng.standard_normal(int(far.sum()))
    return drawn


@dataclass
class RandomUniform(Initializer):
    """Uniform between two numbers."""

    minval: float = -0.05
    maxval: float = 0.05
    seed: int | None = None

    def draw(self, shape: tuple[int, ...]) -> Array:
        return _generator(self.seed).uniform(self.minval, self.maxval, shape)


@dataclass
class Orthogonal(Initializer):
    """A matrix with orthonormal rows or columns (Saxe et al. 2013); more axes are flattened but the last."""

    gain: float = 1.0
    seed: int | None = None

    def draw(self, shape: tuple[int, ...]) -> Array:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        drawn = _generator(self.seed).standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(drawn)
        q *= np.sign(np.diag(r))
        return self.gain * (q.T if rows < columns else q).reshape(shape)


@dataclass
class VarianceScaling(Initializer):
    """Scaled so that the variance is ``scale / n``, n the inputs, the outputs, or their mean.

    Args:
        mode: ``"fan_in"``, ``"fan_out"`` or ``"fan_avg"``.
        distribution: ``"truncated_normal"``, ``"untruncated_normal"`` or ``"uniform"``.
    """

    scale: float = 1.0
    mode: str = "fan_in"
    distribution: str = "truncated_normal"
    seed: int | None = None

    SPREAD: ClassVar[float] = 0.87962566103423978
    """The standard deviation of a standard normal that is cut off at 2."""

    def draw(self, shape: tuple[int, ...]) -> Array:
        fan_in, fan_out = fans(shape)
        count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        variance = self.scale / max(1.0, count)
        rng = _generator(self.seed)
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            return rng.uniform(-limit, limit, shape)
        if self.distribution == "untruncated_normal":
            return rng.normal(0, math.sqrt(variance), shape)
        return math.sqrt(variance) / self.SPREAD * _truncated(rng, shape)


def _scaled(scale: float, mode: str, distribution: str) -> Callable[..., VarianceScaling]:
    return lambda seed=None: VarianceScaling(scale, mode, distribution, seed)


_NAMED: dict[str, Callable[..., Initializer]] = {
    "zeros": Zeros,
    "ones": Ones,
    "constant": Constant,
    "identity": Identity,
    "random_normal": RandomNormal,
    "truncated_normal": TruncatedNormal,
    "random_uniform": RandomUniform,
    "uniform": RandomUniform,
    "normal": RandomNormal,
    "orthogonal": Orthogonal,
    "variance_scaling": VarianceScaling,
    "glorot_uniform": _scaled(1, "fan_avg", "uniform"),
    "glorot_normal": _scaled(1, "fan_avg", "truncated_normal"),
    "he_uniform": _scaled(2, "fan_in", "uniform"),
    "he_normal": _scaled(2, "fan_in", "truncated_normal"),
    "lecun_uniform": _scaled(1, "fan_in", "uniform"),
    "lecun_normal": _scaled(1, "fan_in", "truncated_normal"),
}


def names() -> list[str]:
    """The names that ``get`` knows."""
    return sorted(_NAMED)


def get(what: Any) -> Callable[..., Array]:
    """The initializer of a name, or what is given itself, if it can be called.

    Raises:
        IrkitError: if there is none of that name.
    """
    if isinstance(what, str):
        found = _NAMED.get(what)
        if found is None:
            raise IrkitError(f"there is no initializer '{what}'", hint=f"there are: {', '.join(names())}")
        return found()
    if not callable(what):
        raise IrkitError(f"{what!r} is no initializer", hint="give a name, an Initializer, or a function of a shape")
    return cast("Callable[..., Array]", what)
