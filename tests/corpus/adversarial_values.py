"""Cases about effects, bits of values, outputs, common subexpressions and kinds of data. See ``adversarial``."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, numpy_helper

from .build import from_text, model_of, node, tensor_value

# Random values


def case_two_random_uniform_subtracted() -> ModelProto:
    """Two draws are not one: never merged, never folded; the output is not all 0."""
    return from_text(
        """
        g () => (float[2,3] y) {
            a = RandomUniform <shape = [2, 3]> ()
            b = RandomUniform <shape = [2, 3]> ()
            y = Sub (a, b)
        }
        """
    )


def case_two_random_normal_subtracted() -> ModelProto:
    """As for RandomUniform, and the draws feed outputs too."""
    return from_text(
        """
        g () => (float[2,3] y, float[2,3] a) {
            a = RandomNormal <shape = [2, 3]> ()
            b = RandomNormal <shape = [2, 3]> ()
            y = Sub (a, b)
        }
        """
    )


def case_two_random_uniform_like_subtracted() -> ModelProto:
    """The operand is the same, the draws are not."""
    return from_text(
        "g (float[2,3] x) => (float[2,3] y) { a = RandomUniformLike (x)  b = RandomUniformLike (x)  y = Sub (a, b) }"
    )


def case_two_random_normal_like_subtracted() -> ModelProto:
    """The operand is the same, the draws are not."""
    return from_text(
        "g (float[2,3] x) => (float[2,3] y) { a = RandomNormalLike (x)  b = RandomNormalLike (x)  y = Sub (a, b) }"
    )


def case_two_bernoulli_subtracted() -> ModelProto:
    """The same for Bernoulli."""
    return from_text(
        "g (float[64] x) => (float[64] y) { p = Sigmoid (x)  a = Bernoulli (p)  b = Bernoulli (p)  y = Sub (a, b) }"
    )


def case_two_multinomial_subtracted() -> ModelProto:
    """The same for Multinomial."""
    return from_text(
        """
        g (float[2,5] x) => (int32[2,32] y) {
            a = Multinomial <sample_size = 32> (x)
            b = Multinomial <sample_size = 32> (x)
            y = Sub (a, b)
        }
        """
    )


def case_two_dropouts_in_training() -> ModelProto:
    """Dropout in training mode is a draw: neither merged nor removed."""
    return from_text(
        """
        g (float[64] x) => (float[64] y) <float ratio = {0.5}, bool training = {1}> {
            a = Dropout (x, ratio, training)
            b = Dropout (x, ratio, training)
            y = Sub (a, b)
        }
        """
    )


def case_dropout_with_mode_as_input() -> ModelProto:
    """Whether it draws is known at the run: not removed. (Fed False here it is the identity.)"""
    model = from_text(
        "g (float[8] x, bool training) => (float[8] y, bool[8] mask) { y, mask = Dropout (x, half, training) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.0, np.float32), "half"))
    return model


def case_dropout_in_inference() -> ModelProto:
    """May become an Identity; its mask is all true, and is an output."""
    return from_text("g (float[8] x) => (float[8] y, bool[8] mask) { t, mask = Dropout (x)  y = Neg (t) }")


def case_one_seed_in_two_nodes() -> ModelProto:
    """Two draws with one seed: still two nodes."""
    return from_text(
        """
        g () => (float[4] a, float[4] b) {
            a = RandomUniform <shape = [4], seed = 3.0> ()
            b = RandomUniform <shape = [4], seed = 3.0> ()
        }
        """
    )


def case_bernoulli_of_a_constant() -> ModelProto:
    """All operands are constants, and yet it is no constant."""
    return from_text("g () => (float[4] y) <float[4] p = {0.5, 0.5, 0.5, 0.5}> { y = Bernoulli (p) }")


def case_random_in_a_loop_body() -> ModelProto:
    """A draw in each iteration: not moved out of the body, though it uses nothing of it."""
    return from_text(
        """
        g (float[4] x) => (float[4] last, float[5,4] all) <int64 n = {5}, bool yes = {1}> {
            last, all = Loop (n, yes, x) <
                body = b (int64 i, bool going, float[4] v) => (bool go, float[4] w, float[4] s) {
                    go = Identity (going)
                    s = RandomUniform <shape = [4]> ()
                    w = Add (v, s)
                }
            >
        }
        """
    )


def case_random_in_a_function_called_twice() -> ModelProto:
    """Two equal calls of a function that draws are not one call."""
    return from_text(
        """
        g (float[4] x) => (float[4] y) { a = local.Noise (x)  b = local.Noise (x)  y = Sub (a, b) }
        <domain: "local", opset_import: ["" : 21]>
        Noise (v) => (w) { n = RandomNormalLike (v)  w = Add (v, n) }
        """,
        imports={"local": 1},
    )


def case_dead_random() -> ModelProto:
    """A draw that nothing uses may go."""
    return from_text("g (float[4] x) => (float[4] y) { a = RandomNormalLike (x)  b = Neg (a)  y = Abs (x) }")


# Bits of values


def case_signed_zero_constants() -> ModelProto:
    """0.0 and -0.0 are two constants: 1/x tells them apart."""
    return from_text(
        """
        g (float[2] x) => (float[2] a, float[2] b) {
            p = Constant <value = float[2] {0.0, 0.0}> ()
            m = Constant <value = float[2] {-0.0, -0.0}> ()
            e = Abs (x)
            a = Div (e, p)
            b = Div (e, m)
        }
        """
    )


def case_constants_of_equal_bytes_and_other_types() -> ModelProto:
    """Equal bytes, other dtype or shape: three constants."""
    arrays = [np.zeros(4, np.float32), np.zeros(4, np.int32), np.zeros((2, 2), np.float32)]
    tensors = [numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(arrays)]
    nodes = [node("Identity", [t.name], [f"y{i}"]) for i, t in enumerate(tensors)]
    outputs = [tensor_value(f"y{i}", list(t.dims), t.data_type) for i, t in enumerate(tensors)]
    return model_of(nodes, [], outputs, tensors)


def case_nan_constants() -> ModelProto:
    """Constants that are NaN equal themselves bit by bit: merging equal bits is right, NaN stays NaN."""
    return from_text(
        """
        g (float[2] x) => (float[2] y) {
            a = Constant <value = float[2] {nan, 1.0}> ()
            b = Constant <value = float[2] {nan, 1.0}> ()
            s = Max (a, b)
            y = Add (x, s)
        }
        """
    )


def _binary(op: str, left: str, right: str, dtype: str = "float", extra: str = "") -> ModelProto:
    return from_text(f"g ({dtype}[8] x) => ({dtype}[8] y) {extra} {{ y = {op} ({left}, {right}) }}")


def case_times_zero() -> ModelProto:
    """x * 0 is NaN for NaN and infinities, and -0.0 for negatives: not 0."""
    return _binary("Mul", "x", "z", extra="<float z = {0.0}>")


def case_minus_itself() -> ModelProto:
    """x - x is NaN for NaN and infinities: not 0."""
    return _binary("Sub", "x", "x")


def case_divided_by_itself() -> ModelProto:
    """x / x is NaN for 0, NaN and infinities: not 1."""
    return _binary("Div", "x", "x")


def case_plus_zero() -> ModelProto:
    """-0.0 + 0.0 is 0.0: adding 0.0 is not the identity; adding -0.0, or subtracting 0.0, is."""
    return from_text(
        """
        g (float[8] x) => (float[8] a, float[8] b, float[8] c) <float p = {0.0}, float m = {-0.0}> {
            a = Add (x, p)
            b = Add (x, m)
            c = Sub (x, p)
        }
        """
    )


def case_times_one_that_broadcasts() -> ModelProto:
    """A factor of ones makes the result larger: not the identity."""
    return from_text("g (float[3] x) => (float[2,3] y) <float[2,1] one = {1.0, 1.0}> { y = Mul (x, one) }")


def case_times_one_of_rank_two() -> ModelProto:
    """A single 1 of rank 2 still raises the rank of the result."""
    return from_text("g (float[3] x) => (float[1,3] y) <float[1,1] one = {1.0}> { y = Mul (x, one) }")


def case_equal_to_itself() -> ModelProto:
    """x == x is false for NaN."""
    return from_text("g (float[8] x) => (bool[8] y) { y = Equal (x, x) }")


def case_max_with_minus_infinity() -> ModelProto:
    """Max with NaN operands, and with -inf, which is the identity for all but NaN's own rules."""
    return _binary("Max", "x", "low", extra="<float low = {-inf}>")


