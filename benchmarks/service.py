"""The service under load, under fire, across a slow network and fed with rubbish.

hosts    the walk-through of docs/recipes.md, as written, on two hosts 40 ms apart
load     64 clients for a minute against the two parties, and against one plaintext server
faults   50 nodes killed while clients predict and a job trains
input    mutated frames and requests: nothing crashes, hangs or blames the server
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks import fuzz, load
from benchmarks.nodes import ROLES, cluster_of_nodes, wait_until_ready
from benchmarks.record import Line, at_least, at_most, exactly
from benchmarks.training import cpu_seconds
from benchmarks.two_hosts import two_hosts
from hdcos import data, nn
from hdcos.api.tokens import token_hash
from hdcos.link.cluster_file import ClusterFile
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.store import Store
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.targets import one_hot

ROOT = Path(__file__).parent.parent
CLIENTS, LOAD_S = 64, 60.0
KILLS = 50
RTT_MS, MBPS = 40.0, 100.0


# ---- two hosts


def hosts(seed: int) -> Iterator[Line]:
    """The commands of docs/recipes.md, each in the folder of its host."""
    names = {"dealer.example": 1, "party0.example": 0, "party1.example": 1}
    with tempfile.TemporaryDirectory() as folder, two_hosts(RTT_MS, MBPS, names) as (spaces, kind):
        walk = Walk(Path(folder), [space.command() for space in spaces])
        try:
            seconds = walk.run()
            rows, logits, expected = walk.rows, walk.logits(), walk.expected
            rtt_ms = walk.round_trip_ms()
        finally:
            walk.stop()
    yield exactly(
        f"documented walk-through on two hosts ({kind}; {rtt_ms:.0f} ms a round trip, {MBPS:g} Mbit/s): rows predicted",
        len(logits),
        len(rows),
    )
    yield at_most("its predictions, largest difference to the model", float(np.abs(logits - expected).max()), 0.02)
    yield at_most(f"`hdcos predict` for {len(rows)} rows there, seconds from start to end", seconds, 15)


class Walk:
    """Runs the commands of the last recipe in docs/recipes.md; `# on ...` says where.

    `spaces` are the commands that enter the two hosts. On a machine without hosts of these names `replaced` has an
    address for each one in the recipe.
    """

    def __init__(self, folder: Path, spaces: list[list[str]], replaced: Mapping[str, str] | None = None) -> None:
        self._spaces = spaces
        self._replaced = dict(replaced or {})
        self._places = {name: folder / name for name in ("dealer", "party0", "party1", "client")}
        self._host = {"dealer": 1, "party0": 0, "party1": 1, "client": 0}
        for place in self._places.values():
            place.mkdir()
        self._servers: list[subprocess.Popen[bytes]] = []
        self.model = nn.models.digits()
        self.rows = data.digits("test")[0][:32].reshape(32, -1)
        self.expected = self.model(self.rows.reshape(32, *self.model.input_shape))
        self.model.save(self._places["client"] / "model.safetensors")
        np.savetxt(self._places["client"] / "rows.csv", self.rows, delimiter=",")
        self._fingerprints: list[str] = []
        self._environment: dict[str, str] = {}

    def run(self) -> float:
        """All commands in order; returns the seconds that `hdcos predict` took."""
        section = (ROOT / "docs" / "recipes.md").read_text().split("## Run it between organisations")[1]
        place, seconds = "client", 0.0
        for line in "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines():
            if line.startswith("# on "):
                place = next((name for name in self._places if _spoken(name) in line), "client")
            if not line.strip() or line.startswith("#"):
                continue
            words = line.split("  #")[0]
            for written, meant in self._replaced.items():
                words = words.replace(written, meant)
            for role in ROLES:
                if f"--node {role}" in words:
                    place = role
            started = time.monotonic()
            self._command(place, words)
            if "predict" in words:
                seconds = time.monotonic() - started
        return seconds

    def _command(self, place: str, words: str) -> None:
        if words.startswith("export"):
            secret = (self._places["client"] / "token").read_text().strip()
            self._environment = {"HDCOS_CLUSTER": "cluster.toml", "HDCOS_TOKEN": secret}
            return
        for number, fingerprint in enumerate(self._fingerprints):
            words = words.replace(f"FINGERPRINT{number}", fingerprint)
        background, words = words.rstrip().endswith("&"), words.rstrip().rstrip("&")
        arguments = [
            *self._spaces[self._host[place]],
            *("env", *(f"{name}={value}" for name, value in self._environment.items())),
            *(sys.executable, "-m", *words.split()),
        ]
        if background:
            with open(self._places[place] / "log", "ab") as log:
                self._servers.append(
                    subprocess.Popen(arguments, cwd=self._places[place], stdout=log, stderr=log, start_new_session=True)
                )
            return
        if " init cluster.toml" in words:  # the cards arrive, the cluster file is passed on
            for role in ROLES:
                target = self._places[place] / role
                target.mkdir(exist_ok=True)
                (target / "card.toml").write_bytes((self._places[role] / role / "card.toml").read_bytes())
        for _ in range(30):
            done = subprocess.run(arguments, cwd=self._places[place], capture_output=True, text=True, timeout=120)
            if done.returncode == 0 or "doctor" not in words:
                break
            time.sleep(1)  # the nodes are still looking for each other
        if done.returncode:
            raise RuntimeError(f"`{words}` failed: {done.stdout} {done.stderr}")
        if " init cluster.toml" in words:
            for role in ROLES:
                (self._places[role] / "cluster.toml").write_bytes((self._places[place] / "cluster.toml").read_bytes())
        if "token new" in words:
            self._fingerprints = re.findall(r"party[01]-[0-9a-f]{64}", done.stdout)

    def logits(self) -> np.ndarray:
        return np.loadtxt(self._places["client"] / "logits.csv", delimiter=",", skiprows=1)

    def round_trip_ms(self) -> float:
        """What party 0 measured between the parties."""
        program = (
            "import hdcos; c = hdcos.connect(); "
            "print(c.transport.both[0].ask('GET', '/v2/status', None, None).meta['peer']['rtt_ms'])"
        )
        environment = [f"{name}={value}" for name, value in self._environment.items()]
        arguments = [*self._spaces[0], "env", *environment, sys.executable, "-c", program]
        done = subprocess.run(arguments, cwd=self._places["client"], capture_output=True, text=True, check=True)
        return float(done.stdout)

    def stop(self) -> None:
        for process in self._servers:
            process.terminate()
        for process in self._servers:
            process.wait(20)


def _spoken(name: str) -> str:
    return {"dealer": "dealer's", "party0": "party 0's", "party1": "party 1's"}.get(name, "client's")


# ---- load


def under_load(seed: int) -> Iterator[Line]:
    model, dense = nn.models.criteo_mlp(), nn.models.criteo_mlp(structure="dense", activation="relu")
    rows = np.random.default_rng(seed).uniform(-1, 1, (256, *model.input_shape))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "home"
        with cluster_of_nodes(place) as nodes:
            with nodes.connect() as cluster:
                cluster.share(model, "criteo")
                wait_until_ready(cluster)
            cluster_file = ClusterFile.read(place / "cluster.toml")
            before = {role: cpu_seconds(process.pid) for role, process in nodes.processes.items()}
            private = load.run(load.Private(cluster_file, nodes.secret, "criteo", model, rows), CLIENTS, LOAD_S)
            spent = {
                role: (cpu_seconds(process.pid) - before[role]) / max(1, private.answered) * 1e3
                for role, process in nodes.processes.items()
            }
        dense.save(Path(folder) / "dense.safetensors")
        plain = _plain_load(Path(folder), cluster_file, dense, rows)
    rate, plain_rate = private.answered / private.seconds, plain.answered / plain.seconds
    shares = ", ".join(f"{role} {value:.2f}" for role, value in spent.items())
    yield exactly(
        f"{CLIENTS} clients for {LOAD_S:g} s, criteo_mlp, dealer live: {private.answered} predictions, wrong or failed",
        private.wrong + private.failed,
        0,
    )
    yield exactly("answers that were lost and asked for again", private.retried, 0)
    yield at_most(f"p99 latency in ms (p50 {private.quantile(0.5) * 1e3:.0f})", private.quantile(0.99) * 1e3, 500)
    yield at_least(
        f"{rate:.0f} predictions per second (ms of processor time each: {shares}) over those of one plaintext dense "
        f"ReLU server, {plain_rate:.0f}",
        rate / plain_rate,
        0.35,
    )


def _plain_load(folder: Path, cluster_file: ClusterFile, dense: nn.Sequential, rows: np.ndarray) -> load.Tally:
    shown = secrets.token_hex(32)
    place = folder / "home" / "party0"
    arguments = [str(folder / "dense.safetensors"), str(place), token_hash(shown)]
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.plain_server", *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        time.sleep(2)
        pem = cluster_file.servers["party0"].certificate.pem
        return load.run(load.Plain(f"127.0.0.1:{port}", pem, shown, rows, dense(rows)), CLIENTS, LOAD_S)
    finally:
        server.kill()
        server.wait()


# ---- faults


def faults(seed: int) -> Iterator[Line]:
    """Kill one node after the other while clients predict and a job trains; start it again at once."""
    draw = random.Random(seed)
    x, y = data.digits("train")
    model = nn.models.mlp([64, 32, 10], seed=1)
    options = {"batch_size": 100, "seed": 2, "epochs": 4000}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "home"
        with cluster_of_nodes(place, [("megabytes = 256 ", "megabytes = 16 ")]) as nodes:
            with nodes.connect(60) as cluster:
                cluster.share(model, "kept")
                cluster.upload(x, y, name="rows", outputs=10)
                first = _dataset_hashes(place)
                model.save(Path(folder) / "model.safetensors")
                recovered, most_steps = [], 0
                clients = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "benchmarks.load", str(place), str(Path(folder) / "model.safetensors")),
                        *("kept", "16", str(KILLS * 6.0)),
                    ],
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                )
                job = cluster.fit(model, "rows", lr=0.002, name="trained", checkpoint_every=50, wait=False, **options)
                kills = dict.fromkeys(ROLES, 0)
                ended = time.monotonic() + KILLS * 6.0
                for _ in range(KILLS):
                    time.sleep(draw.uniform(0.2, 2.0))
                    victim = draw.choice(ROLES)
                    kills[victim] += 1
                    nodes.kill(victim)
                    nodes.start(victim)
                    time.sleep(0.3)
                    recovered.append(wait_until_ready(cluster))
                    most_steps = max(most_steps, cluster.job(job.id).step)
                job.cancel()
                cancelled = job.wait(60)
                trained = cluster.fit(model, "rows", lr=0.5, batch_size=100, epochs=10, seed=3, progress=False)
                plain = plain_fit(model, x, one_hot(y, 10), 10, 100, lambda epoch: 0.5, 3)
                agree = float((trained.predict(x).argmax(1) == plain(x).argmax(1)).mean())
                held = {item["name"] for item in cluster.models() if item["ready"]}
                same = _dataset_hashes(place) == first
            output, _ = clients.communicate(timeout=max(60.0, ended - time.monotonic() + 60.0))
            tally = json.loads(output)
            logs = nodes.logs()
        reused = _reused(place, job.id)
    killed = ", ".join(f"{role} {count}" for role, count in kills.items())
    yield exactly(
        f"{KILLS} kills ({killed}) under load and training: not ready again within 60 s", _count(recovered), 0
    )
    yield at_most("slowest return to ready after a kill, seconds", max(recovered), 60)
    yield exactly(
        f"{tally['answered']} predictions meanwhile ({tally['retried']} asked again): wrong, or failed for good",
        tally["wrong"] + tally["failed"],
        0,
    )
    yield exactly("models that are still there and ready", sorted(held & {"kept"}), ["kept"])
    yield exactly("data set unchanged at both parties", same, True)
    yield at_least(f"the job's steps kept through all kills (cancelled at the end: {cancelled})", most_steps, 1)
    yield at_least("training afterwards, predictions that agree with plain training", agree, 0.97)
    yield exactly("executions that the ledgers show reserved twice", reused, [])
    yield exactly("internal errors in the logs", logs.count("internal error"), 0)


def _count(recovered: list[float]) -> int:
    return sum(seconds == float("inf") for seconds in recovered)


def _dataset_hashes(place: Path) -> list[str]:
    files = [
        next((place / role / "state" / "datasets" / "rows").glob("*.safetensors")) for role in ("party0", "party1")
    ]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def _reused(place: Path, job: str) -> list[str]:
    found = []
    for rank in (0, 1):
        store = Store(place / f"party{rank}" / "state")
        found += store.reused()
        found += Checkpoints.of(store.job_folder(job), rank).reused()
        store.close()
    return found


# ---- rubbish


def bad_input(seed: int) -> Iterator[Line]:
    yield from fuzz.frames(seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "home"
        with cluster_of_nodes(place, [("megabytes = 256 ", "megabytes = 4 "), ("= 2000 ", "= 100000 ")]) as nodes:
            with nodes.connect() as cluster:
                model = nn.models.mlp([6, 8, 3])
                cluster.share(model, "tiny")
                wait_until_ready(cluster)
                yield from fuzz.links(seed, place)
                yield from fuzz.requests(seed, place)
                yield from fuzz.described(place)
                rows = np.random.default_rng(seed).uniform(-1, 1, (5, 6))
                private = cluster.share(model, "afterwards")
                difference = float(np.abs(private.predict(rows) - model(rows)).max())
                status = [party.ask("GET", "/v2/status", None, None).meta for party in cluster.transport.both]
            alive = [process.poll() is None for process in nodes.processes.values()]
            logs = nodes.logs()
    yield exactly("nodes that live afterwards", sum(alive), 3)
    yield exactly("sessions that ended because of all that", max(one["counters"]["aborts"] for one in status), 0)
    yield at_most("predictions afterwards, largest difference to the model", difference, 0.02)
    yield exactly("internal errors in the logs", logs.count("internal error"), 0)


PARTS = {"hosts": hosts, "load": under_load, "faults": faults, "input": bad_input}
