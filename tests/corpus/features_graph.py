"""Features of graphs that the official suite lacks: functions, scopes, signatures, names. Collected by ``features``."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .build import from_text, graph_of, model_of, node, tensor_value

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


def _f32(name: str, *values: float) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.float32), name)


# Functions


def feature_function_attribute_reference() -> ModelProto:
    """One function called with two values of a required attribute."""
    return from_text(
        """
        agraph (float[2,3] x) => (float[2,3] y) {
            a = local.Leaky <slope = 0.5> (x)
            y = local.Leaky <slope = 0.25> (a)
        }
        <domain: "local", opset_import: ["" : 21]>
        Leaky <slope> (v) => (w) { w = LeakyRelu <alpha: float = @slope> (v) }
        """,
        imports={"local": 1},
    )


def feature_function_two_types() -> ModelProto:
    """One function called at float32 and at int64, with different ranks."""
    return from_text(
        """
        agraph (float[2,3] x, int64[4] n) => (float[2,3] y, int64[4] m) {
            y = local.Double (x)
            m = local.Double (n)
        }
        <domain: "local", opset_import: ["" : 21]>
        Double (v) => (w) { w = Add (v, v) }
        """,
        imports={"local": 1},
    )


def feature_function_attribute_defaults() -> ModelProto:
    """Attributes with defaults: taken, overridden, and one without a default beside them."""
    return from_text(
        """
        agraph (float[2,3,4] x) => (float[4,2,3] y, float[2,4,3] z) {
            y = local.Move <perm = [2, 0, 1], scale = 2.0> (x)
            z = local.Move <perm = [0, 2, 1]> (x)
        }
        <domain: "local", opset_import: ["" : 21]>
        Move <perm, scale: float = 0.5, label: string = "none", axes: ints = [1, 2]> (v) => (w) {
            s = Constant <value_float: float = @scale> ()
            t = Transpose <perm: ints = @perm> (v)
            w = Mul (t, s)
        }
        """,
        imports={"local": 1},
    )


def feature_function_calls_function() -> ModelProto:
    """Three functions deep, with an attribute handed down under another name."""
    return from_text(
        """
        agraph (float[2,3] x) => (float[2,3] y) { y = local.Outer <a = 0.25> (x) }
        <domain: "local", opset_import: ["" : 21, "local" : 1, "other" : 2]>
        Outer <a> (v) => (w) { t = other.Middle <b: float = @a> (v)  w = Neg (t) }
        <domain: "other", opset_import: ["" : 21, "local" : 1]>
        Middle <b> (v) => (w) { t = local.Inner <c: float = @b> (v)  w = Add (t, v) }
        <domain: "local", opset_import: ["" : 21]>
        Inner <c> (v) => (w) { w = Elu <alpha: float = @c> (v) }
        """,
        imports={"local": 1, "other": 2},
    )


def feature_function_overloads() -> ModelProto:
    """Two functions of one name, told apart by their overload."""
    model = from_text(
        """
        agraph (float[2,3] x) => (float[2,3] y) { a = local.Act (x)  y = local.Act (a) }
        <domain: "local", opset_import: ["" : 21]>
        Act (v) => (w) { w = Relu (v) }
        <domain: "local", opset_import: ["" : 21]>
        Act (v) => (w) { w = Neg (v) }
        """,
        imports={"local": 1},
    )
    for item, overload in zip((*model.graph.node, *model.functions), ("relu", "neg", "relu", "neg"), strict=True):
        item.overload = overload
    return model


def feature_function_with_subgraphs() -> ModelProto:
    """A function whose If captures the function's input and refers to its attribute inside a branch."""
    return from_text(
        """
        agraph (float[2,3] x, bool c) => (float[2,3] y) { y = local.Choose <slope = 0.125> (c, x) }
        <domain: "local", opset_import: ["" : 21]>
        Choose <slope> (cond, v) => (w) {
            w = If (cond) <
                then_branch = t () => (float[2,3] a) { a = LeakyRelu <alpha: float = @slope> (v) },
                else_branch = e () => (float[2,3] b) { b = Neg (v) }
            >
        }
        """,
        imports={"local": 1},
    )


def feature_function_optional_input() -> ModelProto:
    """A function called with fewer inputs than it has, and with an empty one."""
    return from_text(
        """
        agraph (float[2,3] x, float hi) => (float[2,3] y, float[2,3] z) {
            y = local.Cap (x)
            z = local.Cap (x, "", hi)
        }
        <domain: "local", opset_import: ["" : 21]>
        Cap (v, lo, hi) => (w) { w = Clip (v, lo, hi) }
        """,
        imports={"local": 1},
    )


