"""Optimizers as graphs: each a dataclass that says which slots it keeps per parameter and how one update is built.

An update is built over values of a builder, and needs no module around it:

>>> import irkit as ik
>>> from irkit.passes.training.optimizers import Context
>>> b = ik.Builder("update")
>>> w, g = b.input("w", "float32", [2]), b.input("g", "float32", [2])
>>> rule = ik.optimizers.SGD(0.5)
>>> new, slots = rule.update(Context.of(b, rule, b.constant(0)), w, g, {})
>>> b.output(new, "w'")
>>> ik.compile(b.module())(w=[1, 2], g=[1, -1])
array([0.5, 2.5], dtype=float32)

What Keras 3 has follows Keras: its formulas, defaults and places of epsilon. Where torch differs, an option says so:

==============================  ======================================================================================
``epsilon_hat`` (Adam, AdamW)   True (Keras; the end of section 2 of Kingma and Ba, 2014): epsilon is added before the
                                bias of the second moment is corrected; False (torch; algorithm 1): after
``weight_decay``                decoupled everywhere: ``w -= rate * weight_decay * w`` before the update (Loshchilov and
                                Hutter, 2017). torch's ``SGD(weight_decay=d)`` is ``regularizers.L2(d / 2)``
==============================  ======================================================================================

Moments are kept divided by ``1 - beta``, which saves two ops in each update. The corrections of biases are scalars,
computed in float64.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar
from typing import cast as cast_type

import numpy as np

from irkit.errors import IrkitError
from irkit.ir.builder import Builder, Tensor
from irkit.passes.registry import suggestion
from irkit.passes.training.schedules import Rate, Schedule, rate_of
from irkit.passes.training.values import cast, number

__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Context",
    "Lamb",
    "Lion",
    "Muon",
    "Nadam",
    "Optimizer",
    "RMSprop",
    "Slot",
    "get",
]

Slots = Mapping[str, Tensor]
"""What an optimizer keeps of one parameter, by the slot's name."""


