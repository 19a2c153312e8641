"""Common mistakes: each gives an error that says what is wrong, shows the user's line, and says what to do.

The line that is shown is the one marked with ``# !``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import FeedError, InferenceError, IrkitError, UnsupportedError, VerifyError
from irkit.frontends import dsl

ZEROS = np.zeros((2, 3), np.float32)


def x() -> Any:
    return dsl.placeholder("x", "float32", [2, 3])


def v(name: str = "v") -> Any:
    return dsl.variable(np.zeros(3, np.float32), name)


def matrices_do_not_fit() -> None:
    a, b = x(), dsl.placeholder("b", "float32", [4, 5])
    a @ b  # !


def shapes_do_not_broadcast() -> None:
    a, b = x(), dsl.placeholder("b", "float32", [4])
    a + b  # !


def a_dtype_that_is_not_there() -> None:
    dsl.placeholder("a", "float33", [3])  # !


def a_shape_of_floats() -> None:
    dsl.placeholder("a", "float32", 2.5)  # !


def dtypes_are_mixed() -> None:
    a, b = x(), dsl.placeholder("b", "int64", [3])
    a * b  # !


def a_float64_array() -> None:
    a = x()
    a + np.array([1.0, 2.0, 3.0])  # !


def a_number_does_not_fit() -> None:
    small = dsl.placeholder("small", "int8", [3])
    small + 1000  # !


def integers_where_floats_are_needed() -> None:
    a = dsl.placeholder("a", "int64", [3])
    dsl.softmax(a)  # !


def a_placeholder_is_not_fed() -> None:
    session, a = dsl.Session(), x()
    session.run(a + 1)  # !


def an_unknown_feed() -> None:
    session, a = dsl.Session(), x()
    session.run(a + 1, {"x": ZEROS, "y": ZEROS})  # !


def a_feed_of_the_wrong_dtype() -> None:
    session, a = dsl.Session(), x()
    session.run(a + 1, {a: ZEROS.astype(np.float64)})  # !


def a_feed_of_the_wrong_shape() -> None:
    session, a = dsl.Session(), x()
    session.run(a + 1, {a: ZEROS.T})  # !


def a_symbol_in_an_if() -> None:
    a = x()
    if dsl.sum(a) > 0:  # !
        pass


def a_symbol_in_a_while() -> None:
    a = dsl.sum(x())
    while a < 10:  # !
        a = a + 1


def a_comparison_in_between() -> None:
    a = dsl.sum(x())
    assert 0 < a < 1  # !


def a_symbol_as_a_number_of_times() -> None:
    n = dsl.placeholder("n", "int64", [])
    for _ in range(n):  # !
        pass


def int_of_a_symbol() -> None:
    n = dsl.placeholder("n", "int64", [])
    int(n)  # !


def len_of_a_symbol() -> None:
    a = x()
    len(a)  # !


def a_loop_over_a_symbol() -> None:
    a = x()
    for _ in a:  # !
        pass


def a_symbol_as_an_array() -> None:
    a = x()
    np.asarray(a)  # !


def a_function_of_numpy() -> None:
    a = x()
    np.add.reduce(a)  # !


def an_element_is_assigned() -> None:
    a = x()
    a[0, 0] = 1.0  # !


def an_element_is_looked_for() -> None:
    a = x()
    assert 1.0 in a  # !


def too_many_indices() -> None:
    a = x()
    a[0, 0, 0]  # !


def an_index_out_of_range() -> None:
    a = x()
    a[:, 3]  # !


def a_float_as_an_index() -> None:
    a = x()
    a[1.5]  # !


def a_shape_of_another_size() -> None:
    a = x()
    dsl.reshape(a, (4, 2))  # !


def an_axis_that_is_not_there() -> None:
    a = x()
    dsl.softmax(a, 2)  # !


def an_op_that_is_not_there() -> None:
    a = x()
    dsl.onnx.Matmul(a, a)  # !


def an_attribute_that_is_not_there() -> None:
    a = x()
    dsl.onnx.Gemm(a, a, transC=1)  # !


def too_many_operands() -> None:
    a = x()
    dsl.onnx.Relu(a, a)  # !


def too_few_operands() -> None:
    a = x()
    dsl.onnx.MatMul(a)  # !


def a_symbol_leaks_from_a_trace() -> None:
    kept = []

    @dsl.function
    def leaky(a: Any) -> Any:
        kept.append(a * 2)
        return a

    leaky(x())
    kept[0] + 1  # !


def a_symbol_leaks_from_a_loop() -> None:
    kept = []

    def step(carried: Any, item: Any) -> Any:
        kept.append(item)
        return carried + item, None

    dsl.scan(step, np.zeros(3, np.float32), x())
    dsl.exp(kept[0])  # !


def a_function_without_end() -> None:
    @dsl.function
    def endless(a: Any) -> Any:
        return endless(a) + 1  # !

    endless(x())


def a_static_argument_that_cannot_be_hashed() -> None:
    @dsl.function
    def scaled(a: Any, options: Any) -> Any:
        return a * len(options)

    scaled(x(), {1, 2})  # !


def a_call_with_wrong_arguments() -> None:
    @dsl.function
    def scaled(a: Any, by: float) -> Any:
        return a * by

    scaled(x(), factor=2)  # !


def branches_of_different_dtypes() -> None:
    a = x()
    dsl.cond(dsl.sum(a) > 0, lambda: a, lambda: dsl.cast(a, "int64"))  # !


def branches_of_different_structures() -> None:
    a = x()
    dsl.cond(dsl.sum(a) > 0, lambda: (a, a), lambda: a)  # !


def a_condition_that_is_a_number() -> None:
    a = x()
    dsl.cond(dsl.sum(a), lambda: a, lambda: -a)  # !


def a_loop_that_changes_a_dtype() -> None:
    dsl.while_loop(lambda i: i < 3, lambda i: i + 0.5, 0)  # !


def a_loop_that_changes_its_structure() -> None:
    dsl.fori(0, 3, lambda i, s: (s[0], s[1], i), (0, 1))  # !


def a_scan_that_changes_a_shape() -> None:
    a = x()
    dsl.scan(lambda s, item: (dsl.concatenate([s, item]), None), np.zeros(1, np.float32), a)  # !


def a_scan_that_returns_one_thing() -> None:
    a = x()
    dsl.scan(lambda s, item: s + item, np.zeros(3, np.float32), a)  # !


def a_variable_before_its_initialization() -> None:
    session, w = dsl.Session(), dsl.variable(name="w", dtype="float32", shape=[3])
    session.run(w * 2)  # !


def a_variable_of_nothing() -> None:
    dsl.variable(name="w")  # !


def an_assignment_of_another_dtype() -> None:
    w = v()
    w.assign(np.zeros(3, np.int64))  # !


def an_assignment_of_another_shape() -> None:
    w = v()
    w.assign_add(np.zeros((2, 3), np.float32))  # !


def accesses_that_nothing_orders() -> None:
    w = v()
    first = w.assign(np.ones(3, np.float32))  # !
    second = w.assign(np.zeros(3, np.float32))
    dsl.Session().run([first, second])


def a_loop_that_uses_an_old_value() -> None:
    w = v()

    def step(_: Any, total: Any) -> Any:
        old = w * 1.0  # !
        with dsl.control_dependencies([w.assign_add(np.ones(3, np.float32))]):
            return total + old

    dsl.to_module(dsl.fori(0, 3, step, np.zeros(3, np.float32)))


def two_variables_of_one_name() -> None:
    made = [v("w"), v("w")]
    dsl.to_module(made[0] + made[1])


def two_placeholders_of_one_name() -> None:
    a, b = dsl.placeholder("a"), dsl.placeholder("a")  # !
    ik.compile(a + b)


def an_effect_as_a_value() -> None:
    w = v()
    w.assign(np.zeros(3, np.float32)) + 1  # !


def an_assignment_in_a_compiled_module() -> None:
    w = v()
    done = w.assign_add(np.ones(3, np.float32))  # !
    ik.compile([w.value, done])


def a_name_is_fetched() -> None:
    session = dsl.Session()
    session.run("loss")  # !


def control_edges_that_are_no_list() -> None:
    w = v()
    done = w.assign(np.zeros(3, np.float32))
    with dsl.control_dependencies(done):  # !
        pass


def a_gradient_of_many_elements() -> None:
    a = x()
    dsl.gradients(a * a, a)  # !


def a_gradient_by_an_integer() -> None:
    n = dsl.placeholder("n", "int64", [])
    dsl.gradients(dsl.cast(n, "float32") * 2, n)  # !


def a_gradient_by_what_is_not_used() -> None:
    a, w = x(), v()
    dsl.gradients(dsl.mean(a), w)  # !


def a_gradient_through_a_comparison() -> None:
    a = x()
    g = dsl.gradients(dsl.mean(dsl.cast(a > 0, "float32")), a)  # !
    ik.compile(g)


def nothing_to_minimize() -> None:
    a = x()
    dsl.minimize("sgd", dsl.mean(a))  # !


def a_placeholder_is_minimized() -> None:
    w = v()
    a = dsl.placeholder("a", "float32", [3])
    dsl.minimize("sgd", dsl.mean(a * w), [a])  # !


def a_variable_of_open_shape_is_minimized() -> None:
    w = dsl.variable(np.zeros(3, np.float32), "w", shape=[None])
    dsl.minimize("adam", dsl.mean(w), [w])  # !


def a_class_as_an_optimizer() -> None:
    w = v()
    dsl.minimize(ik.optimizers.SGD, dsl.mean(w))  # type: ignore[arg-type] # !


def a_scan_of_another_length() -> None:
    a = x()
    dsl.scan(lambda s, item: (s + item, None), np.zeros(3, np.float32), a, length=1)  # !


def a_condition_of_many_elements() -> None:
    a = x()
    dsl.cond(a > 0, lambda: a, lambda: -a)  # !


def a_loop_condition_of_many_elements() -> None:
    a = x()
    dsl.while_loop(lambda c: c < 3.0, lambda c: c + 1.0, a)  # !


def values_as_branches() -> None:
    a = x()
    dsl.cond(dsl.sum(a) > 0, a, a + 1)  # type: ignore[arg-type] # !


def a_backend_that_is_not_there() -> None:
    dsl.Session("nunpy")  # !


def an_option_that_is_not_there() -> None:
    dsl.Session(thread=2)  # !


def an_integer_to_a_negative_power() -> None:
    i = dsl.placeholder("i", "int64", [3])
    i**-1  # !


def parts_that_are_not_equal() -> None:
    a = dsl.placeholder("a", "float32", [7])
    dsl.split(a, 3)  # !


def parts_of_sizes_that_do_not_add_up() -> None:
    a = dsl.placeholder("a", "float32", [7])
    dsl.split(a, [3, 3])  # !


def widths_for_other_axes() -> None:
    a = x()
    dsl.pad(a, [(1, 1), (2, 2), (3, 3)])  # !


def widths_that_are_no_pairs() -> None:
    a = x()
    dsl.pad(a, [(1, 2), (3,)])  # !


def an_input_is_missing() -> None:
    a = dsl.placeholder("a")  # !
    b = dsl.placeholder("b")
    dsl.to_module(a + b, inputs=[b])


def a_function_is_compiled() -> None:
    @dsl.function
    def doubled(a: Any) -> Any:
        return a * 2

    ik.compile(doubled)  # !


def an_effect_is_compiled() -> None:
    done = v().assign_add(np.ones(3, np.float32))  # !
    ik.compile(done)


def a_recursion_too_deep() -> None:
    @dsl.function
    def down(n: int) -> Any:
        return dsl.constant(0) if n == 0 else down(n - 1) + 1

    down(5000)  # !


def state_in_a_function_of_the_model() -> None:
    w = v()

    @dsl.function(inline=False)
    def plus(b: Any) -> Any:
        return w + b

    made = plus(x())  # !
    dsl.to_module(made)


def a_captured_placeholder() -> None:
    a = x()

    @dsl.function(inline=False)
    def plus(b: Any) -> Any:
        return a + b

    dsl.to_module(plus(a))


MISTAKES: dict[Callable[[], None], tuple[type[Exception], str, str]] = {
    matrices_do_not_fit: (InferenceError, r"float32\[2, 3\], float32\[4, 5\]", ""),
    shapes_do_not_broadcast: (InferenceError, r"\[2, 3\] and \[4\] do not broadcast", ""),
    a_dtype_that_is_not_there: (InferenceError, "'float33' is no element type", "'float32'"),
    a_shape_of_floats: (InferenceError, "float", "a list of sizes"),
    dtypes_are_mixed: (InferenceError, r"'multiply' of float32 and int64", "cast one of them"),
    a_float64_array: (InferenceError, r"'add' of float32 and float64", "cast one of them"),
    a_number_does_not_fit: (InferenceError, "1000 does not fit int8", "cast the other operand"),
    integers_where_floats_are_needed: (InferenceError, r"int64\[3\]", ""),
    a_placeholder_is_not_fed: (FeedError, r"'x' \(float32\[2, 3\]\) is missing", "feed 'x' too"),
    an_unknown_feed: (FeedError, "there is no input 'y'", "the inputs are: 'x'"),
    a_feed_of_the_wrong_dtype: (FeedError, r"float64\[2, 3\], expected float32", "astype"),
    a_feed_of_the_wrong_shape: (FeedError, r"\[3, 2\], expected float32\[2, 3\]", "axis 0"),
    a_symbol_in_an_if: (dsl.SymbolError, "has no truth value", "dsl.cond"),
    a_symbol_in_a_while: (dsl.SymbolError, "has no truth value", "dsl.while_loop"),
    a_comparison_in_between: (dsl.SymbolError, "has no truth value", "dsl.where"),
    a_symbol_as_a_number_of_times: (dsl.SymbolError, "it is no index", "dsl.fori"),
    int_of_a_symbol: (dsl.SymbolError, "it is no int", "dsl.cast"),
    len_of_a_symbol: (dsl.SymbolError, "no length in Python", r"dsl.shape\(x\)\[0\]"),
    a_loop_over_a_symbol: (dsl.SymbolError, "cannot be iterated over", "dsl.unstack"),
    a_symbol_as_an_array: (dsl.SymbolError, "it is no array", "functions of dsl"),
    a_function_of_numpy: (dsl.SymbolError, "numpy.add does not take it", "functions of dsl"),
    an_element_is_assigned: (dsl.SymbolError, "cannot be assigned", "dsl.set_item"),
    an_element_is_looked_for: (dsl.SymbolError, "'in' needs its value", "dsl.any"),
    too_many_indices: (InferenceError, "3 indices for 2 axes", ""),
    an_index_out_of_range: (InferenceError, "index 3 is out of range on axis 1 of size 3", ""),
    a_float_as_an_index: (InferenceError, "an index of", "index by integers"),
    a_shape_of_another_size: (InferenceError, r"6 elements cannot be reshaped to \[4, 2\]", "product"),
    an_axis_that_is_not_there: (InferenceError, "axis 2 of a tensor of rank 2", ""),
    an_op_that_is_not_there: (IrkitError, "there is no op 'Matmul'", "did you mean 'MatMul'"),
    an_attribute_that_is_not_there: (InferenceError, "no attribute 'transC'", ""),
    too_many_operands: (InferenceError, "takes 1 operands, but has 2", ""),
    too_few_operands: (InferenceError, "takes 2 operands, but has 1", ""),
    a_symbol_leaks_from_a_trace: (dsl.SymbolError, "trace of 'leaky' is used outside", "return it"),
    a_symbol_leaks_from_a_loop: (dsl.SymbolError, "trace of 'step' is used outside", "return it"),
    a_function_without_end: (IrkitError, "'endless' calls itself", "static argument"),
    a_static_argument_that_cannot_be_hashed: (dsl.SymbolError, "cannot be hashed", "tuple"),
    a_call_with_wrong_arguments: (dsl.SymbolError, "cannot be called so", r"scaled\(a"),
    branches_of_different_dtypes: (InferenceError, r"float32\[2, 3\] if true and int64\[2, 3\] if false", "cast"),
    branches_of_different_structures: (InferenceError, r"returns \(\*, \*\), but .* one value", "same structure"),
    a_condition_that_is_a_number: (InferenceError, "a condition is a boolean", "compare"),
    a_loop_that_changes_a_dtype: (InferenceError, r"int64\[\] into float32\[\]", "dsl.cast"),
    a_loop_that_changes_its_structure: (InferenceError, r"was given \(\*, \*\) and returns \(\*, \*, \*\)", ""),
    a_scan_that_changes_a_shape: (InferenceError, "keeps its shape", "dsl.while_loop"),
    a_scan_that_returns_one_thing: (dsl.SymbolError, r"must return \(carried, result\)", "None"),
    a_variable_before_its_initialization: (dsl.UninitializedError, "'w' is read before it has a value", "assign it"),
    a_variable_of_nothing: (InferenceError, "needs dtype= and shape=", ""),
    an_assignment_of_another_dtype: (InferenceError, r"float32\[3\], and what is assigned is int64\[3\]", "cast"),
    an_assignment_of_another_shape: (
        InferenceError,
        r"float32\[3\], and what is assigned is float32\[2, 3\]",
        "reshape",
    ),
    accesses_that_nothing_orders: (VerifyError, "nothing orders two accesses of variable 'v'", "control_dependencies"),
    a_loop_that_uses_an_old_value: (IrkitError, "the value that it had before the loop", r"variable\.read\(\)"),
    two_variables_of_one_name: (IrkitError, "there is a variable 'w' already", "another name"),
    two_placeholders_of_one_name: (IrkitError, "two placeholders are called 'a'", "another name"),
    an_effect_as_a_value: (TypeError, "unsupported operand", ""),
    an_assignment_in_a_compiled_module: (IrkitError, "ik.compile keeps no state", "dsl.Session"),
    a_name_is_fetched: (dsl.SymbolError, "'loss' cannot be fetched", "the symbol itself"),
    control_edges_that_are_no_list: (dsl.SymbolError, "takes a list", r"\[a\]"),
    a_gradient_of_many_elements: (IrkitError, "more than one element", "dsl.mean"),
    a_gradient_by_an_integer: (IrkitError, "only values of float dtypes", ""),
    a_gradient_by_what_is_not_used: (IrkitError, "does not depend on", "allow_unused"),
    a_gradient_through_a_comparison: (IrkitError, "no path of differentiable ops", "allow_unused"),
    nothing_to_minimize: (IrkitError, "reads no trainable variable", "dsl.variable"),
    a_placeholder_is_minimized: (IrkitError, "an optimizer changes variables; <symbol a", "dsl.variable"),
    a_variable_of_open_shape_is_minimized: (IrkitError, "no fixed shape", "without None"),
    a_class_as_an_optimizer: (IrkitError, "SGD is a class", r"make one: ik.optimizers.SGD\(\)"),
    a_scan_of_another_length: (InferenceError, "not length=1", "leave length= out"),
    a_condition_of_many_elements: (InferenceError, r"one boolean; this is .*bool\[2, 3\]", "dsl.all"),
    a_loop_condition_of_many_elements: (InferenceError, r"gives is one boolean; this is .*bool\[2, 3\]", "dsl.any"),
    values_as_branches: (dsl.SymbolError, "takes functions for its branches; true= is", "dsl.where"),
    a_backend_that_is_not_there: (UnsupportedError, "no backend 'nunpy'", "'numpy'"),
    an_option_that_is_not_there: (UnsupportedError, "no option 'thread'", "'threads'"),
    an_integer_to_a_negative_power: (InferenceError, "negative power", "dsl.cast"),
    parts_that_are_not_equal: (InferenceError, "does not divide into 3 equal parts", "add up to 7"),
    parts_of_sizes_that_do_not_add_up: (InferenceError, r"parts of the sizes \[3, 3\]", "add up to 7"),
    widths_for_other_axes: (InferenceError, "how to pad the 2 axes", "a pair per axis"),
    widths_that_are_no_pairs: (InferenceError, "how to pad the 2 axes", "a pair per axis"),
    an_input_is_missing: (IrkitError, "'a' is needed, but not among the inputs", ""),
    a_function_is_compiled: (dsl.SymbolError, "'doubled' has no graph before", r"doubled\.module"),
    an_effect_is_compiled: (IrkitError, "ik.compile keeps no state", "dsl.Session"),
    a_recursion_too_deep: (IrkitError, "more deeply than Python allows", "setrecursionlimit"),
    state_in_a_function_of_the_model: (IrkitError, "'plus' accesses variables", "without inline=False"),
    a_captured_placeholder: (dsl.SymbolError, "'x' is used in a function of the model", "pass it"),
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda f: f.__name__)
def test_mistake(mistake: Callable[[], None]) -> None:
    kind, message, hint = MISTAKES[mistake]
    with pytest.raises(kind, match=message) as caught:
        mistake()
    if not isinstance(caught.value, IrkitError):
        return
    text = str(caught.value)
    if hint:
        assert pytest.RaisesExc(IrkitError, match=f"(?s)hint: .*{hint}").matches(caught.value), text
    lines, first = inspect.getsourcelines(mistake)
    marked = [i for i, line in enumerate(lines) if line.rstrip().endswith("# !")]
    if marked:
        assert f"{Path(__file__)}:{first + marked[0]}" in text, text
        assert lines[marked[0]].strip() in text or kind is VerifyError, text


def test_most_have_a_line() -> None:
    assert sum("# !" in inspect.getsource(m) for m in MISTAKES) >= len(MISTAKES) - 2
    assert len(MISTAKES) >= 20
