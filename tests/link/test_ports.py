"""Ports for later: free, different, and none of those that outgoing connections are given meanwhile."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hdcos.link import ports
from hdcos.link.ports import find_free_ports


def test_ports_are_free_and_out_of_the_way_of_outgoing_connections() -> None:
    found = find_free_ports(5)
    assert len(set(found)) == 5
    assert max(found) < int(ports.RANGE.read_text().split()[0])
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()


def test_where_no_port_is_left_over_any_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "RANGE", tmp_path / "range")
    (found,) = find_free_ports(1)
    socket.create_server(("127.0.0.1", found)).close()
