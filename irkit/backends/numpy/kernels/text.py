"""Ops on strings, which are object arrays of ``str``.

StringNormalizer changes case by Unicode's own rules whatever the locale. StringSplit on white space strips both ends
of a string first, so that the rest after the last split has no trailing blanks. RegexFullMatch has RE2's syntax and
its linear time (see ``_regex``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np

from irkit.backends.numpy.kernels._common import broadcast_shape
from irkit.backends.numpy.kernels._indexing import Array, string_array
from irkit.backends.numpy.kernels._regex import Regex, RegexError
from irkit.backends.numpy.registry import KernelError, kernel


@kernel("StringConcat")
def string_concat(x: Array, y: Array) -> Array:
    out = np.empty(broadcast_shape(x.shape, y.shape), dtype=object)
    out[...] = np.add(x, y)
    return out


@kernel("StringSplit")
def string_split(x: Array, *, delimiter: str = "", maxsplit: int | None = None) -> tuple[Array, Array]:
    limit = -1 if maxsplit is None else maxsplit
    if delimiter:
        parts = [text.split(delimiter, limit) for text in x.ravel().tolist()]
    else:
        parts = [text.strip().split(None, limit) for text in x.ravel().tolist()]
    width = max(map(len, parts), default=0)
    padded = chain.from_iterable(part + [""] * (width - len(part)) for part in parts)
    counts = np.array([len(part) for part in parts], dtype=np.int64).reshape(x.shape)
    return string_array(padded, (*x.shape, width)), counts


_CASES = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@kernel("StringNormalizer")
def string_normalizer(
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    stopwords: Sequence[str] = (),
    locale: str = "",
) -> Array:
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise KernelError(f"input must have shape [C] or [1, C], not {x.shape}")
    change = _CASES.get(case_change_action)
    if change is None:
        raise KernelError(f"case_change_action {case_change_action!r} is none of NONE, LOWER, UPPER")
    fold = str if is_case_sensitive else str.lower
    stop = {fold(word) for word in stopwords}
    words = [change(word) for word in x.ravel().tolist() if fold(word) not in stop] or [""]
    return string_array(words, (*x.shape[:-1], len(words)))


_compiled = lru_cache(maxsize=64)(Regex)


@kernel("RegexFullMatch")
def regex_full_match(x: Array, *, pattern: str = "") -> Array:
    try:
        regex = _compiled(pattern)
    except RegexError as error:
        raise KernelError(str(error)) from error
    return np.array([regex.fullmatch(text) for text in x.ravel().tolist()], dtype=np.bool_).reshape(x.shape)


def _ngrams(row: Sequence[object], length: int, stride: int) -> Iterable[tuple[object, ...]]:
    """All runs of ``length`` items that are ``stride`` apart."""
    starts = len(row) - (length - 1) * stride
    return zip(*(row[k * stride : k * stride + max(starts, 0)] for k in range(length)), strict=True)


@kernel("TfIdfVectorizer")
def tf_idf_vectorizer(
    x: Array,
    *,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    min_gram_length: int,
    max_gram_length: int,
    max_skip_count: int,
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Array:
    if x.ndim not in (1, 2):
        raise KernelError(f"input must have rank 1 or 2, not shape {x.shape}")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise KernelError(f"mode {mode!r} is none of TF, IDF, TFIDF")
    if not 1 <= min_gram_length <= max_gram_length or max_skip_count < 0 or not ngram_indexes or min(ngram_indexes) < 0:
        raise KernelError(
            f"min_gram_length {min_gram_length}, max_gram_length {max_gram_length}, max_skip_count {max_skip_count} "
            f"and ngram_indexes {list(ngram_indexes)[:8]} do not describe n-grams"
        )
    pool = pool_strings if x.dtype == object else pool_int64s
    if pool is None:
        raise KernelError(f"no pool of n-grams is given for an input of {x.dtype}")
    ends = [*ngram_counts[1:], len(pool)]
    known: dict[tuple[object, ...], int] = {}
    number = 0
    for length, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), start=1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise KernelError(f"ngram_counts {list(ngram_counts)} do not divide a pool of {len(pool)} items")
        for at in range(start, end, length):
            known[tuple(pool[at : at + length])] = number
            number += 1
    if number != len(ngram_indexes) or (weights is not None and len(weights) != number):
        raise KernelError(
            f"the pool holds {number} n-grams, ngram_indexes {len(ngram_indexes)}"
            + ("" if weights is None else f" and weights {len(weights)} entries")
        )
    rows = x.reshape(-1, x.shape[-1]) if x.shape[-1] else x.reshape(x.shape[0] if x.ndim == 2 else 1, 0)
    found = np.zeros((len(rows), number), dtype=np.float32)
    for counts, row in zip(found, rows.tolist(), strict=True):
        for length in range(min_gram_length, max_gram_length + 1):
            for stride in range(1, max_skip_count + 2 if length > 1 else 2):
                for gram in _ngrams(row, length, stride):
                    if gram in known:
                        counts[known[gram]] += 1
    if mode == "IDF":
        found = np.minimum(found, 1)
    if mode != "TF" and weights is not None:
        found = found * np.array(weights, dtype=np.float32)
    out = np.zeros((len(rows), max(ngram_indexes) + 1), dtype=np.float32)
    np.add.at(out.T, np.array(ngram_indexes), found.T)
    return out.reshape(*x.shape[:-1], out.shape[1])
