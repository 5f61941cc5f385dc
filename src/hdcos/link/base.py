"""A link to one peer: frames, rounds, counting and honest errors over a byte transport.

Whatever goes wrong becomes one of the errors of `hdcos.errors`, names the peer and what was being waited for,
and leaves the link unusable: part of a round cannot be repeated, because a mask masks exactly one opening. An
error found on this side travels to the peer by name (ABORT), so that both ends report the same cause.
Messages never contain payload bytes. Who watches the wire sees sizes and times of TLS records, nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from hdcos import errors
from hdcos.errors import FrameError, HandshakeError, HdcosError, InputError, PeerLost
from hdcos.link import frame as frames
from hdcos.link.frame import HEADER_BYTES, MAX_ABORT, MAX_PAYLOAD, Buffer, Frame, Kind
from hdcos.link.meter import Meter

LINGER_S = 1.0
MOST_BYTES = 1 << 38
"""That a link carries either way, 275 GB: what AES-GCM should encrypt under one key (`link.tls`). No record is shorter
than its overhead, so this bounds their number too."""
WORN = 15 / 16
"""The part of it from which on those who can make a new link between two pieces of work do."""
_LINK: Any = object()  # "the link's own timeout"

Bytes = NDArray[np.uint8]


def _empty(size: int) -> Bytes:
    return np.empty(size, np.uint8)


class LostError(Exception):
    """The connection ended or broke. The text is a verb phrase: "closed the connection"."""


class GoodbyeError(LostError):
    """The peer closed on purpose and said so."""


class SilentError(Exception):
    """Nothing moved for as long as the caller was ready to wait."""


class Transport(Protocol):
    """What a Link needs from the bytes below it: an ordered stream in both directions, used by one thread at a time.

    Two transports exist: TLS over TCP, and memory for tests.

    `queue` takes what is to be sent, one buffer behind the other, and may send some of it; the buffers stay as they are
    until all is out. `read` waits for at least one byte, and for more where the peer has announced that all of `view`
    will come, and sends meanwhile; `flush` returns when everything queued was handed to the operating system. A broken
    direction never hides bytes that arrived before the break: the peer's last words are read first.
    """

    @property
    def sent(self) -> int:
        """Bytes handed to the operating system so far."""

    @property
    def received(self) -> int:
        """Bytes taken from the operating system and consumed so far."""

    @property
    def unread(self) -> int:
        """Bytes taken from the operating system that nobody has asked for yet."""

    def queue(self, buffers: Sequence[Any]) -> None: ...

    def read(self, view: memoryview, timeout_s: float | None, announced: bool = False) -> int: ...

    def flush(self, timeout_s: float | None) -> None: ...

    def close(self, linger_s: float = 0.0) -> None:
        """Stop. With a linger, first let the peer read what was sent (for at most that long)."""

    def interrupt(self) -> None:
        """End the stream from any thread; a read that waits finds it closed."""

    def os_counters(self) -> tuple[int, int] | None: ...


class Link:
    """A connection to one peer. It belongs to one thread at a time; `with link:` closes it."""

    def __init__(
        self, transport: Transport, peer: str, *, timeout_s: float | None = 30.0, meter: Meter | None = None
    ) -> None:
        self.peer = peer
        self.context = 0
        self.timeout_s = timeout_s
        self.meter = Meter() if meter is None else meter
        self._transport = transport
        self._frames_sent = self._frames_received = 0
        self._rounds = 0
        self._wire_sent = self._wire_received = 0
        self._ended: str | None = None
        with self.meter.section("setup"):
            self._charge((("tls", 0),), 0, 0, 0, 0.0)

    def exchange(
        self,
        buffers: Sequence[Any],
        steps: Sequence[tuple[str, int]] = (),
        worked_s: float = 0.0,
        allocate: Callable[[int], Bytes] = _empty,
    ) -> Bytes:
        """One round: send these bytes, and receive as many from the peer at the same time.

        `steps` says how the payload divides into named steps; without it the round is one step, "round". The seconds
        of local work that prepared the round, `worked_s`, are booked with it. What is received lies at the end of the
        memory that `allocate` gives.
        """
        if self._ended is not None:
            self._refuse()
        size = frames.payload_bytes(buffers)
        if not steps:
            steps = (("round", size),)
        elif (parts := sum([part for _, part in steps])) != size:
            raise InputError(f"steps account for {parts} of {size} payload bytes.")
        started = perf_counter()
        transport, timeout_s = self._transport, self.timeout_s
        whole, number = HEADER_BYTES + size, self._frames_sent
        answer = allocate(whole)
        view = answer.data
        header = frames.encode(Kind.ROUND, number, self.context, size)
        try:
            transport.queue((header, *buffers))
            self._frames_sent = number + 1
            got = transport.read(view, timeout_s)
            while got < HEADER_BYTES:
                got += transport.read(view[got:], timeout_s)
            if self._frames_received != number:
                header = frames.encode(Kind.ROUND, self._frames_received, self.context, size)
            if view[:HEADER_BYTES] != header:
                self._unexpected(view[:got], (Kind.ROUND,), size)
            self._frames_received += 1
            while got < whole:
                got += transport.read(view[got:], timeout_s, True)
            transport.flush(timeout_s)
        except BaseException as error:
            self._fail(error, f"waiting for round {self._rounds}")
        self._rounds += 1
        self._charge(steps, 1, size, size, perf_counter() - started + worked_s)
        return answer[HEADER_BYTES:]

    def send(self, kind: Kind, *buffers: Any, step: str | None = None) -> None:
        """Send one frame. Returns when the operating system has all of it."""
        if self._ended is not None:
            self._refuse()
        size = frames.payload_bytes(buffers)
        started = perf_counter()
        try:
            header = frames.encode(kind, self._frames_sent, self.context, size)
            self._transport.queue((header, *buffers))
            self._frames_sent += 1
            self._transport.flush(self.timeout_s)
        except BaseException as error:
            self._fail(error, f"sending a {kind.name} frame of {size} bytes")
        self._charge(((step or kind.name.lower(), size),), 0, size, 0, perf_counter() - started)

    def receive(
        self,
        kinds: Kind | Collection[Kind],
        expected_bytes: int | None = None,
        limit: int | None = None,
        timeout_s: float | None = _LINK,
        step: str | None = None,
        allocate: Callable[[int], Bytes] = _empty,
    ) -> tuple[Kind, Bytes]:
        """Wait for one frame of these kinds. `timeout_s=None` waits for its start forever (idle servers).

        What is received lies in the memory that `allocate` gives.
        """
        if self._ended is not None:
            self._refuse()
        wanted = (kinds,) if isinstance(kinds, Kind) else tuple(kinds)
        patience = self.timeout_s if timeout_s is _LINK else timeout_s
        started = perf_counter()
        try:
            view = memoryview(bytearray(HEADER_BYTES))
            got = self._transport.read(view, patience)
            if got < HEADER_BYTES:
                self._fill(view[got:])
            frame = frames.decode(view, MAX_PAYLOAD if limit is None else max(limit, MAX_ABORT))
            self._accept(frame, b"", wanted, expected_bytes)
            if limit is not None and frame.length > limit:
                raise FrameError(f"frame announces {frame.length} payload bytes, at most {limit} are allowed here.")
            payload = allocate(frame.length)
            self._fill(payload.data)
        except BaseException as error:
            names = " or ".join(kind.name for kind in wanted)
            self._fail(error, f"waiting for {names} frame {self._frames_received}", patience)
        named = step or frame.kind.name.lower()
        self._charge(((named, frame.length),), 0, 0, frame.length, perf_counter() - started)
        return frame.kind, payload

    def abort(self, error: BaseException) -> None:
        """Tell the peer why this side gives up, then close. Best effort: never raises."""
        if self._ended is None:
            name, message = frames.report(error)
            self._end(f"aborted: {name}", Kind.ABORT, frames.encode_abort(name, message))

    def close(self) -> None:
        """Say goodbye and close. Best effort: never raises."""
        if self._ended is None:
            self._end("closed on this side", Kind.BYE, b"")

    def cancel(self) -> None:
        """End a wait from another thread: the one that waits on this link gets PeerLost."""
        self._transport.interrupt()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort(error)

    @property
    def closed(self) -> bool:
        return self._ended is not None

    @property
    def worn(self) -> bool:
        """Whether it has carried nearly as much as one key should encrypt. After a round both ends say the same."""
        return max(self._wire_sent, self._wire_received) > WORN * MOST_BYTES

    def os_counters(self) -> tuple[int, int] | None:
        """Bytes sent and received on this socket as the kernel counts them, if it does."""
        return self._transport.os_counters()

    # ---- below: what the public methods share

    def _fill(self, view: memoryview) -> None:
        got, size = 0, len(view)
        while got < size:
            got += self._transport.read(view[got:], self.timeout_s, True)

    def _unexpected(self, head: memoryview, kinds: Collection[Kind], size: int) -> NoReturn:
        """The header is not the one a round must have: say why."""
        self._accept(frames.decode(head), head[HEADER_BYTES:], kinds, size)
        raise FrameError("frame header differs from the expected one.")

    def _accept(self, frame: Frame, start: Buffer, kinds: Collection[Kind], size: int | None) -> None:
        """Check a header; ABORT and BYE end the link. `start` is what was already read of the payload."""
        frames.check(frame, self._frames_received, self.context, kinds, size)
        if frame.kind is Kind.ABORT:
            raise self._verdict(frame, start)
        if frame.kind is Kind.BYE:
            raise GoodbyeError("said goodbye")
        self._frames_received += 1

    def _verdict(self, frame: Frame, start: Buffer) -> _RemoteError:
        """The error that the peer's ABORT frame reports."""
        if frame.length > MAX_ABORT:
            raise FrameError(f"ABORT frame announces {frame.length} bytes, at most {MAX_ABORT} are allowed.")
        payload = bytearray(frame.length)
        known = min(len(start), frame.length)
        payload[:known] = start[:known]
        self._fill(memoryview(payload)[known:])
        name, message = frames.decode_abort(payload)
        return _RemoteError(errors.remote(name, f"{self.peer}: {message}"))

    def _fail(self, error: BaseException, doing: str, patience: float | None = _LINK) -> NoReturn:
        """Turn anything that went wrong into the error the caller sees, and end the link."""
        if isinstance(error, LostError) and not isinstance(error, GoodbyeError):
            error = self._last_words(error)
        if isinstance(error, _RemoteError):
            self._end(str(error.error))
            raise error.error from None
        if isinstance(error, SilentError | LostError):
            if isinstance(error, SilentError):
                seconds = self.timeout_s if patience is _LINK or patience is None else patience
                text = f"no answer from {self.peer} within {seconds:g} s, {doing}."
            else:
                text = f"{self.peer} {error}, {doing}."
            self._end(text)
            raise PeerLost(text) from None
        if isinstance(error, FrameError | HandshakeError):
            known = type(error)(f"{self.peer}: {error}")
            self._end(str(known), Kind.ABORT, frames.encode_abort(type(error).__name__, str(error)))
            raise known from None
        self._end(f"interrupted by {type(error).__name__}")
        raise error

    def _last_words(self, lost: LostError) -> BaseException:
        """The connection broke while sending: an ABORT or TLS alert that arrived before explains it."""
        scratch = memoryview(bytearray(1 << 16))
        try:
            for _ in range(64):
                self._fill(scratch[:HEADER_BYTES])
                frame = frames.decode(scratch)
                if frame.kind is Kind.ABORT:
                    return self._verdict(frame, b"")
                for start in range(0, frame.length, len(scratch)):
                    self._fill(scratch[: min(len(scratch), frame.length - start)])
        except HandshakeError as refused:
            return refused
        except (LostError, SilentError, FrameError):
            pass
        return lost

    def _end(self, reason: str, kind: Kind | None = None, payload: bytes = b"") -> None:
        """Close the transport, with a last frame if the peer can still be told."""
        self._ended = reason
        transport = self._transport
        with contextlib.suppress(LostError, SilentError, HdcosError, OSError):
            if kind is not None:
                transport.flush(LINGER_S)
                header = frames.encode(kind, self._frames_sent, self.context, len(payload))
                transport.queue((header, payload))
                transport.flush(LINGER_S)
        with contextlib.suppress(OSError):
            transport.close(LINGER_S if kind is Kind.ABORT else 0.0)
        with self.meter.section("control"):
            self._charge((("close", 0),), 0, 0, 0, 0.0, transport.unread)

    def _refuse(self) -> NoReturn:
        raise PeerLost(f"link to {self.peer} is closed: {self._ended}")

    def _charge(
        self, steps: Sequence[tuple[str, int]], rounds: int, sent: int, received: int, seconds: float, extra: int = 0
    ) -> None:
        """Book everything since the last call."""
        transport = self._transport
        wire_sent, wire_received = transport.sent, transport.received + extra
        more_sent, more_received = wire_sent - self._wire_sent, wire_received - self._wire_received
        self._wire_sent, self._wire_received = wire_sent, wire_received
        self.meter.record(steps, rounds, sent, received, more_sent, more_received, seconds)
        if (wire_sent > MOST_BYTES or wire_received > MOST_BYTES) and self._ended is None:
            self._end("it has carried as much as one key should encrypt, and a new one has to be made", Kind.BYE)


class _RemoteError(Exception):
    """Carries the error that the peer reported."""

    def __init__(self, error: HdcosError) -> None:
        super().__init__(str(error))
        self.error = error
