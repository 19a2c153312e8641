"""Mistakes planted in kernels, which random graphs compared with onnxruntime must show.

Each is a change of one piece of a kernel's source. The module is made again with it, and its kernel of that op put in
the place of the right one; graphs of a few such ops are made until one differs. The same graphs, made with the right
kernel, do not.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any

import pytest

from irkit.backends.numpy import kernels, registry
from irkit.backends.numpy.registry import KERNELS, Kernel
from tests.fuzz.generate import KernelFault, Reject, Seeded, random_graph
from tests.fuzz.graph import Graph
from tests.fuzz.oracle import Finding, RuntimeJudge, check

GRAPHS = 40


@dataclass(frozen=True)
class Mutant:
    """A mistake: what is wrong, in the kernel of which op, and the edit of its family's file."""

    what: str
    family: str
    op: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.op}: {self.what}"


MUTANTS = [
    Mutant("floors instead of truncating", "elementwise", "Div", "(a < 0) != (b < 0)", "a != a"),
    Mutant("the sign of the dividend", "elementwise", "Mod", "np.fmod if fmod else np.remainder", "np.fmod"),
    Mutant(
        "rounds halves up",
        "elementwise",
        "Round",
        '"Round": np.rint',
        '"Round": lambda x: np.floor(x + x.dtype.type(0.5))',
    ),
    Mutant("operands swapped", "elementwise", "Sub", '"Sub": np.subtract', '"Sub": lambda a, b: np.subtract(b, a)'),
    Mutant("no upper bound", "elementwise", "Clip", "x = np.minimum(x, high.reshape(()))", "pass"),
    Mutant("shifts the other way", "elementwise", "BitShift", 'if direction == "LEFT"', 'if direction == "RIGHT"'),
    Mutant("alpha within the exponential left out", "activation", "Celu", "np.expm1(x / alpha)", "np.expm1(x)"),
    Mutant(
        "slope where x is positive", "activation", "PRelu", "x < np.zeros((), x.dtype)", "x > np.zeros((), x.dtype)"
    ),
    Mutant("the tanh form always", "activation", "Gelu", "return gelu_erf(x)", "return gelu_tanh(x)"),
    Mutant(
        "divides by one less",
        "reduce",
        "ReduceMean",
        "np.asarray(count, x.dtype)",
        "np.asarray(max(count - 1, 1), x.dtype)",
    ),
    Mutant(
        "the root forgotten",
        "reduce",
        "ReduceL2",
        "return np.sqrt(np.add.reduce(np.square(x)",
        "return (np.add.reduce(np.square(x)",
    ),
    Mutant("the first of equals", "reduce", "ArgMax", "last - np.asarray(find(np.flip(x, axis)", "np.asarray(find(x"),
    Mutant("exclusive ignored", "reduce", "CumSum", "if exclusive:", "if False:"),
    Mutant(
        "reads from the front", "shape", "Slice", "start = start + dim if start < 0 else start", "start = max(start, 0)"
    ),
    Mutant("the border twice", "shape", "Pad", "period = max(2 * (dim - 1), 1)", "period = max(2 * dim, 1)"),
    Mutant(
        "depth and blocks swapped",
        "shape",
        "DepthToSpace",
        'if mode == "DCR":\n        blocks = data.reshape(n, b',
        'if mode == "CRD":\n        blocks = data.reshape(n, b',
    ),
    Mutant(
        "one axis off",
        "shape",
        "Flatten",
        "axis = axis + rank if axis < 0 else axis",
        "axis = axis + rank - 1 if axis < 0 else axis",
    ),
    Mutant(
        "updates of one place count once",
        "index",
        "ScatterElements",
        "function.at(out.reshape(-1), flat.reshape(-1), updates.reshape(-1))",
        "at = flat.reshape(-1); out.reshape(-1)[at] = function(out.reshape(-1)[at], updates.reshape(-1))",
    ),
    Mutant(
        "equals by descending index",
        "index",
        "TopK",
        "return keys.shape[1] - 1 - backwards[:, :k]",
        "return np.argsort(keys, axis=1, kind='stable')[:, ::-1][:, :k]",
    ),
    Mutant("negative indices ignored", "index", "OneHot", "flat = np.where(flat < 0, flat + classes, flat)", "pass"),
    Mutant(
        "epsilon outside the root",
        "norm",
        "BatchNormalization",
        "np.sqrt(sigma2 + dtype.type(epsilon))",
        "(np.sqrt(sigma2) + dtype.type(epsilon))",
    ),
    Mutant("the sum for the mean", "norm", "LRN", "data.dtype.type(alpha / size)", "data.dtype.type(alpha)"),
    Mutant("padding counts", "pool", "AveragePool", "if count_include_pad:", "if True:"),
    Mutant(
        "padding of 0",
        "pool",
        "MaxPool",
        "y = _reduce_windows(data, window, np.maximum, _lowest(data.dtype), budget)",
        "y = _reduce_windows(data, window, np.maximum, 0, budget)",
    ),
    Mutant(
        "the zero point of the weights left out",
        "conv",
        "ConvInteger",
        "_exact(w, w_zero_point, True), None",
        "_exact(w, None, True), None",
    ),
    Mutant(
        "saturates before the zero point",
        "conv",
        "QLinearConv",
        "y += y_zero_point.astype(np.float64).reshape(())\n    limits",
        "y = np.clip(y, 0, 255) + y_zero_point.astype(np.float64).reshape(())\n    limits",
    ),
    Mutant("beta left out", "linalg", "Gemm", "wide if beta == 1 else np.multiply(wide, beta)", "wide"),
    Mutant(
        "accumulates in 16 bits",
        "linalg",
        "MatMulInteger",
        "return matmul(left, right).astype(np.int32)",
        "return matmul(left, right).astype(np.int16).astype(np.int32)",
    ),
    Mutant(
        "truncates",
        "quant",
        "QuantizeLinear",
        "result = np.rint(quotient, out=np.empty_like(quotient))",
        "result = np.trunc(quotient, out=np.empty_like(quotient))",
    ),
    Mutant(
        "the range without 0",
        "quant",
        "DynamicQuantizeLinear",
        "low = np.min(x, initial=np.float32(0))",
        "low = np.min(x)",
    ),
    Mutant("gates in the wrong order", "rnn", "LSTM", "i, o, forget, c = np.split", "i, forget, o, c = np.split"),
    Mutant("the update gate turned around", "rnn", "GRU", "(1 - z) * new + z * hidden", "z * new + (1 - z) * hidden"),
    Mutant(
        "the mean over all targets",
        "loss",
        "NegativeLogLikelihoodLoss",
        "np.sum(loss) / np.sum(factor)",
        "np.sum(loss) / loss.size",
    ),
    Mutant(
        "queries share the wrong heads",
        "attention",
        "Attention",
        "np.matmul(grouped, b).reshape(batch, heads, rows, b.shape[3])",
        "np.matmul(grouped, b[:, ::-1]).reshape(batch, heads, rows, b.shape[3])",
    ),
    Mutant(
        "halves of pixels left out",
        "image",
        "Resize",
        'case "half_pixel":\n            return (x + 0.5) / scale - 0.5',
        'case "half_pixel":\n            return x / scale',
    ),
    Mutant("the other cubic coefficient", "image", "GridSample", "_cubic(d, -0.75)", "_cubic(d, -0.5)"),
    Mutant(
        "conjugated",
        "signal",
        "DFT",
        "result.real, result.imag = wide[..., 0], wide[..., 1]",
        "result.real, result.imag = wide[..., 0], -wide[..., 1]",
    ),
    Mutant(
        "one split too many",
        "text",
        "StringSplit",
        "-1 if maxsplit is None else maxsplit",
        "-1 if maxsplit is None else maxsplit + 1",
    ),
    Mutant(
        "from the back as from the front",
        "sequence",
        "SequenceAt",
        "return sequence[_position(position, -len(sequence), len(sequence) - 1)]",
        "return sequence[abs(_position(position, -len(sequence), len(sequence) - 1))]",
    ),
    Mutant(
        "in the order of iteration",
        "control",
        "Scan",
        "np.stack(values[::-1] if reverse else values",
        "np.stack(values",
    ),
    Mutant("scales first", "ml", "ml.Scaler", "(wide - away) * by", "wide * by - away"),
    Mutant("the threshold included", "ml", "ml.Binarizer", "np.asarray(x > threshold)", "np.asarray(x >= threshold)"),
    Mutant(
        "the offset outside the power",
        "ml_linear",
        "ml.SVMRegressor",
        "(gamma * product + coef0) ** degree",
        "(gamma * product) ** degree + coef0",
    ),
]


