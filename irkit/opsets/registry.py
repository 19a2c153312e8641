"""Tables of what changed between the versions of an op, and the decorators that fill them.

Most versions of an op differ in nothing but the element types they take, or in an attribute whose default means what
was meant before: those are told from the schemas by ``is_trivial`` and ``is_compatible``. Every other change has a
function in ``opsets/<family>.py``:

``@upgrade``    rewrites an older form into current ops, where that is one to one and can be undone; returns None for an
                instance that cannot, which then keeps its older class;
``@lower``      writes a current op in an older form, or raises ``LoweringError``;
``@decompose``  says what an older form means in current ops, by as many as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import TypeVar

from irkit.dialects.onnx.classes import CLASSES, OnnxOp
from irkit.ir.builder import Builder, Tensor
from irkit.ir.op import OpSpec, Parameter

__all__ = [
    "CHOICES",
    "DECOMPOSITIONS",
    "LOWERINGS",
    "NEGATIVE_AXIS",
    "SEMANTIC_CHANGES",
    "UPGRADES",
    "Lowering",
    "Results",
    "Rewrite",
    "conditions",
    "decompose",
    "is_compatible",
    "is_trivial",
    "loses_types",
    "lower",
    "upgrade",
]

Results = Tensor | Sequence[Tensor]
Rewrite = Callable[[Builder, OnnxOp], "Results | None"]
Lowering = Callable[[Builder, OnnxOp, type[OnnxOp]], Results]
Key = tuple[str, str, int]
F = TypeVar("F", Rewrite, Lowering)

UPGRADES: dict[Key, Rewrite] = {}
LOWERINGS: dict[Key, Lowering] = {}
DECOMPOSITIONS: dict[Key, Rewrite] = {}
"""(domain, op type, since_version of the older form) -> function."""


def upgrade(op_types: str, *since: int, domain: str = "") -> Callable[[Rewrite], Rewrite]:
    """Declares how these older forms of some ops (names separated by spaces) become current ops."""

    def register(function: Rewrite) -> Rewrite:
        _add(UPGRADES, op_types, since, domain, function)
        return function

    return register


def lower(op_types: str, *to: int, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Declares how current ops are written in these older forms; the function's last argument is the class to make.

    It raises ``LoweringError`` with the reason where an instance has no such form. Other ops that it makes may be
    current ones: they are lowered in turn.
    """

    def register(function: Lowering) -> Lowering:
        _add(LOWERINGS, op_types, to, domain, function)
        return function

    return register


def decompose(op_types: str, *since: int, domain: str = "") -> Callable[[Rewrite], Rewrite]:
    """Declares what these older forms mean in current ops; None where an instance cannot be expressed."""

    def register(function: Rewrite) -> Rewrite:
        _add(DECOMPOSITIONS, op_types, since, domain, function)
        return function

    return register


def _add(table: dict[Key, F], op_types: str, versions: Sequence[int], domain: str, function: F) -> None:
    for op_type in op_types.split():
        for version in versions:
            if version not in CLASSES[domain, op_type]:
                raise ValueError(f"{op_type} has no version {version}")
            if table.setdefault((domain, op_type, version), function) is not function:
                raise ValueError(f"two functions for {op_type} of version {version}")


SEMANTIC_CHANGES: frozenset[Key] = frozenset(
    {
        # Meaning or defaults change although the signature stays, or grows by something that is not neutral.
        ("", "BatchNormalization", 6),  # 4-D only, and always with consumed_inputs, before
        ("", "BatchNormalization", 7),  # is_test, which defaults to training, goes
        ("", "BatchNormalization", 9),  # spatial=0 goes
        ("", "BatchNormalization", 14),  # training is an attribute, no longer told by the number of outputs
        ("", "Clip", 6),  # unset bounds become the limits of float32
        ("", "Dropout", 7),  # is_test goes: the mode is no longer part of the node
        ("", "Dropout", 10),  # the mask becomes boolean
        ("", "Gemm", 7),  # broadcast=0 was the default
        ("", "GridSample", 20),  # bilinear and bicubic are renamed
        ("", "GroupNormalization", 21),  # scale and bias are per channel, no longer per group
        ("", "Max", 8),  # broadcasting
        ("", "Mean", 8),
        ("", "Min", 8),
        ("", "OneHot", 11),  # indices below zero count from the end; before, they gave off_value
        ("", "PRelu", 7),  # a slope of one axis was per channel; now it broadcasts from the last axis
        ("", "Pad", 2),  # paddings becomes pads
        ("", "Resize", 11),  # was asymmetric with floor; the new defaults are others
        ("", "Resize", 13),  # tf_half_pixel_for_nn goes; an unused scales is absent, no longer empty
        ("", "RoiAlign", 16),  # half_pixel becomes the default; output_half_pixel is what was meant before
        ("", "Split", 18),  # equal parts need num_outputs, and the last may be smaller
        ("", "Sum", 8),
        ("", "Scan", 9),  # the batch axis goes
        ("", "Softmax", 13),  # one axis, no longer all axes from this one on
        ("", "LogSoftmax", 13),
        ("", "Hardmax", 13),
        ("", "Tile", 6),  # one axis, in float tensors
        ("", "Scatter", 11),  # deprecated
        ("", "Upsample", 10),
        ("ai.onnx.ml", "LabelEncoder", 2),
    }
)
"""(domain, op type, version that brought it): changes that are more than a matter of types and neutral attributes.

The table was made by reading each version's documentation against the one before. Corrections of the text that no
runtime ever took for a change are left out: ``Cast`` 24 (infinities saturate in the FNUZ types too), ``ConvTranspose``
11 (which side SAME_UPPER pads), ``MaxPool``, ``AveragePool`` and ``LpPool`` 22 (windows that begin in the padding,
undefined before, are left out), ``Dropout`` 22, ``NonMaxSuppression`` 11, ``Pad`` 2's example, ``Pow`` 12.
"""

