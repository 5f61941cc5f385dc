"""Architectures from outside are measured by their shapes, before anything is made of them."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.nn import limits
from hdcos.nn.limits import Size
from hdcos.nn.public import public_choice, public_words

CONVOLUTION = {"type": "Conv2d", "in_channels": 1, "out_channels": 1, "kernel_size": 3}


def described(*layers, shape=(4,)):
    return {"input_shape": list(shape), "layers": list(layers)}


def linear(kind, inputs, outputs, **more):
    return {"type": kind, "in_features": inputs, "out_features": outputs, **more}


WAITING = [*[[0]] * 300, list(range(1, 301))]
BOMBS = {
    "padding": (described({**CONVOLUTION, "stride": 20000, "padding": 5000}, shape=(1, 8, 8)), "padding must be below"),
    "huge padding": (described({**CONVOLUTION, "padding": 1 << 17}, shape=(1, 8, 8)), "padding must be below"),
    "wide padding": (
        described({**CONVOLUTION, "kernel_size": 1 << 17, "padding": (1 << 17) - 1}, shape=(1, 8, 8)),
        "layer 0, Conv2d, works on",
    ),
    "PHD": (described(linear("PHD", 4, 4096), {"type": "Cos"}), "random or circulant matrices"),
    "wide PHD": (described(linear("PHD", 4, 1 << 24)), "layer 0, PHD, works on"),
    "projection": (described(linear("RandomProjection", 4, 1 << 26)), "layer 0, RandomProjection, works on"),
    "features": (described(linear("RandomFeatures", 4, 1 << 26, bandwidth=1)), "layer 0, RandomFeatures, works on"),
    "many features": (
        described(
            linear("RandomFeatures", 4, 1 << 21, bandwidth=1),
            *[linear("RandomFeatures", 1 << 21, 1 << 21, bandwidth=1)] * 2,
        ),
        "random or circulant matrices",
    ),
    "projections": (described(*(linear("RandomProjection", 4, 4, seed=n) for n in range(1001))), "at most 1000 layers"),
    "circulant": (described(linear("Circulant", 1 << 18, 1 << 18), shape=(1 << 18,)), "circulant matrices"),
    "transform": (described(linear("HadamardDiagonal", 4, 1 << 27)), "layer 0, HadamardDiagonal, works on"),
    "blocks": (described(linear("HadamardDiagonal", 4, 4, blocks=10**9)), "blocks must be at most"),
    "terms": (described(linear("HadamardDiagonal", 4, 1 << 20, terms=10**9)), "terms must be at most"),
    "wide terms": (
        described(linear("HadamardDiagonal", 1 << 19, 1 << 19, terms=64), shape=(1 << 19,)),
        "layer 0, HadamardDiagonal, works on",
    ),
    "dense": (described(linear("Dense", 1 << 20, 1 << 20), shape=(1 << 20,)), "parameters"),
    "rank": (described(linear("LowRank", 4, 4, rank=10**12)), "parameters"),
    "work": (
        described(
            {"type": "Conv2d", "in_channels": 64, "out_channels": 64, "kernel_size": 31, "padding": 15},
            shape=(64, 256, 256),
        ),
        "multiplications for one row",
    ),
    "input": (described({"type": "Cos"}, shape=(1 << 30, 1 << 30)), "layer 0, Cos, works on"),
    "axes": (described({"type": "Flatten"}, shape=[1] * 10_000), "at most 8 axes"),
    "inputs": ({**described({"type": "Add"}), "inputs": [[0] * 5000]}, "read at most 4000 values"),
    "waiting": (
        {**described(*[{"type": "Cos"}] * 300, {"type": "Add"}, shape=(1 << 16,)), "inputs": WAITING},
        "works on .* with those that later layers read",
    ),
    "reshaped": (described({"type": "Reshape", "shape": [1] * 10_000 + [4]}), "layer 0 gives 10001"),
    "digits": (described(linear("Dense", 10**3000, 10**3000), shape=(10**3000,)), "more than 10"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_few_bytes_that_stand_for_gigabytes_are_refused_at_once(name: str) -> None:
    record, said = BOMBS[name]
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(ModelError, match=said):
            nn.Sequential.outline(record)
        assert time.perf_counter() - started < 1
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_the_size_of_terms_is_counted() -> None:
    layer = nn.HadamardDiagonal(12, 5, terms=3)
    assert Size.of([layer], [(12,)]) == Size(3 * 12 + 5, 0, 12 + 5 + 3 * 16, 3 * 12)


def test_ready_models_and_the_widest_measured_network_are_within_the_limits() -> None:
    for made in (
        nn.models.mlp([1024] * 5, structure="phd"),
        nn.models.mlp([1024] * 5, structure="circulant"),
        nn.models.mlp([65536, 65536, 10]),
        nn.models.lenet5(),
    ):
        assert nn.Sequential.outline(made.architecture()).shapes == made.shapes


def test_the_size_of_a_network_counts_what_its_layers_make() -> None:
    model = nn.Sequential(
        [nn.Conv2d(2, 3, 3, padding=1), nn.Cos(), nn.Flatten(), nn.PHD(300, 20), nn.Circulant(20, 5)],
        input_shape=(2, 10, 10),
    )
    size = Size.of(model.layers, model.shapes)
    assert size.parameters == model.parameter_count
    assert size.matrices == 20 * 512 + 100
    assert size.row == 300 + 20 + 512  # PHD: in, out, and the transform
    assert size.multiplications == 300 * 18 + 300 + 100


def test_rows_are_chosen_in_blocks_as_they_would_be_at_once(monkeypatch) -> None:
    keys = public_words(40 * 64, "choice", "x").reshape(40, 64)
    at_once = np.sort(np.argsort(keys, axis=1, kind="stable")[:, :16], axis=1)
    monkeypatch.setattr("hdcos.nn.public.SORTED_AT_ONCE", 200)
    assert np.array_equal(public_choice(40, 64, 16, "x"), at_once)


def test_matrices_that_follow_from_a_seed_are_kept_for_a_bounded_number_of_layers() -> None:
    from hdcos.nn.hadamard import phd_projection

    for seed in range(80):
        nn.PHD(2, 2, seed).projection()
    assert phd_projection.cache_info().currsize <= 64
    assert 256 * limits.MOST_MATRICES**0.5 * 64 < 64e6  # columns and values of 16 entries per output, for the largest
