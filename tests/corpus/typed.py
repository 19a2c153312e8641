"""Each operator at each element type that its schema allows: variants of the cases in ``schema_cases``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper
from onnx.defs import OpSchema

from irkit.ir.dtypes import BY_CODE

from .schema_cases import Case, case, graph, node
from .schemas import DTYPES, OFFICIAL, case_of, feeds_of, model_id, model_of, parse_type

__all__ = ["Typed", "allowed_types", "element_code", "retyped", "schemas", "typed_cases"]

_WORDS = {
    "float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32",
    "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "b", "string": "s",
    "complex64": "c64", "complex128": "c128", "int4": "i4", "uint4": "u4", "int2": "i2", "uint2": "u2",
    "float4e2m1": "f4e2m1", "float8e4m3fn": "f8e4m3fn", "float8e4m3fnuz": "f8e4m3fnuz", "float8e5m2": "f8e5m2",
    "float8e5m2fnuz": "f8e5m2fnuz", "float8e8m0": "f8e8m0", "float6e2m3": "f6e2m3", "float6e3m2": "f6e3m2",
}  # fmt: skip
"""What schemas call an element type -> what cases call it."""


UNTYPED = ("",) * 9
"""Outputs of which the model says no type: it is inferred."""


@dataclass(frozen=True)
class Typed:
    """A call of an operator with one of its type variables bound to one type.

    Attributes:
        variable: empty for a further call, whose types are said by attributes or optional inputs.
        type: as schemas spell it; the number of a further call.
    """

    schema: OpSchema
    case: Case
    variable: str = ""
    type: str = ""

    @property
    def id(self) -> str:
        """Such as ``ai.onnx-Softmax-13-T=tensor(bfloat16)``."""
        return f"{model_id(self.schema)}-{self.variable}={self.type}"

    def model(self) -> ModelProto:
        """The model that makes the call."""
        return model_of(self.schema, self.case, model_id(self.schema))

    def feeds(self, seed: int = 0) -> dict[str, Any]:
        """Valid feeds for it."""
        return feeds_of(self.case, model_id(self.schema), seed)


def schemas() -> list[OpSchema]:
    """Every version of every operator of the standard."""
    found = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in OFFICIAL]
    return sorted(found, key=lambda s: (s.domain, s.name, s.since_version))


def allowed_types(schema: OpSchema) -> dict[str, list[str]]:
    """The types that each type variable of a schema may stand for."""
    used = {p.type_str for p in (*schema.inputs, *schema.outputs)}
    return {c.type_param_str: sorted(c.allowed_type_strs) for c in schema.type_constraints if c.type_param_str in used}


def typed_cases(schema: OpSchema) -> Iterator[Typed]:
    """Calls that between them bind each type variable to each type allowed."""
    name, base = schema.name, case_of(schema)
    for variable, types in allowed_types(schema).items():
        for text in types:
            if (name, variable) in _ELSEWHERE:
                continue
            made = _BY_TYPE.get(name, _plain)(schema, base, variable, text)
            if made is not None:
                yield Typed(schema, made, variable, text)
    yield Typed(schema, dataclasses.replace(base, types=UNTYPED), "", "as it is")
    for number, extra in enumerate(_EXTRA.get(name, lambda schema: ())(schema)):
        yield Typed(schema, extra, "", str(number))


def retyped(text: str, wanted: str) -> str:
    """The type of an input text, its shape and the kind of its values kept, with another structure and element type.

    >>> retyped("f32[2,3]+", "seq(tensor(int8))")
    'seq(i8[2,3]+)'
    """
    while match := re.fullmatch(r"(?:seq|opt)\((.*)\)", text):
        text = match[1]
    if match := re.fullmatch(r"map\((\w+), ?(\w+)\)", wanted):
        return f"map({_WORDS[match[1]]},{_WORDS[match[2]]})"
    if match := re.fullmatch(r"(seq|optional)\((.*)\)", wanted):
        return f"{'seq' if match[1] == 'seq' else 'opt'}({retyped(text, match[2])})"
    match = re.fullmatch(r"tensor\((\w+)\)", wanted)
    if match is None:
        raise ValueError(f"no type of a tensor, sequence, optional or map: {wanted}")
    return (
        re.sub(r"^\w+", _WORDS[match[1]], text, count=1) if not text.startswith("map(") else f"{_WORDS[match[1]]}[2,3]"
    )


def element_code(wanted: str) -> int:
    """The number of the innermost element type of ``tensor(float)`` or ``seq(tensor(float))``."""
    word = re.findall(r"\w+", wanted)[-1]
    return DTYPES[_WORDS[word]]


def _plain(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """The case with every input of this type variable retyped, and what follows from it in attributes."""
    inputs: list[Any] = list(base.inputs)
    found = False
    for index, item in enumerate(inputs):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if formal.type_str != variable or item is None:
            continue
        found = True
        if isinstance(item, str):
            inputs[index] = retyped(item, wanted)
        elif wanted.startswith("tensor("):
            inputs[index] = _as_type(item, wanted)
        else:
            inputs[index] = retyped(f"f32[{','.join(map(str, item.shape))}]", wanted)
    if not found:
        setter = _ATTRIBUTE.get((schema.name, variable)) or _ATTRIBUTE.get((schema.name, "*"))
        if setter is None:
            return None
        return dataclasses.replace(base, attributes={**base.attributes, **setter(element_code(wanted))}, types=UNTYPED)
    attributes = {
        name: _retyped_graph(value, element_code(wanted)) if isinstance(value, GraphProto) else value
        for name, value in base.attributes.items()
    }
    return dataclasses.replace(base, inputs=inputs, attributes=attributes, types=UNTYPED)


def _as_type(array: np.ndarray, wanted: str) -> np.ndarray:
    if wanted == "tensor(string)":
        return array.astype(str).astype(object)
    return array.astype(helper.tensor_dtype_to_np_dtype(element_code(wanted)))


def _retyped_graph(body: GraphProto, code: int) -> GraphProto:
    made = GraphProto.FromString(body.SerializeToString())
    for info in (*made.input, *made.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = code
    return made


def _tensor(shape: Sequence[int], value: float) -> Callable[[int], dict[str, Any]]:
    def make(code: int) -> dict[str, Any]:
        if code == TensorProto.STRING:
            held = helper.make_tensor("", code, shape, ["a"] * int(np.prod(shape)))
        else:
            held = numpy_helper.from_array(np.full(shape, value).astype(helper.tensor_dtype_to_np_dtype(code)))
        return {"value": held}

    return make


def _named(name: str) -> Callable[[int], dict[str, Any]]:
    return lambda code: {name: code}


_ATTRIBUTE: dict[tuple[str, str], Callable[[int], dict[str, Any]]] = {
    ("ConstantOfShape", "T2"): _tensor([1], 1),
    ("MelWeightMatrix", "T3"): _named("output_datatype"),
    ("DequantizeLinear", "T3"): _named("output_dtype"),
    ("LayerNormalization", "U"): _named("stash_type"),
    **{(f"{name}Window", "T2"): _named("output_datatype") for name in ("Hann", "Hamming", "Blackman")},
    **{
        (name, "*"): _named("dtype")
        for name in (
            "EyeLike RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial SequenceEmpty"
        ).split()
    },
}
"""(operator, type variable of a result) -> the attributes that bind it, from the number of an element type."""


def _numerals(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """Cast and CastLike: a text is read as a number, so it must be one."""
    if variable == "T2" and schema.name == "Cast":
        code = element_code(wanted)
        to = TensorProto.DataType.Name(code) if schema.since_version == 1 else code
        return dataclasses.replace(base, attributes={**base.attributes, "to": to}, types=UNTYPED)
    if wanted == "tensor(string)" and variable == "T1":
        return dataclasses.replace(base, inputs=[np.array(["1", "-2.5", "3"], object), *base.inputs[1:]], types=UNTYPED)
    return _plain(schema, base, variable, wanted)


def _nearest(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """Resize, Upsample and GridSample: text is sampled as it is."""
    made = _plain(schema, base, variable, wanted)
    if made is None or wanted != "tensor(string)":
        return made
    return dataclasses.replace(made, attributes={**made.attributes, "mode": "nearest"})


def _constant(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    return case(**_tensor([2], 1)(element_code(wanted)), types=UNTYPED)


def _like(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """RandomNormalLike and RandomUniformLike: a type that cannot be drawn is named by an attribute."""
    made = _plain(schema, base, variable, wanted)
    if made is None or variable == "T2":
        return made
    return dataclasses.replace(made, attributes={**made.attributes, "dtype": TensorProto.FLOAT})


def _range(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    return _plain(schema, case(*(np.array(n) for n in (2, 11, 3))), variable, wanted)


def _one_hot(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    if wanted != "tensor(string)" or variable != "T3":
        return _plain(schema, base, variable, wanted)
    return dataclasses.replace(base, inputs=[*base.inputs[:2], np.array(["off", "on"], object)], types=UNTYPED)


def _sequence(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """SequenceInsert: the tensor is of the sequence's type."""
    if variable not in "ST":
        return _plain(schema, base, variable, wanted)
    element = wanted[4:-1] if variable == "S" else wanted
    inputs = [retyped("f32[2,3]", f"seq({element})"), retyped("f32[2,3]", element), *base.inputs[2:]]
    return dataclasses.replace(base, inputs=inputs, types=UNTYPED)


