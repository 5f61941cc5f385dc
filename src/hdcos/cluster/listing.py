"""A data set by its name, in the list of those that a caller may train on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hdcos.checks import split_owned
from hdcos.errors import InputError


def find_set(name: str, listing: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The newest version of a data set in what `datasets()` lists: the caller's own, unless an owner is named, else the
    only one of that name."""
    owner, own = split_owned(name)
    found = [item for item in listing if item["name"] == own and item["complete"] and owner in ("", item["owner"])]
    if not owner:
        found = [item for item in found if item["own"]] or found
    owners = sorted({item["owner"] for item in found})
    if not owners:
        raise InputError(
            f"no data set that you may train on is called {name}: its owner uploads it, with --allow and your name. "
            f"`hdcos datasets` lists what there is"
        )
    if len(owners) > 1:
        raise InputError(f"{' and '.join(owners)} have a data set {name} each: say which, as {owners[0]}/{name}")
    return max(found, key=lambda item: item["number"])
