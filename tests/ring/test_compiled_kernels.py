"""Every compiled kernel equals the reference bit for bit, at every instruction set of this host."""

import numpy as np
import pytest

from hdcos import ring
from hdcos.ring import compact_dtype, reference

ONES = np.uint64(2**64 - 1)


def same(left, right):
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


SHAPES = [(1, 1, 1), (6, 5, 32), (7, 300, 33), (13, 257, 70), (3, 17, 64), (1, 64, 128)]


@pytest.mark.parametrize("shape", SHAPES)
def test_matmul_equals_the_reference(kernels, words, shape):
    n, d, k = shape
    a, b = words(n, d), words(d, k)
    same([kernels.matmul(a, b)], [reference.matmul(a, b)])


@pytest.mark.parametrize("rows", range(1, 14))
def test_matmul_equals_the_reference_at_every_edge_of_the_tile(kernels, words, rows):
    for columns in range(1, 36):
        a, b = words(rows, 3), words(3, columns)
        same([kernels.matmul(a, b)], [reference.matmul(a, b)])


@pytest.mark.parametrize("depth", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 100, 2047, 2049, 4100])
def test_matmul_of_one_row_equals_the_reference(kernels, words, depth, columns):
    a, b = words(1, depth), words(depth, columns)
    same([kernels.matmul(a, b)], [reference.matmul(a, b)])


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (1, 0, 4), (3, 4, 0), (1, 4, 0)])
def test_matmul_of_nothing_is_zero(kernels, words, shape):
    n, d, k = shape
    result = kernels.matmul(words(n, d), words(d, k))
    assert result.shape == (n, k)
    assert not result.any()


def test_matmul_wraps_words_of_all_ones(kernels):
    a, b = np.full((9, 600), ONES), np.full((600, 37), ONES)
    assert (kernels.matmul(a, b) == 600).all()


@pytest.mark.parametrize(
    ("x", "weight", "stride", "padding"),
    [
        ((2, 1, 28, 28), (6, 1, 5, 5), 1, 0),
        ((2, 6, 12, 12), (16, 6, 5, 5), 1, 0),
        ((1, 3, 7, 9), (4, 3, 3, 2), 2, 1),
        ((1, 33, 5, 5), (7, 33, 3, 3), 1, 1),
        ((2, 2, 6, 6), (3, 2, 1, 1), 3, 2),
        ((1, 1, 1, 1), (1, 1, 1, 1), 1, 0),
        ((1, 2, 40, 41), (3, 2, 3, 3), 1, 0),
        ((0, 2, 4, 4), (3, 2, 3, 3), 1, 0),
        ((2, 0, 4, 4), (3, 0, 3, 3), 1, 0),
        ((2, 2, 4, 4), (0, 2, 3, 3), 1, 0),
    ],
)
def test_conv2d_equals_the_reference(kernels, words, x, weight, stride, padding):
    arguments = words(*x), words(*weight), stride, padding
    same([kernels.conv2d(*arguments)], [reference.conv2d(*arguments)])


@pytest.mark.parametrize(
    ("x", "weight", "spacing"),
    [
        ((2, 4, 9, 9), (6, 2, 3, 3), (1, 1, 2, 1)),
        ((1, 64, 8, 8), (64, 1, 3, 3), (1, 1, 64, 1)),
        ((2, 3, 16, 18), (3, 1, 3, 3), (1, 0, 3, 1)),
        ((2, 3, 12, 12), (4, 3, 3, 2), (1, 2, 1, 2)),
        ((1, 2, 20, 20), (3, 2, 3, 3), (1, 0, 1, 2)),
        ((2, 4, 11, 13), (8, 1, 3, 2), (2, 1, 4, 3)),
        ((1, 40, 7, 7), (80, 20, 3, 3), (2, 1, 2, 1)),
        ((2, 0, 4, 4), (4, 0, 3, 3), (1, 0, 2, 1)),
    ],
)
def test_conv2d_with_groups_and_dilation_equals_the_reference(kernels, words, x, weight, spacing):
    arguments = words(*x), words(*weight), *spacing
    same([kernels.conv2d(*arguments)], [reference.conv2d(*arguments)])


