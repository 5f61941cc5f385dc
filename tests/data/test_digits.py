"""The digits of scikit-learn, split in a fixed way; a stand-in takes its place where only the split matters."""

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from hdcos import data
from hdcos.errors import DataMissing, InputError


@pytest.fixture
def numbered(monkeypatch):
    """1,797 images whose first pixel is their number modulo 17 and whose label is their number."""
    pixels = np.zeros((1797, 64))
    pixels[:, 0] = np.arange(1797) % 17
    module = SimpleNamespace(load_digits=lambda return_X_y: (pixels, np.arange(1797)))
    monkeypatch.setitem(sys.modules, "sklearn", SimpleNamespace(datasets=module))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", module)


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


def test_a_missing_scikit_learn_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataMissing, match=r"(?s)scikit-learn.*pip install scikit-learn"):
        data.digits("train")


def test_other_digits_than_expected_are_an_input_error(monkeypatch, numbered):
    monkeypatch.setattr(
        sys.modules["sklearn.datasets"], "load_digits", lambda return_X_y: (np.zeros((5, 64)), np.zeros(5))
    )
    with pytest.raises(InputError, match=r"got \(5, 64\)"):
        data.digits("train")


if find_spec("sklearn"):

    def test_the_real_digits_are_all_there_and_the_split_never_changes():
        (train, train_labels), (test, test_labels) = data.digits("train"), data.digits("test")
        assert (train.min(), train.max(), test.min(), test.max()) == (0, 1, 0, 1)
        of_test = np.bincount(test_labels)
        assert of_test.tolist() == [34, 39, 44, 37, 46, 33, 41, 47, 31, 45]
        published = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
        assert (np.bincount(train_labels) + of_test).tolist() == published
