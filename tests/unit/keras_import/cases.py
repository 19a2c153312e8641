"""Configurations of Keras's layers: how each is made and what it takes.

A case is a line of ``CASES``: the class, the configuration's name, a function that makes a model, and the shapes of
the inputs without the batch. Inputs are drawn from a normal distribution unless the case says otherwise. Weights are
drawn anew after the model is made, so that none is zero or one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irkit.frontends.keras import adapter

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def pixels(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.random(shape) * 255).astype(np.float32)


def unit(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.random(shape).astype(np.float32)


def below(n: int, dtype: str = "int32") -> Draw:
    return lambda rng, shape: rng.integers(0, n, shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """One configuration.

    Attributes:
        layer: the class.
        name: of the configuration.
        make: a function of ``keras.layers`` and symbolic inputs that returns outputs.
        shapes: of the inputs, without the batch; None where a size is open.
        draw: makes an input.
        sizes: what the open sizes are in the test.
        batch: a fixed batch size, for layers that keep state.
        tolerance: absolute and relative.
        training: whether the layer can be compared with Keras in training, too.
    """

    layer: str
    name: str
    make: Callable[..., Any]
    shapes: Sequence[tuple[int | None, ...]]
    draw: Draw = normal
    sizes: tuple[int, ...] = (7, 12)
    batch: int | None = None
    tolerance: float = 1e-4
    training: bool = True

    @property
    def id(self) -> str:
        return f"{self.layer}-{self.name}"


CASES: list[Case] = []


def case(layer: str, name: str, make: Callable[..., Any], *shapes: tuple[int | None, ...], **more: Any) -> None:
    CASES.append(Case(layer, name, make, shapes, **more))


def model_of(chosen: Case, dtype: str | None = None) -> Any:
    """The model of a case, with weights drawn at random."""
    keras = adapter.api()
    rng = np.random.default_rng(len(chosen.id))
    probe = chosen.draw(rng, (1,))
    inputs = [
        keras.Input(
            shape=shape,
            batch_size=chosen.batch,
            dtype=dtype if dtype and probe.dtype.kind == "f" else str(probe.dtype),
            name=f"x{i}",
        )
        for i, shape in enumerate(chosen.shapes)
    ]
    outputs = chosen.make(keras.layers, *inputs)
    model = keras.Model(inputs if len(inputs) > 1 else inputs[0], outputs)
    for variable in model.weights:
        if any(part in variable.path for part in ("seed_generator", "rnn_state")) or not variable.dtype.startswith(
            "float"
        ):
            continue
        low = 0.2 if any(part in variable.path for part in ("variance", "gamma")) else -0.6
        variable.assign(rng.uniform(low, 0.8, variable.shape))
    return model


def feeds_of(chosen: Case, batch: int, size: int, seed: int = 0) -> list[np.ndarray]:
    """Inputs for a case."""
    rng = np.random.default_rng(seed + batch)
    return [
        chosen.draw(rng, (chosen.batch or batch, *(size if d is None else d for d in shape))) for shape in chosen.shapes
    ]


def custom(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A model part that runs operations on the first input: ``function(keras, x)``."""

    def make(layers: Any, *inputs: Any) -> Any:
        keras = adapter.api()

        class Custom(keras.layers.Layer):
            def call(self, x: Any) -> Any:
                return function(keras, x)

        return Custom()(inputs[0] if len(inputs) == 1 else list(inputs))

    return make


# Core

