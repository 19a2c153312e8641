"""The ops and the type of the ``state`` dialect.

A variable is a symbol of the module. Reads and assigns name it; a token is a result that stands for "this has
happened", and an operand that says "after that". Every path of values or tokens from one op to another is an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import BytesAttr, ModuleOp, StringAttr, SymbolRefAttr, UnitAttr
from xdsl.ir import Attribute, Operation, OpTraits, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from irkit.ir.attributes import text_of
from irkit.ir.constants import TensorAttr
from irkit.ir.names import NAME
from irkit.ir.types import intern, tensor, tensor_info

__all__ = [
    "After",
    "Assign",
    "Join",
    "Read",
    "StateOp",
    "TokenType",
    "Variable",
    "can_start",
    "fits",
    "is_token",
    "token",
    "variables_of",
]


@irdl_attr_definition
class TokenType(ParametrizedAttribute, TypeAttribute):
    """The type of control edges: ``!state.token``."""

    name = "state.token"


token = intern(TokenType())
"""The token type; one object."""


def is_token(value: SSAValue) -> bool:
    """Whether this value is a control edge."""
    return isinstance(value.type, TokenType)


def fits(value_type: Attribute, variable_type: Attribute) -> bool:
    """Whether every value of one tensor type is a value of the other: the same dtype, and at least as much known."""
    value, variable = tensor_info(value_type), tensor_info(variable_type)
    if value is None or variable is None or value.dtype is not variable.dtype:
        return False
    if variable.shape is None:
        return True
    if value.shape is None or len(value.shape) != len(variable.shape):
        return False
    return all(wanted is None or wanted == found for found, wanted in zip(value.shape, variable.shape, strict=True))


def can_start(initial: Attribute, variable_type: Attribute) -> bool:
    """Whether a variable of one type may start with a value of another: a symbol stands for any size."""
    info = tensor_info(variable_type)
    if info is None or info.shape is None:
        return fits(initial, variable_type)
    return fits(initial, tensor(info.dtype, [dim if isinstance(dim, int) else None for dim in info.shape]))


class Variable(Operation):
    """A variable of the module: its value outlives a run.

    ``"state.variable"() <{sym_name = "w", type = tensor<2xf32>, initial = #onnx.tensor<...>, trainable}> : () -> ()``

    Properties: ``sym_name``; ``type``, the tensor type of every value that it takes; ``initial``, the first of them;
    ``trainable`` (unit, optional), which is for optimizers to look at. Attributes: ``onnx.name``, the name for people
    where the symbol is another; ``onnx.doc``; ``onnx.meta``.
    """

    name = "state.variable"
    traits = OpTraits(lambda: (SymbolOpInterface(),))

    @property
    def symbol(self) -> str:
        """The name by which reads and assigns refer to it."""
        return cast(StringAttr, self.properties["sym_name"]).data

    @property
    def variable_name(self) -> str:
        """The name for people."""
        given = self.attributes.get(NAME)
        return self.symbol if given is None else text_of(given)

    @property
    def type(self) -> Attribute:
        """The tensor type of its values."""
        return self.properties["type"]

    @property
    def initial(self) -> TensorAttr:
        """The value before the first run."""
        return cast(TensorAttr, self.properties["initial"])

    @property
    def trainable(self) -> bool:
        """Whether an optimizer is to change it."""
        return "trainable" in self.properties

    def verify_(self) -> None:
        from irkit.dialects.state.order import check

        self._verify_properties()
        module = self.parent_op()
        if not isinstance(module, ModuleOp):
            raise VerifyException("state.variable stands outside a module's top level")
        # How accesses are ordered is a matter of the whole module: the first variable sees to it for all.
        if first_variable(module) is self:
            check(module)

    def _verify_properties(self) -> None:
        unknown = set(self.properties) - {"sym_name", "type", "initial", "trainable"}
        if unknown:
            raise VerifyException(f"state.variable has no attribute '{min(unknown)}'")
        if self.operands or self.results or self.regions:
            raise VerifyException("state.variable has no operands, results or regions")
        if not isinstance(self.properties.get("sym_name"), StringAttr):
            raise VerifyException("state.variable needs the text attribute 'sym_name'")
        if not isinstance(self.attributes.get(NAME, StringAttr("")), StringAttr | BytesAttr):
            raise VerifyException(f"'{NAME}' of state.variable is no text")
        if not isinstance(self.properties.get("trainable", UnitAttr()), UnitAttr):
            raise VerifyException("'trainable' of state.variable is there or not; it has no value")
        declared, initial = self.properties.get("type"), self.properties.get("initial")
        if declared is None or tensor_info(declared) is None:
            raise VerifyException(f"state.variable needs 'type', a tensor type; found {declared}")
        if not isinstance(initial, TensorAttr):
            raise VerifyException(f"state.variable needs 'initial', a tensor; found {initial}")
        if not can_start(initial.type, declared):
            raise VerifyException(f"variable '{self.variable_name}' is {declared}, but starts as {initial.type}")


def first_variable(module: ModuleOp) -> Variable | None:
    """The first variable of a module, if it has any."""
    return next((op for op in module.ops if isinstance(op, Variable)), None)


def variables_of(module: ModuleOp) -> dict[str, Variable]:
    """A module's variables by symbol, in order.

    Raises:
        VerifyException: if two have one symbol.
    """
    found: dict[str, Variable] = {}
    for op in module.ops:
        if isinstance(op, Variable) and found.setdefault(op.symbol, op) is not op:
            raise VerifyException(f"two variables have the name '{op.symbol}'")
    return found


class StateOp(Operation):
    """An op that has tokens as operands, after ``n_values`` other operands."""

    n_values = 0
    n_results = 1

    @property
    def tokens(self) -> Sequence[SSAValue]:
        """The tokens that it waits for."""
        return self.operands[self.n_values :]

    def verify_(self) -> None:
        if self.regions:
            raise VerifyException(f"{self.name} has no regions")
        if len(self.operands) < self.n_values:
            raise VerifyException(f"{self.name} takes a value and tokens, but has {len(self.operands)} operands")
        if len(self.results) != self.n_results:
            raise VerifyException(f"{self.name} gives {self.n_results} results, but has {len(self.results)}")
        for index, value in enumerate(self.operands):
            if is_token(value) != (index >= self.n_values):
                expected = "a tensor" if index < self.n_values else "!state.token"
                raise VerifyException(f"operand {index} of {self.name} is {value.type}, expected {expected}")


class Access(StateOp):
    """A read or an assign."""

    writes = False

    @property
    def symbol(self) -> str:
        """The variable's symbol."""
        return cast(SymbolRefAttr, self.properties["variable"]).root_reference.data

    def verify_(self) -> None:
        super().verify_()
        found = self.properties.get("variable")
        if len(self.properties) != 1 or not isinstance(found, SymbolRefAttr) or found.nested_references.data:
            raise VerifyException(f"{self.name} needs one attribute, 'variable', a symbol such as @w")
        if not is_token(self.results[-1]):
            raise VerifyException(f"the last result of {self.name} is {self.results[-1].type}, expected !state.token")
        # The variables, where there are any, check all that name them.
        top: Operation = self
        while (parent := top.parent_op()) is not None:
            top = parent
        if isinstance(top, ModuleOp) and first_variable(top) is None:
            raise VerifyException(f"there is no variable '{self.symbol}'; the module has none")


class Read(Access):
    """The value of a variable: ``%v, %t = "state.read"(%after...) <{variable = @w}>``."""

    name = "state.read"
    traits = OpTraits(lambda: (MemoryReadEffect(),))
    n_results = 2


class Assign(Access):
    """Gives a variable a new value: ``%t = "state.assign"(%value, %after...) <{variable = @w}>``."""

    name = "state.assign"
    traits = OpTraits(lambda: (MemoryWriteEffect(),))
    n_values = 1
    writes = True


class Join(StateOp):
    """The token of several: ``%t = "state.join"(%t1, %t2)``; of none, a token that waits for nothing."""

    name = "state.join"
    traits = OpTraits(lambda: (Pure(),))

    def verify_(self) -> None:
        super().verify_()
        if not is_token(self.results[0]):
            raise VerifyException(f"the result of state.join is {self.results[0].type}, expected !state.token")


class After(StateOp):
    """A value that is there once something has happened: ``%y = "state.after"(%x, %t...)``."""

    name = "state.after"
    traits = OpTraits(lambda: (Pure(),))
    n_values = 1

    def verify_(self) -> None:
        super().verify_()
        given, result = self.operands[0].type, self.results[0].type
        if given != result:
            raise VerifyException(f"state.after takes {given}, so its result cannot be {result}")
