"""What is called as training goes on, by Keras's names; ``Adapter`` hangs them on ``irkit.train``."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irkit.errors import IrkitError
from irkit.passes.training.loop import Callback as RunCallback
from irkit.passes.training.loop import Run

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "ReduceLROnPlateau",
    "TerminateOnNaN",
]

Logs = Mapping[str, float]


class Halt(Exception):
    """Ends a training at once."""


class Callback:
    """Is told what happens; ``self.model`` is the model. Epochs and batches count from 0."""

    model: Any = None

    def set_model(self, model: Any) -> None:
        """Says which model is trained."""
        self.model = model

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Before the first batch."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """After the last batch."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Before an epoch."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """After an epoch, with the loss, the metrics, and those of the validation as ``val_...``."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """After a batch, with its loss and the metrics of the epoch so far."""


class History(Callback):
    """What every epoch came to.

    Attributes:
        epoch: the numbers of the epochs.
        history: per name of a loss or metric, its values.
    """

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)


class Adapter(RunCallback):
    """Tells Keras's callbacks what a run tells, and keeps the layers' weights and the run's state the same."""

    def __init__(
        self, model: Any, objective: Any, callbacks: Sequence[Callback], initial_epoch: int, epochs: int
    ) -> None:
        self.model, self.objective = model, objective
        self.history = History()
        self.callbacks = [*callbacks, self.history]
        self.initial_epoch, self.epochs = initial_epoch, epochs
        self.run: Any = None
        self._ended = False
        # Weights are taken out of the run after every epoch only if someone may look.
        self._watched = bool(callbacks)

    def on_begin(self, run: Run) -> None:
        self.run = self.model._run = run
        if run.epoch == 0 and run.batch == 0:
            run.put(self.objective.state(self.model.compiled.state))
            run.epoch = self.initial_epoch
        self._tell("on_train_begin")
        if run.epoch < self.epochs:
            self._tell("on_epoch_begin", run.epoch)

    def on_batch(self, run: Run, logs: Logs) -> None:
        if self._watched:
            self._tell("on_train_batch_end", run.batch - 1, self._shown(logs))

    def on_epoch(self, run: Run, logs: Logs) -> None:
        if self._watched:
            self.objective.store(run.state)
        before = [v._value for v in self.model.weights]
        self._tell("on_epoch_end", run.epoch - 1, self._shown(logs))
        if any(a is not v._value for a, v in zip(before, self.model.weights, strict=True)):
            run.put(self.objective.state(run.state))
        run.stop = run.stop or self.model.stop_training
        if run.epoch < self.epochs and not run.stop:
            self._tell("on_epoch_begin", run.epoch)

    def on_end(self, run: Run) -> None:
        if self._ended:
            return
        self._ended = True
        self.objective.store(run.state)
        self._tell("on_train_end")

    def _tell(self, what: str, *args: Any) -> None:
        for callback in self.callbacks:
            callback.model = self.model
            getattr(callback, what)(*args)

    def _shown(self, logs: Logs) -> dict[str, float]:
        names = self.objective.shown
        found: dict[str, float] = {}
        for name, value in logs.items():
            front, bare = ("val_", name[4:]) if name.startswith("val_") and name not in names else ("", name)
            found[front + names.get(bare, bare).replace("-", "_")] = value
        return found


class _Monitor(Callback):
    """Watches whether a value gets better.

    Args:
        monitor: its name in the logs.
        mode: ``"min"``, ``"max"``, or ``"auto"``: max for accuracies, areas and the like, else min.
        min_delta: by how much it has to be better to count.
    """

    def __init__(self, monitor: str = "val_loss", mode: str = "auto", min_delta: float = 0.0) -> None:
        if mode not in ("auto", "min", "max"):
            raise IrkitError(f"mode={mode!r} is not known", hint="auto, min or max")
        self.monitor, self.min_delta = monitor, abs(min_delta)
        most = ("acc", "auc", "precision", "recall", "f1")
        self.greater = mode == "max" or (mode == "auto" and any(part in monitor for part in most))
        self.best = -math.inf if self.greater else math.inf

    def value(self, logs: Logs | None) -> float:
        """The watched value.

        Raises:
            IrkitError: if the logs have none of that name.
        """
        if self.monitor not in (logs or {}):
            known = ", ".join(logs or {})
            raise IrkitError(
                f"there is no '{self.monitor}' to watch", hint=f"there is {known}; val_... needs validation data"
            )
        return (logs or {})[self.monitor]

    def better(self, value: float) -> bool:
        """Whether a value is better than the best."""
        return value - self.min_delta > self.best if self.greater else value + self.min_delta < self.best


