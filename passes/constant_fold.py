"""Computes at compile time what depends on constants alone, within budgets of size, memory and time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any, ClassVar, cast

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.sizes import SizeValues
from irkit.dialects.onnx.values import constant_of, is_constant
from irkit.errors import IrkitError
from irkit.ir.constants import ConstantData, SparseAttr, TensorAttr, constant
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.ir.names import name_of, node_name
from irkit.ir.op import Elementwise, is_absent
from irkit.ir.types import scalar_dims, tensor_info
from irkit.passes.base import Pass
from irkit.passes.effects import Effects
from irkit.passes.infer_shapes import Inferrer
from irkit.passes.rewrite import MAX_SOURCES, Rewriter, body_blocks, has_reference, sync_signature
from irkit.passes.types import is_fully_known

__all__ = ["ConstantFolding", "Skipped"]

MIB = 1 << 20
SMALL = 1024
"""Integer results of so few elements are shape arithmetic, and fold whatever the budget."""
MAX_WORK = 1 << 30
"""Multiply-adds that folding one op may take."""

QUANTIZATION = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
VIEWS = frozenset("Reshape Squeeze Unsqueeze Flatten Identity".split())
"""Ops that hand on the elements of the first operand in order: nothing is copied."""
RESHAPING = VIEWS | {"Transpose", "Expand", "Tile"}
"""Ops whose result holds nothing but elements of the first operand: of a splat they make a splat."""
BOUNDED = frozenset("NonZero Unique Compress NonMaxSuppression".split())
"""Ops whose result's size depends on the operands' values, but is at most in proportion to theirs."""
HEAVY = frozenset(
    "ConvTranspose DeformConv Einsum DFT STFT Resize GridSample RoiAlign RNN GRU LSTM Attention Det".split()
)
"""Ops whose work is not in proportion to the size of their result."""


@dataclass(frozen=True)
class Skipped:
    """An op that could have been folded and was not.

    Attributes:
        op: as ``onnx.Tile``.
        name: of the node, or of its first result.
        reason: in words.
        where: its location, or ``""``.
    """

    op: str
    name: str
    reason: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.op} '{self.name}' not folded: {self.reason}"


@dataclass(frozen=True)
class ConstantFolding(Pass):
    """Replaces ops whose operands are all constants by their results, as the numpy backend computes them.

    Also what is known of shapes without their values: ``Shape`` of a value of known shape, and what is gathered,
    sliced or concatenated from sizes that are known. Left alone are: random ops, ops of unknown domains, what depends
    on an overridable input or on a function's attribute, quantization (unless asked for), and ops that fail on their
    operands: those must fail when run. Constants of one repeated element stay so. A large ``ConstantOfShape``, ``Tile``
    or ``Expand`` stays an op, which is its smallest form.

    Args:
        max_bytes: by how much one fold may make the model larger, operands that become unused discounted.
        max_growth: the same for the whole run.
        max_memory: the bytes of one result, however much its operands free.
        max_seconds: after so long no further op is folded. The one option by which a slow machine could give another
            result; what was left is noted.
        quantization: fold QuantizeLinear and DequantizeLinear, too.

    Attributes:
        skipped: what was not folded and why, after a run.
    """

    name: ClassVar[str] = "onnx-constant-fold"

    max_bytes: int = MIB
    max_growth: int = 16 * MIB
    max_memory: int = 64 * MIB
    max_seconds: int = 60
    quantization: bool = False

    @cached_property
    def skipped(self) -> list[Skipped]:
        return []

    def notes(self) -> list[str]:
        return [str(s) for s in self.skipped]

    def run(self, module: Module) -> bool:
        self.skipped.clear()
        folder = _Folder(module, self)
        for block in body_blocks(module):
            folder.block(block)
        sync_signature(module)
        return folder.changed


class _Refused(Exception):
    """An op is not folded; says why."""


class _Folder:
    def __init__(self, module: Module, options: ConstantFolding) -> None:
        self.options = options
        self.rewriter = Rewriter(module, "constant-fold")
        self.effects = Effects(module)
        self.inferrer = Inferrer(module)
        self.sizes = SizeValues()
        self.changed = False
        self.growth = 0
        self.deadline = monotonic() + options.max_seconds

    def block(self, block: Block) -> None:
        """Folds in program order, so that an op is looked at after all that it depends on."""
        for op in list(block.ops):
            for region in op.regions:
                for inner in region.blocks:
                    self.block(inner)
            if isinstance(op, OnnxOp) and op.op_type != "Constant":
                self.visit(op)
            elif self.inferrer.changed and op.results and self.inferrer.is_stale(op):
                self.inferrer.results(op)
        self.rewriter.touched.clear()

    def visit(self, op: OnnxOp) -> None:
        if has_reference(op):
            return
        if self.inferrer.changed and not all(is_fully_known(r.type) for r in op.results):
            self.inferrer.results(op)
        if not any(r.first_use for r in op.results):
            return
        # Of Shape and Size only the operand's type counts, which may be a constant of any size.
        if op.op_type in ("Shape", "Size") or not all(is_absent(v) or is_constant(v) for v in op.operands):
            sizes = self.sizes.constants(op)
            if sizes is not None:
                self.replace(op, sizes)
                return
        if not op.operands or not all(is_absent(v) or is_constant(v) for v in op.operands) or _captures(op):
            return
        try:
            self.replace(op, self.fold(op))
        except _Refused as refused:
            self.skip(op, str(refused))

    def skip(self, op: OnnxOp, reason: str) -> None:
        name = node_name(op) or name_of(op.results[0])
        self.options.skipped.append(Skipped(op.name, name, reason, where(op)))

    def replace(self, op: OnnxOp, results: Sequence[ConstantData | None]) -> None:
        """Puts constants in an op's place."""
        sources: list[Operation] = [op, *(cast(Operation, v.owner) for v in op.operands if is_constant(v))]
        made: list[SSAValue | None] = []
        for data in results:
            value = None if data is None else self.rewriter.constant(data, before=op, sources=_few(sources))
            if data is not None and value is None:
                kind = data.dtype
                raise _Refused(f"a constant of {kind} cannot be expressed in a function at this opset")
            made.append(value)
        self.inferrer.changed.update(v for v in made if v is not None)
        self.rewriter.replace(op, made)
        self.changed = True

    def fold(self, op: OnnxOp) -> list[ConstantData | None]:
        """The results of an op on constants; None for one that is not used.

        Raises:
            _Refused: if it is not to be folded, with the reason.
        """
        self.check_kind(op)
        inputs = [constant_of(v) for v in op.operands]
        if any(data is None and not is_absent(v) for data, v in zip(inputs, op.operands, strict=True)):
            raise _Refused("an operand depends on an attribute of the function's caller")
        if not all(is_fully_known(r.type) for r in op.results):
            self.inferrer.results(op)
        nbytes, is_exact = self.estimate(op, inputs)
        self.check_budget(op, nbytes)
        work = _work(op, inputs)
        if work > MAX_WORK:
            raise _Refused(f"computing it takes about {work} multiply-adds (at most {MAX_WORK})")
        held = self.fold_view(op, inputs) or self.fold_splat(op, inputs)
        if held is not None:
            made: list[ConstantData | None] = [held]
        else:
            found = self.evaluate(op, [None if data is None else data.array() for data in inputs])
            made = [self.checked(r, array) if r.first_use else None for r, array in zip(op.results, found, strict=True)]
            if not is_exact:
                nbytes = sum(data.nbytes for data in made if data is not None)
                self.check_budget(op, nbytes)
        self.growth += nbytes - _freed(op)
        return made

    def check_kind(self, op: OnnxOp) -> None:
        if not self.effects.mergeable(op):
            raise _Refused("it draws random numbers" if self.effects.droppable(op) else "its effects are not known")
        if op.op_type in QUANTIZATION and not self.options.quantization:
            raise _Refused("quantization is kept (option quantization=true folds it)")
        if any(tensor_info(r.type) is None for r in op.results if r.first_use):
            raise _Refused("its result is no tensor, or of unknown type")
        if any(isinstance(a, SparseAttr) for v in op.operands if is_constant(v) for a in _held(v)):
            raise _Refused("an operand is sparse")

    def estimate(self, op: OnnxOp, inputs: Sequence[ConstantData | None]) -> tuple[int, bool]:
        """The bytes of the results, and whether that is exact rather than a bound or a guess."""
        given = sum(data.size for data in inputs if data is not None)
        nbytes, is_exact = 0, True
        for result in op.results:
            if not result.first_use:
                continue
            info, dims = tensor_info(result.type), scalar_dims(result.type)
            assert info is not None
            if dims is not None:
                size = math.prod(dims)
                is_exact &= info.dtype.kind != "string"
            elif op.op_type in BOUNDED or op.regions:
                size, is_exact = 4 * given, False
            else:
                raise _Refused("the size of its result is not known")
            nbytes += size * max(info.dtype.bits, 8) // 8
        return nbytes, is_exact

    def check_budget(self, op: OnnxOp, nbytes: int) -> None:
        """Refuses results of so many bytes if they exceed a budget. Small integers are never refused."""
        options = self.options
        used = [tensor_info(r.type) for r in op.results if r.first_use]
        are_integers = all(i is not None and (i.dtype.is_integer or i.dtype.kind == "bool") for i in used)
        if are_integers and nbytes <= 8 * SMALL:
            return
        if nbytes > options.max_memory:
            raise _Refused(f"its result takes {nbytes} bytes (max-memory={options.max_memory})")
        growth = nbytes - _freed(op)
        if growth > options.max_bytes:
            raise _Refused(f"the model would grow by {growth} bytes (max-bytes={options.max_bytes})")
        if self.growth + growth > options.max_growth:
            raise _Refused(f"all folds together would exceed max-growth={options.max_growth} bytes")
        if monotonic() > self.deadline:
            raise _Refused(f"folding took more than max-seconds={options.max_seconds}")

    def fold_view(self, op: OnnxOp, inputs: Sequence[ConstantData | None]) -> ConstantData | None:
        """The result as another view of the first operand's elements, where it is that."""
        data, dims = inputs[0], scalar_dims(op.results[0].type)
        if op.op_type not in VIEWS or data is None or data.is_splat or dims is None or math.prod(dims) != data.size:
            return None
        return ConstantData(data.dtype, dims, data.stored().reshape(dims), data.source)

    def fold_splat(self, op: OnnxOp, inputs: Sequence[ConstantData | None]) -> ConstantData | None:
        """The result as one repeated element, where it certainly is that."""
        if len(op.results) != 1:
            return None
        info, dims = tensor_info(op.results[0].type), scalar_dims(op.results[0].type)
        if info is None or not dims:
            return None
        if op.op_type == "ConstantOfShape":
            value = op.properties.get("value")
            element = value.data.array().reshape(-1)[0] if isinstance(value, TensorAttr) else np.float32(0)
            return constant(element, info.dtype, dims).data
        first = inputs[0]
        if op.op_type in RESHAPING and first is not None and (first.is_splat or first.size == 1):
            return ConstantData(info.dtype, dims, first.stored().reshape(-1)[:1].reshape(()))
        if not op.has_trait(Elementwise) or not any(data is not None and data.is_splat for data in inputs):
            return None
        if not all(data is None or data.is_splat or data.size == 1 for data in inputs) or 0 in dims:
            return None
        elements = [None if data is None else data.array().reshape(-1)[:1].reshape(()) for data in inputs]
        (found,) = self.evaluate(op, elements)
        return constant(found.reshape(()), info.dtype, dims).data if found.dtype == info.dtype.numpy else None

    def evaluate(self, op: OnnxOp, inputs: Sequence[Any]) -> Sequence[Any]:
        from irkit.backends.numpy.control import Budget
        from irkit.backends.numpy.evaluate import can_evaluate, evaluate

        if not can_evaluate(op):
            raise _Refused("the numpy backend cannot run it alone")
        seconds = max(0.1, self.deadline - monotonic())
        budget = Budget(bytes=MIB + 4 * self.options.max_memory, steps=SMALL, seconds=seconds)
        try:
            return evaluate(op, inputs, budget=budget)
        except IrkitError as error:
            raise _Refused(f"computing it fails: {error.message}") from None

    def checked(self, result: SSAValue, array: Any) -> ConstantData:
        """A result as a constant, if it is of the type that inference says."""
        info, dims = tensor_info(result.type), scalar_dims(result.type)
        assert info is not None
        if not isinstance(array, np.ndarray):
            raise _Refused("its result is no tensor")
        found = cast("np.ndarray[Any, Any]", array)
        if found.dtype != info.dtype.numpy or (dims is not None and found.shape != dims):
            raise _Refused(f"it gives {found.dtype}{list(found.shape)}, where {result.type} is inferred")
        return constant(found, info.dtype).data


