"""State in files: safetensors, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from irkit.errors import LoadError
from irkit.ir.files import write_atomically

__all__ = ["load_state", "save_state"]

Array = np.ndarray[Any, Any]


def save_state(
    path: str | os.PathLike[str], state: Mapping[str, Array], metadata: dict[str, str] | None = None
) -> None:
    """Writes arrays by name.

    Raises:
        SaveError: if the file cannot be written; what stood there stays.
    """
    plain = {name: np.array(value, order="C") for name, value in state.items()}
    write_atomically(path, [save(plain, metadata)])


def load_state(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """Reads arrays by name, and the file's metadata.

    Raises:
        LoadError: if the file is missing or damaged.
    """
    try:
        data = Path(path).read_bytes()
        arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (OSError, SafetensorError, ValueError) as error:
        raise LoadError(f"cannot read the state in '{path}': {error}") from None
    return arrays, dict(header.get("__metadata__", {}))
