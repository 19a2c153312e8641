"""Transformers as torch's exporters write them: every size is known as an expression, and right at all sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

import irkit as ik
from irkit.ir.types import TensorType, shape_of
from irkit.testing import assert_equivalent
from irkit.verify import random_feeds
from tests.conformance.test_symbolic import Watch

EXPORTED = Path(__file__).parents[2] / "corpus" / "exported"
NAMES = sorted(path.stem for path in EXPORTED.glob("*.onnx"))


def test_the_models_are_there() -> None:
    assert NAMES == ["decoder_dynamo", "decoder_script", "encoder_dynamo", "encoder_script"]


@pytest.mark.parametrize("level", ["", "O2"])
@pytest.mark.parametrize("name", NAMES)
def test_every_size_is_known(name: str, level: str) -> None:
    module = ik.load(EXPORTED / f"{name}.onnx")
    if level:
        module = ik.optimize(module, level)
    types = [result.type for op in module.func.walk() for result in op.results]
    tensors = [t for t in types if isinstance(t, TensorType)]
    assert len(tensors) > 40
    assert not [t for t in types if shape_of(t) is not None and None in (shape_of(t) or ())]
    expressions = {d for t in tensors for d in shape_of(t) or () if isinstance(d, str)}
    assert ("past + seq" if name.startswith("decoder") else "2*batch") in expressions


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 4), (3, 1, 0), (1, 7, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_those_found(name: str, sizes: tuple[int, ...]) -> None:
    module = ik.load(EXPORTED / f"{name}.onnx")
    given = dict(zip(("batch", "seq", "past"), sizes, strict=True))
    watch = Watch(given)
    ik.compile(module, hook=watch).run(random_feeds(module, 0, given))
    assert not watch.wrong, "\n".join(watch.wrong)
    assert watch.counts["expression"] > 5


@pytest.mark.parametrize("name", NAMES)
def test_o2_keeps_what_they_compute(name: str) -> None:
    module = ik.load(EXPORTED / f"{name}.onnx")
    small = ik.optimize(module, "O2")
    assert len(list(small.func.walk())) <= len(list(module.func.walk()))
    assert_equivalent(module, small, backends=("numpy", "onnxruntime"))
