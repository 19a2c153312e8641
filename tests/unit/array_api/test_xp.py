"""The array API namespace against NumPy, and on onnxruntime."""

import math

import numpy as np
import pytest

import irkit as ik
from irkit.errors import UnsupportedError
from irkit.frontends import dsl
from irkit.frontends.dsl import xp
from irkit.frontends.dsl.errors import SymbolError

RNG = np.random.default_rng(0)
F = RNG.normal(size=(3, 4)).astype(np.float32)
G = RNG.normal(size=(3, 4)).astype(np.float32)
M = (RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)).astype(np.float64)
I = RNG.integers(-9, 9, (3, 4))  # noqa: E741
POSITIVE = np.abs(F) + 1
UNIT = np.tanh(F)

UNARY = {
    **dict.fromkeys(
        "abs atan asinh ceil cos cosh exp expm1 floor isfinite isinf isnan negative positive round".split(), F
    ),
    **dict.fromkeys("sign signbit sin sinh square tan tanh trunc reciprocal conj real".split(), F),
    **dict.fromkeys("acosh log log10 log1p log2 sqrt".split(), POSITIVE),
    **dict.fromkeys("acos asin atanh".split(), UNIT),
    **dict.fromkeys("bitwise_invert logical_not".split(), F > 0),
}
BINARY = {
    **dict.fromkeys(
        "add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp maximum "
        "minimum multiply nextafter not_equal remainder subtract".split(),
        (F, G),
    ),
    "pow": (POSITIVE, G),
    **dict.fromkeys("bitwise_and bitwise_or bitwise_xor".split(), (I, I[::-1])),
    **dict.fromkeys("bitwise_left_shift bitwise_right_shift".split(), (I, I % 5)),
    **dict.fromkeys("logical_and logical_or logical_xor".split(), (F > 0, G > 0)),
}

