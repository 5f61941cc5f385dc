"""JSON that is read by its type: what is wrong with it is said in one sentence that names the field.

A request is a `msgspec.Struct`, declared once: it checks what arrives, describes itself in OpenAPI and in the tables of
docs/http.md, and the same words say what is allowed where something else was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct, UnsetType

from hdcos.errors import InputError

MOST_JSON = 1 << 22
"""Bytes of JSON in one request or answer: tensors come behind it."""
SHOWN = 40
"""Characters of a wrong value that an error quotes."""
SEARCHED = 1000
"""Items of a list that are looked at one by one for the wrong one."""
T = TypeVar("T")


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


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
        raise InputError(_complain(kind, content)) from None


def read_query(kind: type[T], given: Mapping[str, str]) -> T:
    """What the query of an address says, as a value of its type."""
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError:
        raise InputError(explain(kind, dict(given), strict=False)) from None


def _complain(kind: Any, content: bytes | memoryview) -> str:
    try:
        return explain(kind, msgspec.json.decode(content))
    except (msgspec.DecodeError, RecursionError):
        return "the body does not start with a JSON object"


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
