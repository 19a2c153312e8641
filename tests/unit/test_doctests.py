"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def modules_with_examples() -> list[str]:
    """The modules whose source has a ``>>>``, by the name that they are imported under."""
    names: list[str] = []
    for folder, _, files in os.walk(ROOT / "irkit", followlinks=True):
        for file in (Path(folder) / name for name in files if name.endswith(".py")):
            if ">>> " in file.read_text(encoding="utf-8"):
                parts = file.relative_to(ROOT).with_suffix("").parts
                names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(names)


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.attempted > 0, "no example is in a docstring that doctest finds"
    assert result.failed == 0