def _n_grams(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    if wanted != "tensor(string)":
        return _plain(schema, base, variable, wanted)
    attributes = {k: v for k, v in base.attributes.items() if k != "pool_int64s"}
    words = ["a", "bc", "zz", "a", "bc", "zz", "caab"]
    return case("s[2,6]", **attributes, pool_strings=words, types=UNTYPED)


def _scaled(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """DequantizeLinear: a scale that is a power of two says nothing of the result's type."""
    made = _plain(schema, base, variable, wanted)
    if made is None or wanted != "tensor(float8e8m0)":
        return made
    return dataclasses.replace(made, attributes={**made.attributes, "output_dtype": TensorProto.FLOAT})


def _categories(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    if wanted == "tensor(string)":
        return case("s[2,3]", cats_strings=["a", "bc"], types=UNTYPED)
    return _plain(schema, base, variable, wanted)


def _gradient(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """Of a square; a variable that has no gradient is held fixed."""
    floating = wanted in allowed_types(schema)["T2"]
    text = retyped("f32[2,3]", wanted)
    if floating:
        return Case((text,), 1, {"xs": ["x0"], "y": "square"}, UNTYPED, (node("Mul", "x0 x0", "square"),))
    attributes = {"xs": ["x0"], "zs": ["x1"], "y": "square"}
    return Case(("f32[2,3]", text), 1, attributes, UNTYPED, (node("Mul", "x0 x0", "square"),))


def _bit_cast(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """To and from integers of the same width."""
    code = element_code(wanted)
    bits = BY_CODE[code].bits
    partner = "complex128" if bits == 128 else f"uint{bits}"
    source, to = (wanted, f"tensor({partner})") if variable == "T1" else (f"tensor({partner})", wanted)
    return case(retyped("f32[2,3]", source), to=element_code(to))


def _branches(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """Graphs that hand on what they capture."""
    if variable == "B":
        return base
    text = retyped("f32[2,3]", wanted)
    made = [graph(name, [], [], [_info("c0", text)]) for name in ("yes", "no")]
    return case("b[]", then_branch=made[0], else_branch=made[1], captures=(text,), types=UNTYPED)


def _loop(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    """A state that stays; a tensor is collected too."""
    if variable != "V":
        return base
    text = retyped("f32[2,3]", wanted)
    outputs = [_info("going", "b[]"), _info("carried", text)]
    nodes: list[onnx.NodeProto] = []
    if wanted.startswith("tensor("):
        nodes.append(node("Identity", "carried", "scanned"))
        outputs.append(_info("scanned", text))
    inputs = [_info("iteration", "i64[]"), _info("going", "b[]"), _info("carried", text)]
    body = graph("loop_body", nodes, inputs, outputs)
    return case(*base.inputs[:2], text, body=body, outs=len(outputs) - 1, types=UNTYPED)


def _scan(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    if variable != "V":
        return base
    state, item = retyped("f32[3]", wanted), retyped("f32[3]", wanted)
    nodes = [node("Identity", "state", "state_out"), node("Identity", "item", "item_out")]
    body = graph(
        "scan_body",
        nodes,
        [_info("state", state), _info("item", item)],
        [_info("state_out", state), _info("item_out", item)],
    )
    inputs = [None if x is None else retyped(x, wanted) for x in base.inputs]
    return dataclasses.replace(base, inputs=inputs, attributes={**base.attributes, "body": body}, types=UNTYPED)


def _sequence_map(schema: OpSchema, base: Case, variable: str, wanted: str) -> Case | None:
    element = wanted[4:-1] if wanted.startswith("seq(") else wanted
    text = retyped("f32[2,3]", element)
    inputs = [f"seq({text})", text] if not wanted.startswith("seq(") else [f"seq({text})", f"seq({text})"]
    body = graph(
        "map_body",
        [node("Identity", "other", "item_out")],
        [_info("item", text), _info("other", text)],
        [_info("item_out", text)],
    )
    return case(*inputs, body=body, types=UNTYPED)


def _info(name: str, text: str) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, parse_type(text))


_BY_TYPE: dict[str, Callable[[OpSchema, Case, str, str], Case | None]] = {
    **dict.fromkeys(("Cast", "CastLike"), _numerals),
    "BitCast": _bit_cast,
    "Constant": _constant,
    **dict.fromkeys(("GridSample", "Resize", "Upsample"), _nearest),
    **dict.fromkeys(("RandomNormalLike", "RandomUniformLike"), _like),
    "DequantizeLinear": _scaled,
    "OneHot": _one_hot,
    "OneHotEncoder": _categories,
    "Range": _range,
    "SequenceInsert": _sequence,
    "TfIdfVectorizer": _n_grams,
    "Gradient": _gradient,
    "If": _branches,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
"""Operators whose calls take more than a change of the inputs' types."""


def _with_input(position: int, *values: Any) -> Callable[[OpSchema], Sequence[Case]]:
    """The case with an optional input given, too."""

    def make(schema: OpSchema) -> Sequence[Case]:
        base = case_of(schema)
        inputs = [*base.inputs, *[None] * (position - len(base.inputs))]
        found = [[*inputs[:position], value, *inputs[position + 1 :]] for value in values]
        return [dataclasses.replace(base, inputs=given, types=UNTYPED) for given in found]

    return make


def _masks(schema: OpSchema) -> Sequence[Case]:
    base = case_of(schema)
    masks = [retyped("f32[3,5]", t) for t in allowed_types(schema)["U"]]
    return [dataclasses.replace(base, inputs=[*base.inputs[:3], m], types=UNTYPED) for m in masks]


def _quantized(schema: OpSchema) -> Sequence[Case]:
    """The type of the zero point is that of the result."""
    made: list[Case] = []
    (variable,) = {p.type_str for p in schema.outputs}
    for wanted in allowed_types(schema)[variable]:
        zero = np.zeros((), helper.tensor_dtype_to_np_dtype(element_code(wanted)))
        made.append(case(*case_of(schema).inputs[:1], np.array(0.05, np.float32), zero, types=UNTYPED))
    return made


def _roi(schema: OpSchema) -> Sequence[Case]:
    if schema.since_version < 11:
        return []
    types = allowed_types(schema)["T2"]
    dtypes = [helper.tensor_dtype_to_np_dtype(element_code(t)) for t in types]
    crop: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    rois = [np.array([0, 0, 0, 0, 1, 1, 0.5, 1], dtype) for dtype in dtypes]
    scales = np.array([], np.float32) if schema.since_version == 11 else None
    return [case("f32[1,2,3,4]", roi, scales, np.array([1, 2, 2, 2]), **crop, types=UNTYPED) for roi in rois]


def _label_encoder(schema: OpSchema) -> Sequence[Case]:
    """Each type of key with each type of value."""
    if schema.since_version == 1:
        return [case("i64[2,3]<3", classes_strings=["a", "bc"], types=UNTYPED)]
    lists = {"strings": ["a", "bc"], "int64s": [0, 1], "floats": [0.5, 1.0]}
    texts = {"strings": "s[2,3]", "int64s": "i64[2,3]<3", "floats": "f32[2,3]<3"}
    kinds = {"strings": "string", "int64s": "int64", "floats": "float"}
    allowed = allowed_types(schema)
    made = [
        case(texts[k], **{f"keys_{k}": lists[k], f"values_{v}": lists[v]}, types=UNTYPED)
        for k in lists
        for v in lists
        if f"tensor({kinds[k]})" in allowed["T1"] and f"tensor({kinds[v]})" in allowed["T2"]
    ]
    if schema.since_version >= 4:
        for key in allowed["T1"]:
            for value in allowed["T2"]:
                tables = {"keys_tensor": key, "values_tensor": value}
                attributes: dict[str, Any] = {n: _tensor([2], 1)(element_code(t))["value"] for n, t in tables.items()}
                attributes["default_tensor"] = _tensor([1], 2)(element_code(value))["value"]
                made.append(case(retyped("f32[2,3]<3", key), **attributes, types=UNTYPED))
    return made


def _text_labels(schema: OpSchema) -> Sequence[Case]:
    """Classes that are named by text in place of numbers, or the other way round."""
    base = case_of(schema)
    given = next(n for n in base.attributes if n.startswith("classlabels_"))
    attributes = {k: v for k, v in base.attributes.items() if k != given}
    labels = [f"class {n}" for n in base.attributes[given]]
    return [dataclasses.replace(base, attributes={**attributes, "classlabels_strings": labels}, types=UNTYPED)]


def _cast_map(schema: OpSchema) -> Sequence[Case]:
    return [
        case("map(i64,f32)", cast_to="TO_INT64", map_form="SPARSE", max_map=5, types=UNTYPED),
        case("map(i64,f32)", cast_to="TO_STRING", types=UNTYPED),
        case("map(i64,s)", cast_to="TO_STRING", types=UNTYPED),
    ]


def _dict_vectorizer(schema: OpSchema) -> Sequence[Case]:
    words, numbers = {"string_vocabulary": ["bc", "a", "zz"]}, {"int64_vocabulary": [2, 0, 1]}
    vocabularies = {"s": words, "i64": numbers}
    types = re.findall(r"map\((\w+), (\w+)\)", " ".join(allowed_types(schema)["T1"]))
    made = [(_WORDS[key], _WORDS[value]) for key, value in types]
    return [case(f"map({key},{value})", **vocabularies[key], types=UNTYPED) for key, value in made]


_EXTRA: dict[str, Callable[[OpSchema], Sequence[Case]]] = {
    "Attention": _masks,
    "QuantizeLinear": _quantized,
    "Resize": _roi,
    "DFT": lambda schema: [found for t in (np.int32, np.int64) for found in _with_input(1, np.array(8, t))(schema)],
    "Scan": lambda schema: _with_input(0, np.array([5, 3]))(schema) if schema.since_version == 8 else [],
    "QLinearConv": _with_input(8, np.array([10, -5, 0], np.int32)),
    **{name: _with_input(4, np.array([5, 3], np.int32)) for name in ("RNN", "GRU", "LSTM")},
    "LabelEncoder": _label_encoder,
    "CategoryMapper": lambda schema: [
        case("i64[2,3]<7", cats_strings=["a", "bc"], cats_int64s=[5, 6], default_string="?", types=UNTYPED)
    ],
    "CastMap": _cast_map,
    "DictVectorizer": _dict_vectorizer,
    "Imputer": lambda schema: (
        [
            case(text, imputed_value_int64s=[5], replaced_value_int64=3, types=UNTYPED)
            for text in ("i32[2,3]<4", "i64[2,3]<4")
        ]
        + [case("f64[2,3]<4", imputed_value_floats=[0.5, 1.5, 2.5], replaced_value_float=3.0, types=UNTYPED)]
    ),
    **dict.fromkeys(("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier", "ZipMap"), _text_labels),
}
"""Operators some of whose types are said by attributes or optional inputs: further calls."""

_ELSEWHERE = {
    ("LabelEncoder", "T1"),
    ("LabelEncoder", "T2"),
    ("CastMap", "T1"),
    ("DictVectorizer", "T1"),
    ("Imputer", "T"),
}
"""Type variables that only those further calls bind: an attribute must fit the type."""
