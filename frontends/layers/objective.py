"""A model with its losses as one graph, the training step made of it, and how values go to the layers and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue

from irkit.dialects.onnx import Initializer
from irkit.errors import IrkitError
from irkit.frontends.layers.values import Trace, Variable
from irkit.ir.builder import Builder, Tensor
from irkit.ir.dtypes import dtype
from irkit.ir.module import Module
from irkit.ir.names import name_of, set_out_names
from irkit.ir.types import tensor
from irkit.passes.training import losses
from irkit.passes.training import metrics as metrics_
from irkit.passes.training.losses import Loss
from irkit.passes.training.metrics import Metric, Sums
from irkit.passes.training.step import TrainingStep, training_step

if TYPE_CHECKING:
    from irkit.frontends.layers.training import Compiled

__all__ = ["Objective", "per_output"]

Array = np.ndarray[Any, Any]


def per_output(given: Any, outputs: list[str], what: str, *, lists: bool = False) -> dict[str, Any]:
    """An option by output: it is given as a dict, in the order of the outputs, or once where there is one.

    Args:
        lists: whether the option of one output is a list itself.

    Raises:
        IrkitError: for an output that is not there, or another number of them.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        for name in given:
            if name not in outputs:
                raise IrkitError(f"{what} names '{name}'", hint=f"the outputs are {', '.join(outputs)}")
        return dict(given)
    if len(outputs) == 1 and (lists or not isinstance(given, list | tuple)):
        return {outputs[0]: given}
    if isinstance(given, list | tuple):
        if len(given) != len(outputs):
            raise IrkitError(f"{what} has {len(given)} entries for {len(outputs)} outputs")
        return {name: item for name, item in zip(outputs, given, strict=True) if item is not None}
    return dict.fromkeys(outputs, given)


def _find(b: Builder, name: str) -> Tensor:
    """A value of the graph by its name."""
    for op in b.block.ops:
        for result in op.results:
            if name_of(result) == name:
                return b.wrap(result)
    raise IrkitError(f"the graph has no value '{name}'")


