"""HTTP bodies: JSON that is read by its type, and binary tensors behind it, as in the Open Inference Protocol.

A request is a `msgspec.Struct`, declared once: it checks what arrives, describes itself in OpenAPI and in the tables of
docs/http.md, and the same words say what is allowed where something else was found, in one sentence that names the
field. Of tensors only 64-bit words travel. Everything is checked against the length of the body before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from threading import Lock
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from hdcos.errors import InputError
from hdcos.ring import Array

MOST_JSON = 1 << 22
"""Bytes of JSON in one request or answer: tensors come behind it."""
SHOWN = 40
"""Characters of a wrong value that an error quotes."""
SEARCHED = 1000
"""Items of a list that are looked at one by one for the wrong one."""
LENGTH_HEADER = "inference-header-content-length"
MOST_WORDS = 1 << 32
Word = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": 2**64 - 1})]
Length = Annotated[int, Meta(ge=0, le=MOST_WORDS - 1)]
T = TypeVar("T")


# ---- JSON


_building = Lock()


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """One thread at a time: a second one would get what msgspec knows of a type before it is complete, and crash."""
    with _building:
        return msgspec.json.Decoder(kind)


def convert(given: Any, kind: type[T], strict: bool = True) -> T:
    """`msgspec.convert` for any thread: all there is to know of the type is known before, see `_decoder`."""
    _decoder(cast(Any, kind))
    return msgspec.convert(given, kind, strict=strict)


def read_json(kind: type[T], text: bytes | memoryview) -> T:
    """What a JSON text says, as a value of its type; nothing at all is an empty object."""
    view = memoryview(text)
    if len(view) > MOST_JSON:
        raise InputError(f"a JSON object has at most {MOST_JSON} bytes here, not {len(view)}: send tensors in binary")
    content = view if len(view) else b"{}"
    try:
        decoder: msgspec.json.Decoder[T] = _decoder(cast(Any, kind))
        return decoder.decode(content)
    except (msgspec.DecodeError, RecursionError):
        try:
            wrong = explain(kind, msgspec.json.decode(content))
        except (msgspec.DecodeError, RecursionError):
            wrong = "the body does not start with a JSON object"
        raise InputError(wrong) from None


def read_query(kind: type[T], given: Mapping[str, str]) -> T:
    """What the query of an address says, as a value of its type."""
    try:
        return convert(dict(given), kind, strict=False)
    except msgspec.ValidationError:
        raise InputError(explain(kind, dict(given), strict=False)) from None


def explain(kind: Any, value: object, field: str = "", *, strict: bool = True) -> str:
    """The first thing in a value that its type does not allow: the field, what is allowed, what was found."""
    plain = _plain(kind)
    if isinstance(plain, type) and issubclass(plain, Struct) and isinstance(value, dict):
        known = {item.encode_name: item for item in msgspec.structs.fields(plain)}
        for name, item in known.items():
            if name not in value and item.required:
                return f"{_below(field, name)} is missing: it is {words(item.type)}"
            if name in value and not _fits(item.type, value[name], strict):
                return explain(item.type, value[name], _below(field, name), strict=strict)
        unknown = next((str(name) for name in value if name not in known), "")
        return f"{_below(field, unknown[:SHOWN])} is not known here: the fields are {', '.join(known)}"
    if get_origin(plain) is list and isinstance(value, list) and len(value) <= SEARCHED:
        (item_kind,) = get_args(plain)
        for place, entry in enumerate(value):
            if not _fits(item_kind, entry, strict):
                return explain(item_kind, entry, f"{field}[{place}]", strict=strict)
    return f"{field or 'the body'} is {words(kind)}, got {_found(value)}"


def _plain(kind: Any) -> Any:
    """A type without its limits, and without the choice to leave it out."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif get_origin(kind) in (Union, UnionType):
            kinds = [each for each in get_args(kind) if each not in (UnsetType, type(None))]
            if len(kinds) != 1:
                return kind
            (kind,) = kinds
        else:
            return kind


def _fits(kind: Any, value: object, strict: bool) -> bool:
    try:
        msgspec.convert(value, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _below(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _found(value: object) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def words(kind: Any) -> str:
    """What a type allows, in words."""
    (schema,), named = msgspec.json.schema_components([kind], ref_template="{name}")
    return describe(schema, named)


def describe(schema: Mapping[str, Any], named: Mapping[str, Any]) -> str:
    """What a JSON schema allows, in words; `named` are the schemas that others refer to."""
    if "$ref" in schema and "enum" not in named.get(schema["$ref"], {}):
        return "an object"
    if "description" in schema:
        return str(schema["description"])
    if "anyOf" in schema:
        return " or ".join(describe(choice, named) for choice in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"])) if len(schema["enum"]) > 1 else str(schema["enum"][0])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        item = f", each {describe(schema['items'], named)}" if "items" in schema else ""
        return f"a list{_span(schema, 'minItems', 'maxItems', 'of')}{item}"
    if kind == "string":
        characters = _span(schema, "minLength", "maxLength", "of")
        return f"a string{characters and f'{characters} characters'}"
    if kind in ("integer", "number"):
        return f"a {'whole ' * (kind == 'integer')}number{_span(schema, 'minimum', 'maximum', 'from')}"
    return {"boolean": "true or false", "object": "an object", "any": "any JSON"}.get(kind, kind)


def _span(schema: Mapping[str, Any], low: str, high: str, before: str) -> str:
    if high in schema:
        return f" {before} {_number(schema.get(low, 0))} to {_number(schema[high])}"
    return f" of at least {schema[low]}" if low in schema else ""


def _number(value: float) -> str:
    """Large limits are mostly powers of two, and read better as such."""
    for number, rest in ((value, ""), (value + 1, " - 1")):
        if isinstance(number, int) and number >= 1 << 20 and number & (number - 1) == 0:
            return f"2^{number.bit_length() - 1}{rest}"
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- tensors


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


class _Answer(Struct, frozen=True):
    outputs: list[Tensor] = []


def decode_body(body: bytes, header_length: str | None) -> tuple[dict[str, Any], dict[str, Array]]:
    """The JSON object of an answer without its tensors, and the tensors by name, as views of the body."""
    head, tail = split_body(body, header_length)
    listed, meta = read_json(_Answer, head).outputs, msgspec.json.decode(head)
    meta.pop("outputs", None)
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
            tensors[name] = _read_listed(entry.data, name, shape)
            continue
        stated = entry.parameters.binary_data_size if entry.parameters is not UNSET else UNSET
        if stated != size or position + size > len(tail):
            raise InputError(f"tensor {name!r} of shape {shape} takes {size} bytes of binary data")
        tensors[name] = np.frombuffer(tail, "<u8", prod(shape), position).reshape(shape)
        position += size
    if position != len(tail):
        raise InputError(f"{len(tail) - position} bytes follow the last tensor")
    return tensors


def _read_listed(data: list[int], name: str, shape: list[int]) -> Array:
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
