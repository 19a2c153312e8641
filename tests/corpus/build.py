"""What the corpora share: models from onnx's own text syntax, and feeds made from declared types."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import onnx.parser
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

__all__ = ["feeds_from_types", "from_text", "graph_of", "model_of", "named", "node", "tensor_value"]

_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


def from_text(text: str, opset: int = 21, ir_version: int = 10, imports: Mapping[str, int] | None = None) -> ModelProto:
    """A model from a graph (and functions after it) in onnx's text syntax."""
    opsets = {"": opset} | dict(imports or {})
    header = ", ".join(f'"{domain}" : {version}' for domain, version in opsets.items())
    return onnx.parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{header}]>\n{text}")


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


def tensor_value(name: str, shape: Sequence[int | str | None] | None, dtype: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def graph_of(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    initializers: Sequence[TensorProto] = (),
    name: str = "graph",
) -> GraphProto:
    return helper.make_graph(nodes, name, inputs, outputs, initializers)


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    initializers: Sequence[TensorProto] = (),
    *,
    opset: int = 21,
    ir_version: int = 10,
    imports: Mapping[str, int] | None = None,
    **fields: Any,
) -> ModelProto:
    opsets = {"": opset} | dict(imports or {})
    return helper.make_model(
        graph_of(nodes, inputs, outputs, initializers),
        ir_version=ir_version,
        opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()],
        **fields,
    )


def named(module: ModuleType, prefix: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The functions of a module whose names start with ``prefix``, without it, in the order of their definition."""
    for name, function in vars(module).items():
        if name.startswith(prefix) and callable(function):
            yield name.removeprefix(prefix), function


def feeds_from_types(
    model: ModelProto, seed: int, sizes: Mapping[str, int] | None = None, *, special: bool = False
) -> dict[str, Any]:
    """Feeds for every graph input that has no initializer, of its declared type.

    A symbolic dim takes its size from ``sizes`` or is 2 to 4 by its name, an unknown one is 2, an unknown rank is 2.
    Integer scalars are positive, since most of them are trip counts. Floats are finite; ``special`` puts NaN,
    infinities and signed zeros among them.
    """
    initialized = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name not in initialized:
            rng = np.random.default_rng([seed, zlib.crc32(value.name.encode())])
            feed = _sample(value.type, rng, sizes or {})
            if special and isinstance(feed, np.ndarray) and feed.dtype.kind == "f":
                odd = rng.choice(_SPECIAL, feed.shape).astype(feed.dtype)
                feed = np.asarray(np.where(rng.random(feed.shape) < 0.5, odd, feed))
            feeds[value.name] = feed
    return feeds


def _sample(kind: TypeProto, rng: np.random.Generator, sizes: Mapping[str, int]) -> Any:
    if kind.HasField("sequence_type"):
        return [_sample(kind.sequence_type.elem_type, rng, sizes) for _ in range(2)]
    if kind.HasField("optional_type"):
        return _sample(kind.optional_type.elem_type, rng, sizes)
    if kind.HasField("map_type"):
        keys = ["a", "é"] if kind.map_type.key_type == TensorProto.STRING else [1, 2]
        return {key: _sample(kind.map_type.value_type, rng, sizes).item() for key in keys}
    tensor = kind.tensor_type
    shape: tuple[int, ...] = (2, 3)
    if tensor.HasField("shape"):
        shape = tuple(
            d.dim_value
            if d.HasField("dim_value")
            else sizes.get(d.dim_param, 2 + zlib.crc32(d.dim_param.encode()) % 3 if d.dim_param else 2)
            for d in tensor.shape.dim
        )
    if tensor.elem_type == TensorProto.STRING:
        return np.array(rng.choice(["", "a", "bé", "日本"], shape), dtype=object)
    if tensor.elem_type == TensorProto.BOOL:
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if dtype.kind in "iu":
        low = 1 if not shape else 0 if dtype.kind == "u" else -4
        return np.asarray(rng.integers(low, 5, shape)).astype(dtype)
    values = rng.normal(size=shape)
    return np.asarray(values + 1j * rng.normal(size=shape) if dtype.kind == "c" else values).astype(dtype)
