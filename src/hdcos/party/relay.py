"""Connections for a worker on another machine, carried there from the party's one public port, byte by byte.

Where a proxy in front of the party routes names to machines this is not used. The bytes are TLS between the two ends:
what stands in between sees sizes and times. They go from socket to socket inside the kernel.

Anybody may ask the public port for a worker's name. So a relay carries MOST connections at a time; a worker lets go of
callers that do not prove who they are within some seconds, and those that have not been there for as long make room for
newer ones. Links are silent while there is nothing to do and are left alone, but an end that is gone is noticed, by
keep-alives, and a connection that has ended in one direction ends in the other soon.
"""

from __future__ import annotations

import contextlib
import os
import socket
from threading import Event, Lock, Thread
from time import monotonic

from hdcos.link import Doorman
from hdcos.link.tls import keep_alive
from hdcos.party.launcher import Address

CONNECT_S = 5.0
PIECE = 1 << 20
MOST, PROVEN_S, LAST_S = 64, 10.0, 4.0
"""Connections at a time; how old one is whose caller has proven who it is, since the worker ends others after five
seconds (`link.Listener`); and how long one direction is waited for after the other has ended."""


class Relay:
    """Carries those who ask for a name to an address, until it is closed."""

    def __init__(self, doorman: Doorman, name: str, address: Address) -> None:
        self._doorman, self._address = doorman, address
        self._channel = doorman.serve(name)
        self._carried: dict[socket.socket, float] = {}
        """Those who called, and when; the oldest first."""
        self._lock = Lock()
        Thread(target=self._run, name=f"relay {name}", daemon=True).start()

    def __len__(self) -> int:
        return len(self._carried)

    def close(self) -> None:
        """Carry nobody else; connections that are there stay."""
        self._doorman.forget(self._channel)

    def _run(self) -> None:
        with self._channel as channel:
            while True:
                said, handles, _, _ = socket.recv_fds(channel, 1, 1)
                if not said:
                    return
                for handle in handles:
                    caller = socket.socket(fileno=handle)
                    if self._admit(caller):
                        Thread(target=self._carry, args=(caller,), daemon=True).start()
                    else:
                        caller.close()

    def _admit(self, caller: socket.socket) -> bool:
        """Whether there is room for one more: the oldest of those that may be anybody goes first."""
        with self._lock:
            if len(self._carried) >= MOST:
                unproven = [sock for sock, since in self._carried.items() if monotonic() - since < PROVEN_S]
                if not unproven:
                    return False
                del self._carried[unproven[0]]
                _end(unproven[0])
            self._carried[caller] = monotonic()
            return True

    def _carry(self, caller: socket.socket) -> None:
        # If the worker is not reached, the caller tries again.
        with contextlib.suppress(OSError), caller, socket.create_connection(self._address, CONNECT_S) as worker:
            _carry_both_ways(caller, worker)
        with self._lock:
            self._carried.pop(caller, None)


def _carry_both_ways(caller: socket.socket, worker: socket.socket) -> None:
    for sock in (caller, worker):
        sock.setblocking(True)
        keep_alive(sock)
    ended = Event()
    ways = [Thread(target=_pour, args=(*way, ended), daemon=True) for way in ((caller, worker), (worker, caller))]
    for way in ways:
        way.start()
    ended.wait()
    for way in ways:
        way.join(LAST_S)
    for sock in (caller, worker):
        _end(sock)
    for way in ways:
        way.join()


def _end(sock: socket.socket) -> None:
    """End what is read from and written to a socket; its own thread closes it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _pour(source: socket.socket, target: socket.socket, ended: Event) -> None:
    """Everything that comes, and then that nothing more comes."""
    read, write = os.pipe()
    with contextlib.suppress(OSError):  # one of the two is gone: the other is told below
        while size := os.splice(source.fileno(), write, PIECE):
            while size:
                size -= os.splice(read, target.fileno(), size)
    for handle in (read, write):
        os.close(handle)
    for sock, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            sock.shutdown(how)
    ended.set()
