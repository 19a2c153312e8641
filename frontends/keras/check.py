"""Running a model and its graph side by side, at several sizes: what ends every conversion."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import irkit.backends
from irkit.dialects import state
from irkit.errors import CheckError, UnsupportedError
from irkit.frontends.keras import UncheckedWarning, adapter
from irkit.frontends.keras.conversion import Input, Signature
from irkit.frontends.keras.stand_in import installed
from irkit.frontends.keras.values import to_first, to_last
from irkit.ir.module import Module
from irkit.ir.names import metadata_of, set_metadata
from irkit.ir.types import dtype_of, shape_of
from irkit.passes.lift_state import LiftState

__all__ = ["check"]

TOLERANCE = {"bfloat16": 1e-1, "float16": 2e-2}
"""What may differ, in relation to the greatest number of an output, if anything is computed in a dtype: else 1e-4."""
EXAMPLES = (1, 2, 4)
"""The batch sizes at which both are run."""


def check(model: Any, signature: Signature, module: Module, *, training: bool, layout: str) -> None:
    """Compares outputs, and what is assigned to variables; says in the module's metadata what was compared.

    Raises:
        CheckError: where they differ: at which output, by how much.

    Warns:
        UncheckedWarning: where Keras cannot compute the model here, or draws random numbers.
    """
    if any("Random" in op.name or op.name in RANDOM for op in module.walk()):
        _unchecked(module, "it draws random numbers, which Keras draws otherwise")
        return
    pure = module.clone()
    LiftState().run(pure)
    compiled = _compiled(pure)
    entries = state.state_signature(pure)
    worst, varies = 0.0, False
    computed = {str(dtype_of(result.type)) for op in module.walk() for result in op.results}
    tolerance = next((TOLERANCE[d] for d in TOLERANCE if d in computed), 1e-4)
    changed = [e.name for e in entries if e.output]
    for number, batch in enumerate(EXAMPLES):
        for scale in (signature.scale, signature.scale * 8):
            feeds = _feeds(model, signature, pure, number, batch, scale)
            try:
                outputs, updated = _expected(model, signature, feeds, changed)
                break
            except Exception as error:
                failure = error
        else:
            _unchecked(module, f"Keras does not compute it on its {adapter.backend_name()} backend ({_said(failure)})")
            return
        given = {x.name: _placed(f, layout, to_first) for x, f in zip(signature.inputs, feeds, strict=True)}
        found = compiled.run(given)
        wanted = [
            *zip(pure.output_names, outputs, strict=False),
            *((e.output, updated[e.name]) for e in entries if e.output),
        ]
        for name, value in wanted:
            got = (
                _placed(np.asarray(found[str(name)]), layout, to_last)
                if name in module.output_names
                else found[str(name)]
            )
            worst = max(worst, _difference(str(name), np.asarray(got), value, tolerance, EXAMPLES[number]))
            varies |= value.size > 1 and len(np.unique(value)) > 1
    if not varies:
        _unchecked(module, "its outputs are the same whatever is fed")
        return
    text = (
        f"against Keras on {adapter.backend_name()} at batch sizes {EXAMPLES}, greatest relative difference {worst:.1e}"
    )
    _say(module, text)


def _compiled(module: Module) -> Any:
    """On onnxruntime, where it is installed and takes the graph; it has not all ops for all dtypes."""
    if installed("onnxruntime"):
        try:
            return irkit.backends.compile(module, "onnxruntime")
        except UnsupportedError:
            pass
    return irkit.backends.compile(module, "numpy")


RANDOM = frozenset({"onnx.Dropout", "onnx.Multinomial", "onnx.Bernoulli"})


def _say(module: Module, text: str) -> None:
    set_metadata(module.op, {**metadata_of(module.op), "irkit.keras.checked": text})


def _unchecked(module: Module, why: str) -> None:
    _say(module, f"no: {why}")
    warnings.warn(f"the graph could not be compared with the Keras model: {why}", UncheckedWarning, stacklevel=4)


def _placed(array: np.ndarray, layout: str, order: Any) -> np.ndarray:
    return np.transpose(array, order(array.ndim)) if layout == "nchw" and array.ndim >= 4 else array


def _said(error: Exception) -> str:
    """What an error of Keras's says, without its frame."""
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line).strip() for line in str(error).split("\n")]
    told = [line for line in lines if line and not line.startswith("Exception encountered")]
    return told[0] if told else type(error).__name__