@pytest.mark.parametrize("levels", range(15))
def test_walsh_hadamard_equals_the_reference_and_works_in_place(kernels, words, levels):
    x = words(3, 2**levels)
    expected, result = np.empty_like(x), np.empty_like(x)
    reference.walsh_hadamard(x, expected)
    kernels.walsh_hadamard(x, result)
    same([result], [expected])
    kernels.walsh_hadamard(x, x)
    same([x], [expected])


@pytest.mark.parametrize("bits", range(1, 65))
def test_packing_and_opening_equal_the_reference(kernels, words, bits):
    for count in (0, 1, 7, 8, 9, 24, 100, 333):
        values = words(count, bits=bits).astype(compact_dtype(bits))
        packed = reference.pack(values, bits)
        same([kernels.pack(values, bits)], [packed])
        same([kernels.unpack(packed, count, bits)], [values])
        mine = words(count, bits=bits).astype(compact_dtype(bits))
        same([kernels.unpack_sum(packed, mine, bits)], [reference.unpack_sum(packed, mine, bits)])
        x = words(count)
        for drop in {0, 1, 64 - bits} if bits < 64 else {0}:
            for mask in (values, None):
                for ties_up in (True, False):
                    opening = x, mask, drop, bits, ties_up
                    same([kernels.round_open(*opening)], [reference.round_open(*opening)])


@pytest.mark.parametrize("bits", range(1, 65))
def test_packing_writes_nothing_past_its_buffer(kernels, words, bits):
    for count in range(200) if kernels is not reference else ():
        size = (count * bits + 7) // 8
        memory = np.full(size + 32, 0xA5, np.uint8)
        kernels.pack(words(count, bits=bits).astype(compact_dtype(bits)), bits, memory[:size])
        assert (memory[size:] == 0xA5).all()


def test_packing_takes_only_the_low_bits_of_a_value(kernels):
    values = np.full(50, 2**16 - 1, np.uint16)
    same([kernels.pack(values, 11)], [reference.pack(values & np.uint16(2**11 - 1), 11)])


@pytest.mark.parametrize("bits", range(1, 33))
def test_trigonometry_equals_the_reference(kernels, words, bits):
    phase = words(5, 77, bits=bits).astype(compact_dtype(bits))
    a, b, cos_share, sin_share = words(5, 77), words(5, 77), words(5, 77, 7), words(5, 77, 7)
    series = [words(7).astype(np.int64) for _ in range(2)] + [np.arange(-3, 11, 2)]
    for scale in (0, 16, 30):
        same(kernels.trig_words(phase, bits, scale), reference.trig_words(phase, bits, scale))
        turn = phase, a, b, bits, scale, True, True
        same(kernels.rotate(*turn), reference.rotate(*turn))
        for shift in (0, 1, 16, 63):
            combine = phase, cos_share, sin_share, bits, scale, *series, shift
            same([kernels.trig_combine(*combine)], [reference.trig_combine(*combine)])


def test_a_series_of_many_or_no_terms_equals_the_reference(kernels, words):
    phase = words(300, bits=20).astype(np.uint32)
    for terms in (0, 1, 300):
        series = [np.arange(terms), -np.arange(terms), np.arange(terms)]
        combine = phase, words(300, terms), words(300, terms), 20, 16, *series, 0
        same([kernels.trig_combine(*combine)], [reference.trig_combine(*combine)])


