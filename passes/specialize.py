"""Symbolic sizes turned into numbers, and numbers into symbols.

Both change the signature, which is their purpose. Both infer all types anew from the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.values import constant_of, is_constant
from irkit.errors import CheckError, IrkitError
from irkit.ir import dims
from irkit.ir.constants import constant
from irkit.ir.module import Module, arg_entries
from irkit.ir.names import DECL
from irkit.ir.types import Dim, OptType, SeqType, Shape, intern, shape_of, tensor, tensor_info
from irkit.passes.infer_shapes import Inferrer
from irkit.passes.registry import suggestion
from irkit.passes.rewrite import Rewriter, sync_signature
from irkit.passes.types import set_type

__all__ = ["generalize", "specialize"]


def specialize(module: Module, sizes: Mapping[str, int | str] | None = None, /, **more: int | str) -> Module:
    """A copy of a module in which symbolic sizes are given: ``specialize(m, batch=8)``.

    Args:
        sizes: numbers by symbol; or other symbols or expressions, which renames. A mapping serves symbols that are no
            Python names.
        more: the same, as keywords.

    Raises:
        IrkitError: if the module has no such symbol, if a number is no size, or if the sizes don't fit the ops.
    """
    known = _symbols(module)
    given: dict[str, int | str] = {}
    for name, size in {**(sizes or {}), **more}.items():
        if name not in known:
            raise IrkitError(f"no size is called '{name}'", hint=suggestion(name, sorted(known), "sizes"))
        given[name] = _size(name, size)
    made = module.clone()
    for value in _values(made):
        set_type(value, _substituted(value.type, given))
    _infer(made, Inferrer(made, revisit=True))
    return made


def _size(name: str, size: object) -> int | str:
    """A size as it may be given for a symbol."""
    if isinstance(size, str):
        return size
    number = cast(int, size) if isinstance(size, int | np.integer) and not isinstance(size, bool) else -1
    if number >= 0:
        return int(number)
    raise IrkitError(f"'{name}' cannot be {size!r}", hint="a size is a whole number from 0 on, or a symbol")


def generalize(module: Module, symbols: Mapping[str, Mapping[int, str] | Sequence[str | int | None]]) -> Module:
    """A copy of a module in which sizes of inputs are symbols: ``generalize(m, {"x": {0: "batch"}})``.

    What the module computes from a size, it computes from the symbol. A size that a Reshape has as a constant is
    replaced where all others of it are known. The result is checked: at the sizes that it had, it gives what the module
    gives, and it runs at others. What the model knows otherwise, such as a mean divided by a constant count, can't be
    told: it stays as it is.

    Args:
        symbols: by input, the symbols by axis; or one entry per axis, None for those that stay.

    Raises:
        IrkitError: if there is no such input or axis, or if an op only takes the size that it had: which one.
    """
    made = module.clone()
    before: dict[str, int] = {}
    for name, entries in symbols.items():
        if name not in module.inputs:
            raise IrkitError(f"there is no input '{name}'", hint=suggestion(name, module.input_names, "inputs"))
        arg = made.block.args[made.input_names.index(name)]
        shape = _renamed(name, shape_of(arg.type), entries, before)
        info = tensor_info(arg.type)
        assert info is not None
        set_type(arg, tensor(info.dtype, shape))
    _reshape_freely(made, before)
    _infer(made, Inferrer(made, afresh=True))
    _check(module, made, before)
    return made


def _renamed(
    name: str, shape: Shape | None, entries: Mapping[int, str] | Sequence[str | int | None], before: dict[str, int]
) -> Shape:
    """An input's new shape; notes which number each symbol was."""
    if shape is None:
        raise IrkitError(f"input '{name}' has no known shape")
    if isinstance(entries, Mapping):
        by_axis = dict(entries)
    elif len(entries) == len(shape):
        by_axis = {axis: e for axis, e in enumerate(entries) if isinstance(e, str)}
    else:
        raise IrkitError(f"input '{name}' has {len(shape)} axes, but {len(entries)} entries are given")
    made = list(shape)
    for axis, symbol in by_axis.items():
        if not isinstance(cast(object, symbol), str):
            raise IrkitError(f"axis {axis} of '{name}' is to be {symbol!r}", hint="give the name of a symbol")
        if not -len(shape) <= axis < len(shape):
            raise IrkitError(f"input '{name}' of shape {list(shape)} has no axis {axis}")
        size = shape[axis]
        made[axis] = symbol
        if isinstance(size, int) and before.setdefault(symbol, size) != size:
            raise IrkitError(
                f"'{symbol}' would be both {before[symbol]} and {size} (axis {axis} of '{name}')",
                hint="give sizes that differ names that differ",
            )
    return tuple(made)


