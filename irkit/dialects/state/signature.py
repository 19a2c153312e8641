"""The state of a lifted module: which inputs and outputs are a variable's old and new values, and running with it.

It stands in the model's metadata under ``irkit.state``, as JSON, so that it survives in ONNX files: a list of objects
with ``name``, ``input``, ``output`` (null where no run changes the variable), ``trainable`` and ``metadata``. The
initial values are the defaults of the inputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr

from irkit.dialects.state.ops import Variable
from irkit.errors import FeedError, IrkitError
from irkit.ir.attributes import strings, texts_of
from irkit.ir.constants import TensorAttr
from irkit.ir.module import Module
from irkit.ir.names import META, metadata_of

__all__ = [
    "STATE_KEY",
    "StateEntry",
    "initial_state",
    "lifted_entries",
    "run_stateful",
    "set_state_signature",
    "state_signature",
]

STATE_KEY = "irkit.state"


@dataclass(frozen=True)
class StateEntry:
    """A variable of a lifted module.

    Attributes:
        name: the variable's.
        input: the input that takes its value before a run.
        output: the output that gives its value after the run; None where no run changes it.
        trainable, metadata: as declared.
    """

    name: str
    input: str
    output: str | None
    trainable: bool = False
    metadata: dict[str, str] = field(default_factory=dict[str, str])


def state_signature(module: Module) -> tuple[StateEntry, ...]:
    """The variables of a lifted module, in order; none if it has no state.

    Raises:
        IrkitError: if the module is not lifted yet, or its metadata is not what lifting wrote.
    """
    if any(isinstance(op, Variable) for op in module.op.ops):
        raise IrkitError("the module's variables are not inputs yet", hint="run the pass lift-state first")
    return lifted_entries(module)


def lifted_entries(module: Module) -> tuple[StateEntry, ...]:
    """The variables that are lifted, whether or not the module has others that are not."""
    text = metadata_of(module.op).get(STATE_KEY)
    if text is None:
        return ()
    try:
        entries = tuple(StateEntry(**entry) for entry in json.loads(text))
    except (ValueError, TypeError):
        raise IrkitError(f"the module's metadata '{STATE_KEY}' does not describe state: {text[:80]}") from None
    inputs, outputs = set(module.input_names), set(module.output_names)
    for entry in entries:
        if entry.input not in inputs or (entry.output is not None and entry.output not in outputs):
            raise IrkitError(f"the module has lost an input or output of its variable '{entry.name}'")
    return entries


def set_state_signature(module: Module, entries: Sequence[StateEntry]) -> None:
    """Writes the variables of a lifted module into its metadata."""
    found = module.op.attributes.get(META)
    pairs = list(cast("ArrayAttr[Any]", found).data) if found is not None else []
    kept = [pair for pair in pairs if texts_of(pair)[0] != STATE_KEY]
    text = json.dumps([asdict(entry) for entry in entries], separators=(",", ":"))
    module.op.attributes[META] = ArrayAttr([*kept, strings((STATE_KEY, text))])


def initial_state(module: Module) -> dict[str, np.ndarray]:
    """The variables' values before the first run, by name; of a module lifted or not. The arrays are read-only."""
    variables = [op for op in module.op.ops if isinstance(op, Variable)]
    if variables:
        return {op.variable_name: op.initial.array() for op in variables}
    defaults = module.defaults
    found: dict[str, np.ndarray] = {}
    for entry in state_signature(module):
        value = defaults.get(entry.input)
        if not isinstance(value, TensorAttr):
            raise IrkitError(f"the input '{entry.input}' has lost the initial value of variable '{entry.name}'")
        found[entry.name] = value.array()
    return found


class Runs(Protocol):
    """What is needed of a compiled module."""

    @property
    def output_names(self) -> list[str]: ...

    def run(self, feeds: Mapping[str, Any], fetches: Iterable[str] | None = None) -> dict[str, Any]: ...


def run_stateful(
    compiled: Runs,
    signature: Sequence[StateEntry],
    feeds: Mapping[str, Any],
    state: Mapping[str, Any],
    fetches: Iterable[str] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs a compiled lifted module once.

    Args:
        signature: of the module.
        feeds: the other inputs, by name.
        state: the variables' values, by variable name: all of them.
        fetches: which of the other outputs are wanted; by default all.

    Returns:
        the outputs by name, without the new state; and the state after the run. ``state`` itself is left as it is.

    Raises:
        FeedError: if the state is not that of the module's variables, or the feeds are wrong.
    """
    names = {entry.name for entry in signature}
    if names != set(state):
        missing, unknown = sorted(names - set(state)), sorted(set(state) - names)
        said = [f"lacks {missing}"] * bool(missing) + [f"has the unknown {unknown}"] * bool(unknown)
        raise FeedError(f"the state {' and '.join(said)}", hint="start from initial_state(module)")
    new = [entry.output for entry in signature if entry.output is not None]
    wanted = [name for name in compiled.output_names if name not in new] if fetches is None else list(fetches)
    given = {**feeds, **{entry.input: state[entry.name] for entry in signature}}
    found = compiled.run(given, list(dict.fromkeys([*wanted, *new])))
    following = {entry.name: state[entry.name] if entry.output is None else found[entry.output] for entry in signature}
    return {name: found[name] for name in wanted}, following
