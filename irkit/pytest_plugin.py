"""Fixtures for pytest: ``pytest_plugins = ["irkit.pytest_plugin"]`` in a ``conftest.py`` turns them on."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from irkit.backends import backend_names

__all__ = ["irkit_backend"]


@pytest.fixture(params=backend_names())
def irkit_backend(request: pytest.FixtureRequest) -> str:
    """The name of a backend: the test runs once for each, and is skipped where onnxruntime is not installed."""
    name: str = request.param
    if name == "onnxruntime" and find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    return name
