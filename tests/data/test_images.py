"""Images and labels of the MNIST family."""

import numpy as np
import pytest

from hdcos import data
from hdcos.errors import InputError

READERS = {"mnist": data.mnist, "fashion-mnist": data.fashion_mnist}


@pytest.mark.parametrize("folder", READERS)
@pytest.mark.parametrize(("split", "prefix"), [("train", "train"), ("test", "t10k")])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_images_are_scaled_and_labels_kept(put, idx, folder, split, prefix, ending):
    pixels = np.random.default_rng(1).integers(0, 256, (5, 28, 28))
    pixels[0, 0, :2] = 0, 255
    put(f"{folder}/{prefix}-images-idx3-ubyte{ending}", idx(pixels))
    put(f"{folder}/{prefix}-labels-idx1-ubyte{ending}", idx(np.array([0, 9, 3, 3, 1])))
    images, labels = READERS[folder](split)
    np.testing.assert_array_equal(images, pixels[:, None] / 255)
    assert (images.shape, images.dtype, labels.dtype) == ((5, 1, 28, 28), np.float64, np.int64)
    assert images[0, 0, 0, :2].tolist() == [0, 1]
    assert labels.tolist() == [0, 9, 3, 3, 1]


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (np.zeros((2, 28, 28)), np.zeros(3), r"labels-idx1-ubyte.* 2 bytes of labels, has uint8 of shape \(3,\)"),
        (np.zeros((2, 28, 28)), np.zeros((2, 1)), r"labels-idx1-ubyte.*\(2, 1\)"),
        (np.zeros((2, 28, 27)), np.zeros(2), r"images-idx3-ubyte.* 28 x 28 .*\(2, 28, 27\)"),
        (np.zeros(2), np.zeros(2), r"images-idx3-ubyte.*\(2,\)"),
        (np.zeros((2, 28, 28)), np.array([1, 10]), "labels-idx1-ubyte.* a label 10"),
    ],
)
def test_files_that_do_not_belong_together_are_an_input_error(put, idx, pixels, labels, message):
    put("mnist/train-images-idx3-ubyte", idx(pixels))
    put("mnist/train-labels-idx1-ubyte", idx(labels))
    with pytest.raises(InputError, match=message):
        data.mnist("train")


def test_an_unknown_split_is_an_input_error(home):
    with pytest.raises(InputError, match="train and test, got 'valid'"):
        data.mnist("valid")
