"""Memory and time bombs against real nodes: architectures and jobs over HTTPS, plans and bodies."""

from __future__ import annotations

import asyncio
import heapq
import json
import random
import secrets
import ssl
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hardening_exhaust import MODEL, Asking
from benchmarks.nodes import ROLES, Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.random_networks import random_architecture, size
from benchmarks.random_plans import random_plan
from benchmarks.record import Line, at_least, at_most, exactly
from hdcos import nn
from hdcos.api.bodies import LENGTH_HEADER, encode_body
from hdcos.api.tokens import new_secret, token, token_hash
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.https import Party
from hdcos.errors import HdcosError, ModelError
from hdcos.link import Hello, Identity, Kind, Link, connect, handshake
from hdcos.link.cluster_file import ClusterFile
from hdcos.link.message import decode_reply, encode_message, request
from hdcos.offline.limits import MOST_BYTES, check
from hdcos.party.budget import Demand
from hdcos.party.config import Limits
from hdcos.party.database import STATE
from hdcos.party.node import SOFTWARE
from hdcos.party.store import Store
from hdcos.ring import table_hash
from hdcos.secure import compile_network
from hdcos.secure.program import plan_inference
from hdcos.secure.training import training_plan

ARCHITECTURES, PLANS = 10_000, 10_000
SHARED_EVERY, TRAINED_EVERY = 10, 100
"""How many of the architectures there are for each that is shared and asked, and for each other that is trained."""
LARGEST, DRAWN_FOR_LARGEST = 8, 3000
"""Models that are loaded besides: of this many more architectures those that take the most of what one may."""
MATERIAL_MB, TRAINED_ROWS = 4, 8
CLIENTS, BODIES = 64, 4
PIECE_BYTES, ALONE_S = 1 << 18, 5.0
ROOM_OF_REQUEST = 0.95
"""The part of a request's bytes that tensors may be."""
HANG_S, LOADED_S, OTHERS_S, BOMB_S, BOMB_MB = 5.0, 30.0, 10.0, 1.0, 50.0
"""Seconds of one answer; of a model that is shared, loaded and asked, or trained; of another client's answer."""
BODY_MB, CLIENT_MB, WAITING_MB = 16, 64, 256
SLACK_MB = CLIENTS * BODIES / 3
"""A third of a megabyte for each connection, as docs/operations.md says: buffers of TLS and HTTP."""
SERVED = nn.models.mlp([64, 64, 10])
ROWS = np.random.default_rng(0).uniform(-1, 1, (8, 64))


def prove(seed: int) -> Iterable[Line]:
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        changes = [("megabytes = 256 ", f"megabytes = {MATERIAL_MB} "), ("= 2000 ", "= 100000 ")]
        with cluster_of_nodes(Path(place) / "home", changes) as nodes, nodes.connect() as cluster:
            wait_until_ready(cluster)
            cluster.share(SERVED, "served")
            yield from _bombs(nodes, cluster)
            yield from _architectures(draw, nodes, cluster)
            yield from _largest(draw, nodes, cluster)
            yield from _plans(draw, nodes)
            yield from _alive(nodes, cluster)
    with tempfile.TemporaryDirectory() as place:
        limits = [
            ("megabytes = 256 ", "megabytes = 400 "),
            ("body_mb = 64 ", f"body_mb = {BODY_MB} "),
            ("client_mb = 256 ", f"client_mb = {CLIENT_MB} "),
            ("waiting_mb = 1024 ", f"waiting_mb = {WAITING_MB} "),
        ]
        with cluster_of_nodes(Path(place) / "home", limits) as nodes, nodes.connect() as cluster:
            yield from _bodies(nodes, cluster)


def shortly(seed: int, architectures: int = 400, largest: int = 2, plans: int = 400) -> Iterable[Line]:
    """Architectures and plans alone, in a minute or two: to see that nothing is wrong with this proof."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        changes = [("megabytes = 256 ", f"megabytes = {MATERIAL_MB} "), ("= 2000 ", "= 100000 ")]
        with cluster_of_nodes(Path(place) / "home", changes) as nodes, nodes.connect() as cluster:
            wait_until_ready(cluster)
            cluster.share(SERVED, "served")
            yield from _architectures(draw, nodes, cluster, architectures)
            yield from _largest(draw, nodes, cluster, largest, 600)
            yield from _plans(draw, nodes, plans)
            yield from _alive(nodes, cluster)


# ---- measuring


def _memory_mb(pid: int, what: str = "VmHWM") -> float:
    """The most, or with VmRSS the present, resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


