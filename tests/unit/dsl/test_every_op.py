"""Every op of ONNX by name: the models that have one op each, written again as expressions, give equal modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from xdsl.ir import Block, Operation, SSAValue

import irkit as ik
from irkit.dialects.onnx import CURRENT, NoValue, OnnxOp
from irkit.dialects.onnx.classes import DOMAINS
from irkit.dialects.onnx.structural import Initializer
from irkit.errors import IrkitError
from irkit.frontends import dsl
from irkit.frontends.dsl.nodes import PlaceholderNode
from irkit.ir.constants import TensorAttr
from irkit.ir.names import name_of
from irkit.passes.types import meet
from tests.corpus.features import feature_models
from tests.corpus.schemas import schema_models

NAMES_ITS_SURROUNDINGS = {"Gradient"}
"""An op that refers to values of the graph around it by their names, which expressions do not have."""


class _Unwritable(Exception):
    """An op that expressions have no form for: foreign, of an older form, or refused by inference."""


def written(block: Block, values: dict[SSAValue, Any]) -> list[Any]:
    """What a block returns, as expressions."""
    for op in block.ops:
        if op is block.last_op:
            return [values[v] for v in op.operands]
        if isinstance(op, NoValue):
            values[op.results[0]] = None
        elif isinstance(op, Initializer) and isinstance(op.value, TensorAttr):
            values[op.results[0]] = dsl.constant(op.value, name=name_of(op.results[0]))
        elif isinstance(op, OnnxOp) and op.current and op.op_type not in NAMES_ITS_SURROUNDINGS:
            made = expression(op, values)
            values.update(zip(op.results, made if isinstance(made, tuple) else (made,), strict=True))
        else:
            raise _Unwritable(op.name)
    raise AssertionError("a block without an end")


def expression(op: OnnxOp, values: dict[SSAValue, Any]) -> Any:
    graphs = {name: graph(op.regions[i].block, values) for i, name in enumerate(op.spec.graphs) if op.regions[i].blocks}
    return dsl.onnx.op(
        op.name, *(values[v] for v in op.operands), outputs=len(op.results), **dict(op.properties), **graphs
    )


def graph(block: Block, values: dict[SSAValue, Any]) -> Callable[..., Any]:
    def body(*args: Any) -> list[Any]:
        return written(block, {**values, **dict(zip(block.args, args, strict=True))})

    body.arity = len(block.args)  # type: ignore[attr-defined]
    return body


def again(module: ik.Module) -> ik.Module:
    inputs = []
    values: dict[SSAValue, Any] = {}
    for name, arg in zip(module.input_names, module.block.args, strict=True):
        values[arg] = dsl.Symbol(PlaceholderNode(name, arg.type))
        inputs.append(values[arg])
    results = written(module.block, values)
    return dsl.to_module(dict(zip(module.output_names, results, strict=True)), inputs)


def ops_in(op: Operation) -> list[OnnxOp]:
    """The ops of a module by name, constants aside; they may stand in another order."""
    found = [o for o in op.walk() if isinstance(o, OnnxOp) and o.op_type != "Constant"]
    return sorted(found, key=lambda o: (o.name, str(dict(o.properties))))


def assert_same_ops(made: ik.Module, module: ik.Module, name: str) -> None:
    """The same ops with the same attributes, and types that do not contradict each other."""
    for a, b in zip(ops_in(made.op), ops_in(module.op), strict=True):
        assert (a.name, dict(a.properties)) == (b.name, dict(b.properties)), name
        for x, y in zip(a.results, b.results, strict=True):
            assert meet(x.type, y.type) is not None, (name, x.type, y.type)


def models() -> Iterator[tuple[str, Any]]:
    yield from schema_models()
    for index, item in enumerate(feature_models()):
        yield str(index), item[1] if isinstance(item, tuple) else item


@pytest.mark.slow
def test_every_op() -> None:
    seen: set[tuple[str, str]] = set()
    refused: list[str] = []
    count = 0
    for name, model in models():
        try:
            module = ik.load(model).verify()
            made = again(module)
        except _Unwritable:
            continue
        except IrkitError:
            refused.append(name)
            continue
        assert_same_ops(made, module, name)
        assert list(made.inputs.items()) == list(module.inputs.items()), name
        seen |= {(o.domain, o.op_type) for o in module.walk() if isinstance(o, OnnxOp)}
        count += 1
    official = {key for key, cls in CURRENT.items() if key[0] in DOMAINS and not cls.spec.deprecated}
    current = {key for key in official if key[1] not in NAMES_ITS_SURROUNDINGS}
    missing = current - seen
    assert not missing, missing
    assert count > 500
    assert len(refused) < 5, refused
