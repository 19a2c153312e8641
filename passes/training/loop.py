"""``train``: the loop around a training step, with validation, checkpoints, a log and a progress bar."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

from irkit.errors import IrkitError, LoadError
from irkit.ir.files import write_atomically
from irkit.ir.module import Module
from irkit.passes.training.data import Batches, Data
from irkit.passes.training.files import load_state, save_state
from irkit.passes.training.runner import Runner, runner
from irkit.passes.training.step import TrainingStep, training_step

__all__ = ["Callback", "Run", "train"]

Array = np.ndarray[Any, Any]
PROGRESS = "irkit.progress"


class Callback:
    """What a training run tells as it goes; subclasses override what they care about."""

    def on_begin(self, run: Run) -> None:
        """Before the first batch."""

    def on_batch(self, run: Run, logs: Mapping[str, float]) -> None:
        """After each batch, with its loss and the metrics so far."""

    def on_epoch(self, run: Run, logs: Mapping[str, float]) -> None:
        """After each epoch, with the means of the loss, the metrics, and those of the validation as ``val_...``."""

    def on_end(self, run: Run) -> None:
        """After the last batch."""


@dataclass
class Run:
    """A training run: where it stands, and what it has come to.

    Attributes:
        step: what is run.
        epoch: how many epochs are done.
        batch: how many batches of the present epoch are done.
        history: per epoch its number (``epoch``, from 1), the mean loss, the metrics, those of the validation.
        stop: a callback sets it to end the run after the present epoch.
        total, samples, metrics: of the present epoch: its losses times the batches' sizes, how many samples that was,
            and the metrics after the last batch.
    """

    step: TrainingStep
    runner: Runner
    epoch: int = 0
    batch: int = 0
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    stop: bool = False
    total: float = 0.0
    samples: int = 0
    metrics: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def state(self) -> dict[str, Array]:
        """The state as it is now, by variable."""
        return self.runner.state()

    def put(self, values: Mapping[str, Any]) -> None:
        """Changes variables of the state, such as ``learning_rate``.

        Raises:
            IrkitError: if there is no variable of that name.
        """
        known = self.step.initial()
        for name in values:
            if name not in known:
                raise IrkitError(f"the state has no variable '{name}'", hint=f"it has: {', '.join(known)}")
        self.runner.put({n: np.asarray(v, known[n].dtype).reshape(known[n].shape) for n, v in values.items()})

    def model(self, *, ema: bool = False) -> Module:
        """The model with the weights that it has now; see ``TrainingStep.inference``."""
        return self.step.inference(self.state, ema=ema)


def train(
    step: TrainingStep | Module,
    data: Data,
    epochs: int = 1,
    *,
    batch_size: int = 32,
    shuffle: bool = True,
    validation: Data | None = None,
    backend: str = "onnxruntime",
    device: str = "cpu",
    threads: int | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = True,
    log_csv: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Trains a model.

    Args:
        step: a training step, or a module of which one is made with ``options``.
        data: arrays by input name, or in the order of the step's ``batch_inputs``; or a function that takes the number
            of the epoch (from 0) and gives batches of that kind.
        epochs: how many in all, those before a resumed checkpoint included.
        batch_size: see ``Batches``.
        shuffle: whether arrays are taken in another order every epoch.
        validation: data to evaluate on after every epoch.
        backend: ``"onnxruntime"`` keeps the state in its own buffers; ``"numpy"`` runs anywhere.
        device: for onnxruntime; with ``"cuda"`` the state stays there.
        threads: of the backend.
        callbacks: told what happens.
        checkpoint: a file that always holds a whole checkpoint: the state, and where the run stands.
        checkpoint_every: after how many batches one is written; by default after every epoch.
        resume: go on from the checkpoint, if there is one. The numbers are the same to the bit as without interruption.
        log_csv: a file with a line an epoch.
        seed: of the order of the samples, and with a module of what the step draws.
        progress: a bar on a terminal, elsewhere a line an epoch, on standard error.
        options: of ``training_step``, where a module is given.

    Raises:
        FeedError: if the data is not what the step takes.
        LoadError: if the checkpoint is damaged, or that of another step.
    """
    if isinstance(step, Module):
        step = training_step(step, **_with_seed(options, seed))
    elif not isinstance(cast(object, step), TrainingStep):
        raise IrkitError(
            f"train takes a training step or a module, and {type(step).__name__} is given",
            hint="load a file first: irkit.load",
        )
    elif options:
        raise IrkitError(f"the options {', '.join(options)} are for a module, and a step is given")
    for name, value, least in (("epochs", epochs, 0), ("checkpoint_every", checkpoint_every, 1)):
        if value is not None and value < least:
            raise IrkitError(f"{name}={value}: at least {least} is needed")
    fixed = step.module.defaults
    inputs = {name: step.module.inputs[name] for name in step.batch_inputs if name not in fixed}
    batches = Batches(data, inputs, batch_size, seed if shuffle else None, step.labels)
    check = None if validation is None else Batches(validation, inputs, batch_size, None, step.labels)
    run = Run(step, runner(step.module, backend, device, threads))
    evaluator = None if check is None else runner(step.evaluation, backend, device, threads)
    if checkpoint is not None and resume and Path(checkpoint).exists():
        _restore(run, checkpoint)
    show = _Progress(progress, epochs, len(batches))
    for callback in callbacks:
        callback.on_begin(run)
    while run.epoch < epochs and not run.stop:
        with show.epoch(run.epoch + 1):
            logs = _epoch(run, batches, callbacks, show, checkpoint, checkpoint_every)
            if evaluator is not None and check is not None:
                logs |= {f"val_{name}": value for name, value in _evaluate(evaluator, step, run.state, check).items()}
        run.epoch, run.batch, run.total, run.samples = run.epoch + 1, 0, 0.0, 0
        run.history.append({"epoch": run.epoch, **logs})
        for callback in callbacks:
            callback.on_epoch(run, logs)
        show.line(run.epoch, logs)
        if checkpoint is not None:
            _save(run, checkpoint)
        if log_csv is not None:
            _write_csv(log_csv, run.history)
    for callback in callbacks:
        callback.on_end(run)
    return run


