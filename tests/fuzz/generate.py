"""Random graphs: each op added is executed at once, which gives its shapes, and is taken back if its values are bad.

A graph comes from a source of choices: a seeded generator (``Seeded``), or Hypothesis, which then shrinks it
(``graphs``). The smallest choice is the simplest one everywhere.

Values that every right implementation computes to the same bits are *exact*. The others carry shadows: the same graph
run with every inexact result, and every operand of an inexact op, a few roundings off. An op on which the shadows come
out very different, such as a Floor of something that is 2 up to rounding, is not added, so that no graph depends on how
its numbers are rounded; how far the shadows lie apart is the error to be expected.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from xdsl.dialects.builtin import NoneType

import irkit as ik
from irkit.errors import IrkitError
from irkit.ir.dtypes import BY_NAME, DType
from irkit.ir.op import OpSpec, TensorOp, type_string
from irkit.ir.types import tensor, tensor_info

from .arrays import close, has_floats, is_narrow, off, random_array, useless, within
from .graph import Body, Built, Graph, Step, Value, build, context
from .registry import EXACT, RANDOM, ROUNDING, SAMPLERS, SCALES

__all__ = [
    "Call",
    "Choices",
    "Context",
    "Judge",
    "KernelFault",
    "Reject",
    "Seeded",
    "allowed",
    "graphs",
    "op_names",
    "random_graph",
]

T = TypeVar("T")

ROUNDINGS = 2.0
"""By how many units in the last place a shadow is off, at most, at each inexact op."""


class Reject(Exception):
    """There is no valid call of the op here; another is tried."""


class KernelFault(AssertionError):
    """A kernel failed by something else than a ``KernelError``, whatever it was given."""


_FAULT = re.compile(r"\w+(Error|Exception): ")


class Choices(Protocol):
    """Where choices come from."""

    def below(self, n: int) -> int:
        """One of 0, 1, ..., n - 1."""
        ...

    def group(self, function: Callable[[], T]) -> T:
        """What the function returns; what it chooses belongs together."""
        ...


class Seeded:
    """Choices by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, n: int) -> int:
        return self._random.randrange(n)

    def group(self, function: Callable[[], T]) -> T:
        return function()


