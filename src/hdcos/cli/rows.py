"""The rows of a file as commands predict them: its numbers, or what preparations make of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from hdcos.cli import common
from hdcos.data.records import Records, read_records
from hdcos.errors import InputError
from hdcos.ring import Array
from hdcos.tables.preparation import Preparation, prepare_together

preparation_option = click.option(
    "--preparation", multiple=True, type=common.FILE, help="What makes features of FILE; one of each owner."
)
leave_out_option = click.option(
    "--leave-out", metavar="COLUMN", multiple=True, help="A column of the file that is no feature; again for more."
)
class_names_option = click.option(
    "--class-names", metavar="NAME,NAME", help="What classes are called, from class 0 on; else they have numbers."
)


class Preparations:
    """What several owners prepared, each its own columns; or nothing, where files hold numbers."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._all = [Preparation.load(path) for path in paths]
        self._labelled = next((each for each in self._all if each.columns.label is not None), None)

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def regression(self) -> bool:
        return self._labelled is not None and self._labelled.regression

    def class_names(self, given: str | None) -> Sequence[str] | None:
        """What classes are called: as an option says, or as they were declared."""
        if given is not None:
            return [name.strip() for name in given.split(",")]
        return None if self._labelled is None else self._labelled.classes

    def unscale(self, numbers: Array) -> Array:
        """Numbers that were learned or predicted, in the unit of their column."""
        if self._labelled is None or not self._labelled.regression:
            return numbers
        return self._labelled.unscale(numbers)

    def read(
        self, file: Path, texts: Sequence[str], leave_out: Sequence[str], features: str | None, labels: bool = False
    ) -> Iterator[Records]:
        """Rows and the columns that are copied; with `labels`, where the preparation knows them."""
        if not self:
            yield from read_records(file, texts, leave_out, features=features)
            return
        if features is not None:
            raise click.UsageError("--preparation knows the columns: leave --features out")
        if labels and self._labelled is None:
            raise InputError("no preparation knows a label: name that of the owner who has the labels as well")
        for rows in prepare_together(self._all, file, "", texts, leave_out, labels):
            yield Records(rows, dict(rows.texts))


def check_class_names(names: Sequence[str], classes: int) -> list[str]:
    """InputError unless there is one name for each class."""
    if len(names) != classes or len(set(names)) != classes or not all(names):
        shown = ",".join(names)
        raise InputError(f"--class-names has {len(names)} names ({shown}) for {classes} classes: it takes one for each")
    return list(names)
