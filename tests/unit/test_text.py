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
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    ArrayAttr,
    BytesAttr,
    CallSiteLoc,
    DictionaryAttr,
    FunctionType,
    FusedLoc,
    IntegerAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnitAttr,
    f64,
    i1,
    i32,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.universe import Universe

from benchmarks import text as benchmark
from irkit.dialects import DIALECTS, context
from irkit.dialects.onnx import Call, Custom, Function, NoValue, Yield
from irkit.errors import IrkitError, ParseError, VerifyError
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
        *(
            constant(v)
            for v in (1, 2.5, True, "s", [1, 2], [0.5, float("nan")], ["a", "é", "\0"], big, np.int8([-3, 4]))
        ),
        *(constant(v, t) for v, t in ((7, "int4"), ([-2, 1], "int2"), (0.5, "float16"), ([1j], "complex64"))),
        *(constant(0, t, shape=(4, 5)) for t in ("float32", "uint8", "bool")),
        *(constant("", shape=(2, 2)), constant(np.empty((0, 3), np.int64)), constant(1, "int64", shape=(3, 0))),
        *(sparse, RefAttr(StringAttr("alpha"), StringAttr("FLOAT")), ProtoAttr.of("NodeProto", b"\x00\xff")),
        *(
            ListAttr(StringAttr("TENSORS"), ArrayAttr([constant(1)])),
            ListAttr(StringAttr("TYPE_PROTOS"), ArrayAttr([])),
        ),
        *(
            UnitAttr(),
            IntegerAttr(1, i1),
            IntegerAttr(3, i32),
            DictionaryAttr({"a": StringAttr("}"), "b c": UnitAttr()}),
        ),
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
        *(fused([node, source_location("x.py", 1)], "cse"), fused([], "fold"), FusedLoc((node,), NoneAttr())),
        *(NameLoc(StringAttr("bare"), NoneAttr()), unchecked(NameLoc, desc=BytesAttr(b"\xff"), location=NoneAttr())),
        *(
            NameLoc(StringAttr(""), node),
            CallSiteLoc(node, source_location("y.py", 2)),
            fused([fused([node], "a")], "b"),
        ),
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
    function = Function.of(
        ("com.acme", "f", "o"),
        "f",
        ["a", "b"],
        ["c"],
        ["alpha"],
        {"beta": to_attr("FLOAT", 1)},
        {"": 21},
        Region(block),
    )
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


VARIED = varied()
PRINTS: list[dict[str, Any]] = [
    {},
    {"locations": True},
    {"constants": "inline"},
    {"constants": "inline", "locations": True},
    {"literals": 0, "inline_bytes": 4},
    {"literals": 1000, "inline_bytes": 10_000},
]


