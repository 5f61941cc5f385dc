"""The fused Hadamard layer equals its parts, at every instruction set, and refuses what does not fit."""

import numpy as np
import pytest

from hdcos import ring
from hdcos.errors import InputError
from hdcos.ring import HadamardGradient, HadamardLayer, Opening, compact_dtype, reference

# rows, units, size, outputs, pool
LAYERS = [
    (0, 5, 8, 3, None),
    (1, 1, 1, 1, None),
    (1, 1, 64, 64, None),
    (2, 0, 4, 4, None),
    (3, 5, 8, 8, None),
    (2, 64, 64, 10, None),
    (5, 300, 512, 301, None),
    (3, 1024, 1024, 1024, None),
    (2, 1500, 4096, 1, None),
    (0, 24, 8, 6, (1, 6, 4, 2)),
    (3, 24, 32, 32, (2, 4, 3, 1)),
    (2, 16, 4, 3, (1, 4, 4, 2)),
    (2, 16, 1, 1, (1, 4, 4, 4)),
    (3, 6 * 24 * 24, 1024, 120, (6, 24, 24, 2)),
    (3, 16 * 8 * 8, 256, 84, (16, 8, 8, 2)),
    (2, 2 * 9 * 27, 64, 60, (2, 9, 27, 3)),
]


