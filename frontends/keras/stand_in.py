"""Imports Keras on its numpy backend without jax: it names jax while it is imported, and computes little with it.

Stand-ins take jax's (and, where it is not installed, scipy's) place in ``sys.modules`` for as long as Keras is being
imported. What Keras's numpy backend really calls of jax is given by ``windows``, so that eager convolutions and
poolings work too.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from irkit.errors import UnsupportedError

__all__ = ["installed", "missing", "standing_in"]


class _Name(type):
    """A class made up for a name that is asked for: it can be subclassed, called as a decorator, and has any name."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _made_up(f"{cls.__qualname__}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        # jax's decorators, with arguments or without, leave what they decorate as it is.
        if len(args) == 1 and callable(args[0]):
            return args[0]
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls


def _made_up(qualname: str) -> Any:
    return _Name(qualname.rpartition(".")[2], (), {"__qualname__": qualname})


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _made_up(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _Finder(MetaPathFinder, Loader):
    def __init__(self, roots: list[str]) -> None:
        self.roots = roots
        self.made: list[str] = []

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.roots:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self.made.append(spec.name)
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def installed(name: str) -> bool:
    """Whether a package can be imported."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


class standing_in:
    """While this context is open, what is not to be imported is stood in for; afterwards no trace is left."""

    def __enter__(self) -> standing_in:
        roots = [] if "jax" in sys.modules else ["jax", "jaxlib"]
        if "scipy" not in sys.modules and not installed("scipy"):
            roots.append("scipy")
        self.finder = _Finder(roots)
        sys.meta_path.insert(0, self.finder)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.meta_path.remove(self.finder)
        for name in self.finder.made:
            sys.modules.pop(name, None)

    @property
    def jax(self) -> bool:
        """Whether jax was stood in for."""
        return "jax" in self.finder.roots

    @property
    def scipy(self) -> bool:
        """Whether scipy was stood in for."""
        return "scipy" in self.finder.roots


def missing(what: str) -> Any:
    """A function for what neither Keras's numpy backend nor we compute."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"Keras's numpy backend computes {what} with a package that is not installed",
            hint="the model can be converted nevertheless; to compare with Keras, run Keras on another backend",
        )

    return refuse
