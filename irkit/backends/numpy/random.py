"""Counter-based random numbers: what an op draws depends on the seed, the op's id and the iteration, and nothing else.

An op's id is its attribute ``onnx.seed_id``, which passes keep; without one it is made from the name of its first
result, or else from its place among the ops of its module that draw: the attribute ``onnx.place`` where passes have
changed that. Inside a function the ids of the calls are mixed in, inside a loop the numbers of the iterations.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation

from irkit.ir.names import name_of

__all__ = ["PLACE", "SEED_ID", "Draws", "call_id", "fresh_seed", "mix", "op_key"]

SEED_ID = "onnx.seed_id"
PLACE = "onnx.place"
_MASK = (1 << 64) - 1


def mix(path: int, number: int) -> int:
    """A path of iterations, one step further. SplitMix64's finalizer, which is a bijection for each number."""
    z = (path + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def op_key(op: Operation, ordinal: int, scope: str = "") -> int:
    """The id of an op that draws.

    Args:
        ordinal: its place among the drawing ops of its graph.
        scope: says from which calls of functions the op is reached.
    """
    given = op.attributes.get(SEED_ID)
    if isinstance(given, IntegerAttr) and not scope:
        return cast("IntegerAttr[Any]", given).value.data & _MASK
    name = str(cast("IntegerAttr[Any]", given).value.data) if isinstance(given, IntegerAttr) else ""
    name = name or (name_of(op.results[0]) if op.results else "") or f"#{_place(op, ordinal)}"
    digest = hashlib.blake2b(f"{scope}/{name}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def call_id(call: Operation, ordinal: int) -> str:
    """What tells a call of a function apart from others: its name, or else its place among the calls of its block."""
    return (name_of(call.results[0]) if call.results else "") or str(_place(call, ordinal))


def _place(op: Operation, ordinal: int) -> int:
    given = op.attributes.get(PLACE)
    return cast("IntegerAttr[Any]", given).value.data if isinstance(given, IntegerAttr) else ordinal


def fresh_seed() -> int:
    """A seed from the operating system's entropy."""
    return secrets.randbits(64)


class Draws:
    """A ``numpy.random.Generator`` that is made when it is first drawn from: Dropout seldom does."""

    __slots__ = ("_generator", "_key", "_path")

    def __init__(self, seed: int, op_id: int, path: int) -> None:
        self._key = (seed & _MASK, op_id & _MASK)
        self._path = path
        self._generator: np.random.Generator | None = None

    def __getattr__(self, name: str) -> Any:
        if self._generator is None:
            bits = np.random.Philox(
                key=np.array(self._key, np.uint64), counter=np.array([0, 0, 0, self._path], np.uint64)
            )
            self._generator = np.random.Generator(bits)
        return getattr(self._generator, name)
