"""SPU: one party of its two-party protocol Semi2k over brpc. Run by SPU's own interpreter.

Arguments: the rank and the two addresses. Party 0 holds weights and inputs in plaintext, makes the shares, sends
party 1 its own over SPU's link, and joins the results. Times are those of party 0, from plaintext inputs to plaintext
results. Rounds are the sends that SPU's own profile of a run counts.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import spu
from spu import libspu
from spu.utils import frontend
from worker import serve, socket_bytes

RANK, ADDRESSES = int(sys.argv[1]), sys.argv[2:]
SECRET = libspu.Visibility.VIS_SECRET
SENDS = re.compile(r"Link details: .*?, send actions (\d+)")
State = dict[str, Any]


def forward(layers: list[dict[str, Any]], state: State, x: Any) -> Any:
    """A network in jax."""
    for index, layer in enumerate(layers):
        kind = layer["type"]
        if kind == "Conv2d":
            border = [(layer["padding"], layer["padding"])] * 2
            axes = ("NCHW", "OIHW", "NCHW")
            strides = (layer["stride"],) * 2
            x = jax.lax.conv_general_dilated(x, state[f"{index}.weight"], strides, border, dimension_numbers=axes)
            x = x + state[f"{index}.bias"][:, None, None]
        elif kind == "Dense":
            x = x @ state[f"{index}.weight"].T + state[f"{index}.bias"]
        elif kind == "AvgPool2d":
            size = layer["size"]
            rows, channels, height, width = x.shape
            x = x.reshape(rows, channels, height // size, size, width // size, size).mean((3, 5))
        elif kind == "Flatten":
            x = x.reshape(len(x), -1)
        else:
            x = {"ReLU": jax.nn.relu, "Cos": jnp.cos}[kind](x)
    return x


def program(job: dict[str, Any]) -> Callable[[State, State], State]:
    """The job as a function of weights and rows; a training step gives the new weights."""
    layers = job.get("layers")
    if job["kind"] == "function":
        return lambda state, rows: {"result": {"relu": jax.nn.relu, "cos": jnp.cos}[job["function"]](rows["x"])}
    if job["kind"] == "predict":
        return lambda state, rows: {"result": forward(layers, state, rows["x"])}

    def step(state: State, rows: State) -> State:
        logits, backward = jax.vjp(lambda weights: forward(layers, weights, rows["x"]), state)
        (gradient,) = backward((jax.nn.sigmoid(logits) - rows["y"]) / len(logits))
        return {name: state[name] - job["rate"] * gradient[name] for name in state}

    return step


class Party:
    """One end of the link, its virtual machine and the programs that were compiled."""

    def __init__(self) -> None:
        description = libspu.link.Desc()
        description.recv_timeout_ms = 600_000
        for rank, address in enumerate(ADDRESSES):
            description.add_party(f"party{rank}", address)
        self.link = libspu.link.create_brpc(description, RANK)
        config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.SEMI2K, field=libspu.FieldType.FM64)
        config.enable_hal_profile = True  # counts sends
        config.sigmoid_mode = libspu.RuntimeConfig.SigmoidMode.SIGMOID_REAL  # the default has three straight pieces
        self.io, self.runtime = spu.Io(2, config), spu.Runtime(self.link, config)
        self.jobs: dict[str, dict[str, Any]] = {}
        self.compiled: dict[str, Any] = {}

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        if "prepare" not in job:
            return self.run(job["run"], self.jobs[job["run"]])
        self.jobs[job["prepare"]] = job
        self.compile(job["prepare"], job)
        return {"version": version("spu"), "jax": jax.__version__, "numpy": np.__version__}

    def arrays(self, job: dict[str, Any]) -> tuple[State, State]:
        """Weights and rows by name; party 1 has their shapes alone."""
        found = {name: np.asarray(values, np.float32) for name, values in np.load(job["inputs"]).items()}
        if RANK != 0:
            found = {name: np.zeros_like(values) for name, values in found.items()}
        rows = {name: found.pop(name) for name in ("x", "y") if name in found}
        return found, rows

    def compile(self, key: str, job: dict[str, Any]) -> None:
        """Compile the program and share the weights; parameters of a training step have the names of its results."""
        state, rows = self.arrays(job)
        names = [f"{key}.{name}" for name in (*sorted(state), *sorted(rows))]
        outputs = names[: len(state)] if job["kind"] == "train" else [f"{key}.result"]
        executable, _ = frontend.compile(
            frontend.Kind.JAX, program(job), (state, rows), {}, names, [SECRET] * len(names), lambda out: outputs
        )
        self.compiled[key] = executable
        self.share(key, state)

    def share(self, key: str, arrays: State) -> None:
        """Split arrays between the parties."""
        for name in sorted(arrays):
            if RANK == 0:
                mine, other = self.io.make_shares(arrays[name], SECRET)
                self.send(1, other)
            else:
                mine = self.receive(0)
            self.runtime.set_var(f"{key}.{name}", mine)

    def join(self, names: list[str]) -> State:
        """Results at party 0."""
        joined = {}
        for name in names:
            mine = self.runtime.get_var(name)
            if RANK == 0:
                joined[name] = self.io.reconstruct([mine, self.receive(1)])
            else:
                self.send(0, mine)
        return joined

    def send(self, rank: int, share: Any) -> None:
        for part in (share.meta, str(len(share.share_chunks)).encode(), *share.share_chunks):
            self.link.send(rank, part)

    def receive(self, rank: int) -> Any:
        share = libspu.Share()
        share.meta = self.link.recv(rank)
        share.share_chunks = [self.link.recv(rank) for _ in range(int(self.link.recv(rank)))]
        return share

    def run(self, key: str, job: dict[str, Any]) -> dict[str, Any]:
        state, rows = self.arrays(job)
        executable, training = self.compiled[key], job["kind"] == "train"
        if training:
            self.share(key, state)  # every turn starts from the same weights
        self.link.barrier()
        position, before = LOG.stat().st_size, socket_bytes()[0]
        started = time.perf_counter()
        self.share(key, rows)
        for _ in range(job.get("steps", 1)):
            self.runtime.run(executable)
        results = {} if training else self.join(executable.output_names)
        seconds = time.perf_counter() - started
        sent = socket_bytes()[0] - before
        if training:
            results = self.join(executable.output_names)
        if RANK == 0:
            np.savez(job["outputs"], **{name.removeprefix(f"{key}."): values for name, values in results.items()})
        with LOG.open() as log:
            log.seek(position)
            rounds = sum(int(count) for count in SENDS.findall(log.read()))
        return {"seconds": seconds, "rounds": rounds, "sent": sent}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="spu-") as folder:
        LOG = Path(folder) / "log"
        options = libspu.logging.LogOptions()
        options.system_log_path = str(LOG)
        libspu.logging.setup_logging(options)
        serve(Party().answer)
