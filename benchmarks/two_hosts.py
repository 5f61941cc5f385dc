"""Two hosts on one machine: network namespaces joined by a slow link.

Where the kernel has netem, a veth pair with `tc`; elsewhere two TUN devices with a process between them that holds
every packet back: a fixed one-way delay, and a rate per direction. Needs root and iproute2. Names are given to the
hosts in /etc/netns/NAME/hosts, which `ip netns exec` puts in the place of /etc/hosts.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "hdcos"
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
CHECKSUMS, LARGE_SENDS = 0x01, 0x02
MOST_BYTES, MOST_WAITING = 70_000, 4096


@dataclass(frozen=True)
class Host:
    """A network namespace."""

    space: str
    address: str

    def command(self, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.space, *arguments]


@contextmanager
def two_hosts(rtt_ms: float, mbps: float, names: Mapping[str, int]) -> Iterator[tuple[list[Host], str]]:
    """Two hosts, and how the link between them is emulated. `names` says which host a name belongs to."""
    hosts = [Host(f"{PREFIX}{number}", f"10.77.0.{number + 1}") for number in (0, 1)]
    with ExitStack() as stack:
        for host in hosts:
            _ip("netns", "add", host.space)
            stack.callback(_ip, "netns", "delete", host.space)
            stack.enter_context(_names(host, hosts, names))
        kind = "tc netem" if _netem(hosts, rtt_ms, mbps) else "packets held back in user space"
        if kind != "tc netem":
            stack.enter_context(_held_back(hosts, rtt_ms, mbps))
        yield hosts, kind


@contextmanager
def _names(host: Host, hosts: list[Host], names: Mapping[str, int]) -> Iterator[None]:
    folder = Path("/etc/netns") / host.space
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["127.0.0.1 localhost", *(f"{hosts[number].address} {name}" for name, number in names.items())]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    try:
        yield
    finally:
        (folder / "hosts").unlink()
        folder.rmdir()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _netem(hosts: list[Host], rtt_ms: float, mbps: float) -> bool:
    """A veth pair slowed down by the kernel. False, and nothing left behind, if it cannot."""
    _ip(
        "link",
        "add",
        f"{PREFIX}v0",
        "netns",
        hosts[0].space,
        "type",
        "veth",
        "peer",
        f"{PREFIX}v1",
        "netns",
        hosts[1].space,
    )
    for number, host in enumerate(hosts):
        device = f"{PREFIX}v{number}"
        slow = ["tc", "qdisc", "add", "dev", device, "root", "netem", "delay", f"{rtt_ms / 2}ms", "rate", f"{mbps}mbit"]
        if subprocess.run(host.command(*slow), capture_output=True).returncode:
            subprocess.run(hosts[0].command("ip", "link", "delete", f"{PREFIX}v0"), check=True)
            return False
        for arguments in (["addr", "add", f"{host.address}/24", "dev", device], ["link", "set", device, "up"]):
            subprocess.run(host.command("ip", *arguments), check=True)
        subprocess.run(host.command("ip", "link", "set", "lo", "up"), check=True)
    return True


@contextmanager
def _held_back(hosts: list[Host], rtt_ms: float, mbps: float) -> Iterator[None]:
    arguments = [f"{host.space}={host.address}" for host in hosts]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.two_hosts", *arguments, str(rtt_ms), str(mbps)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the link between the hosts could not be made")
        yield
    finally:
        process.terminate()
        process.wait()


# ---- the process between the hosts


def _tun(space: str, address: str) -> int:
    """A TUN device in a namespace. It takes large sends, so that few packets cross this process."""
    with open(f"/var/run/netns/{space}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"cannot enter {space}")
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", b"tun0", flags))
    fcntl.ioctl(handle, TUNSETOFFLOAD, CHECKSUMS | LARGE_SENDS)
    _ip("addr", "add", f"{address}/24", "dev", "tun0")
    _ip("link", "set", "tun0", "mtu", "1500", "txqueuelen", "1000", "up")
    _ip("link", "set", "lo", "up")
    return handle


def hold_back(first: str, second: str, rtt_ms: str, mbps: str) -> None:
    """Carry packets between two namespaces, each after its delay and at the rate of the link."""
    tuns = [_tun(*side.split("=")) for side in (first, second)]
    delay_s, byte_s = float(rtt_ms) / 2e3, 8e-6 / float(mbps)
    waiting: list[deque[tuple[float, bytes]]] = [deque(), deque()]
    free = [0.0, 0.0]
    print("ready", flush=True)
    poll = select.poll()
    for handle in tuns:
        poll.register(handle, select.POLLIN)
    while True:
        due = min((queue[0][0] for queue in waiting if queue), default=None)
        poll.poll(None if due is None else max(0.0, due - time.monotonic()) * 1e3)
        for side, handle in enumerate(tuns):
            while len(waiting[side]) < MOST_WAITING:
                try:
                    packet = os.read(handle, MOST_BYTES)
                except BlockingIOError:
                    break
                free[side] = max(free[side], time.monotonic()) + len(packet) * byte_s
                waiting[side].append((free[side] + delay_s, packet))
        now = time.monotonic()
        for side, queue in enumerate(waiting):
            while queue and queue[0][0] <= now:
                os.write(tuns[1 - side], queue.popleft()[1])


if __name__ == "__main__":
    hold_back(*sys.argv[1:])
