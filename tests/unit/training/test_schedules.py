"""Schedules against Keras's and torch's."""

from __future__ import annotations

import numpy as np
import pytest

import irkit as ik
from irkit.errors import IrkitError
from tests.unit.training.cases import SCHEDULE_STEPS, SCHEDULES
from tests.unit.training.support import BACKENDS, goldens


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name: str) -> None:
    case = SCHEDULES[name]
    b = ik.Builder("rate")
    b.output(getattr(ik.schedules, case.name)(**case.options)(b, b.input("step", "float32", [])), "rate")
    module = b.module()
    assert module.outputs["rate"] == module.inputs["step"]
    for backend in BACKENDS:
        f = ik.compile(module, backend=backend)
        found = [f(np.float32(step)) for step in SCHEDULE_STEPS]
        np.testing.assert_allclose(found, goldens()[f"schedule/{name}"], rtol=2e-5, atol=1e-8)


def test_boundaries_that_do_not_fit_are_refused() -> None:
    b = ik.Builder("rate")
    step = b.input("step", "float32", [])
    for boundaries, values in (((1, 2), (1.0, 2.0)), ((2, 1), (1.0, 2.0, 3.0))):
        with pytest.raises(IrkitError, match="boundaries that rise"):
            ik.schedules.Piecewise(boundaries, values)(b, step)
