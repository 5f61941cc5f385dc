"""The HTTP endpoints of single functions: opened by a client under an id that it drew, at both parties."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import prod
from typing import Any

import msgspec

from hdcos.api import answers, requests
from hdcos.errors import PeerLost
from hdcos.party.allotment import MaterialAllotment
from hdcos.party.batcher import Request
from hdcos.party.functions import Asked
from hdcos.party.http.api import Call, Endpoint, Handlers, Tensors
from hdcos.party.http.models import ANSWER_COPIES
from hdcos.protocol import catalogue

ONE = "/v2/functions/{id}"
LOOK_S = 0.005


class SingleFunctions(Handlers):
    """Handlers of /v2/functions."""

    @Endpoint("PUT", ONE, "predict", "open a function", status=201)
    async def open(self, call: Call[requests.FunctionRequest]) -> answers.Function:
        """Answered when both parties have opened it; the same may be asked twice."""
        service, body = self._service, await call.read()
        if service.session is None:
            raise PeerLost(f"this party has no session: {service.reason}")
        known = catalogue.Call.of(body.function, **msgspec.to_builtins(body.parameters))

        def add() -> Asked:
            asked = service.functions.plan(call.id, call.client, known, body.shapes, body.ahead)
            return service.functions.add(asked, service.room())

        asked = await asyncio.to_thread(add)
        service.wake()
        await self._until(lambda: self._allotment(asked) is not None, asked)
        return self._describe(asked)

    @Endpoint("GET", ONE, "predict", "one function")
    async def function(self, call: Call[None]) -> answers.Function:
        return self._describe(self._own(call))

    @Endpoint("POST", f"{ONE}/prepare", "predict", "have material made for a function")
    async def prepare(self, call: Call[requests.PrepareFunctionRequest]) -> answers.Function:
        service, asked, body = self._service, self._own(call), await call.read()
        await asyncio.to_thread(lambda: service.functions.prepare(asked, body.executions, service.room()))
        service.wake()
        if body.wait:
            await self._until(lambda: self._opened(asked).pool.filled >= body.executions, asked)
        return self._describe(asked)

    @Endpoint("POST", f"{ONE}/evaluate", "predict", "evaluate a function")
    async def evaluate(self, call: Call[requests.EvaluateRequest]) -> tuple[answers.Evaluated, Tensors]:
        """One call of a function: checked here, answered when both parties have its inputs and it has run."""
        service, started = self._service, time.perf_counter()
        service.requests += 1
        asked = self._own(call)
        body, tensors = await call.read_tensors()
        executions, words = asked.executions(tensors), list(tensors.values())
        call.hold(ANSWER_COPIES * 8 * executions * prod(asked.planned.result.shape))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        number = body.parameters.request_id
        wanted = Request(number, asked.name, "", "shares", (), words[0], future, more=tuple(words[1:]))
        try:
            answer = await service.batcher.add(wanted)
        finally:
            asked.spent += executions * wanted.begun
        self._api.metrics.evaluated.observe(time.perf_counter() - started)
        return {"id": number, "parameters": {"scale_bits": answer.scale, "bits": answer.bits}}, {"output": answer.words}

    @Endpoint("DELETE", ONE, "predict", "close a function")
    async def close(self, call: Call[None]) -> answers.Nothing:
        self._service.functions.drop(self._own(call).id)
        self._service.wake()
        return {}

    # ---- how it stands here

    def _own(self, call: Call[Any]) -> Asked:
        asked = self._service.functions.find(call.id)
        call.check_owner(asked.client, "this function")
        return asked

    def _allotment(self, asked: Asked) -> MaterialAllotment | None:
        session = self._service.session
        opened = None if session is None else session.worker.opened.get(asked.name)
        return None if opened is None else opened.allotment("shares")

    def _opened(self, asked: Asked) -> MaterialAllotment:
        """The material of a function. Party 0 may still be about to open it here, or just have closed it."""
        allotment = self._allotment(asked)
        if allotment is None:
            raise PeerLost("this function is not open here now: ask again")
        return allotment

    def _describe(self, asked: Asked) -> answers.Function:
        allotment = self._opened(asked)
        return {
            "id": asked.id,
            "function": asked.call.function,
            "scale_bits": catalogue.find(asked.call.function).input_scale,
            "stock": allotment.free,
            "left": max(0, allotment.pool.expected - allotment.allotted),
        }

    async def _until(self, done: Callable[[], bool], asked: Asked) -> None:
        """Wait for the session; what takes longer than a client should wait in one request is asked for again."""
        deadline = time.monotonic() + self._api.limits.patience_s
        while not done():
            if asked.error is not None:
                raise asked.error
            if time.monotonic() > deadline:
                raise PeerLost("not ready yet: the other party was not told of this function, or both are busy")
            if asked not in self._service.functions:
                raise PeerLost("this function was closed meanwhile, or could not be opened at the other party")
            await asyncio.sleep(LOOK_S)
