"""Whether two IR trees say the same. xDSL's own comparison ignores result types."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

__all__ = ["difference", "same"]


def same(a: Operation, b: Operation, *, locations: bool = False) -> bool:
    """Whether the ops, everything nested in them, their types, attributes and order agree."""
    return difference(a, b, locations=locations) is None


def difference(a: Operation, b: Operation, *, locations: bool = False) -> str | None:
    """The first difference in words, or None."""
    return _op(a, b, {}, locations)


def _op(a: Operation, b: Operation, seen: dict[SSAValue, SSAValue], locations: bool) -> str | None:
    if a.name != b.name:
        return f"{a.name} against {b.name}"
    for what, mine, theirs in (
        ("properties", a.properties, b.properties),
        ("attributes", a.attributes, b.attributes),
    ):
        if mine != theirs:
            keys = [k for k in {**mine, **theirs} if mine.get(k) != theirs.get(k)]
            return f"{what} {keys} of {a.name}: {mine.get(keys[0])} against {theirs.get(keys[0])}"
    if len(a.operands) != len(b.operands) or len(a.results) != len(b.results) or len(a.regions) != len(b.regions):
        return f"{a.name} has other numbers of operands, results or regions"
    for index, (x, y) in enumerate(zip(a.operands, b.operands, strict=True)):
        if seen.get(x, x) is not y:
            return f"operand {index} of {a.name} comes from elsewhere"
    for index, (x, y) in enumerate(zip(a.results, b.results, strict=True)):
        if x.type != y.type:
            return f"result {index} of {a.name} is {x.type} against {y.type}"
        seen[x] = y
    if locations and a.location != b.location:
        return f"location of {a.name}: {a.location} against {b.location}"
    for x, y in zip(a.regions, b.regions, strict=True):
        mine, theirs = list(x.blocks), list(y.blocks)
        if len(mine) != len(theirs):
            return f"{a.name} has regions of other numbers of blocks"
        for p, q in zip(mine, theirs, strict=True):
            found = _block(p, q, seen, locations)
            if found is not None:
                return found
    return None


def _block(a: Block, b: Block, seen: dict[SSAValue, SSAValue], locations: bool) -> str | None:
    if [arg.type for arg in a.args] != [arg.type for arg in b.args]:
        return "a block has arguments of other types"
    seen.update(zip(a.args, b.args, strict=True))
    left, right = a.first_op, b.first_op
    while left is not None and right is not None:
        found = _op(left, right, seen, locations)
        if found is not None:
            return found
        left, right = left.next_op, right.next_op
    return None if left is right else "a block has more ops than the other"