def mutated(mutant: Mutant) -> Kernel:
    """The kernel of the family's file with the edit."""
    kernels.load_all()
    module = importlib.import_module(f"irkit.backends.numpy.kernels.{mutant.family}")
    source = inspect.getsource(module)
    assert source.count(mutant.old) == 1, f"{source.count(mutant.old)} places look like {mutant.old!r}"
    made: dict[tuple[str, str, int], Kernel] = {}
    kept, registry.KERNELS = registry.KERNELS, made
    try:
        namespace: dict[str, Any] = {"__name__": module.__name__, "__file__": module.__file__}
        exec(compile(source.replace(mutant.old, mutant.new), str(module.__file__), "exec"), namespace)
    finally:
        registry.KERNELS = kept
    return made[key_of(mutant.op)]


def key_of(op: str) -> tuple[str, str, int]:
    """The key of an op's kernel."""
    return ("ai.onnx.ml", op.removeprefix("ml."), 0) if op.startswith("ml.") else ("", op, 0)


def first_difference(op: str, judge: RuntimeJudge, graphs: int) -> tuple[int, list[Finding]]:
    """How many graphs of this op it takes until one differs, and how it does."""
    names = [op] + (["SequenceConstruct"] if op.startswith("Sequence") else ["Identity", "Neg"] if op == "Scan" else [])
    for seed in range(graphs):
        try:
            graph: Graph = random_graph(Seeded(seed), names=names, judge=judge, steps=3, least=1)
            found, _ = check(graph)
        except Reject:
            continue
        except KernelFault as fault:
            return seed + 1, [Finding(str(fault), None, "")]  # type: ignore[arg-type]
        if found:
            return seed + 1, found
    return graphs, []


@pytest.fixture(scope="module")
def judge() -> RuntimeJudge:
    return RuntimeJudge()


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_random_graphs_show_a_mistake(mutant: Mutant, judge: RuntimeJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = mutated(mutant)
    with monkeypatch.context() as patch:
        patch.setitem(KERNELS, key_of(mutant.op), wrong)
        graphs, found = first_difference(mutant.op, judge, GRAPHS)
    assert found, f"{GRAPHS} graphs of {mutant.op} show no difference"
    _, without = first_difference(mutant.op, judge, graphs)
    assert not without, without[0]
