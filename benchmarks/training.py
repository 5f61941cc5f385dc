"""Private training against plaintext training: rounds, time as a ratio of one run, accuracy on real data, faults.

Reads MNIST, Fashion-MNIST and HIGGS from the data folder. The accuracy lines train each network three times with the
same initial weights, batches, loss and rates: on shares with real processes, in floating point, and in plaintext with
the fixed-point arithmetic of the shares, which counts openings out of range.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import median

import numpy as np
import torch

import hdcos
from benchmarks import faults
from benchmarks.record import Line, at_least, at_most, exactly
from benchmarks.stepping import Training
from benchmarks.training_runs import Outcome, Run, fixed_point, floating, private
from hdcos import data, nn

HIGGS_TEST_ROWS = 10_000
TURNS = 5
MANY_CORES = 8
HIGGS_NAME = "HIGGS sample of {rows} rows, 4 hidden layers, lr {rate}, 20 epochs"


def steps(seed: int) -> Iterator[Line]:
    torch.set_num_threads(1)
    features, labels = data.higgs()
    images, digits = data.mnist("train")
    yield from step_lines("Higgs MLP", nn.models.higgs_mlp, features, labels, 256, 400, 15, 12)
    yield from step_lines("LeNet-5", nn.models.lenet5, images[:2560], digits[:2560], 128, 40, 20, 15, 25)
    yield from memory_lines(features, labels)


def step_lines(
    name: str,
    build: Callable[..., nn.Sequential],
    x: np.ndarray,
    y: np.ndarray,
    batch: int,
    steps: int,
    rounds: int,
    times: float,
    megabytes: float | None = None,
) -> Iterator[Line]:
    """Rounds, bytes and time of one step."""
    model, modules = build(), {kind: build(structure=kind).to_torch() for kind in ("dense", "hadamard")}
    with hdcos.local() as cluster:
        cluster.upload(x, y, name="rows", outputs=model.output_shape[0])
        training = Training(cluster, model, batch, 1 + 10 * steps // (len(x) // batch))
        training.steps(steps // 4)
        cluster.reset_cost()
        before_s = {role: cpu_seconds(pid) for role, pid in cluster.pids.items()}
        # The machine's speed changes from minute to minute: both are measured in turns, and compared turn by turn.
        turns = []
        for _ in range(TURNS):
            seconds = training.steps(steps) / steps
            cluster.cost  # noqa: B018  waits until the material that was ordered is there, and the cores are free
            turns.append(
                (seconds, {kind: _plain_step_s(module, model.shapes, batch) for kind, module in modules.items()})
            )
        worked_s = {role: cpu_seconds(pid) - before_s[role] for role, pid in cluster.pids.items()}
        offline = cluster.cost.offline
    private_s = median(seconds for seconds, _ in turns)
    plain = {kind: median(found[kind] for _, found in turns) for kind in modules}
    shown = ", ".join(f"{kind} {seconds * 1e3:.2f} ms" for kind, seconds in plain.items())
    yield at_most(f"{name}, batch {batch}, logistic loss: rounds per step", training.rounds_per_step, rounds)
    if megabytes is not None:
        yield at_most("its megabytes per step, each way", training.bytes_per_step / 1e6, megabytes)
    yield at_most(
        f"its time per step, {private_s * 1e3:.1f} ms, over the faster plaintext model ({shown}); "
        f"{training.bytes_per_step / 1e3:.0f} kB each way, "
        f"offline {offline.bytes_sent[1] / TURNS / steps / 1e6:.1f} MB and "
        f"{offline.seconds / TURNS / steps * 1e3:.1f} ms per step; the dealer has "
        f"{worked_s['dealer'] / sum(worked_s.values()):.0%} of the processor time",
        median(seconds / min(found.values()) for seconds, found in turns),
        times,
    )


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _plain_step_s(module: torch.nn.Module, shapes: tuple[tuple[int, ...], ...], batch: int, repeats: int = 60) -> float:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x, y = torch.rand(batch, *shapes[0]), torch.rand(batch, *shapes[-1]).round()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(module(x), y).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def memory_lines(x: np.ndarray, y: np.ndarray) -> Iterator[Line]:
    """The memory of all processes after two epochs and after six."""
    with hdcos.local() as cluster:
        cluster.upload(x, y, name="rows")
        training = Training(cluster, nn.models.higgs_mlp(), 256, 6)
        sizes = []
        for epochs in (2, 4):
            training.steps(epochs * (len(x) // 256))
            sizes.append(sum(_resident_bytes(pid) for pid in cluster.pids.values()))
    yield at_most(
        f"memory of the three processes after 6 epochs of HIGGS ({sizes[1] / 1e6:.0f} MB) over that after 2",
        sizes[1] / sizes[0],
        1.1,
    )


def _resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def accuracy(runs: list[Run]) -> Iterator[Line]:
    plaintext = [(fixed_point, run) for run in runs]
    plaintext += [(floating, each) for run in runs for each in (run, run.nudged())]
    many = (os.cpu_count() or 1) >= MANY_CORES
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        early = [pool.submit(*work) for work in plaintext] if many else []
        shared = [private(run) for run in runs]  # on few cores nothing else computes meanwhile: it is timed
        outcomes = [call.result() for call in early or [pool.submit(*work) for work in plaintext]]
    fixed, floats = outcomes[: len(runs)], outcomes[len(runs) :]
    for run, mine, reference, plain, moved in zip(runs, shared, fixed, floats[0::2], floats[1::2], strict=True):
        yield from _outcome_lines(run, mine, reference, plain, moved)


def higgs_runs(seed: int) -> Iterator[Run]:
    x, y = data.higgs()
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    train, test = slice(0, len(x) - HIGGS_TEST_ROWS), slice(len(x) - HIGGS_TEST_ROWS, None)
    run = Run("", nn.models.higgs_mlp(4, seed=seed % 1000), x[train], y[train], x[test], y[test], 20, 256, 0.5)
    for rate in (0.5, 0.1):
        title = HIGGS_NAME.format(rows=len(x), rate=rate)
        yield replace(run, name=title, rate=rate, seed=seed, tolerance=0.5, scale_diagonals=False)


def image_runs(seed: int) -> Iterator[Run]:
    for name, load, tolerance, least in (
        ("MNIST", data.mnist, 0.3, 98.0),
        ("Fashion-MNIST", data.fashion_mnist, 0.5, None),
    ):
        (x, y), (test_x, test_y) = load("train"), load("test")
        model = nn.models.lenet5(seed=seed % 1000)
        title = f"{name}, LeNet-5 HD-cos, 10 epochs, lr 0.1 after a warm-up, cosine schedule, momentum 0.9"
        run = Run(title, model, x, y, test_x, test_y, 10, 128, 0.1, 0.9, warm_up=3, seed=seed)
        yield replace(run, tolerance=tolerance, least=least, scale_diagonals=False)


def _outcome_lines(run: Run, mine: Outcome, reference: Outcome, exact: Outcome, nudged: Outcome) -> Iterator[Line]:
    if run.least is not None:
        yield at_least(f"{run.name}: accuracy on shares, % of {len(run.test_y)} test rows", mine.accuracy, run.least)
    difference, chaos, size = (
        float(np.sqrt(np.mean(gap**2)))
        for gap in (mine.scores - exact.scores, nudged.scores - exact.scores, exact.scores)
    )
    yield at_most(
        f"{run.name}: {mine.accuracy:.2f} % on shares ({mine.seconds / 60:.1f} min), {exact.accuracy:.2f} % in "
        f"plaintext, {reference.accuracy:.2f} % in its fixed-point reference (rms difference to the float logits "
        f"{difference:.1e} of rms {size:.2f}; floats that start 1e-5 apart end {chaos:.1e} apart, at "
        f"{nudged.accuracy:.2f} %); difference to plaintext in points",
        abs(mine.accuracy - exact.accuracy),
        run.tolerance,
    )
    yield exactly(
        f"{run.name}: openings out of range in its fixed-point reference, of {reference.openings:.1e} (the largest "
        f"took {reference.largest:.2f} of its range)",
        reference.out_of_range,
        0,
    )


PARTS = {
    "steps": steps,
    "higgs": lambda seed: accuracy(list(higgs_runs(seed))),
    "images": lambda seed: accuracy(list(image_runs(seed))),
    "faults": faults.lines,
}
