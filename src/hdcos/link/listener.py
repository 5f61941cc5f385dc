"""Making links, and their lanes: wait for peers on a port, or connect to one.

A port that listens is found by scanners, crashed clients and people with the wrong certificate. None of them
may stop the next peer: connections negotiate side by side, each has `handshake_s` seconds, and those that fail
are refused and forgotten. `accept` raises only when its own time is up, and then says whom it refused and why.

Where several processes share a port, a `Doorman` accepts for all, and a listener takes its connections from there.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import struct
from collections import deque
from dataclasses import dataclass
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from hdcos.errors import FrameError, HandshakeError, PeerLost
from hdcos.link.base import Link
from hdcos.link.binding import LANE, SECRET_BYTES, Bond, Connection, agreed, close_all, hear, protocols, say
from hdcos.link.certificate import Certificate
from hdcos.link.client_hello import MAX_HELLO_BYTES, MalformedError, read_protocols
from hdcos.link.emulation import Emulation
from hdcos.link.identity import Identity
from hdcos.link.meter import Meter
from hdcos.link.tls import SPIN, TlsTransport, explain_break
from hdcos.link.tls_socket import TlsSocket
from hdcos.link.transport import LostError, SilentError
from hdcos.link.trust import Allowed, Trust, refuse_other_names

MAX_PENDING = 64
FAREWELL_S = 1.0
LANES_S = 5.0
WORD_S = 1.0
"""For all lanes of a link, and for a few bytes that any socket takes at once."""
LANE_BYTES = SECRET_BYTES + 1
_HANDLE = struct.Struct("@i")

log = logging.getLogger("hdcos")


@dataclass
class _Visitor:
    """A connection that is not a link yet, or (refused) is being told why not."""

    sock: socket.socket
    address: str
    deadline: float
    transport: Connection | None = None
    """From its first bytes on."""
    refused: bool = False
    name: str = ""
    """Whose certificate it has proven to own, once it has."""
    certificate: Certificate | None = None
    words: bytes = b""
    """What it said since."""
    bond: Bond | None = None
    """Of a link that is to have lanes: those that have come."""

    @property
    def overdue(self) -> str:
        if not self.name:
            return "did not finish the TLS handshake in time"
        return "did not say in time what it is a lane of" if self.bond is None else "did not make its lanes in time"


class Listener:
    """Accepts links from pinned peers. `allowed` says which certificate belongs to which name.

    It listens on a port, or takes connections from a socket: one that listens, or the channel of a doorman. A link gets
    as many lanes as both sides offer; `accept` waits for them, and for others meanwhile.
    """

    def __init__(
        self,
        identity: Identity,
        allowed: Allowed,
        host: str = "127.0.0.1",
        port: int = 0,
        sock: socket.socket | None = None,
        *,
        link_timeout_s: float | None = 30.0,
        handshake_s: float = 5.0,
        emulation: Emulation | None = None,
        spin: int = SPIN,
        lanes: int = 0,
    ) -> None:
        identity.require_valid()
        self._trust = Trust(allowed)
        self._settings = self._trust.settings(identity, server=True)
        refuse_other_names(self._settings, identity)
        self._lanes = 0 if emulation else lanes
        if self._lanes:
            self._settings.set_alpn_protocols([LANE, *protocols(lanes)])
        self.refused: deque[str] = deque(maxlen=100)
        self._link_timeout_s, self._handshake_s = link_timeout_s, handshake_s
        self._emulation, self._spin = emulation, spin
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sock = socket.create_server((host, port), family=family) if sock is None else sock
        self._sock.setblocking(False)
        self._from_doorman = self._sock.family == socket.AF_UNIX
        self._visitors: dict[int, _Visitor] = {}
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def accept(self, timeout_s: float | None = 30.0, meter: Meter | None = None) -> Link:
        """The next peer that proves to own an allowed certificate. `link.peer` is its name in the mapping."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while True:
            now = monotonic()
            for late in [v for v in self._visitors.values() if v.deadline <= now]:
                self._forget(late, late.overdue)
            if deadline is not None and now >= deadline:
                self._give_up(timeout_s)
            limits = [v.deadline for v in self._visitors.values()] + ([] if deadline is None else [deadline])
            wait = max(0.0, min(limits) - now) * 1e3 + 1 if limits else None
            for handle, _ in self._poll.poll(wait):
                if handle == self._sock.fileno():
                    self._admit()
                elif (visitor := self._visitors.get(handle)) is None:
                    continue  # made room for a newer one
                elif visitor.refused:
                    self._farewell(visitor)
                elif (made := self._advance(visitor)) is not None:
                    self._release(made)
                    assert isinstance(made.transport, TlsTransport)
                    made.transport.emulate(self._emulation)
                    lanes = [] if made.bond is None else made.bond.lanes
                    return Link(made.transport, made.name, timeout_s=self._link_timeout_s, meter=meter, lanes=lanes)

    def close(self) -> None:
        for visitor in list(self._visitors.values()):
            self._forget(visitor, None)
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _admit(self) -> None:
        try:
            sock, address = self._receive() if self._from_doorman else self._sock.accept()
        except PeerLost:
            raise
        except OSError:  # gone before it was accepted, or out of file descriptors
            sleep(0.001)
            return
        if len(self._visitors) >= MAX_PENDING:
            self._forget(min(self._visitors.values(), key=lambda v: v.deadline), "made room for a newer connection")
        where = f"{address[0]}:{address[1]}"
        self._visitors[sock.fileno()] = _Visitor(sock, where, monotonic() + self._handshake_s)
        self._poll.register(sock, select.POLLIN)

    def _receive(self) -> tuple[socket.socket, tuple[str, int]]:
        """The next connection from the doorman."""
        # Not recv_fds: it does not heed its flags in Python 3.11, and children would inherit what it receives.
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        message, extra, _, _ = self._sock.recvmsg(1, socket.CMSG_LEN(_HANDLE.size), flags)
        if not message:
            raise PeerLost("the process that has the public port is gone. Start the node again.")
        if not extra:
            raise OSError("out of file descriptors")
        sock = socket.socket(fileno=_HANDLE.unpack(extra[0][2])[0])
        try:
            return sock, sock.getpeername()
        except OSError:
            sock.close()
            raise

    def _advance(self, visitor: _Visitor) -> _Visitor | None:
        """One step towards a link: the visitor whose link that completed, if it did."""
        try:
            transport = visitor.transport = visitor.transport or self._begin(visitor)
            if not visitor.name:
                if not transport.negotiate():
                    return None
                visitor.certificate = transport.certificate()
                visitor.name = self._trust.find(visitor.certificate)
                protocol = transport.protocol
                if protocol is None:
                    return visitor
                visitor.deadline = monotonic() + self._handshake_s
                if protocol != LANE:
                    visitor.bond = Bond(agreed(protocol))
                    say(transport, visitor.bond.secret, WORD_S)
            if visitor.bond is None:
                return self._hear(visitor, transport)
            return self._hear_answer(visitor, visitor.bond, transport)
        except (LostError, SilentError) as lost:
            self._forget(visitor, str(lost) or "takes nothing")
        except (HandshakeError, FrameError) as error:
            self.refused.append(f"{visitor.address}: {error}")
            visitor.refused, visitor.deadline = True, monotonic() + FAREWELL_S
            with contextlib.suppress(OSError):  # closing with unread bytes would destroy the alert on its way
                visitor.sock.shutdown(socket.SHUT_WR)
        return None

    def _begin(self, visitor: _Visitor) -> Connection:
        """TLS for a connection that has said something: of the kind for lanes, if it is seen to be one."""
        try:
            if self._lanes and _is_lane(visitor.sock):
                made = TlsSocket(visitor.sock, self._settings, server=True)
                visitor.sock = made.socket
                return made
            return TlsTransport(visitor.sock, self._settings, server=True, spin=self._spin)
        except OSError as error:
            raise LostError(explain_break(error)) from None

    def _hear(self, lane: _Visitor, transport: Connection) -> _Visitor | None:
        """What a lane says: the link that it belongs to, if it was its last."""
        while (missing := LANE_BYTES - len(lane.words)) > 0:  # what is left of it in memory wakes nobody
            if not (more := transport.read_now(missing)):
                return None
            lane.words += more
        secret, number = lane.words[:-1], lane.words[-1]
        same = [v for v in self._visitors.values() if v.bond is not None and v.certificate == lane.certificate]
        found = [visitor for visitor in same if visitor.bond is not None and visitor.bond.knows(secret)]
        if not found or found[0].refused:
            raise HandshakeError(f"{lane.name} brings a lane of no link that is being made here.")
        (main,) = found
        assert main.bond is not None
        main.bond.add(number, transport)
        transport.spin = 0
        self._release(lane)
        try:
            return self._complete(main, main.bond)
        except (LostError, SilentError) as lost:
            self._forget(main, str(lost) or "takes nothing")
            return None

    def _hear_answer(self, main: _Visitor, bond: Bond, transport: Connection) -> _Visitor | None:
        """What the main connection says: its link, if its lanes are all there."""
        while word := transport.read_now(1):
            if bond.answered:
                raise HandshakeError(f"{main.name} speaks before it has its lanes.")
            bond.answer(word[0])
        return self._complete(main, bond)

    def _complete(self, main: _Visitor, bond: Bond) -> _Visitor | None:
        if not bond.complete:
            return None
        assert main.transport is not None
        say(main.transport, bytes([len(bond.lanes)]), WORD_S)
        return main

    def _farewell(self, visitor: _Visitor) -> None:
        try:
            if visitor.sock.recv(1 << 16):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._forget(visitor, None)

    def _forget(self, visitor: _Visitor, reason: str | None) -> None:
        if reason is not None and not visitor.refused:
            self.refused.append(f"{visitor.address} {reason}")
        self._release(visitor)
        if visitor.bond is not None:
            visitor.bond.close()
        visitor.sock.close()

    def _release(self, visitor: _Visitor) -> None:
        self._poll.unregister(visitor.sock)
        del self._visitors[visitor.sock.fileno()]

    def _give_up(self, timeout_s: float | None) -> None:
        where = "through the doorman" if self._from_doorman else f"to port {self.port}"
        text = f"no peer connected {where} within {timeout_s:g} s."
        if self.refused:
            raise HandshakeError(f"{text} Refused meanwhile: {self.refused[-1]}")
        raise PeerLost(text)