@dataclass(frozen=True)
class Slot:
    """What is kept of a parameter, of its dtype.

    Attributes:
        fill: every element of it at the beginning.
        without: an axis of the parameter (from the end) over which it does not extend.
    """

    fill: float = 0.0
    without: int | None = None

    def initial(self, shape: Sequence[int], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Its value at the beginning, for a parameter of this shape."""
        kept = list(shape)
        if self.without is not None:
            del kept[self.without]
        return np.broadcast_to(np.asarray(self.fill, kind), tuple(kept))


@dataclass(frozen=True)
class Context:
    """What all parameters' updates of one step share.

    Attributes:
        b: builds the update.
        rate: the learning rate, a float32 scalar.
        count: which update it is, 1 for the first: a float64 scalar.
        shared: the optimizer's own scalars (float32), after this step.
    """

    b: Builder
    rate: Tensor
    count: Tensor
    shared: Slots = field(default_factory=dict[str, Tensor])

    @classmethod
    def of(cls, b: Builder, optimizer: Optimizer, step: Tensor, shared: Slots | None = None) -> Context:
        """That of the update before which ``step`` (an int64 scalar) others were done."""
        rate = rate_of(b, optimizer.learning_rate, cast(b, step, "float32"))
        return cls(b, rate, cast(b, step, "float64") + 1.0, shared or {})

    def number(self, value: Tensor, like: Tensor) -> Tensor:
        """A scalar in the dtype of another tensor."""
        return cast(self.b, value, like)

    def correction(self, beta: float) -> Tensor:
        """``1 - beta ** count``, a float64 scalar."""
        return 1.0 - self.b.Pow(self.b.constant(beta, "float64"), self.count)

    def wide(self, value: Tensor) -> Tensor:
        """A scalar in float64."""
        return cast(self.b, value, "float64")


_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("learning_rate", "weight_decay", "epsilon", "epsilon_1", "epsilon_2"), (0.0, math.inf)),
    **dict.fromkeys(("beta_1", "beta_2", "rho", "momentum"), (0.0, 1.0)),
}
"""Per field, where an optimizer has it, the least value and the one that it stays below."""


@dataclass(frozen=True)
class Optimizer(ABC):
    """What all optimizers have.

    Attributes:
        learning_rate: a number, or a schedule.
        weight_decay: decoupled: how much of a parameter goes per update, times the rate.
        no_decay: patterns of names of parameters that are left out of weight decay.
        elementwise: whether every element is updated by itself, so that parameters may be packed into one vector.
        scalars: initial values of scalars that the optimizer keeps besides slots.
    """

    learning_rate: Rate = 0.001
    weight_decay: float = field(default=0.0, kw_only=True)
    no_decay: Sequence[str] = field(default=(), kw_only=True)

    elementwise: ClassVar[bool] = True
    scalars: ClassVar[Mapping[str, float]] = {}

    def __post_init__(self) -> None:
        if not isinstance(self.learning_rate, Real | Schedule):
            raise IrkitError(f"learning_rate={self.learning_rate!r} is neither a number nor a schedule")
        for name, (least, below) in _RANGES.items():
            value = getattr(self, name, None)
            if isinstance(value, Real) and not least <= float(value) < below:
                bound = f" and less than {below:g}" if below < math.inf else " and finite"
                raise IrkitError(f"{type(self).__name__}: {name}={value}, and it is at least {least:g}{bound}")

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        """The slots of a parameter of this shape."""
        return {}

    def advance(self, c: Context, scalars: Slots) -> dict[str, Tensor]:
        """The optimizer's own scalars after a step, from those before."""
        return {}

    @abstractmethod
    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        """The parameter and its slots after an update by a gradient of the parameter's shape and dtype."""

    def decayed(self, c: Context, w: Tensor) -> Tensor:
        """A parameter after weight decay."""
        return w * c.number(1.0 - c.rate * self.weight_decay, w) if self.weight_decay else w


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent, with momentum (Polyak, 1964) or Nesterov's (Sutskever et al., 2013), as Keras has it.

    ``v = momentum v - rate g``, then ``w += v``, for Nesterov ``w += momentum v - rate g``. While the rate does not
    change, torch's, which leaves the rate out of v, gives the same.
    """

    learning_rate: Rate = 0.01
    momentum: float = field(default=0.0, kw_only=True)
    nesterov: bool = field(default=False, kw_only=True)

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {"momentum": Slot()} if self.momentum else {}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        step = g * c.number(c.rate, g)
        if not self.momentum:
            return w - step, {}
        v = s["momentum"] * self.momentum - step
        return w + (v * self.momentum - step if self.nesterov else v), {"momentum": v}


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Hinton's lecture 6e, as Keras has it: ``w -= rate g / sqrt(v + epsilon)``, ``v`` the running mean of ``g^2``.

    ``centered`` takes the square of the running mean of g from v (Graves, 2013). torch puts epsilon outside the root.
    """

    rho: float = field(default=0.9, kw_only=True)
    momentum: float = field(default=0.0, kw_only=True)
    epsilon: float = field(default=1e-7, kw_only=True)
    centered: bool = field(default=False, kw_only=True)

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        kept = ["velocity", *["momentum"] * bool(self.momentum), *["mean"] * self.centered]
        return {name: Slot() for name in kept}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        new = {"velocity": s["velocity"] * self.rho + g * g * (1 - self.rho)}
        spread = new["velocity"]
        if self.centered:
            new["mean"] = s["mean"] * self.rho + g * (1 - self.rho)
            spread = spread - new["mean"] * new["mean"]
        step = g * c.number(c.rate, g) / c.b.Sqrt(spread + self.epsilon)
        if self.momentum:
            new["momentum"] = step = s["momentum"] * self.momentum + step
        return w - step, new


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Duchi et al. (2011), as Keras has it: ``w -= rate g / sqrt(sum of g^2 + epsilon)``."""

    initial_accumulator: float = field(default=0.1, kw_only=True)
    epsilon: float = field(default=1e-7, kw_only=True)

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {"accumulator": Slot(self.initial_accumulator)}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        total = s["accumulator"] + g * g
        return w - g * c.number(c.rate, g) / c.b.Sqrt(total + self.epsilon), {"accumulator": total}


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """Zeiler (2012), as Keras and torch have it: the step is ``g rms(steps) / rms(gradients)``, times the rate."""

    rho: float = field(default=0.95, kw_only=True)
    epsilon: float = field(default=1e-7, kw_only=True)

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {"gradients": Slot(), "steps": Slot()}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        b, rest = c.b, 1 - self.rho
        gradients = s["gradients"] * self.rho + g * g * rest
        step = g * b.Sqrt((s["steps"] + self.epsilon) / (gradients + self.epsilon))
        steps = s["steps"] * self.rho + step * step * rest
        return w - step * c.number(c.rate, g), {"gradients": gradients, "steps": steps}


@dataclass(frozen=True)
class Adam(Optimizer):
    """Kingma and Ba (2014); with ``amsgrad``, Reddi et al. (2018).

    ``w -= rate / (1 - beta_1^t) m / (sqrt(v / (1 - beta_2^t)) + epsilon)``; see the module for ``epsilon_hat``. Keras's
    amsgrad and torch's take the greatest v before its bias is corrected.
    """

    beta_1: float = field(default=0.9, kw_only=True)
    beta_2: float = field(default=0.999, kw_only=True)
    epsilon: float = field(default=1e-7, kw_only=True)
    epsilon_hat: bool = field(default=True, kw_only=True)
    amsgrad: bool = field(default=False, kw_only=True)

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {name: Slot() for name in ("m", "v", *["v_max"] * self.amsgrad)}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        b = c.b
        new = {"m": s["m"] * self.beta_1 + g, "v": s["v"] * self.beta_2 + g * g}
        spread = new["v"]
        if self.amsgrad:
            new["v_max"] = spread = b.Max(s["v_max"], spread)
        # With v kept divided by 1 - beta_2: sqrt(v / (1 - beta_2^t)) is its root divided by this.
        root = b.Sqrt(c.correction(self.beta_2)) / math.sqrt(1 - self.beta_2)
        size = c.wide(c.rate) * (1 - self.beta_1) * root / c.correction(self.beta_1)
        if self.epsilon_hat:
            bottom = b.Sqrt(spread) + self.epsilon / math.sqrt(1 - self.beta_2)
        else:
            bottom = b.Sqrt(spread) + c.number(root * self.epsilon, g)
        return w - new["m"] / bottom * c.number(size, g), new


@dataclass(frozen=True)
class AdamW(Adam):
    """``Adam`` with decoupled weight decay (Loshchilov and Hutter, 2017); Keras's default decay."""

    weight_decay: float = field(default=0.004, kw_only=True)


@dataclass(frozen=True)
class Adamax(Optimizer):
    """Adam with the maximum norm (Kingma and Ba, 2014, section 7.1): ``w -= rate m / ((1 - beta_1^t)(u + epsilon))``.

    ``u = max(beta_2 u, |g|)``, as Keras has it; torch adds epsilon to ``|g|`` instead.
    """

    beta_1: float = field(default=0.9, kw_only=True)
    beta_2: float = field(default=0.999, kw_only=True)
    epsilon: float = field(default=1e-7, kw_only=True)

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {"m": Slot(), "u": Slot()}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        m, u = s["m"] * self.beta_1 + g, c.b.Max(s["u"] * self.beta_2, c.b.Abs(g))
        size = c.wide(c.rate) * (1 - self.beta_1) / c.correction(self.beta_1)
        return w - m / (u + self.epsilon) * c.number(size, g), {"m": m, "u": u}


@dataclass(frozen=True)
class Nadam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016), as Keras has it; torch's is the same with a decay of 0.004."""

    beta_1: float = field(default=0.9, kw_only=True)
    beta_2: float = field(default=0.999, kw_only=True)
    epsilon: float = field(default=1e-7, kw_only=True)

    scalars: ClassVar[Mapping[str, float]] = {"product": 1.0}

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {"m": Slot(), "v": Slot()}

    def _momentum(self, c: Context, count: Tensor) -> Tensor:
        return (1.0 - c.b.Pow(c.b.constant(0.96, "float64"), count) * 0.5) * self.beta_1

    def advance(self, c: Context, scalars: Slots) -> dict[str, Tensor]:
        return {"product": c.number(c.wide(scalars["product"]) * self._momentum(c, c.count), scalars["product"])}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        b, product = c.b, c.wide(c.shared["product"])
        m, v = s["m"] * self.beta_1 + g, s["v"] * self.beta_2 + g * g
        now, then = self._momentum(c, c.count), self._momentum(c, c.count + 1.0)
        root = b.Sqrt(c.correction(self.beta_2)) / math.sqrt(1 - self.beta_2)
        size = c.wide(c.rate) * root
        of_m = size * (1 - self.beta_1) * then / (1.0 - product * then)
        of_g = size * (1.0 - now) / (1.0 - product)
        top = m * c.number(of_m, g) + g * c.number(of_g, g)
        return w - top / (b.Sqrt(v) + c.number(root * self.epsilon, g)), {"m": m, "v": v}


