"""``training_step``: one pure module that takes state and a batch, and gives the next state, the loss and metrics."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from xdsl.ir import Attribute

from irkit.backends.onnx import save as save_onnx
from irkit.dialects.onnx import Initializer
from irkit.dialects.state import Variable
from irkit.dialects.state.signature import StateEntry, initial_state, lifted_entries, state_signature
from irkit.errors import IrkitError, SaveError
from irkit.ir.constants import TensorAttr, constant
from irkit.ir.files import write_atomically
from irkit.ir.module import DEFAULT, Module, arg_attrs, arg_entries
from irkit.ir.names import name_of
from irkit.ir.types import tensor_info
from irkit.passes.autodiff.transform import differentiate
from irkit.passes.pipeline import optimize
from irkit.passes.rewrite import sync_signature
from irkit.passes.training import optimizers
from irkit.passes.training.build import Build, Options, Parameter
from irkit.passes.training.files import save_state
from irkit.passes.training.gradients import Clip, ClipByGlobalNorm, DynamicLossScale, StaticLossScale
from irkit.passes.training.losses import Loss, LossFunction
from irkit.passes.training.metrics import Metric
from irkit.passes.training.modes import lower_batch_norms
from irkit.passes.training.optimizers import Optimizer
from irkit.passes.training.regularizers import Regularizer
from irkit.passes.training.signature import without_defaults
from irkit.passes.training.targets import Labels
from irkit.passes.training.updates import Updates, held_parameters
from irkit.passes.training.values import cast as cast_to

__all__ = ["TrainingStep", "training_step"]

MIN_OPSET = 21
EVALUATED = ("parameter", "statistics", "metric", "state")
"""The roles of the variables that an evaluation takes."""

PIPELINE = "O2,simplify-gradient,fold-update,O2"
"""What is run on a finished step by default."""

Array = np.ndarray[Any, Any]
State = Mapping[str, Array]


def training_step(
    module: Module,
    loss: str | Loss | LossFunction | Mapping[str, str | Loss | LossFunction],
    optimizer: str | Optimizer = "adam",
    *,
    outputs: str | Sequence[str] | None = None,
    targets: str | Mapping[str, str] | None = None,
    loss_weights: Mapping[str, float] | None = None,
    trainable: str | Sequence[str] | None = None,
    freeze: str | Sequence[str] = (),
    metrics: str | Metric | Sequence[Any] | Mapping[str, Sequence[Any]] = (),
    weighted_metrics: bool = False,
    sample_weight: bool = False,
    regularizers: Regularizer | Mapping[str, Regularizer] | None = None,
    clip: float | Clip | None = None,
    accumulate: int = 1,
    loss_scale: float | str | StaticLossScale | DynamicLossScale | None = None,
    ema: float | None = None,
    packed: bool = False,
    keep: str | Sequence[str] = (),
    batch_norm: str = "train",
    seed: int = 0,
    pipeline: str = PIPELINE,
) -> TrainingStep:
    """Makes a model one that trains: state and a batch in; next state, loss and metrics out.

    The step is standard ONNX ops, and runs wherever those do. Initializers become state; BatchNormalization normalizes
    by the batch and its running statistics are state; Dropout is on, and draws from a counter that is state. Parameters
    of 16 bits are kept in float32. Symbolic sizes stay.

    Args:
        module: the model; it stays as it is.
        loss: its name (see ``irkit.losses``), a ``Loss``, a function of a builder, target and prediction, or the name
            of a value of the graph that is the loss already. For several outputs: a loss by output.
        optimizer: its name (see ``irkit.optimizers``) or an ``Optimizer``.
        outputs: what the loss is of, where the graph has several outputs; any named values.
        targets: the input that holds the target, or one by output: one that is there already, or the name of a new
            one. By default new inputs ``target``, or with several losses ``target/<output>``.
        loss_weights: what each output's loss counts; 1 by default.
        trainable: names or patterns (``*``, ``?``) of initializers to train. By default all of float types on which
            the loss depends, but for numbers (no axis, or more than two around one element) and what is not finite.
        freeze: names or patterns of what is not trained. A BatchNormalization whose running mean matches keeps its
            statistics and normalizes by them.
        metrics: names (see ``irkit.metrics``) or ``Metric``s; with several outputs, by output.
        weighted_metrics: whether metrics heed ``sample_weight``.
        sample_weight: whether there is an input ``sample_weight``, one number per sample.
        regularizers: added to the loss, for all parameters, or by pattern of their names.
        clip: how gradients are clipped; a number is the greatest global norm.
        accumulate: of how many runs the gradients are averaged for one update.
        loss_scale: a number, ``"dynamic"``, or a rule: what the loss is multiplied by while it is differentiated.
        ema: keeps a moving average of the parameters with this share of the old one.
        packed: keep all parameters in one vector, so that an update is few ops whatever their number; for optimizers
            that update each element by itself.
        keep: further values of the graph to give as outputs.
        batch_norm: ``"train"``, or ``"inference"`` to leave every BatchNormalization as it is.
        seed: of what is drawn.
        pipeline: of passes, run on the finished graph.

    Raises:
        IrkitError: for names that are not there, losses that are not numbers, and parameters without a gradient.
        UnsupportedError: if an op on the way has no gradient.
    """
    if not isinstance(cast(object, module), Module):
        raise IrkitError(
            f"training_step takes a module, and {type(module).__name__} is given", hint="load a file first: irkit.load"
        )
    rule = optimizers.get(optimizer)
    if packed and not rule.elementwise:
        raise IrkitError(
            f"{type(rule).__name__} looks at whole parameters, so they cannot be packed", hint="leave packed=True out"
        )
    if ema is not None and not 0 <= ema < 1:
        raise IrkitError(f"ema={ema}: the share of the old average is at least 0 and less than 1")
    if accumulate < 1:
        raise IrkitError(f"accumulate={accumulate}: at least 1 is needed")
    if batch_norm not in ("train", "inference"):
        raise IrkitError(f"batch_norm={batch_norm!r} is not known", hint="it is 'train' or 'inference'")
    options = Options(
        loss=loss,
        optimizer=rule,
        outputs=None if outputs is None else _listed(outputs),
        targets=targets,
        loss_weights=dict(loss_weights or {}),
        trainable=None if trainable is None else _listed(trainable),
        freeze=_listed(freeze),
        metrics=[metrics] if isinstance(metrics, str | Metric) else metrics,
        weighted_metrics=weighted_metrics,
        sample_weight=sample_weight,
        regularizers=_regularizers(regularizers),
        clip=ClipByGlobalNorm(float(clip)) if isinstance(clip, int | float) else clip,
        accumulate=accumulate,
        loss_scale=_loss_scale(loss_scale),
        ema=ema,
        packed=packed,
        keep=_listed(keep),
        batch_norm=batch_norm,
        seed=seed,
    )
    return _build_step(module, options, pipeline)


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _regularizers(given: Regularizer | Mapping[str, Regularizer] | None) -> dict[str, Regularizer]:
    if given is None:
        return {}
    found = {**cast("Mapping[str, Regularizer]", given)} if isinstance(given, Mapping) else {"*": given}
    for regularizer in found.values():
        if not callable(cast(object, regularizer)):
            raise IrkitError(
                f"regularizers={regularizer!r} is no regularizer", hint=f"give one, such as L2({regularizer!r})"
            )
    return found


def _loss_scale(
    given: float | str | StaticLossScale | DynamicLossScale | None,
) -> StaticLossScale | DynamicLossScale | None:
    match given:
        case None | StaticLossScale() | DynamicLossScale():
            return given
        case "dynamic":
            return DynamicLossScale()
        case str():
            raise IrkitError(f"loss_scale={given!r} is not known", hint="it is 'dynamic' or a number")
        case _:
            return StaticLossScale(float(given))


def _build_step(module: Module, options: Options, pipeline: str) -> TrainingStep:
    build = Build(module, options, training=True)
    build.training_mode()
    found = build.candidates()
    total = build.forward(found)
    scale = None
    if options.loss_scale is not None:
        scale = build.declare("loss_scale", np.float32(options.loss_scale.initial), "loss-scale")
    b = build.b
    seed = b.constant(np.ones((), total.dtype.numpy if total.dtype else None)) if scale is None else scale.value
    given = differentiate(b, [total], list(found.values()), [cast_to(b, seed, total)])
    grads = {name: grad for name, grad in zip(found, given, strict=True) if grad is not None}
    _check_trained(options, list(found), list(grads))
    units = held_parameters(build, {name: found[name] for name in grads})
    Updates(build, units, scale).assign(grads)
    made = _finished(build, pipeline)
    parameters = tuple(p for unit in units for p in unit.members)
    return TrainingStep(module, made, parameters, tuple(build.metric_names), options, pipeline, build.labels)


def _check_trained(options: Options, candidates: Sequence[str], found: Sequence[str]) -> None:
    """Refuses to train nothing, and to leave out what was asked for by its name."""
    named = [name for name in options.trainable or () if name in candidates and name not in found]
    if named:
        raise IrkitError(
            f"the gradient of the loss with respect to '{named[0]}' is zero: no path of differentiable ops leads to it",
            hint="leave it out of trainable",
        )
    if not found:
        what = "of the graph" if options.trainable is None else "that trainable names"
        raise IrkitError(f"the loss depends on no initializer {what}, so there is nothing to train")


def _finished(build: Build, pipeline: str) -> Module:
    """The graph without state ops and ops of the gradient's own."""
    module = build.graph.module
    opsets = module.opsets
    if opsets.get("", MIN_OPSET) < MIN_OPSET:
        module.opsets = {**opsets, "": MIN_OPSET}
    sync_signature(module)
    pure = optimize(module, "lift-state,dce")
    lower_batch_norms(pure)
    return optimize(pure, ",".join(["lower-ad", *([pipeline] if pipeline else [])])).verify()


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """A model that trains, and what its inputs and outputs mean.

    Attributes:
        source: the model.
        module: the step. Its inputs are those of a batch, then the state; its outputs the loss, what ``keep``
            names, the metrics (of the epoch so far), then the next state.
        parameters: what is trained.
        metric_names: of the outputs that give metrics.
        options: what was asked for.
        pipeline: of passes that were run.
        labels: what the targets that are numbers of classes may hold, by input.
    """

    source: Module
    module: Module
    parameters: tuple[Parameter, ...]
    metric_names: tuple[str, ...]
    options: Options
    pipeline: str
    labels: Mapping[str, Labels] = field(default_factory=dict[str, Labels])

    @cached_property
    def signature(self) -> tuple[StateEntry, ...]:
        """The variables of the state; each one's role stands in its metadata."""
        return state_signature(self.module)

    @property
    def batch_inputs(self) -> list[str]:
        """The names of the inputs that are fed with every batch."""
        held = {entry.input for entry in self.signature}
        return [name for name in self.module.input_names if name not in held]

    @property
    def results(self) -> list[str]:
        """The names of the outputs that are no state."""
        held = {entry.output for entry in self.signature}
        return [name for name in self.module.output_names if name not in held]

    def initial(self) -> dict[str, Array]:
        """The state before the first step, by variable. The arrays are read-only."""
        return initial_state(self.module)

    def at_epoch(self, state: State) -> dict[str, Array]:
        """A state with what is counted per epoch set back."""
        start = self.initial()
        reset = {entry.name for entry in self.signature if entry.metadata.get("reset") == "epoch"}
        return {name: start[name] if name in reset else value for name, value in state.items()}

    def values(self, state: State, *, ema: bool = False) -> dict[str, Array]:
        """The values of the parameters in a state, and of the source's own state, by their names in the source.

        Args:
            ema: the moving averages of the parameters instead.

        Raises:
            IrkitError: if the state has none, or lacks a variable.
        """
        found: dict[str, Array] = {}
        for p in self.parameters:
            name = f"ema/{p.variable}" if ema else p.variable
            if name not in state:
                hint = "make the step with ema=" if ema and self.options.ema is None else "give all of the state"
                raise IrkitError(f"the state has no variable '{name}'", hint=hint)
            flat = np.asarray(state[name]).reshape(-1)
            part = flat if p.offset is None else flat[p.offset : p.offset + p.size]
            found[p.name] = part.astype(p.kind.numpy).reshape(p.shape)
        for entry in self.signature:
            if entry.metadata.get("role") in ("statistics", "state"):
                found[entry.metadata["source"]] = np.asarray(state[entry.name])
        return found

    def inference(self, state: State | None = None, *, ema: bool = False) -> Module:
        """The source with the values of a state: trained, with the names that it had.

        Args:
            state: by default the initial one.
            ema: see ``values``.
        """
        made = self.source.clone()
        _put(made, self.values(self.initial() if state is None else state, ema=ema))
        return made.verify()

    @cached_property
    def evaluation(self) -> Module:
        """A module that gives the loss and the metrics without training.

        It takes a batch, and of the state the parameters and statistics, under the step's names, and its own metrics.
        """
        roles = {entry.name: entry.metadata["role"] for entry in self.signature}
        unused = [name for name, role in roles.items() if role not in EVALUATED]
        build = Build(self.source, self.options, training=False, taken=unused)
        initializers = build.initializers()
        found = {p.name: initializers[p.name] for p in self.parameters}
        build.forward(found)
        held_parameters(build, found)
        for entry in self.signature:
            if entry.metadata["role"] == "statistics":
                build.hold(initializers[entry.metadata["source"]], "statistics")
        return _finished(build, self.pipeline)

    def manifest(self) -> dict[str, Any]:
        """What whoever runs the step has to know, fit for JSON; ``docs/reference/training.md`` tells what it says."""
        names = set(self.results)
        kinds = {"loss": "loss", **dict.fromkeys(self.metric_names, "metric")}
        inputs, outputs = self.module.inputs, self.module.outputs
        return {
            "format": "irkit.training-step",
            "version": 1,
            "opset": self.module.opsets.get("", MIN_OPSET),
            "batch": [{"name": name, **_typed(inputs[name])} for name in self.batch_inputs],
            "outputs": [
                {"name": name, "kind": kinds.get(name, "value"), **_typed(kind)}
                for name, kind in outputs.items()
                if name in names
            ],
            "state": [
                {
                    "name": entry.name,
                    "input": entry.input,
                    "output": entry.output,
                    "role": entry.metadata.get("role", "state"),
                    "reset": entry.metadata.get("reset", "never"),
                    **_typed(inputs[entry.input]),
                }
                for entry in self.signature
            ],
            "parameters": [
                {
                    "name": p.name,
                    "state": p.variable,
                    "offset": p.offset,
                    "dtype": p.kind.name,
                    "shape": list(p.shape),
                }
                for p in self.parameters
            ],
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes ``step.onnx``, ``evaluation.onnx``, ``manifest.json`` and the initial state, ``state.safetensors``.

        The weights stand in the state alone. Whatever has onnxruntime can run the step with these.

        Raises:
            SaveError: if a file cannot be written.
        """
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SaveError(
                f"cannot make the folder '{place}': {error.strerror}", hint="a step is saved as a folder of files"
            ) from None
        save_onnx(without_defaults(self.module), place / "step.onnx")
        save_onnx(without_defaults(self.evaluation), place / "evaluation.onnx")
        save_state(place / "state.safetensors", self.initial())
        text = json.dumps(self.manifest(), indent=2) + "\n"
        write_atomically(place / "manifest.json", [text.encode()])


def _typed(value_type: Attribute) -> dict[str, Any]:
    info = tensor_info(value_type)
    assert info is not None
    return {"dtype": info.dtype.name, "shape": None if info.shape is None else list(info.shape)}


def _put(module: Module, values: Mapping[str, Array]) -> None:
    """Gives initializers, variables and defaults of inputs these values, by their names."""
    for op in module.block.ops:
        if isinstance(op, Initializer) and name_of(op.results[0]) in values:
            op.properties["value"] = _constant(values[name_of(op.results[0])], op.properties["value"])
    for op in module.op.ops:
        if isinstance(op, Variable) and op.variable_name in values:
            op.properties["initial"] = _constant(values[op.variable_name], op.initial)
    inputs = {entry.input: entry.name for entry in lifted_entries(module)}
    entries = [dict(e) for e in arg_entries(module.func.arg_attrs, len(module.block.args))]
    for entry, name in zip(entries, module.input_names, strict=True):
        variable = inputs.get(name, name)
        if DEFAULT in entry and variable in values:
            entry[DEFAULT] = _constant(values[variable], entry[DEFAULT])
    attrs = arg_attrs(entries)
    if attrs is not None:
        module.func.properties["arg_attrs"] = attrs


def _constant(value: Array, like: Attribute) -> TensorAttr:
    return constant(np.ascontiguousarray(value).reshape(value.shape), cast(TensorAttr, like).data.dtype)
