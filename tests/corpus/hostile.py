"""Files that are broken, deep or explosive. Each has a name that says what is wrong with it.

* ``malformed``: must be refused by one typed error that says where.
* ``deep``: valid but deeply nested; must be handled, or refused by one typed error; never a crash.
* ``bombs``: small and valid; loading, printing and optimizing must stay small, running stops at its budget.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    helper,
    numpy_helper,
)

from .build import graph_of, model_of, node, tensor_value

__all__ = ["BEYOND_THE_CHECKER", "bombs", "deep", "function_chain", "malformed", "nested_if"]

# Malformed files that onnx's own checker lets through.
BEYOND_THE_CHECKER = frozenset(
    {
        "attribute_reference_outside_a_function",
        "attribute_reference_to_nothing",
        "function_call_with_too_many_inputs",
        "function_call_with_too_many_outputs",
        "function_calls_what_is_not_there",
        "function_with_unmade_output",
        "opset_999",
        "opset_imported_twice",
        "raw_data_too_long",
        "tensor_segment",
        "typed_data_too_long",
        "unknown_dtype",
        "value_beyond_its_dtype",
    }
)

BOOL, FLOAT, INT64 = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64


def malformed() -> Iterator[tuple[str, bytes]]:
    """``(what is wrong, the file)``."""
    yield from _not_models()
    yield from _truncated()
    for name, model in (*_bad_tensors(), *_bad_graphs(), *_bad_functions(), *_bad_attributes(), *_bad_versions()):
        yield name, model.SerializePartialToString()


def deep() -> Iterator[tuple[str, bytes]]:
    """``(what is deep, the file)``. An If nested 32 deep can be written by protobuf, but not read back."""
    for depth in (19, 32, 60):
        yield f"if_nested_{depth}", nested_if(depth).SerializeToString()
    yield "function_chain_3000", function_chain(3000).SerializeToString()
    yield "chain_of_20000_nodes", _chain(20_000).SerializeToString()
    yield "sequence_type_nested_40", _nested_type(40).SerializeToString()


def bombs() -> Iterator[tuple[str, ModelProto]]:
    """``(which op explodes, the model)``: a few hundred bytes that ask for gigabytes, or for ever."""
    huge, side = 10**10, 10**5
    one = _f32([1.0])
    fill = _tensor("n", _i64(side, side))
    yield "tile", _bomb("Tile", one, _i64(huge))
    yield "expand", _bomb("Expand", one, _i64(huge))
    yield "constant_of_shape", _bomb("ConstantOfShape", _i64(side, side), rank=2)
    yield "constant_of_shape_overflow", _bomb("ConstantOfShape", _i64(2**32, 2**32), rank=2)
    yield "range", _bomb("Range", _f32(0.0), _f32(1e10), _f32(1.0))
    yield "range_without_end", _bomb("Range", _f32(0.0), _f32(np.inf), _f32(1.0))
    yield "random_normal", model_of([node("RandomNormal", [], ["y"], shape=[side, side])], [], [_any("y", 2)])
    yield "one_hot", _bomb("OneHot", _i64(0, 1), np.array(huge), _f32([0.0, 1.0]), rank=2)
    eye = [node("ConstantOfShape", ["n"], ["z"]), node("EyeLike", ["z"], ["y"])]
    yield "eye_like", model_of(eye, [], [_any("y", 2)], [fill])
    yield "pad", _bomb("Pad", one, _i64(0, huge))
    yield "resize", _bomb("Resize", one.reshape(1, 1, 1, 1), None, None, _i64(1, 1, side, side), rank=4)
    yield "doubling_concat", _doubling(lambda a, b: node("Concat", [a, a], [b], axis=0), one)
    yield "doubling_string", _doubling(lambda a, b: node("StringConcat", [a, a], [b]), np.array(["ab"], dtype=object))
    yield "loop_without_end", _loop(None)
    yield "loop_of_many_steps", _loop(2**62)
    yield "loop_growing_value", _growing_loop()
    yield "functions_doubling", _doubling_functions(40)


def nested_if(depth: int) -> ModelProto:
    """An If inside an If, ``depth`` deep; the innermost branch negates x."""
    model = model_of([], [tensor_value("x", [2]), tensor_value("c", [], BOOL)], [tensor_value("y", [2])])
    graph = model.graph
    result = "y"
    # In place, from the outside in: copying a graph parses it, and the parser's own limit is what the depth is about.
    for level in range(depth):
        choice = graph.node.add(op_type="If", input=["c"], output=[result])
        then = choice.attribute.add(name="then_branch", type=AttributeProto.GRAPH)
        other = choice.attribute.add(name="else_branch", type=AttributeProto.GRAPH)
        other.g.CopyFrom(graph_of([node("Exp", ["x"], ["e"])], [], [tensor_value("e", [2])], name=f"else_{level}"))
        result = f"n{level}"
        then.g.name = f"then_{level}"
        then.g.output.append(tensor_value(result, [2]))
        graph = then.g
    graph.node.add(op_type="Neg", input=["x"], output=[result])
    return model


def function_chain(length: int) -> ModelProto:
    """Functions f0 to f(length - 1), each of which calls the next; the last negates. Valid, and not recursive."""
    functions = [_function(f"f{i}", "Neg" if i == length - 1 else f"f{i + 1}") for i in range(length)]
    return _calls("f0", functions)


# Parts


def _i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _f32(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def _tensor(name: str, array: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(array, name)


def _any(name: str, rank: int, dtype: int = FLOAT) -> Any:
    return tensor_value(name, [None] * rank, dtype)


def _bomb(op: str, *operands: np.ndarray | None, rank: int = 1) -> ModelProto:
    """One op over constants; ``rank`` is the result's."""
    constants = {f"k{i}": array for i, array in enumerate(operands) if array is not None}
    names = ["" if array is None else f"k{i}" for i, array in enumerate(operands)]
    return model_of([node(op, names, ["y"])], [], [_any("y", rank)], [_tensor(n, a) for n, a in constants.items()])


