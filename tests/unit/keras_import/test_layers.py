"""Every layer in many configurations: the graph gives what Keras gives, at several batch sizes and lengths."""

from __future__ import annotations

import numpy as np
import pytest

import irkit as ik
from irkit.frontends.keras import adapter
from tests.unit.keras_import.cases import CASES, Case, feeds_of, model_of
from tests.unit.keras_import.support import arrays, assert_same, lifted, load_quietly

# Keras's variables know only NumPy's old protocol for conversion.
pytestmark = [
    # To learn a shape, Keras's numpy backend runs a layer on arrays that hold anything.
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
]

QUICK = frozenset(
    "Dense-rank3 EinsumDense-heads Embedding-masked ReversibleEmbedding-tied Lambda-ops Masking-plain Activation-glu "
    "PReLU-shared ReLU-bounded Softmax-axes Conv1D-causal Conv2D-same_strides Conv2D-open_same Conv3D-groups "
    "Conv2DTranspose-same_strides Conv2DTranspose-valid_strides DepthwiseConv2D-multiplier SeparableConv1D-plain "
    "AveragePooling2D-same MaxPooling1D-same GlobalAveragePooling1D-masked AdaptiveAveragePooling2D-uneven "
    "BatchNormalization-rank4 LayerNormalization-inner GroupNormalization-instance RMSNormalization-plain "
    "UnitNormalization-plain SpectralNormalization-dense Dropout-plain Add-rank Dot-normalized Flatten-plain "
    "Reshape-open "
    "UpSampling2D-bilinear ZeroPadding2D-sides Attention-causal MultiHeadAttention-masked GroupedQueryAttention-plain "
    "LSTM-sequences GRU-reset_before SimpleRNN-masked_backwards LSTM-masked Bidirectional-LSTM_concat RNN-stacked "
    "TimeDistributed-open_conv ConvLSTM1D-sequences Normalization-given Discretization-count "
    "CategoryEncoding-multi_hot "
    "MelSpectrogram-plain Resizing-bicubic_down RandomFlip-plain Pipeline-plain".split()
)
"""Cases of the default tier: one or two of each family."""


def test_the_quick_cases_exist() -> None:
    assert {case.id for case in CASES} >= QUICK
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.id, marks=() if c.id in QUICK else pytest.mark.slow) for c in CASES]
)
def test_inference(case: Case) -> None:
    model = model_of(case)
    module = lifted(load_quietly(model))
    compiled = {name: ik.compile(module, backend=name) for name in ("numpy", "onnxruntime")}
    for batch, size in ((1, case.sizes[0]), (3, case.sizes[1]), (4, case.sizes[0])):
        for variable in adapter.variables_of(model):
            if "rnn_state" in variable.path:
                variable.assign(np.zeros(variable.shape))
        feeds = feeds_of(case, batch, size)
        want = arrays(model(feeds if len(feeds) > 1 else feeds[0], training=False))
        for name, run in compiled.items():
            found = run.run(dict(zip(module.input_names, feeds, strict=False)))
            got = [np.asarray(v) for v in found.values()][: len(want)]
            assert_same(got, want, case.tolerance, f"{name} at batch {batch}")


def test_every_layer_has_a_case_or_a_reason() -> None:
    from tests.unit.keras_import.coverage import classes, without_case

    covered = {case.layer for case in CASES}
    assert covered <= set(classes())
    assert set(classes()) - covered == set(without_case())
