"""Checks of what callers pass, the same words for the same mistake wherever it is made."""

from __future__ import annotations

from typing import Any

from hdcos.errors import HdcosError, InputError


def check_whole(value: Any, what: str, least: int = 1, error: type[HdcosError] = InputError) -> int:
    """The value, if it is a whole number of at least `least`; `what` names it in the error."""
    if type(value) is not int or value < least:
        raise error(f"{what} must be a whole number of at least {least}, got {value!r}")
    return value
