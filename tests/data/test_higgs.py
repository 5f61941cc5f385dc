"""The HIGGS table."""

import numpy as np
import pytest

from hdcos import data
from hdcos.errors import InputError

NAME = "higgs/higgs-sample.csv"
ROW = "1," + ",".join(f"{i}.1" for i in range(28)) + "\n"


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_numbers_are_read_in_single_precision(put, ending):
    put(NAME + ending, (ROW + ROW.replace("1,", "0,", 1).replace("27.1", "-3.25e-1")).encode())
    features, labels = data.higgs()
    assert (features.shape, features.dtype, labels.dtype) == ((2, 28), np.float64, np.int64)
    assert labels.tolist() == [1, 0]
    assert features[0].tolist() == [float(np.float32(f"{i}.1")) for i in range(28)]
    assert features[1, 27] == float(np.float32(-0.325))


def test_one_row_is_a_table(put):
    put(NAME, ROW.strip().encode())
    features, labels = data.higgs()
    assert (features.shape, labels.tolist()) == ((1, 28), [1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not begin with a row"),
        (b"\n\n", "does not begin with a row"),
        (b"1,2,3\n", "29 columns, its first row has 3"),
        ((ROW + "1,2\n").encode(), "columns changed from 29 to 2 at row 2"),
        ((ROW + ROW.replace("5.1", "five", 1)).encode(), "'five' to float32 at row 1, column 7"),
        ((ROW + ROW.replace("5.1", "", 1)).encode(), "could not convert"),
        ((ROW + ROW.replace("5.1", "nan", 1)).encode(), r"row 1 \(from 0\).*not finite"),
        ((ROW + ROW.replace("1,", "2,", 1)).encode(), r"row 1 \(from 0\).*label"),
        (ROW.replace("5.1", "5\xe9", 1).encode("latin-1"), "not a table of numbers"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_damaged_table_is_an_input_error_that_names_the_file(put, content, message, ending):
    path = put(NAME + ending, content)
    with pytest.raises(InputError, match=message) as caught:
        data.higgs()
    assert str(path) in str(caught.value)


def test_a_table_cut_short_is_an_input_error(put):
    path = put(NAME + ".gz", ROW.encode() * 50)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match="not a whole gzip file"):
        data.higgs()
