"""Errors of the Python interface, told in the words of the command line."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from irkit.errors import IrkitError

__all__ = ["in_flags"]


@contextmanager
def in_flags(words: Mapping[str, str]) -> Generator[None]:
    """Lets errors pass on with these words of Python replaced, by flags say, in messages and hints."""
    try:
        yield
    except IrkitError as error:
        for python, flag in words.items():
            error.message, error.hint = error.message.replace(python, flag), error.hint.replace(python, flag)
        raise
