"""How connections become lanes of one link, when it is made.

Lanes are an optimisation that both ends must want. In the TLS handshake of a link (ALPN, RFC 7301) the side that
connects offers 1 to k of them and the side that listens takes as many as it offers too, or says nothing: then there is
one connection, as with peers that know of no lanes. Then, before the first frame,

    listens  -> connects   on the main connection: a secret of 32 random bytes
    connects -> listens    on each of k new connections, which ask for the protocol LANE: the secret, and 1 byte, 1 to k
    connects -> listens    on the main connection: 1 byte, k, or 0 if not all could be made: then there are none
    listens  -> connects   on the main connection: the same byte, once it has all of them

HDCOS_LANES says how many a node offers; otherwise those with LEAST_CORES and more offer LANES, others none: there the
threads would only wait for each other. Links whose network is emulated have none.

Security  the number that is offered is public. The secret is new for each link and known to its two ends: it travels in
          their connections only, whose certificates are pinned. A stranger has neither and gets no further than with
          any connection. A lane must show the certificate of its link's peer, know the secret (compared in constant
          time) of a link that is being made, and be its only one of that number: one that comes late or again, or for
          a link that nobody is making, is refused and named. Who holds connections back slows a link down, or makes
          it one without lanes, and no more.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Sequence

from hdcos.errors import HandshakeError, InputError
from hdcos.link.tls import TlsTransport
from hdcos.link.tls_socket import TlsSocket

LANES = 1
LEAST_CORES = 8
MOST_LANES = 15
SECRET_BYTES = 32
LANE = "hdcos-lane"
VARIABLE = "HDCOS_LANES"
_MAIN = "hdcos-lanes-"

Connection = TlsTransport | TlsSocket


def lanes_to_offer() -> int:
    """How many lanes a node wants for each of its links, if the other end wants them too."""
    said = os.environ.get(VARIABLE)
    if said is None:
        return LANES if len(os.sched_getaffinity(0)) >= LEAST_CORES else 0
    if not said.isdecimal() or int(said) > MOST_LANES:
        raise InputError(f"{VARIABLE} must be a whole number, 0 to {MOST_LANES}, got {said!r}.")
    return int(said)


def protocols(lanes: int) -> list[str]:
    """What the main connection of a link offers, the best first."""
    if not 0 <= lanes <= MOST_LANES:
        raise InputError(f"a link has 0 to {MOST_LANES} lanes, got {lanes}.")
    return [f"{_MAIN}{number}" for number in range(lanes, 0, -1)]


def agreed(protocol: str | None) -> int:
    """How many lanes a main connection agreed on."""
    return int(protocol.removeprefix(_MAIN)) if protocol else 0


class Bond:
    """The lanes of a link that is being made, on the side that listens."""

    def __init__(self, lanes: int) -> None:
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self.answered = False
        """Whether the peer has said that it made all of them."""
        self._wanted = lanes
        self._found: dict[int, Connection] = {}

    def knows(self, secret: bytes) -> bool:
        return hmac.compare_digest(self.secret, secret)

    def add(self, number: int, lane: Connection) -> None:
        if not 1 <= number <= self._wanted:
            raise HandshakeError(f"lane {number} of a link with lanes 1 to {self._wanted}.")
        if number in self._found:
            raise HandshakeError(f"a second lane {number} of the same link.")
        self._found[number] = lane

    def answer(self, number: int) -> None:
        """What the peer says it made: all lanes, or none."""
        if number not in (0, self._wanted):
            raise HandshakeError(f"the peer made {number} lanes, not {self._wanted}.")
        self.answered = True
        if not number:
            self.close()
            self._wanted = 0

    @property
    def complete(self) -> bool:
        return self.answered and len(self._found) == self._wanted

    @property
    def lanes(self) -> list[Connection]:
        """All of them, in order."""
        return [self._found[number] for number in range(1, self._wanted + 1)]

    def close(self) -> None:
        for lane in self._found.values():
            lane.close()
        self._found.clear()


def say(transport: Connection, words: bytes, timeout_s: float) -> None:
    """A few bytes that are no frame."""
    transport.queue(iter((words,)))
    transport.flush(timeout_s)


def hear(transport: Connection, size: int, timeout_s: float) -> bytes:
    """Wait for a few bytes that are no frame."""
    words = bytearray(size)
    view, got = memoryview(words), 0
    while got < size:
        got += transport.read(view[got:], timeout_s)
    return bytes(words)


def close_all(transports: Sequence[Connection]) -> None:
    for transport in transports:
        transport.close()