def _doubling(step: Callable[[str, str], NodeProto], start: np.ndarray, times: int = 40) -> ModelProto:
    nodes = [step(f"v{i}", f"v{i + 1}") for i in range(times)]
    dtype = helper.np_dtype_to_tensor_dtype(start.dtype)
    return model_of(nodes, [], [_any(f"v{times}", 1, dtype)], [_tensor("v0", start)])


def _loop(trips: int | None) -> ModelProto:
    body = graph_of(
        [node("Identity", ["going"], ["go"]), node("Add", ["v", "one"], ["w"])],
        [tensor_value("i", [], INT64), tensor_value("going", [], BOOL), tensor_value("v", [])],
        [tensor_value("go", [], BOOL), tensor_value("w", [])],
    )
    constants = [_tensor("yes", np.array(True)), _tensor("one", _f32(1.0)), _tensor("start", _f32(0.0))]
    if trips is not None:
        constants.append(_tensor("trips", np.array(trips, np.int64)))
    trip_name = "" if trips is None else "trips"
    return model_of(
        [node("Loop", [trip_name, "yes", "start"], ["y"], body=body)], [], [tensor_value("y", [])], constants
    )


def _growing_loop() -> ModelProto:
    body = graph_of(
        [node("Identity", ["going"], ["go"]), node("Concat", ["v", "v"], ["w"], axis=0)],
        [tensor_value("i", [], INT64), tensor_value("going", [], BOOL), tensor_value("v", [None])],
        [tensor_value("go", [], BOOL), tensor_value("w", [None])],
    )
    constants = [_tensor("trips", np.array(60)), _tensor("yes", np.array(True)), _tensor("start", _f32([1.0, 2.0]))]
    return model_of(
        [node("Loop", ["trips", "yes", "start"], ["y"], body=body)], [], [tensor_value("y", [None])], constants
    )


def _doubling_functions(levels: int) -> ModelProto:
    """Each function calls the next one twice: inlining makes 2**levels nodes."""
    functions = []
    for level in range(levels):
        callee, domain = (f"f{level + 1}", "local") if level + 1 < levels else ("Neg", "")
        nodes = [node(callee, ["v"], ["t"], domain=domain), node(callee, ["t"], ["w"], domain=domain)]
        functions.append(helper.make_function("local", f"f{level}", ["v"], ["w"], nodes, _imports(local=1)))
    return _calls("f0", functions)


def _imports(**others: int) -> list[Any]:
    return [helper.make_opsetid("", 21), *(helper.make_opsetid(d, v) for d, v in others.items())]


