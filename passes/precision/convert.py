"""Changes a module to what the analysis decided: types, constants and attributes, and casts where homes differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, UnitAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from irkit.dialects.onnx import CURRENT, Call, Initializer, OnnxOp
from irkit.dialects.onnx.structural import Yield
from irkit.ir.constants import ProtoAttr, TensorAttr
from irkit.ir.dtypes import DType
from irkit.ir.location import fused
from irkit.ir.module import DEFAULT
from irkit.ir.names import DECL, name_of
from irkit.ir.types import dtype_of, shape_of, tensor
from irkit.passes.precision.analysis import Analysis, constant_behind
from irkit.passes.precision.observe import insert_after, values_in
from irkit.passes.precision.slots import is_dtype_alias, narrows
from irkit.passes.rewrite import Rewriter, erase, items_of, ops_in, referenced_names, sync_signature
from irkit.passes.types import set_type

__all__ = ["Converter"]

_INS_DECL = "onnx.ins_decl"
_CONSTANT, _CAST = CURRENT["", "Constant"], CURRENT["", "Cast"]


class Converter:
    """Applies a decision.

    Attributes:
        casts: how many were made.
        constants: how many constants were converted.
    """

    def __init__(self, analysis: Analysis, by: str) -> None:
        self.analysis, self.by = analysis, by
        self.module, self.half = analysis.module, analysis.half.dtype
        self.casts = self.constants = 0
        self._homes: dict[SSAValue, DType] = {}
        self._versions: dict[tuple[SSAValue, DType], SSAValue] = {}

    def run(self, converted: Sequence[OnnxOp]) -> None:
        """Applies it.

        Args:
            converted: the ops that become half.
        """
        roots = self.analysis.roots
        ops = [op for root in roots for op in ops_in(root)]
        edits = [edit for op in ops for edit in self._edits(op)]
        were_used = {op for op in ops if any(r.first_use is not None for r in op.results)}
        for root in roots:
            self._set_homes(root)
        for op in converted:
            op.properties.update(self.analysis.slots.attributes(op))
            op.location = fused([op.location], self.by)
        for op, index, kind in edits:
            op.operands[index] = self._version(op.operands[index], kind, op)
        for root in roots:
            self._redeclare(root)
        self._drop_casts(ops)
        self._drop_unused(op for op in ops if op in were_used)
        if not self.analysis.wishes.keep_io:
            self._convert_defaults()
        sync_signature(self.module)

    @property
    def versions(self) -> set[Operation]:
        """What gives values in other types than they had: mostly casts and constants that were made."""
        return {value.owner for value in self._versions.values() if isinstance(value.owner, Operation)}

    # What each operand is to be

    def _edits(self, op: Operation) -> Iterator[tuple[Operation, int, DType]]:
        """The operands of an op, or of the ends of its graphs, with the types they are to have."""
        analysis = self.analysis
        if isinstance(op, Yield):
            return
        half = frozenset[int]()
        body = analysis.functions.get(op) if isinstance(op, Call) else None
        if isinstance(op, ReturnOp):
            if not analysis.wishes.keep_io:
                half = frozenset(i for i, v in enumerate(op.operands) if v not in analysis.hot)
        elif body is not None:
            half = self._halves(body.body.args)
            yield from self._ends(body.body, 0, op.results)
        elif isinstance(op, OnnxOp) and op.op_type == "If":
            for region in op.regions:
                yield from self._ends(region.block, 0, op.results)
        elif isinstance(op, OnnxOp) and op.op_type == "Loop":
            block = op.regions[0].block
            half = self._halves(block.args)
            yield from self._ends(block, 1, op.results)
        elif isinstance(op, OnnxOp) and op.op_type == "Scan" and op.since >= 9:
            half = self._halves(op.regions[0].block.args)
            yield from self._ends(op.regions[0].block, 0, op.results)
        else:
            if narrows(op, self.half, analysis.wishes.sources):
                half = frozenset[int]() if analysis.is_fixed(op.operands[0]) else self._halves(op.operands)
            elif isinstance(op, OnnxOp) and op not in analysis.kept:
                half = frozenset(analysis.slots.operands(op))
            for region in op.regions:
                for block in region.blocks:
                    yield from self._ends(block, 0, ())
        for index, value in enumerate(op.operands):
            if analysis.subject(value):
                yield op, index, self.half if index in half else cast(DType, dtype_of(value.type))

    def _halves(self, values: Any) -> frozenset[int]:
        return frozenset(i for i, v in enumerate(values) if self.analysis.is_half(v))

    def _ends(self, block: Block, skipped: int, results: Any) -> Iterator[tuple[Operation, int, DType]]:
        """What a graph gives: of the types that the op's results have."""
        end = cast(Operation, block.last_op)
        half = self._halves(results)
        for index, value in enumerate(end.operands):
            if self.analysis.subject(value):
                kind = self.half if index - skipped in half else cast(DType, dtype_of(value.type))
                yield end, index, kind

    # Types and versions of values

    def _set_homes(self, root: Operation) -> None:
        for value in list(values_in(root)):
            if not self.analysis.subject(value):
                continue
            self._homes[value] = cast(DType, dtype_of(value.type))
            if self.analysis.is_half(value) and not self.analysis.is_fixed(value):
                set_type(value, tensor(self.half, shape_of(value.type)))

    def _version(self, value: SSAValue, kind: DType, user: Operation) -> SSAValue:
        """A value in a type: itself, or what is made of it once, where it is made itself."""
        if dtype_of(value.type) is kind:
            return value
        made = self._versions.get((value, kind))
        if made is None:
            made = self._versions[value, kind] = self._make_version(value, kind, user)
        return made

    def _make_version(self, value: SSAValue, kind: DType, user: Operation) -> SSAValue:
        owner = value.owner
        source = owner if isinstance(owner, Operation) else user
        data = constant_behind(value)
        op: Operation
        if data is not None:
            assert isinstance(owner, Operation)
            attr = TensorAttr.of(self.analysis.half.convert(data))
            is_held = isinstance(owner, Initializer)
            op = (
                Initializer.of(attr)
                if is_held
                else _CONSTANT.create(result_types=[attr.type], properties={"value": attr})
            )
            self.constants += 1
        elif isinstance(owner, OnnxOp) and is_dtype_alias(owner, self.half) and kind is self.half:
            return owner.operands[0]
        else:
            op = _CAST.make([value], [tensor(kind, shape_of(value.type))], {"to": kind.code})
            op.results[0].name_hint = value.name_hint
            self.casts += 1
        op.location = fused([source.location], self.by)
        insert_after(value, op)
        return op.results[0]

    # Afterwards

    def _redeclare(self, root: Operation) -> None:
        """Declared types follow the values that became half."""
        for op in ops_in(root):
            self._redeclare_in(op.attributes, DECL, op.operands if isinstance(op, Yield) else op.results)
            if isinstance(op, Yield) and op.parent is not None:
                self._redeclare_in(op.attributes, _INS_DECL, op.parent.args)

    def _redeclare_in(self, attributes: dict[str, Attribute], name: str, values: Any) -> None:
        entries = items_of(attributes.get(name))
        if entries is not None:
            paired = zip(entries, values, strict=False)
            attributes[name] = ArrayAttr([self._declared(entry, value) for entry, value in paired])

    def _declared(self, entry: Attribute, value: SSAValue) -> Attribute:
        kind, was = dtype_of(value.type), dtype_of(entry)
        if isinstance(entry, ProtoAttr):
            return UnitAttr()
        return entry if was is None or kind is None or was is kind else tensor(kind, shape_of(entry))

    def _drop_casts(self, ops: list[Operation]) -> None:
        """Casts of the module that changed nothing since both sides became one type."""
        rewriter = Rewriter(self.module, self.by)
        rewriter.in_step = True
        for op in ops:
            if not isinstance(op, OnnxOp) or op.op_type != "Cast" or op in self.analysis.kept:
                continue
            if dtype_of(op.operands[0].type) is self.half and dtype_of(op.results[0].type) is self.half:
                rewriter.replace(op, [op.operands[0]])

    def _drop_unused(self, ops: Iterator[Operation]) -> None:
        """Constants and casts that nothing uses any more; what took a constant's place takes its name."""
        referenced = referenced_names(self.module)
        for op in reversed(list(ops)):
            if op.parent is None or any(r.first_use is not None for r in op.results):
                continue
            made = self._versions.get((op.results[0], self.half)) if op.results else None
            if constant_behind(op.results[0]) is not None and made is not None:
                if name_of(op.results[0]) in referenced:
                    continue
                owner = cast(Operation, made.owner)
                owner.attributes.update({k: v for k, v in op.attributes.items() if k != DECL})
                made.name_hint = op.results[0].name_hint
                erase(op)
            elif isinstance(op, OnnxOp) and is_dtype_alias(op, self.half):
                erase(op)

    def _convert_defaults(self) -> None:
        """The defaults of inputs that became half, and what is declared of inputs and outputs."""
        func = self.module.func
        for name, values in (("arg_attrs", self.module.block.args), ("res_attrs", self.module.returned)):
            attrs = func.properties.get(name)
            if not isinstance(attrs, ArrayAttr):
                continue
            made: list[DictionaryAttr] = []
            for entry, value in zip(cast("ArrayAttr[DictionaryAttr]", attrs).data, values, strict=True):
                fields = dict(entry.data)
                default = fields.get(DEFAULT)
                if isinstance(default, TensorAttr) and dtype_of(value.type) is self.half is not default.data.dtype:
                    fields[DEFAULT] = TensorAttr.of(self.analysis.half.convert(default.data))
                if DECL in fields:
                    fields[DECL] = self._declared(fields[DECL], value)
                made.append(DictionaryAttr(fields))
            func.properties[name] = ArrayAttr(made)
