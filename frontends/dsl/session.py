"""Sessions: fetches of expressions, run with state that is kept from run to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from irkit import backends
from irkit.backends.base import Executable
from irkit.dialects.state.signature import StateEntry, state_signature
from irkit.errors import FeedError, IrkitError, UnsupportedError
from irkit.frontends.dsl import tree
from irkit.frontends.dsl.build import constant_attr
from irkit.frontends.dsl.device import partition
from irkit.frontends.dsl.errors import SymbolError, UninitializedError, failure, site_here
from irkit.frontends.dsl.modules import lower
from irkit.frontends.dsl.nodes import Node, PlaceholderNode, cone
from irkit.frontends.dsl.state import State, Variable
from irkit.frontends.dsl.symbol import Effect, Symbol
from irkit.ir.constants import TensorAttr
from irkit.ir.module import Module

__all__ = ["Session"]

PIPELINE = "lift-state,infer-shapes,cse,dce"


@dataclass
class _Program:
    """What some fetches compiled to.

    Attributes:
        run: the executable.
        outputs: per fetch the name of its output; None for an effect.
        entries: the variables that it takes, and gives anew.
        variables: by name.
        needed: the variables whose value before the run matters.
        keep: the nodes by whose identity it is found again.
    """

    run: Executable
    outputs: list[str | None]
    entries: tuple[StateEntry, ...]
    variables: dict[str, Variable]
    needed: set[str]
    keep: list[Node]


class Session:
    """Runs any fetches, and keeps the variables' values between runs.

    Args:
        backend: on which to run.
        devices: whether to run each node on the device that it is marked with; see ``dsl.partition``.
        options: of the backend, such as ``threads=``, or ``seed=`` for random numbers that are the same in every run.

    Raises:
        UnsupportedError: if there is no such backend or option.

    Attributes:
        state: the values of all variables that have been used so far.
    """

    def __init__(self, backend: str = "numpy", *, devices: bool = False, **options: Any) -> None:
        try:
            backends.compiler(backend, options)
        except UnsupportedError as error:
            raise failure(UnsupportedError, error.message, hint=error.hint) from None
        self.backend = backend
        self.devices = devices
        self.options = options
        self.state = State()
        self._variables: dict[str, Variable] = {}
        self._programs: dict[Any, _Program] = {}

    def run(self, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> Any:
        """The values of some expressions, of which only what they depend on is run; effects happen.

        Args:
            fetches: symbols, variables and effects, in lists, tuples and dicts if you like.
            feeds: values by placeholder, or by its name. Other symbols may be fed too: they are then not computed.

        Returns:
            arrays in the structure of ``fetches``; None for effects.

        Raises:
            FeedError: for a placeholder that is needed and not fed, one that is not there, a wrong dtype or shape.
            UninitializedError: for a variable whose value is needed and that has none.
        """
        leaves, structure = tree.flatten(fetches)
        wanted = [self._fetch(leaf) for leaf in leaves]
        named, cut = self._feeds(feeds or {})
        program = self._program(wanted, cut)
        self._initialize(program)
        given = {
            **named,
            **{entry.input: self.state[entry.name] for entry in program.entries if entry.name in self.state},
        }
        new = {entry.name: entry.output for entry in program.entries if entry.output is not None}
        names = [name for name in program.outputs if name is not None]
        for key in feeds or {}:
            # One that is there, but not needed for these fetches, is no mistake.
            if isinstance(key, Symbol) and key.name not in program.run.inputs:
                given.pop(key.name, None)
        try:
            found = program.run.run(given, list(dict.fromkeys([*names, *new.values()])))
        except FeedError as error:
            raise self._located(error, program) from None
        if new:
            self.state = self.state.with_values({name: found[output] for name, output in new.items()})
        return tree.rebuild(structure, [None if name is None else found[name] for name in program.outputs])

    def module(self, fetches: Any) -> Module:
        """The pure module that runs for these fetches: state in, state out.

        Its outputs are called as the keys of ``fetches``, if that is a dict, else ``out0``, ``out1``... Its variables
        begin with what they hold in this session; with zeros if that is nothing.
        """
        named = fetches if isinstance(fetches, Mapping) else {}
        names = {id(leaf): str(key) for key, leaf in named.items()}
        leaves = tree.flatten(fetches)[0]
        wanted = [self._fetch(leaf) for leaf in leaves]
        return self._lowered(wanted, {}, self._start, [names.get(id(leaf), "") for leaf in leaves])[0]

    def initialize(self, *variables: Variable) -> None:
        """Gives variables their initial values, whatever they hold."""
        for variable in variables:
            self.state = self.state.with_values({variable.name: self._initial(variable)})
            self._variables[variable.name] = variable

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the values of all variables used so far, as safetensors."""
        self.state.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Takes over the values that ``save`` wrote; of other variables they stay."""
        self.state = self.state.with_values(State.load(path))

    # Programs

    @staticmethod
    def _fetch(leaf: Any) -> Symbol | Effect:
        if isinstance(leaf, Symbol | Effect):
            return leaf
        if isinstance(leaf, Variable):
            return leaf.value
        hint = "fetch the symbol itself" if isinstance(leaf, str) else "fetch symbols, variables and effects"
        raise failure(SymbolError, f"{leaf!r} cannot be fetched", hint=hint)

    @staticmethod
    def _feeds(feeds: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[Symbol, str]]:
        """The feeds by name, and the symbols that are fed instead of being computed."""
        named: dict[str, Any] = {}
        cut: dict[Symbol, str] = {}
        for key, value in feeds.items():
            if isinstance(key, Symbol) and not isinstance(key.node, PlaceholderNode):
                cut[key] = f"fed/{len(cut)}"
                named[cut[key]] = value
            elif isinstance(key, Symbol | str):
                named[key if isinstance(key, str) else key.name] = value
            else:
                raise failure(FeedError, f"{key!r} cannot be fed", hint="feed placeholders, or their names")
        return named, cut

    def _program(self, wanted: list[Symbol | Effect], cut: Mapping[Symbol, str]) -> _Program:
        nodes = [w.node for w in wanted] + [s.node for s in cut]
        key = tuple((id(w.node), w.index) for w in (*wanted, *cut)), len(wanted)
        found = self._programs.get(key)
        if found is None:
            module, outputs, variables = self._lowered(wanted, cut, Variable.stand_in)
            entries = state_signature(module)
            for variable in variables.values():
                other = self._variables.setdefault(variable.name, variable)
                if other is not variable:
                    raise failure(
                        IrkitError,
                        f"two variables of this session are called '{variable.name}'",
                        site=variable.site,
                        related=[("the other", other.site)],
                        hint="give one of them another name",
                    )
            used = {name for name, arg in zip(module.input_names, module.block.args, strict=True) if arg.first_use}
            compiled = partition(module).compile if self.devices else partial(backends.compile, module)
            run = compiled(self.backend, **self.options)
            needed = {entry.name for entry in entries if entry.input in used}
            found = self._programs[key] = _Program(run, outputs, entries, variables, needed, nodes)
        return found

    @staticmethod
    def _lowered(
        wanted: list[Symbol | Effect],
        cut: Mapping[Symbol, str],
        start: Callable[[Variable], TensorAttr],
        names: Sequence[str] = (),
    ) -> tuple[Module, list[str | None], dict[str, Variable]]:
        from irkit.passes import optimize

        labels: dict[tuple[int, int], str] = {}
        outputs: dict[str, Symbol | Effect] = {}
        for index, what in enumerate(wanted):
            key = (id(what.node), what.index)
            if key not in labels:
                labels[key] = (names[index] if names else "") or f"out{len(labels)}"
                outputs[labels[key]] = what
        module, variables = lower(outputs, cut=cut, start=start)
        named = [None if isinstance(w, Effect) else labels[id(w.node), w.index] for w in wanted]
        return optimize(module, PIPELINE), named, {v.name: v for v in variables}

    # State

    def _initialize(self, program: _Program) -> None:
        for name in program.variables:
            if name not in self.state and (name in program.needed or program.variables[name].initial is not None):
                self.state = self.state.with_values({name: self._initial(program.variables[name])})

    def _start(self, variable: Variable) -> TensorAttr:
        """What a module of this session declares a variable with."""
        if variable.name not in self.state:
            if variable.initial is None:
                return variable.stand_in()
            self.initialize(variable)
        return constant_attr(self.state[variable.name], variable.dtype)

    def _initial(self, variable: Variable) -> np.ndarray[Any, Any]:
        initial = variable.initial
        if initial is None:
            raise failure(
                UninitializedError,
                f"variable '{variable.name}' is read before it has a value",
                related=[("it is declared at", variable.site)],
                hint="assign it, load it into the session, or declare it with an initial value",
            )
        if isinstance(initial, Symbol):
            return Session(self.backend, **self.options).run(initial)
        return initial.array()

    # Errors

    def _located(self, error: FeedError, program: _Program) -> IrkitError:
        """A complaint about feeds, with the user's line, and that of the placeholder."""
        sites = [
            (f"placeholder '{name}' is made at", node.site)
            for node in _placeholders(program.keep)
            if f"'{(name := node.name)}'" in error.message
        ]
        return failure(FeedError, error.message, site=site_here(), related=sites[:1], hint=error.hint)


def _placeholders(nodes: list[Node]) -> list[PlaceholderNode]:

    return [n for n in cone(nodes) if isinstance(n, PlaceholderNode)]
