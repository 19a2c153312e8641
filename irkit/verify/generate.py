"""Inputs made from types: for every dtype, at chosen sizes, with special values on request.

Floats are standard normal, integers small. What an input is used for narrows it down: the indices of a ``Gather`` stay
within the axis, the shape given to a ``Reshape`` fits, a ``Loop`` gets a short trip count. Those uses are followed
through ops that only move or cast values (``Cast``, ``Unsqueeze``, ``Concat``...) and into subgraphs.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from irkit.backends.base import spell
from irkit.errors import UnsupportedError
from irkit.ir import dims
from irkit.ir.constants import TensorAttr
from irkit.ir.dtypes import BY_NAME, DType
from irkit.ir.module import Module
from irkit.ir.op import TensorOp
from irkit.ir.types import MapType, OptType, SeqType, Shape, SparseType, UnknownType, dtype_of, shape_of, tensor_info

__all__ = ["Sizes", "random_array", "random_feeds", "random_value", "symbols"]

UNKNOWN_RANK = 2
"""How many axes a tensor of unknown rank gets."""

_WORDS = ("", "a", "bé", "hello world", "日本", "-1.5", "A b")


class Sizes:
    """The size of every symbolic dim: the same wherever a symbol stands, worked out where it is an expression.

    Args:
        given: sizes by symbol.
        choose: the size of any other symbol.
    """

    def __init__(self, given: Mapping[str, int], choose: Callable[[str], int]) -> None:
        self.known = dict(given)
        self._choose = choose

    def of(self, dim: int | str | None) -> int:
        """The size of an axis; an unknown one is chosen as if it were a symbol."""
        if isinstance(dim, int):
            return dim
        text = dim or "?"
        if text not in self.known:
            names = dims.symbols_in(text)
            if names == [text]:
                self.known[text] = self._choose(text)
            else:
                found = dims.evaluate(text, {name: self.of(name) for name in names})
                self.known[text] = 0 if found is None else max(found, 0)
        return self.known[text]


def symbols(module: Module) -> list[str]:
    """The symbols that the sizes of the inputs depend on, in order of their first use; ``"?"`` for unknown sizes."""
    found: dict[str, None] = {}
    for value_type in module.inputs.values():
        for dim in shape_of(value_type) or ():
            if not isinstance(dim, int):
                found.update(dict.fromkeys(dims.symbols_in(dim or "?")))
    return list(found)


def random_feeds(
    module: Module,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    special: bool = False,
    *,
    defaults: bool = False,
) -> dict[str, Any]:
    """Feeds for the inputs of a module.

    Args:
        seed: one seed gives one set of feeds; each input's values depend on its name, not on its place.
        sizes: of symbolic dims, by name; 0 makes empty tensors. The others are 2 to 4, by their names.
        special: put NaN, infinities, signed zeros and denormals among floats, and extreme values among integers whose
            use is not known to be that of an index.
        defaults: feed overridable initializers too.

    Raises:
        UnsupportedError: for an input whose type says nothing.
    """
    resolved = Sizes(sizes or {}, lambda name: 2 + (zlib.crc32(name.encode("utf-8", "surrogateescape")) + seed) % 3)
    feeds: dict[str, Any] = {}
    given = module.defaults
    for (name, value_type), value in zip(module.inputs.items(), module.block.args, strict=True):
        if name in given and not defaults:
            continue
        rng = np.random.default_rng([seed, zlib.crc32(name.encode("utf-8", "surrogateescape"))])
        default = given.get(name)
        if isinstance(default, TensorAttr):
            feeds[name] = _near(default.array(), rng)
            continue
        use = _use_of(value)
        if use is None:
            feeds[name] = random_value(value_type, rng, resolved, special, f"input '{name}'")
        else:
            info = tensor_info(value_type)
            assert info is not None
            shape = _concrete(info.shape, resolved)
            feeds[name] = use.make(rng, shape, resolved).astype(info.dtype.numpy)
    return feeds


def random_value(
    value_type: Attribute, rng: np.random.Generator, sizes: Sizes, special: bool = False, label: str = "the value"
) -> Any:
    """A value of a type: an array, a list for a sequence, a dict for a map.

    Raises:
        UnsupportedError: if the type says nothing.
    """
    info = tensor_info(value_type)
    if info is not None:
        return random_array(info.dtype, _concrete(info.shape, sizes), rng, special)
    match value_type:
        case SeqType():
            return [random_value(value_type.element, rng, sizes, special, label) for _ in range(3)]
        case OptType():
            return random_value(value_type.element, rng, sizes, special, label)
        case SparseType():
            dense = random_value(value_type.tensor, rng, sizes, special, label)
            return np.where(rng.random(dense.shape) < 0.5, dense, np.zeros((), dense.dtype))
        case MapType():
            key = dtype_of(value_type.key)
            keys: Sequence[Any] = _WORDS[1:4] if key is not None and key.kind == "string" else (1, 2, 5)
            made = {k: random_value(value_type.value, rng, sizes, special, label) for k in keys}
            return {k: v.item() if isinstance(v, np.ndarray) and v.ndim == 0 else v for k, v in made.items()}
        case UnknownType():
            raise UnsupportedError(f"{label} is of unknown type, so no value can be made up", hint="give feeds")
        case _:
            raise UnsupportedError(f"no value can be made up for {label}, {spell(value_type)}", hint="give feeds")


def random_array(kind: DType, shape: Sequence[int], rng: np.random.Generator, special: bool = False) -> np.ndarray:
    """A random array of this dtype and shape."""
    match kind.kind:
        case "string":
            return np.array(rng.choice(np.array(_WORDS, object), tuple(shape)), object)
        case "bool":
            return np.asarray(rng.integers(0, 2, shape), np.bool_)
        case "int" | "uint":
            return _integers(kind, shape, rng, special)
        case "complex":
            made = np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape))
        case _:
            made = np.asarray(rng.standard_normal(shape))
            if kind.name == "float8_e8m0fnu":
                made = np.exp2(np.round(2 * made))
    with np.errstate(all="ignore"):
        array = made.astype(kind.numpy)
        if special and kind.name != "float8_e8m0fnu":
            flat, count = array.reshape(-1), min(array.size, max(6, array.size // 8))
            flat[rng.permutation(array.size)[:count]] = np.resize(_special_floats(kind), count).astype(kind.numpy)
    return array


def _special_floats(kind: DType) -> np.ndarray:
    """What often goes wrong, most telling first: any array gets the first ones."""
    part = {"complex64": np.float32, "complex128": np.float64}.get(kind.name, kind.numpy)
    info: Any = _finfo(np.dtype(part))
    tiny = [float(info.smallest_subnormal), -float(info.smallest_subnormal), float(info.smallest_normal)]
    return np.array([-0.0, np.nan, np.inf, 0.0, -np.inf, tiny[0], 1.0, -0.0, *tiny[1:]])


def _finfo(kind: np.dtype[Any]) -> Any:
    return np.finfo(kind) if kind.isbuiltin == 1 else ml_dtypes.finfo(kind)


def _integers(kind: DType, shape: Sequence[int], rng: np.random.Generator, special: bool) -> np.ndarray:
    signed = kind.kind == "int"
    low, high = (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if signed else (0, (1 << kind.bits) - 1)
    # Bytes are often pixels or quantized values, which use their whole range.
    wide = kind.bits == 8
    made = np.asarray(rng.integers(low if wide else max(low, -4), high if wide else min(high, 5), shape, endpoint=True))
    if special:
        odd = rng.choice(np.array([low, high, 0, 1], object), shape)
        made = np.where(rng.random(shape) < 0.25, odd, made.astype(object))
    return np.asarray(made).astype(kind.numpy)


def _near(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another value for an overridable initializer: floats a little off, everything else as it is."""
    kind = BY_NAME.get(array.dtype.name)
    if kind is None or not kind.is_float or kind.bits < 16:
        return array.copy()
    return (array.astype(np.float64) * (1 + 0.1 * rng.standard_normal(array.shape))).astype(array.dtype)