CASES = {
    "clip": (lambda m, x: m.clip(x, -1, 1), F),
    "where": (lambda m, x: m.where(x > 0, x, -x), F),
    "concat": (lambda m, x: m.concat([x, x], axis=1), F),
    "concat_flat": (lambda m, x: m.concat([x, x], axis=None), F),
    "stack": (lambda m, x: m.stack([x, x], axis=-1), F),
    "unstack": (lambda m, x: m.unstack(x, axis=1)[2], F),
    "expand_dims": (lambda m, x: m.expand_dims(x, axis=1), F),
    "squeeze": (lambda m, x: m.squeeze(x[None], axis=0), F),
    "flip": (lambda m, x: m.flip(x), F),
    "permute_dims": (lambda m, x: m.permute_dims(x, (1, 0)), F),
    "moveaxis": (lambda m, x: m.moveaxis(x, (0, 1), (2, 0)), M),
    "reshape": (lambda m, x: m.reshape(x, (2, -1)), F),
    "repeat": (lambda m, x: m.repeat(x, 2, axis=1), F),
    "repeat_each": (lambda m, x: m.repeat(x, m.asarray([2, 0, 1]), axis=0), F),
    "roll": (lambda m, x: m.roll(x, (1, 2), axis=(0, 1)), F),
    "roll_flat": (lambda m, x: m.roll(x, 5), F),
    "tile": (lambda m, x: m.tile(x, (2, 1, 2)), F),
    "broadcast_to": (lambda m, x: m.broadcast_to(x, (2, 3, 4)), F),
    "broadcast_arrays": (lambda m, x: m.broadcast_arrays(x, x[:, :1])[1], F),
    "meshgrid": (lambda m, x: m.meshgrid(x[0], x[1])[0], F),
    "tril": (lambda m, x: m.tril(x, k=-1), F),
    "triu": (lambda m, x: m.triu(x, k=1), F),
    "take": (lambda m, x: m.take(x, m.asarray([2, 0]), axis=1), F),
    "take_along_axis": (lambda m, x: m.take_along_axis(x, m.argsort(x, axis=1), axis=1), F),
    "sum": (lambda m, x: m.sum(x, axis=0, keepdims=True), F),
    "sum_int8": (lambda m, x: m.sum(x, axis=0), I.astype(np.int8)),
    "sum_narrow": (lambda m, x: m.sum(x, axis=0, dtype=m.int8), I.astype(np.int8)),
    "prod": (lambda m, x: m.prod(x), F),
    "max": (lambda m, x: m.max(x, axis=(0, 1)), F),
    "max_int16": (lambda m, x: m.max(x, axis=1), I.astype(np.int16)),
    "min": (lambda m, x: m.min(x, axis=-1), F),
    "mean": (lambda m, x: m.mean(x, axis=1), F),
    "var": (lambda m, x: m.var(x, axis=1, correction=1), F),
    "std": (lambda m, x: m.std(x), F),
    "cumulative_sum": (lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True), F),
    "cumulative_prod": (lambda m, x: m.cumulative_prod(x, axis=0), F),
    "all": (lambda m, x: m.all(x > -1, axis=0), F),
    "any": (lambda m, x: m.any(x > 1, axis=0), F),
    "diff": (lambda m, x: m.diff(x, n=2), F),
    "argmax": (lambda m, x: m.argmax(x, axis=1), F),
    "argmin": (lambda m, x: m.argmin(x), F),
    "count_nonzero": (lambda m, x: m.count_nonzero(x, axis=1), I),
    "nonzero": (lambda m, x: m.nonzero(x)[1], I),
    "searchsorted": (lambda m, x: m.searchsorted(m.sort(x[0]), x[1], side="right"), F),
    "sort": (lambda m, x: m.sort(x, axis=0), F),
    "argsort": (lambda m, x: m.argsort(x, axis=1), F),
    "unique_all": (lambda m, x: m.unique_all(x).inverse_indices, I),
    "unique_counts": (lambda m, x: m.unique_counts(x).counts, I),
    "unique_inverse": (lambda m, x: m.unique_inverse(x).values, I),
    "unique_values": (lambda m, x: m.sort(m.unique_values(x)), I),
    "matmul": (lambda m, x: m.matmul(x, m.matrix_transpose(x)), F),
    "tensordot": (lambda m, x: m.tensordot(x, x, axes=((0, 1), (0, 1))), F),
    "vecdot": (lambda m, x: m.vecdot(x, x, axis=-1), F),
    "cross": (lambda m, x: m.linalg.cross(x, x[:, ::-1, :], axis=-1), M),
    "diagonal": (lambda m, x: m.linalg.diagonal(x, offset=1), M),
    "trace": (lambda m, x: m.linalg.trace(x), M),
    "outer": (lambda m, x: m.linalg.outer(x[0], x[1]), F),
    "det": (lambda m, x: m.linalg.det(x), M.astype(np.float32)),
    "slogdet": (lambda m, x: m.linalg.slogdet(x)[1], M.astype(np.float32)),
    "inv": (lambda m, x: m.linalg.inv(x), M),
    "solve": (lambda m, x: m.linalg.solve(x, x[0]), M),
    "matrix_power": (lambda m, x: m.linalg.matrix_power(x, -3), M),
    "cholesky": (lambda m, x: m.linalg.cholesky(x @ m.matrix_transpose(x)), M),
    "qr": (lambda m, x: m.abs(m.linalg.qr(x)[1]), M),
    "svdvals": (lambda m, x: m.linalg.svdvals(x[:, :, :2]), M),
    "svd": (lambda m, x: m.abs(m.linalg.svd(x)[0]), M),
    "svd_wide": (lambda m, x: m.abs(m.linalg.svd(x, full_matrices=False)[2]), F),
    "eigvalsh": (lambda m, x: m.linalg.eigvalsh(x + m.matrix_transpose(x)), M),
    "eigh": (lambda m, x: m.abs(m.linalg.eigh(x + m.matrix_transpose(x))[1]), M),
    "pinv": (lambda m, x: m.linalg.pinv(x), F),
    "matrix_rank": (lambda m, x: m.linalg.matrix_rank(m.linalg.outer(x[0], x[1])), F),
    "matrix_norm_2": (lambda m, x: m.linalg.matrix_norm(x, ord=2, keepdims=True), M),
    "matrix_norm_nuc": (lambda m, x: m.linalg.matrix_norm(x, ord="nuc"), M),
    "vector_norm": (lambda m, x: m.linalg.vector_norm(x, axis=1, ord=3), F),
    "matrix_norm": (lambda m, x: m.linalg.matrix_norm(x, ord=-1), M),
    "fftshift": (lambda m, x: m.fft.fftshift(x), F),
    "ifftshift": (lambda m, x: m.fft.ifftshift(x, axes=1), F),
    "matrix_norm_fro": (lambda m, x: m.linalg.matrix_norm(x), M),
    "astype": (lambda m, x: m.astype(x, m.int32), F),
    "asarray": (lambda m, x: x + m.asarray([1, 2, 3, 4], dtype=m.float32), F),
    "from_dlpack": (lambda m, x: x + m.from_dlpack(G), F),
    "arange": (lambda m, x: x + m.arange(4, dtype=m.float32), F),
    "linspace": (lambda m, x: x + m.linspace(0, 1, 4, dtype=m.float32), F),
    "eye": (lambda m, x: x + m.eye(3, 4, k=1, dtype=m.float32), F),
    "zeros": (lambda m, x: x + m.zeros((2, 1, 4), dtype=m.float32), F),
    "ones": (lambda m, x: x + m.ones(4, dtype=m.float32), F),
    "empty": (lambda m, x: m.concat([x, m.empty((0, 4), dtype=m.float32)]), F),
    "full": (lambda m, x: x + m.full((3, 1), 0.5, dtype=m.float32), F),
    "zeros_like": (lambda m, x: x * m.zeros_like(x), F),
    "ones_like": (lambda m, x: x + m.ones_like(x), F),
    "empty_like": (lambda m, x: x[:0] + m.empty_like(x[:0]), F),
    "full_like": (lambda m, x: x + m.full_like(x, 2.0), F),
    "fftfreq": (lambda m, x: x + m.astype(m.fft.fftfreq(4), m.float32), F),
    "rfftfreq": (lambda m, x: x + m.astype(m.fft.rfftfreq(6, d=0.1), m.float32), F),
    "matrix_transpose": (lambda m, x: m.matrix_transpose(x), M),
    "mask": (lambda m, x: x[x > 0], F),
    "index": (lambda m, x: x[None, 1:, ..., ::-2], F),
}
CASES |= {name: (lambda m, x, name=name: getattr(m, name)(x), value) for name, value in UNARY.items()}
CASES |= {name: (lambda m, x, name=name: getattr(m, name)(x[0], x[1]), np.stack(pair)) for name, pair in BINARY.items()}


