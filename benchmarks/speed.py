"""Load, optimize and save: against the peers that do the same, and a long chain against a shorter one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

import irkit as ik
from benchmarks.measure import Row, Table, cpu, paired, quiet
from examples.light_models import light_model_path, magika_model_path

__all__ = ["chain", "run"]

SHORT, FACTOR, MOST = 10_000, 10, 12.0


def chain(nodes: int) -> ModelProto:
    """A model of so many elementwise nodes in a row, on a symbolic batch; no two neighbours simplify."""
    random = np.random.default_rng(0)
    weights = [numpy_helper.from_array(random.standard_normal(16, dtype=np.float32), f"w{i}") for i in range(64)]
    made = []
    for i in range(nodes):
        before = "x" if i == 0 else f"v{i - 1}"
        inputs = [before] if i % 2 else [before, f"w{i // 4 % 64}"]
        made.append(helper.make_node(("Mul", "Sin", "Add", "Tanh")[i % 4], inputs, [f"v{i}"], name=f"node_{i}"))
    graph = helper.make_graph(
        made,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info(f"v{nodes - 1}", TensorProto.FLOAT, ["batch", 16])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ours(source: Path, target: Path, level: str) -> None:
    """Loads, optimizes and saves with irkit."""
    ik.save(ik.optimize(ik.load(source), level), target)


def onnxscript(source: Path, target: Path) -> None:
    """The same with onnxscript's optimizer."""
    import onnx_ir
    from onnxscript import optimizer

    model = onnx_ir.load(source)
    optimizer.optimize(model)
    onnx_ir.save(model, target)


def onnxslim(source: Path, target: Path) -> None:
    """The same with onnxslim."""
    from onnxslim import slim

    onnx.save(slim(str(source)), target)


def _against(what: str, source: Path, peer: Callable[[Path, Path], None], folder: Path, turns: int) -> Row:
    mine, theirs = folder / "ours.onnx", folder / "theirs.onnx"
    with quiet():
        found = paired(lambda: ours(source, mine, "O2"), lambda: peer(source, theirs), turns)
    sizes = f"{_nodes(mine)} nodes left", f"{_nodes(theirs)} nodes left"
    return Row(
        what,
        f"{found.ours:.2f} s, {sizes[0]}",
        f"{peer.__name__} {found.other:.2f} s, {sizes[1]}",
        found.ratio,
        "<= 1",
        found.ratio <= 1,
    )


def _nodes(path: Path) -> int:
    nodes = onnx.load(path, load_external_data=False).graph.node
    return sum(node.op_type != "Constant" for node in nodes)


def _chains(folder: Path, short: int) -> Row:
    target = folder / "out.onnx"
    sources = {nodes: folder / f"chain{nodes}.onnx" for nodes in (short, short * FACTOR)}
    for nodes, source in sources.items():
        onnx.save(chain(nodes), source)
        ours(source, target, "O1")
        assert _nodes(target) == nodes, "the chain was meant to stay as long as it is"
    # The two lengths take turns, so that both see the machine as busy as it is.
    times: dict[int, list[float]] = {nodes: [] for nodes in sources}
    for nodes in (short, short, short * FACTOR) * 2:
        times[nodes].append(cpu(lambda n=nodes: ours(sources[n], target, "O1")))
    first, second = (min(found) for found in times.values())
    ratio = second / first
    what = f"chain of {short * FACTOR:,} nodes against {short:,}: load, O1, save"
    return Row(what, f"{second:.2f} s", f"{first:.2f} s", ratio, f"<= {MOST:.0f}", ratio <= MOST)


def run(quick: bool = False) -> Table:
    """Measures all three; ``quick`` takes fewer turns and a chain a tenth as long."""
    turns = 3 if quick else 7
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        densenet = light_model_path("densenet121")
        rows = [
            _against("light_densenet121 (1746 nodes): load, O2, save", densenet, onnxscript, folder, turns),
            _against("magika (95 nodes): load, O2, save", magika_model_path(), onnxslim, folder, turns),
            _chains(folder, SHORT // 10 if quick else SHORT),
        ]
    return Table(
        "Load, optimize, save",
        f"CPU time of the process, the median of {turns} turns in which both sides run one after the other from the "
        "same file on disk to a new one, after one run of each that does not count. Messages of the peers are switched "
        "off. The ratio is the median over the turns. Of the chains the least of several turns counts. "
        "Nodes are counted without constants.",
        "peer, or the shorter chain",
        rows,
    )