def _with_seed(options: dict[str, Any], seed: int) -> dict[str, Any]:
    return {"seed": seed, **options}


def _epoch(
    run: Run,
    batches: Batches,
    callbacks: Sequence[Callback],
    show: _Progress,
    checkpoint: str | os.PathLike[str] | None,
    every: int | None,
) -> dict[str, float]:
    """Runs what is left of an epoch."""
    if run.batch == 0:
        start = run.step.initial()
        reset = [e.name for e in run.step.signature if e.metadata.get("reset") == "epoch"]
        run.runner.put({name: start[name] for name in reset})
    for batch in batches.of_epoch(run.epoch, run.batch):
        found = run.runner.step(batch)
        loss, size = float(found["loss"]), len(next(iter(batch.values())))
        run.metrics = _numbers(run.step, found)
        run.batch, run.total, run.samples = run.batch + 1, run.total + loss * size, run.samples + size
        show.batch(run.batch, run.total / run.samples)
        for callback in callbacks:
            callback.on_batch(run, {"loss": loss, **run.metrics})
        if checkpoint is not None and every is not None and run.batch % every == 0:
            _save(run, checkpoint)
    if not run.samples:
        raise IrkitError(f"epoch {run.epoch + 1} has no batches", hint="a function must give new ones at every call")
    return {"loss": run.total / run.samples, **run.metrics}


def _numbers(step: TrainingStep, found: Mapping[str, Array]) -> dict[str, float]:
    """The metrics that are numbers."""
    return {name: float(found[name]) for name in step.metric_names if found[name].ndim == 0}


def _evaluate(evaluator: Runner, step: TrainingStep, state: Mapping[str, Array], batches: Batches) -> dict[str, float]:
    """The mean loss and the metrics over all batches, in the state of a training run."""
    evaluator.put(step.at_epoch(state))
    total, samples, metrics = 0.0, 0, dict[str, float]()
    for batch in batches.of_epoch(0):
        found = evaluator.step(batch)
        size = len(next(iter(batch.values())))
        total, samples, metrics = total + float(found["loss"]) * size, samples + size, _numbers(step, found)
    return {"loss": total / samples if samples else float("nan"), **metrics}


# Checkpoints and the log


def _fingerprint(step: TrainingStep) -> list[Any]:
    return [[entry["name"], entry["dtype"], entry["shape"]] for entry in step.manifest()["state"]]


