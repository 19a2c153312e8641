"""Half precision: float32 to float16 or bfloat16, with everything that would overflow kept as it is.

>>> import numpy as np
>>> import irkit as ik
>>> b = ik.Builder("layer")
>>> x = b.input("x", "float32", ["batch", 4])
>>> b.output(b.Relu(x @ b.initializer(np.eye(4, dtype=np.float32), "w")), "y")
>>> half, report = ik.to_half(b.module(), "float16")
>>> half.outputs == {"y": x.type}, report.converted
(True, 2)
"""

from __future__ import annotations

from irkit.passes.precision.api import ToHalf, to_half
from irkit.passes.precision.report import Kept, Report

__all__ = ["Kept", "Report", "ToHalf", "to_half"]
