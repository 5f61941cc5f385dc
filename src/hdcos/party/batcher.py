"""Requests of clients at one party: matched with those at the other party, then merged into batches.

A client sends the same request id to both parties. Party 1 reports what arrived there; party 0 starts a request when it
has both shares, so a batch never waits for a client. What both must agree on (model, version, mode, output, rows,
masks) is compared first: a request that is not the same on both sides is refused on both, and touches no material.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Condition
from typing import TYPE_CHECKING, Any

import numpy as np

from hdcos.errors import HdcosError, InputError, MaterialReused, PeerLost
from hdcos.party.allotment import Run
from hdcos.ring import Array
from hdcos.secure.labels import LOGITS

if TYPE_CHECKING:
    import asyncio

ROWS, WAYS = 1 << 14, 8


class Refused(Exception):
    """How a request ended that was not answered: the error a client sees, and whether it may ask again."""

    def __init__(self, error: HdcosError, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.status, self.retryable = error, status, retryable


@dataclass(frozen=True)
class Answer:
    """A party's share of the outputs of one request."""

    words: Array = field(repr=False)
    scale: int
    bits: int


@dataclass(eq=False)
class Request:
    """Rows of one client, as this party got them."""

    id: str
    model: str
    version: str
    mode: str
    runs: tuple[Run, ...]
    """The masks of a masked request."""
    words: Array = field(repr=False)
    future: asyncio.Future[Answer] | None = field(default=None, repr=False)
    """Where its answer goes, for the client that waits for it in the event loop."""
    arrived: float = field(default_factory=time.monotonic)
    more: tuple[Array, ...] = field(default=(), repr=False)
    """Further inputs, of a function that takes several."""
    own: bool = False
    """Whether it comes from the one caller of this machine, who sends both parties the same rows."""
    begun: bool = False
    """Whether it is or was computed: from then on its rows count as answered."""
    output: str = LOGITS
    """What the client gets: logits, or labels alone."""

    @property
    def rows(self) -> int:
        return len(self.words)

    @property
    def kind(self) -> tuple[str, str, str, str]:
        """Requests of one kind can run together."""
        return self.model, self.version, self.mode, self.output

    @cached_property
    def said(self) -> list[Any]:
        """What must be the same at both parties: of masked rows, which both know, the rows themselves."""
        hashed = self.mode == "masked" and not self.own
        opened = hashlib.sha256(np.ascontiguousarray(self.words).data).hexdigest() if hashed else ""
        runs = [list(run) for run in self.runs]
        return [self.model, self.version, self.mode, self.output, self.rows, runs, opened]


def join_rows(requests: Sequence[Request]) -> Array:
    """The rows of requests that run together, one after another."""
    return requests[0].words if len(requests) == 1 else np.concatenate([request.words for request in requests])


def divide_answer(requests: Sequence[Request], words: Array, scale: int, bits: int) -> list[tuple[Request, Answer]]:
    """The answers to requests that ran together: each has as many rows of the result as it brought."""
    answers, first = [], 0
    for request in requests:
        answers.append((request, Answer(words[first : first + request.rows], scale, bits)))
        first += request.rows
    return answers


class RecentIds:
    """Request ids that were used lately, in memory that never grows.

    A table of 16,384 rows with the hashes of the newest eight ids of each: one megabyte from the first request to the
    billionth, and about the last 100,000 ids are known. A set of as many strings takes 26 MB, and takes them little by
    little: a party then seems to leak for as long as anybody watches. Python salts its hashes, so nobody can choose an
    id that another client's falls together with; two do by chance once in 10**14 requests.
    """

    def __init__(self) -> None:
        self._table = np.full((ROWS, WAYS), 0, np.uint64)

    def __contains__(self, number: str) -> bool:
        row, tag = self._place(number)
        return tag in row

    def add(self, number: str) -> None:
        """The oldest of its row gives way."""
        row, tag = self._place(number)
        row[1:] = row[:-1]
        row[0] = tag

    def _place(self, number: str) -> tuple[Array, np.uint64]:
        value = hash(number) & (1 << 64) - 1
        return self._table[value % ROWS], np.uint64(value)