def _all_mb(nodes: Nodes) -> dict[str, float]:
    return {role: _memory_mb(nodes.processes[role].pid) for role in ROLES}


def _begin_peaks(nodes: Nodes) -> dict[str, float]:
    """What every node has now; from here on its most memory is counted again."""
    for role in ROLES:
        Path(f"/proc/{nodes.processes[role].pid}/clear_refs").write_text("5")
    return _all_mb(nodes)


@dataclass
class Tried:
    """What became of many attempts."""

    most_s: float = HANG_S
    """What takes longer is a hang."""
    allowed: bool = True
    """Whether an error by name may be the answer; otherwise it is shown."""
    names: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    hangs: int = 0
    internal: int = 0
    """Answers that are no error by name, here or at a node."""

    @contextmanager
    def one(self, what: object = "") -> Iterator[None]:
        """An attempt: an error by name is an answer, anything else is not, and is shown with what was asked."""
        started = time.perf_counter()
        name = "accepted"
        try:
            yield
        except Exception as error:
            found = type(getattr(error, "error", error))
            name = found.__name__
            internal = found is HdcosError or not issubclass(found, HdcosError)
            self.internal += internal
            if internal or not self.allowed:
                print(f"{name}: {error}, asked for {what}", file=sys.stderr)
                traceback.print_exc()
        took = time.perf_counter() - started
        self.names[name] += 1
        self.longest_s = max(self.longest_s, took)
        if took > self.most_s:
            self.hangs += 1
            print(f"{name} after {took:.1f} s, asked for {what}", file=sys.stderr)

    def __str__(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in self.names.most_common())


# ---- the bombs that once worked


def _bomb_architectures() -> dict[str, Mapping[str, Any]]:
    def linear(kind: str, inputs: int, outputs: int, **more: Any) -> dict[str, Any]:
        return {"type": kind, "in_features": inputs, "out_features": outputs, **more}

    def padded(padding: int) -> dict[str, Any]:
        image = {"type": "Conv2d", "in_channels": 1, "out_channels": 1, "kernel_size": 3}
        layers = [{**image, "stride": 4 * padding, "padding": padding}, {"type": "Cos"}, {"type": "Flatten"}]
        return {"input_shape": [1, 8, 8], "layers": [*layers, linear("HadamardDiagonal", 1, 1)]}

    def row(*layers: dict[str, Any]) -> dict[str, Any]:
        return {"input_shape": [4], "layers": list(layers)}

    return {
        "padding 5000": padded(5000),
        "padding 2**17": padded(1 << 17),
        "PHD of 4096": row(linear("PHD", 4, 4096), {"type": "Cos"}, linear("HadamardDiagonal", 4096, 2)),
        "PHD of 2**24": row(linear("PHD", 4, 1 << 24), {"type": "Cos"}, linear("HadamardDiagonal", 1 << 24, 2)),
        "transform of 2**27": row(linear("HadamardDiagonal", 4, 1 << 27)),
        "circulant of 2**18": row(linear("Circulant", 4, 1 << 18), {"type": "Cos"}, linear("Circulant", 1 << 18, 64)),
        "projection of 2**26": row(linear("HadamardDiagonal", 4, 1 << 26), linear("RandomProjection", 1 << 26, 4)),
        "10**9 blocks": row(linear("HadamardDiagonal", 4, 4, blocks=10**9)),
    }


