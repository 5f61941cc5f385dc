"""The HTTP endpoints of meetings: two clients of a party that talk to each other through it.

A meeting has a name and is between two clients, each of which names the other: nobody else can enter it, or keep its
name from them. Each takes a seat under an id that it drew, and messages go from seat to seat, numbered, so that one
that got lost on the way is sent again and counted once. Who takes a seat again under another id begins a new meeting,
and what was left of the old one is gone.

Messages wait in memory alone, a few for each client: a sender is told to come again when the other is slow. Meetings
are few, a meeting carries a limited amount (`[limits] meeting_gb`), and one in which nobody asks for anything is
forgotten.

Security  the party sees what clients send. Owners who join their tables send records of TLS between them, filled up to
          few sizes (`hdcos.join.meeting`), so it sees who meets whom, when, and roughly how much they say.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from hdcos.api import answers, requests
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.party.batcher import Refused
from hdcos.party.http.api import CAREFUL, Api, Call, Endpoint, Handlers

MOST_MESSAGE = 1 << 20
WAITING = 4
"""Messages for one client."""
MOST_MEETINGS, MOST_OF_CLIENT = 32, 4
PRESENT_S, GONE_S, FORGET_S = 5.0, 60.0, 120.0
"""How long after its last question a client counts as present, and as gone; and a meeting as over."""
SEAT = "/v2/meetings/{name}/{id}"


@dataclass
class Seat:
    """One client at a meeting, and the messages that wait for it."""

    id: str
    seen: float
    first: int = 0
    """The number of the oldest message that waits."""
    waiting: deque[bytes] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    left: bool = False


@dataclass
class Meeting:
    """Two clients, and how much was said."""

    seats: dict[str, Seat] = field(default_factory=dict)
    carried: int = 0

    @property
    def seen(self) -> float:
        return max(seat.seen for seat in self.seats.values())


class Meetings(Handlers):
    """Handlers of /v2/meetings. For the event loop alone."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._meetings: dict[tuple[str, frozenset[str]], Meeting] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    @Endpoint("PUT", SEAT, "upload", "take a seat at a meeting with another client")
    async def attend(self, call: Call[None], query: requests.MeetingQuery) -> answers.Attendance:
        """Tell whether the other client is there; asked again, it tells again."""
        self._sweep()
        if query.guest == call.client:
            raise InputError("a meeting is between two clients: name the other one (`hdcos join --with`)")
        key = (call.name, frozenset((call.client, query.guest)))
        meeting = self._meetings.get(key)
        seat = None if meeting is None else meeting.seats.get(call.client)
        if meeting is None or (seat is not None and seat.id != call.id):
            if meeting is None:
                self._check_number(call.client)
                self._api.audit(call.client, "meet", call.name, query.guest)
            else:
                self._end(meeting)
            meeting = self._meetings[key] = Meeting()
        seat = meeting.seats.setdefault(call.client, Seat(call.id, 0.0))
        seat.seen = time.monotonic()
        guest = meeting.seats.get(query.guest)
        return {"present": guest is not None and not guest.left and seat.seen - guest.seen < PRESENT_S}

    @Endpoint("POST", SEAT, "upload", "send the other client a message")
    async def send(self, call: Call[bytes], query: requests.MessageQuery) -> answers.Nothing:
        """The next message, by its number; one that is here already may be sent again."""
        content = await call.bytes()
        if not 0 < len(content) <= MOST_MESSAGE:
            raise InputError(f"a message has 1 to {MOST_MESSAGE} bytes, not {len(content)}")
        meeting, _, guest = self._seats(call, query.guest)
        number = guest.first + len(guest.waiting)
        if query.number > number:
            raise InputError(f"message {number} comes next, not {query.number}")
        if query.number == number:
            if len(guest.waiting) >= WAITING:
                text = f"{WAITING} messages wait for {query.guest}: send this one again when they are fetched"
                raise Refused(PolicyRefused(text), 429, retryable=True)
            if meeting.carried + len(content) > 1e9 * self._api.limits.meeting_gb:
                raise PolicyRefused(
                    f"a meeting carries {self._api.limits.meeting_gb:g} GB here ([limits] meeting_gb): its operator "
                    f"may allow more, or the owners join directly (--listen, --connect)"
                )
            meeting.carried += len(content)
            guest.waiting.append(content)
            guest.arrived.set()
        return {}

    @Endpoint("GET", SEAT, "upload", "wait for a message of the other client", media=("application/octet-stream",))
    async def receive(self, call: Call[None], query: requests.ReceiveQuery) -> Response:
        """The message of this number, an empty answer if it has not come yet. Those before it are forgotten."""
        _, seat, guest = self._seats(call, query.guest)
        while seat.waiting and seat.first < query.number:
            seat.waiting.popleft()
            seat.first += 1
        if query.number != seat.first:
            raise InputError(f"message {seat.first} comes next, not {query.number}")
        if not seat.waiting:
            if query.wait_s:
                call.last()
            seat.arrived.clear()
            try:
                async with asyncio.timeout(query.wait_s):
                    await seat.arrived.wait()
            except TimeoutError:
                pass
            _, seat, guest = self._seats(call, query.guest)
        if not seat.waiting and (guest.left or time.monotonic() - guest.seen > GONE_S):
            raise DataMissing(f"{query.guest} left the meeting")
        content = seat.waiting[0] if seat.waiting and query.number == seat.first else b""
        call.hold(len(content))
        return Response(content, 200, CAREFUL, media_type="application/octet-stream")

    @Endpoint("DELETE", SEAT, "upload", "leave a meeting")
    async def leave(self, call: Call[None], query: requests.MeetingQuery) -> answers.Nothing:
        """What was sent to the other client stays for it to fetch; when both have left, nothing does."""
        key = (call.name, frozenset((call.client, query.guest)))
        meeting = self._meetings.get(key)
        seat = None if meeting is None else meeting.seats.get(call.client)
        if meeting is None or seat is None or seat.id != call.id:
            raise DataMissing("no such seat at a meeting")
        seat.left = True
        if all(each.left for each in meeting.seats.values()):
            self._end(self._meetings.pop(key))
        else:
            for each in meeting.seats.values():
                each.arrived.set()
        return {}

    def _seats(self, call: Call[Any], guest: str) -> tuple[Meeting, Seat, Seat]:
        """The client's own seat and the other's, of a meeting at which both are."""
        meeting = self._meetings.get((call.name, frozenset((call.client, guest))))
        seat = None if meeting is None else meeting.seats.get(call.client)
        if meeting is None or seat is None or seat.id != call.id or guest not in meeting.seats or guest == call.client:
            raise DataMissing("this meeting is over, or began again: both take a seat again")
        seat.seen = time.monotonic()
        return meeting, seat, meeting.seats[guest]

    def _check_number(self, client: str) -> None:
        own = sum(client in meeting.seats for meeting in self._meetings.values())  # not where others wait for it
        if own >= MOST_OF_CLIENT or len(self._meetings) >= MOST_MEETINGS:
            what = f"{client} is at {own} meetings" if own >= MOST_OF_CLIENT else "there are as many meetings as can be"
            raise Refused(PolicyRefused(f"{what}: end one first, or wait a little"), 429, retryable=True)

    @staticmethod
    def _end(meeting: Meeting) -> None:
        """Those who wait look again, and find it gone."""
        for seat in meeting.seats.values():
            seat.waiting.clear()
            seat.arrived.set()

    def _sweep(self) -> None:
        """Forget meetings in which nobody asked for anything, now and again while there are some."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        limit = time.monotonic() - FORGET_S
        for key in [key for key, meeting in self._meetings.items() if meeting.seen < limit]:
            self._end(self._meetings.pop(key))
        self._sweeping = asyncio.get_running_loop().call_later(FORGET_S, self._sweep_again)

    def _sweep_again(self) -> None:
        self._sweeping = None
        if self._meetings:
            self._sweep()