def only_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes parsing fail where it does not go by lines."""

    def refuse(*args: object) -> ModuleOp:
        raise AssertionError("the text was not taken for our own layout")

    monkeypatch.setattr(parser, "_parse_any", refuse)


# Printing


@pytest.mark.parametrize("options", [*PRINTS, {"constants": "elide"}], ids=str)
def test_prints_what_xdsl_prints(options: dict[str, Any]) -> None:
    as_text = TextOptions(
        options.get("literals", 16), options.get("inline_bytes", 1024), options.get("constants", "digest")
    )
    with text_options(as_text):
        expected = stock_print(VARIED.op, options.get("locations", False))
    assert print_module(VARIED, **options) == expected


def test_an_empty_module_prints_as_in_xdsl() -> None:
    module = Module(ModuleOp([]), CTX)
    assert print_module(module) == stock_print(module.op) == "builtin.module {\n}"
    assert difference(parse_module(print_module(module), CTX).op, module.op) is None


def test_options_of_the_method_are_those_of_the_function() -> None:
    assert VARIED.text(constants="elide") == print_module(VARIED, constants="elide") != str(VARIED)
    assert str(VARIED) == print_module(VARIED)


def test_the_sidecar_gets_each_constant_that_stands_by_digest() -> None:
    found: list[ConstantData] = []
    text = print_module(VARIED, sidecar=found.append)
    assert {data.digest for data in found} == set(re.findall(r'digest "(\w+)"', text)) != set()


def test_a_module_nested_too_deeply_is_a_typed_error() -> None:
    op: Operation = Yield.create()
    for _ in range(2000):
        op = Custom.of("d", "t", [], [], graphs=[("g", -1)], regions=[Region(Block([op]))])
    with pytest.raises(IrkitError, match="nested too deeply"):
        print_module(Module(ModuleOp([op]), CTX))


@pytest.mark.parametrize(
    "hints",
    [
        ["a", "a", "a_1", "a_1_2"],
        ["a_1_2", "a", "a", "a"],
        ["a_1_1", "a_1_1", "a", "a", "a_1"],
        ["aé", "a_", "aé", "_1", "$", ".x", "-y"],
        [None, "v", None, "v", "v_1_1"],
    ],
)
def test_names_are_unique_and_lex(hints: list[str | None]) -> None:
    block, body = Block(), Block()
    ops = [NoValue.create(result_types=[unknown]) for _ in range(3 * len(hints))]
    for op, hint in zip(ops, hints * 3, strict=True):
        op.results[0].name_hint = hint
    nested, rest = ops[: len(hints)], ops[len(hints) :]
    body.add_ops([*nested, Yield.create(operands=[op.results[0] for op in nested])])
    first, second = rest[: len(hints)], rest[len(hints) :]
    block.add_ops(first)
    block.add_op(Custom.of("d", "t", [first[0].results[0]], [], graphs=[("g", -1)], regions=[Region(body)]))
    block.add_ops(second)
    block.add_op(ReturnOp())
    module = Module(ModuleOp([FuncOp("main", ([], []), Region(block))]), CTX)
    text = print_module(module)
    names = re.findall(r"(%\S+) =", text)
    assert len(names) == len(set(names)) == len(ops)
    parsed = parse_module(text, CTX)
    assert difference(parsed.op, module.op) is None
    assert difference(stock_parse(text), module.op) is None
    again = print_module(parsed)
    assert again == print_module(parse_module(again, CTX)) == stock_print(parsed.op)


# Parsing


@pytest.mark.parametrize("options", PRINTS, ids=str)
def test_parses_back_by_lines(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    only_lines(monkeypatch)
    text = print_module(VARIED, **options)
    parsed = parse_module(text, context())
    assert difference(parsed.op, VARIED.op, locations=options.get("locations", False)) is None
    assert print_module(parsed, **options) == text


@pytest.mark.parametrize("options", PRINTS, ids=str)
def test_parses_what_xdsl_parses(options: dict[str, Any]) -> None:
    # xDSL 0.75 does not read back all locations that it prints: there the comparison is with our use of it.
    text = print_module(VARIED, **options)
    expected = parser._parse_any(text, context(), "") if options.get("locations") else stock_parse(text)
    assert difference(parse_module(text, context()).op, expected, locations=True) is None


def test_regions_may_be_nested_deeply(monkeypatch: pytest.MonkeyPatch) -> None:
    only_lines(monkeypatch)
    op: Operation = NoValue.create(result_types=[unknown])
    for _ in range(parser.MAX_DEPTH - 1):
        op = Custom.of("d", "t", [], [], graphs=[("g", -1)], regions=[Region(Block([op]))])
    module = Module(ModuleOp([op]), CTX)
    assert difference(parse_module(print_module(module), CTX).op, module.op) is None


def test_types_are_interned_either_way() -> None:
    text = print_module(VARIED)
    for op in (parse_module(text, CTX).op, parser._parse_any(text, CTX, "")):
        values = [value for inner in op.walk() for value in inner.results]
        values += [arg for inner in op.walk() for region in inner.regions for b in region.blocks for arg in b.args]
        assert values
        assert all(value.type is intern(value.type) for value in values)


def test_foreign_encodings_are_kept() -> None:
    text = '"onnx.Custom"() : () -> tensor<2x?xf32, #onnx.dims<["a"]>>'
    assert text in print_module(parse_module(f"builtin.module {{\n{text}\n}}", CTX))


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_as_before(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        parse_module("builtin.module {\n}", CTX)
        assert gc.isenabled() is enabled
        with pytest.raises(ParseError):
            parse_module("nothing", CTX)
        assert gc.isenabled() is enabled
    finally:
        gc.enable() if before else gc.disable()


OTHER_LAYOUTS = {
    "results as a tuple": """
        %0:2 = "onnx.Custom"() <{domain = "d", op_type = "t"}> : () -> (tensor<f32>, tensor<i64>)
        %1 = "onnx.Neg"(%0#0) : (tensor<f32>) -> tensor<f32>""",
    "aliases": """
        !t = tensor<f32>
        #c = #onnx.tensor<!t, [1.0]>
        %0 = "onnx.Constant"() <{value = #c}> : () -> !t""",
    "the generic form": """
        "builtin.module"() ({
          "func.func"() <{sym_name = "main", function_type = (tensor<f32>) -> tensor<f32>}> ({
          ^bb0(%a: tensor<f32>):
            "func.return"(%a) : (tensor<f32>) -> ()
          }) : () -> ()
        }) {onnx.ir_version = 10 : i64} : () -> ()""",
    "comments and spaces": """
        // A comment.
        %x   =   "onnx.NoValue" (  )   :   ( )  ->  none // Another.""",
    "a use before the definition": """
        "onnx.Custom"() <{domain = "d", op_type = "t"}> ({
          "onnx.Yield"(%a) : (none) -> ()
        }) : () -> ()
        %a = "onnx.NoValue"() : () -> none""",
    "several blocks": """
        "onnx.Custom"() <{domain = "d", op_type = "t"}> ({
          "onnx.Yield"() : () -> ()
        ^bb1(%a: none):
          "onnx.Yield"(%a) : (none) -> ()
        }) : () -> ()""",
    "one line": 'builtin.module { %a = "onnx.NoValue"() : () -> none "onnx.Yield"(%a) : (none) -> () }',
}


