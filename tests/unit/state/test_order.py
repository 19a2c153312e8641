"""What the verifier refuses, and what it says; what it accepts although the text might suggest otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import irkit as ik
from irkit.dialects import state
from irkit.errors import IrkitError, VerifyError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.types import tensor


def refused(match: str, text: str) -> None:
    with pytest.raises(VerifyError, match=match):
        ik.parse(text).verify()


def program(body: str, variables: str | None = None, result: str = "") -> str:
    """A module whose main graph holds these lines; %x is a scalar, %p a condition."""
    v = W.replace('"w"', '"v"')
    return f"""builtin.module {{
      {v if variables is None else variables}
      func.func @main(%x: tensor<f32>, %p: tensor<i1>) {f"-> {result}" if result else ""} {{
        {body}
      }}
    }}"""


READ = '%r, %t = "state.read"() <{variable = @v}> : () -> (tensor<f32>, !state.token)'
ASSIGN = '%a = "state.assign"(%x) <{variable = @v}> : (tensor<f32>) -> !state.token'
AGAIN = '%c = "state.assign"(%x) <{variable = @v}> : (tensor<f32>) -> !state.token'
AFTER_READ = '%a = "state.assign"(%x, %t) <{variable = @v}> : (tensor<f32>, !state.token) -> !state.token'


@pytest.mark.parametrize(
    ("first", "second"),
    [(READ, ASSIGN), (ASSIGN, READ), (ASSIGN, AGAIN)],
    ids=["read-write", "write-read", "write-write"],
)
def test_two_accesses_that_nothing_orders(first: str, second: str) -> None:
    refused("nothing orders two accesses of variable 'v'", program(f"{first}\n{second}\nfunc.return"))


def test_the_message_says_where() -> None:
    b = Builder("g")
    v = state.variable(b, "momentum", 0.0)
    value, _ = state.read(b, v)
    state.assign(b, v, 1.0)
    b.output(value, "y")
    with pytest.raises(VerifyError) as caught:
        b.module()
    message = str(caught.value)
    assert message.count("test_order.py:") == 3
    assert "'momentum'" in message
    assert "state.read" in message
    assert "reads it" in message
    assert "state.assign" in message
    assert "writes it" in message
    assert "give the one that comes later the token of the other" in message


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([READ, AFTER_READ], id="token"),
        pytest.param([READ, READ.replace("%r, %t", "%r2, %t2")], id="two reads"),
        pytest.param(
            [READ, '%j = "state.join"(%t) : (!state.token) -> !state.token', AFTER_READ.replace("%t)", "%j)")],
            id="through a join",
        ),
        pytest.param([READ, ASSIGN.replace("%x", "%r")], id="the value itself"),
        pytest.param(
            [
                READ,
                '%y = "onnx.Relu"(%r) : (tensor<f32>) -> tensor<f32>',
                ASSIGN.replace("%x", "%y"),
            ],
            id="through values",
        ),
        pytest.param(
            [
                READ,
                '%y = "state.after"(%x, %t) : (tensor<f32>, !state.token) -> tensor<f32>',
                ASSIGN.replace("%x", "%y"),
            ],
            id="through after",
        ),
    ],
)
def test_paths_that_order(lines: list[str]) -> None:
    text = program("\n".join([*lines, "func.return"]))
    assert ik.parse(text).verify()


def test_only_neighbours_need_a_path_of_their_own() -> None:
    chain = [ASSIGN.replace("%a", "%w0")]
    for i in range(1, 40):
        line = (
            f'%w{i} = "state.assign"(%x, %w{i - 1}) <{{variable = @v}}> : (tensor<f32>, !state.token) -> !state.token'
        )
        chain.append(line)
    assert ik.parse(program("\n".join([*chain, "func.return"]))).verify()
    broken = [*chain[:20], chain[20].replace(", %w19", "").replace(", !state.token)", ")"), *chain[21:]]
    refused("nothing orders", program("\n".join([*broken, "func.return"])))


def test_a_read_between_two_writes_needs_both_sides() -> None:
    late = '%c = "state.assign"(%x, %a) <{variable = @v}> : (tensor<f32>, !state.token) -> !state.token'
    read = '%r, %t = "state.read"(%a) <{variable = @v}> : (!state.token) -> (tensor<f32>, !state.token)'
    refused("reads it.*writes it", program(f"{ASSIGN}\n{read}\n{late}\nfunc.return"))
    both = late.replace("(%x, %a)", "(%x, %t)")
    assert ik.parse(program(f"{ASSIGN}\n{read}\n{both}\nfunc.return")).verify()


def test_different_variables_need_no_order() -> None:
    b = Builder("g")
    tokens = [state.assign(b, state.variable(b, name, 0.0), 1.0) for name in "abc"]
    for i, token in enumerate(tokens):
        b.output(token, f"t{i}")
    assert b.module()


# Graphs of If, Loop and Scan


def branches(then: Callable[..., Tensor], otherwise: Callable[..., Tensor], before: bool, capture: bool) -> None:
    """An If, after a write if ``before``, of which its branches take the token if ``capture``."""
    b = Builder("g")
    v = state.variable(b, "v", 0.0)
    p = b.input("p", "bool", [])
    first = state.assign(b, v, 1.0) if before else state.group(b, [])
    waits = [first] if capture else []
    done = b.If(p, then_branch=lambda b: then(b, v, waits), else_branch=lambda b: otherwise(b, v, waits))
    b.output(state.group(b, [first, done]), "done")
    b.module()


def writes(b: Builder, v: state.Variable, waits: list[Tensor]) -> Tensor:
    return state.assign(b, v, 2.0, waits)


def looks(b: Builder, v: state.Variable, waits: list[Tensor]) -> Tensor:
    return state.read(b, v, waits)[1]


def nothing(b: Builder, v: state.Variable, waits: list[Tensor]) -> Tensor:
    return state.group(b, waits)


@pytest.mark.parametrize("then", [writes, looks])
@pytest.mark.parametrize("otherwise", [writes, looks, nothing])
def test_an_if_is_one_access(then: Callable[..., Tensor], otherwise: Callable[..., Tensor]) -> None:
    branches(then, otherwise, before=True, capture=True)
    branches(then, otherwise, before=False, capture=False)
    with pytest.raises(VerifyError, match="nothing orders"):
        branches(then, otherwise, before=True, capture=False)


def test_a_capture_in_either_branch_orders_the_whole_if() -> None:
    b = Builder("g")
    v = state.variable(b, "v", 0.0)
    first = state.assign(b, v, 1.0)
    done = b.If(
        b.input("p", "bool", []),
        then_branch=lambda b: state.assign(b, v, 2.0),
        else_branch=lambda b: state.group(b, [first]),
    )
    b.output(done, "done")
    assert b.module()


def test_order_within_a_graph_is_its_own() -> None:
    b = Builder("g")
    v = state.variable(b, "v", 0.0)

    def body(b: Builder, i: Tensor, c: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        state.read(b, v, [token])
        done = state.assign(b, v, 1.0, [token])
        return c, state.group(b, [done, state.group(b, [])])

    done = b.Loop(3, True, state.group(b, []), body=body)
    b.output(done, "done")
    with pytest.raises(VerifyError, match="nothing orders"):
        b.module()


def test_iterations_follow_each_other() -> None:
    b = Builder("g")
    v = state.variable(b, "v", 0.0)
    done = b.Loop(3, True, state.group(b, []), body=lambda b, i, c, t: (c, state.assign(b, v, 1.0)))
    b.output(done, "done")
    assert b.module()


def test_a_loop_and_what_comes_after_it() -> None:
    def build(ordered: bool) -> None:
        b = Builder("g")
        v = state.variable(b, "v", 0.0)
        done = b.Loop(3, True, state.group(b, []), body=lambda b, i, c, t: (c, state.assign(b, v, 1.0, [t])))
        value, _ = state.read(b, v, [done] if ordered else [])
        b.output(value, "y")
        b.output(done, "done")
        b.module()

    build(ordered=True)
    with pytest.raises(VerifyError, match="nothing orders"):
        build(ordered=False)


# Variables and types


def test_an_unknown_variable() -> None:
    refused("there is no variable 'v' \\(there are: 'w'\\)", program(f"{READ}\nfunc.return", variables=W))
    refused("there is no variable 'v'; the module has none", program(f"{READ}\nfunc.return", variables=""))


W = '"state.variable"() <{sym_name = "w", type = tensor<f32>, initial = #onnx.tensor<tensor<f32>, [0.0]>}> : () -> ()'


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        (f"{W}\n{W}", "two variables have the name 'w'"),
        (W.replace("tensor<f32>, initial", "tensor<2xf32>, initial"), "is tensor<2xf32>, but starts as tensor<f32>"),
        (W.replace("tensor<f32>, initial", "tensor<f64>, initial"), "is tensor<f64>, but starts as tensor<f32>"),
        (W.replace("type = tensor<f32>, ", ""), "needs 'type', a tensor type"),
        (W.replace(", initial = #onnx.tensor<tensor<f32>, [0.0]>", ""), "needs 'initial', a tensor"),
        (W.replace('"w"', "3 : i64"), "needs the text attribute 'sym_name'"),
        (W.replace("}>", ", trainable = 1 : i64}>"), "'trainable' of state.variable is there or not"),
        (W.replace("}>", ", mutable}>"), "has no attribute 'mutable'"),
        (W.replace("tensor<f32>, initial", "!state.token, initial"), "a tensor type; found !state.token"),
    ],
)
def test_a_bad_variable(variables: str, match: str) -> None:
    refused(match, program("func.return", variables=variables))


@pytest.mark.parametrize(
    ("line", "match"),
    [
        (
            ASSIGN.replace("%x", "%p").replace("(tensor<f32>)", "(tensor<i1>)"),
            "is tensor<f32>, but .* tensor<i1>; cast",
        ),
        (READ.replace("tensor<f32>", "tensor<i64>"), "variable 'v' is tensor<f32>, but state.read.* gives tensor<i64>"),
        (READ.replace("(tensor<f32>, !state.token)", "(tensor<f32>, tensor<f32>)"), "last result of state.read"),
        (ASSIGN.replace("@v", "@v::@u"), "needs one attribute, 'variable'"),
        ('%j = "state.join"(%x) : (tensor<f32>) -> !state.token', "operand 0 of state.join is tensor<f32>, expected"),
        ('%j = "state.join"() : () -> tensor<f32>', "the result of state.join is tensor<f32>"),
        ('%j = "state.after"() : () -> tensor<f32>', "takes a value and tokens, but has 0 operands"),
        (
            '%j = "state.after"(%x) : (tensor<f32>) -> tensor<i1>',
            "takes tensor<f32>, so its result cannot be tensor<i1>",
        ),
        ('"state.assign"(%x) <{variable = @v}> : (tensor<f32>) -> ()', "gives 1 results, but has 0"),
    ],
)
def test_a_bad_op(line: str, match: str) -> None:
    refused(match, program(f"{line}\nfunc.return"))


@pytest.mark.parametrize(
    ("declared", "given", "fine"),
    [
        ((3,), (3,), True),
        ((3,), (4,), False),
        ((3,), (None,), False),
        ((3,), None, False),
        ((3,), (3, 1), False),
        ((None,), (3,), True),
        ((None,), ("n",), True),
        (("n",), ("n",), True),
        (("n",), ("m",), False),
        (None, (2, 2), True),
        (None, None, True),
    ],
)
def test_a_variable_takes_what_its_type_says(
    declared: tuple[int | str | None, ...] | None, given: tuple[int | str | None, ...] | None, fine: bool
) -> None:
    b = Builder("g")
    start = np.zeros([3] if declared == (3,) else [0], np.float32)
    v = state.variable(b, "v", start, type=tensor("float32", declared))
    value = b.input("x", "float32", given)
    if not fine:
        with pytest.raises(IrkitError, match=r"variable 'v' is .*reshape the value, or declare"):
            state.assign(b, v, value)
    else:
        b.output(state.assign(b, v, value), "done")
        assert b.module()


# Tokens go only where they are understood


def test_tokens_elsewhere() -> None:
    refused(
        "is no op for tokens",
        program(f'{READ}\n%y = "onnx.Identity"(%t) : (!state.token) -> !state.token\nfunc.return'),
    )
    text = program("func.return").replace("%p: tensor<i1>", "%p: !state.token")
    refused("an input of the main graph cannot be a token", text)


def test_a_loop_cannot_collect_tokens() -> None:
    b = Builder("g")
    v = state.variable(b, "v", 0.0)
    b.output(b.Loop(3, True, body=lambda b, i, c: (c, state.assign(b, v, 1.0))), "done")
    with pytest.raises(VerifyError, match="a token in one place and a value in another"):
        b.module()


def test_branches_agree_on_tokens() -> None:
    b = Builder("g")
    v = state.variable(b, "v", 0.0)
    p = b.input("p", "bool", [])
    b.output(b.If(p, then_branch=lambda b: state.assign(b, v, 1.0), else_branch=lambda b: b.Identity(p)), "done")
    with pytest.raises(VerifyError, match="a token in one place and a value in another"):
        b.module()


def test_state_in_other_graphs_is_refused() -> None:
    b = Builder("g")
    v = state.variable(b, "v", np.float32(0))
    items = b.SequenceConstruct(np.float32(1))
    b.output(b.SequenceMap(items, body=lambda b, item: item + state.read(b, v)[0]), "y")
    with pytest.raises(VerifyError, match="only the graphs of If, Loop and Scan may access state"):
        b.module()


def test_state_in_functions_is_refused() -> None:
    function = f"""func.func @other(%x: tensor<f32>) {{
        {ASSIGN}
        func.return
      }}
    }}"""
    text = program("func.return").removesuffix("}").rstrip() + "\n" + function
    refused("state is accessed in the main graph only", text)


# The builder's own checks


def test_the_builder_refuses_early() -> None:
    b = Builder("g")
    v = state.variable(b, "v", 0.0)
    with pytest.raises(IrkitError, match="there is a variable 'v' already"):
        state.variable(b, "v", 1.0)
    with pytest.raises(IrkitError, match="is to be tensor<2xf32>, but starts as tensor<f32>"):
        state.variable(b, "w", np.float32(0), type=tensor("float32", [2]))
    with pytest.raises(TypeError, match="expected tokens"):
        state.group(b, [state.read(b, v)[0]])
    with pytest.raises(IrkitError, match=r"(?s)test_order\.py.*cast the value"):
        state.assign(b, v, np.array(1))
