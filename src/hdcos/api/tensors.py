"""Binary tensors in HTTP bodies, as in the Open Inference Protocol: a JSON object, then the tensors' bytes in order.

Only 64-bit words travel. Everything is checked against the length of the body before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from hdcos.api.schema import read_json
from hdcos.errors import InputError
from hdcos.ring import Array

LENGTH_HEADER = "inference-header-content-length"
MOST_WORDS = 1 << 32
Word = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": 2**64 - 1})]
Length = Annotated[int, Meta(ge=0, le=MOST_WORDS - 1)]


class TensorParameters(Struct, frozen=True):
    """Where a tensor's words are."""

    binary_data_size: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """Bytes of this tensor behind the JSON object."""


class Tensor(Struct, frozen=True):
    """A tensor in a body: its words are in `data`, or in binary behind the JSON object."""

    name: str
    datatype: Literal["UINT64"]
    shape: Annotated[list[Length], Meta(max_length=8)]
    data: list[Word] | UnsetType = UNSET
    parameters: TensorParameters | UnsetType = UNSET


class _Inputs(Struct, frozen=True):
    inputs: list[Tensor] = []


class _Outputs(Struct, frozen=True):
    outputs: list[Tensor] = []


def decode_body(
    body: bytes, header_length: str | None, field: Literal["inputs", "outputs"] = "inputs"
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The JSON object of a body without its tensors, and the tensors by name, as views of the body."""
    head, tail = split_body(body, header_length)
    kind: type[_Inputs | _Outputs] = _Inputs if field == "inputs" else _Outputs
    listed, meta = getattr(read_json(kind, head), field), msgspec.json.decode(head)
    meta.pop(field, None)
    return meta, read_tensors(listed, tail)


def split_body(body: bytes, header_length: str | None) -> tuple[memoryview, memoryview]:
    """The JSON of a body and the bytes of its tensors, as views of it."""
    view = memoryview(body)
    if header_length is None:
        return view, view[len(view) :]
    digits = header_length.isascii() and header_length.isdecimal() and len(header_length) <= 12
    if not digits or int(header_length) > len(view):
        raise InputError(f"the header {LENGTH_HEADER} states no length within the body")
    return view[: int(header_length)], view[int(header_length) :]


def read_tensors(listed: Iterable[Tensor], tail: memoryview) -> dict[str, Array]:
    """The tensors that a body lists, by name; those in binary are views of `tail`, which they must use up."""
    tensors: dict[str, Array] = {}
    position = 0
    for entry in listed:
        name, shape, size = entry.name, entry.shape, 8 * prod(entry.shape)
        if name in tensors:
            raise InputError(f"two tensors are called {name!r}")
        if prod(max(n, 1) for n in shape) > MOST_WORDS:
            raise InputError(f"tensor {name!r} of shape {shape} has more than {MOST_WORDS} words")
        if entry.data is not UNSET:
            tensors[name] = _listed(entry.data, name, shape)
            continue
        stated = entry.parameters.binary_data_size if entry.parameters is not UNSET else UNSET
        if stated != size or position + size > len(tail):
            raise InputError(f"tensor {name!r} of shape {shape} takes {size} bytes of binary data")
        tensors[name] = np.frombuffer(tail, "<u8", prod(shape), position).reshape(shape)
        position += size
    if position != len(tail):
        raise InputError(f"{len(tail) - position} bytes follow the last tensor")
    return tensors


def _listed(data: list[int], name: str, shape: list[int]) -> Array:
    if len(data) != prod(shape):
        raise InputError(f"tensor {name!r} of shape {shape} has {prod(shape)} numbers, got {len(data)}")
    try:
        return np.array(data, dtype=np.uint64).reshape(shape)
    except OverflowError:
        raise InputError(f"the data of tensor {name!r} are whole numbers from 0 to 2^64 - 1") from None


def encode_body(
    meta: Mapping[str, Any], tensors: Mapping[str, Array], field: Literal["inputs", "outputs"] = "outputs"
) -> tuple[bytes, dict[str, str]]:
    """A body with its tensors in binary, and the headers that describe it."""
    listed = [
        Tensor(name, "UINT64", list(array.shape), parameters=TensorParameters(8 * array.size))
        for name, array in tensors.items()
    ]
    head = msgspec.json.encode({**meta, field: listed})
    parts = [head, *(np.ascontiguousarray(array, dtype="<u8").tobytes() for array in tensors.values())]
    headers = {"content-type": "application/octet-stream", LENGTH_HEADER: str(len(head))}
    return b"".join(parts), headers
