"""Attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers.core import EinsumDense
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.layout import rank_of
from irkit.frontends.layers.regularization import dropped
from irkit.ir.builder import Tensor
from irkit.ir.dtypes import dtype

__all__ = ["AdditiveAttention", "Attention", "GroupQueryAttention", "MultiHeadAttention"]


def causal(query: Tensor, key: Tensor, axis: int = 1) -> Tensor:
    """Which keys are no later than each query: (1, queries, keys)."""
    b = query.builder
    one = b.constant(np.int64(1))
    rows, columns = (
        b.Range(b.constant(np.int64(0)), b.Squeeze(b.Shape(v, start=axis, end=axis + 1), [0]), one)
        for v in (query, key)
    )
    return b.Unsqueeze(b.GreaterOrEqual(b.Unsqueeze(rows, [1]), b.Unsqueeze(columns, [0])), [0])


def both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Where both masks are true; None is one that is true everywhere."""
    if first is None or second is None:
        return first if second is None else second
    return first & second


def _code(value: Tensor) -> int:
    assert value.dtype is not None
    return value.dtype.code


class _DotAttention(Layer):
    """What ``Attention`` and ``AdditiveAttention`` share: inputs are [query, value], or [query, value, key]."""

    supports_masking = True

    def __init__(self, dropout: float = 0.0, seed: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.dropout, self.seed = dropout, seed

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """How well each key fits each query: (batch, queries, keys)."""
        raise NotImplementedError

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        return_attention_scores: bool = False,
        training: Any = None,
        use_causal_mask: bool = False,
    ) -> Any:
        if not isinstance(inputs, list | tuple) or len(inputs) not in (2, 3):
            raise IrkitError(f"layer '{self.name}' takes a list: query and value, perhaps key")
        query, value, key = inputs[0], inputs[1], inputs[-1] if len(inputs) == 3 else inputs[1]
        of_query, of_value = [*mask, None, None][:2] if mask is not None else (None, None)
        b = query.builder
        scores = self.scores(query, key)
        allowed = None if of_value is None else b.Unsqueeze(of_value, [-2])
        allowed = both(allowed, causal(query, key) if use_causal_mask else None)
        if allowed is not None:
            least = 65504.0 / 2 if scores.dtype is not None and scores.dtype.bits == 16 else 1e9
            scores = scores - b.Cast(b.Not(allowed), to=_code(scores)) * least
        weights = b.Softmax(scores, axis=-1)
        if training and self.dropout:
            weights = dropped(weights, self.dropout, None, self.seed)
        result = weights @ value
        if of_query is not None:
            result = result * b.Cast(b.Unsqueeze(of_query, [-1]), to=result.dtype.code)
        return (result, weights) if return_attention_scores else result

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        return mask[0] if isinstance(mask, list | tuple) and mask else None


class Attention(_DotAttention):
    """``softmax(query key^T) value`` (Luong et al. 2015).

    Args:
        use_scale: whether the scores have a learned factor.
        score_mode: ``"dot"``, or ``"concat"``: the sum of ``tanh(query + key)``.
    """

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dropout, seed, **options)
        if score_mode not in ("dot", "concat"):
            raise IrkitError(f"score_mode={score_mode!r} is not known", hint="dot or concat")
        self.use_scale, self.score_mode = use_scale, score_mode
        self.scale: Any = None

    def build(self, input_shape: Any) -> None:
        if self.use_scale:
            self.scale = self.add_weight((), "ones", name="scale")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight((), "ones", name="concat_score_weight")

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        b = query.builder
        if self.score_mode == "dot":
            found = query @ b.Transpose(key, perm=[0, 2, 1])
            return found if self.scale is None else found * self.scale
        total = b.Unsqueeze(query, [-2]) + b.Unsqueeze(key, [-3])
        total = total if self.scale is None else total * self.scale
        return b.ReduceSum(b.Tanh(total), [-1], keepdims=0) * self.concat_score_weight


class AdditiveAttention(_DotAttention):
    """``softmax(sum(scale tanh(query + key))) value`` (Bahdanau et al. 2014)."""

    def __init__(self, use_scale: bool = True, dropout: float = 0.0, **options: Any) -> None:
        super().__init__(dropout, **options)
        self.use_scale = use_scale
        self.scale: Any = None

    def build(self, input_shape: Any) -> None:
        if self.use_scale:
            self.scale = self.add_weight((input_shape[0][-1],), "glorot_uniform", name="scale")

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        b = query.builder
        total = b.Tanh(b.Unsqueeze(query, [-2]) + b.Unsqueeze(key, [-3]))
        return b.ReduceSum(total if self.scale is None else total * self.scale, [-1], keepdims=0)