case("Dense", "plain", lambda L, x: L.Dense(5)(x), (6,))
case("Dense", "rank3", lambda L, x: L.Dense(5, activation="gelu")(x), (None, 6))
case("Dense", "no_bias", lambda L, x: L.Dense(5, use_bias=False, activation="selu")(x), (6,))
case("EinsumDense", "rank2", lambda L, x: L.EinsumDense("ab,bc->ac", output_shape=5, bias_axes="c")(x), (6,))
case(
    "EinsumDense",
    "heads",
    lambda L, x: L.EinsumDense("abc,cde->abde", output_shape=(None, 2, 4), bias_axes="de")(x),
    (None, 6),
)
case(
    "EinsumDense", "ellipsis", lambda L, x: L.EinsumDense("...x,xy->...y", output_shape=5, bias_axes="y")(x), (3, 4, 6)
)
case("EinsumDense", "inner", lambda L, x: L.EinsumDense("abc,bd->adc", output_shape=(5, 6))(x), (4, 6))
case("Embedding", "plain", lambda L, x: L.Embedding(11, 4)(x), (None,), draw=below(11))
case("Embedding", "masked", lambda L, x: L.Dense(3)(L.Embedding(11, 4, mask_zero=True)(x)), (6,), draw=below(11))
case("ReversibleEmbedding", "forward", lambda L, x: L.ReversibleEmbedding(11, 4)(x), (6,), draw=below(11))
case(
    "ReversibleEmbedding",
    "tied",
    lambda L, x: (lambda e: e(e(x), reverse=True))(L.ReversibleEmbedding(11, 4)),
    (6,),
    draw=below(11),
)
case(
    "ReversibleEmbedding",
    "untied",
    lambda L, x: (lambda e: e(e(x), reverse=True))(L.ReversibleEmbedding(11, 4, tie_weights=False)),
    (6,),
    draw=below(11),
)
case("Identity", "plain", lambda L, x: L.Identity()(x), (6,))
case("InputLayer", "plain", lambda L, x: L.Dense(2)(x), (6,))
case("Lambda", "plain", lambda L, x: L.Lambda(lambda t: t * 2 + 1)(x), (6,))
case(
    "Lambda",
    "ops",
    lambda L, x: L.Lambda(lambda t: adapter.api().ops.sum(adapter.api().ops.sin(t), axis=1))(x),
    (None, 6),
)
case("Masking", "plain", lambda L, x: L.Masking()(x), (None, 4))
case(
    "Masking",
    "value",
    lambda L, x: L.LSTM(3)(L.Masking(mask_value=1.0)(x)),
    (5, 4),
    draw=lambda rng, s: (
        np.where(rng.random((*s[:-1], 1)) < 0.4, 1.0, normal(rng, s)).astype(np.float32)
        if len(s) > 1
        else normal(rng, s)
    ),
)
case(
    "Wrapper",
    "subclass",
    lambda L, x: type("Twice", (L.Wrapper,), {"call": lambda self, t: self.layer(self.layer(t))})(L.Dense(6))(x),
    (6,),
)
case("Layer", "subclass", custom(lambda keras, x: keras.ops.concatenate([x, keras.ops.relu(x)], axis=-1)), (6,))

# Activations

for _name in (
    "relu relu6 sigmoid tanh softplus softsign silu gelu elu selu celu leaky_relu hard_sigmoid hard_silu log_sigmoid "
    "log_softmax softmax mish tanh_shrink soft_shrink hard_shrink hard_tanh squareplus sparse_plus sparse_sigmoid "
    "sparsemax threshold exponential linear glu"
).split():
    case(
        "Activation",
        _name,
        lambda L, x, n=_name: L.Activation(
            (lambda t: adapter.api().activations.threshold(t, 0.3, -1.0)) if n == "threshold" else n
        )(x),
        (3, 6),
    )
case("ELU", "plain", lambda L, x: L.ELU(alpha=0.7)(x), (6,))
case("LeakyReLU", "plain", lambda L, x: L.LeakyReLU(negative_slope=0.3)(x), (6,))
case("PReLU", "plain", lambda L, x: L.PReLU()(x), (6,))
case("PReLU", "shared", lambda L, x: L.PReLU(shared_axes=[1, 2])(x), (4, 5, 3))
case("ReLU", "plain", lambda L, x: L.ReLU()(x), (6,))
case("ReLU", "bounded", lambda L, x: L.ReLU(max_value=0.8, negative_slope=0.1, threshold=0.2)(x), (6,))
case("ReLU", "six", lambda L, x: L.ReLU(6.0)(x), (6,))
case("ReLU", "slope", lambda L, x: L.ReLU(negative_slope=0.2)(x), (6,))
case("Softmax", "last", lambda L, x: L.Softmax()(x), (4, 6))
case("Softmax", "axes", lambda L, x: L.Softmax(axis=(1, 2))(x), (4, 6))
case("Softmax", "masked", lambda L, x, y: L.Softmax()(x, mask=adapter.api().ops.greater(y, 0.0)), (4, 6), (4, 6))

# Convolutions

