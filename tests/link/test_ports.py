"""Ports for later: free, different, and none of those that outgoing connections are given meanwhile."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from hdcos.link import ports
from hdcos.link.ports import find_free_ports


def test_ports_are_free_and_out_of_the_way_of_outgoing_connections() -> None:
    found = find_free_ports(5)
    assert len(set(found)) == 5
    assert max(found) < int(ports.RANGE.read_text().split()[0])
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_is_kept_for_somebody_is_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two in the range: one is kept as tests keep theirs, so that the other is found, and then neither."""
    first = next(port for port in range(ports.LOWEST, ports.USUAL) if _both_free(port))
    monkeypatch.setattr(ports.random, "sample", lambda *_: [first, first + 1])
    assert [find_free_ports(1), find_free_ports(1)] == [[first], [first + 1]]
    (other,) = find_free_ports(1)
    assert other >= int(ports.RANGE.read_text().split()[0])
    with socket.create_server(("127.0.0.1", first)), socket.create_server(("127.0.0.1", first + 1)):
        pass


def test_where_no_port_is_left_over_any_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOWEST", 65_000)
    (found,) = find_free_ports(1)
    assert found >= int(ports.RANGE.read_text().split()[0]), "one that the system gives outgoing connections"
    socket.create_server(("127.0.0.1", found)).close()


def test_where_nobody_can_listen_no_socket_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "TRIES", 2)
    with pytest.raises(OSError, match="assign requested address"):
        find_free_ports(1, "192.0.2.1")


def _both_free(port: int) -> bool:
    with suppress(OSError), socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", port))
        two.bind(("127.0.0.1", port + 1))
        return True
    return False