class Batcher:
    """The waiting requests of one party. The event loop adds, the session's threads match, take and settle."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rank: int, patience_s: float, waiting: int) -> None:
        self._loop, self._rank, self._patience_s, self._most = loop, rank, patience_s, waiting
        self.changed = Condition()
        self._open = False
        self._mine: OrderedDict[str, Request] = OrderedDict()
        self._theirs: OrderedDict[str, tuple[list[Any], float]] = OrderedDict()
        self._matched: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, Request] = {}
        """In the batch that runs now: if the session ends, these are refused as well."""
        self._news: list[list[Any]] = []
        self._refusals: list[list[str]] = []
        self._seen = RecentIds()

    def __len__(self) -> int:
        return len(self._mine)

    def add(self, request: Request) -> asyncio.Future[Answer]:
        """A request that a client just sent here; what it returns becomes its answer, or how it was refused."""
        assert request.future is not None
        with self.changed:
            if not self._open:
                raise PeerLost("this party is not connected to the other one and the dealer now: try again later")
            if len(self._mine) >= self._most:
                raise PeerLost("too many requests are waiting here: try again later")
            if request.id in self._seen or request.id in self._mine or request.id in self._running:
                raise MaterialReused(f"the request id {request.id} was used before: draw a new one")
            self._seen.add(request.id)
            self._mine[request.id] = request
            if self._rank == 0:
                self._match(request.id)
            else:
                self._news.append([request.id, request.said])
            self.changed.notify_all()
        return request.future

    # ---- a session's beginning and end

    def open(self) -> None:
        with self.changed:
            self._theirs.clear()  # what was heard while the last session ended
            self._open = True

    def close(self, reason: str) -> None:
        """The session is over: nothing that waits will be answered."""
        with self.changed:
            self._open = False
            waiting = [*self._mine.values(), *self._running.values()]
            for known in (self._mine, self._theirs, self._matched, self._running):
                known.clear()
            self._news.clear()
            self._refusals.clear()
            self.changed.notify_all()
        self.refuse(waiting, Refused(PeerLost(f"{reason} Send it again under a new request id."), retryable=True))

    def take(self, ids: Sequence[str]) -> list[Request]:
        """The requests of a batch that party 0 decided on, which has them already."""
        with self.changed:
            known = self._running if self._rank == 0 else self._mine
            if missing := [number for number in ids if number not in known]:
                raise InputError(f"party 0 wants request {missing[0]}, which is not waiting here")
            taken = {number: known[number] for number in ids}
            if self._rank == 1:
                self._running |= taken
                for number in ids:
                    del self._mine[number]
            return list(taken.values())

    # ---- party 1

    def news(self) -> list[list[Any]]:
        """What arrived since the last call: id and what must agree."""
        with self.changed:
            fresh, self._news = self._news, []
            return fresh

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    def drop(self, refusals: Iterable[Sequence[str]]) -> None:
        """Requests that party 0 refused."""
        for number, reason in refusals:
            with self.changed:
                request = self._mine.pop(number, None)
            if request is not None:
                self.refuse([request], Refused(InputError(reason), 409, retryable=True))

    # ---- party 0

    def hear(self, arrivals: Iterable[Sequence[Any]]) -> None:
        """What arrived at party 1."""
        now = time.monotonic()
        with self.changed:
            for number, said in arrivals:
                self._theirs[number] = (said, now)
                self._match(number)
            self.changed.notify_all()

    def _match(self, number: str) -> None:
        mine, theirs = self._mine.get(number), self._theirs.get(number)
        if mine is None or theirs is None:
            return
        del self._theirs[number]
        if mine.said == theirs[0]:
            self._matched[number] = None
            return
        del self._mine[number]
        what = "model, version, mode, output, rows, masks or masked rows"
        reason = f"the shares of request {number} differ in {what}: send both the same"
        self._refusals.append([number, reason])
        self.refuse([mine], Refused(InputError(reason), 409, retryable=True))

    def batch(self, most_rows: Callable[[Request], int]) -> list[Request]:
        """The next requests to run together: those of one model, version, mode and output, oldest first.

        `most_rows` says how many rows a batch may have that begins with a request; one that asks for a batch and cannot
        run it says none.
        """
        with self.changed:
            chosen: list[Request] = []
            rows = most = 0
            for number in self._matched:
                request = self._mine[number]
                if chosen and request.kind != chosen[0].kind:
                    continue
                if not chosen and not (most := most_rows(request)):
                    continue
                if chosen and rows + request.rows > most:
                    break
                chosen.append(request)
                rows += request.rows
            for request in chosen:
                del self._matched[request.id], self._mine[request.id]
                self._running[request.id] = request
            return chosen

    def suits(self, most_rows: Callable[[Request], int]) -> bool:
        """Whether a batch can be made for one that cannot run everything."""
        with self.changed:
            return any(most_rows(self._mine[number]) for number in self._matched)

    @property
    def busy(self) -> bool:
        """Whether a batch can be made."""
        return bool(self._matched)

    def refusals(self) -> list[list[str]]:
        """What party 1 must be told to refuse."""
        with self.changed:
            fresh, self._refusals = self._refusals, []
            return fresh

    # ---- both

    def expire(self) -> None:
        """Give up on requests that only one party got. Party 0 does, for both: it knows which are matched."""
        if self._rank == 1:
            return
        limit = time.monotonic() - self._patience_s
        with self.changed:
            late = [
                request
                for request in self._mine.values()
                if request.arrived < limit and request.id not in self._matched
            ]
            for request in late:
                del self._mine[request.id]
            reason = f"party 1 got no request with this id within {self._patience_s:g} s: send it to both"
            lost = [number for number, (_, at) in self._theirs.items() if at < limit]
            for number in lost:
                del self._theirs[number]
                self._refusals.append([number, reason.replace("party 1", "party 0")])
        self.refuse(late, Refused(InputError(reason), 409, retryable=True))

    def settle(self, answers: Sequence[tuple[Request, Answer]]) -> None:
        self._end([request for request, _ in answers])
        self._call([(request.future, answer) for request, answer in answers])

    def refuse(self, requests: Sequence[Request], refused: Refused) -> None:
        self._end(requests)
        self._call([(request.future, refused) for request in requests])

    def lose(self, requests: Sequence[Request], refused: Refused) -> None:
        """Refuse requests whose batch was lost. Party 1 may never have heard of the batch: there they would wait on."""
        if self._rank == 0:
            with self.changed:
                self._refusals += [[request.id, str(refused)] for request in requests]
        self.refuse(requests, refused)

    def _end(self, requests: Sequence[Request]) -> None:
        with self.changed:
            for request in requests:
                self._running.pop(request.id, None)

    def _call(self, results: Sequence[tuple[asyncio.Future[Answer] | None, Answer | Refused]]) -> None:
        """Hand results to the event loop, many at once."""
        if results and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, results)


def _resolve(results: Sequence[tuple[asyncio.Future[Answer] | None, Answer | Refused]]) -> None:
    for future, result in results:
        if future is not None and not future.done():
            if isinstance(result, Refused):
                future.set_exception(result)
            else:
                future.set_result(result)
