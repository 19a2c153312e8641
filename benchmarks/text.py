"""How fast MLIR text is printed and parsed, against stock xDSL on the same module in the same run.

Run as ``python -m benchmarks.text [ops]``.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.printer import Printer

from irkit.dialects import context
from irkit.ir.builder import Builder
from irkit.ir.compare import difference
from irkit.ir.location import node_location
from irkit.ir.module import Module
from irkit.ir.names import set_node_name, set_out_names
from irkit.ir.text import parse_module, print_module

OPS = 20_000


class Row(NamedTuple):
    """Process CPU time of one job, ours and stock xDSL's."""

    job: str
    ops: int
    ours: float
    stock: float

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return self.stock / self.ours


def chain(ops: int) -> Module:
    """A chain of ops as a model has them: named, with attributes, constants of several sizes, and locations."""
    random = np.random.default_rng(0)
    b = Builder("chain")
    value = b.input("x", "float32", ["N", 8, 16, 16])
    kernel = b.initializer(random.standard_normal((8, 8, 3, 3), dtype=np.float32), "kernel")
    pool = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    steps: list[Callable[[int], Any]] = [
        lambda i: b.Conv(value, kernel, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        lambda i: b.Relu(value),
        lambda i: b.Add(value, b.constant(np.float32(i))),
        lambda i: b.Mul(value, b.constant(random.standard_normal((8, 1, 1), dtype=np.float32))),
        lambda i: b.MaxPool(value, **pool),
        lambda i: b.LeakyRelu(value, alpha=0.5 + i),
        lambda i: b.Reshape(value, b.constant(np.array([0, 8, 16, 16], np.int64))),
        lambda i: b.Clip(value, b.constant(np.float32(-i)), b.constant(np.float32(i))),
    ]
    for index in range(ops * len(steps) // 13):
        value = steps[index % len(steps)](index)
    b.output(value, "y")
    module = b.module()
    for index, op in enumerate(module.block.ops):
        if op.results:
            set_node_name(op, f"{op.name}_{index}")
            set_out_names(op, [f"/model/layer.{index}/{op.name}_output_{k}" for k in range(len(op.results))])
            op.location = node_location("chain.onnx", f"{op.name}_{index}", index)
    return module


def stock_print(module: Module) -> str:
    """What stock xDSL prints."""
    stream = StringIO()
    Printer(stream).print_op(module.op)
    return stream.getvalue()


def stock_parse(text: str) -> ModuleOp:
    """What stock xDSL parses."""
    return Parser(context(), text).parse_module()


def _cpu(work: Callable[[], object], repeat: int) -> float:
    """The least CPU time of several runs."""
    times: list[float] = []
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def run(ops: int = OPS) -> list[Row]:
    """Times both jobs, ours and stock's, once it is sure that they do the same.

    Raises:
        AssertionError: if they do not.
    """
    module = chain(ops)
    text = print_module(module)
    assert text == stock_print(module), "the texts differ"
    found = difference(parse_module(text, context()).op, stock_parse(text), locations=True)
    assert found is None, found
    count = len(module.block.ops)
    return [
        Row("print", count, _cpu(lambda: print_module(module), 5), _cpu(lambda: stock_print(module), 2)),
        Row("parse", count, _cpu(lambda: parse_module(text, context()), 5), _cpu(lambda: stock_parse(text), 1)),
    ]


def main() -> None:
    """Prints the table."""
    rows = run(int(sys.argv[1]) if len(sys.argv) > 1 else OPS)
    print(f"{'job':<8}{'ops':>8}{'irkit s':>12}{'xDSL s':>12}{'ratio':>8}")
    for row in rows:
        print(f"{row.job:<8}{row.ops:>8}{row.ours:>12.3f}{row.stock:>12.3f}{row.ratio:>7.1f}x")


if __name__ == "__main__":
    main()
