"""Symbols: what expressions are made of. A symbol stands for a value of a later run; an effect for what a run does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from xdsl.ir import Attribute

from irkit.backends.base import spell
from irkit.frontends.dsl import build, indexing, operators
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.nodes import ConstantNode, Node, ParamNode, PlaceholderNode
from irkit.ir.dtypes import DType
from irkit.ir.module import Module
from irkit.ir.types import Shape, dtype_of, shape_of

if TYPE_CHECKING:
    # To a type checker that comes here through the checkout, what the other modules return is of this module.
    from irkit.frontends.dsl import symbol as symbols

__all__ = ["Effect", "Operand", "Symbol"]


class Operand:
    """What Python's operators work on: symbols, and variables, which stand for what is read of them.

    Numbers take the dtype of the other operand, as in NumPy 2 and JAX; a float beside integers makes both float32.
    Arrays keep theirs, and two dtypes are never mixed: cast one.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    type: Attribute

    @property
    def dtype(self) -> DType | None:
        """The element type; None where it is no tensor."""
        return dtype_of(self.type)

    @property
    def shape(self) -> Shape | None:
        """Per axis a size, the name of a symbolic size, or None; None where the rank is unknown."""
        return shape_of(self.type)

    @property
    def ndim(self) -> int | None:
        """The number of axes; None where it is unknown."""
        shape = self.shape
        return None if shape is None else len(shape)

    # Operators

    def __add__(self, other: Any) -> symbols.Symbol:
        return operators.add(self, other)

    def __radd__(self, other: Any) -> symbols.Symbol:
        return operators.add(other, self)

    def __sub__(self, other: Any) -> symbols.Symbol:
        return operators.subtract(self, other)

    def __rsub__(self, other: Any) -> symbols.Symbol:
        return operators.subtract(other, self)

    def __mul__(self, other: Any) -> symbols.Symbol:
        return operators.multiply(self, other)

    def __rmul__(self, other: Any) -> symbols.Symbol:
        return operators.multiply(other, self)

    def __truediv__(self, other: Any) -> symbols.Symbol:
        return operators.divide(self, other)

    def __rtruediv__(self, other: Any) -> symbols.Symbol:
        return operators.divide(other, self)

    def __floordiv__(self, other: Any) -> symbols.Symbol:
        return operators.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> symbols.Symbol:
        return operators.floor_divide(other, self)

    def __mod__(self, other: Any) -> symbols.Symbol:
        return operators.remainder(self, other)

    def __rmod__(self, other: Any) -> symbols.Symbol:
        return operators.remainder(other, self)

    def __divmod__(self, other: Any) -> tuple[symbols.Symbol, symbols.Symbol]:
        return operators.floor_divide(self, other), operators.remainder(self, other)

    def __rdivmod__(self, other: Any) -> tuple[symbols.Symbol, symbols.Symbol]:
        return operators.floor_divide(other, self), operators.remainder(other, self)

    def __pow__(self, other: Any) -> symbols.Symbol:
        return operators.power(self, other)

    def __rpow__(self, other: Any) -> symbols.Symbol:
        return operators.power(other, self)

    def __matmul__(self, other: Any) -> symbols.Symbol:
        return operators.matmul(self, other)

    def __rmatmul__(self, other: Any) -> symbols.Symbol:
        return operators.matmul(other, self)

    def __and__(self, other: Any) -> symbols.Symbol:
        return operators.bitwise_and(self, other)

    def __rand__(self, other: Any) -> symbols.Symbol:
        return operators.bitwise_and(other, self)

    def __or__(self, other: Any) -> symbols.Symbol:
        return operators.bitwise_or(self, other)

    def __ror__(self, other: Any) -> symbols.Symbol:
        return operators.bitwise_or(other, self)

    def __xor__(self, other: Any) -> symbols.Symbol:
        return operators.bitwise_xor(self, other)

    def __rxor__(self, other: Any) -> symbols.Symbol:
        return operators.bitwise_xor(other, self)

    def __lshift__(self, other: Any) -> symbols.Symbol:
        return operators.left_shift(self, other)

    def __rlshift__(self, other: Any) -> symbols.Symbol:
        return operators.left_shift(other, self)

    def __rshift__(self, other: Any) -> symbols.Symbol:
        return operators.right_shift(self, other)

    def __rrshift__(self, other: Any) -> symbols.Symbol:
        return operators.right_shift(other, self)

    def __lt__(self, other: Any) -> symbols.Symbol:
        return operators.less(self, other)

    def __le__(self, other: Any) -> symbols.Symbol:
        return operators.less_equal(self, other)

    def __gt__(self, other: Any) -> symbols.Symbol:
        return operators.greater(self, other)

    def __ge__(self, other: Any) -> symbols.Symbol:
        return operators.greater_equal(self, other)

    def __eq__(self, other: object) -> symbols.Symbol:  # type: ignore[override]
        return operators.equal(self, other)

    def __ne__(self, other: object) -> symbols.Symbol:  # type: ignore[override]
        return operators.not_equal(self, other)

    def __neg__(self) -> symbols.Symbol:
        return operators.negative(self)

    def __pos__(self) -> symbols.Symbol:
        return build.convert(self)

    def __abs__(self) -> symbols.Symbol:
        return operators.absolute(self)

    def __invert__(self) -> symbols.Symbol:
        return operators.invert(self)

    def __getitem__(self, index: Any) -> symbols.Symbol:
        return indexing.get_item(build.convert(self), index)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> symbols.Symbol:
        function = getattr(operators, ufunc.__name__, None) if method == "__call__" and not options else None
        if function is None:
            from irkit.frontends import dsl

            function = getattr(dsl, ufunc.__name__, None) if method == "__call__" and not options else None
        if function is None:
            raise _no_value(self, f"numpy.{ufunc.__name__} does not take it", "use the functions of dsl")
        return function(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions that ``numpy_names.CALLS`` lists; the others are refused."""
        from irkit.frontends.dsl.numpy_names import call

        found = call(function, args, kwargs)
        if found is NotImplemented:
            name = function.__name__
            raise _no_value(self, f"numpy.{name} does not take it, or not so", "use the functions of dsl")
        return found

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The functions of the array API standard, which promote dtypes: ``irkit.frontends.dsl.xp``."""
        from irkit.frontends.dsl.xp import namespace

        return namespace(api_version)

    def __irkit_module__(self, outputs: Sequence[Any] | Mapping[str, Any] | None = None) -> Module:
        """The pure module that gives this, or all of the list or dict in which it stands: what ``ik.compile`` runs."""
        return _module(self, outputs)

    # What needs a value

    def __bool__(self) -> bool:
        raise _no_value(
            self,
            "it has no truth value",
            "for a choice in the graph use dsl.where (both sides computed) or dsl.cond (one branch runs), for a loop "
            "dsl.while_loop; for a choice while tracing use a static argument",
        )

    def __int__(self) -> int:
        raise _no_value(self, "it is no int", "use dsl.cast(x, 'int64'), or a static argument where Python needs it")

    def __float__(self) -> float:
        raise _no_value(self, "it is no float", "use dsl.cast(x, 'float32'), or run it: ik.compile(x)(...)")

    def __complex__(self) -> complex:
        raise _no_value(self, "it is no complex number", "run it: ik.compile(x)(...)")

    def __index__(self) -> int:
        raise _no_value(
            self, "it is no index", "dsl.fori repeats a number of times that a symbol gives; x[i] takes symbols"
        )

    def __len__(self) -> int:
        raise _no_value(
            self, "it has no length in Python", "x.shape[0] is the size where it is known, dsl.shape(x)[0] as a symbol"
        )

    def __iter__(self) -> Iterator[Any]:
        raise _no_value(
            self,
            "it cannot be iterated over",
            "use dsl.unstack(x) where the first size is known, else dsl.map, dsl.scan or dsl.fori",
        )

    def __contains__(self, item: object) -> bool:
        raise _no_value(self, "'in' needs its value", "use dsl.any(x == item)")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise _no_value(self, "it is no array", "use the functions of dsl, or run it: ik.compile(x)(...)")

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise _no_value(
            self, "its elements cannot be assigned", "symbols never change: y = dsl.set_item(x, index, value)"
        )

    # Methods that NumPy's arrays have too

    @property
    def T(self) -> symbols.Symbol:
        """The transpose, all axes reversed."""
        return self._call("transpose")

    def reshape(self, *shape: Any) -> symbols.Symbol:
        """The elements in another shape; see ``dsl.reshape``."""
        return self._call("reshape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)

    def astype(self, dtype: Any) -> symbols.Symbol:
        """The values in another dtype."""
        return self._call("cast", dtype)

    def transpose(self, *axes: Any) -> symbols.Symbol:
        """The axes in another order; reversed by default."""
        return self._call("transpose", (axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes) or None)

    def sum(self, axis: Any = None, keepdims: bool = False) -> symbols.Symbol:
        """The sum over all axes, or some."""
        return self._call("sum", axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> symbols.Symbol:
        """The mean over all axes, or some."""
        return self._call("mean", axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> symbols.Symbol:
        """The greatest element over all axes, or some."""
        return self._call("max", axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> symbols.Symbol:
        """The least element over all axes, or some."""
        return self._call("min", axis, keepdims)

    def _call(self, name: str, *args: Any) -> symbols.Symbol:
        from irkit.frontends import dsl

        return getattr(dsl, name)(self, *args)


def _no_value(what: Operand, message: str, hint: str) -> Exception:
    related = [("it was made at", what.node.site)] if isinstance(what, Symbol) else []
    return failure(SymbolError, f"{what!r} stands for a value of a later run; {message}", related=related, hint=hint)


def _module(what: Any, outputs: Sequence[Any] | Mapping[str, Any] | None) -> Module:
    from irkit.frontends.dsl.modules import pure_module

    return pure_module(what if outputs is None else outputs)


class Symbol(Operand):
    """A result of a node: an immutable expression, which any number of graphs may share.

    ``ik.compile`` takes it, and lists and dicts of symbols. Hashing and ``in`` of dicts go by identity; ``==`` makes a
    comparison for a later run.
    """

    __slots__ = ("index", "node")
    __hash__ = object.__hash__

    def __init__(self, node: Node, index: int = 0) -> None:
        self.node = node
        self.index = index

    @property
    def type(self) -> Attribute:  # type: ignore[override]
        """The value's type."""
        return self.node.types[self.index]

    @property
    def name(self) -> str:
        """The name of a placeholder, an argument or a constant; ``""`` for others."""
        return self.node.name if isinstance(self.node, PlaceholderNode | ParamNode | ConstantNode) else ""

    def __repr__(self) -> str:
        return f"<symbol {self.name}{': ' if self.name else ''}{spell(self.type)}>"


class Effect:
    """A control edge: something that a run does, such as an assignment; it has no value.

    It happens if a fetch asks for it, or for what comes after it by ``dsl.control_dependencies``.
    """

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int = 0) -> None:
        self.node = node
        self.index = index

    @property
    def type(self) -> Attribute:
        """The token type."""
        return self.node.types[self.index]

    def __repr__(self) -> str:
        return "<effect>"

    def __irkit_module__(self, outputs: Sequence[Any] | Mapping[str, Any] | None = None) -> Module:
        """As that of symbols; it is refused, since a compiled module keeps nothing."""
        return _module(self, outputs)

    def __bool__(self) -> bool:
        raise failure(SymbolError, "an effect has no truth value", related=[("it was made at", self.node.site)])