class _Drawn:
    """Choices by Hypothesis."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def below(self, n: int) -> int:
        return self.draw(st.integers(0, n - 1)) if n > 1 else 0

    def group(self, function: Callable[[], T]) -> T:
        return self.draw(_group(self, function))


@st.composite
def _group(draw: st.DrawFn, drawn: _Drawn, function: Callable[[], Any]) -> Any:
    outer, drawn.draw = drawn.draw, draw
    try:
        return function()
    finally:
        drawn.draw = outer


class Judge:
    """What else a graph must keep to; this one takes everything."""

    def before(self, step: Step) -> bool:
        """Whether to try a step, whose results are not known yet."""
        return True

    def after(self, step: Step, built: Built) -> bool:
        """Whether to take a step, given the module that holds it alone."""
        return True


@dataclass
class Call:
    """What a sampler asks for.

    Attributes:
        operands: values, or arrays and lists of integers, which become constants.
        outputs: how many results.
        exact: overrides what is said of the op.
        perturb: the operands whose roundings matter, where it is not all floats.
    """

    operands: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    bodies: dict[str, Body] = field(default_factory=dict[str, Body])
    outputs: int | None = None
    exact: bool | None = None
    perturb: Sequence[int] | None = None


_TYPES = {type_string(tensor(d, ())): d for d in BY_NAME.values() if not d.name.startswith("float6")}


def allowed(spec: OpSpec, operand: int | str) -> list[DType]:
    """The element types that an operand, or a type variable, may have, commonest first."""
    name = operand if isinstance(operand, str) else spec.inputs[min(operand, len(spec.inputs) - 1)].type
    texts = spec.variables.get(name, frozenset((name,)))
    return [d for text, d in _TYPES.items() if text in texts]


@dataclass
class Context:
    """A graph in the making, as samplers see it.

    Attributes:
        pool: the values in scope.
        steps: of the graph, or of the body, that is being made.
        depth: how many bodies deep.
        least: how many steps there must be.
        rejected: why steps were not taken, counted.
    """

    choices: Choices
    judge: Judge
    names: Sequence[str] = ()
    pool: list[Value] = field(default_factory=list[Value])
    steps: list[Step] = field(default_factory=list[Step])
    depth: int = 0
    least: int = 1
    rejected: Counter[str] = field(default_factory=Counter[str])

    # Choices

    def below(self, n: int) -> int:
        """One of 0, ..., n - 1."""
        return self.choices.below(n)

    def between(self, low: int, high: int) -> int:
        """An integer of this range, both ends included; the simplest is the lowest."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """One of these; the simplest is the first."""
        if not options:
            raise Reject("nothing to choose from")
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        """True once in so many times."""
        return self.below(one_in) == one_in - 1

    def maybe(self, **options: Any) -> dict[str, Any]:
        """Some of these attributes; a list or tuple given for one stands for a choice."""
        return {
            name: self.pick(value) if isinstance(value, list | tuple) else value
            for name, value in options.items()
            if self.below(2)
        }

    def rng(self) -> np.random.Generator:
        """A generator for the elements of arrays."""
        return np.random.default_rng(self.below(1 << 16))

    def dims(self, low: int, high: int, least: int = 0, most: int = 4) -> tuple[int, ...]:
        """A shape: its rank from low to high, its sizes from ``least`` to ``most``; rarely 0."""
        rank = self.between(low, high)
        sizes = [d for d in (2, 3, 1, *range(4, most + 1)) if least <= d <= most]
        if least == 0 and self.chance(8):
            sizes = [0, *sizes]
        return tuple(self.pick(sizes) for _ in range(rank))

    def dtype(self, types: Sequence[DType]) -> DType:
        """One of these dtypes, the first most often."""
        if not types:
            raise Reject("no dtype")
        return types[0] if self.below(2) else self.pick(types)

    # Values

    def take(
        self,
        types: Sequence[DType],
        low: int = 0,
        high: int = 4,
        *,
        span: tuple[float, float] | None = None,
        least: int = 0,
        fits: Callable[[Value], bool] = lambda value: True,
        shape: Callable[[], Sequence[int]] | None = None,
        fresh: int = 3,
    ) -> Value:
        """A tensor: one of those in scope, or (at least once in so many times as ``fresh``) a new one.

        Args:
            low, high: of the rank.
            span: of the elements.
            least: of every size.
            fits: what else it must fulfil.
            shape: makes the shape of a new one.
        """
        if self.below(fresh):
            found = [
                v
                for v in self.pool
                if v.is_tensor
                and v.dtype in types
                and low <= v.array.ndim <= high
                and min(v.shape, default=least) >= least
                and (span is None or within(v.array, span))
                and fits(v)
            ]
            if found:
                return found[-1 - self.below(len(found))]
        return self.make(self.dtype(types), shape() if shape is not None else self.dims(low, high, least), span)

    def make(self, dtype: DType, shape: Sequence[int], span: tuple[float, float] | None = None) -> Value:
        """A new tensor, as an input or a constant."""
        array = random_array(self.rng(), dtype, tuple(shape), span, self.below(3))
        origin = self.pick(("input", "input", "constant", "initializer"))
        if origin == "initializer" and self.depth:
            origin = "constant"
        value = Value.of(array, origin, symbolic=origin == "input" and self.chance(4))
        if origin == "input":
            self.pool.append(value)
        return value

    def given(self, array: Any, dtype: str | DType = "int64") -> Value:
        """A value known in advance: mostly a constant, at times an input."""
        kind = dtype if isinstance(dtype, DType) else BY_NAME[dtype]
        origin = "input" if self.chance(6) else "constant"
        return Value.of(np.asarray(array, kind.numpy), origin)

    # Steps

    def grow(self, most: int) -> None:
        """Adds steps, at most so many."""
        done = 0
        while done < most and (self.choices.group(self._step) or not done):
            done += 1

    def _step(self) -> bool:
        """Adds a step, or says that there are enough."""
        if len(self.steps) >= (self.least if self.depth == 0 else 1) and not self.below(10):
            return False
        for _ in range(6):
            name = self.pick(self.names)
            for _ in range(2):
                if self.attempt(name):
                    return True
        return True

    def attempt(self, name: str) -> bool:
        """Tries to add an op."""
        mark = len(self.pool)
        try:
            self.add(name, SAMPLERS[name](self, spec_of(name)))
        except Reject as error:
            self.rejected[f"{name}: {error}"] += 1
            del self.pool[mark:]
            return False
        return True

    def add(self, name: str, call: Call) -> Step:
        """Adds an op.

        Raises:
            Reject: if it is not valid, or its values are of no use.
        """
        operands = [self._value(x) for x in call.operands]
        exact = name in EXACT if call.exact is None else call.exact
        exact = exact and all(inner.exact for body in call.bodies.values() for inner in body.steps)
        step = Step(name, operands, call.attributes, call.bodies, call.outputs, exact)
        if not self.judge.before(step):
            raise Reject("not for this judge")
        moved: set[Value] = set()
        if not exact:
            read = step.reads() if call.perturb is None else (operands[i] for i in call.perturb)
            moved = {v for v in read if v is not None and has_floats(v.array)}
        try:
            built = build([step], opened=moved)
            run = ik.compile(built.module, "numpy", seed=0)
            found = run.run(built.feeds)
        except IrkitError as error:
            if _FAULT.match(error.message):
                raise KernelFault(f"{step}: {error}") from error
            raise Reject(f"{type(error).__name__} {error.message[:100]}") from None
        for name_, value in built.outputs.items():
            value.array = found[name_]
            if isinstance(value.array, np.ndarray) and tensor_info(value.type) is not None:
                value.type = tensor(value.dtype, value.shape)
            reason = useless(value.array)
            if reason:
                raise Reject(reason)
        if name in ROUNDING and any(is_narrow(v.array) for v in step.results):
            step.exact = False
        self._shadow(step, built, run, moved)
        if not self.judge.after(step, built):
            raise Reject("the judge refused")
        self.steps.append(step)
        self.pool += [v for v in step.results if not isinstance(v.type, NoneType)]
        return step

    def _value(self, given: Any) -> Value | None:
        if given is None or isinstance(given, Value):
            return given
        return Value.of(given, "constant") if isinstance(given, np.ndarray) else self.given(given)

    def _shadow(self, step: Step, built: Built, run: Any, moved: set[Value]) -> None:
        """Runs the step again on shadows of its operands; those of ``moved`` are a little further off."""
        floats = any(has_floats(v.array) for v in (*step.reads(), *step.results))
        if not floats or (step.exact and not any(v.shadows for v in step.reads())):
            return
        made: list[dict[str, Any]] = []
        # The second shadow is off by as much in the other direction: what lies on an edge falls to either side.
        for index, by in enumerate((ROUNDINGS, -ROUNDINGS)):
            rng = np.random.default_rng(len(self.steps))

            def look(value: Value, index: int = index, by: float = by, rng: np.random.Generator = rng) -> Any:
                shown = value.shadows[index] if value.shadows else value.array
                return off(shown, rng, by, relative=True, start=value.array) if value in moved else shown

            try:
                found = run.run(built.feeds_of(look))
            except IrkitError:
                raise Reject("its shadows fail") from None
            if not step.exact:
                least = SCALES.get(step.op, lambda operands: 0.0)([v for v in step.operands if v is not None])
                found = {n: off(v, rng, by, relative=False, least=least) for n, v in found.items()}
            made.append(found)
        for name, value in built.outputs.items():
            shadows = tuple(m[name] for m in made)
            if not all(close(value.array, shadow) for shadow in shadows):
                raise Reject("it depends on rounding")
            value.shadows = shadows

    # Bodies

    def body(self, args: Sequence[Value], results: Callable[[Context], Sequence[Value]], most: int = 4) -> Body:
        """A graph attribute.

        Args:
            args: its arguments, with the values of the first call.
            results: picks the results, and may add steps for them.
        """
        outer, mark = self.steps, len(self.pool)
        self.steps, self.depth = [], self.depth + 1
        self.pool += args
        try:
            self.grow(most)
            found = list(results(self))
            return Body(list(args), self.steps, found)
        finally:
            inputs = [v for v in self.pool[mark:] if v.origin == "input"]
            self.pool[mark:] = inputs
            self.steps, self.depth = outer, self.depth - 1


@cache
def spec_of(name: str) -> OpSpec:
    """The spec of an op by its short name."""
    return cast(type[TensorOp], context().get_op(f"onnx.{name}")).spec


def op_names() -> list[str]:
    """The ops that have a sampler."""
    import_module(f"{__package__}.samplers")  # They need what stands here.
    return list(SAMPLERS)


def random_graph(
    choices: Choices,
    *,
    steps: int = 12,
    least: int = 3,
    names: Sequence[str] | None = None,
    judge: Judge | None = None,
    rejected: Counter[str] | None = None,
) -> Graph:
    """A random graph; ``build`` makes the module and its feeds.

    Args:
        steps, least: how many ops it has at most and at least, those in bodies left out.
        names: the ops to choose from; default: all that have a sampler and draw no random numbers.
        rejected: counts why ops were not added.

    Raises:
        Reject: if not a single op could be added.
    """
    known = op_names()
    chosen = [n for n in known if n not in RANDOM] if names is None else list(names)
    context = Context(choices, judge or Judge(), chosen, least=least)
    if rejected is not None:
        context.rejected = rejected
    with np.errstate(all="ignore"):
        context.grow(steps)
    if not context.steps:
        raise Reject("no op could be added")
    return Graph(context.steps)


@st.composite
def graphs(draw: st.DrawFn, **options: Any) -> Graph:
    """A strategy for ``random_graph``, with its options."""
    try:
        return random_graph(_Drawn(draw), **{"least": 1, **options})
    except Reject:
        reject()
