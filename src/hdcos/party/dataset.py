"""Data sets at a party, and how the rows and columns of several owners become one: lazily, as rows are taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from hdcos.errors import InputError
from hdcos.nn.columns import Names, order, quote
from hdcos.nn.prepared import Prepared
from hdcos.party.rows import RowSource, SideBySide, Stacked, pick


@dataclass(frozen=True)
class Dataset:
    """Rows of one owner or of several: features, targets if somebody has the labels, and names if columns have some."""

    rows: RowSource = field(repr=False)
    features: int
    columns: Names | None = None
    prepared: tuple[Prepared, ...] = ()
    """What made the features, if something did: of rows the same for all owners, of columns one for each."""
    owner: str = ""
    join: str = ""
    """The join that put its rows into their order, if one did."""

    def __len__(self) -> int:
        return self.rows.shape[0]

    @property
    def targets(self) -> int:
        """Columns behind the features."""
        return self.rows.shape[1] - self.features

    @property
    def shape(self) -> tuple[int, int]:
        """Of the features."""
        return len(self), self.features

    def ordered(self, name: str, wanted: Names | None, taker: str) -> Dataset:
        """With its columns in the wanted order, if they have names: an order is public, so each party does it alone."""
        if wanted is None or self.columns is None or wanted == self.columns:
            return self
        places = order(self.columns, wanted, f"the data set {name!r}", taker)
        places += range(self.features, self.rows.shape[1])
        return replace(self, rows=pick(self.rows, places), columns=wanted)


def join_datasets(
    datasets: Mapping[str, Dataset], names: Sequence[str], axis: str, wanted: Names | None = None
) -> Dataset:
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


def _join_rows(parts: Sequence[Dataset], names: Sequence[str], wanted: Names | None) -> Dataset:
    """Rows of several owners."""
    taker = "the network"
    if wanted is None:
        named = [(part.columns, name) for part, name in zip(parts, names, strict=True) if part.columns is not None]
        if named:
            wanted, taker = named[0][0], f"the data set {named[0][1]!r}, which comes first,"
    fitting = [part.ordered(name, wanted, taker) for part, name in zip(parts, names, strict=True)]
    if without := [name for part, name in zip(fitting, names, strict=True) if not part.targets]:
        raise InputError(
            f"each of {list(names)} must bring labels for its rows, {without} has none: its owner uploads it again "
            f"with --label"
        )
    if len({(part.features, part.targets) for part in fitting}) != 1:
        both = zip(fitting, names, strict=True)
        found = ", ".join(f"{name} has {part.features} and {part.targets}" for part, name in both)
        raise InputError(
            f"rows of shapes {[part.shape for part in fitting]} do not fit under each other: of features and outputs, "
            f"{found}. Their owners agree on the columns and on --outputs, and one uploads again"
        )
    rows = fitting[0].rows if len(fitting) == 1 else Stacked([part.rows for part in fitting])
    return Dataset(rows, fitting[0].features, wanted, _same_preparation(parts, names))


def _same_preparation(parts: Sequence[Dataset], names: Sequence[str]) -> tuple[Prepared, ...]:
    """What prepared the rows of all owners; InputError if they were prepared differently, or some of them not."""
    first = parts[0].prepared
    for part, name in zip(parts, names, strict=True):
        if {each.digest for each in part.prepared} != {each.digest for each in first}:
            how = [", ".join(each.told for each in of.prepared) or "nothing" for of in (parts[0], part)]
            raise InputError(
                f"the rows of {names[0].split()[0]!r} were prepared by {how[0]}, those of {name.split()[0]!r} by "
                f"{how[1]}: their owners run `hdcos prepare FILE --columns COLUMNS.toml --with NAME --owners "
                f"{len(parts)}` together, and upload their rows again with the preparation that each of them gets "
                f"(--preparation)"
            )
    owners = tuple(dict.fromkeys(owner for part in parts for each in part.prepared for owner in each.owners))
    return tuple(Prepared(owners, each.names, each.digest) for each in first)


def _check_joins(parts: Sequence[Dataset], names: Sequence[str]) -> None:
    """Rows that were joined stand beside rows of the same join: by position others would be of somebody else."""
    first = next((number for number, part in enumerate(parts) if part.join), None)
    if first is None:
        return
    for part, name in zip(parts, names, strict=True):
        if part.join != parts[first].join:
            told = [
                f"the rows of {one.owner or 'an owner'} ({named.split()[0]}) are "
                + (f"those of join {one.join}" if one.join else "of no join")
                for one, named in ((parts[first], names[first]), (part, name))
            ]
            raise InputError(
                f"{' and '.join(told)}: they do not belong side by side. Both owners run `hdcos join` and upload what "
                f"it wrote (`hdcos upload --join`)"
            )
        if len(part) != len(parts[first]):
            raise InputError(
                f"{parts[first].owner or 'an owner'} uploaded {len(parts[first])} rows of a join and "
                f"{part.owner or 'an owner'} {len(part)}: upload all rows of it (`hdcos upload --join`)"
            )


def _join_columns(parts: Sequence[Dataset], names: Sequence[str], wanted: Names | None) -> Dataset:
    """Columns of several owners."""
    labelled = [part for part in parts if part.targets]
    if len(labelled) != 1:
        raise InputError(
            f"exactly one of {list(names)} must bring the labels, {len(labelled)} do: the others upload theirs again "
            f"without --label, or one with it"
        )
    _check_joins(parts, names)
    shapes = [part.shape for part in parts]
    if len({shape[0] for shape in shapes}) != 1:
        counts = " and ".join(f"{name} has {len(part)} rows" for part, name in zip(parts, names, strict=True))
        raise InputError(
            f"columns of shapes {shapes} do not have the same rows: {counts}. Their owners upload those that all have"
        )
    columns = tuple(column for part in parts for column in part.columns or ())
    twice = [column for column, times in Counter(columns).items() if times > 1]
    if twice:
        raise InputError(f"several of the data sets {list(names)} have the columns {quote(twice)}: keep one of each")
    named = all(part.columns is not None for part in parts)
    starts = list(accumulate((part.rows.shape[1] for part in parts), initial=0))
    places = [start + column for start, part in zip(starts, parts, strict=False) for column in range(part.features)]
    features = len(places)
    places += [
        start + column
        for start, part in zip(starts, parts, strict=False)
        for column in range(part.features, part.rows.shape[1])
    ]
    rows = pick(parts[0].rows if len(parts) == 1 else SideBySide([part.rows for part in parts]), places)
    prepared = tuple(each for part in parts for each in part.prepared)
    joined = Dataset(rows, features, columns if named else None, prepared)
    return joined.ordered(" and ".join(names), wanted, "the network")
