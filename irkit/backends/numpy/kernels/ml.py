"""ai.onnx.ml: ops that prepare features and map labels. Linear models are in ``ml_linear``, trees in ``ml_trees``.

Maps are dicts, and a sequence of maps a list of them. CastMap gives shape [1, n], DictVectorizer a 1-D tensor as the
specification says. The norms of Normalizer are the usual ones where its formulas are loose: L1 divides by the sum of
absolute values and L2 keeps signs; MAX divides by the largest value, sign included. A NaN equals a NaN wherever a value
is looked up (LabelEncoder, Imputer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._indexing import Array, check_indices, string_array
from irkit.backends.numpy.kernels._scores import class_labels
from irkit.backends.numpy.registry import KernelError, kernel

DOMAIN = "ai.onnx.ml"


@kernel("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(x: Array, y: Array) -> Array:
    if x.ndim == 0:
        raise KernelError("input must have rank 1 or more")
    if y.size and int(y.min()) < 0:
        raise KernelError(f"index {int(y.min())} is negative")
    taken = x.take(check_indices(y.reshape(-1), x.shape[-1], x.ndim - 1), axis=-1)
    return taken.reshape(1, -1) if x.ndim == 1 else taken


@kernel("Binarizer", domain=DOMAIN)
def binarizer(x: Array, *, threshold: float = 0.0) -> Array:
    return np.asarray(x > threshold).astype(x.dtype)


@kernel("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(*inputs: Array, inputdimensions: Sequence[int] | None = None) -> Array:
    parts = [x.reshape(1, -1) if x.ndim == 1 else x for x in inputs]
    if any(part.ndim != 2 or len(part) != len(parts[0]) for part in parts):
        raise KernelError(f"inputs must have shapes [N, C] with one N, not {[x.shape for x in inputs]}")
    widths = [part.shape[1] for part in parts]
    if inputdimensions is not None and list(inputdimensions) != widths:
        raise KernelError(f"inputdimensions is {list(inputdimensions)}, but the inputs have {widths} columns")
    return np.concatenate(parts, axis=1).astype(np.float32)


@kernel("Imputer", domain=DOMAIN)
def imputer(
    x: Array,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Array:
    is_float = x.dtype.kind == "f"
    values = np.array(imputed_value_floats if is_float else imputed_value_int64s).astype(x.dtype)
    if x.ndim == 0 or len(values) not in (1, x.shape[-1]):
        raise KernelError(f"{len(values)} imputed values do not fit an input of {x.dtype} and shape {x.shape}")
    if is_float:
        gone = np.isnan(x) if np.isnan(replaced_value_float) else x == x.dtype.type(replaced_value_float)
    else:
        gone = x == replaced_value_int64
    return np.where(gone, values, x)


_NORMS = {
    "MAX": lambda x: x.max(axis=-1, keepdims=True, initial=-np.inf),
    "L1": lambda x: np.abs(x).sum(axis=-1, keepdims=True),
    "L2": lambda x: np.sqrt(np.square(x).sum(axis=-1, keepdims=True)),
}


@kernel("Normalizer", domain=DOMAIN)
def normalizer(x: Array, *, norm: str = "MAX") -> Array:
    if x.ndim not in (1, 2):
        raise KernelError(f"input must have shape [N, C] or [C], not {x.shape}")
    if norm not in _NORMS:
        raise KernelError(f"norm {norm!r} is none of {', '.join(_NORMS)}")
    wide = x.astype(np.float64)
    size = _NORMS[norm](wide)
    return (wide / np.where(size == 0, 1, size)).astype(np.float32)


@kernel("Scaler", domain=DOMAIN)
def scaler(x: Array, *, offset: Sequence[float] = (0.0,), scale: Sequence[float] = (1.0,)) -> Array:
    for name, values in (("offset", offset), ("scale", scale)):
        if len(values) != 1 and (x.ndim == 0 or len(values) != x.shape[-1]):
            raise KernelError(f"{name} has {len(values)} values for an input of shape {x.shape}")
    wide = x if x.dtype == np.float32 else x.astype(np.float64)
    by, away = (np.array(values, dtype=wide.dtype) for values in (scale, offset))
    return np.asarray((wide - away) * by).reshape(x.shape).astype(np.float32)


@kernel("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(
    x: Array,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    zeros: int = 1,
) -> Array:
    categories = cats_strings if x.dtype == object else cats_int64s
    if not categories:
        raise KernelError(f"no categories are given for an input of {x.dtype}")
    values = x if x.dtype == object else x.astype(np.int64)
    position = {category: i for i, category in enumerate(categories)}
    places = np.array([position.get(value, -1) for value in values.ravel().tolist()], dtype=np.int64)
    out = np.zeros((x.size, len(categories)), dtype=np.float32)
    found = np.flatnonzero(places >= 0)
    if not zeros and len(found) < x.size:
        raise KernelError(f"{x.ravel()[np.argmin(places)]!r} is none of the categories")
    out[found, places[found]] = 1
    return out.reshape(*x.shape, len(categories))


def _look_up(x: Array, keys: Array, values: Array, default: Any) -> Array:
    """The value of each element's key, of a repeated key the last one's; ``default`` where there is none."""
    if len(keys) != len(values):
        raise KernelError(f"there are {len(keys)} keys and {len(values)} values")
    if x.dtype != keys.dtype:
        raise KernelError(f"input has dtype {x.dtype}, the keys have {keys.dtype}")
    out = np.full(x.size, default, dtype=values.dtype)
    if len(keys) == 0:
        return out.reshape(x.shape)
    flat = x.reshape(-1)
    if keys.dtype == object:
        position = {key: i for i, key in enumerate(keys.tolist())}
        places = np.array([position.get(element, -1) for element in flat.tolist()], dtype=np.int64)
    else:
        # Reversed, the first occurrence that np.unique reports is the last one.
        distinct, last = np.unique(keys[::-1], return_index=True)
        near = np.searchsorted(distinct, flat).clip(max=len(distinct) - 1)
        hit = (distinct[near] == flat) | ((distinct[near] != distinct[near]) & (flat != flat))
        places = np.where(hit, len(keys) - 1 - last[near], -1)
    found = places >= 0
    out[found] = values[places[found]]
    return out.reshape(x.shape)


def _typed(strings: Sequence[str] | None, ints: Sequence[int] | None, floats: Sequence[float] | None) -> Array | None:
    """The one list given as an array of the type that attributes of its kind have."""
    if strings is not None:
        return string_array(strings, (len(strings),))
    if ints is not None:
        return np.array(ints, dtype=np.int64)
    return None if floats is None else np.array(floats, dtype=np.float32)


@kernel("LabelEncoder", domain=DOMAIN)
def label_encoder(
    x: Array,
    *,
    keys_strings: Sequence[str] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_floats: Sequence[float] | None = None,
    keys_tensor: Array | None = None,
    values_strings: Sequence[str] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_floats: Sequence[float] | None = None,
    values_tensor: Array | None = None,
    default_string: str = "_Unused",
    default_int64: int = -1,
    default_float: float = -0.0,
    default_tensor: Array | None = None,
) -> Array:
    keys = _typed(keys_strings, keys_int64s, keys_floats) if keys_tensor is None else keys_tensor
    values = _typed(values_strings, values_int64s, values_floats) if values_tensor is None else values_tensor
    if keys is None or values is None:
        raise KernelError("one of the keys_* and one of the values_* attributes must be set")
    if default_tensor is not None:
        if default_tensor.size != 1:
            raise KernelError(f"default_tensor must hold one element, not shape {default_tensor.shape}")
        default: Any = default_tensor.item()
    else:
        default = {"O": default_string, "f": default_float}.get(values.dtype.kind, default_int64)
    return _look_up(x, keys.reshape(-1), values.reshape(-1), default)


@kernel("CategoryMapper", domain=DOMAIN)
def category_mapper(
    x: Array,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    ints = np.array(cats_int64s, dtype=np.int64)
    strings = string_array(cats_strings, (len(cats_strings),))
    if x.dtype == object:
        return _look_up(x, strings, ints, default_int64)
    return _look_up(x, ints, strings, default_string)


_CAST_TO: dict[str, tuple[Any, Any]] = {
    "TO_FLOAT": (np.float32, float),
    "TO_INT64": (np.int64, int),
    "TO_STRING": (object, lambda value: value if isinstance(value, str) else str(np.float32(value))),
}


@kernel("CastMap", domain=DOMAIN)
def cast_map(
    x: Mapping[int, Any], *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1, budget: Any
) -> Array:
    if cast_to not in _CAST_TO or map_form not in ("DENSE", "SPARSE"):
        raise KernelError(f"cast_to {cast_to!r} or map_form {map_form!r} is unknown")
    dtype, convert = _CAST_TO[cast_to]
    try:
        items = [(int(key), convert(x[key])) for key in sorted(x)]
    except ValueError as error:
        raise KernelError(f"a value of the map does not convert with {cast_to}: {error}") from error
    if map_form == "DENSE":
        places, width = list(range(len(items))), len(items)
    else:
        places, width = [key for key, _ in items], max_map
        if places and not (places[0] >= 0 and places[-1] < max_map):
            raise KernelError(f"keys {places[0]} to {places[-1]} of the map are not all in [0, {max_map})")
    budget.allocate(width * 8)
    out = np.full((1, width), "" if dtype is object else 0, dtype=dtype)
    for place, (_, value) in zip(places, items, strict=True):
        out[0, place] = value
    return out


def _value_dtype(values: Sequence[Any]) -> np.dtype:
    """The element type of a map's values: a NumPy scalar's own, else string, int64 or float32."""
    sample = values[0] if values else 0.0
    if isinstance(sample, np.generic):
        return sample.dtype
    return np.dtype(object if isinstance(sample, str) else np.int64 if isinstance(sample, int) else np.float32)


@kernel("DictVectorizer", domain=DOMAIN)
def dict_vectorizer(
    x: Mapping[Any, Any],
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
) -> Array:
    vocabulary = string_vocabulary or int64_vocabulary
    if not vocabulary:
        raise KernelError("one of int64_vocabulary and string_vocabulary must be set")
    position = {word: i for i, word in enumerate(vocabulary)}
    unknown = [key for key in x if key not in position]
    if unknown:
        raise KernelError(f"key {unknown[0]!r} is not in the vocabulary")
    dtype = _value_dtype(list(x.values()))
    out = np.full(len(vocabulary), "" if dtype.kind == "O" else 0, dtype=dtype)
    for key, value in x.items():
        out[position[key]] = value
    return out


@kernel("ZipMap", domain=DOMAIN)
def zip_map(
    x: Array,
    *,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
) -> list[dict[Any, float]]:
    labels = class_labels(classlabels_int64s, classlabels_strings).tolist()
    if x.ndim not in (1, 2) or x.shape[-1] != len(labels):
        raise KernelError(f"input of shape {x.shape} does not have one column for each of {len(labels)} keys")
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]
