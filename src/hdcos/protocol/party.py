"""One party's view of a computation: who it is, and where its material comes from.

A protocol's first argument. It holds no connection: talking is a `yield`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import Kind, Reference
from hdcos.offline.material import Fields, Precompute
from hdcos.protocol.rounds import Rounds, swap_sum, swap_xor
from hdcos.ring import Array, Opening, dcf_share
from hdcos.ring.device import Device
from hdcos.sharing import Public, Share


class Source(Protocol):
    """Hands out material in the order it was planned."""

    @property
    def device(self) -> Device | None:
        """Where it lies, if not in the memory of this machine."""
        ...

    @property
    def position(self) -> int:
        """How many positions of the plan were taken so far."""
        ...

    def take(self, kind: Kind, units: int, precompute: Precompute | None = None) -> Fields:
        """All fields of the next position, leading axis `units`, or what `precompute` makes of them."""
        ...


class Openable(Protocol):
    """What can be opened: a share, or something that becomes one as it is rounded."""

    @property
    def bits(self) -> int: ...

    @property
    def scale(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def round_open(self, opening: Opening) -> Array:
        """This share over 2**drop, rounded, plus the mask, modulo 2**bits."""
        ...


@dataclass(frozen=True)
class Party:
    """Party 0 or party 1, with its material."""

    rank: int
    source: Source

    def open(
        self, x: Openable, mask: Array, drop: int, bits: int, within: int | None = None, periodic: bool = False
    ) -> Rounds[Array]:
        """D = x / 2**drop + mask modulo 2**bits, in the compact dtype of `bits`: the opening all protocols share.

        `within` is what the caller relies on, |x / 2**drop| < 2**within, which nothing can check on shares. `periodic`
        says that D is a phase, of which only 2**bits values exist.

        Security: the message is this party's share of D and nothing else. `mask` must be uniform modulo 2**bits, shared
        between the parties, and mask this opening alone; then D is uniform whatever x is.
        """
        if drop + bits > x.bits:
            raise InputError(f"a share modulo 2**{x.bits} cannot drop {drop} bits and keep {bits}")
        return (yield from swap_sum(x.round_open(Opening(mask, drop, bits, self.rank == 0)), bits))

    def round(self, x: Share, drop: int) -> Share:
        """x / 2**drop, each party rounding its own share as an opening does: local, and one integer from here on."""
        bits = x.bits - drop
        if drop < 0 or bits < 1:
            raise InputError(f"a share modulo 2**{x.bits} cannot drop {drop} bits")
        rounded = x.round_open(Opening(None, drop, bits, self.rank == 0)) if drop else x.words
        return Share(rounded.astype(np.uint64, copy=False), x.scale - drop, bits)

    def open_bits(self, words: Array, bits: int) -> Rounds[Array]:
        """The XOR of both parties' words of `bits` bits.

        Security: the message is this party's words and nothing else. They must hold a share of a mask that is uniform,
        shared by XOR, and masks this opening alone; then what is opened is uniform whatever the bits are.
        """
        return (yield from swap_xor(words, bits))

    def below(self, cipher: Array, root: Array, words: Array, D: Array, bits: int) -> Array:
        """This party's share of what its key of a comparison function says at D; see `protocol.sign`."""
        share: Array = dcf_share(cipher, root, words, D, bits, self.rank == 0)
        return share

    def take(self, kind: Kind, rows: int, precompute: Precompute | None = None) -> Fields:
        """One unit per row; the fields keep the rows as their leading axis.

        With `precompute`, what it makes of the fields: it is called when the material arrives, before any input does.
        """
        return self.source.take(kind, rows, precompute)

    def take_one(self, kind: Kind) -> Fields:
        """A single unit for the whole execution."""
        return tuple([field[0] for field in self.source.take(kind, 1)])

    def next_reference(self, *, whole: bool = False) -> Reference:
        """The address of the unit that the next `take` returns."""
        return Reference.of(self.source.position, whole)

    def constant(self, public: Public) -> Share:
        """A public value as a share: party 0 holds it, party 1 holds zero."""
        words = public.words if self.rank == 0 else np.zeros((), np.uint64)
        device = self.source.device
        return Share(words if device is None else device.constant(words), public.scale)

    def place(self, words: Array) -> Array:
        """Words where this party computes: beside its material."""
        device = self.source.device
        return words if device is None else device.put(words)
