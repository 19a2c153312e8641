"""Where the channels are: ONNX has them at axis 1, Keras by default at the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from irkit.dialects.onnx import OnnxOp
from irkit.errors import IrkitError
from irkit.ir.builder import Tensor

__all__ = ["before_channels", "behind_channels", "checked", "elementwise", "rank_of", "sized", "tuple_of"]


def rank_of(x: Tensor) -> int:
    """The number of axes.

    Raises:
        IrkitError: if it is not known.
    """
    if x.rank is None:
        raise IrkitError("the rank of a layer's input is not known", hint="declare its shape")
    return x.rank


def behind_channels(x: Tensor, data_format: str) -> Tensor:
    """The value with the channels at axis 1, as ONNX's ops take it."""
    rank = rank_of(x)
    if data_format == "channels_first" or rank < 3:
        return x
    return x.builder.Transpose(x, perm=[0, rank - 1, *range(1, rank - 1)])


def before_channels(x: Tensor, data_format: str) -> Tensor:
    """The value with the channels where the layer has them, from axis 1."""
    rank = rank_of(x)
    if data_format == "channels_first" or rank < 3:
        return x
    return x.builder.Transpose(x, perm=[0, *range(2, rank), 1])


def elementwise(function: Callable[..., Tensor], *values: Tensor) -> Tensor:
    """A function that treats every place by itself, in front of the transposes of its operands if all have the same.

    So the transposes around the convolutions before and behind meet, and cancel out.
    """
    ops = [v.ssa.owner for v in values]
    perms = {tuple(op.attr("perm") or ()) if isinstance(op, OnnxOp) and op.op_type == "Transpose" else () for op in ops}
    if len(perms) != 1 or () in perms:
        return function(*values)
    perm = list(perms.pop())
    made = function(*(v.builder.wrap(op.operands[0]) for v, op in zip(values, ops, strict=True)))  # pyright: ignore[reportAttributeAccessIssue]
    return made.builder.Transpose(made, perm=perm)


def checked(data_format: str | None) -> str:
    """A data format.

    Raises:
        IrkitError: if it is none.
    """
    found = data_format or "channels_last"
    if found not in ("channels_last", "channels_first"):
        raise IrkitError(f"data_format={data_format!r} is not known", hint="channels_last or channels_first")
    return found


def tuple_of(value: Any, count: int, what: str) -> tuple[int, ...]:
    """One number for all axes, or one an axis, as a tuple.

    Raises:
        IrkitError: if there are not as many as axes.
    """
    found = (value,) * count if isinstance(value, int) else tuple(value)
    if len(found) != count:
        raise IrkitError(f"{what}={value!r}: one number is needed, or {count}")
    return found


def sized(shape: Any, data_format: str) -> tuple[int | None, ...]:
    """The sizes of the axes that are neither batch nor channels."""
    return tuple(shape[1:-1] if data_format == "channels_last" else shape[2:])
