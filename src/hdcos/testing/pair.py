"""Both parties in one process, with no network: for tests, measurements and planning, never for secrets.

A simulation in one thread runs the protocols themselves, on real shares and dealt material, through the same packing as
the link, so every rounding is the real one. It can record every opened value, which no production process can.

Links joined in memory are plaintext, without certificates. Never production links: with a dealer, a listener who knows
the masks and sees the openings knows everything, so what the parties say to each other must be encrypted. Here both
ends live in one process and there is nobody to hide from.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from hdcos.errors import HandshakeError
from hdcos.generators import lockstep
from hdcos.link.base import Link, LostError, SilentError
from hdcos.link.frame import pieces
from hdcos.nn.network import Network
from hdcos.offline import Allocation, Dealer, MaterialPool, Plan
from hdcos.offline.material import Precompute
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Program, blank_share, plan
from hdcos.protocol.rounds import Message, Reply, Rounds, cut_reply, pack_parts
from hdcos.ring import Array, Blank, decode, encode, modulo
from hdcos.ring.device import Device, to_host
from hdcos.secure.answers import answer
from hdcos.secure.compile import PHASE_BITS, CompiledNetwork, compile_network
from hdcos.secure.labels import LABEL, LOGITS, infer_label
from hdcos.secure.program import infer, open_weights
from hdcos.secure.stages import Parameters
from hdcos.sharing import Share, Stream, join, split

_devices: ContextVar[tuple[Device | None, ...]] = ContextVar("devices", default=(None, None, None))
"""Where party 0, party 1 and the dealer compute."""
_numbers: Iterator[int] = count()


@dataclass(frozen=True, eq=False)
class Opened:
    """The sum of both parties' shares of one part of a round, modulo 2**bits, or their XOR."""

    values: Array
    bits: int
    by_xor: bool = False


@dataclass
class Transcript:
    """What crossed between the parties: what each part of each round opened, and the bytes of each round."""

    rounds: list[list[Opened]] = field(default_factory=list)
    sent_bytes: list[int] = field(default_factory=list)
    words: Any = field(default_factory=hashlib.sha256, repr=False)
    """A hash of all payloads, party 0's of a round before party 1's."""

    def record(self, messages: tuple[Message, Message]) -> None:
        sums = []
        for part0, part1 in zip(*messages, strict=True):
            mine, theirs = to_host(part0.values), to_host(part1.values)
            total = mine ^ theirs if part0.by_xor else mine + theirs
            sums.append(Opened(modulo(total, part0.bits), part0.bits, part0.by_xor))
        self.rounds.append(sums)
        self.sent_bytes.append(sum(part.packed_bytes for part in messages[0]))


@contextmanager
def computing_on(party0: Device | None, party1: Device | None, dealer: Device | None = None) -> Iterator[None]:
    """Have simulations compute on devices; the messages are the same."""
    before = _devices.set((party0, party1, dealer))
    try:
        yield
    finally:
        _devices.reset(before)


def _place(value: Any, rank: int) -> Any:
    """A share, or rows, where a party computes."""
    device = _devices.get()[rank]
    if device is None:
        return value
    return replace(value, words=device.put(value.words)) if isinstance(value, Share) else device.put(value)


def share_pair(words: Array, scale: int, bits: int = 64) -> tuple[Share, Share]:
    """Both shares of a secret, freshly split."""
    seed, rest = split(words)
    return Share(Stream(seed).words(tuple(words.shape)), scale, bits), Share(rest, scale, bits)


def deal(
    material: Plan,
    dealer: Dealer | None = None,
    name: str | None = None,
    precomputes: Sequence[Mapping[int, Precompute]] = ({}, {}),
    executions: int = 1,
) -> tuple[Allocation, Allocation]:
    """Both parties' material for one piece of work, from a dealer in this process."""
    devices = _devices.get()
    dealer = dealer or Dealer(devices[2])
    name = name or f"simulation {next(_numbers)}"
    roots = [dealer.open(name, material, rank) for rank in (0, 1)]
    pools = [
        MaterialPool(name, material, rank, roots[rank], precomputes[rank], device=devices[rank]) for rank in (0, 1)
    ]
    for rank, pool in enumerate(pools):
        pool.fill(0, executions, dealer.deal(name, 0, executions, rank))
    return pools[0].begin(executions), pools[1].begin(executions)


def simulate(
    program: Program,
    *inputs: tuple[Share, Share],
    allocations: tuple[Allocation, Allocation] | None = None,
    **parameters: Any,
) -> tuple[tuple[Any, Any], Transcript]:
    """Both parties' results of program(party, *inputs, **parameters), and what they sent each other."""
    shares = list(zip(*inputs, strict=True)) or [(), ()]
    if allocations is None:
        planned = [plan(program, *shares[rank], rank=rank, **parameters) for rank in (0, 1)]
        allocations = deal(planned[0].material, precomputes=[each.precompute for each in planned])
    protocols = []
    for rank, allocation in enumerate(allocations):
        placed = (_place(share, rank) for share in shares[rank])
        protocols.append(program(Party(rank, allocation), *placed, **parameters))
    results, transcript = drive_pair(protocols[0], protocols[1])
    for allocation in allocations:
        allocation.finish()
    return results, transcript


def drive_pair(protocol0: Rounds[Any], protocol1: Rounds[Any]) -> tuple[tuple[Any, Any], Transcript]:
    """Run two parties' generators against each other in lockstep."""
    transcript = Transcript()

    def exchange(*messages: Message) -> list[Reply]:
        packed = [pack_parts(message) for message in messages]
        payloads = [np.concatenate(parts) for parts in packed]
        if payloads[0].size != payloads[1].size:
            raise HandshakeError(f"the parties sent {payloads[0].size} and {payloads[1].size} bytes in one round")
        transcript.record((messages[0], messages[1]))
        for payload in payloads:
            transcript.words.update(payload)
        return [cut_reply((part.nbytes for part in packed[rank]), payloads[1 - rank]) for rank in (0, 1)]

    return lockstep((protocol0, protocol1), exchange), transcript


