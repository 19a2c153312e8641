"""Every operator, in every version, at every type that its schema allows: it runs, and computes what a wider type does.

The types that a call binds are read off what went in and came out, so a type that no call has run shows. The newest
versions are in every run of the tests, the older ones in long ones.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx.defs import OpSchema
from xdsl.ir import Attribute

import irkit as ik
from irkit.errors import IrkitError
from irkit.ir.dtypes import BY_CODE, BY_NUMPY, DType, dtype
from irkit.ir.op import type_string
from irkit.ir.types import SeqType, dtype_of, tensor, tensor_info
from tests.corpus.schemas import model_id
from tests.corpus.typed import Typed, allowed_types, element_code, schemas, typed_cases

NEWEST = {(s.domain, s.name): s.since_version for s in schemas()}
SCHEMAS = [
    pytest.param(s, id=model_id(s), marks=[] if NEWEST[s.domain, s.name] == s.since_version else [pytest.mark.slow])
    for s in schemas()
]

NOT_COMPARED = {
    **dict.fromkeys(
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split(),
        "another number is drawn in another type",
    ),
    "BitCast": "the bits of another type are others",
    "QuantizeLinear": "a quotient near a half is rounded to either side",
}
"""Operators whose results in a wider type are no measure, and why."""

WIDER = {
    "float": ("tensor(double)", "tensor(float)"),
    "int": ("tensor(int64)", "tensor(int32)"),
    "uint": ("tensor(int64)", "tensor(int32)"),
    "complex": ("tensor(complex128)",),
}
"""By the kind of a type, what a result in it is compared with: the first that the operator allows."""

EPSILONS = 16
"""How many units of rounding of the narrowest type a result may be off, as a part of the result's scale."""


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_type_runs(schema: OpSchema) -> None:
    bound: dict[str, set[str]] = defaultdict(set)
    calls = list(typed_cases(schema))
    for call in calls:
        module, feeds = ik.load(call.model()), call.feeds()
        try:
            results = ik.compile(module, backend="numpy", seed=0).run(feeds)
            for variable, types in bound_types(call, module, results).items():
                bound[variable] |= types
            wide = _wider(call, calls) if schema.name not in NOT_COMPARED else None
            if wide is not None:
                _compare(call, results, _run_wider(call, wide, feeds))
        except (IrkitError, AssertionError) as error:
            error.add_note(call.id)
            raise
    allowed = allowed_types(schema)
    missing = {v: left for v, types in allowed.items() if (left := sorted(set(types) - bound[v]))}
    assert not missing


def bound_types(call: Typed, module: ik.Module, results: dict[str, Any]) -> dict[str, set[str]]:
    """The types that stood for each type variable of the schema; results must be of the types that were inferred."""
    found: dict[str, set[str]] = defaultdict(set)
    inputs, outputs = call.schema.inputs, call.schema.outputs
    for index, item in enumerate(call.case.inputs):
        if item is not None:
            known = module.inputs.get(f"x{index}")
            found[inputs[min(index, len(inputs) - 1)].type_str].add(_spelled(known, item))
    for index, (name, known) in enumerate(module.outputs.items()):
        info, value = tensor_info(known), results[name]
        if info is not None:
            assert isinstance(value, np.ndarray)
            assert value.dtype == info.dtype.numpy
            assert info.shape is None or len(info.shape) == value.ndim
            for expected, size in zip(info.shape or (), value.shape, strict=False):
                assert expected == size or not isinstance(expected, int)
        found[outputs[min(index, len(outputs) - 1)].type_str].add(_spelled(known, value))
    return found


def _spelled(known: Attribute | None, value: Any) -> str:
    """A type as schemas spell it: what the module knows, else what the value is."""
    text = None if known is None else type_string(known)
    if text is None and isinstance(value, np.ndarray):
        text = type_string(tensor(_element(value), None))
    return text or "unknown"


def _element(array: np.ndarray) -> DType:
    return dtype("string") if array.dtype == object else BY_NUMPY[array.dtype]


def _wider(call: Typed, calls: list[Typed]) -> Typed | None:
    """The call in the widest type of its kind; None where that is its own."""
    if not call.type.startswith("tensor("):
        return None
    word = call.type[7:-1]
    kind = "float" if "float" in word or word == "double" else word.rstrip("0123456789")
    allowed = allowed_types(call.schema)[call.variable]
    wanted = next((t for t in WIDER.get(kind, ()) if t in allowed), call.type)
    if wanted == call.type:
        return None
    return next((c for c in calls if (c.variable, c.type) == (call.variable, wanted)), None)


def _run_wider(call: Typed, wide: Typed, feeds: dict[str, Any]) -> dict[str, Any]:
    """What comes of the very same numbers in the wider type."""
    pairs = zip(call.case.inputs, wide.case.inputs, strict=True)
    inputs = [
        a.astype(b.dtype) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and b.dtype != object else b
        for a, b in pairs
    ]
    module = ik.load(dataclasses.replace(wide, case=dataclasses.replace(wide.case, inputs=inputs)).model())
    widened = {name: _as_type(value, module.inputs[name]) for name, value in feeds.items()}
    return ik.compile(module, backend="numpy", seed=0).run(widened)


def _as_type(value: Any, wanted: Attribute) -> Any:
    if isinstance(value, list) and isinstance(wanted, SeqType):
        return [_as_type(v, wanted.element) for v in value]
    element = dtype_of(wanted)
    if isinstance(value, np.ndarray) and element is not None and element.kind != "string":
        return value.astype(element.numpy)
    return value


def _compare(call: Typed, results: dict[str, Any], wide: dict[str, Any]) -> None:
    narrowest = BY_CODE[element_code(call.type)]
    for name, value in results.items():
        pairs = zip(value, wide[name], strict=True) if isinstance(value, list) else [(value, wide[name])]
        for found, expected in pairs:
            if isinstance(found, np.ndarray) and found.dtype != object:
                _compare_arrays(found, expected, narrowest)


def _compare_arrays(found: np.ndarray, expected: np.ndarray, narrowest: DType) -> None:
    kind = BY_NUMPY[found.dtype]
    if kind.kind in ("bool", "int", "uint"):
        # Integers wrap around.
        np.testing.assert_array_equal(found, expected.astype(found.dtype))
        return
    if kind.name == "float8_e8m0fnu":
        # It has neither sign nor zero.
        assert found.shape == expected.shape
        return
    wide = np.complex128 if kind.kind == "complex" else np.float64
    got, want = found.astype(wide), expected.astype(wide)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    limits = _limits(found.dtype)
    epsilon = max(float(limits.eps), float(_limits(narrowest.numpy).eps) if narrowest.is_float else 0)
    # Beyond a type's range it becomes infinite, or the largest number.
    inside = np.isfinite(want) & (np.abs(want) < float(limits.max) / 2)
    scale = np.abs(want[inside]).max(initial=1e-3)
    np.testing.assert_allclose(got[inside], want[inside], rtol=0, atol=EPSILONS * epsilon * scale)


def _limits(kind: np.dtype[Any]) -> Any:
    return np.finfo(kind) if kind.isbuiltin == 1 else ml_dtypes.finfo(kind)
