"""Makes the graph of a training step, or of an evaluation, in the state dialect; ``step`` is the face of it.

The forward graph, the loss and the metrics are built first, then the gradients, then the updates. Every variable is
read once, at the top; assigns hang on the graph's outputs until ``lift-state`` makes them outputs ``next/<name>``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from xdsl.ir import OpResult, SSAValue

from irkit.dialects import state
from irkit.dialects.onnx import Initializer
from irkit.errors import IrkitError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.constants import ConstantData, TensorAttr
from irkit.ir.dtypes import DType, dtype
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.ir.names import name_of, set_out_names
from irkit.ir.types import scalar_dims, tensor
from irkit.passes.registry import suggestion
from irkit.passes.rewrite import erase, ops_in
from irkit.passes.training import losses
from irkit.passes.training import metrics as metrics_
from irkit.passes.training import values as values_
from irkit.passes.training.gradients import Clip, DynamicLossScale, StaticLossScale
from irkit.passes.training.losses import Loss
from irkit.passes.training.metrics import Metric
from irkit.passes.training.modes import draws, lower_random, modernize, train_batch_norms
from irkit.passes.training.optimizers import Optimizer
from irkit.passes.training.random import Stream
from irkit.passes.training.regularizers import Regularizer
from irkit.passes.training.signature import Graph, matches, matching
from irkit.passes.training.targets import Labels, check_target

__all__ = ["Build", "Held", "Options", "Parameter", "data_of", "widened"]

BY = "training-step"


@dataclass(frozen=True)
class Options:
    """What ``training_step`` was asked for; see there."""

    loss: Any
    optimizer: Optimizer
    outputs: Sequence[str] | None = None
    targets: str | Mapping[str, str] | None = None
    loss_weights: Mapping[str, float] = field(default_factory=dict[str, float])
    trainable: Sequence[str] | None = None
    freeze: Sequence[str] = ()
    metrics: Sequence[Any] | Mapping[str, Sequence[Any]] = ()
    weighted_metrics: bool = False
    sample_weight: bool = False
    regularizers: Mapping[str, Regularizer] = field(default_factory=dict[str, Regularizer])
    clip: Clip | None = None
    accumulate: int = 1
    loss_scale: StaticLossScale | DynamicLossScale | None = None
    ema: float | None = None
    packed: bool = False
    keep: Sequence[str] = ()
    batch_norm: str = "train"
    seed: int = 0


@dataclass(frozen=True)
class Parameter:
    """A value that is trained.

    Attributes:
        name: in the source module.
        kind: its dtype there; one of 16 bits is kept in float32.
        shape: its sizes.
        variable: of the state, that holds it.
        offset: where it begins in that, if it is packed with others.
    """

    name: str
    kind: DType
    shape: tuple[int, ...]
    variable: str
    offset: int | None = None

    @property
    def size(self) -> int:
        """The number of its elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Held:
    """A variable while the graph is built: its op, its value before the step, and the token of having read it."""

    op: state.Variable
    value: Tensor
    done: Tensor

    @property
    def name(self) -> str:
        """Of the variable."""
        return self.op.variable_name


@dataclass(frozen=True)
class Head:
    """An output that is compared with a target: by a loss, by metrics, or by both."""

    name: str
    prediction: Tensor
    input: str
    target: Tensor
    loss: Loss | None


