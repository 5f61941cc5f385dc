"""The kernels compute what independent definitions say, on any layout, and refuse what does not fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import hadamard

from hdcos import ring
from hdcos.errors import FrameError, InputError

MODULUS = 2**64


def test_matmul_is_the_product_of_python_integers(words):
    a, b = words(3, 5), words(5, 4)
    expected = [[sum(int(x) * int(y) for x, y in zip(r, c, strict=True)) % MODULUS for c in b.T] for r in a]
    assert ring.matmul(a, b).tolist() == expected


def test_conv2d_is_the_sum_over_the_window(words):
    x, weight = words(2, 2, 5, 6), words(3, 2, 3, 2)
    result = ring.conv2d(x, weight, stride=2, padding=1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for (n, o, i, j), value in np.ndenumerate(result):
        window = padded[n, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2]
        pairs = zip(window.ravel().tolist(), weight[o].ravel().tolist(), strict=True)
        assert int(value) == sum(a * b for a, b in pairs) % MODULUS
    assert result.shape == (2, 3, 3, 4)


@pytest.mark.parametrize("n", [1, 2, 16, 128])
def test_walsh_hadamard_is_the_sylvester_matrix(words, n):
    x = words(2, 3, n)
    matrix = hadamard(n).astype(np.int64).view(np.uint64)
    np.testing.assert_array_equal(ring.walsh_hadamard(x), x @ matrix)


def test_walsh_hadamard_writes_where_it_is_told(words):
    x = words(4, 64)
    expected, out = ring.walsh_hadamard(x), np.empty_like(x)
    assert ring.walsh_hadamard(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    joined = words(5, 64)
    expected = ring.walsh_hadamard(joined[:4].copy())
    np.testing.assert_array_equal(ring.walsh_hadamard(joined[:4], out=joined[1:]), expected)


@given(st.integers(0, MODULUS - 1), st.integers(0, MODULUS - 1), st.integers(1, 64), st.data())
def test_round_open_follows_its_definition(x, mask, bits, data):
    drop = data.draw(st.integers(0, 64 - bits))
    half = 2 ** (drop - 1) if drop else 0
    expected = (((x + half) % MODULUS >> drop) + mask) % 2**bits
    word, masks = np.array([x], np.uint64), np.array([mask % 2**bits], np.uint64)
    assert ring.round_open(word, masks, drop, bits).tolist() == [expected]
    assert ring.round_open(word, masks.astype(ring.compact_dtype(bits)), drop, bits).tolist() == [expected]


@pytest.mark.parametrize(("ties_up", "expected"), [(True, [0, 1, 1, 2]), (False, [0, 0, 1, 1])])
def test_round_open_rounds_ties_as_told(ties_up, expected):
    assert ring.round_open(np.array([0, 2, 4, 6], np.uint64), None, 2, 8, ties_up).tolist() == expected
    assert ring.round_open(np.array([7], np.uint64), None, 0, 8, ties_up).tolist() == [7]


def test_two_shares_rounded_and_masked_open_to_the_rounded_sum(words):
    x, share, m = words(1000), words(1000), words(1000, bits=20)
    opened = ring.round_open(share, m, 30, 20) + ring.round_open(x - share, None, 30, 20) - m.astype(np.uint32)
    error = (opened - (x >> np.uint64(30)).astype(np.uint32) + np.uint32(1)) & np.uint32(2**20 - 1)
    assert error.max() <= 2


@pytest.mark.parametrize("bits", range(1, 65))
def test_packed_bits_are_a_little_endian_stream_that_unpacks(words, bits):
    values = words(37, bits=bits).astype(ring.compact_dtype(bits))
    packed = ring.pack(values, bits)
    stream = sum(int(value) << (i * bits) for i, value in enumerate(values))
    assert packed.tobytes() == stream.to_bytes((37 * bits + 7) // 8, "little")
    for buffer in (packed, packed.tobytes(), memoryview(packed.tobytes())):
        np.testing.assert_array_equal(ring.unpack(buffer, 37, bits), values)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_whole_byte_widths_are_packed_without_a_copy(words, bits):
    values = words(6, bits=bits).astype(ring.compact_dtype(bits))
    packed = ring.pack(values, bits)
    assert np.shares_memory(packed, values)
    assert np.shares_memory(ring.unpack(packed, 6, bits), values)


def test_an_unaligned_buffer_unpacks(words):
    values = words(4)
    np.testing.assert_array_equal(ring.unpack((b"x" + values.tobytes())[1:], 4, 64), values)
    np.testing.assert_array_equal(ring.unpack(memoryview(b"x" + values.tobytes())[1:], 4, 64), values)


def test_a_buffer_of_the_wrong_size_or_padding_is_a_frame_error():
    with pytest.raises(FrameError, match="take 5 bytes, got 4"):
        ring.unpack(bytes(4), 3, 12)
    with pytest.raises(FrameError, match="padding"):
        ring.unpack(bytes([0, 0, 0, 0, 16]), 3, 12)
    assert ring.unpack(bytes([0, 0, 0, 0, 15]), 3, 12).tolist() == [0, 0, 15 * 2**8]


def test_out_must_be_contiguous_and_writable(words):
    with pytest.raises(InputError, match="contiguous"):
        ring.walsh_hadamard(words(4, 4), out=words(4, 4).T)
    fixed = words(4, 4)
    fixed.flags.writeable = False
    with pytest.raises(InputError, match="written"):
        ring.matmul(words(4, 4), words(4, 4), out=fixed)


def test_matmul_writes_where_it_is_told(words):
    a, b, out = words(3, 4), words(4, 4), words(3, 4)
    expected = ring.matmul(a, b)
    assert ring.matmul(a, b, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert ring.matmul(a, b, out=a) is a
    np.testing.assert_array_equal(a, expected)


def test_rotate_writes_where_it_is_told(words):
    phase, joined = words(50, bits=16), words(51)
    a, b, out = joined[:50], words(50), words(50)
    cosine, sine = ring.rotate(phase, a, b, 16, 16)
    result = ring.rotate(phase, a, b, 16, 16, out=(None, out))
    assert result[1] is out
    np.testing.assert_array_equal(result, (cosine, sine))
    np.testing.assert_array_equal(ring.rotate(phase, a, b, 16, 16, out=(joined[1:], b)), (cosine, sine))
    only, nothing = ring.rotate(phase, words(50), out, 16, 16, sine=False, out=(out, None))
    assert (only is out, nothing) == (True, None)
    blank, _ = ring.rotate(ring.Blank(50), ring.Blank(50), ring.Blank(50), 16, 16, out=(ring.Blank(50), None))
    assert (blank.shape, blank.dtype) == ((50,), np.uint64)


@pytest.mark.parametrize("bits", [16, 20])
def test_rotate_turns_by_the_public_phase(words, bits):
    phase = words(50, bits=bits).astype(ring.compact_dtype(bits))
    a, b = words(50), words(50)
    cos, sin = (part.view(np.uint64) for part in ring.trig_words(phase, bits, 16))
    cosine, sine = ring.rotate(phase, a, b, bits, 16)
    np.testing.assert_array_equal(cosine, cos * a - sin * b)
    np.testing.assert_array_equal(sine, sin * a + cos * b)


def test_trig_combine_evaluates_a_series_of_the_sum_of_angles():
    rng = np.random.default_rng(5)
    d, r = rng.integers(0, 2**16, (2, 30, 4), dtype=np.uint64)
    harmonics, a, b = np.array([1, 3, 5]), rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 3)
    shares = [ring.encode(f(2 * np.pi * r[..., None] * harmonics / 2**16), 16) for f in (np.cos, np.sin)]
    coefficients = [np.rint(part * 2**16).astype(np.int64) for part in (a, b)]
    result = ring.trig_combine(d.astype(np.uint16), *shares, 16, 16, *coefficients, harmonics)
    x = 2 * np.pi * (d + r)[..., None] * harmonics / 2**16
    expected = (a * np.cos(x) + b * np.sin(x)).sum(-1)
    np.testing.assert_allclose(ring.decode(result, 48), expected, atol=3 * 4 * 2**-16)


@pytest.mark.parametrize("shift", [0, 1, 5, 63])
def test_trig_combine_rounds_its_coefficients(words, shift):
    phase, c, s = words(9, bits=16).astype(np.uint16), words(9, 2), words(9, 2)
    a, b, harmonics = [3_000_001, -77], [-5, 123_456_789_012], [1, 2]
    result = ring.trig_combine(phase, c, s, 16, 20, a, b, harmonics, coefficient_shift=shift)
    for i, value in enumerate(result.tolist()):
        expected = 0
        for j, k in enumerate(harmonics):
            cos, sin = (int(part[0]) for part in ring.trig_words(phase[i : i + 1] * np.uint16(k), 16, 20))
            u, v = a[j] * cos + b[j] * sin, b[j] * cos - a[j] * sin
            half = 2 ** (shift - 1) if shift else 0
            expected += ((u + half) >> shift) * int(c[i, j]) + ((v + half) >> shift) * int(s[i, j])
        assert value == expected % MODULUS


def test_arrays_in_any_layout_are_accepted(words):
    a, b, x = words(6, 8), words(4, 6), words(8, 8)
    np.testing.assert_array_equal(ring.matmul(a.T, b.T), np.ascontiguousarray(a.T) @ np.ascontiguousarray(b.T))
    np.testing.assert_array_equal(ring.walsh_hadamard(x.T), ring.walsh_hadamard(x.T.copy()))
    every_second = words(20, bits=12).astype(np.uint16)[::2]
    np.testing.assert_array_equal(ring.pack(every_second, 12), ring.pack(every_second.copy(), 12))
    np.testing.assert_array_equal(ring.pack(every_second.astype(np.uint64), 12), ring.pack(every_second, 12))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: ring.matmul(w(2, 3), w(2, 3)), r"\(2, 3\) and \(2, 3\)"),
        (lambda w: ring.matmul(w(2, 3).astype(np.int64), w(3, 2)), "int64"),
        (lambda w: ring.matmul(w(3), w(3, 2)), r"2 dimensions, got shape \(3,\)"),
        (lambda w: ring.conv2d(w(1, 2, 4, 4), w(1, 3, 2, 2)), r"\(1, 2, 4, 4\) with \(1, 3, 2, 2\)"),
        (lambda w: ring.conv2d(w(1, 1, 2, 2), w(1, 1, 3, 3)), "cannot convolve"),
        (lambda w: ring.conv2d(w(1, 1, 2, 2), w(1, 1, 1, 1), stride=0), "stride"),
        (lambda w: ring.conv2d(w(1, 4, 2, 2), w(3, 2, 1, 1), groups=2), "2 groups"),
        (lambda w: ring.conv2d(w(1, 1, 4, 4), w(1, 1, 3, 3), dilation=2), "cannot convolve"),
        (lambda w: ring.conv2d(w(1, 1, 4, 4), w(1, 1, 1, 1), dilation=0), "dilation"),
        (lambda w: ring.walsh_hadamard(w(2, 6)), r"power of two, got shape \(2, 6\)"),
        (lambda w: ring.walsh_hadamard(w(2, 4), out=w(1, 4)), r"out must have shape \(2, 4\), got \(1, 4\)"),
        (lambda w: ring.matmul(w(2, 3), w(3, 2), out=w(2, 3)), r"out must have shape \(2, 2\), got \(2, 3\)"),
        (lambda w: ring.rotate(w(2), w(2), w(2), 16, 16, out=(None, w(3))), r"shape \(2,\), got \(3,\)"),
        (
            lambda w: ring.trig_combine(w(2), w(2, 1), w(2, 1), 16, 16, [1], [1], [1], coefficient_shift=64),
            "0 to 63 bits, got 64",
        ),
        (lambda w: ring.round_open(w(2), w(2), 40, 32), "does not fit 64"),
        (lambda w: ring.round_open(w(2), w(3), 4, 32), r"x \(2,\), mask \(3,\)"),
        (lambda w: ring.round_open(w(2), w(2).astype(np.int64), 4, 32), "unsigned"),
        (lambda w: ring.pack(w(2), 65), "1 to 64 bits"),
        (lambda w: ring.pack([1, 2], 8), "list"),
        (lambda w: ring.unpack(w(2), 2, 64), "row of uint8"),
        (lambda w: ring.trig_words(w(2), 33, 16), "33 bits"),
        (lambda w: ring.trig_words(w(2), 16, 31), "scale 31"),
        (lambda w: ring.rotate(w(2), w(3), w(3), 16, 16), r"phase \(2,\), a \(3,\)"),
        (lambda w: ring.trig_combine(w(2), w(2, 3), w(2, 3), 16, 16, [1], [1], [1]), r"\(2, 1\) expected"),
        (lambda w: ring.trig_combine(w(2), w(2, 1), w(2, 1), 16, 16, [1.5], [1], [1]), "integers"),
    ],
)
def test_what_does_not_fit_is_an_input_error(words, call, message):
    with pytest.raises(InputError, match=message):
        call(words)
    with pytest.raises(InputError):
        call(lambda *shape: ring.Blank(shape))


def test_modulo_keeps_the_dtype_and_drops_the_high_bits() -> None:
    values = np.array([0, 5, 2**20 - 1, 2**32 - 1], np.uint32)
    assert ring.modulo(values, 20).tolist() == [0, 5, 2**20 - 1, 2**20 - 1]
    assert ring.modulo(values, 20).dtype == np.uint32
    assert ring.modulo(values, 32) is values
    assert ring.modulo(ring.Blank((3,), np.uint16), 9).shape == (3,)
