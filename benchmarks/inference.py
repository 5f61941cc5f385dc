"""Private inference against plaintext inference: rounds, bytes, accuracy, and time as ratios of one run.

`python -m benchmarks.inference` measures the speed lines alone. Plaintext is PyTorch on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch

import hdcos
from benchmarks.record import Line, at_least, at_most, exactly, write
from hdcos import data, nn
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.model import PrivateModel
from hdcos.secure.estimate import estimate, total
from hdcos.testing.bounds import error_bound
from hdcos.testing.pair import simulate_private

REPEATS = 40
STRUCTURES = ("hadamard", "dense", "low_rank", "phd", "circulant")
ACTIVATIONS = ("none", "cos", "sin", "square", "expm1", "polyfit3", "sigmoid", "tanh", "growing_cos")


def prove(seed: int) -> Iterator[Line]:
    for name in ("mnist", "fashion_mnist"):
        getattr(data, name)("test")  # says what is missing, and where it belongs, before anything is measured
    yield from speed()
    yield from structures(seed)
    yield from depth(seed)
    yield from multiplications()
    yield from memory()
    with hdcos.local() as cluster:
        yield from planner(cluster, seed)
        for name in ("mnist", "fashion_mnist"):
            yield from accuracy(cluster, name)


def speed() -> Iterator[Line]:
    torch.set_num_threads(1)
    with hdcos.local() as cluster:
        yield from criteo(cluster)
        yield from lenet(cluster)
    yield from wide_area()


def _plain_s(module: torch.nn.Module, x: np.ndarray, repeats: int = REPEATS) -> float:
    rows = torch.from_numpy(x).float()
    module.eval()
    with torch.inference_mode():
        return _median_s(lambda: module(rows), repeats)


def _median_s(work: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def _online(
    cluster: Cluster, private: PrivateModel, x: np.ndarray, repeats: int = REPEATS
) -> tuple[float, float, float]:
    """Median seconds online, median seconds of the caller's predict, and offline seconds per row."""
    cluster.reset_cost()
    private.prepare(len(x) * repeats)
    offline = cluster.cost.offline.seconds / (len(x) * repeats)
    online, wall = [], []
    for _ in range(repeats):
        cluster.reset_cost()
        started = time.perf_counter()
        private.predict(x, batch_rows=len(x))
        wall.append(time.perf_counter() - started)
        online.append(cluster.cost.online.seconds)
    return median(online), median(wall), offline


def _sustained(cluster: Cluster, private: PrivateModel, rows: np.ndarray, batch: int = 128) -> float:
    """Inputs per second with the dealer working live on the same cores."""
    private.predict(rows[:batch], batch_rows=batch)
    started = time.perf_counter()
    private.predict(rows, batch_rows=batch)
    return len(rows) / (time.perf_counter() - started)


def criteo(cluster: Cluster) -> Iterator[Line]:
    model = nn.models.criteo_mlp()
    dense = nn.models.criteo_mlp("relu", "dense").to_torch()
    private = cluster.share(model, "criteo")
    x = np.random.default_rng(0).uniform(-1, 1, (128, 1023))
    for mode, rounds in (("masked", 4), ("shares", 5)):
        cluster.reset_cost()
        private.predict(x, mode=mode)
        cost = cluster.cost.online
        yield exactly(f"criteo_mlp HD-cos, rounds per batch, input {mode}", cost.rounds, rounds)
        if mode == "masked":
            yield at_most("its online bytes per input each way", cost.bytes_sent[0] / len(x), 13.4e3)
    for batch, limit in ((1, 1.5), (128, 0.6)):
        plain_before = _plain_s(dense, x[:batch])
        online, wall, offline = _online(cluster, private, x[:batch])
        plain = median([plain_before, _plain_s(dense, x[:batch])])
        yield at_most(
            f"criteo_mlp batch {batch}: online {online * 1e3:.2f} ms over plaintext dense ReLU {plain * 1e3:.2f} ms "
            f"(predict {wall * 1e3:.1f} ms, offline {offline * 1e3:.2f} ms per input)",
            online / plain,
            limit,
        )
    offline_bytes = total(estimate(model)).offline.bytes_sent
    rate = _sustained(cluster, private, np.resize(x, (2048, 1023)))
    name = f"criteo_mlp offline bytes per input (sustained {rate:.0f} inputs/s, dealer live on the same cores)"
    yield at_most(name, offline_bytes, 150e3)


def lenet(cluster: Cluster) -> Iterator[Line]:
    model = nn.models.lenet5()
    private = cluster.share(model, "lenet")
    x = np.random.default_rng(0).uniform(0, 1, (128, 1, 28, 28))
    for mode, rounds in (("masked", 5), ("shares", 6)):
        cluster.reset_cost()
        private.predict(x, mode=mode)
        yield exactly(f"LeNet-5 HD-cos, rounds per batch, input {mode}", cluster.cost.online.rounds, rounds)
    modules = {"dense cosine": nn.models.lenet5("cos", "dense").to_torch(), "HD cosine": model.to_torch()}
    plain = {name: _plain_s(module, x, 10) for name, module in modules.items()}
    online, wall, offline = _online(cluster, private, x, 10)
    shown = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in plain.items())
    rate = _sustained(cluster, private, np.resize(x, (1024, 1, 28, 28)))
    yield at_most(
        f"LeNet-5 batch 128: online {online * 1e3:.1f} ms over the faster plaintext model ({shown}; predict "
        f"{wall * 1e3:.1f} ms, offline {offline * 1e3:.2f} ms per input, sustained {rate:.0f} inputs/s)",
        online / min(plain.values()),
        8,
    )