Z = (F + 1j * G).astype(np.complex64)
H = (M + 1j * M[::-1, ::-1]).astype(np.complex128)
COMPLEX = {
    **dict.fromkeys(
        "abs acos acosh asin asinh atan atanh conj cos cosh exp expm1 imag isfinite isinf isnan log log10 log1p log2 "
        "negative positive real reciprocal round sign sin sinh sqrt square tan tanh".split(),
        Z,
    ),
}
OF_COMPLEX = {
    **{name: (lambda m, z, name=name: getattr(m, name)(z), value) for name, value in COMPLEX.items()},
    **{
        name: (lambda m, z, name=name: getattr(m, name)(z[0], z[1]), Z)
        for name in "add divide multiply pow subtract".split()
    },
    "equal": (lambda m, z: m.equal(z, m.real(z) + 0j), np.where(G > 0, F, Z)),
    "not_equal": (lambda m, z: m.not_equal(z, z[:1]), Z),
    "beside_reals": (lambda m, z: m.real(z) * 2 + z * 1j - 1, Z),
    "index": (lambda m, z: z[None, 1:, ..., ::-2], Z),
    "mask": (lambda m, z: z[m.real(z) > 0], Z),
    **{
        name: CASES[name]
        for name in "concat stack unstack expand_dims squeeze flip permute_dims reshape repeat repeat_each roll "
        "roll_flat tile broadcast_to broadcast_arrays meshgrid tril triu take cumulative_sum mean diff "
        "count_nonzero nonzero tensordot fftshift ifftshift zeros_like full_like".split()
    },
    **{
        name: CASES[name] for name in "diagonal trace cross inv solve matrix_power matrix_transpose matrix_norm".split()
    },
    "all": (lambda m, z: m.all(m.round(z), axis=0), Z),
    "any": (lambda m, z: m.any(z[:, :0], axis=1), Z),
    "where": (lambda m, z: m.where(m.real(z) > 0, z, m.imag(z)), Z),
    "sum": (lambda m, z: m.sum(z, axis=0, keepdims=True), Z),
    "prod": (lambda m, z: m.prod(z, axis=1), Z),
    "prod_all": (lambda m, z: m.prod(z, keepdims=True), Z[:, :3]),
    "prod_of_none": (lambda m, z: m.prod(z[:0], axis=0), Z),
    "cumulative_prod": (lambda m, z: m.cumulative_prod(z, axis=1, include_initial=True), Z),
    "astype": (lambda m, z: z + m.astype(m.real(z), m.complex128), Z),
    "asarray": (lambda m, z: z + m.asarray([[1j], [2], [3.0]], dtype=m.complex64), Z),
    "full": (lambda m, z: z + m.full((3, 1), 2 - 1j, dtype=m.complex64), Z),
    "linspace": (lambda m, z: z + m.linspace(0, 1j, 4, dtype=m.complex64), Z),
    "eye": (lambda m, z: z + m.eye(3, 4, k=1, dtype=m.complex64), Z),
    "ones": (lambda m, z: z + m.ones(4, dtype=m.complex64), Z),
    "unique_values": (lambda m, z: m.unique_all(m.round(z)).values, Z),
    "unique_counts": (lambda m, z: m.unique_counts(m.round(z)).counts, Z),
    "unique_inverse": (lambda m, z: m.take(*map(m.asarray, m.unique_inverse(m.round(z))), axis=0), Z),
    "matmul": (lambda m, z: m.matmul(z, m.matrix_transpose(z)), Z),
    "vecdot": (lambda m, z: m.vecdot(z, z[::-1], axis=-1), Z),
    "outer": (lambda m, z: m.linalg.outer(z[0], z[1]), Z),
    "det": (lambda m, z: m.linalg.det(z), H),
    "slogdet": (lambda m, z: m.linalg.slogdet(z)[0], H),
    "logabsdet": (lambda m, z: m.linalg.slogdet(z)[1], H),
    "cholesky": (lambda m, z: m.linalg.cholesky(z @ m.matrix_transpose(m.conj(z))), H),
    "cholesky_upper": (lambda m, z: m.linalg.cholesky(z @ m.matrix_transpose(m.conj(z)), upper=True), H),
    "qr": (lambda m, z: m.abs(m.linalg.qr(z)[1]), H),
    "qr_product": (lambda m, z: m.matmul(*m.linalg.qr(z)), H),
    "svdvals": (lambda m, z: m.linalg.svdvals(z[:, :, :2]), H),
    "svd": (lambda m, z: m.abs(m.linalg.svd(z)[0]), H),
    "svd_wide": (lambda m, z: (lambda u, s, v: (u * s) @ v)(*m.linalg.svd(z, full_matrices=False)), Z),
    "eigvalsh": (lambda m, z: m.linalg.eigvalsh(z + m.matrix_transpose(m.conj(z))), H),
    "eigh": (lambda m, z: m.abs(m.linalg.eigh(z + m.matrix_transpose(m.conj(z)))[1]), H),
    "pinv": (lambda m, z: m.linalg.pinv(z), Z),
    "matrix_rank": (lambda m, z: m.linalg.matrix_rank(m.linalg.outer(z[0], z[1])), Z),
    "vector_norm": (lambda m, z: m.linalg.vector_norm(z, axis=1, ord=3), Z),
    "matrix_norm_nuc": (lambda m, z: m.linalg.matrix_norm(z, ord="nuc"), H),
}
for _name in "fft ifft irfft hfft".split():
    OF_COMPLEX |= {
        _name: (lambda m, z, name=_name: getattr(m.fft, name)(z), Z),
        f"{_name}_n": (lambda m, z, name=_name: getattr(m.fft, name)(z, n=5, axis=0, norm="ortho"), Z),
        f"{_name}_short": (lambda m, z, name=_name: getattr(m.fft, name)(z, n=3, norm="forward"), H),
    }
