"""Mistakes planted in the layout pass: each must change what some model computes, or how much it transposes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import CheckError
from irkit.passes import optimize
from irkit.passes.layout import choice, emit, forms, graph, ops
from irkit.passes.layout.forms import FORMS, Moving
from irkit.passes.layout.graph import Source
from tests.unit.passes.layout_nets import NETS
from tests.unit.passes.test_layout import moved, sandwich, transposes

Patch = pytest.MonkeyPatch
Builds = Callable[[], ik.Module]


@dataclass(frozen=True)
class Mutant:
    """A mistake, and a model on which it shows: in what is computed, or, of a ``costly`` one, in what is transposed."""

    name: str
    plant: Callable[[Patch], None]
    build: Builds
    costly: bool = False


def op(name: str, first: bool = True) -> Builds:
    return lambda: sandwich(name, 4, first)


def everywhere(patch: Patch, name: str, value: Any) -> None:
    """Puts something in the place of a function in every module of the pass that uses it."""
    for module in (choice, emit, forms, graph, ops):
        if hasattr(module, name):
            patch.setattr(module, name, value)


def takes_the_permutation_for_its_inverse(patch: Patch) -> None:
    patch.setattr(emit, "inverse", lambda perm: perm)


def composes_the_other_way(patch: Patch) -> None:
    patch.setattr(graph, "compose", lambda p, q: tuple(q[i] for i in p))


def several_transposes() -> ik.Module:
    b = ik.Builder("several")
    x = b.input("x", "float32", [2, 3, 4])
    y = b.Transpose(b.Relu(b.Transpose(x, perm=[1, 0, 2])), perm=[0, 2, 1])
    b.output(b.Neg(b.Transpose(y, perm=[1, 2, 0])), "y")
    return b.module()


def leaves_the_axis(patch: Patch) -> None:
    everywhere(patch, "_along", lambda m, operands: m.make(operands))


def maps_the_axis_backwards(patch: Patch) -> None:
    right = ops._axis
    patch.setattr(ops, "_along", lambda m, operands: m.make(operands, axis=m.order[right(m.op, m.form.rank)]))


def leaves_reduced_axes(patch: Patch) -> None:
    patch.setattr(Moving, "axes", lambda self, axes: self.numbers(sorted(axes)))


def does_not_align_constants(patch: Patch) -> None:
    patch.setattr(Moving, "broadcast", lambda self, value, axes: value)


def aligns_with_the_axes_before(patch: Patch) -> None:
    right = Moving.broadcast

    def wrong(self: Moving, value: Any, axes: Any) -> Any:
        return right(self, value, axes and tuple(axis - 1 for axis in axes))

    patch.setattr(Moving, "broadcast", wrong)


def leaves_whole_constants(patch: Patch) -> None:
    patch.setattr(emit._Application, "_constant", lambda self, value, order, moving: value)


def leaves_vectors(patch: Patch) -> None:
    patch.setattr(Moving, "reordered", lambda self, vector, order: vector)


def pads_ends_as_beginnings(patch: Patch) -> None:
    right = Moving.reordered

    def wrong(self: Moving, vector: Any, order: Any) -> Any:
        rank = self.form.rank
        return right(self, vector, [*order[rank:], *order[:rank]] if len(order) > rank else order)

    patch.setattr(Moving, "reordered", wrong)


def keeps_sizes_in_the_new_order(patch: Patch) -> None:
    right = FORMS["onnx.Shape"]

    def wrong(node: Any, opset: int) -> Any:
        found = right(node, opset)
        return found and forms.Form(found.rank, found.operands, found.results, forms.plain)

    patch.setitem(FORMS, "onnx.Shape", wrong)


def takes_any_reshape_for_one_of_axes_of_size_1(patch: Patch) -> None:
    patch.setattr(ops, "_matched", lambda before, after: ((0, 1, 2, 3), (0, 1, 2, 3), 4))


def a_real_reshape() -> ik.Module:
    b = ik.Builder("reshape")
    x = b.input("x", "float32", [2, 3, 4, 6])
    y = b.Reshape(b.Transpose(x, perm=[0, 3, 1, 2]), np.array([2, 6, 4, 3]))
    b.output(b.Transpose(y, perm=[0, 2, 3, 1]), "y")
    return b.module()


def normalizes_whatever_is_last(patch: Patch) -> None:
    right = FORMS["onnx.LayerNormalization"]

    def wrong(node: Any, opset: int) -> Any:
        found = right(node, opset)
        return found and forms.Form(found.rank, found.operands, found.results, found.build)

    patch.setitem(FORMS, "onnx.LayerNormalization", wrong)


def a_square_norm() -> ik.Module:
    b = ik.Builder("norm")
    x = b.input("x", "float32", [2, 3, 3, 3])
    y = b.LayerNormalization(b.Transpose(x, perm=[0, 2, 3, 1]), np.arange(1, 4, dtype=np.float32))
    b.output(b.Transpose(y, perm=[0, 3, 1, 2]), "y")
    return b.module()


def takes_every_op_for_elementwise(patch: Patch) -> None:
    every = (0, 1, 2, 3)
    patch.setitem(FORMS, "onnx.MatMul", lambda node, opset: forms.Form(4, (every, every), (every,), forms.plain))


def a_product() -> ik.Module:
    b = ik.Builder("product")
    x = b.input("x", "float32", [3, 3, 3, 3])
    t = b.Transpose(x, perm=[0, 3, 1, 2])
    b.output(b.Transpose(b.MatMul(t, t), perm=[0, 2, 3, 1]), "y")
    return b.module()


def forgets_that_an_output_keeps_its_order(patch: Patch) -> None:
    right = emit._Application._in
    patch.setattr(
        emit._Application,
        "_in",
        lambda self, source, order, before: (
            self.made[source][0] if before.name == "func.return" else right(self, source, order, before)
        ),
    )


def counts_nothing(patch: Patch) -> None:
    patch.setattr(Source, "cost", lambda self: 0)
    patch.setattr(graph.Cluster, "spent", lambda self: 0)


def takes_the_dearest_cut(patch: Patch) -> None:
    patch.setattr(choice.Network, "cut", lambda self, budget, *, eager: [False] * len(self.edges))


def moves_elements_as_axes_of_size_1(patch: Patch) -> None:
    patch.setattr(Source, "layout", lambda self, order: ())


MUTANTS = [
    Mutant("a permutation is taken for its inverse", takes_the_permutation_for_its_inverse, NETS["u_net"].module),
    Mutant("permutations are composed the other way", composes_the_other_way, several_transposes),
    Mutant("an axis is left as it is", leaves_the_axis, op("Concat")),
    Mutant("an axis is mapped backwards", maps_the_axis_backwards, op("Softmax")),
    Mutant("reduced axes are left as they are", leaves_reduced_axes, op("ReduceSum")),
    Mutant("operands are not aligned", does_not_align_constants, op("Add, constant per channel", False)),
    Mutant("operands are aligned with other axes", aligns_with_the_axes_before, op("Add, constant per channel", False)),
    Mutant("constants are not transposed", leaves_whole_constants, op("Add, whole constant")),
    Mutant("pads are left as they are", leaves_vectors, op("Pad")),
    Mutant("repeats are left as they are", leaves_vectors, op("Tile")),
    Mutant("what is padded at the ends changes places", pads_ends_as_beginnings, op("Pad")),
    Mutant("sizes are those of the new order", keeps_sizes_in_the_new_order, op("Shape, a part")),
    Mutant("any Reshape is let through", takes_any_reshape_for_one_of_axes_of_size_1, a_real_reshape),
    Mutant("whatever is last is normalized", normalizes_whatever_is_last, a_square_norm),
    Mutant("MatMul is let through", takes_every_op_for_elementwise, a_product),
    Mutant("outputs come as they are stored", forgets_that_an_output_keeps_its_order, NETS["u_net"].module),
    Mutant("nothing costs anything", counts_nothing, NETS["residual"].module, costly=True),
    Mutant("no op ever moves", takes_the_dearest_cut, NETS["residual"].module, costly=True),
    Mutant("all orders lie alike in memory", moves_elements_as_axes_of_size_1, NETS["u_net"].module),
]


def checked(module: ik.Module) -> ik.Module:
    return optimize(module, "layout,dce", check="each", verify_each=True, stream=io.StringIO())


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 15


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mutant_is_caught(mutant: Mutant, monkeypatch: Patch) -> None:
    module = mutant.build()
    before = module.clone()
    right = checked(module)
    mutant.plant(monkeypatch)
    if mutant.costly:
        wrong = checked(module)
        assert (moved(wrong), transposes(wrong)) > (moved(right), transposes(right))
    else:
        with pytest.raises(CheckError, match="pass 'layout' changed what the module computes"):
            checked(module)
    assert module == before
