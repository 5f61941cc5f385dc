"""Rubbish for every way into a node: frames in memory, frames over TLS, HTTP requests."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.record import Line, exactly
from hdcos import nn
from hdcos.api.bodies import encode_body
from hdcos.api.tokens import token
from hdcos.errors import HdcosError, InputError
from hdcos.link import Hello, Identity, Kind, Link, connect, handshake
from hdcos.link.cluster_file import ClusterFile
from hdcos.link.frame import encode
from hdcos.link.message import decode_message, encode_message
from hdcos.party.node import SOFTWARE
from hdcos.ring import table_hash
from hdcos.testing.pair import memory_transports

FRAMES, LINKS, REQUESTS = 100_000, 2_000, 10_000
ANSWER_S = 10.0


def mutated(draw: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut, repeated or put in."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(changed) + 1)
        kind = draw.randrange(5)
        if kind == 0 and place < len(changed):
            changed[place] = draw.randrange(256)
        elif kind == 1:
            del changed[place : place + draw.randint(1, 16)]
        elif kind == 2:
            changed[place:place] = draw.randbytes(draw.randint(1, 16))
        elif kind == 3:
            changed[place:place] = changed[max(0, place - 8) : place]
        elif place < len(changed):
            changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _frame(draw: random.Random) -> bytes:
    """A well-formed frame of some kind with a message in it."""
    meta = {"operation": "deal", "scope": "x", "start": draw.randrange(5), "executions": 2, "purpose": "rounds"}
    payload = b"".join(bytes(part) for part in encode_message(meta, {"words": np.arange(draw.randrange(9))[:0] + 0}))
    payload = payload if draw.random() < 0.7 else draw.randbytes(draw.randrange(64))
    return encode(draw.choice(list(Kind)), draw.randrange(2), 0, len(payload)) + payload


def frames(seed: int) -> Iterator[Line]:
    """Mutated frames through the decoder in memory: the named error, or a message that is well-formed."""
    draw, outcomes = random.Random(seed), Counter[str]()
    for _ in range(FRAMES):
        near, far = memory_transports()
        far.queue((mutated(draw, _frame(draw)),))
        far.close()
        try:
            _, payload = Link(near, "peer", timeout_s=1.0).receive(list(Kind), limit=1 << 20)
            decode_message(payload)
            outcomes["accepted"] += 1
        except HdcosError as error:
            outcomes[type(error).__name__] += 1
        except Exception as error:
            outcomes[f"unforeseen {type(error).__name__}"] += 1
    told = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
    unforeseen = sum(count for name, count in outcomes.items() if name.startswith("unforeseen"))
    yield exactly(f"{FRAMES} mutated frames in memory ({told}): ended otherwise than by name", unforeseen, 0)


def links(seed: int, folder: Path) -> Iterator[Line]:
    """Mutated frames over real TLS to every node, from a peer whose certificate is right."""
    draw, hung = random.Random(seed), 0
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    for number in range(LINKS):
        role, mine = draw.choice((("party0", "dealer"), ("party1", "dealer"), ("dealer", "party0")))
        card = cluster_file.servers[role]
        link = connect(
            Identity.load(folder / mine), {card.certificate: role}, *card.endpoint, ANSWER_S, link_timeout_s=ANSWER_S
        )
        try:
            if number % 2:
                handshake(link, Hello(mine, SOFTWARE, table_hash(), cluster_file.run))
            link._transport.queue((mutated(draw, _frame(draw)),))
            link._transport.flush(ANSWER_S)
            link._transport._sock.shutdown(socket.SHUT_WR)  # nothing more will come
            link.receive(list(Kind), timeout_s=ANSWER_S)
        except HdcosError as error:
            hung += "no answer" in str(error)
        finally:
            link._transport.close()
    yield exactly(f"{LINKS} mutated frames over TLS to dealer and parties: left without an answer or an end", hung, 0)


def requests(seed: int, folder: Path) -> Iterator[Line]:
    """Mutated HTTP requests with a valid token: answered, and never with a 5xx that the input caused."""
    draw, statuses = random.Random(seed), Counter[str]()
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    secret = (folder / "token").read_text().strip()
    entries = [_Entry(cluster_file, rank, token(secret, cluster_file.id, rank)) for rank in (0, 1)]
    for _ in range(REQUESTS):
        rank = draw.randrange(2)
        statuses[entries[rank].send(mutated(draw, _request(draw, entries[rank].shown)))] += 1
    for entry in entries:
        entry.close()
    told = ", ".join(f"{name} {count}" for name, count in statuses.most_common())
    bad = sum(count for name, count in statuses.items() if name.startswith("5") or name == "silence")
    yield exactly(f"{REQUESTS} mutated HTTP requests ({told}): 5xx, or left without an answer or an end", bad, 0)


def _request(draw: random.Random, shown: str) -> bytes:
    """A well-formed request of some kind."""
    model = nn.models.mlp([6, 8, 3])
    number = draw.randbytes(16).hex()
    name = draw.choice(("tiny", "other"))
    words = {"input": np.zeros((2, 6), np.uint64)}
    body, headers = b"", {}
    method, path = draw.choice(
        (
            ("POST", f"/v2/models/{name}/infer"),
            ("POST", f"/v2/models/{name}/masks"),
            ("POST", "/v2/jobs"),
            ("PUT", "/v2/models/fuzzed"),
            ("POST", "/v2/datasets"),
            ("PUT", f"/v2/datasets/d/{number}?offset=0"),
            ("POST", "/v2/reveals"),
            ("GET", "/v2/models"),
            ("GET", f"/v2/jobs/{number}"),
            ("GET", "/v2/audit?limit=5"),
            ("DELETE", "/v2/models/other"),
        )
    )
    if path.endswith("infer"):
        # An unknown mode is refused at once; a good one would wait for the other party's.
        mode = draw.choice(("masked", "open"))
        body, headers = encode_body({"parameters": {"request_id": number, "mode": mode}}, words, "inputs")
    elif path == "/v2/jobs":
        spec = {"id": number, "model": "m", "architecture": model.architecture(), "datasets": ["d"], "rates": [0.1]}
        body, headers = encode_body({"parameters": {**spec, "batch_size": 5, "seed": 1}}, {}, "inputs")
    elif path == "/v2/models/fuzzed":
        known = {"architecture": model.architecture(), "phase_bits": 16, "version": number}
        body, headers = encode_body({"parameters": known}, {}, "inputs")
    elif method == "POST":
        record: dict[str, object] = {"name": "d", "version": number, "rows": 2, "features": 3, "outputs": 0}
        if path != "/v2/datasets":
            record = {"id": number, "model": "x"} if path == "/v2/reveals" else {"mask_ids": ["1.a"]}
        body = json.dumps(record).encode()
    elif method == "PUT":
        body = draw.randbytes(48)
    lines = [f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {shown}", f"content-length: {len(body)}"]
    lines += [f"{key}: {value}" for key, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class _Entry:
    """Raw bytes to the HTTPS port of a party, a connection at a time."""

    def __init__(self, cluster_file: ClusterFile, rank: int, shown: str) -> None:
        card = cluster_file.servers[f"party{rank}"]
        host, port = card.http.split(":")
        self.shown, self._address = shown, (host, int(port))
        self._settings = ssl.create_default_context(cadata=card.certificate.pem)
        self._settings.check_hostname = False
        self._sock: ssl.SSLSocket | None = None

    def send(self, content: bytes) -> str:
        """The status of the answer; "end" if the connection was ended, "more" if the rest was waited for."""
        if self._sock is None:
            raw = socket.create_connection(self._address, timeout=ANSWER_S)
            self._sock = self._settings.wrap_socket(raw)
        outcome = "end"
        try:
            self._sock.sendall(content)
            self._sock.settimeout(0.3)
            try:
                answer = self._sock.recv(1 << 16)
            except TimeoutError:
                # It may still wait for a body that was cut off: an end of input must end the wait.
                self._sock.settimeout(ANSWER_S)
                self._sock.unwrap().shutdown(socket.SHUT_WR)
                answer = b""
                outcome = "more"
            if answer.startswith(b"HTTP/1.1 "):
                outcome = answer[9:12].decode(errors="replace")
                if re.fullmatch("2..|404", outcome) and len(answer) < (1 << 15):
                    return outcome  # the connection can be used again
        except TimeoutError:
            outcome = "silence"
        except (OSError, ValueError):
            pass  # ended by the other side, as it may
        self.close()
        return outcome

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._sock = None


def described(folder: Path) -> Iterator[Line]:
    """Schemathesis, made from the OpenAPI description, against party 0.

    It is not asked whether everything that fits the description is accepted: which tensors a network takes, and where
    an upload must go on, a schema cannot say.
    """
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    shown = token((folder / "token").read_text().strip(), cluster_file.id, 0)
    program = Path(sys.executable).with_name("schemathesis")
    if not program.exists():
        raise InputError("schemathesis is not installed: `make prove SUITE=service` installs it")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [
                *(
                    str(program),
                    "run",
                    f"https://{cluster_file.servers['party0'].http}/openapi.json",
                    "--tls-verify",
                    "false",
                ),
                *("-H", f"Authorization: Bearer {shown}", "-n", "20", "--seed", "1", "--no-color"),
                *("--phases", "examples,coverage,fuzzing", "--exclude-checks", "positive_data_acceptance"),
                *("--request-timeout", "20", "--continue-on-failure"),
            ],
            capture_output=True,
            text=True,
            cwd=place,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
    cases = re.search(r"(\d+) generated", done.stdout)
    count = int(cases.group(1)) if cases else 0
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:])
    yield exactly(
        f"schemathesis on the OpenAPI description: {count} cases in {time.monotonic() - started:.0f} s, exit status",
        done.returncode,
        0,
    )
