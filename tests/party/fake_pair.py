"""Two HTTPS servers that answer like two parties, for tests of what talks to them.

Instead of a protocol they hold the ideal it stands for: the one that comes second joins both rows, applies the network
in plaintext and splits the logits again. What each was sent is kept for the test to look at.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hdcos.party.http import pages

CLUSTER = "5eed" * 8
SCALE_BITS = 20
OUTPUT: dict[str, float] = {"bits": 40, "scale_bits": 21, "gain": 0.5}
OTHER_S = 10.0
LENGTH = "Inference-Header-Content-Length"

Words = npt.NDArray[np.uint64]
Network = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Model:
    network: Network
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Received:
    """One infer request as it came in."""

    token: str
    origin: str
    request: dict[str, Any]
    words: Words


@dataclass
class Meeting:
    """Where the two shares of a request meet."""

    shares: dict[int, Words] = field(default_factory=dict)
    outputs: tuple[Words, Words] | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Ideal:
    """What two honest parties compute, computed by one."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = models
        self._lock = threading.Lock()
        self._meetings: dict[str, Meeting] = {}

    def output(self, party: int, model: str, request_id: str, words: Words) -> Words:
        with self._lock:
            meeting = self._meetings.setdefault(request_id, Meeting())
            if party in meeting.shares:
                raise Refusal(409, "InputError", f"the request id {request_id} was used before")
            meeting.shares[party] = words
            if len(meeting.shares) == 2:
                meeting.outputs = self._apply(self.models[model], meeting.shares[0] + meeting.shares[1])
                meeting.done.set()
        if not meeting.done.wait(OTHER_S) or meeting.outputs is None:
            raise Refusal(503, "PeerLost", "the other party was not asked the same", retryable=True)
        return meeting.outputs[party]

    def _apply(self, model: Model, row: Words) -> tuple[Words, Words]:
        x = row.astype(np.int64).reshape(1, *model.shape) / 2.0**SCALE_BITS
        logits = model.network(x) / OUTPUT["gain"]
        words = np.round(logits * 2.0 ** OUTPUT["scale_bits"]).astype(np.int64).astype(np.uint64)
        mask = np.random.default_rng().integers(0, 1 << 64, words.shape, dtype=np.uint64, endpoint=False)
        modulus = np.uint64(1 << int(OUTPUT["bits"]))
        return mask % modulus, (words - mask) % modulus


