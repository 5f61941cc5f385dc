"""The HTTPS interface of a party as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from hdcos._version import __version__
from hdcos.api.tensors import LENGTH_HEADER
from hdcos.errors import DataMissing, InputError, StorageFull
from hdcos.party.batcher import Refused
from hdcos.party.http import pages
from hdcos.party.http.api import Api, routes
from hdcos.party.http.datasets import Storing
from hdcos.party.http.history import EVERY_S
from hdcos.party.http.jobs import Teaching
from hdcos.party.http.models import Predicting
from hdcos.party.http.openapi import description
from hdcos.party.http.replies import CAREFUL, reply, reply_error
from hdcos.party.http.waiting import Releasing
from hdcos.party.service import Service

log = logging.getLogger("hdcos")
EXTENSIONS = ["binary_tensor_data", "hdcos_shares", "hdcos_masks", "hdcos_training"]
MOST_AUDITED = 1000


class Watching:
    """Handlers that tell how a party is: health, status, metrics, cost, audit, pages."""

    def __init__(self, api: Api) -> None:
        self._api, self._service = api, api.service

    async def server(self, request: Request, client: str) -> Response:
        known = {"party": self._service.rank, "cluster": self._service.node.run.hex(), "time": time.time()}
        return reply({"name": "hdcos", "version": __version__, "extensions": EXTENSIONS, "parameters": known})

    async def live(self, request: Request, client: str) -> Response:
        return reply({"live": True})

    async def ready(self, request: Request, client: str) -> Response:
        ready, reason = self._service.ready()
        return reply({"ready": ready, "reason": reason}, 200 if ready else 503)

    async def status(self, request: Request, client: str) -> Response:
        return reply(await asyncio.to_thread(self._service.status))

    async def history(self, request: Request, client: str) -> Response:
        return reply(self._api.history.told())

    async def metrics(self, request: Request, client: str) -> Response:
        text, kind = await asyncio.to_thread(self._api.metrics.text, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": kind, "vary": "accept", **CAREFUL})

    async def cost(self, request: Request, client: str) -> Response:
        counts = self._service.counts(self._service.session)
        return reply({phase: _count(count) for phase, count in counts.items()})

    async def audit(self, request: Request, client: str) -> Response:
        self._api.flush_audit()
        limit = request.query_params.get("limit", "100")
        if not limit.isascii() or not limit.isdecimal() or len(limit) > 9 or not 1 <= int(limit) <= MOST_AUDITED:
            raise InputError(f"limit is a whole number from 1 to {MOST_AUDITED}")
        return reply({"records": await asyncio.to_thread(self._service.store.audited, int(limit))})

    async def openapi(self, request: Request, client: str) -> Response:
        return reply(description())

    async def status_page(self, request: Request, client: str) -> Response:
        return _page(pages.status(), "'self'")

    async def digit_page(self, request: Request, client: str) -> Response:
        return _page(pages.digit(), "https:")


def _count(count: object) -> dict[str, float]:
    names = ("rounds", "bytes_sent", "bytes_received", "wire_bytes_sent", "wire_bytes_received", "seconds")
    return {name: getattr(count, name) for name in names}


def _page(content: bytes, connect: str) -> Response:
    policy = pages.security_policy(content, connect)
    return Response(content, media_type="text/html", headers={"content-security-policy": policy, **CAREFUL})


def make_app(service: Service) -> Starlette:
    """The application of one party; the service must have been started."""
    api = Api(service)
    watching = Watching(api)
    open_to_all = {
        "/v2": watching.server,
        "/v2/health/live": watching.live,
        "/v2/health/ready": watching.ready,
        "/openapi.json": watching.openapi,
        "/": watching.status_page,
        "/digit": watching.digit_page,
    }
    for_watchers = {
        "/v2/status": watching.status,
        "/v2/status/history": watching.history,
        "/metrics": watching.metrics,
        "/v2/cost": watching.cost,
        "/v2/audit": watching.audit,
    }
    resources = [api.route(path, "GET", handler, None) for path, handler in open_to_all.items()]
    resources += [api.route(path, "GET", handler, "watch") for path, handler in for_watchers.items()]
    resources += [*Predicting(api).resources(), *Storing(api).resources(), *Teaching(api).resources()]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_flush(api)), asyncio.create_task(_remember(api))]
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
        routes=routes(resources),
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


async def _remember(api: Api) -> None:
    """Note how this party is, for the charts, every two seconds."""
    while True:
        try:
            api.history.note(await asyncio.to_thread(api.service.status))
        except Exception as error:  # a gap in the charts, whatever it is
            log.error("the status could not be read (%s)", type(error).__name__)
        await asyncio.sleep(EVERY_S)
