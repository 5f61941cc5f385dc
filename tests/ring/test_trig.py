"""The integer cosine and sine are close to the real ones and the same everywhere."""

import numpy as np
import pytest

from hdcos.ring import compact_dtype, table_hash, trig, trig_words

# The tables are part of the wire format: parties compare this hash before they talk.
TABLE_HASH = "8d9e02eba490578b0ed383171adb097a94183631947c3845cec4a3cbfa9e6d8d"


def test_the_tables_have_not_changed():
    assert table_hash().hex() == TABLE_HASH


@pytest.mark.parametrize("bits", range(1, 33))
@pytest.mark.parametrize("scale", [0, 8, 16, 30])
def test_words_are_within_the_stated_error(words, bits, scale):
    phase = words(2000, bits=bits).astype(compact_dtype(bits))
    angle = 2 * np.pi * phase / 2**bits
    cos, sin = trig_words(phase, bits, scale)
    bound = 2.0 ** -(scale + 1) + (trig.SPLIT_ERROR if bits > trig.DIRECT_BITS else 0.0)
    assert np.abs(cos / 2**scale - np.cos(angle)).max() <= bound
    assert np.abs(sin / 2**scale - np.sin(angle)).max() <= bound


def test_every_rotation_of_a_split_table_is_off_by_no_more_than_stated():
    """By the error of the first factor and that of the second, at the worst of either."""
    first, rest = np.arange(1 << trig.HIGH_BITS), np.arange(-(1 << 20), (1 << 20) + 1)
    parts = (trig.high_table().T, first << (32 - trig.HIGH_BITS)), (trig.small_rotation(rest), rest)
    worst = 0.0
    for (cos, sin), steps in parts:
        angle = 2 * np.pi * steps / 2**32
        worst += np.hypot(cos / 2**30 - np.cos(angle), sin / 2**30 - np.sin(angle)).max()
    assert worst <= trig.SPLIT_ERROR


@pytest.mark.parametrize("bits", [2, 9, 16, 24, 32])
def test_quarter_turns_are_exact(bits):
    phase = (np.arange(4, dtype=np.uint64) << np.uint64(bits - 2)).astype(compact_dtype(bits))
    cos, sin = trig_words(phase, bits, 30)
    assert (cos >> 30).tolist() == [1, 0, -1, 0]
    assert (sin >> 30).tolist() == [0, 1, 0, -1]


@pytest.mark.parametrize("bits", [3, 4, 11])
def test_a_table_mirrored_from_one_eighth_equals_each_entry_computed_alone(bits):
    np.testing.assert_array_equal(trig.direct_table(bits, 30), trig._rows(2**bits, bits, 30))


def test_tables_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        trig.direct_table(8, 16)[0] = 1


def test_pi_is_right():
    digits = "3.14159265358979323846264338327950288"
    assert abs(trig._pi() * 10**35 // 2**trig.PRECISION - int(digits.replace(".", ""))) < 10**35 >> 90
