"""Where kernels are declared. Adding one is one decorated function in ``kernels/<family>.py``.

A kernel is a plain function on arrays. Inputs come positionally, in the order of the ONNX schema, as
``numpy.ndarray`` (0-d arrays included), with ``None`` for an absent optional input; sequences come as ``list``,
optionals as the value or ``None``, maps as ``dict``, strings as ``object`` arrays of ``str``. Attributes come by
keyword as Python values (int, float, str, tuples of these, ``ndarray`` for tensors, a callable for a graph), the
schema's defaults filled in; an attribute that is unset and has no default is not passed. A kernel returns one value,
or a tuple for several outputs. It never writes to its inputs; it may return a view of them.

A keyword-only parameter of one of these names is filled in by the runner:

``n_out``   the number of outputs the node has;
``rng``     a ``numpy.random.Generator`` keyed by seed, op and iteration (ops that draw random numbers);
``budget``  an object with ``step()``, ``allocate(nbytes)`` which raise ``BudgetError`` (control flow, and ops whose
            output can be out of proportion to their input: Tile, Expand, Range, ConstantOfShape...).

What is wrong with the inputs is said by raising ``KernelError`` with the shapes and values concerned; the runner adds
the op and its location.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["KERNELS", "Kernel", "KernelError", "find_kernel", "kernel"]

SPECIAL = ("n_out", "rng", "budget")


class KernelError(Exception):
    """The inputs of an op are invalid. The runner turns it into an ``ExecutionError`` that says where."""


@dataclass(frozen=True)
class Kernel:
    """A kernel and which of the runner's services it asks for."""

    function: Callable[..., Any]
    wants: frozenset[str]


KERNELS: dict[tuple[str, str, int], Kernel] = {}
"""(domain, op type, since_version or 0 for the current form) -> kernel."""


def kernel(*names: str, domain: str = "", since: int = 0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares the decorated function as the kernel of the ops named.

    Args:
        names: op types, as ``"Conv"``.
        domain: ``""`` for ai.onnx.
        since: the ``since_version`` of an older form; 0 means the current one.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters
        wants = frozenset(p for p in SPECIAL if p in parameters)
        for name in names:
            key = (domain, name, since)
            if key in KERNELS:
                raise ValueError(f"two kernels for {key}: {KERNELS[key].function} and {function}")
            KERNELS[key] = Kernel(function, wants)
        return function

    return register


def find_kernel(domain: str, name: str, since: int = 0) -> Kernel | None:
    """The kernel of an op, or None. All families are loaded on the first call."""
    from irkit.backends.numpy import kernels

    kernels.load_all()
    return KERNELS.get((domain, name, since))
