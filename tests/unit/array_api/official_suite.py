"""A pytest plugin for the official test suite: it draws no complex dtypes, and names what is expected to fail, and why.

The suite's own variable, ARRAY_API_TESTS_SKIP_DTYPES, does not take both complex dtypes at once.
"""

import array_api_tests.dtype_helpers as helpers  # pyright: ignore[reportMissingImports]
import pytest

NO_COMPLEX = "ONNX has no complex arithmetic, and no op that makes complex numbers or takes them apart"
EXPECTED = {
    **dict.fromkeys(
        "test_fft test_ifft test_fftn test_ifftn test_rfft test_irfft test_rfftn test_irfftn".split(), NO_COMPLEX
    ),
    **dict.fromkeys("test_hfft test_ihfft test_vecdot_conj".split(), NO_COMPLEX),
    "test_unary[signbit(x_i is -NaN) -> True]": "a NaN has its sign in its bits only, and no op looks at them",
    "test_dunder_dlpack": "without a copy, an array is exported only to those who know of read-only memory",
}

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


def pytest_collection_modifyitems(items):
    for item in items:
        is_complex = "real(x_i)" in item.name or "imag(x_i)" in item.name
        reason = NO_COMPLEX if is_complex else EXPECTED.get(item.name)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason))