class Refusal(Exception):
    def __init__(self, status: int, name: str, text: str, retryable: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.body = {"error": f"{name}: {text}", "name": name, "retryable": retryable}


class Party:
    """One of the two servers. `next_refusal` is what the next infer request is told instead of an answer."""

    def __init__(self, number: int, ideal: Ideal, files: tuple[Path, Path]) -> None:
        self.number, self.ideal = number, ideal
        self.origins: set[str] = set()
        self.claimed = number
        self.cluster = CLUSTER
        self.token_hash: str | None = None
        self.next_refusal: Refusal | None = None
        self.received: list[Received] = []
        self.status: dict[str, Any] = {}
        self.history: list[dict[str, Any]] = []
        self.asked = 0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        self.server = Server(self, context)
        self.url = f"https://127.0.0.1:{self.server.server_port}"

    def expect(self, token: str) -> None:
        self.token_hash = sha256(token.encode()).hexdigest()

    def check(self, token: str) -> None:
        if self.token_hash is not None and sha256(token.encode()).hexdigest() != self.token_hash:
            raise Refusal(401, "PolicyRefused", "no client has this token")

    def model(self, name: str) -> dict[str, Any]:
        if name not in self.ideal.models:
            raise Refusal(404, "DataMissing", f"no model is called {name!r}")
        shape = self.ideal.models[name].shape
        return {
            "name": name,
            "versions": ["1"],
            "platform": "hdcos",
            "inputs": [{"name": "input", "datatype": "UINT64", "shape": [-1, *shape]}],
            "outputs": [{"name": "output", "datatype": "UINT64", "shape": [-1, 10]}],
            "parameters": {"party": self.claimed, "scale_bits": SCALE_BITS, "rounds": 6, "output": OUTPUT},
        }

    def infer(self, name: str, received: Received) -> tuple[bytes, bytes]:
        """The JSON and the tensor of an answer."""
        self.received.append(received)
        if self.next_refusal is not None:
            refusal, self.next_refusal = self.next_refusal, None
            raise refusal
        output = self.ideal.output(
            self.number, name, received.request["parameters"]["request_id"], received.words
        ).astype("<u8")
        described = {
            "name": "output",
            "datatype": "UINT64",
            "shape": [1, output.size],
            "parameters": {"binary_data_size": output.nbytes},
        }
        answer = {"model_name": name, "outputs": [described], "parameters": OUTPUT}
        return json.dumps(answer).encode(), output.tobytes()


class Server(ThreadingHTTPServer):
    """TLS handshakes happen in the connection's own thread: a browser opens some that it never uses."""

    daemon_threads = True

    def __init__(self, party: Party, context: ssl.SSLContext) -> None:
        self.party, self.context = party, context
        super().__init__(("127.0.0.1", 0), Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(30)
        # OSError: the browser does not trust us, or has left.
        with suppress(OSError), self.context.wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.close_request(request)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_OPTIONS(self) -> None:
        self._send(204, b"", "text/plain")

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Refusal as refusal:
            self._send(refusal.status, json.dumps(refusal.body).encode(), "application/json")

    def _get(self) -> None:
        party = self.server.party
        party.asked += 1
        if self.path in ("/", "/digit"):
            page, connect = (pages.status(), "'self'") if self.path == "/" else (pages.digit(), "https:")
            policy = {"Content-Security-Policy": pages.security_policy(page, connect)}
            return self._send(200, page, "text/html; charset=utf-8", policy)
        if self.path == "/v2":
            about = {"name": "hdcos", "parameters": {"party": party.claimed, "cluster": party.cluster}}
            return self._json(about)
        party.check(self._token())
        if self.path == "/v2/status":
            return self._json(party.status)
        if self.path == "/v2/status/history":
            return self._json({"every_s": 2.0, "samples": party.history})
        return self._json(party.model(self.path.removeprefix("/v2/models/")))

    def _post(self) -> None:
        party = self.server.party
        body = self.rfile.read(int(self.headers["Content-Length"]))
        party.check(self._token())
        length = int(self.headers[LENGTH])
        words = np.frombuffer(body[length:], dtype="<u8").astype(np.uint64)
        received = Received(self._token(), self.headers.get("Origin", ""), json.loads(body[:length]), words)
        name = self.path.removeprefix("/v2/models/").removesuffix("/infer")
        head, tensor = party.infer(name, received)
        self._send(200, head + tensor, "application/octet-stream", {LENGTH: str(len(head))})

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        origin = self.headers.get("Origin")
        if origin in self.server.party.origins:
            self.send_header("Access-Control-Allow-Origin", origin)
            self.send_header("Vary", "Origin")
            self.send_header("Access-Control-Allow-Methods", "GET, POST")
            self.send_header("Access-Control-Allow-Headers", f"Authorization, Content-Type, {LENGTH}")
            self.send_header("Access-Control-Expose-Headers", f"{LENGTH}, Retry-After")
        for name, value in {**(headers or {}), "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake_pair(models: Mapping[str, Model], files: tuple[tuple[Path, Path], tuple[Path, Path]]) -> Iterator[list[Party]]:
    """Both servers, with certificate and key files for each. They accept local pages and each other's."""
    ideal = Ideal(models)
    parties = [Party(number, ideal, files[number]) for number in (0, 1)]
    for party in parties:
        party.origins = {"null", *(each.url for each in parties)}
        threading.Thread(target=party.server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield parties
    finally:
        for party in parties:
            party.server.shutdown()
            party.server.server_close()
