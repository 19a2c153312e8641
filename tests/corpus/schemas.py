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

DTYPES = {
    "f16": TensorProto.FLOAT16,
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
    "i8": TensorProto.INT8,
    "i16": TensorProto.INT16,
    "i32": TensorProto.INT32,
    "i64": TensorProto.INT64,
    "u8": TensorProto.UINT8,
    "u16": TensorProto.UINT16,
    "u32": TensorProto.UINT32,
    "u64": TensorProto.UINT64,
    "bf16": TensorProto.BFLOAT16,
    "c64": TensorProto.COMPLEX64,
    "c128": TensorProto.COMPLEX128,
    "i4": TensorProto.INT4,
    "u4": TensorProto.UINT4,
    "i2": TensorProto.INT2,
    "u2": TensorProto.UINT2,
    "f4e2m1": TensorProto.FLOAT4E2M1,
    "f6e2m3": TensorProto.FLOAT6E2M3,
    "f6e3m2": TensorProto.FLOAT6E3M2,
    "f8e4m3fn": TensorProto.FLOAT8E4M3FN,
    "f8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "f8e5m2": TensorProto.FLOAT8E5M2,
    "f8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
    "f8e8m0": TensorProto.FLOAT8E8M0,
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
        name = model_id(schema)
        yield name, model_of(schema, case_of(schema), name)


def feeds_for(model: ModelProto, seed: int) -> dict[str, Any]:
    """Valid feeds for the graph inputs of a model made by ``schema_models``: arrays, lists of arrays, or dicts.

    Indices stay in range, arguments of partial functions in their domain. Two seeds give different values.
    """
    domain, op, version = model.graph.name.rsplit("-", 2)
    schema = onnx.defs.get_schema(op, int(version), "" if domain == "ai.onnx" else domain)
    return feeds_of(case_of(schema), model.graph.name, seed)


def feeds_of(case: Case, name: str, seed: int) -> dict[str, Any]:
    """Valid feeds for the graph inputs that a case of this name has."""
    texts = {f"x{i}": text for i, text in enumerate(case.inputs) if isinstance(text, str)}
    texts |= {f"c{i}": text for i, text in enumerate(case.captures)}
    return {
        key: _sample(text, np.random.default_rng([seed, zlib.crc32(f"{name}/{key}".encode())]))
        for key, text in texts.items()
    }


def parse_type(text: str) -> TypeProto:
    """The type of an input text such as ``f32[2,n,?]``, ``seq(f32[2])`` or ``map(i64,f32)``; no brackets: any rank."""
    if match := re.fullmatch(r"(seq|opt)\((.*)\)", text):
        make = helper.make_sequence_type_proto if match[1] == "seq" else helper.make_optional_type_proto
        return make(parse_type(match[2]))
    if match := re.fullmatch(r"map\((\w+),(.*)\)", text):
        return helper.make_map_type_proto(DTYPES[match[1]], parse_type(match[2]))
    dtype, shape, _ = _split(text)
    return helper.make_tensor_type_proto(DTYPES[dtype], shape)


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
    if match := re.fullmatch(r"map\((\w+),(\w+)\)", text):
        keys: Any = _WORDS[:3] if match[1] == "s" else range(3)
        return {key: _sample(f"{match[2]}[]", rng).item() for key in keys}
    dtype, dims, suffix = _split(text)
    shape = tuple(d if isinstance(d, int) else 2 for d in dims or ())
    if dtype == "s":
        return np.array(rng.choice(_WORDS, shape), dtype=object)
    if dtype == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    target = helper.tensor_dtype_to_np_dtype(DTYPES[dtype])
    if match := re.fullmatch(r"([iu])(\d+)", dtype):
        bits, signed = int(match[2]), match[1] == "i"
        limit = 2 ** (bits - signed)
        default = (-9 if signed else 0, 100)
        low, high = {"<": (0, int(suffix[1:] or 0)), "^": (1, 8), "+": (1, 8)}.get(suffix[:1], default)
        return np.asarray(rng.integers(max(low, -limit), min(high, limit), shape)).astype(target)
    values = _numbers(suffix, shape, rng)
    if dtype.startswith("c"):
        values = values + 1j * _numbers(suffix, shape, rng)
    if dtype == "f8e8m0":
        values = np.exp2(np.round(values))
    return np.asarray(values).astype(target)


def _numbers(suffix: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
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
    return np.asarray(values)


def model_id(schema: OpSchema) -> str:
    """The id of the model of a schema: ``ai.onnx-Softmax-11``."""
    return f"{schema.domain or 'ai.onnx'}-{schema.name}-{schema.since_version}"


def case_of(schema: OpSchema) -> Case:
    """The case that a schema uses."""
    versions = CASES[schema.name]
    return versions[max(v for v in versions if v <= schema.since_version)]


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


def model_of(schema: OpSchema, case: Case, name: str) -> ModelProto:
    """The model of this name that makes the call of a case, at the opset of the schema."""
    ir_version, opsets = _versions(schema, case)
    names: list[str] = []
    inputs: list[ValueInfoProto] = []
    initializers: list[TensorProto] = []
    for position, item in enumerate(case.inputs):
        key = f"x{position}"
        names.append("" if item is None else key)
        if isinstance(item, str):
            inputs.append(helper.make_value_info(key, parse_type(item)))
        elif item is not None:
            initializers.append(numpy_helper.from_array(item, key))
            if ir_version < 4:
                inputs.append(helper.make_tensor_value_info(key, initializers[-1].data_type, item.shape))
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
        [*case.helpers, node], name, inputs, [ValueInfoProto(name=o) for o in outputs], initializers
    )
    model = helper.make_model(
        graph, ir_version=ir_version, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()]
    )
    inferred = {v.name: v.type for v in onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output}
    for position, value in enumerate(model.graph.output):
        if found := _output_type(case, position, inferred[value.name]):
            value.type.CopyFrom(found)
    return model


def _output_type(case: Case, position: int, inferred: TypeProto) -> TypeProto | None:
    """What the case says, else the inferred type where it is complete, else the type of the first input."""
    if case.types:
        return parse_type(case.types[position]) if case.types[position] else None
    kind = inferred.WhichOneof("value")
    if kind is not None and (kind != "tensor_type" or inferred.tensor_type.HasField("shape")):
        return inferred
    first = next((item for item in case.inputs if isinstance(item, str)), None)
    if first is None:
        raise ValueError(f"output {position} needs a type in its case")
    return parse_type(first)
