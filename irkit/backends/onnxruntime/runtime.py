"""The onnxruntime that is installed: whether it is there, what it supports, and which devices it really has.

Nothing is assumed about a version: opsets, file formats and devices are found out by making tiny sessions, once a
process.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from irkit.dialects.onnx.classes import newest
from irkit.errors import UnsupportedError

__all__ = ["highest_ir_version", "highest_opset", "providers", "quiet_options", "reason", "runtime"]

Session = Any

INSTALL = "pip install 'irkit[cpu]', or 'irkit[cuda]' for an NVIDIA GPU"
_ODD_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:/\S+ .*?\) (?=\S))?", re.DOTALL)
_IR_VERSION = 10
_OPSET = 13


@cache
def runtime() -> Any:
    """The module ``onnxruntime``, imported on first use.

    Raises:
        UnsupportedError: if it is not installed, or broken.
    """
    try:
        found: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "onnxruntime"
        what = "is not installed" if missing else f"cannot be imported: {error}"
        raise UnsupportedError(f"onnxruntime {what}", hint=INSTALL) from None
    # Of two builds that were installed over each other, uninstalling one leaves an empty folder.
    if not hasattr(found, "InferenceSession"):
        raise UnsupportedError(
            "the installation of onnxruntime is broken: it has no InferenceSession",
            hint="onnxruntime and onnxruntime-gpu exclude each other; uninstall both, then install one",
        )
    return found


def reason(error: Exception) -> str:
    """onnxruntime's message, without its error codes and the place in its source code."""
    return _ODD_PREFIX.sub("", str(error)).strip()


def quiet_options() -> Any:
    """Session options under which onnxruntime prints nothing: what it has to say is in its exceptions."""
    options = runtime().SessionOptions()
    options.log_severity_level = 4
    return options


def _tiny_model(opsets: dict[str, int], ir_version: int = _IR_VERSION) -> bytes:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", [x], [y])
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version).SerializeToString()


def _loads(opsets: dict[str, int], ir_version: int = _IR_VERSION) -> bool:
    model, options = _tiny_model(opsets, ir_version), quiet_options()
    try:
        runtime().InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


@cache
def highest_opset(domain: str) -> int | None:
    """The highest opset of a domain that both sides know; None for a domain of which ONNX has no schemas."""
    known = newest(domain)
    if known is None:
        return None
    for version in range(known, 0, -1):
        if _loads({"": _OPSET, domain: version}):
            return version
    return None


@cache
def highest_ir_version() -> int:
    """The newest version of the file format that onnxruntime reads, as far as ``onnx`` writes it."""
    for version in range(onnx.IR_VERSION, _IR_VERSION, -1):
        if _loads({"": _OPSET}, version):
            return version
    return _IR_VERSION


def providers(device: str) -> list[Any]:
    """The execution providers for a device.

    Args:
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:<number>"``.

    Raises:
        UnsupportedError: if the device cannot be had, and why. Nothing falls back to the CPU in silence.
    """
    if device == "cpu":
        return ["CPUExecutionProvider"]
    match = re.fullmatch(r"cuda(?::(\d+))?", device)
    if match is None:
        raise UnsupportedError(f"there is no device '{device}'", hint="devices are 'cpu', 'cuda' and 'cuda:1'")
    number = int(match[1] or 0)
    problem = _cuda_problem(number)
    if problem is not None:
        message, hint = problem
        raise UnsupportedError(f"the device '{device}' cannot be used: {message}", hint=hint)
    # The nodes that have no CUDA kernel (shape arithmetic, mostly) run on the CPU; a profile tells which.
    return [_cuda(number), "CPUExecutionProvider"]


def _cuda(number: int) -> tuple[str, dict[str, str]]:
    # TF32 keeps ten bits of float32's mantissa, which no comparison with another backend survives.
    return "CUDAExecutionProvider", {"device_id": str(number), "use_tf32": "0"}


@cache
def _cuda_problem(number: int) -> tuple[str, str] | None:
    """Why CUDA cannot be used, and what to do; None where a model has run on it."""
    ort = runtime()
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        build = "this build of onnxruntime has no CUDA provider"
        return build, "uninstall onnxruntime, then pip install 'irkit[cuda]'; the two builds exclude each other"
    # That the provider is listed says nothing: the list is of the build, not of the machine.
    try:
        ort.preload_dlls()
        session = _cuda_session(number)
    except Exception as error:
        return reason(error), "see that nvidia-smi lists the GPU, and that the driver is new enough for CUDA"
    found = session.get_providers()
    if "CUDAExecutionProvider" not in found:
        return f"a session that asks for CUDA gets {', '.join(found)}", "see that nvidia-smi lists the GPU"
    return None


def _cuda_session(number: int) -> Session:
    """A session that has run a model on CUDA, with the CPU ruled out."""
    options = quiet_options()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = runtime().InferenceSession(_tiny_model({"": _OPSET}), options, providers=[_cuda(number)])
    session.run(None, {"x": np.ones(1, np.float32)})
    return session
