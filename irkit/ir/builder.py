"""Building graphs by hand: ops as methods, Python operators on values, regions from functions.

>>> import numpy as np
>>> import irkit as ik
>>> b = ik.Builder("affine")
>>> x = b.input("x", "float32", ["N", 3])
>>> y = b.Relu(x @ b.initializer(np.eye(3, dtype=np.float32), "w") + 1)
>>> b.output(y, "y")
>>> b.module().outputs
{'y': tensor<?x3xf32, #onnx.dims<["N", ""]>>}
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    LocationAttr,
    ModuleOp,
    UnknownLoc,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from irkit.errors import InferenceError, IrkitError, VerifyError
from irkit.ir.attributes import string, text_of
from irkit.ir.constants import TensorAttr, constant
from irkit.ir.dtypes import BY_NAME, DType, dtype
from irkit.ir.location import describe, fused, source_location
from irkit.ir.module import Module, arg_attrs
from irkit.ir.names import NAME, hint, set_node_name, set_out_names
from irkit.ir.op import TensorOp, is_absent, type_string
from irkit.ir.types import Shape, absent_type, dtype_of, shape_of, tensor

__all__ = ["Builder", "Tensor", "Values", "value_of"]

Values = Any
"""What an op's operands may be given as: a Tensor, an SSA value, a number or array, or None for an absent one."""

DEFAULT_IR_VERSION = 10
DEFAULT_OPSET = 21


class Tensor:
    """An SSA value with the builder that made it, so that Python's operators build ops."""

    __slots__ = ("builder", "ssa")
    __array_ufunc__ = None  # NumPy arrays on the left leave the operator to us.
    __hash__ = object.__hash__

    def __init__(self, ssa: SSAValue, builder: Builder) -> None:
        self.ssa = ssa
        self.builder = builder

    @property
    def type(self) -> Attribute:
        """The value's type."""
        return self.ssa.type

    @property
    def dtype(self) -> DType | None:
        """The element type, if it is a tensor."""
        return dtype_of(self.ssa.type)

    @property
    def shape(self) -> Shape | None:
        """Per axis a size, a symbol or None; None where the rank is unknown."""
        return shape_of(self.ssa.type)

    @property
    def rank(self) -> int | None:
        """The number of axes, where known."""
        shape = self.shape
        return None if shape is None else len(shape)

    def __repr__(self) -> str:
        return f"Tensor({self.ssa.name_hint or ''}: {self.ssa.type})"

    def __iter__(self) -> Iterator[Tensor]:
        raise TypeError("a Tensor stands for a value of a later run and cannot be iterated over; use Split or Gather")

    def __bool__(self) -> bool:
        raise TypeError("a Tensor stands for a value of a later run and has no truth value; use Where or If")

    def __add__(self, other: Values) -> Tensor:
        return self.builder.binary("Add", self, other)

    def __radd__(self, other: Values) -> Tensor:
        return self.builder.binary("Add", other, self)

    def __sub__(self, other: Values) -> Tensor:
        return self.builder.binary("Sub", self, other)

    def __rsub__(self, other: Values) -> Tensor:
        return self.builder.binary("Sub", other, self)

    def __mul__(self, other: Values) -> Tensor:
        return self.builder.binary("Mul", self, other)

    def __rmul__(self, other: Values) -> Tensor:
        return self.builder.binary("Mul", other, self)

    def __truediv__(self, other: Values) -> Tensor:
        return self.builder.binary("Div", self, other)

    def __rtruediv__(self, other: Values) -> Tensor:
        return self.builder.binary("Div", other, self)

    def __pow__(self, other: Values) -> Tensor:
        return self.builder.binary("Pow", self, other)

    def __rpow__(self, other: Values) -> Tensor:
        return self.builder.binary("Pow", other, self)

    def __matmul__(self, other: Values) -> Tensor:
        return self.builder.binary("MatMul", self, other)

    def __rmatmul__(self, other: Values) -> Tensor:
        return self.builder.binary("MatMul", other, self)

    def __and__(self, other: Values) -> Tensor:
        return self.builder.binary("And" if _is_bool(self) else "BitwiseAnd", self, other)

    def __or__(self, other: Values) -> Tensor:
        return self.builder.binary("Or" if _is_bool(self) else "BitwiseOr", self, other)

    def __xor__(self, other: Values) -> Tensor:
        return self.builder.binary("Xor" if _is_bool(self) else "BitwiseXor", self, other)

    def __lt__(self, other: Values) -> Tensor:
        return self.builder.binary("Less", self, other)

    def __le__(self, other: Values) -> Tensor:
        return self.builder.binary("LessOrEqual", self, other)

    def __gt__(self, other: Values) -> Tensor:
        return self.builder.binary("Greater", self, other)

    def __ge__(self, other: Values) -> Tensor:
        return self.builder.binary("GreaterOrEqual", self, other)

    def __neg__(self) -> Tensor:
        return self.builder.op("Neg", self)

    def __abs__(self) -> Tensor:
        return self.builder.op("Abs", self)

    def __invert__(self) -> Tensor:
        return self.builder.op("Not" if _is_bool(self) else "BitwiseNot", self)