for _n, _shape in (("1D", (20,)), ("2D", (9, 11)), ("3D", (6, 7, 8))):
    case(f"Conv{_n}", "valid", lambda L, x, n=_n: getattr(L, f"Conv{n}")(4, 3, activation="relu")(x), (*_shape, 3))
    case(
        f"Conv{_n}",
        "same_strides",
        lambda L, x, n=_n: getattr(L, f"Conv{n}")(4, 3, strides=2, padding="same")(x),
        (*_shape, 3),
    )
    case(
        f"Conv{_n}",
        "dilated",
        lambda L, x, n=_n: getattr(L, f"Conv{n}")(4, 2, dilation_rate=2, padding="same")(x),
        (*_shape, 3),
    )
    case(
        f"Conv{_n}",
        "groups",
        lambda L, x, n=_n: getattr(L, f"Conv{n}")(6, 3, groups=2, use_bias=False)(x),
        (*_shape, 4),
    )
    case(
        f"Conv{_n}",
        "first",
        lambda L, x, n=_n: getattr(L, f"Conv{n}")(4, 3, data_format="channels_first", padding="same")(x),
        (3, *_shape),
    )
    case(
        f"Conv{_n}Transpose",
        "valid",
        lambda L, x, n=_n: getattr(L, f"Conv{n}Transpose")(4, 3)(x),
        (*[5] * len(_shape), 3),
    )
    case(
        f"Conv{_n}Transpose",
        "same_strides",
        lambda L, x, n=_n: getattr(L, f"Conv{n}Transpose")(4, 3, strides=2, padding="same")(x),
        (*[5] * len(_shape), 3),
    )
    case(
        f"Conv{_n}Transpose",
        "valid_strides",
        lambda L, x, n=_n: getattr(L, f"Conv{n}Transpose")(4, 2, strides=3, padding="valid")(x),
        (*[4] * len(_shape), 3),
    )
    case(
        f"Conv{_n}Transpose",
        "even_kernel",
        lambda L, x, n=_n: getattr(L, f"Conv{n}Transpose")(4, 4, strides=2, padding="same", use_bias=False)(x),
        (*[4] * len(_shape), 3),
    )
case("Conv1D", "causal", lambda L, x: L.Conv1D(4, 3, padding="causal", dilation_rate=2)(x), (None, 3))
case("Conv1D", "open_same_strides", lambda L, x: L.Conv1D(4, 3, strides=2, padding="same")(x), (None, 3))
case(
    "Conv2D",
    "open_same",
    lambda L, x: L.Conv2D(4, 3, strides=2, padding="same")(L.Conv2D(2, 3, padding="same")(x)),
    (None, None, 3),
)
case(
    "Conv2DTranspose",
    "output_padding",
    lambda L, x: L.Conv2DTranspose(4, 3, strides=2, padding="same", output_padding=1)(x),
    (5, 5, 3),
)
case("Conv2DTranspose", "dilated", lambda L, x: L.Conv2DTranspose(4, 3, dilation_rate=2)(x), (5, 5, 3))
case("Conv2DTranspose", "open", lambda L, x: L.Conv2DTranspose(4, 3, strides=2, padding="same")(x), (None, None, 3))
case("DepthwiseConv1D", "plain", lambda L, x: L.DepthwiseConv1D(3, padding="same")(x), (20, 3))
case("DepthwiseConv1D", "multiplier", lambda L, x: L.DepthwiseConv1D(3, depth_multiplier=2, strides=2)(x), (20, 3))
case("DepthwiseConv2D", "plain", lambda L, x: L.DepthwiseConv2D(3)(x), (9, 11, 3))
case(
    "DepthwiseConv2D",
    "multiplier",
    lambda L, x: L.DepthwiseConv2D(3, depth_multiplier=2, strides=2, padding="same")(x),
    (9, 11, 3),
)
case(
    "DepthwiseConv2D",
    "dilated_first",
    lambda L, x: L.DepthwiseConv2D(3, dilation_rate=2, data_format="channels_first")(x),
    (3, 9, 11),
)
case("SeparableConv1D", "plain", lambda L, x: L.SeparableConv1D(4, 3, padding="same")(x), (20, 3))
case("SeparableConv1D", "multiplier", lambda L, x: L.SeparableConv1D(4, 3, depth_multiplier=2, strides=2)(x), (20, 3))
case("SeparableConv2D", "plain", lambda L, x: L.SeparableConv2D(4, 3, padding="same", activation="relu")(x), (9, 11, 3))
case(
    "SeparableConv2D", "multiplier", lambda L, x: L.SeparableConv2D(4, 3, depth_multiplier=2, strides=2)(x), (9, 11, 3)
)

# Pooling

