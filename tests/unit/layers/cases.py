"""What the layers are compared with Keras on: shared by the tests and by the script that asks Keras.

A case is a layer as text that means the same in both APIs, and the shapes of its inputs. Inputs, weights and what the
outputs are multiplied by for the gradients are drawn from the case's own seed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """
    Attributes:
        layer: an expression over the names of layers.
        shapes: of the inputs, with the batch.
        integers: what inputs are smaller than, if they are whole numbers.
        call: ``"one"`` input, a ``"list"`` of them, or several arguments (``"args"``).
        kwargs: of the call.
        mask: whether it is called with a mask (batch, time).
        training: whether in training.
    """

    layer: str
    shapes: tuple[tuple[int, ...], ...]
    integers: int = 0
    call: str = "one"
    kwargs: tuple[tuple[str, Any], ...] = ()
    mask: bool = False
    training: bool = False

    @property
    def name(self) -> str:
        """Of the case in the file of goldens, and of its test."""
        marks = [*(f"{k}={v}" for k, v in self.kwargs), *["mask"] * self.mask, *["training"] * self.training]
        return " ".join([self.layer, *("x".join(map(str, shape)) for shape in self.shapes), *marks])

    def rng(self) -> np.random.Generator:
        """Always the same for a case."""
        return np.random.default_rng(zlib.crc32(self.name.encode()))

    def inputs(self) -> list[Array]:
        """What goes in."""
        rng = self.rng()
        if self.integers:
            return [rng.integers(0, self.integers, shape).astype(np.int32) for shape in self.shapes]
        return [rng.uniform(-2, 2, shape).astype(np.float32) for shape in self.shapes]

    def masked(self) -> Array:
        """A mask with holes, whose first row begins with one."""
        found = self.rng().uniform(size=self.shapes[0][:2]) > 0.4
        found[0, :2] = [False, True]
        found[1, -1] = False
        return found

    def weights(self, shapes: list[tuple[int, ...]], names: list[str]) -> list[Array]:
        """Values for weights; variances are positive."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()) + 1)
        made = [rng.uniform(-0.7, 0.7, shape).astype(np.float32) for shape in shapes]
        return [np.abs(v) + np.float32(0.3) if "variance" in name else v for v, name in zip(made, names, strict=True)]

    def factors(self, shapes: list[tuple[int, ...]]) -> list[Array]:
        """What outputs are multiplied by before they are summed up to a loss."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()) + 2)
        return [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]


def _of(layers: str, *shapes: tuple[int, ...], **options: Any) -> list[Case]:
    return [Case(line.strip(), shapes, **options) for line in layers.strip().splitlines()]


CASES: list[Case] = [
    *_of(
        """
        Dense(3)
        Dense(3, activation='gelu')
        Dense(3, activation='softmax', use_bias=False)
        """,
        (2, 4),
    ),
    *_of("Dense(3, activation='tanh')\nEinsumDense('abc,cd->abd', (None, 5), bias_axes='d')", (2, 3, 4)),
    *_of("EinsumDense('...x,xyz->...yz', (2, 3), bias_axes='yz')", (2, 3, 4)),
    *_of("Embedding(7, 3)", (2, 5), integers=7),
    *_of("Masking(0.0)\nIdentity()", (2, 3, 4)),
    # Activations
    *_of(
        """
        ReLU()
        ReLU(max_value=1.0, negative_slope=0.1, threshold=0.5)
        ReLU(max_value=1.0)
        ReLU(negative_slope=0.2)
        LeakyReLU()
        ELU(alpha=0.7)
        PReLU()
        Softmax()
        Softmax(axis=1)
        Softmax(axis=(1, 2))
        """,
        (2, 3, 4),
    ),
    *_of("PReLU(shared_axes=[1, 2])", (2, 3, 4, 5)),
    *_of("Softmax()", (2, 5), mask=True),
    *[
        Case(f"Activation('{name}')", ((2, 6),))
        for name in (
            "celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid "
            "log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus "
            "sparse_sigmoid squareplus tanh tanh_shrink"
        ).split()
    ],
    # Convolutions
    *_of(
        """
        Conv1D(4, 3)
        Conv1D(4, 3, padding='same', activation='relu')
        Conv1D(4, 3, padding='causal', dilation_rate=2)
        Conv1D(4, 3, strides=2, padding='same')
        Conv1D(4, 2, groups=2, use_bias=False)
        DepthwiseConv1D(3, depth_multiplier=2)
        DepthwiseConv1D(3, strides=2, padding='same')
        SeparableConv1D(3, 3, depth_multiplier=2)
        SeparableConv1D(3, 3, padding='same')
        Conv1DTranspose(3, 3)
        Conv1DTranspose(3, 4, strides=2, padding='same')
        Conv1DTranspose(3, 2, strides=3)
        MaxPooling1D()
        MaxPooling1D(3, strides=2, padding='same')
        AveragePooling1D(3, strides=1, padding='same')
        GlobalAveragePooling1D()
        GlobalAveragePooling1D(keepdims=True)
        GlobalMaxPooling1D()
        AdaptiveAveragePooling1D(3)
        AdaptiveMaxPooling1D(7)
        Cropping1D((1, 2))
        ZeroPadding1D(2)
        ZeroPadding1D((0, 2))
        UpSampling1D(3)
        """,
        (2, 7, 4),
    ),
    *_of(
        """
        Conv2D(3, 3)
        Conv2D(3, (3, 2), strides=(2, 1), padding='same', activation='softmax')
        Conv2D(4, 3, groups=2, padding='same')
        Conv2D(3, 3, dilation_rate=2, padding='same')
        DepthwiseConv2D(3)
        DepthwiseConv2D(3, strides=2, padding='same', depth_multiplier=2, activation='relu')
        SeparableConv2D(3, 3, strides=2, padding='same')
        Conv2DTranspose(3, 3)
        Conv2DTranspose(3, 3, strides=2, padding='same')
        Conv2DTranspose(3, 4, strides=2, padding='same', use_bias=False)
        Conv2DTranspose(3, 2, strides=3, padding='same')
        Conv2DTranspose(3, 3, strides=2)
        MaxPooling2D()
        MaxPooling2D((3, 2), strides=2, padding='same')
        AveragePooling2D(2)
        AveragePooling2D(3, strides=2, padding='same')
        GlobalAveragePooling2D()
        GlobalMaxPooling2D(keepdims=True)
        AdaptiveAveragePooling2D((3, 2))
        AdaptiveMaxPooling2D(4)
        Cropping2D(((1, 0), (2, 1)))
        ZeroPadding2D((1, 2))
        UpSampling2D((2, 3))
        UpSampling2D(2, interpolation='bilinear')
        SpatialDropout2D(0.5)
        Resizing(4, 9)
        Resizing(9, 4, interpolation='nearest')
        Resizing(11, 13, interpolation='bicubic')
        Resizing(4, 4, crop_to_aspect_ratio=True)
        CenterCrop(3, 4)
        CenterCrop(9, 4)
        Permute((2, 3, 1))
        Flatten()
        Flatten(data_format='channels_first')
        Reshape((7, 24))
        Reshape((-1, 8))
        """,
        (2, 7, 6, 4),
    ),
    *_of(
        """
        Conv2D(3, 3, data_format='channels_first', padding='same', strides=2)
        DepthwiseConv2D(3, data_format='channels_first')
        SeparableConv2D(3, 3, data_format='channels_first')
        Conv2DTranspose(3, 3, strides=2, data_format='channels_first', padding='same')
        GlobalAveragePooling2D(data_format='channels_first')
        ZeroPadding2D(1, data_format='channels_first')
        UpSampling2D(2, data_format='channels_first')
        BatchNormalization(axis=1)
        GroupNormalization(2, axis=1)
        """,
        (2, 4, 6, 5),
    ),
    *_of(
        """
        Conv3D(2, 2, padding='same')
        Conv3DTranspose(2, 2, strides=2)
        MaxPooling3D()
        AveragePooling3D(2, padding='same')
        GlobalAveragePooling3D()
        GlobalMaxPooling3D()
        AdaptiveAveragePooling3D(2)
        AdaptiveMaxPooling3D((3, 2, 1))
        Cropping3D(1)
        ZeroPadding3D((1, 0, 2))
        UpSampling3D(2)
        SpatialDropout3D(0.5)
        """,
        (2, 3, 4, 3, 2),
    ),
    # Normalizations
    *_of(
        """
        BatchNormalization()
        BatchNormalization(center=False, scale=False, axis=1)
        LayerNormalization()
        LayerNormalization(axis=(1, 2), epsilon=0.01)
        LayerNormalization(axis=1)
        RMSNormalization()
        GroupNormalization(2)
        GroupNormalization(-1, center=False, scale=False)
        UnitNormalization()
        UnitNormalization(axis=(1, 2))
        Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[1.0, 2.0, 3.0, 4.0])
        Normalization(axis=None, mean=1.0, variance=4.0, invert=True)
        Rescaling(0.5, offset=[1.0, 2.0, 3.0, 4.0])
        Dropout(0.5)
        SpatialDropout1D(0.5)
        GaussianNoise(0.5)
        GaussianDropout(0.5)
        AlphaDropout(0.5)
        ActivityRegularization(0.1)
        """,
        (2, 3, 4),
    ),
    *_of("BatchNormalization(momentum=0.8)", (4, 3), training=True),
    *_of("BatchNormalization()\nBatchNormalization(axis=1, scale=False)", (3, 4, 5, 2), training=True),
    *_of("BatchNormalization()", (3, 4, 2), training=True, mask=True),
    *_of("BatchNormalization(trainable=False)", (4, 3), training=True),
    *_of("RepeatVector(3)", (2, 4)),
    *_of("CategoryEncoding(5)\nCategoryEncoding(5, output_mode='count')", (2, 3), integers=5),
    *_of("CategoryEncoding(5, output_mode='one_hot')", (4,), integers=5),
    # Merging
    *_of(
        "Add()\nMultiply()\nAverage()\nMaximum()\nMinimum()\nConcatenate()\nConcatenate(axis=1)",
        (2, 3, 4),
        (2, 3, 4),
        (2, 3, 4),
        call="list",
    ),
    *_of("Subtract()", (2, 3, 4), (2, 3, 4), call="list"),
    *_of("Add()", (2, 3, 4), (2, 1, 4), call="list"),
    *_of("Dot(axes=1)\nDot(axes=-1, normalize=True)", (2, 3), (2, 3), call="list"),
    *_of("Dot(axes=(2, 1))", (2, 3, 4), (2, 4, 5), call="list"),
    # Recurrent layers
    *[
        Case(f"{layer}(3{options})", ((2, 5, 4),), mask=mask)
        for layer, more in (
            ("SimpleRNN", (", activation='relu'", ", use_bias=False")),
            ("LSTM", (", recurrent_activation='hard_sigmoid'", ", use_bias=False, unit_forget_bias=False")),
            ("GRU", (", reset_after=False", ", use_bias=False, reset_after=False", ", activation='gelu'")),
        )
        for options in (
            "",
            ", return_sequences=True",
            ", return_sequences=True, return_state=True, go_backwards=True",
            ", return_state=True",
            *more,
        )
        for mask in (False, True)
    ],
    *_of("LSTM(3, return_sequences=True, zero_output_for_mask=True)", (2, 5, 4), mask=True),
    *_of("RNN([LSTMCell(3), GRUCell(2)], return_sequences=True, return_state=True)", (2, 5, 4)),
    *_of("RNN(SimpleRNNCell(3), go_backwards=True)", (2, 5, 4)),
    *_of("Bidirectional(LSTM(3))\nBidirectional(GRU(3, return_sequences=True), merge_mode='sum')", (2, 5, 4)),
    *_of("Bidirectional(LSTM(3, return_sequences=True, return_state=True))", (2, 5, 4)),
    *_of("Bidirectional(SimpleRNN(3, return_sequences=True), merge_mode='ave')", (2, 5, 4), mask=True),
    *_of("Bidirectional(SimpleRNN(3), merge_mode='mul')", (2, 5, 4)),
    *_of("TimeDistributed(Dense(3))", (2, 5, 4)),
    *_of("TimeDistributed(Conv2D(2, 2))", (2, 3, 4, 4, 2)),
    *_of("GlobalAveragePooling1D()", (2, 5, 4), mask=True),
    # Attention
    *_of(
        "Attention()\nAttention(use_scale=True)\nAttention(score_mode='concat')\nAdditiveAttention()",
        (2, 3, 4),
        (2, 5, 4),
        call="list",
    ),
    *_of("Attention()", (2, 5, 4), (2, 5, 4), (2, 5, 4), call="list", kwargs=(("use_causal_mask", True),)),
    *_of(
        "MultiHeadAttention(2, 3)\nMultiHeadAttention(2, 3, value_dim=5, output_shape=6, use_bias=False)",
        (2, 3, 4),
        (2, 5, 4),
        call="args",
    ),
    *_of("MultiHeadAttention(2, 3)", (2, 5, 4), (2, 5, 4), call="args", kwargs=(("use_causal_mask", True),)),
    *_of("MultiHeadAttention(2, 3)", (2, 5, 4), (2, 5, 4), call="args", kwargs=(("return_attention_scores", True),)),
    *_of("MultiHeadAttention(2, 3, attention_axes=(1, 2))", (2, 3, 2, 4), (2, 2, 3, 4), call="args"),
    *_of("MultiHeadAttention(2, 3, attention_axes=2)", (2, 3, 2, 4), (2, 3, 3, 4), call="args"),
    *_of("GroupQueryAttention(3, 4, 2)", (2, 3, 4), (2, 5, 4), call="args"),
    *_of("GroupQueryAttention(3, 4, 2)", (2, 5, 4), (2, 5, 4), call="args", kwargs=(("use_causal_mask", True),)),
]  # fmt: skip
