"""Shares of data sets at a party, and how the rows and columns of several owners become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hdcos.errors import InputError
from hdcos.nn.columns import Names, order, quote
from hdcos.ring import Array
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE
from hdcos.sharing import Share


@dataclass(frozen=True)
class Dataset:
    """One owner's rows; targets are there if that owner has the labels, names if its columns have some."""

    x: Share = field(repr=False)
    targets: Share | None = field(repr=False)
    columns: Names | None = None

    @classmethod
    def of(cls, words: Mapping[str, Array], columns: Names | None) -> Dataset:
        targets = Share(words["targets"], TARGET_SCALE) if "targets" in words else None
        return cls(Share(words["x"], INPUT_SCALE), targets, columns)

    def ordered(self, name: str, wanted: Names | None, taker: str) -> Dataset:
        """With its columns in the wanted order, if they have names: an order is public, so each party does it alone."""
        if wanted is None or self.columns is None or wanted == self.columns:
            return self
        places = order(self.columns, wanted, f"the data set {name!r}", taker)
        return Dataset(Share(self.x.words.take(places, axis=1), self.x.scale), self.targets, wanted)


@dataclass(frozen=True)
class Joined:
    """All rows and columns that a network is trained on."""

    x: Share = field(repr=False)
    targets: Share = field(repr=False)
    columns: Names | None


def join_datasets(
    datasets: Mapping[str, Dataset], names: Sequence[str], axis: str, wanted: Names | None = None
) -> Joined:
    """Features and targets of several owners: rows one after another, or columns side by side, rows by position.

    Columns that have names come in the order that is `wanted`, or in that of the first data set that has names.
    """
    missing = [name for name in names if name not in datasets]
    if missing or not names:
        raise InputError(f"no data set is called {missing}; there are {sorted(datasets)}")
    parts = [datasets[name] for name in names]
    if axis == "rows":
        return _join_rows(parts, names, wanted)
    if axis == "columns":
        return _join_columns(parts, names, wanted)
    raise InputError(f"data sets are joined by rows or columns, not by {axis!r}")


def _join_rows(parts: Sequence[Dataset], names: Sequence[str], wanted: Names | None) -> Joined:
    """Rows of several owners."""
    taker = "the network"
    if wanted is None:
        named = [(part.columns, name) for part, name in zip(parts, names, strict=True) if part.columns is not None]
        if named:
            wanted, taker = named[0][0], f"the data set {named[0][1]!r}, which comes first,"
    fitting = [part.ordered(name, wanted, taker) for part, name in zip(parts, names, strict=True)]
    labelled = [part.targets for part in fitting if part.targets is not None]
    if len(labelled) != len(fitting):
        raise InputError(f"each of {list(names)} must bring labels for its rows")
    shapes = [part.x.shape for part in fitting]
    if len({shape[1:] for shape in shapes}) != 1 or len({share.shape[1:] for share in labelled}) != 1:
        raise InputError(f"rows of shapes {shapes} do not fit under each other")
    return Joined(_glue([part.x for part in fitting], 0), _glue(labelled, 0), wanted)


def _join_columns(parts: Sequence[Dataset], names: Sequence[str], wanted: Names | None) -> Joined:
    """Columns of several owners."""
    labelled = [part.targets for part in parts if part.targets is not None]
    if len(labelled) != 1:
        raise InputError(f"exactly one of {list(names)} must bring the labels, {len(labelled)} do")
    shapes = [part.x.shape for part in parts]
    if len({shape[0] for shape in shapes}) != 1:
        raise InputError(f"columns of shapes {shapes} do not have the same rows")
    columns = tuple(column for part in parts for column in part.columns or ())
    twice = [column for column, times in Counter(columns).items() if times > 1]
    if twice:
        raise InputError(f"several of the data sets {list(names)} have the columns {quote(twice)}: keep one of each")
    named = all(part.columns is not None for part in parts)
    whole = Dataset(_glue([part.x for part in parts], 1), labelled[0], columns if named else None)
    whole = whole.ordered(" and ".join(names), wanted, "the network")
    return Joined(whole.x, labelled[0], whole.columns)


def _glue(shares: Sequence[Share], axis: int) -> Share:
    if len(shares) == 1:
        return shares[0]
    return Share(np.concatenate([share.words for share in shares], axis), shares[0].scale)