@dataclass(frozen=True)
class Lion(Optimizer):
    """Chen et al. (2023), algorithm 2: ``w -= rate sign(beta_1 m + (1 - beta_1) g)``."""

    beta_1: float = field(default=0.9, kw_only=True)
    beta_2: float = field(default=0.99, kw_only=True)

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {"m": Slot()}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        # With m kept divided by 1 - beta_2; a sign does not see a common factor.
        share = (1 - self.beta_1) / (self.beta_1 * (1 - self.beta_2))
        direction = c.b.Sign(s["m"] + g * share)
        return w - direction * c.number(c.rate, g), {"m": s["m"] * self.beta_2 + g}


@dataclass(frozen=True)
class Lamb(Optimizer):
    """Adam's direction scaled to each parameter's own norm (You et al., 2019), as Keras has it.

    Weight decay is decoupled, as everywhere here; the paper adds it to the direction.
    """

    beta_1: float = field(default=0.9, kw_only=True)
    beta_2: float = field(default=0.999, kw_only=True)
    epsilon: float = field(default=1e-7, kw_only=True)

    elementwise: ClassVar[bool] = False

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {"m": Slot(), "v": Slot()}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        b = c.b
        m, v = s["m"] * self.beta_1 + g, s["v"] * self.beta_2 + g * g
        root = b.Sqrt(c.correction(self.beta_2)) / math.sqrt(1 - self.beta_2)
        size = root * (1 - self.beta_1) / c.correction(self.beta_1)
        direction = m / (b.Sqrt(v) + c.number(root * self.epsilon, g)) * c.number(size, g)
        of_w, of_step = (b.Sqrt(b.ReduceSum(x * x, keepdims=0)) for x in (w, direction))
        usable = b.And(of_w > 0.0, of_step > 0.0)
        one = number(b, 1.0, g)
        ratio = b.Where(usable, of_w / b.Where(usable, of_step, one), one)
        return w - direction * (ratio * c.number(c.rate, g)), {"m": m, "v": v}


