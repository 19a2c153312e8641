"""Compile, fit, evaluate, predict: Keras's training surface over ``irkit.training_step`` and ``irkit.train``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from irkit.dialects.state import initial_state, run_stateful, state_signature
from irkit.errors import IrkitError
from irkit.frontends.layers.callbacks import Adapter, Halt, History
from irkit.frontends.layers.data import Fed, batches_of, listed
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.objective import Objective
from irkit.ir.module import Module
from irkit.passes.training.data import Batches
from irkit.passes.training.loop import train
from irkit.passes.training.optimizers import Optimizer
from irkit.passes.training.optimizers import get as optimizer_of
from irkit.passes.training.runner import Runner, runner
from irkit.passes.training.schedules import Adjustable

__all__ = ["Compiled", "Trainable"]

Array = np.ndarray[Any, Any]


@dataclass
class Compiled:
    """What ``compile`` was asked for, and what has been made of it.

    Attributes:
        objectives: the training steps, by which outputs' samples have weights of how many axes.
        state: of the training, after what has been trained.
        runners: of single batches.
    """

    optimizer: Optimizer
    loss: Any
    loss_weights: Any
    metrics: Any
    weighted_metrics: Any
    backend: str
    device: str
    threads: int | None
    seed: int
    options: dict[str, Any]
    objectives: dict[Any, Objective] = field(default_factory=dict[Any, Objective])
    state: dict[str, Array] = field(default_factory=dict[str, Array])
    runners: dict[Any, Runner] = field(default_factory=dict[Any, Runner])


class Trainable(Layer):
    """What models have besides layers: ways to be trained and to be run on data."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.stop_training = False
        self.history: History | None = None
        self._compiled: Compiled | None = None
        self._run: Any = None
        self._predictors: dict[Any, Any] = {}

    # What Model gives

    def to_module(self, *, training: bool = False) -> Module:
        """The model's graph."""
        raise NotImplementedError

    @property
    def input_names(self) -> list[str]:
        """The names of the graph's inputs."""
        raise NotImplementedError

    def ensure_built(self, x: Any) -> None:
        """Makes the weights for such data, if they are not there."""
        raise NotImplementedError

    def structured(self, values: Sequence[Any]) -> Any:
        """Outputs as the model gives them: one, or a list or dict."""
        raise NotImplementedError

    # Training

    def compile(
        self,
        optimizer: str | Optimizer = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        *,
        backend: str = "onnxruntime",
        device: str = "cpu",
        threads: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """Says how the model is trained.

        Args:
            optimizer: a name, or one of ``irkit.optimizers``.
            loss: a name, one of ``irkit.losses``, or a function of a builder, target and prediction; for several
                outputs a list, or a dict by output.
            loss_weights: what each output's loss counts; a list or dict like that of the losses.
            metrics: names or ``irkit.metrics``, one or a list; for several outputs a list of lists, or a dict.
            weighted_metrics: like ``metrics``; these heed ``sample_weight``.
            backend: that trains and predicts: ``"onnxruntime"`` or ``"numpy"``.
            seed: of what is drawn and of the order of the samples.
            options: of ``irkit.training_step``: ``clip``, ``ema``, ``accumulate``, ``loss_scale`` and others.
        """
        rule = optimizer_of(optimizer)
        if isinstance(rule.learning_rate, int | float):
            # In the state, where callbacks can change it.
            rule = replace(rule, learning_rate=Adjustable(float(rule.learning_rate)))
        self._compiled = Compiled(
            rule, loss, loss_weights, metrics, weighted_metrics, backend, device, threads, seed, options
        )
        self._predictors = {}

    @property
    def compiled(self) -> Compiled:
        """What ``compile`` was told.

        Raises:
            IrkitError: if it was not called.
        """
        if self._compiled is None:
            raise IrkitError(
                f"the model '{self.name}' is not compiled", hint="call model.compile(optimizer, loss) first"
            )
        return self._compiled

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer."""
        return self.compiled.optimizer

    @property
    def learning_rate(self) -> float:
        """The rate at which the model is trained from here on; may be set, by callbacks too."""
        state = self.compiled.state if self._run is None else self._run.state
        if "learning_rate" in state:
            return float(state["learning_rate"])
        rate = self.compiled.optimizer.learning_rate
        if not isinstance(rate, Adjustable):
            raise IrkitError("the learning rate follows a schedule", hint="give the optimizer a number to change it")
        return float(rate.initial)

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        if self._run is not None:
            self._run.put({"learning_rate": value})
        self.compiled.state["learning_rate"] = np.asarray(value, np.float32)

    def objective(self, weights: Mapping[str, int] | None = None) -> Objective:
        """The training step, and what it has to do with the layers.

        Args:
            weights: by output, how many axes the weights of its samples have.
        """
        key = tuple(sorted((weights or {}).items()))
        found = self.compiled.objectives
        if key not in found:
            found[key] = Objective(self, cast(Any, self.compiled), dict(weights or {}))
        return found[key]

    def training_step(self) -> Any:
        """The ``irkit.TrainingStep`` of the compiled model, to be saved and run anywhere."""
        return self.objective().step

    def fit(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Sequence[Any] = (),
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        checkpoint: str | None = None,
    ) -> History:
        """Trains the model.

        Args:
            x: an array, or a list or dict of them for several inputs; or a function that takes the number of the epoch
                and gives batches ``(x, y)`` or ``(x, y, sample_weight)``.
            y: the targets, likewise.
            batch_size: 32 by default.
            epochs: at which epoch it ends.
            verbose: 0 says nothing; else there is a bar on a terminal, elsewhere a line an epoch, on standard error.
            callbacks: see ``layers.callbacks``.
            validation_split: this share of the samples, the last ones, is for validation.
            validation_data: ``(x, y)`` or ``(x, y, sample_weight)``.
            class_weight: what the samples of a class count, by its number.
            sample_weight: what each sample counts.
            initial_epoch: how many epochs are done; with the state that the model has, the numbers go on as if there
                had been no break.
            checkpoint: a file from which training goes on, and which holds where it stands.

        Raises:
            FeedError: if the data is not what the model takes.
        """
        self.ensure_built(_first(x))
        fed = batches_of(self, x, y, sample_weight, class_weight)
        checked: Fed | None = None
        if validation_data is not None:
            checked = batches_of(self, *listed(validation_data)).weighted(fed.weights)
        elif validation_split:
            fed, checked = fed.split(validation_split)
        objective = self.objective(fed.weights)
        adapter = Adapter(self, objective, listed(callbacks), initial_epoch, epochs)
        self.stop_training = False
        try:
            run = train(
                objective.step,
                fed.data,
                epochs,
                batch_size=batch_size or 32,
                shuffle=shuffle,
                validation=None if checked is None else checked.data,
                backend=self.compiled.backend,
                device=self.compiled.device,
                threads=self.compiled.threads,
                callbacks=[adapter],
                checkpoint=checkpoint,
                seed=self.compiled.seed,
                progress=bool(verbose),
            )
            adapter.on_end(run)
        except Halt:
            adapter.on_end(adapter.run)
        finally:
            self._run = None
        self.history = adapter.history
        return adapter.history

    def evaluate(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """The mean loss over data and the metrics; the loss alone, a list, or a dict by name."""
        self.ensure_built(_first(x))
        fed = batches_of(self, x, y, sample_weight)
        objective = self.objective(fed.weights)
        inputs = {name: objective.step.module.inputs[name] for name in objective.step.batch_inputs}
        run = self._runner("evaluation", objective)
        run.put(objective.step.at_epoch(objective.state(self.compiled.state)))
        total, samples, found = 0.0, 0, dict[str, Any]()
        for batch in Batches(fed.data, inputs, batch_size or 32, None).of_epoch(0):
            found = run.step(batch)
            size = len(next(iter(batch.values())))
            total, samples = total + float(found["loss"]) * size, samples + size
        logs = {"loss": total / max(samples, 1), **objective.numbers(found)}
        return _given(logs, return_dict)

    def _runner(self, kind: str, objective: Objective) -> Runner:
        key = (kind, id(objective))
        found, c = self.compiled.runners, self.compiled
        if key not in found:
            module = objective.step.module if kind == "step" else objective.step.evaluation
            found[key] = runner(module, c.backend, c.device, c.threads)
        return found[key]

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """One step on a batch; its loss and the metrics of it."""
        self.ensure_built(_first(x))
        fed = batches_of(self, x, y, sample_weight, class_weight)
        objective = self.objective(fed.weights)
        run = self._runner("step", objective)
        run.put(objective.step.at_epoch(objective.state(self.compiled.state)))
        found = run.step(fed.data)
        objective.store(run.state())
        return _given({"loss": float(found["loss"]), **objective.numbers(found)}, return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """The loss and the metrics of a batch."""
        return self.evaluate(x, y, len(next(iter(listed(x)))) if isinstance(x, list | tuple) else len(_first(x)), 0,
                             sample_weight, return_dict)  # fmt: skip

    # Running

    def predict(self, x: Any, batch_size: int | None = None, verbose: int | str = "auto") -> Any:
        """The outputs for data, batch by batch, in one piece."""
        self.ensure_built(_first(x))
        feeds = batches_of(self, x).data
        size, count = batch_size or 32, len(next(iter(feeds.values())))
        parts = [self._predicted({k: v[i : i + size] for k, v in feeds.items()}) for i in range(0, count, size)]
        if not parts:
            raise IrkitError("there is nothing to predict: the data has no samples")
        return self.structured([np.concatenate(arrays) for arrays in zip(*parts, strict=True)])

    def predict_on_batch(self, x: Any) -> Any:
        """The outputs for one batch."""
        self.ensure_built(_first(x))
        return self.structured(self._predicted(batches_of(self, x).data))

    def _predicted(self, feeds: Mapping[str, Any]) -> list[Array]:
        """The outputs for a batch; what runs change is changed."""
        run, signature, by_name = self._predictor()
        state = {entry.name: by_name[entry.name].numpy() for entry in signature}
        found, state = run_stateful(run, signature, feeds, state)
        for entry in signature:
            by_name[entry.name].assign(state[entry.name])
        return list(found.values())

    def _predictor(self) -> Any:
        """The compiled graph; made anew when weights have changed."""
        from irkit.backends import compile as compile_module
        from irkit.passes import optimize

        c = self._compiled
        backend = "onnxruntime" if c is None else c.backend
        constants = [v for v in self.weights if v.stateful != "always"]
        held = tuple(v._value for v in constants)  # pyright: ignore[reportPrivateUsage]
        kept = self._predictors.get(backend)
        if kept is None or len(kept[0]) != len(held) or any(a is not b for a, b in zip(kept[0], held, strict=True)):
            traced = self.traced(False)
            module = optimize(traced.module(), "lift-state")
            options: dict[str, Any] = {} if c is None or c.threads is None else {"threads": c.threads}
            if backend == "onnxruntime":
                options["device"] = "cpu" if c is None else c.device
            by_name = {name: variable for variable, name in traced.trace.names.items()}
            assert set(initial_state(module)) <= set(by_name)
            made = (compile_module(module, backend, **options), state_signature(module), by_name)
            self._predictors[backend] = kept = (held, made)
        return kept[1]

    traced: Callable[..., Any]


def _first(x: Any) -> Any:
    """The data that says what goes in; a function of the epoch is asked for its first batch."""
    return next(iter(cast(Any, x)(0)))[0] if callable(x) else x


def _given(logs: dict[str, float], as_dict: bool) -> Any:
    if as_dict:
        return logs
    return next(iter(logs.values())) if len(logs) == 1 else list(logs.values())
