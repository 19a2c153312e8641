"""Gradient rules by op family, one module each; see ``irkit.passes.autodiff.registry`` for what a rule is."""
