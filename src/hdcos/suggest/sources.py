"""What a configuration is trained on: a file of the caller, or data sets of several owners that are at a cluster.

Security  of data sets, what the parties tell everybody who may train on them is used: whose they are, their sizes, and
          what prepared them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdcos.cluster.listing import find_set
from hdcos.errors import InputError
from hdcos.suggest.candidates import Candidate
from hdcos.suggest.scaling import STANDARD
from hdcos.tables.columns import Columns

SCALED = f'scale = "{STANDARD}"  # columns of mean 0 and size 1; the saved model takes rows as they are'


@dataclass(frozen=True)
class FileSource:
    """A file: numbers of which one column is the label, or a table of declared columns."""

    train: str | Path
    rows: int
    label: str | None = None
    features: str | None = None
    columns: Columns | None = None
    model: str = "model.safetensors"

    def data(self, settings: Candidate) -> list[str]:
        """The lines of [data], and of [columns] where these are declared."""
        known = {"train": str(self.train), "label": self.label, "features": self.features}
        lines = ["[data]", *(f"{key} = {text(value)}" for key, value in known.items() if value is not None)]
        lines += [SCALED] if settings.scale == STANDARD else []
        return lines if self.columns is None else [*lines, "", *self.columns.to_toml().splitlines()]

    @property
    def output(self) -> str:
        return f"model = {text(self.model)}"

    def notes(self, tried: Candidate, settings: Candidate) -> list[str]:
        return []


@dataclass(frozen=True)
class DataSets:
    """Data sets by name, that of the caller first: rows of several owners, or columns of the same rows."""

    names: tuple[str, ...]
    rows: int
    """That are trained on, as far as is known."""
    model: str
    others: int | None = None
    """Features beside those of the caller; None where rows are added."""
    counted: bool = True
    """Whether the parties said how many rows there are."""

    def data(self, settings: Candidate) -> list[str]:
        names = ", ".join(map(text, self.names))
        return ["[data]", f"{'rows' if self.others is None else 'columns'} = [{names}]"]

    @property
    def output(self) -> str:
        return f"name = {text(self.model)}"

    def notes(self, tried: Candidate, settings: Candidate) -> list[str]:
        """What was tried on the caller's rows or columns, and is not the same for all."""
        lines = (
            []
            if self.counted
            else ["# Rows of others were not counted: they are taken to be as many as those of the file."]
        )
        if self.others is None:
            if settings != tried:
                epochs = f"{tried.epochs} epochs of {tried.batch_size} rows a step"
                lines.append(f"# Tried for {epochs} on one owner's rows: these are about as many steps.")
            return lines
        lines.append(f"# Tried on {tried.sizes[0]} features of one owner, beside which {self.others} of others stand.")
        if settings.lr != tried.lr:
            lines.append(
                f"# The rate was {tried.lr:g} and is smaller here: the loss is the steeper the more features there are."
            )
        return lines


def text(value: str | Path) -> str:
    """A string of TOML, which JSON's are."""
    return json.dumps(str(value), ensure_ascii=False)


def count_rows(names: Sequence[str], listing: Sequence[Mapping[str, Any]], features: int) -> int:
    """The rows of data sets together; InputError unless each has as many features as the caller's file."""
    found = [find_set(name, listing) for name in names]
    for name, item in zip(names, found, strict=True):
        if item["features"] != features:
            raise InputError(
                f"{name} has {item['features']} features, your file {features}: owners of rows prepare them together, "
                f"with `hdcos prepare --with`, and upload them again"
            )
    return sum(item["rows"] for item in found)


def count_features(
    own: str, others: Sequence[str], listing: Sequence[Mapping[str, Any]], features: int, digest: str | None
) -> tuple[int, int]:
    """Rows of the caller's data set and features of the others; InputError unless the file is what was uploaded."""
    mine, found = find_set(own, listing), [find_set(name, listing) for name in others]
    if mine["features"] != features or (digest is not None and mine["preparation"] != digest):
        raise InputError(
            f"{own} at the cluster was prepared otherwise than your file is here: upload the file again with the "
            f"preparation that you name, or name the one that it was uploaded with"
        )
    for name, item in zip(others, found, strict=True):
        if item["rows"] != mine["rows"]:
            raise InputError(
                f"{own} has {mine['rows']} rows and {name} {item['rows']}: they are not of the same people. Both "
                f"owners join them, with `hdcos join`, and upload what is joined"
            )
    return mine["rows"], sum(item["features"] for item in found)
