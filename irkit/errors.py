"""The one family of errors that irkit raises for what a user can mend.

Every error says which op, where it came from, what was expected, what was found and what to do. The command
line prints ``str(error)`` and exits with ``error.exit_code``.
"""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "CheckError",
    "ExecutionError",
    "FeedError",
    "InferenceError",
    "IrkitError",
    "LoadError",
    "LoweringError",
    "ParseError",
    "PassError",
    "SaveError",
    "UnsupportedError",
    "VerifyError",
]


class IrkitError(Exception):
    """The base of all errors of irkit.

    Attributes:
        op: the op concerned, as ``onnx.Conv``, or ``""``.
        where: where it came from (file and node, a user's source line), or ``""``.
        hint: what to do about it, or ``""``.
    """

    exit_code = 2

    def __init__(self, message: str, *, op: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.op = op
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        head = " ".join(part for part in (self.op, f"at {self.where}" if self.where else "") if part)
        text = f"{head}: {self.message}" if head else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class LoadError(IrkitError):
    """A file could not be read: missing, truncated, malformed, or reaching outside its folder."""


class SaveError(IrkitError):
    """A file could not be written; what stood there before is as it was."""


class ParseError(IrkitError):
    """MLIR text that does not parse."""


class VerifyError(IrkitError):
    """A module breaks a rule of the IR."""


class InferenceError(IrkitError):
    """Operand types that an op does not accept, or shapes that do not fit."""


class LoweringError(IrkitError):
    """An op that cannot be written at the opset asked for."""


class UnsupportedError(IrkitError):
    """Something valid that this backend or pass does not do, with the reason."""


class ExecutionError(IrkitError):
    """A run failed: an op's inputs are invalid, an index is out of range, an integer is divided by zero."""


class BudgetError(ExecutionError):
    """A run or a fold went past its budget of memory, steps or time and was stopped."""


class FeedError(IrkitError):
    """Inputs that are missing, unknown, or of the wrong dtype or shape."""


class PassError(IrkitError):
    """An unknown pass or option, or a pass that failed."""


class CheckError(IrkitError):
    """Two modules that should mean the same do not."""

    exit_code = 1
