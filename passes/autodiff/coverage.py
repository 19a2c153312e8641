"""How each op of ONNX is differentiated, as a table.

``python -m irkit.passes.autodiff.coverage`` prints the reference page.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

from irkit.dialects.onnx import CURRENT, OnnxOp
from irkit.dialects.onnx.classes import DOMAINS
from irkit.ir.op import Parameter
from irkit.opsets import has_function_body
from irkit.opsets.registry import DECOMPOSITIONS, UPGRADES
from irkit.passes.autodiff.registry import PROVEN_ZERO, REFUSED, RULES
from irkit.passes.autodiff.transform import load_rules

__all__ = ["Row", "markdown", "rows"]


@dataclass(frozen=True)
class Row:
    """An op, how it is differentiated (rule, body, zero, refused or missing), and what to say of it."""

    domain: str
    op_type: str
    how: str
    note: str = ""


def rows() -> list[Row]:
    """One for each op of ONNX's own domains, in its current form."""
    load_rules()
    return [_row(domain, name, cls) for (domain, name), cls in sorted(CURRENT.items()) if domain in DOMAINS]


def _row(domain: str, name: str, cls: type[OnnxOp]) -> Row:
    key = (domain, name)
    if key in RULES:
        found = {operand: why for (d, n, operand), why in PROVEN_ZERO.items() if (d, n) == key}
        inputs = cls.spec.inputs
        zeros = [f"`{inputs[min(int(i), len(inputs) - 1)].name}` ({why})" for i, why in found.items()]
        return Row(domain, name, "rule", f"zero in {', '.join(zeros)}" if zeros else "")
    if (domain, name, "*") in PROVEN_ZERO:
        return Row(domain, name, "zero", PROVEN_ZERO[domain, name, "*"])
    if not any(_may_be_float(cls, p) for p in cls.spec.inputs):
        return Row(domain, name, "zero", "it has no operand of a float type")
    if not any(_may_be_float(cls, p) for p in cls.spec.outputs):
        return Row(domain, name, "zero", "it gives nothing of a float type")
    if key in REFUSED:
        return Row(domain, name, "refused", REFUSED[key])
    if has_function_body(cls):
        return Row(domain, name, "body", "by the ops that define it")
    if (domain, name, cls.since) in {**DECOMPOSITIONS, **UPGRADES}:
        return Row(domain, name, "body", "deprecated: by the ops that took its place")
    return Row(domain, name, "missing")


def _may_be_float(cls: type[OnnxOp], parameter: Parameter) -> bool:
    allowed = cls.spec.variables.get(parameter.type, frozenset((parameter.type,)))
    return any("float" in text or "double" in text or "complex" in text for text in allowed)


HEAD = """# Gradients of ops

How each op is differentiated, in its current form; older forms are brought to it first. This page is printed by
`python -m irkit.passes.autodiff.coverage`.

- **rule**: the op has a gradient rule, for every operand of a float type but those named.
- **body**: the op is rewritten into the ops that define it, which have rules.
- **zero**: the gradient is zero, and why; nothing is computed for it.
- **refused**: asking for a gradient through the op is an error, and why.
"""


def markdown() -> str:
    """The reference page."""
    found = rows()
    lines = [HEAD]
    counts = Counter(row.how for row in found)
    lines.append(f"{', '.join(f'{how}: {n}' for how, n in sorted(counts.items()))}.\n")
    for domain in DOMAINS:
        lines += [f"## {domain or 'ai.onnx'}\n", "| op | how | |", "|---|---|---|"]
        lines += [f"| {row.op_type} | {row.how} | {row.note} |" for row in found if row.domain == domain]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(markdown())