class _Heads(Layer):
    """What attention with several heads shares: projections, masks, dropout."""

    supports_masking = True

    def projection(self, name: str, heads: int, size: int, rank: int) -> EinsumDense:
        """A dense layer (..., features) -> (..., heads, size)."""
        free = "abcdefgh"[: rank - 1]
        return self.dense(name, f"{free}x,xyz->{free}yz", (*[None] * (rank - 2), heads, size), "yz")

    def dense(self, name: str, equation: str, shape: Any, bias_axes: str) -> EinsumDense:
        """A dense layer with this layer's initializers and regularizers."""
        made = EinsumDense(equation, shape, bias_axes=bias_axes if self.use_bias else None, name=name, **self.common)
        setattr(self, name, made)
        return made

    use_bias: bool
    common: dict[str, Any]
    query: Any
    key: Any
    value: Any
    output: Any

    def allowed(
        self, query: Tensor, key: Tensor, masks: dict[str, Any], attention_mask: Any, use_causal_mask: bool, axis: int
    ) -> Tensor | None:
        """Which keys each query may see: (batch, queries, keys), or what broadcasts to it."""
        b = query.builder
        found = None if masks["query"] is None else b.Unsqueeze(masks["query"], [-1])
        for name in ("value", "key"):
            found = both(found, None if masks[name] is None else b.Unsqueeze(masks[name], [-2]))
        found = both(found, causal(query, key, axis) if use_causal_mask else None)
        if attention_mask is not None and attention_mask.dtype.name != "bool":
            attention_mask = b.Cast(attention_mask, to=dtype("bool").code)
        return both(found, attention_mask)


def masked_softmax(scores: Tensor, allowed: Tensor | None, axes: int) -> Tensor:
    """Softmax over the last axes; what is not allowed gets (almost) nothing."""
    b = scores.builder
    if allowed is not None:
        least = -3e4 if scores.dtype is not None and scores.dtype.bits == 16 else -1e9
        scores = scores + b.Cast(b.Not(allowed), to=_code(scores)) * least
    if axes == 1:
        return b.Softmax(scores, axis=-1)
    over = list(range(-axes, 0))
    powers = b.Exp(scores - b.ReduceMax(scores, over, keepdims=1))
    return powers / b.ReduceSum(powers, over, keepdims=1)