for _name in "fftn ifftn irfftn".split():
    OF_COMPLEX |= {
        _name: (lambda m, z, name=_name: getattr(m.fft, name)(z), H),
        f"{_name}_s": (lambda m, z, name=_name: getattr(m.fft, name)(z, s=(5, 2), axes=(2, 0), norm="forward"), H),
    }
for _name in "fft rfft ihfft fftn ifftn rfftn".split():
    CASES |= {
        _name: (lambda m, x, name=_name: getattr(m.fft, name)(x), F),
        f"{_name}_norm": (lambda m, x, name=_name: getattr(m.fft, name)(x, norm="ortho"), M),
    }
CASES |= {
    "rfft_n": (lambda m, x: m.fft.rfft(x, n=7, axis=0, norm="forward"), F),
    "ihfft_n": (lambda m, x: m.fft.ihfft(x, n=3, norm="forward"), F),
    "rfftn_s": (lambda m, x: m.fft.rfftn(x, s=(2, 5), axes=(0, 2)), M),
    "astype_complex": (lambda m, x: m.astype(x, m.complex64), F),
    "imag": (lambda m, x: m.imag(x) + m.real(x), F),
}


def close(found, wanted):
    assert found.shape == wanted.shape
    if wanted.dtype.kind in "fc":
        single = any(kind in (np.float32, np.complex64) for kind in (found.dtype, wanted.dtype))
        np.testing.assert_allclose(found, wanted, rtol=1e-5 if single else 1e-11, atol=2e-6 if single else 1e-12)
    else:
        np.testing.assert_array_equal(found, wanted)