def _reshape_freely(module: Module, before: Mapping[str, int]) -> None:
    """Constant shapes that can't hold for every size get a -1 in the place of a size that is symbolic now."""
    inferrer = Inferrer(module, afresh=True)
    rewriter = Rewriter(module, "generalize")
    for op in list(module.block.ops):
        if isinstance(op, OnnxOp) and op.name == "onnx.Reshape" and is_constant(op.operands[1]):
            _free_reshape(op, rewriter, set(before.values()))
        inferrer.visit(op)


def _free_reshape(op: OnnxOp, rewriter: Rewriter, old: set[int]) -> None:
    shape, data = shape_of(op.operands[0].type), constant_of(op.operands[1])
    elements = None if shape is None else dims.product(shape)
    if data is None or not isinstance(elements, str) or not data.size:
        return
    target = [int(n) for n in data.array().reshape(-1)]
    if -1 in target or (0 in target and not op.attr("allowzero")):
        return
    fits = [
        place
        for place, size in enumerate(target)
        if size in old and isinstance(dims.exact_div(elements, dims.product(target[:place] + target[place + 1 :])), str)
    ]
    if len(fits) == 1:
        target[fits[0]] = -1
        made = rewriter.constant(constant(np.array(target, np.int64), "int64").data, before=op, sources=[op])
        if made is not None:
            op.operands[1] = made


def _infer(module: Module, inferrer: Inferrer) -> None:
    """Infers all types from the inputs on.

    Raises:
        IrkitError: if operands don't fit an op.
    """
    inferrer.block(module.block)
    if inferrer.failures:
        raise IrkitError(f"the sizes do not fit: {inferrer.failures[0]}")
    _forget_declarations(module)
    sync_signature(module)


def _forget_declarations(module: Module) -> None:
    """What the file declared of shapes held for the sizes that it had."""
    for op in module.op.walk():
        op.attributes.pop(DECL, None)
    func = module.func
    for key, count in (("arg_attrs", len(module.block.args)), ("res_attrs", len(module.returned))):
        entries = arg_entries(getattr(func, key), count)
        kept = [{k: v for k, v in entry.items() if k != DECL} for entry in entries]
        func.properties[key] = ArrayAttr([DictionaryAttr(entry) for entry in kept])


def _check(module: Module, general: Module, before: Mapping[str, int]) -> None:
    from irkit.backends import compile
    from irkit.verify import difference_of, random_feeds

    old, new = compile(module, backend="numpy", seed=0), compile(general, backend="numpy", seed=0)
    feeds = random_feeds(module)
    expected, found = old.run(feeds), new.run(feeds)
    for name, value in expected.items():
        difference = difference_of(value, found[name])
        if difference is not None:
            raise CheckError(f"at the sizes that the module had, output '{name}' {difference.message}")
    for added in (1, 3):
        sizes = {symbol: size + added for symbol, size in before.items()}
        try:
            new.run(random_feeds(general, 0, sizes))
        except IrkitError as error:
            shown = ", ".join(f"{s}={n}" for s, n in sizes.items())
            raise IrkitError(
                f"the module is bound to its sizes: at {shown} {error.message}",
                op=error.op,
                where=error.where,
                hint="compute what depends on a size from Shape, or leave that size as it is",
            ) from error


# Types


def _values(module: Module) -> list[SSAValue]:
    found: list[SSAValue] = []
    for op in module.func.walk():
        found += op.results
        found += [arg for region in op.regions for block in region.blocks for arg in block.args]
    return found


def _symbols(module: Module) -> set[str]:
    return {s for value in _values(module) for dim in _dims(value.type) for s in dims.symbols_in(dim)}


def _dims(value_type: Attribute) -> Sequence[Dim]:
    while isinstance(value_type, SeqType | OptType):
        value_type = value_type.element
    return shape_of(value_type) or ()


def _substituted(value_type: Attribute, sizes: Mapping[str, Dim]) -> Attribute:
    if isinstance(value_type, SeqType | OptType):
        return intern(type(value_type)(_substituted(value_type.element, sizes)))
    info = tensor_info(value_type)
    if info is None or info.shape is None:
        return value_type
    return tensor(info.dtype, [dims.substitute(dim, sizes) for dim in info.shape])
