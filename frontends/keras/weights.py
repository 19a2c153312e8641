"""Weights on their way back into a Keras model."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.keras import adapter

__all__ = ["write_back"]


def write_back(model: Any, state: Mapping[str, Any]) -> None:
    """Assigns arrays to the variables of a model that have their names; all are looked at before any is assigned."""
    names = adapter.unique_names(model)
    variables = {names[id(v)]: v for v in adapter.variables_of(model)}
    for name, value in state.items():
        variable = variables.get(name)
        if variable is None:
            near = difflib.get_close_matches(name, variables, 1)
            hint = f"did you mean '{near[0]}'?" if near else "names are the paths of the model's variables"
            raise IrkitError(f"the model '{model.name}' has no weight '{name}'", hint=hint)
        if tuple(np.shape(value)) != tuple(variable.shape):
            raise IrkitError(f"the weight '{name}' has shape {variable.shape}, the array given {np.shape(value)}")
    for name, value in state.items():
        variables[name].assign(np.asarray(value))
