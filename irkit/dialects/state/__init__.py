"""The ``state`` dialect: variables that outlive a run, and tokens that order how they are accessed."""

from __future__ import annotations

from xdsl.ir import Dialect

from irkit.dialects.state.build import (
    after,
    assign,
    assign_add,
    assign_sub,
    control,
    group,
    read,
    variable,
)
from irkit.dialects.state.ops import After, Assign, Join, Read, StateOp, TokenType, Variable, token, variables_of
from irkit.dialects.state.order import check, has_state
from irkit.dialects.state.signature import StateEntry, initial_state, run_stateful, state_signature

__all__ = [
    "STATE",
    "After",
    "Assign",
    "Join",
    "Read",
    "StateEntry",
    "StateOp",
    "TokenType",
    "Variable",
    "after",
    "assign",
    "assign_add",
    "assign_sub",
    "check",
    "control",
    "group",
    "has_state",
    "initial_state",
    "read",
    "run_stateful",
    "state_signature",
    "token",
    "variable",
    "variables_of",
]

STATE = Dialect("state", [Variable, Read, Assign, Join, After], [TokenType])
