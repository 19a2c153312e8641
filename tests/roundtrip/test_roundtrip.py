"""Round trips over the corpora: all features, all schemas, a part of the official suite; everything when slow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roundtrip.runner import check, corpus

PARTS = 40
"""`make test` takes one model in so many of the official suite."""


def run_all(which: str, every: int = 1, **options: Any) -> dict[str, int]:
    counts: dict[str, int] = {"models": 0}
    problems: list[str] = []
    for index, (name, source, feeds) in enumerate(corpus(which)):
        if index % every:
            continue
        result = check(name, source, feeds, **options)
        counts["models"] += 1
        counts[result.ran] = counts.get(result.ran, 0) + 1
        problems += [f"{name}: {problem}" for problem in result.problems]
    assert not problems, "\n".join(problems)
    return counts


def test_features() -> None:
    counts = run_all("features")
    assert counts["models"] == 62
    assert counts["compared"] >= 55


def test_external_data() -> None:
    assert run_all("external") == {"models": 16, "compared": 16}


def test_every_schema_version() -> None:
    counts = run_all("schemas")
    assert counts["models"] == 659
    assert counts["compared"] >= 570


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_part_of_the_official_suite() -> None:
    counts = run_all("suite", every=PARTS)
    assert counts["models"] == 51
    assert counts["compared"] >= 35


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_official_suite() -> None:
    counts = run_all("suite")
    assert counts["models"] == 2033
    assert counts["compared"] >= 1600
