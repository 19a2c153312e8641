"""A fixture that calls a kernel as the runner does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from irkit.backends.numpy.registry import find_kernel


class Budget:
    """Counts what is asked of it, and refuses more than a megabyte."""

    def __init__(self) -> None:
        self.allocated = 0

    def step(self) -> None:
        pass

    def allocate(self, nbytes: int) -> None:
        self.allocated += nbytes
        if self.allocated > 2**20:
            raise MemoryError(f"{self.allocated} bytes")


def _value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, list):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value.decode() if isinstance(value, bytes) else value


@pytest.fixture
def op() -> Callable[..., Any]:
    """``op(name, *inputs, domain="", n_out=1, seed_of_run=0, **attributes)``: the outputs of the kernel.

    The schema's defaults are filled in; inputs must come back unchanged and every output must be an array.
    """

    def call(name: str, *inputs: Any, domain: str = "", n_out: int = 1, seed_of_run: int = 0, **attributes: Any) -> Any:
        found = find_kernel(domain, name)
        assert found is not None, f"no kernel for {name}"
        schema = onnx.defs.get_schema(name, domain)
        filled = {a.name: _value(a.default_value) for a in schema.attributes.values() if a.default_value.type}
        services = {"n_out": n_out, "rng": np.random.default_rng(seed_of_run), "budget": Budget()}
        before = [None if x is None else np.array(x, copy=True) for x in inputs]
        with np.errstate(all="ignore"):
            result = found.function(
                *inputs, **(filled | attributes), **{k: v for k, v in services.items() if k in found.wants}
            )
        for x, saved in zip(inputs, before, strict=True):
            assert x is None or (x.tobytes() if x.dtype != object else x.tolist()) == (
                saved.tobytes() if x.dtype != object else saved.tolist()
            ), "an input was written to"
        for output in result if isinstance(result, tuple) else (result,):
            assert type(output) is np.ndarray, type(output)
        return result

    return call
