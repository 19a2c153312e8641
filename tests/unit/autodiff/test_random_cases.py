"""Gradients of random calls against central differences: shapes, attributes and values drawn from a seed.

Every run of the tests has a few of each family; the long runs have more than a thousand in all.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.autodiff.checks import check
from tests.unit.autodiff.random_cases import FAMILIES, Draw

QUICK, LONG = 3, 36
SEEDS = [*range(QUICK), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(QUICK, LONG))]


def test_there_are_enough() -> None:
    assert LONG * len(FAMILIES) >= 1000


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_random_case(family: str, seed: int) -> None:
    build, *arrays = FAMILIES[family](Draw(1000 * seed + len(family)))
    # Forward mode and second derivatives where the seed is even; sizes unknown to the graph for every third.
    check(
        build,
        *arrays,
        wrt=[i for i, a in enumerate(arrays) if a.dtype == np.float64],
        symbolic=seed % 3 == 2,
        forward=seed % 2 == 0,
        second=seed % 2 == 0,
    )