def case_negated_comparison() -> ModelProto:
    """Not(x < y) is not x >= y where one of them is NaN."""
    return from_text("g (float[8] x, float[8] z) => (bool[8] y) { t = Less (x, z)  y = Not (t) }")


def case_square_root_of_square() -> ModelProto:
    """sqrt(x * x) is |x| but for overflow and underflow; exp(log(x)) is x but for negatives: both stay."""
    return from_text(
        "g (float[8] x) => (float[8] y, float[8] z) { s = Mul (x, x)  y = Sqrt (s)  l = Log (x)  z = Exp (l) }"
    )


def case_sum_in_another_order() -> ModelProto:
    """Floats do not associate: (x + big) - big is not x."""
    return from_text("g (float[8] x) => (float[8] y) <float big = {1e8}> { t = Add (x, big)  y = Sub (t, big) }")


def case_integer_overflow() -> ModelProto:
    """Integers wrap around: fold as the run would."""
    return from_text(
        """
        g () => (int32[1] a, int8[1] b, uint8[1] c)
        <int32[1] i = {2147483647}, int32[1] one = {1}, int8[1] s = {100}, uint8[1] u = {3}, uint8[1] v = {5}> {
            a = Add (i, one)
            b = Mul (s, s)
            c = Sub (u, v)
        }
        """
    )


