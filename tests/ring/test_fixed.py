"""Real numbers become ring words exactly, or an error that says why not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdcos.errors import InputError, RangeError
from hdcos.ring import Blank, decode, encode


@given(st.integers(-(2**52), 2**52), st.integers(0, 20))
def test_multiples_of_the_unit_survive_exactly(units, scale):
    assert decode(encode(units / 2**scale, scale), scale) == units / 2**scale


def test_halves_round_to_even():
    np.testing.assert_array_equal(decode(encode([0.5, 1.5, 2.5, -0.5, -1.5], 0), 0), [0, 2, 2, 0, -2])


def test_negative_numbers_wrap():
    assert encode([-1], 4).tolist() == [2**64 - 16]
    assert encode([-1.0], 4).tolist() == [2**64 - 16]


def test_the_largest_float_below_the_limit_is_exact():
    largest = np.nextafter(2.0**63, 0)
    assert encode([largest], 0).tolist() == [int(largest)]
    assert encode(-largest, 0) == 2**64 - int(largest)


@pytest.mark.parametrize("value", [2.0**63, -(2.0**63), 1e300, 2**63, np.uint64(2**63), np.int64(-(2**63))])
def test_numbers_at_the_limit_are_a_range_error(value):
    with pytest.raises(RangeError, match=r"largest magnitude 9.22|1e\+300"):
        encode(np.array([0, value]), 0)


def test_a_range_error_names_the_number_the_scale_and_the_limit():
    with pytest.raises(RangeError, match=r"largest magnitude 9 does not fit: scale 12 in 16 bits .* below 8"):
        encode([1.0, -9.0], 12, bits=16)
    with pytest.raises(RangeError):
        encode([7.9999], 12, bits=16)  # rounds up to the limit


def test_integers_of_any_kind_are_exact():
    for kind in (np.int8, np.uint8, np.int64, np.uint32, bool):
        assert encode(np.array([1, 0], kind), 40).tolist() == [2**40, 0]
    assert encode([2**53 + 1], 0).tolist() == [2**53 + 1]


@pytest.mark.parametrize("bad", [[np.nan], [np.inf], ["1"], [1j], [None]])
def test_what_is_not_a_number_is_an_input_error(bad):
    with pytest.raises(InputError) as caught:
        encode(bad, 8)
    assert not isinstance(caught.value, RangeError)


def test_decode_extends_the_sign_of_narrow_words():
    assert decode(np.array([2**16 - 1, 2**15, 1], np.uint64), 0, bits=16).tolist() == [-1, -(2**15), 1]
    assert decode(np.array([2**16 - 1], np.uint16), 4, bits=16).tolist() == [-1 / 16]


def test_decode_refuses_signed_words_and_bad_scales():
    with pytest.raises(InputError, match="int64"):
        decode(np.array([1]), 0)
    with pytest.raises(InputError, match="scale"):
        encode([1.0], 64)
    with pytest.raises(InputError, match="bits"):
        encode([1.0], 0, bits=65)


def test_empty_arrays_and_blanks_keep_their_shape():
    assert encode(np.empty((0, 3)), 8).shape == (0, 3)
    assert decode(np.empty((0, 3), np.uint64), 8).dtype == np.float64
    assert repr(encode(Blank((2, 3), np.float64), 8)) == "Blank((2, 3), uint64)"
    assert repr(decode(Blank((2, 3)), 8)) == "Blank((2, 3), float64)"
