"""Features of data and fields that the official suite lacks: tensors, types, attributes, metadata.

Collected by ``features``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorProto,
    TrainingInfoProto,
    TypeProto,
    helper,
    numpy_helper,
)

from .build import graph_of, model_of, node, tensor_value

# Elements that fill whole bytes, by the number of bits of one.
_BITS = {
    8: ("UINT8", "INT8", "BOOL", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0"),
    16: ("UINT16", "INT16", "FLOAT16", "BFLOAT16"),
    32: ("FLOAT", "INT32", "UINT32"),
    64: ("DOUBLE", "INT64", "UINT64", "COMPLEX64"),
    128: ("COMPLEX128",),
}
# Elements packed below a byte.
_PACKED = {2: ("UINT2", "INT2"), 4: ("UINT4", "INT4", "FLOAT4E2M1"), 6: ("FLOAT6E2M3", "FLOAT6E3M2")}


def _dtypes() -> list[tuple[str, int]]:
    return [(name, bits) for table in (_BITS, _PACKED) for bits, names in table.items() for name in names]


def _raw_bytes(name: str, bits: int, count: int) -> bytes:
    """Arbitrary bits for ``count`` elements; the padding bits of the last byte are 0, a bool is 0 or 1."""
    data = np.random.default_rng(bits).integers(0, 256, (count * bits + 7) // 8, np.uint8)
    if name == "BOOL":
        data &= 1
    if tail := count * bits % 8:
        data[-1] &= (1 << tail) - 1
    return data.tobytes()


def _typed_field(name: str, raw: bytes, count: int, bits: int) -> tuple[str, list[Any]]:
    """The typed field that holds what ``raw`` holds, and its entries, by the rules of onnx.proto."""
    if name in ("FLOAT", "COMPLEX64"):
        return "float_data", np.frombuffer(raw, np.float32).tolist()
    if name in ("DOUBLE", "COMPLEX128"):
        return "double_data", np.frombuffer(raw, np.float64).tolist()
    if name == "INT64":
        return "int64_data", np.frombuffer(raw, np.int64).tolist()
    if name in ("UINT64", "UINT32"):
        return "uint64_data", np.frombuffer(raw, np.dtype(name.lower())).tolist()
    if name in ("INT8", "INT16", "INT32"):
        return "int32_data", np.frombuffer(raw, np.dtype(name.lower())).tolist()
    if bits == 6:  # one element in each entry, where the raw form is a stream of bits
        stream = int.from_bytes(raw, "little")
        return "int32_data", [stream >> 6 * i & 0x3F for i in range(count)]
    return "int32_data", np.frombuffer(raw, np.uint16 if bits == 16 else np.uint8).tolist()


def _initializers_model(tensors: Sequence[TensorProto], ir_version: int = 14, opset: int = 28) -> ModelProto:
    """A model whose outputs are its initializers, beside one computed value."""
    outputs = [tensor_value(t.name, list(t.dims), t.data_type) for t in tensors]
    return model_of(
        [node("Neg", ["x"], ["y"])],
        [tensor_value("x", [3])],
        [*outputs, tensor_value("y", [3])],
        tensors,
        opset=opset,
        ir_version=ir_version,
    )


# Tensors


def feature_every_dtype_raw() -> ModelProto:
    """Every dtype with an odd count of elements of arbitrary bits, as raw data."""
    tensors = [
        TensorProto(name=name, dims=[5], data_type=TensorProto.DataType.Value(name), raw_data=_raw_bytes(name, bits, 5))
        for name, bits in _dtypes()
    ]
    return _initializers_model(tensors)


def feature_every_dtype_typed() -> ModelProto:
    """Every dtype with an odd count of elements, in its typed field."""
    tensors = []
    for name, bits in _dtypes():
        tensor = TensorProto(name=name, dims=[1, 7], data_type=TensorProto.DataType.Value(name))
        field, entries = _typed_field(name, _raw_bytes(name, bits, 7), 7, bits)
        getattr(tensor, field).extend(entries)
        tensors.append(tensor)
    tensors.append(helper.make_tensor("STRING", TensorProto.STRING, [3], [b"a", b"", "é".encode()]))
    return _initializers_model(tensors)


def feature_float_bits() -> ModelProto:
    """Signed zeros, infinities, subnormals, quiet NaNs with payloads and signalling NaNs, in three widths."""
    patterns = {
        "f16": ("<H", TensorProto.FLOAT16, (0x8000, 0x7C00, 0xFC00, 0x0001, 0x7E00, 0xFE01, 0x7C01, 0xFDFF)),
        "f32": (
            "<I",
            TensorProto.FLOAT,
            (1 << 31, 0x7F800000, 0xFF800000, 1, 0x7FC00000, 0xFFC12345, 0x7F800001, 0xFFBFFFFF),
        ),
        "f64": (
            "<Q",
            TensorProto.DOUBLE,
            (
                1 << 63,
                0x7FF << 52,
                0xFFF << 52,
                1,
                0x7FF8 << 48,
                0xFFF8_0000_1234_5678,
                (0x7FF << 52) + 1,
                0xFFF7 << 48,
            ),
        ),
    }
    tensors = []
    for name, (code, dtype, words) in patterns.items():
        raw = b"".join(struct.pack(code, word) for word in words)
        tensors.append(TensorProto(name=name, dims=[len(words)], data_type=dtype, raw_data=raw))
    return _initializers_model(tensors)


def feature_zeros_of_both_signs() -> ModelProto:
    """Initializers that compare equal but differ in bits, each used."""
    return model_of(
        [node("Div", ["x", "plus"], ["a"]), node("Div", ["x", "minus"], ["b"])],
        [tensor_value("x", [3])],
        [tensor_value("a", [3]), tensor_value("b", [3])],
        [numpy_helper.from_array(np.full(3, v, np.float32), n) for n, v in (("plus", 0.0), ("minus", -0.0))],
    )


def feature_empty_and_scalar_initializers() -> ModelProto:
    """Zero-size initializers of several shapes, and scalars, in both forms."""
    tensors = [
        numpy_helper.from_array(np.zeros((0,), np.float32), "empty"),
        numpy_helper.from_array(np.zeros((2, 0, 3), np.int64), "empty_inner"),
        TensorProto(name="empty_typed", dims=[0, 4], data_type=TensorProto.FLOAT),
        TensorProto(name="empty_strings", dims=[0], data_type=TensorProto.STRING),
        numpy_helper.from_array(np.array(2.5, np.float32), "scalar"),
        helper.make_tensor("scalar_typed", TensorProto.INT64, [], [-7]),
        helper.make_tensor("scalar_string", TensorProto.STRING, [], [b"s"]),
        numpy_helper.from_array(np.array([[[1.5]]], np.float64), "ones"),
    ]
    return _initializers_model(tensors, 10, 21)


def feature_strings() -> ModelProto:
    """String tensors: empty, non-ASCII, and one whose bytes are not UTF-8."""
    words = [b"", b"plain", "é日本".encode(), b"\xff\xfe\x00bytes", b'quo"te\\', b"line\nfeed"]
    return model_of(
        [node("StringConcat", ["x", "words"], ["y"]), node("Identity", ["words"], ["z"])],
        [tensor_value("x", [6], TensorProto.STRING)],
        [tensor_value("y", [6], TensorProto.STRING), tensor_value("z", [6], TensorProto.STRING)],
        [helper.make_tensor("words", TensorProto.STRING, [6], words)],
    )


def feature_tensor_fields() -> ModelProto:
    """Documentation and metadata on an initializer."""
    tensor = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    tensor.doc_string = "a weight"
    tensor.metadata_props.append(StringStringEntryProto(key="origin", value="training"))
    return model_of([node("Add", ["x", "w"], ["y"])], [tensor_value("x", [3])], [tensor_value("y", [3])], [tensor])


def _sparse(name: str, dims: Sequence[int], values: Sequence[float], indices: Sequence[Any]) -> SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), name),
        numpy_helper.from_array(np.array(indices, np.int64), f"{name}_indices"),
        dims,
    )


def feature_sparse_initializers() -> ModelProto:
    """Sparse initializers with linear and with coordinate indices."""
    model = model_of(
        [node("Add", ["x", "linear"], ["t"]), node("Mul", ["t", "coordinates"], ["y"])],
        [tensor_value("x", [2, 3])],
        [tensor_value("y", [2, 3])],
    )
    model.graph.sparse_initializer.append(_sparse("linear", [2, 3], [1.5, -2], [1, 5]))
    model.graph.sparse_initializer.append(_sparse("coordinates", [2, 3], [0.5, 4, -1], [[0, 0], [0, 2], [1, 1]]))
    return model


def feature_sparse_constant() -> ModelProto:
    """A Constant with a sparse value."""
    return model_of(
        [node("Constant", [], ["c"], sparse_value=_sparse("", [4], [1.5, -2], [1, 3])), node("Add", ["x", "c"], ["y"])],
        [tensor_value("x", [4])],
        [tensor_value("y", [4])],
    )


def feature_constant_forms() -> ModelProto:
    """A Constant in each of its value forms."""
    forms: dict[str, tuple[Any, int, list[int]]] = {
        "value": (numpy_helper.from_array(np.array([1, 2], np.int8)), TensorProto.INT8, [2]),
        "value_float": (1.5, TensorProto.FLOAT, []),
        "value_floats": ([1.5, -2.5, 0.1], TensorProto.FLOAT, [3]),
        "value_int": (-3, TensorProto.INT64, []),
        "value_ints": ([1, 2, 3, 4], TensorProto.INT64, [4]),
        "value_string": ("é", TensorProto.STRING, []),
        "value_strings": (["a", ""], TensorProto.STRING, [2]),
    }
    nodes = [node("Constant", [], [name], **{name: value}) for name, (value, _, _) in forms.items()]
    return model_of(nodes, [], [tensor_value(name, shape, dtype) for name, (_, dtype, shape) in forms.items()])


# Types


def _type_value(name: str, kind: TypeProto) -> Any:
    return helper.make_value_info(name, kind)


def feature_sequence_signature() -> ModelProto:
    """Sequences as input and output, with a symbolic dim, and a sequence of strings."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 2]))
    words = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.STRING, [2]))
    return model_of(
        [node("SequenceInsert", ["s", "x"], ["t"]), node("Identity", ["w"], ["v"])],
        [_type_value("s", kind), tensor_value("x", ["n", 2]), _type_value("w", words)],
        [_type_value("t", kind), _type_value("v", words)],
    )


