"""Random numbers in standard integer ops: the same on every backend, from a seed, the iteration and the op's id alone.

onnxruntime's own generators go on from run to run and cannot be put back, so a training run that is resumed would not
draw what the uninterrupted one did. Here a number is a hash of a counter. The scalar key is SplitMix64's finalizer
(Steele et al., 2014); each element's hash is a multiply-xorshift bijection of 32 bits, with a second key between its
rounds, so that the streams of two keys are no shifted copies of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from irkit.backends.numpy.random import SEED_ID
from irkit.dialects.onnx import OnnxOp
from irkit.ir.builder import Builder, Tensor
from irkit.ir.dtypes import dtype

__all__ = ["SEED_ID", "Stream"]

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _u64(b: Builder, value: int) -> Tensor:
    return b.constant(np.uint64(value & _WORD))


def _u32(b: Builder, value: int) -> Tensor:
    return b.constant(np.uint32(value))


def _fold(b: Builder, x: Tensor, shift: Tensor) -> Tensor:
    """``x ^ (x >> shift)``."""
    return b.BitwiseXor(x, b.BitShift(x, shift, direction="RIGHT"))


@dataclass(frozen=True)
class Stream:
    """A source of random numbers.

    Attributes:
        key: a uint64 scalar, another for every iteration.
    """

    key: Tensor

    @classmethod
    def of(cls, b: Builder, seed: Tensor, iteration: Tensor) -> Stream:
        """That of an iteration; both are int64 scalars."""
        start = cls(b.Cast(seed, to=dtype("uint64").code))
        return start.mixed(b, b.Cast(iteration, to=dtype("uint64").code))

    def mixed(self, b: Builder, number: Tensor) -> Stream:
        """The stream of this key and a number (a uint64 scalar), of an iteration or an op."""
        z = b.Add(self.key, b.Mul(b.Add(number, _u64(b, 1)), _u64(b, _GOLDEN)))
        z = b.Mul(_fold(b, z, _u64(b, 30)), _u64(b, 0xBF58476D1CE4E5B9))
        z = b.Mul(_fold(b, z, _u64(b, 27)), _u64(b, 0x94D049BB133111EB))
        return Stream(_fold(b, z, _u64(b, 31)))

    def bits(self, b: Builder, op_id: int, shape: Tensor, part: int = 0) -> Tensor:
        """uint32 numbers of a shape (an int64 vector), all equally likely.

        Args:
            op_id: of the op that draws.
            part: where it needs several sets.
        """
        key = self.mixed(b, _u64(b, op_id + part * _GOLDEN)).key
        code = dtype("uint32").code
        low = b.Cast(b.BitwiseAnd(key, _u64(b, 0xFFFFFFFF)), to=code)
        high = b.Cast(b.BitShift(key, _u64(b, 32), direction="RIGHT"), to=code)
        count = b.ReduceProd(shape, keepdims=0)
        places = b.Range(b.constant(np.int64(0)), count, b.constant(np.int64(1)))
        x = b.BitwiseXor(b.Cast(places, to=code), low)
        x = b.Mul(_fold(b, x, _u32(b, 16)), _u32(b, 0x7FEB352D))
        x = b.BitwiseXor(_fold(b, x, _u32(b, 15)), high)
        x = b.Mul(x, _u32(b, 0x846CA68B))
        x = b.Mul(_fold(b, x, _u32(b, 16)), _u32(b, 0x7FEB352D))
        return b.Reshape(_fold(b, x, _u32(b, 15)), shape, allowzero=1)

    def uniform(self, b: Builder, op_id: int, shape: Tensor, part: int = 0) -> Tensor:
        """float32 numbers from 0 to below 1, multiples of 2^-24."""
        bits = b.BitShift(self.bits(b, op_id, shape, part), _u32(b, 8), direction="RIGHT")
        return b.Cast(bits, to=dtype("float32").code) * 2.0**-24

    def normal(self, b: Builder, op_id: int, shape: Tensor) -> Tensor:
        """float32 numbers of the standard normal distribution (Box and Muller, 1958)."""
        radius = b.Sqrt(b.Log(1.0 - self.uniform(b, op_id, shape)) * -2.0)
        return radius * b.Cos(self.uniform(b, op_id, shape, 1) * (2 * math.pi))

    def below(self, b: Builder, op_id: int, shape: Tensor, chance: float) -> Tensor:
        """Booleans, each true with this chance."""
        threshold = round(chance * 2**32)
        if threshold >= 2**32:
            return b.Expand(b.constant(np.array(True)), shape)
        return b.Less(self.bits(b, op_id, shape), _u32(b, max(threshold, 0)))


def draw(b: Builder, stream: Stream, op: OnnxOp, op_id: int) -> list[Tensor] | None:
    """What a random op gives, in these numbers; None for an op that is not known here."""
    maker = _OPS.get(op.op_type)
    return None if maker is None else maker(b, stream, op, op_id)


def _kind(op: OnnxOp, like: Tensor | None) -> int:
    given = op.attr("dtype")
    if given is not None:
        return int(given)
    return like.dtype.code if like is not None and like.dtype is not None else dtype("float32").code


def _shape(b: Builder, op: OnnxOp) -> tuple[Tensor, int]:
    """The shape and the dtype's code of what an op with or without an operand gives."""
    if op.operands:
        like = b.wrap(op.operands[0])
        return b.Shape(like), _kind(op, like)
    return b.constant(np.asarray(op.attr("shape"), np.int64)), _kind(op, None)


def _random_uniform(b: Builder, stream: Stream, op: OnnxOp, op_id: int) -> list[Tensor]:
    shape, code = _shape(b, op)
    low, high = float(op.attr("low")), float(op.attr("high"))
    return [b.Cast(stream.uniform(b, op_id, shape) * (high - low) + low, to=code)]


def _random_normal(b: Builder, stream: Stream, op: OnnxOp, op_id: int) -> list[Tensor]:
    shape, code = _shape(b, op)
    mean, scale = float(op.attr("mean")), float(op.attr("scale"))
    return [b.Cast(stream.normal(b, op_id, shape) * scale + mean, to=code)]


def _bernoulli(b: Builder, stream: Stream, op: OnnxOp, op_id: int) -> list[Tensor]:
    chance = b.wrap(op.operands[0])
    drawn = stream.uniform(b, op_id, b.Shape(chance))
    return [b.Cast(b.Less(drawn, b.Cast(chance, to=dtype("float32").code)), to=_kind(op, chance))]


_OPS = {
    "RandomUniform": _random_uniform,
    "RandomUniformLike": _random_uniform,
    "RandomNormal": _random_normal,
    "RandomNormalLike": _random_normal,
    "Bernoulli": _bernoulli,
}
"""What each random op draws; ``Dropout`` is made by ``modes``, which knows whether it is on."""
