"""What stands between a module and its plan: ops without a kernel are rewritten, functions are specialised to a call.

Both work on clones; the module itself is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, Region, SSAValue

from irkit.backends.numpy.registry import Kernel, find_kernel
from irkit.dialects.onnx.classes import OnnxOp
from irkit.dialects.onnx.structural import Call, Custom, ForeignOp, Function, fill_references
from irkit.errors import IrkitError, UnsupportedError
from irkit.ir.location import where
from irkit.ir.op import TensorOp
from irkit.ir.types import absent_type

__all__ = ["Specializer", "functions_of", "kernel_of", "legalize", "runnable", "unrunnable"]

_STRUCTURAL = frozenset(("onnx.Initializer", "onnx.Constant", "onnx.NoValue", "onnx.Yield", "onnx.Call", "func.return"))


def kernel_of(op: Operation) -> Kernel | None:
    """The kernel that runs this op as it stands, or None."""
    if isinstance(op, TensorOp):
        spec = op.spec
        return find_kernel(spec.domain, spec.op_type, 0 if getattr(op, "current", True) else spec.since)
    if isinstance(op, Custom):
        return find_kernel(op.domain, op.op_type)
    return None


def runnable(op: Operation) -> bool:
    """Whether a plan can hold this op as it stands."""
    return op.name in _STRUCTURAL or kernel_of(op) is not None


def _walk(root: Operation) -> Iterator[Operation]:
    """The ops nested in this one, outer ones first; an op itself where it is no function."""
    if not isinstance(root, FuncOp | Function):
        yield root
    for region in root.regions:
        for block in region.blocks:
            for op in block.ops:
                yield from _walk(op)


def unrunnable(root: Operation) -> list[Operation]:
    """The ops nested in this one (or this one itself) that a plan cannot hold."""
    return [op for op in _walk(root) if not runnable(op)]


def legalize(root: Operation, ctx: Context) -> None:
    """Rewrites, in place, the ops nested in ``root`` that have no kernel: by upgrade, decomposition or function body.

    Raises:
        UnsupportedError: naming an op for which there is none of these.
    """
    while pending := unrunnable(root):
        # Inner ops first: a rewrite of the outer one then moves them as they are.
        for op in reversed(pending):
            if not _rewrite(op, ctx):
                raise unsupported(op)


def _rewrite(op: Operation, ctx: Context) -> bool:
    if not isinstance(op, OnnxOp):
        return False
    from irkit import opsets

    # A current form may be a deprecated one, and decompose too.
    if opsets.upgrade_op(op, ctx) or opsets.decompose_op(op, ctx):
        return True
    return opsets.expand_function_body(op, ctx)


def unsupported(op: Operation) -> UnsupportedError:
    """The error for an op that the NumPy backend cannot run."""
    name = op.name
    if isinstance(op, ForeignOp):
        name = f"{op.domain or 'ai.onnx'}.{op.op_type}"
        hint = "register a kernel for it: irkit.backends.numpy.registry.kernel"
    elif name.startswith("state."):
        hint = "lift the module's state first (pass lift-state)"
    elif name.endswith(".Gradient"):
        hint = "expand it first (pass expand-gradient)"
    else:
        hint = "convert the model to a newer opset, or run it on onnxruntime"
    return UnsupportedError("the NumPy backend has no kernel for this op", op=name, where=where(op), hint=hint)


# Functions

FunctionKey = tuple[str, str, str]


def functions_of(module: ModuleOp) -> dict[FunctionKey, Function]:
    """A module's functions by domain, name and overload."""
    return {op.key: op for op in module.ops if isinstance(op, Function)}


class Specializer:
    """Makes functions concrete: attribute references filled in, types inferred from those of a call's operands.

    Args:
        functions: those that calls may name.
    """

    def __init__(self, functions: Mapping[FunctionKey, Function], ctx: Context) -> None:
        self._functions = functions
        self._ctx = ctx
        self._made: dict[Call, Function] = {}
        self._active: list[FunctionKey] = []

    def function(self, call: Call) -> Function:
        """A copy of the function that is called, specialised to the call and with every op runnable.

        Raises:
            UnsupportedError: if it is unknown, calls itself, or has an op that cannot be run.
        """
        found = self._made.get(call)
        if found is None:
            found = self._made[call] = self._specialize(call)
        return found

    def _specialize(self, call: Call) -> Function:
        key = (call.domain, call.op_type, call.overload)
        name = f"{call.domain}.{call.op_type}"
        source = self._functions.get(key)
        if source is None:
            raise UnsupportedError("there is no such function in the module", op=name, where=where(call))
        if key in self._active:
            raise UnsupportedError("the function calls itself, which ONNX forbids", op=name, where=where(call))
        made = source.clone()
        for mine, theirs in zip(source.walk(), made.walk(), strict=True):
            theirs.location = mine.location
        given = {**source.defaults, **call.attrs}
        for op in list(made.walk()):
            fill_references(op, given)
        self._active.append(key)
        try:
            types = [v.type for v in call.operands]
            for index, arg in enumerate(made.body.args):
                _set_type(arg, types[index] if index < len(types) else absent_type)
            self._infer(made.body.ops)
            legalize(made, self._ctx)
        finally:
            self._active.pop()
        return made

    def _infer(self, ops: Iterable[Operation]) -> None:
        """Result types from operand types, in order. What cannot be inferred stays as it is."""
        for op in ops:
            if isinstance(op, Call):
                last = self.function(op).body.last_op
                if last is not None:
                    for result, value in zip(op.results, last.operands, strict=False):
                        _set_type(result, value.type)
            elif isinstance(op, TensorOp):
                self._infer_op(op)

    def _infer_op(self, op: TensorOp) -> None:
        try:
            for name, region in zip(op.spec.graphs, op.regions, strict=True):
                if region.blocks:
                    self._infer_body(op, name, region)
            if op.name == "onnx.Initializer":
                return
            types = op.infer_types(list(op.operands), op.properties, list(op.regions), len(op.results))
        except (IrkitError, ValueError, KeyError):
            return
        for result, value_type in zip(op.results, types, strict=True):
            _set_type(result, value_type)

    def _infer_body(self, op: TensorOp, name: str, region: Region) -> None:
        block = region.block
        types = op.body_types(name, list(op.operands), op.properties, len(block.args))
        while types is not None:
            for arg, value_type in zip(block.args, types, strict=True):
                _set_type(arg, value_type)
            self._infer(block.ops)
            # A loop that does not keep the types of what it carries.
            types = op.widened(region, list(op.operands))


def _set_type(value: SSAValue, value_type: Attribute) -> None:
    cast(Any, value)._type = value_type
