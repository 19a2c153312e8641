"""ONNX's official backend test suite on the NumPy backend: everything passes."""

from __future__ import annotations

from collections import Counter

import pytest
from onnx import ModelProto

import irkit as ik
from tests.conformance.cases import CATEGORIES, Case, load_cases
from tests.conformance.suite import compare, run_cases

CHUNKS = 8

COUNTS = {
    "node": 1404,
    "expanded": 480,
    "simple": 23,
    "pytorch-converted": 82,
    "pytorch-operator": 35,
    "real": 9,
}


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    return load_cases()


def test_whole_suite_is_there(cases: list[Case]) -> None:
    assert Counter(case.category for case in cases) == COUNTS
    assert len({case.name for case in cases}) == len(cases)
    assert set(COUNTS) == set(CATEGORIES)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_suite(cases: list[Case], chunk: int) -> None:
    part = cases[chunk::CHUNKS]
    failures = run_cases(part)
    assert not failures, "\n".join(f"{name}: {message}" for name, message in failures.items())


def test_gradients_on_onnxruntime(cases: list[Case]) -> None:
    """It has no such op: what runs is what the op is expanded to."""
    found = [
        case for case in cases if "Gradient" in {node.op_type for node in ModelProto.FromString(case.model).graph.node}
    ]
    assert len(found) == 2
    for case in found:
        executable = ik.compile(ik.load(case.model), backend="onnxruntime")
        for inputs, expected in case.data:
            assert compare(expected, list(executable.run(inputs).values()), case.rtol, case.atol) is None


def test_a_wrong_result_is_noticed(cases: list[Case]) -> None:
    (case,) = (c for c in cases if c.name == "test_relu")
    ((inputs, (expected,)),) = case.data
    spoiled = expected.copy()
    spoiled.flat[3] += 0.01
    wrong = Case(case.name, case.category, case.model, [(inputs, [spoiled])], case.rtol, case.atol)
    assert "Not equal" in run_cases([wrong])["test_relu"]
    assert "float64" in (compare([expected.astype("float64")], [expected], case.rtol, case.atol) or "")
    assert compare([expected], [expected[:1]], case.rtol, case.atol) is not None


def test_a_crash_costs_one_case(cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = (c for c in cases if c.name == "test_relu")
    killer = Case("killer", "node", _KILLER, [], 0.0, 0.0)  # type: ignore[arg-type]
    failures = run_cases([killer, case])
    assert list(failures) == ["killer"]
    assert "died (exit code 3)" in failures["killer"]


class _Killer:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        import os

        return os._exit, (3,)


_KILLER = _Killer()
