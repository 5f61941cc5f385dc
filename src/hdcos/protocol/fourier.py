"""Any trigonometric series of a shared value, in one round: sigmoid, tanh, e^x - 1.

Computes  [x] -> [c + sum over k of a_k cos(2 pi k x / P) + b_k sin(2 pi k x / P)], coefficients public.
Offline   one TrigPair per element with cos kr and sin kr of each harmonic k.
Online    1 round, `phase_bits` per element each way, whatever the number of terms.
Error     the fit's own error on its interval, plus |f'| P / 2**phase_bits for the rounded phase. Outside the
          interval the series folds back: it is periodic, the function is not.
Security  the only message is this party's share of d = x - r modulo one period; r is uniform there and used
          once, so d is uniform whatever x is.

The period is a power of two, so x is an angle as it stands: one turn is P * 2**scale ring units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import pi, prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import TrigPair
from hdcos.offline.kinds import RING_BITS
from hdcos.protocol.cosine import PHASE_BITS, Precision, even, open_angle
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds
from hdcos.ring import Array, encode, packed_size, table_phase, trig_combine
from hdcos.ring.trig import SPLIT_SCALE
from hdcos.sharing import Share

COEFFICIENT_SCALE = 20
TRIG_SCALE = 24
DEFAULT = even(PHASE_BITS, TRIG_SCALE)
FINEST = SPLIT_SCALE
"""Fraction bits of the table that public factors are made of, before they are rounded."""


@dataclass(frozen=True)
class Series:
    """c + sum of a_k cos(2 pi k x / P) + b_k sin(2 pi k x / P) with P = 2**period_bits; integers over 2**20.

    Integers, because both parties must compute with the same coefficients to the last bit.
    """

    period_bits: int
    harmonics: tuple[int, ...]
    constant: int
    cos: tuple[int, ...]
    sin: tuple[int, ...]
    interval_bits: int = 2
    """It is meant for |x| < P / 2**interval_bits: the middle half of its period, or nearly all of it."""

    def __post_init__(self) -> None:
        if not len(self.harmonics) == len(self.cos) == len(self.sin) or not self.harmonics:
            raise InputError("a series has one cosine and one sine coefficient per harmonic")

    def __call__(self, x: Array) -> Array:
        """The series in floating point: what the protocol computes, less its rounding."""
        angle = np.multiply.outer(np.asarray(x), 2 * pi * np.array(self.harmonics) / 2**self.period_bits)
        total = self.constant + np.cos(angle) @ np.array(self.cos) + np.sin(angle) @ np.array(self.sin)
        value: Array = total / 2**COEFFICIENT_SCALE
        return value

    @cached_property
    def size(self) -> float:
        """The root of the sum of its squared coefficients: how much it amplifies noise in dealt cosines."""
        return float(np.linalg.norm([self.cos, self.sin]) / 2**COEFFICIENT_SCALE)

    @cached_property
    def integers(self) -> tuple[Array, Array, Array]:
        """Coefficients of cosines and sines, and harmonics, as kernels take them."""
        cos, sin, harmonics = (np.array(row, np.int64) for row in (self.cos, self.sin, self.harmonics))
        return cos, sin, harmonics

    @property
    def slope(self) -> Series:
        """The derivative by x."""
        steps = [2 * pi * k / 2**self.period_bits for k in self.harmonics]
        cos = tuple(round(b * step) for b, step in zip(self.sin, steps, strict=True))
        sin = tuple(round(-a * step) for a, step in zip(self.cos, steps, strict=True))
        return Series(self.period_bits, self.harmonics, 0, cos, sin, self.interval_bits)


def fourier(
    party: Party, x: Share, series: Series, precision: Precision = DEFAULT, ring: int = RING_BITS
) -> Rounds[Share]:
    """The series of x: public factors are rounded to the table's scale, coefficients and all."""
    (result,) = yield from series_of(party, x, (series,), precision, ring)
    return result


def series_of(
    party: Party, x: Share, several: Sequence[Series], precision: Precision, ring: int = RING_BITS
) -> Rounds[list[Share]]:
    """Several series with the same period and harmonics from one opening, modulo 2**ring."""
    first = several[0]
    angle = x.rescaled(x.scale + first.period_bits)
    within = precision.phase_bits - first.interval_bits
    d, cos_r, sin_r = yield from open_angle(party, angle, precision, first.harmonics, within, ring)
    if first.harmonics == (1,):
        cos_r, sin_r = cos_r[..., None], sin_r[..., None]
    phase, phase_bits = table_phase(d, precision.phase_bits)
    # From the finest table: coefficients are large, and the error of a coarse one would be as many times as large.
    shift = COEFFICIENT_SCALE + FINEST - precision.table
    results = []
    for series in several:
        words = trig_combine(phase, cos_r, sin_r, phase_bits, FINEST, *series.integers, coefficient_shift=shift)
        if party.rank == 0:
            words = words + _constant(series.constant, precision.scale)
        results.append(Share(words, precision.scale, ring))
    return results


@lru_cache(1024)  # the integer comes with a client's network or function
def _constant(integer: int, scale: int) -> np.uint64:
    word: np.uint64 = encode(integer / 2**COEFFICIENT_SCALE, scale)[0]
    return word


def error_bound(series: Series, precision: Precision = DEFAULT) -> float:
    """The largest distance from the series in floats.

    The angle, the table and the dealt factors are off as `precision` says, of each term times its coefficient, and the
    rounded public factors by half a unit of the table's scale.
    """
    sizes = [np.hypot(a, b) / 2**COEFFICIENT_SCALE for a, b in zip(series.cos, series.sin, strict=True)]
    slope = sum(k * size for k, size in zip(series.harmonics, sizes, strict=True))
    rounded = precision.rounding * sum(sizes) + 0.75 * len(sizes) / 2**precision.table
    return float(slope * precision.angle + rounded)


def price(shape: tuple[int, ...], series: Series, phase_bits: int = PHASE_BITS) -> Price:
    count = prod(shape)
    return Price(1, packed_size(count, phase_bits), 16 * count * len(series.harmonics), (TrigPair.name,))
