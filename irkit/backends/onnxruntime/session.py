"""Sessions: made from a module, fed, and their errors traced back to the module's ops."""

from __future__ import annotations

import json
import re
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.ir import Attribute, Operation

from irkit.backends.base import Executable, spell
from irkit.backends.onnxruntime.prepare import CARRIERS, prepare
from irkit.backends.onnxruntime.runtime import (
    highest_ir_version,
    highest_opset,
    providers,
    quiet_options,
    reason,
    runtime,
)
from irkit.dialects.onnx.classes import OnnxOp
from irkit.errors import ExecutionError, IrkitError, LoweringError, UnsupportedError
from irkit.ir.dtypes import DType
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.ir.op import Random
from irkit.ir.types import MapType, OptType, SeqType, SparseType, dtype_of

__all__ = ["NodeProfile", "OnnxRuntimeExecutable"]

_LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
LOWEST_OPSET = 7
"""onnxruntime has few kernels for what is older."""

_NODE = re.compile(r"(?:[Nn]ode with name|[Nn]ame:|[Nn]ode name:|[Nn]ode:|node \()\s*'?([^'\s()]+)'?")
_NO_KERNEL = re.compile(r"Could not find an implementation for (?:\S+\.)?(\w+)\((\d+)\)")


@dataclass
class NodeProfile:
    """What a node took, over all runs.

    Attributes:
        op_type: as onnxruntime calls what it ran, which may be a fused node of its own.
        name: the node's.
        provider: which execution provider ran it.
        calls: how often.
        seconds: in its kernel.
    """

    op_type: str
    name: str
    provider: str
    calls: int
    seconds: float


class OnnxRuntimeExecutable(Executable):
    """A module in a session of onnxruntime.

    Attributes:
        session: the ``onnxruntime.InferenceSession``.
        providers: the execution providers that the session really has, most preferred first.
        opsets: at which the model was exported.
    """

    def __init__(
        self,
        module: Module,
        *,
        device: str = "cpu",
        threads: int | None = None,
        optimize: str = "all",
        profile: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(module)
        if optimize not in _LEVELS:
            raise UnsupportedError(f"optimize={optimize!r} is not known", hint=f"it is one of {', '.join(_LEVELS)}")
        if threads is not None and threads < 1:
            raise UnsupportedError(f"threads={threads}: at least 1 is needed")
        runtime()
        wanted = providers(device)
        for label, values in (("input", self.inputs), ("output", self.outputs)):
            for name, value_type in values.items():
                _check_carried(f"{label} '{name}'", value_type)
        self._folder = tempfile.TemporaryDirectory(prefix="irkit-") if profile else None
        self._profile: list[NodeProfile] | None = None if profile else []
        self._prepared = prepare(module)
        if any(op.has_trait(Random) for op in module.walk()):
            # One generator seeds the kernels of all sessions as they are made. Never 0: with it they all draw alike.
            runtime().set_seed(1 + (secrets.randbits(30) if seed is None else seed % (1 << 30)))
        self.session, self.opsets = self._open(module, wanted, threads, optimize)
        self.providers: list[str] = self.session.get_providers()
        if device != "cpu" and self.providers[0] != wanted[0][0]:
            raise UnsupportedError(
                f"the session asked for the device '{device}' and got {', '.join(self.providers)} instead"
            )

    # Making the session

    def _open(
        self, module: Module, wanted: list[Any], threads: int | None, optimize: str
    ) -> tuple[Any, dict[str, int]]:
        """The session at the highest opset at which there is one.

        A kernel that is missing for the newest form of an op often exists for the form before it, so the opset is
        lowered to that; what the module came with is the last resort.
        """
        first: Exception | None = None
        tried: list[dict[str, int]] = []
        highest = {d: v for d in _domains(module) if (v := highest_opset(d)) is not None}
        target: dict[str, int] | None = {**module.opsets, **highest}
        while target is not None:
            tried.append(target)
            try:
                return self._session(target, wanted, threads, optimize), target
            except LoweringError as error:
                first = first or error
                target = None
            except Exception as error:
                if isinstance(error, IrkitError):
                    raise
                first = first or error
                target = self._lower(str(error), target)
            own = {d: min(v, highest.get(d, v)) for d, v in module.opsets.items()}
            if target is None and own and own not in tried:
                target = own
        assert first is not None
        if isinstance(first, IrkitError):
            raise first
        op = self._op_in(str(first))
        raise UnsupportedError(
            f"onnxruntime {runtime().__version__} does not take the model: {reason(first)}",
            op=op.name if op else "",
            where=where(op) if op else "",
            hint="the numpy backend runs it",
        )

    def _session(self, target: dict[str, int], wanted: list[Any], threads: int | None, optimize: str) -> Any:
        ort = runtime()
        options = quiet_options()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[optimize])
        if threads is not None:
            options.intra_op_num_threads = threads
        if self._folder is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(self._folder.name) / "profile")
        model = self._prepared.model(target, highest_ir_version())
        weights = self._prepared.weights
        if weights:
            # No copy is made: the arrays live as long as this object, by ``_prepared``.
            make = ort.OrtValue.ortvalue_from_numpy_with_onnx_type
            values = [make(_plain(array), dtype.code) for array, dtype in weights.values()]
            options.add_external_initializers(list(weights), values)
        try:
            data = model.SerializeToString()
        except Exception as error:  # protobuf raises different types by implementation
            raise UnsupportedError(f"the model cannot be handed to onnxruntime: {error}") from None
        return ort.InferenceSession(data, options, providers=wanted)

    def _lower(self, message: str, target: dict[str, int]) -> dict[str, int] | None:
        """The highest opset below, at which the op that lacks a kernel has an older form."""
        found = _NO_KERNEL.search(message)
        if found is None:
            return None
        op = self._op_in(message)
        domain = op.domain if isinstance(op, OnnxOp) else ""
        opset = int(found[2]) - 1
        floor = LOWEST_OPSET if domain == "" else 1
        return {**target, domain: opset} if floor <= opset < target.get(domain, 0) else None

    # Running

    def execute(self, values: dict[str, Any], fetches: tuple[str, ...]) -> Sequence[Any]:
        if not fetches:
            return []
        carried, prepared = {}, self._prepared
        for name, value in values.items():
            dtype = prepared.inputs.get(name)
            carried[name] = value if dtype is None else value.astype(CARRIERS[dtype].numpy)
        try:
            found = self.session.run(list(fetches), carried)
        except Exception as error:
            raise self.failure(error) from None
        results: list[Any] = []
        for name, value in zip(fetches, found, strict=True):
            dtype = prepared.outputs.get(name)
            result = value if dtype is None else value.astype(dtype.numpy)
            results.append(_apart(result, [*carried.values(), *results]))
        return results

    def failure(self, error: Exception) -> IrkitError:
        """What onnxruntime raised in a run, as an error that names the op."""
        if isinstance(error, UnicodeError):
            return ExecutionError(f"onnxruntime takes only valid Unicode: {error}")
        op = self._op_in(str(error))
        return ExecutionError(f"onnxruntime: {reason(error)}", op=op.name if op else "", where=where(op) if op else "")

    def _op_in(self, message: str) -> Operation | None:
        """The op that a message of onnxruntime names."""
        nodes = self._prepared.nodes
        for name in _NODE.findall(message):
            if name in nodes:
                return nodes[name]
            # The body of a function is inlined, with prefixes before its nodes' names.
            endings = [known for known in nodes if name.endswith(known)]
            if endings:
                return nodes[max(endings, key=len)]
        return None

    # Profiling

    @property
    def profile(self) -> list[NodeProfile]:
        """What each node took over all runs so far, the longest first; empty unless asked for at ``compile``.

        Reading it ends the measuring: later runs are not counted.
        """
        if self._profile is None:
            assert self._folder is not None
            self._profile = _read_profile(Path(self.session.end_profiling()))
            self._folder.cleanup()
        return self._profile


