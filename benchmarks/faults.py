"""Training under fire: any process is killed at a random moment, the run is resumed, and nothing is used twice.

Each case is a process of its own that trains a small network on digits with checkpoints. At a moment drawn from the
seed the dealer, a party or the caller itself gets kill -9. What is left must end with the named error within the
timeout; a second process resumes and finishes; the ledgers of both parties must show every execution reserved once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

import hdcos
from benchmarks.record import Line, at_least, at_most, exactly
from hdcos import data, nn
from hdcos.errors import PeerLost
from hdcos.party.checkpoint import Checkpoints
from hdcos.ring import encode
from hdcos.secure.training import Rule, sgd_step, training_plan
from hdcos.secure.training.plan import INPUT_SCALE
from hdcos.sharing import Share, join
from hdcos.testing.pair import share_pair, simulate
from hdcos.testing.plaintext import run_plaintext

CASES = 50
TIMEOUT_S = 5.0
PATIENCE_S = 30.0
VICTIMS = ("dealer", "party0", "party1", "client")
LOST = 7
"""Exit status of a child that ended with PeerLost."""


def lines(seed: int) -> Iterator[Line]:
    yield from kill_lines(seed)
    yield jump_line(seed)


def child(folder: str, resume: bool) -> None:
    """Train with checkpoints, tell the pids, and write the logits of the test digits."""
    x, y = data.digits("train")
    model = nn.models.mlp([64, 32, 10], seed=1)
    where = {"resume": folder} if resume else {"checkpoint": folder}
    try:
        with hdcos.local(timeout_s=TIMEOUT_S) as cluster:
            print(json.dumps(cluster.pids), flush=True)
            trained = cluster.fit(
                model, x, y, epochs=25, batch_size=100, lr=0.5, seed=2, checkpoint_every=10, progress=False, **where
            )
            np.save(Path(folder) / "logits.npy", trained.predict(data.digits("test")[0]))
    except PeerLost as error:
        print(f"PeerLost: {error}", file=sys.stderr)
        sys.exit(LOST)


def start(folder: Path, resume: bool) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "benchmarks.faults", str(folder), "resume" if resume else "start"]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_lines(seed: int) -> Iterator[Line]:
    generator = random.Random(seed)
    hangs = unnamed = reused = unfinished = kills = resumable = 0
    slowest = 0.0
    with tempfile.TemporaryDirectory() as directory:
        whole, again = _finished(Path(directory) / "whole"), _finished(Path(directory) / "again")
        spread = float(np.sqrt(np.mean((again - whole) ** 2)))
        worst = 0.0
        for case in range(CASES):
            folder = Path(directory) / f"case{case}"
            victim, moment = generator.choice(VICTIMS), generator.uniform(0.0, 2.0)
            process = start(folder, resume=False)
            assert process.stdout is not None
            pids = {**json.loads(process.stdout.readline()), "client": process.pid}
            time.sleep(moment)
            with suppress(ProcessLookupError):  # the run may have just ended
                os.kill(pids[victim], signal.SIGKILL)
                kills += 1
            killed = time.perf_counter()
            try:
                _, said = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                hangs += 1
                process.kill()
                _, said = process.communicate()
            slowest = max(slowest, time.perf_counter() - killed)
            expected = {0, -signal.SIGKILL} if victim == "client" else {0, LOST}
            unnamed += process.returncode not in expected or "Traceback" in said
            common = set(Checkpoints.of(folder, 0).steps()) & set(Checkpoints.of(folder, 1).steps())
            if common:
                resumable += 1
                resumed = start(folder, resume=True)
                try:
                    resumed.communicate(timeout=PATIENCE_S)
                except subprocess.TimeoutExpired:
                    hangs += 1
                    resumed.kill()
                    resumed.communicate()
                unfinished += resumed.returncode != 0
                if resumed.returncode == 0:
                    logits = np.load(folder / "logits.npy")
                    worst = max(worst, float(np.sqrt(np.mean((logits - whole) ** 2))))
            reused += sum(len(Checkpoints.of(folder, rank).reused()) for rank in (0, 1))
    where = f"{CASES} runs with kill -9 of dealer, party or caller ({kills} hit a run under way)"
    yield exactly(
        f"{where}: hangs beyond {PATIENCE_S:g} s (slowest end {slowest:.1f} s, timeout {TIMEOUT_S:g} s)", hangs, 0
    )
    yield exactly(f"{where}: ends without the named error", unnamed, 0)
    yield at_least(f"{where}: runs with a checkpoint that both parties held", resumable, CASES // 2)
    yield exactly(f"{where}: of these, runs that could not be resumed and finished", unfinished, 0)
    yield exactly(f"{where}: executions of material reserved twice in a ledger", reused, 0)
    yield at_most(
        f"{where}: largest rms difference of a resumed run's logits to an unbroken run's, over that of two unbroken "
        f"runs ({spread:.1e})",
        worst / spread,
        3,
    )


def _finished(folder: Path) -> np.ndarray:
    """The logits of a run that nobody disturbs."""
    process = start(folder, resume=False)
    _, said = process.communicate(timeout=120)
    if process.returncode:
        raise RuntimeError(said)
    logits: np.ndarray = np.load(folder / "logits.npy")
    return logits


def jump_line(seed: int, steps: int = 10_000) -> Line:
    """Both parties' steps on shares beside the same steps in fixed point: no parameter may jump away in any of them."""
    worst = largest_jump(seed, steps)
    return at_most(
        f"{steps} steps of a small network, two layers of 4, batch 8: largest change of a parameter in one step on "
        f"shares that the same step in plaintext does not make",
        worst,
        1e-3,
    )


def largest_jump(seed: int, steps: int) -> float:
    model = nn.models.mlp([4, 4, 4, 1], seed=seed % 1000)
    training = training_plan(model)
    generator = np.random.default_rng(seed)
    names = [tensor.name for tensor in training.tensors]
    state = {t.name: t.words(model.state()[t.name]) for t in training.tensors}
    worst = 0.0

    def program(party, *shares):  # type: ignore[no-untyped-def]
        held = dict(zip(names, shares, strict=False))
        after = yield from sgd_step(party, training, held, shares[-2], shares[-1], rule)
        return tuple(after[name] for name in names)

    for number in range(steps):
        rule = Rule(0.2, number=number)
        x, y = encode(generator.normal(size=(8, 4)), INPUT_SCALE), encode(generator.integers(0, 2, (8, 1)) * 1.0, 32)
        pairs = [share_pair(state[t.name], t.scale, t.bits) for t in training.tensors]
        (zero, one), _ = simulate(program, *pairs, share_pair(x, INPUT_SCALE), share_pair(y, 32))
        held = {t.name: Share(state[t.name], t.scale, t.bits) for t in training.tensors}
        clear = run_plaintext(sgd_step, training, held, Share(x, INPUT_SCALE), Share(y, 32), rule)
        for tensor, a, b in zip(training.tensors, zero, one, strict=True):
            words = join(a.words, b.words)
            apart = np.abs(tensor.parameter(words) - tensor.parameter(clear[tensor.name].words)).max()
            worst = max(worst, float(apart))
            state[tensor.name] = words
    return worst


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2] == "resume")