def _bomb_plans() -> dict[str, list[dict[str, Any]]]:
    def mask(*shape: int) -> dict[str, Any]:
        return {"kind": "mask", "shape": list(shape), "bits": 64, "units": 1}

    def product(operation: str, *shape: int, **more: int) -> dict[str, Any]:
        left, right = {"position": 0}, {"position": 1, "whole": True}
        known = {"kind": "mask_product", "operation": operation, "shape": list(shape), "units": 1}
        return {**known, "left": left, "right": right, **more}

    trig = {"kind": "trig_pair", "shape": [1 << 20], "phase_bits": 16, "scale": 20, "units": 1}
    return {
        "degree 10**9": [{"kind": "powers", "shape": [1], "degree": 10**9, "bits": 64, "units": 1}],
        "lifted degree 10**9": [{"kind": "lifted_powers", "shape": [1], "degree": 10**9, "bits": 20, "units": 1}],
        "198 harmonics": [{**trig, "harmonics": list(range(2, 200))}],
        "padding 2**15": [mask(1, 8, 8), mask(1, 1, 3, 3), product("conv2d", 1, 1, 1, padding=1 << 15)],
        "stride 2**15": [mask(1, 2, 2), mask(1, 1, 3, 3), product("conv2d.input", 1, 8, 8, stride=1 << 15)],
        "circulant": [mask(1 << 16), mask(1 << 20), product("circulant", 1 << 20)],
        "outer product": [mask(1 << 14, 1), mask(1 << 14), product("multiply", 1 << 14, 1 << 14)],
        "matrices": [{**mask(1 << 14), "units": 1 << 14}, mask(1 << 14, 1 << 14), product("matmul", 1 << 14)],
        "100,000 positions": [mask(1)] * 100_000,
    }


def _bombs(nodes: Nodes, cluster: Cluster) -> Iterator[Line]:
    before, tried = _all_mb(nodes), Tried()
    for architecture in _bomb_architectures().values():
        for party in cluster.transport.both:
            with tried.one():
                _put(party, architecture)
    for plan in _bomb_plans().values():
        with tried.one(), _link(nodes.folder, "party0") as link:
            _open(link, f"bomb {secrets.token_hex(8)}", plan)
    after = _all_mb(nodes)
    count = sum(tried.names.values())
    refused = sum(tried.names[name] for name in ("ModelError", "InputError", "FrameError"))
    yield exactly(f"{count} bombs that once worked ({tried}): not refused by one of these names", count - refused, 0)
    yield at_most("longest answer to one of them, seconds", tried.longest_s, BOMB_S)
    grown = max(after[role] - before[role] for role in ROLES)
    yield at_most("largest growth of a node over all of them, MB", grown, BOMB_MB)


def _put(party: Party, architecture: Mapping[str, Any], name: str = "bomb") -> None:
    known = {"architecture": architecture, "phase_bits": 26, "version": secrets.token_hex(16)}
    party.ask("PUT", f"/v2/models/{name}", {"parameters": known}, {})


def _submit(party: Party, architecture: Mapping[str, Any], draw: random.Random) -> None:
    known: dict[str, Any] = {"architecture": architecture, "id": secrets.token_hex(16), "model": "bomb", "seed": 1}
    known |= {"datasets": ["none"], "rates": [0.1], "batch_size": size(draw, 24), "momentum": draw.choice((0.0, 0.9))}
    known["loss"] = draw.choice(("logistic", "softmax", "squared"))
    party.ask("POST", "/v2/jobs", {"parameters": known}, {})


# ---- random architectures


def _architectures(draw: random.Random, nodes: Nodes, cluster: Cluster, count: int = ARCHITECTURES) -> Iterator[Line]:
    """As models and as jobs without tensors, to one party each; some are shared with both, loaded and asked, whatever a
    request holds and one model may take. Some others are trained by both."""
    before, tried = _begin_peaks(nodes), Tried()
    shared, trained = Tried(LOADED_S), Tried(LOADED_S)
    for number in range(count):
        record, party = random_architecture(draw), cluster.transport.both[number % 2]
        with tried.one(record):
            if number % 3:
                _put(party, record)
            else:
                _submit(party, record, draw)
        if number % SHARED_EVERY == 0:
            with shared.one(record):
                _share(cluster, record)
        if number % TRAINED_EVERY == SHARED_EVERY // 2:
            trainable = _trainable(draw)
            with trained.one(trainable):
                _train(cluster, trainable, number)
    after = _all_mb(nodes)
    yield exactly(f"{count} random architectures ({tried}): answers after more than 5 s", tried.hangs, 0)
    yield at_most("longest of these answers, seconds", tried.longest_s, HANG_S)
    yield at_least(f"random architectures shared, loaded and asked ({shared})", shared.names["accepted"], 1)
    yield at_least(f"random architectures trained by both parties ({trained})", trained.names["accepted"], 1)
    hangs, longest = shared.hangs + trained.hangs, max(shared.longest_s, trained.longest_s)
    yield exactly(f"of these, not done within {LOADED_S:g} s", hangs, 0)
    yield at_most("longest of these, seconds", longest, LOADED_S)
    lost = shared.names["PeerLost"] + trained.names["PeerLost"]
    yield exactly("of these, asked in vain because a party had lost the other or the dealer", lost, 0)
    yield exactly(
        "answers to any of them that were internal errors", sum(each.internal for each in (tried, shared, trained)), 0
    )
    grown = max(after[role] - before[role] for role in ROLES)
    budget = Limits().model_mb
    yield at_most("largest growth of a node over all of them, MB (limit: [limits] model_mb)", grown, budget)