class Build:
    """A graph under construction.

    Attributes:
        graph: the copy of the module that is extended.
        b: builds at its end.
        held: the variables, by name.
        training: whether it is a step; else an evaluation.
        metric_names: of the outputs that give metrics.
        labels: what the targets that losses take for numbers of classes may hold, by input.
    """

    def __init__(self, module: Module, options: Options, *, training: bool, taken: Collection[str] = ()) -> None:
        self.options = options
        self._taken = set(taken)
        self.training = training
        self.graph = Graph(module, BY)
        self.b: Builder = self.graph.b
        self.held: dict[str, Held] = {}
        self.metric_names: list[str] = []
        self.labels: dict[str, Labels] = {}
        self._weight: Tensor | None = None
        self._statistics: list[str] = []
        self._own_state()

    # Variables

    def declare(self, name: str, initial: Any, role: str, **options: Any) -> Held:
        """A variable of the state, read at the top of the graph; its name gets a number appended if it is taken.

        Args:
            role: what it is: ``parameter``, ``slot``, ``statistics``, ``metric``, ``ema``, ``accumulator``,
                ``counter``, ``seed``, ``loss-scale``, ``learning-rate``, ``scalar`` (the optimizer's own), or
                ``state`` (the module's own).
            options: of ``state.variable``.
        """
        found, count = name, 0
        while found in self.held or found in self._taken:
            count += 1
            found = f"{name}_{count}"
        options["metadata"] = {**options.get("metadata", {}), "role": role}
        top = self.graph.top()
        made = state.variable(top, found, initial, **options)
        value, done = state.read(top, made)
        held = self.held[found] = Held(made, self.b.wrap(value.ssa), self.b.wrap(done.ssa))
        return held

    def assign(self, held: Held, value: Tensor | SSAValue) -> None:
        """What a variable is after the step."""
        done = state.assign(self.b, held.op, value, after=[held.done])
        self.graph.add_output(f"#{held.name}", done.ssa)

    def hold(self, initializer: SSAValue, role: str) -> Held:
        """Makes a variable of an initializer; it is kept in float32 at least."""
        data = data_of(initializer)
        wide = widened(data.dtype)
        initial: Any = TensorAttr.of(data) if wide is data.dtype else data.array().astype(wide.numpy)
        name = name_of(initializer)
        held = self.declare(name, initial, role, trainable=role == "parameter", metadata={"source": name})
        self.replace(initializer, held.value)
        return held

    def replace(self, initializer: SSAValue, value: Tensor) -> None:
        """Makes a value take an initializer's place, cast to its dtype."""
        op = cast(OpResult, initializer).op
        kind = self.b.wrap(initializer).dtype
        if kind is not None and value.dtype is not kind:
            value = self.after_reads().wrap(self.after_reads().Cast(value, to=kind.code).ssa)
        initializer.replace_all_uses_with(value.ssa)
        erase(op)

    def after_reads(self) -> Builder:
        """A builder behind the reads and the initializers at the top."""
        top = self.graph.top()
        while isinstance(top.anchor, state.Read | Initializer):
            assert top.anchor.next_op is not None
            top = Builder.before(top.anchor.next_op, self.graph.module.ctx, by=BY)
        return top

    def _own_state(self) -> None:
        """Makes the module's own state that of the step; what is trainable and never assigned, an initializer."""
        graph = self.graph
        assigned: list[tuple[Held, str]] = []
        for entry in graph.entries:
            arg, default = graph.argument(entry.input), cast(TensorAttr, graph.module.defaults[entry.input])
            if entry.trainable and entry.output is None:
                value = self._initializer(entry.name, default)
            else:
                kept = {key: text for key, text in entry.metadata.items() if key != "role"}
                kept["source"] = entry.name
                held = self.declare(entry.name, default, "state", type=arg.type, metadata=kept)
                value = held.value
                assigned += [] if entry.output is None else [(held, entry.output)]
            arg.replace_all_uses_with(value.ssa)
            graph.drop_input(entry.input)
        outputs = dict(graph.outputs())
        graph.set_outputs([(name, outputs[name]) for name in outputs if name not in {o for _, o in assigned}])
        graph.forget_state()
        if self.training:  # An evaluation changes nothing but metrics.
            for held, name in assigned:
                self.assign(held, outputs[name])

    def _initializer(self, name: str, value: TensorAttr) -> Tensor:
        op = Initializer.of(value)
        set_out_names(op, [name])
        self.graph.top().insert(op)
        return self.b.wrap(op.results[0])

    # Candidates for training

    def candidates(self) -> dict[str, SSAValue]:
        """The initializers that may be trained, by name, in order.

        Raises:
            IrkitError: for a pattern of ``trainable`` or ``freeze`` that matches nothing, or a name that is no float.
        """
        options, graph = self.options, self.graph
        wanted = options.trainable
        for name in graph.module.defaults:
            if wanted is not None and matches(name, wanted):
                value = self._initializer(name, cast(TensorAttr, graph.module.defaults[name]))
                graph.argument(name).replace_all_uses_with(value.ssa)
                graph.drop_input(name)
        found = self.initializers()
        if options.freeze:
            matching(options.freeze, [*found, *self._statistics], "initializers of float types")
        if wanted is None:
            names = [name for name, value in found.items() if _likely(data_of(value))]
        else:
            names = matching(wanted, list(found), "initializers of float types")
        return {name: found[name] for name in names if not matches(name, options.freeze)}

    def initializers(self) -> dict[str, SSAValue]:
        """The initializers of float types, by name, in order."""
        return {
            name_of(op.results[0]): op.results[0]
            for op in self.graph.module.block.ops
            if isinstance(op, Initializer)
            and isinstance(op.value, TensorAttr)
            and op.value.data.dtype.is_float
            and name_of(op.results[0])
        }

    # Forward

    def forward(self, values: Mapping[str, SSAValue]) -> Tensor:
        """The loss and the metrics, which become outputs; what else changes in a step but by gradients.

        Args:
            values: parameters by name, for regularizers.
        """
        graph, options = self.graph, self.options
        shown = list(graph.outputs())
        heads, total = self._heads([name for name, value in shown if not state_token(value)])
        kept = [(name, graph.value(name).ssa) for name in options.keep]
        penalty = self._penalties(values)
        total = total if penalty is None else total + penalty
        tokens = [(name, value) for name, value in graph.outputs() if state_token(value)]
        graph.set_outputs([("loss", total.ssa), *kept, *tokens])
        self._metrics(heads)
        return total

    def training_mode(self) -> None:
        """Normalizes by the batch, drops out, and draws from the state."""
        module = self.graph.module
        modernize(module)
        if self.options.batch_norm == "train":
            train_batch_norms(module, lambda name: not matches(name, self.options.freeze), self._keep_statistic)
        if any(draws(op) for op in ops_in(module.func)):
            seed = self.declare("seed", np.int64(self.options.seed), "seed")
            iteration = self.declare("iteration", np.int64(0), "counter")
            lower_random(module, Stream.of(self.after_reads(), seed.value, iteration.value))
            self.assign(iteration, iteration.value + 1)

    def _keep_statistic(self, read: OpResult, following: SSAValue) -> None:
        self._statistics.append(name_of(read))
        self.assign(self.hold(read, "statistics"), following)

    def _heads(self, outputs: Sequence[str]) -> tuple[list[Head], Tensor]:
        """The outputs that are compared, and the loss without penalties."""
        options, graph = self.options, self.graph
        loss = options.loss
        if isinstance(loss, str) and loss in graph.named():
            if options.sample_weight:
                raise IrkitError(f"'{loss}' is computed in the graph, so there are no samples' losses to weigh")
            value = graph.value(loss)
            heads = [self._head(name, None, len(self._compared(outputs))) for name in self._compared(outputs)]
            return heads, self._checked(value, f"value '{loss}'")
        if isinstance(loss, Mapping):
            pairs = [(str(name), losses.get(found)) for name, found in cast("Mapping[str, Any]", loss).items()]
        else:
            pairs = [(name, losses.get(loss)) for name in self._chosen(outputs)]
        heads = [self._head(name, found, len(pairs)) for name, found in pairs]
        self._check_outputs([name for name, _ in pairs])
        total: Tensor | None = None
        for head in heads:
            assert head.loss is not None
            value = self._checked(self._compare(head, head.loss), f"the loss of '{head.name}'")
            value = value * float(options.loss_weights.get(head.name, 1.0))
            total = value if total is None else total + value
        assert total is not None
        return heads, total

    def _check_outputs(self, known: Sequence[str]) -> None:
        """Refuses options for outputs that have no loss."""
        options = self.options
        for what in ("loss_weights", "targets", "metrics"):
            given = getattr(options, what)
            for name in cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else ():
                if name not in known:
                    hint = suggestion(name, list(known), "outputs with losses")
                    raise IrkitError(f"{what} names '{name}', which has no loss", hint=hint)

    def _compared(self, outputs: Sequence[str]) -> list[str]:
        """The outputs that metrics are of, where the loss is a value of the graph."""
        metrics = self.options.metrics
        if isinstance(metrics, Mapping):
            return list(metrics)
        return self._chosen(outputs) if metrics else []

    def _chosen(self, outputs: Sequence[str]) -> list[str]:
        if self.options.outputs:
            return list(self.options.outputs)
        kinds = {name: self.graph.value(name).dtype for name in outputs}
        chosen = [name for name, kind in kinds.items() if kind is not None and kind.is_float]
        if len(chosen) != 1:
            raise IrkitError(
                f"the graph has {len(chosen)} outputs that could be compared with a target: {', '.join(chosen)}",
                hint="name one with outputs=, or give a loss for each: loss={output: loss}",
            )
        return chosen

    def _head(self, name: str, loss: Loss | None, count: int) -> Head:
        graph, asked = self.graph, self.options.targets
        prediction = graph.value(name)
        default = "target" if count == 1 else f"target/{name}"
        target = asked if isinstance(asked, str) else (asked or {}).get(name, default)
        if target in graph.module.input_names:
            return Head(name, prediction, target, self.b.wrap(graph.argument(target)), loss)
        if target in graph.named():
            raise IrkitError(f"the target of '{name}' is to be the input '{target}', but another value has that name")
        found = loss or metrics_.get(self._metrics_of(name)[0])
        return Head(name, prediction, target, graph.add_input(target, found.target_type(prediction)), loss)

    def _compare(self, head: Head, loss: Loss) -> Tensor:
        if loss.declared:
            self._check_target(f"loss '{loss.name}'", head, loss)
        weight = self._sample_weight(head) if self.options.sample_weight else None
        return loss(self.b, head.target, head.prediction, weight)

    def _check_target(self, what: str, head: Head, taker: Loss | Metric) -> None:
        """Refuses a target that a loss or metric cannot take; notes which numbers one of classes may hold."""
        target, prediction = head.target, head.prediction
        options: dict[str, Any] = taker.options if isinstance(taker, Loss) else {}
        axis = options.get("axis", -1)
        shape = list(prediction.shape or ())
        size = shape.pop(axis) if -len(shape) <= axis < len(shape) else None
        classes = tensor("int64", None if prediction.shape is None else shape)
        check_target(what, target, prediction, taker.target_type(prediction), classes)
        if isinstance(taker, Loss) and taker.classes and isinstance(size, int):
            self.labels.setdefault(head.input, Labels(size, options.get("ignore_index")))

    def _sample_weight(self, head: Head) -> Tensor:
        if self._weight is None:
            shape = head.prediction.shape
            self._weight = self.graph.add_input("sample_weight", tensor("float32", [shape[0] if shape else None]))
        return self._weight

    def _checked(self, value: Tensor, what: str) -> Tensor:
        """A loss as a scalar in float32 at least.

        Raises:
            IrkitError: if it has more than one element.
        """
        shape = scalar_dims(value.type)
        if value.dtype is None or not value.dtype.is_float or shape is None or int(np.prod(shape)) != 1:
            raise IrkitError(
                f"{what} is {value.type}, and a loss is one number",
                where=where(value.ssa),
                hint="reduce it, by its mean say",
            )
        value = values_.widened(self.b, value)
        return self.b.Reshape(value, np.zeros(0, np.int64)) if shape else value

    def _penalties(self, values: Mapping[str, SSAValue]) -> Tensor | None:
        total: Tensor | None = None
        for pattern, regularizer in self.options.regularizers.items():
            for name in matching([pattern], list(values), "parameters"):
                part = regularizer(self.b, self.b.wrap(values[name]))
                total = part if total is None else total + part
        return total

    def _metrics_of(self, head: str) -> Sequence[Any]:
        metrics = self.options.metrics
        return metrics.get(head, ()) if isinstance(metrics, Mapping) else metrics

    def _metrics(self, heads: Sequence[Head]) -> None:
        for head in heads:
            asked_of = self._metrics_of(head.name)
            head = self._classes_last(head) if asked_of else head
            for asked in asked_of:
                metric = _suited(asked, head)
                self._check_target(f"metric '{metric.name}'", head, metric)
                name = metric.name if len(heads) == 1 else f"{head.name}/{metric.name}"
                self._metric(metric, name, head)

    def _classes_last(self, head: Head) -> Head:
        """A head as metrics want it: with the axis of classes, where the loss has another, at the end."""
        rank, axis = head.prediction.rank, -1 if head.loss is None else head.loss.options.get("axis", -1)
        if rank is None or not head.loss or not head.loss.declared or axis in (-1, rank - 1):
            return head
        order = [*(i for i in range(rank) if i != axis % rank), axis % rank]
        target = self.b.Transpose(head.target, perm=order) if head.target.rank == rank else head.target
        return replace(head, prediction=self.b.Transpose(head.prediction, perm=order), target=target)

    def _metric(self, metric: Metric, name: str, head: Head) -> None:
        b, options = self.b, self.options
        held = {
            key: self.declare(f"metric/{name}/{key}", start, "metric", metadata={"reset": "epoch"})
            for key, start in metric.states().items()
        }
        weight = self._sample_weight(head) if options.sample_weight and options.weighted_metrics else None
        before = {key: h.value for key, h in held.items()}
        after = metric.update(b, before, head.target, head.prediction, weight)
        for key, h in held.items():
            self.assign(h, after[key])
        self.metric_names.append(name)
        self.graph.add_output(name, metric.result(b, after).ssa)