for _n, _shape in (("1D", (9,)), ("2D", (9, 8)), ("3D", (6, 7, 8))):
    for _kind in ("Average", "Max"):
        case(
            f"{_kind}Pooling{_n}", "valid", lambda L, x, n=_n, k=_kind: getattr(L, f"{k}Pooling{n}")(2)(x), (*_shape, 3)
        )
        case(
            f"{_kind}Pooling{_n}",
            "same",
            lambda L, x, n=_n, k=_kind: getattr(L, f"{k}Pooling{n}")(3, strides=2, padding="same")(x),
            (*_shape, 3),
        )
        case(
            f"{_kind}Pooling{_n}",
            "first",
            lambda L, x, n=_n, k=_kind: getattr(L, f"{k}Pooling{n}")(2, data_format="channels_first")(x),
            (3, *_shape),
        )
        case(
            f"Global{_kind}Pooling{_n}",
            "plain",
            lambda L, x, n=_n, k=_kind: getattr(L, f"Global{k}Pooling{n}")()(x),
            (*[None] * len(_shape), 3),
        )
        case(
            f"Global{_kind}Pooling{_n}",
            "keepdims",
            lambda L, x, n=_n, k=_kind: getattr(L, f"Global{k}Pooling{n}")(keepdims=True)(x),
            (*_shape, 3),
        )
        case(
            f"Adaptive{_kind}Pooling{_n}",
            "divides",
            lambda L, x, n=_n, k=_kind: getattr(L, f"Adaptive{k}Pooling{n}")(3)(x),
            (*[6] * len(_shape), 3),
        )
        case(
            f"Adaptive{_kind}Pooling{_n}",
            "uneven",
            lambda L, x, n=_n, k=_kind: getattr(L, f"Adaptive{k}Pooling{n}")(3)(x),
            (*[7] * len(_shape), 2),
        )
case(
    "GlobalAveragePooling1D",
    "masked",
    lambda L, x: L.GlobalAveragePooling1D()(L.Embedding(5, 4, mask_zero=True)(x)),
    (6,),
    draw=below(5),
)

# Normalization

case("BatchNormalization", "rank2", lambda L, x: L.BatchNormalization()(x), (6,))
case("BatchNormalization", "rank4", lambda L, x: L.BatchNormalization()(x), (5, 6, 3))
case("BatchNormalization", "no_scale", lambda L, x: L.BatchNormalization(scale=False, center=False)(x), (5, 6, 3))
case("BatchNormalization", "axis1", lambda L, x: L.BatchNormalization(axis=1)(x), (3, 5, 6))
case("BatchNormalization", "axis2", lambda L, x: L.BatchNormalization(axis=2)(x), (3, 5, 6))
case("LayerNormalization", "last", lambda L, x: L.LayerNormalization()(x), (None, 6))
case("LayerNormalization", "axes", lambda L, x: L.LayerNormalization(axis=[1, 2, 3])(x), (3, 4, 5))
case("LayerNormalization", "inner", lambda L, x: L.LayerNormalization(axis=1)(x), (3, 4, 5))
case("LayerNormalization", "no_scale", lambda L, x: L.LayerNormalization(scale=False)(x), (4, 6))
case("LayerNormalization", "no_center", lambda L, x: L.LayerNormalization(center=False)(x), (4, 6))
case("GroupNormalization", "plain", lambda L, x: L.GroupNormalization(groups=2)(x), (5, 6, 4))
case("GroupNormalization", "instance", lambda L, x: L.GroupNormalization(groups=-1)(x), (None, None, 4))
case("GroupNormalization", "axis1", lambda L, x: L.GroupNormalization(groups=2, axis=1, scale=False)(x), (4, 5, 6))
case("RMSNormalization", "plain", lambda L, x: L.RMSNormalization()(x), (None, 6))
case("UnitNormalization", "plain", lambda L, x: L.UnitNormalization()(x), (5, 6))
case("UnitNormalization", "axes", lambda L, x: L.UnitNormalization(axis=[1, 2])(x), (5, 6))
case("SpectralNormalization", "dense", lambda L, x: L.SpectralNormalization(L.Dense(4))(x), (6,))
case("SpectralNormalization", "conv", lambda L, x: L.SpectralNormalization(L.Conv2D(4, 3))(x), (6, 6, 3))

# Regularization: at inference all of these are the identity, or nearly so

for _name, _args in (
    ("Dropout", "0.5"),
    ("AlphaDropout", "0.5"),
    ("GaussianDropout", "0.5"),
    ("GaussianNoise", "0.5"),
    ("ActivityRegularization", "l1=0.1"),
):
    case(
        _name,
        "plain",
        lambda L, x, n=_name, a=_args: eval(f"L.{n}({a})", {"L": L})(x),
        (6,),
        training=_name == "ActivityRegularization",
    )
