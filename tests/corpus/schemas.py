"""One valid model for every operator schema that onnx has ever had, at the very opset that brought it in."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper
from onnx.defs import OpSchema

from .schema_cases import CASES, Case

__all__ = ["CHECKER_EXCEPTIONS", "feeds_for", "schema_models"]

# What onnx's own checker refuses, and why.
CHECKER_EXCEPTIONS = dict.fromkeys(
    (
        "ai.onnx-GroupNormalization-18",
        "ai.onnx-Scatter-11",
        "ai.onnx-Upsample-10",
        "ai.onnx.ml-TreeEnsembleClassifier-5",
        "ai.onnx.ml-TreeEnsembleRegressor-5",
    ),
    "the schema marks the op as deprecated, and the checker refuses every deprecated op",
)

_DTYPES = {
    "f16": TensorProto.FLOAT16,
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
    "i8": TensorProto.INT8,
    "i16": TensorProto.INT16,
    "i32": TensorProto.INT32,
    "i64": TensorProto.INT64,
    "u8": TensorProto.UINT8,
    "b": TensorProto.BOOL,
    "s": TensorProto.STRING,
}
_WORDS = ("a", "bc", "zz", "caab", "Dach", "", "été")
OFFICIAL = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
"""The domains of the standard."""

# The column of each domain in onnx's table of releases.
_COLUMNS = {"ai.onnx.ml": 3, "ai.onnx.preview.training": 4}


def schema_models() -> Iterator[tuple[str, ModelProto]]:
    """``(id, model)`` for every schema version of every domain, sorted; ids read ``ai.onnx-Softmax-11``."""
    # irkit and plug-ins register schemas of their own domains.
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in OFFICIAL]
    for schema in sorted(schemas, key=lambda s: (s.domain, s.name, s.since_version)):
        yield _model_id(schema), _model(schema)


def feeds_for(model: ModelProto, seed: int) -> dict[str, Any]:
    """Valid feeds for the graph inputs of a model made by ``schema_models``: arrays, lists of arrays, or dicts.

    Indices stay in range, arguments of partial functions in their domain. Two seeds give different values.
    """
    case = _case_of(model.graph.name)
    texts = {f"x{i}": text for i, text in enumerate(case.inputs) if isinstance(text, str)}
    texts |= {f"c{i}": text for i, text in enumerate(case.captures)}
    return {
        name: _sample(text, np.random.default_rng([seed, zlib.crc32(f"{model.graph.name}/{name}".encode())]))
        for name, text in texts.items()
    }


def parse_type(text: str) -> TypeProto:
    """The type of an input text such as ``f32[2,n,?]``, ``seq(f32[2])`` or ``map(i64,f32)``; no brackets: any rank."""
    if match := re.fullmatch(r"(seq|opt)\((.*)\)", text):
        make = helper.make_sequence_type_proto if match[1] == "seq" else helper.make_optional_type_proto
        return make(parse_type(match[2]))
    if match := re.fullmatch(r"map\((\w+),(.*)\)", text):
        return helper.make_map_type_proto(_DTYPES[match[1]], parse_type(match[2]))
    dtype, shape, _ = _split(text)
    return helper.make_tensor_type_proto(_DTYPES[dtype], shape)


def _split(text: str) -> tuple[str, list[int | str | None] | None, str]:
    match = re.fullmatch(r"(\w+)(?:\[(.*)\](.*))?", text)
    if match is None:
        raise ValueError(f"not a type: {text!r}")
    if match[2] is None:
        return match[1], None, ""
    dims = [None if d == "?" else int(d) if d.isdigit() else d for d in match[2].split(",") if d]
    return match[1], dims, match[3]


def _sample(text: str, rng: np.random.Generator) -> Any:
    if match := re.fullmatch(r"(seq|opt)\((.*)\)", text):
        return [_sample(match[2], rng) for _ in range(3)] if match[1] == "seq" else _sample(match[2], rng)
    if text.startswith("map("):
        return {key: float(rng.normal()) for key in range(3)}
    dtype, dims, suffix = _split(text)
    shape = tuple(d if isinstance(d, int) else 2 for d in dims or ())
    if dtype == "s":
        return np.array(rng.choice(_WORDS, shape), dtype=object)
    if dtype == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    target = helper.tensor_dtype_to_np_dtype(_DTYPES[dtype])
    if target.kind in "iu":
        low, high = {"<": (0, int(suffix[1:] or 0)), "^": (1, 8)}.get(
            suffix[:1], (0 if target.kind == "u" else -9, 100)
        )
        return np.asarray(rng.integers(low, high, shape)).astype(target)
    values = {
        "": lambda: rng.normal(size=shape),
        "<": lambda: np.floor(rng.uniform(0, float(suffix[1:]), shape)) if suffix != "<1" else rng.uniform(0, 1, shape),
        "+": lambda: rng.uniform(0.5, 2, shape),
        "|": lambda: rng.uniform(-0.9, 0.9, shape),
        "^": lambda: rng.uniform(1, 3, shape),
        "*": lambda: rng.normal(scale=30, size=shape),
        "!": lambda: rng.choice([np.nan, np.inf, -np.inf, -0.0, 1.5], shape),
        "~": lambda: np.sort(rng.uniform(0, 4, shape), -1),
    }[suffix[:1]]()
    return np.asarray(values).astype(target)


def _model_id(schema: OpSchema) -> str:
    return f"{schema.domain or 'ai.onnx'}-{schema.name}-{schema.since_version}"


def _case_of(model_id: str) -> Case:
    _, op, version = model_id.rsplit("-", 2)
    versions = CASES[op]
    return versions[max(v for v in versions if v <= int(version))]


def _versions(schema: OpSchema, case: Case) -> tuple[int, dict[str, int]]:
    """The IR version and opset imports.

    For the default domain: the schema's own opset; elsewhere: those of onnx's latest release with this version.
    """
    if schema.domain == "ai.onnx.preview":
        return 13, {"": case.opset, schema.domain: schema.since_version}
    version = schema.since_version
    if schema.domain == "":
        ir_version = next(row[1] for row in helper.VERSION_TABLE if row[2] >= version)
        return ir_version, {"": version}
    column = _COLUMNS[schema.domain]
    _, ir_version, opset, *_ = [row for row in helper.VERSION_TABLE if len(row) > column and row[column] == version][-1]
    return ir_version, {"": opset, schema.domain: version}


def _model(schema: OpSchema) -> ModelProto:
    model_id = _model_id(schema)
    case = _case_of(model_id)
    ir_version, opsets = _versions(schema, case)
    names: list[str] = []
    inputs: list[ValueInfoProto] = []
    initializers: list[TensorProto] = []
    for position, item in enumerate(case.inputs):
        name = f"x{position}"
        names.append("" if item is None else name)
        if isinstance(item, str):
            inputs.append(helper.make_value_info(name, parse_type(item)))
        elif item is not None:
            initializers.append(numpy_helper.from_array(item, name))
            if ir_version < 4:
                inputs.append(helper.make_tensor_value_info(name, initializers[-1].data_type, item.shape))
    inputs += [helper.make_value_info(f"c{i}", parse_type(text)) for i, text in enumerate(case.captures)]
    required = [o for o in schema.outputs if o.option != OpSchema.FormalParameterOption.Optional]
    outputs = [f"y{i}" for i in range(case.outputs or len(required))]
    attributes = dict(case.attributes)
    if "consumed_inputs" in schema.attributes and "consumed_inputs" not in attributes:
        attributes["consumed_inputs"] = [0] * len(names)
    if "output_sequence" in attributes and "output_sequence" not in schema.attributes:
        del attributes["output_sequence"]
    node = helper.make_node(schema.name, names, outputs, name=f"the {schema.name}", domain=schema.domain, **attributes)
    graph = helper.make_graph(
        [*case.helpers, node], model_id, inputs, [ValueInfoProto(name=o) for o in outputs], initializers
    )
    model = helper.make_model(
        graph, ir_version=ir_version, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()]
    )
    inferred = {v.name: v.type for v in onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output}
    for position, value in enumerate(model.graph.output):
        value.type.CopyFrom(_output_type(case, position, inferred[value.name]))
    return model


def _output_type(case: Case, position: int, inferred: TypeProto) -> TypeProto:
    """What the case says, else the inferred type where it is complete, else the type of the first input."""
    if case.types:
        return parse_type(case.types[position])
    kind = inferred.WhichOneof("value")
    if kind is not None and (kind != "tensor_type" or inferred.tensor_type.HasField("shape")):
        return inferred
    first = next((item for item in case.inputs if isinstance(item, str)), None)
    if first is None:
        raise ValueError(f"output {position} needs a type in its case")
    return parse_type(first)
