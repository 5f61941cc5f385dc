"""Rows on their way to the parties: from whatever the caller has, piece by piece, as ring words.

Rows may be an array or a table in memory, a file (CSV, Parquet and NPY are read piece by piece), or an iterator over
pieces, each rows or a pair of rows and labels: what pandas.read_csv(..., chunksize=n) gives, or a cursor of a database.
However many rows there are, only a piece of PIECE_BYTES is encoded and split at a time.

Security  what leaves the caller is shares, each piece split with fresh randomness. Piece by piece says no more than the
          number of rows does, which is public.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hdcos.data.tables import read_pieces
from hdcos.errors import InputError
from hdcos.nn.columns import Names, Rows, column_names, numbers, order
from hdcos.ring import Array
from hdcos.secure.sizes import warn_of_large_features
from hdcos.secure.training.plan import LOSSES
from hdcos.secure.training.targets import encode_rows
from hdcos.tables.preparation import Preparation, PreparedRows

PIECE_BYTES = 1 << 23
Uploaded = Rows | str | os.PathLike[str] | Iterator[Any]
"""What people pass to `upload`."""


@dataclass(frozen=True)
class Piece:
    """Some rows and their labels, as they came."""

    rows: Array
    labels: Array | None
    columns: Names | None
    weights: Array | None = None

    @classmethod
    def of(cls, x: Rows, y: ArrayLike | None, weights: ArrayLike | None = None) -> Piece:
        rows, columns = np.asarray(numbers(x)), column_names(x)
        if rows.ndim < 2 or not rows[:1].size:
            raise InputError(f"a data set is a table of at least one row, got shape {rows.shape}")
        labels = None if y is None else np.asarray(y)
        if labels is not None and len(labels if labels.ndim else [labels]) != len(rows):
            count = len(labels) if labels.ndim else 1
            raise InputError(f"{len(rows)} rows and {count} labels do not belong together")
        known = None if weights is None else np.asarray(weights)
        if known is not None and (labels is None or known.shape != (len(rows),)):
            reason = "without labels" if labels is None else f"of shape {known.shape}"
            raise InputError(f"{len(rows)} rows cannot have weights {reason}: a weight is one number beside a label")
        return cls(rows, labels, columns, known)

    @property
    def features(self) -> int:
        return int(np.prod(self.rows.shape[1:]))

    def fitting(self, first: Piece, number: int) -> Piece:
        """As the first piece of a data set is, with columns in its order."""
        owner, rows = f"piece {number} of the rows", self.rows
        if (self.labels is None) != (first.labels is None):
            raise InputError(f"{owner} has {'no ' if self.labels is None else ''}labels, unlike the first")
        if (self.columns is None) != (first.columns is None):
            raise InputError(
                f"{owner} has columns {'without' if self.columns is None else 'with'} names, unlike the first"
            )
        if self.columns is not None and first.columns is not None and self.columns != first.columns:
            rows = rows.take(order(self.columns, first.columns, owner, "the first"), axis=1)
        if self.features != first.features:
            raise InputError(f"{owner} has {self.features} features, the first has {first.features}")
        return Piece(rows, self.labels, first.columns, self.weights)


@dataclass(frozen=True)
class Stream:
    """Rows as they will be sent: what is public of them, and their words."""

    record: dict[str, Any]
    """Features, outputs, names of columns if they have some, the digest of what prepared them if something did, and
    rows if that is known before the last one came."""
    words: Iterator[Array]


def encode_stream(
    x: Uploaded,
    y: ArrayLike | None,
    outputs: int,
    loss: str | None,
    label: str | int | None = None,
    features: str | None = None,
    preparation: Preparation | None = None,
    sample_weight: ArrayLike | None = None,
) -> Stream:
    """What the parties will be sent. The first piece is read and encoded now, the others when they are wanted.

    Weights of rows are one target more.
    """
    if loss is not None and loss not in LOSSES:
        raise InputError(f"no loss is called {loss!r}: choose from {', '.join(LOSSES)}")
    if preparation is None:
        pieces = _pieces(x, y, label, features, sample_weight)
    elif sample_weight is None:
        pieces = _prepared(x, y, label, features, preparation)
    else:
        raise InputError("weights of rows are for rows without a preparation: give features, labels and weights")
    first = next(pieces, None)
    if first is None:
        raise InputError("a data set is a table of at least one row, and these are none")
    warn_of_large_features(first.rows, first.columns, stacklevel=3)
    words = _encode(first, pieces, outputs, loss)
    begun = next(words)
    targets = 0 if first.labels is None else outputs + (first.weights is not None)
    record: dict[str, Any] = {"features": first.features, "outputs": targets}
    if first.columns is not None:
        record["columns"] = list(first.columns)
    if preparation is not None:
        record["preparation"] = preparation.digest
    elif not isinstance(x, str | os.PathLike | Iterator):
        record["rows"] = len(first.rows)
    return Stream(record, chain([begun], words))


def _pieces(
    x: Uploaded, y: ArrayLike | None, label: str | int | None, features: str | None, sample_weight: ArrayLike | None
) -> Iterator[Piece]:
    """The rows, as they come."""
    if sample_weight is not None and isinstance(x, str | os.PathLike | Iterator):
        raise InputError("weights of rows go with rows that are passed: read the file, and pass rows, y and weights")
    if isinstance(x, str | os.PathLike):
        if y is not None:
            raise InputError("the labels of a file are in it: `label` says where, and y is left out")
        return (Piece.of(table, table.y) for table in read_pieces(x, label, features))
    if label is not None or features is not None:
        raise InputError("`label` and `features` say what a file holds: rows that are passed have their labels in y")
    if isinstance(x, Iterator):
        if y is not None:
            raise InputError("pieces bring their labels: an iterator over (rows, labels), and y is left out")
        return map(_piece, x)
    return iter([Piece.of(x, y, sample_weight)])


def _prepared(
    x: Uploaded, y: ArrayLike | None, label: str | int | None, features: str | None, preparation: Preparation
) -> Iterator[Piece]:
    """The rows of a table, as a preparation makes them."""
    if y is not None or label is not None or features is not None:
        raise InputError("the declaration of a preparation says which column is the label: leave y and `label` out")

    def features_of(given: Any) -> Iterable[PreparedRows]:
        ready = isinstance(given, PreparedRows) and given.digests == (preparation.digest,)
        return (given,) if ready else preparation.pieces(given, labels=True)

    pieces = chain.from_iterable(map(features_of, x)) if isinstance(x, Iterator) else features_of(x)
    return (Piece.of(rows, rows.y) for rows in pieces)


def _piece(given: Any) -> Piece:
    """What an iterator brought: rows, or a pair of rows and labels."""
    if isinstance(given, tuple) and len(given) != 2:
        raise InputError(f"a piece is rows, or a pair of rows and labels, not {len(given)} things")
    return Piece.of(*given) if isinstance(given, tuple) else Piece.of(given, None)


def _encode(first: Piece, others: Iterator[Piece], outputs: int, loss: str | None) -> Iterator[Array]:
    at_once, done = max(1, PIECE_BYTES // (8 * (first.features + outputs))), 0
    for number, piece in enumerate(chain([first], others), 1):
        same = piece.fitting(first, number)
        for start in range(0, len(same.rows), at_once):
            rows = same.rows[start : start + at_once]
            labels = None if same.labels is None else same.labels[start : start + at_once]
            weights = None if same.weights is None else same.weights[start : start + at_once]
            try:
                words = encode_rows(rows, labels, outputs, loss, weights)
            except InputError as error:
                if not done:
                    raise
                raise type(error)(f"rows {done} to {done + len(rows) - 1}: {error}") from error
            done += len(rows)
            yield words
