"""IDX files are read in every type, and refused before memory is taken where they are damaged."""

import numpy as np
import pytest

from hdcos.data.images import IDX_TYPES, read_idx
from hdcos.errors import InputError


@pytest.mark.parametrize("code", IDX_TYPES)
@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_every_type_is_read(put, idx, code, name):
    kind = np.dtype(IDX_TYPES[code])
    values = np.arange(-12, 12).reshape(2, 3, 4).astype(kind).astype(kind.newbyteorder("="))
    read = read_idx(put(name, idx(values, code)))
    np.testing.assert_array_equal(read, values)
    assert read.dtype == values.dtype
    assert read.dtype.isnative


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (1,)])
def test_arrays_of_few_or_no_numbers_are_read(put, idx, shape):
    assert read_idx(put("x.gz", idx(np.ones(shape)))).shape == shape


def test_the_header_is_big_endian(put):
    assert read_idx(put("x", bytes([0, 0, 0x0B, 1, 0, 0, 0, 2, 1, 2, 255, 255]))).tolist() == [258, -1]


HUGE = bytes([0, 0, 0x0E, 4]) + b"\xff" * 16


@pytest.mark.parametrize("name", ["x", "x.gz"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with nothing"),
        (b"\0\0\x08", "not an IDX file"),
        (b"\1\0\x08\1\0\0\0\1\0", "begins with 01 00 08 01"),
        (b"\0\0\x0a\1\0\0\0\1\0", "not an IDX file"),
        (b"\0\0\x08\0\0", "0 dimensions"),
        (b"\0\0\x08\x21\0", "33 dimensions"),
        (b"\0\0\x08\2\0\0\0\1\0", "ends inside its header of 2 dimensions"),
        (b"\0\0\x08\1\0\0\0\x09\1\2\3", r"promises 9 bytes of numbers for shape \(9,\) and has 3"),
        (b"\0\0\x08\1\0\0\0\2\1\2\3", "has more"),
        (b"\0\0\x08\1\0\1\0\0\1", r"too short for shape \(65536,\)|has 1"),
        (HUGE, "too short for shape"),
    ],
)
def test_a_damaged_file_is_an_input_error_that_names_it(put, name, content, message):
    path = put(name, content)
    with pytest.raises(InputError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
