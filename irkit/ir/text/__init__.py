"""MLIR text: printing and parsing modules, and keeping them in files with their large constants beside them.

What is printed is what xDSL's own printer prints, byte for byte, so that stock ``xdsl-opt`` and MLIR itself read it;
both ways are merely faster here. Parsing takes our own line layout by one regular expression a line; any other
spelling of the same IR goes through xDSL's parser.
"""

from __future__ import annotations

from irkit.ir.text.files import load_text, save_text
from irkit.ir.text.parser import parse_module
from irkit.ir.text.printer import print_module
from irkit.ir.text.sidecar import Sidecar, write_sidecar

__all__ = ["Sidecar", "load_text", "parse_module", "print_module", "save_text", "write_sidecar"]
