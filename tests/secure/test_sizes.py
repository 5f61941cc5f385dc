"""The owner of rows that are too large is told so, since nobody sees it on shares."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hdcos
from hdcos import nn
from hdcos.cluster.fit import check_run
from hdcos.cluster.pieces import encode_stream
from hdcos.errors import HdcosWarning
from hdcos.secure.sizes import warn_of_range

MODEL = nn.models.mlp([3, 4, 1], "cos", "dense", seed=0)
OPTIONS = {"epochs": 1, "batch_size": 8, "lr": 0.1}


def table(size: float) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(0, 1, (40, 3))
    y = (x[:, 0] > 0).astype(np.int64)
    return x * [1, size, 1], y


def test_features_that_are_large_are_named_before_training_and_before_an_upload() -> None:
    x, y = table(120)
    named = MODEL.with_feature_names(["age", "pressure", "weight"])
    with pytest.warns(HdcosWarning, match=r"column pressure is about \d\d\d in size: .*scale = \"standard\""):
        check_run(named, x, y, 16, **OPTIONS)
    with pytest.warns(HdcosWarning, match=r"feature 1 is about \d\d\d in size"):
        encode_stream(x, y, 1, None, None, None)
    with pytest.warns(HdcosWarning, match="feature 1 is about 7,890 in size, and 2 more are large"):
        encode_stream(x * 50, y, 1, None, None, None)


def test_standardised_features_are_not() -> None:
    x, y = table(1)
    x[0] = 30  # one outlier
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_run(MODEL, x, y, 16, **OPTIONS)
        encode_stream(x, y, 1, None, None, None)


def test_features_that_public_cosines_make_of_large_ones_are_not() -> None:
    x, y = table(20)
    model = nn.models.kernel_machine(3, 1, 16, bandwidth=20.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_run(model, x, y, 16, **OPTIONS)


def test_labels_that_are_all_the_same_are_told() -> None:
    x, y = table(1)
    with pytest.warns(HdcosWarning, match="labels of all 40 rows are the same"):
        check_run(MODEL, x, np.zeros_like(y), 16, **OPTIONS)


@pytest.mark.parametrize(("activation", "told"), [("relu", True), ("tanh", True), ("cos", False)])
def test_rows_beyond_the_range_are_told_unless_they_feed_a_cosine(activation: str, told: bool) -> None:
    model = nn.models.mlp([3, 4, 1], activation, "dense", seed=0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_range(model, np.full((2, 3), 1023.0))
        assert not found
        warn_of_range(model, np.full((2, 3), -1e4))
    assert [str(each.message)[:31] for each in found] == ["these rows reach 10,000 in size"] * told


def test_a_prediction_says_so_before_it_is_made() -> None:
    with hdcos.local() as cluster:
        private = cluster.share(nn.models.mlp([3, 4, 1], "relu", "dense", seed=0))
        with pytest.warns(HdcosWarning, match="these rows reach 2,000 in size"):
            private.predict(np.full((1, 3), 2000.0))
