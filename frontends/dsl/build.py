"""Making nodes: operands from anything, types by inference, graphs by tracing what is given as a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, cast

import numpy as np
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from irkit import dialects
from irkit.backends.base import spell
from irkit.dialects.onnx.structural import NoValue, Yield
from irkit.dialects.state.ops import TokenType
from irkit.errors import InferenceError, IrkitError
from irkit.frontends.dsl import symbol as symbols
from irkit.frontends.dsl.errors import Site, SymbolError, failure, site_here
from irkit.frontends.dsl.nodes import CONTEXT, BuiltNode, ConstantNode, Graph, OpNode, ParamNode, Scope
from irkit.ir.builder import Builder
from irkit.ir.constants import TensorAttr, constant
from irkit.ir.dtypes import BY_NAME, DType, dtype
from irkit.ir.op import Elementwise, TensorOp, type_string
from irkit.ir.types import absent_type, intern, tensor

__all__ = ["built", "constant_attr", "convert", "make", "number", "op_class", "tensor_type", "trace_graph", "wrap"]

Numbers = bool | int | float | complex


@cache
def context() -> Any:
    """The context with all dialects, those of plug-ins too."""
    return dialects.context()


@cache
def op_class(name: str) -> type[TensorOp]:
    """An op class by its name, ``"MatMul"`` or ``"onnx.ml.Scaler"``.

    Raises:
        IrkitError: if there is no such op.
    """
    found = context().get_optional_op(name if "." in name else f"onnx.{name}")
    if found is None or not hasattr(found, "create") or not hasattr(found, "spec"):
        from irkit.passes.registry import suggestion

        known = sorted(c.op_type for c in _current())
        raise failure(IrkitError, f"there is no op '{name}'", hint=suggestion(name, known, "ops").split(";")[0][:200])
    return cast("type[TensorOp]", found)


def _current() -> list[Any]:
    from irkit.dialects.onnx import CURRENT

    return [cls for (domain, _), cls in CURRENT.items() if domain == ""]


# Operands


def wrap(node: Any) -> Any:
    """The results of a node: one, or a tuple of them; tokens as effects."""
    made = tuple(
        symbols.Effect(node, i) if isinstance(t, TokenType) else symbols.Symbol(node, i)
        for i, t in enumerate(node.types)
    )
    return made[0] if len(made) == 1 else made


def convert(value: Any, element: object = None, name: str = "") -> symbols.Symbol:
    """The symbol for anything that an operand may be given as.

    Args:
        element: the dtype of Python numbers and lists of them; by default float32, int64 or bool. Arrays keep theirs.
        name: of a constant.
    """
    if isinstance(value, symbols.Symbol):
        return value
    if isinstance(value, symbols.Operand):
        return cast(Any, value).value
    if isinstance(value, symbols.Effect):
        raise failure(
            SymbolError, "an effect has no value", hint="order by it: with dsl.control_dependencies([effect]): ..."
        )
    if type(value) in (bool, int, float, complex) and not name:
        return number(value, None if element is None else dtype(element))
    if isinstance(value, list | tuple) and any(isinstance(v, symbols.Operand) for v in _leaves(value)):
        return _stacked(value)
    if type(value) is np.ndarray and value.dtype == np.int64 and value.size <= FEW and value.ndim == 1 and not name:
        return symbols.Symbol(_integers(tuple(value.tolist())))
    kind = None if isinstance(value, np.ndarray | np.generic) else element
    return symbols.Symbol(ConstantNode(constant_attr(value, kind), name))


def constant_attr(value: Any, element: object = None) -> TensorAttr:
    """The constant for an array, a number or a list; Python's floats are float32, its ints int64.

    Raises:
        SymbolError: if it is none of these.
    """
    if isinstance(value, TensorAttr):
        return value
    if element is None and not isinstance(value, np.ndarray | np.generic):
        element = _python_dtype(value)
    try:
        return constant(value, element)
    except (TypeError, ValueError) as error:
        raise failure(SymbolError, f"a value of type {type(value).__name__} is no tensor: {error}") from None


def _leaves(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list | tuple) else [value]


def _stacked(value: Any) -> symbols.Symbol:
    """A nested list with symbols in it, stacked along new first axes."""
    from irkit.frontends.dsl.functions.shape import stack

    return stack([_stacked(v) if isinstance(v, list | tuple) else v for v in value])


def _python_dtype(value: Any) -> object:
    found = np.asarray(value).dtype
    return {"f": "float32", "i": "int64", "c": "complex64"}.get(found.kind)


def tensor_type(element: object, shape: Any) -> Attribute:
    """The type of a tensor, from what a user gives as its dtype and shape; one size alone is a shape of one axis.

    Raises:
        InferenceError: if either is none.
    """
    try:
        return tensor(element, (shape,) if isinstance(shape, int | str) else shape)
    except (TypeError, IrkitError) as error:
        message = error.message if isinstance(error, IrkitError) else str(error)
        hint = "dtypes are 'float32', 'int64', 'bool'...; a shape is a list of sizes, names and None"
        raise failure(InferenceError, message, hint=hint) from None


def number(value: Numbers, element: DType | None) -> symbols.Symbol:
    """A Python number as a constant; one that the dtype cannot hold is refused."""
    kind = element or BY_NAME[_DEFAULT[type(value)]]
    try:
        node = _number(type(value), repr(value), value, kind)
    except (OverflowError, TypeError, ValueError):
        raise failure(
            InferenceError, f"the Python number {value!r} does not fit {kind}", hint="cast the other operand"
        ) from None
    return symbols.Symbol(node)


_DEFAULT = {bool: "bool", int: "int64", float: "float32", complex: "complex64"}


@lru_cache(4096)
def _number(_kind: type, _text: str, value: Numbers, element: DType) -> ConstantNode:
    """One node per number and dtype; the text tells 0.0 from -0.0, and makes NaN equal to itself."""
    if isinstance(value, int) and element.kind in ("int", "uint"):
        array = np.array(int(value)).astype(element.numpy)
        if int(array) != int(value):
            raise OverflowError
        return ConstantNode(constant(array, element))
    return ConstantNode(constant(value, element))


FEW = 8


@lru_cache(4096)
def _integers(values: tuple[int, ...]) -> ConstantNode:
    """One node per few integers: axes, sizes and bounds are the same again and again."""
    return ConstantNode(constant(np.array(values, np.int64)))


# Inference

_KNOWN: dict[Any, tuple[Attribute, ...]] = {}


def make(
    op: str | type[TensorOp],
    *operands: Any,
    outputs: int | None = None,
    name: str = "",
    site: Site = None,
    **attributes: Any,
) -> Any:
    """Makes an op of these operands; returns its results: a symbol, or a tuple of them.

    Args:
        op: a name of the default domain (``"Conv"``), a full one (``"onnx.ml.Scaler"``), or a class.
        operands: symbols, variables, arrays, numbers (of the dtype of the operands that must be of the same), or None
            for an optional one that is left out.
        outputs: how many results; by default those that the schema does not call optional.
        name: of the node.
        attributes: by their ONNX names. A graph is given as a function of the graph's inputs.

    Raises:
        InferenceError: if the operands do not fit the op, with the user's line.
    """
    cls = op_class(op) if isinstance(op, str) else op
    site = site or site_here()
    spec = cls.spec
    values = [None if v is None else _operand(cls, i, v, operands) for i, v in enumerate(operands)]
    while len(values) > spec.min_inputs and values[-1] is None:
        values.pop()
    while len(values) < spec.min_inputs and spec.inputs[len(values)].optional:
        values.append(None)
    functions = {g: attributes.pop(g) for g in spec.graphs if g in attributes}
    try:
        properties = cls.properties_from(attributes)
        count = _result_count(cls, outputs, properties)
        if spec.graphs:
            graphs, types = _with_graphs(cls, values, properties, functions, count, site)
        else:
            graphs, types = (), _infer(cls, values, properties, count)
    except (InferenceError, VerifyException, TypeError) as error:
        if isinstance(error, SymbolError):
            raise
        raise _misfit(cls, values, error, site) from None
    return wrap(OpNode(cls, values, properties, graphs, types, name, site))


def _operand(cls: type[TensorOp], index: int, value: Any, operands: Sequence[Any]) -> symbols.Symbol:
    if isinstance(value, symbols.Symbol):
        return value
    if type(value) in (bool, int, float, complex, list, tuple):
        return convert(value, _number_type(cls, index, operands))
    return convert(value)


def _number_type(cls: type[TensorOp], index: int, operands: Sequence[Any]) -> DType | None:
    """The dtype of a number as this operand: that of the operands which must be of the same type."""
    formals = cls.spec.inputs
    if not formals:
        return None
    last = len(formals) - 1
    formal = formals[min(index, last)]
    for other, value in enumerate(operands):
        if isinstance(value, symbols.Operand) and formals[min(other, last)].type == formal.type:
            return value.dtype
    return _only_dtype(cls, formal.type)


@cache
def _only_dtype(cls: type[TensorOp], variable: str) -> DType | None:
    allowed = cls.spec.variables.get(variable, frozenset((variable,)))
    fitting = [found for found in BY_NAME.values() if type_string(tensor(found, ())) in allowed]
    return fitting[0] if len(fitting) == 1 else None


def _result_count(cls: type[TensorOp], asked: int | None, properties: Mapping[str, Attribute]) -> int:
    if asked is not None:
        return asked
    outputs = cls.spec.outputs
    if outputs and outputs[-1].variadic:
        fixed = len(outputs) - 1
        if "num_outputs" in properties:
            return fixed + cast(Any, properties["num_outputs"]).value.data
        return fixed + outputs[-1].min_arity if not cls.spec.graphs else -1
    return sum(not p.optional for p in outputs)


def _infer(
    cls: type[TensorOp], values: Sequence[symbols.Symbol | None], properties: Mapping[str, Attribute], count: int
) -> tuple[Attribute, ...]:
    """The types of the results; remembered, since a program makes the same few ops of the same few types.

    Types are interned, so their identity stands for them. A constant's value may matter to all but elementwise ops.
    """
    elementwise = _is_elementwise(cls)
    parts: list[Any] = [cls, count]
    for value in values:
        if value is None:
            parts.append(None)
            continue
        node = value.node
        parts.append(id(node.types[value.index]))
        if not elementwise and isinstance(node, ConstantNode):
            parts.append(node.value)
    key = (*parts, *properties.items())
    found = _KNOWN.get(key)
    if found is None:
        found = _KNOWN[key] = _inferred(cls, _stubs(values), properties, (), count)
    return found


@cache
def _is_elementwise(cls: type[TensorOp]) -> bool:
    return cls.has_trait(Elementwise)


def _inferred(
    cls: type[TensorOp],
    operands: Sequence[SSAValue],
    properties: Mapping[str, Attribute],
    regions: Sequence[Region],
    count: int,
) -> tuple[Attribute, ...]:
    """The types of the results, checked against the schema too."""
    types = [intern(t) for t in cls.infer_types(operands, properties, regions, count)]
    op = cls.create(operands=operands, result_types=types, properties=dict(properties), regions=regions)
    op.verify_()
    op.erase()
    return tuple(types)


def _stubs(values: Sequence[symbols.Symbol | None]) -> list[SSAValue]:
    """Values of the operands' types for inference to look at; constants as constants."""
    block = Block(arg_types=[absent_type if v is None else v.type for v in values])
    made: list[SSAValue] = list(block.args)
    for index, value in enumerate(values):
        if value is not None and isinstance(value.node, ConstantNode):
            attr = value.node.value
            op = op_class("Constant").create(result_types=[attr.type], properties={"value": attr})
            made[index] = op.results[0]
    return made