def _asked(step: TrainingStep) -> dict[str, Any]:
    """What a step was made with, fit for JSON, one plain value per key."""
    found = {"pipeline": step.pipeline}
    for option in fields(step.options):
        if option.name != "keep":  # It shows values, and changes nothing.
            found |= _flat(option.name, getattr(step.options, option.name))
    return found


def _flat(name: str, value: Any) -> dict[str, Any]:
    parts: dict[str, Any]
    match value:
        case None | bool() | int() | float() | str():
            return {name: value}
        case np.generic():
            return {name: value.item()}
        case Mapping():
            parts, kind = {f"{name}[{key!r}]": v for key, v in cast("Mapping[Any, Any]", value).items()}, "mapping"
        case list() | tuple():
            parts, kind = {f"{name}[{i}]": v for i, v in enumerate(cast("Sequence[Any]", value))}, "list"
        case _ if is_dataclass(value) and not isinstance(value, type):
            parts, kind = {f"{name}.{f.name}": getattr(value, f.name) for f in fields(value)}, type(value).__name__
        case _:
            return {name: getattr(value, "__qualname__", type(value).__qualname__)}
    found = {name: kind}
    for part, inner in parts.items():
        found |= _flat(part, inner)
    return found


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} {_spelled(before, name, 'was')} and {_spelled(now, name, 'is')}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]


def _spelled(asked: Mapping[str, Any], name: str, verb: str) -> str:
    return f"{verb} {asked[name]!r}" if name in asked else f"{verb} absent"


def _save(run: Run, path: str | os.PathLike[str]) -> None:
    """Writes the state and where the run stands, as one file, whole or not at all."""
    kept = ("epoch", "batch", "history", "total", "samples", "metrics")
    made = {"state": _fingerprint(run.step), "options": _asked(run.step)}
    text = json.dumps({**made, **{name: getattr(run, name) for name in kept}})
    save_state(path, run.state, {PROGRESS: text})


def _restore(run: Run, path: str | os.PathLike[str]) -> None:
    """Brings a run to where a checkpoint stands.

    Raises:
        LoadError: if it is damaged, or of another step.
    """
    state, metadata = load_state(path)
    try:
        found = json.loads(metadata[PROGRESS])
        same = found.pop("state") == _fingerprint(run.step)
        changed = _changed(found.pop("options"), _asked(run.step))
    except (KeyError, ValueError, AttributeError):
        raise LoadError(f"'{path}' is no checkpoint of a training run", hint="resume=False starts anew") from None
    if changed:
        raise LoadError(
            f"the checkpoint '{path}' is of another training step: {'; '.join(changed[:3])}",
            hint="make the step as it was, or start anew with resume=False; a rate that is to change while a run goes "
            "on is schedules.Adjustable",
        )
    if not same or set(state) != set(run.step.initial()):
        raise LoadError(
            f"the checkpoint '{path}' is of another training step: its state has other names, dtypes or shapes",
            hint="make the step with the options that it had, or start anew with resume=False",
        )
    run.runner.put(state)
    for name, value in found.items():
        setattr(run, name, value)


def _write_csv(path: str | os.PathLike[str], history: Sequence[Mapping[str, float]]) -> None:
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in history for name in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    write_atomically(path, [text.getvalue().encode()])


class _Progress:
    """What a run says on standard error: a bar where that is a terminal and rich is there, else a line an epoch."""

    def __init__(self, wanted: bool, epochs: int, batches: int, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.wanted, self.epochs, self.batches = wanted, epochs, batches
        self.live = wanted and self.stream.isatty() and find_spec("rich") is not None
        self._bar: Any = None
        self._task: Any = None
        self._start = 0.0

    @contextmanager
    def epoch(self, number: int) -> Generator[None]:
        """Shows how an epoch goes on."""
        self._start = time.perf_counter()
        if not self.live:
            yield
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(file=self.stream), transient=True) as bar:
            self._bar, self._task = bar, bar.add_task(f"epoch {number}/{self.epochs}", total=self.batches or None)
            yield
        self._bar = None

    def batch(self, done: int, loss: float) -> None:
        """Shows that a batch is done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=f"loss {loss:.4f}")

    def line(self, number: int, logs: Mapping[str, float]) -> None:
        """Says what an epoch has come to."""
        if self.wanted:
            values = "  ".join(f"{name} {value:.6g}" for name, value in logs.items())
            seconds = time.perf_counter() - self._start
            print(f"epoch {number}/{self.epochs}  {values}  {seconds:.1f} s", file=self.stream, flush=True)
