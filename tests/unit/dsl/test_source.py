"""Modules as Python programs: run, they build an equal module."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest

import irkit as ik
from irkit.cli import main
from irkit.errors import IrkitError
from irkit.frontends import dsl
from irkit.frontends.dsl.source import program, save_program
from irkit.ir.compare import difference
from tests.corpus.features import feature_models
from tests.corpus.schemas import schema_models
from tests.roundtrip.suite_models import suite_models


def rebuilt(module: ik.Module, path: Path) -> ik.Module:
    save_program(module, path)
    return runpy.run_path(str(path))["build"]()


def assert_rebuilt(module: ik.Module, path: Path) -> None:
    assert difference(module.op, rebuilt(module, path).op) is None


def loaded(models: Iterator[tuple[str, Any]], step: int) -> Iterator[tuple[str, ik.Module]]:
    for index, (name, model) in enumerate(models):
        if index % step == 0:
            try:
                yield name, ik.load(model).verify()
            except IrkitError:
                continue


def check(models: Iterator[tuple[str, Any]], step: int, folder: Path) -> int:
    count = 0
    for name, module in loaded(models, step):
        found = difference(module.op, rebuilt(module, folder / "model.py").op)
        assert found is None, f"{name}: {found}"
        count += 1
    return count


def stored_suite() -> Iterator[tuple[str, Any]]:
    """The models of the official suite that are files."""
    data = Path(onnx.backend.test.__file__).parent / "data"
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for folder in sorted((data / kind).iterdir()):
            yield folder.name, onnx.load(folder / "model.onnx")


def features() -> Iterator[tuple[str, Any]]:
    for index, item in enumerate(feature_models()):
        yield str(index), item[1] if isinstance(item, tuple) else item


def test_models_of_the_suite(tmp_path: Path) -> None:
    assert check(stored_suite(), 3, tmp_path) > 30


def test_models_with_every_feature(tmp_path: Path) -> None:
    assert check(features(), 1, tmp_path) > 50


@pytest.mark.slow
def test_all_models(tmp_path: Path) -> None:
    assert check(((name, model) for name, model, _ in suite_models()), 1, tmp_path) > 1900
    assert check(schema_models(), 1, tmp_path) > 500


def test_state_functions_devices_and_control_flow(tmp_path: Path) -> None:
    v = dsl.variable(np.float32([1, 2]), "v ü")
    x = dsl.placeholder("class", "float32", ["n", 2])

    @dsl.function(inline=False)
    def f(a: Any) -> Any:
        return dsl.cond(dsl.sum(a) > 0.0, lambda: a, lambda: dsl.map(lambda r: -r, a))

    with dsl.device("cpu:1"):
        y = f(x * v)
    assert_rebuilt(dsl.to_module({"y": y, "done": v.assign_add([1.0, 1.0])}, name='a "name"'), tmp_path / "m.py")
    grad = dsl.gradients(dsl.sum(dsl.tanh(x @ v)), v)
    assert_rebuilt(dsl.to_module({"grad": grad}), tmp_path / "m.py")


def test_constants_are_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for value in (
        np.float32([0.1, -0.0, np.nan, np.inf, 1e-45]),
        np.float32([0.1, 1 / 3, 1e-30]),
        rng.normal(size=(3, 2)),
        rng.normal(size=1000).astype(np.float16),
        np.array([True, False]),
        np.array([2**63 - 1, -(2**63)]),
        np.array(["a", 'b"\n']),
        np.zeros((0, 3), np.int8),
        np.full((100, 100), 7.5, np.float32),
        np.complex64([1 + 2j]),
    ):
        assert_rebuilt(dsl.to_module({"y": dsl.identity(dsl.constant(value))}), tmp_path / "m.py")


def test_names_from_files_cannot_become_code(tmp_path: Path) -> None:
    evil = '"""\nraise SystemExit\n\\\'); import os #'
    b = ik.Builder(evil)
    x = b.input(evil, "float32", [evil, 3])
    b.output(b.Relu(x, name=evil), evil + "y")
    assert_rebuilt(b.module(), tmp_path / "m.py")


def test_large_constants_stand_beside_the_program(tmp_path: Path) -> None:
    w = np.random.default_rng(0).normal(size=(20, 20)).astype(np.float32)
    module = dsl.to_module(dsl.placeholder("x", "float32", [20]) @ dsl.constant(w, name="w"))
    path = tmp_path / "model.py"
    assert_rebuilt(module, path)
    assert (tmp_path / "model.safetensors").stat().st_size > w.nbytes
    assert len(path.read_text()) < 1500
    text = program(module)
    assert "stored" not in text
    space: dict[str, Any] = {"__name__": "text"}
    exec(text, space)
    assert space["build"]() == module


def test_it_reads_as_a_person_would_write_it() -> None:
    x = dsl.placeholder("x", "float32", ["batch", 4])
    module = dsl.to_module({"y": dsl.softmax(dsl.relu(x @ dsl.constant(np.eye(4, dtype=np.float32), name="w")) + 1e-3)})
    lines = [line.strip() for line in program(module).splitlines()]
    assert "x = b.input('x', 'float32', ['batch', 4])" in lines
    assert "matmul = b.MatMul(x, w)" in lines
    assert "constant = b.Constant(value=np.array(0.001, 'float32'))" in lines
    assert "b.output(softmax, 'y')" in lines


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = ik.Builder("affine")
    x = b.input("x", "float32", ["n", 3])
    b.output(x @ b.initializer(np.ones((3, 30), np.float32) * np.arange(30, dtype=np.float32), "w"), "y")
    module = b.module()
    onnx.save(module.to_onnx(), tmp_path / "m.onnx")

    def irkit(*args: str) -> tuple[int, str, str]:
        code = main(["convert", *(str(tmp_path / a) if a.startswith("m.") else a for a in args)])
        return code, *capsys.readouterr()

    assert irkit("m.onnx", "--to", "python", "-o", "m.py")[0] == 0
    assert runpy.run_path(str(tmp_path / "m.py"))["build"]() == ik.load(tmp_path / "m.onnx")
    _, printed, _ = irkit("m.onnx", "--to", "python", "-o", "-")
    space: dict[str, Any] = {"__name__": "text"}
    exec(printed, space)
    assert space["build"]() == ik.load(tmp_path / "m.onnx")
    assert irkit("m.onnx", "--to", "python", "-o", "m.onnx2")[0] == 2
    code, _, said = irkit("m.onnx", "--opset", "20", "-o", "m.py")
    assert code == 2
    assert "do not concern" in said
