"""What the columns of a table are: the [columns] section of a TOML file, one entry for each column.

    [columns]
    customer = "id"
    age      = "numeric"
    income   = { kind = "numeric", missing = "indicator", limits = [0, 500000] }
    city     = { kind = "category", values = ["Basel", "Bern"], unseen = "other" }
    street   = { kind = "category", buckets = 64, missing = "indicator" }
    member   = { kind = "boolean", missing = "constant", fill = false }
    since    = { kind = "date", parts = ["days", "month"] }
    comment  = "ignored"
    churned  = { kind = "label", classes = ["no", "yes"] }

numeric   scale "standard" (less the mean, over the deviation) or "none"; `clip` limits what that gives, `limits` the
          column itself, before
category  one feature for each of `values`, or `buckets` features by hash; `unseen` values are refused or one feature
          more ("other"), which `least` fills: values with fewer rows, over all owners, are counted as other
boolean   true or false in the usual words, or 1 and 0
date      `parts`: "days" (a number, as numeric), "month", "weekday", "hour" (a point on a circle: two features each);
          `format` as strptime knows it, where dates are texts that are not ISO's
label     one of `classes`, numbered in their order; or with `regression` a number
id        names the row, is no feature; several together are one id
ignored   is there and not used

Missing cells are refused, or filled in: `missing` is "mean", "constant" (with `fill`), or "indicator", which fills in
the mean, or `fill`, and says so in a feature of its own. `missing` in [cells] lists the texts that stand for nothing.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from math import isfinite
from typing import Any

from hdcos.errors import InputError, ModelError
from hdcos.files import read_toml
from hdcos.nn.columns import MOST_CHARACTERS, check_names, quote

NUMERIC, CATEGORY, BOOLEAN, DATE = "numeric", "category", "boolean", "date"
ID, LABEL, IGNORED = "id", "label", "ignored"
REFUSE, MEAN, CONSTANT, INDICATOR = "refuse", "mean", "constant", "indicator"
STANDARD, NONE, OTHER = "standard", "none", "other"
CLIP = 8.0
"""Deviations that a standardised value is kept within, unless the declaration says otherwise."""
PARTS = ("days", "month", "weekday", "hour")
MISSING_CELLS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None")
MOST_BUCKETS = 1 << 16
_NUMBERS = ("missing", "fill", "scale", "clip", "limits")
OPTIONS: Mapping[str, tuple[str, ...]] = {
    NUMERIC: _NUMBERS,
    CATEGORY: ("missing", "fill", "values", "buckets", "unseen", "least"),
    BOOLEAN: ("missing", "fill"),
    DATE: (*_NUMBERS, "parts", "format"),
    LABEL: ("classes", "regression", "scale", "limits"),
    ID: (),
    IGNORED: (),
}
"""What may be said of a column of each kind."""


@dataclass(frozen=True)
class Column:
    """One column, as it is declared. What is left out is as the kind has it."""

    name: str
    kind: str
    missing: str = REFUSE
    fill: Any = None
    scale: str = STANDARD
    clip: float | None = None
    limits: tuple[float, float] | None = None
    values: tuple[str, ...] | None = None
    buckets: int = 0
    unseen: str = REFUSE
    least: int = 0
    parts: tuple[str, ...] = ("days",)
    format: str = ""
    classes: tuple[str, ...] | None = None
    regression: bool = False

    @classmethod
    def of(cls, name: str, given: Any) -> Column:
        """A column from its entry: the kind alone, or a table with `kind`."""
        entry = {"kind": given} if isinstance(given, str) else given
        if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str):
            raise InputError(f"[columns] {name}: say its kind, one of {', '.join(OPTIONS)}, got {given!r}")
        options = dict(entry)
        kind = options.pop("kind")
        if kind not in OPTIONS:
            raise InputError(f"[columns] {name}: no kind is called {kind!r}; there are {', '.join(OPTIONS)}")
        if unknown := sorted(set(options) - set(OPTIONS[kind])):
            known = ", ".join(OPTIONS[kind]) or "nothing more"
            raise InputError(f"[columns] {name}: {kind} does not know {unknown}; it knows {known}")
        try:
            return cls(name, kind, **{key: _read(key, value, kind) for key, value in options.items()})._checked()
        except (TypeError, ValueError) as error:
            raise InputError(f"[columns] {name}: {error}") from None

    def _checked(self) -> Column:
        allowed = (REFUSE, CONSTANT, INDICATOR) if self.kind == CATEGORY else (REFUSE, MEAN, CONSTANT, INDICATOR)
        _require(self.missing in allowed, f"missing is one of {', '.join(allowed)}, got {self.missing!r}")
        _require(self.missing != CONSTANT or self.fill is not None, "missing = 'constant' needs `fill`")
        fills = self.missing in (CONSTANT, INDICATOR) and not (self.kind == CATEGORY and self.missing == INDICATOR)
        _require(self.fill is None or fills, f"`fill` is not used with missing = {self.missing!r}")
        _require(self.scale in (STANDARD, NONE), f"scale is {STANDARD!r} or {NONE!r}, got {self.scale!r}")
        _require(self.clip is None or self.clip > 0, f"clip is a number above 0, got {self.clip!r}")
        _require(self.limits is None or self.limits[0] < self.limits[1], "limits are two numbers, the lower one first")
        _require(self.unseen in (REFUSE, OTHER), f"unseen is {REFUSE!r} or {OTHER!r}, got {self.unseen!r}")
        _require(not (self.buckets and self.values), "choose `values` or `buckets`: one-hot or hashed")
        _require(0 <= self.buckets <= MOST_BUCKETS, f"buckets is a whole number up to {MOST_BUCKETS}")
        hashed = self.buckets and (self.least or self.unseen != REFUSE)
        _require(not hashed, "hashed values are never unseen: leave `unseen` and `least` out")
        _require(not self.least or self.unseen == OTHER, "`least` needs unseen = 'other', which rare values become")
        wrong = [part for part in self.parts if part not in PARTS]
        _require(bool(self.parts) and not wrong, f"parts are some of {', '.join(PARTS)}, got {list(self.parts)}")
        _require(not (self.regression and self.classes), "a label has `classes` or is a `regression`")
        if self.kind == CATEGORY and self.fill is not None and self.values is not None:
            _require(self.fill in self.values, f"fill = {self.fill!r} is none of its values")
        return self

    # ---- what follows from it

    @property
    def is_number(self) -> bool:
        """Whether statistics may be needed of it."""
        return self.kind in (NUMERIC, BOOLEAN) or (self.kind == DATE and "days" in self.parts) or self.regression

    @property
    def scaled(self) -> bool:
        """Whether it is standardised: truths are not."""
        return self.scale == STANDARD and self.kind in (NUMERIC, DATE, LABEL) and self.is_number

    @property
    def needs_mean(self) -> bool:
        filled = self.missing == MEAN or (self.missing == INDICATOR and self.fill is None)
        return self.is_number and (self.scaled or filled)

    @property
    def bound(self) -> float | None:
        """What its features are kept within; labels are learned as they are."""
        return CLIP if self.clip is None and self.scaled and self.kind != LABEL else self.clip

    def to_record(self) -> str | dict[str, Any]:
        """As `of` takes it, and TOML and JSON write it."""
        known = {item.name: getattr(self, item.name) for item in fields(self) if item.name in OPTIONS[self.kind]}
        defaults = {item.name: item.default for item in fields(self)}
        said = {key: _write(value, self.kind, key) for key, value in known.items() if value != defaults[key]}
        return {"kind": self.kind, **said} if said else self.kind


@dataclass(frozen=True)
class Columns:
    """The declaration of a table."""

    columns: tuple[Column, ...]
    missing_cells: tuple[str, ...] = MISSING_CELLS

    @classmethod
    def of(cls, given: Any) -> Columns:
        """A declaration from what people have: itself, a mapping of names to entries, or the path of a TOML file."""
        if isinstance(given, Columns):
            return given
        if isinstance(given, str | os.PathLike):
            return cls.read(given)
        if isinstance(given, Mapping):
            return cls.from_record({"columns": given})
        raise InputError(f"columns are declared by a mapping or a TOML file, not by a {type(given).__name__}")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Columns:
        """The declaration in a TOML file. Other sections, such as those of a training, are passed over."""
        record = read_toml(path, "a declaration of columns")
        if "columns" not in record:
            raise InputError(f"{path} has no section [columns]: `hdcos columns FILE` writes one")
        try:
            return cls.from_record({key: record[key] for key in ("columns", "cells") if key in record})
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Columns:
        given, cells = record.get("columns"), record.get("cells", {})
        if not isinstance(given, Mapping) or not given:
            raise InputError("[columns] has one entry for each column, and at least one")
        if not isinstance(cells, Mapping) or set(cells) - {"missing"}:
            raise InputError("[cells] knows `missing` alone: the texts that stand for a missing cell")
        words = cells.get("missing", MISSING_CELLS)
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise InputError("`missing` in [cells] is a list of texts")
        columns = tuple(Column.of(str(name), entry) for name, entry in given.items())
        try:
            check_names([column.name for column in columns], len(columns))
        except ModelError as error:
            raise InputError(f"[columns]: {error}") from None
        labels = [column.name for column in columns if column.kind == LABEL]
        if len(labels) > 1:
            raise InputError(f"[columns] has several labels, {quote(labels)}: a network learns one")
        return cls(columns, tuple(words))

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise InputError(f"no column is declared as {name!r}; there are {quote(self.names)}")

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that features are made of."""
        return tuple(column for column in self.columns if column.kind in (NUMERIC, CATEGORY, BOOLEAN, DATE))

    @property
    def ids(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.kind == ID)

    @property
    def label(self) -> Column | None:
        return next((column for column in self.columns if column.kind == LABEL), None)

    def to_record(self) -> dict[str, Any]:
        """As `from_record` takes it."""
        cells = {} if self.missing_cells == MISSING_CELLS else {"cells": {"missing": list(self.missing_cells)}}
        return {"columns": {column.name: column.to_record() for column in self.columns}, **cells}

    @cached_property
    def digest(self) -> str:
        """The same for the same declaration, whatever file it is in. The order of columns counts: features have it."""
        return hashlib.sha256(json.dumps(self.to_record()).encode()).hexdigest()

    def to_toml(self) -> str:
        """The text of a file that `read` reads, to be saved and edited."""
        record = self.to_record()
        lines = ["[columns]", *(f"{_key(name)} = {_toml(entry)}" for name, entry in record["columns"].items())]
        if "cells" in record:
            lines += ["", "[cells]", f"missing = {_toml(record['cells']['missing'])}"]
        return "\n".join(lines) + "\n"


