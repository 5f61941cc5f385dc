"""A cluster on this machine: a dealer and two parties as three processes, and the caller's end of them.

The processes talk over loopback with mutual TLS and certificates made for this cluster alone. They end with the
`with` block, with an exception, with Ctrl-C, and with the calling process itself, even if it is killed.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hdcos.errors import HdcosError, InputError, PeerLost, RangeError
from hdcos.link import Emulation, Hello, Identity, Link, connect, handshake
from hdcos.link.message import request
from hdcos.protocol import catalogue
from hdcos.protocol.catalogue import Call
from hdcos.protocol.plan import blank_share, plan
from hdcos.ring import Array, decode, encode, table_hash
from hdcos.serve.cost import Cost, PhaseCost, StepCost, counts_from_json
from hdcos.serve.node import SOFTWARE
from hdcos.sharing import join, split

ROLES = ("dealer", "party0", "party1")
STOP_S = 5.0
GRACE_S = 2.0


@contextmanager
def local(
    dealer: bool = True,
    phase_bits: int = 16,
    rtt_ms: float = 0.0,
    mbps: float | None = None,
    timeout_s: float = 30.0,
) -> Iterator[Cluster]:
    """Three real processes on this machine for the length of a `with` block.

    `rtt_ms` and `mbps` emulate a slower network between them; `phase_bits` is the precision of cosines.
    """
    if not dealer:
        raise InputError("a cluster without a dealer is not available in this version: use dealer=True")
    emulation = Emulation(rtt_ms, mbps) if rtt_ms or mbps else None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hdcos-")))
        run = secrets.token_bytes(16)
        identities = {role: Identity.create(role) for role in (*ROLES, "client")}
        for role in ROLES:
            identities[role].save(folder / role)
        listeners = {role: stack.enter_context(socket.create_server(("127.0.0.1", 0))) for role in ROLES}
        addresses = {role: sock.getsockname()[:2] for role, sock in listeners.items()}
        processes = []
        for role in ROLES:
            config = {
                "role": role,
                "identity": str(folder / role),
                "certificates": {name: identity.certificate.pem for name, identity in identities.items()},
                "addresses": addresses,
                "listener_fd": listeners[role].fileno(),
                "run": run.hex(),
                "timeout_s": timeout_s,
                "emulation": {"rtt_ms": rtt_ms, "mbps": mbps} if emulation else None,
            }
            processes.append(stack.enter_context(_process(role, config, folder / f"{role}.log")))
        links = []
        for role in ("party0", "party1"):
            host, port = addresses[role]
            allowed = {identities[role].certificate: role}
            link = connect(identities["client"], allowed, host, port, timeout_s, link_timeout_s=timeout_s)
            stack.callback(link.close)
            handshake(link, Hello("client", SOFTWARE, table_hash(), run))
            links.append(link)
        cluster = Cluster(links, processes, phase_bits, timeout_s)
        yield cluster
        cluster.shutdown()


@dataclass(frozen=True)
class _Process:
    role: str
    popen: subprocess.Popen[bytes]
    log: Path


@contextmanager
def _process(role: str, config: Mapping[str, Any], log: Path) -> Iterator[_Process]:
    """A node process that does not outlive the block, nor the calling process."""
    with log.open("wb") as errors:
        popen = subprocess.Popen(
            [sys.executable, "-m", "hdcos.serve.node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[config["listener_fd"]],
            start_new_session=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
    assert popen.stdin is not None
    try:
        popen.stdin.write(json.dumps(config).encode() + b"\n")
        popen.stdin.flush()
        yield _Process(role, popen, log)
    finally:
        popen.stdin.close()
        try:
            popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()


class Cluster:
    """The caller's end: splits inputs, asks both parties, joins answers."""

    def __init__(self, links: Sequence[Link], processes: Sequence[_Process], phase_bits: int, timeout_s: float) -> None:
        self._links, self._processes = links, processes
        self._timeout_s = timeout_s
        self.phase_bits = phase_bits
        self.online_s = 0.0
        self._lock = Lock()
        self._callers = ThreadPoolExecutor(len(links), thread_name_prefix="caller")

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by role."""
        return {process.role: process.popen.pid for process in self._processes}

    def function(self, name: str, *shapes: tuple[int, ...], ahead: int = 0, **parameters: Any) -> PrivateFunction:
        """A function opened for inputs of these shapes; material can then be made before the inputs exist.

        `ahead` executions are kept in stock: the dealer makes more in the background as they are used.
        """
        if "phase_bits" in catalogue.find(name).parameters and "series" not in catalogue.find(name).parameters:
            parameters = {"phase_bits": self.phase_bits, **parameters}
        return PrivateFunction(self, Call.of(name, **parameters), shapes, ahead)

    def evaluate(self, name: str, *inputs: ArrayLike, **parameters: Any) -> Array:
        """A function of private inputs: shares go out, shares come back, only the caller sees the result."""
        arrays = [np.asarray(values) for values in inputs]
        with self.function(name, *(array.shape for array in arrays), **parameters) as function:
            words = function.encode(arrays)
            function.prepare(1)
            return function.run(words, 1)

    @property
    def cost(self) -> Cost:
        """What was spent since the start or the last reset."""
        (zero, _), (one, _) = self.ask({"operation": "cost"})
        sides = [counts_from_json({name: meta[name] for name in ("online", "offline")}) for meta in (zero, one)]
        steps = [counts_from_json(meta["steps"]) for meta in (zero, one)]
        online = PhaseCost.of([side["online"] for side in sides])
        return Cost(
            replace(online, seconds=self.online_s),
            PhaseCost.of([side["offline"] for side in sides], received=True),
            tuple(StepCost(name, PhaseCost.of([side[name] for side in steps])) for name in steps[0]),
        )

    def reset_cost(self) -> None:
        """Start counting anew."""
        self.online_s = 0.0
        self.ask({"operation": "reset"})

    def round_trip_s(self, rounds: int = 100) -> float:
        """The mean time of an empty exchange between the parties."""
        answers = self.ask({"operation": "ping", "rounds": rounds})
        return float(max(meta["seconds"] for meta, _ in answers))

    def ask(
        self, meta: Mapping[str, Any], arrays: Sequence[Mapping[str, Array]] = ({}, {})
    ) -> list[tuple[dict[str, Any], dict[str, Array]]]:
        """One request to both parties at once. If both fail, the error that explains more is raised."""
        with self._lock:  # replies are told apart by their order alone
            return self._ask_both(meta, arrays)

    def _ask_both(
        self, meta: Mapping[str, Any], arrays: Sequence[Mapping[str, Array]]
    ) -> list[tuple[dict[str, Any], dict[str, Array]]]:
        calls = [self._callers.submit(_ask, link, meta, part) for link, part in zip(self._links, arrays, strict=True)]
        done, _ = wait(calls, return_when=FIRST_EXCEPTION)
        if len(done) < len(calls):
            # One party failed. The other gives up by itself within its timeout, unless it is lost as well.
            done, hanging = wait(calls, self._timeout_s + GRACE_S)
            for call in hanging:
                self._links[calls.index(call)].cancel()
        first = [call for call in calls if call in done] + [call for call in calls if call not in done]
        failures = [error for call in first if (error := call.exception()) is not None]
        if failures:
            raise self._explained(min(failures, key=lambda error: isinstance(error, PeerLost)))
        return [call.result() for call in calls]

    def shutdown(self) -> None:
        """Ask both parties to end in good order."""
        self.ask({"operation": "shutdown"})

    def _explained(self, error: BaseException) -> BaseException:
        """A lost peer with the last line of the process that died, if one did."""
        for process in self._processes if isinstance(error, PeerLost) else ():
            if process.popen.poll() is not None:
                lines = process.log.read_text(errors="replace").strip().splitlines()
                last = lines[-1] if lines else f"exit status {process.popen.returncode}"
                return PeerLost(f"{error} {process.role} has ended: {last}")
        return error


def _ask(link: Link, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
    return request(link, meta, arrays)


class PrivateFunction:
    """A function opened on the cluster for given shapes. `with` closes it."""

    def __init__(self, cluster: Cluster, call: Call, shapes: tuple[tuple[int, ...], ...], ahead: int) -> None:
        self._cluster, self._call, self._shapes = cluster, call, shapes
        self._function = catalogue.find(call.function)
        self._scope = f"{call.function} {secrets.token_hex(16)}"
        self._next = 0
        self._lock = Lock()
        if any(len(shape) == 0 or shape[0] == 0 for shape in shapes):
            raise InputError(f"inputs need at least one row, got shapes {shapes}")
        scale = self._function.input_scale
        # Planned here as well: shapes that do not fit are refused before anything is sent.
        self.planned = plan(call.program, *(blank_share(shape, scale) for shape in shapes))
        cluster.ask(
            {
                "operation": "open",
                "scope": self._scope,
                "function": call.function,
                "parameters": dict(call.parameters),
                "shapes": shapes,
                "scales": [scale] * len(shapes),
                "ahead": ahead,
            }
        )

    def prepare(self, executions: int, wait: bool = True) -> None:
        """Have material for so many more executions made; without `wait`, in the background."""
        self._cluster.ask({"operation": "prepare", "scope": self._scope, "executions": executions, "wait": wait})

    @property
    def stock(self) -> list[tuple[int, int]]:
        """Executions used and available, for each party."""
        answers = self._cluster.ask({"operation": "stock", "scope": self._scope})
        return [(meta["used"], meta["available"]) for meta, _ in answers]

    def __call__(self, *inputs: ArrayLike) -> Array:
        """The function of private inputs; a batch of k times the opened rows takes k executions of material."""
        arrays = [np.asarray(values) for values in inputs]
        return self.run(self.encode(arrays), self._executions(arrays))

    def encode(self, arrays: Sequence[Array]) -> list[Array]:
        """Inputs as ring words, refused here if they do not fit."""
        function = self._function
        for array in arrays:
            if function.bounded and function.interval is not None and array.size:
                low, high = function.interval
                if array.min() < low or array.max() > high:
                    raise RangeError(
                        f"{function.name} is fitted on [{low:g}, {high:g}] and folds back outside, "
                        f"got values from {array.min():g} to {array.max():g}"
                    )
        words = [encode(array, function.input_scale) for array in arrays]
        if function.largest is not None:
            result = self.planned.result
            largest, limit = function.largest(*arrays, **self._call.parameters), 2.0 ** (result.bits - 1 - result.scale)
            if largest >= limit:
                raise RangeError(f"the result of {function.name} may reach {largest:.3g}, the ring holds {limit:.3g}")
        return words

    def run(self, words: Sequence[Array], executions: int) -> Array:
        """The function of encoded inputs."""
        with self._lock:
            return self._run(words, executions)

    def _run(self, words: Sequence[Array], executions: int) -> Array:
        halves: list[dict[str, Array]] = [{}, {}]
        for index, array in enumerate(words):
            seed, rest = split(array)
            halves[0][f"seed{index}"] = np.frombuffer(seed, np.uint8)
            halves[1][f"words{index}"] = rest
        meta = {"operation": "run", "scope": self._scope, "start": self._next, "executions": executions}
        try:
            (zero, half0), (one, half1) = self._cluster.ask(meta, halves)
        except HdcosError:
            # A run that failed may have burnt its executions at one party, at both, or at none.
            with suppress(PeerLost):
                self._next = max(used for used, _ in self.stock)
            raise
        self._next += executions
        # The online phase starts when both parties hold the input: the party that started last saw all of it.
        self._cluster.online_s += min(zero.pop("seconds"), one.pop("seconds"))
        if zero != one:
            raise HdcosError("the parties disagree about the form of the result")
        return decode(join(half0["words"], half1["words"], zero["bits"]), zero["scale"], zero["bits"])

    def _executions(self, arrays: Sequence[Array]) -> int:
        if len(arrays) != len(self._shapes):
            raise InputError(f"{self._call.function} takes {len(self._shapes)} inputs, got {len(arrays)}")
        counts: set[int] = set()
        for array, shape in zip(arrays, self._shapes, strict=True):
            if array.ndim != len(shape) or array.shape[1:] != shape[1:] or array.shape[0] % shape[0]:
                raise InputError(f"{self._call.function} is open for rows of shape {shape}, got {array.shape}")
            counts.add(array.shape[0] // shape[0])
        if self.planned.material.one_by_one and counts != {1}:
            raise InputError(f"{self._call.function} is open for exactly the shapes {self._shapes}")
        if len(counts) != 1:
            raise InputError(f"the inputs have different numbers of rows: {[array.shape for array in arrays]}")
        return counts.pop()

    def close(self) -> None:
        """Forget the function and what is left of its material."""
        self._cluster.ask({"operation": "close", "scope": self._scope})

    def __enter__(self) -> PrivateFunction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()
