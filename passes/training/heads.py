"""Fine-tuning: another head on a model that is there.

>>> import numpy as np
>>> import irkit as ik
>>> b = ik.Builder("old")
>>> h = b.input("x", "float32", ["N", 4]) @ b.initializer(np.ones((4, 8), np.float32), "body")
>>> b.output(h, "features")
>>> b.output(b.Softmax(h @ b.initializer(np.ones((8, 1000), np.float32), "old head")), "p")
>>> ik.replace_head(b.module(), "features", 3).outputs
{'logits': tensor<?x3xf32, #onnx.dims<["N", ""]>>}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from irkit.errors import IrkitError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.passes.dce import DeadCodeElimination
from irkit.passes.rewrite import sync_signature
from irkit.passes.training.signature import Graph

__all__ = ["Head", "dense", "replace_head"]

Head = Callable[[Builder, Tensor], Tensor]
"""Takes a builder and a value of the graph; gives the new output."""


def replace_head(
    module: Module, at: str, head: Head | int, *, output: str = "logits", keep: Sequence[str] = ()
) -> Module:
    """A copy of a model whose output is computed from one of its values by a new head.

    What only the old outputs needed goes.

    Args:
        at: the name of the value.
        head: a function of a builder and that value, which makes its weights with ``b.initializer``; or a number of
            classes, for one dense layer.
        output: the name of the new output.
        keep: old outputs that stay, after the new one.

    Raises:
        IrkitError: for a name that is not there, or a dense layer on a value that is no matrix of floats.
    """
    graph = Graph(module, "replace-head", whole=False)
    kept = [(name, graph.value(name).ssa) for name in keep]
    made = (dense(head) if isinstance(head, int) else head)(graph.b, graph.value(at))
    graph.set_outputs([(output, made.ssa), *kept])
    sync_signature(graph.module)
    DeadCodeElimination().run(graph.module)
    return graph.module.verify()


def dense(units: int, *, name: str = "head", seed: int = 0) -> Head:
    """A head of one dense layer: weights ``<name>.weight`` by Glorot and Bengio's uniform rule (2010), zero bias."""

    def build(b: Builder, x: Tensor) -> Tensor:
        size = x.shape[-1] if x.shape else None
        if not isinstance(size, int) or x.rank != 2 or x.dtype is None:
            raise IrkitError(
                f"a dense head takes a matrix with a known number of columns, and the value is {x.type}",
                where=where(x.ssa),
                hint="flatten or pool it in a head function of your own",
            )
        most = np.sqrt(6 / (size + units))
        weight = np.random.default_rng(seed).uniform(-most, most, (size, units)).astype(x.dtype.numpy)
        bias = np.zeros(units, x.dtype.numpy)
        return b.Gemm(x, b.initializer(weight, f"{name}.weight"), b.initializer(bias, f"{name}.bias"))

    return build
