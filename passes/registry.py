"""The passes by name: our own, and those of others through the entry points ``irkit.passes``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from xdsl.passes import ModulePass

from irkit.errors import PassError

__all__ = ["BUILTIN", "GROUP", "find_pass", "pass_names", "suggestion", "xdsl_passes"]

GROUP = "irkit.passes"
"""The entry points by which a package adds passes: pipeline name -> class."""

BUILTIN: dict[str, tuple[str, str]] = {
    "canonicalize": ("irkit.passes.canonicalize", "Canonicalize"),
    "constant-fold": ("irkit.passes.constant_fold", "ConstantFolding"),
    "cse": ("irkit.passes.cse", "CommonSubexpressionElimination"),
    "dce": ("irkit.passes.dce", "DeadCodeElimination"),
    "fold-batch-norm": ("irkit.passes.fusion", "FoldBatchNorm"),
    "fold-update": ("irkit.passes.fold_update", "FoldUpdate"),
    "fuse": ("irkit.passes.fusion", "Fuse"),
    "hoist": ("irkit.passes.hoist", "Hoist"),
    "infer-shapes": ("irkit.passes.infer_shapes", "InferShapes"),
    "inline": ("irkit.passes.inline", "Inline"),
    "expand-gradient": ("irkit.passes.autodiff.expand_gradient", "ExpandGradient"),
    "layout": ("irkit.passes.layout", "Layout"),
    "lift-state": ("irkit.passes.lift_state", "LiftState"),
    "to-half": ("irkit.passes.precision", "ToHalf"),
    "simplify-gradient": ("irkit.passes.autodiff.simplify", "SimplifyGradient"),
    "lower-ad": ("irkit.passes.autodiff.lower", "LowerAd"),
}
"""Name in our own pipelines -> module and class."""

PREFIX = "onnx-"
"""What xDSL's own pipelines put in front: it has a ``cse``, a ``dce`` and a ``canonicalize`` of its own."""


@cache
def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value))}


def pass_names() -> list[str]:
    """All names that a pipeline may hold, levels left out."""
    return sorted({*BUILTIN, *_plugins()})


def find_pass(name: str) -> type[ModulePass]:
    """The class of a pass by its name in a pipeline, with or without ``onnx-``.

    Raises:
        PassError: if there is none of that name, two, or if the plug-in that has it does not load.
    """
    short = name.removeprefix(PREFIX)
    plugin = _plugins().get(name)
    if short in BUILTIN:
        if plugin is not None:
            raise PassError(
                f"pass '{name}' is irkit's own, but '{plugin.value}' claims the name, too",
                hint="rename the entry point of the plug-in, or uninstall it",
            )
        module, attribute = BUILTIN[short]
        return cast("type[ModulePass]", getattr(importlib.import_module(module), attribute))
    if plugin is not None:
        return _load(plugin)
    raise PassError(f"there is no pass '{name}'", hint=suggestion(name, pass_names(), "passes"))


def _load(plugin: EntryPoint) -> type[ModulePass]:
    try:
        found = plugin.load()
    except Exception as error:
        raise PassError(f"pass '{plugin.name}' of '{plugin.value}' does not load: {error}") from error
    if not (isinstance(found, type) and issubclass(found, ModulePass)):
        raise PassError(
            f"'{plugin.value}' is no pass", hint="the entry point must name a subclass of irkit.passes.Pass"
        )
    return found


def suggestion(name: str, known: list[str], what: str) -> str:
    """For errors: the name that was probably meant, and all there are."""
    close = get_close_matches(name, known, n=1)
    meant = f"did you mean '{close[0]}'? " if close else ""
    return f"{meant}known {what}: {', '.join(known) or 'none'}"


def xdsl_passes() -> dict[str, Callable[[], type[ModulePass]]]:
    """Our passes as xDSL's ``Universe`` takes them: by full name, imported when asked for."""
    return {PREFIX + name: (lambda name=name: find_pass(name)) for name in BUILTIN}
