"""Replacing an op by what a rule made of it: names, documentation, declared types and constants no longer needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, FunctionType, UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, OpResult, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from irkit.dialects.onnx.classes import OnnxOp
from irkit.dialects.onnx.values import is_constant
from irkit.ir.builder import Builder, Tensor
from irkit.ir.names import DECL, OUTS, out_names, set_out_names
from irkit.ir.types import SeqType, UnknownType, dtype_of, intern, tensor, tensor_info
from irkit.opsets.common import impossible, nonnegative, rank_of
from irkit.opsets.registry import CHOICES, HINT, NEGATIVE_AXIS, NEGATIVE_AXIS_SINCE, Results, conditions, loses_types

__all__ = [
    "HINT_KEPT",
    "Built",
    "drop_unused",
    "recast",
    "renamed_back",
    "renamed_up",
    "replace",
    "sync_signature",
    "transfer",
    "values_of",
]

RETYPED = frozenset({"AveragePool", "LpPool", "MaxPool"})
"""Ops whose result shape with ``ceil_mode`` the documentation corrected (opset 22)."""

HINT_KEPT = "onnx.consumed_inputs"
"""Where an upgraded op keeps the hint of opset 1."""


def values_of(results: Results) -> list[SSAValue]:
    """What a rule returned, as values."""
    return [r.ssa for r in ([results] if isinstance(results, Tensor) else results)]


class Built:
    """The ops that appear in front of an op while a rule runs."""

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.before = op.prev_op
        self.first = None if op.parent is None else op.parent.first_op

    def ops(self) -> Iterator[Operation]:
        """The new ops, in order."""
        block = self.op.parent
        if block is None:
            return
        # Builder.absent may have put its op at the very beginning; it stays there for others to use.
        at = self.before.next_op if self.before is not None else block.first_op
        while at is not None and at is not self.op:
            following = at.next_op
            if at.name != "onnx.NoValue":
                yield at
            at = following

    def erase(self) -> None:
        """Takes the new ops away again."""
        for op in reversed(list(self.ops())):
            op.detach()
            op.erase(safe_erase=False)


def replace(op: Operation, values: Sequence[SSAValue], *, drop_constants: bool = False) -> None:
    """Puts values in the place of an op's results, with its names, and erases it.

    Args:
        drop_constants: whether constants that nothing else used go, too.
    """
    transfer(op, values)
    operands = list(op.operands) if drop_constants else []
    for old, new in zip(op.results, values, strict=False):
        returns = (
            [use.operation for use in old.uses if isinstance(use.operation, ReturnOp)] if old.type != new.type else []
        )
        old.replace_all_uses_with(new)
        for end in returns:
            sync_signature(cast(FuncOp, end.parent_op()))
    op.detach()
    op.erase(safe_erase=len(values) == len(op.results))
    for operand in operands:
        drop_unused(operand)


def sync_signature(func: FuncOp) -> None:
    """Makes a function's declared result types those of what it returns."""
    last = func.body.block.last_op
    if last is not None:
        inputs = [arg.type for arg in func.body.block.args]
        func.properties["function_type"] = FunctionType.from_lists(inputs, [v.type for v in last.operands])


def drop_unused(value: SSAValue) -> None:
    """Erases the constant behind a value that is not used any more."""
    if is_constant(value) and not any(True for _ in value.uses):
        owner = cast(OpResult, value).op
        if owner.parent is not None:
            owner.detach()
            owner.erase()


