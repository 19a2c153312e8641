"""What two claims about one value's type say together."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from irkit.ir.types import (
    Dim,
    OptType,
    SeqType,
    UnknownType,
    intern,
    scalar_dims,
    tensor,
    tensor_info,
)

__all__ = ["is_fully_known", "is_static", "meet", "refine", "same_shape", "same_type", "set_type"]


def meet(a: Attribute, b: Attribute) -> Attribute | None:
    """The type of a value that is both an ``a`` and a ``b``; None where they contradict each other.

    A number says more than a symbol, a symbol more than nothing; of two symbols ``a``'s stays.
    """
    if a == b or isinstance(b, UnknownType):
        return a
    if isinstance(a, UnknownType):
        return b
    x, y = tensor_info(a), tensor_info(b)
    if x is not None and y is not None:
        if x.dtype is not y.dtype:
            return None
        if x.shape is None or y.shape is None:
            return b if x.shape is None else a
        if len(x.shape) != len(y.shape):
            return None
        dims: list[Dim] = []
        for p, q in zip(x.shape, y.shape, strict=True):
            if isinstance(p, int) and isinstance(q, int) and p != q:
                return None
            dims.append(q if p is None or (isinstance(q, int) and not isinstance(p, int)) else p)
        return tensor(x.dtype, dims)
    for wrapper in (SeqType, OptType):
        if isinstance(a, wrapper) and isinstance(b, wrapper):
            inner = meet(a.element, b.element)
            return None if inner is None else intern(wrapper(inner))
    return None


def set_type(value: SSAValue, value_type: Attribute) -> None:
    """Changes what is known of a value's type, in place."""
    value._type = value_type  # pyright: ignore[reportPrivateUsage]


def refine(value: SSAValue, value_type: Attribute) -> bool:
    """Adds what a type says to the type of a value. Returns whether that is news; contradictions change nothing."""
    found = meet(value.type, value_type)
    if found is None or found == value.type:
        return False
    set_type(value, found)
    return True


def is_static(value_type: Attribute) -> bool:
    """Whether this is a tensor type all of whose sizes are numbers."""
    return scalar_dims(value_type) is not None


def is_fully_known(value_type: Attribute) -> bool:
    """Whether inference has nothing to add: a tensor type each of whose sizes is a number or a symbol."""
    info = tensor_info(value_type)
    return info is not None and info.shape is not None and None not in info.shape


def same_shape(a: Attribute, b: Attribute) -> bool:
    """Whether two tensors certainly have the same shape: equal numbers or symbols on every axis."""
    x, y = tensor_info(a), tensor_info(b)
    if x is None or y is None or x.shape is None or y.shape is None:
        return False
    return x.shape == y.shape and None not in x.shape


def same_type(a: Attribute, b: Attribute) -> bool:
    """Whether two tensors certainly have the same dtype and shape."""
    x, y = tensor_info(a), tensor_info(b)
    return x is not None and y is not None and x.dtype is y.dtype and same_shape(a, b)
