"""How owners reach each other directly, who is refused, and how messages of a meeting are filled up."""

from __future__ import annotations

import time

import pytest

from hdcos.errors import HandshakeError, InputError, PeerLost
from hdcos.join.matching import exchange
from hdcos.join.meeting import SIZES, Mailbox, Tunnel, listen, pad, reach, unpad
from hdcos.link import Identity
from hdcos.link.ports import find_free_ports
from join.owners import identities, outcomes


def free_port() -> str:
    return f"127.0.0.1:{find_free_ports(1)[0]}"


def test_one_owner_listens_and_the_other_connects() -> None:
    (north, south), address = identities(), free_port()

    def wait():
        with listen(address, north, south.certificate, 10) as link:
            return link.peer, exchange(link, b"north")

    def come():
        with reach(address, south, north.certificate, 10) as link:
            return link.peer, exchange(link, b"south")

    assert outcomes(wait, come) == [("south", b"south"), ("north", b"north")]


def test_an_owner_with_another_certificate_is_refused_on_both_sides() -> None:
    (north, south), address, stranger = identities(), free_port(), Identity.create("stranger")

    def wait():
        with listen(address, north, south.certificate, 1) as link:
            return link.peer

    def come():
        with reach(address, stranger, north.certificate, 2) as link:
            return exchange(link, b"let me in")

    waiting, coming = outcomes(wait, come)
    assert isinstance(waiting, HandshakeError)
    assert "--peer" in str(waiting)
    assert isinstance(coming, HandshakeError)


@pytest.mark.parametrize("wrong", [0, 1])
def test_at_a_meeting_another_certificate_ends_it_at_once_for_both(wrong) -> None:
    party, names = Party(), ("north", "south")
    pinned = [identities()[1].certificate, identities()[0].certificate]
    pinned[wrong] = Identity.create("stranger").certificate

    def one(i: int):
        tunnel = Tunnel(party.seat(names[i], names[1 - i]))
        try:
            with tunnel.failures(), tunnel.open(identities()[i], pinned[i], 5.0) as link:
                return exchange(link, b"let me in")
        finally:
            tunnel.close()

    began = time.monotonic()
    for error in outcomes(lambda: one(0), lambda: one(1)):
        assert isinstance(error, HandshakeError)
        assert "`hdcos identity` shows on both sides" in str(error)
    assert time.monotonic() - began < 15


def test_nobody_there_and_a_bad_address_are_said() -> None:
    north, south = identities()
    with pytest.raises(PeerLost, match="out of reach"), reach(free_port(), north, south.certificate, 0.1):
        pass
    with pytest.raises(PeerLost, match=r"within 0\.1 s"), listen(free_port(), north, south.certificate, 0.1):
        pass
    with pytest.raises(InputError, match="host:port"), reach("nowhere", north, south.certificate, 0.1):
        pass


@pytest.mark.parametrize("size", [0, 1, SIZES[0] - 4, SIZES[0] - 3, SIZES[1], SIZES[2] - 4])
def test_messages_have_one_of_three_sizes(size) -> None:
    content = bytes(range(256)) * 4097
    message = pad(content[:size])
    assert len(message) in SIZES
    assert unpad(message) == content[:size]
    with pytest.raises(PeerLost, match="cut short"):
        unpad(message[: size + 3] if size else b"\x01\0\0\0")


class Party:
    """A meeting point in memory, where both owners are always present; what it saw is kept."""

    def __init__(self) -> None:
        self.boxes = {"north": [], "south": []}
        self.broken = False

    def seat(self, client: str, guest: str) -> Mailbox:
        party, boxes = self, self.boxes

        class Seat:
            def meet(self, method: str, path: str, body: bytes | None = None) -> bytes:
                if party.broken:
                    raise PeerLost("the party is gone")
                number = int(path.rpartition("number=")[2].partition("&")[0]) if "number=" in path else 0
                if method == "POST":
                    boxes[guest].append(body)
                    return b"{}"
                if method == "GET":
                    time.sleep(0 if number < len(boxes[client]) else 0.005)
                    return boxes[client][number] if number < len(boxes[client]) else b""
                return b'{"present": true}'

        return Mailbox(Seat(), "m", guest, 5.0)


def test_a_tunnel_carries_a_tls_connection_in_sealed_messages() -> None:
    party, names = Party(), ("north", "south")
    secret = b"the ids of north" * 50_000

    def one(i: int):
        tunnel = Tunnel(party.seat(names[i], names[1 - i]))
        try:
            with tunnel.failures(), tunnel.open(identities()[i], identities()[1 - i].certificate, 5.0) as link:
                return link.peer, exchange(link, secret) == secret
        finally:
            tunnel.close()

    assert outcomes(lambda: one(0), lambda: one(1)) == [("south", True), ("north", True)]
    for messages in party.boxes.values():
        assert {len(message) for message in messages} <= set(SIZES)
        assert not any(secret[:16] in message for message in messages)


def test_a_meeting_that_breaks_off_says_why() -> None:
    party = Party()

    def one(i: int):
        tunnel = Tunnel(party.seat(*(("north", "south"), ("south", "north"))[i]))
        try:
            with tunnel.failures(), tunnel.open(identities()[i], identities()[1 - i].certificate, 5.0) as link:
                exchange(link, b"here")
                party.broken = True
                exchange(link, b"still here?")
        finally:
            tunnel.close()

    assert all("the party is gone" in str(error) for error in outcomes(lambda: one(0), lambda: one(1)))
