"""Two organisations on hosts of their own, each with a Ray cluster and HAProxy in front: serving and training.

Hosts are network namespaces with a slow link between them; where those are refused, loopback addresses, and Ray
clusters with folders of their own. HAProxy has the one address of a party that the other party knows.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import hdcos
from benchmarks.nodes import Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.ray_cluster import free_port
from benchmarks.record import Line, at_least, at_most, exactly
from benchmarks.two_hosts import Host, two_hosts
from hdcos import nn
from hdcos.link.cluster_file import ClusterFile

RTT_MS, MBPS, WORKERS = 4.0, 1000.0, 3
ROWS, REQUESTS, CLIENTS, PATIENCE_S = 16, 300, 6, 120.0
HOST = {"party0": 0, "party1": 1, "dealer": 1}
NODE_PORT, FIRST_PORT, RAY_HOST = 7101, 7200, "127.0.0.1"
"""Ports of the example; where workers of `--ray local` listen."""
EXAMPLE = Path(__file__).parent.parent / "deploy" / "haproxy.cfg"
MODEL = nn.models.mlp([12, 16, 3], "cos", "hadamard", seed=1)
TRAINING: Any = {"epochs": 5, "batch_size": 48, "lr": 0.05, "momentum": 0.9, "seed": 1, "watch": 0}


def prove_hosts(seed: int) -> Iterator[Line]:
    with ExitStack() as stack:
        hosts, kind = stack.enter_context(_hosts())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        inner, first = ({role: free_port() for role in HOST} for _ in range(2))

        def move(home: Path) -> None:
            """Where the cluster file says that a party is there is HAProxy."""
            text = (home / "cluster.toml").read_text()
            for role, number in HOST.items():
                head, mark, rest = text.partition(f"[{role}]\n")
                own, end, others = rest.partition("certificate")
                text = head + mark + own.replace("127.0.0.1", hosts[number].address) + end + others
            (home / "cluster.toml").write_text(text)
            known = ClusterFile.read(home / "cluster.toml").servers
            for role in ("party0", "party1"):
                public = int(known[role].address.rpartition(":")[2])
                text = example(hosts[HOST[role]].address, role, public, inner[role], first[role])
                stack.enter_context(_proxy(hosts[HOST[role]], folder / f"{role}.cfg", text))

        nodes = stack.enter_context(
            cluster_of_nodes(
                folder / "c",
                prepare=move,
                options=("--workers", str(WORKERS)),
                own_options={
                    role: (
                        *("--ray", "local", "--worker-ports", str(first[role])),
                        *("--listen", f"{hosts[HOST[role]].address}:{inner[role]}"),
                    )
                    for role in ("party0", "party1")
                },
                entering={role: hosts[number].command() for role, number in HOST.items()},
            )
        )
        found = _ask_from(hosts[0], nodes, seed)
    what = f"two Ray clusters on two hosts ({kind}), HAProxy in front of each"
    yield exactly(f"{what}: requests of {ROWS} rows answered", found["answered"], REQUESTS)
    yield at_most("largest error of an answer", found["error"], 0.02)
    yield at_least("rows that Ray's workers answered, the least of a party's", min(found["rows"]), 1)
    yield at_least("steps that Ray's workers took part in, the least of a party's", min(found["steps"]), 1)
    yield at_most("largest difference of the trained network's outputs to one pair's", found["difference"], 0.1)


@contextmanager
def _hosts() -> Iterator[tuple[Sequence[Host], str]]:
    try:
        with two_hosts(RTT_MS, MBPS, {}) as (hosts, kind):
            yield hosts, f"namespaces, {kind}"
    except (subprocess.CalledProcessError, FileNotFoundError):
        yield [_Loopback("", f"127.0.{number}.1") for number in (1, 2)], "loopback"


class _Loopback(Host):
    def command(self, *arguments: str) -> list[str]:
        return list(arguments)


def example(host: str, role: str, public: int, inner: int, first: int) -> str:
    """What deploy/ has for a party, with other addresses: HAProxy reaches the node, and Ray's workers past it."""

    def place(found: re.Match[str]) -> str:
        port = int(found[1])
        return f"{host}:{inner}" if port == NODE_PORT else f"{RAY_HOST}:{first + port - FIRST_PORT}"

    text, count = re.subn(r"bind :7101", f"bind {host}:{public}", EXAMPLE.read_text().replace("party0", role))
    text, servers = re.subn(r"10\.0\.0\.\d+:(\d+)", place, text)
    assert (count, servers) == (1, 5), "the example is another one"
    return text


@contextmanager
def _proxy(host: Host, path: Path, text: str) -> Iterator[None]:
    path.write_text(text)
    process = subprocess.Popen(host.command("haproxy", "-db", "-f", str(path)))
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


# ---- the client, on one of the hosts


def _ask_from(host: Host, nodes: Nodes, seed: int) -> dict[str, Any]:
    asked = host.command(sys.executable, "-m", "benchmarks.scale_hosts", str(nodes.folder), str(seed))
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(nodes.logs()[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def ask(nodes: Nodes, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (480, 12))
    y = x[:, :3].argmax(axis=1)
    with nodes.connect() as cluster, hdcos.local() as one:
        wait_until_ready(cluster, PATIENCE_S)
        limit = time.monotonic() + PATIENCE_S
        while not nodes.starts(WORKERS - 1) and time.monotonic() < limit:
            time.sleep(0.2)
        private = cluster.share(MODEL, "served")

        def error(number: int) -> float:
            rows = np.random.default_rng([seed, number]).uniform(-1, 1, (ROWS, 12))
            return float(np.abs(private.predict(rows, mode="shares") - MODEL(rows)).max())

        with ThreadPoolExecutor(CLIENTS) as pool:  # several at once: one alone is answered by the first pair
            errors = list(pool.map(error, range(REQUESTS)))
        trained = cluster.fit(MODEL, x, y, name="trained", **TRAINING).predict(x)
        expected = one.fit(MODEL, x, y, **TRAINING).predict(x)
        workers = [nodes.workers(rank) for rank in (0, 1)]
    return {
        "answered": len(errors),
        "error": max(errors),
        "difference": float(np.abs(trained - expected).max()),
        **{name: [sum(worker[name] for worker in each) for each in workers] for name in ("rows", "steps")},
    }


if __name__ == "__main__":
    print(json.dumps(ask(Nodes(Path(sys.argv[1])), int(sys.argv[2]))))