def _is_bool(value: Tensor) -> bool:
    return value.dtype is dtype("bool")


def _taken(value: Values, builder: Builder) -> Values:
    """What an operand is taken for: one with ``__irkit_value__`` says so itself, given the builder."""
    take = None if isinstance(value, Tensor) else getattr(cast(object, type(value)), "__irkit_value__", None)
    return value if take is None else take(value, builder)


def value_of(value: Tensor | SSAValue) -> SSAValue:
    """The SSA value behind a Tensor."""
    return value.ssa if isinstance(value, Tensor) else value


class Builder:
    """Makes ops at a place in a graph.

    ``Builder("name")`` starts a new module, with ``input``, ``output`` and ``module``; ``Builder.before(op)`` and
    ``Builder.at_end(block)`` insert into an existing graph. Every op of the default domain is a method; others are made
    by ``op`` with their full name. Operands may be given as Tensors, SSA values, numbers or arrays (which become
    constants of the other operands' dtype), or None for an optional one that is left out.

    Args:
        name: of the graph.
        opsets: the opsets that the module is to be saved at by default, by domain.
        ir_version: of the file format.
        ctx: the context in which the dialects are registered; by default a fresh one with all of them.

    Attributes:
        declared: ops of the module's top level besides the graph (state variables); nested builders share the list.
        control: tokens that accesses of state made here wait for; see ``irkit.dialects.state.control``.
    """

    def __init__(
        self,
        name: str = "graph",
        *,
        opsets: Mapping[str, int] | None = None,
        ir_version: int = DEFAULT_IR_VERSION,
        ctx: Context | None = None,
    ) -> None:
        if ctx is None:
            # The only way up the layers: a new module needs all the dialects.
            ctx = importlib.import_module("irkit.dialects").context()
        self.ctx: Context = cast(Context, ctx)
        self.block = Block()
        self.anchor: Operation | None = None
        self.location: LocationAttr | None = None
        self.by = ""
        self.depth = 0
        self._name = name
        self._opsets = dict(opsets or {"": DEFAULT_OPSET})
        self._ir_version = ir_version
        self.declared: list[Operation] = []
        self.control: tuple[SSAValue, ...] = ()
        self._inputs: list[dict[str, Attribute]] = []
        self._outputs: list[tuple[SSAValue, dict[str, Attribute]]] = []

    # Where to build

    @classmethod
    def before(
        cls, op: Operation, ctx: Context, *, by: str = "", sources: Iterable[Operation] | None = None
    ) -> Builder:
        """A builder that inserts in front of an op.

        Args:
            by: the pass or rule that builds; new ops are located at ``sources`` (default: the op), fused by it.
        """
        block = op.parent
        if block is None:
            raise ValueError("the op stands in no block")
        made = cls._at(block, op, ctx)
        made.by = by
        made.location = fused([s.location for s in (sources or [op])], by) if by else op.location
        return made

    @classmethod
    def at_end(cls, block: Block, ctx: Context, location: LocationAttr | None = None) -> Builder:
        """A builder that appends to a block."""
        made = cls._at(block, None, ctx)
        made.location = location
        return made

    @classmethod
    def _at(cls, block: Block, anchor: Operation | None, ctx: Context) -> Builder:
        made = cls(ctx=ctx)
        made.block, made.anchor = block, anchor
        return made

    def insert(self, op: Operation) -> None:
        """Inserts a finished op here; one without a location gets that of the others."""
        if isinstance(op.location, UnknownLoc):
            op.location = self.here()
        if self.anchor is None:
            self.block.add_op(op)
        else:
            self.block.insert_op_before(op, self.anchor)

    # A new module

    def input(self, name: str, element: object = "float32", shape: Sequence[int | str | None] | None = None) -> Tensor:
        """Adds an input to the graph; ``element`` may be a whole type as well."""
        value_type = element if isinstance(element, Attribute) else tensor(element, shape)
        arg = self.block.insert_arg(value_type, len(self.block.args))
        arg.name_hint = hint(name)
        self._inputs.append({NAME: string(name)})
        return Tensor(arg, self)

    def output(self, value: Tensor | SSAValue, name: str) -> None:
        """Makes a value an output of the graph."""
        self._outputs.append((value_of(value), {NAME: string(name)}))

    def _check_names(self) -> None:
        """In ONNX a name is one value's, so an output is called like an input only where it is that."""
        inputs = {entry[NAME]: arg for entry, arg in zip(self._inputs, self.block.args, strict=True)}
        for value, entry in self._outputs:
            if inputs.get(entry[NAME], value) is not value:
                name = text_of(entry[NAME])
                raise VerifyError(f"an input and an output are both called '{name}'", hint="rename one of them")

    def module(self) -> Module:
        """The finished module, verified. A builder makes one.

        Raises:
            VerifyError: if something in it is not right.
        """
        if self.block.parent is not None:
            raise IrkitError("this builder has made its module already", hint="keep it: m = b.module(), then m.clone()")
        self._check_names()
        values = [value for value, _ in self._outputs]
        self.block.add_op(ReturnOp(*values))
        region = Region(self.block)
        function = FuncOp(
            "main",
            ([a.type for a in self.block.args], [v.type for v in values]),
            region,
            arg_attrs=arg_attrs(self._inputs),
            res_attrs=arg_attrs([attrs for _, attrs in self._outputs]),
        )
        module = Module(ModuleOp([*self.declared, function]), self.ctx)
        module.graph_name = self._name
        module.ir_version = self._ir_version
        module.opsets = self._opsets
        module.verify()
        return module

    # Values

    def constant(self, value: object, element: object = None, *, shape: tuple[int, ...] | None = None) -> Tensor:
        """A constant from an array, a number, a string, or a list; ``shape`` makes a splat."""
        attr = value if isinstance(value, TensorAttr) else constant(value, element, shape)
        op = self._class("onnx.Constant").create(result_types=[attr.type], properties={"value": attr})
        return Tensor(self._add(op).results[0], self)

    def initializer(self, value: object, name: str, element: object = None) -> Tensor:
        """A named constant, written as an initializer of the graph."""
        attr = value if isinstance(value, TensorAttr) else constant(value, element)
        op = self._class("onnx.Initializer").create(result_types=[attr.type], properties={"value": attr})
        set_out_names(op, [name])
        return Tensor(self._add(op).results[0], self)

    def absent(self) -> SSAValue:
        """The value that stands for an operand not given; one a block, at its beginning."""
        first = self.block.first_op
        if first is not None and len(first.results) == 1 and is_absent(first.results[0]):
            return first.results[0]
        op = self._class("onnx.NoValue").create(result_types=[absent_type])
        if first is None:
            self.block.add_op(op)
        else:
            self.block.insert_op_before(op, first)
        return op.results[0]

    def tensor(self, value: Values, element: DType | None = None) -> SSAValue:
        """The SSA value for anything an operand may be given as.

        Args:
            element: the dtype that a Python number takes; by default float32 or int64.
        """
        value = _taken(value, self)
        if isinstance(value, Tensor):
            return value.ssa
        if isinstance(value, SSAValue):
            return cast(SSAValue, value)
        if value is None:
            return self.absent()
        if isinstance(value, np.ndarray | np.generic):
            return self.constant(cast(object, value)).ssa
        if element is None and isinstance(value, float):
            return self.constant(value, "float32").ssa
        return self.constant(value, element).ssa

    def wrap(self, value: SSAValue) -> Tensor:
        """A Tensor of this builder over an SSA value."""
        return Tensor(value, self)

    # Ops

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name[:1].isupper():
            return lambda *operands, **options: self.op(name, *operands, **options)
        raise AttributeError(name)

    def binary(self, name: str, a: Values, b: Values) -> Tensor:
        """An op of two operands, either of which may be a number."""
        a, b = _taken(a, self), _taken(b, self)
        # In a region, a captured value brings the builder of the graph around it: the inner one makes the op.
        builders = [self, *(value.builder for value in (a, b) if isinstance(value, Tensor))]
        return cast(Tensor, max(builders, key=lambda builder: builder.depth).op(name, a, b))

    def op(
        self,
        op_name: str | type[TensorOp],
        *operands: Values,
        outputs: int | None = None,
        name: str = "",
        **attributes: Any,
    ) -> Any:
        """Makes an op and returns its results: one Tensor, or a tuple of them.

        Args:
            op_name: a name of the default domain (``"Conv"``), a full one (``"onnx.ml.Scaler"``), or an op class.
            operands: see the class.
            outputs: how many results; by default those that the schema does not call optional.
            name: the node's name.
            attributes: by their ONNX names, as Python values. A graph is given as a function that takes a builder and
                the graph's inputs and returns its outputs, or as a finished ``Region``. The function of a loop is
                called again if the loop does not keep the types of what it carries.

        Raises:
            InferenceError: if the operands' types don't fit the op.
            TypeError: for an unknown attribute.
        """
        cls = self._class(op_name) if isinstance(op_name, str) else op_name
        values = self._operands(cls, operands)
        graphs = {g: attributes.pop(g) for g in cls.spec.graphs if g in attributes}
        properties = cls.properties_from(attributes)
        regions = [self._region(cls, g, graphs.get(g), values, properties) for g in cls.spec.graphs]
        n_out = result_count(cls, outputs, properties)
        try:
            types = cls.infer_types(values, properties, regions, n_out)
        except InferenceError as error:
            place = self.here()
            raise InferenceError(error.message, op=cls.name, where=describe(place), hint=error.hint) from None
        op = cls.create(operands=values, result_types=types, properties=properties, regions=regions)
        if name:
            set_node_name(op, name)
        self._add(op)
        results = tuple(Tensor(r, self) for r in op.results)
        return results[0] if len(results) == 1 else results

    def _operands(self, cls: type[TensorOp], operands: Sequence[Values]) -> list[SSAValue]:
        operands = [_taken(v, self) for v in operands]
        values = [self.tensor(v, _number_type(cls, i, operands)) for i, v in enumerate(operands)]
        least = cls.spec.min_inputs
        while len(values) > least and is_absent(values[-1]):
            values.pop()
        # An optional operand may count among those that must be written (Loop's condition).
        while len(values) < least and cls.spec.inputs[len(values)].optional:
            values.append(self.absent())
        return values

    def _class(self, name: str) -> type[TensorOp]:
        full = name if "." in name else f"onnx.{name}"
        found = self.ctx.get_optional_op(full)
        if found is None or not hasattr(found, "create"):
            raise IrkitError(
                f"there is no op '{full}'", hint="names are case-sensitive, as in ONNX: MatMul, Relu, Conv"
            )
        return cast("type[TensorOp]", found)

    def _add(self, op: Operation) -> Operation:
        op.location = self.here()
        if self.anchor is None:
            self.block.add_op(op)
        else:
            self.block.insert_op_before(op, self.anchor)
        return op

    def here(self) -> LocationAttr:
        """The location of what is made here: the builder's, or the user's line."""
        return self.location or self._call_site()

    @staticmethod
    def _call_site() -> LocationAttr:
        """The user's line: the nearest frame outside this package."""
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "irkit":
            frame = cast(Any, frame.f_back)
        return UNKNOWN_LOC if frame is None else source_location(frame.f_code.co_filename, frame.f_lineno)

    # Regions

    def _region(
        self,
        cls: type[TensorOp],
        graph: str,
        given: Any,
        operands: Sequence[SSAValue],
        properties: Mapping[str, Attribute],
    ) -> Region:
        if given is None:
            if graph in cls.spec.required_graphs:
                raise TypeError(f"{cls.name} needs the graph '{graph}'")
            return Region()
        if isinstance(given, Region):
            return given
        count = len(inspect.signature(given).parameters) - 1
        types: list[Attribute] | None = cls.body_types(graph, operands, properties, count)
        while True:
            region = self._body(given, types)
            types = cls.widened(region, operands)
            if types is None:
                return region
            region.drop_all_references()

    def _body(self, given: Callable[..., Any], arg_types: Sequence[Attribute]) -> Region:
        """The region that a function builds, given a builder for it and its arguments."""
        inner = self._inner(arg_types)
        results: Any = given(inner, *(Tensor(arg, inner) for arg in inner.block.args))
        listed: Sequence[Any] = cast(Any, results) if isinstance(results, list | tuple) else [results]
        values = [inner.tensor(r) for r in listed]
        inner.block.add_op(self.ctx.get_op("onnx.Yield").create(operands=values))
        return Region(inner.block)

    def _inner(self, arg_types: Sequence[Attribute]) -> Builder:
        inner = Builder.at_end(Block(arg_types=arg_types), self.ctx, self.location)
        inner.by, inner.declared, inner.control = self.by, self.declared, self.control
        inner.depth = self.depth + 1
        return inner

    @contextmanager
    def nested(self, arg_types: Sequence[Attribute]) -> Generator[tuple[Builder, list[Tensor]]]:
        """A builder for a new block, which the caller puts into a region, and the block's arguments."""
        inner = self._inner(arg_types)
        yield inner, [Tensor(arg, inner) for arg in inner.block.args]


