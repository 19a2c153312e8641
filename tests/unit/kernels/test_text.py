"""Ops on strings, and the regular expressions of RegexFullMatch."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irkit.backends.numpy.kernels._regex import Regex, RegexError
from irkit.backends.numpy.registry import KernelError


def strings(*values):
    return np.array(values, object)


def test_concat(op):
    assert op("StringConcat", np.array("a", object), np.array("é", object)).tolist() == "aé"
    assert op("StringConcat", strings("a", "b").reshape(2, 1), strings("x", "")).tolist() == [["ax", "a"], ["bx", "b"]]
    assert op("StringConcat", strings(), np.array("x", object)).shape == (0,)
    with pytest.raises(KernelError, match="broadcast"):
        op("StringConcat", strings("a", "b"), strings("a", "b", "c"))


def test_split(op):
    parts, counts = op("StringSplit", strings("  a  b ", "", "c"), n_out=2)
    assert parts.tolist() == [["a", "b"], ["", ""], ["c", ""]]
    assert (counts.tolist(), counts.dtype) == ([2, 0, 1], np.int64)
    parts, counts = op("StringSplit", strings("a,,b", ""), n_out=2, delimiter=",")
    assert parts.tolist() == [["a", "", "b"], ["", "", ""]]
    assert counts.tolist() == [3, 1]
    assert op("StringSplit", strings(" a  b  c "), n_out=2, maxsplit=1)[0].tolist() == [["a", "b  c"]]
    parts, counts = op("StringSplit", np.array("a-b-c", object), n_out=2, delimiter="-", maxsplit=1)
    assert (parts.tolist(), counts.tolist(), counts.shape) == (["a", "b-c"], 2, ())
    assert [o.shape for o in op("StringSplit", np.empty((2, 0), object), n_out=2)] == [(2, 0, 0), (2, 0)]


def test_normalizer(op):
    x = strings("Monday", "tuesday", "MONDAY")
    assert op("StringNormalizer", x, stopwords=("monday",)).tolist() == ["tuesday"]
    assert op(
        "StringNormalizer", x, stopwords=("Monday",), is_case_sensitive=1, case_change_action="LOWER"
    ).tolist() == [
        "tuesday",
        "monday",
    ]
    everything = op("StringNormalizer", x.reshape(1, 3), stopwords=("monday", "tuesday"), case_change_action="UPPER")
    assert (everything.tolist(), everything.dtype) == ([[""]], object)
    assert op("StringNormalizer", x[:0]).tolist() == [""]
    with pytest.raises(KernelError, match="shape"):
        op("StringNormalizer", x.reshape(3, 1))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\pL+", "äöü", True),
        (r"\p{Lu}\P{Lu}", "Äb", True),
        (r"\p{^Lu}", "A", False),
        (r"\Qa.b\E+", "a.bb", True),
        (r"(?i)straße", "STRAßE", True),
        (r"(?i)[^k]", "K", False),
        (r"(?i:a)b", "Ab", True),
        (r"(?i:a)b", "AB", False),
        (r"a(?i)b|c", "C", True),
        (r"[[:alpha:]]+[[:^digit:]]", "abc", True),
        (r"[]a-]+", "]-a", True),
        (r"\x41\x{42}\103\n\.", "ABC\n.", True),
        (r"a{,2}", "a{,2}", True),
        (r"a{2,3}", "aaaa", False),
        (r".*", "a\nb", False),
        (r"(?s).*", "a\nb", True),
        (r"(?m)a$\n^b", "a\nb", True),
        (r"a$", "a\n", False),
        (r"\d", "٣", False),
        (r"(?P<year>\d{4})-(?<month>\d\d)", "2024-05", True),
        (r"\bfoo\b.*\B", "foo bar ", True),
        (r"\B", "", True),
        (r"", "", True),
        (r"(a*)*b", "a" * 500, False),
        (r"(a|aa)+", "a" * 500, True),
    ],
)
def test_regex(op, pattern, text, expected):
    assert op("RegexFullMatch", strings(text), pattern=pattern).tolist() == [expected]


INVALID = [
    r"(?=a)", r"(?<=a)", r"(?!a)", r"\1", "a**", "a{2}{3}", "(", "a)", "[", "[z-a]", "*a", r"\p{Greek}", "x{1001}",
    "(?P<a>x)(?P<a>y)", r"\q", "\\", "(?z)", "((a{1000}){1000})", "(" * 500 + ")" * 500, r"\x{110000}", "[[:foo:]]",
    "(?P=n)", "a{2,1}", r"\Z",
]  # fmt: skip


@pytest.mark.parametrize("pattern", INVALID)
def test_regex_refuses(op, pattern):
    with pytest.raises(KernelError, match="pattern"):
        op("RegexFullMatch", strings("a"), pattern=pattern)


ATOMS = st.sampled_from(
    ["a", "b", "0", "_", " ", "[ab]", "[^a]", "[a-c0-9]", r"\d", r"\w", r"\S", ".", "^", r"\b", r"\A"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
        inner.map(lambda p: f"(?i:{p})"),
    ),
    max_leaves=8,
)


@given(PATTERNS, st.lists(st.text("abA0_ \n", max_size=6), max_size=8))
def test_regex_against_python(pattern, texts):
    mine, theirs = Regex(pattern), re.compile(pattern, re.ASCII)
    assert [mine.fullmatch(t) for t in texts] == [theirs.fullmatch(t) is not None for t in texts]


@given(st.text("ab()[]{}*+?|\\^$.-,12dpQExi:<>P=!", max_size=12))
def test_regex_never_breaks(pattern):
    try:
        regex = Regex(pattern)
    except RegexError:
        return
    assert regex.fullmatch("ab1") in (True, False)


GRAMS = {
    "ngram_counts": (0, 2),
    "ngram_indexes": (3, 0, 1),
    "pool_int64s": (5, 6, 5, 7),
    "min_gram_length": 1,
    "max_gram_length": 2,
}


def test_tf_idf(op):
    # 1-grams 5 and 6 go to columns 3 and 0, the only 2-gram (5, 7) to column 1; column 2 has none.
    x = np.array([5, 7, 5, 6, 7], np.int32)
    for grams in (GRAMS, GRAMS | {"ngram_indexes": (3, 0, 3), "max_skip_count": 0}):
        wide = op("TfIdfVectorizer", x, **({"mode": "TF", "max_skip_count": 0} | grams))
        assert wide.dtype == np.float32
        assert wide.tolist() == ([1, 1, 0, 2] if grams is GRAMS else [1, 0, 0, 3])
    # With a skip of one, (5, 7) is found at 0 and 2, with no skip at 0.
    rows = op("TfIdfVectorizer", np.stack([x, x[::-1]]), mode="TF", max_skip_count=1, **GRAMS)
    assert rows.tolist() == [[1, 2, 0, 2], [1, 1, 0, 2]]
    weights = (0.5, 2.0, 3.0)
    assert op("TfIdfVectorizer", x, mode="IDF", max_skip_count=1, weights=weights, **GRAMS).tolist() == [2, 3, 0, 0.5]
    assert op("TfIdfVectorizer", x, mode="TFIDF", max_skip_count=1, weights=weights, **GRAMS).tolist() == [2, 6, 0, 1]
    assert op("TfIdfVectorizer", x[:0], mode="TF", max_skip_count=1, **GRAMS).tolist() == [0] * 4
    assert op("TfIdfVectorizer", np.zeros((2, 0), np.int64), mode="TF", max_skip_count=1, **GRAMS).shape == (2, 4)


def test_tf_idf_of_strings(op):
    grams = {"ngram_counts": (0,), "ngram_indexes": (1,), "pool_strings": ("x",), "max_skip_count": 0}
    grams |= {"min_gram_length": 1, "max_gram_length": 1, "mode": "TF"}
    assert op("TfIdfVectorizer", strings("x", "y", "x"), **grams).tolist() == [0, 2]
    with pytest.raises(KernelError, match="no pool"):
        op("TfIdfVectorizer", np.array([1]), **grams)
    with pytest.raises(KernelError, match="holds 1 n-grams, ngram_indexes 2"):
        op("TfIdfVectorizer", strings("x"), **(grams | {"ngram_indexes": (1, 0)}))