def _feeds(model: Any, signature: Signature, module: Module, number: int, batch: int, scale: int) -> list[np.ndarray]:
    """Inputs of a batch size, and of a size that changes with it of what else is open."""
    rng, bound = np.random.default_rng(number), adapter.integer_bound(model)
    symbols: dict[str, int] = {"batch": batch}
    feeds: list[np.ndarray] = []
    for x in signature.inputs:
        sizes: list[int] = []
        for size in shape_of(module.inputs[x.name]) or ():
            if isinstance(size, int):
                sizes.append(size)
                continue
            step = 32 if len(x.shape) >= 4 else 8
            sizes.append(symbols.setdefault(str(size), step * (1 + number % 2 + len(symbols)) * scale))
        if signature.channels_first and len(sizes) >= 4:
            sizes = [sizes[a] for a in to_last(len(sizes))]
        feeds.append(_draw(rng, x, sizes, bound))
    return feeds


def _draw(rng: np.random.Generator, x: Input, sizes: Sequence[int], bound: int) -> np.ndarray:
    if x.dtype == "bool":
        return rng.random(sizes) < 0.6
    if x.dtype.startswith(("int", "uint")):
        return rng.integers(0, bound, sizes).astype(x.dtype)
    return rng.standard_normal(sizes).astype(np.float32).astype(adapter.numpy_dtype(x.dtype))


def _expected(
    model: Any, signature: Signature, feeds: Sequence[np.ndarray], names: Sequence[str]
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """What Keras computes, and what it leaves in the variables; these are put back as they were."""
    variables = adapter.variables_of(model)
    by_id = adapter.unique_names(model)
    before = [adapter.to_numpy(v) for v in variables]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = signature.call(*(adapter.to_backend(f) for f in feeds))
        updated = {by_id[id(v)]: adapter.to_numpy(v) for v in variables if by_id[id(v)] in names}
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
    return [adapter.to_numpy(v) for v in adapter.flatten(returned) if v is not None], updated


def _difference(name: str, got: np.ndarray, want: np.ndarray, tolerance: float, batch: int) -> float:
    """How far two arrays are apart, in relation to the greatest number.

    Raises:
        CheckError: if it is too far, or they are not of one shape and dtype.
    """
    at = f"at batch size {batch}"
    if adapter.backend_name() == "numpy" and want.dtype.itemsize == 8:
        # NumPy promotes where Keras's own rules, by which the model is typed, do not.
        want = want.astype(got.dtype)
    if got.shape != want.shape or str(got.dtype) != str(want.dtype):
        raise CheckError(
            f"the output '{name}' of the graph is {got.dtype}{list(got.shape)} {at}, that of the Keras model "
            f"{want.dtype}{list(want.shape)}",
            hint="this is a fault of the conversion; load with check=False to look into it",
        )
    if want.dtype.kind in "biuSO":
        apart = 0.0 if np.array_equal(got, want) else 1.0
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.abs(b[np.isfinite(b)])
        scale = max(1.0, float(finite.max()) if finite.size else 1.0)
        apart = float(np.max(np.where(same, 0.0, np.abs(a - b)), initial=0.0)) / scale
    if not apart <= tolerance:
        raise CheckError(
            f"the output '{name}' of the graph differs from that of the Keras model by {apart:.1e} of its greatest "
            f"number {at}",
            hint="this is a fault of the conversion; load with check=False to look into it",
        )
    return apart
