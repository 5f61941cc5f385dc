"""`make peers`: hdcos, CrypTen and SPU in alternating turns on this machine.

Makes a virtual environment for each peer under build/peers, starts each system's processes once, has them do every
piece of work in turns, compares every result with plaintext, and writes benchmarks/results/peers.json and
docs/peers.svg. Starting processes, compiling programs and sharing weights happen once, before the first turn, and are
not part of any time.

`python -m benchmarks.peers [TURNS] [WORK ...]` does fewer turns, or only the named work and prints it; the committed
results are those of all.
"""

from __future__ import annotations

import json
import os
import platform
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.peers.report import draw, lines
from benchmarks.peers.work import SEED, SYSTEMS, WORK, Way, Work, job, model, plaintext, rows, steps_of, ways
from benchmarks.record import RESULTS, commit, machine

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
BUILD = ROOT / "build" / "peers"
TURNS = 3
TURN_S = 0.5
"""A turn repeats work that is quicker than this, and counts the median."""
SLOW_S = 15.0
"""Work that takes longer than this is done once, without warming up."""
ANSWER_S = 600.0
THREADS = max(1, (os.cpu_count() or 2) // 2)
"""For each process of a peer: two parties compute at a time. Those of hdcos have one thread each."""


# ---- environments


@dataclass(frozen=True)
class Peer:
    """A system to compare with, and what its environment holds. CrypTen's own list of requirements is out of date."""

    name: str
    pythons: tuple[str, ...]
    requirements: tuple[tuple[str, ...], ...]


CRYPTEN = Peer(
    "CrypTen",
    ("3.11", "3.12"),
    (
        ("numpy==1.26.4", "torch==2.13.0", "pyyaml==6.0.3", "omegaconf==2.3.0"),
        ("--no-deps", "crypten==0.4.1"),
    ),
)
SPU = Peer("SPU", ("3.11", "3.10"), (("spu==0.9.5",),))


def install(peer: Peer) -> Path:
    """The interpreter of the peer's environment, made if it is not there; ends with a clear message if it cannot be."""
    folder = BUILD / peer.name.lower()
    python, mark, wanted = folder / "bin" / "python", folder / "installed.json", json.dumps(peer.requirements)
    if mark.exists() and mark.read_text() == wanted:
        return python
    print(f"{peer.name}: making {folder.relative_to(ROOT)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    base = find_python(peer.pythons)
    if base is None:
        sys.exit(f"{peer.name} needs Python {' or '.join(peer.pythons)}: none is on the path. Nothing was measured.")
    subprocess.run([base, "-m", "venv", folder], check=True)
    for arguments in peer.requirements:
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(
                f"{peer.name} cannot be installed on this platform ({platform.system()} {platform.machine()}, "
                f"{base}): `pip install {' '.join(arguments)}` said\n{done.stderr.strip()}\nNothing was measured."
            )
    mark.write_text(wanted)
    return python


def find_python(versions: Sequence[str]) -> str | None:
    """An interpreter of one of these versions, the first that is there and starts."""
    for version in versions:
        for candidate in (sys.executable, shutil.which(f"python{version}")):
            asked = [candidate, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
            if candidate and subprocess.run(asked, capture_output=True, text=True).stdout.strip() == version:
                return candidate
    return None


# ---- processes


class Process:
    """A worker: one JSON line each way per job."""

    def __init__(self, name: str, popen: subprocess.Popen[str], log: Path) -> None:
        self.name, self._popen, self._log = name, popen, log

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._popen.stdin is not None
        print(json.dumps(message), file=self._popen.stdin, flush=True)

    def receive(self) -> dict[str, Any]:
        assert self._popen.stdout is not None
        there, _, _ = select.select([self._popen.stdout], [], [], ANSWER_S)
        line = self._popen.stdout.readline() if there else ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"no answer within {ANSWER_S:g} s, or ended"}
        if "error" in answer:
            last = "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
            sys.exit(f"{self.name}: {answer['error']}\n{last}")
        return answer


@contextmanager
def process(name: str, command: Sequence[str | Path], folder: Path, **environment: str) -> Iterator[Process]:
    """A worker that does not outlive the block."""
    log = folder / f"{name}.log"
    with log.open("wb") as errors:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
    assert popen.stdin is not None
    assert popen.stdout is not None
    try:
        yield Process(name, popen, log)
    finally:
        popen.stdin.close()
        try:
            popen.wait(10)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
        popen.stdout.close()


class System:
    """The processes of one system: parties, the first of which has the caller's part, and perhaps a dealer."""

    def __init__(self, parties: Sequence[Process], dealer: Process | None = None) -> None:
        self._parties, self._dealer = parties, dealer
        for each in (*parties, *([dealer] if dealer else [])):
            each.receive()  # it is ready

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the first party, with the larger traffic of the two and what the dealer sent."""
        before = self._dealt()
        for party in self._parties:
            party.send(message)
        answers = [party.receive() for party in self._parties]
        answer = answers[0]
        if "seconds" in answer and len(answers) > 1:
            answer["sent"] = max(each["sent"] for each in answers)
            answer["rounds"] = answers[1]["rounds"]
            answer["dealt"] = self._dealt() - before
        return answer

    def _dealt(self) -> int:
        if self._dealer is None:
            return 0
        self._dealer.send({})
        return int(self._dealer.receive()["sent_so_far"])


@contextmanager
def systems(folder: Path) -> Iterator[dict[str, System]]:
    """All systems, started."""
    crypten, spu = install(CRYPTEN), install(SPU)
    threads = {"OMP_NUM_THREADS": str(THREADS), "GLOO_SOCKET_IFNAME": "lo"}
    with ExitStack() as stack:
        start = stack.enter_context
        mine = start(process("hdcos", [sys.executable, "-m", "benchmarks.peers.hdcos_worker"], folder))
        meeting = {"WORLD_SIZE": "2", "RENDEZVOUS": f"file://{folder / 'meeting'}", "DISTRIBUTED_BACKEND": "gloo"}
        command = [crypten, HERE / "crypten_worker.py"]
        third, one, zero = (
            start(process(f"crypten{rank}", command, folder, RANK=str(rank), **meeting, **threads))
            for rank in (2, 1, 0)
        )
        addresses = free_addresses(2)
        pair = [
            start(process(f"spu{rank}", [spu, HERE / "spu_worker.py", str(rank), *addresses], folder, **threads))
            for rank in (0, 1)
        ]
        yield {"hdcos": System([mine]), "CrypTen": System([zero, one], third), "SPU": System(pair)}


def free_addresses(count: int) -> list[str]:
    """Addresses on loopback that nobody listens at just now."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in held]


# ---- measuring


@dataclass
class Case:
    """One way to do one piece of work: its files, what plaintext says, and what was measured so far."""

    work: Work
    way: Way
    key: str
    outputs: Path
    expected: dict[str, np.ndarray]
    runs: list[dict[str, Any]] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    slow: bool = False

    def check(self) -> float:
        """The largest difference to plaintext."""
        found = np.load(self.outputs)
        if set(found) != set(self.expected):
            sys.exit(f"{self.key}: results {sorted(found)} instead of {sorted(self.expected)}")
        errors = [np.abs(found[name].reshape(want.shape) - want).max() for name, want in self.expected.items()]
        self.outputs.unlink()
        return float(max(errors))


def prepare(work: Work, way: Way, system: System, folder: Path) -> tuple[Case, dict[str, Any]]:
    """Files, weights and programs of one case. Also which versions the worker has."""
    key = f"{work.key}-{way.system}-{way.activation}-{way.structure or 'plain'}"
    inputs, outputs, given = folder / f"{key}-in.npz", folder / f"{key}-out.npz", rows(work)
    told = job(work, way)
    state = model(work.network, way.activation, way.structure).state() if work.network else {}
    np.savez(inputs, **given, **state)
    versions = system.ask({"prepare": key, **told, "inputs": str(inputs), "outputs": str(outputs)})
    return Case(work, way, key, outputs, plaintext(work, way, given)), versions


def take_turn(case: Case, system: System, turn: int) -> None:
    """Do the work until a turn's time is used; turn 0 warms up."""
    seconds: list[float] = []
    while not case.slow and sum(seconds) < TURN_S:
        run = system.ask({"run": case.key})
        run["error"] = case.check()
        if turn == 0:
            print(f"{case.key}: {run['seconds']:.2f} s, {run['error']:.1e} from plaintext", flush=True)
            case.slow = run["seconds"] > SLOW_S
            if not case.slow:
                return
        seconds.append(run["seconds"])
        case.runs.append(run)
    if seconds:
        case.turns.append(median(seconds) / steps_of(case.work, case.way))


def record(case: Case) -> dict[str, Any]:
    """What is kept of a case: medians, per step of a training run, and the largest error of any run."""

    def middle(name: str) -> float | None:
        values = [run[name] for run in case.runs if run.get(name) is not None]
        return median(values) / steps_of(case.work, case.way) if values else None

    return {
        "work": case.work.title,
        "system": case.way.system,
        "way": case.way.title,
        "steps": steps_of(case.work, case.way),
        "wall_s": median(case.turns),
        "turns_s": case.turns,
        "online_s": middle("online_s"),
        "party_bytes": middle("sent"),
        "dealer_bytes": middle("dealt") or 0,
        "caller_bytes": middle("caller_sent") or 0,
        "rounds": middle("rounds"),
        "error": max(run["error"] for run in case.runs),
    }


def measure(turns: int, chosen: Sequence[Work]) -> dict[str, Any]:
    """All work in turns. The order of the systems is another in every turn."""
    versions: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="hdcos-peers-") as name, systems(Path(name)) as running:
        cases = []
        for work in chosen:
            for way in ways(work):
                case, versions[way.system] = prepare(work, way, running[way.system], Path(name))
                cases.append(case)
        for turn in range(turns + 1):
            started = time.perf_counter()
            for work in chosen:
                mine = [case for case in cases if case.work is work]
                for case in mine[turn % len(mine) :] + mine[: turn % len(mine)]:
                    take_turn(case, running[case.way.system], turn)
            label = f"turn {turn} of {turns}" if turn else "warm-up"
            print(f"{label}: {time.perf_counter() - started:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    return {
        "command": "make peers",
        "commit": commit(),
        "machine": machine(),
        "load": os.getloadavg()[1],
        "seed": SEED,
        "turns": turns,
        "slow_s": SLOW_S,
        "threads": THREADS,
        "versions": {system: versions[system] for system in SYSTEMS if system in versions},
        "records": [record(case) for case in cases],
    }


def main() -> None:
    turns = next((int(text) for text in sys.argv[1:] if text.isdecimal()), TURNS)
    keys = [text for text in sys.argv[1:] if not text.isdecimal()]
    unknown = set(keys) - {work.key for work in WORK}
    if unknown or turns < 1:
        sys.exit(f"usage: python -m benchmarks.peers [TURNS] [{'|'.join(work.key for work in WORK)} ...]")
    chosen = [work for work in WORK if not keys or work.key in keys]
    started = time.perf_counter()
    results = measure(turns, chosen)
    print("\n".join(lines(results)))
    print(f"{time.perf_counter() - started:.0f} s in all")
    if not keys:
        path = RESULTS / "peers.json"
        path.write_text(json.dumps(results, indent=1) + "\n")
        draw(results, ROOT / "docs" / "peers.svg")
        print(f"wrote {path.relative_to(ROOT)} and docs/peers.svg; `python -m benchmarks.tables` writes the documents")


if __name__ == "__main__":
    main()
