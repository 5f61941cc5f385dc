"""The HTTPS interface of a party as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from hdcos.api.tensors import LENGTH_HEADER
from hdcos.errors import DataMissing, InputError, StorageFull
from hdcos.party.batcher import Refused
from hdcos.party.http.api import Api, reply_error
from hdcos.party.http.auth import Releasing
from hdcos.party.http.datasets import Datasets
from hdcos.party.http.jobs import Jobs, Reveals
from hdcos.party.http.models import Models
from hdcos.party.http.openapi import describe_interface
from hdcos.party.http.watch import EVERY_S, History, Watch
from hdcos.party.service import Service

log = logging.getLogger("hdcos")


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
        routes=api.routes(watch, Models(api), Datasets(api), Jobs(api), Reveals(api)),
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
