"""What clients may call things. Names become parts of paths and of log lines, so they are plain."""

from __future__ import annotations

import re

from hdcos.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_TOKEN = re.compile(r"[0-9a-f]{32}")


def check_name(name: object, what: str = "name") -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"a {what} is made of up to 100 letters, digits, '_', '.' and '-', and starts with no '.'")
    return name


def check_id(token: object, what: str) -> str:
    """Something that a client drew at random: a request, a version, a job."""
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise InputError(f"a {what} is 32 hexadecimal digits, drawn at random")
    return token
