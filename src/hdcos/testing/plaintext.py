"""A protocol in plaintext: one party holds every value, no mask hides it, nobody is asked.

The same generator runs on words that are the secrets themselves, with material whose masks are all zero. What comes
out is the fixed-point arithmetic of the protocol, rounding included, at a fraction of its cost. And it can see what
shares hide: an opening whose value lies outside the range its protocol relies on is counted, be it the range of a lift,
of a ring that products are computed in, or the interval a series was fitted on.

For tests and planning, never for secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdcos.generators import drive, local
from hdcos.offline import Kind
from hdcos.offline.dealer import refer
from hdcos.offline.material import Fields, Precompute, Values, own_names
from hdcos.protocol.gradient import FusedGradient
from hdcos.protocol.hadamard import HadamardCosine
from hdcos.protocol.party import Openable, Party
from hdcos.protocol.rounds import Message, Reply
from hdcos.ring import Array, compact_dtype, dcf_share, modulo
from hdcos.sharing import Share


@dataclass
class Unmasked:
    """Material whose uniform fields are zero, and what that makes of the others."""

    taken: list[Values] = field(default_factory=list)
    _coins: np.random.Generator = field(default_factory=np.random.default_rng, repr=False)
    device: None = None

    @property
    def position(self) -> int:
        return len(self.taken)

    def take(self, kind: Kind, units: int, precompute: Precompute | None = None) -> Fields:
        uniform: dict[str, Array] = {
            name: np.zeros((units, *item.shape), compact_dtype(item.bits))
            for item in kind.uniform()
            for name in (item.name, *own_names(item.name))
        }
        uniform |= {
            item.name: self._coins.integers(0, 1 << 64, (units, *item.shape), np.uint64) for item in kind.coins()
        }
        referred = [refer(reference, units, 1, self.taken, self._first) for reference in kind.references()]
        values: Mapping[str, Array] = {**uniform, **kind.derive(uniform, *referred)}
        self.taken.append(values)
        fields = tuple(values[item.name] for item in kind.fields())
        return fields if precompute is None else precompute(fields, self._earlier)

    def _first(self, scope: str, position: int) -> Values:
        return self.taken[position]

    def _earlier(self, position: int) -> Fields:
        return tuple(self.taken[position].values())


@dataclass
class Counter:
    """Stands in for openings and counts those out of range.

    Two shares rounded apart give the integer below or above, unbiased: so does this, with randomness of its own.
    """

    seed: int = 0
    openings: int = 0
    out_of_range: int = 0
    largest: float = 0.0
    """The largest value seen, as a fraction of its range."""

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def rounded(self, x: Array, drop: int) -> Array:
        """Signed x / 2**drop, the integer below or above."""
        words = x.view(np.int64)
        values: Array = (words + self._random.integers(0, 1 << drop, words.shape, np.int64)) >> np.int64(drop)
        return values

    def opened(self, x: Array, mask: Array, drop: int, bits: int, within: int | None, periodic: bool) -> Array:
        """x / 2**drop + mask, rounded; modulo 2**bits if it is a phase."""
        values = self.rounded(x, drop)
        if within is not None:
            size = np.abs(values).max(initial=0) / 2.0**within
            self.openings += values.size
            self.largest = max(self.largest, float(size))
            if size >= 1:
                self.out_of_range += int((np.abs(values) >= 2**within).sum())
        if periodic:
            return modulo(values.astype(compact_dtype(bits)) + mask, bits)  # type: ignore[no-any-return]
        return values.view(np.uint64) + mask.astype(np.uint64, copy=False)


def run_plaintext(program: Any, *inputs: Any, counter: Counter | None = None, **parameters: Any) -> Any:
    """The result of program(party, *inputs, **parameters) where shares among the inputs are the secrets."""
    party = PlaintextParty(0, Unmasked(), counter or Counter())
    return drive(program(party, *inputs, **parameters), _nobody)


@dataclass(frozen=True)
class PlaintextParty(Party):
    """One party that holds every value: what it opens is what it has, and `counter` looks at it."""

    counter: Counter = field(default_factory=Counter)

    @local
    def open(
        self, x: Openable, mask: Array, drop: int, bits: int, within: int | None = None, periodic: bool = False
    ) -> Array:
        assert isinstance(x, Share | HadamardCosine | FusedGradient)
        return self.counter.opened(x.words, mask, drop, bits, within, periodic or within is None)

    def round(self, x: Share, drop: int) -> Share:
        return Share(self.counter.rounded(x.words, drop).view(np.uint64), x.scale - drop, x.bits - drop)

    @local
    def open_bits(self, words: Array, bits: int) -> Array:
        return words

    def below(self, cipher: Array, root: Array, words: Array, D: Array, bits: int) -> Array:
        """Both parties' roots are zero: one party can evaluate both keys."""
        shares = [dcf_share(cipher, root, words, D, bits, first) for first in (True, False)]
        both: Array = shares[0] ^ shares[1]
        return both


def _nobody(message: Message) -> Reply:
    raise AssertionError("a protocol in plaintext has nobody to talk to")
