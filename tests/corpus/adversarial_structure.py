"""Cases about what is no constant, control flow, functions, size, shapes, opsets and names. See ``adversarial``."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .build import from_text, model_of, node, tensor_value

# What is no constant


def case_overridable_initializer() -> ModelProto:
    """A default that the caller may replace: not folded, the input stays."""
    model = from_text("g (float[2] x, float[2] w, float[2] v) => (float[2] y) { s = Add (w, v)  y = Mul (x, s) }")
    for name in ("w", "v"):
        model.graph.initializer.append(numpy_helper.from_array(np.array([1.5, -2], np.float32), name))
    return model


def case_overridable_shape() -> ModelProto:
    """The target of a Reshape is such a default: the result's shape is not known."""
    model = from_text("g (float[6] x, int64[2] s) => (float[rows,columns] y) { y = Reshape (x, s) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "s"))
    return model


def case_unused_inputs() -> ModelProto:
    """Inputs that nothing uses, one with a default: the signature stays as it is."""
    model = from_text("g (float[2] before, float[2] x, float[2] w) => (float[2] y) { y = Neg (x) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1.5, -2], np.float32), "w"))
    return model


def case_constant_value_forms() -> ModelProto:
    """value_float is float32, value_int is int64, whatever the host language has."""
    return from_text(
        """
        g (float[2] x, int64[2] i) => (float[2] y, int64[2] j, string s) {
            f = Constant <value_float = 0.1> ()
            n = Constant <value_int = 3> ()
            s = Constant <value_string = "text"> ()
            y = Mul (x, f)
            j = Mul (i, n)
        }
        """
    )


# Control flow and functions


def case_if_branch_initializer() -> ModelProto:
    """A constant condition: inlining the branch brings its initializer along, under a name that is still free."""
    branch = helper.make_graph(
        [node("Mul", ["x", "w"], ["p"])],
        "then",
        [],
        [tensor_value("p", [2])],
        [numpy_helper.from_array(np.array([10.0, 20.0], np.float32), "w")],
    )
    other = helper.make_graph([node("Neg", ["x"], ["q"])], "else", [], [tensor_value("q", [2])])
    return model_of(
        [
            node("If", ["yes"], ["t"], then_branch=branch, else_branch=other),
            node("Exp", ["x"], ["e"]),
            node("If", ["yes"], ["u"], then_branch=branch, else_branch=other),
            node("Add", ["u", "e"], ["y"]),
        ],
        [tensor_value("x", [2])],
        [tensor_value("t", [2]), tensor_value("y", [2])],
        [numpy_helper.from_array(np.array(True), "yes")],
    )


def case_if_constant_condition_with_captures() -> ModelProto:
    """Inlining a branch whose inner names also stand in the graph, after it."""
    return from_text(
        """
        g (float[2] x) => (float[2] y) <bool no = {0}> {
            k = Exp (x)
            r = If (no) <
                then_branch = a () => (float[2] p) { s = Neg (k)  p = Abs (s) },
                else_branch = b () => (float[2] q) { s = Add (k, x)  q = Sqrt (s) }
            >
            z = If (no) <
                then_branch = a () => (float[2] p) { s = Neg (r)  p = Abs (s) },
                else_branch = b () => (float[2] q) { s = Add (r, x)  q = Neg (s) }
            >
            y = Mul (z, k)
        }
        """
    )


def case_if_with_one_output_unused() -> ModelProto:
    """A result of an If that nothing uses: dropping it drops it in both branches."""
    return from_text(
        """
        g (float[2] x, bool c) => (float[2] y) {
            y, _dead = If (c) <
                then_branch = a () => (float[2] p, float[3] p2) {
                    p = Neg (x)
                    p2 = Constant <value = float[3] {1.0, 2.0, 3.0}> ()
                },
                else_branch = b () => (float[2] q, float[3] q2) {
                    q = Exp (x)
                    q2 = Constant <value = float[3] {3.0, 2.0, 1.0}> ()
                }
            >
        }
        """
    )


def case_initializer_only_in_branch() -> ModelProto:
    """An initializer of the graph that only a nested branch uses is not dead."""
    return from_text(
        """
        g (float[2] x, bool c, bool d) => (float[2] y) <float[2] w = {1.0, -2.0}> {
            y = If (c) <
                then_branch = a () => (float[2] p) {
                    p = If (d) <
                        then_branch = aa () => (float[2] r) { r = Mul (x, w) },
                        else_branch = ab () => (float[2] s) { s = Neg (x) }
                    >
                },
                else_branch = b () => (float[2] q) { q = Exp (x) }
            >
        }
        """
    )


def case_value_used_only_in_branch() -> ModelProto:
    """A node whose result only a branch captures is not dead."""
    return from_text(
        """
        g (float[2] x, bool c) => (float[2] y) {
            t = Exp (x)
            y = If (c) <
                then_branch = a () => (float[2] p) { p = Neg (t) },
                else_branch = b () => (float[2] q) { q = Identity (x) }
            >
        }
        """
    )


def case_dead_branch_divides_by_zero() -> ModelProto:
    """Folding inside a branch that is not taken must not raise; a run that takes it must."""
    return from_text(
        """
        g (int64[1] x, bool c) => (int64[1] y) <int64[1] one = {1}, int64[1] zero = {0}> {
            y = If (c) <
                then_branch = a () => (int64[1] p) { p = Div (one, zero) },
                else_branch = b () => (int64[1] q) { q = Add (x, one) }
            >
        }
        """
    )


def case_loop_with_captured_value() -> ModelProto:
    """All operands of the Loop are constants, but its body captures an input: not a constant."""
    return from_text(
        """
        g (float[2] x) => (float[2] y) <int64 n = {3}, bool yes = {1}, float[2] start = {0.0, 1.0}> {
            y = Loop (n, yes, start) <
                body = b (int64 i, bool going, float[2] v) => (bool go, float[2] w) {
                    go = Identity (going)
                    w = Add (v, x)
                }
            >
        }
        """
    )


def case_loop_of_constants() -> ModelProto:
    """A Loop that really is constant: folded within the budget, or left."""
    return from_text(
        """
        g (float[2] x) => (float[2] y) <int64 n = {3}, bool yes = {1}, float[2] start = {0.0, 1.0}> {
            t = Loop (n, yes, start) <
                body = b (int64 i, bool going, float[2] v) => (bool go, float[2] w) {
                    go = Identity (going)
                    w = Add (v, v)
                }
            >
            y = Add (x, t)
        }
        """
    )


def case_loop_of_no_trips() -> ModelProto:
    """No iteration: the carried value comes out, the scan output is empty."""
    return from_text(
        """
        g (float[2] x) => (float[2] y, float[0,2] z) <int64 n = {0}, bool yes = {1}> {
            y, z = Loop (n, yes, x) <
                body = b (int64 i, bool going, float[2] v) => (bool go, float[2] w, float[2] s) {
                    go = Identity (going)
                    w = Neg (v)
                    s = Exp (v)
                }
            >
        }
        """
    )


def case_loop_swaps_its_values() -> ModelProto:
    """The carried values change places: neither of them is invariant."""
    return from_text(
        """
        g (float[2] a, float[2] b, int64 n) => (float[2] y, float[2] z) <bool yes = {1}> {
            y, z = Loop (n, yes, a, b) <
                body = g2 (int64 i, bool going, float[2] p, float[2] q) => (bool go, float[2] q2, float[2] p2) {
                    go = Identity (going)
                    q2 = Identity (q)
                    p2 = Identity (p)
                }
            >
        }
        """
    )


def case_loop_with_unused_results() -> ModelProto:
    """A carried value that nothing outside uses may still steer the loop."""
    return from_text(
        """
        g (float[2] x) => (float[2] y)
        <int64 n = {50}, bool yes = {1}, float zero = {0.0}, float limit = {4.5}, float one = {1.0}> {
            y, _count, _scan = Loop (n, yes, x, zero) <
                body = b (int64 i, bool going, float[2] v, float n2) => (bool go, float[2] w, float more, float[2] s) {
                    more = Add (n2, one)
                    go = Less (more, limit)
                    w = Add (v, v)
                    s = Exp (v)
                }
            >
        }
        """
    )


def case_function_with_constants_inside() -> ModelProto:
    """Constants inside a function fold to Constant nodes: a function has no initializers."""
    return from_text(
        """
        g (float[2] x) => (float[2] y) { y = local.Shift (x) }
        <domain: "local", opset_import: ["" : 21]>
        Shift (v) => (w) {
            a = Constant <value = float[2] {1.0, 2.0}> ()
            b = Constant <value = float[2] {3.0, 4.0}> ()
            s = Add (a, b)
            w = Mul (v, s)
        }
        """,
        imports={"local": 1},
    )


def case_function_attribute_is_no_constant() -> ModelProto:
    """A Constant that takes its value from an attribute differs from call to call."""
    return from_text(
        """
        g (float[2] x) => (float[2] y) {
            a = local.Scale <by = 2.0> (x)
            b = local.Scale <by = 3.0> (x)
            y = Sub (a, b)
        }
        <domain: "local", opset_import: ["" : 21]>
        Scale <by> (v) => (w) {
            s = Constant <value_float: float = @by> ()
            t = Mul (s, s)
            w = Mul (v, t)
        }
        """,
        imports={"local": 1},
    )


# Size


def case_tile_bomb() -> ModelProto:
    """A small constant tiled to 64 MB: over the budget, left as it is, and the report says why."""
    return from_text(
        "g () => (float[16777216] y) <float[1] one = {1.0}, int64[1] n = {16777216}> { y = Tile (one, n) }"
    )


def case_expand_bomb() -> ModelProto:
    """The same for Expand, where the use is small."""
    return from_text(
        """
        g (float[1] x) => (float y) <float[2] one = {1.0, 2.0}, int64[2] n = {8388608, 2}> {
            e = Expand (one, n)
            s = ReduceSum <keepdims = 0> (e)
            z = ReduceSum <keepdims = 0> (x)
            y = Add (s, z)
        }
        """
    )


def case_constant_of_shape_bomb() -> ModelProto:
    """64 MB of one value: at most a splat."""
    return from_text(
        "g () => (float[4096,4096] y) <int64[2] n = {4096, 4096}> { y = ConstantOfShape <value = float[1] {2.5}> (n) }"
    )


def case_growth_in_small_steps() -> ModelProto:
    """No single fold is large, the model as a whole would be: the budget is on the sum."""
    tensors = [numpy_helper.from_array(np.array([float(i)], np.float32), f"c{i}") for i in range(64)]
    tensors.append(numpy_helper.from_array(np.array([65536]), "n"))
    nodes = [node("Tile", [f"c{i}", "n"], [f"t{i}"]) for i in range(64)]
    nodes += [node("ReduceMax", [f"t{i}"], [f"m{i}"], keepdims=0) for i in range(64)]
    nodes += [node("Expand", [f"m{i}", "n"], [f"y{i}"]) for i in range(64)]
    return model_of(nodes, [], [tensor_value(f"y{i}", [65536]) for i in range(64)], tensors)


def case_dequantized_weights() -> ModelProto:
    """Quantized weights stay quantized, unless asked for."""
    weights = np.arange(-32, 32, dtype=np.int8).reshape(8, 8)
    return model_of(
        [node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0), node("MatMul", ["x", "d"], ["y"])],
        [tensor_value("x", [2, 8])],
        [tensor_value("y", [2, 8])],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.linspace(0.01, 0.08, 8, dtype=np.float32), "s"),
            numpy_helper.from_array(np.zeros(8, np.int8), "z"),
        ],
    )


