"""Sizes given to symbols, and symbols to sizes."""

from __future__ import annotations

import numpy as np
import pytest

import irkit as ik
from irkit.errors import IrkitError
from irkit.ir.types import tensor
from irkit.testing import assert_equivalent

W = np.random.default_rng(0).standard_normal((12, 6), np.float32)


def heads(batch: str | int, seq: str | int) -> ik.Module:
    """A projection split into heads, by a shape that is computed."""
    b = ik.Builder("heads")
    x = b.input("x", "float32", [batch, seq, 12])
    y = b.MatMul(x, b.initializer(W, "w"))
    shape = b.Shape(y)
    target = b.Concat(b.Slice(shape, [0], [2]), np.array([2, 3]), axis=0)
    b.output(b.Transpose(b.Reshape(y, target), perm=[0, 2, 1, 3]), "z")
    return b.module()


def test_specialize_infers_all_sizes_anew() -> None:
    module = heads("batch", "seq")
    assert module.outputs["z"] == tensor("float32", ["batch", 2, "seq", 3])
    fixed = ik.specialize(module, batch=8)
    assert fixed.inputs["x"] == tensor("float32", [8, "seq", 12])
    assert fixed.outputs["z"] == tensor("float32", [8, 2, "seq", 3])
    assert module.inputs["x"] == tensor("float32", ["batch", "seq", 12])
    assert fixed.verify() == heads(8, "seq")
    assert len(list(ik.optimize(ik.specialize(fixed, {"seq": 5}), "O2").block.ops)) < len(list(module.block.ops))


def test_specialize_works_out_expressions() -> None:
    b = ik.Builder()
    past, new = b.input("past", "float32", [1, "p", 4]), b.input("new", "float32", [1, "s", 4])
    b.output(b.Concat(past, new, axis=1), "y")
    module = b.module()
    assert module.outputs["y"] == tensor("float32", [1, "p + s", 4])
    assert ik.specialize(module, p=3, s=1).outputs["y"] == tensor("float32", [1, 4, 4])
    assert ik.specialize(module, {"p": "2*s"}).outputs["y"] == tensor("float32", [1, "3*s", 4])


def test_specialize_refuses() -> None:
    module = heads("batch", "seq")
    with pytest.raises(IrkitError, match=r"no size is called 'bach'(.|\n)*did you mean 'batch'"):
        ik.specialize(module, bach=8)
    with pytest.raises(IrkitError, match="cannot be -1"):
        ik.specialize(module, batch=-1)
    with pytest.raises(IrkitError, match=r"cannot be 2\.5"):
        ik.specialize(module, batch=2.5)  # pyright: ignore[reportArgumentType]
    assert ik.specialize(module, batch=np.int64(3)).inputs["x"] == tensor("float32", [3, "seq", 12])
    b = ik.Builder()
    b.output(b.input("x", "float32", ["N", 2]) @ b.input("y", "float32", ["M", 3]), "z")
    with pytest.raises(IrkitError, match="sizes do not fit"):
        ik.specialize(b.module(), M=3)


def test_generalize_and_back() -> None:
    module = heads(2, 5)
    general = ik.generalize(module, {"x": {0: "batch", 1: "seq"}})
    assert general.outputs["z"] == tensor("float32", ["batch", 2, "seq", 3])
    assert_equivalent(ik.specialize(general, batch=2, seq=5), module)
    x = np.random.default_rng(1).standard_normal((3, 4, 12), np.float32)
    expected = (x @ W).reshape(3, 4, 2, 3).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(ik.compile(general)(x), expected, rtol=1e-5)


def test_generalize_frees_a_baked_batch() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [2, 3, 4])
    b.output(b.Reshape(b.Relu(x), [2, 12]), "y")
    module = b.module()
    general = ik.generalize(module, {"x": ["batch", None, None]})
    assert general.outputs["y"] == tensor("float32", ["batch", 12])
    assert module.outputs["y"] == tensor("float32", [2, 12])
    assert ik.compile(general)(np.ones((5, 3, 4), np.float32)).shape == (5, 12)


def test_generalize_says_what_binds_a_module() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [2, 3])
    b.output(x + np.arange(6, dtype=np.float32).reshape(2, 3), "y")
    module = b.module()
    with pytest.raises(IrkitError, match=r"bound to its sizes: at batch=3(.|\n)*broadcast"):
        ik.generalize(module, {"x": {0: "batch"}})
    with pytest.raises(IrkitError, match="would be both 2 and 3"):
        ik.generalize(module, {"x": ["n", "n"]})
    with pytest.raises(IrkitError, match="axis 0 of 'x' is to be 5"):
        ik.generalize(module, {"x": {0: 5}})  # pyright: ignore[reportArgumentType]
    with pytest.raises(IrkitError, match="there is no input 'z'"):
        ik.generalize(module, {"z": {0: "batch"}})
