"""One party's share of a secret tensor, numbers both parties know, and splitting, joining and refreshing.

Computes  linear maps of shares with public integers: +, -, * public, sums, reshapes. All are local and exact.
          Splitting: words -> (seed, words - expand(seed)); the sum of both shares gives the words back.
Security  a share alone is uniform whatever the secret is: the first is a PRG output, which travels as its 32-byte seed,
          the second is masked by it. Nothing here sends anything; the product of two shares is not a local operation,
          so `share * share` is a TypeError, not a silent leak. Refreshing adds a sharing of zero that the receiver
          cannot predict, so that a share that leaves the pair says nothing about how it was computed.

A real v at scale s is the ring word round(v * 2**s). `bits` says modulo which power of two the words mean
something: two shares whose bits is 46 add up to the secret modulo 2**46 only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array, Opening, encode, modulo, round_open
from hdcos.ring.device import beside, constant_beside
from hdcos.sharing.prg import Stream, derive, fresh_seed

RING_BITS = 64
Index = int | slice | EllipsisType | None | tuple[int | slice | EllipsisType | None, ...]


def ring_word(value: int) -> np.uint64:
    """A Python integer of any sign as a ring word."""
    return np.uint64(value % (1 << RING_BITS))


@dataclass(frozen=True, eq=False)
class Public:
    """Numbers both parties know: ring words at a scale."""

    words: Array = field(repr=False)
    scale: int = 0

    @classmethod
    def of(cls, values: Any, scale: int) -> Public:
        return cls(encode(values, scale), scale)


@dataclass(frozen=True, eq=False)
class Share:
    """This party's share: the secret is the sum of both shares' words, modulo 2**bits, over 2**scale."""

    words: Array = field(repr=False)
    scale: int
    bits: int = RING_BITS

    @property
    def shape(self) -> tuple[int, ...]:
        return self.words.shape

    @property
    def size(self) -> int:
        return int(self.words.size)

    def __len__(self) -> int:
        return int(self.words.shape[0])

    def __add__(self, other: Share) -> Share:
        return Share(self.words + self._align(other), self.scale, min(self.bits, other.bits))

    def __sub__(self, other: Share) -> Share:
        return Share(self.words - self._align(other), self.scale, min(self.bits, other.bits))

    def __neg__(self) -> Share:
        return Share(np.uint64(0) - self.words, self.scale, self.bits)

    def __mul__(self, public: Public | int) -> Share:
        if isinstance(public, Public):
            return Share(self.words * constant_beside(public.words, self.words), self.scale + public.scale, self.bits)
        if isinstance(public, int | np.integer):
            return Share(self.words * ring_word(int(public)), self.scale, self.bits)
        if isinstance(public, Share):
            raise TypeError("share * share is not local: use hdcos.protocol.masked.multiply, which costs one round")
        raise TypeError(f"share * {type(public).__name__}: give a public real a scale with Public.of(values, scale)")

    __rmul__ = __mul__

    def __getitem__(self, index: Index) -> Share:
        return Share(self.words[index], self.scale, self.bits)

    def reshape(self, *shape: int) -> Share:
        return Share(self.words.reshape(*shape), self.scale, self.bits)

    def sum(self, axis: int) -> Share:
        return Share(self.words.sum(axis=axis, dtype=np.uint64), self.scale, self.bits)

    def rescaled(self, scale: int) -> Share:
        """The same words read at another scale: a free division by a power of two."""
        return Share(self.words, scale, self.bits)

    def raised(self, scale: int) -> Share:
        """The same secret at a higher scale: local and exact, and known modulo as much more."""
        up = scale - self.scale
        if not up:
            return self
        return Share(self.words << np.uint64(up), scale, min(RING_BITS, self.bits + up))

    def round_open(self, opening: Opening) -> Array:
        """This share over 2**drop, rounded, plus the mask, modulo 2**bits: what an opening sends."""
        words: Array = round_open(self.words, *opening)
        return words

    def _align(self, other: Share) -> Array:
        if not isinstance(other, Share):
            raise TypeError(f"share + {type(other).__name__}: make it a share with party.constant(...)")
        if self.scale != other.scale:
            raise InputError(f"shares at scales {self.scale} and {other.scale} cannot be added")
        return other.words


def split(words: Array) -> tuple[bytes, Array]:
    """Party 0's share as a fresh seed, party 1's share as words."""
    seed = fresh_seed()
    return seed, words - Stream(seed).words(tuple(words.shape))


def join(share0: Array, share1: Array, bits: int = 64) -> Array:
    """The secret words, modulo 2**bits."""
    if share0.shape != share1.shape:
        raise InputError(f"the two shares have shapes {share0.shape} and {share1.shape}")
    total: Array = modulo(share0.astype(np.uint64) + share1.astype(np.uint64), bits)
    return total


def refresh(share: Share, rank: int, pair_seed: bytes, address: str) -> Share:
    """Add the sharing of zero at a fresh address, from the seed only the two parties know."""
    zero = beside(Stream(derive(pair_seed, "refresh", address)).words(share.shape), share.words)
    return Share(share.words + zero if rank == 0 else share.words - zero, share.scale, share.bits)
