"""Rows in the formats of Criteo and HIGGS that nobody ever measured, for tests and for trying things out.

Labels follow a hidden rule from some of the features, with noise, so that there is something to learn. Whatever is
computed from these rows says nothing about the real data: every result must be labelled synthetic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hdcos.data.criteo import INTEGERS
from hdcos.data.higgs import FEATURES

CARDINALITIES = (4, 11, 18, 28, 105, 306, *range(2750, 4651, 100))
"""Different values of each category: embeddings of all of them and the integers are 1023 numbers."""
CLICKS = 0.256
"""The share of clicks in Criteo's data."""
INTEGER_MISSING, CATEGORY_MISSING = 0.1, 0.05

Array = npt.NDArray[Any]


def write_criteo(path: Path, rows: int, seed: int = 0) -> None:
    """Rows in Criteo's format. With at least max(CARDINALITIES) of them every value of every category occurs."""
    generator = np.random.default_rng([seed, 0xC])
    counts = generator.poisson(generator.gamma(1.0, 8.0, (rows, INTEGERS)))
    chosen = np.stack([_draw_values(size, rows, generator) for size in CARDINALITIES], axis=1)
    effects = [np.append(generator.standard_normal(size), 0) for size in CARDINALITIES]  # the last is for missing ones
    score = sum(effect[column] for effect, column in zip(effects[:6], chosen.T[:6], strict=True))
    score = score + (np.log1p(counts[:, :4]) @ [0.6, -0.6, 0.4, -0.4]) + 0.5 * generator.standard_normal(rows)
    labels = score > np.quantile(score, 1 - CLICKS)
    integers = np.where(generator.random((rows, INTEGERS)) < INTEGER_MISSING, -1, counts)
    lines = []
    for label, numbers, values in zip(labels, integers, chosen, strict=True):
        fields = [str(int(label)), *("" if number < 0 else str(number) for number in numbers)]
        fields += [_hexadecimal(feature, int(value)) for feature, value in enumerate(values)]
        lines.append("\t".join(fields))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def write_higgs(path: Path, rows: int, seed: int = 0) -> None:
    """Rows in HIGGS's format: the label first, then 28 numbers."""
    generator = np.random.default_rng([seed, 0x41])
    x = generator.standard_normal((rows, FEATURES)).astype(np.float32)
    labels = x[:, 0] * x[:, 1] + x[:, 2] + 0.5 * generator.standard_normal(rows) > 0
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, np.column_stack([labels, x]), fmt="%.9g", delimiter=",")


def _draw_values(cardinality: int, rows: int, generator: np.random.Generator) -> Array:
    """A value for every row: each at least once if the rows suffice, small numbers often, -1 where it is missing."""
    often = np.minimum((cardinality * generator.random(rows) ** 3).astype(np.int64), cardinality - 1)
    often[generator.random(rows) < CATEGORY_MISSING] = -1
    once = min(rows, cardinality)
    often[:once] = generator.permutation(cardinality)[:once]
    return generator.permutation(often)


def _hexadecimal(feature: int, value: int) -> str:
    """Eight digits that differ for different values of a feature; nothing where the value is missing."""
    return "" if value < 0 else f"{(value * 2654435761 + feature * 40503 + 1) % 2**32:08x}"
