"""The HTTPS interface of a party as an ASGI application, and its OpenAPI description, from what handlers declare."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from hdcos._version import __version__
from hdcos.api.answers import Error
from hdcos.api.bodies import LENGTH_HEADER
from hdcos.checks import ID, NAME
from hdcos.errors import DataMissing, InputError, StorageFull
from hdcos.party.batcher import Refused
from hdcos.party.http.api import RETRY_AFTER_S, Api, Endpoint, endpoints, reply_error
from hdcos.party.http.auth import Releasing
from hdcos.party.http.datasets import Datasets
from hdcos.party.http.functions import SingleFunctions
from hdcos.party.http.jobs import Jobs, Reveals
from hdcos.party.http.meetings import Meetings
from hdcos.party.http.models import Models
from hdcos.party.http.statistics import Statistics
from hdcos.party.http.watch import EVERY_S, History, Watch
from hdcos.party.service import Service

log = logging.getLogger("hdcos")
HANDLERS = (Watch, Models, SingleFunctions, Datasets, Statistics, Meetings, Jobs, Reveals)
REFUSALS = (400, 401, 403, 404, 405, 408, 409, 413, 429, 503, 507)
OPEN_REFUSALS = (405, 503)
"""Of what needs no token and reads nothing."""
PATH = {"name": NAME, "id": ID, "version": ID}
BINARY = {"type": "string", "format": "binary"}
Schema = dict[str, Any]


def make_app(service: Service) -> Starlette:
    """The application of one party; the service must have been started."""
    api, history = Api(service), History()
    watch = Watch(api, history, describe_interface)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_flush(api)), asyncio.create_task(_remember(service, history))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            with suppress(StorageFull):  # said already, once a second
                api.flush_audit()

    origins = list(service.config.http.cors)
    allowed = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["authorization", "content-type", LENGTH_HEADER],
        expose_headers=[LENGTH_HEADER, "retry-after"],
        max_age=600,
    )
    app = Starlette(
        routes=api.routes(watch, *(handlers(api) for handlers in HANDLERS[1:])),
        middleware=[Middleware(Releasing), *([allowed] if origins else [])],
        exception_handlers={HTTPException: _not_found},
        lifespan=lifespan,
    )
    app.state.api = api
    return app


async def _not_found(request: Request, error: Exception) -> Response:
    """Paths and methods that are not there."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 405:
        answer = reply_error(Refused(InputError(f"{path} does not take {request.method}"), 405))
        answer.headers.update(error.headers or {})
        return answer
    return reply_error(Refused(DataMissing(f"there is nothing at {path}"), error.status_code))


async def _flush(api: Api) -> None:
    """Once a second: write the audit log, and look after the disk."""
    said = ""
    while True:
        await asyncio.sleep(1.0)
        trouble = api.service.store.room.trouble
        try:
            await asyncio.to_thread(api.flush_audit)
            await asyncio.to_thread(api.service.store.tidy)
        except (sqlite3.Error, StorageFull) as error:
            trouble = f"the audit log could not be written: {error}"
        if trouble and trouble != said:
            log.error("%s", trouble)
        said = trouble


async def _remember(service: Service, history: History) -> None:
    """Note how this party is, for the charts, every two seconds."""
    while True:
        try:
            history.note(await asyncio.to_thread(service.status))
        except Exception as error:  # a gap in the charts, whatever it is
            log.error("the status could not be read (%s)", type(error).__name__)
        await asyncio.sleep(EVERY_S)


# ---- its description


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
        operation["security"] = [{"token": [role]} for role in endpoint.role.split(" or ")]
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