def case_integer_division_truncates() -> ModelProto:
    """-7 / 2 is -3, and Mod follows the divisor's sign."""
    return from_text(
        """
        g () => (int64[2] q, int64[2] r, int64[2] f) <int64[2] a = {-7, 7}, int64[2] b = {2, -2}> {
            q = Div (a, b)
            r = Mod (a, b)
            f = Mod <fmod = 1> (a, b)
        }
        """
    )


def case_integer_division_by_zero() -> ModelProto:
    """Not folded, and never a silent 0: the run is an error."""
    return from_text("g () => (int64[2] y) <int64[2] a = {1, 2}, int64[2] b = {1, 0}> { y = Div (a, b) }")


def case_integer_mod_by_zero() -> ModelProto:
    """The same for Mod."""
    return from_text("g () => (int64[2] y) <int64[2] a = {1, 2}, int64[2] b = {1, 0}> { y = Mod (a, b) }")


def case_int64_min_divided_by_minus_one() -> ModelProto:
    """The one quotient that overflows: no crash, neither in folding nor in the run."""
    return from_text("g () => (int64[1] y) <int64[1] a = {-9223372036854775808}, int64[1] b = {-1}> { y = Div (a, b) }")


def case_shift_by_the_width() -> ModelProto:
    """A shift by as many bits as there are, or more: fold as the run would, or not at all."""
    return from_text(
        """
        g () => (uint8[3] y) <uint8[3] a = {255, 255, 255}, uint8[3] b = {7, 8, 200}> {
            y = BitShift <direction = "LEFT"> (a, b)
        }
        """
    )


def case_cast_of_what_does_not_fit() -> ModelProto:
    """Casts of NaN, infinities and large floats to integers are undefined: fold as the run would, or not at all."""
    return from_text("g () => (int32[4] y) <float[4] a = {nan, inf, -inf, 3e10}> { y = Cast <to = 6> (a) }")


def case_cast_there_and_back() -> ModelProto:
    """Float to half and back loses bits; int32 to int64 and back does not: only the second may go."""
    return from_text(
        """
        g (float[8] x, int32[8] i) => (float[8] y, int32[8] j) {
            h = Cast <to = 10> (x)
            y = Cast <to = 1> (h)
            w = Cast <to = 7> (i)
            j = Cast <to = 6> (w)
        }
        """
    )


# Outputs and identities


