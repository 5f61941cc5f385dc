"""Shares of data sets at a party, and how the rows and columns of several owners become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hdcos.errors import InputError
from hdcos.sharing import Share


@dataclass(frozen=True)
class Dataset:
    """One owner's rows; targets are there if that owner has the labels."""

    x: Share = field(repr=False)
    targets: Share | None = field(repr=False)


def joined(datasets: Mapping[str, Dataset], names: Sequence[str], axis: str) -> tuple[Share, Share]:
    """Features and targets of several owners: rows one after another, or columns side by side by position."""
    missing = [name for name in names if name not in datasets]
    if missing or not names:
        raise InputError(f"no data set is called {missing}; there are {sorted(datasets)}")
    parts = [datasets[name] for name in names]
    labelled = [part.targets for part in parts if part.targets is not None]
    shapes = [part.x.shape for part in parts]
    if axis == "rows":
        if len(labelled) != len(parts):
            raise InputError(f"each of {list(names)} must bring labels for its rows")
        if len({shape[1:] for shape in shapes}) != 1 or len({share.shape[1:] for share in labelled}) != 1:
            raise InputError(f"rows of shapes {shapes} do not fit under each other")
        return _glued([part.x for part in parts], 0), _glued(labelled, 0)
    if axis != "columns":
        raise InputError(f"data sets are joined by rows or columns, not by {axis!r}")
    if len(labelled) != 1:
        raise InputError(f"exactly one of {list(names)} must bring the labels, {len(labelled)} do")
    if len({shape[0] for shape in shapes}) != 1:
        raise InputError(f"columns of shapes {shapes} do not have the same rows")
    return _glued([part.x for part in parts], 1), labelled[0]


def _glued(shares: Sequence[Share], axis: int) -> Share:
    return Share(np.concatenate([share.words for share in shares], axis), shares[0].scale)
