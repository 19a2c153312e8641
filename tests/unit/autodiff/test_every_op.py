"""Every op that has a gradient, in one call each, from all sides: nothing that is declared goes unchecked.

Against central differences: the gradient of every operand that is not a proven zero, and the tangents of every result.
Besides, the gradient is linear in its cotangent, vjp and jvp are transposes of each other, and second derivatives are
right. The calls are those of the corpus, in float64 where the op has it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, TensorProto
from onnx.defs import OpSchema

import irkit as ik
from irkit.errors import UnsupportedError
from irkit.ir.types import dtype_of
from irkit.passes.autodiff.coverage import rows
from irkit.passes.autodiff.transform import zero_reason
from tests.corpus.schema_cases import CASES, Case
from tests.corpus.schemas import case_of, feeds_of, model_id, model_of
from tests.corpus.typed import UNTYPED

Array = np.ndarray[Any, Any]
HOW = {(row.domain, row.op_type): row.how for row in rows()}
SCHEMAS = {
    name: onnx.defs.get_schema(name, domain)
    for (domain, name), how in HOW.items()
    if how in ("rule", "body") and name in CASES and not onnx.defs.get_schema(name, domain).deprecated
}

ELSEWHERE = {
    "Range": "a step of the differences changes how many elements there are (cases.py)",
    "Unique": "its call has equal elements (cases.py)",
    "DynamicQuantizeLinear": "steps (test_rules_norm and the quantizing ops)",
    **dict.fromkeys(
        "Optional SequenceConstruct SequenceErase SequenceInsert SequenceMap SplitToSequence".split(),
        "it gives no tensor (cases.py: they stand in graphs that do)",
    ),
    **dict.fromkeys(
        "ConcatFromSequence OptionalGetElement SequenceAt".split(),
        "a sequence or optional comes in (cases.py: they stand in graphs of tensors)",
    ),
}
"""Ops whose gradient is checked in other tests, and why."""


NARROW = {"CausalConvWithState", "DequantizeLinear", "LinearAttention", "LinearRegressor", "RotaryEmbedding", "Scaler"}
"""Ops that have no float64."""


def test_only_these_ops_are_left_to_other_tests() -> None:
    declared = {name for (domain, name), how in HOW.items() if how in ("rule", "body")}
    assert declared - SCHEMAS.keys() == {"Scatter", "Upsample"}, "deprecated ops, which are differentiated as others"
    assert ELSEWHERE.keys() <= SCHEMAS.keys()


WIDE: dict[str, dict[str, Any]] = {
    "Cast": {"to": TensorProto.DOUBLE},
    **{name: {"stash_type": TensorProto.DOUBLE} for name in ("GroupNormalization", "LayerNormalization")},
    "RMSNormalization": {"stash_type": TensorProto.DOUBLE},
}
"""Attributes with which an op computes in float64 throughout."""

INPUTS: dict[str, dict[int, Any]] = {
    "CastLike": {1: "f64[1]"},
    # At whole numbers the number of samples changes.
    "RoiAlign": {1: np.array([[0.2, 0.3, 3.1, 2.9], [1.2, 2.1, 5.3, 4.2]])},
}
"""Other inputs than those of the corpus, by place."""


def wide(name: str, case: Case) -> Case:
    """The case with float64 in the place of float32."""
    return dataclasses.replace(
        case,
        inputs=[
            x.replace("f32", "f64")
            if isinstance(x, str)
            else x.astype(np.float64)
            if x is not None and x.dtype == np.float32
            else x
            for x in (INPUTS.get(name, {}).get(i, x) for i, x in enumerate(case.inputs))
        ],
        attributes={
            key: _wide_graph(value) if isinstance(value, GraphProto) else value
            for key, value in {**case.attributes, **WIDE.get(name, {})}.items()
        },
        captures=[text.replace("f32", "f64") for text in case.captures],
        # The statistics of LayerNormalization are never of float64.
        outputs=1 if name == "LayerNormalization" else case.outputs,
        types=UNTYPED,
    )


def _wide_graph(body: GraphProto) -> GraphProto:
    made = GraphProto.FromString(body.SerializeToString())
    for info in (*made.input, *made.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    return made


@dataclasses.dataclass
class Call:
    """A module that makes one call, the point, and what is differentiated by what."""

    module: ik.Module
    point: dict[str, Array]
    of: list[str]
    wrt: list[str]
    dtype: np.dtype[Any]

    @property
    def step(self) -> float:
        """Of the differences."""
        return 1e-5 if self.dtype == np.float64 else 1e-2

    @property
    def rtol(self) -> float:
        """Of the comparisons."""
        return 1e-6 if self.dtype == np.float64 else 2e-2


def call_of(schema: OpSchema) -> Call:
    """The call in float64; in float32 where the op, or its result, has no float64."""
    base = case_of(schema)
    try:
        case = wide(schema.name, base)
        module = ik.load(model_of(schema, case, model_id(schema)))
        if all((d := dtype_of(t)) is None or not d.is_float or d.bits == 64 for t in module.outputs.values()):
            return _call(module, case, schema)
    except ik.IrkitError:
        pass
    case = dataclasses.replace(base, types=UNTYPED)
    return _call(ik.load(model_of(schema, case, model_id(schema))), case, schema)


def _call(module: ik.Module, case: Case, schema: OpSchema) -> Call:
    point: dict[str, Array] = feeds_of(case, model_id(schema), 3)
    (op,) = (op for op in module.block.ops if getattr(op, "op_type", "") == schema.name)
    given = {f"x{i}": x for i, x in enumerate(case.inputs) if isinstance(x, np.ndarray)}
    wrt: list[str] = []
    for place, item in enumerate(case.inputs):
        value = {**point, **given}.get(f"x{place}")
        if item is not None and value is not None and value.dtype.kind == "f" and zero_reason(op, place) is None:
            wrt.append(f"x{place}")
    wrt += [f"c{i}" for i, text in enumerate(case.captures) if text.startswith("f")]
    point |= {name: x for name, x in given.items() if name in wrt}
    of = [n for n, t in module.outputs.items() if (d := dtype_of(t)) is not None and d.is_float]
    return Call(module, point, of, wrt, point[wrt[0]].dtype)


def run(module: ik.Module, feeds: dict[str, Any]) -> dict[str, Any]:
    executable = ik.compile(module, seed=5)
    return executable.run({name: value for name, value in feeds.items() if name in executable.inputs})


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name not in ELSEWHERE])
def test_gradient(name: str) -> None:
    call = call_of(SCHEMAS[name])
    assert call.dtype == np.float64 or name in NARROW
    rng = np.random.default_rng(1)
    options: dict[str, Any] = {"of": call.of, "wrt": call.wrt, "as_inputs": True}
    back, forth = ik.vjp(call.module, **options, allow_unused=True), ik.jvp(call.module, **options)
    results = run(call.module, call.point)
    cts = {f"ct/{n}": np.asarray(rng.uniform(0.5, 1.5, results[n].shape), results[n].dtype) for n in call.of}
    tangents = {n: np.asarray(rng.uniform(-1, 1, call.point[n].shape), call.point[n].dtype) for n in call.wrt}
    grads = gradients(back, call, {**call.point, **cts})
    # Differences
    up, down = (run(back, {**moved(call, tangents, s), **cts}) for s in (call.step, -call.step))
    slopes = {n: (up[n].astype(np.float64) - down[n]) / (2 * call.step) for n in call.of}
    scale = 1 + sum(float(np.abs(slope).sum()) for slope in slopes.values())
    expected = sum(float((cts[f"ct/{n}"] * slopes[n]).sum()) for n in call.of)
    product = sum(float((grads[n].astype(np.float64) * tangents[n]).sum()) for n in call.wrt)
    assert product == pytest.approx(expected, rel=call.rtol, abs=call.rtol * scale)
    # Forward
    pushed = run(forth, {**call.point, **{f"tangent/{n}": t for n, t in tangents.items()}})
    for n in call.of:
        np.testing.assert_allclose(pushed[f"tangent/{n}"], slopes[n], rtol=call.rtol, atol=call.rtol * scale)
    # Linear
    others = {n: np.asarray(rng.uniform(-1, 1, ct.shape), ct.dtype) for n, ct in cts.items()}
    apart = gradients(back, call, {**call.point, **others})
    whole = gradients(back, call, {**call.point, **{n: 2 * ct - 3 * others[n] for n, ct in cts.items()}})
    exact = 1e-9 if call.dtype == np.float64 else 1e-3
    for n in call.wrt:
        size = 1 + np.abs(grads[n]).max(initial=0) + np.abs(apart[n]).max(initial=0)
        np.testing.assert_allclose(whole[n], 2 * grads[n] - 3 * apart[n], rtol=exact, atol=exact * size)
    _second(call, back, cts, tangents)


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name not in ELSEWHERE])
def test_gradient_on_onnxruntime(name: str) -> None:
    """The backward ops, in float32 where onnxruntime has kernels for that, give there what they give on NumPy."""
    schema = SCHEMAS[name]
    base = case_of(schema)
    cases = [dataclasses.replace(base, types=UNTYPED), wide(name, base)]
    # Inputs of their own are in float64.
    for case in cases[1:] if name in INPUTS else cases:
        call = _call(ik.load(model_of(schema, case, model_id(schema))), case, schema)
        rng = np.random.default_rng(1)
        back = ik.vjp(call.module, of=call.of, wrt=call.wrt, as_inputs=True, allow_unused=True)
        results = run(call.module, call.point)
        cts = {f"ct/{n}": np.asarray(rng.uniform(0.5, 1.5, results[n].shape), results[n].dtype) for n in call.of}
        feeds = {n: v for n, v in {**call.point, **cts}.items() if n in back.inputs}
        expected = run(back, feeds)
        try:
            executable = ik.compile(back, backend="onnxruntime")
        except UnsupportedError:
            continue
        found = executable.run(feeds)
        for n, value in expected.items():
            size = 1e-3 + np.abs(value.astype(np.float64)).max(initial=0)
            np.testing.assert_allclose(found[n], value, rtol=1e-3, atol=1e-3 * size)
        return
    pytest.fail("onnxruntime runs it in neither type")


def gradients(back: ik.Module, call: Call, feeds: dict[str, Array]) -> dict[str, Array]:
    found = run(back, feeds)
    made = {n: found[f"grad/{n}"] for n in call.wrt}
    for n, grad in made.items():
        assert grad.shape == call.point[n].shape
        assert grad.dtype == call.point[n].dtype
        assert np.isfinite(grad).all()
    return made


def moved(call: Call, tangents: dict[str, Array], step: float) -> dict[str, Array]:
    there = {n: (call.point[n] + step * t).astype(t.dtype) for n, t in tangents.items()}
    return {**call.point, **there}


def _second(call: Call, back: ik.Module, cts: dict[str, Array], tangents: dict[str, Array]) -> None:
    """Of the gradient along the tangents: reverse mode again, against differences of the gradient."""
    names = [f"grad/{n}" for n in call.wrt]
    twice = ik.vjp(back, of=names, wrt=call.wrt, allow_unused=True)
    feeds = {**call.point, **cts, **{f"ct/{n}": tangents[n.removeprefix("grad/")] for n in names}}
    found = list(run(twice, feeds).values())[len(names) :]
    up, down = (gradients(back, call, {**moved(call, tangents, s), **cts}) for s in (call.step, -call.step))
    for n, product in zip(call.wrt, found, strict=True):
        slope = (up[n].astype(np.float64) - down[n]) / (2 * call.step)
        size = 1 + np.abs(slope).max(initial=0)
        np.testing.assert_allclose(product, slope, rtol=10 * call.rtol, atol=10 * call.rtol * size)
