"""Two parties with two workers each, and a real HAProxy between them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np

import hdcos
from hdcos import nn
from hdcos.link.cluster_file import ClusterFile
from proxies import HAPROXY, free_port, needs, running_proxy
from tests.serve_nodes import command, running

MODEL = nn.models.mlp([12, 16, 3], "cos", "hadamard", seed=2)


@needs(HAPROXY)
def test_all_pairs_work_through_one_public_port_and_again_after_the_proxy_was_restarted(tmp_path) -> None:
    folder, behind = tmp_path / "c", free_port()
    assert command("init", folder, "--single-machine")[0] == 0
    _, public = ClusterFile.read(folder / "cluster.toml").servers["party0"].endpoint
    ports = dict.fromkeys(("node", "w1", "w2"), behind)
    with ExitStack() as stack:
        for role in ("dealer", "party0", "party1"):
            options = ("--listen", f"127.0.0.1:{behind}") if role == "party0" else ()
            stack.enter_context(running(folder, role, "--workers", "1" if role == "dealer" else "2", *options))
        with hdcos.connect(folder / "cluster.toml", token=(folder / "token").read_text().strip()) as cluster:

            def worker() -> dict:
                return cluster.transport.both[0].ask("GET", "/v2/status", None, None).meta["workers"][1]

            def await_worker(rows: int) -> None:
                """Until the further worker has computed this many rows, under load."""
                x = np.random.default_rng(1).uniform(-1, 1, (8, 12))
                limit = time.monotonic() + 60
                with ThreadPoolExecutor(6) as pool:
                    while worker()["rows"] < rows:
                        assert time.monotonic() < limit, worker()
                        for found in pool.map(lambda _: model.predict(x), range(12)):
                            assert np.abs(found - MODEL(x)).max() < 0.02

            def await_up() -> None:
                limit = time.monotonic() + 60
                while not worker()["up"]:
                    assert time.monotonic() < limit, worker()
                    time.sleep(0.2)

            with running_proxy(HAPROXY, tmp_path, ports, public):
                model = cluster.share(MODEL, "m")
                await_up()
                await_worker(8)
                starts = worker()["starts"]
            limit = time.monotonic() + 60
            while worker()["up"]:  # its links went through the proxy
                assert time.monotonic() < limit
                time.sleep(0.2)
            with running_proxy(HAPROXY, tmp_path, ports, public):
                await_up()
                assert worker()["starts"] > starts
                await_worker(worker()["rows"] + 8)