def feature_function_unused_and_other_opset() -> ModelProto:
    """A function that nothing calls, and one that imports an older opset than the model."""
    return from_text(
        """
        agraph (float[2,3] x) => (float[2,3] y) { y = local.Old (x) }
        <domain: "local", opset_import: ["" : 20]>
        Old (v) => (w) { w = Gelu (v) }
        <domain: "local", opset_import: ["" : 21]>
        Unused (v) => (w) { w = Relu (v) }
        """,
        imports={"local": 1},
    )


def feature_function_shadows_standard_op() -> ModelProto:
    """A model-local function under the name of a standard op: the function is what is meant."""
    return from_text(
        """
        agraph (float[2,3] x) => (float[2,3] y) { y = Relu (x) }
        <domain: "", opset_import: ["" : 21]>
        Relu (v) => (w) { w = Neg (v) }
        """
    )


# Scopes


def feature_captures_two_levels() -> ModelProto:
    """A value of the graph, and one of the outer branch, used in the inner branch."""
    return from_text(
        """
        agraph (float[2,3] x, bool c, bool d) => (float[2,3] y) {
            k = Exp (x)
            y = If (c) <
                then_branch = t () => (float[2,3] a) {
                    m = Neg (x)
                    a = If (d) <
                        then_branch = tt () => (float[2,3] aa) { aa = Add (k, m) },
                        else_branch = te () => (float[2,3] ab) { ab = Sub (x, m) }
                    >
                },
                else_branch = e () => (float[2,3] b) { b = Identity (k) }
            >
        }
        """
    )


def feature_same_names_in_sibling_subgraphs() -> ModelProto:
    """Two branches that use one name for their own values."""
    return from_text(
        """
        agraph (float[2,3] x, bool c) => (float[2,3] y) {
            y = If (c) <
                then_branch = g () => (float[2,3] out) { t = Exp (x)  out = Neg (t) },
                else_branch = g () => (float[2,3] out) { t = Abs (x)  out = Sqrt (t) }
            >
        }
        """
    )


def feature_initializer_only_in_subgraph() -> ModelProto:
    """An initializer of the graph that only a branch uses."""
    return from_text(
        """
        agraph (float[3] x, bool c) => (float[3] y) <float[3] w = {1.5, -2.0, 3.0}> {
            y = If (c) <
                then_branch = t () => (float[3] a) { a = Mul (x, w) },
                else_branch = e () => (float[3] b) { b = Neg (x) }
            >
        }
        """
    )


def feature_subgraph_initializers() -> ModelProto:
    """Branches with initializers of their own; one is the branch's output itself; the names are equal in both."""
    then = graph_of([], [], [tensor_value("w", [3])], [_f32("w", 1.5, -2, 3)], "then")
    other = graph_of(
        [node("Add", ["x", "w"], ["b"])], [], [tensor_value("b", [3])], [_f32("w", 0.5, 0.25, -0.0)], "else"
    )
    return model_of(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [tensor_value("x", [3]), tensor_value("c", [], BOOL)],
        [tensor_value("y", [3])],
    )


def feature_branch_returns_captured_value() -> ModelProto:
    """A branch whose output is a value of the enclosing graph, through Identity, and one without any use of x."""
    return from_text(
        """
        agraph (float[3] x, bool c) => (float[3] y) {
            y = If (c) <
                then_branch = t () => (float[3] a) { a = Identity (x) },
                else_branch = e () => (float[3] b) { b = Constant <value = float[3] {1.0, 2.0, 3.0}> () }
            >
        }
        """
    )


def feature_loop_with_captures() -> ModelProto:
    """A Loop with a captured value, a carried one, a scan output, and a condition made in the body."""
    return from_text(
        """
        agraph (float[3] x, float[3] step, int64 n) => (float[3] last, float[m,3] all)
        <float limit = {100.0}, bool yes = {1}> {
            last, all = Loop (n, yes, x) <
                body = b (int64 i, bool going, float[3] v) => (bool go, float[3] v2, float[3] s) {
                    v2 = Add (v, step)
                    total = ReduceSum <keepdims = 0> (v2)
                    go = Less (total, limit)
                    s = Mul (v2, v2)
                }
            >
        }
        """
    )


def feature_scan_with_capture() -> ModelProto:
    """A Scan that reads its input backwards and captures a value."""
    return from_text(
        """
        agraph (float[3] s, float[5,3] xs, float[3] w) => (float[3] last, float[5,3] ys) {
            last, ys = Scan <num_scan_inputs = 1, scan_input_directions = [1],
                body = b (float[3] state, float[3] item) => (float[3] next, float[3] y) {
                    t = Mul (item, w)
                    next = Add (state, t)
                    y = Tanh (next)
                }
            > (s, xs)
        }
        """
    )


