"""A compiled kernel refuses arrays that do not fit, before it reads or writes anything."""

import numpy as np
import pytest

from hdcos import ring
from hdcos.errors import FrameError, InputError
from hdcos.ring import HadamardGradient, HadamardLayer, Opening, reference


def calls(words):
    """Arguments that fit, for each kernel that is tried before they are validated."""
    short, rows, many = words(3, 8, bits=16).astype(np.uint16), words(3, 8), words(3, 16)
    wide = words(3, 16, bits=24).astype(np.uint32)
    series = [np.arange(1, 6, dtype=np.int64) for _ in range(3)]
    weight = [words(8), rows, rows]
    small = [words(3, 8, bits=6).astype(np.uint8) for _ in range(3)]
    tables = [words(3, 8, bits=32).astype(np.uint32) for _ in range(3)] + [short]
    return {
        "sign_lookup": [words(3, 8, bits=20).astype(np.uint32), tables, small[0], 20, True],
        "sign_combine": [small[0], small[1], short, small[2], ring.sign_rules(4).copy(), True],
        "walsh_hadamard": [rows],
        "round_open": [rows, short, 20, 16],
        "unpack_sum": [words(45, bits=8).astype(np.uint8), words(3, 6, bits=20).astype(np.uint32), 20],
        "trig_combine": [short, words(3, 8, 5), words(3, 8, 5), 16, 16, *series],
        "hadamard_cos": [HadamardLayer(short, rows, rows, 16, 16, 8, 5, words(5), None, weight, weight * 2)],
        "hadamard_cos_open": [
            HadamardLayer(short, rows, rows, 16, 16, 8, 8, words(8), None, weight, weight), Opening(short, 20, 16),
        ],
        "hadamard_back": [
            HadamardGradient(wide, many, 24, True, short, [rows] * 22, words(2, 8), (5, 3), (-7, 2), 16, 16, 16),
            Opening(words(3, 16, bits=20).astype(np.uint32), 30, 20, False),
        ],
        "lifted_sums": [wide, many, many, 24, True, rows, rows, rows, rows],
        "lifted_times": [rows, rows, words(8), rows, rows],
        "lifted_product": [(rows, rows, rows, rows), rows, rows, rows, rows, True],
    }  # fmt: skip


NAMES = list(calls(lambda *shape, bits=64: np.zeros(shape, np.uint64)))


def spoiled(array):
    """The array with each axis too short by one, of another type, or with gaps."""
    for axis in range(array.ndim):
        yield np.ascontiguousarray(np.delete(array, -1, axis))
    yield array.view(f"i{array.itemsize}" if array.dtype.kind == "u" else np.uint64)
    yield np.repeat(array, 2, axis=-1)[..., ::2]


def with_one_spoiled(arguments):
    for place, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            for array in spoiled(argument):
                yield [*arguments[:place], array, *arguments[place + 1 :]]
        elif isinstance(argument, list | tuple) and isinstance(argument[0], np.ndarray):
            for inner in with_one_spoiled(argument):
                same_type = type(argument)(*inner) if hasattr(argument, "_fields") else inner
                yield [*arguments[:place], same_type, *arguments[place + 1 :]]


@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_do_not_fit_are_refused(kernels, words, name):
    if kernels is reference:
        return  # it relies on what was validated
    kernel, arguments = getattr(kernels, name), calls(words)[name]
    kernel(*arguments)
    own_shape = name == "walsh_hadamard"
    for wrong in with_one_spoiled(arguments):
        if own_shape and wrong[0].flags.c_contiguous and wrong[0].dtype == np.uint64 and wrong[0].shape[-1] == 8:
            continue  # fewer rows are fine
        with pytest.raises(TypeError):
            kernel(*wrong)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_refused_is_converted_or_explained(words, name):
    kernel, arguments = getattr(ring, name), calls(words)[name]
    expected = kernel(*arguments)
    for wrong in with_one_spoiled(arguments):
        try:
            made = kernel(*wrong)
        except (InputError, FrameError):
            continue
        if name != "walsh_hadamard" and not isinstance(made, tuple):
            assert made.shape == expected.shape


@pytest.mark.parametrize(("drop", "bits"), [(-1, 16), (49, 16), (64, 1)])
def test_an_opening_that_does_not_fit_the_ring_is_refused(words, drop, bits):
    with pytest.raises(InputError, match=f"dropping {drop} bits"):
        ring.round_open(words(3), words(3, bits=bits).astype(ring.compact_dtype(bits)), drop, bits)


@pytest.mark.parametrize(("bits", "scale"), [(0, 16), (40, 16), (16, 31), (16, -1)])
def test_a_table_that_cannot_be_is_refused_before_it_is_made(words, bits, scale):
    phase, rows = words(3, 8, bits=16).astype(np.uint16), words(3, 8)
    with pytest.raises(InputError, match="phases have"):
        ring.hadamard_cos(HadamardLayer(phase, rows, rows, bits, scale, 8, 8))


@pytest.mark.parametrize("pool", [(2**62, 2, 2, 2), (2, 2**32, 2**32, 1), (1, 0, 0, 2**33)])
def test_windows_whose_number_overflows_are_refused(pool):
    nothing, phase = np.zeros((1, 0), np.uint64), np.zeros((1, 0), np.uint16)
    with pytest.raises(ValueError):
        ring.lifted_times(nothing, nothing, nothing, nothing, nothing, pool)
    with pytest.raises(ValueError):
        ring.hadamard_cos(HadamardLayer(phase, nothing, nothing, 16, 16, 8, 8, None, pool))