for _n, _shape in (("1D", (5,)), ("2D", (5, 6)), ("3D", (4, 5, 6))):
    case(
        f"SpatialDropout{_n}",
        "plain",
        lambda L, x, n=_n: getattr(L, f"SpatialDropout{n}")(0.4)(x),
        (*_shape, 3),
        training=False,
    )

# Merging

for _name in ("Add", "Average", "Maximum", "Minimum", "Multiply", "Subtract"):
    case(_name, "two", lambda L, x, y, n=_name: getattr(L, n)()([x, y]), (5, 6), (5, 6))
for _name in ("Add", "Average", "Maximum", "Multiply"):
    case(_name, "broadcast", lambda L, x, y, n=_name: getattr(L, n)()([x, y]), (5, 6), (6,) if False else (1, 6))
case("Add", "rank", lambda L, x, y: L.Add()([x, y]), (5, 6), (6,))
case("Concatenate", "last", lambda L, x, y: L.Concatenate()([x, y]), (5, 6), (5, 3))
case("Concatenate", "first", lambda L, x, y: L.Concatenate(axis=1)([x, y]), (5, 6), (4, 6))
case("Dot", "vectors", lambda L, x, y: L.Dot(axes=1)([x, y]), (6,), (6,))
case("Dot", "matrices", lambda L, x, y: L.Dot(axes=(2, 1), normalize=False)([x, y]), (5, 6), (6, 4))
case("Dot", "normalized", lambda L, x, y: L.Dot(axes=1, normalize=True)([x, y]), (6,), (6,))

# Reshaping

case("Flatten", "plain", lambda L, x: L.Flatten()(x), (3, 4, 5))
case("Flatten", "first", lambda L, x: L.Flatten(data_format="channels_first")(x), (3, 4, 5))
case("Permute", "plain", lambda L, x: L.Permute((2, 1))(x), (None, 6))
case("RepeatVector", "plain", lambda L, x: L.RepeatVector(3)(x), (6,))
case("Reshape", "plain", lambda L, x: L.Reshape((4, 3))(x), (6, 2))
case("Reshape", "open", lambda L, x: L.Reshape((-1, 3))(x), (6, 2))
for _n, _shape in (("1D", (8,)), ("2D", (8, 7)), ("3D", (6, 7, 8))):
    case(f"Cropping{_n}", "plain", lambda L, x, n=_n: getattr(L, f"Cropping{n}")(1)(x), (*_shape, 3))
    case(f"UpSampling{_n}", "plain", lambda L, x, n=_n: getattr(L, f"UpSampling{n}")(2)(x), (*_shape, 3))
    case(f"ZeroPadding{_n}", "plain", lambda L, x, n=_n: getattr(L, f"ZeroPadding{n}")(2)(x), (*_shape, 3))
case("Cropping1D", "open", lambda L, x: L.Cropping1D((1, 2))(x), (None, 3))
case("Cropping2D", "sides", lambda L, x: L.Cropping2D(((1, 2), (0, 3)))(x), (8, 7, 3))
case("ZeroPadding2D", "sides", lambda L, x: L.Conv2D(2, 3)(L.ZeroPadding2D(((1, 2), (0, 3)))(x)), (8, 7, 3))
case("UpSampling2D", "bilinear", lambda L, x: L.UpSampling2D((2, 3), interpolation="bilinear")(x), (5, 6, 3))
case("UpSampling2D", "bicubic", lambda L, x: L.UpSampling2D(2, interpolation="bicubic")(x), (5, 6, 3))
case("UpSampling2D", "open_first", lambda L, x: L.UpSampling2D(2, data_format="channels_first")(x), (3, None, None))

# Attention