NEGATIVE_AXIS: dict[str, str] = {
    "ArgMax": "axis",
    "ArgMin": "axis",
    "Compress": "axis",
    "Concat": "axis",
    "Flatten": "axis",
    "Split": "axis",
}
"""Ops whose ``axis`` may be negative from opset 11 on only."""

NEGATIVE_AXIS_SINCE = 11

CHOICES: dict[tuple[str, str], dict[object, int]] = {
    ("Pad", "mode"): {"wrap": 19},
    ("Resize", "coordinate_transformation_mode"): {"half_pixel_symmetric": 19},
    ("ScatterElements", "reduction"): {"max": 18, "min": 18},
    ("ScatterND", "reduction"): {"max": 18, "min": 18},
}
"""(op type, attribute) -> the versions that brought certain values of it."""

_RENAMED_DEFAULTS = frozenset({("GRU", "direction")})
"""Defaults that were misspelt."""

_STILL_IN_USE = frozenset({"TreeEnsembleClassifier", "TreeEnsembleRegressor"})
"""Deprecated by their last version without a faithful replacement: that version is their current form."""

HINT = "consumed_inputs"
"""An attribute of opset 1: a hint to the memory planner without meaning. An upgrade keeps it aside."""


def is_trivial(older: type[OnnxOp], newer: type[OnnxOp]) -> bool:
    """Whether every node of the older form means the same in the newer one, and differs by its class alone.

    Backwards the same holds for nodes whose types and attributes the older form has.
    """
    return conditions(older, newer) == frozenset() and not loses_types(older, newer)


def is_compatible(older: type[OnnxOp], newer: type[OnnxOp]) -> bool:
    """Whether one form becomes the other by renaming, where certain attributes of the instance allow it."""
    return conditions(older, newer) is not None


@cache
def loses_types(old: type[OnnxOp], new: type[OnnxOp]) -> bool:
    """Whether one form fails to take some type that the other takes."""
    for before, after in ((old.spec.inputs, new.spec.inputs), (old.spec.outputs, new.spec.outputs)):
        for a, z in zip(before, after, strict=False):
            if not _allowed(old, a.type) <= _allowed(new, z.type):
                return True
    return False


def _allowed(cls: type[OnnxOp], variable: str) -> frozenset[str]:
    return cls.spec.variables.get(variable, frozenset((variable,)))


@cache
def conditions(older: type[OnnxOp], newer: type[OnnxOp]) -> frozenset[str] | None:
    """What an instance must be looked at for before one form is renamed to the other; None where renaming won't do.

    ``axis``: one below zero; ``choice``: a value of an attribute that is new; ``default``: a default that changed;
    ``hint``: ``consumed_inputs``; ``operand``: one that may be left out now.
    """
    if (older.domain, older.op_type) != (newer.domain, newer.op_type) or older.since > newer.since:
        return None
    found: set[str] = set()
    between = [c for since, c in CLASSES[older.domain, older.op_type].items() if older.since <= since <= newer.since]
    for a, b in pairwise(between):
        step = _step(a.spec, b.spec)
        if step is None:
            return None
        found |= step
    return frozenset(found)


def _step(old: OpSpec, new: OpSpec) -> set[str] | None:
    """The conditions between two consecutive forms."""
    if (new.domain, new.op_type, new.since) in SEMANTIC_CHANGES:
        return None
    if new.deprecated and not old.deprecated and new.op_type not in _STILL_IN_USE:
        return None
    if not _prefix(old.inputs, new.inputs) or not _prefix(old.outputs, new.outputs) or old.graphs != new.graphs:
        return None
    if any(spec.required for name, spec in new.attributes.items() if name not in old.attributes):
        return None
    found: set[str] = set()
    if any(z.optional and not a.optional for a, z in zip(old.inputs, new.inputs, strict=False)):
        found.add("operand")
    if old.domain == "" and old.op_type in NEGATIVE_AXIS and old.since < NEGATIVE_AXIS_SINCE <= new.since:
        found.add("axis")
    choices = [since for (op, _), values in CHOICES.items() if op == old.op_type for since in values.values()]
    if any(old.since < since <= new.since for since in choices) or (old.op_type, new.since) == ("Mod", 28):
        found.add("choice")
    for name, before in old.attributes.items():
        after = new.attributes.get(name)
        if after is None and name != HINT:
            return None
        if after is None:
            found.add("hint")
        elif after.kind != before.kind or (after.required and not before.required):
            return None
        elif after.default != before.default and (old.op_type, name) not in _RENAMED_DEFAULTS:
            found.add("default")
    return found


def _prefix(old: Sequence[Parameter], new: Sequence[Parameter]) -> bool:
    if len(old) > len(new):
        return False
    for before, after in zip(old, new, strict=False):
        if before.variadic != after.variadic or (before.optional and not after.optional):
            return False
    return all(p.optional for p in new[len(old) :])