def draw(words, layer, bits):
    rows, units, _, outputs, _ = layer
    return (
        words(rows, units, bits=bits).astype(compact_dtype(bits)),
        words(rows, units),
        words(rows, units),
        words(outputs),
    )


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("bits", [2, 8, 16, 20, 32])
def test_the_compiled_layer_equals_the_reference(kernels, words, layer, bits):
    rows, units, size, outputs, pool = layer
    phase, a, b, bias = draw(words, layer, bits)
    whole = pool or (units, 1, 1, 1)
    for biases in (bias, None):
        call = HadamardLayer(phase, a, b, bits, 16, size, outputs, biases, whole)
        expected = reference.hadamard_cos(call)
        result = kernels.hadamard_cos(call)
        np.testing.assert_array_equal(result, expected)
        assert (result.shape, result.dtype) == ((rows, outputs), np.uint64)
        for opened, drop in ((7, 57), (16, 20), (20, 0), (33, 31), (64, 0)):
            mask = words(rows, outputs, bits=opened).astype(compact_dtype(opened))
            for opening in ((mask, drop, opened, True), (mask, drop, opened, False), (None, drop, opened, True)):
                compact = kernels.hadamard_cos_open(call, Opening(*opening))
                np.testing.assert_array_equal(compact, reference.round_open(expected, *opening))
                assert compact.dtype == compact_dtype(opened)
        weight = (words(units), words(rows, units), words(rows, units))
        weighted = call._replace(weight=weight)
        expected = reference.hadamard_cos(weighted)
        by_hand = call._replace(a=weight[0] * a - weight[1], b=weight[0] * b - weight[2])
        np.testing.assert_array_equal(expected, reference.hadamard_cos(by_hand))
        np.testing.assert_array_equal(kernels.hadamard_cos(weighted), expected)
        mask = words(rows, outputs, bits=16).astype(np.uint16)
        compact = kernels.hadamard_cos_open(weighted, Opening(mask, 20, 16))
        np.testing.assert_array_equal(compact, reference.round_open(expected, mask, 20, 16, True))


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer[2] > 4], ids=str)
def test_terms_are_layers_whose_outputs_add_up_with_signs(kernels, words, layer):
    """H P_t = S_t H: what a kernel moves before its transform is a change of signs behind it."""
    rows, units, size, outputs, pool = layer
    phase, a, b, bias = draw(words, layer, 16)
    plain = HadamardLayer(phase, a, b, 16, 16, size, outputs, bias, pool or (units, 1, 1, 1))
    weights = [(words(units), words(rows, units), words(rows, units)) for _ in range(5)]
    pairs = [(words(rows, units), words(rows, units)) for _ in range(4)]
    places = np.arange(outputs)
    for one, others in (
        (plain, [plain._replace(a=x, b=y) for x, y in pairs]),
        (plain._replace(weight=weights[0]), [plain._replace(weight=weight) for weight in weights[1:]]),
    ):
        expected = kernels.hadamard_cos(one)
        for term, other in enumerate(others, 1):
            odd = np.bitwise_count(places & term) & 1
            y = kernels.hadamard_cos(other._replace(bias=None))
            expected = expected + np.where(odd, np.uint64(0) - y, y)
        own = weights[1:] if one.weight else pairs
        call = one._replace(more=[array for arrays in own for array in arrays])
        np.testing.assert_array_equal(kernels.hadamard_cos(call), expected)
        np.testing.assert_array_equal(ring.hadamard_cos(call), expected)
        mask = words(rows, outputs, bits=16).astype(np.uint16)
        opened = kernels.hadamard_cos_open(call, Opening(mask, 20, 16))
        np.testing.assert_array_equal(opened, reference.round_open(expected, mask, 20, 16, True))


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_the_layer_is_a_rotation_a_pooling_a_transform_and_a_bias(words, layer):
    rows, _, size, outputs, pool = layer
    phase, a, b, bias = draw(words, layer, 16)
    z, _ = ring.rotate(phase, a, b, 16, 16)
    if pool:
        channels, height, width, window = pool
        blocks = z.reshape(rows, channels, height // window, window, width // window, window)
        z = sum(blocks[:, :, :, u, :, v] for u in range(window) for v in range(window)).reshape(rows, -1 if rows else 0)
    padded = np.zeros((rows, size), np.uint64)
    padded[:, : z.shape[1]] = z
    y = ring.walsh_hadamard(padded)[:, :outputs] + bias
    fused = HadamardLayer(phase, a, b, 16, 16, size, outputs, bias, pool)
    np.testing.assert_array_equal(ring.hadamard_cos(fused), y)
    mask = words(rows, outputs, bits=16)
    opened = ring.hadamard_cos_open(fused, Opening(mask, 30, 16, ties_up=False))
    np.testing.assert_array_equal(opened, ring.round_open(y, mask, 30, 16, ties_up=False))


def test_nothing_is_written_past_the_result(kernels, words):
    if kernels is reference:
        return
    for outputs in range(1, 70):
        phase, a, b = words(2, 60, bits=16).astype(np.uint16), words(2, 60), words(2, 60)
        memory = np.full(2 * outputs + 16, 0xA5A5, np.uint16)
        out = memory[: 2 * outputs].reshape(2, outputs)
        kernels.hadamard_cos_open(HadamardLayer(phase, a, b, 16, 16, 128, outputs), Opening(None, 9, 16), out)
        assert (memory[2 * outputs :] == 0xA5A5).all()


def test_arrays_in_any_layout_are_accepted(words):
    phase, a, b = words(8, 4, bits=16).T, words(8, 4).T, words(4, 16)[:, ::2]
    expected = ring.hadamard_cos(HadamardLayer(phase.astype(np.uint16), a.copy(), b.copy(), 16, 16, 8, 8))
    np.testing.assert_array_equal(ring.hadamard_cos(HadamardLayer(phase, a, b, 16, 16, 8, 8)), expected)


def test_a_plan_has_the_shape_of_the_result(words):
    phase, a = words(3, 8, bits=16).astype(np.uint16), words(3, 8)
    bias, mask = words(5), words(3, 5, bits=16).astype(np.uint16)
    arguments = [phase, a, a, 16, 16, 8, 5, bias, None, mask, 20, 16]
    for position, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            planned = arguments.copy()
            planned[position] = ring.Blank(argument.shape, argument.dtype)
            layer, opening = HadamardLayer(*planned[:9]), Opening(*planned[9:])
            blanks = [ring.hadamard_cos_open(layer, opening)] + [ring.hadamard_cos(layer)] * (position < 9)
            for blank, dtype in zip(blanks, (np.uint16, np.uint64), strict=False):
                assert isinstance(blank, ring.Blank)
                assert (blank.shape, blank.dtype) == ((3, 5), dtype)
    assert ring.hadamard_cos_open(HadamardLayer(*arguments[:9]), Opening(*arguments[9:])).shape == (3, 5)


def call(
    w,
    phase=(2, 8),
    a=(2, 8),
    b=(2, 8),
    size=8,
    outputs=8,
    bias=None,
    pool=None,
    mask=(2, 8),
    drop=20,
    bits=16,
    more=(),
):
    bias = None if bias is None else w(*bias)
    layer = HadamardLayer(w(*phase), w(*a), w(*b), 16, 16, size, outputs, bias, pool, (), [w(*shape) for shape in more])
    ring.hadamard_cos_open(layer, Opening(w(*mask), drop, bits))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"phase": (2, 7)}, r"phase \(2, 7\), a \(2, 8\)"),
        ({"b": (3, 8)}, r"b \(3, 8\)"),
        ({"a": (8,)}, "a must have 2 dimensions"),
        ({"size": 4, "outputs": 4}, "at least 8, got 4"),
        ({"size": 12}, "power of two"),
        ({"size": 0}, "power of two"),
        ({"outputs": 9}, "1 to 8 outputs"),
        ({"outputs": 0}, "1 to 8 outputs"),
        ({"bias": (7,)}, r"bias of shape \(8,\) expected, got \(7,\)"),
        ({"mask": (2, 7)}, r"mask of shape \(2, 8\) expected, got \(2, 7\)"),
        ({"pool": (1, 2, 3, 1)}, "1 x 2 x 3 does not fit 8 units"),
        ({"pool": (1, 2, 4, 0)}, "blocks of 0 x 0"),
        ({"pool": (1, 2, 4, 4)}, "cannot sum 1 x 2 x 4 over blocks of 4 x 4"),
        ({"pool": (-1, -2, 4, 2)}, "cannot sum"),
        ({"pool": (2, 4, 2)}, "channels, height, width and window"),
        ({"more": [(2, 8)]}, r"terms for units of shape \(2, 8\) expected, got \[\(2, 8\)\]"),
        ({"more": [(2, 8), (2, 7)]}, "terms for units of shape"),
        ({"more": [(2, 8)] * 16}, "terms for units of shape"),
        ({"drop": 50}, "dropping 50 bits and keeping 16 does not fit 64"),
    ],
)
def test_what_does_not_fit_is_an_input_error(words, wrong, message):
    for draws in (words, lambda *shape: ring.Blank(shape)):
        with pytest.raises(InputError, match=message):
            call(draws, **wrong)