def feature_loop_over_sequence() -> ModelProto:
    """A Loop that carries a sequence."""
    return from_text(
        """
        agraph (float[2] x, int64 n) => (seq(float[2]) out) <bool yes = {1}> {
            empty = SequenceEmpty <dtype = 1> ()
            out = Loop (n, yes, empty) <
                body = b (int64 i, bool going, seq(float[2]) q) => (bool go, seq(float[2]) r) {
                    go = Identity (going)
                    r = SequenceInsert (q, x)
                }
            >
        }
        """
    )


def feature_untyped_values() -> ModelProto:
    """Outputs of branches, and of the graph, that declare no type at all."""
    model = from_text(
        """
        agraph (float[3] x, bool c) => (float[3] y) {
            y = If (c) <
                then_branch = t () => (float[3] a) { a = Exp (x) },
                else_branch = e () => (float[3] b) { b = Neg (x) }
            >
        }
        """
    )
    branches = [attribute.g for attribute in model.graph.node[0].attribute]
    for graph in (model.graph, *branches):
        graph.output[0].ClearField("type")
    return model


# Signatures


def feature_overridable_initializer() -> ModelProto:
    """An initializer that is also an input: a default the caller may replace, not a constant."""
    return model_of(
        [node("Mul", ["x", "w"], ["y"])],
        [tensor_value("x", [3]), tensor_value("w", [3])],
        [tensor_value("y", [3])],
        [_f32("w", 1.5, -2, 3)],
    )


