"""The array object: a name for a symbol, or for the two parts of complex numbers, which operations in place change.

ONNX computes with real numbers only. An array of complex numbers is the symbol of its real parts and that of its
imaginary parts; at the border of a graph the pair is one tensor with a last axis of size 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import Attribute

from irkit.backends.base import spell
from irkit.errors import InferenceError, UnsupportedError
from irkit.frontends.dsl import build, indexing
from irkit.frontends.dsl.concrete import evaluate, is_concrete, settle
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.nodes import ConstantNode
from irkit.frontends.dsl.symbol import Operand, Symbol
from irkit.ir.dtypes import BY_NAME, DType
from irkit.ir.types import dtype_of, intern, tensor

__all__ = ["Array", "Device", "accept", "as_array", "check_device", "each", "from_pairs", "refused", "to_pairs", "wrap"]

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


COMPLEX_OF = {BY_NAME["float32"]: BY_NAME["complex64"], BY_NAME["float64"]: BY_NAME["complex128"]}
PART_OF = {whole: part for part, whole in COMPLEX_OF.items()}
"""The dtype of the parts of complex numbers."""


def refused(name: str, kind: DType | str) -> UnsupportedError:
    """What to raise where complex numbers are given to a function of real ones."""
    return UnsupportedError(
        f"xp.{name} of {kind}: it is of real numbers",
        hint="xp.real(z), xp.imag(z) and xp.abs(z) are real",
    )


def accept(x: Any, name: str = "") -> Symbol:
    """The symbol behind an array of real numbers, or behind what becomes a constant.

    Raises:
        UnsupportedError: for complex numbers, by the name of the function.
    """
    kind = x.dtype if isinstance(x, Array) else None
    if kind in PART_OF:
        raise refused(name, kind)  # type: ignore[arg-type]
    value = build.convert(x)
    if value.dtype in PART_OF:
        raise refused(name, value.dtype)  # type: ignore[arg-type]
    return value


def as_array(x: Any) -> Array:
    """Anything as an array; complex constants as their parts.

    Raises:
        UnsupportedError: for a symbol of complex numbers, which ONNX has no op to take apart.
    """
    if isinstance(x, Array):
        return x
    value = build.convert(x)
    if value.dtype not in PART_OF:
        return wrap(value)
    if isinstance(value.node, ConstantNode):
        found = value.node.value.array()
        return Array(*(build.convert(np.array(part, order="C")) for part in (found.real, found.imag)))
    raise UnsupportedError(
        f"{value!r}: ONNX has no op that takes complex numbers apart",
        hint="declare the parts, a tensor of floats with a last axis of size 2, and take xp.from_pairs of it",
    )


def wrap(x: Symbol) -> Array:
    """A symbol as an array; the sizes of a concrete one are always known."""
    return Array(settle(x))


def each(function: Callable[..., Symbol], *arrays: Array) -> Array:
    """What a function of symbols makes of the real parts, and of the imaginary ones if there are."""
    return Array(*(settle(function(*parts)) for parts in zip(*(x.parts for x in arrays), strict=True)))


def from_pairs(x: Any, /) -> Array:
    """The complex numbers whose real and imaginary parts stand along the last axis, of size 2, of floats.

    Raises:
        SymbolError: for another last axis or dtype.
    """
    value = accept(x, "from_pairs")
    if value.dtype not in COMPLEX_OF or not value.shape or value.shape[-1] != 2:
        raise failure(SymbolError, f"xp.from_pairs of {value!r}", hint="float32 or float64 with a last axis of size 2")
    return Array(*(settle(build.make("Gather", value, np.array(i), axis=-1)) for i in range(2)))


def to_pairs(x: Any, /) -> Array:
    """Real and imaginary parts along a new last axis of size 2: a real array; also what a graph gives as its output."""
    value = as_array(x)
    if len(value.parts) == 1:
        raise failure(SymbolError, f"xp.to_pairs of {value!r}, which is not complex", hint="xp.astype makes it so")
    return wrap(shapes.stack(value.parts, -1))


class IndexingError(InferenceError, IndexError):
    """An index that does not fit the array."""


class Array(Operand):
    """An array of the standard: a lazy expression, evaluated when Python asks for a value of a concrete one.

    Symbols never change. ``x[i] = v`` and ``x += y`` make ``x`` name a new one; what was computed from ``x`` before
    stays as it was.
    """

    __slots__ = ("parts",)
    __hash__ = object.__hash__

    parts: tuple[Symbol, ...]
    """The symbol that it names now; of complex numbers, those of the real and the imaginary parts."""

    if TYPE_CHECKING:
        # They are set below; those of all operands give symbols.
        __add__: Any
        __radd__: Any
        __sub__: Any
        __rsub__: Any
        __mul__: Any
        __rmul__: Any
        __truediv__: Any
        __rtruediv__: Any
        __pow__: Any
        __rpow__: Any
        __matmul__: Any
        __rmatmul__: Any
        __neg__: Any
        __eq__: Any
        __ne__: Any
        __lt__: Any
        __le__: Any
        __gt__: Any
        __ge__: Any

    def __init__(self, *parts: Symbol) -> None:
        self.parts = parts

    # What it is

    @property
    def value(self) -> Symbol:
        """The symbol that it names now.

        Raises:
            UnsupportedError: for complex numbers, which are two.
        """
        if len(self.parts) > 1:
            raise UnsupportedError(
                f"{self!r} is two symbols, its real and imaginary parts; here one is needed",
                hint="functions of xp take it; xp.real, xp.imag and xp.to_pairs make real arrays of it",
            )
        return self.parts[0]  # pyright: ignore[reportGeneralTypeIssues]

    def __irkit_output__(self) -> Symbol:
        """What a graph gives for it: of complex numbers, real and imaginary parts along a last axis."""
        return to_pairs(self).value if len(self.parts) > 1 else self.value

    @property
    def node(self) -> Any:
        """The node of the symbol; of complex numbers, that of the real parts."""
        return self.parts[0].node

    @property
    def type(self) -> Attribute:  # type: ignore[override]
        """The value's type."""
        found = self.parts[0].type
        if len(self.parts) == 1:
            return found
        return intern(tensor(COMPLEX_OF[dtype_of(found)], self.parts[0].shape))  # type: ignore[index]

    @property
    def device(self) -> Device:
        """Where concrete arrays are evaluated: ``"cpu"``."""
        return CPU

    @property
    def size(self) -> int | None:
        """The number of elements; None where it is unknown."""
        return shapes.elements(self.parts[0])

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
        return each(shapes.matrix_transpose, self)

    def to_device(self, device: Device, /, *, stream: Any = None) -> Array:
        """The array itself: there is one device."""
        check_device(device)
        if stream is not None:
            raise failure(SymbolError, "the device 'cpu' has no streams", hint="leave out stream=")
        return self

    def __repr__(self) -> str:
        if all(map(is_concrete, self.parts)):
            return f"Array({np.array2string(self.evaluated(), separator=', ', threshold=100)}, dtype={self.dtype})"
        name = "" if len(self.parts) > 1 or not self.value.name else f"{self.value.name}: "
        return f"<array {name}{spell(self.type)}>"

    # Values

    def evaluated(self) -> np.ndarray:
        """The values of a concrete array, read-only."""
        found = [evaluate(part) for part in self.parts]
        if len(found) == 1:
            return found[0]
        values = np.empty(found[0].shape, self.dtype.numpy)  # type: ignore[union-attr]
        values.real, values.imag = found
        values.flags.writeable = False
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:  # type: ignore[override]
        found = self.evaluated()
        if copy is False and dtype is not None and found.dtype != np.dtype(dtype):
            raise ValueError(f"a {found.dtype} array cannot be one of {dtype} without a copy")
        return np.array(found, dtype, copy=copy)

    def _one(self, what: str) -> Any:
        found = self.evaluated()
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
        # The values of symbols never change: only those who know of read-only memory share it.
        knows = max_version is not None and tuple(max_version) >= (1, 0)
        found = self.evaluated()
        given = found if copy is False and knows else np.array(found)
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
        try:
            return each(lambda part: indexing.get_item(*_masked(part, key)), self)
        except InferenceError as error:
            raise IndexingError(error.message, op=error.op, where=error.where, hint=error.hint) from None

    def __setitem__(self, key: Any, value: Any, /) -> None:  # type: ignore[override]
        from irkit.frontends.dsl.xp.dtypes import result_type, to

        given = value if type(value) in _NUMBERS else as_array(value)
        kind = self.dtype
        if kind is None or result_type(self, given) is not kind:
            raise failure(SymbolError, f"{value!r} does not fit into {self!r}", hint="xp.astype casts it")

        def changed(part: Symbol, filler: Symbol) -> Symbol:
            x, index = _masked(part, key)
            made = indexing.set_item(x, index, filler)
            return made if x is part else shapes.squeeze(made, 0)

        self.parts = each(changed, self, to(given, kind)).parts  # pyright: ignore[reportArgumentType]

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
        self.parts = result.parts
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
    "conjugate": "conj",
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
