"""Changes the layout in which a model takes and gives its images, where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Attribute, Operation, SSAValue

from irkit.errors import PassError
from irkit.ir.constants import ConstantData, TensorAttr
from irkit.ir.module import DEFAULT, Module, arg_attrs, arg_entries
from irkit.ir.names import DECL
from irkit.ir.types import shape_of
from irkit.passes.layout.choice import Groups
from irkit.passes.layout.forms import Moving
from irkit.passes.layout.graph import TRANSPOSE, Explorer
from irkit.passes.layout.perms import Perm, compose, inverse, is_identity, last_to_first, permuted
from irkit.passes.registry import suggestion
from irkit.passes.rewrite import Rewriter
from irkit.passes.types import set_type

__all__ = ["change_signature"]


def change_signature(
    module: Module, rw: Rewriter, opset: int, *, inputs: str, outputs: str, only: Sequence[str]
) -> list[str]:
    """Gives images another layout, and transposes them where they are used or made. Returns which were changed.

    An image has three axes or more and is, through ops that do not care for the order of axes, an operand or a result
    of one that is channels-first.

    Args:
        inputs, outputs: ``"nchw"``, ``"nhwc"``, or ``""`` for those that stay as they are.
        only: the names of those that are meant; by default all images.

    Raises:
        PassError: if there is no input or output of such a name, or if nothing tells its layout.
    """
    known = [*(module.input_names if inputs else ()), *(module.output_names if outputs else ())]
    for name in only:
        if name not in known:
            raise PassError(f"no input or output to change is called '{name}'", hint=suggestion(name, known, "names"))
    changed: list[str] = []
    for side, layout, names in (("input", inputs, module.input_names), ("output", outputs, module.output_names)):
        for index, name in enumerate(names):
            if not layout or (only and name not in only):
                continue
            value = module.block.args[index] if side == "input" else module.returned[index]
            perm = _change_to(value, layout, opset)
            if perm is None and only:
                raise PassError(
                    f"nothing tells the layout of {side} '{name}'",
                    hint="only what a Conv, pooling or normalization takes or gives has one; transpose others yourself",
                )
            if perm is None or is_identity(perm) or not rw.take(module.func):
                continue
            if side == "input":
                _change_input(module, rw, index, perm)
            else:
                _change_output(module, rw, index, perm)
            changed.append(f"{side} '{name}' is {layout.upper()} now")
    return changed


def _change_to(value: SSAValue, layout: str, opset: int) -> Perm | None:
    """By which permutation an image is brought into a layout; None for what is no image."""
    shape = shape_of(value.type)
    block = value.owner.parent if isinstance(value.owner, Operation) else value.owner
    if shape is None or len(shape) < 3 or block is None:
        return None
    explorer = Explorer(block, opset, exact=False)
    start, chain = explorer.resolve(value)
    groups = Groups(explorer.explore(start))
    source = groups.cluster.sources[start]
    order = groups.order_of(source, groups.first)
    if order is None:
        return None
    to_first = compose(inverse(chain), order)
    return to_first if layout == "nchw" else compose(to_first, inverse(last_to_first(len(shape))))


def _change_input(module: Module, rw: Rewriter, index: int, perm: Perm) -> None:
    arg = module.block.args[index]
    uses, old_type = list(arg.uses), arg.type
    set_type(arg, Moving.type_of(arg, perm))
    first = module.block.first_op
    assert first is not None
    before = first if first.name != "onnx.NoValue" else first.next_op
    assert before is not None
    back = rw.make(TRANSPOSE, [arg], [old_type], {"perm": inverse(perm)}, before=before)
    for use in uses:
        use.operation.operands[use.index] = back.results[0]
    entries = arg_entries(module.func.arg_attrs, len(module.block.args))
    entries[index] = {k: _moved(v, perm) if k == DEFAULT else v for k, v in entries[index].items() if k != DECL}
    _set(module, "arg_attrs", entries)


def _change_output(module: Module, rw: Rewriter, index: int, perm: Perm) -> None:
    end = module.block.last_op
    assert end is not None
    value = end.operands[index]
    made = rw.make(TRANSPOSE, [value], [Moving.type_of(value, perm)], {"perm": perm}, before=end)
    end.operands[index] = made.results[0]
    entries = arg_entries(module.func.res_attrs, len(module.returned))
    entries[index] = {k: v for k, v in entries[index].items() if k != DECL}
    _set(module, "res_attrs", entries)


def _set(module: Module, key: str, entries: Sequence[Mapping[str, Attribute]]) -> None:
    found = arg_attrs(entries)
    if found is not None:
        module.func.properties[key] = found


def _moved(attr: Attribute, perm: Perm) -> Attribute:
    """The default of an input, in another order."""
    assert isinstance(attr, TensorAttr), "a default is a tensor"
    data = attr.data
    shape, array = permuted(data.shape, perm), data.stored()
    return TensorAttr.of(ConstantData(data.dtype, shape, array if data.is_splat else array.transpose(perm)))