@pytest.mark.parametrize("bits", [12, 16, 20])
@pytest.mark.parametrize(
    ("rows", "width", "units", "size"), [(1, 1, 1, 1), (3, 16, 12, 16), (2, 64, 64, 128), (5, 8, 8, 8)]
)
@pytest.mark.parametrize("opened_bits", [24, 32, 40])
def test_the_compiled_gradient_equals_the_reference(kernels, words, bits, rows, width, units, size, opened_bits):
    opened = words(rows, width, bits=opened_bits).astype(compact_dtype(opened_bits))
    phase = words(rows, units, bits=bits).astype(compact_dtype(bits))
    mask = words(rows, size, bits=24).astype(np.uint32)
    for public, ties_up, count in ((True, True, 1), (False, False, 1), (True, False, min(5, width))):
        terms = [words(rows, units) for _ in range(2 + 10 * count)]
        lifted = (opened, words(rows, width), opened_bits, public)
        weight = words(units) if count == 1 else words(count, units)
        factors = (weight, (123456789, 40), (-25736, 22), bits, 14, size)
        call = HadamardGradient(*lifted, phase, terms, *factors), Opening(mask, 40, 24, ties_up)
        for made, expected in zip(kernels.hadamard_back(*call), reference.hadamard_back(*call), strict=True):
            np.testing.assert_array_equal(made, expected)
            assert made.dtype == expected.dtype
        for made, expected in zip(ring.hadamard_back(*call), reference.hadamard_back(*call), strict=True):
            np.testing.assert_array_equal(made, expected)


def test_the_gradient_of_terms_is_the_sum_of_those_of_moved_values(kernels, words):
    """Of term t the value's entry j ^ t stands in place of j; the sum over rows of the value is one for all terms."""
    rows, width, units, size, count = 3, 16, 12, 16, 5
    opened, b = words(rows, width, bits=24).astype(np.uint32), words(rows, width)
    phase, terms = words(rows, units, bits=16).astype(np.uint16), [words(rows, units) for _ in range(2 + 10 * count)]
    factors, opening = ((123456789, 40), (-25736, 22), 16, 14, size), Opening(words(rows, size), 0, 64)
    weight, expected, parts = words(count, units), 0, []
    for term in range(count):
        places = np.arange(width) ^ term
        own = [*terms[:2], *terms[2 + 10 * term : 12 + 10 * term]]
        moved = HadamardGradient(
            opened[:, places].copy(), b[:, places].copy(), 24, True, phase, own, weight[term], *factors
        )
        total, step, message = kernels.hadamard_back(moved, opening)
        expected = expected + message - opening.mask
        parts.append((total[places], step))
    call = HadamardGradient(opened, b, 24, True, phase, terms, weight, *factors)
    total, steps, message = kernels.hadamard_back(call, opening)
    np.testing.assert_array_equal(message - opening.mask, expected)
    for term, (whole, step) in enumerate(parts):
        np.testing.assert_array_equal(total, whole)
        np.testing.assert_array_equal(steps[term], step)
