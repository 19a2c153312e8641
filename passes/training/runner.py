"""Runs a module with state again and again, with the state kept where the backend has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from irkit.backends import compile as compile_module
from irkit.backends.base import Executable
from irkit.backends.onnxruntime.runtime import runtime
from irkit.dialects.state.signature import StateEntry, initial_state, run_stateful, state_signature
from irkit.errors import IrkitError
from irkit.ir.module import Module
from irkit.ir.types import dtype_of, shape_of
from irkit.passes.training.signature import without_defaults

__all__ = ["Runner", "runner"]

Array = np.ndarray[Any, Any]


class Runner(ABC):
    """A module with state, and the state.

    Attributes:
        executable: the compiled module.
        signature: its variables.
        results: the names of the outputs that are no state.
    """

    def __init__(self, module: Module, executable: Executable) -> None:
        self.executable = executable
        self.signature: Sequence[StateEntry] = state_signature(module)
        held = {entry.input for entry in self.signature}
        new = {entry.output for entry in self.signature}
        self._batch = {name for name in executable.inputs if name not in held}
        self.results = [name for name in executable.outputs if name not in new]
        self.put(initial_state(module))

    def step(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Runs once on a batch; returns the results, and keeps the new state.

        Raises:
            FeedError: if the batch is not what the module takes.
        """
        known = self.executable.check_feeds(feeds, self._batch)
        return self._run({name: known[name] for name in self._batch})

    @abstractmethod
    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Array]: ...

    @abstractmethod
    def state(self) -> dict[str, Array]:
        """The state by variable; the arrays are the caller's own, or never change."""

    @abstractmethod
    def put(self, values: Mapping[str, Array]) -> None:
        """Gives variables other values, of the same dtypes and shapes; values of no variable are passed over."""

    def close(self) -> None:  # noqa: B027
        """Lets go of what the backend holds."""


class _Plain(Runner):
    """State in NumPy arrays, for any backend."""

    def __init__(self, module: Module, executable: Executable) -> None:
        self._state: dict[str, Array] = {}
        super().__init__(module, executable)

    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        outputs, self._state = run_stateful(self.executable, self.signature, feeds, self._state)
        return outputs

    def state(self) -> dict[str, Array]:
        return dict(self._state)

    def put(self, values: Mapping[str, Array]) -> None:
        self._state.update({entry.name: values[entry.name] for entry in self.signature if entry.name in values})


class _Bound(Runner):
    """State in two sets of buffers of onnxruntime, on its device: a run reads one set and writes the other.

    One buffer as input and output at once is not something that onnxruntime promises to get right.
    """

    def __init__(self, module: Module, executable: Any, device: str) -> None:
        self._ort: Any = runtime()
        kind, _, number = device.partition(":")
        self._device, self._number = kind, int(number or 0)
        self._session: Any = executable.session
        self._now = 0
        start = initial_state(module)
        entries = state_signature(module)
        self._sets = [
            {entry.name: self._buffer(start[entry.name]) for entry in entries if i == 0 or entry.output is not None}
            for i in range(2)
        ]
        self._bindings: list[Any] = []
        for i in range(2):
            binding = self._session.io_binding()
            for entry in entries:
                read = self._sets[i if entry.output is not None else 0][entry.name]
                binding.bind_ortvalue_input(entry.input, read)
                if entry.output is not None:
                    binding.bind_ortvalue_output(entry.output, self._sets[1 - i][entry.name])
            self._bindings.append(binding)
        super().__init__(module, executable)
        self._order = list(self.results)
        for binding in self._bindings:
            for name in self._order:
                binding.bind_output(name, "cpu")

    def _buffer(self, value: Array) -> Any:
        return self._ort.OrtValue.ortvalue_from_shape_and_type(
            list(value.shape), value.dtype.type, self._device, self._number
        )

    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        binding = self._bindings[self._now]
        # The arrays must outlive the run: onnxruntime reads them where they are.
        held = {name: np.ascontiguousarray(value).reshape(np.shape(value)) for name, value in feeds.items()}
        try:
            for name, value in held.items():
                binding.bind_cpu_input(name, value)
            self._session.run_with_iobinding(binding)
        except Exception as error:
            raise cast(Any, self.executable).failure(error) from None
        self._now = 1 - self._now
        # get_outputs would make an object of Python around each variable of the state: 70 of 300 us in a small step.
        found: Any = binding.get_outputs_as_ortvaluevector()
        first = len(found) - len(self._order)
        return {name: found[first + i].numpy().copy() for i, name in enumerate(self._order)}

    def _place(self, entry: StateEntry) -> Any:
        return self._sets[self._now if entry.output is not None else 0][entry.name]

    def state(self) -> dict[str, Array]:
        return {entry.name: np.array(self._place(entry).numpy()) for entry in self.signature}

    def put(self, values: Mapping[str, Array]) -> None:
        for entry in self.signature:
            if entry.name in values:
                value = np.asarray(values[entry.name])
                self._place(entry).update_inplace(np.ascontiguousarray(value).reshape(value.shape))


def runner(module: Module, backend: str = "numpy", device: str = "cpu", threads: int | None = None) -> Runner:
    """A module with state, ready to run.

    Args:
        backend: ``"numpy"``, ``"onnxruntime"``, or a plug-in's.
        device: for onnxruntime: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        threads: of the backend.

    Raises:
        IrkitError: if the backend has no such device.
    """
    options: dict[str, Any] = {} if threads is None else {"threads": threads}
    if backend == "onnxruntime":
        options["device"] = device
    elif device != "cpu":
        raise IrkitError(f"the backend '{backend}' has no device '{device}'", hint="onnxruntime has")
    # The state is fed, so the backend need not hold initial values as well.
    executable = compile_module(without_defaults(module), backend, **options)
    if backend == "onnxruntime" and _bindable(module, executable):
        return _Bound(module, cast(Any, executable), device)
    return _Plain(module, executable)


def _bindable(module: Module, executable: Executable) -> bool:
    """Whether the whole state is of fixed shapes, and everything of dtypes that NumPy and onnxruntime share.

    Inputs with defaults cannot be bound.
    """
    kinds = [dtype_of(kind) for kind in (*executable.inputs.values(), *executable.outputs.values())]
    shapes = [shape_of(executable.inputs[entry.input]) for entry in state_signature(module)]
    fixed = all(shape is not None and all(isinstance(d, int) for d in shape) for shape in shapes)
    return (
        fixed
        and not executable.defaults
        and all(kind is not None and kind.kind != "string" and kind.numpy.isbuiltin == 1 for kind in kinds)
    )
