"""How a handler becomes an endpoint of the HTTP interface: who may call it, what it reads, what it answers.

A handler is declared by its `Endpoint` and by its own types: `Call[X]` says that its body is an X of
`hdcos.api.requests`, a parameter `query` that it takes one, and what it returns is a type of `hdcos.api.answers`, with
tensors or without. The same types describe it in OpenAPI.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hdcos import errors
from hdcos.api.answers import Error
from hdcos.api.bodies import LENGTH_HEADER, encode_body, read_json, read_query, read_tensors, split_body
from hdcos.checks import check_id, check_name
from hdcos.errors import HdcosError, PolicyRefused
from hdcos.party.batcher import Refused
from hdcos.party.config import Limits
from hdcos.party.http.auth import HELD, Auth
from hdcos.party.http.metrics import Metrics
from hdcos.party.service import Service
from hdcos.ring import Array

log = logging.getLogger("hdcos")
Tensors = Mapping[str, Array]
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
AUDIT_AT_ONCE = 1000
RETRY_AFTER_S = 1
CAREFUL = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
STATUS: Mapping[type[HdcosError], int] = {
    errors.DataMissing: 404,
    PolicyRefused: 403,
    errors.MaterialReused: 409,
    errors.StorageFull: 507,
    errors.CheckpointMismatch: 409,
    errors.DataDamaged: 500,
    errors.MaterialExhausted: 503,
    errors.PeerLost: 503,
    errors.HandshakeError: 503,
}


# ---- answers


def reply(answer: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, CAREFUL, media_type="application/json")


def reply_error(error: BaseException) -> Response:
    """An error by name. The text of an unforeseen one stays here: it might quote data."""
    retryable, status = False, 500
    if isinstance(error, Refused):
        retryable, given, error = error.retryable, error.status, error.error
        status = given or _status(error)
    elif isinstance(error, HdcosError):
        status = _status(error)
    else:
        error = HdcosError(f"internal error ({type(error).__name__}), see this party's log")
    retryable = retryable or status == 503
    name = type(error).__name__
    answer = reply(Error(error=f"{name}: {error}", name=name, retryable=retryable), status)
    if retryable:
        answer.headers["retry-after"] = str(RETRY_AFTER_S)
    if status in (408, 413):
        answer.headers["connection"] = "close"  # the rest of the request is not wanted
    if status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    return answer


def _status(error: BaseException) -> int:
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 400)


# ---- endpoints


@dataclass(frozen=True)
class Endpoint:
    """One method of one path; as a decorator it marks the handler."""

    method: str
    path: str
    role: str | None
    """Of the clients that may call it, or several with "or" between them; None admits everybody."""
    summary: str
    status: int = 200
    also: Sequence[int] = ()
    """Other statuses with the same answer."""
    media: Sequence[str] = ("application/json",)
    """The types of an answer that is not JSON."""
    handler: str = ""
    body: Any = None
    query: Any = None
    answer: Any = None
    """The type of its JSON; None where a handler makes the whole response itself."""
    with_tensors: bool = False

    def __call__(self, handler: F) -> F:
        vars(handler).setdefault("served", []).insert(0, self)
        return handler


def endpoints(handlers: type) -> Iterator[Endpoint]:
    """Everything that a class of handlers serves, with the types that its handlers state."""
    for name, handler in vars(handlers).items():
        for endpoint in getattr(handler, "served", ()):
            hints = get_type_hints(handler)
            (body,), answer = get_args(hints["call"]), hints["return"]
            with_tensors = get_origin(answer) is tuple
            if with_tensors:
                answer, endpoint = get_args(answer)[0], replace(endpoint, media=("application/octet-stream",))
            elif get_origin(answer) is UnionType:  # it chooses the status itself
                answer = get_args(answer)[0]
            yield replace(
                endpoint,
                handler=name,
                body=None if body is type(None) else body,
                query=hints.get("query"),
                answer=None if answer is Response else answer,
                with_tensors=with_tensors,
            )


class Call(Generic[T]):
    """One request of a client. Its body is read when the handler wants it: what its path names is looked up first."""

    def __init__(self, api: Api, request: Request, client: str, kind: type[T]) -> None:
        self._api, self.request, self.client, self._kind = api, request, client, kind

    @property
    def name(self) -> str:
        return check_name(self.request.path_params["name"])

    @property
    def version(self) -> str:
        return check_id(self.request.path_params["version"], "version")

    @property
    def id(self) -> str:
        return check_id(self.request.path_params["id"], "id")

    def check_owner(self, owner: str, what: str) -> None:
        if owner != self.client:
            raise PolicyRefused(f"{what} belongs to another client")

    async def bytes(self) -> bytes:
        """The body as it is."""
        return await self._api.auth.body(self.request)

    async def read(self) -> T:
        """The body, which is JSON."""
        return read_json(self._kind, await self.bytes())

    async def read_tensors(self) -> tuple[T, dict[str, Array]]:
        """The body, which is JSON and carries tensors; they are views of it."""
        head, tail = split_body(await self.bytes(), self.request.headers.get(LENGTH_HEADER))
        value: Any = read_json(self._kind, head)
        return value, read_tensors(value.inputs, tail)

    def hold(self, size: int) -> None:
        """Count bytes of memory that the answer will take, until it has left."""
        self.request.scope[HELD].more(size)

    def last(self) -> None:
        """Count a request that waits for something to happen, until its answer has left; Refused if they are many."""
        self.request.scope[HELD].last()


class Handlers:
    """A group of endpoints."""

    def __init__(self, api: Api) -> None:
        self._api, self._service, self._store = api, api.service, api.service.store


class Api:
    """The state of one party's HTTP interface."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.limits: Limits = service.config.limits
        self.auth = Auth(service.store, self.limits, service.connections.most_of_one)
        self.metrics = Metrics(service, lambda: self.auth.waiting.total)
        self._audit: list[tuple[float, str, str, str, str, str]] = []

    def routes(self, *groups: object) -> list[Route]:
        """One route per path, which knows all its methods."""
        paths: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {}
        for handlers in groups:
            for endpoint in endpoints(type(handlers)):
                methods = paths.setdefault(endpoint.path, {})
                methods[endpoint.method] = self._wrap(endpoint, getattr(handlers, endpoint.handler))

        def dispatch(methods: Mapping[str, Callable[[Request], Awaitable[Response]]]) -> Any:
            async def answer(request: Request) -> Response:
                return await methods["GET" if request.method == "HEAD" else request.method](request)

            return answer

        return [Route(path, dispatch(methods), methods=list(methods)) for path, methods in paths.items()]

    def _wrap(
        self, endpoint: Endpoint, handler: Callable[..., Awaitable[Any]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Admit a client, have a request handled, and answer it, errors by name."""

        async def answer(request: Request) -> Response:
            client = ""
            try:
                if endpoint.role is not None:
                    client = self.auth.admit(request, endpoint.role)
                call: Call[Any] = Call(self, request, client, endpoint.body)
                query = {} if endpoint.query is None else {"query": read_query(endpoint.query, request.query_params)}
                made = await handler(call, **query)
                if endpoint.with_tensors:
                    content, headers = encode_body(*made)
                    return Response(content, endpoint.status, {**headers, **CAREFUL})
                return made if isinstance(made, Response) else reply(made, endpoint.status)
            except (HdcosError, Refused) as error:
                refusal = reply_error(error)
                if refusal.status_code in (403, 409):  # strangers, 401, are counted only: they could fill the disk
                    done = f"{endpoint.method} refused"
                    self.audit(client, done, endpoint.path, status=str(refusal.status_code), detail=str(error))
            except Exception as error:
                # The message might quote data: the type and the path are enough to find the place.
                what = (type(error).__name__, endpoint.method, endpoint.path)
                log.error("internal error (%s) in %s %s", *what, exc_info=error)
                refusal = reply_error(error)
            self.service.errors += refusal.status_code >= 500 and refusal.status_code != 503
            self.metrics.refused.labels(str(refusal.status_code)).inc()
            return refusal

        return answer

    def audit(self, actor: str, action: str, target: str, detail: str = "", status: str = "ok") -> None:
        """Note who did what; written to disk once a second."""
        if len(self._audit) < AUDIT_AT_ONCE:
            self._audit.append((time.time(), actor, action, target, status, detail[:300]))

    def flush_audit(self) -> None:
        records = list(self._audit)
        if records:
            self.service.store.audit(records)
            del self._audit[: len(records)]  # not before they are on disk
