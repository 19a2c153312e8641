"""Which accesses of variables are ordered: the rules that make all orders of execution that the edges allow agree.

Within a block, one op comes before another if a path of values or tokens leads from it to the other; what an op's
graphs capture counts as its operand. To the block around it, an If, Loop or Scan is one access of each variable that
its graphs access. Of two accesses of one variable, at least one of which writes, one must come before the other. So
the writes of a variable form a chain, each read has its place in it, and the order of the text is one of those allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from irkit.dialects.onnx.classes import OnnxOp
from irkit.dialects.onnx.structural import Yield
from irkit.dialects.state.ops import Access, Read, StateOp, Variable, fits, is_token, variables_of
from irkit.ir.location import where
from irkit.ir.types import tensor_info

__all__ = ["Layout", "check", "has_state", "layout_of", "read_by"]


class Layout(NamedTuple):
    """Where the values that an If, Loop or Scan hands on stand; an If hands on nothing from iteration to iteration.

    Attributes:
        n_states: how many values are carried.
        operand, arg, output: where they begin among the operands, the body's inputs and its outputs.
    """

    n_states: int
    operand: int = 0
    arg: int = 0
    output: int = 0


def layout_of(op: Operation) -> Layout | None:
    """The layout of an op whose graphs may access state; None for any other."""
    if not isinstance(op, OnnxOp) or op.domain:
        return None
    match op.op_type:
        case "If":
            return Layout(0)
        case "Loop":
            return Layout(max(len(op.operands) - 2, 0), 2, 2, 1)
        case "Scan" if op.since >= 9:
            return Layout(len(op.operands) - op.attr("num_scan_inputs"))
        case _:
            return None


def read_by(op: Operation) -> Iterator[SSAValue]:
    """The values that an op, or anything in its graphs, takes."""
    yield from op.operands
    for region in op.regions:
        for inner in region.walk():
            yield from inner.operands


def has_state(module: ModuleOp) -> bool:
    """Whether a module has variables, accesses or tokens."""
    return any(isinstance(op, StateOp | Variable) for op in module.walk())


def check(module: ModuleOp) -> None:
    """Checks all accesses of a module's variables, and where tokens go.

    Raises:
        VerifyException: naming the variable, the accesses and what is wrong with them.
    """
    variables = variables_of(module)
    main = next((op for op in module.ops if isinstance(op, FuncOp)), None)
    for op in module.ops:
        if op is not main and not isinstance(op, Variable):
            _refuse(op, "state is accessed in the main graph only; inline the function")
    if main is not None and main.body.blocks:
        if any(map(is_token, main.body.block.args)):
            raise VerifyException("an input of the main graph cannot be a token")
        _Checker(variables).block(main.body.block)


def _refuse(op: Operation, reason: str) -> None:
    for inner in op.walk():
        if isinstance(inner, StateOp) or any(map(is_token, inner.operands)):
            raise VerifyException(f"{place(inner)} stands in {op.name}: {reason}")


def place(op: Operation) -> str:
    """An op and where it came from, for messages."""
    known = where(op)
    return f"{op.name} ({known})" if known else op.name


class _Touch(NamedTuple):
    """How an op, or the worst of what is in its graphs, accesses a variable."""

    writes: bool
    access: Access


class _Checker:
    def __init__(self, variables: Mapping[str, Variable]) -> None:
        self.variables = variables

    def block(self, block: Block) -> dict[str, _Touch]:
        """Checks a block; returns how it accesses each variable."""
        touching: list[tuple[Operation, dict[str, _Touch]]] = []
        worst: dict[str, _Touch] = {}
        for op in block.ops:
            touches = self.op(op)
            if touches:
                touching.append((op, touches))
                _merge(worst, touches)
        self.order(block, touching, {symbol for symbol, touch in worst.items() if touch.writes})
        return worst

    def op(self, op: Operation) -> dict[str, _Touch]:
        if isinstance(op, StateOp):
            return self.access(op) if isinstance(op, Access) else {}
        layout = layout_of(op)
        if layout is not None and isinstance(op, OnnxOp):
            _check_tokens(op, layout)
            found: dict[str, _Touch] = {}
            for region in op.regions:
                for block in region.blocks:
                    _merge(found, self.block(block))
            return found
        if op.regions:
            _refuse(op, "only the graphs of If, Loop and Scan may access state")
        handed_on = isinstance(op, Yield | ReturnOp)
        if any(map(is_token, op.results)) or (not handed_on and any(map(is_token, op.operands))):
            raise VerifyException(
                f"{place(op)} is no op for tokens; those are for state ops, If, Loop, Scan and outputs"
            )
        return {}

    def access(self, op: Access) -> dict[str, _Touch]:
        variable = self.variables.get(op.symbol)
        if variable is None:
            known = ", ".join(f"'{symbol}'" for symbol in self.variables)
            raise VerifyException(f"{place(op)}: there is no variable '{op.symbol}' (there are: {known or 'none'})")
        if isinstance(op, Read):
            if not _agree(op, variable):
                name, found = variable.variable_name, op.results[0].type
                raise VerifyException(f"variable '{name}' is {variable.type}, but {place(op)} gives {found}")
        elif not fits(op.operands[0].type, variable.type):
            raise VerifyException(misfit(op.operands[0], variable, place(op)))
        return {op.symbol: _Touch(op.writes, op)}

    def order(self, block: Block, touching: Sequence[tuple[Operation, dict[str, _Touch]]], written: set[str]) -> None:
        """Checks that the accesses of each written variable are ordered."""
        accesses: dict[str, list[tuple[Operation, _Touch]]] = {}
        for op, touches in touching:
            for symbol, touch in touches.items():
                if symbol in written:
                    accesses.setdefault(symbol, []).append((op, touch))
        several = {symbol: ops for symbol, ops in accesses.items() if len(ops) > 1}
        if not several:
            return
        bits: dict[Operation, int] = {}
        for ops in several.values():
            for op, _ in ops:
                bits.setdefault(op, 1 << len(bits))
        before = _predecessors(block, bits)
        for symbol, ops in several.items():
            self.chain(symbol, ops, bits, before)

    def chain(
        self,
        symbol: str,
        ops: Sequence[tuple[Operation, _Touch]],
        bits: Mapping[Operation, int],
        before: Mapping[Operation, int],
    ) -> None:
        # A later write is after all that comes before an earlier one, so only neighbours need a look.
        since: list[tuple[Operation, _Touch]] = []
        for op, touch in ops:
            for other, earlier in since if touch.writes else since[:1]:
                if (earlier.writes or touch.writes) and not before[op] & bits[other]:
                    raise VerifyException(_unordered(self.variables[symbol], earlier, touch))
            if touch.writes:
                since = []
            since.append((op, touch))


def _merge(into: dict[str, _Touch], touches: Mapping[str, _Touch]) -> None:
    for symbol, touch in touches.items():
        if touch.writes or symbol not in into:
            into[symbol] = touch


def _predecessors(block: Block, bits: Mapping[Operation, int]) -> dict[Operation, int]:
    """Per op of a block the set of those with a bit from which a path leads to it."""
    before: dict[Operation, int] = {}
    for op in block.ops:
        found = 0
        for value in read_by(op):
            owner = value.owner
            if isinstance(owner, Operation) and owner.parent is block:
                found |= before[owner] | bits.get(owner, 0)
        before[op] = found
    return before


def _unordered(variable: Variable, first: _Touch, second: _Touch) -> str:
    a, b = place(first.access), place(second.access)
    does = ("writes" if first.writes else "reads", "writes" if second.writes else "reads")
    return (
        f"nothing orders two accesses of variable '{variable.variable_name}': {a} {does[0]} it, {b} {does[1]} it; "
        "give the one that comes later the token of the other"
    )


def misfit(value: SSAValue, variable: Variable, what: str) -> str:
    """The message for a value whose type a variable does not admit, and what to do."""
    found, wanted = tensor_info(value.type), tensor_info(variable.type)
    text = f"variable '{variable.variable_name}' is {variable.type}, but {what} is given {value.type}"
    if found is None or wanted is None or found.dtype is not wanted.dtype:
        return text + "; cast the value"
    return text + "; reshape the value, or declare the variable with a type that says less about its shape"


def _agree(op: Read, variable: Variable) -> bool:
    """Whether a read's type is the variable's; passes may have refined it."""
    found = op.results[0].type
    return found == variable.type or fits(found, variable.type)


def _check_tokens(op: OnnxOp, layout: Layout) -> None:
    """Tokens are carried as tokens, and only where values are carried."""
    bodies = [region.block for region in op.regions if region.blocks]
    yields = [list(body.last_op.operands) for body in bodies if body.last_op is not None]
    for index, result in enumerate(op.results):
        column = [values[layout.output + index] for values in yields if layout.output + index < len(values)]
        if index < layout.n_states:
            column.append(op.operands[layout.operand + index])
            column += [body.args[layout.arg + index] for body in bodies if layout.arg + index < len(body.args)]
        if any(is_token(value) != is_token(result) for value in column):
            raise VerifyException(f"result {index} of {place(op)} is a token in one place and a value in another")
        if is_token(result) and op.op_type != "If" and index >= layout.n_states:
            raise VerifyException(f"result {index} of {place(op)} collects tokens; carry one instead")
    carried = range(layout.operand, layout.operand + layout.n_states)
    others = [value for index, value in enumerate(op.operands) if index not in carried]
    for body, values in zip(bodies, yields, strict=False):
        carried = range(layout.arg, layout.arg + layout.n_states)
        others += [arg for arg in body.args if arg.index not in carried] + values[: layout.output]
    if any(map(is_token, others)):
        raise VerifyException(f"{place(op)} takes a token that it does not carry")