@dataclass(frozen=True)
class Adafactor(Optimizer):
    """Second moments as an outer product of two vectors (Shazeer and Stern, 2018), as Keras has it.

    The rate is at most ``1 / sqrt(t)``, and is multiplied by the root mean square of the parameter.
    """

    beta_2_decay: float = field(default=-0.8, kw_only=True)
    epsilon_1: float = field(default=1e-30, kw_only=True)
    epsilon_2: float = field(default=1e-3, kw_only=True)
    clip_threshold: float = field(default=1.0, kw_only=True)

    elementwise: ClassVar[bool] = False

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {"rows": Slot(without=-1), "columns": Slot(without=-2)} if len(shape) > 1 else {"v": Slot()}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        b = c.b
        slow = 1.0 / b.Sqrt(c.count)
        size = b.Min(c.wide(c.rate), slow)
        size = b.Max(b.constant(self.epsilon_2, "float64"), c.wide(_rms(b, w))) * size
        kept = c.number(1.0 - b.Pow(c.count, b.constant(self.beta_2_decay, "float64")), g)
        square = g * g + self.epsilon_1
        new: dict[str, Tensor] = {}
        if "v" in s:
            new["v"] = spread = s["v"] * kept + square * (1.0 - kept)
        else:
            for name, axis in (("rows", -1), ("columns", -2)):
                new[name] = s[name] * kept + b.ReduceMean(square, [axis], keepdims=0) * (1.0 - kept)
            rows = new["rows"] / b.ReduceMean(new["rows"], [-1], keepdims=1)
            spread = b.Unsqueeze(rows, [-1]) * b.Unsqueeze(new["columns"], [-2])
        direction = g / b.Sqrt(spread)
        direction = direction / b.Max(_rms(b, direction) / self.clip_threshold, 1.0)
        return w - direction * c.number(size, g), new


