"""How lit runs the tests of this folder: each file's RUN lines, with the commands of this Python's environment."""

import os
import sys
from pathlib import Path

import lit.formats

config.name = "irkit"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir", ".test"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = os.environ["LIT_OUTPUT"]
config.environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    config.environment[name] = "1"