def feature_optional_signature() -> ModelProto:
    """Optionals of a tensor and of a sequence as inputs, a presence as output."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    sequence = helper.make_sequence_type_proto(tensor)
    return model_of(
        [
            node("OptionalGetElement", ["o"], ["y"]),
            node("OptionalGetElement", ["q"], ["s"]),
            node("OptionalHasElement", ["o"], ["has"]),
        ],
        [
            _type_value("o", helper.make_optional_type_proto(tensor)),
            _type_value("q", helper.make_optional_type_proto(sequence)),
        ],
        [tensor_value("y", [2]), _type_value("s", sequence), tensor_value("has", [], TensorProto.BOOL)],
    )


def feature_map_signature() -> ModelProto:
    """A map as input, and a sequence of maps as output."""
    scalar = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    words = helper.make_map_type_proto(TensorProto.STRING, scalar)
    scores = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, scalar))
    return model_of(
        [
            node("DictVectorizer", ["m"], ["row"], domain="ai.onnx.ml", string_vocabulary=["a", "é"]),
            node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[3, 5]),
        ],
        [_type_value("m", words), tensor_value("x", [2, 2])],
        [tensor_value("row", [1, 2]), _type_value("z", scores)],
        opset=15,
        ir_version=8,
        imports={"ai.onnx.ml": 1},
    )


def feature_other_type_protos() -> ModelProto:
    """Sparse tensor and opaque types on values that only an unknown op touches."""
    sparse = helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [3, "k"])
    opaque = TypeProto(denotation="thing")
    opaque.opaque_type.domain, opaque.opaque_type.name = "com.example", "Handle"
    return model_of(
        [node("Use", ["s", "h"], ["y", "g"], domain="com.example")],
        [_type_value("s", sparse), _type_value("h", opaque)],
        [tensor_value("y", [3]), _type_value("g", opaque)],
        imports={"com.example": 1},
    )


def feature_unknown_rank() -> ModelProto:
    """Inputs and outputs of unknown rank."""
    return model_of([node("Add", ["x", "x"], ["y"])], [tensor_value("x", None)], [tensor_value("y", None)])


# Ops of other domains, and their attributes


def feature_unknown_domain() -> ModelProto:
    """An op of a domain that nobody knows, with omitted operands, between standard ops."""
    return model_of(
        [
            node("Exp", ["x"], ["a"]),
            node("Mystery", ["a", "", "x"], ["b", "", "c"], domain="com.example.unknown", name="what"),
            node("Add", ["b", "c"], ["y"]),
        ],
        [tensor_value("x", [3])],
        [tensor_value("y", [3])],
        imports={"com.example.unknown": 7},
    )


def _attribute_graph(name: str) -> GraphProto:
    return graph_of([node("Neg", ["x"], [f"{name}_y"])], [], [tensor_value(f"{name}_y", [3])], name=name)


def feature_every_attribute_kind() -> ModelProto:
    """Each kind of attribute on an op of an unknown domain, empty lists, documented and odd-named attributes."""
    tensor = numpy_helper.from_array(np.array([1.5, -0.0], np.float32), "t")
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, "n"])
    sparse = _sparse("", [4], [1.5], [2])
    mystery = node(
        "Mystery",
        ["x"],
        ["y"],
        domain="com.example.unknown",
        a_float=0.1,
        a_int=-(2**63),
        a_string=b"\xff\x00",
        a_tensor=tensor,
        a_graph=_attribute_graph("one"),
        a_sparse=sparse,
        a_type=kind,
        floats=[0.1, float("inf"), -0.0],
        ints=[1, 2**63 - 1],
        strings=["é", b"\xfe", ""],
        tensors=[tensor, tensor],
        graphs=[_attribute_graph("two"), _attribute_graph("three")],
        sparse_tensors=[sparse],
        types=[kind, helper.make_sequence_type_proto(kind)],
    )
    for name, attribute_kind in (("no_ints", AttributeProto.INTS), ("no_strings", AttributeProto.STRINGS)):
        mystery.attribute.append(AttributeProto(name=name, type=attribute_kind))
    # The field f on the wire: a Python float would not keep the payload of a NaN.
    nan = AttributeProto.FromString(b"\x15" + struct.pack("<I", 0x7FC12345))
    nan.MergeFrom(AttributeProto(name="nan payload", type=AttributeProto.FLOAT, doc_string="what a name"))
    mystery.attribute.append(nan)
    return model_of([mystery], [tensor_value("x", [3])], [tensor_value("y", [3])], imports={"com.example.unknown": 1})


def feature_microsoft_op() -> ModelProto:
    """An op of onnxruntime's own domain."""
    return model_of(
        [node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=0.5, transB=1)],
        [tensor_value("a", [2, 3]), tensor_value("b", [4, 3])],
        [tensor_value("y", [2, 4])],
        imports={"com.microsoft": 1},
    )