def _function(name: str, callee: str) -> FunctionProto:
    body = [node(callee, ["v"], ["w"], domain="" if callee == "Neg" else "local")]
    return helper.make_function("local", name, ["v"], ["w"], body, _imports(local=1))


def _calls(name: str, functions: Sequence[FunctionProto]) -> ModelProto:
    return model_of(
        [node(name, ["x"], ["y"], domain="local")],
        [tensor_value("x", [2])],
        [tensor_value("y", [2])],
        imports={"local": 1},
        functions=functions,
    )


def _chain(length: int) -> ModelProto:
    names = ["x", *(f"v{i}" for i in range(length - 1)), "y"]
    nodes = [node("Neg", [a], [b]) for a, b in pairwise(names)]
    return model_of(nodes, [tensor_value("x", [2])], [tensor_value("y", [2])])


def _nested_type(depth: int) -> ModelProto:
    """An unused input whose type is a sequence of sequences of ..."""
    kind = helper.make_tensor_type_proto(FLOAT, [2])
    for _ in range(depth):
        kind = helper.make_sequence_type_proto(kind)
    model = _good()
    model.graph.input.append(helper.make_value_info("unused", kind))
    return model


def _plain(*nodes: NodeProto, **fields: Any) -> ModelProto:
    """A model from x (float, [2]) to y with these nodes."""
    return model_of(nodes, [tensor_value("x", [2])], [tensor_value("y", [2])], **fields)


def _good() -> ModelProto:
    return _plain(node("Neg", ["x"], ["a"]), node("Exp", ["a"], ["y"]))


# Malformed


def _not_models() -> Iterator[tuple[str, bytes]]:
    yield "empty_file", b""
    yield "text", b"This is no model.\n" * 20
    yield (
        "onnx_text_syntax",
        b'<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Neg (x) }',
    )
    yield "random_bytes", np.random.default_rng(0).bytes(500)
    yield "zeros", bytes(300)
    yield "pickle", pickle.dumps({"graph": [1, 2, 3]})
    yield "zip_header", b"PK\x03\x04" + bytes(200)
    yield "html", b"<!DOCTYPE html><html><body>404 Not Found</body></html>"
    yield "a_tensor_instead", _tensor("t", _f32([1.0, 2.0])).SerializeToString()
    # A length-delimited field of 2**63 bytes, and a varint that never ends.
    yield "field_length_overflows", b"\x3a" + b"\xff" * 8 + b"\x7f"
    yield "varint_without_end", b"\x08" + b"\xff" * 40


def _truncated() -> Iterator[tuple[str, bytes]]:
    """Every cut is an error: the last field of the file is the opset import, without which a model means nothing."""
    data = _plain(node("Add", ["x", "w"], ["y"]), initializers=[_tensor("w", _f32([1.0, 2.0]))]).SerializeToString()
    for cut in sorted({*range(1, 12), *np.linspace(12, len(data) - 1, 30).astype(int).tolist()}):
        yield f"truncated_at_{cut}_of_{len(data)}", data[:cut]


def _with_tensor(**fields: Any) -> ModelProto:
    model = _plain(node("Identity", ["x"], ["y"]))
    model.graph.initializer.append(TensorProto(name="w", **fields))
    return model


