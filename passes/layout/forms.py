"""What an op does with the order of axes: a form says which axes its operands and results have, and how it is made anew
where they are stored in another order.

The axes of one op are numbered together. Of an elementwise op they are those of its result, of a reduction those of its
operand: each operand and result has some of them, in ascending order. Where the axes are stored in the order ``s``,
each is stored in the order that ``s`` leaves it. An op without a form, and an operand that has no axes in a form, takes
and gives everything as the graph says it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from xdsl.ir import SSAValue

from irkit.dialects.onnx import CURRENT, OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.builder import Builder, value_of
from irkit.ir.constants import ConstantData
from irkit.ir.dtypes import dtype
from irkit.ir.names import DECL, OUTS
from irkit.ir.op import Elementwise, Random
from irkit.ir.types import Shape, dtype_of, shape_of, tensor
from irkit.passes.layout.perms import Axes, Perm, identity, inverse, permuted, restrict
from irkit.passes.rewrite import Rewriter, has_reference

__all__ = ["Build", "Form", "Moving", "form", "form_of", "integers", "plain", "rank_of"]


@dataclass(frozen=True)
class Form:
    """What an op does with the order of axes.

    Attributes:
        rank: how many axes the op has.
        operands: per operand the axes that it has; None where their order says something else, or nothing.
        results: the same of the results.
        build: makes the op for another order. Returns its results.
        fits: whether there is such an op for an order.
        exact: whether it gives the same bits, however the axes are stored. What adds up in another order does not.
    """

    rank: int
    operands: tuple[Axes | None, ...]
    results: tuple[Axes | None, ...]
    build: Build
    fits: Callable[[Perm], bool] = lambda order: True
    exact: bool = True


class Moving:
    """An op in the making for another order of its axes.

    Attributes:
        op: as it was.
        form: its form.
        order: which axis is stored at which place.
        place: the other way round.
        b: makes what is needed besides, in front of the op.
    """

    def __init__(self, op: OnnxOp, made_of: Form, order: Perm, rw: Rewriter) -> None:
        self.op, self.form, self.order, self.rw = op, made_of, order, rw
        self.place = inverse(order)

    @cached_property
    def b(self) -> Builder:
        return Builder.before(self.op, self.rw.ctx, by=self.rw.by)

    def make(self, operands: Sequence[SSAValue], **attributes: Any) -> list[SSAValue]:
        """The op on other operands, with some of its attributes changed. Its results are stored in their new order."""
        op = self.op
        types = [
            result.type if axes is None else self.type_of(result, restrict(self.order, axes))
            for result, axes in zip(op.results, self.form.results, strict=True)
        ]
        kept = {key: value for key, value in op.attributes.items() if key not in (OUTS, DECL)}
        new = type(op).create(
            operands=operands,
            result_types=types,
            properties={**op.properties, **type(op).properties_from(attributes)},
            attributes=kept,
        )
        self.rw.add(new, op)
        return list(new.results)

    @staticmethod
    def type_of(value: SSAValue, order: Perm) -> Any:
        """The type of a value that is stored in an order."""
        shape = shape_of(value.type)
        return tensor(dtype_of(value.type), None if shape is None else permuted(shape, order))

    def axes(self, axes: Sequence[int]) -> SSAValue:
        """The places of some axes, as a constant."""
        return self.numbers(sorted(self.place[a] for a in axes))

    def numbers(self, numbers: Sequence[int], element: str = "int64") -> SSAValue:
        array = np.array(numbers, dtype(element).numpy)
        return self.constant(ConstantData(dtype(element), array.shape, array))

    def constant(self, data: ConstantData) -> SSAValue:
        made = self.rw.constant(data, before=self.op)
        assert made is not None, f"a function of this opset has no constants of {data.dtype}"
        return made

    def reordered(self, vector: SSAValue, order: Sequence[int]) -> SSAValue:
        """The elements of a vector in another order."""
        data = constant_of(vector)
        if data is None:
            return value_of(self.b.Gather(self.b.wrap(vector), np.array(order, np.int64), axis=0))
        array = data.stored()
        return vector if data.is_splat else self.constant(ConstantData(data.dtype, data.shape, array[list(order)]))

    def broadcast(self, value: SSAValue, axes: Axes | None) -> SSAValue:
        """An operand that is aligned with the last axes, as it has to be where they are stored in another order."""
        if not axes or len(axes) == self.form.rank:
            return value
        places = {self.place[axis] for axis in axes}
        first = min(places)
        return self.unsqueezed(value, [p - first for p in range(first, self.form.rank) if p not in places])

    def unsqueezed(self, value: SSAValue, places: Sequence[int]) -> SSAValue:
        """A value with more axes, of size 1, at these places of the result."""
        if not places:
            return value
        data = constant_of(value)
        if data is None:
            return value_of(self.b.Unsqueeze(self.b.wrap(value), self.b.wrap(self.numbers(places))))
        array = data.stored()
        shape = list(data.shape)
        for place in places:
            shape.insert(place, 1)
        return self.constant(
            ConstantData(data.dtype, tuple(shape), array if data.is_splat else array.reshape(tuple(shape)))
        )

    def squeezed(self, value: SSAValue, places: Sequence[int]) -> SSAValue:
        """A value without the axes at these places."""
        if not places:
            return value
        return value_of(self.b.Squeeze(self.b.wrap(value), self.b.wrap(self.numbers(places))))


Build = Callable[[Moving, list[SSAValue]], list[SSAValue]]
Describe = Callable[[OnnxOp, int], Form | None]

FORMS: dict[str, Describe] = {}
"""Op name, as ``onnx.Concat`` -> its form, if it has one, at a target opset."""


def form(*op_types: str) -> Callable[[Describe], Describe]:
    """Declares the decorated function as what tells the form of these ops. It takes an op and the target opset."""

    def register(function: Describe) -> Describe:
        for op_type in op_types:
            FORMS[f"onnx.{op_type}"] = function
        return function

    return register


def form_of(op: object, opset: int) -> Form | None:
    """The form of an op, or None: its operands and results keep their order of axes."""
    if not isinstance(op, OnnxOp) or op.regions or op.has_trait(Random) or has_reference(op):
        return None
    describe = FORMS.get(op.name)
    if describe is None or any(rank_of(result) is None for result in op.results):
        return None
    return describe(op, opset)


def rank_of(value: SSAValue | None) -> int | None:
    shape = None if value is None else shape_of(value.type)
    return None if shape is None else len(shape)


def integers(value: SSAValue | None) -> list[int] | None:
    """The numbers in a constant of integers; None for anything else."""
    data = constant_of(value)
    return None if data is None or not data.dtype.is_integer else [int(n) for n in data.array().reshape(-1)]


def plain(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
    """An op that names no axes."""
    return m.make(operands)


def _broadcasting(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
    return m.make([m.broadcast(v, axes) for v, axes in zip(operands, m.form.operands, strict=True)])


def elementwise(op: OnnxOp, opset: int) -> Form | None:
    """Operands are aligned with the last axes of the result."""
    rank = rank_of(op.results[0])
    if rank is None or len(op.results) != 1:
        return None
    axes: list[Axes | None] = []
    for index, value in enumerate(op.operands):
        shape = shape_of(value.type)
        if op.operand(index) is None or (index and op.op_type == "CastLike") or _is_single(shape, rank):
            axes.append(None)
        elif shape is None or len(shape) > rank:
            return None
        else:
            axes.append(identity(rank)[rank - len(shape) :])
    return Form(rank, tuple(axes), (identity(rank),), _broadcasting)


def _is_single(shape: Shape | None, rank: int) -> bool:
    """Whether an operand has one element, and fewer axes than the result: it needs no alignment."""
    return shape is not None and len(shape) < rank and all(size == 1 for size in shape)


FORMS.update(
    (cls.name, elementwise)
    for (domain, _), cls in CURRENT.items()
    if domain == "" and any(isinstance(trait, Elementwise) for trait in cls.traits.traits)
)


def whole(op: OnnxOp, rank: int, *others: int) -> tuple[Axes | None, ...]:
    """Every operand has all axes, but for those at some places."""
    return tuple(
        None if i in others or op.operand(i) is None else identity(rank) for i in range(len(cast(Any, op.operands)))
    )
