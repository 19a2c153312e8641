"""What every backend's compiled module is: named inputs and outputs, feeds checked before anything runs.

Values are ``numpy.ndarray`` for tensors (``object`` arrays of ``str`` for strings), ``list`` for sequences, the value
or ``None`` for optionals, ``dict`` for maps. Python numbers and nested lists are taken for tensors where the dtype of
the input holds them; an array must already have the input's dtype.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from irkit.errors import FeedError
from irkit.ir import dims
from irkit.ir.constants import SparseAttr, TensorAttr
from irkit.ir.dtypes import DType
from irkit.ir.module import Module
from irkit.ir.types import MapType, OptType, SeqType, SparseType, dtype_of, tensor_info

__all__ = ["Executable", "describe_value", "spell"]


def spell(value_type: Attribute) -> str:
    """A type for people: ``float32[N, 3]``, ``float32[...]`` for an unknown rank, ``a sequence of int64[]``."""
    info = tensor_info(value_type)
    if info is not None:
        if info.shape is None:
            return f"{info.dtype}[...]"
        return f"{info.dtype}[{', '.join('?' if d is None else str(d) for d in info.shape)}]"
    match value_type:
        case SeqType():
            return f"a sequence of {spell(value_type.element)}"
        case OptType():
            return f"an optional {spell(value_type.element)}"
        case MapType():
            return f"a map from {dtype_of(value_type.key)} to {spell(value_type.value)}"
        case SparseType():
            return spell(value_type.tensor)
        case _:
            return "a value of any type"


def describe_value(value: Any) -> str:
    """A value for people: ``float32[2, 3]``, ``a list of 3``, ``int 5``, ``nothing``."""
    match value:
        case None:
            return "nothing"
        case np.ndarray():
            return f"{_dtype_name(value.dtype)}{list(value.shape)}"
        case np.generic():
            return f"{_dtype_name(value.dtype)}[]"
        case list() | tuple():
            return f"a {type(value).__name__} of {len(value)}"
        case dict():
            return f"a dict of {len(value)}"
        case bool() | int() | float() | complex():
            return f"{type(value).__name__} {value}"
        case _:
            return f"a {type(value).__name__}"


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return "string" if dtype.kind in "OUS" else dtype.name


class Executable(ABC):
    """A module made ready to run by a backend.

    Attributes:
        inputs: names and types, in order.
        outputs: names and types, in order.
        defaults: the values of inputs that need not be fed.
    """

    def __init__(self, module: Module) -> None:
        self.inputs: dict[str, Attribute] = dict(module.inputs)
        self.outputs: dict[str, Attribute] = dict(module.outputs)
        self.defaults: dict[str, np.ndarray] = {
            name: attr.array() for name, attr in module.defaults.items() if isinstance(attr, TensorAttr | SparseAttr)
        }
        self._dtypes = {name: _plain_dtype(value_type) for name, value_type in self.inputs.items()}
        self._fitting: set[tuple[tuple[int, ...], ...]] = set()
        self._all = tuple(self.outputs)

    @property
    def input_names(self) -> list[str]:
        """The inputs' names, in order."""
        return list(self.inputs)

    @property
    def output_names(self) -> list[str]:
        """The outputs' names, in order."""
        return list(self.outputs)

    def run(self, feeds: Mapping[str, Any], fetches: Iterable[str] | None = None) -> dict[str, Any]:
        """Runs the module.

        Args:
            feeds: values by input name.
            fetches: the outputs wanted; by default all, in order. Only what they depend on is run, and only the inputs
                that they depend on need be fed.

        Returns:
            the values by output name, in the order asked for. They are the caller's own: nothing else refers to their
            memory.

        Raises:
            FeedError: if inputs are missing, unknown, or of the wrong dtype or shape, or an output is unknown.
            ExecutionError: if an op fails, naming it and where it came from.
        """
        if fetches is None:
            return dict(zip(self._all, self.execute(self.check_feeds(feeds), self._all), strict=True))
        names = tuple(fetches)
        self._check_fetches(names)
        values = self.check_feeds(feeds, self.needed_inputs(names))
        return dict(zip(names, self.execute(values, names), strict=True))

    def __call__(self, /, *args: Any, **feeds: Any) -> Any:
        """Runs the module on inputs in order, by name, or both; returns one value, or a tuple of several outputs."""
        if len(args) > len(self.inputs):
            raise FeedError(
                f"{len(args)} inputs are given, but there are {len(self.inputs)}: {', '.join(self.inputs) or 'none'}"
            )
        named = dict(zip(self.inputs, args, strict=False))
        if feeds:
            double = [name for name in named if name in feeds]
            if double:
                hint = "give it by position or by name, not by both"
                raise FeedError(f"input '{double[0]}' is given twice", hint=hint)
            named.update(feeds)
        results = tuple(self.run(named).values())
        return results[0] if len(results) == 1 else results

    @abstractmethod
    def execute(self, values: dict[str, Any], fetches: tuple[str, ...]) -> Sequence[Any]:
        """Runs on checked feeds; returns the values of ``fetches``.

        Args:
            values: by name, the inputs that are needed (and any others that were given).
            fetches: names for which ``can_fetch`` holds.
        """

    def can_fetch(self, name: str) -> bool:
        """Whether ``run`` can return a value of this name."""
        return name in self.outputs

    def needed_inputs(self, fetches: tuple[str, ...]) -> set[str]:
        """The inputs that these outputs depend on; all of them, unless a backend knows better."""
        return set(self.inputs)

    def _check_fetches(self, names: tuple[str, ...]) -> None:
        for name in names:
            if not self.can_fetch(name):
                raise FeedError(f"there is no output '{name}'", hint=f"the outputs are: {', '.join(self.outputs)}")

    def check_feeds(self, feeds: Mapping[str, Any], needed: set[str] | None = None) -> dict[str, Any]:
        """The feeds as the backend needs them: every needed input there, of its dtype and shape.

        Args:
            needed: the inputs that must be there; by default all. Others are checked where given.

        Raises:
            FeedError: naming the input, what was expected, what was found, and what to do.
        """
        shapes = self._shapes(feeds)
        if shapes in self._fitting:
            return dict(feeds)
        unknown = [name for name in feeds if name not in self.inputs]
        if unknown:
            known = ", ".join(f"'{name}'" for name in self.inputs) or "none"
            raise FeedError(f"there is no input '{unknown[0]}'", hint=f"the inputs are: {known}")
        checked: dict[str, Any] = {}
        symbols: dict[str, tuple[int, str]] = {}
        for name, value_type in self.inputs.items():
            if name in feeds:
                checked[name] = _checked(feeds[name], value_type, f"input '{name}'", symbols)
            elif name in self.defaults:
                checked[name] = self.defaults[name]
            elif isinstance(value_type, OptType):
                checked[name] = None
            elif needed is None or name in needed:
                given = ", ".join(f"'{n}'" for n in feeds) or "nothing"
                raise FeedError(
                    f"input '{name}' ({spell(value_type)}) is missing; given: {given}", hint=f"feed '{name}' too"
                )
        _check_expressions(symbols)
        if shapes is not None:
            if len(self._fitting) >= _REMEMBERED:
                self._fitting.clear()
            self._fitting.add(shapes)
        return checked

    def _shapes(self, feeds: Mapping[str, Any]) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of the feeds, if they are arrays of the dtypes of all inputs: what fitted once fits again."""
        if len(feeds) != len(self._dtypes):
            return None
        shapes: list[tuple[int, ...]] = []
        for name, dtype in self._dtypes.items():
            value = feeds.get(name)
            if type(value) is not np.ndarray or value.dtype is not dtype:
                return None
            shapes.append(value.shape)
        return tuple(shapes)


_REMEMBERED = 64
"""How many different shapes of the feeds are remembered as right."""


def _plain_dtype(value_type: Attribute) -> np.dtype[Any] | None:
    """The dtype of the arrays that are fed as they are."""
    info = tensor_info(value_type)
    return None if info is None or info.dtype.kind == "string" else info.dtype.numpy


def _check_expressions(symbols: Mapping[str, tuple[int, str]]) -> None:
    """Sizes that are declared as expressions, such as ``past + 1``, are what the other sizes make them.

    A symbol that stands in expressions alone is found from one that is linear in it.
    """
    compound = [text for text in symbols if not text.isidentifier() and dims.symbols_in(text) != [text]]
    if not compound:
        return
    known = {text: found for text, (found, _) in symbols.items() if text not in compound}
    # Each round may make one more symbol known, which another expression needs.
    for text in compound * len(compound):
        found, label = symbols[text]
        solved = dims.solve(text, found, known)
        if solved is None:
            expected = dims.evaluate(text, known)
            names = [name for name in dims.symbols_in(text) if name in known]
            given = ", ".join(f"'{name}' is {known[name]}" for name in names)
            told = f"'{text}' cannot be {found}" if expected is None else f"'{text}' is {found}, expected {expected}"
            raise FeedError(f"{label}: {told}", hint=given or "sizes are numbers from 0 on")
        known.update(solved)


def _checked(value: Any, value_type: Attribute, label: str, symbols: dict[str, tuple[int, str]]) -> Any:
    info = tensor_info(value_type)
    if info is not None:
        array = _tensor(value, info.dtype, value_type, label)
        if info.shape is not None:
            _check_shape(array, info.shape, value_type, label, symbols)
        return array
    match value_type:
        case SeqType():
            if not isinstance(value, list | tuple):
                raise _mismatch(label, value_type, value, "feed a list")
            return [_checked(v, value_type.element, f"element {i} of {label}", {}) for i, v in enumerate(value)]
        case OptType():
            return None if value is None else _checked(value, value_type.element, label, symbols)
        case MapType():
            if not isinstance(value, dict):
                raise _mismatch(label, value_type, value, "feed a dict")
            return _map(value, value_type, label)
        case SparseType():
            return _checked(value, value_type.tensor, label, symbols)
        case _:
            return np.asarray(value) if isinstance(value, bool | int | float | complex | np.generic) else value


def _map(value: dict[Any, Any], value_type: MapType, label: str) -> dict[Any, Any]:
    """The map with values of its own dtype: a kernel cannot tell a double from a float by a Python number."""
    kind = dtype_of(value_type.value)
    if kind is None:
        return dict(value)
    return {k: _tensor(v, kind, value_type.value, f"the value of {k!r} in {label}")[()] for k, v in value.items()}


def _mismatch(label: str, value_type: Attribute, value: Any, hint: str) -> FeedError:
    return FeedError(f"{label} is {describe_value(value)}, expected {spell(value_type)}", hint=hint)


def _tensor(value: Any, kind: DType, value_type: Attribute, label: str) -> np.ndarray:
    """The array of this dtype that was fed, or that a Python number or list stands for."""
    if type(value) is np.ndarray and value.dtype == kind.numpy and kind.kind != "string":
        return value
    if value is None:
        raise _mismatch(label, value_type, value, "feed an array")
    if kind.kind == "string":
        return _strings(value, value_type, label)
    if isinstance(value, np.ndarray | np.generic):
        # Masked arrays would lose their mask in silence.
        if isinstance(value, np.ma.MaskedArray):
            raise _mismatch(label, value_type, value, "fill the mask first: x.filled(...)")
        array = np.asarray(value)
        if array.dtype.newbyteorder("=") != kind.numpy:
            raise _mismatch(label, value_type, value, _cast_hint(kind))
        return array.astype(kind.numpy, copy=False)
    try:
        array = np.array(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise _mismatch(label, value_type, value, f"it is no array: {error}") from None
    return _from_python(array, kind, value_type, label, value)


def _cast_hint(kind: DType) -> str:
    if kind.numpy.isbuiltin == 1:
        return f"cast it: x.astype('{kind.numpy.name}')"
    return f"cast it: x.astype(ml_dtypes.{kind.numpy.name})"


_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_KIND_RANKS = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def _from_python(array: np.ndarray, kind: DType, value_type: Attribute, label: str, value: Any) -> np.ndarray:
    """Numbers as this dtype, where it holds them: integers exactly, floats rounded."""
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(kind.numpy)
    rank = _RANKS.get(array.dtype.kind)
    if rank is None or rank > _KIND_RANKS[kind.kind] or (rank == 0) != (kind.kind == "bool"):
        raise _mismatch(label, value_type, value, f"feed numbers that {kind} can hold, or an array of that dtype")
    with np.errstate(all="ignore"):
        cast = array.astype(kind.numpy)
    if rank == 1 and not np.array_equal(np.real(cast).astype(array.dtype), array):
        raise FeedError(
            f"{label} has numbers that {kind} cannot hold exactly: {_first_bad(cast, array)}",
            hint=f"expected {spell(value_type)}",
        )
    if rank == 2 and bool(np.any(np.isfinite(array) & ~np.isfinite(np.real(cast).astype(np.float64)))):
        raise FeedError(f"{label} has numbers beyond the range of {kind}", hint=f"expected {spell(value_type)}")
    return cast


def _first_bad(cast: np.ndarray, array: np.ndarray) -> Any:
    return array.reshape(-1)[int(np.argmax((np.real(cast).astype(array.dtype) != array).reshape(-1)))]


def _strings(value: Any, value_type: Attribute, label: str) -> np.ndarray:
    """An object array of ``str``; bytes are decoded as UTF-8."""
    given = value if isinstance(value, np.ndarray) else np.array(value, object)
    if given.dtype.kind not in "OUS":
        raise _mismatch(label, value_type, value, "feed str, a list of str, or an object array of str")
    made = np.empty(given.shape, object)
    flat = made.reshape(-1)
    for index, item in enumerate(given.reshape(-1)):
        if isinstance(item, bytes):
            flat[index] = item.decode("utf-8", "surrogateescape")
        elif isinstance(item, str):
            flat[index] = str(item)
        else:
            raise _mismatch(f"element {index} of {label}", value_type, item, "feed str")
    return made


def _check_shape(
    array: np.ndarray,
    shape: Sequence[int | str | None],
    value_type: Attribute,
    label: str,
    symbols: dict[str, tuple[int, str]],
) -> None:
    if len(shape) != array.ndim:
        hint = f"its rank is {array.ndim}, expected {len(shape)}"
        if array.size == math.prod(d for d in shape if isinstance(d, int)) and all(isinstance(d, int) for d in shape):
            hint += f"; reshape it: x.reshape({tuple(shape)})"
        raise _mismatch(label, value_type, array, hint)
    for axis, (expected, found) in enumerate(zip(shape, array.shape, strict=True)):
        if expected is None or expected == found:
            continue
        if isinstance(expected, int):
            raise _mismatch(label, value_type, array, f"axis {axis} has size {found}, expected {expected}")
        first = symbols.setdefault(expected, (found, label))
        if first[0] != found:
            raise _mismatch(
                label, value_type, array, f"'{expected}' is {found} on axis {axis} here, but {first[0]} in {first[1]}"
            )