def _domains(module: Module) -> set[str]:
    return {op.domain for op in module.walk() if isinstance(op, OnnxOp)} | {"", *module.opsets}


def _check_carried(label: str, value_type: Attribute) -> None:
    """Raises UnsupportedError for types that onnxruntime's Python interface cannot take or return."""
    match value_type:
        case SeqType() | OptType():
            inner: DType | None = dtype_of(value_type.element)
            if inner is None:
                _check_carried(label, value_type.element)
            elif inner in CARRIERS:
                raise UnsupportedError(
                    f"{label} is {spell(value_type)}, and onnxruntime's Python interface has no {inner}",
                    hint="only plain tensors of this dtype are cast; the numpy backend runs it",
                )
        case SparseType():
            raise UnsupportedError(f"{label} is sparse, which this backend does not feed or return")
        case MapType():
            pass
        case _:
            dtype = dtype_of(value_type)
            if dtype is not None and dtype.kind == "complex":
                raise UnsupportedError(f"{label} is {dtype}, which onnxruntime does not have")


def _plain(array: np.ndarray) -> np.ndarray:
    """The same bits in a dtype that NumPy has by itself."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def _apart(value: Any, others: list[Any]) -> Any:
    """The value, copied where it shares memory with another."""
    if isinstance(value, np.ndarray) and any(
        isinstance(other, np.ndarray) and np.may_share_memory(value, other) for other in others
    ):
        return value.copy()
    return value


def _read_profile(path: Path) -> list[NodeProfile]:
    found: dict[str, NodeProfile] = {}
    for event in json.loads(path.read_text(encoding="utf-8")):
        arguments = event.get("args", {})
        name = event.get("name", "")
        if event.get("cat") != "Node" or not name.endswith("_kernel_time"):
            continue
        name = name.removesuffix("_kernel_time")
        entry = found.setdefault(
            name, NodeProfile(arguments.get("op_name", ""), name, arguments.get("provider", ""), 0, 0.0)
        )
        entry.calls += 1
        entry.seconds += event["dur"] / 1e6
    return sorted(found.values(), key=lambda p: -p.seconds)
