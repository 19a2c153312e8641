"""Sizes that the official inference loses, since it knows symbols but no arithmetic on them.

A refinement is tried where the inferred types leave a size open. It gives sizes as expressions of the operands' symbols
(``irkit.ir.dims``); None where nothing is certain. They hold for every size that a symbol can have, 0 included; Reshape
is the one exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from xdsl.ir import Attribute

from irkit.dialects.onnx.infer import Call, refinement, shape_rule
from irkit.dialects.onnx.sizes import SizeValues
from irkit.ir import dims
from irkit.ir.types import Dim, Shape, shape_of, tensor, tensor_info

__all__ = ["reshaped"]

Shapes = Sequence[Shape | None]
"""Per result; None where nothing is known."""


def _shape(call: Call, index: int) -> Shape | None:
    found = call.type(index)
    info = None if found is None else tensor_info(found)
    return None if info is None else info.shape


def _values(call: Call, index: int) -> tuple[Dim, ...] | None:
    """The sizes that an operand holds; unknown ones where at least their number is known."""
    if call.type(index) is None:
        return None
    found = SizeValues().of(call.operands[index])
    if found is not None:
        return found.sizes
    shape = _shape(call, index)
    known = shape is not None and len(shape) == 1 and isinstance(shape[0], int) and 0 <= shape[0] <= 64
    return (None,) * shape[0] if known else None  # type: ignore[index,operator]


def _at(shape: Shape, axis: int, size: Dim) -> Shape:
    at = axis % len(shape)
    return (*shape[:at], size, *shape[at + 1 :])


# Joining and cutting


@refinement("Concat")
def concat(call: Call) -> Shapes:
    shapes = [_shape(call, i) for i in range(len(call.operands))]
    known: list[Shape] = [s for s in shapes if s is not None]
    axis: int = call.attr("axis")
    if call.cls.since < 4 or len(known) < len(shapes) or not known or not -len(known[0]) <= axis < len(known[0]):
        return [None]
    if len({len(s) for s in known}) > 1:
        return [None]
    joined: Shape = tuple(_common([s[place] for s in known]) for place in range(len(known[0])))
    return [_at(joined, axis, dims.total(s[axis] for s in known))]


def _common(sizes: Sequence[Dim]) -> Dim:
    """The size that all of these are: a number where there is one."""
    return next((d for d in sizes if isinstance(d, int)), None) or next((d for d in sizes if d is not None), None)


@refinement("Split")
def split(call: Call) -> Shapes:
    x, sizes = _shape(call, 0), _values(call, 1)
    axis: int = call.attr("axis")
    if x is None or call.cls.since < 13 or not -len(x) <= axis < len(x):
        return [None]
    if sizes is None and call.cls.since < 18:
        sizes = (dims.floordiv(x[axis], call.n_out),) * call.n_out
    elif sizes is None:
        # The last part is smaller where they can't all be equal; of many, there may be too few elements for all.
        equal = dims.exact_div(x[axis], call.n_out)
        halves = (dims.ceildiv(x[axis], 2), dims.floordiv(x[axis], 2))
        sizes = halves if call.n_out == 2 else (equal,) * call.n_out
    return [_at(x, axis, size) for size in sizes]


@shape_rule("Slice")
def slice_along_any(call: Call) -> list[Attribute] | None:
    """Along axes that are given, but of which not even the number is known: the official inference takes the first."""
    found = call.type(3)
    info = None if (x := call.type(0)) is None else tensor_info(x)
    if found is None or call.constant(3) is not None or shape_of(found) is not None or info is None:
        return None
    return [tensor(info.dtype, None if info.shape is None else (None,) * len(info.shape))]


@refinement("Slice")
def slice_(call: Call) -> Shapes:
    x = _shape(call, 0)
    starts, stops = _values(call, 1), _values(call, 2)
    if x is None or starts is None or stops is None or len(starts) != len(stops) or call.cls.since < 10:
        return [None]
    count = len(starts)
    axes = tuple(range(count)) if call.type(3) is None else _values(call, 3)
    steps = (1,) * count if call.type(4) is None else _values(call, 4)
    if axes is None or steps is None or len(axes) != count or len(steps) != count:
        return [None]
    if not all(isinstance(a, int) and -len(x) <= a < len(x) for a in axes):
        # An axis that is not known may be any.
        return [(None,) * len(x)]
    out = x
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        assert isinstance(axis, int)
        out = _at(out, axis, _sliced(x[axis], start, stop, step))
    return [out]


def _sliced(size: Dim, start: Dim, stop: Dim, step: Dim) -> Dim:
    """How many elements a slice has: positions below 0 count from the end, and are then clamped to the axis."""
    if not isinstance(step, int) or step == 0:
        return None
    if step < 0:
        return _reversed(size, start, stop, step)
    length = _between(size, start, stop)
    return length if step == 1 else dims.ceildiv(length, step)


def _between(size: Dim, start: Dim, stop: Dim) -> Dim:
    """How many positions lie from start to stop; the usual cases in their simplest form."""
    low, high = dims.bounds(start)
    if _clamped(stop, size) == size:
        if low is not None and low >= 0:
            return dims.maximum(dims.sub(size, start), 0)
        return dims.minimum(dims.sub(0, start), size) if high is not None and high < 0 else None
    if start == 0:
        return _clamped(stop, size)
    return dims.maximum(dims.sub(_clamped(stop, size), _clamped(start, size)), 0)


def _clamped(at: Dim, size: Dim) -> Dim:
    if dims.is_at_least(at, 0):
        # "To the end" is spelled as a number that no axis reaches.
        return size if isinstance(at, int) and at >= 1 << 31 else dims.minimum(at, size)
    _, high = dims.bounds(at)
    return dims.maximum(dims.add(at, size), 0) if high is not None and high < 0 else None


def _reversed(size: Dim, start: Dim, stop: Dim, step: int) -> Dim:
    """From the end to the beginning, which is how axes are flipped; anything else between is not told."""
    from_end = start == -1 or (isinstance(start, int) and start >= 1 << 31)
    to_start = isinstance(stop, int) and stop <= -(1 << 31)
    return dims.ceildiv(size, -step) if from_end and to_start else None


@refinement("Pad")
def pad(call: Call) -> Shapes:
    x, pads = _shape(call, 0), _values(call, 1)
    if x is None or pads is None or call.cls.since < 11:
        return [None]
    axes = tuple(range(len(x))) if call.type(3) is None else _values(call, 3)
    if axes is None or len(pads) != 2 * len(axes) or not all(isinstance(a, int) for a in axes):
        return [None]
    out = x
    for place, axis in enumerate(axes):
        assert isinstance(axis, int)
        if not -len(x) <= axis < len(x):
            return [None]
        out = _at(out, axis, dims.total((x[axis], pads[place], pads[place + len(axes)])))
    return [out]


@refinement("Tile")
def tile(call: Call) -> Shapes:
    x, repeats = _shape(call, 0), _values(call, 1)
    if x is None or repeats is None or len(repeats) != len(x) or call.cls.since < 6:
        return [None]
    return [tuple(map(dims.mul, x, repeats))]


# Shapes that are given as values


@refinement("Reshape")
def reshape(call: Call) -> Shapes:
    x, shape = _shape(call, 0), _values(call, 1)
    if shape is None or call.cls.since < 5:
        return [None]
    return [reshaped(x, shape, bool(call.cls.since >= 14 and call.attr("allowzero")))]


def reshaped(x: Shape | None, shape: Sequence[Dim], allow_zero: bool = False) -> Shape:
    """The result of a Reshape: -1 is what is left, and 0 the operand's own size unless it is taken at its word.

    A symbolic size is believed. Should it turn out to be 0 where a 0 means the operand's own size, then this is wrong:
    what the model computes there was not meant by its author either.
    """
    out: list[Dim] = []
    for place, size in enumerate(shape):
        if size == 0 and not allow_zero:
            out.append(x[place] if x is not None and place < len(x) else None)
        else:
            out.append(size if size == -1 or dims.is_at_least(size, 0) else None)
    if -1 in out:
        # A value that is not known might be another -1, which no run would take.
        elements = None if x is None else dims.product(x)
        given = dims.product(d for d in out if d != -1)
        exact = dims.exact_div(elements, given)
        out[out.index(-1)] = dims.floordiv(elements, given) if exact is None else exact
    return tuple(out)


@refinement("Expand")
def expand(call: Call) -> Shapes:
    x, shape = _shape(call, 0), _values(call, 1)
    if x is None or shape is None:
        return [None]
    rank = max(len(x), len(shape))
    a, b = (1,) * (rank - len(x)) + tuple(x), (1,) * (rank - len(shape)) + tuple(shape)
    return [tuple(map(_broadcast, a, b))]


def _broadcast(a: Dim, b: Dim) -> Dim:
    if a == 1 or b == 1:
        return b if a == 1 else a
    if a == b:
        return a
    # What is larger than 1 for certain is what the other becomes.
    return next((d for d in (a, b) if isinstance(d, int) or dims.is_at_least(d, 2)), None)


@refinement("ConstantOfShape")
def filled(call: Call) -> Shapes:
    shape = _values(call, 0)
    return [None if shape is None else tuple(d if dims.is_at_least(d, 0) else None for d in shape)]


@refinement("Range")
def range_(call: Call) -> Shapes:
    start, limit, step = (_single(call, i) for i in range(3))
    if not isinstance(step, int) or step == 0:
        return [None]
    distance = dims.sub(limit, start) if step > 0 else dims.sub(start, limit)
    return [(dims.maximum(dims.ceildiv(distance, abs(step)), 0),)]


def _single(call: Call, index: int) -> Dim:
    found = _values(call, index)
    return found[0] if found is not None and len(found) == 1 else None


@refinement("OneHot")
def one_hot(call: Call) -> Shapes:
    x, depth, axis = _shape(call, 0), _single(call, 1), call.attr("axis")
    if x is None or not -len(x) - 1 <= axis <= len(x):
        return [None]
    at = axis % (len(x) + 1)
    return [(*x[:at], depth if dims.is_at_least(depth, 0) else None, *x[at:])]


@refinement("TopK")
def top_k(call: Call) -> Shapes:
    x, k, axis = _shape(call, 0), _single(call, 1), call.attr("axis")
    if x is None or call.cls.since < 10 or not dims.is_at_least(k, 0) or not -len(x) <= axis < len(x):
        return [None]
    return [_at(x, axis, k)] * 2


@refinement("Resize")
def resize(call: Call) -> Shapes:
    x, axes = _shape(call, 0), call.attr("axes") if "axes" in call.cls.spec.attributes else None
    if x is None or call.cls.since < 11:
        return [None]
    axes = range(len(x)) if axes is None else axes
    policy = call.attr("keep_aspect_ratio_policy") if call.cls.since >= 18 else "stretch"
    if policy not in (None, "stretch"):
        return [None]
    sizes = _values(call, 3)
    if sizes is None and (scales := call.constant(2)) is not None:
        factors = [Fraction(float(s)) for s in scales.array().reshape(-1)]
        if len(factors) != len(axes):
            return [None]
        sizes = tuple(_scaled(x[a], f) for a, f in zip(axes, factors, strict=True))
    if sizes is None or len(sizes) != len(axes):
        return [None]
    out = x
    for axis, size in zip(axes, sizes, strict=True):
        out = _at(out, axis, size if dims.is_at_least(size, 0) else None)
    return [out]


def _scaled(size: Dim, factor: Fraction) -> Dim:
    """The size times a factor, rounded down; where a float32 holds the product, that is exact."""
    if factor.denominator > 64:
        return None
    return dims.floordiv(dims.mul(size, factor.numerator), factor.denominator)


# Rearranging


@refinement("Flatten")
def flatten(call: Call) -> Shapes:
    x, axis = _shape(call, 0), call.attr("axis")
    if x is None or not -len(x) <= axis <= len(x):
        return [None]
    at = axis + len(x) if axis < 0 else axis
    return [(dims.product(x[:at]), dims.product(x[at:]))]


@refinement("DepthToSpace")
def depth_to_space(call: Call) -> Shapes:
    x, n = _shape(call, 0), call.attr("blocksize")
    if x is None or len(x) != 4:
        return [None]
    return [(x[0], dims.floordiv(x[1], n * n), dims.mul(x[2], n), dims.mul(x[3], n))]


@refinement("SpaceToDepth")
def space_to_depth(call: Call) -> Shapes:
    x, n = _shape(call, 0), call.attr("blocksize")
    if x is None or len(x) != 4:
        return [None]
    return [(x[0], dims.mul(x[1], n * n), dims.floordiv(x[2], n), dims.floordiv(x[3], n))]


# Windows


@refinement("Conv", "ConvInteger", "MaxPool", "AveragePool", "LpPool")
def windows(call: Call) -> Shapes:
    x, w = _shape(call, 0), _shape(call, 1)
    is_conv = call.cls.op_type.startswith("Conv")
    kernel = call.attr("kernel_shape") or (w[2:] if w is not None and is_conv else None)
    if x is None or len(x) < 3 or kernel is None or len(kernel) != len(x) - 2:
        return [None]
    count = len(kernel)
    declared = call.cls.spec.attributes
    strides = call.attr("strides") or (1,) * count
    dilations = (call.attr("dilations") if "dilations" in declared else None) or (1,) * count
    pads = call.attr("pads") or (0,) * (2 * count)
    if len(strides) != count or len(dilations) != count or len(pads) != 2 * count or 0 in strides:
        return [None]
    ceil = bool(call.attr("ceil_mode")) if "ceil_mode" in declared else False
    mode = str(call.attr("auto_pad") or "NOTSET")
    sizes = [
        _window(x[2 + i], kernel[i], strides[i], dilations[i], (pads[i], pads[i + count]), mode, ceil)
        for i in range(count)
    ]
    channels = (w[0] if w is not None else None) if is_conv else x[1]
    found = (x[0], channels, *sizes)
    return [found] if is_conv else [found] * call.n_out


def _window(size: Dim, kernel: Dim, stride: int, dilation: int, pads: tuple[int, int], mode: str, ceil: bool) -> Dim:
    """How many windows fit along an axis, as the specification of Conv and the pools says."""
    if mode.startswith("SAME"):
        return dims.ceildiv(size, stride)
    before, after = (0, 0) if mode == "VALID" else pads
    extent = dims.add(dims.mul(dilation, dims.sub(kernel, 1)), 1)
    room = dims.sub(dims.add(size, before + after), extent)
    count = dims.add((dims.ceildiv if ceil else dims.floordiv)(room, stride), 1)
    if ceil:
        # A window that would start beyond the input and the padding before it is left out.
        count = dims.minimum(count, dims.ceildiv(dims.add(size, before), stride))
    # Where the window is larger than what there is, the run fails or gives nothing.
    return count if dims.is_at_least(count, 0) else dims.maximum(count, 0)


@refinement("ConvTranspose")
def conv_transpose(call: Call) -> Shapes:
    x, w = _shape(call, 0), _shape(call, 1)
    if x is None or w is None or len(x) < 3 or len(w) != len(x) or call.attr("output_shape"):
        return [None]
    count = len(x) - 2
    strides = call.attr("strides") or (1,) * count
    dilations = call.attr("dilations") or (1,) * count
    pads = call.attr("pads") or (0,) * (2 * count)
    extra = call.attr("output_padding") or (0,) * count
    if str(call.attr("auto_pad") or "NOTSET") != "NOTSET" or {len(strides), len(dilations), len(extra)} != {count}:
        return [None]
    sizes = [
        dims.total(
            (
                dims.mul(dims.sub(x[2 + i], 1), strides[i]),
                extra[i] + 1 - pads[i] - pads[i + count],
                dims.mul(dims.sub(w[2 + i], 1), dilations[i]),
            )
        )
        for i in range(count)
    ]
    return [(x[0], dims.mul(w[1], call.attr("group")), *(dims.maximum(size, 0) for size in sizes))]