def complexes(pairs, wanted):
    """What a graph gives, as complex numbers if they are wanted."""
    return pairs[..., 0] + 1j * pairs[..., 1] if wanted.dtype.kind == "c" else pairs


@pytest.mark.parametrize("name", CASES)
def test_a_concrete_array_has_the_value_that_numpy_gives(name):
    function, value = CASES[name]
    found, wanted = dsl.evaluate(function(xp, xp.asarray(value))), np.asarray(function(np, value))
    assert found.dtype == wanted.dtype
    close(found, wanted)


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_complex_arrays_have_the_values_that_numpy_gives(name):
    function, value = OF_COMPLEX[name]
    value = value if value.dtype.kind == "c" else (value + 1j * value[::-1]).astype(f"c{2 * value.itemsize}")
    found, wanted = dsl.evaluate(function(xp, xp.asarray(value))), np.asarray(function(np, value))
    assert found.dtype == wanted.dtype
    close(found, wanted)
    pairs = np.stack([value.real, value.imag], -1)
    z = xp.from_pairs(dsl.placeholder("z", pairs.dtype, pairs.shape))
    close(complexes(np.asarray(ik.compile(function(xp, z))(pairs)), wanted), wanted)


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_the_graph_of_complex_numbers_runs_on_onnxruntime(name):
    function, value = OF_COMPLEX[name]
    value = (value if value.dtype.kind == "c" else value + 1j * value[::-1]).astype(np.complex64)
    pairs, wanted = np.stack([value.real, value.imag], -1), np.asarray(function(np, value))
    z = xp.from_pairs(dsl.placeholder("z", pairs.dtype, pairs.shape))
    found = complexes(np.asarray(ik.compile(function(xp, z), backend="onnxruntime")(pairs)), wanted)
    assert found.shape == wanted.shape
    if wanted.dtype.kind in "fc":
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-4 * max(1, np.abs(wanted).max()))
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_the_graph_of_a_placeholder_runs_on_onnxruntime(name):
    function, value = CASES[name]
    x = xp.asarray(dsl.placeholder("x", value.dtype, value.shape))
    wanted = np.asarray(function(np, value))
    close(complexes(np.asarray(ik.compile(function(xp, x), backend="onnxruntime")(value)), wanted), wanted)


REAL = [name for name in xp.__array_namespace_info__().dtypes() if "complex" not in name]