case("Attention", "plain", lambda L, x, y: L.Attention()([x, y]), (5, 6), (4, 6))
case("Attention", "scaled", lambda L, x, y: L.Attention(use_scale=True)([x, y]), (5, 6), (4, 6))
case("Attention", "concat", lambda L, x, y: L.Attention(score_mode="concat")([x, y]), (5, 6), (4, 6))
case("Attention", "causal", lambda L, x: L.Attention()([x, x], use_causal_mask=True), (None, 6))
case(
    "Attention",
    "masked",
    lambda L, x: (lambda e: L.Attention()([e, e]))(L.Embedding(5, 4, mask_zero=True)(x)),
    (6,),
    draw=below(5),
)
case("AdditiveAttention", "plain", lambda L, x, y: L.AdditiveAttention()([x, y]), (5, 6), (4, 6))
case(
    "AdditiveAttention",
    "causal",
    lambda L, x, y: L.AdditiveAttention(use_scale=False)([x, y], use_causal_mask=True),
    (5, 6),
    (5, 6),
)
case("MultiHeadAttention", "self", lambda L, x: L.MultiHeadAttention(2, 3)(x, x), (None, 6))
case(
    "MultiHeadAttention",
    "cross",
    lambda L, x, y: L.MultiHeadAttention(2, 3, value_dim=4, output_shape=7)(x, y),
    (5, 6),
    (4, 8),
)
case("MultiHeadAttention", "causal", lambda L, x: L.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True), (None, 6))
case(
    "MultiHeadAttention", "scores", lambda L, x: L.MultiHeadAttention(2, 3)(x, x, return_attention_scores=True), (5, 6)
)
case(
    "MultiHeadAttention", "dropout", lambda L, x: L.MultiHeadAttention(2, 3, dropout=0.3)(x, x), (5, 6), training=False
)
case(
    "MultiHeadAttention",
    "masked",
    lambda L, x: (lambda e: L.MultiHeadAttention(2, 3)(e, e))(L.Embedding(5, 4, mask_zero=True)(x)),
    (6,),
    draw=below(5),
)
case("MultiHeadAttention", "images", lambda L, x: L.MultiHeadAttention(2, 3, attention_axes=(1, 2))(x, x), (3, 4, 6))
case("GroupedQueryAttention", "plain", lambda L, x, y: L.GroupQueryAttention(3, 4, 2)(x, y), (5, 6), (4, 6))
case(
    "GroupedQueryAttention",
    "causal",
    lambda L, x: L.GroupQueryAttention(3, 4, 2)(x, x, use_causal_mask=True),
    (None, 6),
)

# Recurrent

for _name in ("LSTM", "GRU", "SimpleRNN"):
    case(_name, "last", lambda L, x, n=_name: getattr(L, n)(4)(x), (None, 3))
    case(
        _name,
        "sequences",
        lambda L, x, n=_name: getattr(L, n)(4, return_sequences=True, return_state=True)(x),
        (None, 3),
    )
    case(
        _name,
        "backwards",
        lambda L, x, n=_name: getattr(L, n)(4, return_sequences=True, go_backwards=True)(x),
        (None, 3),
    )
    case(_name, "no_bias", lambda L, x, n=_name: getattr(L, n)(4, use_bias=False)(x), (5, 3))
    case(_name, "unrolled", lambda L, x, n=_name: getattr(L, n)(4, unroll=True, return_sequences=True)(x), (5, 3))
    case(
        _name,
        "masked",
        lambda L, x, n=_name: getattr(L, n)(4, return_sequences=True)(L.Embedding(4, 3, mask_zero=True)(x)),
        (None,),
        draw=below(4),
    )
    case(
        _name,
        "masked_backwards",
        lambda L, x, n=_name: getattr(L, n)(4, go_backwards=True)(L.Embedding(4, 3, mask_zero=True)(x)),
        (6,),
        draw=below(4),
    )
    case(
        _name,
        "masked_unrolled",
        lambda L, x, n=_name: getattr(L, n)(4, unroll=True, return_sequences=True)(
            L.Embedding(4, 3, mask_zero=True)(x)
        ),
        (6,),
        draw=below(4),
    )
    case(_name, "activation", lambda L, x, n=_name: getattr(L, n)(4, activation="relu")(x), (5, 3))
    case(_name, "odd_activation", lambda L, x, n=_name: getattr(L, n)(4, activation="silu")(x), (5, 3))
    case(_name, "stateful", lambda L, x, n=_name: getattr(L, n)(4, stateful=True)(x), (5, 3), batch=3)
    case(
        "Bidirectional",
        f"{_name}_concat",
        lambda L, x, n=_name: L.Bidirectional(getattr(L, n)(4, return_sequences=True))(x),
        (None, 3),
    )
    case(
        "Bidirectional",
        f"{_name}_sum_state",
        lambda L, x, n=_name: L.Bidirectional(getattr(L, n)(4, return_state=True), merge_mode="sum")(x),
        (None, 3),
    )
    case(
        "Bidirectional",
        f"{_name}_masked",
        lambda L, x, n=_name: L.Bidirectional(getattr(L, n)(4))(L.Embedding(4, 3, mask_zero=True)(x)),
        (6,),
        draw=below(4),
    )
