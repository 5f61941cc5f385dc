"""A single function that is open at parties elsewhere."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING

from hdcos.cluster.transport import Reply, RetryableError, Shares
from hdcos.errors import DataMissing, HdcosError
from hdcos.protocol.catalogue import Call

if TYPE_CHECKING:
    from hdcos.cluster.connect import HttpsTransport


class RemoteFunction:
    """A function that parties elsewhere have open for this client.

    They forget it when their session ends or nobody used it for a while; it is then opened again, with as much material
    as was prepared and not used.
    """

    def __init__(self, transport: HttpsTransport, call: Call, shapes: Sequence[tuple[int, ...]], ahead: int) -> None:
        self._transport, self._lock = transport, RLock()
        self._said = {"function": call.function, "parameters": call.parameters, "shapes": shapes, "ahead": ahead}
        self._prepared = self._spent = 0
        self._open()

    def _open(self) -> None:
        self._path = f"/v2/functions/{secrets.token_hex(16)}"
        self._prepared, self._spent = self._prepared - self._spent, 0
        self._transport.patiently("PUT", self._path, self._said)
        self._order(wait=False)

    def _order(self, wait: bool) -> None:
        if self._prepared:
            self._transport.patiently("POST", f"{self._path}/prepare", {"executions": self._prepared, "wait": wait})

    def _recover(self) -> None:
        """See that what was prepared and not used is there: calls that were lost on the way used material up."""
        try:
            answers = self._transport.patiently("GET", self._path)
            missing = self._prepared - self._spent - min(int(answer.meta["left"]) for answer in answers)
            self._prepared, self._spent = self._prepared + max(0, missing), self._spent + max(0, missing)
            self._order(wait=False)
        except DataMissing:
            self._open()

    def prepare(self, executions: int, wait: bool) -> None:
        with self._lock:
            self._prepared += executions
            try:
                self._order(wait)
            except DataMissing:
                self._open()
                self._order(wait)
            except HdcosError:
                self._prepared -= executions
                raise

    def run(self, inputs: Shares, executions: int) -> list[Reply]:
        parameters = {"request_id": secrets.token_hex(16)}
        with self._lock:
            try:
                answers = self._transport.ask("POST", f"{self._path}/evaluate", {"parameters": parameters}, inputs)
            except (RetryableError, DataMissing) as error:
                self._recover()
                raise error if isinstance(error, RetryableError) else RetryableError(error) from None
            self._spent += executions
        return [answer.reply for answer in answers]

    def stock(self) -> int:
        with self._lock:
            try:
                answers = self._transport.patiently("GET", self._path)
            except DataMissing:
                return 0
        return min(int(answer.meta["stock"]) for answer in answers)

    def close(self) -> None:
        with suppress(DataMissing):  # they have forgotten it already
            self._transport.ask("DELETE", self._path)