def case_identity_to_output() -> ModelProto:
    """The value behind the Identity is an output as well: both names stay."""
    return from_text("g (float[4] x) => (float[4] y, float[4] t) { t = Neg (x)  y = Identity (t) }")


def case_identity_of_input_to_output() -> ModelProto:
    """An output that equals an input keeps its own name."""
    return from_text("g (float[4] x) => (float[4] y) { y = Identity (x) }")


def case_identity_of_initializer_to_output() -> ModelProto:
    """An output that equals an initializer keeps its own name."""
    return from_text("g () => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Identity (w) }")


def case_identity_captured_by_if() -> ModelProto:
    """The Identity's result is used inside a branch: its uses there change too."""
    return from_text(
        """
        g (float[4] x, bool c) => (float[4] y) {
            t = Neg (x)
            u = Identity (t)
            y = If (c) <
                then_branch = a () => (float[4] p) { p = Exp (u) },
                else_branch = b () => (float[4] q) { q = Identity (u) }
            >
        }
        """
    )


def case_identity_chain_to_three_outputs() -> ModelProto:
    """A chain of Identities each of which is an output, in another order."""
    return from_text(
        """
        g (float[4] x) => (float[4] c, float[4] a, float[4] b) {
            a = Identity (x)
            b = Identity (a)
            c = Identity (b)
        }
        """
    )


def case_cancelling_pair_to_output() -> ModelProto:
    """Two transposes that cancel, between an input and an output."""
    return from_text(
        "g (float[2,3] x) => (float[2,3] y) { t = Transpose <perm = [1, 0]> (x)  y = Transpose <perm = [1, 0]> (t) }"
    )


def case_folded_value_is_output() -> ModelProto:
    """A constant result that is an output and is used further on: produced exactly once, under its name."""
    return from_text(
        """
        g (float[2] x) => (float[2] s, float[2] y) <float[2] a = {1.0, 2.0}, float[2] b = {3.0, 4.0}> {
            s = Add (a, b)
            y = Mul (x, s)
        }
        """
    )


def case_constant_is_output() -> ModelProto:
    """A Constant node whose value is an output, twice equal."""
    return from_text(
        """
        g () => (float[1] a, float[1] b) {
            a = Constant <value = float[1] {1.5}> ()
            b = Constant <value = float[1] {1.5}> ()
        }
        """
    )


def case_equal_nodes_are_both_outputs() -> ModelProto:
    """Two equal nodes, both outputs: they may be merged, the names and the order stay."""
    return from_text("g (float[4] x) => (float[4] b, float[4] a) { a = Exp (x)  b = Exp (x) }")


# Common subexpressions


def case_attributes_differ() -> ModelProto:
    """Equal but for an attribute, or for a default that is written out: only the latter are equal."""
    return from_text(
        """
        g (float[2,3] x) => (float[2,3] y) {
            a = Softmax <axis = 0> (x)
            b = Softmax (x)
            c = Softmax <axis = -1> (x)
            s = Sub (a, b)
            t = Sub (b, c)
            y = Add (s, t)
        }
        """
    )


def case_operands_swapped() -> ModelProto:
    """a + b equals b + a, but a - b does not equal b - a."""
    return from_text(
        """
        g (float[4] a, float[4] b) => (float[4] y) {
            p = Add (a, b)
            q = Add (b, a)
            r = Sub (a, b)
            s = Sub (b, a)
            t = Mul (p, r)
            u = Mul (q, s)
            y = Sub (t, u)
        }
        """
    )


def case_equal_nodes_in_sibling_branches() -> ModelProto:
    """Neither branch sees the other's values: nothing is merged across, nor pulled out of the branches blindly."""
    return from_text(
        """
        g (float[4] x, bool c) => (float[4] y) {
            y = If (c) <
                then_branch = a () => (float[4] p) { t = Exp (x)  p = Neg (t) },
                else_branch = b () => (float[4] q) { t = Exp (x)  q = Abs (t) }
            >
        }
        """
    )


def case_equal_node_outside_and_inside() -> ModelProto:
    """The branch may use the value that stands outside."""
    return from_text(
        """
        g (float[4] x, bool c) => (float[4] y) {
            e = Exp (x)
            z = If (c) <
                then_branch = a () => (float[4] p) { t = Exp (x)  p = Neg (t) },
                else_branch = b () => (float[4] q) { q = Abs (x) }
            >
            y = Add (z, e)
        }
        """
    )


