"""The HTTP endpoints that tell how a party is: health, status, metrics, cost, audit, pages."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from hdcos._version import __version__
from hdcos.api import answers, requests
from hdcos.party.http import pages
from hdcos.party.http.api import CAREFUL, Api, Call, Endpoint, Handlers, reply

EXTENSIONS = ["binary_tensor_data", "hdcos_shares", "hdcos_masks", "hdcos_training"]
EVERY_S = 2.0
KEPT_S = 600.0
MOST_MODELS = 5
"""As many as the chart of material has colours for."""
METRICS = ("text/plain", "application/openmetrics-text")


class History:
    """The last ten minutes of a party, for the charts of its status page: samples of `Service.status`, oldest first.

    Kept in memory alone and bounded: a fixed number of samples of a few hundred bytes, whatever clients do. A sample is
    kept as text, which takes a tenth of the memory of its objects.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, bytes]] = deque(maxlen=round(KEPT_S / EVERY_S))

    def note(self, status: Mapping[str, Any], now: float | None = None) -> None:
        """Keep what the charts show of a status."""
        models = [{"name": model["name"], "stock": model["stock"]} for model in status["models"][:MOST_MODELS]]
        sample = {"counters": status["counters"], "latency_ms": status["latency_ms"], "models": models}
        self._samples.append((time.monotonic() if now is None else now, msgspec.json.encode(sample)))

    def tell(self, now: float | None = None) -> answers.StatusHistory:
        """For clients: ages instead of times, since clocks differ."""
        at = time.monotonic() if now is None else now
        samples = [(round(at - noted, 3), sample) for noted, sample in list(self._samples)]
        told: Any = [{"age_s": age, **msgspec.json.decode(sample)} for age, sample in samples if age <= KEPT_S]
        return {"every_s": EVERY_S, "samples": told}


class Watch(Handlers):
    """Handlers of everything that is watched."""

    def __init__(self, api: Api, history: History, describe: Callable[[], Any]) -> None:
        super().__init__(api)
        self._history, self._describe = history, describe

    @Endpoint("GET", "/v2", None, "this server")
    async def server(self, call: Call[None]) -> answers.Server:
        party, cluster = self._service.rank, self._service.node.run.hex()
        return {
            "name": "hdcos",
            "version": __version__,
            "extensions": EXTENSIONS,
            "parameters": {"party": party, "cluster": cluster, "time": time.time()},
        }

    @Endpoint("GET", "/v2/health/live", None, "whether it lives")
    async def live(self, call: Call[None]) -> answers.Live:
        return {"live": True}

    @Endpoint("GET", "/v2/health/ready", None, "whether it is ready", also=[503])
    async def ready(self, call: Call[None]) -> answers.Ready | Response:
        ready, reason = self._service.ready()
        return reply(answers.Ready(ready=ready, reason=reason), 200 if ready else 503)

    @Endpoint("GET", "/v2/status", "watch", "how this party is")
    async def status(self, call: Call[None]) -> answers.Status:
        return await asyncio.to_thread(self._service.status)

    @Endpoint("GET", "/v2/status/history", "watch", "the last ten minutes, oldest first")
    async def history(self, call: Call[None]) -> answers.StatusHistory:
        return self._history.tell()

    @Endpoint("GET", "/metrics", "watch", "metrics for Prometheus", media=METRICS)
    async def metrics(self, call: Call[None]) -> Response:
        text, kind = await asyncio.to_thread(self._api.metrics.text, call.request.headers.get("accept", ""))
        return Response(text, headers={"content-type": kind, "vary": "accept", **CAREFUL})

    @Endpoint("GET", "/v2/cost", "watch", "rounds and bytes so far")
    async def cost(self, call: Call[None]) -> answers.Costs:
        counts = self._service.counts(self._service.session)
        return {"online": counts["online"], "offline": counts["offline"]}

    @Endpoint("GET", "/v2/audit", "watch", "who did what")
    async def audit(self, call: Call[None], query: requests.AuditQuery) -> answers.Audit:
        self._api.flush_audit()
        return {"records": await asyncio.to_thread(self._service.store.audited, query.limit)}

    @Endpoint("GET", "/openapi.json", None, "this description", media=["application/json"])
    async def openapi(self, call: Call[None]) -> Response:
        return reply(self._describe())

    @Endpoint("GET", "/", None, "the status page", media=["text/html"])
    async def status_page(self, call: Call[None]) -> Response:
        return _page(pages.status(), "'self'")

    @Endpoint("GET", "/digit", None, "the page on which a digit is drawn", media=["text/html"])
    async def digit_page(self, call: Call[None]) -> Response:
        return _page(pages.digit(), "https:")


def _page(content: bytes, connect: str) -> Response:
    policy = pages.security_policy(content, connect)
    return Response(content, media_type="text/html", headers={"content-security-policy": policy, **CAREFUL})