def feature_ir3_initializers_listed() -> ModelProto:
    """IR version 3, where every initializer is listed as an input as well."""
    return model_of(
        [node("Mul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["y"])],
        [tensor_value("w", [3]), tensor_value("x", [3]), tensor_value("b", [3])],
        [tensor_value("y", [3])],
        [_f32("b", 0.5, 0.25, -0.125), _f32("w", 1.5, -2, 3)],
        opset=8,
        ir_version=3,
    )


def feature_unsorted_nodes() -> ModelProto:
    """Nodes listed in the reverse of their order."""
    model = feature_chain()
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def feature_chain() -> ModelProto:
    """A plain chain of named nodes, sorted."""
    return model_of(
        [
            node("Exp", ["x"], ["a"], name="first"),
            node("Neg", ["a"], ["b"], name="second"),
            node("Add", ["a", "b"], ["c"], name="third"),
            node("Abs", ["c"], ["y"], name="fourth"),
        ],
        [tensor_value("x", [2, 3])],
        [tensor_value("y", [2, 3])],
    )


def feature_unused_inputs() -> ModelProto:
    """Inputs and an initializer that nothing uses; the inputs are part of the signature."""
    return model_of(
        [node("Neg", ["x"], ["y"])],
        [tensor_value("before", [2], INT64), tensor_value("x", [3]), tensor_value("after", ["n"])],
        [tensor_value("y", [3])],
        [_f32("idle", 1, 2)],
    )


def feature_output_is_input() -> ModelProto:
    """An output that is an input itself, beside a computed one."""
    return model_of(
        [node("Neg", ["x"], ["y"])], [tensor_value("x", [3])], [tensor_value("x", [3]), tensor_value("y", [3])]
    )


def feature_output_is_initializer() -> ModelProto:
    """An output that is an initializer itself."""
    return model_of(
        [node("Neg", ["x"], ["y"])],
        [tensor_value("x", [3])],
        [tensor_value("w", [3]), tensor_value("y", [3])],
        [_f32("w", 1.5, -2, 3)],
    )


def feature_value_as_two_outputs() -> ModelProto:
    """One value as three outputs: directly, and through Identity twice."""
    return from_text(
        """
        agraph (float[3] x) => (float[3] copy, float[3] y, float[3] again) {
            y = Neg (x)
            copy = Identity (y)
            again = Identity (y)
        }
        """
    )


def feature_intermediate_is_output() -> ModelProto:
    """An output in the middle of a chain."""
    return from_text("agraph (float[3] x) => (float[3] z, float[3] m) { m = Exp (x)  t = Neg (m)  z = Abs (t) }")


def feature_no_inputs() -> ModelProto:
    """A graph without inputs."""
    return from_text(
        """
        agraph () => (float[2] y) {
            a = Constant <value = float[2] {1.0, 2.0}> ()
            y = Exp (a)
        }
        """
    )


def feature_empty_optional_inputs() -> ModelProto:
    """Optional inputs left out in the middle and at the end, also as explicit empty names."""
    return model_of(
        [
            node("Clip", ["x", "", "hi"], ["a"]),
            node("Clip", ["a", "", ""], ["b"]),
            node("Resize", ["b", "", "scales"], ["y"], mode="nearest"),
        ],
        [tensor_value("x", [1, 1, 2, 2]), tensor_value("hi", [])],
        [tensor_value("y", [1, 1, 4, 4])],
        [_f32("scales", 1, 1, 2, 2)],
    )


def feature_omitted_optional_outputs() -> ModelProto:
    """Optional outputs left out at the front, in the middle and at the end."""
    weights = [
        numpy_helper.from_array(np.linspace(-1, 1, int(np.prod(s)), dtype=np.float32).reshape(s), n)
        for n, s in (("w", (1, 16, 3)), ("r", (1, 16, 4)))
    ]
    return model_of(
        [
            node("LSTM", ["x", "w", "r"], ["", "", "c"], hidden_size=4),
            node("LSTM", ["x", "w", "r"], ["s", "", "d"], hidden_size=4),
            node("LSTM", ["x", "w", "r"], ["", "h", ""], hidden_size=4),
        ],
        [tensor_value("x", [5, 2, 3])],
        [tensor_value(n, s) for n, s in (("c", [1, 2, 4]), ("s", [5, 1, 2, 4]), ("d", [1, 2, 4]), ("h", [1, 2, 4]))],
        weights,
    )


def feature_variadic_repeated_operand() -> ModelProto:
    """A variadic op with one input, and one with the same input four times."""
    return from_text(
        "agraph (float[3] x) => (float[3] a, float[12] b) { a = Sum (x)  b = Concat <axis = 0> (x, x, x, x) }"
    )


# Names


def feature_odd_names() -> ModelProto:
    """Names that are no identifiers, and pairs that a printer might take for one another."""
    names = [
        "a/b:0",
        "1",
        "aé",
        "val_7",
        "val_7_1",
        "val_7_2",
        "0x",
        "%x",
        "with space",
        'quo"te',
        "back\\slash",
        "日本",
        "a.b-c$d",
    ]
    nodes = [node("Add", [a, b], [b + "'"], name=f"node {a}") for a, b in pairwise(names)]
    outputs = [tensor_value(n.output[0], [2]) for n in nodes]
    model = model_of(nodes, [tensor_value(n, [2]) for n in names], outputs)
    model.graph.name = 'a graph / with: odd "name" é'
    return model


def feature_duplicate_node_names() -> ModelProto:
    """Node names are not unique, and may be empty."""
    return model_of(
        [
            node("Neg", ["x"], ["a"], name="same"),
            node("Exp", ["a"], ["b"], name="same"),
            node("Abs", ["b"], ["y"]),
        ],
        [tensor_value("x", [3])],
        [tensor_value("y", [3])],
    )


def feature_sequential_like_names() -> ModelProto:
    """Value names such as an exporter numbers them, some of which look like the numbers of SSA values."""
    return model_of(
        [
            node("Neg", ["0"], ["2"]),
            node("Exp", ["2"], ["1"]),
            node("Add", ["1", "2"], ["10"]),
            node("Abs", ["10"], ["01"]),
        ],
        [tensor_value("0", [3])],
        [tensor_value("01", [3])],
    )


# Types of the signature


def feature_symbolic_dims() -> ModelProto:
    """One symbolic name in several inputs, an unknown dim, and an odd name."""
    return model_of(
        [node("MatMul", ["a", "b"], ["t"]), node("Add", ["t", "c"], ["y"])],
        [tensor_value("a", ["batch", "k"]), tensor_value("b", ["k", "n*2"]), tensor_value("c", [None, 1, 1])],
        [tensor_value("y", [None, "batch", "n*2"])],
    )


def feature_same_symbol_from_shape() -> ModelProto:
    """Shape arithmetic over symbolic dims: flatten all but the batch."""
    return from_text(
        """
        agraph (float[batch,seq,4] x) => (float[batch,flat] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] minus = {-1}> {
            shape = Shape (x)
            head = Slice (shape, zero, one)
            target = Concat <axis = 0> (head, minus)
            y = Reshape (x, target)
        }
        """
    )


def feature_denotations() -> ModelProto:
    """Dims and types with denotations."""
    image = helper.make_tensor_type_proto(
        TensorProto.FLOAT, ["N", 3, 4, 4], ["DATA_BATCH", "DATA_CHANNEL", "DATA_FEATURE", "DATA_FEATURE"]
    )
    image.denotation = "IMAGE"
    return model_of(
        [node("Relu", ["x"], ["y"])], [helper.make_value_info("x", image)], [tensor_value("y", ["N", 3, 4, 4])]
    )