def case_merged_nodes_have_metadata() -> ModelProto:
    """The metadata and names of merged nodes are not lost."""
    model = from_text("g (float[4] x) => (float[4] y) { a = Exp (x)  b = Exp (x)  y = Add (a, b) }")
    for item, origin in zip(model.graph.node, ("first.py:1", "second.py:2", "third.py:3"), strict=True):
        item.name = f"node {origin}"
        item.metadata_props.add(key="origin", value=origin)
    return model


def case_omitted_output_differs() -> ModelProto:
    """Two equal nodes that ask for different outputs of the op."""
    return from_text(
        """
        g (float[2,6] x) => (float[2,3] y, int64[2,3] i) <int64[1] k = {3}> {
            y, _unused = TopK (x, k)
            _also, i = TopK (x, k)
        }
        """
    )


# Strings, sequences, empty tensors, scalars


def case_strings() -> ModelProto:
    """Constants of strings fold, merge and print as any other."""
    return from_text(
        """
        g (string[2] x) => (string[2] y, bool[2] z) {
            a = Constant <value_strings = ["a", "b"]> ()
            b = Constant <value_strings = ["a", "b"]> ()
            ab = StringConcat (a, b)
            y = StringConcat (x, ab)
            z = Equal (x, a)
        }
        """
    )


def case_sequences() -> ModelProto:
    """Sequences of constants, and an empty one."""
    return from_text(
        """
        g (float[2] x) => (seq(float[2]) s, float[4] y, int64 n) <float[2] w = {1.0, 2.0}, int64 first = {0}> {
            p = SequenceConstruct (w, x)
            s = SequenceInsert (p, w, first)
            q = SequenceErase (s)
            y = ConcatFromSequence <axis = 0> (q)
            e = SequenceEmpty <dtype = 1> ()
            n = SequenceLength (e)
        }
        """
    )


def case_optionals() -> ModelProto:
    """An optional made, asked and opened."""
    return from_text(
        """
        g (float[2] x) => (float[2] y, bool has) {
            o = Optional (x)
            has = OptionalHasElement (o)
            y = OptionalGetElement (o)
        }
        """
    )


def case_empty_tensors() -> ModelProto:
    """Zero-size operands: sums are 0, products 1, a Concat with an empty part is the rest, a slice may be empty."""
    return from_text(
        """
        g (float[0,3] x, float[2,3] z)
        => (float[3] sum, float[3] product, float[2,3] both, float[0,3] none, int64[2] shape)
        <int64[1] zero = {0}, int64[1] two = {2}, int64[1] five = {5}> {
            sum = ReduceSum <keepdims = 0> (x, zero)
            product = ReduceProd <keepdims = 0> (x, zero)
            both = Concat <axis = 0> (x, z)
            none = Slice (z, two, five, zero)
            shape = Shape (x)
        }
        """
    )


def case_empty_constants() -> ModelProto:
    """Zero-size constants fold like others."""
    tensors = [numpy_helper.from_array(np.zeros((0, 3), np.float32), n) for n in ("a", "b")]
    axis = numpy_helper.from_array(np.array([0]), "axis")
    return model_of(
        [
            node("Concat", ["a", "b"], ["e"], axis=0),
            node("ReduceSum", ["e", "axis"], ["s"], keepdims=0),
            node("Add", ["x", "s"], ["y"]),
        ],
        [tensor_value("x", [3])],
        [tensor_value("y", [3]), tensor_value("e", [0, 3])],
        [*tensors, axis],
    )


def case_scalars() -> ModelProto:
    """Tensors of rank 0 stay of rank 0 and are not taken for rank 1."""
    return from_text(
        """
        g (float x) => (float y, float[1] z, float s) <float a = {2.0}, float b = {3.0}, int64[1] zero = {0}> {
            p = Mul (a, b)
            y = Add (x, p)
            z = Unsqueeze (y, zero)
            s = ReduceSum <keepdims = 0> (x)
        }
        """
    )
