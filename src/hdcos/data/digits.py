"""The 1,797 digits of 8 x 8 pixels that scikit-learn brings (Alpaydin and Kaynak, UCI).

They have no split of their own. Here all rows are put in the order of RandomState(0).permutation, which NumPy
promises never to change; the first 1,400 are for training and the other 397 for testing.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import numpy.typing as npt

from hdcos.errors import DataMissing, InputError

ROWS, TRAIN_ROWS, PIXELS, BRIGHTEST = 1797, 1400, 64, 16
_SPLIT = {"train": slice(0, TRAIN_ROWS), "test": slice(TRAIN_ROWS, ROWS)}


def digits(split: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Digits of the "train" or "test" split: images (n, 64) in [0, 1], and labels."""
    if split not in _SPLIT:
        raise InputError(f"the splits are train and test, got {split!r}")
    try:
        load_digits = import_module("sklearn.datasets").load_digits
    except ImportError as error:
        raise DataMissing(
            "the digits come with scikit-learn, which is not installed here.\nInstall it: `pip install scikit-learn`."
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    if pixels.shape != (ROWS, PIXELS) or labels.shape != (ROWS,):
        raise InputError(f"{ROWS} digits of {PIXELS} pixels expected of scikit-learn, got {pixels.shape}")
    rows = np.random.RandomState(0).permutation(ROWS)[_SPLIT[split]]
    return pixels[rows].astype(np.float64) / BRIGHTEST, labels[rows].astype(np.int64)
