"""What irkit adds to xDSL's own tools: ``xdsl-opt`` finds it through the entry point ``xdsl.universe``.

Passes are listed under names of ours (``onnx-cse``...), since one name given twice stops every ``xdsl-opt``.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.passes import ModulePass
from xdsl.universe import Universe

import irkit.passes
from irkit.dialects import DIALECTS, plugins

__all__ = ["IRKIT_UNIVERSE"]


def _passes() -> dict[str, Callable[[], type[ModulePass]]]:
    listed: Callable[[], dict[str, Callable[[], type[ModulePass]]]] | None = getattr(irkit.passes, "xdsl_passes", None)
    return {} if listed is None else listed()


IRKIT_UNIVERSE = Universe(all_dialects={**DIALECTS, **plugins()}, all_passes=_passes())
"""Our dialects and passes; each is imported when it is first used."""
