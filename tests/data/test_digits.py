"""The digits of scikit-learn, split in a fixed way; a stand-in takes its place where only the split matters."""

import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from hdcos import data
from hdcos.data import images
from hdcos.errors import DataMissing, InputError


@pytest.fixture
def keep(monkeypatch, tmp_path):
    """Keeps these lines of numbers as the digits of a scikit-learn that is found here."""
    file = tmp_path / "datasets" / "data" / "digits.csv.gz"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(images, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=[str(tmp_path)]))
    return lambda table: np.savetxt(file, table, delimiter=",", fmt="%d")


@pytest.fixture
def numbered(keep):
    """1,797 images whose first pixel is their number modulo 17 and whose label is their number."""
    table = np.zeros((1797, 65))
    table[:, 0], table[:, -1] = np.arange(1797) % 17, np.arange(1797)
    keep(table)


def test_the_split_is_fixed_and_uses_every_digit_once(numbered):
    (train, train_labels), (test, test_labels) = data.digits("train"), data.digits("test")
    assert (train.shape, test.shape) == ((1400, 64), (397, 64))
    assert (train.dtype, train_labels.dtype) == (np.float64, np.int64)
    assert sorted([*train_labels, *test_labels]) == list(range(1797))
    np.testing.assert_array_equal(train[:, 0], train_labels % 17 / 16)
    assert train_labels[:5].tolist() == [1081, 1707, 927, 713, 262]


def test_an_unknown_split_is_an_input_error():
    with pytest.raises(InputError, match="got 'all'"):
        data.digits("all")


def test_a_missing_scikit_learn_is_named_with_the_remedy(monkeypatch, tmp_path):
    for found in (None, SimpleNamespace(submodule_search_locations=[str(tmp_path)])):
        monkeypatch.setattr(images, "find_spec", lambda name, found=found: found)
        with pytest.raises(DataMissing, match=r"(?s)scikit-learn.*pip install scikit-learn"):
            data.digits("train")


def test_other_digits_than_expected_are_an_input_error(keep, tmp_path):
    keep(np.zeros((5, 65)))
    with pytest.raises(InputError, match=r"of shape \(5, 65\)"):
        data.digits("train")
    (tmp_path / "datasets" / "data" / "digits.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read as digits"):
        data.digits("train")


if find_spec("sklearn"):

    def test_the_real_digits_are_all_there_and_the_split_never_changes():
        (train, train_labels), (test, test_labels) = data.digits("train"), data.digits("test")
        assert (train.min(), train.max(), test.min(), test.max()) == (0, 1, 0, 1)
        of_test = np.bincount(test_labels)
        assert of_test.tolist() == [34, 39, 44, 37, 46, 33, 41, 47, 31, 45]
        published = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
        assert (np.bincount(train_labels) + of_test).tolist() == published


def test_they_are_read_without_the_package():
    program = (
        "import sys, hdcos; hdcos.data.digits('test'); assert not {'sklearn', 'pandas', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
