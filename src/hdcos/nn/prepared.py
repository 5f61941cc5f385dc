"""What made the features that a network was trained on: kept with it, so that other features are not taken for them.

Of a preparation (`hdcos.tables`) a network knows what is public: whose rows it was, the names of its features, and its
digest. A network of columns of several owners knows one for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hdcos.errors import InputError, ModelError
from hdcos.nn.columns import Names, check_names, is_table

DIGEST = re.compile(r"[0-9a-f]{64}")
MOST = 100
"""Preparations of one network, and owners of one preparation: as many as a run has data sets."""


@dataclass(frozen=True)
class Prepared:
    """A preparation, as a network remembers it."""

    owners: tuple[str, ...]
    names: Names
    digest: str

    @property
    def told(self) -> str:
        """For people."""
        return f"{self.digest[:16]} ({' and '.join(self.owners) or 'its owner'})"

    def to_json(self) -> dict[str, Any]:
        return {"owners": list(self.owners), "names": list(self.names), "digest": self.digest}


def read_prepared(record: Any) -> tuple[Prepared, ...]:
    """What `to_json` wrote, of each; ModelError for anything else."""
    if not isinstance(record, list | tuple) or len(record) > MOST:
        raise ModelError(f"`prepared` is a list of at most {MOST} preparations")
    return tuple(_read(each) for each in record)


def _read(record: Any) -> Prepared:
    if not isinstance(record, dict) or set(record) != {"owners", "names", "digest"}:
        raise ModelError("a preparation is an object with owners, names and digest")
    owners, names, digest = record["owners"], record["names"], record["digest"]
    if not isinstance(owners, list) or len(owners) > MOST or not all(_is_client(owner) for owner in owners):
        raise ModelError(f"the owners of a preparation are a list of at most {MOST} names")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise ModelError("the digest of a preparation has 64 hexadecimal digits")
    checked = check_names(names, len(names) if isinstance(names, list) else 0)
    if not checked:
        raise ModelError("a preparation has features, and they have names")
    return Prepared(tuple(owners), checked, digest)


def _is_client(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable()


def check_prepared(x: Any, prepared: Sequence[Prepared], model: str) -> None:
    """InputError unless rows with names were prepared by what a model was trained with. Arrays are not looked at."""
    if not prepared or not is_table(x):
        return
    given, wanted = getattr(x, "digests", None), {each.digest for each in prepared}
    told = ", ".join(each.told for each in prepared)
    if given is None:
        raise InputError(
            f"{model} was trained on rows that were prepared by {told}: prepare these in the same way, by the file "
            f"that was written then (`--preparation FILE`, predict(..., preparation=...))"
        )
    if set(given) != wanted:
        lacking = " and ".join(each.told for each in prepared if each.digest not in given)
        raise InputError(
            f"{model} was trained on rows that were prepared by {told}, and these by "
            f"{', '.join(digest[:16] for digest in given)}: take the file that was written for the training rows"
            + (f", which for {lacking} is another" if lacking else "; one of these is none of it")
        )
