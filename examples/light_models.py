"""Real network architectures that need no download: the nine "light" models of the onnx package, and magika.

The light models keep the graphs of well-known image networks but not their weights: each large weight is the output
of a ``ConstantOfShape`` node, so every network answers with one repeated value whatever the input. ``light_model``
gives every parameter a seeded random value of a sensible size for its role, so that outputs vary with the input and
along the classes. Only ``onnx`` and ``numpy`` are needed.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

__all__ = [
    "LIGHT_MODELS",
    "add_logits_output",
    "light_feeds",
    "light_model",
    "light_model_path",
    "light_models",
    "logits_output",
    "magika_feeds",
    "magika_model_path",
]

# Smallest first.
LIGHT_MODELS = (
    "squeezenet",
    "shufflenet",
    "inception_v1",
    "densenet121",
    "inception_v2",
    "resnet50",
    "bvlc_alexnet",
    "zfnet512",
    "vgg19",
)

# What a parameter is, by the op that consumes it and the input index at which it does.
_ROLES = {
    ("Conv", 1): "weight",
    ("Conv", 2): "bias",
    ("Gemm", 1): "weight",
    ("Gemm", 2): "bias",
    ("BatchNormalization", 1): "scale",
    ("BatchNormalization", 2): "bias",
    ("BatchNormalization", 3): "bias",
    ("BatchNormalization", 4): "variance",
    ("Mul", 1): "scale",
    ("Add", 1): "bias",
}


def light_model_path(name: str) -> Path:
    """The file of a light model inside the installed onnx package (constant weights, as shipped)."""
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def light_models(
    names: Sequence[str] = LIGHT_MODELS, seed: int = 0
) -> Iterator[tuple[str, ModelProto, dict[str, np.ndarray]]]:
    """Each light model with random weights, and feeds for it; one at a time, since vgg19 alone holds 575 MB."""
    for name in names:
        model = light_model(name, seed)
        yield name, model, light_feeds(model, seed)


def light_model(name: str, seed: int = 0) -> ModelProto:
    """One light model whose parameters are seeded random initializers instead of constants.

    Convolution and matrix weights are He-normal (standard deviation sqrt(2 / fan_in)) with each filter's mean removed,
    which keeps the mean of the activations behind a ReLU from drowning what differs between inputs. Scales are
    about 1, variances about 1 and positive, biases and means small. The ``ConstantOfShape`` nodes and their
    shapes are gone; the result stays a valid model of IR version 3, where every initializer is listed as an input.
    """
    model = onnx.load(light_model_path(name))
    graph = model.graph
    shapes = _parameter_shapes(graph)
    arrays = {value: _random_parameter(*_role(graph, value), shape, value, seed) for value, shape in shapes.items()}

    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    shape_inputs = {node.input[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    still_used = {value for node in kept for value in node.input}
    gone = set(arrays) | (shape_inputs - still_used)
    initializers = [tensor for tensor in graph.initializer if tensor.name not in gone]
    initializers += [numpy_helper.from_array(array, value) for value, array in arrays.items()]
    inputs = [value for value in graph.input if value.name not in gone]
    inputs += [helper.make_tensor_value_info(v, TensorProto.FLOAT, a.shape) for v, a in arrays.items()]
    del graph.node[:], graph.initializer[:], graph.input[:]
    graph.node.extend(kept)
    graph.initializer.extend(initializers)
    graph.input.extend(inputs)
    return model


def light_feeds(model: ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Image-like float32 feeds: per-channel offsets, random plane waves and noise; two seeds differ at every scale."""
    initialized = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in initialized:
            continue
        shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        rng = np.random.default_rng([seed, zlib.crc32(value.name.encode())])
        rows, columns = np.mgrid[0 : shape[-2], 0 : shape[-1]]
        image = rng.normal(size=(*shape[:-2], 1, 1)) + 0.3 * rng.standard_normal(shape)
        for _ in range(6):
            fy, fx, phase = (rng.normal(scale=s, size=(*shape[:-2], 1, 1)) for s in (0.15, 0.15, math.pi))
            image = image + 0.5 * np.sin(fy * rows + fx * columns + phase)
        feeds[value.name] = image.astype(np.float32)
    return feeds