@pytest.mark.parametrize("a", REAL)
def test_dtypes_are_promoted_as_numpy_does_where_the_standard_says_so(a):
    for b in REAL:
        kinds = {np.dtype(a).kind.replace("u", "i"), np.dtype(b).kind.replace("u", "i")}
        wanted = np.result_type(np.dtype(a), np.dtype(b))
        if len(kinds) > 1 or (kinds == {"i"} and wanted.kind == "f"):
            with pytest.raises(SymbolError, match="no common dtype"):
                xp.result_type(getattr(xp, a), getattr(xp, b))
            continue
        assert xp.result_type(getattr(xp, a), getattr(xp, b)).numpy == wanted
        if a != "bool":
            x, y = np.array([1, 2, 3], a), np.array([1, 1, 2], b)
            np.testing.assert_array_equal(xp.asarray(x) * xp.asarray(y), x * y, strict=True)


def test_a_python_number_takes_the_dtype_of_the_array():
    for name, number in [("uint8", 2), ("float64", 2), ("float64", 2.5), ("int16", -1)]:
        x = np.array([1, 2], name)
        np.testing.assert_array_equal(xp.asarray(x) + number, x + number, strict=True)
        np.testing.assert_array_equal(number * xp.asarray(x), number * x, strict=True)
    assert (xp.asarray([1, 2]) + 0.5).dtype is xp.float32


def test_python_asks_for_values_of_concrete_arrays():
    x = xp.asarray(np.array([3, 4]))
    assert bool(x[0] > 2)
    assert int(x[1]) == 4
    assert float(x[0]) == 3.0
    assert complex(x[0]) == 3
    assert "abcde"[x[1]] == "e"
    assert len(x) == 2
    assert [int(v) for v in x] == [3, 4]
    with pytest.raises(SymbolError, match="has axes"):
        bool(x)
    with pytest.raises(SymbolError, match="placeholder"):
        bool(xp.asarray(dsl.placeholder("p", "bool", [])))


def test_in_place_operations_rebind_the_name_and_leave_what_was_computed():
    x = xp.asarray(np.arange(4.0))
    y = x * 2
    same = x
    x += 1
    x[1:3] = -1
    x[x > 3] = 9
    assert same is x
    np.testing.assert_array_equal(x, [1, -1, -1, 9])
    np.testing.assert_array_equal(y, [0, 2, 4, 6])
    with pytest.raises(SymbolError, match="does not fit"):
        xp.asarray([1, 2])[0] = 0.5
    with pytest.raises(SymbolError, match="in place"):
        x += xp.ones((2, 4), dtype=xp.float64)


def test_in_place_operations_on_a_placeholder_are_part_of_the_graph():
    x = xp.asarray(dsl.placeholder("x", "float32", [3]))
    x[0] = 5.0
    x *= 2
    for backend in ("numpy", "onnxruntime"):
        assert ik.compile(x, backend=backend)(np.float32([1, 2, 3])).tolist() == [10, 4, 6]


def test_symbols_have_the_namespace_and_sizes_with_names():
    x = dsl.placeholder("x", "float32", ["n", 2])
    assert x.__array_namespace__() is xp
    y = xp.std(xp.asarray(x), axis=0, correction=1)
    value = RNG.normal(size=(5, 2)).astype(np.float32)
    close(ik.compile(y)(value), value.std(axis=0, ddof=1))
    assert xp.asarray(x).shape == ("n", 2)


def test_sizes_that_depend_on_values_are_known_of_concrete_arrays():
    x = xp.asarray([3.0, 1.0, 3.0])
    assert xp.unique_values(x).shape == (2,)
    assert x[x > 2].shape == (2,)
    assert xp.nonzero(x)[0].shape == (3,)


def test_an_index_that_does_not_fit_is_an_index_error():
    x = xp.asarray(F)
    for index in (3, (0, 0, 0), xp.asarray([True, False]), xp.asarray(True)[None, None, None]):
        with pytest.raises(IndexError):
            x[index]


@pytest.mark.parametrize("name", "inv svdvals svd eigh qr det matrix_power matrix_norm_2 cholesky solve".split())
def test_matrices_may_be_a_batch_of_unknown_size(name):
    function, value = CASES[name]
    x = xp.asarray(dsl.placeholder("x", value.dtype, ["batch", 3, 3]))
    close(np.asarray(ik.compile(function(xp, x))(value)), np.asarray(function(np, value)))


