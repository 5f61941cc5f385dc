"""Ports for later: free, different, and none of those that outgoing connections are given meanwhile."""

from __future__ import annotations

import socket

import pytest

from hdcos.link import ports
from hdcos.link.ports import find_free_ports


def test_ports_are_free_and_out_of_the_way_of_outgoing_connections() -> None:
    found = find_free_ports(5)
    assert len(set(found)) == 5
    assert max(found) < int(ports.RANGE.read_text().split()[0])
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()


def test_where_no_port_is_left_over_any_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "candidates", lambda: range(ports.LOWEST, 1024))
    (found,) = find_free_ports(1)
    assert found >= int(ports.RANGE.read_text().split()[0]), "one that the system gives outgoing connections"
    socket.create_server(("127.0.0.1", found)).close()
