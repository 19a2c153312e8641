"""The array object: a name for a symbol, which in-place operations change to name another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from irkit.errors import InferenceError
from irkit.frontends.dsl import build, indexing, operators
from irkit.frontends.dsl.concrete import evaluate, is_concrete, settle
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.symbol import Operand, Symbol

__all__ = ["Array", "Device", "accept", "check_device", "wrap"]

Device = str
CPU: Device = "cpu"
_NUMBERS = (bool, int, float, complex)
_KIND_OF_CPU = 1  # kDLCPU


def check_device(device: Device | None) -> None:
    """Refuses all devices but the one there is.

    Raises:
        SymbolError: for another.
    """
    if device not in (None, CPU):
        raise failure(SymbolError, f"there is no device {device!r}", hint="xp has 'cpu'; dsl.device marks nodes")


def accept(x: Any) -> Symbol:
    """The symbol behind an array, or behind what becomes a constant."""
    return build.convert(x)


def wrap(x: Symbol) -> Array:
    """A symbol as an array; the sizes of a concrete one are always known."""
    return Array(settle(x))


class IndexingError(InferenceError, IndexError):
    """An index that does not fit the array."""


class Array(Operand):
    """An array of the standard: a lazy expression, evaluated when Python asks for a value of a concrete one.

    Symbols never change. ``x[i] = v`` and ``x += y`` make ``x`` name a new one; what was computed from ``x`` before
    stays as it was.
    """

    __slots__ = ("_symbol",)
    __hash__ = object.__hash__

    def __init__(self, symbol: Symbol) -> None:
        self._symbol = symbol

    # What it is

    @property
    def value(self) -> Symbol:
        """The symbol that it names now."""
        return self._symbol

    @property
    def node(self) -> Any:
        """The node of the symbol."""
        return self._symbol.node

    @property
    def type(self) -> Attribute:  # type: ignore[override]
        """The value's type."""
        return self._symbol.type

    @property
    def device(self) -> Device:
        """Where concrete arrays are evaluated: ``"cpu"``."""
        return CPU

    @property
    def size(self) -> int | None:
        """The number of elements; None where it is unknown."""
        return shapes.elements(self._symbol)

    @property
    def T(self) -> Array:  # type: ignore[override]
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise failure(SymbolError, f"x.T is of matrices; {self!r}", hint="use xp.permute_dims, or x.mT")
        return self.mT

    @property
    def mT(self) -> Array:
        """The last two axes exchanged."""
        if self.ndim is not None and self.ndim < 2:
            raise failure(SymbolError, f"x.mT needs two axes; {self!r}", hint="use xp.expand_dims")
        return wrap(shapes.matrix_transpose(self._symbol))

    def to_device(self, device: Device, /, *, stream: Any = None) -> Array:
        """The array itself: there is one device."""
        check_device(device)
        if stream is not None:
            raise failure(SymbolError, "the device 'cpu' has no streams", hint="leave out stream=")
        return self

    def __repr__(self) -> str:
        if is_concrete(self._symbol):
            return (
                f"Array({np.array2string(evaluate(self._symbol), separator=', ', threshold=100)}, dtype={self.dtype})"
            )
        return repr(self._symbol).replace("<symbol", "<array")

    # Values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:  # type: ignore[override]
        found = evaluate(self._symbol)
        if copy is False and dtype is not None and found.dtype != np.dtype(dtype):
            raise ValueError(f"a {found.dtype} array cannot be one of {dtype} without a copy")
        return np.array(found, dtype, copy=copy)

    def _one(self, what: str) -> Any:
        found = evaluate(self._symbol)
        if found.ndim:
            raise failure(SymbolError, f"{what} of {self!r}, which has axes", hint="index it: x[0]")
        return found[()]

    def __bool__(self) -> bool:
        return bool(self._one("the truth value"))

    def __int__(self) -> int:
        return int(self._one("the int"))

    def __float__(self) -> float:
        return float(self._one("the float"))

    def __complex__(self) -> complex:
        return complex(self._one("the complex number"))

    def __index__(self) -> int:
        if self.dtype is not None and not self.dtype.is_integer:
            raise failure(SymbolError, f"an index of {self!r}", hint="an index is of an integer dtype")
        return int(self._one("the index"))

    def __len__(self) -> int:
        if not self.shape or not isinstance(self.shape[0], int):
            raise failure(SymbolError, f"{self!r} has no length", hint="x.shape tells what is known")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return iter([self[i] for i in range(len(self))])

    def __dlpack__(
        self, /, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        # The values of symbols never change: without a copy, only to those who know of read-only memory.
        found = evaluate(self._symbol)
        given = found if copy is False else np.array(found)
        return given.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self, /) -> tuple[int, int]:
        return (_KIND_OF_CPU, 0)

    # NumPy's functions and methods, which give arrays of this namespace too

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        from irkit.frontends.dsl.xp import FUNCTIONS

        name = re.sub("^arc", "a", ufunc.__name__)
        function = FUNCTIONS.get(_OF_NUMPY.get(name, name)) if method == "__call__" and not options else None
        return super().__array_ufunc__(ufunc, method, *inputs, **options) if function is None else function(*inputs)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def _call(self, name: str, *args: Any) -> Any:
        return wrap(super()._call(name, *args))

    # Indexing

    def __getitem__(self, key: Any, /) -> Array:  # type: ignore[override]
        x, index = _masked(self._symbol, key)
        try:
            return wrap(indexing.get_item(x, index))
        except InferenceError as error:
            raise IndexingError(error.message, op=error.op, where=error.where, hint=error.hint) from None

    def __setitem__(self, key: Any, value: Any, /) -> None:  # type: ignore[override]
        from irkit.frontends.dsl.xp.dtypes import result_type

        given = value if type(value) in _NUMBERS else accept(value)
        kind = self.dtype
        if kind is None or result_type(self, given) is not kind:
            raise failure(SymbolError, f"{value!r} does not fit into {self!r}", hint="xp.astype casts it")
        filler = build.number(given, kind) if type(given) in _NUMBERS else operators.cast(given, kind)  # type: ignore[arg-type]
        x, index = _masked(self._symbol, key)
        made = indexing.set_item(x, index, filler)
        self._symbol = settle(made if x is self._symbol else shapes.squeeze(made, 0))

    def _become(self, result: Any) -> Array:
        """Names another symbol from now on, which has to be of the same dtype and shape."""
        if result is NotImplemented:
            return result
        if result.dtype is not self.dtype or result.shape != self.shape:
            raise failure(
                SymbolError,
                f"in place, {self!r} cannot become {result!r}",
                hint="an operation in place keeps dtype and shape; write x = x + y",
            )
        self._symbol = result.value
        return self


