"""Graphs that passes have something to do on: random ops, and between them what rules look for, by the handful.

An idiom adds a few steps. Those of the rules of ``fuse`` are the rules' own patterns, so that a new rule is tried
without more being written here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from irkit.ir.dtypes import BY_NAME
from irkit.passes.fusion import all_rules
from irkit.passes.rules import Rule

from .generate import Call, Choices, Context, Judge, Reject, op_names
from .graph import Body, Built, Graph, Naming, Step, Value
from .registry import BOOL, F32, I64
from .sketch import Sketch, Term

__all__ = ["IDIOMS", "Subject", "subject"]

Idiom = Callable[["Patterned", Sketch], object]

IDIOMS: dict[str, Idiom] = {}
"""By name; each adds steps."""

FLOATS = [BY_NAME[n] for n in ("float32", "float64", "float16")]
NUMBERS = [*FLOATS, *(BY_NAME[n] for n in ("int64", "int32", "uint8"))]
ANY = [*NUMBERS, *BOOL, BY_NAME["string"]]


@dataclass
class Patterned(Context):
    """A graph in the making in which idioms stand among single ops.

    Attributes:
        hidden: results that are no outputs, although nothing uses them.
        shown: results that are outputs, although something uses them.
    """

    hidden: set[Value] = field(default_factory=set[Value])
    shown: set[Value] = field(default_factory=set[Value])

    def _step(self) -> bool:
        if self.depth or self.chance(3):
            return super()._step()
        if len(self.steps) >= self.least and not self.below(10):
            return False
        for _ in range(6):
            if self.idiom(self.pick(list(IDIOMS))):
                return True
        return True

    def idiom(self, name: str) -> bool:
        """Tries to add an idiom; what there is of it stays."""
        try:
            IDIOMS[name](self, Sketch(self))
        except Reject as error:
            self.rejected[f"{name}: {error}"] += 1
            return False
        return True


@dataclass
class Subject:
    """A graph, and which of its values are its outputs besides those that nothing uses."""

    graph: Graph
    hidden: set[Value]
    shown: set[Value]

    def build(self, sizes: Naming | None = None) -> Built:
        """The module and its feeds."""
        made = [v for step in self.graph.steps for v in step.results]
        leaves = self.graph.leaves()
        wanted = [v for v in leaves if v not in self.hidden] or leaves
        return self.graph.build([*wanted, *(v for v in made if v in self.shown)], sizes)

    def exact(self) -> set[Value]:
        """The values that nothing rounds: those of exact ops on such values."""
        rounded: set[Value] = set()
        for step in self.graph.steps:
            if not step.exact or any(v in rounded for v in step.reads()):
                rounded.update(step.results)
        return {v for step in self.graph.steps for v in step.results if v not in rounded}

    def reduced(self, fails: Callable[[Subject], bool]) -> Subject:
        """A smaller one that still fails."""
        small = self.graph.reduced(lambda graph: fails(Subject(graph, self.hidden, self.shown)))
        return Subject(small, self.hidden, self.shown)


def subject(choices: Choices, *, steps: int = 12) -> Subject:
    """A random graph of which passes can make something.

    Args:
        steps: how many ops and idioms it has at most.
    """
    g = Patterned(choices, Judge(), op_names(), least=2)
    with np.errstate(all="ignore"):
        g.grow(steps)
    if not g.steps:
        raise Reject("no op could be added")
    made = [v for step in g.steps for v in step.results]
    for _ in range(g.below(3)):
        g.shown.add(g.pick(made))
    return Subject(Graph(g.steps), g.hidden, g.shown)


def idiom(function: Idiom) -> Idiom:
    """Declares an idiom."""
    IDIOMS[function.__name__] = function
    return function


# The patterns of rules, by the name that several forms share.


def _forms(name: str) -> Idiom:
    forms = [r for r in all_rules() if isinstance(r, Rule) and r.name == name]
    return lambda g, b: b.pattern(g.pick(forms))


def _of_rules(g: Patterned, b: Sketch) -> None:
    g.pick(_RULES)(g, b)


_RULES = [_forms(name) for name in dict.fromkeys(r.name for r in all_rules() if isinstance(r, Rule) and r.traced)]
# There are more rules than other idioms.
IDIOMS.update({f"rules_{i}": _of_rules for i in range(8)})


def _perm(g: Context, rank: int) -> list[int]:
    left = list(range(rank))
    return [left.pop(g.below(len(left))) for _ in range(rank)]


def _elementwise(g: Context, b: Sketch, x: Term) -> Term:
    return b.op(g.pick(("Relu", "Neg", "Abs", "Identity", "Sigmoid", "Tanh")), x)


@idiom
def transposes(g: Patterned, b: Sketch) -> None:
    """In a row, with something between them at times."""
    x = b.taken(FLOATS, 2, 4)
    for _ in range(g.between(2, 3)):
        x = b.Transpose(x, perm=_perm(g, x.rank)) if g.below(5) else b.Transpose(x)
        if g.chance(3):
            x = _elementwise(g, b, x)


@idiom
def transposes_back(g: Patterned, b: Sketch) -> None:
    """Of two operands alike, which come together elementwise or in a Concat, and are transposed back."""
    x = b.taken(FLOATS, 2, 4)
    perm = _perm(g, x.rank)
    y = b.shaped(x.value.dtype, x.shape)
    left, right = b.Transpose(x, perm=perm), b.Transpose(y, perm=perm)
    if g.below(2):
        both = b.Concat(left, right, axis=g.between(-x.rank, x.rank - 1))
    else:
        both = b.op(
            g.pick(("Add", "Sub", "Max", "Less", "PRelu")), left, right if g.below(3) else b.taken(FLOATS, 0, 1)
        )
    if g.below(3):
        b.Transpose(both, perm=[perm.index(i) for i in range(x.rank)])


@idiom
def layouts(g: Patterned, b: Sketch) -> None:
    """Ops that know axes, between transposes to another layout and back."""
    x = b.taken(FLOATS, 3, 4, least=1)
    perm = _perm(g, x.rank)
    y = b.Transpose(x, perm=perm)
    for _ in range(g.between(1, 4)):
        axis = g.between(-x.rank, x.rank - 1)
        axes = np.array([axis])
        row = b.shaped(y.value.dtype, y.shape[-1:], known=g.below(2) == 0)
        kinds: list[Callable[[], Term]] = [
            lambda y=y: _elementwise(g, b, y),
            lambda y=y, row=row: b.op(g.pick(("Add", "Mul", "Max")), y, row),
            lambda y=y, axis=axis: b.Concat(y, y, axis=axis),
            lambda y=y, axis=axis: b.Softmax(y, axis=axis),
            lambda y=y, axes=axes: b.op(g.pick(("ReduceMax", "ReduceMean", "ReduceSum")), y, axes),
            lambda y=y, axes=axes: b.Unsqueeze(b.ReduceMin(y, axes, keepdims=0), axes),
            lambda y=y, axes=axes: b.Slice(y, np.array([0]), np.array([2]), axes),
            lambda y=y: b.Pad(y, np.array([g.below(2) for _ in range(2 * y.rank)])),
            lambda y=y: b.Tile(y, np.array([g.between(1, 2) for _ in range(y.rank)])),
            lambda y=y, axis=axis: b.Gather(y, np.array([0, 0]), axis=axis),
            lambda y=y, row=row: b.Where(b.op("Less", y, row), y, row),
        ]
        y = g.pick(kinds)()
    if g.below(4):
        b.Transpose(y, perm=[perm.index(i) for i in range(x.rank)])


@idiom
def reshapes(g: Patterned, b: Sketch) -> None:
    """In a row: Reshape, Flatten, Squeeze, Unsqueeze; at times back to where they began."""
    x = first = b.taken(ANY, 1, 4)
    for _ in range(g.between(1, 3)):
        kind = g.below(4)
        if kind == 0:
            x = b.Flatten(x, axis=g.between(-x.rank, x.rank))
        elif kind == 1:
            x = b.Unsqueeze(x, np.array([g.between(-x.rank - 1, x.rank)]))
        elif kind == 2:
            x = b.Squeeze(x) if g.below(2) else b.Squeeze(x, np.array([g.between(-x.rank, max(x.rank - 1, 0))]))
        else:
            x = b.Reshape(x, np.array(g.pick(([-1], [0, -1], [-1, 1], [1, -1], [2, -1], list(x.shape)))))
    if g.below(2):
        b.Reshape(x, np.array(first.shape, np.int64))


@idiom
def axes_in_and_out(g: Patterned, b: Sketch) -> None:
    x = b.taken(ANY, 0, 3)
    axes = sorted({g.between(0, x.rank) for _ in range(g.between(1, 2))})
    b.Squeeze(b.Unsqueeze(x, np.array(axes)), np.array(axes))
    y = b.taken(ANY, 1, 4, fits=lambda v: 1 in v.shape, shape=lambda: (2, 1, 3))
    axis = y.shape.index(1)
    b.Unsqueeze(b.Squeeze(y, np.array([axis])), np.array([axis]))


NEUTRAL = (
    *(("Mul", 1), ("Div", 1), ("Add", -0.0), ("Sub", 0), ("Pow", 1), ("Add", 0), ("Sub", -0.0)),
    *(("BitwiseOr", 0), ("BitwiseXor", 0), ("BitwiseAnd", -1), ("BitShift", 0)),
)


@idiom
def neutral(g: Patterned, b: Sketch) -> None:
    """An operand that changes nothing, or nearly."""
    x = b.taken(NUMBERS, 0, 4)
    name, number = g.pick(NEUTRAL)
    shape = g.pick(((), (1,), x.shape, (1,) * (x.rank + 1)))
    other = b.constant(np.full(shape, number).astype(x.value.array.dtype))
    direction: dict[str, Any] = {"direction": g.pick(("LEFT", "RIGHT"))} if name == "BitShift" else {}
    operands = [x, other] if g.below(3) or name in ("Pow", "Div", "Sub") else [other, x]
    b.op(name, *operands, **direction)


@idiom
def truths(g: Patterned, b: Sketch) -> None:
    """Logic with constants, and Where of one side."""
    x = b.taken(BOOL, 0, 3)
    known = b.constant(np.full(g.pick(((), x.shape, (1,))), bool(g.below(2))))
    b.op(g.pick(("And", "Or", "Xor")), x, known)
    y = b.taken(ANY, 0, 3)
    b.Where(known, y, b.shaped(y.value.dtype, g.pick((y.shape, ()))))


@idiom
def twice(g: Patterned, b: Sketch) -> None:
    name = g.pick(("Neg", "Abs", "Relu", "Ceil", "Floor", "Round", "Sign", "Not", "BitwiseNot"))
    x = b.taken({"Not": BOOL, "BitwiseNot": I64}.get(name, FLOATS), 0, 4)
    for _ in range(g.between(2, 3)):
        x = b.op(name, x)


@idiom
def nothings(g: Patterned, b: Sketch) -> None:
    """Ops that leave all as it is."""
    x = b.taken(ANY, 1, 4)
    floats = b.taken(FLOATS, 1, 4)
    last = x.rank - 1
    for _ in range(g.between(1, 3)):
        kinds: list[Callable[[], object]] = [
            lambda: b.Identity(x),
            lambda: b.Cast(x, to=x.value.dtype.code),
            lambda: b.CastLike(x, x),
            lambda: b.Clip(floats),
            lambda: b.Dropout(floats, outputs=g.between(1, 2)),
            lambda: b.Dropout(floats, np.float32(0.5), np.array(False)),
            lambda: b.Tile(x, np.ones(x.rank, np.int64)),
            lambda: b.Pad(floats, np.zeros(2 * floats.rank, np.int64)),
            lambda: b.Slice(x, np.array([0]), np.array([g.pick((1 << 50, x.shape[last]))]), np.array([last])),
            lambda: b.Split(x, axis=last, num_outputs=1, outputs=1),
            lambda: b.Concat(x, axis=last),
            lambda: b.op(g.pick(("Sum", "Mean", "Max", "Min")), floats),
            lambda: b.ReduceSum(floats, np.array([], np.int64), noop_with_empty_axes=1),
            lambda: b.ReduceMax(floats, noop_with_empty_axes=1),
            lambda: b.Expand(x, np.array(g.pick((x.shape, x.shape[1:], (1,))), np.int64)),
            lambda: b.Reshape(x, np.array(x.shape), allowzero=1),
            lambda: b.Transpose(x, perm=list(range(x.rank))),
            lambda: b.Flatten(b.Flatten(x), axis=1),
            lambda: b.OptionalGetElement(b.Optional(x)),
            lambda: b.OptionalGetElement(x),
        ]
        g.pick(kinds)()


@idiom
def expands(g: Patterned, b: Sketch) -> None:
    """Broadcasting said in words, where the op does it anyway."""
    x = b.taken(FLOATS, 1, 3, least=1)
    wide = (g.between(1, 3), *x.shape)
    left = b.Expand(x, np.array(wide))
    right = b.Expand(b.shaped(x.value.dtype, x.shape[1:]), np.array(wide)) if g.below(2) else b.taken(FLOATS, 0, 0)
    b.op(g.pick(("Add", "Mul", "Sub", "Max")), left, right)


@idiom
def constants(g: Patterned, b: Sketch) -> None:
    """Arithmetic of constants, at last with what is none."""
    x = b.taken(FLOATS, 1, 3)
    kind = x.value.dtype
    made = b.shaped(kind, x.shape, known=True) + b.shaped(kind, x.shape[1:], known=True)
    made = b.op(g.pick(("Mul", "Sub", "Max")), made, 1.5)
    if g.below(2):
        made = b.op(g.pick(("Relu", "Neg", "Abs", "Sqrt")), made)
    b.op(g.pick(("Add", "Mul")), x, made)


@idiom
def sizes(g: Patterned, b: Sketch) -> None:
    """A shape computed from another: Shape, Gather or Slice, Concat, Reshape or Expand."""
    x = b.taken(FLOATS, 2, 4, least=1)
    shape = b.Shape(x)
    if g.below(2):
        first = b.Unsqueeze(b.Gather(shape, np.array(0)), np.array([0]))
    else:
        first = b.Slice(shape, np.array([0]), np.array([1]))
    rest = b.Concat(first, np.array([-1]), axis=0)
    flat = b.Reshape(x, rest)
    if g.below(2):
        b.Reshape(b.op("Relu", flat), shape)
    if g.below(2):
        b.Mul(b.Gather(shape, np.array([0, 1])), b.Size(x))
    if g.below(2):
        b.ConstantOfShape(shape, value=np.array([1.5], np.float32))


def _repeatable(g: Patterned) -> Step:
    return g.pick([s for s in g.steps if not s.bodies])


def _again(g: Patterned, step: Step) -> Step:
    return g.add(step.op, Call(step.operands, dict(step.attributes), outputs=step.outputs))


@idiom
def duplicates(g: Patterned, b: Sketch) -> None:
    """A step again, or the last few of them."""
    step = _again(g, _repeatable(g))
    if g.below(2) and step.results[0].is_tensor:
        b.Identity(Term(step.results[0], b))


@idiom
def dead_code(g: Patterned, b: Sketch) -> None:
    """What nobody wants: steps that are no outputs, and further results."""
    step = _again(g, _repeatable(g))
    g.hidden.update(step.results)
    x = b.taken(FLOATS, 1, 3, least=1)
    wanted, unwanted = b.TopK(x, np.array([1]), outputs=2)
    g.hidden.add(g.pick((wanted, unwanted)).value)


# Control flow


def _body(g: Patterned, args: list[Value], make: Callable[[Sketch], list[Term]]) -> Body:
    """A body of just these steps."""
    return g.body(args, lambda inner: [t.value for t in make(Sketch(inner))], most=0)


def _argument(x: Term) -> Value:
    return Value(x.value.array, x.value.type, "argument", shadows=x.value.shadows)


@idiom
def if_of_constant(g: Patterned, b: Sketch) -> None:
    x = b.taken(FLOATS, 0, 3)
    bodies = {
        "then_branch": _body(g, [], lambda b: [_elementwise(g, b, x)]),
        "else_branch": _body(g, [], lambda b: [b.Identity(x) if g.below(2) else b.Neg(x * 2)]),
    }
    condition = b.constant(np.array(bool(g.below(2)))) if g.below(4) else b.taken(BOOL, 0, 0)
    b.op("If", condition, bodies=bodies)


@idiom
def loops(g: Patterned, b: Sketch) -> None:
    """Of no, one or some trips, with what is the same in each: that can be hoisted."""
    x, y = b.taken(FLOATS, 1, 2, least=1), b.taken(FLOATS, 1, 2, least=1)
    i, going = Value.of(np.array(0), "argument"), Value.of(np.array(True), "argument")
    state = _argument(x)

    def body(b: Sketch) -> list[Term]:
        invariant = _elementwise(g, b, y)
        if g.below(2):
            invariant = b.ReduceMean(invariant * invariant, np.array([-1]))
        now = Term(state, b)
        return [Term(going, b), b.Tanh(now), b.binary("Add", invariant, 1) if g.below(2) else _elementwise(g, b, now)]

    trips = b.constant(np.array(g.pick((1, 0, 2, 3))))
    condition = g.pick((None, b.constant(np.array(True)), b.constant(np.array(g.below(2) == 0))))
    b.op("Loop", trips, condition, x, bodies={"body": _body(g, [i, going, state], body)}, outputs=None)


@idiom
def branches_with_waste(g: Patterned, b: Sketch) -> None:
    """An If of which a result is not wanted."""
    x = b.taken(FLOATS, 0, 3)

    def body(b: Sketch) -> list[Term]:
        return [_elementwise(g, b, x), b.op(g.pick(("Neg", "Abs")), x)]

    condition = b.taken(BOOL, 0, 0)
    results = b.op("If", condition, bodies={n: _body(g, [], body) for n in ("then_branch", "else_branch")})
    g.hidden.add(g.pick(results).value)


# Layers


@idiom
def rotary(g: Patterned, b: Sketch) -> None:
    """RotaryEmbedding in parts, of halves that are sliced or split."""
    batch, heads, places, half = g.between(1, 2), g.between(1, 2), g.between(1, 3), g.between(1, 3)
    x = b.shaped(F32[0], (batch, heads, places, 2 * half))
    angles = b.shaped(F32[0], (batch, places, half))
    both = b.Concat(angles, angles, axis=-1)
    cos, sin = (b.Unsqueeze(b.op(f, both), np.array([1])) for f in ("Cos", "Sin"))
    if g.below(2):
        first, second = b.Split(x, np.array([half, half]), axis=-1, outputs=2)
    else:
        first = b.Slice(x, np.array([0]), np.array([half]), np.array([3]))
        second = b.Slice(x, np.array([half]), np.array([2 * half]), np.array([3]))
    b.binary("Add", x * cos, b.Concat(b.Neg(second), first, axis=-1) * sin)


@idiom
def convolutions(g: Patterned, b: Sketch) -> None:
    """Pad, Conv, factor, summand, BatchNormalization, activation: some of them."""
    x = b.shaped(F32[0], (g.between(1, 2), 3, g.between(3, 5), g.between(3, 5)))
    y = b.Pad(x, np.array([0, 0, 1, 0, 0, 0, 0, 1])) if g.below(2) else x
    y = b.Conv(y, b.shaped(F32[0], (4, 3, 2, 2), known=True), g.pick((None, b.shaped(F32[0], (4,), known=True))))
    if g.below(2):
        y = b.binary(g.pick(("Mul", "Add")), y, b.shaped(F32[0], (4, 1, 1), known=True))
    if g.below(3):
        scale, bias, mean = (b.shaped(F32[0], (4,), known=True) for _ in range(3))
        var = b.constant(np.abs(g.rng().standard_normal(4)).astype(np.float32) + np.float32(0.5))
        y = b.BatchNormalization(y, scale, bias, mean, var)
    if g.below(2):
        y = b.binary(g.pick(("Mul", "Add")), y, b.shaped(F32[0], (4, 1, 1), known=True))
    b.Relu(y)


@idiom
def dense(g: Patterned, b: Sketch) -> None:
    """Products of matrices with biases and transposes, one into another."""
    x = b.shaped(F32[0], (g.between(1, 3), 3))
    for _ in range(g.between(1, 2)):
        w = b.shaped(F32[0], (4, x.shape[1]), known=bool(g.below(2)))
        x = b.MatMul(x, b.Transpose(w)) if g.below(2) else b.Gemm(x, w, transB=1)
        x = b.binary("Add", x, b.shaped(F32[0], g.pick(((4,), (1, 4), (1,), ())), known=bool(g.below(2))))
        x = _elementwise(g, b, x)
