"""How a valid call of each op is made up, by family. Adding an op is an entry in a table, or one decorated function.

A sampler takes the ``Context``, which knows the values in scope, and the op's spec; it returns a ``Call``, or raises
``Reject``. Importing this package fills the tables of ``registry``.
"""

from __future__ import annotations

from importlib import import_module

FAMILIES = "elementwise shape index reduce linalg nn norm quant image signal text sequence control ml".split()

for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")