@dataclass(frozen=True)
class Muon(Optimizer):
    """Momentum made orthogonal by five Newton-Schulz steps (Jordan et al., 2024), for matrices; Adam for the rest.

    A parameter of higher rank counts as the matrix of its first axis by all others. The step is scaled by
    ``max(1, rows / columns) ** 0.5``, as the authors do.

    Attributes:
        adam_rate: the rate for what is no matrix, as a part of the learning rate.
    """

    learning_rate: Rate = 0.02
    momentum: float = field(default=0.95, kw_only=True)
    nesterov: bool = field(default=True, kw_only=True)
    steps: int = field(default=5, kw_only=True)
    adam_rate: float = field(default=0.05, kw_only=True)

    elementwise: ClassVar[bool] = False

    def slots(self, shape: Sequence[int]) -> dict[str, Slot]:
        return {"momentum": Slot()} if len(shape) > 1 else {"m": Slot(), "v": Slot()}

    def update(self, c: Context, w: Tensor, g: Tensor, s: Slots) -> tuple[Tensor, dict[str, Tensor]]:
        b = c.b
        if "m" in s:
            slower = Context(b, c.rate * self.adam_rate, c.count)
            return Adam().update(slower, w, g, s)
        m = s["momentum"] * self.momentum + g
        direction = g + m * self.momentum if self.nesterov else m
        rows, columns = _as_matrix(w)
        x = b.Reshape(direction, [rows, columns])
        made = _orthogonal(b, x if rows <= columns else b.Transpose(x), self.steps)
        made = made if rows <= columns else b.Transpose(made)
        step = b.Reshape(made, list(w.shape or ())) * max(1.0, rows / columns) ** 0.5
        return w - step * c.number(c.rate, g), {"momentum": m}


def _as_matrix(w: Tensor) -> tuple[int, int]:
    sizes = [int(d) for d in w.shape or () if isinstance(d, int)]
    return sizes[0], math.prod(sizes[1:])


def _orthogonal(b: Builder, x: Tensor, steps: int) -> Tensor:
    """About the nearest orthogonal matrix: an odd polynomial of the singular values, again and again."""
    x = x / (b.Sqrt(b.ReduceSum(x * x, keepdims=0)) + 1e-7)
    for _ in range(steps):
        square = x @ b.Transpose(x)
        x = x * 3.4445 + (square * -4.7750 + (square @ square) * 2.0315) @ x
    return x


def _rms(b: Builder, x: Tensor) -> Tensor:
    return b.Sqrt(b.ReduceMean(x * x, keepdims=0))


_NAMES: dict[str, type[Optimizer]] = {
    cls.__name__.lower(): cls
    for cls in (SGD, RMSprop, Adagrad, Adadelta, Adam, AdamW, Adamax, Nadam, Lion, Lamb, Adafactor, Muon)
}
"""Name, in lower case, -> class."""


def get(optimizer: str | Optimizer, **options: Any) -> Optimizer:
    """An optimizer by its name (``"adam"``; upper and lower case are one), with options; an optimizer as it is.

    Raises:
        IrkitError: for an unknown name or option.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    if not isinstance(cast_type(object, optimizer), str):
        raise IrkitError(
            f"{getattr(optimizer, '__name__', repr(optimizer))} is no optimizer",
            hint="give a name, 'adam' say, or an object with its rate: irkit.optimizers.Adam(0.01)",
        )
    cls = _NAMES.get(optimizer.lower())
    if cls is None:
        hint = suggestion(optimizer, sorted(_NAMES), "optimizers")
        raise IrkitError(f"there is no optimizer '{optimizer}'", hint=hint)
    known = sorted(cls.__dataclass_fields__)
    for name in options:
        if name not in known:
            raise IrkitError(f"optimizer '{optimizer}' has no option '{name}'", hint=suggestion(name, known, "options"))
    return cls(**options)