def _bad_tensors() -> Iterator[tuple[str, ModelProto]]:
    yield "negative_dim", _with_tensor(dims=[-1], data_type=FLOAT, raw_data=bytes(4))
    yield "negative_dims_with_positive_product", _with_tensor(dims=[-2, -2], data_type=FLOAT, raw_data=bytes(16))
    yield "dims_product_overflows", _with_tensor(dims=[2**40, 2**40], data_type=FLOAT, raw_data=bytes(16))
    yield "dims_product_wraps_to_zero", _with_tensor(dims=[2**32, 2**32], data_type=FLOAT, raw_data=b"")
    yield "dims_product_wraps_to_two", _with_tensor(dims=[2**63 - 1, 2**63 - 1, 2], data_type=FLOAT, raw_data=bytes(8))
    yield "huge_tensor_without_data", _with_tensor(dims=[10**12], data_type=FLOAT)
    yield "raw_data_too_short", _with_tensor(dims=[3], data_type=FLOAT, raw_data=bytes(8))
    yield "raw_data_too_long", _with_tensor(dims=[3], data_type=FLOAT, raw_data=bytes(16))
    yield "raw_data_not_whole_elements", _with_tensor(dims=[1], data_type=FLOAT, raw_data=bytes(3))
    yield "packed_raw_data_too_short", _with_tensor(dims=[5], data_type=TensorProto.INT4, raw_data=bytes(2))
    yield "typed_data_too_short", _with_tensor(dims=[3], data_type=FLOAT, float_data=[1.0, 2.0])
    yield "typed_data_too_long", _with_tensor(dims=[1], data_type=FLOAT, float_data=[1.0, 2.0])
    yield (
        "complex_data_of_odd_count",
        _with_tensor(dims=[2], data_type=TensorProto.COMPLEX64, float_data=[1.0, 2.0, 3.0]),
    )
    yield "data_in_the_wrong_field", _with_tensor(dims=[2], data_type=FLOAT, int64_data=[1, 2])
    yield "data_in_two_fields", _with_tensor(dims=[2], data_type=FLOAT, float_data=[1.0, 2.0], raw_data=bytes(8))
    yield "strings_as_raw_data", _with_tensor(dims=[2], data_type=TensorProto.STRING, raw_data=b"ab")
    yield "string_count_wrong", _with_tensor(dims=[3], data_type=TensorProto.STRING, string_data=[b"a"])
    yield "undefined_dtype", _with_tensor(dims=[2], data_type=TensorProto.UNDEFINED, raw_data=bytes(8))
    yield "unknown_dtype", _with_tensor(dims=[2], data_type=99, raw_data=bytes(8))
    yield "value_beyond_its_dtype", _with_tensor(dims=[1], data_type=TensorProto.INT8, int32_data=[300])
    yield (
        "tensor_segment",
        _with_tensor(dims=[1], data_type=FLOAT, float_data=[1.0], segment=TensorProto.Segment(begin=0, end=1)),
    )
    model = _plain(node("Constant", [], ["y"], value=TensorProto(dims=[3], data_type=FLOAT, raw_data=bytes(8))))
    yield "constant_data_too_short", model
    for name, dims, indices, values in (
        ("sparse_index_out_of_range", [4], _i64(1, 9), _f32([1.0, 2.0])),
        ("sparse_index_negative", [4], _i64(-1, 1), _f32([1.0, 2.0])),
        ("sparse_indices_unsorted", [4], _i64(3, 1), _f32([1.0, 2.0])),
        ("sparse_index_twice", [4], _i64(1, 1), _f32([1.0, 2.0])),
        ("sparse_count_mismatch", [4], _i64(1, 2, 3), _f32([1.0, 2.0])),
        ("sparse_rank_mismatch", [4], _i64(0, 1, 0, 2).reshape(2, 2), _f32([1.0, 2.0])),
        ("sparse_dims_overflow", [2**40, 2**40], _i64(1, 2), _f32([1.0, 2.0])),
    ):
        model = _plain(node("Identity", ["x"], ["y"]))
        sparse = SparseTensorProto(dims=dims, values=_tensor("w", values), indices=_tensor("i", indices))
        model.graph.sparse_initializer.append(sparse)
        yield name, model


