"""Write the tables of docs/http.md: every endpoint, and the fields of every request, from what the code declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hdcos.api.bodies import describe
from hdcos.party.http.app import all_endpoints

PAGE = Path(__file__).parent.parent / "docs" / "http.md"
BEGIN, END = "<!-- made by scripts/http_tables.py -->", "<!-- end -->"


def tables() -> str:
    """All endpoints, then the fields of each request, as Markdown."""
    served = all_endpoints()
    lines = ["| endpoint | role | | body | answer |", "|---|---|---|---|---|"]
    for endpoint in sorted(served, key=lambda each: each.path):
        answer = "" if endpoint.answer is None else _name(endpoint.answer)
        answer += " and tensors" if endpoint.with_tensors else ""
        role, body = endpoint.role or "", ", ".join(_name(kind) for kind in (endpoint.body, endpoint.query) if kind)
        lines.append(f"| `{endpoint.method} {endpoint.path}` | {role} | {endpoint.summary} | {body} | {answer} |")
    requests = list(dict.fromkeys(kind for each in served for kind in (each.body, each.query) if _is_struct(kind)))
    _, named = msgspec.json.schema_components(requests, ref_template="{name}")
    for name, schema in named.items():
        lines += ["", f"**{name}**: {schema['description']}", "", "| field | | default |", "|---|---|---|"]
        for field, what in schema["properties"].items():
            needed = "required" if field in schema.get("required", ()) else _default(what)
            lines.append(f"| `{field}` | {_told(what, named)} | {needed} |")
    return "\n".join(lines)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _name(kind: Any) -> str:
    return str(kind.__name__)


def _told(schema: dict[str, Any], named: dict[str, Any]) -> str:
    refers = schema.get("$ref") or schema.get("items", {}).get("$ref")
    if refers is None:
        return describe(schema, named)
    return refers if "$ref" in schema else f"a list of {refers}"


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default in (None, "", [], {}) or isinstance(default, dict) else f"{default}"


def with_tables(page: str) -> str:
    """The page with its tables as they should be."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