def case_quantize_and_dequantize() -> ModelProto:
    """A pair that rounds: not the identity."""
    return from_text(
        """
        g (float[8] x) => (float[8] y) <float s = {0.1}, uint8 z = {128}> {
            q = QuantizeLinear (x, s, z)
            y = DequantizeLinear (q, s, z)
        }
        """
    )


# Shapes


def case_shape_chain() -> ModelProto:
    """Shape arithmetic with a symbolic batch: what is known folds, the batch never becomes a number."""
    return from_text(
        """
        g (float[batch,3,4] x) => (float[batch,12] y)
        <int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {2}, int64[1] axis = {0}> {
            s = Shape (x)
            b = Gather (s, i0)
            h = Gather (s, i1)
            w = Gather (s, i2)
            hw = Mul (h, w)
            b1 = Unsqueeze (b, axis)
            hw1 = Unsqueeze (hw, axis)
            t = Concat <axis = 0> (b1, hw1)
            y = Reshape (x, t)
        }
        """
    )


def case_static_shape_chain_beside_large_weights() -> ModelProto:
    """The chain folds whatever the size of the other constants."""
    model = from_text(
        """
        g (float[2,3,4] x) => (float[6,4] y) <int64[1] minus = {-1}, int64[1] two = {2}, int64[1] three = {3}> {
            s = Shape (x)
            last = Slice (s, two, three)
            t = Concat <axis = 0> (minus, last)
            r = Reshape (x, t)
            y = MatMul (r, w)
        }
        """
    )
    weight = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def case_batch_of_one_declared_inside() -> ModelProto:
    """An intermediate declared with a batch of 1 is a claim: the reshape keeps working for any batch."""
    model = from_text(
        """
        g (float[batch,2,3] x) => (float[batch,6] y) <int64[2] t = {0, -1}> {
            n = Neg (x)
            y = Reshape (n, t)
        }
        """
    )
    model.graph.value_info.append(tensor_value("n", [1, 2, 3]))
    return model