def _is_lane(sock: socket.socket) -> bool:
    """Whether a caller says at once, before anything is taken from its socket, that it is a lane."""
    try:
        return LANE.encode() in read_protocols(sock.recv(MAX_HELLO_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except MalformedError:
        return False  # TLS will say what is wrong


def connect(
    identity: Identity,
    allowed: Allowed,
    host: str,
    port: int,
    timeout_s: float = 30.0,
    retry: bool = True,
    *,
    link_timeout_s: float | None = 30.0,
    emulation: Emulation | None = None,
    meter: Meter | None = None,
    spin: int = SPIN,
    server_name: str = "",
    lanes: int = 0,
) -> Link:
    """A link to the peer at this address, which must own an allowed certificate.

    What routes connections there is told `server_name`; without one, the name of the worker if just one is allowed.

    A refused connection is tried again until the time is up: nodes start in any order. In TLS 1.3 this side
    is done before the peer has looked at our certificate; if it refuses it, the first receive (the hello)
    says so. It gets as many lanes as both sides offer; where they cannot be made, it has none.
    """
    identity.require_valid()
    trust = Trust(allowed)
    settings, asked = trust.settings(identity, server=False), server_name or trust.only_name
    deadline, pause, reason = monotonic() + timeout_s, 0.01, ""
    while True:
        left = deadline - monotonic()
        try:
            sock = socket.create_connection((host, port), timeout=max(left, 0.001))
            try:
                offered = [] if emulation is not None else protocols(lanes)
                if offered:
                    settings.set_alpn_protocols(offered)
                transport = TlsTransport(sock, settings, server=False, spin=spin, server_name=asked)
                _negotiate(transport, sock, deadline)
                name = trust.find(transport.certificate())
                number = agreed(transport.protocol) if transport.protocol in offered else 0
                made = _make_lanes(transport, sock, settings, asked, number, deadline) if number else []
            except BaseException:
                sock.close()
                raise
            transport.emulate(emulation)
            return Link(transport, name, timeout_s=link_timeout_s, meter=meter, lanes=made)
        except (OSError, LostError, SilentError) as error:
            if not reason or monotonic() < deadline:  # an attempt that was cut short says less than the one before it
                reason = _explain(error)
        except (HandshakeError, FrameError) as error:
            raise type(error)(f"{host}:{port}: {error}") from None
        if not retry or monotonic() + pause >= deadline:
            reason += f" ({asked} was asked for)" if asked else ""
            raise PeerLost(f"{host}:{port} {reason}, gave up after {timeout_s:g} s. Is the node running there?")
        sleep(pause)
        pause = min(2 * pause, 0.5)


def _make_lanes(
    main: TlsTransport, sock: socket.socket, settings: ssl.SSLContext, asked: str, number: int, deadline: float
) -> list[Connection]:
    """This many lanes to where the main connection goes; none if one of them cannot be made."""
    secret = hear(main, SECRET_BYTES, _left(deadline))
    certificate, address = main.certificate(), sock.getpeername()
    settings.set_alpn_protocols([LANE])
    limit = min(deadline, monotonic() + LANES_S)
    made: list[Connection] = []
    try:
        try:
            for index in range(1, number + 1):
                made.append(_make_lane(address, settings, asked, limit))
                if made[-1].certificate() != certificate or made[-1].protocol != LANE:
                    raise HandshakeError("it leads to another node")
                say(made[-1], secret + bytes([index]), _left(limit))
        except (OSError, LostError, SilentError, HandshakeError, FrameError) as error:
            log.warning("a link to %s:%d goes without lanes: lane %d %s", *address[:2], index, _explain(error))
            close_all(made)
            made.clear()
        say(main, bytes([len(made)]), _left(deadline))
        if hear(main, 1, _left(deadline))[0] != len(made):
            raise HandshakeError("the peer says that the link has another number of lanes")
    except BaseException:
        close_all(made)
        raise
    return made


def _make_lane(address: tuple[str, int], settings: ssl.SSLContext, asked: str, limit: float) -> TlsSocket:
    sock = socket.create_connection(address[:2], timeout=_left(limit))
    try:
        transport = TlsSocket(sock, settings, server=False, server_name=asked)
    except BaseException:
        sock.close()
        raise
    try:
        _negotiate(transport, transport.socket, limit)
    except BaseException:
        transport.close()
        raise
    return transport


def _left(deadline: float) -> float:
    return max(0.001, deadline - monotonic())


def _explain(error: Exception) -> str:
    if isinstance(error, SilentError):
        return "says nothing"
    return f"is out of reach ({error.strerror or error})" if isinstance(error, OSError) else str(error)


def _negotiate(transport: Connection, sock: socket.socket, deadline: float) -> None:
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    while not transport.negotiate():
        if (left := deadline - monotonic()) <= 0:
            raise LostError("did not finish the TLS handshake in time")
        waiting.poll(left * 1e3 + 1)
