"""The real files, where HDCOS_DATA names a folder that has them: only those that exist are collected."""

import os

import numpy as np
import pytest

from hdcos import data, nn
from hdcos.data.folder import locate
from hdcos.errors import DataMissing

IMAGES = [
    ("mnist", data.mnist, "train", 60_000, 0.1307),
    ("mnist", data.mnist, "test", 10_000, 0.1325),
    ("fashion-mnist", data.fashion_mnist, "train", 60_000, 0.2860),
    ("fashion-mnist", data.fashion_mnist, "test", 10_000, 0.2868),
]


def exists(name):
    try:
        return bool(os.environ.get("HDCOS_DATA") and locate(name))
    except DataMissing:
        return False


FOUND = [case for case in IMAGES if exists(f"{case[0]}/{'train' if case[2] == 'train' else 't10k'}-images-idx3-ubyte")]

if FOUND:

    @pytest.mark.parametrize(("_", "read", "split", "count", "mean"), FOUND)
    def test_images_are_all_there(_, read, split, count, mean):
        images, labels = read(split)
        assert images.shape == (count, 1, 28, 28)
        assert (images.min(), images.max()) == (0, 1)
        assert images.mean() == pytest.approx(mean, abs=5e-5)
        assert labels.shape == (count,)
        assert np.unique(labels).tolist() == list(range(10))

    @pytest.mark.parametrize(("name", "read", "split", "count", "mean"), [case for case in FOUND if case[2] == "test"])
    def test_trained_convnets_classify_them(name, read, split, count, mean):
        model = nn.models.pretrained(f"convnet_{name.replace('-', '_')}")
        images, labels = read(split)
        least = {"mnist": 0.985, "fashion-mnist": 0.905}[name]
        assert (model(images[:1000]).argmax(axis=1) == labels[:1000]).mean() >= least


if exists("higgs/higgs-sample.csv"):

    def test_higgs_is_all_there():
        features, labels = data.higgs()
        assert features.shape == (67_562, 28)
        assert labels.sum() == 35_185
        assert features[0, 0] == np.float32(0.869293212890625)
