"""One public port, many workers: each connection goes to the process that serves the name it asks for.

accept() cannot choose, so one thread accepts for all. It looks at the ClientHello without taking it from the socket
(MSG_PEEK) and hands the socket itself, untouched, over a Unix socket to the process whose `Listener` serves that name.
From then on nothing stands between the two ends: a worker's rounds cost what they cost without a doorman.

    doorman = Doorman(listening_socket)
    own = Listener(identity, allowed, sock=doorman.serve("party0", ""))    # with its name, or with none
    with doorman.serve("w1.party0") as channel:
        Popen([...], pass_fds=[channel.fileno()])    # there: Listener(worker, allowed, sock=socket.socket(fileno=...))

A port that listens is found by scanners and by clients that hang. Callers have `hello_s` seconds to say what they want,
side by side, and MAX_PENDING of them wait at a time: one more, and the oldest of the address with the most has to go.
A name that nobody serves is answered by the alert of TLS for that, which `connect` takes for "not yet".

Security  the doorman sees what an eavesdropper sees: addresses and names. It has no worker's key. Were it to hand a
          connection to the wrong worker, the two ends would see each other's certificates and refuse.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import Counter, deque
from dataclasses import dataclass
from threading import Lock, Thread
from time import monotonic, sleep
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from hdcos.errors import InputError
from hdcos.link.client_hello import MAX_HELLO_BYTES, MalformedError, read_server_name
from hdcos.link.listener import MAX_PENDING

CHANNEL_BYTES = 1 << 14
"""What the kernel keeps for a worker that takes no connections: about 40 of them."""
_UNRECOGNIZED_NAME = bytes([21, 3, 3, 0, 2, 2, 112])  # an alert record: fatal, unrecognized_name


@dataclass
class _Caller:
    """A connection that has not said yet whom it wants."""

    sock: socket.socket
    host: str
    port: int
    deadline: float


class Doorman:
    """Owns a listening socket, from the beginning to `close`."""

    def __init__(self, sock: socket.socket, hello_s: float = 5.0) -> None:
        self.refused: deque[str] = deque(maxlen=100)
        self.counts: Counter[str] = Counter()
        """Connections by what became of them: handed, malformed, slow, gone, crowded out, unknown, busy."""
        self._sock, self._hello_s = sock, hello_s
        sock.setblocking(False)
        self._callers: dict[int, _Caller] = {}
        self._channels: dict[str, socket.socket] = {}
        self._ends: WeakKeyDictionary[socket.socket, socket.socket] = WeakKeyDictionary()
        """This end of each channel, by the one that was given away."""
        self._lock = Lock()
        self._closing = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(sock, select.EPOLLIN)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._thread = Thread(target=self._run, name="doorman", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    @property
    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._channels)

    def serve(self, *names: str) -> socket.socket:
        """A new channel on which connections that ask for one of these names arrive: the `sock` of a Listener, here or
        in another process. A process to which it is given is the only one to keep it, or its end is not noticed."""
        if not names:
            raise InputError('a doorman serves at least one name; "" is for callers that give none.')
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)  # send_fds does not heed its flags in Python 3.11
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHANNEL_BYTES)
        with self._lock:
            self._ends[theirs] = mine
            for name in names:
                self._replace(name.lower(), mine)
        return theirs

    def forget(self, channel: socket.socket) -> None:
        """Send nobody to a channel any more, which may be closed here by now. A name that has a newer one keeps that,
        and connections that were handed over stay."""
        with self._lock:
            self._drop(self._ends.pop(channel, None))

    def close(self) -> None:
        """Listen no longer. Connections that were handed over stay."""
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        for caller in self._callers.values():
            caller.sock.close()
        with self._lock:
            for channel in set(self._channels.values()):
                self._drop(channel)
        self._epoll.close()
        os.close(self._wake)
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _replace(self, name: str, channel: socket.socket | None) -> None:
        before = self._channels.pop(name, None)
        if channel is not None:
            self._channels[name] = channel
        if before is not None and before not in self._channels.values():
            before.close()

    def _drop(self, channel: socket.socket | None) -> None:
        for name in [name for name, known in self._channels.items() if known is channel]:
            self._replace(name, None)

    def _run(self) -> None:
        while not self._closing:
            now = monotonic()
            for late in [caller for caller in self._callers.values() if caller.deadline <= now]:
                self._refuse(late, "slow", f"did not say within {self._hello_s:g} s what it wants")
            first = min((caller.deadline for caller in self._callers.values()), default=None)
            for handle, events in self._epoll.poll(None if first is None else max(0.0, first - monotonic())):
                if handle == self._sock.fileno():
                    self._admit()
                elif (caller := self._callers.get(handle)) is not None:
                    self._look(caller, bool(events & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)))

    def _admit(self) -> None:
        try:
            sock, address = self._sock.accept()
        except OSError:  # gone before it was accepted, or out of file descriptors
            sleep(0.001)
            return
        if len(self._callers) >= MAX_PENDING:
            ((crowd, _),) = Counter(caller.host for caller in self._callers.values()).most_common(1)
            oldest = next(caller for caller in self._callers.values() if caller.host == crowd)
            self._refuse(oldest, "crowded out", "made room for a newer connection")
        try:
            # Edge-triggered: what was looked at in vain stays in the socket, and is no news until more arrives.
            self._epoll.register(sock, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        except OSError:  # the system watches no more sockets for this user
            sock.close()
            return
        self._callers[sock.fileno()] = _Caller(sock, address[0], address[1], monotonic() + self._hello_s)

    def _look(self, caller: _Caller, ended: bool) -> None:
        try:
            name = read_server_name(caller.sock.recv(MAX_HELLO_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:  # nothing there yet, or a connection that broke: its events say which
            name = None
        except MalformedError as error:
            self._refuse(caller, "malformed", f"sent {error}")
            return
        if name is not None:
            self._hand_over(caller, name)
        elif ended:
            self._refuse(caller, "gone", "went away before it said what it wants")

    def _hand_over(self, caller: _Caller, name: str) -> None:
        try:
            served = self._send(caller.sock, name)
        except OSError:
            self._refuse(caller, "busy", f"asks for {name or 'no name'}, which takes no connections at the moment")
            return
        if not served:
            with contextlib.suppress(OSError):
                caller.sock.recv(MAX_HELLO_BYTES, socket.MSG_DONTWAIT)  # left there, they would destroy the alert
                caller.sock.send(_UNRECOGNIZED_NAME, socket.MSG_DONTWAIT)
            self._refuse(caller, "unknown", f"asks for {name or 'no name'}, which nobody serves")
            return
        self.counts["handed"] += 1
        self._release(caller)

    def _send(self, sock: socket.socket, name: str) -> bool:
        """Send a socket to where the name is served, if it is. OSError if no more fit into the channel."""
        with self._lock:
            if (channel := self._channels.get(name)) is None:
                return False
            try:
                socket.send_fds(channel, [b"\0"], [sock.fileno()])
            except ConnectionError:  # the process at the other end is gone
                self._replace(name, None)
                return False
            return True

    def _refuse(self, caller: _Caller, kind: str, reason: str) -> None:
        self.counts[kind] += 1
        self.refused.append(f"{caller.host}:{caller.port} {reason}")
        self._release(caller)

    def _release(self, caller: _Caller) -> None:
        """Let go of a socket, which may live on elsewhere: closing alone would leave it in the epoll then."""
        self._epoll.unregister(caller.sock)
        del self._callers[caller.sock.fileno()]
        caller.sock.close()
