"""How each op of ONNX is run by the NumPy backend, typed and differentiated, in each version and at each dtype.

``python -m irkit.passes.coverage`` prints the reference page. It stands among the passes since it tells of gradients.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass

from irkit.backends.numpy.registry import find_kernel
from irkit.dialects.onnx import CLASSES, OnnxOp
from irkit.dialects.onnx.classes import DOMAINS
from irkit.dialects.onnx.infer import REFINEMENTS, SHAPE_RULES
from irkit.dialects.onnx.shapes import load_all
from irkit.dialects.onnx.spec import schema_of
from irkit.opsets import has_function_body, is_compatible
from irkit.opsets.registry import DECOMPOSITIONS, UPGRADES
from irkit.passes import GRADIENT
from irkit.passes.autodiff import coverage as gradients

__all__ = ["Row", "how", "markdown", "rows"]


@dataclass(frozen=True)
class Row:
    """An op.

    Attributes:
        versions: the versions of its schema, oldest first, and how the NumPy backend runs each.
        types: for each type variable of the newest version, version -> the types that it brought; one that it took
            away stands there with a minus.
        shapes: where the types of its results come from.
        gradient: how it is differentiated.
    """

    domain: str
    op_type: str
    versions: dict[int, str]
    types: dict[str, dict[int, list[str]]]
    shapes: str
    gradient: str


def rows() -> list[Row]:
    """One for each op of ONNX's own domains."""
    load_all()
    differentiated = {(row.domain, row.op_type): row.how for row in gradients.rows()}
    return [
        Row(
            domain,
            name,
            {since: how(cls) for since, cls in made.items()},
            _types(made),
            _shapes(made[max(made)]),
            differentiated[domain, name],
        )
        for (domain, name), made in sorted(CLASSES.items())
        if domain in DOMAINS
    ]


def how(cls: type[OnnxOp]) -> str:
    """How the NumPy backend runs this form of an op: kernel, renamed, rewritten, body, expanded or missing."""
    key = (cls.domain, cls.op_type, cls.since)
    if cls.name == GRADIENT:
        return "expanded"
    if find_kernel(cls.domain, cls.op_type, 0 if cls.current else cls.since) is not None:
        return "kernel"
    if key in UPGRADES or key in DECOMPOSITIONS:
        return "rewritten"
    if not cls.current and is_compatible(cls, CLASSES[cls.domain, cls.op_type][_newest(cls)]):
        return "renamed"
    return "body" if has_function_body(cls) else "missing"


def _newest(cls: type[OnnxOp]) -> int:
    return max(CLASSES[cls.domain, cls.op_type])


def _types(made: dict[int, type[OnnxOp]]) -> dict[str, dict[int, list[str]]]:
    newest = made[max(made)]
    found: dict[str, dict[int, list[str]]] = {}
    for side in ("inputs", "outputs"):
        for index, formal in enumerate(getattr(newest.spec, side)):
            if formal.type not in found:
                found[formal.type] = _history(made, side, index)
    return found


def _history(made: dict[int, type[OnnxOp]], side: str, index: int) -> dict[int, list[str]]:
    """What each version changed of the types of an input or output at this place."""
    found: dict[int, list[str]] = {}
    before: frozenset[str] = frozenset()
    for since, cls in made.items():
        formals = getattr(cls.spec, side)
        if index >= len(formals):
            continue
        text = formals[index].type
        after = cls.spec.variables.get(text, frozenset((text,)))
        changes = [*sorted(after - before), *(f"-{text}" for text in sorted(before - after))]
        if changes:
            found[since] = changes
        before = after
    return found


def _shapes(cls: type[OnnxOp]) -> str:
    """Whose rule infers the results' types."""
    schema = schema_of(cls.domain, cls.op_type, cls.since)
    if (cls.domain, cls.op_type) in SHAPE_RULES:
        return "ours"
    if cls.domain == "" and cls.op_type in REFINEMENTS:
        return "both"
    if schema.has_type_and_shape_inference_function:
        return "official"
    return "body" if has_function_body(cls) else "none"


# The page

_SHORT = {
    **{f"int{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    "float16": "f16",
    "float": "f32",
    "double": "f64",
    "bfloat16": "bf16",
    "float4e2m1": "f4",
    **{f"float6{kind}": f"f6{kind}" for kind in ("e2m3", "e3m2")},
    **{f"float8{kind}": f"f8{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0")},
    "complex64": "c64",
    "complex128": "c128",
    "bool": "bool",
    "string": "str",
}
"""Element types as schemas spell them, in the order of the page, and in short."""

