"""What all HTTP resources share: the service, the gate, metrics, the audit log, and how a handler becomes a route."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hdcos.errors import HdcosError
from hdcos.party.batcher import Refused
from hdcos.party.config import Limits
from hdcos.party.http.auth import Gate
from hdcos.party.http.history import History
from hdcos.party.http.metrics import Metrics
from hdcos.party.http.replies import reply_error
from hdcos.party.service import Service

log = logging.getLogger("hdcos")
Handler = Callable[[Request, str], Awaitable[Response]]
AUDIT_AT_ONCE = 1000


@dataclass(frozen=True)
class Resource:
    """What answers one method of one path."""

    path: str
    method: str
    endpoint: Callable[[Request], Awaitable[Response]]


def routes(resources: Iterable[Resource]) -> list[Route]:
    """One route per path, which knows all its methods."""
    paths: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {}
    for resource in resources:
        paths.setdefault(resource.path, {})[resource.method] = resource.endpoint

    def dispatch(methods: Mapping[str, Callable[[Request], Awaitable[Response]]]) -> Callable[..., Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await methods["GET" if request.method == "HEAD" else request.method](request)

        return endpoint

    return [Route(path, dispatch(methods), methods=list(methods)) for path, methods in paths.items()]


class Api:
    """The state of one party's HTTP interface."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.limits: Limits = service.config.limits
        self.gate = Gate(service.store, self.limits)
        self.metrics = Metrics(service, lambda: self.gate.waiting.total)
        self.history = History()
        self._audit: list[tuple[float, str, str, str, str, str]] = []

    def route(self, path: str, method: str, handler: Handler, role: str | None) -> Resource:
        """A route that admits clients with a role (None: everybody) and answers errors by name."""

        async def endpoint(request: Request) -> Response:
            client = ""
            try:
                if role is not None:
                    client = self.gate.admit(request, role)
                return await handler(request, client)
            except (HdcosError, Refused) as error:
                answer = reply_error(error)
                if answer.status_code in (403, 409):  # strangers, 401, are counted only: they could fill the disk
                    self.audit(client, f"{method} refused", path, status=str(answer.status_code), detail=str(error))
            except Exception as error:
                # The message might quote data: the type and the path are enough to find the place.
                log.error("internal error (%s) in %s %s", type(error).__name__, method, path, exc_info=error)
                answer = reply_error(error)
            self.service.errors += answer.status_code >= 500 and answer.status_code != 503
            self.metrics.refused.labels(str(answer.status_code)).inc()
            return answer

        return Resource(path, method, endpoint)

    def audit(self, actor: str, action: str, target: str, detail: str = "", status: str = "ok") -> None:
        """Note who did what; written to disk once a second."""
        if len(self._audit) < AUDIT_AT_ONCE:
            self._audit.append((time.time(), actor, action, target, status, detail[:300]))

    def flush_audit(self) -> None:
        records = list(self._audit)
        if records:
            self.service.store.audit(records)
            del self._audit[: len(records)]  # not before they are on disk
