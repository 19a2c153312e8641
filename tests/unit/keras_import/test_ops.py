"""Operations by themselves: what ``keras.ops`` computes, the graph computes."""

from __future__ import annotations

import numpy as np
import pytest

import irkit as ik
from irkit.errors import UnsupportedError
from irkit.frontends.keras import adapter
from tests.unit.keras_import.op_cases import CASES, ELSEWHERE, REFUSED
from tests.unit.keras_import.support import arrays, assert_same, load_quietly, op_feeds, op_model

EXPRESSIONS = [e for family in CASES.values() for e in family if e not in ELSEWHERE]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("family", CASES)
def test_a_family_in_one_model(family: str) -> None:
    model, specs = op_model(*(e for e in CASES[family] if e not in ELSEWHERE))
    run = ik.compile(load_quietly(model, inputs=specs), "numpy")
    feeds = {name: a for name, a in op_feeds(3).items() if name in specs}
    got = [np.asarray(v) for v in run.run(feeds).values()]
    want = arrays(model({name: a.copy() for name, a in feeds.items()}))
    assert_same(got, want, 1e-4, family)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_one_at_several_sizes(expression: str) -> None:
    model, specs = op_model(expression)
    module = load_quietly(model, inputs=specs)
    for backend in ("numpy", "onnxruntime"):
        run = ik.compile(module, backend)
        for batch in (2, 3, 4):
            feeds = {name: a for name, a in op_feeds(batch).items() if name in specs}
            want = arrays(model({name: a.copy() for name, a in feeds.items()}))
            assert_same([np.asarray(v) for v in run.run(feeds).values()], want, 1e-4, f"{backend}, {batch}")


@pytest.mark.parametrize("expression", REFUSED)
def test_what_has_no_form_is_refused(expression: str) -> None:
    model, specs = op_model(expression)
    with pytest.raises(UnsupportedError) as caught:
        load_quietly(model, inputs=specs)
    assert caught.value.where, "it says where"
    assert "irkit" not in str(caught.value)


def test_erfinv_is_the_inverse_of_erf() -> None:
    model, specs = op_model("ops.erfinv(ops.erf(x * 0.5)) * 2")
    x = op_feeds(3)["x"]
    got = ik.compile(load_quietly(model, inputs=specs), "numpy")(x)
    np.testing.assert_allclose(got, x, rtol=2e-3, atol=1e-4)


def test_affine_transforms_move_pixels() -> None:
    """By whole pixels nothing is interpolated: one to the right, one down, two of three borders."""
    keras = adapter.api()
    image = np.random.default_rng(0).random((2, 5, 6, 3)).astype(np.float32)

    class Moved(keras.Model):
        def call(self, x: object) -> object:
            ones = keras.ops.ones((keras.ops.shape(x)[0], 1))  # type: ignore[index]
            transform = ones * np.float32([[1, 0, 1, 0, 1, -2, 0, 0]])
            return [
                keras.ops.image.affine_transform(x, transform, fill_mode=mode, fill_value=0.5)
                for mode in ("constant", "nearest", "reflect")
            ]

    model = Moved()
    model.built = True
    run = ik.compile(load_quietly(model, inputs=keras.KerasTensor((None, 5, 6, 3))), "numpy")
    found = list(run.run({run.input_names[0]: image}).values())
    for got, mode in zip(found, ("constant", "edge", "symmetric"), strict=True):
        options = {"constant_values": 0.5} if mode == "constant" else {}
        padded = np.pad(image, ((0, 0), (2, 0), (0, 1), (0, 0)), mode=mode, **options)  # type: ignore[call-overload]
        np.testing.assert_allclose(got, padded[:, :5, 1:], atol=1e-5, err_msg=mode)