def case_wrong_output_shape() -> ModelProto:
    """A declared output shape that the graph contradicts: reported, not believed."""
    return from_text("g (float[5,1,7] x) => (float[1,35] y) { t = Relu (x)  y = Neg (t) }")


def case_wrong_intermediate_type() -> ModelProto:
    """A declared dtype that the graph contradicts."""
    model = from_text("g (float[4] x) => (float[4] y) { t = Exp (x)  y = Neg (t) }")
    model.graph.value_info.append(tensor_value("t", [4], TensorProto.DOUBLE))
    return model


def case_reshape_zero_copies_the_dim() -> ModelProto:
    """A 0 in a Reshape's target copies the dim, under allowzero=1 it is a 0."""
    return from_text(
        """
        g (float[n,6] x, float[0,6] e) => (float[n,3,2] y, float[3,0] z)
        <int64[3] t = {0, 3, 2}, int64[2] u = {3, 0}> {
            y = Reshape (x, t)
            z = Reshape <allowzero = 1> (e, u)
        }
        """
    )


def case_two_reshapes() -> ModelProto:
    """The second target's 0 refers to the first result: merging the two must not keep it."""
    return from_text(
        """
        g (float[2,6] x) => (float[4,3] y, float[3,4] z)
        <int64[2] a = {4, 3}, int64[2] b = {0, -1}, int64[2] c = {3, 4}> {
            p = Reshape (x, a)
            y = Reshape (p, b)
            z = Reshape (y, c)
        }
        """
    )


