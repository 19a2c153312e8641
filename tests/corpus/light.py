"""The light models and magika, as the demo and the benchmarks use them."""

from __future__ import annotations

from examples.light_models import (
    LIGHT_MODELS,
    add_logits_output,
    light_feeds,
    light_model,
    light_model_path,
    light_models,
    logits_output,
    magika_feeds,
    magika_model_path,
)

__all__ = [
    "LIGHT_MODELS",
    "add_logits_output",
    "light_feeds",
    "light_model",
    "light_model_path",
    "light_models",
    "logits_output",
    "magika_feeds",
    "magika_model_path",
]