def _concrete(shape: Shape | None, sizes: Sizes) -> tuple[int, ...]:
    if shape is None:
        return tuple(sizes.of(f"? {axis}") for axis in range(UNKNOWN_RANK))
    return tuple(sizes.of(d) for d in shape)


# What inputs are used for


@dataclass
class _Use:
    """A use that says which values are valid."""

    op: TensorOp
    rule: Callable[[TensorOp, np.random.Generator, tuple[int, ...], Sizes], np.ndarray]

    def make(self, rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
        """Valid values of this shape."""
        return np.asarray(self.rule(self.op, rng, shape, sizes))


_Rule = Callable[[TensorOp, np.random.Generator, tuple[int, ...], Sizes], np.ndarray]


def _axis_size(op: TensorOp, operand: int, axis: int, sizes: Sizes) -> int:
    """The size of an axis of an operand, at least 1; 1 where it is not known."""
    value = op.operand(operand)
    shape = None if value is None else shape_of(value.type)
    if shape is None or not -len(shape) <= axis < len(shape):
        return 1
    dim = shape[axis]
    return 1 if dim is None else max(sizes.of(dim), 1)


def _indices(operand: int, axis: int | None = None) -> _Rule:
    """Valid indices into an axis of an operand: the attribute ``axis``, or this one."""

    def rule(op: TensorOp, rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
        which = op.attr("axis") if axis is None else axis
        return rng.integers(0, _axis_size(op, operand, 0 if which is None else which, sizes), shape)

    return rule


def _index_tuples(op: TensorOp, rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """GatherND, ScatterND: the last axis counts through the axes of the data."""
    first = op.attr("batch_dims") or 0
    limits = [_axis_size(op, 0, first + i, sizes) for i in range(shape[-1] if shape else 1)]
    return np.asarray(rng.integers(0, limits, shape)) if limits else np.zeros(shape, np.int64)


def _between(low: int, high: int) -> _Rule:
    """Any integers of this range, both ends included."""
    return lambda op, rng, shape, sizes: rng.integers(low, high, shape, endpoint=True)


def _all(number: int) -> _Rule:
    return lambda op, rng, shape, sizes: np.full(shape, number)


def _flat(op: TensorOp, rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """A shape that every tensor fits."""
    made = np.ones(shape, np.int64)
    if made.size:
        made.reshape(-1)[-1] = -1
    return made


def _counting(op: TensorOp, rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Axes: 0, 1, 2..."""
    return np.arange(math.prod(shape)).reshape(shape)


def _lengths(op: TensorOp, rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Lengths of sequences: RNNs have time on axis 0, ReverseSequence says where."""
    axis = op.attr("time_axis")
    return rng.integers(1, _axis_size(op, 0, 0 if axis is None else axis, sizes), shape, endpoint=True)


def _split_sizes(op: TensorOp, rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    total, parts = _axis_size(op, 0, op.attr("axis") or 0, sizes), max(math.prod(shape), 1)
    return np.array([total // parts + (i < total % parts) for i in range(parts)]).reshape(shape)


_RULES: dict[tuple[str, int], _Rule] = {
    ("Gather", 1): _indices(0),
    ("GatherElements", 1): _indices(0),
    ("ScatterElements", 1): _indices(0),
    ("Scatter", 1): _indices(0),
    ("TensorScatter", 2): _all(0),
    ("GatherND", 1): _index_tuples,
    ("ScatterND", 1): _index_tuples,
    ("NegativeLogLikelihoodLoss", 1): _indices(0, 1),
    ("SoftmaxCrossEntropyLoss", 1): _indices(0, 1),
    ("ArrayFeatureExtractor", 1): _indices(0, -1),
    ("OneHot", 0): _between(0, 3),
    ("OneHot", 1): _all(4),
    ("Reshape", 1): _flat,
    ("Expand", 1): _all(1),
    ("Tile", 1): _between(1, 2),
    ("ConstantOfShape", 0): _between(1, 3),
    ("Range", 2): _all(1),
    ("TopK", 1): _all(1),
    ("Loop", 0): _between(1, 4),
    ("Slice", 1): _all(0),
    ("Slice", 2): _between(1, 3),
    ("Slice", 3): _counting,
    ("Slice", 4): _all(1),
    ("Pad", 1): _between(0, 1),
    ("Squeeze", 1): _counting,
    ("Unsqueeze", 1): _counting,
    ("CumSum", 1): _all(0),
    ("Trilu", 1): _between(-1, 1),
    ("Split", 1): _split_sizes,
    ("SequenceAt", 1): _all(0),
    ("SequenceErase", 1): _all(0),
    ("SequenceInsert", 2): _all(0),
    ("ReverseSequence", 1): _lengths,
    ("RNN", 4): _lengths,
    ("GRU", 4): _lengths,
    ("LSTM", 4): _lengths,
    ("BitShift", 1): _between(0, 7),
    ("Div", 1): _between(1, 5),
    ("Mod", 1): _between(1, 5),
    ("HannWindow", 0): _between(4, 8),
    ("HammingWindow", 0): _between(4, 8),
    ("BlackmanWindow", 0): _between(4, 8),
}
_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
_RULES.update({(f"Reduce{name}", 1): _counting for name in _REDUCTIONS})

# Variances must not be negative, and scales of a quantization not zero.
_POSITIVE: set[tuple[str, int]] = {
    ("BatchNormalization", 4),
    ("QuantizeLinear", 1),
    ("DequantizeLinear", 1),
    ("QLinearMatMul", 1),
    ("QLinearMatMul", 4),
    ("QLinearMatMul", 6),
    ("QLinearConv", 1),
    ("QLinearConv", 4),
    ("QLinearConv", 6),
    ("Resize", 2),
    ("Upsample", 1),
}

_THROUGH = frozenset("Cast Concat Expand Flatten Identity Reshape Slice Squeeze Tile Transpose Unsqueeze".split())
"""Ops that hand on the values of their first operand (Concat: of all)."""


def _positive(op: TensorOp, rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    return 0.25 + rng.random(shape)


def _use_of(value: SSAValue) -> _Use | None:
    """The first use of an input that restricts its values."""
    kind = dtype_of(value.type)
    if kind is None or kind.kind not in ("int", "uint", "float"):
        return None
    for op, index in _uses(value):
        if not isinstance(op, TensorOp):
            continue
        key = (op.spec.op_type, index)
        if kind.is_float:
            if key in _POSITIVE:
                return _Use(op, _positive)
        elif key in _RULES:
            return _Use(op, _RULES[key])
    return None


def _uses(value: SSAValue) -> Iterator[tuple[Operation, int]]:
    """The uses of a value, also of what ops make of it that only move or cast values."""
    pending, seen = [value], {value}
    while pending:
        current = pending.pop()
        for use in current.uses:
            op = use.operation
            yield op, use.index
            if (
                isinstance(op, TensorOp)
                and op.spec.op_type in _THROUGH
                and (use.index == 0 or op.spec.op_type == "Concat")
            ):
                for result in op.results:
                    if result not in seen:
                        seen.add(result)
                        pending.append(result)