case("LSTM", "initial_state", lambda L, x, h, c: L.LSTM(4)(x, initial_state=[h, c]), (None, 3), (4,), (4,))
case("GRU", "initial_state", lambda L, x, h: L.GRU(4)(x, initial_state=h), (None, 3), (4,))
case("GRU", "reset_before", lambda L, x: L.GRU(4, reset_after=False, return_sequences=True)(x), (None, 3))
case("LSTM", "hard_sigmoid", lambda L, x: L.LSTM(4, recurrent_activation="hard_sigmoid")(x), (5, 3))
case("SimpleRNN", "linear", lambda L, x: L.SimpleRNN(4, activation=None)(x), (5, 3))
case("Bidirectional", "average", lambda L, x: L.Bidirectional(L.LSTM(4), merge_mode="ave")(x), (5, 3))
case("Bidirectional", "product", lambda L, x: L.Bidirectional(L.GRU(4), merge_mode="mul")(x), (5, 3))
case("Bidirectional", "separate", lambda L, x: L.Bidirectional(L.GRU(4), merge_mode=None)(x), (5, 3))
case(
    "Bidirectional",
    "two_kinds",
    lambda L, x: L.Bidirectional(L.LSTM(4), backward_layer=L.GRU(5, go_backwards=True))(x),
    (5, 3),
)
case("RNN", "cell", lambda L, x: L.RNN(L.LSTMCell(4), return_sequences=True)(x), (None, 3))
case("RNN", "stacked", lambda L, x: L.RNN([L.LSTMCell(4), L.GRUCell(5)], return_state=True)(x), (None, 3))
case(
    "RNN",
    "zero_output",
    lambda L, x: L.RNN(L.GRUCell(4), return_sequences=True, zero_output_for_mask=True)(
        L.Embedding(4, 3, mask_zero=True)(x)
    ),
    (None,),
    draw=below(4),
)
case("LSTMCell", "call", lambda L, x, h, c: L.LSTMCell(4)(x, [h, c]), (3,), (4,), (4,))
case("GRUCell", "call", lambda L, x, h: L.GRUCell(4)(x, [h]), (3,), (4,))
case("SimpleRNNCell", "call", lambda L, x, h: L.SimpleRNNCell(4)(x, [h]), (3,), (4,))
case("StackedRNNCells", "rnn", lambda L, x: L.RNN(L.StackedRNNCells([L.SimpleRNNCell(4), L.LSTMCell(3)]))(x), (5, 3))
case("TimeDistributed", "dense", lambda L, x: L.TimeDistributed(L.Dense(4))(x), (None, 3))
case("TimeDistributed", "conv", lambda L, x: L.TimeDistributed(L.Conv2D(4, 3))(x), (3, 6, 7, 2))
case("TimeDistributed", "open_conv", lambda L, x: L.TimeDistributed(L.Conv1D(4, 3))(x), (None, 6, 2))
for _n, _shape in (("1D", (6,)), ("2D", (5, 6)), ("3D", (4, 5, 6))):
    case(
        f"ConvLSTM{_n}", "last", lambda L, x, n=_n: getattr(L, f"ConvLSTM{n}")(3, 3, padding="same")(x), (4, *_shape, 2)
    )
    case(
        f"ConvLSTM{_n}",
        "sequences",
        lambda L, x, n=_n: getattr(L, f"ConvLSTM{n}")(3, 2, return_sequences=True)(x),
        (None, *_shape, 2),
    )

# Preprocessing

