"""The onnxruntime backend: modules exported in memory and run by a session, on the CPU or an NVIDIA GPU.

onnxruntime is no dependency of irkit: the extras ``cpu`` and ``cuda`` install one of its two builds, and it is imported
on first use. A device that cannot be had is an error, never another device.
"""

from __future__ import annotations

from irkit.backends.onnxruntime.session import NodeProfile, OnnxRuntimeExecutable
from irkit.ir.module import Module

__all__ = ["NodeProfile", "OnnxRuntimeExecutable", "compile"]


def compile(
    module: Module,
    *,
    device: str = "cpu",
    threads: int | None = None,
    optimize: str = "all",
    profile: bool = False,
    seed: int | None = None,
) -> OnnxRuntimeExecutable:
    """Makes a module ready to run on onnxruntime; the module is not changed.

    The model is exported at the highest opset that the installed onnxruntime supports, or at the next lower one at
    which it has kernels for all ops. Inputs and outputs of dtypes that its Python interface lacks are cast (see
    ``prepare``).

    Args:
        device: ``"cpu"``, ``"cuda"``, or ``"cuda:1"`` for the second GPU. On CUDA the nodes for which onnxruntime has
            no CUDA kernel run on the CPU, as a profile shows; TF32 is off.
        threads: within an op; None: one a core.
        optimize: onnxruntime's own rewriting: ``"all"``, ``"extended"``, ``"basic"`` or ``"none"``.
        profile: whether to measure each node; see ``OnnxRuntimeExecutable.profile``.
        seed: of ops that draw random numbers: two executables compiled with one seed draw the same numbers, run for
            run. They are not those that the NumPy backend draws.

    Raises:
        UnsupportedError: if onnxruntime is not installed, the device cannot be had, or the model cannot be run; and
            why.
    """
    return OnnxRuntimeExecutable(module, device=device, threads=threads, optimize=optimize, profile=profile, seed=seed)