def _misfit(cls: type[TensorOp], values: Sequence[symbols.Symbol | None], error: Exception, site: Site) -> IrkitError:
    message = error.message if isinstance(error, IrkitError) else str(error)
    message = message.removeprefix(f"{cls.name}: ")
    given = ", ".join("nothing" if v is None else spell(v.type) for v in values)
    dtypes = {v.dtype for v in values if v is not None}
    hint = error.hint if isinstance(error, IrkitError) else ""
    if not hint and len(dtypes) > 1 and "must be of one type" in message:
        hint = "cast one of them: dsl.cast(x, 'float32')"
    return failure(InferenceError, f"{message}; the operands are {given or 'none'}", op=cls.name, site=site, hint=hint)


# Graphs


def trace_graph(
    function: Callable[..., Any],
    types: Sequence[Attribute],
    what: str,
    site: Site,
    names: Sequence[str] = (),
) -> Graph:
    """What a function gives for arguments of these types. Its results are flat: a symbol, or a list of them."""
    scope = Scope(what, site)
    outer = CONTEXT.scope
    CONTEXT.scope = scope
    try:
        params = [symbols.Symbol(ParamNode(t, names[i] if i < len(names) else "")) for i, t in enumerate(types)]
        given = function(*params)
        listed = given if isinstance(given, list | tuple) else [given]
        results = [r if isinstance(r, symbols.Effect) else convert(r) for r in listed]
        return Graph(scope, params, results)
    finally:
        scope.is_open = False
        CONTEXT.scope = outer


