"""Declarative graphs: expressions over symbols, functions that are traced, state that is ordered, derivatives.

>>> import irkit as ik
>>> from irkit.frontends import dsl
>>> A, B, C, D = (dsl.placeholder(name, "float32") for name in "ABCD")
>>> E = (A + B) * (C - D)
>>> float(ik.compile(E)(A=3, B=2, C=1, D=2))
-5.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from irkit.frontends.dsl import onnx, operators
from irkit.frontends.dsl.build import built
from irkit.frontends.dsl.concrete import evaluate
from irkit.frontends.dsl.control import cond, fori, map, scan, while_loop
from irkit.frontends.dsl.device import Partition, device, partition
from irkit.frontends.dsl.errors import SymbolError, UninitializedError
from irkit.frontends.dsl.functions import create, elementwise, nn, reduce
from irkit.frontends.dsl.functions import shape as _shape
from irkit.frontends.dsl.gradients import (
    grad,
    gradients,
    hessian,
    jacobian,
    jvp,
    stop_gradient,
    tangents,
    value_and_grad,
    vjp,
)
from irkit.frontends.dsl.minimize import minimize, trainable_variables
from irkit.frontends.dsl.modules import to_module
from irkit.frontends.dsl.session import Session
from irkit.frontends.dsl.state import State, Variable, after, control_dependencies, group, variable
from irkit.frontends.dsl.symbol import Effect, Symbol
from irkit.frontends.dsl.tracing import Function, constant, function, placeholder, spec

FUNCTIONS: dict[str, Any] = {
    **{name: getattr(operators, name) for name in operators.__all__ if name != "pair"},
    **elementwise.FUNCTIONS,
    **reduce.FUNCTIONS,
    **_shape.FUNCTIONS,
    **nn.FUNCTIONS,
    **create.FUNCTIONS,
}
"""The functions over the op set, by name; each is an attribute of this module."""

globals().update(FUNCTIONS)

__all__ = [
    "Effect",
    "Function",
    "Partition",
    "Session",
    "State",
    "Symbol",
    "SymbolError",
    "UninitializedError",
    "Variable",
    "after",
    "built",
    "cond",
    "constant",
    "control_dependencies",
    "device",
    "evaluate",
    "fori",
    "function",
    "grad",
    "gradients",
    "group",
    "hessian",
    "jacobian",
    "jvp",
    "map",
    "minimize",
    "onnx",
    "partition",
    "placeholder",
    "scan",
    "spec",
    "stop_gradient",
    "tangents",
    "to_module",
    "trainable_variables",
    "value_and_grad",
    "variable",
    "vjp",
    "while_loop",
    *FUNCTIONS,  # pyright: ignore[reportUnsupportedDunderAll]
]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