def case_transpose_of_equal_dims() -> ModelProto:
    """A square transpose is no identity, one of a dim of 1 is a reshape."""
    return from_text(
        "g (float[3,3] x, float[1,3] v) => (float[3,3] y, float[3,1] w) { y = Transpose (x)  w = Transpose (v) }"
    )


def case_squeeze_of_unknown_dims() -> ModelProto:
    """Squeeze without axes drops what is 1 at the run: not known for symbolic dims."""
    return from_text("g (float[a,1,b] x) => (float[a,b] y) <int64[1] one = {1}> { y = Squeeze (x, one) }")


# Normalization and old opsets


def case_batch_norm_in_training() -> ModelProto:
    """Statistics of the batch, and new running ones as outputs: not folded into a neighbour."""
    return from_text(
        """
        g (float[2,3,4,4] x, float[3] s, float[3] b, float[3] m) => (float[2,3,4,4] y, float[3] rm, float[3] rv)
        <float[3] v = {1.0, 2.0, 0.5}> {
            y, rm, rv = BatchNormalization <training_mode = 1, momentum = 0.8> (x, s, b, m, v)
        }
        """
    )


def case_softmax_below_13() -> ModelProto:
    """Below opset 13 Softmax works on the flattened trailing dims: not the modern op with that axis."""
    return from_text("g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax <axis = 1> (x) }", opset=11, ir_version=6)