def day_number(moment: datetime.date) -> float:
    """Days since 1970, as dates are counted here; of a moment with a zone, in that of Greenwich."""
    if not isinstance(moment, datetime.datetime):
        return float(moment.toordinal() - EPOCH)
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return (moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)


EPOCH = datetime.date(1970, 1, 1).toordinal()


# ---- entries


def _require(right: bool, otherwise: str) -> None:
    if not right:
        raise ValueError(otherwise)


def _read(key: str, value: Any, kind: str) -> Any:
    """A value of an entry, as `Column` has it; ValueError says what it should be."""
    if key in ("missing", "scale", "unseen", "format"):
        _require(isinstance(value, str), f"{key} is a text, got {value!r}")
        return value
    if key in ("buckets", "least"):
        _require(type(value) is int and value >= 0, f"{key} is a whole number, got {value!r}")
        return value
    if key == "regression":
        _require(isinstance(value, bool), f"{key} is true or false, got {value!r}")
        return value
    if key in ("values", "classes", "parts"):
        return _texts(key, value)
    if key == "limits":
        _require(isinstance(value, list | tuple) and len(value) == 2, f"limits are two numbers, got {value!r}")
        return _number(key, value[0], kind), _number(key, value[1], kind)
    if key == "fill" and kind == CATEGORY:
        return _texts(key, [value])[0]
    if key == "fill" and kind == BOOLEAN:
        _require(isinstance(value, bool), f"fill is true or false, got {value!r}")
        return value
    return _number(key, value, NUMERIC if key == "clip" else kind)


