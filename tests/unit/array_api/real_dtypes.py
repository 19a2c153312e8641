"""A pytest plugin for the official test suite: it draws no complex dtypes, since ONNX has no complex arithmetic.

The suite's own variable, ARRAY_API_TESTS_SKIP_DTYPES, does not take both complex dtypes at once.
"""

import array_api_tests.dtype_helpers as helpers  # pyright: ignore[reportMissingImports]

COMPLEX = tuple(helpers.complex_dtypes)


def _is_real(*dtypes):
    return not any(d is c for d in dtypes for c in COMPLEX)


def _reals(dtypes):
    return type(dtypes)(filter(_is_real, dtypes))


for name, value in list(vars(helpers).items()):
    if name.endswith("_dtypes") and isinstance(value, tuple | list):
        setattr(helpers, name, _reals(value))
helpers.kind_to_dtypes = {kind: _reals(dtypes) for kind, dtypes in helpers.kind_to_dtypes.items()}
helpers.promotion_table = helpers.EqualityMapping(
    [((a, b), helpers.promotion_table[a, b]) for a, b in helpers.promotion_table if _is_real(a, b)]
)