class MultiHeadAttention(_Heads):
    """Scaled dot-product attention with several heads (Vaswani et al. 2017).

    Args:
        num_heads: how many.
        key_dim: the size of each head's queries and keys.
        value_dim: of its values; by default the same.
        output_shape: the size of the output's last axis; by default that of the query.
        attention_axes: along which axes of the query attention goes; by default all but the batch and the last.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: Any = None,
        attention_axes: Any = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **options)
        self.num_heads, self.key_dim, self.value_dim = num_heads, key_dim, value_dim or key_dim
        self.dropout, self.use_bias, self.seed = dropout, use_bias, seed
        self.sizes = (
            None if output_shape is None else [output_shape] if isinstance(output_shape, int) else list(output_shape)
        )
        self.attention_axes = [attention_axes] if isinstance(attention_axes, int) else attention_axes
        self.common = {
            "kernel_initializer": kernel_initializer,
            "bias_initializer": bias_initializer,
            "kernel_regularizer": kernel_regularizer,
            "bias_regularizer": bias_regularizer,
            "dtype": self.dtype_policy,
        }

    def build(self, input_shape: Any) -> None:
        rank, sizes = len(input_shape), self.sizes or [input_shape[-1]]
        self.projection("query", self.num_heads, self.key_dim, rank)
        self.projection("key", self.num_heads, self.key_dim, rank)
        self.projection("value", self.num_heads, self.value_dim, rank)
        free, out = "abcdefgh"[: rank - 1], "pqrst"[: len(sizes)]
        self.dense("output", f"{free}yz,yz{out}->{free}{out}", (*[None] * (rank - 2), *sizes), out)

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: Any = None,
        use_causal_mask: bool = False,
    ) -> Any:
        b, rank = query.builder, rank_of(query)
        key = value if key is None else key
        axes = sorted(a % rank for a in (self.attention_axes or range(1, rank - 1)))
        masks = {"query": query_mask, "value": value_mask, "key": key_mask}
        allowed = self.allowed(query, key, masks, attention_mask, use_causal_mask, axes[0])
        others = [a for a in range(rank - 1) if a not in axes]
        # (..., heads, size) -> (those without attention, heads, those with it, size)
        perm = [*others, rank - 1, *axes, rank]
        q, k, v = (
            b.Transpose(layer(x), perm=perm) for layer, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        q = q * (1 / math.sqrt(self.key_dim))
        letters = "abcdefghijklmnop"
        batch, rest = letters[: len(others) + 1], letters[len(others) + 1 :]
        rows, columns = rest[: len(axes)], rest[len(axes) : 2 * len(axes)]
        if len(axes) == 1:
            scores = q @ b.Transpose(k, perm=[*range(rank - 1), rank, rank - 1])
        else:
            scores = b.Einsum(q, k, equation=f"{batch}{rows}z,{batch}{columns}z->{batch}{rows}{columns}")
        if allowed is not None:
            missing = (scores.rank or 0) - rank_of(allowed)
            front = rank_of(allowed) - 2 * len(axes)
            allowed = b.Unsqueeze(allowed, list(range(front, front + missing))) if missing else allowed
        weights = masked_softmax(scores, allowed, len(axes))
        used = dropped(weights, self.dropout, None, self.seed) if training and self.dropout else weights
        if len(axes) == 1:
            made = used @ v
        else:
            made = b.Einsum(used, v, equation=f"{batch}{rows}{columns},{batch}{columns}z->{batch}{rows}z")
        made = self.output(b.Transpose(made, perm=[perm.index(i) for i in range(rank + 1)]))
        return (made, weights) if return_attention_scores else made

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        return mask


class GroupQueryAttention(_Heads):
    """Attention in which several heads of the query share keys and values (Ainslie et al. 2023).

    Args:
        head_dim: the size of each head.
        num_query_heads: how many heads the query has.
        num_key_value_heads: how many keys and values have; a divisor of the former.
    """

    def __init__(
        self,
        head_dim: int,
        num_query_heads: int,
        num_key_value_heads: int,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **options)
        if num_query_heads % num_key_value_heads:
            raise IrkitError(f"layer '{self.name}': {num_query_heads} heads cannot share {num_key_value_heads} evenly")
        self.head_dim, self.num_query_heads, self.num_key_value_heads = head_dim, num_query_heads, num_key_value_heads
        self.dropout, self.use_bias, self.seed = dropout, use_bias, seed
        self.common = {
            "kernel_initializer": kernel_initializer,
            "bias_initializer": bias_initializer,
            "kernel_regularizer": kernel_regularizer,
            "bias_regularizer": bias_regularizer,
            "dtype": self.dtype_policy,
        }

    def build(self, input_shape: Any) -> None:
        self.projection("query", self.num_query_heads, self.head_dim, 3)
        self.projection("key", self.num_key_value_heads, self.head_dim, 3)
        self.projection("value", self.num_key_value_heads, self.head_dim, 3)
        self.dense("output", "abyz,yzp->abp", (None, input_shape[-1]), "p")

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: Any = None,
        use_causal_mask: bool = False,
    ) -> Any:
        b = query.builder
        key = value if key is None else key
        masks = {"query": query_mask, "value": value_mask, "key": key_mask}
        allowed = self.allowed(query, key, masks, attention_mask, use_causal_mask, 1)
        share = self.num_query_heads // self.num_key_value_heads
        heads = b.constant(np.repeat(np.arange(self.num_key_value_heads), share))
        q = b.Transpose(self.query(query), perm=[0, 2, 1, 3]) * (1 / math.sqrt(self.head_dim))
        k, v = (b.Gather(layer(x), heads, axis=2) for layer, x in ((self.key, key), (self.value, value)))
        scores = q @ b.Transpose(k, perm=[0, 2, 3, 1])
        weights = masked_softmax(scores, None if allowed is None else b.Unsqueeze(allowed, [1]), 1)
        used = dropped(weights, self.dropout, None, self.seed) if training and self.dropout else weights
        made = self.output(b.Transpose(used @ b.Transpose(v, perm=[0, 2, 1, 3]), perm=[0, 2, 1, 3]))
        return (made, weights) if return_attention_scores else made

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        return mask
