"""Convolutions."""

from __future__ import annotations

from typing import Any, ClassVar

from irkit.errors import IrkitError
from irkit.frontends.layers import activations
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.layout import before_channels, behind_channels, checked, tuple_of
from irkit.ir.builder import Tensor

__all__ = [
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "SeparableConv1D",
    "SeparableConv2D",
]


def padding_of(padding: str, sizes: Any, window: Any, strides: Any, dilation: Any) -> dict[str, Any]:
    """ONNX's attributes for a padding of Keras's: explicit where the sizes are known or do not matter.

    ``"same"`` gives ``ceil(size / stride)`` places, an odd one of padding at the end.
    """
    if padding == "valid":
        return {}
    reach = [(k - 1) * d for k, d in zip(window, dilation, strict=True)]
    if padding == "causal":
        return {"pads": [*reach, *[0] * len(reach)]}
    if any(s > 1 for s in strides) and None in sizes:
        return {"auto_pad": "SAME_UPPER"}
    total = [
        r if s == 1 else max((-(-size // s) - 1) * s + r + 1 - size, 0)
        for r, s, size in zip(reach, strides, sizes, strict=True)
    ]
    return {"pads": [*(t // 2 for t in total), *(t - t // 2 for t in total)]}


class _Conv(Layer):
    """What convolutions share: a window that moves over ``rank`` axes.

    Args:
        filters: how many channels the output has.
        kernel_size, strides, dilation_rate: one number, or one an axis.
        padding: ``"valid"``, ``"same"``, or along one axis ``"causal"``.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.
        groups: into how many parts the channels are divided.
    """

    rank: ClassVar[int]
    paddings: ClassVar[tuple[str, ...]] = ("valid", "same")

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
        groups: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **options)
        self.filters, self.groups, self.use_bias = filters, groups, use_bias
        self.kernel_size = tuple_of(kernel_size, self.rank, "kernel_size")
        self.strides = tuple_of(strides, self.rank, "strides")
        self.dilation_rate = tuple_of(dilation_rate, self.rank, "dilation_rate")
        self.padding, self.data_format = padding.lower(), checked(data_format)
        known = (*self.paddings, "causal") if self.rank == 1 else self.paddings
        if self.padding not in known:
            raise IrkitError(
                f"layer '{self.name}': padding={padding!r} is not known", hint=f"it is {' or '.join(known)}"
            )
        self.activation = activations.get(activation)
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.bias: Any = None

    def _channels(self, shape: Any) -> int:
        found = shape[-1 if self.data_format == "channels_last" else 1]
        if found is None:
            raise IrkitError(f"layer '{self.name}' needs to know the number of channels, which is open")
        return found

    def _make(self, shape: Any, bias: int) -> None:
        self.kernel = self.add_weight(
            shape, self.kernel_initializer, name="kernel", regularizer=self.kernel_regularizer
        )
        self._make_bias(bias)

    def _make_bias(self, size: int) -> None:
        if self.use_bias:
            self.bias = self.add_weight((size,), self.bias_initializer, name="bias", regularizer=self.bias_regularizer)

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        if channels % self.groups or self.filters % self.groups:
            raise IrkitError(
                f"layer '{self.name}': {channels} channels and {self.filters} filters are to be in {self.groups} groups"
            )
        self._make((*self.kernel_size, channels // self.groups, self.filters), self.filters)

    def _convolve(self, x: Tensor, kernel: Any, bias: Any, groups: int) -> Tensor:
        """A convolution of a value that has its channels at axis 1; ``kernel`` is (*window, in, out)."""
        b, rank = x.builder, self.rank
        weight = b.Transpose(kernel, perm=[rank + 1, rank, *range(rank)])
        sizes = [d if isinstance(d, int) else None for d in (x.shape or ())[2:]]
        pads = padding_of(self.padding, sizes, self.kernel_size, self.strides, self.dilation_rate)
        strides, dilations = list(self.strides), list(self.dilation_rate)
        return b.Conv(x, weight, bias, group=groups, strides=strides, dilations=dilations, **pads)

    def _finish(self, made: Tensor) -> Tensor:
        """The activation, and the channels where they belong."""
        # An elementwise activation comes first, so that the transposes of two layers in a row meet.
        if activations.name_of(self.activation) in activations.ELEMENTWISE:
            return before_channels(self.activation(made), self.data_format)
        return self.activation(before_channels(made, self.data_format))

    def call(self, inputs: Any) -> Any:
        x = behind_channels(inputs, self.data_format)
        made = self._convolve(x, self.kernel, self.bias, self.groups)
        return self._finish(made)


class Conv1D(_Conv):
    """A convolution along one axis; see ``Conv2D``."""

    rank = 1


class Conv2D(_Conv):
    """A convolution over two axes."""

    rank = 2


class Conv3D(_Conv):
    """A convolution over three axes; see ``Conv2D``."""

    rank = 3


class _DepthwiseConv(_Conv):
    """One filter, or ``depth_multiplier`` of them, for each channel by itself."""

    def __init__(
        self,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(
            0,
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=depthwise_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=depthwise_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            **options,
        )
        self.depth_multiplier = depth_multiplier

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self._make((*self.kernel_size, channels, self.depth_multiplier), channels * self.depth_multiplier)

    def call(self, inputs: Any) -> Any:
        x = behind_channels(inputs, self.data_format)
        kernel, groups = _depthwise(x, self.kernel, self.rank)
        made = self._convolve(x, kernel, self.bias, groups)
        return self._finish(made)


def _depthwise(x: Tensor, kernel: Any, rank: int) -> tuple[Tensor, int]:
    """A depthwise kernel (*window, channels, multiplier) as (*window, 1, channels * multiplier), and the groups."""
    *window, channels, multiplier = kernel.shape[: rank + 2]
    return x.builder.Reshape(kernel, [*window, 1, channels * multiplier]), channels


class DepthwiseConv1D(_DepthwiseConv):
    """One filter for each channel, along one axis."""

    rank = 1


class DepthwiseConv2D(_DepthwiseConv):
    """One filter for each channel, over two axes."""

    rank = 2


class _SeparableConv(_Conv):
    """A depthwise convolution, then one with a window of 1 that mixes the channels."""

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        pointwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation=activation,
            use_bias=use_bias,
            bias_initializer=bias_initializer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            **options,
        )
        self.depth_multiplier = depth_multiplier
        self.depthwise_initializer, self.depthwise_regularizer = depthwise_initializer, depthwise_regularizer
        self.pointwise_initializer, self.pointwise_regularizer = pointwise_initializer, pointwise_regularizer

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self.depthwise_kernel = self.add_weight(
            (*self.kernel_size, channels, self.depth_multiplier),
            self.depthwise_initializer,
            name="depthwise_kernel",
            regularizer=self.depthwise_regularizer,
        )
        self.pointwise_kernel = self.add_weight(
            (*[1] * self.rank, channels * self.depth_multiplier, self.filters),
            self.pointwise_initializer,
            name="pointwise_kernel",
            regularizer=self.pointwise_regularizer,
        )
        self._make_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        x = behind_channels(inputs, self.data_format)
        kernel, groups = _depthwise(x, self.depthwise_kernel, self.rank)
        x = self._convolve(x, kernel, None, groups)
        rank = self.rank
        mix = x.builder.Transpose(self.pointwise_kernel, perm=[rank + 1, rank, *range(rank)])
        made = x.builder.Conv(x, mix, self.bias)
        return self._finish(made)


class SeparableConv1D(_SeparableConv):
    """A depthwise convolution along one axis, then one that mixes the channels."""

    rank = 1


class SeparableConv2D(_SeparableConv):
    """A depthwise convolution over two axes, then one that mixes the channels."""

    rank = 2


class _ConvTranspose(_Conv):
    """The transpose of a convolution; the kernel is (*window, out, in).

    Args:
        output_padding: how much is added to the sizes of the output; by default ``"same"`` gives ``size * stride``
            and ``"valid"`` ``size * stride + max(window - stride, 0)``.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        output_padding: Any = None,
        data_format: str | None = None,
        dilation_rate: Any = 1,
        **options: Any,
    ) -> None:
        super().__init__(filters, kernel_size, strides, padding, data_format, dilation_rate, **options)
        if self.padding == "causal":
            raise IrkitError(f"layer '{self.name}': padding='causal' is for convolutions that are not transposed")
        self.output_padding = None if output_padding is None else tuple_of(output_padding, self.rank, "output_padding")

    def build(self, input_shape: Any) -> None:
        self._make((*self.kernel_size, self.filters, self._channels(input_shape)), self.filters)

    def call(self, inputs: Any) -> Any:
        x, rank = behind_channels(inputs, self.data_format), self.rank
        b = x.builder
        begin, end, more = [], [], []
        reaches = [(k - 1) * d + 1 for k, d in zip(self.kernel_size, self.dilation_rate, strict=True)]
        given = self.output_padding or (None,) * rank
        for reach, stride, extra in zip(reaches, self.strides, given, strict=True):
            total = 0
            if self.padding == "same":
                total = max(reach - stride, 0) if extra is None else 2 * (reach // 2)
            begin.append(total // 2)
            end.append(total - total // 2)
            more.append(max(stride - reach, 0) if extra is None else extra)
        weight = b.Transpose(self.kernel, perm=[rank + 1, rank, *range(rank)])
        made = b.ConvTranspose(
            x,
            weight,
            self.bias,
            strides=list(self.strides),
            dilations=list(self.dilation_rate),
            pads=[*begin, *end],
            output_padding=more,
        )
        return self._finish(made)


class Conv1DTranspose(_ConvTranspose):
    """The transpose of a convolution along one axis."""

    rank = 1


class Conv2DTranspose(_ConvTranspose):
    """The transpose of a convolution over two axes."""

    rank = 2


class Conv3DTranspose(_ConvTranspose):
    """The transpose of a convolution over three axes."""

    rank = 3
