"""Lanes: further connections of one link, over which the payloads of large frames are spread.

Encrypting, decrypting and TCP take more than a millisecond of one core for each megabyte that is exchanged, and an
OpenSSL connection cannot be used by two threads. So a link may have lanes: TLS connections of their own between the
same two nodes, each pumped by a thread of its own, while the thread that uses the link pumps the main connection.

A frame's header and everything about it stays on the main connection. A payload of SPREAD_BYTES or more is cut into
1 + k consecutive parts, by its size alone: the first follows the header, part i goes over lane i. Smaller frames do not
know that there are lanes. In front of each part stand 8 bytes, little-endian: the number of its frame.

Threads begin with the first large frame and end with the link. Whatever fails on a lane ends the link, as if its one
connection had failed; what the peer said last on the main connection explains it, where it said something.

Security  an eavesdropper sees the sizes and times of records on 1 + k connections instead of one: of large payloads
          again the size, which is public. Each lane is TLS 1.3 with the same two pinned certificates as its link, and
          was bound to it when it was made (`link.binding`); afterwards nothing can be added to either. Within a
          lane TLS lets nothing be changed, repeated, left out or reordered. Between lanes nothing is ordered, nor
          needs to be: a part has its place by its lane, and both ends take the parts of a frame before those of the
          next. A part of one frame cannot be taken for one of another: the number in front of it is compared with
          that of the header, which the main connection counts; a peer that loses count is refused (FrameError).
          No key encrypts more than the main connection's, whose parts are the largest: its limit holds for all.
"""

from __future__ import annotations

import contextlib
import struct
import weakref
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from hdcos.errors import FrameError, HandshakeError
from hdcos.link import frame as frames
from hdcos.link.transport import Transport

SPREAD_BYTES = 1 << 18
"""Both ends must agree on it. Three threads that are woken and waited for take some 60 microseconds, this payload about
300 of one thread."""
ALIGN_BYTES = 1 << 12  # a page of the result is written by one thread, and words stay whole
END_S = 5.0
_NUMBER = struct.Struct("<Q")
NUMBER_BYTES = _NUMBER.size


class Outward(NamedTuple):
    """A payload to be sent: the number of its frame, and its bytes."""

    number: int
    buffers: Sequence[Any]


class Inward(NamedTuple):
    """A payload to be received: the number of its frame, and where its bytes go."""

    number: int
    view: memoryview


class _Job(NamedTuple):
    """One lane's part of a frame, or of a frame each way."""

    outward: Outward | None
    inward: Inward | None
    timeout_s: float | None


_Jobs = SimpleQueue[_Job | None]
_Done = SimpleQueue[BaseException | None]


def cut(size: int, connections: int) -> list[tuple[int, int]]:
    """Where the part of each connection begins and ends. The first is the largest; the last ones may be empty."""
    part = -(-size // connections)
    part += -part % ALIGN_BYTES
    return [(min(size, place * part), min(size, (place + 1) * part)) for place in range(connections)]


class Lanes:
    """The lanes of one link. They are used by its thread; `interrupt` may be called by any."""

    def __init__(self, transports: Sequence[Transport]) -> None:
        self._transports = tuple(transports)
        self._jobs: list[_Jobs] = [SimpleQueue() for _ in transports]
        self._done: _Done = SimpleQueue()
        self._threads: list[Thread] = []
        self._busy = 0
        self._counted = (0, 0)
        # The threads know only their queues and connections: those of a link that was forgotten end too.
        self._finish = weakref.finalize(self, _dismiss, self._jobs)

    def __len__(self) -> int:
        return len(self._transports)

    def own_bytes(self, size: int) -> int:
        """How much of a payload goes over the main connection."""
        return cut(size, 1 + len(self))[0][1]

    def begin(self, size: int, timeout_s: float | None, outward: Outward | None, inward: Inward | None) -> None:
        """Have the lanes carry their parts of a payload, or of one each way; `wait` follows."""
        if not self._threads:
            self._start()
        for jobs, (start, stop) in zip(self._jobs, cut(size, 1 + len(self))[1:], strict=True):
            job = _Job(
                None if outward is None else Outward(outward.number, frames.cut_out(outward.buffers, start, stop)),
                None if inward is None else Inward(inward.number, inward.view[start:stop]),
                timeout_s,
            )
            self._busy += 1
            jobs.put(job)

    def wait(self) -> None:
        """Until all parts are carried. The first failure ends the others, and is raised."""
        worst: BaseException | None = None
        while self._busy:
            error = self._done.get()
            self._busy -= 1
            if error is not None:
                if worst is None:
                    self.interrupt()
                if worst is None or isinstance(error, FrameError | HandshakeError):
                    worst = error
        if worst is not None:
            raise worst

    def stop(self) -> None:
        """After a failure: have every thread let go of the payload. What it carries is void."""
        if self._busy:
            self.interrupt()
        while self._busy:
            try:
                self._done.get(timeout=END_S)
            except Empty:
                return
            self._busy -= 1

    def interrupt(self) -> None:
        for transport in self._transports:
            transport.interrupt()

    def close(self) -> None:
        """End threads and connections. What was sent still arrives."""
        self.stop()
        self._finish()
        for thread in self._threads:
            thread.join(END_S)
        for transport in self._transports:
            with contextlib.suppress(OSError):
                transport.close()

    def count_news(self, unread: bool = False) -> tuple[int, int]:
        """Bytes sent and received on all lanes since the last call; with those, in the end, that nobody asked for."""
        before = self._counted
        sent = sum(transport.sent for transport in self._transports)
        received = sum(transport.received + (transport.unread if unread else 0) for transport in self._transports)
        self._counted = (sent, received)
        return sent - before[0], received - before[1]

    def os_counters(self) -> Iterator[tuple[int, int] | None]:
        return (transport.os_counters() for transport in self._transports)

    def _start(self) -> None:
        for number, (transport, jobs) in enumerate(zip(self._transports, self._jobs, strict=True), 1):
            thread = Thread(target=_pump, args=(transport, jobs, self._done), name=f"lane {number}", daemon=True)
            thread.start()
            self._threads.append(thread)


def _dismiss(queues: Sequence[_Jobs]) -> None:
    for jobs in queues:
        jobs.put(None)


def _pump(transport: Transport, jobs: _Jobs, done: _Done) -> None:
    """The thread of a lane."""
    while (job := jobs.get()) is not None:
        outcome: BaseException | None = None
        try:
            _carry(transport, job)
        except BaseException as error:  # whatever it is, the thread that waits must hear of it
            outcome = error
        del job  # it holds the payload, and the next one may be long in coming
        done.put(outcome)
        del outcome


def _carry(transport: Transport, job: _Job) -> None:
    outward, inward, timeout_s = job
    if outward is not None:
        size = frames.payload_bytes(outward.buffers)
        transport.queue(frames.pieces(_NUMBER.pack(outward.number), outward.buffers, size))
    if inward is not None:
        head = memoryview(bytearray(NUMBER_BYTES))
        _fill(transport, head, timeout_s)
        (number,) = _NUMBER.unpack(head)
        if number != inward.number:
            raise FrameError(f"a lane carries part of frame {number}, expected {inward.number}.")
        _fill(transport, inward.view, timeout_s)
    if outward is not None:
        transport.flush(timeout_s)


def _fill(transport: Transport, view: memoryview, timeout_s: float | None) -> None:
    got, size = 0, len(view)
    while got < size:
        got += transport.read(view[got:], timeout_s, True)
