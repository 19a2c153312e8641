"""Layers, and models made of them: an API in the manner of Keras over irkit's graphs.

>>> from irkit.frontends import layers
>>> x = layers.Input((4,))
>>> y = layers.Dense(3, activation="softmax", name="probabilities")(x)
>>> model = layers.Model(x, y)
>>> list(model.to_module().outputs)
['probabilities']
"""

from __future__ import annotations

from irkit.frontends.layers import (
    activation,
    activations,
    attention,
    callbacks,
    cells,
    conv,
    core,
    initializers,
    merging,
    normalization,
    ops,
    pooling,
    preprocessing,
    regularization,
    regularizers,
    reshaping,
    rnn,
    wrappers,
)
from irkit.frontends.layers.initializers import set_seed
from irkit.frontends.layers.layer import Layer, reset_names
from irkit.frontends.layers.model import Input, InputLayer, Model, Sequential
from irkit.frontends.layers.node import Node, Tensor
from irkit.frontends.layers.saving import load_model, register
from irkit.frontends.layers.values import Variable

_FAMILIES = (
    core, activation, conv, pooling, normalization, regularization, reshaping, merging, cells, rnn, wrappers,
    attention, preprocessing,
)  # fmt: skip

LAYERS: dict[str, type[Layer]] = {
    name: getattr(family, name)
    for family in _FAMILIES
    for name in family.__all__
    if isinstance(getattr(family, name), type)
}
"""The layers by name; each is an attribute of this module."""

globals().update(LAYERS)

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "Input",
    "InputLayer",
    "Layer",
    "Model",
    "Node",
    "Sequential",
    "Tensor",
    "Variable",
    "activations",
    "callbacks",
    "initializers",
    "load_model",
    "ops",
    "register",
    "regularizers",
    "reset_names",
    "set_seed",
    *LAYERS,
]