def _with_graphs(
    cls: type[TensorOp],
    values: Sequence[symbols.Symbol | None],
    properties: Mapping[str, Attribute],
    functions: Mapping[str, Callable[..., Any]],
    count: int,
    site: Site,
) -> tuple[list[Graph | None], tuple[Attribute, ...]]:
    graphs: list[Graph | None] = []
    regions: list[Region] = []
    for name in cls.spec.graphs:
        function = functions.get(name)
        if function is None:
            if name in cls.spec.required_graphs:
                raise TypeError(f"it needs the graph '{name}', a function")
            graphs.append(None)
            regions.append(Region())
            continue
        graph, region = _graph(cls, name, function, _stubs(values), properties, site)
        graphs.append(graph)
        regions.append(region)
    return graphs, _inferred(cls, _stubs(values), properties, regions, count)


def _graph(
    cls: type[TensorOp],
    name: str,
    function: Callable[..., Any],
    operands: Sequence[SSAValue],
    properties: Mapping[str, Attribute],
    site: Site,
) -> tuple[Graph, Region]:
    """A graph, traced for the types that hold in every iteration; and a region that stands for it in inference."""
    what = f"'{getattr(function, '__name__', name)}'"
    types: list[Attribute] | None = cls.body_types(name, operands, properties, _arity(function))
    while True:
        graph = trace_graph(function, [intern(t) for t in types], what, site)
        region = _stub_region(graph)
        wider = cls.widened(region, operands)
        if wider is None:
            return graph, region
        types = wider


def _arity(function: Callable[..., Any]) -> int:
    known = getattr(function, "arity", None)
    return len(inspect.signature(function).parameters) if known is None else known


def _stub_region(graph: Graph) -> Region:
    block = Block(arg_types=[p.type for p in graph.params])
    given = NoValue.create(result_types=[r.type for r in graph.results])
    block.add_op(given)
    block.add_op(Yield.create(operands=given.results))
    return Region(block)


# Functions over builders


def built(function: Callable[..., Any], *operands: Any) -> Any:
    """What a function over a builder and tensors makes of symbols: ``built(lambda b, x: b.Relu(x), x)``.

    Losses, metrics and optimizers are such functions. It is called when the expression is written, to learn the
    results' types, and again whenever a module is made of it.
    """
    values = [convert(v) for v in operands]
    trial = Builder("trial", ctx=context())
    given = [trial.wrap(stub) for stub in _stubs(values)]
    made = function(trial, *given)
    listed = made if isinstance(made, list | tuple) else [made]
    types = [intern(t.type) for t in listed]
    return wrap(BuiltNode(function, values, types))