# Fields that say something about the model


def _entries(*pairs: tuple[str, str]) -> list[StringStringEntryProto]:
    return [StringStringEntryProto(key=key, value=value) for key, value in pairs]


def feature_metadata_everywhere() -> ModelProto:
    """Metadata and documentation on model, graph, node, function, value infos, inputs and in a subgraph."""
    branch = graph_of([node("Exp", ["x"], ["then"], doc_string="in a branch")], [], [tensor_value("then", [3])])
    other = graph_of([node("Twice", ["x"], ["else"], domain="local")], [], [tensor_value("else", [3])])
    for item in (branch, branch.node[0]):
        item.metadata_props.extend(_entries(("depth", "1")))
    function = helper.make_function(
        "local", "Twice", ["v"], ["w"], [node("Add", ["v", "v"], ["w"])], [helper.make_opsetid("", 21)]
    )
    function.doc_string = "twice the argument"
    function.value_info.append(tensor_value("w", [3]))
    function.metadata_props.extend(_entries(("kind", "function")))
    function.node[0].metadata_props.extend(_entries(("kind", "node of a function")))
    model = model_of(
        [node("If", ["c"], ["t"], then_branch=branch, else_branch=other), node("Neg", ["t"], ["y"], name="last")],
        [tensor_value("x", [3]), tensor_value("c", [], TensorProto.BOOL)],
        [tensor_value("y", [3])],
        imports={"local": 1},
        functions=[function],
        producer_name="a producer é",
        producer_version="1.2.3-rc",
        domain="org.example.models",
        model_version=2**40,
        doc_string="a model\nin two lines",
    )
    graph = model.graph
    graph.doc_string = "a graph"
    graph.value_info.append(tensor_value("t", [3]))
    for number, item in enumerate((*graph.node, *graph.input, *graph.output, *graph.value_info)):
        item.doc_string = f"item {number}"
        item.metadata_props.extend(_entries(("number", str(number)), ("empty", ""), ("é", "日本")))
    graph.metadata_props.extend(_entries(("b", "2"), ("a", "1")))
    model.metadata_props.extend(_entries(("z", "last"), ("a", "first")))
    return model


