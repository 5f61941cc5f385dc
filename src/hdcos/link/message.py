"""Requests and replies: a JSON header and raw arrays in one payload.

Bytes: u32 length of the header, the header as UTF-8 JSON, zero bytes up to a multiple of 8, then each array's
words in order, each padded to a multiple of 8. The header's "arrays" lists [name, dtype, shape]. Only unsigned
integer arrays travel, little-endian; everything is checked against the payload's length before it is used.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdcos import errors
from hdcos.errors import FrameError, InputError
from hdcos.link import frame as frames
from hdcos.link.base import Link
from hdcos.link.frame import Kind

_LENGTH = struct.Struct("<I")
_DTYPES: dict[str, np.dtype[Any]] = {code: np.dtype(f"<{code}") for code in ("u1", "u2", "u4", "u8")}
MAX_HEADER_BYTES = 1 << 26

Arrays = Mapping[str, NDArray[Any]]


def encode_message(meta: Mapping[str, Any], arrays: Arrays | None = None) -> list[Any]:
    """The buffers of one message; array memory is not copied."""
    arrays = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
    listed = [[name, array.dtype.str[1:], list(array.shape)] for name, array in arrays.items()]
    header = json.dumps({**meta, "arrays": listed}, separators=(",", ":")).encode()
    start = _LENGTH.pack(len(header)) + header
    buffers: list[Any] = [start + bytes(-len(start) % 8)]
    for array in arrays.values():
        buffers.append(array.reshape(-1).view(np.uint8))
        buffers.append(bytes(-array.nbytes % 8))
    return buffers


def decode_message(payload: NDArray[np.uint8]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header without its list of arrays, and the arrays as views of the payload."""
    try:
        (length,) = _LENGTH.unpack_from(payload.data)
        if length > MAX_HEADER_BYTES:
            raise FrameError(f"a message header of {length} bytes is longer than {MAX_HEADER_BYTES}")
        meta = json.loads(payload[_LENGTH.size : _LENGTH.size + length].tobytes())
        listed = meta.pop("arrays")
        position = _LENGTH.size + length
        position += -position % 8
        arrays = {}
        for name, code, shape in listed:
            dtype = _DTYPES[code]
            if not all(isinstance(n, int) and n >= 0 for n in shape):
                raise FrameError(f"array {name!r} has no possible shape")
            size = prod(shape) * dtype.itemsize
            if position + size > len(payload):
                raise FrameError(f"array {name!r} of shape {shape} ends after the message")
            arrays[str(name)] = payload[position : position + size].view(dtype).reshape(shape)
            position += size + -size % 8
        if position != len(payload):
            raise FrameError(f"a message of {len(payload)} bytes describes {position}")
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FrameError(f"not a message: {type(error).__name__}") from None
    return meta, arrays


def integer(meta: Mapping[str, Any], name: str) -> int:
    """A whole number of a request, not negative."""
    value = meta.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise InputError(f"a request must state {name} as a whole number")
    return value


def text(meta: Mapping[str, Any], name: str) -> str:
    """A string of a request."""
    value = meta.get(name)
    if not isinstance(value, str):
        raise InputError(f"a request must state {name} as a string")
    return value


def request(
    link: Link, meta: Mapping[str, Any], arrays: Arrays | None = None, timeout_s: float | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Ask, and wait for the answer; an error there is raised here as the same class."""
    link.send(Kind.REQUEST, *encode_message(meta, arrays))
    return answer(link, timeout_s)


def answer(link: Link, timeout_s: float | None = None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The reply to a request sent before."""
    _, payload = link.receive(Kind.REPLY, timeout_s=timeout_s)
    return decode_reply(payload)


def decode_reply(payload: NDArray[np.uint8]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A reply's message; the error that it reports is raised."""
    meta, arrays = decode_message(payload)
    if "error" in meta:
        error = errors.remote(str(meta["error"]), str(meta.get("message", "")))
        if isinstance(error, errors.WorkerLost):
            named = meta.get("workers")
            error.workers = tuple(number for number in named if type(number) is int) if isinstance(named, list) else ()
        raise error
    return meta, arrays


def reply_error(link: Link, error: BaseException) -> None:
    """Report an error by name; the message of an unforeseen one stays here, since it might quote data."""
    name, message = frames.report(error)
    more = {"workers": error.workers} if isinstance(error, errors.WorkerLost) else {}
    link.send(Kind.REPLY, *encode_message({"error": name, "message": message, **more}))
