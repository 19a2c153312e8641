"""Passes over the graph IR, one per file or small folder; imported as ``irkit.passes``."""

from __future__ import annotations

# Imported under a second name, every class here would exist twice and no isinstance check could be trusted.
assert __name__ == "irkit.passes", f"import this package as irkit.passes, not as {__name__}"