def feature_value_info() -> ModelProto:
    """Declared types of intermediate values: known, symbolic, of a captured value, and of no value at all."""
    model = model_of(
        [node("Exp", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Abs", ["b"], ["y"])],
        [tensor_value("x", ["n", 3])],
        [tensor_value("y", ["n", 3])],
    )
    model.graph.value_info.extend(
        [tensor_value("b", ["n", 3]), tensor_value("a", None), tensor_value("stale", [1], TensorProto.INT8)]
    )
    return model


def feature_quantization_annotations() -> ModelProto:
    """Annotations that name the scale and zero point of values, one of them an input."""
    model = model_of(
        [node("Add", ["x", "w"], ["t"]), node("Relu", ["t"], ["y"])],
        [tensor_value("x", [3])],
        [tensor_value("y", [3])],
        [
            numpy_helper.from_array(np.arange(3, dtype=np.float32), "w"),
            numpy_helper.from_array(np.array(0.02, np.float32), "t_scale"),
            numpy_helper.from_array(np.array(3, np.uint8), "t_zero"),
        ],
    )
    for name in ("t", "x"):
        annotation = model.graph.quantization_annotation.add(tensor_name=name)
        annotation.quant_parameter_tensor_names.extend(
            _entries(("SCALE_TENSOR", "t_scale"), ("ZERO_POINT_TENSOR", "t_zero"))
        )
    return model


def feature_training_info() -> ModelProto:
    """Training information: an initialization, an algorithm, and their bindings."""
    model = model_of(
        [node("Mul", ["x", "w"], ["y"])],
        [tensor_value("x", [3])],
        [tensor_value("y", [3])],
        [numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")],
    )
    start = graph_of([node("Constant", [], ["w0"], value_floats=[0.5, 0.5, 0.5])], [], [tensor_value("w0", [3])])
    step = graph_of([node("Sub", ["w", "y"], ["w1"])], [], [tensor_value("w1", [3])])
    model.training_info.append(
        TrainingInfoProto(
            initialization=start,
            algorithm=step,
            initialization_binding=_entries(("w", "w0")),
            update_binding=_entries(("w", "w1")),
        )
    )
    return model


def feature_device_configurations() -> ModelProto:
    """Device configurations on the model and sharding on a node, of IR version 11."""
    sharded: NodeProto = node("MatMul", ["x", "w"], ["y"])
    model = model_of(
        [sharded],
        [tensor_value("x", ["n", 4])],
        [tensor_value("y", ["n", 2])],
        [numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(4, 2), "w")],
        ir_version=11,
    )
    model.configuration.add(name="two devices", num_devices=2, device=["cpu:0", "cpu:1"])
    placed = model.graph.node[0].device_configurations.add(configuration_id="two devices", pipeline_stage=1)
    spec = placed.sharding_spec.add(tensor_name="w", device=[0, -1])
    spec.index_to_device_group_map.add(key=-1, value=[0, 1])
    dim = spec.sharded_dim.add(axis=0)
    dim.simple_sharding.add(dim_value=4, num_shards=2)
    dim.simple_sharding.add(dim_param="n", num_shards=1)
    return model


def feature_every_opset_import() -> ModelProto:
    """Imports of domains that no node uses, in no order."""
    return model_of(
        [node("Neg", ["x"], ["y"])],
        [tensor_value("x", [3])],
        [tensor_value("y", [3])],
        imports={"zz.unused": 3, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1, "aa.unused": 1},
    )


def feature_explicit_default_domain() -> ModelProto:
    """The default domain under its other name, ``ai.onnx``, in imports and nodes."""
    model = model_of(
        [node("Neg", ["x"], ["a"], domain="ai.onnx"), node("Exp", ["a"], ["y"])],
        [tensor_value("x", [3])],
        [tensor_value("y", [3])],
    )
    model.opset_import[0].domain = "ai.onnx"
    return model
