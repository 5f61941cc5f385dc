"""Rows that nobody ever measured, for tests and for trying things out: in the formats of Criteo and HIGGS, and a census
of people with categories, gaps and ids, in the manner of the Adult data set of UCI.

Labels follow a hidden rule from some of the features, with noise, so that there is something to learn. Whatever is
computed from these rows says nothing about the real data: every result must be labelled synthetic.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
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

EDUCATION = (
    "preschool", "primary", "lower-secondary", "some-secondary", "secondary", "vocational", "some-college",
    "associate", "bachelor", "master", "professional", "doctorate",
)  # fmt: skip
WORK = ("private", "self-employed", "own-company", "federal", "state", "local", "without-pay")
OCCUPATION = (
    "clerk", "craft", "executive", "farming", "guard", "household", "machine-operator", "transport", "professional",
    "sales", "service", "support", "cleaner", "armed-forces",
)  # fmt: skip
MARITAL = ("married", "never-married", "divorced", "separated", "widowed", "spouse-absent")
REGIONS = 41
ADULT_LABEL = "income_above"
RICH = 0.24
"""The share of people with an income above the limit, in Adult."""
GAPS = {"age": 0.02, "work": 0.056, "occupation": 0.057, "hours_per_week": 0.03, "region": 0.018}
"""How often a value is missing."""

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


def adult_like(rows: int, seed: int = 0) -> dict[str, Array]:
    """People by columns: an id, numbers (gaps are NaN), categories (gaps are None), a truth value, and the label.

    Income depends on education, age (it rises and falls), hours, marriage, occupation and capital, some of them
    together, and on chance. A linear model of these columns is right for about 84 of 100, a network of cosines for one
    more.
    """
    generator = np.random.default_rng([seed, 0xAD])
    age = np.clip(17 + generator.gamma(3.2, 7.0, rows), 17, 90).round()
    level = np.clip(generator.normal(5.2, 2.2, rows) + 0.8 * (age > 24), 0, len(EDUCATION) - 1).astype(np.int64)
    married = generator.random(rows) < 0.75 / (1 + np.exp((27 - age) / 5))
    marital = np.where(married, 0, _draw_often(len(MARITAL) - 1, rows, generator, 1.5) + 1)
    occupation = _draw_often(len(OCCUPATION), rows, generator, 1.0)
    work, region = _draw_often(len(WORK), rows, generator, 4.0), _draw_often(REGIONS, rows, generator, 6.0)
    hours = np.clip(generator.normal(40, 11, rows) + 4 * (work == 2), 1, 99).round()
    gains = generator.random(rows)
    gain = np.where(gains < 0.083, generator.lognormal(8.3, 1.1, rows), 0).round()
    loss = np.where(gains > 0.953, generator.normal(1870, 360, rows).clip(100), 0).round()
    owner = generator.random(rows) < 0.35 + 0.2 * married
    effects = [np.random.default_rng([0, 0xAD, size]).normal(0, 0.5, size) for size in (len(OCCUPATION), len(WORK))]
    score = 0.42 * (level - 5) + 0.045 * (hours - 40) - 0.0022 * (age - 50) ** 2 + 1.9 * married + 0.3 * owner
    score += effects[0][occupation] + effects[1][work] + 0.35 * np.log1p(gain) - 0.05 * np.log1p(loss)
    score += 0.15 * (level - 5) * married + 0.5 * ((occupation == 2) & (hours > 45))
    score += 0.9 * generator.logistic(size=rows)
    missing = {name: generator.random(rows) < often for name, often in GAPS.items()}
    numbers = {"age": age, "hours_per_week": hours, "capital_gain": gain, "capital_loss": loss}
    regions = [f"region-{number:02}" for number in range(REGIONS)]
    named = {
        "education": (EDUCATION, level),
        "marital_status": (MARITAL, marital),
        "work": (WORK, work),
        "occupation": (OCCUPATION, occupation),
        "region": (regions, region),
    }
    none = np.zeros(rows, bool)
    columns: dict[str, Array] = {"id": np.array([f"P{number:08}" for number in generator.permutation(rows)], object)}
    for name, number in numbers.items():
        columns[name] = np.where(missing.get(name, none), np.nan, number)
    for name, (words, chosen) in named.items():
        columns[name] = np.array(words, object)[chosen]
        columns[name][missing.get(name, none)] = None
    columns["owns_home"] = owner
    columns[ADULT_LABEL] = (score > np.quantile(score, 1 - RICH)).astype(np.int64)
    return columns


def write_columns(path: Path, columns: Mapping[str, Array], names: Sequence[str] | None = None) -> None:
    """Columns as a CSV file, whose gaps are empty cells, or by the name of the file as a Parquet file."""
    chosen = {name: columns[name] for name in names or columns}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table({name: pyarrow.array(values, from_pandas=True) for name, values in chosen.items()})
        pyarrow.parquet.write_table(table, path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(chosen)
        writer.writerows(zip(*(map(_cell, values.tolist()) for values in chosen.values()), strict=True))


def _cell(value: Any) -> Any:
    """Whole numbers without a point, gaps empty."""
    if value is None or value != value:
        return ""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _draw_often(count: int, rows: int, generator: np.random.Generator, steep: float) -> Array:
    """One of `count` values for every row, the first most often."""
    weights = np.exp(-steep * np.arange(count) / count)
    return generator.choice(count, rows, p=weights / weights.sum())


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
