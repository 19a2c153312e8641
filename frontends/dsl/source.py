"""Modules printed as Python programs that build them again, equal in all but locations.

A program is a function ``build`` over a ``Rebuilder``: one line an op, with its ONNX name, and only what inference does
not say by itself. Large constants stand in a side file (safetensors), named by their digests.
"""

from __future__ import annotations

import keyword
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, BytesAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from irkit.dialects.onnx.structural import Function, Initializer, NoValue
from irkit.errors import IrkitError
from irkit.ir.attributes import int_attr, string, text_of, texts_of
from irkit.ir.builder import DEFAULT_IR_VERSION
from irkit.ir.constants import ConstantData, FloatsAttr, TensorAttr, TextOptions, text_options
from irkit.ir.files import write_atomically
from irkit.ir.module import GRAPH, IR_VERSION, OPSETS, Module, arg_entries
from irkit.ir.names import NAME, OUTS, name_of
from irkit.ir.op import TensorOp, is_absent
from irkit.ir.text.sidecar import write_sidecar
from irkit.ir.types import tensor_info

__all__ = ["program", "save_program"]

LITERALS = 64
"""Constants of more elements stand in the side file, where there is one."""

_WORD = re.compile(r"\W", re.ASCII)
_RESERVED = {"b", "np", "build", "Rebuilder", "Path"}
_PLAIN = frozenset("float32 float64 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split())


def program(module: Module, constants: dict[str, ConstantData] | None = None) -> str:
    """The module as a Python program.

    Args:
        constants: where to put large constants, by digest; None: they are written out in the program.
    """
    return _Writer(module, constants).text()


def save_program(module: Module, path: str | os.PathLike[str]) -> None:
    """Writes a module as a Python program, and its large constants beside it, as ``.safetensors``.

    Raises:
        SaveError: if a file cannot be written.
    """
    import io

    target = Path(path)
    constants: dict[str, ConstantData] = {}
    text = program(module, constants)
    if constants:
        buffer = io.BytesIO()
        write_sidecar(buffer, constants.values())
        write_atomically(target.with_suffix(".safetensors"), [buffer.getbuffer()])
    write_atomically(target, [text.encode()])


class _Writer:
    def __init__(self, module: Module, constants: dict[str, ConstantData] | None) -> None:
        self.module = module
        self.constants = constants
        self.names: dict[SSAValue, str] = {}
        self.taken: set[str] = {*_RESERVED, *keyword.kwlist}
        self.lines: list[str] = []
        self.indent = 1

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def text(self) -> str:
        module, func = self.module, self.module.func
        is_last = False
        for op in module.op.ops:
            if op is func:
                is_last = True
            elif isinstance(op, Function):
                self.function(op, is_last)
            else:
                self.declaration(op)
        block = func.body.block
        entries = arg_entries(func.arg_attrs, len(block.args))
        for name, arg in zip(module.input_names, block.args, strict=True):
            info = tensor_info(arg.type)
            shape = None if info is None or info.shape is None else list(info.shape)
            kind = f"b.attr({str(arg.type)!r})" if info is None else f"{info.dtype.name!r}, {shape!r}"
            self.add(f"{self.name(arg, name)} = b.input({name!r}, {kind})")
        self.block(block)
        for name, value in zip(module.output_names, module.returned, strict=True):
            self.add(f"b.output({self.use(value)}, {name!r})")
        results = arg_entries(func.res_attrs, len(module.returned))
        self.add(f"return b.module({self.annotations(func, entries, results)})")
        return "\n".join([*self.head(), *self.lines, *_TAIL]) + "\n"

    def head(self) -> list[str]:
        opsets, version = self.module.opsets, self.module.ir_version
        options = [repr(self.module.graph_name), f"opsets={opsets!r}", f"ir_version={version}"]
        if self.constants:
            options.append('constants=Path(__file__).with_suffix(".safetensors")')
        title = _comment(self.module.graph_name)
        return [
            f'"""The graph {title}, as a program that builds it."""',
            "",
            *(["from pathlib import Path", ""] if self.constants else []),
            "import numpy as np",
            "",
            "from irkit.frontends.dsl.rebuild import Rebuilder",
            "",
            "",
            "def build():",
            f"    b = Rebuilder({', '.join(options)})",
        ]

    def annotations(self, func: FuncOp, inputs: Sequence[Mapping[str, Attribute]], outputs: Any) -> str:
        """What the module says besides what a builder says by itself."""
        module = self.module
        usual: dict[str, Attribute] = {IR_VERSION: int_attr(module.ir_version or DEFAULT_IR_VERSION)}
        if module.opsets:
            pairs = [ArrayAttr([string(d), int_attr(v)]) for d, v in module.opsets.items()]
            usual[OPSETS] = ArrayAttr(pairs)
        found: list[str] = []
        if dict(module.op.attributes) != usual:
            found.append(f"module={self.notes(module.op.attributes)}")
        if dict(func.attributes) != {GRAPH: string(module.graph_name)}:
            found.append(f"graph={self.notes(func.attributes)}")
        for label, entries, names in (
            ("inputs", inputs, module.input_names),
            ("outputs", outputs, module.output_names),
        ):
            if [dict(e) for e in entries] != [{NAME: string(n)} for n in names]:
                found.append(f"{label}=[{', '.join(self.notes(e) for e in entries)}]")
        return ", ".join(found)

    # Values

    def name(self, value: SSAValue, wish: str = "") -> str:
        """A variable for a value."""
        owner = value.owner
        kind = owner.name.rpartition(".")[2].lower() if isinstance(owner, Operation) else "arg"
        base = _WORD.sub("_", wish or name_of(value) or value.name_hint or kind).strip("_") or "v"
        if base[0].isdigit() or base in self.taken:
            base = f"v{base}" if base[0].isdigit() else base
        found, count = base, 1
        while found in self.taken:
            count += 1
            found = f"{base}_{count}"
        self.taken.add(found)
        self.names[value] = found
        return found

    def use(self, value: SSAValue) -> str:
        return self.names[value] if value in self.names or not is_absent(value) else "None"

    def literal(self, attr: Attribute) -> str:
        """An attribute as a Python expression that gives it back exactly."""
        match attr:
            case IntegerAttr() if attr.type == i64:
                return str(attr.value.data)
            case FloatAttr() if math.isfinite(attr.value.data):
                return repr(attr.value.data)
            case StringAttr() | BytesAttr() if string(text_of(attr)) == attr:
                return repr(text_of(attr))
            case DenseArrayBase() if attr.elt_type == i64:
                return repr(list(cast(Any, attr).get_values()))
            case FloatsAttr() if all(map(math.isfinite, attr.data)):
                return repr(list(attr.data))
            case ArrayAttr() if attr.data and all(isinstance(item, StringAttr) for item in attr.data):
                return repr(list(texts_of(attr)))
            case TensorAttr():
                return self.tensor(attr)
            case _:
                return self.exact(attr)

    @staticmethod
    def exact(attr: Attribute) -> str:
        """An attribute by its text."""
        with text_options(TextOptions(large="inline")):
            return f"b.attr({str(attr)!r})"

    def tensor(self, attr: TensorAttr) -> str:
        """A constant: few plain numbers as they are, large ones by digest, others by their text."""
        data = attr.data
        if data.size <= LITERALS and data.size and data.dtype.name in _PLAIN:
            array = data.array()
            if array.dtype.kind != "f" or np.isfinite(array).all():
                return f"np.array({_shortest(array)!r}, {data.dtype.name!r})"
        if data.size > LITERALS and not data.is_splat and self.constants is not None:
            self.constants[data.digest] = data
            return f"b.stored({data.digest!r})"
        return self.exact(attr)

    def notes(self, attributes: Mapping[str, Attribute], *without: str) -> str:
        """Attributes as a dict; texts as they are, all else by its text."""
        parts: list[str] = []
        for name, attr in attributes.items():
            if name not in without:
                is_text = isinstance(attr, StringAttr | BytesAttr) and string(text_of(attr)) == attr
                parts.append(f"{name!r}: {repr(text_of(attr)) if is_text else self.exact(attr)}")
        return f"{{{', '.join(parts)}}}"

    # Ops

    def block(self, block: Block) -> None:
        """The ops of a block, but for its last, which says what it gives."""
        for op in block.ops:
            if isinstance(op, NoValue):
                # ``None`` makes it where an op of the same block needs it.
                if not op.results[0].first_use or any(u.operation.parent is not block for u in op.results[0].uses):
                    self.add(f"{self.name(op.results[0], 'absent')} = b.absent()")
            elif op is not block.last_op:
                self.op(op)

    def op(self, op: Operation) -> None:
        graphs = [self.graph(region, index) for index, region in enumerate(op.regions)]
        if isinstance(op, Initializer) and isinstance(op.value, TensorAttr) and set(op.attributes) == {OUTS}:
            line = f"b.initializer({self.tensor(op.value)}, {texts_of(op.attributes[OUTS])[0]!r})"
        else:
            line = self.plain(op, graphs) or self.raw(op, graphs)
        targets = ", ".join(self.name(r) for r in op.results)
        if line.startswith("b.raw(") and len(op.results) == 1:
            targets += ","
        self.add(f"{targets} = {line}" if targets else line)

    def plain(self, op: Operation, graphs: Sequence[str]) -> str:
        """An op of the schemas as a method of the builder; ``""`` where that would not give it back."""
        if not isinstance(op, TensorOp) or isinstance(op, Initializer) or not _is_usual(op):
            return ""
        short = op.name.removeprefix("onnx.")
        method = f"b.{short}(" if op.name.startswith("onnx.") and "." not in short else f"b.op({op.name!r}, "
        parts = [self.use(v) for v in op.operands]
        types = _inferred(op)
        if types is None:
            return ""
        parts += [f"{name}={self.literal(attr)}" for name, attr in op.properties.items()]
        parts += [f"{name}={graph}" for name, graph in zip(op.spec.graphs, graphs, strict=True) if graph]
        parts += self.options(op, types)
        return f"{method}{', '.join(parts)})"

    def options(self, op: TensorOp, types: Sequence[Attribute]) -> list[str]:
        found: list[str] = []
        if NAME in op.attributes:
            found.append(f"name={self.literal(op.attributes[NAME])}")
        if OUTS in op.attributes:
            names = texts_of(op.attributes[OUTS])
            found.append(f"outs={names[0]!r}" if len(names) == 1 and names[0] else f"outs={list(names)!r}")
        if list(types) != [r.type for r in op.results]:
            found.append(f"types=[{', '.join(repr(str(r.type)) for r in op.results)}]")
        elif len(op.results) != sum(not p.optional for p in op.spec.outputs) or _last_variadic(op):
            found.append(f"outputs={len(op.results)}")
        notes = self.notes(op.attributes, NAME, OUTS)
        return [*found, f"notes={notes}"] if notes != "{}" else found

    def raw(self, op: Operation, graphs: Sequence[str]) -> str:
        """Any op, spelled out."""
        operands = ", ".join(self.use(v) for v in op.operands)
        types = ", ".join(repr(str(r.type)) for r in op.results)
        properties = ", ".join(f"{n!r}: {self.property(a)}" for n, a in op.properties.items())
        regions = ", ".join(g or "None" for g in graphs)
        notes = self.notes(op.attributes)
        return f"b.raw({op.name!r}, [{operands}], [{types}], {{{properties}}}, [{regions}], {notes})"

    def property(self, attr: Attribute) -> str:
        stored = self.tensor(attr) if isinstance(attr, TensorAttr) else ""
        return stored if stored.startswith("b.stored") else self.exact(attr)

    def graph(self, region: Region, index: int) -> str:
        """The expression for a graph, whose function stands in front of the op."""
        if not region.blocks:
            return ""
        block, end = region.block, cast(Operation, region.block.last_op)
        function = self._function_name(f"graph_{index}")
        args = [self.name(arg) for arg in block.args]
        self.add(f"def {function}({', '.join(['b', *args])}):")
        self.indent += 1
        self.block(block)
        self.add(f"return [{', '.join(self.use(v) for v in end.operands)}]")
        self.indent -= 1
        types = ", ".join(repr(str(arg.type)) for arg in block.args)
        notes = self.notes(end.attributes)
        return f"b.graph({function}, [{types}]{f', {notes}' if notes != '{}' else ''})"

    def _function_name(self, base: str) -> str:
        found, count = base, 1
        while found in self.taken:
            count += 1
            found = f"{base}_{count}"
        self.taken.add(found)
        return found

    def function(self, op: Function, is_last: bool) -> None:
        from irkit.dialects.onnx.structural import opsets_of

        body = self.graph(op.regions[0], 0)
        parts = [repr(op.key), repr(cast(StringAttr, op.properties["sym_name"]).data), repr(list(op.input_names))]
        parts += [repr(list(op.output_names)), body, f"opsets={opsets_of(op.properties['opsets'])!r}"]
        if op.attribute_names:
            parts.append(f"attributes={list(op.attribute_names)!r}")
        if op.defaults:
            parts.append(f"defaults={{{', '.join(f'{n!r}: {self.exact(a)}' for n, a in op.defaults.items())}}}")
        notes = self.notes(op.attributes)
        parts += [f"notes={notes}"] * (notes != "{}") + ["last=True"] * is_last
        self.add(f"b.function({', '.join(parts)})")

    def declaration(self, op: Operation) -> None:
        if op.operands or op.results or op.regions:
            raise IrkitError(f"{op.name} at the top of a module has no form as a program", op=op.name)
        properties = ", ".join(f"{n!r}: {self.property(a)}" for n, a in op.properties.items())
        self.add(f"b.declare({op.name!r}, {{{properties}}}, {self.notes(op.attributes)})")


_TAIL = ("", "", 'if __name__ == "__main__":', "    print(build())")
_OPTIONS = {"name", "outs", "types", "notes", "outputs"}


def _shortest(array: np.ndarray[Any, Any]) -> Any:
    """The elements as nested lists, floats with as few digits as tell them from their neighbours."""
    if array.dtype.kind == "f":
        short = np.array([float(str(x)) for x in array.reshape(-1)]).reshape(array.shape)
        if short.astype(array.dtype).tobytes() == array.tobytes():
            return short.tolist()
    return array.tolist()


def _comment(name: str) -> str:
    return repr(name).replace("\\", "/").replace('"', "'")


def _is_usual(op: TensorOp) -> bool:
    """Whether a builder, given the operands and attributes, makes this op and no other form of it."""
    least = op.spec.min_inputs
    trailing = len(op.operands) > least and is_absent(op.operands[-1])
    names = set(op.properties) | set(op.spec.graphs)
    regular = all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    known = set(op.properties) <= set(op.spec.attributes)
    return (
        not trailing and len(op.operands) >= least and regular and known and not names & _OPTIONS and bool(op.results)
    )


def _last_variadic(op: TensorOp) -> bool:
    return bool(op.spec.outputs) and op.spec.outputs[-1].variadic


def _inferred(op: TensorOp) -> list[Attribute] | None:
    """The types that inference gives; None where it refuses the op."""
    try:
        return type(op).infer_types(op.operands, op.properties, op.regions, len(op.results))
    except (IrkitError, VerifyException, TypeError):
        return None
