"""``irkit info``: what is in a model."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation

from irkit.backends.base import spell
from irkit.cli.models import STDIO, read
from irkit.cli.show import facts, heading, print_json, size, table
from irkit.dialects.onnx import Call, Custom, ForeignOp, Function, Initializer, OnnxOp
from irkit.dialects.onnx.classes import canonical_domain
from irkit.ir.attributes import text_of
from irkit.ir.constants import ConstantData, SparseAttr, TensorAttr
from irkit.ir.module import Module
from irkit.ir.names import metadata_of
from irkit.ir.types import tensor_info
from irkit.passes.infer_shapes import InferShapes

__all__ = ["describe", "run"]

SHOWN_CONFLICTS = 5


def run(args: Namespace) -> int:
    """Runs the command."""
    module, form = read(args.model, upgrade=False)
    found = describe(module, args.model, form)
    if args.json:
        print_json(found)
    else:
        _print(found)
    return 0


def describe(module: Module, source: str, form: str) -> dict[str, Any]:
    """What ``--json`` prints."""
    inference = InferShapes()
    inference.run(module.clone())
    ops = [op for op in module.walk() if isinstance(op, OnnxOp | ForeignOp)]
    foreign = [op for op in ops if isinstance(op, Custom)]
    defaults = module.defaults
    return {
        "file": source,
        "format": form,
        "bytes": Path(source).stat().st_size if source != STDIO else None,
        "external_bytes": _external_bytes(module),
        "ir_version": module.ir_version,
        "opsets": {domain or "ai.onnx": version for domain, version in module.opsets.items()},
        "producer": " ".join(filter(None, (_text(module, f"producer_{part}") for part in ("name", "version")))),
        "domain": _text(module, "domain"),
        "model_version": _number(module, "model_version"),
        "graph": module.graph_name,
        "doc": _text(module, "doc"),
        "inputs": [{"name": n, "type": spell(t), "default": n in defaults} for n, t in module.inputs.items()],
        "outputs": [{"name": n, "type": spell(t)} for n, t in module.outputs.items()],
        "symbolic_dims": _symbols(module),
        "nodes": len(ops),
        "ops": _histogram(op for op in ops),
        "control_flow": _histogram(op for op in ops if op.regions),
        "unknown_ops": _histogram(foreign),
        "functions": _functions(module, ops),
        "parameters": _parameters(module),
        "metadata": metadata_of(module.op),
        "conflicts": [str(conflict) for conflict in inference.conflicts],
        "misfits": list(inference.failures),
    }


def _text(module: Module, name: str) -> str:
    found = module.op.attributes.get(f"onnx.{name}")
    return "" if found is None else text_of(found)


def _number(module: Module, name: str) -> int | None:
    found = module.op.attributes.get(f"onnx.{name}")
    return found.value.data if isinstance(found, IntegerAttr) else None


def op_label(op: OnnxOp | ForeignOp) -> str:
    """An op as people name it: ``Conv``, with its domain unless that is ai.onnx."""
    domain = canonical_domain(op.domain)
    return f"{domain}.{op.op_type}" if domain else op.op_type


def _histogram(ops: Any) -> dict[str, int]:
    counts = Counter(op_label(op) for op in ops)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _functions(module: Module, ops: list[OnnxOp | ForeignOp]) -> list[dict[str, Any]]:
    calls = Counter((op.domain, op.op_type, op.overload) for op in ops if isinstance(op, Call))
    return [
        {
            "name": ".".join(part for part in op.key if part),
            "inputs": list(op.input_names),
            "outputs": list(op.output_names),
            "nodes": sum(isinstance(inner, OnnxOp | ForeignOp) for inner in op.walk()),
            "calls": calls[op.key],
        }
        for op in module.op.ops
        if isinstance(op, Function)
    ]


def _symbols(module: Module) -> list[str]:
    found: dict[str, None] = {}
    values = [*module.inputs.values(), *module.outputs.values()]
    for value_type in values:
        info = tensor_info(value_type)
        if info is not None and info.shape is not None:
            found.update(dict.fromkeys(d for d in info.shape if isinstance(d, str)))
    return list(found)


def _constants(module: Module) -> Iterator[ConstantData]:
    """The constants of initializers, Constant nodes and defaults of inputs; what several share, once."""
    seen: set[int] = set()
    for attr in (*module.defaults.values(), *(a for op in module.walk() for a in _held(op))):
        parts = (attr,) if isinstance(attr, TensorAttr) else ()
        if isinstance(attr, SparseAttr):
            parts = (attr.values, attr.indices)
        for part in parts:
            if id(part.data) not in seen:
                seen.add(id(part.data))
                yield part.data


def _held(op: Operation) -> list[Attribute]:
    holds = isinstance(op, Initializer) or (isinstance(op, OnnxOp) and op.op_type == "Constant")
    return list(op.properties.values()) if holds else []


def _parameters(module: Module) -> dict[str, Any]:
    by_dtype: dict[str, dict[str, int]] = {}
    total = {"tensors": 0, "elements": 0, "bytes": 0}
    for data in _constants(module):
        for entry in (total, by_dtype.setdefault(data.dtype.name, dict.fromkeys(total, 0))):
            entry["tensors"] += 1
            entry["elements"] += data.size
            entry["bytes"] += data.nbytes
    return {**total, "by_dtype": dict(sorted(by_dtype.items(), key=lambda item: (-item[1]["bytes"], item[0])))}


def _external_bytes(module: Module) -> int:
    return sum(data.nbytes for data in _constants(module) if data.source is not None)


# For people


def _print(found: dict[str, Any]) -> None:
    external = found["external_bytes"]
    facts(
        [
            ("file", found["file"]),
            ("format", found["format"]),
            ("size", "" if found["bytes"] is None else size(found["bytes"])),
            ("external data", size(external) if external else ""),
            ("IR version", str(found["ir_version"])),
            ("opsets", ", ".join(f"{domain} {version}" for domain, version in found["opsets"].items())),
            ("producer", found["producer"]),
            ("model domain", found["domain"]),
            ("model version", "" if found["model_version"] is None else str(found["model_version"])),
            ("graph", found["graph"]),
            ("doc", found["doc"]),
            ("symbolic dims", ", ".join(found["symbolic_dims"])),
            *((f"metadata {key}", value) for key, value in found["metadata"].items()),
        ]
    )
    for kind in ("inputs", "outputs"):
        heading(f"\n{kind}")
        table(("name", "type"), [(v["name"], v["type"] + _default(v)) for v in found[kind]])
    heading(f"\nops ({found['nodes']} nodes)")
    unknown = found["unknown_ops"]
    rows = [(name, count, "unknown" if name in unknown else "") for name, count in found["ops"].items()]
    table(("op", ">count", ""), rows)
    if found["functions"]:
        heading("\nfunctions")
        table(("name", ">nodes", ">calls"), [(f["name"], f["nodes"], f["calls"]) for f in found["functions"]])
    parameters = found["parameters"]
    if parameters["tensors"]:
        heading(f"\nparameters ({parameters['elements']:,} elements, {size(parameters['bytes'])})")
        rows = [(k, v["tensors"], f"{v['elements']:,}", size(v["bytes"])) for k, v in parameters["by_dtype"].items()]
        table(("dtype", ">tensors", ">elements", ">size"), rows)
    if found["control_flow"]:
        listed = ", ".join(f"{name} ({count})" for name, count in found["control_flow"].items())
        heading(f"\ncontrol flow: {listed}")
    for what, key in (("declared types that contradict inference", "conflicts"), ("ops that do not fit", "misfits")):
        if found[key]:
            heading(f"\n{len(found[key])} {what}")
            more = len(found[key]) - SHOWN_CONFLICTS
            lines = [*found[key][:SHOWN_CONFLICTS], *([f"and {more} more"] if more > 0 else [])]
            for line in lines:
                facts([("", line)])


def _default(value: dict[str, Any]) -> str:
    return " (has a default)" if value.get("default") else ""
