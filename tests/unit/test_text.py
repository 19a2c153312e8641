"""MLIR text against stock xDSL: the same bytes printed, the same modules parsed; and what only we must do."""

from __future__ import annotations

import gc
import random
import re
from io import StringIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import UNKNOWN_LOC, ArrayAttr, BytesAttr, DictionaryAttr, ModuleOp, StringAttr, UnitAttr
from xdsl.dialects.builtin import CallSiteLoc, FunctionType, FusedLoc, IntegerAttr, NameLoc, NoneAttr, f64, i1, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.universe import Universe

from benchmarks import text as benchmark
from irkit.dialects import DIALECTS, context
from irkit.dialects.onnx import Call, Custom, Function, NoValue, Yield
from irkit.errors import IrkitError, ParseError
from irkit.ir.attributes import string, strings, to_attr
from irkit.ir.builder import Builder
from irkit.ir.compare import difference
from irkit.ir.constants import (
    ConstantData,
    FloatsAttr,
    ListAttr,
    ProtoAttr,
    RefAttr,
    SparseAttr,
    TensorAttr,
    TextOptions,
    constant,
    from_raw,
    text_options,
)
from irkit.ir.dtypes import BY_NAME, DType
from irkit.ir.location import fused, node_location, source_location, unchecked
from irkit.ir.module import Module
from irkit.ir.names import set_metadata, set_node_name, set_out_names
from irkit.ir.text import parse_module, parser, print_module
from irkit.ir.types import MapType, OpaqueType, OptType, SeqType, SparseType, intern, tensor, unknown

CTX = context()
ODD = ['a loc("b"', "}> {", 'quo"te', "back\\slash", "tab\tnew\nline", "ü漢", "", "%x, ^bb0", "-> (", "\x00\x7f", "a'b"]


def stock_print(op: Operation, locations: bool = False) -> str:
    stream = StringIO()
    Printer(stream, print_debuginfo=locations).print_op(op)
    return stream.getvalue()


def stock_parse(text: str) -> ModuleOp:
    return Parser(context(), text).parse_module()


def _attributes() -> list[Attribute]:
    """One of each kind, with the texts that are hardest to tell apart."""
    big = np.arange(600, dtype=np.float32).reshape(2, 300)
    sparse = SparseAttr(constant(np.float32([1, 2])), constant(np.int64([0, 5])), to_attr("INTS", [2, 3]))
    return [
        *(to_attr("INT", v) for v in (0, -1, (1 << 63) - 1, -(1 << 63))),
        *(to_attr("FLOAT", v) for v in (0.5, -0.0, 1e-45, 16777216.0, float("inf"), float("-inf"), float("nan"))),
        *(to_attr("STRING", v) for v in ODD),
        *(to_attr("INTS", v) for v in ([], [1], [3, -4])),
        *(to_attr("FLOATS", v) for v in ([], [1.0, float("inf"), -0.0, float("nan")])),
        *(to_attr("STRINGS", v) for v in ([], ["a"], ["a", "b"], ODD)),
        *(constant(v) for v in (1, 2.5, True, "s", [1, 2], [0.5, float("nan")], ["a", "é", "\0"], big, np.int8([-3, 4]))),
        *(constant(v, t) for v, t in ((7, "int4"), ([-2, 1], "int2"), (0.5, "float16"), ([1j], "complex64"))),
        *(constant(0, t, shape=(4, 5)) for t in ("float32", "uint8", "bool")),
        *(constant("", shape=(2, 2)), constant(np.empty((0, 3), np.int64)), constant(1, "int64", shape=(3, 0))),
        *(sparse, RefAttr(StringAttr("alpha"), StringAttr("FLOAT")), ProtoAttr.of("NodeProto", b"\x00\xff")),
        *(ListAttr(StringAttr("TENSORS"), ArrayAttr([constant(1)])), ListAttr(StringAttr("TYPE_PROTOS"), ArrayAttr([]))),
        *(UnitAttr(), IntegerAttr(1, i1), IntegerAttr(3, i32), DictionaryAttr({"a": StringAttr("}"), "b c": UnitAttr()})),
        *(FunctionType.from_lists([i32], [f64, i1]), ArrayAttr([ArrayAttr([ArrayAttr([])])])),
        *_types(),
    ]


