"""The HTTP endpoints of statistics over several owners' rows: see `hdcos.party.tallies`."""

from __future__ import annotations

import asyncio

from hdcos.api import answers, requests
from hdcos.party.http.api import Api, Call, Endpoint, Handlers, Tensors
from hdcos.party.tallies import Agreement, Tallies

ONE = "/v2/statistics/{name}"


class Statistics(Handlers):
    """Handlers of /v2/statistics."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._tallies = Tallies()

    @Endpoint("POST", "/v2/statistics", "upload", "contribute to statistics over several owners' rows", status=201)
    async def contribute(self, call: Call[requests.StatisticsRequest]) -> answers.Tally:
        """Keep this party's share of an owner's sums until all owners have contributed."""
        body, tensors = await call.read_tensors()
        given = body.parameters
        agreement = Agreement(given.agreement, given.numbers, given.owners, tuple(given.clients))
        known = (given.name, call.client, given.id, agreement, tensors.get("share"))
        tally = await asyncio.to_thread(self._tallies.contribute, *known)
        self._api.audit(call.client, "contribute statistics", given.name, f"{given.numbers} numbers")
        return tally

    @Endpoint("GET", ONE, "upload", "who has contributed")
    async def look(self, call: Call[None]) -> answers.Tally:
        return self._tallies.look(call.name, call.client)

    @Endpoint("GET", f"{ONE}/total", "upload", "a share of the total")
    async def total(self, call: Call[None]) -> tuple[answers.Tally, Tensors]:
        """For owners who contributed, when all have."""
        tally, words = await asyncio.to_thread(self._tallies.take, call.name, call.client)
        self._api.audit(call.client, "take statistics", call.name, f"of {', '.join(tally['contributed'])}")
        return tally, {"total": words}

    @Endpoint("DELETE", ONE, "upload", "withdraw a contribution")
    async def withdraw(self, call: Call[None]) -> answers.Nothing:
        """As long as nobody was told the total."""
        self._tallies.withdraw(call.name, call.client)
        self._api.audit(call.client, "withdraw statistics", call.name)
        return {}
