"""Strings."""

from __future__ import annotations

from irkit.ir.op import OpSpec

from ..generate import Call, Context
from ..registry import I32, I64, STRING, exact, partner, samples

exact("StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer")


@samples("StringConcat")
def string_concat(g: Context, spec: OpSpec) -> Call:
    x = g.take(STRING)
    return Call([x, partner(g, x)])


@samples("StringNormalizer")
def string_normalizer(g: Context, spec: OpSpec) -> Call:
    x = g.take(
        STRING, 1, 2, least=1, fits=lambda v: len(v.shape) == 1 or v.shape[0] == 1, shape=lambda: (g.between(1, 4),)
    )
    attributes = g.maybe(case_change_action=["LOWER", "UPPER", "NONE"], stopwords=[["a"], ["A b", "bé"]])
    return Call([x], attributes | {"is_case_sensitive": g.below(2)})


@samples("StringSplit")
def string_split(g: Context, spec: OpSpec) -> Call:
    return Call([g.take(STRING, 0, 3, least=1)], g.maybe(delimiter=[",", " ", ""], maxsplit=[1, 2]), outputs=2)


@samples("RegexFullMatch")
def regex_full_match(g: Context, spec: OpSpec) -> Call:
    pattern = g.pick(("[a-z]+", ".*", "", "a|b", r"-?\d+(\.\d+)?", r"\w+ \w+", "[^,]*"))
    return Call([g.take(STRING)], {"pattern": pattern})


@samples("TfIdfVectorizer")
def tf_idf_vectorizer(g: Context, spec: OpSpec) -> Call:
    x = g.take(g.pick((I64, I32)), 1, 2, least=1, span=(0, 5), shape=lambda: (g.between(2, 6),))
    # Four of one, three of two.
    attributes = {
        "mode": g.pick(("TF", "IDF", "TFIDF")),
        "min_gram_length": 1,
        "max_gram_length": g.between(1, 2),
        "max_skip_count": g.between(0, 2),
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": [2, 3, 5, 4, 5, 4, 2, 1, 0, 3],
    }
    return Call([x], attributes | g.maybe(weights=[[0.5, 1.0, 2.0, 1.5, 1.0, 3.0, 0.25]]))
