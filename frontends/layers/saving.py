"""Configurations as JSON, and models as files."""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as safetensors_arrays
from safetensors.numpy import save as safetensors_bytes

from irkit.errors import IrkitError, LoadError
from irkit.ir.files import write_atomically

__all__ = ["from_config", "load_model", "register", "to_config"]

_REGISTERED: dict[str, Any] = {}


def register(thing: Any) -> Any:
    """A decorator: lets layers, functions and other classes of one's own be found by name when a model is loaded."""
    _REGISTERED[thing.__name__] = thing
    return thing


def to_config(value: Any) -> Any:
    """A value of a layer's configuration in terms of JSON.

    Raises:
        IrkitError: for a function, or an object of a class, that is not registered.
    """
    from irkit.frontends.layers.layer import Layer

    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [to_config(item) for item in value]
        case Mapping():
            return {str(key): to_config(item) for key, item in value.items()}
        case np.ndarray():
            return {"array": value.tolist(), "dtype": str(value.dtype)}
        case np.generic():
            return value.item()
        case Layer():
            return {"layer": _name_of(type(value)), "config": value.get_config()}
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return {"function": _name_of(value)}
    if dataclasses.is_dataclass(value):
        fields = {f.name: to_config(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"object": _name_of(type(value)), "config": fields}
    raise IrkitError(f"{value!r} cannot be written into a configuration", hint="give a name, a number or a dataclass")


def from_config(config: Any) -> Any:
    """The value of a configuration."""
    match config:
        case list():
            return [from_config(item) for item in config]
        case {"array": values, "dtype": kind}:
            return np.asarray(values, kind)
        case {"layer": name, "config": inner}:
            return find(name).from_config(inner)
        case {"function": name}:
            return find(name)
        case {"object": name, "config": inner}:
            return find(name)(**{key: from_config(value) for key, value in inner.items()})
        case Mapping():
            return {key: from_config(value) for key, value in config.items()}
        case _:
            return config


def _name_of(thing: Any) -> str:
    name = thing.__qualname__
    if _REGISTERED.get(name) is thing:
        return name
    home = thing.__module__
    if not home.startswith("irkit.") or "<" in name:
        raise IrkitError(
            f"'{name}' could not be found again when the model is loaded",
            hint="decorate it with @layers.register, and give a function a name",
        )
    return f"{home}:{name}"


def find(name: str) -> Any:
    """What a name in a configuration stands for: registered, or one of irkit's own."""
    home, _, inner = name.partition(":")
    if not inner:
        found = _REGISTERED.get(name)
        if found is None:
            raise IrkitError(
                f"nothing is registered as '{name}'", hint="decorate it with @layers.register before loading"
            )
        return found
    if not home.startswith("irkit."):
        raise IrkitError(f"the configuration names '{name}', which is not irkit's")
    try:
        return getattr(importlib.import_module(home), inner)
    except (ImportError, AttributeError):
        raise IrkitError(f"the configuration names '{name}', which does not exist") from None


# Models


def functional_config(model: Any) -> dict[str, Any]:
    """The layers of a functional model, and its nodes: tensors as (layer, call, tensor), all by number."""
    from irkit.frontends.layers.node import Tensor, flatten, map_structure

    nodes = [layer._inbound_nodes[0] for layer in model.input_layers]
    if len(nodes) < len(flatten(model.inputs)):
        raise IrkitError(f"the model '{model.name}' begins in the middle of another", hint="give it inputs of its own")
    nodes += model._nodes
    layers = list(dict.fromkeys(node.outbound_layer for node in nodes))
    places: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for tensor, symbol in enumerate(node.output_tensors):
            places[id(symbol)] = [index, tensor]

    def tensors(structure: Any) -> Any:
        return map_structure(lambda v: {"tensor": places[id(v)]} if isinstance(v, Tensor) else to_config(v), structure)

    return {
        "name": model.name,
        "layers": [to_config(layer) for layer in layers],
        "nodes": [
            {
                "layer": layers.index(node.outbound_layer),
                "args": tensors(node.structure[0]),
                "kwargs": tensors(node.structure[1]),
            }
            for node in nodes
        ],
        "inputs": tensors(model.inputs),
        "outputs": tensors(model.outputs),
    }


def functional_model(config: Mapping[str, Any]) -> Any:
    """The model of ``functional_config``."""
    from irkit.frontends.layers.model import InputLayer, Model
    from irkit.frontends.layers.node import flatten

    layers = [from_config(item) for item in config["layers"]]
    made: list[list[Any]] = []

    def tensors(item: Any) -> Any:
        match item:
            case {"tensor": [node, index]}:
                return made[node][index]
            case list() | tuple():
                return [tensors(value) for value in item]
            case Mapping() if not item.keys() & {"layer", "function", "object", "array"}:
                return {key: tensors(value) for key, value in item.items()}
            case _:
                return from_config(item)

    for node in config["nodes"]:
        layer = layers[node["layer"]]
        if isinstance(layer, InputLayer):
            made.append([layer.output])
        else:
            made.append(flatten(layer(*tensors(node["args"]), **tensors(node["kwargs"]))))
    return Model(tensors(config["inputs"]), tensors(config["outputs"]), name=config["name"])


def _numbered(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {f"{index}:{v.path}": v.numpy() for index, v in enumerate(model.weights)}


def save_weights(model: Any, path: str | os.PathLike[str]) -> None:
    """Writes a model's weights as safetensors, by number and path."""
    write_atomically(path, [safetensors_bytes(_numbered(model))])


def load_weights(model: Any, path: str | os.PathLike[str]) -> None:
    """Reads the weights of ``save_weights`` into a model.

    Raises:
        LoadError: if they are others than the model's.
    """
    _take(model, Path(path).read_bytes(), str(path))


def _take(model: Any, data: bytes, path: str) -> None:
    try:
        found = safetensors_arrays(data)
    except Exception as error:
        raise LoadError(f"'{path}' does not hold weights: {error}") from None
    mine = model.weights
    ordered = sorted(found.items(), key=lambda item: int(item[0].partition(":")[0]))
    if [v.shape for v in mine] != [value.shape for _, value in ordered]:
        raise LoadError(
            f"'{path}' holds the weights of another model: {len(found)} arrays, where '{model.name}' has {len(mine)}",
            hint="names and sizes must be those of the model that was saved",
        )
    for variable, (_, value) in zip(mine, ordered, strict=True):
        variable.assign(value)


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Writes a zip file with ``config.json`` and ``weights.safetensors``."""
    spec = None
    if not model.is_functional:
        spec = [[list(t.spec), t.dtype] for t in flatten_symbols(model)]
    text = json.dumps({"format": "irkit.layers", "version": 1, "model": to_config(model), "inputs": spec}, indent=1)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in (
            ("config.json", text.encode()),
            ("weights.safetensors", safetensors_bytes(_numbered(model))),
        ):
            file.writestr(zipfile.ZipInfo(name), data)
    write_atomically(path, [buffer.getvalue()])


def flatten_symbols(model: Any) -> list[Any]:
    """The symbols of what a model takes."""
    from irkit.frontends.layers.node import flatten

    return flatten(model.symbols)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Reads a model that ``Model.save`` wrote. Nothing in the file is run: classes are irkit's or registered ones.

    Raises:
        LoadError: if the file is damaged.
    """
    try:
        with zipfile.ZipFile(path) as file:
            found = json.loads(file.read("config.json"))
            data = file.read("weights.safetensors")
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise LoadError(f"'{path}' is no saved model: {error}") from None
    if found.get("format") != "irkit.layers" or found.get("version") != 1:
        raise LoadError(f"'{path}' is not of a format that is known here")
    model = from_config(found["model"])
    if found["inputs"] is not None and not model.is_functional:
        from irkit.frontends.layers.model import Input

        symbols = [Input(spec[1:], dtype=kind) for spec, kind in found["inputs"]]
        model.take(symbols[0] if len(symbols) == 1 else symbols)
    _take(model, data, str(path))
    return model
