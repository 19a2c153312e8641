"""DFT and STFT, which are linear in their signals."""

from __future__ import annotations

from irkit.errors import UnsupportedError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import where
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules._through import through
from irkit.passes.autodiff.rules._window import counted, cut, reshape, scalar, size_of

proven_zero("HannWindow HammingWindow BlackmanWindow", "a size")
proven_zero("MelWeightMatrix", "the bands' edges are rounded to whole bins")
proven_zero("DFT", "lengths and axes", [1, 2])
proven_zero("STFT", "lengths", [1, 3])


@vjp("DFT")
def dft(g: Vjp) -> Tensor:
    """The adjoint of a transform of N points is N times the inverse one, and the other way round.

    What a shorter or longer ``dft_length`` cut off or added, the adjoint adds or cuts off.
    """
    b, x, ct = g.b, g.x(0), g.ct
    axis = _axis(g)
    inverse, onesided = bool(g.attr("inverse")), bool(g.attr("onesided"))
    # A one-sided inverse transform gives real numbers, N of them.
    whole = inverse and onesided
    length = g.size(ct, axis) if whole or not onesided else _length(g, axis)
    points = g.cast(length, ct)
    where_ = g.i64(axis)
    if inverse:
        found = b.Div(b.DFT(ct, scalar(b, length), where_, onesided=int(whole)), points)
    else:
        found = b.Mul(b.DFT(ct, scalar(b, length), where_, inverse=1), points)
    if whole:
        # Every bin but the first, and the last of an even N, stands for two.
        bins = counted(b, g.size(found, axis))
        single = b.Or(b.Equal(bins, g.i64(0)), b.Equal(b.Mul(bins, g.i64(2)), length))
        times = b.Sub(g.const(2.0, ct), g.cast(single, ct))
        found = b.Mul(found, reshape(b, times, [-1 if i == axis else 1 for i in range(g.rank(ct))]))
    if g.x(1) is not None:
        missing = b.Sub(g.size(x, axis), g.size(found, axis))
        found = b.Pad(found, b.Concat(g.i64([0]), missing, axis=0), None, g.i64([axis]))
    if size_of(g, x, -1) == 2:
        return found
    # Of a signal that may be real or complex, the imaginary parts are dropped as there is room for them.
    last = g.rank(x) - 1
    return cut(b, found, [last], [0], [size_of(g, x, last)])


def _length(g: Vjp, axis: int) -> Tensor:
    given = g.x(1)
    return g.size(g.x(0), axis) if given is None else g.b.Reshape(given, [1])


def _axis(g: Vjp) -> int:
    rank = g.rank(g.x(0))
    if g.x(2) is None:
        return rank - 2
    found = g.ints(2)
    if found is None:
        raise UnsupportedError(
            "its gradient needs the axis as a constant",
            op=g.op.name,
            where=where(g.op),
            hint="give the axis as an initializer",
        )
    return found[0] % rank


@vjp("STFT")
def stft(g: Vjp) -> Gradients:
    """Through frames gathered from the signal."""
    b, step, given = g.b, g.x(1), g.x(3)
    if given is not None:
        length = b.Reshape(given, [1])
    else:
        length = g.size(g.x(2), 0) if g.x(2) is not None else g.size(g.x(0), 1)
    starts = counted(b, g.size(g.y(), 1))
    places = b.Add(b.Mul(b.Unsqueeze(starts, [1]), g.cast(step, "int64")), counted(b, g.cast(length, "int64")))

    def forward(b: Builder, signal: Tensor, _: None, window: Tensor | None) -> Tensor:
        frames = b.Gather(signal, places, axis=1)
        if window is not None:
            frames = b.Mul(frames, b.Reshape(window, [-1, 1]))
        return b.DFT(frames, None, g.i64(2), onesided=g.attr("onesided"))

    return through(g, forward, [g.x(0), None, g.x(2)])
