"""Checks of what callers pass, the same words for the same mistake wherever it is made."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hdcos.errors import HdcosError, InputError

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$(?!\n)"
"""What clients call things becomes part of paths and of log lines, so it is plain. Python's `$` would allow the end of
a line behind it."""
ID = r"^[0-9a-f]{32}$(?!\n)"
OWNED = rf"^(?:[^\x00-\x1f\x7f]{{1,100}}/)?{NAME[1:]}"
"""A data set: its name, or that of the client that owns it, a slash and its name. Names have no slash."""
NAME_WORDS = "made of up to 100 letters, digits, '_', '.' and '-', and starts with no '.'"
OWNED_WORDS = f"a name, or OWNER/NAME; a name is {NAME_WORDS}"
ID_WORDS = "32 hexadecimal digits, drawn at random"


def check_whole(value: Any, what: str, least: int = 1, error: type[HdcosError] = InputError) -> int:
    """The value, if it is a whole number of at least `least`; `what` names it in the error."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise error(f"{what} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def check_name(name: object, what: str = "name") -> str:
    if not isinstance(name, str) or not re.match(NAME, name):
        raise InputError(f"a {what} is {NAME_WORDS}")
    return name


def check_owned(name: object) -> str:
    """The name of a data set, with or without its owner."""
    if not isinstance(name, str) or not re.match(OWNED, name):
        raise InputError(f"a data set is {OWNED_WORDS}, got {name!r}")
    return name


def split_owned(name: str) -> tuple[str, str]:
    """The owner of a data set, if the name says so, and its name."""
    owner, _, own = name.rpartition("/")
    return owner, own


def check_id(token: object, what: str) -> str:
    """Something that a client drew at random: a request, a version, a job."""
    if not isinstance(token, str) or not re.match(ID, token):
        raise InputError(f"a {what} is {ID_WORDS}")
    return token
