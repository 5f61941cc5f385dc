"""Connections for a worker on another machine, carried there from the party's one public port, byte by byte.

Where a proxy in front of the party routes names to machines this is not used. The bytes are TLS between the two ends:
what stands in between sees sizes and times. They go from socket to socket inside the kernel.
"""

from __future__ import annotations

import contextlib
import os
import socket
from threading import Thread

from hdcos.link import Doorman
from hdcos.party.launcher import Address

CONNECT_S = 5.0
PIECE = 1 << 20


class Relay:
    """Carries those who ask for a name to an address, until it is closed."""

    def __init__(self, doorman: Doorman, name: str, address: Address) -> None:
        self._doorman, self._name, self._address = doorman, name, address
        self._channel = doorman.serve(name)
        Thread(target=self._run, name=f"relay {name}", daemon=True).start()

    def close(self) -> None:
        """Carry nobody else; connections that are there stay."""
        self._doorman.forget(self._name)

    def _run(self) -> None:
        with self._channel as channel:
            while True:
                said, handles, _, _ = socket.recv_fds(channel, 1, 1)
                if not said:
                    return
                for handle in handles:
                    Thread(target=self._carry, args=(socket.socket(fileno=handle),), daemon=True).start()

    def _carry(self, caller: socket.socket) -> None:
        try:
            worker = socket.create_connection(self._address, CONNECT_S)
        except OSError:  # the caller tries again
            caller.close()
            return
        for sock in (caller, worker):
            sock.setblocking(True)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = Thread(target=_pour, args=(worker, caller), daemon=True)
        back.start()
        _pour(caller, worker)
        back.join()
        caller.close()
        worker.close()


def _pour(source: socket.socket, target: socket.socket) -> None:
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
