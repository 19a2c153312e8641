"""Which operands and results of an op may become half: read from its schema, at the opset the module is saved at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Attribute, Block, Operation, SSAValue

from irkit.dialects.onnx import Initializer, OnnxOp, op_class
from irkit.dialects.onnx.classes import CLASSES
from irkit.dialects.onnx.structural import opsets_of
from irkit.dialects.onnx.values import constant_of
from irkit.errors import InferenceError
from irkit.ir.attributes import int_attr
from irkit.ir.constants import ConstantData, RefAttr, TensorAttr, constant
from irkit.ir.dtypes import DType, dtype
from irkit.ir.module import Module
from irkit.ir.op import Parameter, type_string
from irkit.ir.types import dtype_of, shape_of, tensor
from irkit.opsets.lowering import can_lower
from irkit.passes.precision.policy import DTYPE_ATTRIBUTES, KEPT_OPERANDS, SOFTMAX_PRECISION
from irkit.passes.rewrite import enclosing_function

__all__ = ["Slots", "is_dtype_alias", "narrows"]


def is_dtype_alias(op: OnnxOp, half: DType) -> bool:
    """Whether an op widens the half type: its operand is what its result is in half precision, to the bit."""
    return op.op_type == "Cast" and dtype_of(op.operands[0].type) is half


def narrows(op: Operation, half: DType, sources: frozenset[DType]) -> bool:
    """Whether an op of the module itself casts to the half type; it stays, or goes where that was done before."""
    if not isinstance(op, OnnxOp) or op.op_type != "Cast":
        return False
    return dtype_of(op.operands[0].type) in sources and dtype_of(op.results[0].type) is half


_UNFIT = "what it has besides does not go with half precision"


class Slots:
    """The operands and results of ops that may be of a half type.

    Args:
        sources: the types that become half.
    """

    def __init__(self, module: Module, half: DType, sources: frozenset[DType]) -> None:
        self.module, self.half, self.sources = module, half, sources
        self._spelled = type_string(tensor(half, ())) or ""
        self._found: dict[Operation, tuple[list[int], list[int]]] = {}

    def operands(self, op: OnnxOp) -> list[int]:
        """The places of the operands that may become half."""
        return self._slots(op)[0]

    def results(self, op: Operation) -> list[int]:
        """The places of the results that do so with them."""
        return self._slots(op)[1] if isinstance(op, OnnxOp) else []

    def missing(self, op: OnnxOp) -> str:
        """Why an op that has no such operands or results has none."""
        for since, cls in CLASSES[op.domain, op.op_type].items():
            kinds = (cls.spec.variables.get(p.type, (p.type,)) for p in (*cls.spec.inputs, *cls.spec.outputs))
            if any(self._spelled in kind for kind in kinds):
                return f"ONNX takes it in {self.half} from opset {since} on" if since > self._opset(op) else _UNFIT
        return f"ONNX does not take it in {self.half}"

    def refused_cast(self, op: OnnxOp) -> str:
        """Why what an op makes of numbers of another type may not fit; ``""`` where it does."""
        if op.op_type not in ("Cast", "CastLike") or not self._is_source(op.results[0]):
            return ""
        kind = dtype_of(op.operands[0].type)
        if kind is None or kind in self.sources or kind is self.half:
            return ""
        narrow = kind.kind == "bool" or (kind.is_integer and kind.bits <= 8)
        if narrow or (kind.is_float and kind.bits <= 8 and kind.name != "float8_e8m0fnu"):
            return ""
        return f"it makes floats of {kind}, which may be large"

    def attributes(self, op: OnnxOp) -> dict[str, Attribute]:
        """The attributes that change when an op becomes half."""
        name = DTYPE_ATTRIBUTES.get(op.op_type) if not op.domain else None
        if name is not None and self._names_source(op, name):
            return {name: int_attr(self.half.code)}
        if op.op_type == "ConstantOfShape" and not op.domain:
            return {"value": TensorAttr.of(_rounded(self._fill(op), self.half))}
        if SOFTMAX_PRECISION in op.spec.attributes and op.attr(SOFTMAX_PRECISION) is None:
            return {SOFTMAX_PRECISION: int_attr(dtype("float32").code)}
        return {}

    def _is_source(self, value: SSAValue) -> bool:
        return dtype_of(value.type) in self.sources

    def _names_source(self, op: OnnxOp, name: str) -> bool:
        code = op.attr(name)
        return isinstance(code, int) and code in {kind.code for kind in self.sources}

    @staticmethod
    def _fill(op: OnnxOp) -> ConstantData:
        attr = op.properties.get("value")
        if isinstance(attr, TensorAttr):
            return attr.data
        return constant([0.0], "float32").data

    def _opsets(self, op: Operation) -> Mapping[str, int]:
        """The opsets of the module, or of the function that an op is in."""
        function = enclosing_function(op.parent)
        return self.module.opsets if function is None else opsets_of(function.properties.get("opsets"))

    def _opset(self, op: OnnxOp) -> int:
        return self._opsets(op).get(op.domain, op.since)

    def _slots(self, op: OnnxOp) -> tuple[list[int], list[int]]:
        found = self._found.get(op)
        if found is None:
            found = self._from_schema(op)
            if found != ([], []) and not self._writable(op, *found):
                found = list[int](), list[int]()
            self._found[op] = found
        return found

    def _from_schema(self, op: OnnxOp) -> tuple[list[int], list[int]]:
        spec = op.spec
        operands = [
            i
            for i, value in enumerate(op.operands)
            if self._is_source(value)
            and (op.op_type, i) not in KEPT_OPERANDS
            and self._allowed(op, _formal(spec.inputs, i))
        ]
        bound = {_formal(spec.inputs, i).type for i in operands}
        inferred = self._inferred(op, operands)
        if inferred is None:
            return [], []
        results: list[int] = []
        for i, value in enumerate(op.results):
            formal = _formal(spec.outputs, i)
            if self._is_source(value) and self._allowed(op, formal):
                kind = dtype_of(inferred[i])
                # What inference does not tell, the type variables may.
                if kind is self.half or (kind is None and formal.type in bound):
                    results.append(i)
        return operands, results

    def _inferred(self, op: OnnxOp, operands: Sequence[int]) -> list[Attribute] | None:
        """The result types that an op has with these operands in half; None where it does not take them."""
        if any(isinstance(attr, RefAttr) for attr in op.properties.values()):
            return None
        types = [tensor(self.half, shape_of(v.type)) if i in operands else v.type for i, v in enumerate(op.operands)]
        stand_ins = Block(arg_types=types).args
        given = [stand_ins[i] if i in operands else value for i, value in enumerate(op.operands)]
        properties = {**op.properties, **self.attributes(op)}
        try:
            return type(op).infer_types(given, properties, list(op.regions), len(op.results))
        except InferenceError:
            return None

    def _allowed(self, op: OnnxOp, formal: Parameter) -> bool:
        return self._spelled in op.spec.variables.get(formal.type, frozenset((formal.type,)))

    def _writable(self, op: OnnxOp, operands: list[int], results: list[int]) -> bool:
        """Whether the op can be written in half at the opset that the module, or the function it is in, has."""
        opsets = self._opsets(op)
        if op_class(op.domain, op.op_type, opsets.get(op.domain)) is type(op):
            return True
        scratch = Block(arg_types=[])
        given = list(op.operands)
        for i in operands:
            data = constant_of(given[i])
            if data is None:
                half = tensor(self.half, shape_of(given[i].type))
                given[i] = scratch.insert_arg(half, len(scratch.args))
            else:
                held = Initializer.of(TensorAttr.of(_rounded(data, self.half)))
                scratch.add_op(held)
                given[i] = held.results[0]
        types = [tensor(self.half, shape_of(r.type)) if i in results else r.type for i, r in enumerate(op.results)]
        properties = {**op.properties, **self.attributes(op)}
        copy = type(op).create(
            operands=given,
            result_types=types,
            properties=properties,
            regions=[region.clone() for region in op.regions],
        )
        scratch.add_op(copy)
        fits = can_lower(copy, opsets, self.module.ctx)
        for made in reversed(list(scratch.ops)):
            made.detach()
            made.erase(safe_erase=False)
        return fits


def _rounded(data: ConstantData, half: DType) -> ConstantData:
    with np.errstate(over="ignore"):
        return ConstantData(half, data.shape, data.stored().astype(half.numpy))


def _formal(formals: tuple[Parameter, ...], index: int) -> Parameter:
    return formals[min(index, len(formals) - 1)]