def _types() -> list[Attribute]:
    return [
        *(tensor(d, (2, "N", None)) for d in BY_NAME),
        *(tensor("float32", None), tensor("float32", ()), tensor("float32", ("a + 2*b", 0, 'q"q', "é"))),
        *(tensor("int64", (text,)) for text in ODD if text),
        *(unknown, SeqType(tensor("float32", None)), OptType(SeqType(tensor("string", ("n",))))),
        *(MapType(tensor("int64", ()), tensor("float32", ())), SparseType(tensor("float32", (10, 10)))),
        OpaqueType(StringAttr("com.acme"), StringAttr("Thing")),
    ]


def _locations() -> list[Any]:
    node = node_location("model.onnx", "conv/1", 12)
    return [
        *(UNKNOWN_LOC, node, node_location("möd.onnx", "ü", 3), source_location("a b.py", 7, 3)),
        *(source_location('q"q', 1), node_location("m.onnx", 'x"y', 2), node_location("m.onnx", ") loc(", 1)),
        *(fused([node, source_location("x.py", 1)], "cse"), fused([], "fold"), FusedLoc([node], NoneAttr())),
        *(NameLoc(StringAttr("bare"), NoneAttr()), unchecked(NameLoc, desc=BytesAttr(b"\xff"), location=NoneAttr())),
        *(NameLoc(StringAttr(""), node), CallSiteLoc(node, source_location("y.py", 2)), fused([fused([node], "a")], "b")),
    ]


def varied() -> Module:
    """Regions, captures, block arguments, functions, calls, foreign ops, every kind of attribute, type and location."""
    b = Builder("graph \\ ü", opsets={"": 21, "com.acme": 1})
    x = b.input("x", "float32", ["N", 3])
    cond = b.input("cond:0", "bool", [])
    n = b.input("ñ", "int64", [])
    w = b.initializer(np.arange(9, dtype=np.float32).reshape(3, 3), "w/1")
    y = b.Relu(x @ w + 1, name="relü")
    parts = b.Split(y, outputs=2, axis=1, num_outputs=2)
    chosen = b.If(
        cond,
        then_branch=lambda i: i.If(cond, then_branch=lambda j: j.Neg(y), else_branch=lambda j: j.Abs(x)),
        else_branch=lambda i: i.Identity(x),
    )
    clipped = b.Clip(chosen, None, b.constant(6.0, "float32"))
    body = Block(arg_types=[tensor("int64", ()), tensor("bool", ()), tensor("float32", ("N", 3))])
    inner = Builder.at_end(body, CTX)
    inner.insert(Yield.create(operands=[body.args[1], inner.Sin(body.args[2]).ssa]))
    # One region of a single block without operations, one without a block.
    odd = Custom.of("com.acme", "Odd", [x.ssa], [unknown, unknown], graphs=[("g", -1), ("h", -1), ("l", -1)])
    for region in (Region(Block()), Region(), Region(body)):
        odd.add_region(region)
    for index, attribute in enumerate(_attributes()):
        odd.attributes[f"k{index}"] = attribute
    odd.attributes["no identifier: =,"] = UnitAttr()
    for number, value_type in enumerate(_types()):
        op = Call.of("com.acme", "f", [clipped.ssa], [value_type], {'a"b': to_attr("INT", number)}, overload="o")
        set_out_names(op, [f"t_{number}"])
        b.insert(op)
    b.output(clipped, "out")
    b.output(parts[0], "né")
    b.output(n, "ñ")
    module = b.module()
    b.block.insert_op_before(odd, b.block.last_op or odd)
    module.func.properties["arg_attrs"] = ArrayAttr(
        [DictionaryAttr({**entry.data, "onnx.default": constant(2.0)}) for entry in module.func.arg_attrs or ()]
    )
    block = Block(arg_types=[unknown, unknown])
    block.args[0].name_hint = "x"
    block.add_op(Yield.create(operands=[block.args[1]], attributes={"onnx.ins": strings(["a", "é"])}))
    function = Function.of(("com.acme", "f", "o"), "f", ["a", "b"], ["c"], ["alpha"], {"beta": to_attr("FLOAT", 1)}, {"": 21}, Region(block))
    module.op.body.block.add_op(function)
    places = _locations()
    for index, op in enumerate(module.op.walk()):
        op.location = places[index % len(places)]
        for region in op.regions:
            for arg in (arg for blk in region.blocks for arg in blk.args):
                arg.location = places[(index + 3) % len(places)]
    set_node_name(module.block.first_op or odd, "first")
    set_metadata(odd, {"key": "välue", "": ""})
    return module
