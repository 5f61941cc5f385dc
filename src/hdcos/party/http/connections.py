"""Connections of clients: how many there may be, and who gives way when more come.

A stranger takes a descriptor without a token, and could keep it for as long as it likes. So handshakes and heads of
requests have a few seconds, and connections are counted, in all and by address. At a limit the one that has been idle
for longest gives way to the newcomer, strangers before clients whose token is known. If all of them are at work, the
newcomer is told so. Descriptors for the parties' links, the database and files are never given to clients.
"""

from __future__ import annotations

import errno
import ipaddress
import resource
import socket
import time
from asyncio import AbstractEventLoop, Protocol, Task
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ssl import SSLContext

MOST = 4096
KEPT = 112
"""Descriptors that are not for clients: handshakes at the port for nodes (64), links, database, files, event loop."""
SURPLUS = 16
"""Connections above the limit, only to be told that there are too many."""
HANDSHAKE_S, GOODBYE_S = 8.0, 2.0
AT_ONCE, PAUSE_S = 16, 0.05


def descriptors() -> int:
    """How many this process may have; its limit is raised as far as it makes sense and the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + KEPT + SURPLUS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft


class Connection:
    """A descriptor that somebody at an address holds."""

    def __init__(self, group: str, abort: Callable[[], None], crowded: bool) -> None:
        self.group, self.abort, self.crowded = group, abort, crowded
        self.busy = self.known = False
        """Whether a request is being answered, and whether one came with a token that is known here."""
        self.idle_since = time.monotonic()

    def rest(self) -> None:
        """A request has been answered."""
        self.busy, self.idle_since = False, time.monotonic()


class Connections:
    """Who is connected."""

    def __init__(self, limit: int) -> None:
        self.most = max(SURPLUS, min(MOST, limit - min(KEPT, limit // 2) - SURPLUS))
        self.most_of_one = max(1, self.most // 2)
        """From one address: the others have as many."""
        self.refused = 0
        self._open: set[Connection] = set()
        self._count: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, address: str, abort: Callable[[], None]) -> Connection | None:
        """Count a newcomer in, whatever must give way for it; None if it cannot even be told that it has no place."""
        group, crowded = _group(address), False
        if self._count[group] >= self.most_of_one:
            crowded = not self._evict(group)
        elif len(self._open) >= self.most:
            crowded = not self._evict()
        self.refused += crowded
        if crowded and len(self._open) >= self.most + SURPLUS:
            return None
        made = Connection(group, abort, crowded)
        self._open.add(made)
        self._count[group] += 1
        return made

    def release(self, connection: Connection) -> None:
        """It is closed; may be said more than once."""
        if connection in self._open:
            self._open.discard(connection)
            self._count[connection.group] -= 1
            if not self._count[connection.group]:
                del self._count[connection.group]

    def _evict(self, group: str | None = None) -> bool:
        """Close the connection, of an address or of all, that has been idle for longest. False if none is idle."""
        idle = [one for one in self._open if not one.busy and not one.crowded and group in (None, one.group)]
        if not idle:
            return False
        oldest = min(idle, key=lambda one: (one.known, one.idle_since))
        self.release(oldest)
        oldest.abort()
        return True


def _group(address: str) -> str:
    """Addresses that count as one: those of IPv6 that somebody gets at once."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return address


class Acceptor:
    """Takes connections from a listening socket, and has TLS begin on those that are admitted."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        tls: SSLContext,
        connections: Connections,
        protocol: Callable[[Connection], Protocol],
    ) -> None:
        self._loop, self._sock, self._tls = loop, sock, tls
        self._connections, self._protocol = connections, protocol
        self._handshakes: set[Task[None]] = set()
        sock.setblocking(False)
        loop.add_reader(sock, self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, ConnectionError):  # no more of them, or one that is gone already
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._pause()
                return
            connection = self._connections.admit(address[0], partial(_shut, sock))
            if connection is None:
                sock.close()
                continue
            task = self._loop.create_task(self._greet(sock, connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _pause(self) -> None:
        """Out of descriptors in spite of everything: those that come wait a moment in the system's queue."""
        self._loop.remove_reader(self._sock)
        self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._accept)

    async def _greet(self, sock: socket.socket, connection: Connection) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(connection),
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=GOODBYE_S,
            )
        except OSError:  # a handshake that failed or took too long is the visitor's own affair
            self._connections.release(connection)
            sock.close()


def _shut(sock: socket.socket) -> None:
    """End a connection whose handshake is under way: the event loop notices and closes it."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
