"""Exhaustion: a full disk, descriptors held by strangers, and millions of rows from clients that come and go.

disk         a state folder of 8 MB, filled by uploads and then to the last byte, while clients predict and a job trains
strangers    1,000 idle connections to each party, which has 256 descriptors, while clients come and ask
soak         3,000,000 rows: the memory of every node after each million
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import urllib3
import uvloop

from benchmarks.load import Connection, pinned
from benchmarks.nodes import HDCOS, ROLES, Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.record import Line, at_least, at_most, exactly
from benchmarks.small_disk import fill, mounted
from hdcos import nn
from hdcos.api.bodies import LENGTH_HEADER, decode_body, encode_body
from hdcos.api.tokens import new_secret, token, token_hash
from hdcos.cluster.cluster import Cluster
from hdcos.errors import HdcosError, StorageFull
from hdcos.link.cluster_file import ClusterFile
from hdcos.nn import Sequential
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.node import KEPT_S, LOOK_S
from hdcos.party.store import Store
from hdcos.ring import Array, decode, encode, modulo
from hdcos.secure import compile_network

PARTIES = ROLES[1:]
FILE_BYTES = 1 << 20
DESCRIPTORS, STRANGERS, HELD_S = 256, 1000, 30.0
CROWD, NAMED = "crowd", ((503, "PeerLost"), (429, "PolicyRefused"))
"""A client that takes all places it can get, and what it is told then: of its address, or of itself, too many wait."""
SOAK_ROWS = 3_000_000
AT_ONCE, REQUESTS, MOST_ROWS = 16, 8, 64
"""Clients at a time, requests of each before it leaves, rows of a request at most."""
LOOKS, ROWS_BETWEEN = 4, 100_000
"""At the memory of the nodes, for each part of the rows, and the rows before each of them."""
REST_S = KEPT_S + 2 * LOOK_S
"""After which freed memory has been given back: the first look of a node may still see some work."""
MASKED_PART = 0.25
TOKENS, LIVES_PER_TOKEN, REVOKED_AFTER_S = 16, 64, 30.0
TOLERANCE = 0.02
MODEL = nn.models.mlp([6, 8, 3])


class Asking:
    """A client that predicts again and again beside everything else: what it saw, and its longest wait."""

    def __init__(self, nodes: Nodes, seed: int, pause_s: float = 0.05, newly: bool = False) -> None:
        self._nodes, self._pause_s, self._newly = nodes, pause_s, newly
        self._random = np.random.default_rng(seed)
        self.answered = self.wrong = 0
        self.failures: list[str] = []
        self.longest_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                with self._nodes.connect(timeout_s=30.0) as cluster:
                    self._predict(cluster)
            except HdcosError as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def _predict(self, cluster: Cluster) -> None:
        """With one connection, or (`newly`) one question on each."""
        started, model = time.monotonic(), cluster.model("kept")
        while not self._stop.is_set():
            rows = self._random.uniform(-1, 1, (4, 6))
            self.wrong += bool(np.abs(model.predict(rows) - MODEL(rows)).max() > TOLERANCE)
            self.answered += 1
            self.longest_s = max(self.longest_s, time.monotonic() - started)
            self._stop.wait(self._pause_s)
            if self._newly:
                return
            started = time.monotonic()


# ---- a full disk


@contextmanager
def small_disks(stack: ExitStack) -> Iterator[Callable[[Path], None]]:
    """Makes the state folder of each party a disk of its own, where that is allowed."""

    def prepare(folder: Path) -> None:
        for role in PARTIES:
            state, before = folder / role / "state", folder / role / "before"
            state.rename(before)
            state.mkdir()
            stack.enter_context(mounted(state))
            shutil.copytree(before, state, dirs_exist_ok=True)

    yield prepare


def _fill(nodes: Nodes) -> list[Path]:
    """Somebody else takes all room that is left; where a party has no disk of its own, no file may grow any more."""
    made = []
    for role in PARTIES:
        state = nodes.folder / role / "state"
        if os.path.ismount(state):
            made.append(fill(state))
        else:
            resource.prlimit(nodes.processes[role].pid, resource.RLIMIT_FSIZE, (FILE_BYTES, resource.RLIM_INFINITY))
    return made


def _relieve(nodes: Nodes, made: Sequence[Path]) -> None:
    for path in made:
        path.unlink()
    for role in PARTIES:
        everything = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(nodes.processes[role].pid, resource.RLIMIT_FSIZE, everything)


def disk(seed: int) -> Iterator[Line]:
    random = np.random.default_rng(seed)
    rows, labels = random.uniform(-1, 1, (100, 6)), np.arange(100) % 3
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Path(folder) / "home"
        prepare = stack.enter_context(small_disks(stack))
        nodes = stack.enter_context(cluster_of_nodes(place, [("megabytes = 256 ", "megabytes = 4 ")], prepare))
        cluster = stack.enter_context(nodes.connect())
        real = all(os.path.ismount(place / role / "state") for role in PARTIES)
        cluster.share(MODEL, "kept")
        wait_until_ready(cluster)
        cluster.upload(rows, labels, name="first", outputs=3)
        stored = _stored(place, "first")
        with Asking(nodes, seed) as asking:
            job = cluster.fit(
                MODEL, "first", epochs=200, batch_size=25, lr=0.1, checkpoint_every=2, name="trained", wait=False
            )
            refused = _upload_until_full(nodes, random) if real else Counter()
            fillers = _fill(nodes)
            refused += _upload_until_full(nodes, random, 64 if real else 256, least=8)
            time.sleep(12)  # the job finds no room for its checkpoints, waits, and tries again
            said = [party.ask("GET", "/v2/status", None, None).meta for party in cluster.transport.both]
            doctor = subprocess.run(
                [*HDCOS, "doctor", "--node", str(place / "party0"), "--cluster", str(place / "cluster.toml")],
                capture_output=True,
                text=True,
            )
            _relieve(nodes, fillers)
            ready_s = wait_until_ready(cluster)
            for name in {item["name"] for item in cluster.datasets()} - {"first"}:
                cluster.forget_data(name)
            trained = job.result(180).predict(rows[:4]).shape
            cluster.upload(random.uniform(-1, 1, (1000, 64)), name="afterwards")
        unchanged = all(np.array_equal(stored[key], value) for key, value in _stored(place, "first").items())
        reused = _reused(place, job.id)
        logs = nodes.logs()
    others = {name: count for name, count in refused.items() if name != "StorageFull"}
    kind = "a disk of its own" if real else "mounting is refused here: files of 1 MB"
    yield exactly(
        f"state of 8 MB ({kind}): {refused['StorageFull']} uploads refused as StorageFull; otherwise", others, {}
    )
    yield at_least("uploads refused", refused["StorageFull"], 8)
    yield exactly(f"{asking.answered} predictions meanwhile: wrong or failed", asking.wrong + len(asking.failures), 0)
    yield at_most("longest wait for one, seconds", asking.longest_s, 10)
    if real:
        told = [bool(one["storage"]["full"] and "is full" in one["reason"]) for one in said]
        yield exactly("parties whose status says that the disk is full", sum(told), 2)
        yield exactly("disks that `hdcos doctor` finds full", doctor.stdout.count("BAD  disk of"), 2)
    stops = max(one["counters"]["aborts"] for one in said)
    yield exactly(f"the job, which found no room {stops} times, has trained when there is some", trained, (4, 3))
    yield exactly("data set unchanged at both parties", unchanged, True)
    yield exactly("executions that the ledgers show reserved twice", reused, [])
    yield at_most("seconds until ready when there is room again", ready_s, 10)
    yield exactly("internal errors in the logs", logs.count("internal error"), 0)


def _upload_until_full(nodes: Nodes, random: np.random.Generator, features: int = 64, least: int = 1) -> Counter[str]:
    """Several clients upload, and some leave half-way, until each was refused; how they were."""
    refused: Counter[str] = Counter()
    with nodes.connect() as cluster:
        while sum(refused.values()) < least:
            name = f"rows-{random.integers(1 << 60):x}"
            begun = {"name": name, "version": secrets.token_hex(16), "rows": 1000, "features": features, "outputs": 0}
            try:
                cluster.transport.ask("POST", "/v2/datasets", begun)  # and breaks off
                path = f"/v2/datasets/{name}/{begun['version']}?offset=0"
                cluster.transport.ask("PUT", path, raw=[secrets.token_bytes(1 << 18)] * 2)
                cluster.upload(random.uniform(-1, 1, (1000, features)), name=f"whole-{name}")
            except StorageFull:
                refused["StorageFull"] += 1
            except HdcosError as error:
                refused[f"{type(error).__name__}: {error}"] += 1
    return refused


def _stored(place: Path, name: str) -> Mapping[str, Array]:
    """The shares of a data set as both parties keep them."""
    found: dict[str, Array] = {}
    for role in PARTIES:
        store = Store(place / role / "state")
        (dataset,) = store.datasets(name)
        found[role] = store.dataset_rows(dataset).take(np.arange(dataset.rows))
        store.close()
    return found


def _reused(place: Path, job: str) -> list[str]:
    found = []
    for rank, role in enumerate(PARTIES):
        store = Store(place / role / "state")
        found += store.reused() + Checkpoints.of(store.job_folder(job), rank).reused()
        store.close()
    return found


# ---- strangers


class Strangers:
    """This many connections to each party that say nothing, or begin a handshake, and are made again when they end."""

    def __init__(self, addresses: Sequence[tuple[str, int]], count: int) -> None:
        self._addresses, self._count = addresses, count
        self.made = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._hold, args=(address,)) for address in addresses]

    def __enter__(self) -> Strangers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _hold(self, address: tuple[str, int]) -> None:
        held: list[socket.socket] = []
        at_once = self._count  # they come all at once; those that are shut out come again, some hundred a second
        while not self._stop.is_set():
            held = [sock for sock in held if _open(sock)]
            at_once, wanted = 10, min(at_once, self._count - len(held))
            for _ in range(wanted):
                with suppress(OSError):
                    held.append(socket.create_connection(address, timeout=5))
                    held[-1].setblocking(False)
                    self.made += 1
                    if self.made % 2:
                        held[-1].send(bytes.fromhex("160301"))  # a handshake that does not go on
            self._stop.wait(0.05)
        for sock in held:
            sock.close()


def _open(sock: socket.socket) -> bool:
    try:
        if sock.recv(1 << 12):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    sock.close()
    return False


def strangers(seed: int, held_s: float = HELD_S) -> Iterator[Line]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    random = np.random.default_rng(seed)
    rows, labels = random.uniform(-1, 1, (100, 6)), np.arange(100) % 3
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Path(folder) / "home"
        small = [("megabytes = 256 ", "megabytes = 4 "), ("patience_s = 5 ", f"patience_s = {held_s + 30:g} ")]
        nodes = stack.enter_context(cluster_of_nodes(place, small, descriptors=DESCRIPTORS, clients=[CROWD]))
        with nodes.connect() as cluster:
            cluster.share(MODEL, "kept")
            wait_until_ready(cluster)
            cluster.upload(rows, labels, name="first", outputs=3)
            options: Any = {"batch_size": 5, "lr": 0.01, "wait": False}
            job = cluster.fit(MODEL, "first", epochs=10_000, name="trained", checkpoint_every=50, **options)
        stored = _stored(place, "first")
        cluster_file = ClusterFile.read(place / "cluster.toml")
        addresses = [_address(cluster_file, role) for role in PARTIES]
        before = [_descriptors(nodes, role) for role in PARTIES]
        most, elsewhere = 0, [0.0]
        with Asking(nodes, seed) as known, Asking(nodes, seed + 1, newly=True) as newcomer:
            time.sleep(2)
            with Strangers(addresses, STRANGERS) as crowd:
                until = time.monotonic() + held_s
                while time.monotonic() < until:
                    most = max(most, *(_descriptors(nodes, role) for role in PARTIES))
                    elsewhere += [_ask_from("127.0.0.2", nodes, cluster_file, rank) for rank in (0, 1)]
                    time.sleep(0.2)
                told = [_told_where_all_work(nodes, cluster_file, rank) for rank in (0, 1)]
            time.sleep(10)
            after = [_descriptors(nodes, role) for role in PARTIES]
        unchanged = all(np.array_equal(stored[key], value) for key, value in _stored(place, "first").items())
        with nodes.connect() as cluster:
            said = [party.ask("GET", "/v2/status", None, None).meta for party in cluster.transport.both]
            error = float(np.abs(cluster.model("kept").predict(rows) - MODEL(rows)).max())
            states = [status["state"] for status in cluster.transport.job(job.id)]
            cluster.transport.cancel(job.id, keep=True)
            trained = cluster.job(job.id).result(60).predict(rows[:4]).shape
        reused = _reused(place, job.id)
        logs = nodes.logs()
    counts = f"{STRANGERS} idle connections to each party held for {held_s:g} s, {crowd.made} made in all"
    yield at_most(f"{counts}: descriptors in use of {DESCRIPTORS}", most, DESCRIPTORS - 1)
    for who, asking in (("a client that was there before", known), ("new clients", newcomer)):
        failed = asking.wrong + len(asking.failures)
        yield exactly(f"{who}, at the strangers' address, {asking.answered} predictions: wrong or failed", failed, 0)
        yield at_most(f"{who}: longest wait, seconds", asking.longest_s, 10)
    yield at_most(f"{len(elsewhere) - 1} clients of another address: longest wait, seconds", max(elsewhere), 10)
    shown = ", ".join(f"{status} {name}: {count}" for (status, name), count in sorted((told[0] + told[1]).items()))
    refused = [sum(one[key] for key in NAMED) for one in told]
    yield at_least(
        f"requests refused by name where all connections are at work, least of a party ({shown})", min(refused), 1
    )
    others = sum(count for key, count in (told[0] + told[1]).items() if key not in (*NAMED, (0, "")))
    yield exactly("of these, answered otherwise", others, 0)
    yield exactly("data set unchanged at both parties", unchanged, True)
    yield at_most("error of the model afterwards", error, TOLERANCE)
    yield exactly("the job goes on at both parties", states, ["running", "running"])
    yield exactly("and gives its model when it is ended", trained, (4, 3))
    yield exactly("executions that the ledgers show reserved twice", reused, [])
    yield exactly("sessions that ended", max(one["counters"]["aborts"] for one in said), 0)
    grown = max(now - then for now, then in zip(after, before, strict=True))
    yield at_most("descriptors more than before, ten seconds afterwards", grown, 16)
    yield exactly("internal errors in the logs", logs.count("internal error"), 0)


def _told_where_all_work(nodes: Nodes, cluster_file: ClusterFile, rank: int) -> Counter[tuple[int, str]]:
    """What requests are told that are made while as many of their address or client wait as may be: status and name."""
    settings = pinned(cluster_file.servers[f"party{rank}"].certificate.pem)
    shown = token((nodes.folder / f"{CROWD}.token").read_text().strip(), cluster_file.id, rank)
    entry = {"name": "input", "datatype": "UINT64", "shape": [1, 6], "data": [0] * 6}
    told: Counter[tuple[int, str]] = Counter()
    with ExitStack() as stack:
        for _ in range(DESCRIPTORS):
            parameters = {"request_id": secrets.token_hex(16), "mode": "shares"}
            body = json.dumps({"parameters": parameters, "inputs": [entry]})
            head = f"POST /v2/models/kept/infer HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {shown}\r\n"
            with suppress(OSError):
                sock = socket.create_connection(_address(cluster_file, f"party{rank}"), 5, ("127.0.0.3", 0))
                waiting = stack.enter_context(settings.wrap_socket(sock))
                waiting.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
                if answer := _read_refusal(waiting):
                    head, _, content = answer.partition(b"\r\n\r\n")
                    told[int(head[9:12]), json.loads(content)["name"] if content else ""] += 1
    return told


def _read_refusal(sock: ssl.SSLSocket) -> bytes:
    """What a connection is told before it is closed; nothing if its request waits."""
    answer = b""
    sock.settimeout(0.05)
    with suppress(OSError):
        while piece := sock.recv(1 << 16):
            answer += piece
            sock.settimeout(5)
    return answer


def _address(cluster_file: ClusterFile, role: str) -> tuple[str, int]:
    host, _, port = cluster_file.servers[role].http.rpartition(":")
    return host, int(port)


def _descriptors(nodes: Nodes, role: str) -> int:
    return len(os.listdir(f"/proc/{nodes.processes[role].pid}/fd"))


def _ask_from(source: str, nodes: Nodes, cluster_file: ClusterFile, rank: int) -> float:
    """Seconds until a party told a new client of another address how it is."""
    card = cluster_file.servers[f"party{rank}"]
    pool = urllib3.HTTPSConnectionPool(
        *_address(cluster_file, f"party{rank}"),
        source_address=(source, 0),
        cert_reqs="CERT_NONE",
        assert_fingerprint=card.certificate.fingerprint,
        timeout=60,
        retries=False,
    )
    started = time.monotonic()
    shown = {"authorization": f"Bearer {token(nodes.secret, cluster_file.id, rank)}"}
    try:
        answer = pool.urlopen("GET", "/v2/status", headers=shown)
        return time.monotonic() - started if answer.status == 200 else float("inf")
    except urllib3.exceptions.HTTPError as error:
        print(f"from {source}: {type(error).__name__}: {error}", file=sys.stderr)
        return float("inf")
    finally:
        pool.close()


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
        self._cluster_file = ClusterFile.read(self.nodes.folder / "cluster.toml")
        self._stores = [Store(self.nodes.folder / f"party{rank}" / "state") for rank in (0, 1)]
        self._network = compile_network(self.model)
        self._random = np.random.default_rng(self.seed)
        self._settings = [pinned(self._cluster_file.servers[f"party{rank}"].certificate.pem) for rank in (0, 1)]
        self.secrets = [self._allowed() for _ in range(TOKENS)]
        self._replaced: deque[tuple[float, str]] = deque()

    def close(self) -> None:
        for store in self._stores:
            store.close()

    def until(self, rows: int) -> None:
        """Go on until this many rows were answered in all."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._until(rows))

    async def _until(self, rows: int) -> None:
        async def come_and_go() -> None:
            while self.rows < rows:
                await self._life()

        await asyncio.gather(*(come_and_go() for _ in range(AT_ONCE)))
        self._revoke(float("inf"))  # nobody is left who has one

    def _allowed(self) -> str:
        secret = new_secret()
        for rank, store in enumerate(self._stores):
            store.allow(secret[-12:], token_hash(token(secret, self._cluster_file.id, rank)), ["predict"])
        return secret

    def _replace_token(self) -> None:
        now = time.monotonic()
        self._replaced.append((now, self.secrets.pop(0)))
        self.secrets.append(self._allowed())
        self._revoke(now - REVOKED_AFTER_S)

    def _revoke(self, before: float) -> None:
        """Tokens that were replaced before a moment: what the parties know of clients must not grow by them."""
        while self._replaced and self._replaced[0][0] < before:
            _, secret = self._replaced.popleft()
            for store in self._stores:
                store.revoke(secret[-12:])

    async def _life(self) -> None:
        self.lives += 1
        if self.lives % LIVES_PER_TOKEN == 0:
            self._replace_token()
        secret = self.secrets[self._random.integers(TOKENS // 2, TOKENS)]  # those that will not be revoked soon
        links = [
            Connection(
                self._cluster_file.servers[f"party{rank}"].http,
                self._settings[rank],
                token(secret, self._cluster_file.id, rank),
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
        path, words = f"/v2/models/{self.name}", encode(self._network.apply_front(rows), self._network.input_scale)
        asked = {"request_id": secrets.token_hex(16), "mode": "masked" if masked else "shares"}
        if masked:
            first = await _ask(links[0], f"{path}/masks", {"rows": len(words)})
            second = first and await _ask(links[1], f"{path}/masks", {"mask_ids": first[0]["mask_ids"]})
            if first is None or second is None:
                return None
            opened = modulo(words + first[1]["mask"] + second[1]["mask"], self._network.input_bits)
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
        parameters = answers[0][0]["parameters"]
        total = modulo(answers[0][1]["output"] + answers[1][1]["output"], parameters["bits"])
        return decode(total, parameters["scale_bits"], parameters["bits"]).reshape(len(rows), -1) * parameters["gain"]


async def _ask(
    link: Connection, path: str, meta: Mapping[str, Any], share: Array | None = None
) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """JSON and tensors of an answer; None where it was refused."""
    head, tail = json.dumps(meta).encode(), b""
    if share is not None:
        body, headers = encode_body(meta, {"input": share}, "inputs")
        length = int(headers[LENGTH_HEADER])
        head, tail = body[:length], body[length:]
    status, body, length = await link.post(path, head, tail)
    if status != 200:
        return None
    return decode_body(body, str(length))


def resident_mb(pid: int) -> float:
    """Memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def rest(nodes: Nodes, rest_s: float = REST_S) -> dict[str, float]:
    """Let nobody ask for as long as it takes until every node has given freed memory back; the least it had."""
    least = dict.fromkeys(ROLES, float("inf"))
    until = time.monotonic() + rest_s
    while time.monotonic() < until:
        least = {role: min(least[role], resident_mb(nodes.processes[role].pid)) for role in ROLES}
        time.sleep(0.5)
    return least


def look_at_memory(nodes: Nodes, run: Soak, rows: int, rest_s: float = REST_S) -> tuple[dict[str, float], ...]:
    """Memory of every node after these rows: the medians of LOOKS looks, at rest and right after work.

    What is judged is memory at rest, when freed memory was given back: what is kept for a row or a client is there
    then, and is there at every later look. Work itself adds some megabytes, and these move by one from one look to the
    next with the longest queue there happened to be: a leak of the size that counts here, a tenth of a byte for each
    row, would be lost in them. Every look has as much work before it as the others.

    Some tenths of a megabyte come with no leak, and end: the C library keeps freed pieces for each of 15 threads, up to
    0.2 MB each, and these fill over millions of rows; the history of the status page fills in ten minutes.
    """
    rests, works = [], []
    for left in reversed(range(LOOKS)):
        run.until(rows - left * ROWS_BETWEEN)
        works.append({role: resident_mb(nodes.processes[role].pid) for role in ROLES})
        rests.append(rest(nodes, rest_s))
    for role in ROLES:
        shown = ", ".join(f"{worked[role]:.2f} ({look[role]:.2f})" for worked, look in zip(works, rests, strict=True))
        print(f"{role}, MB at work (and at rest after it): {shown}")
    return tuple({role: median(look[role] for look in looks) for role in ROLES} for looks in (rests, works))


def soak(seed: int, rows: int = SOAK_ROWS, parts: int = 3, rest_s: float = REST_S) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        nodes = stack.enter_context(cluster_of_nodes(Path(folder) / "home", [("megabytes = 256 ", "megabytes = 16 ")]))
        with nodes.connect() as cluster:
            cluster.share(MODEL, "soaked")
            wait_until_ready(cluster)
        run, memory = Soak(nodes, "soaked", MODEL, seed), list[tuple[dict[str, float], ...]]()
        started = time.monotonic()
        stack.callback(run.close)
        for part in range(1, parts + 1):
            end = rows * part // parts
            memory.append(look_at_memory(nodes, run, end, rest_s))
            print(f"{time.monotonic() - started:.0f} s: {run.rows} rows, {run.lives} clients, MB {memory[-1]}")
    yield exactly(f"{run.rows} rows from {run.lives} clients: wrong or failed", run.wrong + run.failed, 0)
    for role in ROLES:
        (rested, stages), (worked, at_work) = (_growth([one[state][role] for one in memory]) for state in (0, 1))
        yield at_most(f"{role}, MB at rest after each part of the rows ({stages}): growth in per cent", rested, 1.0)
        yield Line(f"{role}, MB right after the work ({at_work}): growth in per cent", worked, "reported", True)


def _growth(megabytes: Sequence[float]) -> tuple[float, str]:
    """From the first to the last in per cent, and all of them."""
    return 100 * (megabytes[-1] / megabytes[0] - 1), ", ".join(f"{one:.2f}" for one in megabytes)