def transfer(op: Operation, values: Sequence[SSAValue]) -> None:
    """Gives what the file says of a node to the ops that replace it, and its results' types where they say more."""
    owners = [v.owner for v in values]
    for old, new in zip(op.results, values, strict=False):
        cast(Any, new)._type = merged(old.type, new.type)
    if not owners or not isinstance(owners[0], Operation):
        return
    main = owners[0]
    whole = len(set(map(id, owners))) == 1 and list(main.results[: len(values)]) == list(values)
    if whole and len(main.results) == len(op.results):
        main.attributes.update(op.attributes)
        return
    main.attributes.update({k: v for k, v in op.attributes.items() if k not in (OUTS, DECL)})
    names, declared = out_names(op), op.attributes.get(DECL)
    for index, value in enumerate(values):
        owner = value.owner
        if isinstance(owner, Operation) and isinstance(value, OpResult):
            if index < len(names) and names[index]:
                _name(owner, value.index, names[index])
            if isinstance(declared, ArrayAttr) and index < len(declared.data):
                _declare(owner, value.index, cast("ArrayAttr[Attribute]", declared).data[index])


def _name(owner: Operation, index: int, name: str) -> None:
    """Names one result. The others get names, too: an empty one would say that the result is left out."""
    known = list(out_names(owner)) or [f"{name}_{i}" for i in range(len(owner.results))]
    known[index] = name
    set_out_names(owner, known)


def _declare(owner: Operation, index: int, declared: Attribute) -> None:
    found = owner.attributes.get(DECL)
    known: list[Attribute] = list(cast("ArrayAttr[Attribute]", found).data) if isinstance(found, ArrayAttr) else []
    known += [UnitAttr()] * (len(owner.results) - len(known))
    known[index] = declared
    owner.attributes[DECL] = ArrayAttr(known)


def merged(old: Attribute, new: Attribute) -> Attribute:
    """What two inferences say of one value; where they contradict each other, the newer one."""
    if isinstance(new, UnknownType):
        return old
    if isinstance(old, SeqType) and isinstance(new, SeqType):
        return intern(SeqType(merged(old.element, new.element)))
    before, after = tensor_info(old), tensor_info(new)
    if before is None or after is None or before.shape is None or before.dtype is not after.dtype:
        return new
    if after.shape is None:
        return old
    if len(before.shape) != len(after.shape):
        return new
    known = [a if isinstance(a, int) or z is None else z for a, z in zip(before.shape, after.shape, strict=True)]
    return tensor(after.dtype, [z if isinstance(z, int) else a for a, z in zip(known, after.shape, strict=True)])


# Renaming


def recast(op: OnnxOp, cls: type[OnnxOp]) -> bool:
    """Makes an op one of another version, in place, if that takes nothing more: no value changes, no use is touched.

    Returns:
        Whether it did. If not, the op is as it was.
    """
    older, newer = (cls, type(op)) if cls.since < op.since else (type(op), cls)
    needs = conditions(older, newer)
    if needs is None or not needs <= _AXIS_ALONE or not op.properties.keys() <= cls.spec.attributes.keys():
        return False
    if needs:
        axis = op.attr(NEGATIVE_AXIS[op.op_type])
        if not isinstance(axis, int) or axis < 0:
            return False
    if op.op_type in RETYPED and op.attr("ceil_mode"):
        return False
    was = type(op)
    # The classes of one op share their layout; a new op would cost ten times as much, and most of a model is this case.
    cast(Any, op).__class__ = cls
    if older is cls or loses_types(was, cls):
        try:
            op.verify_()
        except VerifyException:
            cast(Any, op).__class__ = was
            return False
    return True


_AXIS_ALONE = frozenset({"axis"})


def renamed_up(b: Builder, op: OnnxOp, cls: type[OnnxOp], *, strict: bool = True) -> Results | None:
    """An op in a newer form that is compatible with its own.

    Args:
        strict: whether to decline (None) where the older form could not be made again.
    """
    axis = NEGATIVE_AXIS.get(op.op_type) if op.domain == "" else None
    if strict and axis is not None and op.since < NEGATIVE_AXIS_SINCE <= cls.since:
        value = op.attr(axis)
        if isinstance(value, int) and value < 0 and rank_of(op.operand(0)) is None:
            return None
    properties = dict(op.properties)
    hint = properties.pop(HINT, None) if HINT not in cls.spec.attributes else None
    for name, before in op.spec.attributes.items():
        after = cls.spec.attributes.get(name)
        if after is None or name in properties or before.default is None:
            continue
        if before.default != after.default:
            properties.update(cls.properties_from({name: _respelt(op, name, before.default)}))
    if cls.op_type in RETYPED and op.attr("ceil_mode"):
        return b.op(cls, *op.operands, outputs=len(op.results), **cast("dict[str, Any]", properties))
    made = _create(b, op, cls, properties, len(op.results), checked=loses_types(type(op), cls))
    if hint is not None:
        made.attributes[HINT_KEPT] = hint
    return [b.wrap(r) for r in made.results]