class EarlyStopping(_Monitor):
    """Ends training when a value has not become better for some epochs.

    Args:
        patience: for how many.
        baseline: what it has to be better than at first.
        restore_best_weights: whether the model gets the weights of the best epoch.
        start_from_epoch: earlier epochs are not looked at.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0.0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience, self.verbose, self.baseline = patience, verbose, baseline
        self.restore_best_weights, self.start_from_epoch = restore_best_weights, start_from_epoch
        self.wait, self.stopped_epoch, self.best_epoch = 0, 0, 0
        self.best_weights: Any = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait, self.stopped_epoch, self.best_weights = 0, 0, None
        self.best = -math.inf if self.greater else math.inf

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        value = self.value(logs)
        if epoch < self.start_from_epoch:
            return
        self.wait += 1
        if self.restore_best_weights and self.best_weights is None:
            self.best_weights = self.model.get_weights()
        if self.better(value):
            self.best, self.best_epoch = value, epoch
            if self.restore_best_weights:
                self.best_weights = self.model.get_weights()
            past = -math.inf if self.greater else math.inf
            base = self.baseline if self.baseline is not None else past
            if (value > base) if self.greater else (value < base):
                self.wait = 0
            return
        if self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.restore_best_weights and self.best_weights is not None:
            self.model.set_weights(self.best_weights)


class ModelCheckpoint(_Monitor):
    """Saves the model after every epoch.

    Args:
        filepath: may hold ``{epoch}`` (from 1) and names of the logs: ``"m-{epoch:02d}-{val_loss:.2f}.zip"``.
        save_best_only: whether it is saved only when the watched value is better than ever.
        save_weights_only: whether it is the weights alone.
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
    ) -> None:
        super().__init__(monitor, mode)
        self.filepath, self.save_best_only, self.save_weights_only = filepath, save_best_only, save_weights_only

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.save_best_only:
            value = self.value(logs)
            if not self.better(value):
                return
            self.best = value
        path = str(self.filepath).format(epoch=epoch + 1, **(logs or {}))
        (self.model.save_weights if self.save_weights_only else self.model.save)(path)


class LearningRateScheduler(Callback):
    """Sets the learning rate before every epoch.

    Args:
        schedule: takes the number of the epoch and the rate; gives the new rate.
    """

    def __init__(self, schedule: Callable[[int, float], float], verbose: int = 0) -> None:
        self.schedule = schedule

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self.model.learning_rate = float(self.schedule(epoch, self.model.learning_rate))


class ReduceLROnPlateau(_Monitor):
    """Makes the learning rate smaller when a value has not become better for some epochs.

    Args:
        factor: the new rate is the old one times this.
        patience: for how many epochs.
        cooldown: how many epochs are let pass after that.
        min_lr: it gets no smaller than this.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if factor >= 1:
            raise IrkitError(f"factor={factor} makes the rate no smaller")
        self.factor, self.patience, self.cooldown, self.min_lr = factor, patience, cooldown, min_lr
        self.wait, self.cooling = 0, 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait, self.cooling = 0, 0
        self.best = -math.inf if self.greater else math.inf

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        value = self.value(logs)
        if self.cooling:
            self.cooling, self.wait = self.cooling - 1, 0
        if self.better(value):
            self.best, self.wait = value, 0
        elif not self.cooling:
            self.wait += 1
            rate = self.model.learning_rate
            if self.wait >= self.patience and rate > np.float32(self.min_lr):
                self.model.learning_rate = max(rate * self.factor, self.min_lr)
                self.cooling, self.wait = self.cooldown, 0


class CSVLogger(Callback):
    """Writes a line an epoch.

    Args:
        append: whether lines are added to what the file holds.
    """

    def __init__(self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False) -> None:
        self.filename, self.separator, self.append = Path(filename), separator, append
        self._names: list[str] = []

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._names = []
        if not self.append:
            self.filename.write_text("")

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        first = not self.filename.exists() or not self.filename.stat().st_size
        self._names = self._names or sorted(logs or {})
        with self.filename.open("a", newline="") as file:
            writer = csv.writer(file, delimiter=self.separator, lineterminator="\n")
            if first:
                writer.writerow(["epoch", *self._names])
            writer.writerow([epoch, *((logs or {}).get(name, "") for name in self._names)])


class LambdaCallback(Callback):
    """Functions as a callback: ``LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch))``."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            if not name.startswith("on_") or not hasattr(Callback, name):
                raise IrkitError(f"a callback has no '{name}'")
            setattr(self, name, lambda *args, function=function: function(*args) if args else function(None))


class TerminateOnNaN(Callback):
    """Ends training at once when the loss is no finite number."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            self.model.stop_training = True
            raise Halt