@pytest.mark.parametrize("name", OTHER_LAYOUTS)
def test_any_layout_that_xdsl_reads(name: str) -> None:
    text = OTHER_LAYOUTS[name]
    parsed = parse_module(text, context())
    assert stock_print(parsed.op, True) == stock_print(stock_parse(text), True)
    again = print_module(parsed)
    if name == "a use before the definition":
        # MLIR allows it in some regions; ours are checked to have none.
        with pytest.raises(VerifyError):
            parsed.verify()
        return
    assert difference(parse_module(again, context()).op, parsed.op) is None


# Errors

HEAD = "builtin.module {\n  func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
TAIL = "\n    func.return %x : tensor<f32>\n  }\n}"
DEEP = '"onnx.Custom"() <{domain = "d", op_type = "t"}> ({\n'
ERRORS = {
    "no op": ('    %y = "onnx.Rely"(%x) : (tensor<f32>) -> tensor<f32>', "3:10", "no op 'onnx.Rely'"),
    "no value": ('    %y = "onnx.Relu"(%z) : (tensor<f32>) -> tensor<f32>', "", "%z"),
    "twice": ('    %x = "onnx.Relu"(%x) : (tensor<f32>) -> tensor<f32>', "3:5", "%x is defined already"),
    "another type": ('    %y = "onnx.Relu"(%x) : (tensor<i64>) -> tensor<f32>', "3:1", "operand 0 of onnx.Relu is"),
    "too many types": ('    %y = "onnx.Relu"(%x) : (none, none) -> none', "3:1", "has 1 operands, but 2 types"),
    "too few results": ('    %y = "onnx.Yield"(%x) : (tensor<f32>) -> ()', "3:5", "0 results, but 1 are named"),
    "no type": ('    %y = "onnx.Relu"(%x) : (tensor<f32>) -> tensor<g32>', "3:52", "shape type"),
    "no attribute": ('    "onnx.Yield"() {a = 1 : } : () -> ()', "3:", "unexpected|expected"),
    "unknown attribute": ('    "onnx.Yield"() {a = #onnx.nothing<1>} : () -> ()', "3:38", "not registered"),
    "an attribute twice": ('    "onnx.Yield"() {a, a} : () -> ()', "3:", "stands there twice"),
    "too few elements": (
        '    "onnx.Yield"() {a = #onnx.tensor<tensor<2xi64>, [1]>} : () -> ()',
        "3:",
        "2 elements, but 1",
    ),
    "out of range": (
        '    "onnx.Yield"() {a = #onnx.tensor<tensor<1xi8>, [300]>} : () -> ()',
        "3:",
        "no element of int8",
    ),
    "no base64": ('    "onnx.Yield"() {a = #onnx.tensor<tensor<1xi8>, "a">} : () -> ()', "3:", "base64"),
    "elided": ('    "onnx.Yield"() {a = #onnx.tensor<tensor<1xi8>, elided>} : () -> ()', "3:", "elided"),
    "no digest": (
        '    "onnx.Yield"() {a = #onnx.tensor<tensor<1xi8>, digest "00">} : () -> ()',
        "3:",
        "no sidecar has it",
    ),
    "no sizes": ('    "onnx.Yield"() {a = #onnx.tensor<tensor<?xi8>, splat 1>} : () -> ()', "3:", "known sizes"),
    "open string": ('    "onnx.Yield"() {a = "b} : () -> ()', "3:25", "closing string"),
    "open region": (DEEP, "", "expected"),
    "deep regions": (DEEP * 101, "101:1", "nested more than 100 deep"),
    "deep brackets": (
        f'    "onnx.Yield"() {{a = {"[" * 5000}{"]" * 5000}}} : () -> ()',
        "3:",
        "nested more than 200 deep",
    ),
    "deep brackets, open": ("[" * 100_000, "3:", "nested more than 200 deep"),
    "no op at all": ("    ?", "3:5", "expected an operation"),
    "rubbish": ("    §", "3:5", "character"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_where_and_what(name: str) -> None:
    line, place, message = ERRORS[name]
    with pytest.raises(ParseError, match=message) as caught:
        parse_module(HEAD + line + TAIL, CTX, file="m.mlir")
    assert caught.value.where.startswith(f"m.mlir:{place}")
    assert re.fullmatch(r"m\.mlir:\d+:\d+", caught.value.where)


@pytest.mark.parametrize("text", ["", "\n", "// only a comment", "builtin.module {", "}", "func.func @f(", '"', "{-#"])
def test_texts_without_a_module_are_errors(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(text, CTX)
    assert caught.value.where.startswith("<text>:")


def test_mutated_texts_parse_or_give_our_error() -> None:
    text = print_module(benchmark.chain(13), locations=True)
    draw = random.Random(0)
    outcomes = {True: 0, False: 0}
    for _ in range(300):
        part = list(text)
        for _ in range(draw.randrange(1, 3)):
            at = draw.randrange(len(part))
            part[at : at + draw.randrange(3)] = draw.choice(
                ["", draw.choice(part), draw.choice('(){}<>[]",#%^:-"0\\é\n')]
            )
        try:
            parse_module("".join(part), CTX)
            outcomes[True] += 1
        except ParseError:
            outcomes[False] += 1
    assert outcomes[True] > 10
    assert outcomes[False] > 100


def test_a_giant_splat_costs_nothing() -> None:
    text = '"onnx.Yield"() {a = #onnx.tensor<tensor<1000000000000xf32>, splat 0.0>} : () -> ()'
    attr = parse_module(f"builtin.module {{\n{text}\n}}", CTX).op.body.block.first_op
    assert attr is not None
    data = attr.attributes["a"]
    assert isinstance(data, TensorAttr)
    assert data.data.stored_nbytes == 4
    assert text in print_module(parse_module(text, CTX))


# Constants


def _reparse(attr: TensorAttr, options: TextOptions) -> TensorAttr:
    op = Yield.create(attributes={"a": attr})
    with text_options(options):
        text = str(attr)
        module = print_module(Module(ModuleOp([op]), CTX), literals=options.literals, inline_bytes=options.inline_bytes)
    assert text in module
    found = Parser(CTX, text).parse_attribute()
    by_line = parse_module(module, CTX).op.body.block.first_op
    assert by_line is not None
    assert found == by_line.attributes["a"]
    assert isinstance(found, TensorAttr)
    return found


NUMERIC = [kind for kind in BY_NAME.values() if kind.kind != "string"]
PATTERNS = st.sampled_from([0x00, 0x01, 0x3F, 0x7C, 0x7F, 0x80, 0xC0, 0xF0, 0xFF]) | st.integers(0, 255)


@settings(max_examples=400)
@given(st.sampled_from(NUMERIC), st.integers(0, 6), st.data(), st.booleans(), st.booleans())
def test_every_bit_pattern_comes_back(kind: DType, count: int, data: st.DataObject, literal: bool, splat: bool) -> None:
    size = -(-count * kind.bits // 8)
    raw = bytes(data.draw(st.lists(PATTERNS, min_size=size, max_size=size)))
    if kind.kind == "bool":
        raw = bytes(byte & 1 for byte in raw)
    made = from_raw(raw, kind, (count,))
    if splat and count:
        made = ConstantData(kind, (2, count), made.stored()[:1].reshape(()))
    found = _reparse(TensorAttr.of(made), TextOptions(literals=100 if literal else 0))
    assert found.data == made
    assert found.data.raw() == made.raw()
    assert found.data.is_splat == made.is_splat
    if kind.bits >= 8 and not splat:
        assert bytes(found.data.raw()) == raw


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=6) | st.text(max_size=4).map(str.encode), max_size=4), st.booleans())
def test_strings_of_any_bytes_come_back(items: list[bytes], splat: bool) -> None:
    array = np.empty(len(items), object)
    array[:] = items
    made = ConstantData(BY_NAME["string"], (len(items),), array)
    if splat and items:
        made = ConstantData(BY_NAME["string"], (3,), array[:1].reshape(()))
    assert list(_reparse(TensorAttr.of(made), TextOptions()).data.stored().reshape(-1)) == list(
        made.stored().reshape(-1)
    )


@pytest.mark.parametrize(
    "bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFBFFFFF, 0x80000000, 0x00000001, 0x007FFFFF]
)
def test_special_floats_come_back_in_literals(bits: int) -> None:
    made = from_raw(bits.to_bytes(4, "little"), BY_NAME["float32"], ())
    assert bytes(_reparse(TensorAttr.of(made), TextOptions()).data.raw()) == bits.to_bytes(4, "little")


@given(st.lists(st.floats(width=32) | st.sampled_from([float("nan"), -0.0]), max_size=5))
def test_lists_of_floats_come_back(values: list[float]) -> None:
    made = FloatsAttr.of(values)
    assert Parser(CTX, str(made)).parse_attribute() == made


@given(st.text(max_size=8) | st.binary(max_size=8))
def test_texts_come_back(value: str | bytes) -> None:
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    op = Yield.create(attributes={"onnx.name": string(value), "onnx.outs": strings([value, "a"])})
    module = Module(ModuleOp([op]), CTX)
    assert difference(parse_module(print_module(module), CTX).op, module.op) is None


# xDSL's tools, MLIR, speed


def test_xdsl_knows_the_dialects() -> None:
    found = Universe.get_multiverse().all_dialects
    assert set(DIALECTS) <= set(found)
    assert found["onnx"]().name == "onnx"


def test_the_benchmark_compares_equal_work() -> None:
    rows = benchmark.run(200)
    assert [row.job for row in rows] == ["print", "parse"]
    assert all(row.ours > 0 and row.stock > 0 for row in rows)


@pytest.mark.slow
def test_mlir_reads_our_text_and_we_read_its() -> None:
    ir = pytest.importorskip("jaxlib.mlir.ir")
    registry = ir.DialectRegistry()
    pytest.importorskip("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    for locations in (False, True):
        with ir.Context() as mlir:
            mlir.append_dialect_registry(registry)
            mlir.load_all_available_dialects()
            mlir.allow_unregistered_dialects = True
            module = ir.Module.parse(print_module(VARIED, locations=locations))
            assert module.operation.verify()
            generic = module.operation.get_asm(print_generic_op_form=True)
            custom = module.operation.get_asm()
        for text in (generic, custom):
            assert difference(parse_module(text, context()).op, VARIED.op) is None