def _bad_graphs() -> Iterator[tuple[str, ModelProto]]:
    yield "missing_graph", ModelProto(ir_version=10, opset_import=_imports())
    yield "cycle", _plain(node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Exp", ["a"], ["y"]))
    yield "self_cycle", _plain(node("Add", ["x", "y"], ["y"]))
    yield "value_made_twice", _plain(node("Neg", ["x"], ["y"]), node("Exp", ["x"], ["y"]))
    yield "value_made_twice_by_one_node", _plain(node("Split", ["x"], ["y", "y"], num_outputs=2))
    yield "node_output_is_an_input_name", _plain(node("Neg", ["x"], ["x"]), node("Exp", ["x"], ["y"]))
    yield (
        "node_output_is_an_initializer_name",
        _plain(node("Neg", ["x"], ["w"]), node("Exp", ["w"], ["y"]), initializers=[_tensor("w", _f32([1.0, 2.0]))]),
    )
    yield "initializer_twice", _plain(node("Add", ["x", "w"], ["y"]), initializers=[_tensor("w", _f32([1.0, 2.0]))] * 2)
    yield "initializer_without_name", _plain(node("Neg", ["x"], ["y"]), initializers=[_tensor("", _f32([1.0]))])
    yield "input_twice", model_of([node("Neg", ["x"], ["y"])], [tensor_value("x", [2])] * 2, [tensor_value("y", [2])])
    yield "input_without_name", model_of([node("Neg", ["x"], ["y"])], [tensor_value("", [2])], [tensor_value("y", [2])])
    yield "undefined_input", _plain(node("Neg", ["nowhere"], ["y"]))
    yield "undefined_graph_output", _plain(node("Neg", ["x"], ["z"]))
    yield "required_input_omitted", _plain(node("Add", ["x", ""], ["y"]))
    branch = graph_of([node("Neg", ["nowhere"], ["t"])], [], [tensor_value("t", [2])])
    fine = graph_of([node("Neg", ["x"], ["e"])], [], [tensor_value("e", [2])])
    yield "undefined_input_in_a_branch", _if(branch, fine)
    sibling = graph_of([node("Exp", ["e"], ["t"])], [], [tensor_value("t", [2])])
    yield "value_of_the_other_branch", _if(sibling, fine)
    leak = _if(fine, graph_of([node("Exp", ["x"], ["t"])], [], [tensor_value("t", [2])]))
    leak.graph.node.append(node("Neg", ["e"], ["z"]))
    leak.graph.output.append(tensor_value("z", [2]))
    yield "value_of_a_branch_used_outside", leak
    yield "branches_of_unequal_count", _if(fine, graph_of([], [], []))
    empty = graph_of([], [], [tensor_value("nothing", [2])])
    yield "branch_output_undefined", _if(fine, empty)
    body = graph_of([node("Neg", ["v"], ["w"])], [tensor_value("v", [2])], [tensor_value("w", [2])])
    yield "loop_body_of_wrong_arity", _plain(node("Loop", ["", "", "x"], ["y"], body=body))
    yield "scan_inputs_beyond_operands", _plain(node("Scan", ["x"], ["y"], body=body, num_scan_inputs=7))
    yield "too_few_inputs", _plain(node("Add", ["x"], ["y"]))
    yield "too_many_inputs", _plain(node("Add", ["x", "x", "x"], ["y"]))
    yield "too_many_outputs", _plain(node("Neg", ["x"], ["y", "z"]))
    yield "no_op_type", _plain(node("", ["x"], ["y"]))
    yield "unknown_op", _plain(node("NoSuchOp", ["x"], ["y"]))
    yield (
        "unknown_op_of_a_known_domain",
        _plain(node("NoSuchOp", ["x"], ["y"], domain="ai.onnx.ml"), imports={"ai.onnx.ml": 3}),
    )
    yield (
        "operand_types_differ",
        model_of(
            [node("Add", ["x", "i"], ["y"])],
            [tensor_value("x", [2]), tensor_value("i", [2], INT64)],
            [tensor_value("y", [2])],
        ),
    )
    yield (
        "operand_type_not_allowed",
        model_of([node("Exp", ["i"], ["y"])], [tensor_value("i", [2], INT64)], [tensor_value("y", [2], INT64)]),
    )


def _if(then: GraphProto, other: GraphProto) -> ModelProto:
    return model_of(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [tensor_value("x", [2]), tensor_value("c", [], BOOL)],
        [tensor_value("y", [2])],
    )


def _bad_functions() -> Iterator[tuple[str, ModelProto]]:
    yield "function_calls_itself", _calls("f", [_function("f", "f")])
    yield "functions_call_each_other", _calls("f", [_function("f", "g"), _function("g", "f")])
    yield "function_twice", _calls("f", [_function("f", "Neg"), _function("f", "Neg")])
    yield "function_calls_what_is_not_there", _calls("f", [_function("f", "g")])
    undefined = helper.make_function("local", "f", ["v"], ["w"], [node("Neg", ["q"], ["w"])], _imports())
    yield "function_with_undefined_input", _calls("f", [undefined])
    unmade = helper.make_function("local", "f", ["v"], ["w"], [node("Neg", ["v"], ["q"])], _imports())
    yield "function_with_unmade_output", _calls("f", [unmade])
    call = _calls("f", [_function("f", "Neg")])
    call.graph.node[0].input.append("x")
    yield "function_call_with_too_many_inputs", call
    outputs = _calls("f", [_function("f", "Neg")])
    outputs.graph.node[0].output.append("more")
    yield "function_call_with_too_many_outputs", outputs
    no_import = _function("f", "Neg")
    del no_import.opset_import[:]
    yield "function_without_opset_import", _calls("f", [no_import])
    no_name = _function("f", "Neg")
    no_name.ClearField("name")
    yield "function_without_name", _calls("f", [no_name])
    captured = helper.make_function("local", "f", ["v"], ["w"], [node("Add", ["v", "x"], ["w"])], _imports())
    yield "function_that_reaches_into_its_caller", _calls("f", [captured])


def _bad_attributes() -> Iterator[tuple[str, ModelProto]]:
    yield "axis_as_float", _plain(node("Softmax", ["x"], ["y"], axis=0.5))
    yield "axis_as_ints", _plain(node("Softmax", ["x"], ["y"], axis=[0, 1]))
    yield "perm_as_string", _plain(node("Transpose", ["x"], ["y"], perm="10"))
    yield "cast_to_as_string", _plain(node("Cast", ["x"], ["y"], to="FLOAT"))
    yield (
        "branch_as_int",
        model_of(
            [node("If", ["c"], ["y"], then_branch=1, else_branch=2)],
            [tensor_value("c", [], BOOL)],
            [tensor_value("y", [2])],
        ),
    )
    yield "unknown_attribute", _plain(node("Neg", ["x"], ["y"], colour=3))
    yield "required_attribute_missing", _plain(node("Cast", ["x"], ["y"]))
    twice = node("Softmax", ["x"], ["y"], axis=0)
    twice.attribute.append(twice.attribute[0])
    yield "attribute_twice", _plain(twice)
    for name, attribute in (
        ("attribute_without_name", AttributeProto(type=AttributeProto.INT, i=0)),
        ("attribute_of_undefined_type", AttributeProto(name="axis", i=0)),
        ("attribute_of_unknown_type", AttributeProto(name="axis", i=0)),
        ("attribute_type_and_value_disagree", AttributeProto(name="axis", type=AttributeProto.INT, f=1.0)),
        ("attribute_without_value", AttributeProto(name="value", type=AttributeProto.TENSOR)),
        ("attribute_with_two_values", AttributeProto(name="axis", type=AttributeProto.INT, i=0, f=1.0)),
        (
            "attribute_reference_outside_a_function",
            AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="a"),
        ),
    ):
        softmax = node("Softmax", ["x"], ["y"])
        softmax.attribute.append(attribute)
        if name == "attribute_of_unknown_type":  # field 20, type, with the value 77
            softmax.attribute[0].MergeFromString(b"\xa0\x01\x4d")
        yield name, _plain(softmax)
    constant = node("Constant", [], ["y"], value_floats=[1.0, 2.0], value_int=3)
    yield "constant_with_two_values", _plain(constant)
    yield "constant_without_value", _plain(node("Constant", [], ["y"]))
    reference = node("Softmax", ["v"], ["w"])
    reference.attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="undeclared"))
    function = helper.make_function("local", "f", ["v"], ["w"], [reference], _imports())
    yield "attribute_reference_to_nothing", _calls("f", [function])


