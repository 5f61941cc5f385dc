"""A fitted preparation: what a declaration and the statistics of some rows make of any table with these columns.

It is the same for training and for every prediction after it, so it is kept: as a JSON file at the owner, and of it, at
the parties, what is public: the names of the features and the digest. Rows that do not fit it are refused: a column is
missing, unknown or of another type, a value unseen.

Security  means, deviations and values stay in the file. The digest is salted, by a random number that the owner drew or
          that all owners drew together, so that nobody who sees it can test what the file might say. Names of features
          are public to the parties, and to clients that may train on the rows or use the model: those of one-hot
          columns contain the values. `buckets` are for values whose names should not be told.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hdcos.errors import InputError, ModelError
from hdcos.files import read_text, write_whole
from hdcos.nn.columns import Names, check_names, quote
from hdcos.ring import Array
from hdcos.tables.cells import Cells
from hdcos.tables.columns import CATEGORY, Column, Columns
from hdcos.tables.encoding import Moments, encode_column, feature_names, places_of, scale
from hdcos.tables.fitting import check_columns, check_label, complete, measure
from hdcos.tables.inference import infer
from hdcos.tables.reading import Piece, Source, narrow, read_pieces
from hdcos.tables.statistics import Statistics, read_numbers

FORMAT, VERSION = "hdcos-preparation", 1
NAME_ALL = "of others name the preparation that knows them, too (--preparation), or leave them out (--leave-out)"
AS_IT_IS = (0.0, 1.0)
"""Mean and deviation of what is not standardised."""


@dataclass(frozen=True)
class PreparedRows:
    """Rows of features with their names, the label of each where the table has them, and what prepared them."""

    x: Array
    y: Array | None
    columns: Names
    digests: tuple[str, ...]
    """Of the preparations, one for each owner of columns."""
    texts: Mapping[str, list[str]] = field(default_factory=dict)
    """Columns that were asked for as they are, by name."""

    def __len__(self) -> int:
        return len(self.x)

    def to_numpy(self) -> Array:
        """The features: with `columns` what tables offer, so that networks find them by name."""
        return self.x


@dataclass(frozen=True)
class Preparation:
    """Turns tables into features, always in the same way."""

    columns: Columns
    """With all values and classes."""
    moments: Mapping[str, Moments]
    """Mean and deviation of the columns that need them."""
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values of a category that have a feature each."""
    owners: int = 1
    """Whose rows it was fitted to."""
    salt: str = field(default="", repr=False)

    # ---- how it comes about

    @classmethod
    def fit(cls, source: Source, columns: Any = None, label: str | None = None) -> Preparation:
        """From one owner's own rows, a table in memory or a file: by a declaration (whatever `Columns.of` takes), or
        without one by a guess. Nothing leaves the owner."""
        if isinstance(source, Iterator):
            raise InputError("rows are read more than once to fit a preparation: pass a table or a file")
        declared = infer(source, label) if columns is None else Columns.of(columns)
        return cls.of(measure(complete(declared, source), source))

    @classmethod
    def of(cls, statistics: Statistics, owners: int = 1) -> Preparation:
        """From statistics: of one owner's rows, or the totals over several."""
        columns = statistics.columns
        moments = {column.name: statistics.moments(column) for column in columns if column.needs_mean}
        kept = {}
        for column in columns:
            if column.kind == CATEGORY and column.values is not None:
                rows = statistics.rows_of_values(column)
                frequent = [value for value in column.values if not column.least or rows[value] >= column.least]
                kept[column.name] = tuple(frequent)
        made = cls(columns, moments, kept, owners, statistics.salt)
        _ = made.names  # names that cannot be used are told now
        return made

    # ---- what it is

    @cached_property
    def names(self) -> list[str]:
        """Of the features, in their order."""
        found = [name for column in self.columns.features for name in feature_names(column, self._kept(column))]
        if not found:
            raise InputError("[columns] declares no feature: there is nothing to learn from")
        try:
            check_names(found, len(found))
        except ModelError as error:
            raise InputError(f"the features have names that cannot be used: {error}; `buckets` hides values") from None
        return found

    @cached_property
    def digest(self) -> str:
        """The same for the same preparation; it tells nothing else."""
        return hashlib.sha256(json.dumps(self._record()).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """What is public of it."""
        return {"names": list(self.names), "digest": self.digest}

    @property
    def classes(self) -> tuple[str, ...] | None:
        """What the labels 0, 1 and so on are called; none without classes."""
        return None if self.columns.label is None else self.columns.label.classes

    @property
    def regression(self) -> bool:
        return self.columns.label is not None and self.columns.label.regression

    @property
    def outputs(self) -> int:
        """Of a network for its labels: 1 for two classes and for a number, else one for each class."""
        return 1 if self.classes is None or len(self.classes) <= 2 else len(self.classes)

    def agrees(self, other: Preparation) -> bool:
        """Whether two do the same to every table, by however many owners' rows, whatever their salts."""
        plain, others = (replace(each, salt="", owners=1)._record() for each in (self, other))
        return plain == others

    # ---- what it does

    def apply(self, source: Source) -> Array:
        """The features of a table, one row for each of its rows; it need not have the label, ids or ignored columns."""
        return self.rows(source).x

    def rows(self, source: Source, labels: bool = False) -> PreparedRows:
        """The features with their names and, where they are asked for, the labels."""
        return join_rows(list(self.pieces(source, labels)))

    def pieces(self, source: Source, labels: bool = False, where: str = "") -> Iterator[PreparedRows]:
        """The same piece by piece, for tables that may be larger than memory."""
        names = tuple(self.names)
        for piece in narrow(read_pieces(source, where), len(names)):
            check_columns(piece, self.columns)
            yield PreparedRows(self.features(piece), self.labels(piece) if labels else None, names, (self.digest,))

    def features(self, piece: Piece) -> Array:
        """Those of a piece of a table, which has the columns."""
        parts = [
            encode_column(self._cells(piece, column), self._kept(column), self._moments(column))
            for column in self.columns.features
        ]
        return np.concatenate(parts, axis=1)

    def labels(self, piece: Piece) -> Array | None:
        """The class of each row as a whole number, or its number as it is learned; none where none is declared."""
        label = self.columns.label
        if label is None:
            return None
        check_label(piece, self.columns)
        cells = self._cells(piece, label)
        if label.regression:
            return scale(label, read_numbers(cells), self._moments(label))
        classes = label.classes or ()
        places = places_of(cells.texts(), classes)
        if (places < 0).any():
            row = int((places < 0).argmax())
            cells.refuse(row, f"the label {cells.quote(row)} is none of the classes {quote(classes)}. Correct the cell")
        return places

    def name_labels(self, labels: Sequence[int] | Array) -> list[str]:
        """What labels that were predicted are called."""
        classes, numbers = self.classes, np.asarray(labels)
        if classes is None:
            raise InputError("this preparation has no classes: its declaration has no label, or a regression")
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(classes):
            raise InputError(f"labels from {numbers.min()} to {numbers.max()} are none of {len(classes)} classes")
        return [classes[int(number)] for number in numbers.ravel()]

    def unscale(self, predicted: Array) -> Array:
        """Numbers that a regression predicted, in the label's own unit."""
        label = self.columns.label
        if label is None or not label.regression:
            raise InputError("this preparation has no regression: its declaration has no such label")
        mean, deviation = self._moments(label)
        unscaled: Array = np.asarray(predicted, dtype=np.float64) * deviation + mean
        return unscaled

    def ids(self, source: Source) -> list[tuple[str | None, ...]]:
        """The id of every row, as texts, one for each id column."""
        found: list[tuple[str | None, ...]] = []
        for piece in read_pieces(source):
            lacking = [column.name for column in self.columns.ids if column.name not in piece.table.column_names]
            if lacking or not self.columns.ids:
                why = f"it lacks {quote(lacking)}" if lacking else "no column is declared as id"
                raise InputError(f"{piece.where} has no ids: {why}")
            parts = [self._cells(piece, column).texts().to_pylist() for column in self.columns.ids]
            found += list(zip(*parts, strict=True))
        return found

    def _cells(self, piece: Piece, column: Column) -> Cells:
        return Cells(piece.array(column.name), column, self.columns.missing_cells, piece.where, piece.first)

    def _kept(self, column: Column) -> tuple[str, ...]:
        return self.kept.get(column.name, ())

    def _moments(self, column: Column) -> Moments:
        return self.moments.get(column.name, AS_IT_IS)

    # ---- files

    def _record(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            **self.columns.to_record(),
            "moments": {name: list(pair) for name, pair in self.moments.items()},
            "kept": {name: list(values) for name, values in self.kept.items()},
            "owners": self.owners,
            "salt": self.salt,
        }

    def to_json(self) -> str:
        """All of it, with the names and the digest for people to compare."""
        return json.dumps({**self._record(), **self.describe()}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Preparation:
        """What `to_json` wrote; InputError for anything else, and where somebody changed it."""
        try:
            record = json.loads(text)
            if record["format"] != FORMAT:
                raise ValueError(f"its format is {record['format']!r}")
            if record["version"] > VERSION:
                raise InputError(f"it was written by a newer hdcos (format {record['version']}): upgrade this one")
            made = cls(
                Columns.from_record({key: record[key] for key in ("columns", "cells") if key in record}),
                {str(name): (float(mean), float(deviation)) for name, (mean, deviation) in record["moments"].items()},
                {str(name): tuple(map(str, values)) for name, values in record["kept"].items()},
                int(record["owners"]),
                str(record["salt"]),
            )
            lacking = {column.name for column in made.columns if column.needs_mean} - set(made.moments)
            lacking |= {column.name for column in made.columns if column.values is not None} - set(made.kept)
            if lacking:
                raise ValueError(f"it does not say what it knows of {sorted(lacking)}")
        except InputError as error:
            raise InputError(f"not a preparation that can be used: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise InputError(f"not a preparation of hdcos, or damaged ({type(error).__name__}: {error})") from None
        if made.digest != record.get("digest"):
            raise InputError("the preparation was changed after it was made: its digest is another. Take the original")
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it where only its owner can read it: it tells means, deviations and values."""
        write_whole(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Preparation:
        try:
            return cls.from_json(read_text(path, "a preparation"))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def prepare_together(
    preparations: Sequence[Preparation],
    source: Source,
    where: str = "",
    texts: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    labels: bool = False,
) -> Iterator[PreparedRows]:
    """Features of a table whose columns several owners prepared, each its own: side by side, piece by piece.

    Columns in `texts` come as they are, whether they are features or not; `labels` are those of the owner who has them.
    """
    if not preparations:
        raise InputError("no preparation is given")
    labelled = next((each for each in preparations if labels and each.columns.label is not None), None)
    names = tuple(name for each in preparations for name in each.names)
    try:
        check_names(names, len(names))
    except ModelError as error:
        raise InputError(f"the preparations do not belong together: {error}") from None
    digests = tuple(each.digest for each in preparations)
    for piece in narrow(read_pieces(source, where), len(names)):
        copied = {name: piece.copied(name) for name in texts}
        check_columns(piece, *(each.columns for each in preparations), more=(*texts, *leave_out), remedy=NAME_ALL)
        features = [each.features(piece) for each in preparations]
        y = None if labelled is None else labelled.labels(piece)
        yield PreparedRows(np.concatenate(features, axis=1), y, names, digests, copied)


def join_rows(pieces: Sequence[PreparedRows]) -> PreparedRows:
    """All pieces of a table."""
    first = pieces[0]
    labels = None if first.y is None else np.concatenate([piece.y for piece in pieces if piece.y is not None])
    return replace(first, x=np.concatenate([piece.x for piece in pieces]), y=labels)