def _trainable(draw: random.Random) -> dict[str, Any]:
    """The next architecture that can be trained on shares, of any size."""
    while True:
        record = random_architecture(draw, graphs=0.0)
        with suppress(HdcosError):
            model = nn.Sequential.outline(record)
            training_plan(model, "squared")
            _check_size(model, TRAINED_ROWS)
            return record


def _drawn(record: Mapping[str, Any], rows: int) -> nn.Network:
    """A network that fits a request; this is looked at before anything of it is made."""
    _check_size(nn.Sequential.outline(record), rows)
    return nn.Sequential.from_architecture(record, seed=0)


def _check_size(model: nn.Network, rows: int) -> None:
    """ModelError unless the parameters fit a request, and so do as many rows with their results."""
    numbers = max(model.parameter_count, rows * (prod(model.input_shape) + prod(model.output_shape)))
    if 8 * numbers > ROOM_OF_REQUEST * 1e6 * Limits().body_mb:
        raise ModelError("more than a request holds")


def _share(cluster: Cluster, record: Mapping[str, Any]) -> None:
    model = _drawn(record, 1)
    with cluster.share(model, "drawn") as private:
        private.predict(np.zeros((1, *model.input_shape)))


def _train(cluster: Cluster, record: Mapping[str, Any], seed: int) -> None:
    """One epoch of two steps on rows that are uploaded for it."""
    model, random_numbers = _drawn(record, TRAINED_ROWS), np.random.default_rng(seed)
    x = random_numbers.uniform(-1, 1, (TRAINED_ROWS, *model.input_shape))
    y = random_numbers.uniform(-0.5, 0.5, (TRAINED_ROWS, prod(model.output_shape)))
    options: Any = {"epochs": 1, "batch_size": TRAINED_ROWS // 2, "lr": 2.0**-10, "loss": "squared", "watch": 0}
    cluster.fit(model, x, y, name="drawn-trained", **options)


def _largest(
    draw: random.Random, nodes: Nodes, cluster: Cluster, count: int = LARGEST, drawn: int = DRAWN_FOR_LARGEST
) -> Iterator[Line]:
    """The largest that a model may be, one after another, while another client asks for a small one."""
    found = heapq.nlargest(count, _within_budget(draw, drawn), key=itemgetter(0))
    cluster.share(MODEL, "kept")
    wait_until_ready(cluster)
    before, tried = _begin_peaks(nodes), Tried(LOADED_S, allowed=False)
    with Asking(nodes, draw.randrange(1 << 32)) as asking:
        for _, record in found:
            with tried.one(record):
                _share(cluster, record)
    after = _all_mb(nodes)
    sizes = ", ".join(f"{megabytes:.0f}" for megabytes, _ in found)
    yield exactly(
        f"the {len(found)} largest of {drawn} more, which by their shapes take {sizes} MB ({tried}): not loaded",
        sum(tried.names.values()) - tried.names["accepted"],
        0,
    )
    yield exactly(
        f"{asking.answered} predictions of another client meanwhile: wrong or failed",
        asking.wrong + len(asking.failures),
        0,
    )
    yield at_most("longest wait for one, seconds", asking.longest_s, OTHERS_S)
    grown = max(after[role] - before[role] for role in ROLES[1:])
    budget = Limits().model_mb
    yield at_most("largest growth of a party over the largest, MB (limit: [limits] model_mb)", grown, budget)
    yield at_most("growth of the dealer over the largest, MB", after["dealer"] - before["dealer"], MOST_BYTES / 1e6)


def _within_budget(draw: random.Random, count: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """Of this many architectures those that a party takes, and the megabytes that it reckons with."""
    for _ in range(count):
        record = random_architecture(draw)
        try:
            model = nn.Sequential.outline(record)
            material = plan_inference(compile_network(model)).material
            check(material)
            _check_size(model, 1)
        except (HdcosError, TypeError, ValueError, KeyError, AttributeError, OverflowError):
            continue
        megabytes = Demand.of(model, material, MATERIAL_MB).bytes / 1e6
        if megabytes <= Limits().model_mb:
            yield megabytes, record


# ---- random plans


@contextmanager
def _link(folder: Path, role: str) -> Iterator[Link]:
    """A party's own link to the dealer."""
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    card = cluster_file.servers["dealer"]
    link = connect(
        Identity.load(folder / role), {card.certificate: "dealer"}, *card.endpoint, 10.0, link_timeout_s=60.0
    )
    try:
        handshake(link, Hello(role, SOFTWARE, table_hash(), cluster_file.run))
        yield link
    finally:
        link.close()


def _open(link: Link, scope: str, plan: Any) -> None:
    request(link, {"operation": "open", "scope": scope, "plan": plan}, timeout_s=60.0)


def _plans(draw: random.Random, nodes: Nodes, count: int = PLANS) -> Iterator[Line]:
    """Opened by both parties' own links to the dealer, and dealt once where it accepts them."""
    tried, pid = Tried(), nodes.processes["dealer"].pid
    before = _memory_mb(pid)
    with _link(nodes.folder, "party0") as zero, _link(nodes.folder, "party1") as one:
        for number in range(count):
            plan, scope = random_plan(draw), f"drawn {number} {secrets.token_hex(4)}"
            with tried.one(plan):
                _open(zero, scope, plan)
                _open(one, scope, plan)
                try:
                    one.send(Kind.REQUEST, *encode_message(_deal(scope)))
                    kind, payload = one.receive((Kind.MATERIAL, Kind.REPLY), limit=1 << 29)
                    if kind is Kind.REPLY:
                        decode_reply(payload)
                finally:
                    for link in (zero, one):
                        request(link, {"operation": "close", "scope": scope}, timeout_s=60.0)
    yield exactly(f"{count} random plans ({tried}): answers after more than 5 s", tried.hangs, 0)
    yield at_most("longest of these answers, seconds", tried.longest_s, HANG_S)
    yield exactly("of these answers, internal errors", tried.internal, 0)
    yield at_least("random plans that were dealt", tried.names["accepted"], 1)
    grown = _memory_mb(pid) - before
    yield at_most("growth of the dealer over all of them, MB", grown, MOST_BYTES / 1e6)


def _deal(scope: str) -> dict[str, Any]:
    return {"operation": "deal", "scope": scope, "start": 0, "executions": 1}


def _alive(nodes: Nodes, cluster: Cluster) -> Iterator[Line]:
    alive = sum(nodes.processes[role].poll() is None for role in ROLES)
    yield exactly("nodes alive after all of them", alive, len(ROLES))
    yield exactly("internal errors in their logs", nodes.logs().count("internal error"), 0)
    error = float(np.abs(cluster.model("served").predict(ROWS) - SERVED(ROWS)).max())
    yield at_most("error of a prediction after all of them", error, 5e-3)


# ---- bodies


def _bodies(nodes: Nodes, cluster: Cluster) -> Iterator[Line]:
    """Many clients, each with the largest bodies it can send, all to one party alone: they wait for the other share."""
    wide = nn.Sequential([nn.HadamardDiagonal(1024, 1024), nn.Cos(), nn.HadamardDiagonal(1024, 2)])
    cluster.share(wide, "wide")
    cluster.share(SERVED, "served")
    wait_until_ready(cluster)
    # Rows that come as shares may be three times as many as those that come masked.
    rows = min(BODY_MB * 10**6 // (8 * 1024) - 10, 3 * cluster.model("wide")._record.most_rows)
    words = {"input": np.zeros((rows, 1024), np.uint64)}
    for role in ROLES[1:]:
        yield from _bodies_at(role, words, nodes, cluster)


def _bodies_at(role: str, words: Mapping[str, np.ndarray], nodes: Nodes, cluster: Cluster) -> Iterator[Line]:
    pid, size = nodes.processes[role].pid, words["input"].nbytes / 1e6
    # What the other client alone takes, and material that is made ahead, is there before.
    ended = time.monotonic() + ALONE_S
    while time.monotonic() < ended:
        cluster.model("served").predict(ROWS)
    before = most = _memory_mb(pid, "VmRSS")
    outcomes: Counter[int] = Counter()
    answered, errors = 0, 0.0
    with ThreadPoolExecutor(1) as pool:
        hostile = pool.submit(asyncio.run, _flood(nodes.folder, role, words))
        while not hostile.done():
            errors = max(errors, float(np.abs(cluster.model("served").predict(ROWS) - SERVED(ROWS)).max()))
            answered += 1
            most = max(most, _memory_mb(pid, "VmRSS"))
            time.sleep(0.02)
        outcomes += hostile.result()
    told = ", ".join(f"{status}: {count}" for status, count in sorted(outcomes.items()))
    others = sum(count for status, count in outcomes.items() if status not in (409, 413, 429))
    yield exactly(
        f"{CLIENTS} clients, {BODIES} bodies of {size:.0f} MB each to {role} ({told}): neither held nor refused as 413 "
        "or 429",
        others,
        0,
    )
    yield at_least("of these refused as 413 or 429", outcomes[413] + outcomes[429], 1)
    yield at_least("predictions that another client got meanwhile", answered, 1)
    yield at_most("their largest error", errors, 5e-3)
    stated = WAITING_MB + SLACK_MB
    yield at_most(f"growth of {role}, MB ({WAITING_MB} for requests, {SLACK_MB:.0f} besides)", most - before, stated)


async def _flood(folder: Path, role: str, words: Mapping[str, Any]) -> Counter[int]:
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    card = cluster_file.servers[role]
    settings = ssl.create_default_context(cadata=card.certificate.pem)
    settings.check_hostname = False
    store = Store(folder / role / STATE)
    shown = []
    for number in range(CLIENTS):
        shown.append(token(new_secret(), cluster_file.id, int(role[-1])))
        store.allow(f"hostile {number}", token_hash(shown[-1]), ["predict"])
    store.close()
    await asyncio.sleep(1.5)  # until the party has read its clients again

    body, headers = encode_body({"parameters": {"request_id": "0" * 32}}, words, "inputs")
    length = int(headers[LENGTH_HEADER])
    head, tail = body[:length], memoryview(body)[length:]
    statuses = await asyncio.gather(
        *(_sent(card.http, settings, secret, head, tail) for secret in shown for _ in range(BODIES))
    )
    return Counter(statuses)


async def _sent(address: str, settings: ssl.SSLContext, secret: str, head: bytes, tail: memoryview) -> int:
    """The status of one request, which goes on being sent until it is answered; 0 if it is not."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=settings, server_hostname="")
    lines = ("POST /v2/models/wide/infer HTTP/1.1", f"host: {host}", f"authorization: Bearer {secret}")
    sizes = (f"{LENGTH_HEADER}: {len(head)}", f"content-length: {len(head) + len(tail)}")
    answer = asyncio.create_task(reader.readline())
    try:
        writer.write(
            "\r\n".join((*lines, *sizes, "", "")).encode() + head.replace(b"0" * 32, secrets.token_hex(16).encode())
        )
        for first in range(0, len(tail), PIECE_BYTES):
            if answer.done():
                break
            writer.write(tail[first : first + PIECE_BYTES])
            await writer.drain()
        return int((await answer)[9:12] or 0)
    except OSError:
        return 0
    finally:
        writer.close()


if __name__ == "__main__":
    for line in prove(secrets.randbits(32)):
        print(json.dumps(line.__dict__))
