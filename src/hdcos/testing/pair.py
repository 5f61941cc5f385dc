"""Both parties and the dealer in one thread, with no network: for tests and planning, never for secrets.

The simulation runs the protocols themselves, on real shares and dealt material, through the same packing as the
link. It can record every opened value, which no production process can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from hdcos.errors import HandshakeError
from hdcos.generators import lockstep
from hdcos.offline import Allocation, Dealer, MaterialPool, Plan
from hdcos.offline.material import Precompute
from hdcos.protocol.drive import cut, packed_parts
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Program, plan
from hdcos.protocol.rounds import Message, Reply, Rounds
from hdcos.ring import Array, modulo
from hdcos.sharing import Share, Stream, split

_numbers: Iterator[int] = count()


@dataclass(frozen=True, eq=False)
class Opened:
    """The sum of both parties' shares of one part of a round, modulo 2**bits."""

    values: Array
    bits: int


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
            total = modulo(part0.values + part1.values, part0.bits)
            sums.append(Opened(total, part0.bits))
        self.rounds.append(sums)
        self.sent_bytes.append(sum(part.packed_bytes for part in messages[0]))


def share_pair(words: Array, scale: int, bits: int = 64) -> tuple[Share, Share]:
    """Both shares of a secret, freshly split."""
    seed, rest = split(words)
    return Share(Stream(seed).words(tuple(words.shape)), scale, bits), Share(rest, scale, bits)


def deal(
    material: Plan,
    dealer: Dealer | None = None,
    name: str | None = None,
    finishes: Sequence[Mapping[int, Precompute]] = ({}, {}),
    executions: int = 1,
) -> tuple[Allocation, Allocation]:
    """Both parties' material for one piece of work, from a dealer in this process."""
    dealer = dealer or Dealer()
    name = name or f"simulation {next(_numbers)}"
    roots = [dealer.open(name, material, rank) for rank in (0, 1)]
    stocks = [MaterialPool(name, material, rank, roots[rank], finishes[rank]) for rank in (0, 1)]
    corrections = dealer.deal(name, 0, executions)
    stocks[0].fill(0, executions, None)
    stocks[1].fill(0, executions, corrections)
    return stocks[0].begin(executions), stocks[1].begin(executions)


def simulate(
    program: Program,
    *inputs: tuple[Share, Share],
    rations: tuple[Allocation, Allocation] | None = None,
    **parameters: Any,
) -> tuple[tuple[Any, Any], Transcript]:
    """Both parties' results of program(party, *inputs, **parameters), and what they sent each other."""
    shares = list(zip(*inputs, strict=True)) or [(), ()]
    if rations is None:
        planned = [plan(program, *shares[rank], rank=rank, **parameters) for rank in (0, 1)]
        rations = deal(planned[0].material, finishes=[each.precompute for each in planned])
    protocols = [program(Party(rank, rations[rank]), *shares[rank], **parameters) for rank in (0, 1)]
    results, transcript = drive_pair(protocols[0], protocols[1])
    for ration in rations:
        ration.finish()
    return results, transcript


def drive_pair(protocol0: Rounds[Any], protocol1: Rounds[Any]) -> tuple[tuple[Any, Any], Transcript]:
    """Run two parties' generators against each other in lockstep."""
    transcript = Transcript()

    def exchange(*messages: Message) -> list[Reply]:
        packed = [packed_parts(message) for message in messages]
        payloads = [np.concatenate(parts) for parts in packed]
        if payloads[0].size != payloads[1].size:
            raise HandshakeError(f"the parties sent {payloads[0].size} and {payloads[1].size} bytes in one round")
        transcript.record((messages[0], messages[1]))
        for payload in payloads:
            transcript.words.update(payload)
        return [cut((part.nbytes for part in packed[rank]), payloads[1 - rank]) for rank in (0, 1)]

    return lockstep((protocol0, protocol1), exchange), transcript
