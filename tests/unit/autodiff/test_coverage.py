"""No op without a word on its gradient; the reference page says what the tables say; ops of ai.onnx.ml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.dialects.onnx import CURRENT
from irkit.errors import UnsupportedError
from irkit.passes.autodiff.coverage import markdown, rows
from irkit.passes.autodiff.registry import PROVEN_ZERO, REFUSED, RULES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "gradients.md"


def test_every_op_has_a_rule_or_a_reason() -> None:
    found = rows()
    assert len(found) > 220
    assert [row for row in found if row.how == "missing"] == []
    assert [row.op_type for row in found if row.how == "refused" and row.domain == ""] == ["BitCast"]


def test_the_tables_name_ops_and_operands_that_exist() -> None:
    for domain, name in [*RULES, *REFUSED]:
        assert (domain, name) in CURRENT
    for domain, name, operand in PROVEN_ZERO:
        cls = CURRENT[domain, name]
        assert operand == "*" or int(operand) < cls.spec.max_inputs
    assert not RULES.keys() & REFUSED.keys()


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m irkit.passes.autodiff.coverage > docs/reference/gradients.md"


@pytest.mark.parametrize("name", ["Scaler", "Imputer", "ArrayFeatureExtractor", "LinearRegressor"])
def test_ops_of_ai_onnx_ml(name: str) -> None:
    options: dict[str, Any] = {
        "Scaler": {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 0.5, -1.0]},
        "Imputer": {"imputed_value_floats": [9.0], "replaced_value_float": 0.0},
        "ArrayFeatureExtractor": {},
        "LinearRegressor": {"coefficients": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "intercepts": [1.0, 2.0], "targets": 2},
    }[name]
    b = ik.Builder("ml", opsets={"": 21, "ai.onnx.ml": 3})
    x = b.input("x", "float32", [2, 3])
    extra = [np.array([2, 0, 2])] if name == "ArrayFeatureExtractor" else []
    y = b.op(f"onnx.ml.{name}", x, *extra, **options)
    b.output(b.ReduceSum(b.Mul(y, y), keepdims=0), "loss")
    made = ik.compile(ik.value_and_grad(b.module()))
    value = np.array([[1.0, 0.0, 3.0], [-2.0, 4.0, 0.5]], np.float32)
    gradient = made.run({"x": value})["grad/x"]
    for index in np.ndindex(2, 3):
        if name == "Imputer" and value[index] == 0:
            assert gradient[index] == 0
            continue
        moved = [value.copy() for _ in range(2)]
        moved[0][index] += 0.01
        moved[1][index] -= 0.01
        up, down = (made.run({"x": v})["loss"] for v in moved)
        np.testing.assert_allclose(gradient[index], (up - down) / 0.02, rtol=2e-2)


def test_what_is_refused_is_an_error_with_the_reason() -> None:
    b = ik.Builder("ml", opsets={"": 21, "ai.onnx.ml": 3})
    x = b.input("x", "float32", [2, 3])
    b.output(b.ReduceSum(b.op("onnx.ml.Normalizer", x), keepdims=0), "loss")
    with pytest.raises(UnsupportedError, match=r"onnx.ml.Normalizer at .*: models of ai.onnx.ml"):
        ik.grad(b.module())