def test_a_singular_matrix_has_singular_vectors_all_the_same():
    x = np.outer([1.0, 2, 3], [1.0, 0, 1])
    u, s, vh = map(np.asarray, xp.linalg.svd(xp.asarray(x)))
    np.testing.assert_allclose(u * s @ vh, x, atol=1e-12)
    np.testing.assert_allclose(u.T @ u, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(s, np.linalg.svd(x)[1], atol=1e-12)


def test_evaluate_takes_all_kinds_of_expressions():
    @dsl.function
    def doubled(x):
        return x * 2

    three = dsl.constant(np.float64([3]))
    assert dsl.evaluate(doubled(three)).tolist() == [6]
    assert dsl.evaluate(dsl.fori(0, 3, lambda i, x: x + 1.0, three)).tolist() == [6]
    assert dsl.evaluate(dsl.gradients(dsl.sum(three * three), [three])[0]).tolist() == [6]
    assert dsl.evaluate(2).tolist() == 2
    with pytest.raises(SymbolError, match="random"):
        dsl.evaluate(dsl.random_normal([2]))
    with pytest.raises(SymbolError, match="placeholder"):
        dsl.evaluate(doubled(dsl.placeholder("x", "float64", [1])))
    with pytest.raises(ValueError, match="read-only"):
        dsl.evaluate(three)[0] = 0


def test_numpy_functions_and_operators_give_arrays_with_promotion():
    x = xp.asarray(np.int8([1, 2]))
    for found in (np.array([1, 2]) + x, np.power(x, x), np.add(x, np.int32(1)), x.reshape(2, 1), divmod(x, 2)[0]):
        assert isinstance(found, xp.Array)
    assert (np.array([1, 2]) + x).dtype is xp.int64


def test_gradients_go_through():
    x = dsl.placeholder("x", "float64", [3, 3])
    found = dsl.gradients(xp.sum(xp.linalg.inv(x)), [x])[0]
    inverse = np.linalg.inv(M[0])
    np.testing.assert_allclose(ik.compile(found)(M[0]), -inverse.T @ np.ones((3, 3)) @ inverse.T, rtol=1e-8)


def test_creation():
    np.testing.assert_array_equal(xp.arange(1, 7, 2), np.arange(1, 7, 2), strict=True)
    np.testing.assert_array_equal(xp.arange(3.0), np.arange(3, dtype=np.float32), strict=True)
    np.testing.assert_array_equal(
        xp.linspace(0, 1, 5, endpoint=False), np.float32([0, 0.2, 0.4, 0.6, 0.8]), strict=True
    )
    np.testing.assert_array_equal(xp.eye(2, 3, k=1), np.eye(2, 3, 1, np.float32), strict=True)
    np.testing.assert_array_equal(xp.full((2,), True), np.full(2, True), strict=True)
    np.testing.assert_array_equal(xp.zeros_like(xp.asarray(I)), np.zeros_like(I), strict=True)
    np.testing.assert_array_equal(xp.asarray([[1, xp.asarray(2)], [3, 4]]), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(xp.from_dlpack(F), F, strict=True)
    np.testing.assert_array_equal(np.from_dlpack(xp.asarray(F)), F, strict=True)
    assert xp.asarray(1.0).dtype is xp.float32


def test_signs_of_zero_and_infinities():
    a, b = xp.asarray([0.0, -0.0, math.inf, -1.0, 1.0]), xp.asarray([-1.0, 1.0, 2.0, math.inf, 0.0])
    quotient = np.asarray(xp.floor_divide(a, b))
    np.testing.assert_array_equal(quotient, [-0.0, -0.0, math.inf, -0.0, math.inf])
    np.testing.assert_array_equal(np.signbit(quotient), [True, True, False, True, False])
    zeros = np.asarray(xp.remainder(a[:2], b[:2]))
    np.testing.assert_array_equal(np.signbit(zeros), [True, False])


REFUSED = {
    "floor": lambda z: xp.floor(z),
    "less": lambda z: z < 1,
    "max": lambda z: xp.max(z),
    "var": lambda z: xp.var(z),
    "argmin": lambda z: xp.argmin(z),
    "sort": lambda z: xp.sort(z),
    "searchsorted": lambda z: xp.searchsorted(z, z),
    "clip": lambda z: xp.clip(z, 0, 1),
    "rfftn": lambda z: xp.fft.rfftn(z),
    "astype": lambda z: xp.astype(z, xp.float32),
    "atan2": lambda z: xp.atan2(z, z),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_of_real_numbers_only_refuses_complex_ones_by_name(name):
    with pytest.raises(UnsupportedError, match=rf"xp\.(fft\.)?{name}.*(real numbers|complex)") as caught:
        REFUSED[name](xp.asarray([1j]))
    assert caught.value.hint


def test_a_complex_array_goes_through_a_graph_as_pairs():
    z = xp.from_pairs(dsl.placeholder("z", "float32", ["n", 2]))
    assert z.dtype is xp.complex64
    assert z.shape == ("n",)
    module = ik.compile({"conjugate": xp.conj(z), "size": abs(z)})
    found = module.run({"z": np.float32([[3, 4], [0, -1]])})
    np.testing.assert_array_equal(found["conjugate"], [[3, -4], [0, 1]])
    np.testing.assert_array_equal(found["size"], [5, 1])
    np.testing.assert_array_equal(xp.to_pairs(xp.asarray([1 + 2j])), [[1, 2]])


def test_what_takes_one_symbol_refuses_the_two_of_a_complex_array():
    z = xp.asarray([1j])
    for wrong in (lambda: dsl.add(z, z), lambda: dsl.Session().run(z), lambda: xp.to_pairs(xp.real(z))):
        with pytest.raises(ik.IrkitError, match="complex"):
            wrong()
    for wrong in (lambda: xp.from_pairs(xp.real(z)), lambda: xp.asarray(dsl.placeholder("z", "complex64", [1]))):
        with pytest.raises(ik.IrkitError, match="pairs"):
            wrong()


def test_complex_values_in_python():
    z = xp.asarray([1 + 2j, -3j])
    assert complex(z[0]) == 1 + 2j
    assert "1.+2.j" in repr(z)
    same = z
    z[0] = 5
    z *= 2j
    np.testing.assert_array_equal(same, [10j, 6], strict=False)
    np.testing.assert_array_equal(np.conjugate(z), [-10j, 6])
    with pytest.raises(SymbolError, match="does not fit"):
        xp.asarray([1.0])[0] = 1j
    assert xp.result_type(z, 1.0) is xp.complex64
    assert (xp.asarray([1.0], dtype=xp.float64) * 1j).dtype is xp.complex128
    np.testing.assert_array_equal(np.from_dlpack(z), [10j, 6])


def test_gradients_go_through_complex_numbers():
    x = dsl.placeholder("x", "float64", [3, 2])
    found = dsl.gradients(xp.sum(xp.real(xp.from_pairs(x) ** 2)), [x])[0]
    value = RNG.normal(size=(3, 2))
    np.testing.assert_allclose(ik.compile(found)(value), value * [2, -2], rtol=1e-12)


class Old:
    """What gives memory as x does, without a copy, but knows of no read-only memory."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **_):
        return self.x.__dlpack__(copy=False)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def test_memory_is_shared_with_those_who_know_of_read_only_memory():
    x = xp.asarray(F)
    shared, own = np.from_dlpack(x, copy=False), np.from_dlpack(Old(x))
    assert np.shares_memory(shared, dsl.evaluate(x))
    assert not shared.flags.writeable
    assert not np.shares_memory(own, dsl.evaluate(x))
    np.testing.assert_array_equal(own, F)


QUESTIONS = frozenset({"__array_namespace_info__", "can_cast", "finfo", "iinfo", "isdtype", "result_type"})


def test_every_function_has_a_case():
    names = {*xp.FUNCTIONS, *xp.linalg.__all__, *xp.fft.__all__} - QUESTIONS
    called = {word for name in (*CASES, *OF_COMPLEX) for word in (name, name.rsplit("_", 1)[0], name.split("_", 1)[0])}
    assert names <= called
