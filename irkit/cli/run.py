"""``irkit run``: a model on given or random inputs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from irkit.backends import compile as compile_module
from irkit.backends.base import Executable, describe_value
from irkit.cli.feeds import read_feeds, write_outputs
from irkit.cli.models import check_output, read
from irkit.cli.show import duration, facts, heading, print_json, size, table
from irkit.errors import IrkitError
from irkit.ir.module import Module
from irkit.verify.generate import random_feeds, symbols

__all__ = ["run"]

SHOWN_OPS = 20


def run(args: Namespace) -> int:
    """Runs the command."""
    if args.output is not None:
        check_output(args.output, suffixes=(".npz",))
    module, _ = read(args.model)
    feeds = _feeds(module, args)
    options = {"seed": args.seed, "threads": args.threads, "device": args.device, "profile": args.profile or None}
    start = perf_counter()
    executable = compile_module(module, args.backend, **{k: v for k, v in options.items() if v is not None})
    compiled = perf_counter()
    outputs = executable.run(feeds)
    done = perf_counter()
    if args.output is not None:
        write_outputs(args.output, outputs)
    found: dict[str, Any] = {
        "backend": args.backend,
        "device": args.device or "cpu",
        "compile_seconds": compiled - start,
        "run_seconds": done - compiled,
        "inputs": list(_summaries(feeds)),
        "outputs": list(_summaries(outputs)),
    }
    if args.profile:
        found["profile"] = _profile(executable)
    if args.json:
        print_json(found)
    else:
        _print(found)
    return 0


def _feeds(module: Module, args: Namespace) -> dict[str, Any]:
    sizes = dict(args.size)
    if args.inputs:
        if sizes:
            raise IrkitError("--size concerns generated inputs, but --inputs gives them")
        return read_feeds(args.inputs, module.inputs)
    known = symbols(module)
    unknown = [name for name in sizes if name not in known]
    if unknown:
        raise IrkitError(f"no input has a symbolic dim '{unknown[0]}'", hint=f"there are: {', '.join(known) or 'none'}")
    return random_feeds(module, args.seed, sizes)


def _summaries(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Per tensor its dtype, shape and figures; sequences and maps element by element."""
    for name, value in values.items():
        match value:
            case np.ndarray() | np.generic():
                yield {"name": name, **_figures(np.asarray(value))}
            case list() | tuple():
                yield {"name": name, "type": describe_value(value)}
                yield from _summaries({f"{name}.{i}": item for i, item in enumerate(value)})
            case _:
                yield {"name": name, "type": describe_value(value)}


def _figures(array: np.ndarray) -> dict[str, Any]:
    string = array.dtype.kind in "OUS"
    found: dict[str, Any] = {"dtype": "string" if string else array.dtype.name, "shape": list(array.shape)}
    if string or array.dtype.kind == "c":
        return found
    exact = array.dtype.kind in "iu"
    numbers = array if exact else array.astype(np.float64)
    valid = numbers if exact else numbers[~np.isnan(numbers)]
    found["nan"] = int(array.size - valid.size)
    if valid.size:
        with np.errstate(all="ignore"):
            mean = float(valid.mean(dtype=np.float64))
        found |= {"min": valid.min().item(), "mean": mean, "max": valid.max().item()}
    return found


def _profile(executable: Executable) -> list[dict[str, Any]]:
    """What each op took, the longest first; the two backends measure different things."""
    entries: Any = getattr(executable, "profile", ())
    made = [
        {
            "op": getattr(e, "op", None) or getattr(e, "op_type", ""),
            "name": e.name,
            "calls": e.calls,
            "seconds": e.seconds,
            "bytes": getattr(e, "bytes", None),
            "flops": getattr(e, "flops", None),
            "provider": getattr(e, "provider", None),
        }
        for e in entries
    ]
    return sorted(made, key=lambda entry: -entry["seconds"])


def _print(found: dict[str, Any]) -> None:
    facts(
        [
            ("backend", f"{found['backend']} on {found['device']}"),
            ("compile", duration(found["compile_seconds"])),
            ("run", duration(found["run_seconds"])),
        ]
    )
    for kind in ("inputs", "outputs"):
        heading(f"\n{kind}")
        table(("name", "dtype", "shape", ">min", ">mean", ">max", ">NaN"), [_row(s) for s in found[kind]])
    if "profile" in found:
        _print_profile(found["profile"])


def _row(summary: dict[str, Any]) -> tuple[str, ...]:
    if "type" in summary:
        return summary["name"], summary["type"], "", "", "", "", ""
    figures = [_number(summary.get(key)) for key in ("min", "mean", "max")]
    return summary["name"], summary["dtype"], str(summary["shape"]), *figures, str(summary.get("nan", ""))


def _number(value: float | int | None) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _print_profile(entries: list[dict[str, Any]]) -> None:
    total = sum(entry["seconds"] for entry in entries) or 1.0
    heading(f"\nprofile ({len(entries)} ops, the longest first)")
    rows = [
        (
            entry["op"],
            entry["name"],
            entry["calls"],
            duration(entry["seconds"]),
            f"{100 * entry['seconds'] / total:.1f} %",
            entry["provider"] or ("" if entry["bytes"] is None else size(entry["bytes"])),
        )
        for entry in entries[:SHOWN_OPS]
    ]
    where = "provider" if any(entry["provider"] for entry in entries) else "results"
    table(("op", "name", ">calls", ">time", ">share", where), rows)
