"""A GPU that both parties and the dealer share: kernels and steps against processors, a sanitizer, MNIST, criteo.

And what all that made of steps on processors.

`make prove SUITE=gpu` writes them. `python -m benchmarks.gpu PART...` prints the lines of parts one by one as they are
found, each with the machine, and writes nothing.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from math import sqrt
from statistics import median
from typing import Any

import numpy as np

import hdcos
from benchmarks import against
from benchmarks.record import RESULTS, Line, at_least, at_most, exactly, machine
from benchmarks.stepping import Training
from hdcos import nn
from hdcos.errors import DeviceError
from hdcos.offline.material import Field, Slot
from hdcos.offline.shares import FieldShares
from hdcos.ring import sign_blocks, sign_products, sign_rules
from hdcos.ring.cuda import open_device
from hdcos.ring.device import to_host
from hdcos.ring.types import HadamardLayer, Opening
from hdcos.secure.training.step import plan_step
from hdcos.testing.cuda_cases import Draw, calls, compare
from hdcos.testing.steps import hash_steps

DEVICE = "cuda:0"
WORDS = 10**6
BATCH = 4096
BEFORE = "f9dab5f"
"""The commit before there were devices."""
STEP_LIMITS = {  # milliseconds, megabytes sent by a party, megabytes of material; others are reported
    "P-LeNet": (100.0, 40.0, 150.0),
    "MLP 784-128-128-10": (8.0, 40.0, 150.0),
    "LeNet-5": (60.0, 40.0, 150.0),
}


def kernels(seed: int, words: int = WORDS) -> Iterator[Line]:
    """Words that differ from the reference, and the time of each kernel that a step consists of."""
    device = _open()
    different: dict[str, int] = {}
    for name, arguments in calls(words):
        try:
            different[name] = different.get(name, 0) + compare(device, name, arguments)
        except Exception as error:  # of the device, whatever it is: nothing can be computed there after it
            shapes = [getattr(x, "shape", x) for x in arguments]
            raise DeviceError(f"{name} of {str(shapes)[:200]}: {type(error).__name__} {error}") from error
    different["expand"] = _streams_differ(device, words)
    for name, count in different.items():
        yield exactly(f"{name}, about {words} words and boundaries: words that differ from the reference", count, 0)
    for name, milliseconds, limit in timings(device):
        yield at_most(f"{name}: milliseconds", milliseconds, limit)


def hashes(seed: int, device: Any = None, rows: int = 128, count: int = 4) -> Iterator[Line]:
    """Whole steps on the device and on processors: hashes of every message and of every share that they result in."""
    device = device or _open()
    for name, model in networks().items():
        here, _ = hash_steps(model, (None, None, None), count, rows=rows, label=f"{name} {seed}")
        there, runs = hash_steps(model, (device, device, device), count, rows=rows, label=f"{name} {seed}")
        pairs = [each for step in zip(here, there, strict=True) for each in zip(*step, strict=True)]
        different = sum(mine != theirs for mine, theirs in pairs)
        work = f"{name}, batch {rows}, {count} steps, of which {count - 2} repeat the second"
        yield exactly(f"{work}: of {len(pairs)} messages and shares those that differ from processors'", different, 0)
        yield exactly("its parties that repeated what they recorded", sum(run.recorded for run in runs), 2)


def _open() -> Any:
    device = open_device(DEVICE)
    assert device is not None
    device.kernels.compile_all()
    return device


def _streams_differ(device: Any, words: int) -> int:
    slots = [
        Slot(place, 1, Field("x", (words // 8,), bits)) for place, bits in enumerate((1, 8, 13, 16, 26, 32, 40, 64))
    ]
    here, there = (FieldShares(bytes(range(32)), slots, where) for where in (None, device))
    made = zip(here.expand(5, 2), there.expand(5, 2), strict=True)
    return sum(int((mine != to_host(theirs)).sum()) for mine, theirs in made)


def timings(device: Any) -> Iterator[tuple[str, float, float]]:
    """What each kernel takes, and a time that a first version should stay below."""
    draw, put, run = Draw(), device.put, device.kernels
    a, b = put(draw.words(1024, 1024)), put(draw.words(1024, 1024))
    yield "matrix product 1024 x 1024 x 1024", _ms(device, lambda: run.matmul(a, b)), 2.0
    x, w = put(draw.words(128, 784)), put(draw.words(784, 128))
    yield "matrix product 128 x 784 x 128", _ms(device, lambda: run.matmul(x, w)), 0.1
    images, kernel = put(draw.words(128, 20, 12, 12)), put(draw.words(50, 20, 5, 5))
    yield (
        "convolution of 128 x 20 x 12 x 12 with 50 x 20 x 5 x 5",
        _ms(device, lambda: run.conv2d(images, kernel, 1, 0)),
        1.0,
    )
    rows = put(draw.words(4096, 1024))
    yield "Walsh-Hadamard of 4096 x 1024", _ms(device, lambda: run.walsh_hadamard(rows)), 0.1
    yield "a copy of 4096 x 1024 words", _ms(device, rows.copy), 0.05
    phase, mask = put(draw.compact(4096, 1024, bits=26)), put(draw.compact(4096, 1024, bits=26))
    yield "rotation of 4096 x 1024", _ms(device, lambda: run.rotate(phase, rows, rows, 26, 24, True, False)), 0.1
    layer = HadamardLayer(phase, rows, rows, 26, 24, 1024, 1024)
    opening = Opening(mask, 38, 26)
    yield "fused layer of 4096 x 1024", _ms(device, lambda: run.hadamard_cos_open(layer, opening)), 0.3
    yield "opening of 4096 x 1024", _ms(device, lambda: run.round_open(rows, mask, 38, 26, True)), 0.1
    flat = mask.reshape(-1)
    yield "packing of 4096 x 1024 values of 26 bits", _ms(device, lambda: run.pack(flat, 26)), 0.2
    packed = run.pack(flat, 26)
    yield "unpacking of as many", _ms(device, lambda: run.unpack_sum(packed, flat, 26)), 0.2
    slots = [Slot(0, 1, Field("x", (1 << 24,), 64))]
    streams = FieldShares(bytes(32), slots, device)
    yield "key stream of 128 MB", _ms(device, lambda: streams.expand(0, 1)), 5.0
    yield from comparisons(device, draw)
    sent = draw.words(1 << 20)
    there = put(sent)
    yield "8 MB to the device", _ms(device, lambda: put(sent)), 2.0
    room = device.room(sent.nbytes).view(sent.dtype)
    room[:] = sent
    yield "8 MB to the device out of pinned memory, as material comes", _ms(device, lambda: put(room)), 0.5
    yield "8 MB from the device", _ms(device, lambda: to_host(there)), 4.0
    small = put(draw.words(4))
    yield "a launch that has nothing to do", _ms(device, lambda: run.round_open(small, None, 1, 8, True)), 0.05
    yield "an operator that has nothing to do", _ms(device, lambda: small + small), 0.05


def comparisons(device: Any, draw: Draw, shape: tuple[int, int] = (128, 1024), bits: int = 20) -> Iterator[Any]:
    """The same for signs: of values of this shape, by tables and by keys."""
    put, run, widths = device.put, device.kernels, sign_blocks(bits)
    what = f"{shape[0]} x {shape[1]} values of {bits} bits"
    D, masks = put(draw.compact(*shape, bits=bits)), put(draw.compact(*shape, bits=2 * len(widths) - 2))
    tables = [put(draw.compact(*shape, bits=1 << width)) for width in widths]
    yield f"signs of {what} looked up", _ms(device, lambda: run.sign_lookup(D, tables, masks, bits, True)), 0.1
    products, rules = put(draw.compact(*shape, bits=len(sign_products(len(widths))) + 1)), sign_rules(len(widths))
    first = put(draw.compact(*shape, bits=1))
    yield "and combined", _ms(device, lambda: run.sign_combine(masks, masks, products, first, rules, True)), 0.1
    cipher, roots = put(draw.words(shape[0], 2)), [put(draw.words(*shape, 2)) for _ in range(2)]
    yield f"keys for {what} made", _ms(device, lambda: run.dcf_words(cipher, *roots, D, bits)), 2.0
    words = run.dcf_words(cipher, *roots, D, bits)
    yield "and evaluated", _ms(device, lambda: run.dcf_share(cipher, roots[0], words, D, bits, True)), 1.0


def _ms(device: Any, work: Callable[[], object], repeats: int = 20) -> float:
    """The mean of calls that follow each other, after one that compiles."""
    wait = device.wait
    work()
    wait()
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (time.perf_counter() - started) / repeats * 1e3


@contextmanager
def shared_device() -> Iterator[None]:
    """NVIDIA's service by which several processes compute on a device at once (MPS), where it is installed.

    It lasts as long as this process, whom it counts as one of them.
    """
    control, variables = shutil.which("nvidia-cuda-mps-control"), ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    if control is not None and variables[0] not in os.environ:
        os.environ.update(dict.fromkeys(variables, tempfile.mkdtemp()))
        subprocess.run([control, "-d"], check=True)
        atexit.register(_end_sharing, control)
    yield


def _end_sharing(control: str) -> None:
    """Ask the service to end, which it does when its last process has."""
    asking = subprocess.Popen([control], stdin=subprocess.PIPE, start_new_session=True)
    asking.stdin.write(b"quit\n")  # type: ignore[union-attr]
    asking.stdin.close()  # type: ignore[union-attr]


def networks() -> dict[str, nn.Sequential]:
    """Those whose steps are measured; P-LeNet as Orca and Piranha have it, with cosines. One compares, by tables."""
    front = [nn.Conv2d(1, 20, 5), nn.Cos(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.Cos(), nn.AvgPool2d(2)]
    behind = [nn.Flatten(), nn.Dense(800, 500), nn.Cos(), nn.Dense(500, 10)]
    return {
        "MLP 784-128-128-10": nn.models.mlp([784, 128, 128, 10], "cos", "dense"),
        "LeNet-5": nn.models.lenet5(),
        "P-LeNet": nn.Sequential([*front, *behind], input_shape=(1, 28, 28)),
        "LeNet-5 with ReLU, dense": nn.models.lenet5("relu", "dense"),
    }


def steps(seed: int, device: str = DEVICE, clusters: int = 3, turns: int = 10, count: int = 10) -> Iterator[Line]:
    """Steps of batch 128; everything runs and everything counts, TLS among it.

    The median of the turns of several clusters: one may be a quarter slower than the next for as long as it lives.
    """
    generator = np.random.default_rng(seed)
    for name, model in networks().items():
        x, labels = generator.uniform(0, 1, (1280, *model.input_shape)), generator.integers(0, 10, 1280)
        took, each = list[float](), list[float]()
        for _ in range(clusters):
            with shared_device(), hdcos.local(device=device) as cluster:
                cluster.upload(x, labels, name="rows", outputs=10)
                training = Training(cluster, model, 128, 100)
                training.steps(20)
                here = [training.steps(count) / count * 1e3 for _ in range(turns)]
            took, each = [*took, *here], [*each, median(here)]
        shown = ", ".join(f"{one:.1f}" for one in each)
        material = plan_step(model, 128).material.packed_bytes(1) / 1e6  # orders end at other steps than turns do
        title = f"{name}, batch 128, logistic loss, {device}: milliseconds a step"
        found = {
            f"{title} ({clusters} clusters: {shown})": median(took),
            "its megabytes sent by a party": training.bytes_per_step / 1e6,
            "its megabytes of material": material,
        }
        for (line, value), limit in zip(found.items(), STEP_LIMITS.get(name, (None,) * 3), strict=True):
            yield Line(line, value, "reported", True) if limit is None else at_most(line, value, limit)


def mnist(seed: int) -> Iterator[Line]:
    """The run of LeNet-5 that processors are measured with, SUITE=accuracy PART=mnist, and what it gave there."""
    from benchmarks.accuracy import IMAGES, image_run
    from benchmarks.training_runs import private

    run = image_run(*IMAGES["mnist"], seed)
    title = f"{run.name}: accuracy on shares"
    recorded = json.loads((RESULTS / "accuracy.json").read_text())
    here = next(line["value"] for line in recorded if line["line"].startswith(title))
    with shared_device():
        found = private(run, DEVICE)
    yield at_most(f"{run.name}, on {DEVICE}: minutes", found.seconds / 60, 5)
    yield from accuracies(found.accuracy, here, len(run.test_x))


def accuracies(device: float, processors: float, images: int) -> Iterator[Line]:
    """Whether a run on a device is as good as one on processors, both drawn at random: not worse, and neither worse nor
    better than chance has it, by twice the standard error of the difference of two such accuracies."""
    right = (device + processors) / 200
    spread = 100 * sqrt(2 * right * (1 - right) / images)
    both = f"its accuracy, {device:.2f} %, below that of processors, {processors:.2f} %, in points"
    yield at_most(both, processors - device, 0.2)
    between = f"points between them either way, against twice their standard error on {images:,} images"
    yield at_most(between, abs(device - processors), 2 * spread)


def criteo(seed: int) -> Iterator[Line]:
    """Rows a second of several callers, with material made ahead and with the dealer at work meanwhile.

    A pair does one batch at a time, and its device waits for it while bytes travel: two pairs share the device.
    """
    for pairs, limits in ((1, (0, 0)), (2, (40_000, 6_000))):
        found = _criteo(seed, pairs)
        for (name, rows_per_s), limit in zip(found.items(), limits, strict=True):
            yield at_least(name, rows_per_s, limit) if limit else Line(name, rows_per_s, "reported", True)


def _criteo(seed: int, pairs: int) -> dict[str, float]:
    x = np.random.default_rng(seed).uniform(-1, 1, (BATCH, 1023))
    callers = 2 * pairs
    with shared_device(), hdcos.local(device=DEVICE, workers=pairs) as cluster:
        private = cluster.share(nn.models.criteo_mlp(), "criteo")
        private.predict(x, batch_rows=BATCH)

        def rows_a_second(batches: int) -> float:
            started = time.perf_counter()
            with ThreadPoolExecutor(callers) as pool:
                list(pool.map(lambda _: private.predict(x, batch_rows=BATCH), range(batches)))
            return batches * len(x) / (time.perf_counter() - started)

        private.prepare(4 * callers * len(x))
        ready, live = rows_a_second(4 * callers), rows_a_second(4 * callers)
    work = f"criteo_mlp, batch {BATCH}, {pairs} pair{'s' if pairs > 1 else ''} on one device, {callers} callers"
    return {
        f"{work}, material made ahead: rows a second": ready,
        f"{work}, the dealer live: rows a second": live,
    }


def sanitizer(seed: int) -> Iterator[Line]:
    """What compute-sanitizer finds in the kernels, by the tests of tests/gpu.

    Every array is an allocation of the driver's there: in a pool a kernel that writes past its array meets the next.
    """
    summaries = {"memcheck": r"ERROR SUMMARY: (\d+) error", "racecheck": r"RACECHECK SUMMARY: (\d+) hazard"}
    for tool, counted in summaries.items():
        tests = [sys.executable, "-m", "pytest", "-q", "tests/gpu", "-k", "kernel"]
        checked = ["compute-sanitizer", "--tool", tool, *tests]
        ended = subprocess.run(checked, env={**os.environ, "HDCOS_GPU_POOL": "0"}, capture_output=True, text=True)
        found = re.search(counted, ended.stdout)
        if ended.returncode or found is None or not re.search(r"\d+ passed", ended.stdout):
            raise DeviceError(f"compute-sanitizer --tool {tool} failed: {ended.stdout[-500:]}")
        yield exactly(f"compute-sanitizer, {tool} of every kernel: errors", int(found[1]), 0)


def cpu(seed: int) -> Iterator[Line]:
    """What devices cost those who have none: steps against the commit before, in alternating turns."""
    other = against.checkout(BEFORE)
    for work in against.STEPS:
        found = against.compare(other, work)
        yield at_most(f"{work} step on processors over that of {BEFORE}, {_spread(found)}", found["ratio"], 1.03)


def links(seed: int) -> Iterator[Line]:
    """What it gains processors that links are pumped by compiled code outside of Python's lock."""
    for work in against.STEPS:
        found = against.compare(against.HERE, work, against.PLAIN_LINKS, clusters=8)
        yield Line(
            f"{work} step over one with links pumped by Python, {_spread(found)}", found["ratio"], "reported", True
        )
        yield Line("its processor seconds over theirs", found["cpu_ratio"], "reported", True)


def _spread(found: dict[str, Any]) -> str:
    low, high = found["quartiles"]
    return f"alternating turns (quartiles {low:.2f} and {high:.2f})"


PARTS = {
    "kernels": kernels,
    "hashes": hashes,
    "steps": steps,
    "mnist": mnist,
    "criteo": criteo,
    "sanitizer": sanitizer,
    "cpu": cpu,
    "links": links,
}


ON_PROCESSORS = ("cpu", "links")


def device_of(part: str) -> str:
    """Where a part computes."""
    return "" if part in ON_PROCESSORS else DEVICE


def main() -> None:
    for part in sys.argv[1:] or PARTS:
        name, _, option = part.partition("=")
        for line in PARTS[name](0, *([type_of(name)(option)] if option else [])):
            print(json.dumps({**asdict(line), "machine": machine(device_of(name))}), flush=True)


def type_of(part: str) -> type:
    """What follows a part's name: words of kernels, the device of steps."""
    return int if part == "kernels" else str


if __name__ == "__main__":
    main()
