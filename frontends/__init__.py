"""What turns models of other kinds into the graph IR; imported as ``irkit.frontends``."""

from __future__ import annotations

# Imported under a second name, every class here would exist twice and no isinstance check could be trusted.
assert __name__ == "irkit.frontends", f"import this package as irkit.frontends, not as {__name__}"