def logits_output(model: ModelProto) -> str:
    """The value that goes into the final Softmax; the first graph output itself where there is none.

    Compare this value rather than the probabilities: with random weights the Softmax saturates.
    """
    output = model.graph.output[0].name
    producer = next((node for node in model.graph.node if output in node.output), None)
    return producer.input[0] if producer is not None and producer.op_type == "Softmax" else output


def add_logits_output(model: ModelProto) -> str:
    """Make the logits a graph output of ``model``, in place, unless they are one already; returns their name."""
    name = logits_output(model)
    if name not in {output.name for output in model.graph.output}:
        # Softmax keeps type and shape.
        model.graph.output.append(helper.make_value_info(name, model.graph.output[0].type))
    return name


def magika_model_path() -> Path:
    """The trained file-type classifier that the package ``magika`` ships.

    Raises:
        FileNotFoundError: the package is not installed, or holds no model.
    """
    spec = find_spec("magika")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    for folder in folders:
        for path in sorted(Path(folder).glob("models/*/model.onnx"), reverse=True):
            return path
    raise FileNotFoundError("no model of magika was found; install the package 'magika'")


def magika_feeds(batch: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Feeds for magika: rows of byte values, each over an alphabet of its own, padded with the token 256."""
    graph = onnx.load(magika_model_path(), load_external_data=False).graph
    length = graph.input[0].type.tensor_type.shape.dim[1].dim_value
    rng = np.random.default_rng(seed)
    rows = np.full((batch, length), 256, np.int32)
    for row in rows:
        low, high = sorted(rng.choice(257, 2, replace=False))
        size = int(rng.integers(length // 2, length + 1))
        row[:size] = rng.integers(low, high, size)
    return {graph.input[0].name: rows}


def _parameter_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """The shape of every float parameter: outputs of ConstantOfShape, and the few small initializers beside them."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {t.name: tuple(t.dims) for t in graph.initializer if t.data_type == TensorProto.FLOAT}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            dims = numpy_helper.to_array(constants[node.input[0]]).tolist()
            shapes[node.output[0]] = tuple(dims)
    consumed = {value for node in graph.node for value in node.input}
    return {name: shape for name, shape in shapes.items() if name in consumed}


def _role(graph: GraphProto, value: str) -> tuple[str, NodeProto]:
    """What ``value`` is to its first real consumer, and that consumer; reshaping ops in between are followed."""
    for node in graph.node:
        if value in node.input:
            if node.op_type in ("Unsqueeze", "Reshape"):
                return _role(graph, node.output[0])
            return _ROLES[node.op_type, list(node.input).index(value)], node
    raise ValueError(f"parameter {value!r} has no consumer")


def _random_parameter(role: str, consumer: NodeProto, shape: tuple[int, ...], name: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    noise = rng.standard_normal(shape, dtype=np.float32)
    if role == "bias":
        return noise * np.float32(0.1)
    if role == "scale":
        return 1 + noise * np.float32(0.1)
    if role == "variance":
        return np.exp(noise * np.float32(0.1))
    # Conv weights are (out, in / group, *kernel); Gemm's are (in, out), or (..., out, in) under transB.
    axes: tuple[int, ...] = tuple(range(1, len(shape)))
    if consumer.op_type == "Gemm":
        axes = (-1,) if _int_attribute(consumer, "transB") else (-2,)
    fan_in = math.prod(shape[axis] for axis in axes)
    if fan_in > 1:
        noise -= noise.mean(axes, keepdims=True)
    noise *= np.float32(math.sqrt(2 / fan_in))
    return noise


def _int_attribute(node: NodeProto, name: str) -> int:
    found: AttributeProto | None = next((a for a in node.attribute if a.name == name), None)
    return found.i if found is not None else 0
