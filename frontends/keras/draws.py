"""Random numbers: what Keras would draw from a seed generator becomes a random op of the graph."""

from __future__ import annotations

import inspect
from typing import Any

from irkit.frontends.keras import adapter
from irkit.frontends.keras.trace import FUNCTIONS, Tracer, like

SHAPED = ("normal", "uniform", "truncated_normal", "randint")


def _draw(name: str) -> Any:
    def draw(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any], original: Any) -> Any:
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        given.pop("seed", None)
        dtype = given.pop("dtype", None) or ("int32" if name in ("randint", "categorical") else adapter.floatx())
        if name in SHAPED:
            out = adapter.symbol(given["shape"], adapter.dtype_name(dtype))
            bounds = [given.pop(key) for key in list(given) if key != "shape"]
            return tracer.primitive(f"random_{name}", tuple(bounds), out, shape=tuple(given["shape"]))
        if name == "categorical":
            logits = given["logits"]
            out = adapter.symbol((logits.shape[0], given["num_samples"]), adapter.dtype_name(dtype))
            return tracer.primitive("random_categorical", (logits,), out, count=given["num_samples"])
        if name == "dropout":
            x, rate = given["inputs"], given["rate"]
            if not rate:
                return x
            shape = given["noise_shape"]
            shape = None if shape is None else [x.shape[i] if n is None else n for i, n in enumerate(shape)]
            return tracer.primitive("random_dropout", (x,), like(x), rate=rate, shape=shape)
        if name == "shuffle":
            return tracer.primitive("random_shuffle", (given["x"],), like(given["x"]), axis=given["axis"])
        return tracer.primitive(f"random_{name}", (), adapter.symbol(given["shape"], adapter.dtype_name(dtype)))

    return draw


for _name in (*SHAPED, "categorical", "dropout", "shuffle", "gamma", "beta", "binomial"):
    FUNCTIONS[f"random.{_name}"] = _draw(_name)
