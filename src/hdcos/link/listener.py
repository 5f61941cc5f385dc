"""Making links: wait for peers on a port, or connect to one.

A port that listens is found by scanners, crashed clients and people with the wrong certificate. None of them
may stop the next peer: connections negotiate side by side, each has `handshake_s` seconds, and those that fail
are refused and forgotten. `accept` raises only when its own time is up, and then says whom it refused and why.

Where several processes share a port, a `Doorman` accepts for all, and a listener takes its connections from there.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections import deque
from dataclasses import dataclass
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from hdcos.errors import FrameError, HandshakeError, PeerLost
from hdcos.link.base import Link, LostError
from hdcos.link.emulation import Emulation
from hdcos.link.identity import Identity
from hdcos.link.meter import Meter
from hdcos.link.tls import SPIN, TlsTransport
from hdcos.link.trust import Allowed, Trust, refuse_other_names

MAX_PENDING = 64
FAREWELL_S = 1.0
_HANDLE = struct.Struct("@i")


@dataclass
class _Visitor:
    """A connection that is not a link yet, or (refused) is being told why not."""

    sock: socket.socket
    transport: TlsTransport
    address: str
    deadline: float
    refused: bool = False


class Listener:
    """Accepts links from pinned peers. `allowed` says which certificate belongs to which name.

    It listens on a port, or takes connections from a socket: one that listens, or the channel of a doorman.
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
    ) -> None:
        identity.require_valid()
        self._trust = Trust(allowed)
        self._settings = self._trust.settings(identity, server=True)
        refuse_other_names(self._settings, identity)
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
                self._forget(late, "did not finish the TLS handshake in time")
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
                elif (name := self._advance(visitor)) is not None:
                    self._poll.unregister(visitor.sock)
                    del self._visitors[handle]
                    visitor.transport.emulate(self._emulation)
                    return Link(visitor.transport, name, timeout_s=self._link_timeout_s, meter=meter)

    def close(self) -> None:
        for visitor in self._visitors.values():
            visitor.sock.close()
        self._visitors.clear()
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
        try:
            transport = TlsTransport(sock, self._settings, server=True, spin=self._spin)
        except OSError:
            sock.close()
            return
        where = f"{address[0]}:{address[1]}"
        self._visitors[sock.fileno()] = _Visitor(sock, transport, where, monotonic() + self._handshake_s)
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

    def _advance(self, visitor: _Visitor) -> str | None:
        """One step of a visitor's TLS handshake; its name if that completed it."""
        try:
            if not visitor.transport.negotiate():
                return None
            return self._trust.find(visitor.transport.certificate())
        except LostError as lost:
            self._forget(visitor, str(lost))
        except (HandshakeError, FrameError) as error:
            self.refused.append(f"{visitor.address}: {error}")
            visitor.refused, visitor.deadline = True, monotonic() + FAREWELL_S
            with contextlib.suppress(OSError):  # closing with unread bytes would destroy the alert on its way
                visitor.sock.shutdown(socket.SHUT_WR)
        return None

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
        self._poll.unregister(visitor.sock)
        del self._visitors[visitor.sock.fileno()]
        visitor.sock.close()

    def _give_up(self, timeout_s: float | None) -> None:
        where = "through the doorman" if self._from_doorman else f"to port {self.port}"
        text = f"no peer connected {where} within {timeout_s:g} s."
        if self.refused:
            raise HandshakeError(f"{text} Refused meanwhile: {self.refused[-1]}")
        raise PeerLost(text)


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
) -> Link:
    """A link to the peer at this address, which must own an allowed certificate.

    What routes connections there is told `server_name`; without one, the name of the worker if just one is allowed.

    A refused connection is tried again until the time is up: nodes start in any order. In TLS 1.3 this side
    is done before the peer has looked at our certificate; if it refuses it, the first receive (the hello)
    says so.
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
                transport = TlsTransport(sock, settings, server=False, spin=spin, server_name=asked)
                _negotiate(transport, sock, deadline)
                name = trust.find(transport.certificate())
            except BaseException:
                sock.close()
                raise
            transport.emulate(emulation)
            return Link(transport, name, timeout_s=link_timeout_s, meter=meter)
        except (OSError, LostError) as error:
            if not reason or monotonic() < deadline:  # an attempt that was cut short says less than the one before it
                reason = str(error) if isinstance(error, LostError) else f"is out of reach ({error.strerror or error})"
        except (HandshakeError, FrameError) as error:
            raise type(error)(f"{host}:{port}: {error}") from None
        if not retry or monotonic() + pause >= deadline:
            reason += f" ({asked} was asked for)" if asked else ""
            raise PeerLost(f"{host}:{port} {reason}, gave up after {timeout_s:g} s. Is the node running there?")
        sleep(pause)
        pause = min(2 * pause, 0.5)


def _negotiate(transport: TlsTransport, sock: socket.socket, deadline: float) -> None:
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    while not transport.negotiate():
        if (left := deadline - monotonic()) <= 0:
            raise LostError("did not finish the TLS handshake in time")
        waiting.poll(left * 1e3 + 1)