def _captures(op: Operation) -> bool:
    """Whether the graphs of an op use values from outside."""
    if not op.regions:
        return False
    inside = {op, *op.walk()}
    for inner in op.walk():
        if inner is not op:
            for value in inner.operands:
                owner = value.owner
                holder = owner if isinstance(owner, Operation) else owner.parent_op()
                if holder not in inside:
                    return True
    return False


def _held(value: SSAValue) -> Sequence[object]:
    return list(cast(Operation, value.owner).properties.values())


def _few(sources: list[Operation]) -> list[Operation]:
    """The ops that a folded one came from; not those of a long chain, or every link would list all before it."""
    few = [sources[0]]
    count = 1
    for op in sources[1:]:
        locations: Any = getattr(op.location, "locations", None)
        count += 1 if locations is None else len(locations.data)
        if count <= MAX_SOURCES:
            few.append(op)
    return few


def _freed(op: Operation) -> int:
    """The bytes of the constants that nothing else uses."""
    freed = 0
    for value in dict.fromkeys(op.operands):
        data = constant_of(value)
        if data is not None and all(use.operation is op for use in value.uses):
            freed += data.nbytes
    return freed


def _work(op: OnnxOp, inputs: Sequence[ConstantData | None]) -> int:
    """About how many multiply-adds an op takes."""
    size = sum(math.prod(scalar_dims(r.type) or ()) for r in op.results)
    first, second = (inputs[0], inputs[1] if len(inputs) > 1 else None) if inputs else (None, None)
    match op.op_type:
        case "MatMul" | "MatMulInteger" | "Gemm" if first is not None and first.shape:
            return size * max(first.shape)
        case "Conv" | "ConvInteger" | "QLinearConv" if second is not None:
            weights = inputs[3] if op.op_type == "QLinearConv" and len(inputs) > 3 else second
            return size * math.prod(weights.shape[1:]) if weights is not None else size
        case name if name in HEAVY:
            return size * max((data.size for data in inputs if data is not None), default=1)
        case _:
            return size
