"""Loads models on whatever backend Keras is run on, each compared with Keras there: ``python -m ... BACKEND``.

Run in a process of its own by ``test_backends``, since a process has one backend.
"""

from __future__ import annotations

import os
import sys
import warnings

CASES = (
    "Dense-rank3 Conv2D-same_strides Conv1D-causal Conv2DTranspose-same_strides Conv2DTranspose-valid_strides "
    "Conv2DTranspose-output_padding DepthwiseConv2D-multiplier AveragePooling2D-same MaxPooling1D-same "
    "BatchNormalization-rank4 LSTM-sequences GRU-backwards LSTM-masked MultiHeadAttention-causal Resizing-nearest_up "
    "Resizing-antialias Resizing-bicubic_down UpSampling2D-bilinear Activation-gelu GroupNormalization-plain"
).split()


def main(backend: str) -> None:
    """Loads all of them; says how many were compared."""
    os.environ["KERAS_BACKEND"] = backend
    import keras

    from irkit.frontends import keras as from_keras
    from tests.unit.keras_import.cases import CASES as ALL
    from tests.unit.keras_import.cases import model_of
    from tests.unit.keras_import.op_cases import ELSEWHERE
    from tests.unit.keras_import.support import op_model

    assert keras.config.backend() == backend
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", from_keras.UncheckedWarning)
    cases = {case.id: case for case in ALL}
    for name in CASES:
        from_keras.load(model_of(cases[name]))
    for expression in sorted(ELSEWHERE):
        model, specs = op_model(expression)
        from_keras.load(model, inputs=specs)
    print(len(CASES) + len(ELSEWHERE), "compared on", backend)


if __name__ == "__main__":
    main(sys.argv[1])
