"""A session of two parties that can multiply what only one of them knows: extended transfers, and products from them.

*Extended transfers*: from 128 base transfers any number, at 4 bytes each (SoftSpokenOT, Roy, CRYPTO 2022, k = 4).
Computes  chooser's bits c_j -> rows t_j for the chooser and q_j = t_j + c_j delta for the other (sums are XOR), where
          delta, 128 bits, is the other's secret. Pads of correlated transfers are hashes of t_j and q_j, q_j + delta.
Online    one message: 32 bits per transfer from the chooser.
Security  delta is 32 numbers of 4 bits. For each the chooser has 16 seeds s_x and the other all but s_delta (see base).
          The chooser sends d = c + u with u the sum of all 16 streams; to the other u is uniform, because it lacks
          one stream. So c stays hidden. The chooser sees nothing at all here; of pads it lacks those at t_j + delta
          (or at t_j where c_j = 1), hashes of inputs that differ from what it knows by a secret of 128 bits.
          Transfers are numbered from 0 in each session and direction and no number is ever used twice.

v = sum of x s_x and w = sum of (delta + x) s_x = v + delta u; with d, q = w + delta d = v + delta c and t = v.

*Products*
Computes  lists of Products -> this party's shares of their results, modulo 2**bits each (Gilboa, CRYPTO 1999).
Online    two exchanges to set up; then per round of products one exchange per batch and one more. A product costs 4
          bytes per bit of the chooser's number, and per bit b one message of bits - b bits for each word of the vector.
Security  the setup is base transfers in both directions, each party chooser in one of the two extensions. For bit b of
          a number, with x the vector: the other holds pads p_0 = pad(q), p_1 = pad(q + delta), keeps -p_0 2**b and
          sends p_0 + x - p_1 modulo 2**(bits - b). The chooser knows the pad of its bit: p_0, and the message is hidden
          by p_1; or p_1, and it gets p_0 + x, hidden by p_0. It adds that times 2**b. To the other, the chooser's
          bits are hidden by the extension. Every share is masked by pads that the other share's owner does not have, so
          a share alone is uniform. Pads have a new key for each batch, so that p computations of AES find a
          delta with a chance of about p 2**21 / 2**128, however many batches there are.

number * x = sum over b of 2**b bit_b x, and the two shares of each term add up to 2**b bit_b x.

*Talking without a socket*: a generator yields what it sends in an exchange and is resumed with what the peer sent. Both
sides of an exchange send the same number of bytes, as on the parties' online link; the shorter is padded with zeros.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np

from hdcos.errors import FrameError
from hdcos.generators import drive
from hdcos.link import Link
from hdcos.offline.ot import base, reference
from hdcos.offline.ot.base import KEY_BYTES, LEAVES, POINT_BYTES, SEED_BYTES
from hdcos.offline.ot.product import ALIGNED, Batch, Product, batches, sent_bytes
from hdcos.ring import Array, backend, pack, packed_size, unpack

T = TypeVar("T")
Sent = tuple[Sequence[Any], int]
"""Buffers, and how many bytes the exchange has each way."""
Talk = Generator[Sent, Array, T]

BLOCKS = 32
"""Groups of four base transfers: 128 bits of delta in all."""
DELTA_BYTES = 16
_BASES = 8 * DELTA_BYTES
SETUP_BYTES = (POINT_BYTES + 2 * POINT_BYTES * _BASES, 2 * KEY_BYTES * _BASES)
"""Payload each way of the two exchanges that set a session up."""


@cache
def loops() -> Any:
    """The hot loops: compiled with AES instructions, else the reference; HDCOS_KERNELS may choose it."""
    if backend() == "reference":
        return reference
    import hdcos.ring._native as compiled

    return compiled.ot if compiled.ot.available() else reference


def pad(buffers: Sequence[Any], size: int) -> list[Any]:
    missing = size - sum(memoryview(buffer).nbytes for buffer in buffers)
    return [*buffers, bytes(missing)] if missing else list(buffers)


def talk_over(talk: Talk[T], link: Link, step: str) -> T:
    """Run one side over a link."""
    return drive(talk, lambda sent: link.exchange(pad(*sent), ((step, sent[1]),)))


class Chooser:
    """The side with the choice bits."""

    def __init__(self, seeds: Array) -> None:
        self._keys = loops().key_schedule(np.ascontiguousarray(seeds))
        self.used = 0

    def extend(self, bits: Array) -> tuple[Array, Array, int]:
        """Corrections to send, the rows t, and the number of the first transfer. `bits` are packed, 128 aligned."""
        counters, first = len(bits) * 8 // ALIGNED, self.used
        self.used += counters * ALIGNED
        u, v = loops().combine(self._keys, BLOCKS, first // ALIGNED, counters, True)
        u ^= bits
        return u.reshape(-1), loops().transpose(v), first


class Offerer:
    """The side with delta, whose messages are chosen from."""

    def __init__(self, delta: bytes, seeds: Array) -> None:
        """`seeds` (32, 16, 16): leaf x of tree i, of which leaf delta_i is unknown and never used."""
        self.delta = np.frombuffer(delta, np.uint8)
        nibbles = np.stack((self.delta & 15, self.delta >> 4), axis=1).reshape(BLOCKS)
        order = nibbles[:, None] ^ np.arange(LEAVES, dtype=np.uint8)
        turned = np.take_along_axis(seeds, order[:, :, None].astype(np.intp), axis=1)
        self._keys = loops().key_schedule(np.ascontiguousarray(turned))
        bits = np.unpackbits(self.delta, bitorder="little").reshape(BLOCKS, 4, 1)
        self._masks = np.uint8(0) - bits
        self.used = 0

    def extend(self, corrections: Array, transfers: int) -> tuple[Array, int]:
        """The rows q, and the number of the first transfer."""
        if corrections.size != transfers // ALIGNED * BLOCKS * ALIGNED // 8:
            raise FrameError(f"{corrections.size} bytes of corrections do not extend {transfers} transfers")
        counters, first = transfers // ALIGNED, self.used
        self.used += transfers
        _, w = loops().combine(self._keys, BLOCKS, first // ALIGNED, counters, False)
        d = corrections.reshape(BLOCKS, 1, -1)
        q = (w.reshape(BLOCKS, 4, -1) ^ (d & self._masks)).reshape(4 * BLOCKS, -1)
        return loops().transpose(q), first


class Session:
    """Two extensions, one in each direction."""

    def __init__(self, rank: int, name: bytes, chooser: Chooser, offerer: Offerer) -> None:
        self.rank, self._name, self._chooser, self._offerer = rank, name, chooser, offerer

    @property
    def used(self) -> tuple[int, int]:
        """Transfers used up so far in which party 0 chooses, and in which party 1 does."""
        mine, theirs = self._chooser.used, self._offerer.used
        return (mine, theirs) if self.rank == 0 else (theirs, mine)

    @classmethod
    def setup(cls, rank: int, name: bytes) -> Talk[Session]:
        """Base transfers in both directions at once. `name` is the same at both parties and never repeats."""
        directions = [hashlib.sha256(b"hdcos transfers, chooser %d" % c + name).digest() for c in (0, 1)]
        mine, theirs = directions[rank], directions[1 - rank]
        delta = os.urandom(DELTA_BYTES)
        leaves = [delta[i // 2] >> 4 * (i % 2) & 15 for i in range(BLOCKS)]
        # As the chooser of the extension a party sends base transfers, as the offerer it receives them.
        sender = base.BaseSender(mine, _BASES)
        receiver = base.BaseReceiver(theirs, [side for leaf in leaves for side in base.choose_sides(leaf)])
        answer = (yield [sender.message, receiver.message], SETUP_BYTES[0]).tobytes()
        pairs, keys = sender.keys(answer[POINT_BYTES:]), receiver.keys(answer[:POINT_BYTES])
        trees = [base.grow_tree(os.urandom(SEED_BYTES), mine, number) for number in range(BLOCKS)]
        sums = [pair for _, levels in trees for pair in levels]
        hidden = [
            base.xor(both) for pair, pads in zip(sums, pairs, strict=True) for both in zip(pair, pads, strict=True)
        ]
        answer = (yield [b"".join(hidden)], SETUP_BYTES[1]).tobytes()
        seeds = np.frombuffer(b"".join(leaf for made, _ in trees for leaf in made), np.uint8)
        known: list[bytes] = []
        for number, leaf in enumerate(leaves):
            opened = []
            for level, side in enumerate(base.choose_sides(leaf)):
                place = number * base.DEPTH + level
                at = (2 * place + side) * KEY_BYTES
                opened.append(base.xor((answer[at : at + KEY_BYTES], keys[place])))
            known += base.regrow_tree(leaf, opened, theirs, number)
        others = np.frombuffer(b"".join(known), np.uint8)
        shape = (BLOCKS, LEAVES, SEED_BYTES)
        return cls(rank, name, Chooser(seeds.reshape(shape)), Offerer(delta, others.reshape(shape)))

    def products(self, products: Sequence[Product]) -> Talk[list[Array]]:
        """This party's shares of the results, in order; of `sums` rows of `length` words each."""
        sums = [np.zeros((product.sums, product.length), np.uint64) for product in products]
        numbers = {id(product): index for index, product in enumerate(products)}
        plans = [batches(products, chooser) for chooser in (0, 1)]
        chosen, offered = plans[self.rank], plans[1 - self.rank]
        rows: Array | None = None
        held: Array | None = None
        first = offered_first = 0
        for step in range(max(map(len, plans)) + 1 if products else 0):
            buffers: list[Array] = []
            if 0 < step <= len(offered):
                assert held is not None
                buffers += self._messages(offered[step - 1], held, offered_first, sums, numbers)
            before, before_first = rows, first
            if step < len(chosen):
                corrections, rows, first = self._chooser.extend(_choices(chosen[step]))
                buffers.append(corrections)
            payload = yield buffers, max(sent_bytes(plans, rank, step) for rank in (0, 1))
            if len(payload) < sent_bytes(plans, 1 - self.rank, step):
                raise FrameError(
                    f"{len(payload)} bytes of transfers, {sent_bytes(plans, 1 - self.rank, step)} expected"
                )
            start = 0
            if 0 < step <= len(chosen):
                assert before is not None
                start = chosen[step - 1].message_bytes
                self._collect(chosen[step - 1], before, before_first, payload[:start], sums, numbers)
            if step < len(offered):
                size = offered[step].correction_bytes
                held, offered_first = self._offerer.extend(payload[start : start + size], offered[step].transfers)
        return sums

    def _messages(self, batch: Batch, q: Array, index: int, sums: list[Array], numbers: dict[int, int]) -> list[Array]:
        key, delta, parts, at = self._key(1 - self.rank, index), self._offerer.delta, [], 0
        for piece in batch.slices:
            product, count = piece.product, piece.count
            total = sums[numbers[id(product)]]
            for bit in range(product.levels):
                negative = product.signed and bit == product.width - 1
                words = loops().send(
                    q[at : at + count], delta, key, product.factor, product.signs, total, piece.first, product.fold,
                    index + at, bit, negative, product.coarse,
                )  # fmt: skip
                parts.append(pack(words, product.word_bits(bit)))
                at += count
        return parts

    def _collect(
        self, batch: Batch, t: Array, index: int, payload: Array, sums: list[Array], numbers: dict[int, int]
    ) -> None:
        key, at, start = self._key(self.rank, index), 0, 0
        for piece in batch.slices:
            product, count = piece.product, piece.count
            total = sums[numbers[id(product)]]
            choices = product.factor[piece.first : piece.first + count]
            for bit in range(product.levels):
                size = packed_size(count * product.length, product.word_bits(bit))
                words = unpack(payload[start : start + size], count * product.length, product.word_bits(bit))
                words = words.astype(np.uint64, copy=False).reshape(count, product.length)
                rows = t[at : at + count]
                place = (piece.first, product.fold, index + at, bit, product.coarse)
                loops().receive(rows, key, choices, words, total, *place)
                at, start = at + count, start + size

    def _key(self, chooser: int, index: int) -> Array:
        """The public key of a batch's pads, of which `index` is the first transfer."""
        digest = hashlib.sha256(b"hdcos pads %d %d" % (chooser, index) + self._name).digest()
        schedule: Array = loops().key_schedule(np.frombuffer(digest[:KEY_BYTES], np.uint8))[0]
        return schedule


def _choices(batch: Batch) -> Array:
    """The choice bits of a batch, packed: per product bit by bit, each for all its numbers."""
    bits = np.zeros(batch.transfers, np.uint8)
    at = 0
    for piece in batch.slices:
        numbers = piece.product.factor[piece.first : piece.first + piece.count]
        for bit in range(piece.product.levels):
            bits[at : at + piece.count] = (numbers >> np.uint64(bit)).astype(np.uint8) & np.uint8(1)
            at += piece.count
    return np.packbits(bits, bitorder="little")
