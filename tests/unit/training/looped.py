"""A training run as a program: ``python -m tests.unit.training.looped CHECKPOINT LOG`` runs, or goes on."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import irkit as ik
from irkit.passes.training import Callback, Run, TrainingStep

EPOCHS, BATCHES = 4, 9


def step() -> TrainingStep:
    """A step with all that a resumed run has to bring back: drawing, accumulating, metrics, averages, statistics."""
    rng = np.random.default_rng(3)
    b = ik.Builder("net")
    h = b.Relu(b.input("x", "float32", ["batch", 5]) @ b.initializer(_draw(rng, 5, 16), "w1"))
    kept = [b.initializer(np.full(16, v, np.float32), name) for name, v in (("mean", 0), ("variance", 1))]
    ones, zeros = b.initializer(np.ones(16, np.float32), "scale"), b.initializer(np.zeros(16, np.float32), "shift")
    h = b.Dropout(b.BatchNormalization(h, ones, zeros, *kept), np.float32(0.3))
    b.output(h @ b.initializer(_draw(rng, 16, 3), "w2"), "logits")
    return ik.training_step(
        b.module(), "softmax-cross-entropy", ik.optimizers.Adam(0.01), metrics=["accuracy"], accumulate=2, ema=0.9
    )


def _draw(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)


def data() -> dict[str, Any]:
    """70 samples: eight batches of 8, and one of 6."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((70, 5)).astype(np.float32)
    return {"x": x, "target": np.argmax(x[:, :3], axis=1)}


class Slow(Callback):
    """Leaves time for the run to be killed."""

    def on_batch(self, run: Run, logs: Any) -> None:
        print(run.epoch * BATCHES + run.batch, flush=True)
        time.sleep(0.02)


def run(checkpoint: str | None, log: str | None, **options: Any) -> Run:
    """Runs to the end."""
    return ik.train(
        step(),
        data(),
        EPOCHS,
        batch_size=8,
        threads=1,
        checkpoint=checkpoint,
        checkpoint_every=2,
        log_csv=log,
        progress=False,
        **options,
    )


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], callbacks=[Slow()])
