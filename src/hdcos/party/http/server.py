"""The process of a party: its HTTPS interface on one event loop, its sessions on a thread beside it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import SSLContext
from typing import Any

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hdcos.errors import DataMissing, InputError, PeerLost
from hdcos.link.cluster_file import ClusterFile, listening
from hdcos.link.identity import CERTIFICATE_FILE, KEY_FILE
from hdcos.party.batcher import Refused
from hdcos.party.config import FILE, Config
from hdcos.party.http.api import reply_error
from hdcos.party.http.app import make_app
from hdcos.party.http.auth import CONNECTION
from hdcos.party.http.connections import Acceptor, Connection, Connections
from hdcos.party.launcher import Placement
from hdcos.party.node import Node
from hdcos.party.service import Service
from hdcos.party.store import open_state
from hdcos.ring.device import CPU, Place

log = logging.getLogger("hdcos")
GRACE_S = 5
HEAD_S, MOST_HEAD_BYTES = 10.0, 1 << 16


class _Protocol(HttpToolsProtocol):
    """HTTP that does not wait forever for a request's head, nor keep more of it than one needs.

    Headers of any length, and connections that say nothing, would otherwise cost memory without a token.
    """

    connections_of_party: Connections
    connection: Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.connection.abort = transport.abort
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._head_timer.cancel()
        self.connections_of_party.release(self.connection)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._head_bytes >= 0:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._await_head()
        super().on_message_begin()
        self.scope[CONNECTION] = self.connection  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._head_timer.cancel()
        self._head_bytes = -1  # what follows is the body
        self.connection.busy = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.connection.rest()
        super().on_response_complete()

    def _await_head(self) -> None:
        self._head_timer.cancel()
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)


class _Server(uvicorn.Server):
    """Admits connections by number, and leaves signals to its caller: this process has more to end than HTTP."""

    def __init__(self, settings: uvicorn.Config, connections: Connections) -> None:
        super().__init__(settings)
        self._connections = connections

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # without any: it would take everybody who comes
        loop, (sock,) = asyncio.get_running_loop(), sockets or []
        assert isinstance(self.config.ssl, SSLContext)
        # Of TLS 1.2 OpenSSL keeps each session that has no ticket, a kilobyte for each of the last 20,480 strangers.
        self.config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        self._acceptor = Acceptor(loop, sock, self.config.ssl, self._connections, self._protocol)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._acceptor.close()
        await super().shutdown()

    def _protocol(self, connection: Connection) -> _Protocol:
        made = _Protocol(self.config, self.server_state, self.lifespan.state)
        made.connections_of_party, made.connection = self._connections, connection
        if connection.crowded:
            made.app = _crowded
        return made


async def _crowded(scope: Any, receive: Any, send: Any) -> None:
    """The answer to all requests of a connection that there is no place for."""
    error = PeerLost("too many connections are open here, and all are at work: try again later")
    answer = reply_error(Refused(error, 503, retryable=True))
    answer.headers["connection"] = "close"
    await answer(scope, receive, send)


def serve_party(
    folder: Path,
    cluster: ClusterFile,
    listen: str,
    http_listen: str,
    timeout_s: float,
    workers: int,
    placement: Placement,
    place: Place = CPU,
) -> signal.Signals:
    """Run a party until it is told to stop; the signal that told it."""
    config = Config.read(folder)
    node = Node.from_cluster_file(folder, cluster, listen, timeout_s, place)
    address = http_listen or config.http.listen or cluster.servers[node.role].http
    with (
        node.listener,
        listening(address, f"HTTPS of {node.role}", "--http-listen", 1024) as sock,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_serve(node, folder, config, sock, workers, placement))


def _https_files(folder: Path, config: Config) -> tuple[str, str]:
    """Certificate and key for HTTPS, checked: uvicorn would only say that something is wrong."""
    if bool(config.http.certificate) != bool(config.http.key):
        raise InputError(f"[http] of {folder / FILE}: certificate and key come together")
    certificate = config.http.certificate or str(folder / CERTIFICATE_FILE)
    key = config.http.key or str(folder / KEY_FILE)
    for path in (certificate, key):
        if not os.access(path, os.R_OK):
            raise DataMissing(f"{path}, for HTTPS, cannot be read: [http] of {folder / FILE} names it")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        why = getattr(error, "reason", None) or error.strerror
        raise InputError(f"{certificate} and {key} are not a certificate and its key in PEM: {why}") from None
    return certificate, key


async def _serve(
    node: Node, folder: Path, config: Config, sock: socket.socket, workers: int, placement: Placement
) -> signal.Signals:
    certificate, key = _https_files(folder, config)
    store = open_state(folder)
    store.sweep()
    service = Service(node, store, config, asyncio.get_running_loop(), workers, placement)
    settings = uvicorn.Config(
        make_app(service),
        log_config=None,
        access_log=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
        date_header=False,
        lifespan="on",
        ws="none",
        http=_Protocol,
    )
    server = _Server(settings, service.connections)

    told = [signal.SIGTERM]

    def stop(number: signal.Signals) -> None:
        server.should_exit = True
        told.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    service.start()
    host, port = sock.getsockname()[:2]
    link_host, link_port = node.listener.getsockname()[:2]
    log.info("%s: listening on %s:%d, HTTPS on %s:%d", node.role, link_host, link_port, host, port)
    try:
        await server.serve([sock])
    finally:
        await asyncio.to_thread(service.stop)
        log.info("%s: stopped", node.role)
    return told[-1]