# ---- a whole network on shares


def simulate_private(model: Network, x: Array, phase_bits: int = PHASE_BITS, *, masked: bool = True) -> Array:
    """The outputs that two parties would give for rows x."""
    outputs, _ = simulate_transcript(model, x, phase_bits, masked=masked)
    return outputs


def simulate_transcript(
    model: Network, x: Array, phase_bits: int = PHASE_BITS, *, masked: bool = True, output: str = LOGITS
) -> tuple[Array, Transcript]:
    """The logits, or the labels, and everything the parties said to each other for these rows."""
    chosen = compile_network(model, phase_bits)
    dealer, scope = Dealer(_devices.get()[2]), f"model {secrets.token_hex(8)}"
    parameters = _load(model, chosen, dealer, scope)
    rows = chosen.apply_front(np.asarray(x, np.float64))
    words = encode(rows, chosen.input_scale)
    pair = share_pair(words, chosen.input_scale)

    def program(party: Party, rank: int, value: Share | Array):  # type: ignore[no-untyped-def]
        if output == LABEL:
            return (yield from infer_label(party, party, chosen, parameters[rank], value))
        return (yield from infer(party, chosen, parameters[rank], value))

    blank: Any = Blank(words.shape) if masked else blank_share(words.shape, chosen.input_scale)
    planned = [plan(program, rank, blank, rank=rank) for rank in (0, 1)]
    allocations = deal(planned[0].material, dealer, f"{scope} rows", [each.precompute for each in planned])
    values: list[Share | Array] = list(pair)
    if masked:
        # The owner of the rows was given both shares of the input's mask, the first material of the plan.
        mask = sum(to_host(allocation.peek(0)[0]).astype(np.uint64) for allocation in allocations)
        opened = modulo(words + mask, chosen.input_bits)
        values = [opened, opened]
    protocols = [program(Party(rank, allocations[rank]), rank, _place(values[rank], rank)) for rank in (0, 1)]
    results, transcript = drive_pair(protocols[0], protocols[1])
    share0, share1 = (replace(share, words=to_host(share.words)) for share in results)
    for allocation in allocations:
        allocation.finish()
    if output == LABEL:
        labels: Array = join(share0.words, share1.words, share0.bits).astype(np.int64)
        return labels, transcript
    (scale, bits, words0), (_, _, words1) = (answer(share, rank) for rank, share in enumerate((share0, share1)))
    result = decode(join(words0, words1, bits), scale, bits) * chosen.output_gain
    return result.reshape(len(rows), *chosen.output_shape), transcript


def _load(model: Network, chosen: CompiledNetwork, dealer: Dealer, scope: str) -> list[Parameters]:
    """Share a model's parameters and open its weights."""
    state = model.state()
    pairs = {tensor.name: share_pair(tensor.words(state[tensor.name]), tensor.scale) for tensor in chosen.tensors}
    shares = [{name: _place(pair[rank], rank) for name, pair in pairs.items()} for rank in (0, 1)]
    material = plan(open_weights, chosen, shares[0], scope).material
    allocations = deal(material, dealer, scope)
    protocols = [open_weights(Party(rank, allocations[rank]), chosen, shares[rank], scope) for rank in (0, 1)]
    loaded, _ = drive_pair(protocols[0], protocols[1])
    return list(loaded)


# ---- two links joined in memory


class _Pipe:
    """One direction: bytes that were written and not yet read."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.closed = False
        self.ready = threading.Condition()


class MemoryTransport:
    """One end of two pipes. Usable from two threads, one per end."""

    def __init__(self, inward: _Pipe, outward: _Pipe) -> None:
        self._in, self._out = inward, outward
        self.sent = 0
        self.received = 0
        self.unread = 0
        self._broken = False

    def queue(self, buffers: Sequence[Any]) -> None:
        out = self._out
        with out.ready:
            for piece in pieces(buffers):
                if out.closed:
                    self._broken = True
                    return
                out.data += piece
                self.sent += len(piece)
            out.ready.notify()

    def read(self, view: memoryview, timeout_s: float | None, announced: bool = False) -> int:
        pipe = self._in
        with pipe.ready:
            if not pipe.ready.wait_for(lambda: pipe.data or pipe.closed, timeout_s):
                raise SilentError
            if not pipe.data:
                raise LostError("closed the connection")
            size = min(len(view), len(pipe.data))
            view[:size] = pipe.data[:size]
            del pipe.data[:size]
        self.received += size
        return size

    def flush(self, timeout_s: float | None) -> None:
        if self._broken:
            raise LostError("closed the connection")

    def close(self, linger_s: float = 0.0) -> None:
        for pipe in (self._in, self._out):
            with pipe.ready:
                pipe.closed = True
                pipe.ready.notify()

    def interrupt(self) -> None:
        self.close()

    def os_counters(self) -> tuple[int, int] | None:
        return None


def memory_transports() -> tuple[MemoryTransport, MemoryTransport]:
    """Two joined transports."""
    there, back = _Pipe(), _Pipe()
    return MemoryTransport(back, there), MemoryTransport(there, back)


def memory_pair(names: tuple[str, str] = ("party 0", "party 1"), timeout_s: float | None = 30.0) -> tuple[Link, Link]:
    """The link of party 0 and the link of party 1, each talking to the other."""
    first, second = memory_transports()
    return Link(first, names[1], timeout_s=timeout_s), Link(second, names[0], timeout_s=timeout_s)
