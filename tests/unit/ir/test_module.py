"""The module's face, its verifier, and comparison."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import IntegerAttr, i64

import irkit as ik
from irkit.dialects.onnx import CLASSES, CURRENT
from irkit.errors import VerifyError
from irkit.ir.attributes import string
from irkit.ir.compare import difference
from irkit.ir.types import tensor


def small() -> ik.Module:
    b = ik.Builder("small", opsets={"": 18})
    x = b.input("x", "float32", ["N", 2])
    w = b.initializer(np.array([[1, 2], [3, 4]], np.float32), "w")
    b.output(b.Relu(x @ w, name="act"), "y")
    return b.module()


def test_the_face_says_what_is_there() -> None:
    module = small()
    assert repr(module.inputs) == '{\'x\': tensor<?x2xf32, #onnx.dims<["N", ""]>>}'
    assert list(module.outputs) == ["y"]
    assert module.graph_name == "small"
    assert module.opsets == {"": 18}
    module.ir_version = 9
    assert module.ir_version == 9
    assert module.defaults == {}


def test_a_clone_is_equal_and_independent() -> None:
    module = small()
    clone = module.clone()
    assert clone == module
    assert difference(clone.op, module.op, locations=True) is None
    clone.block.first_op.attributes["onnx.doc"] = string("changed")
    assert clone != module
    assert "onnx.doc" in str(difference(clone.op, module.op))


def relu_of(module: ik.Module):  # type: ignore[no-untyped-def]
    return next(op for op in module.walk() if op.name == "onnx.Relu")


def break_arity(module: ik.Module) -> None:
    relu = relu_of(module)
    relu.operands = [relu.operands[0], relu.operands[0]]


def break_dtype(module: ik.Module) -> None:
    matmul = next(op for op in module.walk() if op.name == "onnx.MatMul")
    matmul.operands = [matmul.operands[0], add_initializer(module, np.zeros((2, 2), np.float64))]


def add_initializer(module: ik.Module, value: np.ndarray):  # type: ignore[no-untyped-def]
    return ik.Builder.before(module.block.first_op, module.ctx).initializer(value, "extra").ssa


def break_attribute(module: ik.Module) -> None:
    relu_of(module).properties["alpha"] = IntegerAttr(1, i64)


def break_dominance(module: ik.Module) -> None:
    relu = relu_of(module)
    relu.detach()
    module.block.insert_op_before(relu, module.block.first_op)


def break_terminator(module: ik.Module) -> None:
    last = module.block.last_op
    last.detach()
    last.erase()


def break_signature(module: ik.Module) -> None:
    module.block.last_op.operands = [module.block.args[0]] * 2


def break_result_type(module: ik.Module) -> None:
    relu = relu_of(module)
    other = type(relu).create(operands=relu.operands, result_types=[tensor("int64", None)])
    module.block.insert_op_before(other, relu)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (break_arity, ["onnx.Relu", "takes 1 operands", "has 2", "test_module.py"]),
        (break_dtype, ["onnx.MatMul", "float32", "float64"]),
        (break_attribute, ["onnx.Relu", "no attribute 'alpha'"]),
        (break_dominance, ["onnx.Relu", "before it is defined"]),
        (break_terminator, ["does not end in"]),
        (break_signature, ["func.return", "function output types"]),
        (break_result_type, ["onnx.Relu", "both must be of one type"]),
    ],
)
def test_the_verifier_names_the_op_and_what_is_wrong(damage, words) -> None:  # type: ignore[no-untyped-def]
    module = small()
    damage(module)
    with pytest.raises(VerifyError) as caught:
        module.verify()
    for word in words:
        assert word in str(caught.value)


def test_every_schema_version_has_a_class() -> None:
    import onnx

    expected = {(s.domain, s.name, s.since_version) for s in onnx.defs.get_all_schemas_with_history()}
    found = {(domain, name, since) for (domain, name), made in CLASSES.items() for since in made}
    official = {"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"}
    assert len({key for key in found if key[0] in official}) == 659
    assert found == expected
    assert len({cls.name for made in CLASSES.values() for cls in made.values()}) == len(expected)
    for cls in (cls for (domain, _), cls in CURRENT.items() if domain in official):
        assert cls.current
        assert "V" not in cls.name.rpartition(".")[2][-3:]
