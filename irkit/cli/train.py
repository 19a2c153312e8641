"""``irkit train``: a model trained on arrays of a file, or written as a training step."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import irkit as ik
from irkit.cli.feeds import read_feeds
from irkit.cli.hints import in_flags
from irkit.cli.models import STDIO, check_output, read, write
from irkit.cli.show import facts, heading, print_json, table
from irkit.errors import IrkitError
from irkit.passes.training import TrainingStep

__all__ = ["run"]

WORDS = {
    "name one with outputs=, or give a loss for each: loss={output: loss}": "name one with --outputs",
    "; a rate that is to change while a run goes on is schedules.Adjustable": "",
    "; the loss's ignore_index= names a label that is to count for nothing": "",
    "resume=False": "--restart",
    "packed=True": "--packed",
    "leave it out of trainable": "leave it out of --trainable",
    "that trainable names": "that --trainable names",
    "ClipByGlobalNorm": "--clip",
    "learning_rate=": "--learning-rate ",
    "weight_decay=": "--weight-decay ",
    "ema=": "--ema ",
}


def run(args: Namespace) -> int:
    """Runs the command."""
    with in_flags(WORDS):
        return _run(args)


def _run(args: Namespace) -> int:
    _check(args)
    module, _ = read(args.model)
    chosen = {"learning_rate": args.learning_rate, "weight_decay": args.weight_decay}
    optimizer = ik.optimizers.get(args.optimizer, **{k: v for k, v in chosen.items() if v is not None})
    step = ik.training_step(
        module,
        args.loss,
        optimizer,
        outputs=args.outputs,
        targets=args.targets,
        trainable=args.trainable,
        freeze=args.freeze,
        metrics=args.metrics,
        clip=args.clip,
        accumulate=args.accumulate,
        ema=args.ema,
        packed=args.packed,
        seed=args.seed,
    )
    if args.save_step is not None:
        step.save(args.save_step)
    found: dict[str, Any] = {
        "parameters": [{"name": p.name, "dtype": p.kind.name, "shape": list(p.shape)} for p in step.parameters],
        "batch": step.manifest()["batch"],
    }
    if args.data is not None:
        found["history"] = _train(step, args)
    if args.json:
        print_json(found)
    else:
        _print(found)
    return 0


def _check(args: Namespace) -> None:
    """Refuses early what would come to nothing."""
    if args.data is None and args.save_step is None:
        raise IrkitError(
            "there is nothing to train on", hint="give --data FILE.npz, or --save-step FOLDER to write the step"
        )
    needs = {"--output": args.output, "--validation": args.validation, "--checkpoint": args.checkpoint}
    given = [name for name, value in {**needs, "--log-csv": args.log_csv}.items() if value is not None]
    if args.data is None and given:
        raise IrkitError(f"{given[0]} is for training, but there is no --data")
    if args.data is not None and args.output is args.checkpoint is args.log_csv is None:
        raise IrkitError(
            "nothing would be left of the training",
            hint="give -o FILE for the trained model, --checkpoint or --log-csv",
        )
    if args.json and args.output == STDIO:
        raise IrkitError("--json and -o - would both print to standard output", hint="write the module to a file")
    if args.output is not None:
        check_output(args.output)
    for name in ("checkpoint", "log_csv"):
        path = getattr(args, name)
        if path is not None and not Path(path).parent.is_dir():
            raise IrkitError(f"cannot write '{path}': there is no folder '{Path(path).parent}'")


def _train(step: TrainingStep, args: Namespace) -> list[dict[str, float]]:
    inputs = step.module.inputs
    done = ik.train(
        step,
        read_feeds([args.data], inputs),
        args.epochs,
        batch_size=args.batch_size,
        shuffle=not args.no_shuffle,
        validation=None if args.validation is None else read_feeds([args.validation], inputs),
        backend=args.backend,
        device=args.device,
        threads=args.threads,
        checkpoint=args.checkpoint,
        checkpoint_every=args.checkpoint_every,
        resume=not args.restart,
        log_csv=args.log_csv,
        seed=args.seed,
    )
    if args.output is not None:
        write(done.model(ema=args.ema is not None), args.output)
    return done.history


def _print(found: dict[str, Any]) -> None:
    count = sum(_size(p["shape"]) for p in found["parameters"])
    facts(
        [
            ("trained", f"{count} numbers in {len(found['parameters'])} parameters"),
            ("batch", ", ".join(f"{b['name']} {b['dtype']}{b['shape']}" for b in found["batch"])),
        ]
    )
    history = found.get("history")
    if history:
        heading("\nepochs")
        columns = list(history[-1])
        table([f">{name}" for name in columns], [[f"{row[name]:.6g}" for name in columns] for row in history])


def _size(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
