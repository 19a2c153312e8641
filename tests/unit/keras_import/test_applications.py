"""The architectures of ``keras.applications``: read, optimized, and compared with Keras at two batch sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.frontends.keras import adapter
from tests.unit.keras_import.support import load_quietly, ops_of

pytestmark = [
    pytest.mark.slow,
    # To learn a shape, Keras's numpy backend runs a layer on arrays that hold anything; and exp overflows to the limit.
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*encountered in"),
]

SIZES = {
    **dict.fromkeys("ConvNeXtBase ConvNeXtLarge ConvNeXtSmall ConvNeXtXLarge".split(), 64),
    **dict.fromkeys("EfficientNetB4 EfficientNetB5 EfficientNetB6 EfficientNetB7".split(), 64),
    **dict.fromkeys("EfficientNetV2B3 EfficientNetV2S EfficientNetV2M EfficientNetV2L".split(), 64),
    **dict.fromkeys("ResNet101 ResNet101V2 ResNet152 ResNet152V2 DenseNet169 DenseNet201 VGG16 VGG19".split(), 64),
    **dict.fromkeys("InceptionResNetV2 InceptionV3 Xception".split(), 96),
}
"""Sizes of the images at which large networks are run, in place of their own: what is computed is the same."""
NODES = {"MobileNetV2": 108, "EfficientNetB0": 284, "ResNet50": 128}
"""How many ops there may be after O3."""


def architectures() -> list[str]:
    applications = adapter.api().applications
    return sorted(n for n, v in vars(applications).items() if callable(v) and n[0].isupper())


def build(name: str) -> Any:
    """The network without its last activation, with weights and statistics drawn so that the output varies.

    They are drawn so that normalizations rather shrink than grow: else deep networks magnify a rounding to any size.
    """
    options: dict[str, Any] = {"weights": None, "classifier_activation": None}
    if name in SIZES:
        options.update(input_shape=(SIZES[name], SIZES[name], 3), classes=10)
    if name.startswith("NASNet"):
        options.pop("classifier_activation")
    model = getattr(adapter.api().applications, name)(**options)
    rng = np.random.default_rng(0)
    for variable in model.weights:
        kind = variable.path.rsplit("/", 1)[-1]
        if kind in ("moving_mean", "beta", "bias"):
            variable.assign(rng.normal(0, 0.02, variable.shape))
        elif kind in ("moving_variance", "gamma"):
            variable.assign(rng.uniform(*((1.0, 1.4) if kind == "moving_variance" else (0.7, 1.0)), variable.shape))
    return model


@pytest.mark.parametrize("name", architectures())
def test_architecture(name: str) -> None:
    model = build(name)
    small = ik.optimize(load_quietly(model), "O3")
    run = ik.compile(small, "onnxruntime")
    sizes = [224 if d is None else d for d in model.input_shape[1:]]
    images = np.random.default_rng(1).uniform(0, 255, (3, *sizes)).astype(np.float32)
    if not name.startswith(("ConvNeXt", "EfficientNet", "MobileNetV3")):
        images = images / 128 - 1
    for batch in (1, 3):
        want = adapter.to_numpy(model(images[:batch], training=False))
        got = np.asarray(run(images[:batch]))
        scale = np.abs(want).max()
        assert np.isfinite(scale)
        assert want.std() > 1e-6 * scale, "an output that does not vary compares nothing"
        assert np.abs(got - want).max() <= 1e-4 * scale
    if name in NODES:
        assert len(ops_of(small)) <= NODES[name]
