"""The op classes of the ``onnx`` dialect, one per version of a schema, made when this module is first imported.

The current form of an op has its plain name, ``onnx.Softmax``; older forms are named by the opset that brought them,
``onnx.SoftmaxV11``. Other domains stand between: ``onnx.ml.Scaler``, ``onnx.preview.FlexAttention``,
``onnx.preview.training.Adam``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import onnx.defs
import onnx.helper
from xdsl.ir import Attribute, OpTraits, Region, SSAValue
from xdsl.traits import ConstantLike

from irkit.dialects.onnx.infer import infer_types
from irkit.dialects.onnx.spec import schema_of, spec_of_schema
from irkit.dialects.onnx.structure import STRUCTURE
from irkit.dialects.onnx.traits import traits_of
from irkit.ir.op import OpSpec, TensorOp, verify_spec

__all__ = ["CLASSES", "CURRENT", "DOMAINS", "ONNX_OPSET", "OnnxOp", "define", "newest", "op_class", "versions"]

DOMAINS = {
    "": "onnx.",
    "ai.onnx.ml": "onnx.ml.",
    "ai.onnx.preview": "onnx.preview.",
    "ai.onnx.preview.training": "onnx.preview.training.",
}
"""Domains with schemas, and the prefix of their ops' names."""


class _LazySpec:
    """Reads a class's spec from its schema on first use: most of the classes are never used in a process."""

    def __get__(self, instance: object, owner: type[OnnxOp]) -> OpSpec:
        spec = spec_of_schema(schema_of(owner.domain, owner.op_type, owner.since))
        owner.spec = spec
        return spec


class OnnxOp(TensorOp):
    """An op of one of ONNX's own domains, in the form of one schema version.

    Attributes:
        domain, op_type, since: the schema.
        current: whether there is no later version.
    """

    domain = ""
    op_type = ""
    since = 0
    current = True

    @classmethod
    def infer_types(
        cls,
        operands: Sequence[SSAValue],
        properties: Mapping[str, Attribute],
        regions: Sequence[Region],
        n_out: int,
    ) -> list[Attribute]:
        return infer_types(cls, operands, properties, regions, n_out)

    @classmethod
    def body_types(
        cls, graph: str, operands: Sequence[SSAValue], properties: Mapping[str, Attribute], count: int
    ) -> list[Attribute]:
        from irkit.dialects.onnx.shapes.control import body_types

        return body_types(cls.op_type, graph, operands, properties, count)

    def verify_(self) -> None:
        verify_spec(self)
        check = STRUCTURE.get(self.op_type)
        if check is not None:
            check(self)

    @classmethod
    def widened(cls, region: Region, operands: Sequence[SSAValue]) -> list[Attribute] | None:
        from irkit.dialects.onnx.shapes.control import widened

        return widened(cls.op_type, region, operands)


CLASSES: dict[tuple[str, str], dict[int, type[OnnxOp]]] = {}
"""(domain, op type) -> since_version -> class, oldest first."""

CURRENT: dict[tuple[str, str], type[OnnxOp]] = {}
"""(domain, op type) -> the class of the current form."""


def _make(prefix: str, domain: str, op_type: str, since_versions: list[int]) -> None:
    """Makes the classes of one op, all of which share their traits."""
    traits = traits_of(domain, op_type)
    if op_type == "Constant" and domain == "":
        traits = (*traits, ConstantLike())
    shared = OpTraits(partial(tuple, traits))
    made: dict[int, type[OnnxOp]] = {}
    for since in sorted(since_versions):
        current = since == max(since_versions)
        name = prefix + op_type + ("" if current else f"V{since}")
        body: dict[str, Any] = {
            "name": name,
            "traits": shared,
            "domain": domain,
            "op_type": op_type,
            "since": since,
            "current": current,
            "spec": _LazySpec(),
            "__module__": __name__,
            "__doc__": f"{op_type} of {domain or 'ai.onnx'}, as of opset {since}.",
        }
        made[since] = cast("type[OnnxOp]", type(name.removeprefix("onnx.").replace(".", "_"), (OnnxOp,), body))
    CLASSES[domain, op_type] = made
    CURRENT[domain, op_type] = made[max(made)]


def _make_all() -> None:
    found: dict[tuple[str, str], list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in DOMAINS:
            found.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    for (domain, op_type), since_versions in sorted(found.items()):
        _make(DOMAINS[domain], domain, op_type, since_versions)


def define(dialect: str, *schemas: onnx.defs.OpSchema) -> list[type[OnnxOp]]:
    """Op classes from schemas of another domain: what a plug-in's dialect is made of.

    The schemas are registered with onnx as well. Shape rules, kernels, decompositions and gradients are declared by the
    same decorators as those of our own ops, with ``domain=``.

    Args:
        dialect: the name of the dialect; an op is then ``<dialect>.<op type>``.
        schemas: of one or more versions of one or more ops.

    Returns:
        The classes, oldest first for each op; to be listed in an xDSL ``Dialect`` of that name.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for schema in schemas:
        if schema.domain in DOMAINS:
            raise ValueError(f"{schema.name} is of the domain '{schema.domain}', whose ops are made by irkit itself")
        onnx.defs.register_schema(schema)
        found.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    for (domain, op_type), since_versions in found.items():
        _make(f"{dialect}.", domain, op_type, since_versions)
    return [cls for key in found for cls in CLASSES[key].values()]


_make_all()

ONNX_OPSET: int = onnx.defs.onnx_opset_version()
"""The opset of ai.onnx that this dialect's current forms are of."""


def newest(domain: str) -> int | None:
    """The newest opset of a domain that this dialect knows; None for a foreign domain."""
    return _NEWEST.get(domain)


def _newest() -> dict[str, int]:
    # Rows: release, IR version, and the opsets of ai.onnx, ai.onnx.ml and, in newer rows, of training.
    row = cast(Any, onnx.helper.VERSION_TABLE[-1])
    return {"": row[2], "ai.onnx.ml": row[3], "ai.onnx.preview.training": row[4], "ai.onnx.preview": 1}


_NEWEST = _newest()


def canonical_domain(domain: str) -> str:
    """``ai.onnx`` is another spelling of the default domain."""
    return "" if domain == "ai.onnx" else domain


def versions(domain: str, op_type: str) -> list[int]:
    """The opset versions at which this op changed, oldest first; empty if it is not known."""
    return list(CLASSES.get((domain, op_type), ()))


def op_class(domain: str, op_type: str, opset: int | None = None) -> type[OnnxOp] | None:
    """The class of an op as it is at an opset of its domain.

    Args:
        opset: None for the current form.

    Returns:
        None where the op is unknown, or is younger than the opset.
    """
    made = CLASSES.get((domain, op_type))
    if made is None:
        return None
    if opset is None:
        return made[max(made)]
    fitting = [since for since in made if since <= opset]
    return made[max(fitting)] if fitting else None
