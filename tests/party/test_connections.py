"""Connections are counted: strangers that hold them keep nobody out."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import ssl
import time
from contextlib import ExitStack, closing, nullcontext

import numpy as np
import pytest
import uvicorn

from hdcos import nn
from hdcos.api.tokens import token_hash
from hdcos.link.cluster_file import ClusterFile
from hdcos.link.identity import CERTIFICATE_FILE, KEY_FILE, Identity
from hdcos.party.http.auth import MOST_LASTING
from hdcos.party.http.connections import KEPT, MOST, SURPLUS, Connections, descriptors
from hdcos.party.http.server import _Server
from hdcos.party.store import state
from hdcos.secure.training import training_plan
from party.conftest import Raw, connected, running_all

DESCRIPTORS, STRANGERS = 96, 300


class Held:
    """Connections that were admitted, and which of them were closed again."""

    def __init__(self, limit):
        self.all, self.closed = Connections(limit), []

    def admit(self, address, name=""):
        return self.all.admit(address, lambda: self.closed.append(name))


def test_the_one_that_was_idle_for_longest_gives_way_and_strangers_do_first() -> None:
    held = Held(2 * KEPT)
    most = held.all.most
    assert most + SURPLUS + KEPT == 2 * KEPT
    client = held.admit("10.0.0.1", "client")
    client.known = True
    for number in range(most - 1):
        held.admit(f"10.1.{number}.1", f"stranger {number}")
    assert held.closed == []
    held.admit("10.2.0.1")
    held.admit("10.2.0.2")
    assert held.closed == ["stranger 0", "stranger 1"]
    assert len(held.all) == most


def test_an_address_has_half_of_them_and_makes_room_for_itself() -> None:
    held = Held(1024)
    other = held.admit("10.0.0.1", "other")
    other.known = True
    for number in range(2 * held.all.most):
        held.admit("10.0.0.2", str(number))
    assert len(held.all) == held.all.most_of_one + 1
    assert held.closed[:2] == ["0", "1"]
    assert "other" not in held.closed
    for number in range(2 * held.all.most):
        held.admit(f"2001:db8::{number:x}", f"six {number}")  # what one host has at hand
    assert len(held.all) == 2 * held.all.most_of_one
    assert "other" not in held.closed
    held.all.release(other)
    held.all.release(other)
    assert len(held.all) == 2 * held.all.most_of_one - 1


def test_requests_under_way_are_never_given_up() -> None:
    held = Held(256)
    first, *_ = working = [held.admit(f"10.0.{number}.1", str(number)) for number in range(held.all.most)]
    for one in working:
        one.busy = True
    told = [held.admit(f"10.1.{number}.1") for number in range(SURPLUS + 3)]
    assert held.closed == []
    assert [one is not None for one in told] == [True] * SURPLUS + [False] * 3
    assert all(one.crowded for one in told[:SURPLUS])
    first.rest()
    newcomer = held.admit("10.9.0.1")
    assert newcomer is not None
    assert not newcomer.crowded
    assert held.closed == ["0"]


@pytest.mark.parametrize("limit", [64, 96, 256, 1024, 1 << 20])
def test_descriptors_are_kept_for_links_and_files(limit) -> None:
    connections = Connections(limit)
    assert SURPLUS <= connections.most <= MOST
    assert limit - connections.most - SURPLUS >= min(KEPT, limit // 2) or connections.most == SURPLUS
    assert descriptors() <= max(MOST + KEPT + SURPLUS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


@pytest.mark.parametrize("tls", ["TLSv1_2", "TLSv1_3"])
def test_a_stranger_who_has_come_and_gone_leaves_no_session_behind(tls, tmp_path, monkeypatch) -> None:
    """OpenSSL keeps sessions of TLS 1.2 that have no ticket, 20,480 of them, and Python cannot tell it not to."""
    Identity.create("party0", tmp_path)
    files = {"ssl_certfile": tmp_path / CERTIFICATE_FILE, "ssl_keyfile": tmp_path / KEY_FILE}

    async def app(scope, receive, send) -> None:
        """Nothing: no request is made."""

    async def scene() -> None:
        server = _Server(uvicorn.Config(app, lifespan="off", log_config=None, **files), Connections(256))
        sock = socket.create_server(("127.0.0.1", 0))
        port, serving = sock.getsockname()[1], asyncio.create_task(server.serve([sock]))
        settings = ssl.create_default_context()
        settings.check_hostname, settings.verify_mode = False, ssl.CERT_NONE
        settings.maximum_version = ssl.TLSVersion[tls]
        settings.options |= ssl.OP_NO_TICKET
        while not server.started:
            await asyncio.sleep(0.01)
        for _ in range(3):
            with nullcontext() if tls == "TLSv1_3" else pytest.raises(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=settings)
                writer.close()
                await writer.wait_closed()
        assert server.config.ssl.session_stats()["number"] == 0
        server.should_exit = True
        await serving

    asyncio.run(scene())


def test_idle_strangers_keep_nobody_out(folder) -> None:
    model, rows = nn.models.mlp([6, 8, 3]), np.random.default_rng(0).uniform(-1, 1, (5, 6))
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    settings = ssl.create_default_context()
    settings.check_hostname, settings.verify_mode = False, ssl.CERT_NONE

    def address(rank):
        host, port = cluster_file.servers[f"party{rank}"].http.split(":")
        return host, int(port)

    with ExitStack() as stack:
        party = stack.enter_context(running_all(folder, party0=DESCRIPTORS))["party0"]
        known = Raw(folder)
        with connected(folder) as cluster:
            private = cluster.share(model, "tiny")
            assert known(0, "GET", "/v2/status")[0] == 200
        began, lonely = time.monotonic(), stack.enter_context(socket.create_connection(address(1)))
        for number in range(STRANGERS):
            sock = stack.enter_context(socket.create_connection(address(0)))
            if number % 3 == 1:
                sock.sendall(bytes.fromhex("160301"))  # a handshake that does not go on
            elif number % 10 == 2:
                sock.settimeout(10)
                stack.enter_context(settings.wrap_socket(sock))
        started = time.monotonic()
        with connected(folder) as cluster:
            private = cluster.model("tiny")
            assert np.abs(private.predict(rows) - model(rows)).max() < 0.02
        assert time.monotonic() - started < 10
        assert len(os.listdir(f"/proc/{party.pid}/fd")) < DESCRIPTORS
        status = known(0, "GET", "/v2/status")[1]
        assert known._pools[0].num_connections == 1  # a client whose token is known keeps its connection
        assert status["connections"]["open"] <= status["connections"]["most"] < DESCRIPTORS
        assert (status["session"], status["counters"]["aborts"]) == (1, 0)
        lonely.settimeout(12)
        assert lonely.recv(1) == b""
        assert time.monotonic() - began < 11
        known.close()
    assert "internal error" not in (folder / "party0.log").read_text()


def test_a_client_who_finds_no_place_is_told(folder) -> None:
    """All connections wait for the other share of a request: the next client reads a named error."""
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    host, port = cluster_file.servers["party0"].http.split(":")
    settings = ssl.create_default_context()
    settings.check_hostname, settings.verify_mode = False, ssl.CERT_NONE
    toml = folder / "party0" / "node.toml"
    toml.write_text(toml.read_text().replace("patience_s = 5 ", "patience_s = 60 "))
    with ExitStack() as stack:
        stack.enter_context(running_all(folder, party0=DESCRIPTORS))
        with connected(folder) as cluster:
            cluster.share(nn.models.mlp([6, 8, 3]), "tiny")
        raw = Raw(folder)
        most = raw(0, "GET", "/v2/status")[1]["connections"]["most"]
        raw.close()
        entry = {"name": "input", "datatype": "UINT64", "shape": [1, 6], "data": [0] * 6}
        for number in range(most // 2):
            body = json.dumps({"parameters": {"request_id": f"{number:032x}", "mode": "shares"}, "inputs": [entry]})
            busy = stack.enter_context(settings.wrap_socket(socket.create_connection((host, int(port)), timeout=20)))
            head = f"POST /v2/models/tiny/infer HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {raw._tokens[0]}\r\n"
            busy.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        time.sleep(1)
        status, said, _ = Raw(folder)(0, "GET", "/v2/status")
        assert (status, said["name"], said["retryable"]) == (503, "PeerLost", True)
        assert "too many connections" in said["error"]


def test_a_client_who_follows_a_job_again_and_again_leaves_places_to_others(folder) -> None:
    """One that waits, and so for ever; and messages that do not come."""
    settings = ssl.create_default_context()
    settings.check_hostname, settings.verify_mode = False, ssl.CERT_NONE
    host, port = ClusterFile.read(folder / "cluster.toml").servers["party0"].http.split(":")
    model = nn.models.mlp([6, 8, 3])
    tensors = {tensor.name: np.zeros(tensor.shape, np.uint64) for tensor in training_plan(model, "softmax").tensors}
    told = {"id": "0" * 32, "model": "m", "datasets": ["missing"], "rates": [0.1], "seed": 1, "batch_size": 5}
    asked = {**told, "architecture": model.architecture(), "phase_bits": 16}
    shown, path = {}, folder / "party0"
    for name in ("greedy", "other"):
        shown[name], hashed = f"the token of {name}", token_hash(f"the token of {name}")
        with state(path) as store:
            store.allow(name, hashed, ["train", "upload"])

    def begin(path):
        """A connection that asks for something, and the status it is answered with, if it is."""
        sock = settings.wrap_socket(socket.create_connection((host, int(port)), timeout=5))
        sock.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {shown['greedy']}\r\n\r\n".encode())
        return sock

    def answer(sock):
        sock.settimeout(5)
        return sock.recv(1 << 16).decode()

    with ExitStack() as stack:
        stack.enter_context(running_all(folder, ("party0",), party0=2 * DESCRIPTORS))
        greedy, other = (stack.enter_context(closing(Raw(folder, shown=shown[name]))) for name in ("greedy", "other"))
        assert greedy(0, "POST", "/v2/jobs", {"parameters": asked}, tensors)[0] == 201
        for client, seat, guest in ((greedy, "1" * 32, "other"), (other, "2" * 32, "greedy")):
            assert client(0, "PUT", f"/v2/meetings/m/{seat}?guest={guest}")[0] == 200
        poll = f"/v2/meetings/m/{'1' * 32}?guest=other&number=0&wait_s=20"
        followed = [stack.enter_context(begin(f"/v2/jobs/{'0' * 32}/events")) for _ in range(MOST_LASTING - 4)]
        assert all("200 OK" in answer(sock) for sock in followed)
        _polling = [stack.enter_context(begin(poll)) for _ in range(4)]
        time.sleep(0.5)
        for path in (f"/v2/jobs/{'0' * 32}/events", poll):
            status, said, _ = greedy(0, "GET", path)
            assert (status, said["name"], said["retryable"]) == (429, "PolicyRefused", True)
            assert f"{MOST_LASTING} requests of greedy wait already" in said["error"]
        assert greedy(0, "GET", f"/v2/jobs/{'0' * 32}")[1]["state"] == "waiting", "what is answered at once still is"
        for _ in range(100):  # more come, and all of them are told
            assert "429 " in answer(stack.enter_context(begin(poll)))
        assert other(0, "GET", "/v2/jobs")[0] == 200
        followed[0].close()
        limit = time.monotonic() + 10
        while "429 " in (found := answer(stack.enter_context(begin(f"/v2/jobs/{'0' * 32}/events")))):
            assert time.monotonic() < limit
            time.sleep(0.2)
        assert "200 OK" in found
    assert "internal error" not in (folder / "party0.log").read_text()
