"""A cluster on this machine: a dealer and two parties as three processes, or as several times three, and the caller's
end of them.

The processes talk over loopback with mutual TLS and certificates made for this cluster alone. They end with the
`with` block, with an exception, with Ctrl-C, and with the calling process itself, even if it is killed.
"""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from hdcos.api.process import end_process, start_process
from hdcos.checks import check_whole
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.link_transport import LinkTransport
from hdcos.cluster.pair import Pair
from hdcos.errors import PeerLost
from hdcos.link import Emulation, Hello, Identity, connect, handshake
from hdcos.link.handshake import SOFTWARE
from hdcos.ring import table_hash
from hdcos.ring.backend import implementation
from hdcos.ring.device import Place
from hdcos.secure.compile import choose_bits

ROLES = ("dealer", "party0", "party1")
START_S = 30.0


@contextmanager
def local(
    dealer: bool = True,
    phase_bits: int | None = None,
    rtt_ms: float = 0.0,
    mbps: float | None = None,
    timeout_s: float = 30.0,
    *,
    exact: bool = False,
    workers: int = 1,
    device: str = "cpu",
    device_memory: int | None = None,
) -> Iterator[Cluster]:
    """Three real processes on this machine for the length of a `with` block; two without a dealer.

    With more `workers` there are as many such threes: a party uses as many cores as it has workers. The rows of every
    batch are spread over them, in predictions and in training, for no more rounds and no more bytes a row.

    Without a dealer the two parties make their material between them, with oblivious transfer: nobody else is trusted,
    and it takes far more time and traffic (`hdcos cost` says how much).
    `rtt_ms` and `mbps` emulate a slower network between them; `phase_bits` is the precision of cosines, by default 26
    in networks and 16 in single functions. With `exact` the cosines of networks open their phases unrounded, for two
    to three times the bytes: docs/security.md says why.

    With `device="cuda:0"` parties and dealer compute on that GPU, which they share; `device_memory` is the most bytes
    of its memory that each process may take (docs/gpu.md).
    """
    computing = Place(device, device_memory)
    computing.check()
    phase_bits = choose_bits(phase_bits, exact)
    implementation()  # warns here, where somebody sees it, if the kernels were not compiled
    emulation = Emulation(rtt_ms, mbps) if rtt_ms or mbps else None
    check_whole(workers, "workers")
    roles = ROLES if dealer else ROLES[1:]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hdcos-")))
        run = secrets.token_bytes(16)
        client = Identity.create("client")
        places = [_Place.make(roles, stack) for _ in range(workers)]
        processes: list[_Process] = []
        for index, place in enumerate(places):
            for role in roles:
                others = {
                    str(number): [each.identities[role].certificate.pem, each.addresses[role]]
                    for number, each in enumerate(places)
                    if number != index and role != "dealer"
                }
                config = {
                    "role": role,
                    "name": role,
                    "certificate": place.identities[role].certificate.pem,
                    "key": place.identities[role].key_pem.decode(),
                    "certificates": {
                        name: identity.certificate.pem
                        for name, identity in {**place.identities, "client": client}.items()
                    },
                    "addresses": place.addresses,
                    "run": run.hex(),
                    "timeout_s": timeout_s,
                    "emulation": {"rtt_ms": rtt_ms, "mbps": mbps} if emulation else None,
                    "worker": index,
                    "pair": "",
                    "dealer": 0,
                    "others": others,
                    "place": asdict(computing.of_worker(index)),
                }
                name = f"{role}.{index}" if index else role
                processes.append(
                    stack.enter_context(_start_process(name, config, place.listeners[role], folder / f"{name}.log"))
                )
        pairs = []
        for place in places:
            links = []
            for role in ("party0", "party1"):
                host, port = place.addresses[role]
                allowed = {place.identities[role].certificate: role}
                within_s = max(timeout_s, START_S)  # a process takes its time to start, however short silences may be
                link = connect(client, allowed, host, port, within_s, link_timeout_s=timeout_s)
                stack.callback(link.close)
                handshake(link, Hello("client", SOFTWARE, table_hash(), run))
                links.append(link)
            pairs.append(Pair(links, timeout_s, lambda error: _explain(error, processes)))
        pids = {process.role: process.popen.pid for process in processes}
        transport = LinkTransport(pairs, dealer, timeout_s)
        stack.callback(transport.close)
        yield Cluster(transport, phase_bits, pids)
        transport.shutdown()


@dataclass(frozen=True)
class _Place:
    """Where the processes of one pair, and its dealer, are reached, and who they are."""

    identities: dict[str, Identity]
    listeners: dict[str, socket.socket]

    @classmethod
    def make(cls, roles: Sequence[str], stack: ExitStack) -> Self:
        listeners = {role: stack.enter_context(socket.create_server(("127.0.0.1", 0))) for role in roles}
        return cls({role: Identity.create(role) for role in roles}, listeners)

    @property
    def addresses(self) -> dict[str, Any]:
        return {role: sock.getsockname()[:2] for role, sock in self.listeners.items()}


@dataclass(frozen=True)
class _Process:
    role: str
    popen: subprocess.Popen[bytes]
    log: Path


@contextmanager
def _start_process(role: str, settings: Mapping[str, Any], listener: socket.socket, log: Path) -> Iterator[_Process]:
    """A node process that does not outlive the block, nor the calling process."""
    with log.open("wb") as errors:
        popen = start_process(settings, listener, errors)
    try:
        yield _Process(role, popen, log)
    finally:
        end_process(popen)


def _explain(error: PeerLost, processes: Sequence[_Process]) -> PeerLost:
    """A lost peer with the last words of the process that died, if one did."""
    for process in processes:
        status = process.popen.poll()
        if status is not None:
            # Only what the node wrote for people: the last line of a trace might quote anything.
            lines = process.log.read_text(errors="replace").splitlines() if process.log.exists() else []
            said = [line for line in lines if line.startswith(process.role)]
            if said:
                last = said[-1]
            elif status == -signal.SIGKILL:
                last = "killed, perhaps because memory ran out"
            else:
                last = f"exit status {status}"
            return PeerLost(f"{error} {process.role} has ended: {last}")
    return error
