"""A session of two parties that can multiply what only one of them knows.

Computes  lists of Products -> this party's shares of their results, modulo 2**bits each (Gilboa, CRYPTO 1999).
Online    two exchanges to set up; then per round of products one exchange per batch and one more. A product costs 4
          bytes per bit of the chooser's number, and per bit b one message of bits - b bits for each word of the vector.
Security  the setup is base transfers in both directions, each party chooser in one of the two extensions. For bit b of
          a number, with x the vector: the other holds pads p_0 = pad(q), p_1 = pad(q + delta), keeps -p_0 2**b and
          sends p_0 + x - p_1 modulo 2**(bits - b). The chooser knows the pad of its bit: p_0, and the message is hidden
          by p_1; or p_1, and it gets p_0 + x, hidden by p_0. It adds that times 2**b. To the other, the chooser's
          bits are hidden by the extension. Every share is masked by pads that the other share's owner does not have, so
          a share alone is uniform. Pads are keyed anew for each batch, so that whoever computes p times AES to find
          a delta has a chance of about p 2**21 / 2**128, however many batches there are.

number * x = sum over b of 2**b bit_b x, and the two shares of each term add up to 2**b bit_b x.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np

from hdcos.errors import FrameError
from hdcos.offline.ot import tree
from hdcos.offline.ot.base import KEY_BYTES, POINT_BYTES, BaseReceiver, BaseSender
from hdcos.offline.ot.extension import BLOCKS, Chooser, Offerer
from hdcos.offline.ot.kernels import loops
from hdcos.offline.ot.product import Batch, Product, batches, sent_bytes
from hdcos.offline.ot.wire import Talk
from hdcos.ring import Array, pack, packed_size, unpack

DELTA_BYTES = 16
_BASES = 8 * DELTA_BYTES
SETUP_BYTES = (POINT_BYTES + 2 * POINT_BYTES * _BASES, 2 * KEY_BYTES * _BASES)
"""Payload each way of the two exchanges that set a session up."""


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
        sender = BaseSender(mine, _BASES)
        receiver = BaseReceiver(theirs, [side for leaf in leaves for side in tree.sides(leaf)])
        answer = (yield [sender.message, receiver.message], SETUP_BYTES[0]).tobytes()
        pairs, keys = sender.keys(answer[POINT_BYTES:]), receiver.keys(answer[:POINT_BYTES])
        trees = [tree.grow(os.urandom(tree.SEED_BYTES), mine, number) for number in range(BLOCKS)]
        sums = [pair for _, levels in trees for pair in levels]
        hidden = [
            tree.xor((s, k)) for pair, pad in zip(sums, pairs, strict=True) for s, k in zip(pair, pad, strict=True)
        ]
        answer = (yield [b"".join(hidden)], SETUP_BYTES[1]).tobytes()
        seeds = np.frombuffer(b"".join(leaf for made, _ in trees for leaf in made), np.uint8)
        known: list[bytes] = []
        for number, leaf in enumerate(leaves):
            opened = []
            for level, side in enumerate(tree.sides(leaf)):
                base = number * tree.DEPTH + level
                at = (2 * base + side) * KEY_BYTES
                opened.append(tree.xor((answer[at : at + KEY_BYTES], keys[base])))
            known += tree.regrow(leaf, opened, theirs, number)
        others = np.frombuffer(b"".join(known), np.uint8)
        shape = (BLOCKS, tree.LEAVES, tree.SEED_BYTES)
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
