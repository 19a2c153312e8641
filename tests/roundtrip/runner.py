"""Round trips of whole corpora: load, verify, print, parse, export, and run on onnxruntime before and after.

``python -m tests.roundtrip`` goes through everything and prints the counts.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import irkit as ik
from irkit.ir.compare import difference
from tests.corpus.build import feeds_from_types
from tests.corpus.external import WEIGHT, valid_models
from tests.corpus.features import feature_models
from tests.corpus.schemas import feeds_for, schema_models
from tests.roundtrip.same_model import first_difference, normalized
from tests.roundtrip.suite_models import suite_models

__all__ = ["CORPORA", "Result", "check", "corpus"]

CORPORA = ("suite", "schemas", "features", "external")

# onnxruntime ends the process on these (a division of the smallest integer by -1 traps).
CRASHES_ORT: frozenset[str] = frozenset()


@dataclass
class Result:
    """What became of one model.

    Attributes:
        problems: what went wrong, in words; empty if nothing did.
        ran: how the run on onnxruntime went: ``compared``, ``source refused`` or ``no feeds``.
    """

    name: str
    problems: list[str] = field(default_factory=list)
    ran: str = ""


def corpus(which: str) -> Iterator[tuple[str, Any, dict[str, Any] | None]]:
    """(id, model, feeds) of each model of a corpus."""
    match which:
        case "suite":
            yield from suite_models()
        case "schemas":
            for name, model in schema_models():
                yield name, model, feeds_for(model, 0)
        case "features":
            for name, model in feature_models():
                yield name, model, _typed_feeds(model)
        case "external":
            with tempfile.TemporaryDirectory() as folder:
                for name, path in valid_models(Path(folder)):
                    yield name, path, None
        case _:
            raise ValueError(which)


def _typed_feeds(model: Any) -> dict[str, Any] | None:
    try:
        return feeds_from_types(model, 0)
    except (KeyError, TypeError, ValueError):
        return None


def check(name: str, source: Any, feeds: dict[str, Any] | None, *, run: bool = True) -> Result:
    """Takes one model through every round trip."""
    result = Result(name)
    exported = _default(result, source)
    if not isinstance(source, onnx.ModelProto):
        _external(result, source)
        return result
    model = source
    _lossless(result, model)
    if exported is None or not run:
        return result
    if feeds is None:
        result.ran = "no feeds"
        return result
    before = _run(model, feeds)
    if before is None:
        result.ran = "source refused"
        return result
    result.ran = "compared"
    after = _run(exported, feeds)
    if after is None:
        result.problems.append("onnxruntime runs the source, but not what was exported")
    else:
        result.problems += [f"output '{key}' differs" for key in before if not _equal(before[key], after.get(key))]
    return result


def _external(result: Result, path: Path) -> None:
    """The corpus of external data holds models of one weight, whose value is known."""
    result.ran = "compared"
    x = np.arange(4, dtype=np.float32)
    for upgrade in (False, True):
        model = ik.load(path, upgrade=upgrade).to_onnx()
        del model.graph.output[1:]
        outputs = _run(model, {"x": x})
        if outputs is None or not _equal(outputs["y"], x + WEIGHT):
            result.problems.append("the weight read is not the one written")


def _lossless(result: Result, model: Any) -> None:
    module = ik.load(model, upgrade=False).verify()
    _text(result, module, "as it came")
    found = first_difference(normalized(model), normalized(module.to_onnx()))
    if found is not None:
        result.problems.append(f"exported as it came: {found}")


def _default(result: Result, source: Any) -> Any:
    module = ik.load(source).verify()
    _text(result, module, "upgraded")
    try:
        return module.to_onnx()
    except ik.IrkitError as error:
        result.problems.append(f"export at the source's opset: {error}")
        return None


def _text(result: Result, module: ik.Module, what: str) -> None:
    again = ik.parse(module.text(locations=True))
    found = difference(module.op, again.op, locations=True)
    if found is not None:
        result.problems.append(f"text, {what}: {found}")


def _run(model: Any, feeds: dict[str, Any]) -> dict[str, Any] | None:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    ort.set_seed(1)  # with 0 all kernels draw alike
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        wanted = {i.name for i in session.get_inputs()} | {i.name for i in session.get_overridable_initializers()}
        return dict(zip(names, session.run(names, {k: v for k, v in feeds.items() if k in wanted}), strict=True))
    except Exception:
        return None


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return isinstance(b, dict) and a == b
    if a is None or b is None:
        return a is b
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind not in "fc":
        return bool(np.array_equal(x, y))
    scale = float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0))
    return bool(np.allclose(x, y, rtol=1e-5, atol=1e-6 * scale, equal_nan=True))


def main() -> int:
    """Runs all corpora; returns 1 if anything is wrong."""
    failed = False
    for which in CORPORA:
        counts: Counter[str] = Counter()
        for name, source, feeds in corpus(which):
            try:
                result = check(name, source, feeds)
            except Exception as error:
                result = Result(name, [f"{type(error).__name__}: {error}"])
            counts["models"] += 1
            counts["good"] += not result.problems
            counts[result.ran or "not run"] += 1
            for problem in result.problems:
                failed = True
                print(f"  {which} {name}: {problem[:300]}")
        print(f"{which}: " + ", ".join(f"{count} {what}" for what, count in counts.items()), flush=True)
    return int(failed)