_ORDER = {short: place for place, short in enumerate(_SHORT.values())}
_GROUPS = {
    "i8–64": ("i8", "i16", "i32", "i64"),
    "u8–64": ("u8", "u16", "u32", "u64"),
    "f16–64": ("f16", "f32", "f64"),
    "c64–128": ("c64", "c128"),
    "f8": ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"),
    "f6": ("f6e2m3", "f6e3m2"),
}


def _spelt(types: list[str]) -> str:
    """Types in short: ``f16–64 bf16 seq(bool str)``."""
    by_structure: dict[str, list[str]] = {}
    for text in types:
        match = re.fullmatch(r"(-?)((?:seq\(|optional\()*)tensor\((\w+)\)(\)*)", text)
        if match is None:
            by_structure[text] = []
        else:
            sign, opening, word, closing = match.groups()
            by_structure.setdefault(f"{sign}{opening.replace('optional', 'opt')}%s{closing}", []).append(_SHORT[word])
    return " ".join(_structured(shape, words) for shape, words in by_structure.items())


def _structured(shape: str, words: list[str]) -> str:
    """The types of one structure, groups of them under one name."""
    left = sorted(words, key=_ORDER.__getitem__)
    for group, members in _GROUPS.items():
        if all(m in left for m in members):
            left[left.index(members[0])] = group
            left = [w for w in left if w not in members]
    if shape == "-%s":
        return " ".join(f"−{word}" for word in left)
    return shape % " ".join(left) if left else shape


_MARKS = {"kernel": "", "renamed": "", "rewritten": r"\*", "body": "°", "expanded": "ᵉ"}

HEAD = """# Coverage

Every op of ONNX's own domains: its versions, how the NumPy backend runs each, at which types, where the types of its
results come from, and how it is differentiated. This page is printed by `python -m irkit.passes.coverage`.

**Versions.** Those of the schema, oldest first. The last one is run by a *kernel* of its own, or, where marked,

- ° by its *body*: the ops that the schema defines it by,
- \\* as what it is *rewritten* to (deprecated ops),
- ᵉ as what differentiation makes of it: `irkit.compile` *expands* `Gradient` first.

An older version that differs in types, or in attributes with neutral defaults, alone is *renamed*: it runs as the last
one. Where more changed it is *rewritten* into current ops first, marked \\*, or has a kernel of its own, marked ᵏ.

**Types.** For each type variable of the last version: the types that the first version takes, then after a number and a
colon those that this version added (or, with −, took away). `f16–64` is float16, float32 and float64; `i8–64` and
`u8–64` are the four signed and the four unsigned integers; `f8` is float8e4m3fn, e4m3fnuz, e5m2 and e5m2fnuz, `f6`
float6e2m3 and e3m2, `f4` float4e2m1, `c64–128` the two complex types. Variables of one type only are left out. **The
NumPy backend runs every one of them**: `tests/unit/numpy/test_dtypes.py` runs each version of each op at each type that
its schema allows, and compares the result with that of the same numbers in a wider type.

**Shapes.** *official*: the inference of the onnx package; *ours*: a rule of irkit's own; *both*: ours fills in what the
official one leaves open; *body*: what the ops of its body give.

**Gradient.** As on the page [Gradients of ops](gradients.md).
"""


def markdown() -> str:
    """The reference page."""
    found = rows()
    lines = [HEAD, _counts(found)]
    for domain in DOMAINS:
        lines += [
            f"## {domain or 'ai.onnx'}\n",
            "| op | versions | types | shapes | gradient |",
            "|---|---|---|---|---|",
        ]
        lines += [_line(row) for row in found if row.domain == domain]
        lines.append("")
    return "\n".join(lines)


def _counts(found: list[Row]) -> str:
    last = Counter(row.versions[max(row.versions)] for row in found)
    older = Counter(how for row in found for since, how in row.versions.items() if since != max(row.versions))
    return (
        f"{len(found)} ops in {sum(len(row.versions) for row in found)} versions. Last ones: {_listed(last)}; "
        f"older ones: {_listed(older)}.\n"
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))


def _line(row: Row) -> str:
    last = max(row.versions)
    versions = " ".join(
        f"{since}{'ᵏ' if way == 'kernel' and since != last else _MARKS[way]}" for since, way in row.versions.items()
    )
    told: dict[str, list[str]] = {}
    for variable, changes in row.types.items():
        if sum(map(len, changes.values())) > 1:
            told.setdefault(_told(changes), []).append(variable)
    types = "; ".join(f"**{' '.join(variables)}** {text}" for text, variables in told.items())
    return f"| {row.op_type} | {versions} | {types} | {row.shapes} | {row.gradient} |"


def _told(changes: dict[int, list[str]]) -> str:
    first, *later = changes.items()
    return ", ".join([_spelt(first[1]), *(f"{since}: {_spelt(types)}" for since, types in later)])


if __name__ == "__main__":
    sys.stdout.write(markdown())
