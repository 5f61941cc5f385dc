"""hdcos: the caller of `hdcos.local()`, whose dealer and two parties are processes of their own.

Times are the caller's, from plaintext inputs to plaintext results, dealing included. Bytes between the processes are
those of hdcos's meter; what goes between the caller and the parties is what the kernel counted at the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hdcos
from benchmarks.peers.work import model
from benchmarks.peers.worker import serve, socket_bytes
from hdcos.cluster.cluster import Cluster


class Caller:
    """What is open on the cluster, by the key of its job."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        if "prepare" in job:
            self.open(job["prepare"], job)
            return {"version": hdcos.__version__, "numpy": np.__version__}
        return self.run(self.jobs[job["run"]], self.runs[job["run"]])

    def open(self, key: str, job: dict[str, Any]) -> None:
        """Open the function or share the weights; a training run shares them when it starts."""
        self.jobs[key] = job
        x = np.load(job["inputs"])["x"]
        if job["kind"] == "function":
            function = self.cluster.function(job["function"], x.shape)

            def run(rows: dict[str, Any]) -> dict[str, Any]:
                function.prepare(1)
                return {"result": function(rows["x"])}

        elif job["kind"] == "predict":
            private = self.cluster.share(model(job["network"], job["activation"], job["structure"]), key)

            def run(rows: dict[str, Any]) -> dict[str, Any]:
                private.prepare(len(rows["x"]))
                return {"result": private.predict(rows["x"])}

        else:
            start = model(job["network"], job["activation"], job["structure"])
            settings = {"epochs": job["steps"], "batch_size": len(x), "lr": job["rate"], "watch": 0}
            settings |= {"progress": False, "scale_diagonals": False}  # every system takes the same step

            def run(rows: dict[str, Any]) -> dict[str, Any]:
                # The batch is the whole data set, so an epoch is a step, and the same one in plaintext.
                return {"trained": self.cluster.fit(start, rows["x"], rows["y"], name=key, **settings)}

        self.runs[key] = run

    def run(self, job: dict[str, Any], work: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        rows = dict(np.load(job["inputs"]))
        self.cluster.reset_cost()
        before = socket_bytes()
        started = time.perf_counter()
        results = work(rows)
        seconds = time.perf_counter() - started
        after = socket_bytes()
        cost = self.cluster.cost
        if "trained" in results:
            trained = results.pop("trained")
            results |= trained.reveal().state()
            trained.delete()
        np.savez(job["outputs"], **results)
        asked, answered = (now - then for now, then in zip(after, before, strict=True))
        return {
            "seconds": seconds,
            # Training deals while it computes: there is no time without the dealer to tell.
            "online_s": cost.online.seconds if job["kind"] != "train" else None,
            "rounds": cost.online.rounds,
            "sent": max(cost.online.wire_bytes_sent) + answered // 2,
            "caller_sent": asked,
            "dealt": sum(cost.offline.wire_bytes_sent),
        }


if __name__ == "__main__":
    with hdcos.local() as cluster:
        serve(Caller(cluster).answer)
