"""Types: refined, never forgotten, and declarations that contradict them."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import Attribute

import irkit as ik
from irkit.frontends.onnx import load
from irkit.ir.types import OptType, SeqType, tensor, unknown
from irkit.passes import Instrumentation, optimize
from irkit.passes.infer_shapes import InferShapes
from irkit.passes.types import meet, set_type
from tests.corpus.build import from_text

F = "float32"


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        (tensor(F, (2, 3)), tensor(F, (2, 3)), tensor(F, (2, 3))),
        (tensor(F, ("N", 3)), tensor(F, (2, None)), tensor(F, (2, 3))),
        (tensor(F, ("N", None)), tensor(F, ("M", "K")), tensor(F, ("N", "K"))),
        (tensor(F, None), tensor(F, (1,)), tensor(F, (1,))),
        (unknown, tensor(F, (1,)), tensor(F, (1,))),
        (tensor(F, (1,)), unknown, tensor(F, (1,))),
        (tensor(F, (1,)), tensor(F, (2,)), None),
        (tensor(F, (1,)), tensor(F, (1, 1)), None),
        (tensor(F, (1,)), tensor("int64", (1,)), None),
        (SeqType(tensor(F, None)), SeqType(tensor(F, (2,))), SeqType(tensor(F, (2,)))),
        (OptType(tensor(F, None)), SeqType(tensor(F, (2,))), None),
    ],
)
def test_meet(a: Attribute, b: Attribute, both: Attribute | None) -> None:
    assert meet(a, b) == both


def test_results_get_types_again_and_symbols_stay() -> None:
    b = ik.Builder()
    x = b.input("x", F, ["N", 3])
    y = b.Relu(x)
    z = b.Transpose(y, perm=[1, 0])
    b.output(z, "z")
    module = b.module()
    set_type(module.returned[0], unknown)
    set_type(module.returned[0].owner.operands[0], tensor(F, None))
    made = optimize(module, "infer-shapes", verify_each=True)
    assert made.outputs["z"] == tensor(F, (3, "N"))
    assert module.returned[0].type == unknown


def test_a_pass_over_what_is_known_changes_nothing() -> None:
    b = ik.Builder()
    x = b.input("x", F, ["N", 3])
    b.output(b.Relu(x) + 1, "y")
    assert not InferShapes().run(b.module())


def test_news_travel_through_what_was_known_only_by_symbol() -> None:
    b = ik.Builder()
    x = b.input("x", F, ["N", 3])
    b.output(b.Relu(b.Relu(x)), "y")
    module = b.module()
    first = next(iter(module.block.ops))
    set_type(first.results[0], tensor(F, (None, 3)))
    set_type(module.block.args[0], tensor(F, (5, 3)))
    InferShapes().run(module)
    assert module.outputs["y"] == tensor(F, (5, 3))


LOOP = """
g (float[2] x, float[a] e, int64 n) => (float[s] y, float[t] z) <bool yes = {1}> {
    y, z = Loop (n, yes, x, e) <
        body = b (int64 i, bool going, float[p] v, float[q] w) => (bool go, float[p] v2, float[r] w2) {
            go = Identity (going)
            v2 = Neg (v)
            w2 = Concat <axis = 0> (w, v)
        }
    >
}
"""


def test_a_loop_keeps_the_shape_of_what_does_not_grow() -> None:
    module = optimize(load(from_text(LOOP)), "infer-shapes", verify_each=True)
    (loop,) = (op for op in module.block.ops if op.name == "onnx.Loop")
    assert loop.regions[0].block.args[2].type == tensor(F, (2,))
    assert loop.regions[0].block.args[3].type == tensor(F, (None,))
    assert module.outputs["y"] == tensor(F, (2,))
    assert module.outputs["z"] == tensor(F, (None,))


def test_a_loop_whose_rank_grows_keeps_the_dtype_alone() -> None:
    text = """
    g (float[2] x, int64 n) => (y) <bool yes = {1}, int64[1] zero = {0}> {
        y = Loop (n, yes, x) <
            body = b (int64 i, bool going, v) => (bool go, w) { go = Identity (going)  w = Unsqueeze (v, zero) }
        >
    }
    """
    module = optimize(load(from_text(text)), "infer-shapes", verify_each=True)
    assert module.outputs["y"] == tensor(F, None)


def test_shapes_in_a_loop_are_not_folded_from_the_first_iteration() -> None:
    text = """
    g (float[2] x, int64 n) => (int64[1] y) <bool yes = {1}, int64[1] start = {0}> {
        y, _last = Loop (n, yes, start, x) <
            body = b (int64 i, bool going, int64[1] k, v) => (bool go, int64[1] k2, w) {
                go = Identity (going)
                k2 = Shape (v)
                w = Concat <axis = 0> (v, v)
            }
        >
    }
    """
    made = optimize(load(from_text(text)), "O3", verify_each=True, check="each", stream=_Nowhere())
    run = ik_compile(made)
    assert run({"x": np.float32([1, 2]), "n": np.array(3)})["y"] == 8


def ik_compile(module: ik.Module):
    from irkit.backends import compile as compile_module

    return compile_module(module).run


class _Nowhere:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...


def test_calls_are_inferred_through_the_body() -> None:
    model = from_text(
        """
        g (float[N,3] x, int64[4] i) => (y, j) { y = local.Twice <k = 1> (x)  j = local.Twice <k = 2> (i) }
        <domain: "local", opset_import: ["" : 21]> Twice <k> (v) => (w) { w = Concat <axis = 0> (v, v) }
        """,
        imports={"local": 1},
    )
    made = optimize(load(model), "infer-shapes", verify_each=True)
    assert made.outputs["j"] == tensor("int64", (8,))
    assert made.outputs["y"] == tensor(F, (None, 3)) or made.outputs["y"] == tensor(F, ("2*N", 3))
    (function,) = (op for op in made.op.ops if op.name == "onnx.Function")
    assert [a.type for a in function.body.args] == [unknown]


def test_conflicts_and_misfits_are_reported() -> None:
    model = from_text("g (float[4] x, float[3] z) => (float[5] y) { t = Neg (x)  y = Exp (t)  u = Add (x, z) }")
    seen = Instrumentation()
    optimize(load(model), "infer-shapes", instrumentation=seen)
    conflict, misfit = seen.records[0].notes
    assert "'y'" in conflict
    assert "tensor<5xf32>" in conflict
    assert "tensor<4xf32>" in conflict
    assert misfit.startswith("onnx.Add")
