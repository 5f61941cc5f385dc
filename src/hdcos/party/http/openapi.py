"""The OpenAPI description of a party's HTTP interface, made from what its handlers declare."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from hdcos._version import __version__
from hdcos.api.answers import Error
from hdcos.api.names import ID, NAME
from hdcos.party.http.api import RETRY_AFTER_S, Endpoint, endpoints
from hdcos.party.http.datasets import Datasets
from hdcos.party.http.jobs import Jobs, Reveals
from hdcos.party.http.models import Models
from hdcos.party.http.watch import Watch

HANDLERS = (Watch, Models, Datasets, Jobs, Reveals)
REFUSALS = (400, 401, 403, 404, 405, 408, 409, 413, 429, 503, 507)
OPEN_REFUSALS = (405, 503)
"""Of what needs no token and reads nothing."""
PATH = {"name": NAME, "id": ID, "version": ID}
BINARY = {"type": "string", "format": "binary"}
Schema = dict[str, Any]


def all_endpoints() -> list[Endpoint]:
    """Everything that a party serves."""
    return [endpoint for handlers in HANDLERS for endpoint in endpoints(handlers)]


@cache
def describe_interface() -> Schema:
    """The whole description. Tensors may also travel in binary behind the JSON, see docs/http.md."""
    served = all_endpoints()
    types = [kind for each in served for kind in (each.body, each.query, each.answer) if kind not in (None, bytes)]
    listed, named = msgspec.json.schema_components([*types, Error], ref_template="#/components/schemas/{name}")
    schemas = dict(zip([*types, Error], listed, strict=True))
    paths: dict[str, Schema] = {}
    for endpoint in served:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas, named)
    refused = {
        "description": f"Refused, by name. What is retryable comes with Retry-After: {RETRY_AFTER_S}.",
        "content": {"application/json": {"schema": schemas[Error]}},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hdcos party",
            "version": __version__,
            "description": "One of two parties. Send each party its own share, never both shares to one party.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": named,
            "responses": {"Refused": refused},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(endpoint: Endpoint, schemas: dict[Any, Schema], named: Schema) -> Schema:
    answer = {"description": "Done.", "content": {media: _content(endpoint, schemas) for media in endpoint.media}}
    done = {str(status): answer for status in (endpoint.status, *endpoint.also)}
    refusals = REFUSALS if endpoint.role or endpoint.body or endpoint.query else OPEN_REFUSALS
    operation: Schema = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method} {endpoint.path}",
        "parameters": _parameters(endpoint, named),
        "responses": {str(status): {"$ref": "#/components/responses/Refused"} for status in refusals} | done,
    }
    if endpoint.role is None:
        operation["security"] = []
    else:
        operation["security"] = [{"token": [endpoint.role]}]
        operation["description"] = f"For clients with the role `{endpoint.role}`."
    if endpoint.body is bytes:
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {"schema": BINARY}}}
    elif endpoint.body is not None:
        content = {"application/json": {"schema": schemas[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _content(endpoint: Endpoint, schemas: dict[Any, Schema]) -> Schema:
    if endpoint.with_tensors:
        told = f"a JSON object, {endpoint.answer.__name__} with `outputs`, then the bytes of its tensors"
        return {"schema": {**BINARY, "description": told, "x-json": schemas[endpoint.answer]}}
    return {"schema": {} if endpoint.answer is None else schemas[endpoint.answer]}


def _parameters(endpoint: Endpoint, named: Schema) -> list[Schema]:
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": PATH[name]}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    if endpoint.query is not None:
        query = named[endpoint.query.__name__]
        parameters += [
            {"name": name, "in": "query", "required": name in query.get("required", ()), "schema": schema}
            for name, schema in query["properties"].items()
        ]
    return parameters
