"""RotaryEmbedding and TensorScatter. The attentions themselves are differentiated through their function bodies."""

from __future__ import annotations

from irkit.ir.builder import Tensor
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules._through import through_body
from irkit.passes.autodiff.rules._window import counted, reshape, size_of

proven_zero("RotaryEmbedding", "positions", [3])
proven_zero("TensorScatter", "indices", [2])
proven_zero("Attention", "lengths", [6])


@vjp("RotaryEmbedding")
def rotary_embedding(g: Vjp) -> Gradients:
    """Turns the cotangent back."""
    found: list[Tensor | None] = [None] * 3
    if g.needs(1) or g.needs(2):
        found = through_body(g)
    if g.needs(0):
        names = ("num_heads", "rotary_embedding_dim", "interleaved")
        options = {name: g.attr(name) for name in names}
        found[0] = g.b.RotaryEmbedding(g.ct, g.x(1), g.b.Neg(g.x(2)), g.x(3), **options)
    return found


@vjp("TensorScatter")
def tensor_scatter(g: Vjp) -> Gradients:
    b, update, start, ct = g.b, g.x(1), g.x(2), g.ct
    rank, mode = g.rank(update), g.attr("mode")
    axis = g.attr("axis") % rank
    past = None
    if g.needs(0):
        past = b.TensorScatter(ct, g.zeros_like(update), start, axis=axis, mode=mode)
    if not g.needs(1):
        return past, None
    place = reshape(b, counted(b, size_of(g, update, axis)), [-1 if i == axis else 1 for i in range(rank)])
    if start is not None:
        place = b.Add(place, b.Reshape(start, [-1, *[1] * (rank - 1)]))
    place = b.Mod(place, g.size(ct, axis))
    return past, b.GatherElements(ct, b.Expand(place, g.shape_of(update)), axis=axis)