def case_reshape_at_opset_12() -> ModelProto:
    """No rule may emit what opset 12 does not have, such as allowzero."""
    return from_text(
        """
        g (float[2,6] x) => (float[12] y) <int64[2] a = {3, 4}, int64[1] b = {-1}> {
            p = Reshape (x, a)
            y = Reshape (p, b)
        }
        """,
        opset=12,
        ir_version=7,
    )


def case_clip_at_opset_6() -> ModelProto:
    """Limits are attributes there, with defaults."""
    return from_text(
        "g (float[8] x) => (float[8] y) { t = Clip <min = -0.5> (x)  y = Clip (t) }", opset=6, ir_version=3
    )


def case_axes_as_attributes_at_opset_11() -> ModelProto:
    """Reductions and Squeeze with axes as attributes, beside constants to fold."""
    return from_text(
        """
        g (float[2,1,4] x) => (float[2] y) <float[1] a = {1.5}, float[1] b = {2.0}> {
            c = Add (a, b)
            q = Squeeze <axes = [1]> (x)
            s = ReduceSum <axes = [1], keepdims = 0> (q)
            y = Mul (s, c)
        }
        """,
        opset=11,
        ir_version=6,
    )


def case_reduce_max_of_nan() -> ModelProto:
    """NaN among the values of a constant reduction."""
    return from_text(
        """
        g (float x) => (float y, float z) <float[4] v = {1.0, 2.0, 3.0, nan}> {
            m = ReduceMax <keepdims = 0> (v)
            y = Add (x, m)
            z = Identity (m)
        }
        """
    )


# Names and order


def case_names_that_collide() -> ModelProto:
    """Names such as a tool makes for new values already stand in the model."""
    return from_text(
        """
        g (float[2] x) => (float[2] y, float[2] y_1)
        <float[2] a = {1.0, 2.0}, float[2] a_1 = {3.0, 4.0}, bool yes = {1}> {
            a_2 = Add (a, a_1)
            t = Mul (x, a_2)
            y_1 = If (yes) <
                then_branch = b () => (float[2] r) { t_1 = Neg (t)  r = Exp (t_1) },
                else_branch = c () => (float[2] s) { s = Abs (t) }
            >
            t_1 = Add (y_1, t)
            y = Neg (t_1)
        }
        """
    )


def case_unsorted_with_branches() -> ModelProto:
    """Nodes in the wrong order, one of them needed only inside a branch."""
    model = case_value_used_only_in_branch()
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def case_many_equal_inputs() -> ModelProto:
    """Variadic operands that repeat keep their number and order."""
    return from_text(
        """
        g (float[2] b, float[2] a) => (float[8] y, float[2] s) {
            y = Concat <axis = 0> (b, a, b, a)
            s = Sum (a, a, b)
        }
        """
    )
