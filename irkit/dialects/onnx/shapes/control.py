"""Ops with graphs: what their bodies yield, joined with what comes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Attribute, Region, SSAValue

from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.errors import InferenceError
from irkit.ir.attributes import from_attr
from irkit.ir.types import Dim, SeqType, intern, tensor, tensor_info, unknown

__all__ = ["body_types", "join", "widened", "yielded"]


def yielded(region: Region) -> list[Attribute]:
    """The types of a graph's outputs."""
    last = region.block.last_op if region.blocks else None
    return [] if last is None else [v.type for v in last.operands]


def join(a: Attribute, b: Attribute) -> Attribute:
    """The narrowest type that both are: sizes that differ become unknown."""
    if a == b:
        return intern(a)
    x, y = tensor_info(a), tensor_info(b)
    if x is None or y is None or x.dtype is not y.dtype:
        return unknown
    if x.shape is None or y.shape is None or len(x.shape) != len(y.shape):
        return tensor(x.dtype, None)
    return tensor(x.dtype, [p if p == q else None for p, q in zip(x.shape, y.shape, strict=True)])


def _with_axis(value_type: Attribute, axis: int, size: Dim) -> Attribute:
    info = tensor_info(value_type)
    if info is None:
        return unknown
    if info.shape is None:
        return tensor(info.dtype, None)
    at = axis + len(info.shape) + 1 if axis < 0 else axis
    return tensor(info.dtype, (*info.shape[:at], size, *info.shape[at:]))


def _without_axis(value_type: Attribute, axis: int) -> Attribute:
    info = tensor_info(value_type)
    if info is None or info.shape is None:
        return value_type
    if not -len(info.shape) <= axis < len(info.shape):
        raise InferenceError(f"a scan along axis {axis} of a tensor of shape {list(info.shape)}")
    at = axis % len(info.shape)
    return tensor(info.dtype, info.shape[:at] + info.shape[at + 1 :])


def _any_shape(value_type: Attribute) -> Attribute:
    info = tensor_info(value_type)
    return value_type if info is None else tensor(info.dtype, None)


@shape_rule("If")
def if_(call: Call) -> list[Attribute] | None:
    then, otherwise = (yielded(region) for region in call.regions)
    if len(then) != len(otherwise):
        raise InferenceError(f"the branches of an If give {len(then)} and {len(otherwise)} values")
    return [join(a, b) for a, b in zip(then, otherwise, strict=True)]


@shape_rule("Loop")
def loop(call: Call) -> list[Attribute] | None:
    found = yielded(call.regions[0])[1:]
    states = [v.type for v in call.operands[2:]]
    if len(found) < len(states) or not yielded(call.regions[0]):
        given = len(yielded(call.regions[0]))
        raise InferenceError(
            f"the body of a Loop that carries {len(states)} values must give the condition and these, but gives {given}"
        )
    trips = call.constant(0)
    # A condition may end the loop early.
    endless = len(call.operands) < 2 or call.type(1) is None
    size = int(trips.array().item()) if trips is not None and trips.size == 1 and endless else None
    carried = [join(a, b) for a, b in zip(states, found, strict=False)]
    return carried + [_with_axis(t, 0, size if size is None or size >= 0 else 0) for t in found[len(states) :]]


@shape_rule("Scan")
def scan(call: Call) -> list[Attribute] | None:
    if call.cls.since < 9:
        # Scan-8 runs over a batch; its first operand is the lengths.
        return [_any_shape(t) for t in yielded(call.regions[0])]
    n_scan = call.attr("num_scan_inputs")
    n_states = len(call.operands) - n_scan
    found = yielded(call.regions[0])
    axes = call.attr("scan_output_axes") or (0,) * (len(found) - n_states)
    size = _scan_length(call, n_states, n_scan)
    states = [join(v.type, t) for v, t in zip(call.operands[:n_states], found, strict=False)]
    return states + [_with_axis(t, axis, size) for t, axis in zip(found[n_states:], axes, strict=False)]


def _scan_length(call: Call, n_states: int, n_scan: int) -> Dim:
    axes = call.attr("scan_input_axes") or (0,) * n_scan
    sizes: list[Dim] = []
    for value, axis in zip(call.operands[n_states:], axes, strict=False):
        info = tensor_info(value.type)
        if info is not None and info.shape is not None and -len(info.shape) <= axis < len(info.shape):
            sizes.append(info.shape[axis])
    fixed = [s for s in sizes if isinstance(s, int)]
    return (fixed or [s for s in sizes if s is not None] or [None])[0]


@shape_rule("SequenceMap")
def sequence_map(call: Call) -> list[Attribute] | None:
    return [intern(SeqType(t)) for t in yielded(call.regions[0])]


def body_types(
    op_type: str, graph: str, operands: Sequence[SSAValue], properties: Mapping[str, Attribute], count: int
) -> list[Attribute]:
    """The types of the inputs of an op's graph.

    Args:
        count: how many inputs the graph takes.

    Raises:
        InferenceError: if that is not what the operands give.
    """
    types = [v.type for v in operands]
    match op_type:
        case "If":
            found: list[Attribute] = []
        case "Loop":
            found = [tensor("int64", ()), tensor("bool", ()), *types[2:]]
        case "Scan":
            n_scan = from_attr(properties["num_scan_inputs"])
            n_states = len(types) - n_scan
            given = properties.get("scan_input_axes")
            axes = from_attr(given) if given is not None else (0,) * n_scan
            found = types[:n_states] + [_without_axis(t, a) for t, a in zip(types[n_states:], axes, strict=True)]
        case "SequenceMap":
            found = [t.element if isinstance(t, SeqType) else t for t in types]
        case "FlexAttention":
            found = [_scores(types, properties)]
        case _:
            found = [unknown] * count
    if len(found) != count:
        raise InferenceError(f"the graph '{graph}' takes {len(found)} inputs, but the function given takes {count}")
    return found


def _scores(types: Sequence[Attribute], properties: Mapping[str, Attribute]) -> Attribute:
    """The scores of FlexAttention: batch, heads and length of Q by the length of K, in the precision of the softmax."""
    query, key = tensor_info(types[0]), tensor_info(types[1])
    if query is None:
        return unknown
    given = properties.get("softmax_precision")
    precision = from_attr(given) if given is not None else "float64" if query.dtype.name == "float64" else "float32"
    if query.shape is None or len(query.shape) != 4:
        return tensor(precision, None)
    length = key.shape[2] if key is not None and key.shape is not None and len(key.shape) == 4 else None
    return tensor(precision, (*query.shape[:3], length))


def widened(op_type: str, region: Region, operands: Sequence[SSAValue]) -> list[Attribute] | None:
    """The types that a loop's body must take instead, where what it carries does not keep its type.

    A body is first made for the types that come in. If it yields others (a tensor that grows, say), it has to be made
    again for types that hold in every iteration. None where all is well.
    """
    if op_type != "Loop" or not region.blocks:
        return None
    args = [arg.type for arg in region.block.args]
    states = len(operands) - 2
    joined = [join(a, t) for a, t in zip(args[2 : 2 + states], yielded(region)[1:], strict=False)]
    wider = [*args[:2], *joined, *args[2 + len(joined) :]]
    return None if wider == args else wider