def _masked(x: Symbol, key: Any) -> tuple[Symbol, Any]:
    """``x[mask]`` with a mask of no axes is an index of a new first axis; other masks are checked."""
    given = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    if isinstance(given, bool) or (
        isinstance(given, Operand) and given.ndim == 0 and given.dtype is not None and given.dtype.kind == "bool"
    ):
        return shapes.expand_dims(x, 0), shapes.reshape(accept(given), [1])
    if isinstance(given, Operand) and given.dtype is not None and given.dtype.kind == "bool" and x.shape is not None:
        mask = given.shape or ()
        pairs = zip(mask, x.shape, strict=False)
        if len(mask) > len(x.shape) or any(_differ(a, b) and a != 0 for a, b in pairs):
            raise failure(IndexingError, f"a mask of shape {mask} for {x!r}", hint="sizes of a mask are those of axes")
    return x, key


def _differ(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def _operator(function: str, order: int) -> Any:
    def method(self: Array, other: Any, /) -> Any:
        from irkit.frontends.dsl.xp import FUNCTIONS

        if not isinstance(other, (*_NUMBERS, Operand, np.ndarray, np.generic)):
            return NotImplemented
        called = FUNCTIONS[function]
        return called(self, other) if order > 0 else called(other, self)

    return method


def _in_place(function: str) -> Any:
    plain = _operator(function, 1)

    def method(self: Array, other: Any, /) -> Any:
        return self._become(plain(self, other))

    return method


_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
_COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}
_OF_NUMPY = {
    "absolute": "abs",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
}
"""NumPy's names of functions that the standard calls otherwise."""

_UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}


def _unary(function: str) -> Any:
    def method(self: Array, /) -> Any:
        from irkit.frontends.dsl.xp import FUNCTIONS

        return FUNCTIONS[function](self)

    return method


for _name, _function in _OPERATORS.items():
    setattr(Array, f"__{_name}__", _operator(_function, 1))
    setattr(Array, f"__r{_name}__", _operator(_function, -1))
    setattr(Array, f"__i{_name}__", _in_place(_function))
for _name, _function in _COMPARISONS.items():
    setattr(Array, f"__{_name}__", _operator(_function, 1))
for _name, _function in _UNARY.items():
    setattr(Array, f"__{_name}__", _unary(_function))