def widened(kind: DType) -> DType:
    """The dtype that a parameter is kept in."""
    return kind if kind.bits >= 32 else dtype("float32")


def state_token(value: SSAValue) -> bool:
    """Whether an output is none, but stands for an assign."""
    return isinstance(value.type, state.TokenType)


def data_of(initializer: SSAValue) -> ConstantData:
    """The constant that a dense initializer gives."""
    op = cast(OpResult, initializer).op
    assert isinstance(op, Initializer)
    return cast(TensorAttr, op.value).data


def _likely(data: ConstantData) -> bool:
    """Whether an initializer looks like a parameter: no number (even with axes around it), all of it finite."""
    number = not data.shape or (data.size == 1 and len(data.shape) > 2)
    return not number and data.size > 0 and bool(np.isfinite(data.array()).all())


def _suited(asked: Any, head: Head) -> Metric:
    """A metric; ``"accuracy"`` is the one that suits the loss and the shapes."""
    if not isinstance(asked, str):
        return metrics_.get(asked)
    target, prediction = head.target, head.prediction
    integers = target.dtype is not None and target.dtype.is_integer
    last = prediction.shape[-1] if prediction.shape else None
    binary = last == 1 or (head.loss is not None and head.loss.binary)
    logits = head.loss is not None and head.loss.from_logits
    classes = integers and target.rank != prediction.rank
    return metrics_.get(asked, classes=classes, binary=binary, threshold=0.0 if logits else 0.5)