@dataclass(frozen=True)
class _Weighted(Metric):
    """A metric in which samples and places count as a value of the graph says."""

    inner: Metric
    weight: str
    name: str = ""
    classes: bool = False

    def states(self) -> dict[str, Array]:
        return self.inner.states()

    def update(
        self, b: Builder, state: Sums, target: Tensor, prediction: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        return self.inner.update(b, state, target, prediction, _find(b, self.weight))

    def result(self, b: Builder, state: Sums) -> Tensor:
        return self.inner.result(b, state)


@dataclass(frozen=True)
class _LossOf(Metric):
    """The mean of one output's loss."""

    value: str
    name: str = "loss"
    classes: bool = False

    def states(self) -> dict[str, Array]:
        return {"total": np.zeros((), np.float32), "count": np.zeros((), np.float32)}

    def update(
        self, b: Builder, state: Sums, target: Tensor, prediction: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        count = b.Cast(b.Squeeze(b.Shape(prediction, start=0, end=1), [0]), to=dtype("float32").code)
        return {"total": state["total"] + _find(b, self.value) * count, "count": state["count"] + count}

    def result(self, b: Builder, state: Sums) -> Tensor:
        return state["total"] / state["count"]


class Objective:
    """A compiled model's training step.

    Attributes:
        step: what is trained; its evaluation is that of the model in inference.
        names: of the variables in the graph.
        shown: the metrics' names in logs, by their names in the step.
    """

    def __init__(self, model: Any, compiled: Compiled, weights: dict[str, int]) -> None:
        self.model, self.compiled, self.weights = model, compiled, weights
        outputs = model.loss_outputs
        self.losses: dict[str, Loss] = {
            name: losses.get(loss) for name, loss in per_output(compiled.loss, outputs, "loss").items()
        }
        self.factors = per_output(compiled.loss_weights, outputs, "loss_weights")
        self.shown: dict[str, str] = {}
        trained, module, metrics = self._graph(True, set())
        self.names: dict[Variable, str] = trained.names
        changing = {variable for variable in trained.names if variable in trained.assigned}
        _, evaluated, _ = self._graph(False, changing)
        used = _reached(module)
        wanted = [self.names[v] for v in model.trainable_weights if v in self.names and self.names[v] in used]
        step = training_step(
            module,
            "loss",
            compiled.optimizer,
            targets={name: self._input("target", name) for name in metrics},
            metrics=metrics,
            trainable=wanted,
            seed=compiled.seed,
            **compiled.options,
        )
        self.step: TrainingStep = dataclasses.replace(step, source=evaluated)

    def _input(self, what: str, output: str) -> str:
        return what if len(self.model.loss_outputs) == 1 else f"{what}/{output}"

    def _graph(self, training: bool, state: set[Variable]) -> tuple[Trace, Module, dict[str, list[Metric]]]:
        traced = self.model.traced(training, state)
        trace: Trace = traced.trace
        b, outputs = trace.b, dict(traced.outputs)
        if not self.losses and not trace.losses:
            raise IrkitError(f"the model '{self.model.name}' has no loss", hint="model.compile(optimizer, loss=...)")
        total: Tensor | None = None
        metrics: dict[str, list[Metric]] = {}
        several = len(self.losses) > 1
        for name, loss in self.losses.items():
            prediction = outputs[name]
            target = b.input(self._input("target", name), loss.target_type(prediction))
            given = self._sample_weight(b, name, prediction)
            mask = trace.masks.get(prediction.ssa)
            mask = None if mask is None else b.Cast(mask, to=dtype("float32").code)
            value = loss(b, target, prediction, _product(given, _scaled(mask)))
            _name(value, f"{name}/loss")
            for kind, weight in (("metrics", mask), ("weighted_metrics", _product(given, mask))):
                asked = per_output(getattr(self.compiled, kind), self.model.loss_outputs, kind, lists=True).get(
                    name, ()
                )
                found = [
                    _suited(m, loss, target, prediction)
                    for m in (asked if isinstance(asked, list | tuple) else [asked])
                ]
                if weight is not None and found:
                    _name(b.Identity(weight), f"{name}/{kind}/weight")
                    found = [_Weighted(m, f"{name}/{kind}/weight", m.name, m.classes) for m in found]
                metrics.setdefault(name, []).extend(found)
            if several:
                metrics[name].append(_LossOf(f"{name}/loss", "loss", loss.classes))
            value = value * float(self.factors.get(name, 1.0))
            total = value if total is None else total + value
        metrics = {name: found for name, found in metrics.items() if found}
        self.shown = {
            m.name if len(metrics) == 1 else f"{name}/{m.name}": f"{name}_{m.name}" if several else m.name
            for name, found in metrics.items()
            for m in found
        }
        total = self._penalized(trace, total)
        b.output(total, "loss")
        for name in metrics:
            b.output(outputs[name], name)
        return trace, traced.finish(), metrics

    def _sample_weight(self, b: Builder, name: str, prediction: Tensor) -> Tensor | None:
        if name not in self.weights:
            return None
        shape = list(prediction.shape or ())[: self.weights[name]]
        return b.input(self._input("sample_weight", name), tensor("float32", shape))

    def _penalized(self, trace: Trace, total: Tensor | None) -> Tensor:
        held = [v for v in self.model.trainable_weights if v.regularizer is not None and v in trace.names]
        for part in [*trace.losses, *(v.regularizer(trace.b, trace.value(v)) for v in held)]:
            part = trace.b.Cast(part, to=dtype("float32").code)
            total = part if total is None else total + part
        assert total is not None
        return trace.b.Identity(total)

    # Values

    def _held(self) -> dict[str, str]:
        """The state's variables by the names of the layers' variables."""
        found = {p.name: p.variable for p in self.step.parameters if p.offset is None}
        for entry in self.step.signature:
            if entry.metadata.get("role") in ("statistics", "state"):
                found[entry.metadata["source"]] = entry.name
        return found

    def state(self, known: Mapping[str, Array]) -> dict[str, Array]:
        """The state to go on from: what is known of it, with the values that the layers have."""
        start = self.step.initial()
        state = {name: np.asarray(known.get(name, value), value.dtype) for name, value in start.items()}
        held = self._held()
        for variable, name in self.names.items():
            if name in held:
                array = variable._value  # pyright: ignore[reportPrivateUsage]
                state[held[name]] = array.astype(start[held[name]].dtype).reshape(start[held[name]].shape)
        for p in self.step.parameters:
            if p.offset is not None:
                variable = next(v for v, name in self.names.items() if name == p.name)
                packed = np.array(state[p.variable])
                packed.reshape(-1)[p.offset : p.offset + p.size] = variable.numpy().reshape(-1)
                state[p.variable] = packed
        return state

    def store(self, state: Mapping[str, Array]) -> None:
        """Gives the layers the values of a state, which is kept."""
        values = self.step.values(state)
        for variable, name in self.names.items():
            if name in values:
                variable.assign(values[name])
        self.compiled.state = dict(state)

    def numbers(self, found: Mapping[str, Any]) -> dict[str, float]:
        """The metrics that are numbers, by their names in logs."""
        return {
            self.shown.get(name, name).replace("-", "_"): float(found[name])
            for name in self.step.metric_names
            if name in found and np.ndim(found[name]) == 0
        }


def _name(value: Tensor, name: str) -> None:
    set_out_names(_owner(value.ssa), [name])


def _owner(value: SSAValue) -> Operation:
    assert isinstance(value, OpResult)
    return value.op


def _product(a: Tensor | None, c: Tensor | None) -> Tensor | None:
    """The product of weights, the second of which may have axes more."""
    if a is None or c is None:
        return c if a is None else a
    missing = (c.rank or 0) - (a.rank or 0)
    if missing > 0:
        a = a.builder.Unsqueeze(a, list(range(a.rank or 0, c.rank or 0)))
    return a * c


def _scaled(mask: Tensor | None) -> Tensor | None:
    """A mask whose mean is 1, so that a mean weighted with it is that over what is not masked."""
    if mask is None:
        return None
    b = mask.builder
    size = b.Cast(b.Size(mask), to=dtype("float32").code)
    return mask * (size / (b.ReduceSum(mask, keepdims=0) + 1e-7))


def _suited(asked: Any, loss: Loss, target: Tensor, prediction: Tensor) -> Metric:
    """A metric; ``"accuracy"`` is the one that suits the loss and the shapes."""
    if not isinstance(asked, str):
        return metrics_.get(asked)
    last = prediction.shape[-1] if prediction.shape else None
    classes = loss.classes and target.rank != prediction.rank
    threshold = 0.0 if loss.from_logits else 0.5
    return metrics_.get(asked, classes=classes, binary=last == 1 or loss.binary, threshold=threshold)


def _reached(module: Module) -> set[str]:
    """The names of the initializers on which the loss depends."""
    results = module.block.last_op
    assert results is not None
    waiting = [results.operands[module.output_names.index("loss")]]
    seen: set[SSAValue] = set()
    found: set[str] = set()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, OpResult):
            if isinstance(value.op, Initializer):
                found.add(name_of(value))
            for op in value.op.walk():
                waiting += op.operands
    return found
