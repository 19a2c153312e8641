"""State in graphs built by hand.

>>> import irkit as ik
>>> from irkit.dialects import state
>>> b = ik.Builder("counter")
>>> count = state.variable(b, "count", 0)
>>> before, _ = state.read(b, count)
>>> b.output(before, "before")
>>> b.output(state.assign(b, count, before + 1), "done")
>>> b.module().outputs
{'before': tensor<i64>, 'done': !state.token}
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue

from irkit.dialects.state.ops import After, Assign, Join, Read, Variable, can_start, fits, is_token, token
from irkit.dialects.state.order import misfit
from irkit.errors import InferenceError, IrkitError
from irkit.ir.attributes import string
from irkit.ir.builder import Builder, Tensor, Values, value_of
from irkit.ir.constants import TensorAttr, constant
from irkit.ir.location import where
from irkit.ir.names import DOC, NAME, set_metadata
from irkit.ir.types import dtype_of

__all__ = ["after", "assign", "assign_add", "assign_sub", "control", "group", "read", "variable"]

Token = Tensor
Tokens = Iterable[Tensor | SSAValue]


def variable(
    b: Builder,
    name: str,
    initial: Any,
    *,
    type: Attribute | None = None,
    trainable: bool = False,
    metadata: Mapping[str, str] | None = None,
    doc: str = "",
) -> Variable:
    """Declares a variable of the module; not to be called while the body of an If, Loop or Scan is built.

    Args:
        name: under which its value is fed, returned and saved.
        initial: an array, a number, a list, or a ``TensorAttr``.
        type: the tensor type of all its values; by default that of ``initial``.
        trainable: whether an optimizer is to change it.
        metadata: kept with it.
        doc: kept with it.

    Raises:
        IrkitError: if the module has a variable of this name.
        InferenceError: if ``initial`` is not of the type given.
    """
    start = initial if isinstance(initial, TensorAttr) else constant(initial, None if type is None else dtype_of(type))
    declared = start.type if type is None else type
    if not can_start(start.type, declared):
        raise InferenceError(f"variable '{name}' is to be {declared}, but starts as {start.type}", op=Variable.name)
    siblings = _siblings(b)
    if any(other.variable_name == name for other in siblings):
        raise IrkitError(f"there is a variable '{name}' already", op=Variable.name, hint="give this one another name")
    symbol = _symbol(name, {other.symbol for other in siblings})
    properties = {"sym_name": StringAttr(symbol), "type": declared, "initial": start}
    op = Variable.create(properties=properties | ({"trainable": UnitAttr()} if trainable else {}))
    if symbol != name:
        op.attributes[NAME] = string(name)
    if doc:
        op.attributes[DOC] = string(doc)
    if metadata:
        set_metadata(op, dict(metadata))
    return _declare(b, op)


def _module_of(b: Builder) -> ModuleOp | None:
    """The module that a builder inserts into; None while it is being built."""
    op: Operation | None = b.block.parent_op()
    while op is not None and not isinstance(op, ModuleOp):
        op = op.parent_op()
    return op


def _siblings(b: Builder) -> list[Variable]:
    module = _module_of(b)
    return [op for op in (b.declared if module is None else module.ops) if isinstance(op, Variable)]


def _declare(b: Builder, op: Variable) -> Variable:
    op.location = b.here()
    module = _module_of(b)
    if module is None:
        b.declared.append(op)
    elif module.body.block.first_op is None:
        module.body.block.add_op(op)
    else:
        last = next((other for other in reversed(list(module.ops)) if isinstance(other, Variable)), None)
        if last is None:
            module.body.block.insert_op_before(op, module.body.block.first_op)
        else:
            module.body.block.insert_op_after(op, last)
    return op


def _symbol(name: str, taken: set[str]) -> str:
    """The name itself, where it is printable ASCII; a symbol in MLIR cannot be anything else."""
    base = name if name and name.isascii() and name.isprintable() else "variable"
    symbol, count = base, 0
    while symbol in taken:
        count += 1
        symbol = f"{base}_{count}"
    return symbol


def read(b: Builder, var: Variable, after: Tokens = ()) -> tuple[Tensor, Token]:
    """The value that a variable has after all that is ordered before, and the token of having read it."""
    op = Read.create(
        operands=_waits(b, after),
        result_types=[var.type, token],
        properties={"variable": SymbolRefAttr(var.symbol)},
    )
    b.insert(op)
    return Tensor(op.results[0], b), Tensor(op.results[1], b)


def assign(b: Builder, var: Variable, value: Values, after: Tokens = ()) -> Token:
    """Gives a variable a new value; returns the token of having done so.

    Raises:
        InferenceError: if the variable's type does not admit the value.
    """
    given = b.tensor(value, dtype_of(var.type))
    op = Assign.create(
        operands=[given, *_waits(b, after)],
        result_types=[token],
        properties={"variable": SymbolRefAttr(var.symbol)},
    )
    b.insert(op)
    if not fits(given.type, var.type):
        place = where(op)
        op.detach()
        raise InferenceError(misfit(given, var, "the assign"), op=Assign.name, where=place)
    return Tensor(op.results[0], b)


def assign_add(b: Builder, var: Variable, delta: Values, after: Tokens = ()) -> Token:
    """Adds to a variable's value, after all that is ordered before; returns the token of having done so."""
    return _update(b, "Add", var, delta, after)


def assign_sub(b: Builder, var: Variable, delta: Values, after: Tokens = ()) -> Token:
    """Subtracts from a variable's value; see ``assign_add``."""
    return _update(b, "Sub", var, delta, after)


def _update(b: Builder, op_type: str, var: Variable, delta: Values, after: Tokens) -> Token:
    value, done = read(b, var, after)
    # The token keeps the order even where what is assigned turns out not to depend on what was read.
    return assign(b, var, b.binary(op_type, value, delta), [done])


def group(b: Builder, tokens: Tokens) -> Token:
    """The token of all these having happened; of none, a token that waits for nothing."""
    return _made(b, Join.create(operands=_tokens(tokens), result_types=[token]))


def after(b: Builder, value: Values, tokens: Tokens) -> Tensor:
    """The same value, there once these have happened: who uses it makes them run."""
    given = b.tensor(value)
    return _made(b, After.create(operands=[given, *_tokens(tokens)], result_types=[given.type]))


@contextmanager
def control(b: Builder, tokens: Tokens) -> Generator[None]:
    """Accesses built within, in graphs of If, Loop and Scan too, come after these tokens.

    Contexts within each other add up. Ops that access no state are not concerned; ``after`` gives a value an order.
    """
    outer = b.control
    b.control = (*outer, *_tokens(tokens))
    try:
        yield
    finally:
        b.control = outer


def _made(b: Builder, op: Operation) -> Tensor:
    b.insert(op)
    return Tensor(op.results[0], b)


def _tokens(tokens: Tokens) -> list[SSAValue]:
    found = [value_of(item) for item in cast(Any, tokens)]
    wrong = next((value for value in found if not is_token(value)), None)
    if wrong is not None:
        raise TypeError(f"expected tokens, as read and assign return them; found a value of type {wrong.type}")
    return found


def _waits(b: Builder, tokens: Tokens) -> list[SSAValue]:
    return list(dict.fromkeys((*b.control, *_tokens(tokens))))
