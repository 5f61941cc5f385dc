"""Concurrent clients on one event loop: each sends a row, waits for the answer, checks it, and sends the next.

The same client drives the two parties and, for comparison, one plaintext server: connections stay open, requests are
written in one piece, answers are read by their Content-Length.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import uvloop

from hdcos.api.tokens import token
from hdcos.link.cluster_file import ClusterFile
from hdcos.nn import Sequential
from hdcos.ring import encode
from hdcos.secure import compile_network

LENGTH = b"inference-header-content-length: "


@dataclass
class Tally:
    """What one run of clients saw."""

    seconds: float = 0.0
    answered: int = 0
    wrong: int = 0
    failed: int = 0
    retried: int = 0
    latencies_s: list[float] = field(default_factory=list, repr=False)

    def quantile(self, part: float) -> float:
        return float(np.quantile(self.latencies_s, part)) if self.latencies_s else float("nan")


class Connection:
    """One HTTPS connection that stays open."""

    def __init__(self, address: str, settings: ssl.SSLContext, shown: str) -> None:
        self._host, self._port = address.rsplit(":", 1)
        self._settings, self._shown = settings, shown
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, head: bytes, tail: bytes) -> tuple[int, bytes, int]:
        """Status, body and length of its JSON part."""
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(
                self._host, int(self._port), ssl=self._settings, server_hostname=""
            )
        self._writer.write(
            f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\nauthorization: Bearer {self._shown}\r\n"
            f"inference-header-content-length: {len(head)}\r\ncontent-length: {len(head) + len(tail)}\r\n\r\n".encode()
            + head
            + tail
        )
        raw = await self._reader.readuntil(b"\r\n\r\n")
        lowered = raw.lower()
        size = int(_after(lowered, b"content-length: "))
        body = await self._reader.readexactly(size)
        length = int(_after(lowered, LENGTH)) if LENGTH in lowered else size
        return int(raw[9:12]), body, length

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


def _after(text: bytes, name: bytes) -> bytes:
    # The longer header ends with the shorter one's name: look for a line that starts with it.
    start = text.index(b"\r\n" + name) + 2 + len(name)
    return text[start : text.index(b"\r\n", start)]


class Private:
    """Asks both parties of a cluster for the outputs of one row."""

    def __init__(self, cluster_file: ClusterFile, secret: str, name: str, model: Sequential, rows: np.ndarray) -> None:
        self._path = f"/v2/models/{name}/infer"
        chosen = compile_network(model)
        self._words = encode(chosen.apply_front(rows), chosen.input_scale)
        self.expected = model(rows)
        shape = list(self._words.shape[1:])
        size = 8 * int(np.prod(shape))
        entry = {"name": "input", "datatype": "UINT64", "shape": [1, *shape], "parameters": {"binary_data_size": size}}
        text = json.dumps({"parameters": {"request_id": "@", "mode": "shares"}, "inputs": [entry]})
        self._head = text.encode().split(b"@")
        self._size = size
        self._links = [
            (card.http, pinned(card.certificate.pem), token(secret, cluster_file.id, rank))
            for rank, card in ((0, cluster_file.servers["party0"]), (1, cluster_file.servers["party1"]))
        ]

    def connections(self) -> list[Connection]:
        return [Connection(*link) for link in self._links]

    async def ask(self, connections: Sequence[Connection], number: int) -> np.ndarray | int:
        """The joined outputs, or the status that a party refused with."""
        words = self._words[number]
        zero = np.frombuffer(os.urandom(self._size), np.uint64)
        one = words.reshape(-1) - zero
        head = secrets.token_hex(16).encode().join(self._head)
        try:
            async with asyncio.TaskGroup() as group:  # if one fails, the other is given up
                asked = [
                    group.create_task(connection.post(self._path, head, share.tobytes()))
                    for connection, share in zip(connections, (zero, one), strict=True)
                ]
        except* (OSError, asyncio.IncompleteReadError) as failures:
            raise failures.exceptions[0] from None
        answers = [task.result() for task in asked]
        for status, body, _ in answers:
            if status != 200:
                return status if json.loads(body).get("retryable") else -status
        (_, left, start0), (_, right, start1) = answers
        parameters = json.loads(left[:start0])["parameters"]
        total = (
            np.frombuffer(left, np.uint64, -1, start0) if start0 % 8 == 0 else np.frombuffer(left[start0:], np.uint64)
        )
        total = total + np.frombuffer(right[start1:], np.uint64)
        unused = np.uint64(64 - parameters["bits"])
        signed = (total << unused).view(np.int64) >> np.int64(64 - parameters["bits"])
        return signed * (parameters["gain"] / 2.0 ** parameters["scale_bits"])


class Plain:
    """Asks a plaintext server for the outputs of one row."""

    def __init__(self, address: str, pem: str, shown: str, rows: np.ndarray, expected: np.ndarray) -> None:
        self._rows, self.expected = rows.astype(np.float32), expected
        shape, size = list(rows.shape[1:]), 4 * int(np.prod(rows.shape[1:]))
        entry = {"name": "input", "datatype": "FP32", "shape": [1, *shape], "parameters": {"binary_data_size": size}}
        self._head = json.dumps({"id": "@", "inputs": [entry]}).encode().split(b"@")
        self._link = (address, pinned(pem), shown)

    def connections(self) -> list[Connection]:
        return [Connection(*self._link)]

    async def ask(self, connections: Sequence[Connection], number: int) -> np.ndarray | int:
        head = secrets.token_hex(16).encode().join(self._head)
        status, body, start = await connections[0].post("/v2/models/plain/infer", head, self._rows[number].tobytes())
        return np.frombuffer(body[start:], np.float32) if status == 200 else -status


def pinned(pem: str) -> ssl.SSLContext:
    """Trusts one certificate."""
    settings = ssl.create_default_context(cadata=pem)
    settings.check_hostname = False
    return settings


Asker = Private | Plain


async def _client(asker: Asker, tally: Tally, deadline: float, patience_s: float, tolerance: float, seed: int) -> None:
    connections, random = asker.connections(), np.random.default_rng(seed)
    rows = len(asker.expected)
    while time.perf_counter() < deadline:
        number, started = int(random.integers(rows)), time.perf_counter()
        while True:
            try:
                answer = await asyncio.wait_for(asker.ask(connections, number), patience_s)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                answer = 503
                for connection in connections:
                    connection.close()
            if not isinstance(answer, int) or answer < 0 or time.perf_counter() > deadline + patience_s:
                break
            tally.retried += 1
            await asyncio.sleep(0.05)
        if isinstance(answer, int):
            tally.failed += 1
            continue
        tally.latencies_s.append(time.perf_counter() - started)
        tally.answered += 1
        tally.wrong += bool(np.abs(answer - asker.expected[number].reshape(-1)).max() > tolerance)
    for connection in connections:
        connection.close()


async def _run(asker: Asker, clients: int, seconds: float, patience_s: float, tolerance: float) -> Tally:
    tally, started = Tally(), time.perf_counter()
    work: Callable[[int], Awaitable[None]] = lambda seed: _client(  # noqa: E731
        asker, tally, started + seconds, patience_s, tolerance, seed
    )
    await asyncio.gather(*(work(seed) for seed in range(clients)))
    tally.seconds = time.perf_counter() - started
    return tally


def run(asker: Asker, clients: int, seconds: float, patience_s: float = 10.0, tolerance: float = 0.02) -> Tally:
    """This many clients for so long."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(asker, clients, seconds, patience_s, tolerance))


def main() -> None:
    """Private clients in a process of their own: a folder, a model's file and name, clients and seconds."""
    from hdcos import nn

    logging.disable(logging.ERROR)  # connections to killed nodes are expected to break
    folder, file, name, clients, seconds = sys.argv[1:]
    model = nn.load(file)
    rows = np.random.default_rng(0).uniform(-1, 1, (256, *model.input_shape))
    cluster_file = ClusterFile.read(Path(folder) / "cluster.toml")
    asker = Private(cluster_file, (Path(folder) / "token").read_text().strip(), name, model, rows)
    tally = run(asker, int(clients), float(seconds))
    print(json.dumps(asdict(tally)))


if __name__ == "__main__":
    main()
