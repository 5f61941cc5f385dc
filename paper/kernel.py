"""Random Fourier features: how well cosines of a random layer estimate the Gaussian kernel (the paper's lemma).

K(x - y) = exp(-|x - y|^2 / (2 s^2)) is the mean of cos(w . (x - y)) over w ~ N(0, I / s^2). A layer W with D rows
estimates it by the mean over its rows, which is phi(x) . phi(y) with the random biases averaged out. Structured layers
have n rows; for more rows independent ones are stacked. All act on the difference z = x - y, with s = 1.

gaussian    independent rows, W ~ N(0, 1)
hadamard    the Hadamard-Diagonal layer of hdcos.nn with bandwidth 1: H D, D ~ N(0, n)
hadamard3   the same with three blocks: signs, signs, then D
signs3      H D3 H D2 H D1 with random signs only, times sqrt(n): orthogonal features (Yu et al. 2016), almost unbiased
fastfood    S H G P H B (Le, Sarlos and Smola): signs, permutation, Gaussian diagonal, the row lengths of a Gaussian
circulant   the cycle of a Gaussian vector after random signs (Yu et al.)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hdcos.nn.hadamard import HadamardDiagonal, walsh_hadamard
from hdcos.ring import Array
from paper import results

WIDTH = 64
DIMENSIONS = (64, 128, 256, 512, 1024)
PAIRS, REPEATS = 200, 200
DATASET = "gaussian pairs (synthetic)"


def _gaussian(z: Array, generator: np.random.Generator) -> Array:
    products: Array = z @ generator.standard_normal((WIDTH, WIDTH)).T
    return products


def _hadamard(blocks: int) -> Callable[[Array, np.random.Generator], Array]:
    layer = HadamardDiagonal(WIDTH, WIDTH, blocks, bandwidth=1.0)

    def products(z: Array, generator: np.random.Generator) -> Array:
        return layer.forward({**layer.initial(generator), "bias": np.zeros(WIDTH)}, z)

    return products


def _signs3(z: Array, generator: np.random.Generator) -> Array:
    for _ in range(3):
        z = walsh_hadamard(z * generator.choice([-1.0, 1.0], WIDTH))
    products: Array = z * np.sqrt(WIDTH)
    return products


def _fastfood(z: Array, generator: np.random.Generator) -> Array:
    signs, gaussian = generator.choice([-1.0, 1.0], WIDTH), generator.standard_normal(WIDTH)
    lengths = np.sqrt(generator.chisquare(WIDTH, WIDTH)) / np.linalg.norm(gaussian)
    mixed = walsh_hadamard(z * signs)[..., generator.permutation(WIDTH)]
    products: Array = walsh_hadamard(mixed * gaussian) * np.sqrt(WIDTH) * lengths
    return products


def _circulant(z: Array, generator: np.random.Generator) -> Array:
    signs, row = generator.choice([-1.0, 1.0], WIDTH), generator.standard_normal(WIDTH)
    products: Array = np.fft.irfft(np.fft.rfft(z * signs) * np.fft.rfft(row), WIDTH)
    return products


STRUCTURES: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "gaussian": _gaussian,
    "hadamard": _hadamard(1),
    "hadamard3": _hadamard(3),
    "signs3": _signs3,
    "fastfood": _fastfood,
    "circulant": _circulant,
}


def differences(generator: np.random.Generator, pairs: int = PAIRS) -> Array:
    """z = x - y with lengths between 0.5 and 2, in random directions: kernels between 0.88 and 0.14."""
    z = generator.standard_normal((pairs, WIDTH))
    lengths = generator.uniform(0.5, 2, (pairs, 1))
    scaled: Array = z / np.linalg.norm(z, axis=1, keepdims=True) * lengths
    return scaled


def kernel(z: Array) -> Array:
    exact: Array = np.exp(-0.5 * (z * z).sum(axis=-1))
    return exact


def estimate(structure: str, z: Array, dimension: int, generator: np.random.Generator) -> Array:
    """One estimate of the kernel of every difference, from `dimension` random features."""
    stacked = [np.cos(STRUCTURES[structure](z, generator)).mean(axis=-1) for _ in range(dimension // WIDTH)]
    mean: Array = np.mean(stacked, axis=0)
    return mean


def squared_error(structure: str, dimension: int, seed: int, repeats: int = REPEATS) -> float:
    """The mean squared error over pairs and fresh layers."""
    generator = np.random.default_rng([seed, dimension])
    z = differences(generator)
    errors = [estimate(structure, z, dimension, generator) - kernel(z) for _ in range(repeats)]
    return float(np.mean(np.square(errors)))


def run(out: Path, seeds: int = 3) -> int:
    """Append the errors that the file lacks; the number of rows written."""
    there = {(row["structure"], row["dimension"], row["seed"]) for row in results.read(out) if row["metric"] == "mse"}
    wanted = [(s, d, seed) for s in STRUCTURES for d in DIMENSIONS for seed in range(seeds)]
    rows = [_row(*key) for key in wanted if key not in there]
    results.append(out, rows)
    return len(rows)


def _row(structure: str, dimension: int, seed: int) -> results.Row:
    return {
        "experiment": "kernel",
        "dataset": DATASET,
        "activation": "cos",
        "structure": structure,
        "optimizer": None,
        "lr": None,
        "depth": None,
        "dimension": dimension,
        "seed": seed,
        "epochs": 0,
        "train_rows": 0,
        "test_rows": PAIRS * REPEATS,
        "metric": "mse",
        "value": float(f"{squared_error(structure, dimension, seed):.6g}"),
        "versions": {"numpy": np.__version__},
        "device": "cpu",
    }
