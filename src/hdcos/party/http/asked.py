"""Values in requests, checked one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hdcos.api.tensors import MOST_JSON
from hdcos.errors import InputError, ModelError
from hdcos.nn import Sequential
from hdcos.secure.layout import MOST_PHASE_BITS, PHASE_BITS, WHOLE_TURN

ALLOWED_PHASE_BITS = (*range(8, MOST_PHASE_BITS + 1), WHOLE_TURN)


def json_object(body: bytes) -> dict[str, Any]:
    if len(body) > MOST_JSON:
        raise InputError(f"a JSON object has at most {MOST_JSON} bytes here")
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON") from None
    if not isinstance(value, dict):
        raise InputError("the body is not a JSON object")
    return value


def whole(meta: Mapping[str, Any], name: str, low: int, high: int, default: int | None = None) -> int:
    value = meta.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise InputError(f"{name} is a whole number from {low} to {high}")
    return value


def phase_bits(meta: Mapping[str, Any]) -> int:
    value = meta.get("phase_bits", PHASE_BITS)
    if type(value) is not int or value not in ALLOWED_PHASE_BITS:
        raise InputError(f"phase_bits is a whole number from 8 to {MOST_PHASE_BITS}, or {WHOLE_TURN} for whole turns")
    return value


def number(meta: Mapping[str, Any], name: str, default: float) -> float:
    value = meta.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e9 < value < 1e9:
        raise InputError(f"{name} is a number")
    return float(value)


def choice(meta: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = meta.get(name, known[0])
    if value not in known:
        raise InputError(f"{name} is one of {', '.join(known)}")
    return str(value)


def texts(meta: Mapping[str, Any], name: str, most: int) -> list[str]:
    value = meta.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= most or not all(isinstance(item, str) for item in value):
        raise InputError(f"{name} is a list of 1 to {most} strings")
    return value


def parameters(meta: Mapping[str, Any]) -> dict[str, Any]:
    value = meta.get("parameters", {})
    if not isinstance(value, dict):
        raise InputError("parameters is a JSON object")
    return value


def network(meta: Mapping[str, Any]) -> Sequential:
    """The network that an architecture describes; whatever is wrong with it is a ModelError."""
    try:
        return Sequential.outline(meta.get("architecture"))
    except (ModelError, InputError):
        raise
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise ModelError(f"not the architecture of a network: {type(error).__name__}") from None
