"""Merges ops that compute the same: equal class, operands, attributes to the bit, and graphs."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import Commutative

from irkit.dialects.onnx import Call, Initializer, NoValue, OnnxOp
from irkit.dialects.onnx.spec import default_attr
from irkit.dialects.onnx.values import constant_of, is_constant
from irkit.ir.constants import ConstantData, SparseAttr, TensorAttr
from irkit.ir.location import fused
from irkit.ir.module import Module
from irkit.ir.names import DOC, META, NAME, metadata_of, name_of, set_metadata
from irkit.ir.op import AttributeSpec
from irkit.ir.types import dtype_of, tensor_info
from irkit.passes.base import Pass
from irkit.passes.effects import Effects
from irkit.passes.rewrite import MAX_SOURCES, Rewriter, body_blocks, erase, ops_in, referenced_names, sync_signature

__all__ = ["CommonSubexpressionElimination"]

Key = Hashable
SAMPLE = 16


@dataclass(frozen=True)
class CommonSubexpressionElimination(Pass):
    """Replaces an op by an earlier equal one whose results are visible there: in the same graph or one around it.

    Equal are ops of one class, the same operands (in any order where that changes no bit), attributes equal to the bit
    (0.0 differs from -0.0) and equal graphs. Constants are merged by content; an initializer that several graphs have
    moves to the main graph. Names, doc strings and metadata don't
    count; the op that stays keeps its own and gains the metadata of the other. Ops that draw random numbers or of
    which nothing is known are never merged.
    """

    name: ClassVar[str] = "onnx-cse"

    def run(self, module: Module) -> bool:
        merger = _Merger(module)
        for op in module.op.ops:
            if isinstance(op, FuncOp) and op.body.blocks:
                merger.lift_shared(op)
        for block in body_blocks(module):
            merger.merge_block(block)
        sync_signature(module)
        return merger.changed


class _ConstantKey:
    """Finds equal constants among many of one shape: hashes a sample, compares every bit."""

    __slots__ = ("_hash", "data")

    def __init__(self, data: ConstantData) -> None:
        self.data = data
        sample: bytes = b""
        if data.dtype.kind != "string" and data.size:
            count = min(SAMPLE, data.size)
            places = [i * (data.size - 1) // max(count - 1, 1) for i in range(count)]
            stored = data.stored()
            picked = np.asarray(np.repeat(stored, count) if data.is_splat else stored.flat[places]).view(np.uint8)
            # The unused bits of a narrow integer are as they fall.
            sample = (picked & ((1 << data.dtype.bits) - 1) if data.dtype.bits < 8 else picked).tobytes()
        self._hash = hash((data.dtype.code, data.shape, sample))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ConstantKey) and self.data == other.data


class _Merger:
    def __init__(self, module: Module) -> None:
        self.rewriter = Rewriter(module, "cse")
        self.effects = Effects(module)
        self.changed = False
        self.seen: dict[Key, Operation] = {}
        # Each attribute object is looked at once; equal ones get one number.
        self.numbers: dict[int, int] = {}
        self.kept: list[Attribute] = []
        self.canonical: dict[Key, int] = {}
        self.defaults: dict[AttributeSpec, int] = {}
        self.referenced = referenced_names(module)

    def lift_shared(self, func: FuncOp) -> None:
        """Moves initializers that several graphs have to the main graph, where all of them see one."""
        block = func.body.block
        first = block.first_op
        if first is None:
            return
        place = first.next_op if isinstance(first, NoValue) and first.next_op is not None else first
        known: dict[Key, Initializer | None] = {}
        for op in list(ops_in(func)):
            key = self.constant_key(op) if isinstance(op, Initializer) else None
            if key is None or not isinstance(op, Initializer):
                continue
            if op.parent is block or key not in known:
                known[key] = None if op.parent is block else op
            elif (earlier := known[key]) is not None and self.rewriter.take(earlier):
                earlier.detach()
                block.insert_op_before(earlier, place)
                known[key] = None
                self.changed = True

    def merge_block(self, block: Block) -> None:
        """Merges the ops of a block with each other and with what is visible from outside."""
        added: list[Key] = []
        for op in list(block.ops):
            for region in op.regions:
                for inner in region.blocks:
                    self.merge_block(inner)
            if not op.results or isinstance(op, NoValue):
                continue
            key = self.key(op)
            if key is None:
                continue
            first = self.seen.setdefault(key, op)
            if first is op:
                added.append(key)
            elif not (self.referenced and name_of(op.results[0]) in self.referenced):
                self.merge(first, op)
        for key in added:
            del self.seen[key]

    def merge(self, first: Operation, second: Operation) -> None:
        if not self.rewriter.take(second):
            return
        self.changed = True
        _merge_annotations(first, second)
        for mine, other in zip(first.results, second.results, strict=True):
            self.rewriter.replace_value(other, mine)
        self.rewriter.touched.clear()
        erase(second)

    def key(self, op: Operation) -> Key | None:
        """What must agree for two ops to be equal; None for an op that is equal to no other."""
        if is_constant(op.results[0]):
            return self.constant_key(op)
        if not isinstance(op, OnnxOp | Call) or not self.effects.mergeable(op):
            return None
        return self.structure(op, {})

    def constant_key(self, op: Operation) -> Key | None:
        (attr,) = op.properties.values() if len(op.properties) == 1 else (None,)
        if isinstance(attr, SparseAttr):
            return "sparse", self.number(attr)
        data = constant_of(op.results[0])
        return ("reference", self.properties(op)) if data is None else ("constant", _ConstantKey(data))

    def structure(self, op: Operation, local: dict[SSAValue, int]) -> Key:
        """The op as nested tuples; values defined within it are numbered in ``local``."""
        operands: list[Key] = [local.get(v, v) for v in op.operands]
        places = _interchangeable(op)
        if places > 1:
            operands[:places] = sorted(operands[:places], key=_order)
        types = tuple(_type(r.type) for r in op.results)
        regions = tuple(self.region(region.blocks, local) for region in op.regions) if op.regions else ()
        return type(op), tuple(operands), self.properties(op), types, regions

    def region(self, blocks: Any, local: dict[SSAValue, int]) -> Key:
        made: list[Key] = []
        for block in blocks:
            for arg in block.args:
                local[arg] = len(local)
            ops: list[Key] = []
            for op in block.ops:
                is_held = op.results and is_constant(op.results[0])
                ops.append(self.constant_key(op) if is_held else self.structure(op, local))
                for result in op.results:
                    local[result] = len(local)
            made.append((tuple(_type(arg.type) for arg in block.args), tuple(ops)))
        return tuple(made)

    def properties(self, op: Operation) -> Key:
        found: list[tuple[str, int]] = []
        for name, attr in sorted(op.properties.items()):
            declared = op.spec.attributes.get(name) if isinstance(op, OnnxOp) else None
            # An attribute that is written out as its default is the same as one that is not there.
            if declared is not None and declared.default is not None and self.is_default(attr, declared):
                continue
            found.append((name, self.number(attr)))
        return tuple(found)

    def is_default(self, attr: Attribute, declared: AttributeSpec) -> bool:
        default = self.defaults.get(declared)
        if default is None:
            default = self.defaults[declared] = self.number(default_attr(declared))
        return self.number(attr) == default

    def number(self, attr: Attribute) -> int:
        """A number that two attributes share exactly when all their bits agree."""
        known = self.numbers.get(id(attr))
        if known is None:
            known = self.numbers[id(attr)] = self.canonical.setdefault(_bits(attr), len(self.canonical))
            self.kept.append(attr)
        return known


def _bits(attr: Attribute) -> Key:
    """An attribute as something that compares by bits; floats of xDSL compare by value."""
    match attr:
        case IntegerAttr():
            return "int", attr.value.data, attr.type
        case FloatAttr():
            return "float", struct.pack("<d", attr.value.data), attr.type
        case TensorAttr():
            return "tensor", _ConstantKey(attr.data)
        case ArrayAttr():
            items: Any = attr.data
            return "list", tuple(_bits(item) for item in items)
        case _:
            return attr


def _type(value_type: Attribute) -> Key:
    # What a tensor type says is kept with it, and hashes faster than the type.
    return tensor_info(value_type) or value_type


def _order(value: Key) -> int:
    return value if isinstance(value, int) else id(value)


def _interchangeable(op: Operation) -> int:
    """How many of the first operands may stand in any order without changing a bit of the result."""
    if not isinstance(op, OnnxOp) or op.since < 7 or not op.has_trait(Commutative):
        # Before opset 7 the second operand alone was broadcast.
        return 0
    kind = dtype_of(op.operands[0].type) if op.operands else None
    is_exact = kind is not None and not (kind.is_float or kind.kind == "complex")
    match op.op_type:
        case "Max" | "Min":
            # Of -0.0 and 0.0 either may come out, depending on the order.
            return len(op.operands) if is_exact else 0
        case "Sum" | "Mean":
            return len(op.operands) if is_exact else min(2, len(op.operands))
        case _:
            return 2


def _merge_annotations(first: Operation, second: Operation) -> None:
    """Keeps what the op that stays lacks: name, doc string, metadata by key, and where the other came from."""
    for name in (NAME, DOC):
        if name in second.attributes:
            first.attributes.setdefault(name, second.attributes[name])
    if META in second.attributes:
        set_metadata(first, {**metadata_of(second), **metadata_of(first)})
    locations: Any = getattr(first.location, "locations", None)
    if locations is None or len(locations.data) < MAX_SOURCES:
        first.location = fused([first.location, second.location], "cse")