def _texts(key: str, value: Any) -> tuple[str, ...]:
    """Values of a category: texts, or whole numbers and truths, which are read as they are written."""
    _require(isinstance(value, list | tuple) and len(value) > 0, f"{key} is a list, got {value!r}")
    _require(all(isinstance(item, str | int) for item in value), f"{key} are texts or whole numbers, got {value!r}")
    texts = tuple(str(item).lower() if isinstance(item, bool) else str(item).strip() for item in value)
    twice = next((text for text in texts if texts.count(text) > 1), None) if len(set(texts)) < len(texts) else None
    _require(twice is None, f"{key} has {twice!r} twice")
    long = next((text for text in texts if not 0 < len(text) <= MOST_CHARACTERS), None)
    _require(long is None, f"{key}: {str(long)[:40]!r} does not have 1 to {MOST_CHARACTERS} characters")
    return texts


def _number(key: str, value: Any, kind: str) -> float:
    if kind == DATE and isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    if kind == DATE and isinstance(value, datetime.date):
        return day_number(value)
    _require(isinstance(value, int | float) and not isinstance(value, bool), f"{key} is a number, got {value!r}")
    _require(isfinite(value), f"{key} is a finite number, got {value!r}")
    return float(value)


def _write(value: Any, kind: str, key: str) -> Any:
    if isinstance(value, tuple):
        return [_write(item, kind, key) for item in value]
    if kind == DATE and key in ("fill", "limits"):
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(days=value)
        return moment.date().isoformat() if value.is_integer() else moment.isoformat(sep=" ")
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else json.dumps(name, ensure_ascii=False)


def _toml(value: Any) -> str:
    """A value as TOML writes it: texts and lists are those of JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
