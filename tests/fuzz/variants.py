"""Kinds of a graph for passes: with symbols for sizes, at other sizes, with a function, with fewer types known."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

import irkit as ik
from irkit.dialects.onnx import OnnxOp
from irkit.ir.types import tensor, tensor_info, unknown
from irkit.passes.rewrite import sync_signature
from irkit.passes.types import set_type

from .arrays import is_float
from .graph import Built, Value

__all__ = ["forgetful", "per_axis", "per_size", "resized", "special", "symbols", "with_functions"]

SPECIAL = (-0.0, np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-310, 1e-40)


def special(built: Built, seed: int) -> dict[str, Any]:
    """The inputs of a graph, with special values among their floats."""
    rng = np.random.default_rng(seed)

    def look(value: Any) -> Any:
        if isinstance(value, list):
            return [look(v) for v in value]
        if not is_float(value):
            return value
        with np.errstate(all="ignore"):
            odd = rng.choice(SPECIAL, value.shape).astype(value.dtype)
        return np.where(rng.random(value.shape) < 0.3, odd, value)

    return {name: look(v) for name, v in built.feeds.items()}


def per_size(name: str, value: Value) -> Sequence[int | str]:
    """Sizes by symbols, one for each size; what may be a shape or an index keeps its size."""
    return value.shape if _is_list(value) else [f"n{size}" for size in value.shape]


def per_axis(name: str, value: Value) -> Sequence[int | str]:
    """Sizes by symbols, one for each axis of each input."""
    return value.shape if _is_list(value) else [f"{name}_{axis}" for axis in range(len(value.shape))]


def _is_list(value: Value) -> bool:
    return value.dtype.is_integer and value.array.ndim <= 1


def resized(built: Built, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The inputs of a graph at other sizes of its symbols; their elements are repeated."""
    found: dict[str, Any] = {}
    for name, kind in built.module.inputs.items():
        info, value = tensor_info(kind), built.feeds[name]
        if info is not None and info.shape is not None:
            shape = [sizes.get(str(d), s) for d, s in zip(info.shape, value.shape, strict=True)]
            value = np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
        found[name] = value
    return found


def symbols(built: Built) -> dict[str, int]:
    """The symbols of a graph's inputs, and the sizes that they had."""
    known = {name: tensor_info(kind) for name, kind in built.module.inputs.items()}
    return {
        dim: size
        for name, info in known.items()
        if info is not None
        for dim, size in zip(info.shape or (), np.shape(built.feeds[name]), strict=False)
        if isinstance(dim, str)
    }


def forgetful(built: Built, choose: random.Random) -> Built:
    """The same graph with the shapes of some results unknown, or their types altogether."""
    module = built.module.clone()
    for op in module.walk():
        if not isinstance(op, OnnxOp) or op.op_type == "Constant":
            continue
        for result in op.results:
            info, way = tensor_info(result.type), choose.randrange(4)
            if info is not None and way < 2:
                set_type(result, tensor(info.dtype, None) if way else unknown)
    sync_signature(module)
    return Built(module, built.feeds, built.inputs, built.outputs)


def with_functions(built: Built, choose: random.Random) -> Built | None:
    """The same graph with some of its nodes in a row in a function that it calls; None if there is nothing to take."""
    model = built.module.to_onnx()
    nodes, graph = list(model.graph.node), model.graph
    first = choose.randrange(len(nodes)) if nodes else 0
    taken = nodes[first : first + choose.randint(1, 4)]
    if not taken:
        return None
    made = [name for node in taken for name in node.output if name]
    later = {n for node in nodes[first + len(taken) :] for n in _read(node)} | {o.name for o in graph.output}
    inputs = list(dict.fromkeys(n for node in taken for n in _read(node) if n and n not in made))
    outputs = [n for n in made if n in later]
    if not outputs:
        return None
    model.functions.append(helper.make_function("local", "part", inputs, outputs, taken, model.opset_import))
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.ir_version = max(model.ir_version, 10)
    call = helper.make_node("part", inputs, outputs, domain="local")
    del graph.node[:]
    del graph.value_info[:]
    graph.node.extend([*nodes[:first], call, *nodes[first + len(taken) :]])
    return Built(ik.load(model), built.feeds, built.inputs, built.outputs)


def _read(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {v.name for v in (*graph.input, *graph.initializer)}
            for inner in graph.node:
                yield from (n for n in _read(inner) if n not in own)
                own.update(inner.output)
            yield from (o.name for o in graph.output if o.name not in own)