def result_count(cls: type[TensorOp], asked: int | None, properties: Mapping[str, Attribute]) -> int:
    if asked is not None:
        return asked
    outputs = cls.spec.outputs
    if outputs and outputs[-1].variadic:
        fixed = len(outputs) - 1
        if "num_outputs" in properties:
            return fixed + cast(Any, properties["num_outputs"]).value.data
        return fixed + outputs[-1].min_arity if not cls.spec.graphs else -1
    return sum(not p.optional for p in outputs)


def _number_type(cls: type[TensorOp], index: int, operands: Sequence[Values]) -> DType | None:
    """The dtype of a Python number given as this operand: that of the operands which must be of the same type."""
    if isinstance(operands[index], Tensor | SSAValue | np.ndarray | np.generic | None):
        return None
    formals = cls.spec.inputs
    if not formals:
        return None
    formal = formals[min(index, len(formals) - 1)]
    for other, value in enumerate(operands):
        if isinstance(value, Tensor | SSAValue) and formals[min(other, len(formals) - 1)].type == formal.type:
            return dtype_of(value_of(cast(Any, value)).type)
    allowed = cls.spec.variables.get(formal.type, frozenset((formal.type,)))
    fitting = [found for found in BY_NAME.values() if type_string(tensor(found, ())) in allowed]
    return fitting[0] if len(fitting) == 1 else None