def wide_area() -> Iterator[Line]:
    model = nn.models.criteo_mlp()
    x = np.random.default_rng(0).uniform(-1, 1, (1, 1023))
    with hdcos.local(rtt_ms=40, mbps=100) as cluster:
        private = cluster.share(model, "criteo")
        online, wall, _ = _online(cluster, private, x, 5)
    yield at_most(
        f"criteo_mlp batch 1 at 40 ms, 100 Mbit/s: {online * 1e3:.0f} ms (predict {wall * 1e3:.0f} ms), over 4 x 40 ms",
        online / 0.160,
        1.25,
    )


def structures(seed: int) -> Iterator[Line]:
    """Every structure with every activation, within its derived bound."""
    x = np.random.default_rng(seed).uniform(-0.5, 0.5, (16, 20))
    within = 0
    for structure in STRUCTURES:
        for activation in ACTIVATIONS:
            model = nn.models.mlp([20, 16, 16, 4], activation, structure, seed=seed % 1000)
            within += bool((np.abs(simulate_private(model, x) - model(x)) <= error_bound(model, x)).all())
    wanted = len(STRUCTURES) * len(ACTIVATIONS)
    yield exactly("structures x activations whose outputs lie within their derived bound", within, wanted)


def depth(seed: int) -> Iterator[Line]:
    generator = np.random.default_rng(seed)
    worst = 0.0
    for layers in range(1, 9):
        model = nn.models.mlp([1023, *[1024] * layers, 10], "cos", "hadamard", seed=layers)
        x = generator.uniform(-1, 1, (64, 1023))
        worst = max(worst, float(np.abs(simulate_private(model, x) - model(x)).max()))
    yield at_most("largest logit error of random HD-cos networks of 1 to 8 layers, 1024 wide", worst, 5e-3)


def multiplications() -> Iterator[Line]:
    d = 64
    counts = {
        structure: estimate(nn.models.mlp([d, d], "none", structure))[-1].multiplications
        for structure in ("hadamard", "dense", "low_rank")
    }
    expected = {"hadamard": d, "dense": d * d, "low_rank": 4 * d}
    yield exactly(f"secure multiplications of a layer of {d} units", counts, expected)


def planner(cluster: Cluster, seed: int) -> Iterator[Line]:
    """The planner against the meter, for every ready model and structure."""
    generator = np.random.default_rng(seed)
    agreeing = count = 0
    for name, make in nn.models.READY.items():
        for structure in STRUCTURES:
            model = make(structure=structure)
            private = cluster.share(model, f"{name}-{structure}")
            cluster.reset_cost()
            private.prepare(3)
            private.predict(generator.uniform(0, 1, (3, *model.input_shape)))
            cost, planned = cluster.cost, total(estimate(model, 3))
            private.delete()
            count += 1
            agreeing += (cost.online.rounds, cost.online.bytes_sent[0], cost.online.wire_bytes_sent[0]) == (
                planned.online.rounds,
                planned.online.bytes_sent,
                planned.online.wire_bytes_sent,
            ) and cost.offline.bytes_sent[1] == planned.offline.bytes_sent
    yield exactly("ready models x structures whose planned rounds and bytes are the metered ones", agreeing, count)


def memory() -> Iterator[Line]:
    """10,000 inputs prepared and run, and the cost per input by batch size."""
    model = nn.models.criteo_mlp()
    x = np.random.default_rng(0).uniform(-1, 1, (10_000, 1023))
    with hdcos.local() as cluster:
        private = cluster.share(model, "criteo")
        private.prepare(len(x))
        private.predict(x)
        peaks = {role: _peak_gb(pid) for role, pid in cluster.pids.items()}
    shown = ", ".join(f"{role} {peak:.2f}" for role, peak in peaks.items())
    yield at_most(
        f"peak memory in GB of 10,000 inputs of criteo_mlp prepared and run ({shown})", max(peaks.values()), 2
    )
    with hdcos.local() as cluster:
        private = cluster.share(model, "criteo")
        per_input = {}
        for batch, repeats in ((128, 12), (1024, 4), (4096, 5)):
            online, _, _ = _online(cluster, private, x[:batch], repeats)
            per_input[batch] = online / batch * 1e6
    shown = ", ".join(f"{batch}: {cost:.0f} us" for batch, cost in per_input.items())
    yield at_most(f"online cost per input, batch 4096 over batch 128 ({shown})", per_input[4096] / per_input[128], 1.5)


def _peak_gb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**20
    raise RuntimeError("no peak memory in /proc")


def accuracy(cluster: Cluster, dataset: str, network: str = "lenet5") -> Iterator[Line]:
    """A whole test set through a trained network."""
    model = nn.models.pretrained(f"{network}_{dataset}")
    images, labels = getattr(data, dataset)("test")
    name = dataset if network == "lenet5" else f"{dataset}, {network}"
    private = cluster.share(model, dataset)
    scores = private.predict(images)
    private.delete()
    plain = model(images).argmax(1)
    mine = scores.argmax(1)
    same = 100 * float(np.mean(mine == plain))
    accuracies = [100 * float(np.mean(guess == labels)) for guess in (mine, plain)]
    yield at_least(f"{name}: labels of {len(labels)} test images that agree with plaintext, in %", same, 99.9)
    yield at_most(
        f"{name}: accuracy {accuracies[0]:.2f} % on shares against {accuracies[1]:.2f} % in plaintext, difference",
        abs(accuracies[0] - accuracies[1]),
        0.05,
    )


if __name__ == "__main__":
    write("bench_inference", speed(), 0, "make bench")