def _respelt(op: OnnxOp, name: str, default: Any) -> Any:
    return "forward" if (op.op_type, name) == ("GRU", "direction") else default


def renamed_back(b: Builder, op: OnnxOp, cls: type[OnnxOp]) -> Results:
    """An op in an older form that is compatible with its own.

    Raises:
        LoweringError: if it uses what that form lacks.
    """
    properties = dict(op.properties)
    for name in op.properties:
        after, before = op.spec.attributes[name], cls.spec.attributes.get(name)
        value = op.attr(name)
        if before is None:
            if not _neutral(op.op_type, name, value, after.default):
                raise impossible(op, f"the older form has no attribute '{name}', which is {value!r}")
            del properties[name]
            continue
        since = CHOICES.get((op.op_type, name), {}).get(value, 0) if isinstance(value, str) else 0
        if since > cls.since:
            raise impossible(op, f"the older form knows no {name}='{value}'")
        if NEGATIVE_AXIS.get(op.op_type) == name and cls.since < NEGATIVE_AXIS_SINCE and isinstance(value, int):
            properties.update(cls.properties_from({name: nonnegative(op, value, rank_of(op.operand(0)))}))
    for name, before in cls.spec.attributes.items():
        after = op.spec.attributes.get(name)
        if after is None or before.default == after.default or _respelt(op, name, before.default) == after.default:
            continue
        if name in properties and op.attr(name) == before.default:
            del properties[name]
        elif name not in properties and after.default is not None:
            properties.update(cls.properties_from({name: after.default}))
    if op.op_type == "Mod" and cls.since < 28 and not op.attr("fmod"):
        dividend = op.operand(0)
        if dividend is not None and _is_float(dividend):
            raise impossible(op, "the older form takes floats only with fmod=1")
    if HINT_KEPT in op.attributes and HINT in cls.spec.attributes:
        properties[HINT] = op.attributes[HINT_KEPT]
    made = _create(b, op, cls, properties, min(len(op.results), cls.spec.max_outputs), checked=True)
    return [b.wrap(r) for r in made.results]


def _is_float(value: SSAValue) -> bool:
    kind = dtype_of(value.type)
    return kind is not None and kind.is_float


def _neutral(op_type: str, name: str, value: Any, default: Any) -> bool:
    """Whether an attribute says only what holds without it."""
    if value == default:
        return True
    return name == "dilations" and isinstance(value, tuple) and all(v == 1 for v in cast("tuple[Any, ...]", value))


def _create(
    b: Builder, op: OnnxOp, cls: type[OnnxOp], properties: dict[str, Attribute], n_out: int, *, checked: bool
) -> OnnxOp:
    """The op as another class, its regions moved.

    Raises:
        LoweringError: if that class does not take its types or operands.
    """
    if any(any(True for _ in r.uses) for r in op.results[n_out:]):
        raise impossible(op, f"the older form gives {cls.spec.max_outputs} results, and more are used")
    regions: list[Region] = [op.detach_region(region) for region in list(op.regions)]
    made = cls.create(
        operands=op.operands,
        result_types=[r.type for r in op.results[:n_out]],
        properties=properties,
        regions=regions,
    )
    if checked:
        try:
            made.verify_()
        except VerifyException as error:
            for region in list(made.regions):
                op.add_region(made.detach_region(region))
            made.erase()
            raise impossible(op, f"the older form does not allow it: {error}") from None
    made.location = b.location or op.location
    b.insert(made)
    return made
