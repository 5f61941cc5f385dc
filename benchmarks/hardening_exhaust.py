"""Exhaustion: a full disk, descriptors held by strangers, and millions of rows from clients that come and go."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import uvloop

from benchmarks.load import Connection, pinned
from benchmarks.nodes import ROLES, Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.record import Line, at_most, exactly
from hdcos import nn
from hdcos.client.tensors import decode_body, encode_body
from hdcos.client.tokens import new_secret, token, token_hash
from hdcos.nn import Sequential
from hdcos.nn.private import layout
from hdcos.ring import decode, encode, modulo
from hdcos.serve.site import Site
from hdcos.service.store import Store

SOAK_ROWS = 3_000_000
AT_ONCE, REQUESTS, MOST_ROWS = 16, 8, 64
"""Clients at a time, requests of each before it leaves, rows of a request at most."""
MASKED_PART = 0.25
TOKENS, LIVES_PER_TOKEN = 16, 64
TOLERANCE = 0.02


# ---- millions of rows


@dataclass
class Soak:
    """Clients that come, ask a few times, and go; tokens are replaced on the way."""

    nodes: Nodes
    name: str
    model: Sequential
    seed: int
    rows: int = 0
    wrong: int = 0
    failed: int = 0
    lives: int = 0
    secrets: list[str] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._site = Site.read(self.nodes.folder / "cluster.toml")
        self._stores = [Store(self.nodes.folder / f"party{rank}" / "state") for rank in (0, 1)]
        self._layout = layout(self.model)
        self._random = np.random.default_rng(self.seed)
        self._settings = [pinned(self._site.servers[f"party{rank}"].certificate.pem) for rank in (0, 1)]
        self.secrets = [self._allowed() for _ in range(TOKENS)]

    def close(self) -> None:
        for store in self._stores:
            store.close()

    def until(self, rows: int) -> None:
        """Go on until so many rows were answered in all."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._until(rows))

    async def _until(self, rows: int) -> None:
        async def come_and_go() -> None:
            while self.rows < rows:
                await self._life()

        await asyncio.gather(*(come_and_go() for _ in range(AT_ONCE)))

    def _allowed(self) -> str:
        secret = new_secret()
        for rank, store in enumerate(self._stores):
            store.allow(secret[-12:], token_hash(token(secret, self._site.id, rank)), ["predict"])
        return secret

    def _replace_token(self) -> None:
        gone = self.secrets.pop(0)
        self.secrets.append(self._allowed())
        asyncio.get_running_loop().call_later(30.0, self._revoke, gone)

    def _revoke(self, secret: str) -> None:
        for store in self._stores:
            store.revoke(secret[-12:])

    async def _life(self) -> None:
        self.lives += 1
        if self.lives % LIVES_PER_TOKEN == 0:
            self._replace_token()
        secret = self.secrets[self._random.integers(TOKENS // 2, TOKENS)]  # those that will not be revoked soon
        links = [
            Connection(
                self._site.servers[f"party{rank}"].http, self._settings[rank], token(secret, self._site.id, rank)
            )
            for rank in (0, 1)
        ]
        masked = self._random.random() < MASKED_PART
        try:
            for _ in range(REQUESTS):
                rows = self._random.uniform(
                    -1, 1, (int(self._random.integers(1, MOST_ROWS + 1)), *self.model.input_shape)
                )
                outputs = await asyncio.wait_for(self._predict(links, rows, masked), 30)
                if outputs is None:
                    self.failed += 1
                    continue
                self.rows += len(rows)
                self.wrong += bool(np.abs(outputs - self.model(rows).reshape(len(rows), -1)).max() > TOLERANCE)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.failed += 1
        finally:
            for link in links:
                link.close()

    async def _predict(self, links: Sequence[Connection], rows: np.ndarray, masked: bool) -> np.ndarray | None:
        path, words = f"/v2/models/{self.name}", encode(self._layout.prepared(rows), self._layout.input_scale)
        asked = {"request_id": secrets.token_hex(16), "mode": "masked" if masked else "shares"}
        if masked:
            first = await _ask(links[0], f"{path}/masks", {"rows": len(words)})
            second = first and await _ask(links[1], f"{path}/masks", {"mask_ids": first[0]["mask_ids"]})
            if first is None or second is None:
                return None
            opened = modulo(words + first[1]["mask"] + second[1]["mask"], self._layout.input_bits)
            shares, asked["mask_ids"] = [opened, opened], first[0]["mask_ids"]
        else:
            zero = np.frombuffer(os.urandom(words.nbytes), np.uint64).reshape(words.shape)
            shares = [zero, words - zero]
        answers = await asyncio.gather(
            *(
                _ask(link, f"{path}/infer", {"parameters": asked}, share)
                for link, share in zip(links, shares, strict=True)
            )
        )
        if answers[0] is None or answers[1] is None:
            return None
        form = answers[0][0]["parameters"]
        total = modulo(answers[0][1]["output"] + answers[1][1]["output"], form["bits"])
        return decode(total, form["scale_bits"], form["bits"]).reshape(len(rows), -1) * form["gain"]


async def _ask(link, path, meta, share=None):
    """JSON and tensors of an answer; None where it was refused."""
    head, tail = json.dumps(meta).encode(), b""
    if share is not None:
        body, headers = encode_body(meta, {"input": share}, "inputs")
        length = int(headers["inference-header-content-length"])
        head, tail = body[:length], body[length:]
    status, body, length = await link.post(path, head, tail)
    if status != 200:
        return None
    return decode_body(body, str(length), "outputs")


def resident_mb(pid: int) -> float:
    """Memory of a process that is its own or in use."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def soak(seed: int, rows: int = SOAK_ROWS, parts: int = 3) -> Iterator[Line]:
    model = nn.models.mlp([6, 8, 3])
    with tempfile.TemporaryDirectory() as folder:
        with cluster_of_nodes(Path(folder) / "site", [("megabytes = 256 ", "megabytes = 16 ")]) as nodes:
            with nodes.connect() as cluster:
                cluster.share(model, "soaked")
                wait_until_ready(cluster)
            run = Soak(nodes, "soaked", model, seed)
            memory: list[dict[str, float]] = []
            started = time.monotonic()
            for part in range(1, parts + 1):
                run.until(rows * part // parts)
                memory.append({role: resident_mb(nodes.processes[role].pid) for role in ROLES})
                print(
                    f"{time.monotonic() - started:.0f} s, {run.rows} rows, {run.lives} clients, failed {run.failed}",
                    memory[-1],
                    flush=True,
                )
            run.close()
    yield exactly(f"{run.rows} rows from {run.lives} clients: wrong or failed", run.wrong + run.failed, 0)
    for role in ROLES:
        grown = 100 * (memory[-1][role] / memory[0][role] - 1)
        stages = ", ".join(f"{one[role]:.1f}" for one in memory)
        yield at_most(f"{role}, MB after each part of the rows ({stages}): growth in per cent", grown, 1.0)
