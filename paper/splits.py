"""The data sets of the experiments as arrays, training and test rows apart.

MNIST and Fashion-MNIST have splits of their own. Of the Higgs sample a random 70 % are for training, as in the
paper; the order is RandomState(0).permutation, which NumPy promises never to change.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hdcos import data
from hdcos.errors import InputError
from hdcos.ring import Array

HIGGS_TRAIN_SHARE = 0.7

Split = tuple[Array, Array, Array, Array]
"""Training rows and labels, test rows and labels; rows are float32."""


@cache
def split(dataset: str) -> Split:
    """The rows of a data set; DataMissing says which file to get."""
    if dataset == "higgs":
        x, y = data.higgs()
        order = np.random.RandomState(0).permutation(len(x))
        train, test = np.split(order, [round(len(x) * HIGGS_TRAIN_SHARE)])
        return x[train].astype(np.float32), y[train], x[test].astype(np.float32), y[test]
    readers = {"mnist": data.mnist, "fashion_mnist": data.fashion_mnist}
    if dataset not in readers:
        raise InputError(f"no experiment uses {dataset!r}: choose from higgs, {', '.join(readers)}")
    (train_x, train_y), (test_x, test_y) = (readers[dataset](part) for part in ("train", "test"))
    return train_x.astype(np.float32), train_y, test_x.astype(np.float32), test_y


def standardised(parts: Split) -> Split:
    """Mean 0 and variance 1 over the training rows: per feature of a table, over all pixels of images."""
    train_x, train_y, test_x, test_y = parts
    axes = 0 if train_x.ndim == 2 else None
    mean, deviation = train_x.mean(axis=axes), train_x.std(axis=axes)
    return (train_x - mean) / deviation, train_y, (test_x - mean) / deviation, test_y
