"""The arguments of every command. Nothing heavy is imported here: ``irkit --help`` is to be quick."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from irkit import __version__

__all__ = ["parser"]

EXIT_CODES = """\
exit codes: 0 all is well; 1 a check found a difference; 2 bad usage or bad input; 70 a fault of irkit itself
(IRKIT_DEBUG=1 shows where); 130 interrupted"""

MODEL = "an .onnx or .mlir file; - reads either from standard input"


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; ``args.command`` names the module that runs it."""
    top = argparse.ArgumentParser(
        prog="irkit",
        description="Look at tensor graphs (ONNX, MLIR text), convert, optimize, run and check them.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"irkit {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (summary, add) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add(command)
    return top


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _seed(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=_natural, default=0, metavar="N", help="of generated inputs (default: 0)")


def _info(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help=MODEL)
    _json(command)


def _convert(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="IN", help=MODEL)
    _output(command, required=True)
    command.add_argument(
        "--opset",
        type=_opset,
        action="append",
        default=[],
        metavar="[DOMAIN=]N",
        help="the opset to write, of ai.onnx or of DOMAIN (default: as IN has it); may be given for several domains",
    )
    command.add_argument(
        "--to", choices=("python",), help="write a Python program that builds the model again (so does OUT in .py)"
    )
    command.add_argument("--no-upgrade", action="store_true", help="keep every op in the form it came in")
    command.add_argument(
        "--external-data",
        nargs="?",
        const=True,
        metavar="NAME",
        help="put weights into the file NAME beside OUT (default: OUT.data); 'many': into one file each",
    )
    command.add_argument(
        "--constants",
        choices=("digest", "inline", "elide"),
        help="how text holds large constants: in a sidecar file (the default for files), in full (the default for -), "
        "or not at all",
    )
    command.add_argument("--locations", action="store_true", help="write into text where each op came from")


def _opt(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="IN", nargs="?", help=MODEL)
    which = command.add_mutually_exclusive_group()
    which.add_argument("-p", "--passes", metavar="PIPELINE", help="such as 'canonicalize,constant-fold{max-bytes=0}'")
    which.add_argument("-O", dest="level", type=int, choices=range(4), metavar="0..3", help="a level (default: -O2)")
    which.add_argument("--list-passes", action="store_true", help="list passes, their options, and the levels")
    which.add_argument(
        "--reproduce", metavar="FILE", help="do again what FILE, a reproducer, says; 1 if it still goes wrong"
    )
    _output(command, required=False)
    command.add_argument(
        "--check", choices=("each", "end"), help="run the model before and after each pass, or the whole, and compare"
    )
    command.add_argument("--backends", type=_names, metavar="NAMES", help="where to run for --check (default: numpy)")
    command.add_argument("--print-before", metavar="WHEN", help="print the module before 'all', 'changed', or a pass")
    command.add_argument("--print-after", metavar="WHEN", help="print the module after 'all', 'changed', or a pass")
    command.add_argument("--timing", action="store_true", help="print how long everything took")
    command.add_argument("--statistics", action="store_true", help="print how often each rule fired, and memory")
    command.add_argument("--trace", metavar="FILE", help="write the times as a Chrome trace (JSON)")
    command.add_argument(
        "--reproducer",
        metavar="FILE",
        help="where to write the module, pass and inputs if a pass fails (.mlir; "
        "with --check by default irkit-reproducer.mlir)",
    )
    command.add_argument("--keep-going", action="store_true", help="go on without a pass that fails")
    command.add_argument("--verify-each", action="store_true", help="verify the module after each pass")
    command.add_argument("--target-opset", type=int, metavar="N", help="the opset of ai.onnx that OUT is to have")
    _json(command)


def _run(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help=MODEL)
    command.add_argument("--backend", default="numpy", help="numpy (default), onnxruntime, or a plug-in's")
    command.add_argument("--device", metavar="DEVICE", help="for onnxruntime: cpu (default), cuda or cuda:N")
    command.add_argument(
        "--inputs",
        nargs="+",
        metavar="FILE",
        help="an .npz with the inputs by name, or NAME=FILE.npy for each (default: random inputs)",
    )
    command.add_argument(
        "--size",
        nargs="+",
        action="extend",
        type=_size,
        default=[],
        metavar="SYMBOL=N",
        help="the size of a symbolic dim of generated inputs",
    )
    _seed(command)
    command.add_argument("-o", "--output", metavar="OUT", help="write the outputs to this .npz")
    command.add_argument("--threads", type=_positive, metavar="N", help="of the backend")
    command.add_argument("--profile", action="store_true", help="print what the ops took")
    _json(command)


def _check(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help=MODEL)
    command.add_argument("other", metavar="OTHER", nargs="?", help="a model that is to compute the same")
    command.add_argument("-p", "--passes", metavar="PIPELINE", help="check that no pass changes what MODEL computes")
    command.add_argument(
        "--backends", type=_names, default=["numpy", "onnxruntime"], metavar="NAMES", help="default: numpy,onnxruntime"
    )
    command.add_argument("--samples", type=_positive, default=3, metavar="N", help="sets of inputs (default: 3)")
    command.add_argument("--rtol", type=float, metavar="X", help="error allowed, as a part of an output's scale")
    command.add_argument("--atol", type=float, metavar="X", help="absolute error allowed besides")
    _seed(command)
    _json(command)


def _bisect(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help=MODEL)
    _pipeline(command)
    command.add_argument(
        "--backends", type=_names, default=["numpy"], metavar="NAMES", help="where to run (default: numpy)"
    )
    command.add_argument("--samples", type=_positive, default=3, metavar="N", help="sets of inputs (default: 3)")
    command.add_argument("--rtol", type=float, metavar="X", help="error allowed, as a part of an output's scale")
    command.add_argument("--atol", type=float, metavar="X", help="absolute error allowed besides")
    command.add_argument("--reproducer", metavar="FILE", help="write the module, pass and inputs (.mlir)")
    _seed(command)
    _json(command)


def _explain(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help=MODEL)
    command.add_argument("node", metavar="NODE", help="the name of a node or value, or #N for the N-th node of a file")
    _pipeline(command)
    _json(command)


def _diff(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="A", help=MODEL)
    command.add_argument("other", metavar="B", help=MODEL)
    command.add_argument("--no-run", action="store_true", help="compare what the models are, not what they compute")
    command.add_argument(
        "--backends", type=_names, default=["numpy"], metavar="NAMES", help="where to run (default: numpy)"
    )
    command.add_argument("--samples", type=_positive, default=3, metavar="N", help="sets of inputs (default: 3)")
    command.add_argument("--rtol", type=float, metavar="X", help="error allowed, as a part of an output's scale")
    command.add_argument("--atol", type=float, metavar="X", help="absolute error allowed besides")
    _seed(command)
    _json(command)


def _pipeline(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument("-p", "--passes", metavar="PIPELINE", help="such as 'canonicalize,constant-fold{max-bytes=0}'")
    which.add_argument("-O", dest="level", type=int, choices=range(4), metavar="0..3", help="a level")
    command.add_argument("--target-opset", type=int, metavar="N", help="the opset of ai.onnx that passes may use")


def _grad(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help=MODEL)
    command.add_argument(
        "--of", metavar="NAME", help="the value of one element to differentiate (default: the only output)"
    )
    command.add_argument(
        "--wrt", type=_names, metavar="NAMES", help="inputs, initializers, values (default: all inputs of float types)"
    )
    command.add_argument("--value", action="store_true", help="give the value besides its gradients")
    command.add_argument("--as-inputs", action="store_true", help="make the initializers among NAMES inputs")
    command.add_argument("--allow-unused", action="store_true", help="give zeros where nothing depends on one")
    _output(command, required=True)
    _json(command)


def _train(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help=MODEL)
    command.add_argument("--loss", required=True, help="such as softmax-cross-entropy, mse, or the name of a value")
    command.add_argument("--optimizer", default="adam", help="default: adam")
    command.add_argument("--learning-rate", type=float, metavar="X", help="default: the optimizer's")
    command.add_argument("--weight-decay", type=float, metavar="X", help="default: the optimizer's")
    command.add_argument("--data", metavar="FILE", help="an .npz with the inputs and targets by name, samples first")
    command.add_argument("--validation", metavar="FILE", help="the same, to evaluate on after every epoch")
    command.add_argument("--outputs", type=_names, metavar="NAMES", help="what the loss is of (default: the only one)")
    command.add_argument("--targets", metavar="NAME", help="the input with the target (default: a new one, target)")
    command.add_argument("--trainable", type=_names, metavar="PATTERNS", help="initializers (default: all that count)")
    command.add_argument("--freeze", type=_names, default=[], metavar="PATTERNS", help="of initializers to leave alone")
    command.add_argument("--metrics", type=_names, default=[], metavar="NAMES", help="such as accuracy")
    command.add_argument("--clip", type=float, metavar="X", help="the greatest global norm of gradients")
    command.add_argument("--accumulate", type=_positive, default=1, metavar="N", help="batches per update (default: 1)")
    command.add_argument("--ema", type=float, metavar="X", help="also average the weights, with this share of the old")
    command.add_argument("--packed", action="store_true", help="keep all weights in one vector")
    command.add_argument("--epochs", type=_positive, default=1, metavar="N", help="default: 1")
    command.add_argument("--batch-size", type=_positive, default=32, metavar="N", help="default: 32")
    command.add_argument("--no-shuffle", action="store_true", help="take the samples in their order")
    command.add_argument("--backend", default="onnxruntime", help="onnxruntime (default), numpy, or a plug-in's")
    command.add_argument("--device", default="cpu", metavar="DEVICE", help="for onnxruntime: cpu (default) or cuda")
    command.add_argument("--threads", type=_positive, metavar="N", help="of the backend")
    command.add_argument("--checkpoint", metavar="FILE", help="the state after every epoch; go on from it")
    command.add_argument("--checkpoint-every", type=_positive, metavar="N", help="write it after every N batches, too")
    command.add_argument("--restart", action="store_true", help="do not go on from the checkpoint")
    command.add_argument("--log-csv", metavar="FILE", help="write a line an epoch")
    command.add_argument("--seed", type=_natural, default=0, metavar="N", help="of the order and of what is drawn")
    command.add_argument("--save-step", metavar="FOLDER", help="write the training step itself, to be run anywhere")
    _output(command, required=False)
    _json(command)


def _output(command: argparse.ArgumentParser, *, required: bool) -> None:
    command.add_argument(
        "-o", "--output", metavar="OUT", required=required, help="an .onnx or .mlir file; - prints text"
    )


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "info": ("say what is in a model", _info),
    "convert": ("write a model in another format or opset", _convert),
    "opt": ("run passes over a model", _opt),
    "run": ("run a model on given or random inputs", _run),
    "check": ("check a model, two against each other, or passes", _check),
    "grad": ("differentiate a model", _grad),
    "train": ("train a model, or write it as a training step", _train),
    "bisect": ("find the pass, and the rewrite in it, that changes what a model computes", _bisect),
    "explain": ("say which nodes, passes and rules an op came from", _explain),
    "diff": ("say how two models differ: nodes, types, constants, results", _diff),
}
"""Name -> a summary, and what adds its arguments. The module of that name in this package runs it."""


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _opset(text: str) -> tuple[str, int]:
    domain, _, version = text.rpartition("=")
    return "" if domain == "ai.onnx" else domain, _positive(version)


def _size(text: str) -> tuple[str, int]:
    symbol, separator, size = text.rpartition("=")
    if not separator or not symbol:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form SYMBOL=N")
    return symbol, _natural(size)


# What argparse calls these in "invalid ... value".
_natural.__name__ = _positive.__name__ = _size.__name__ = "whole number"
_opset.__name__ = "opset"