def _bad_versions() -> Iterator[tuple[str, ModelProto]]:
    for version in (0, -1, 999):
        model = _good()
        model.opset_import[0].version = version
        yield f"opset_{version}".replace("-", "minus_"), model
    for version in (0, -1, 999):
        model = _good()
        model.ir_version = version
        yield f"ir_version_{version}".replace("-", "minus_"), model
    model = _good()
    model.ClearField("ir_version")
    yield "ir_version_missing", model
    model = _good()
    del model.opset_import[:]
    yield "opset_import_missing", model
    model = _good()
    model.opset_import[0].ClearField("version")
    yield "opset_version_missing", model
    model = _good()
    model.opset_import.append(helper.make_opsetid("", 13))
    yield "opset_imported_twice", model
    yield "domain_not_imported", _plain(node("Mystery", ["x"], ["y"], domain="com.example"))
    yield "op_younger_than_its_opset", _plain(node("Gelu", ["x"], ["y"]), opset=11)
    yield "op_older_than_its_opset", _plain(node("Upsample", ["x", "x"], ["y"]))
    yield (
        "attribute_younger_than_its_opset",
        model_of(
            [node("Reshape", ["x", "s"], ["y"], allowzero=1)],
            [tensor_value("x", [2])],
            [tensor_value("y", [2])],
            [_tensor("s", _i64(2))],
            opset=12,
        ),
    )