case("Rescaling", "plain", lambda L, x: L.Rescaling(1 / 127.5, offset=-1)(x), (5, 6, 3), draw=pixels)
case("Normalization", "given", lambda L, x: L.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0, 4.0, 9.0])(x), (3,))
case("Normalization", "inverse", lambda L, x: L.Normalization(mean=2.0, variance=4.0, axis=None, invert=True)(x), (3,))
case("Discretization", "int", lambda L, x: L.Discretization([-1.0, 0.0, 1.0])(x), (6,))
case("Discretization", "one_hot", lambda L, x: L.Discretization([-1.0, 0.0, 1.0], output_mode="one_hot")(x), (1,))
case("Discretization", "count", lambda L, x: L.Discretization([-1.0, 0.0, 1.0], output_mode="count")(x), (6,))
case("CategoryEncoding", "multi_hot", lambda L, x: L.CategoryEncoding(7)(x), (4,), draw=below(7))
case("CategoryEncoding", "one_hot", lambda L, x: L.CategoryEncoding(7, output_mode="one_hot")(x), (1,), draw=below(7))
case("CategoryEncoding", "count", lambda L, x: L.CategoryEncoding(7, output_mode="count")(x), (4,), draw=below(7))
case(
    "CategoryEncoding",
    "weighted",
    lambda L, x: L.CategoryEncoding(7, output_mode="count")(x, count_weights=adapter.api().ops.cast(x, "float32")),
    (4,),
    draw=below(7),
)
case(
    "STFTSpectrogram",
    "log",
    lambda L, x: L.STFTSpectrogram(mode="log", frame_length=32, frame_step=16, fft_length=64)(x),
    (200, 1),
)
case(
    "STFTSpectrogram",
    "real",
    lambda L, x: L.STFTSpectrogram(mode="real", frame_length=32, frame_step=16, fft_length=32, padding="same")(x),
    (200, 2),
)
case(
    "STFTSpectrogram",
    "magnitude",
    lambda L, x: L.STFTSpectrogram(mode="magnitude", frame_length=32, frame_step=16, fft_length=32)(x),
    (None, 1),
    sizes=(100, 140),
)
case(
    "MelSpectrogram",
    "plain",
    lambda L, x: L.MelSpectrogram(num_mel_bins=8, sampling_rate=800, sequence_stride=32, fft_length=64, min_freq=20.0)(
        x
    ),
    (256,),
    tolerance=2e-4,
)
case("CenterCrop", "crop", lambda L, x: L.CenterCrop(4, 5)(x), (8, 9, 3), draw=pixels)
case("CenterCrop", "resize", lambda L, x: L.CenterCrop(8, 9)(x), (5, 6, 3), draw=pixels, tolerance=1e-3)
for _name in ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"):
    case("Resizing", f"{_name}_up", lambda L, x, n=_name: L.Resizing(8, 11, interpolation=n)(x), (5, 6, 3), draw=unit)
    case("Resizing", f"{_name}_down", lambda L, x, n=_name: L.Resizing(3, 4, interpolation=n)(x), (7, 9, 3), draw=unit)
case("Resizing", "antialias", lambda L, x: L.Resizing(3, 4, antialias=True)(x), (8, 9, 3), draw=unit)
case("Resizing", "crop", lambda L, x: L.Resizing(4, 4, crop_to_aspect_ratio=True)(x), (8, 11, 3), draw=unit)
case("Resizing", "pad", lambda L, x: L.Resizing(4, 4, pad_to_aspect_ratio=True)(x), (8, 11, 3), draw=unit)
case("Resizing", "open", lambda L, x: L.Resizing(4, 5)(x), (None, None, 3), draw=unit)

AUGMENTATIONS = {
    "AugMix": "value_range=(0, 255)",
    "AutoContrast": "",
    "ContrastLimitedAdaptiveHistogramEqualization": "",
    "CutMix": "",
    "MixUp": "",
    "RandAugment": "value_range=(0, 255)",
    "RandomBrightness": "0.2",
    "RandomColorDegeneration": "0.5",
    "RandomColorJitter": "value_range=(0, 255), brightness_factor=0.2",
    "RandomContrast": "0.2",
    "RandomElasticTransform": "",
    "RandomErasing": "",
    "RandomFlip": "",
    "RandomGaussianBlur": "",
    "RandomGrayscale": "",
    "RandomHue": "0.2",
    "RandomInvert": "",
    "RandomPerspective": "",
    "RandomPosterization": "4",
    "RandomRotation": "0.2",
    "RandomSaturation": "0.3",
    "RandomSharpness": "0.5",
    "RandomShear": "0.2",
    "RandomTranslation": "0.1, 0.1",
    "RandomZoom": "0.2",
    "Solarization": "",
}
"""Layers that change images at random in training, with the arguments that they must be given."""
for _name, _args in AUGMENTATIONS.items():
    case(
        _name,
        "plain",
        lambda L, x, n=_name, a=_args: eval(f"L.{n}({a})", {"L": L})(x),
        (8, 8, 3),
        draw=pixels,
        training=False,
    )
# Keras says of Equalization that it gives its very input, which no functional model can hold: it is called in a layer.
case(
    "Equalization",
    "plain",
    custom(lambda keras, x: keras.layers.Equalization()(x, training=False)),
    (8, 8, 3),
    draw=pixels,
    training=False,
)
case("RandomCrop", "plain", lambda L, x: L.RandomCrop(4, 5)(x), (8, 8, 3), draw=pixels, training=False)
case(
    "RandomCrop", "resize", lambda L, x: L.RandomCrop(10, 9)(x), (8, 8, 3), draw=pixels, training=False, tolerance=1e-3
)
case(
    "Pipeline",
    "plain",
    lambda L, x: L.Pipeline([L.Rescaling(1 / 255), L.RandomFlip()])(x),
    (8, 8, 3),
    draw=pixels,
    training=False,
)
