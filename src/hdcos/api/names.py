"""What clients may call things. Names become parts of paths and of log lines, so they are plain."""

from __future__ import annotations

import re

from hdcos.errors import InputError

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$(?!\n)"
"""Python's `$` would allow a line's end behind it."""
ID = r"^[0-9a-f]{32}$(?!\n)"
NAME_WORDS = "made of up to 100 letters, digits, '_', '.' and '-', and starts with no '.'"
ID_WORDS = "32 hexadecimal digits, drawn at random"
_NAME, _ID = re.compile(NAME), re.compile(ID)


def check_name(name: object, what: str = "name") -> str:
    if not isinstance(name, str) or not _NAME.match(name):
        raise InputError(f"a {what} is {NAME_WORDS}")
    return name


def check_id(token: object, what: str) -> str:
    """Something that a client drew at random: a request, a version, a job."""
    if not isinstance(token, str) or not _ID.match(token):
        raise InputError(f"a {what} is {ID_WORDS}")
    return token