def test_rotate_computes_only_what_is_asked(kernels, words):
    phase, a, b = words(9, bits=16).astype(np.uint16), words(9), words(9)
    both = kernels.rotate(phase, a, b, 16, 16, True, True)
    cosine, nothing = kernels.rotate(phase, a, b, 16, 16, True, False)
    assert nothing is None
    same([cosine], [both[0]])
    nothing, sine = kernels.rotate(phase, a, b, 16, 16, False, True)
    assert nothing is None
    same([sine], [both[1]])


def test_rotate_may_write_over_what_it_reads(kernels, words):
    for count in (1, 8, 300):
        phase, a, b = words(count, bits=16).astype(np.uint16), words(count), words(count)
        expected = reference.rotate(phase, a, b, 16, 16, True, True)
        for to in ((0, 1), (1, 0)):
            both = a.copy(), b.copy()
            turned = kernels.rotate(phase, *both, 16, 16, True, True, both[to[0]], both[to[1]])
            assert [id(x) for x in turned] == [id(both[i]) for i in to]
            same(turned, expected)


def test_phase_bits_above_the_width_are_ignored(kernels):
    phase = np.full(3, 255, np.uint8)
    same(kernels.trig_words(phase, 5, 16), reference.trig_words(phase & np.uint8(31), 5, 16))


POOLS = [(7, 1, 1, 1), (2, 4, 6, 2), (1, 8, 4, 4), (3, 3, 3, 1)]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("rows", [1, 5])
def test_pooled_units_equal_the_reference(kernels, words, pool, rows):
    channels, height, width, window = pool
    units = channels * height * width
    x, pooled = words(rows, units), words(rows, units // window**2)
    same([kernels.pool_sum(x, pool)], [reference.pool_sum(x, pool)])
    same([kernels.spread(pooled, pool)], [reference.spread(pooled, pool)])


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("whole", ["nothing", "lifted", "factor"])
def test_products_of_lifted_values_equal_the_reference(kernels, words, pool, whole):
    rows, units = 4, pool[0] * pool[1] * pool[2]
    windows = units // pool[3] ** 2
    lifted = tuple(words(*(() if whole == "lifted" else (rows,)), windows) for _ in range(4))
    factors = [words(*(() if whole == "factor" else (rows,)), units) for _ in range(2)]
    dealt = [words(rows, units) for _ in range(2)]
    same(
        [kernels.lifted_times(*lifted[:2], factors[0], *dealt, pool)],
        [reference.lifted_times(*lifted[:2], factors[0], *dealt, pool)],
    )
    for public in (False, True):
        same(
            [kernels.lifted_product(lifted, *factors, *dealt, public, pool)],
            [reference.lifted_product(lifted, *factors, *dealt, public, pool)],
        )


@pytest.mark.parametrize("shift", [0, 1, 17])
@pytest.mark.parametrize("bits", [8, 16, 20])
def test_one_harmonic_equals_the_reference(kernels, words, bits, shift):
    phase = words(3, 100, bits=bits).astype(compact_dtype(bits))
    series = np.array([12345], np.int64), np.array([-999], np.int64), np.array([1], np.int64)
    arguments = phase, words(3, 100, 1), words(3, 100, 1), bits, 14, *series, shift
    same([kernels.trig_combine(*arguments)], [reference.trig_combine(*arguments)])


@pytest.mark.parametrize("bits", [2, 17, 24, 32, 33, 62])
@pytest.mark.parametrize(("rows", "width", "units"), [(1, 1, 1), (5, 32, 28), (3, 7, 7), (4, 1024, 1000), (2, 4, 3)])
def test_sums_of_lifted_products_equal_the_reference(kernels, words, bits, rows, width, units):
    opened = words(rows, width, bits=bits).astype(compact_dtype(max(bits, 17)))
    factors = [words(rows, units) for _ in range(4)]
    for public in (False, True):
        call = opened, words(rows, width), words(rows, width), bits, public, *factors
        same(kernels.lifted_sums(*call), reference.lifted_sums(*call))
        same(ring.lifted_sums(*call), reference.lifted_sums(*call))
