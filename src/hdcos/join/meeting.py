"""How two owners reach each other: one listens and the other connects, or both meet at a party.

Either way they talk over mutual TLS 1.3 from owner to owner, each with a key of its own and the other's certificate,
which they exchanged before and pinned. Through a party, the bytes of that TLS connection travel as messages of a
meeting (`hdcos.party.http.meetings`): a tunnel moves them between the party and a port of this machine, where the TLS
connection begins or ends.

Security  a party that serves as meeting point sees records of TLS between the owners, in messages filled up to one of
          three sizes: who meets whom and when, and how much they say, which depends on the rounded numbers of their
          ids alone (`hdcos.join.matching`). It holds neither owner's key, so it can read nothing, change nothing and
          pass for nobody; it can only break the meeting off. On the owner's own machine another user could connect to
          the tunnel's port: it owns no pinned certificate.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Protocol, TypeVar
from urllib.parse import quote

from hdcos.cluster.transport import RetryableError
from hdcos.errors import DataMissing, HandshakeError, HdcosError, PeerLost
from hdcos.link import Certificate, Identity, Link, Listener, connect
from hdcos.link.cluster_file import endpoint, listening

WAIT_S, TIMEOUT_S = 600.0, 120.0
"""How long the other owner may take to come, and then to answer."""
HANDSHAKE_S = 60.0
SIZES = (1 << 16, 1 << 18, 1 << 20)
"""Of messages at a meeting point, in bytes."""
LENGTH_BYTES = 4
BURST_S = 0.002
"""What is said within this time goes into one message."""
POLL_S, LOOK_S, LEAVE_S = 5.0, 0.2, 30.0
LOCAL = "127.0.0.1"
T = TypeVar("T")


class Asked(Protocol):
    """A party that is asked over HTTPS: `hdcos.cluster.https.Party`."""

    def meet(self, method: str, path: str, body: bytes | None = None) -> bytes: ...


def peer_name(peer: Certificate) -> str:
    """What an owner called itself."""
    return peer.common_name.removeprefix("hdcos ") or "the other owner"


@contextmanager
def listen(
    address: str, identity: Identity, peer: Certificate, wait_s: float = WAIT_S, timeout_s: float = TIMEOUT_S
) -> Iterator[Link]:
    """Wait for the other owner at an address of this machine."""
    sock = listening(address, "the other owner", "--listen")
    allowed = {peer: peer_name(peer)}
    with Listener(identity, allowed, sock=sock, link_timeout_s=timeout_s, handshake_s=HANDSHAKE_S) as listener:
        link = _explained(lambda: listener.accept(wait_s), peer)
    with link:
        yield link


@contextmanager
def reach(
    address: str, identity: Identity, peer: Certificate, wait_s: float = WAIT_S, timeout_s: float = TIMEOUT_S
) -> Iterator[Link]:
    """Connect to the other owner, who listens at this address, or will."""
    host, port = endpoint(address, "the other owner (--connect)")
    allowed = {peer: peer_name(peer)}
    with _explained(lambda: connect(identity, allowed, host, port, wait_s, link_timeout_s=timeout_s), peer) as link:
        yield link


@contextmanager
def through(
    party: Asked,
    name: str,
    guest: str,
    identity: Identity,
    peer: Certificate,
    wait_s: float = WAIT_S,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[Link]:
    """Meet the other owner, whom the party knows as client `guest`, at a party, under a name that both agreed on."""
    box = Mailbox(party, name, guest, timeout_s)
    tunnel = Tunnel(box)
    try:
        box.await_guest(wait_s)
        with tunnel.failures():
            link = _explained(lambda: tunnel.open(identity, peer, timeout_s), peer)
            with link:
                yield link
    finally:
        tunnel.close()
        box.leave()


def _explained(work: Callable[[], T], peer: Certificate) -> T:
    try:
        return work()
    except HandshakeError as error:
        raise HandshakeError(
            f"the other owner is not the one whose certificate was named (--peer, {peer.fingerprint[:16]}), or was not "
            f"given this owner's: {error}"
        ) from None


class Mailbox:
    """This owner's seat at a meeting."""

    def __init__(self, party: Asked, name: str, guest: str, timeout_s: float) -> None:
        self._party, self.guest, self._timeout_s = party, guest, timeout_s
        self._seat = f"/v2/meetings/{name}/{secrets.token_hex(16)}?guest={quote(guest, safe='')}"

    def await_guest(self, wait_s: float) -> None:
        """Take a seat, and wait until the other owner has one."""
        deadline = time.monotonic() + wait_s
        while not json.loads(self._ask("PUT", self._seat))["present"]:
            if time.monotonic() > deadline:
                raise PeerLost(
                    f"{self.guest} did not come to the meeting within {wait_s:g} s: both owners run `hdcos join` at "
                    f"the same time, with the same --meet, each naming the other (--with)"
                )
            time.sleep(LOOK_S)

    def put(self, number: int, content: bytes) -> None:
        self._ask("POST", f"{self._seat}&number={number}", content)

    def get(self, number: int) -> bytes:
        """The message of this number; nothing if it has not come yet."""
        return self._ask("GET", f"{self._seat}&number={number}&wait_s={POLL_S:g}")

    def leave(self) -> None:
        with suppress(HdcosError):  # where that fails, the party forgets the meeting in its own time
            self._party.meet("DELETE", self._seat)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Ask, again and again while the party says that it may be asked again."""
        deadline, pause = time.monotonic() + self._timeout_s, 0.02
        while True:
            try:
                return self._party.meet(method, path, body)
            except RetryableError as error:
                if time.monotonic() > deadline:
                    raise error.error from None
            except DataMissing as error:
                raise PeerLost(f"the meeting is over: {error}") from None
            time.sleep(pause)
            pause = min(2 * pause, LOOK_S)


class Tunnel:
    """Moves bytes between a meeting and a connection of this machine, in two threads."""

    def __init__(self, box: Mailbox) -> None:
        self._box = box
        self._error: HdcosError | None = None
        self._sock: socket.socket | None = None
        self._threads: list[Thread] = []
        self._ended = Event()

    def open(self, identity: Identity, peer: Certificate, timeout_s: float) -> Link:
        """A TLS connection to the other owner, who opens one, too: the lower fingerprint is the server."""
        self._agree(identity, peer)
        allowed = {peer: peer_name(peer)}
        if identity.fingerprint < peer.fingerprint:
            with Listener(identity, allowed, LOCAL, 0, link_timeout_s=timeout_s, handshake_s=HANDSHAKE_S) as listener:
                self._start(socket.create_connection((LOCAL, listener.port)))
                return listener.accept(HANDSHAKE_S)
        with socket.create_server((LOCAL, 0)) as server:
            accepting = Thread(target=lambda: self._start(server.accept()[0]), daemon=True)
            accepting.start()
            link = connect(
                identity, allowed, LOCAL, server.getsockname()[1], HANDSHAKE_S, retry=False, link_timeout_s=timeout_s
            )
            accepting.join()
            return link

    def _agree(self, identity: Identity, peer: Certificate) -> None:
        """HandshakeError unless both owners mean the same two certificates. They are told by a hash: the party learns
        neither, and who pinned another one hears so at once, where TLS might have two servers wait for each other."""
        pair = b"".join(sorted(bytes.fromhex(each) for each in (identity.fingerprint, peer.fingerprint)))
        mine, deadline = hashlib.sha256(b"hdcos meeting" + pair).digest(), time.monotonic() + HANDSHAKE_S
        self._box.put(0, pad(mine))
        while not (message := self._box.get(0)):
            if time.monotonic() > deadline:
                raise PeerLost(f"{self._box.guest} said nothing for {HANDSHAKE_S:g} s")
        if unpad(message) != mine:
            raise HandshakeError(
                f"this one is {identity.fingerprint[:16]}, and the other means another pair of certificates. Compare "
                f"the fingerprints that `hdcos identity` shows on both sides"
            )

    def _start(self, sock: socket.socket) -> None:
        self._sock = sock
        for move in (self._carry_out, self._carry_in):
            thread = Thread(target=self._watched, args=(move, sock), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _watched(self, move: Callable[[socket.socket], None], sock: socket.socket) -> None:
        try:
            move(sock)
        except HdcosError as error:
            self._error = self._error or error
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # this owner's end is closed: nothing is left to be carried
            self._ended.set()

    def _carry_out(self, sock: socket.socket) -> None:
        number, going = 1, True
        while going:
            content, going = _burst(sock)
            if content:
                self._box.put(number, pad(content))
                number += 1
        self._box.put(number, pad(b""))

    def _carry_in(self, sock: socket.socket) -> None:
        number = 1
        while not self._ended.is_set():
            message = self._box.get(number)
            if not message:
                continue
            number += 1
            content = unpad(message)
            if not content:
                sock.shutdown(socket.SHUT_WR)
                return
            sock.sendall(content)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """A connection that broke because the meeting did says why."""
        try:
            yield
        except (PeerLost, HandshakeError):
            if self._error is not None:
                raise self._error from None
            raise

    def close(self) -> None:
        """When this owner has said all: wait until it is on its way."""
        if self._threads:
            self._threads[0].join(LEAVE_S)
        self._ended.set()
        if len(self._threads) > 1:
            self._threads[1].join(LOOK_S)
        if self._sock is not None:
            self._sock.close()


def _burst(sock: socket.socket) -> tuple[bytes, bool]:
    """What is to be sent now, and whether more may come."""
    room = SIZES[-1] - LENGTH_BYTES
    pieces = [sock.recv(room)]
    while pieces[-1]:
        room -= len(pieces[-1])
        if not room or not select.select([sock], [], [], BURST_S)[0]:
            break
        pieces.append(sock.recv(room))
    return b"".join(pieces), bool(pieces[-1])


def pad(content: bytes) -> bytes:
    """A message of one of few sizes."""
    size = next(size for size in SIZES if size >= LENGTH_BYTES + len(content))
    return (len(content).to_bytes(LENGTH_BYTES, "little") + content).ljust(size, b"\0")


def unpad(message: bytes) -> bytes:
    length = int.from_bytes(message[:LENGTH_BYTES], "little")
    if LENGTH_BYTES + length > len(message):
        raise PeerLost("a message of the meeting is cut short")
    return message[LENGTH_BYTES : LENGTH_BYTES + length]
