"""Binary tensors in HTTP bodies, as in the Open Inference Protocol: a JSON object, then the tensors' bytes in order.

Only 64-bit words travel. Everything is checked against the length of the body before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array

LENGTH_HEADER = "inference-header-content-length"
MAX_DIMENSIONS = 8
MOST_JSON = 1 << 22
MOST_WORDS = 1 << 32


def decode_body(
    body: bytes, header_length: str | None, field: str = "inputs"
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The JSON object of a body without its tensors, and the tensors by name, as views of the body."""
    meta, tail = _split(body, header_length)
    listed = meta.pop(field, [])
    if not isinstance(listed, list):
        raise InputError(f"{field} is a list of tensors")
    tensors: dict[str, Array] = {}
    position = 0
    for entry in listed:
        name, shape = _described(entry)
        if name in tensors:
            raise InputError(f"two tensors are called {name!r}")
        size = 8 * prod(shape)
        if "data" in entry:
            tensors[name] = _listed(entry["data"], name, shape)
            continue
        parameters = entry.get("parameters")
        stated = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if type(stated) is not int or stated != size or position + size > len(tail):
            raise InputError(f"tensor {name!r} of shape {list(shape)} takes {size} bytes of binary data")
        tensors[name] = np.frombuffer(tail, "<u8", prod(shape), position).reshape(shape)
        position += size
    if position != len(tail):
        raise InputError(f"{len(tail) - position} bytes follow the last tensor")
    return meta, tensors


def _split(body: bytes, header_length: str | None) -> tuple[dict[str, Any], memoryview]:
    view = memoryview(body)
    length = len(view)
    if header_length is not None:
        digits = header_length.isascii() and header_length.isdecimal() and len(header_length) <= 12
        if not digits or int(header_length) > len(view):
            raise InputError(f"the header {LENGTH_HEADER} states no length within the body")
        length = int(header_length)
    if length > MOST_JSON:
        raise InputError(f"a JSON object has at most {MOST_JSON} bytes here: send tensors in binary")
    try:
        meta = json.loads(bytes(view[:length]))
    except (ValueError, RecursionError):
        raise InputError("the body does not start with a JSON object") from None
    if not isinstance(meta, dict):
        raise InputError("the body does not start with a JSON object")
    return meta, view[length:]


def _described(entry: Any) -> tuple[str, tuple[int, ...]]:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise InputError("each tensor has a name")
    shape = entry.get("shape")
    if entry.get("datatype") != "UINT64":
        raise InputError(f"tensor {entry['name']!r} must have the datatype UINT64")
    if (
        not isinstance(shape, list)
        or len(shape) > MAX_DIMENSIONS
        or not all(type(n) is int and 0 <= n < MOST_WORDS for n in shape)
        or prod(max(n, 1) for n in shape) > MOST_WORDS
    ):
        raise InputError(f"tensor {entry['name']!r} has no possible shape")
    return entry["name"], tuple(shape)


def _listed(data: Any, name: str, shape: tuple[int, ...]) -> Array:
    if not isinstance(data, list) or not all(type(value) is int and 0 <= value < 1 << 64 for value in data):
        raise InputError(f"the data of tensor {name!r} is a flat list of whole numbers below 2**64")
    if len(data) != prod(shape):
        raise InputError(f"tensor {name!r} of shape {list(shape)} has {len(data)} numbers")
    return np.array(data, dtype=np.uint64).reshape(shape)


def encode_body(
    meta: Mapping[str, Any], tensors: Mapping[str, Array], field: str = "outputs"
) -> tuple[bytes, dict[str, str]]:
    """A body with its tensors in binary, and the headers that describe it."""
    listed = [
        {
            "name": name,
            "datatype": "UINT64",
            "shape": list(array.shape),
            "parameters": {"binary_data_size": 8 * array.size},
        }
        for name, array in tensors.items()
    ]
    head = json.dumps({**meta, field: listed}, separators=(",", ":")).encode()
    parts = [head, *(np.ascontiguousarray(array, dtype="<u8").tobytes() for array in tensors.values())]
    headers = {"content-type": "application/octet-stream", LENGTH_HEADER: str(len(head))}
    return b"".join(parts), headers
