"""The features that become of one column: a number, a point on a circle, one for each value or bucket, and of gaps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from hdcos.nn.columns import quote
from hdcos.ring import Array
from hdcos.tables.cells import Cells, pyarrow
from hdcos.tables.columns import CATEGORY, DATE, INDICATOR, OTHER, REFUSE, Column
from hdcos.tables.statistics import read_numbers

CIRCLES = ("month", "weekday", "hour")
EMPTY = "the cell is empty. Fill it in, leave the row out, or declare what stands for missing cells (`missing`)"
Moments = tuple[float, float]
"""The mean and the deviation of a column."""


def feature_names(column: Column, kept: Sequence[str]) -> list[str]:
    """What the features of a column are called; `kept` are the values of a category that have one each."""
    name = column.name
    gap = [f"{name} missing"] if column.missing == INDICATOR else []
    if column.kind == CATEGORY:
        if column.buckets:
            return [f"{name}#{bucket}" for bucket in range(column.buckets)] + gap
        other = [f"{name} {OTHER}"] if column.unseen == OTHER else []
        return [f"{name}={value}" for value in kept] + other + gap
    if column.kind == DATE:
        circles = [f"{name} {part} {axis}" for part in column.parts if part in CIRCLES for axis in ("cos", "sin")]
        return [name] * ("days" in column.parts) + circles + gap
    return [name, *gap]


def encode_column(cells: Cells, kept: Sequence[str], moments: Moments) -> Array:
    """The features of a column, in the order of their names."""
    return _encode_category(cells, kept) if cells.column.kind == CATEGORY else _encode_number(cells, moments)


def scale(column: Column, values: Array, moments: Moments) -> Array:
    """Numbers less their mean, over their deviation, where the column is standardised, within its bound."""
    if column.scaled:
        values = (values - moments[0]) / moments[1]
    return values if column.bound is None else np.clip(values, -column.bound, column.bound)


def places_of(texts: Any, values: Sequence[str]) -> Array:
    """Where each text stands among values; -1 where it does not."""
    pa = pyarrow()
    found = pa.compute.index_in(texts, value_set=pa.array(list(values), pa.string()))
    return np.asarray(pa.compute.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _encode_number(cells: Cells, moments: Moments) -> Array:
    column, found = cells.column, read_numbers(cells)
    gaps = np.isnan(found)
    if gaps.any() and column.missing == REFUSE:
        cells.refuse(int(gaps.argmax()), EMPTY)
    parts = []
    if column.kind != DATE or "days" in column.parts:
        filled = np.where(gaps, moments[0] if column.fill is None else float(column.fill), found)
        parts.append(scale(column, filled, moments)[:, None])
    if column.kind == DATE:
        filled = found if column.fill is None else np.where(gaps, column.fill, found)
        parts += [_circle(filled, part) for part in column.parts if part in CIRCLES]
    if column.missing == INDICATOR:
        parts.append(gaps[:, None].astype(np.float64))
    return np.concatenate(parts, axis=1)


def _encode_category(cells: Cells, kept: Sequence[str]) -> Array:
    column, pa, texts = cells.column, pyarrow(), cells.texts()
    gaps = ~_present(texts)
    if column.fill is not None:
        texts = pa.compute.fill_null(texts, column.fill)
    elif gaps.any() and column.missing == REFUSE:
        cells.refuse(int(gaps.argmax()), EMPTY)
    places = _buckets(column, texts) if column.buckets else places_of(texts, kept)
    unseen = (places < 0) & _present(texts)
    if unseen.any() and column.unseen == REFUSE:
        row = int(unseen.argmax())
        cells.refuse(
            row,
            f"{cells.quote(row)} is none of the values {quote(kept)}. Correct the cell, leave the row out, or declare "
            f"unseen = 'other' and prepare and train again",
        )
    width = len(feature_names(column, kept))
    encoded = np.zeros((len(places), width))
    places = np.where(unseen, width - 1 - (column.missing == INDICATOR), places)
    rows = np.flatnonzero(places >= 0)
    encoded[rows, places[rows]] = 1.0
    if column.missing == INDICATOR:
        encoded[:, -1] = gaps
    return encoded


def _present(texts: Any) -> Array:
    return np.asarray(texts.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def _buckets(column: Column, texts: Any) -> Array:
    """The bucket of each text, by a hash that depends on the column's name; -1 where it is missing."""
    encoded = texts.dictionary_encode()
    named = [f"{column.name}\0{text}".encode() for text in encoded.dictionary.to_pylist()]
    hashes = [int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") for text in named]
    buckets = np.array([number % column.buckets for number in hashes] + [-1])
    places = np.asarray(encoded.indices.fill_null(len(hashes)).to_numpy(zero_copy_only=False), dtype=np.int64)
    found: Array = buckets[places]
    return found


def _circle(days: Array, part: str) -> Array:
    """A point on a circle for each day: what comes round again has no first and no last. Gaps are its centre."""
    known = np.where(np.isnan(days), 0.0, days)
    if part == "month":
        months = np.floor(known).astype(np.int64).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        turns = months % 12 / 12
    elif part == "weekday":
        turns = (np.floor(known) + 3) % 7 / 7  # the first day of 1970 was a Thursday; weeks begin on Monday
    else:
        turns = known % 1
    angles = 2 * np.pi * turns
    return np.where(np.isnan(days)[:, None], 0.0, np.stack([np.cos(angles), np.sin(angles)], axis=1))
