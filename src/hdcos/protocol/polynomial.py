"""Public polynomials of a shared value, of degree up to 3, in one round.

Computes  [x] -> [c0 + c1 x + c2 x^2 + c3 x^3], coefficients public.
Offline   Powers per element: a mask m with [m^2] and [m^3].
Online    1 round, `bits` (64) per element each way, whatever the degree.
Error     exact for the words and the rounded coefficients; the result wraps modulo 2**bits, so its largest value
          times 2**(degree * scale + coefficient_scale) must stay below 2**(bits - 1).
Security  the only message is this party's share of D = x + m; m is uniform in the same ring and used once.

x = D - m, so x^2 = D^2 - 2 D m + m^2 and x^3 = D^3 - 3 D^2 m + 3 D m^2 - m^3: public combinations of shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, prod
from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import LiftedPowers, Powers
from hdcos.protocol.opening import open_liftable
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds
from hdcos.ring import Array, encode, packed_size
from hdcos.sharing import Share
from hdcos.sharing.share import ring_word


def square(party: Party, x: Share) -> Rounds[Share]:
    """x * x at twice the scale."""
    return (yield from polynomial(party, x, [0, 0, 1], coefficient_scale=0))


def polynomial(party: Party, x: Share, coefficients: Sequence[float], coefficient_scale: int = 16) -> Rounds[Share]:
    """c0 + c1 x + c2 x^2 + c3 x^3, at scale degree * x.scale + coefficient_scale."""
    degree = _degree(coefficients)
    mask, *dealt = party.take(Powers(x.shape[1:], degree, x.bits), len(x))
    D = (yield from party.open(x, mask, 0, x.bits)).astype(np.uint64, copy=False)
    result = _combine(party, coefficients, coefficient_scale, x.scale, D, (mask.astype(np.uint64, copy=False), *dealt))
    return Share(result.words, result.scale, x.bits)


def lifted_polynomials(
    party: Party, x: Share, polynomials: Sequence[Sequence[float]], drop: int, bits: int, coefficient_scale: int
) -> Rounds[list[Share]]:
    """Polynomials of x / 2**drop, the first of the highest degree, lifted: for |x| < 2**(drop + bits - 2) ring units.

    Offline LiftedPowers per element, online 1 round and `bits` per element: this party's share of D = x / 2**drop +
    2**(bits-2) + m modulo 2**bits, where m is uniform in that ring and used once. x = E - M with M = m - t b, and as
    b is a bit, M^2 = m^2 - 2 t m b + t^2 b and M^3 = m^3 - 3 t m^2 b + 3 t^2 m b - t^3 b.
    """
    degree = _degree(polynomials[0])
    kind = LiftedPowers(x.shape[1:], degree, bits)
    mask, m, b, *higher = party.take(kind, len(x))
    E, t = yield from open_liftable(party, x, mask, drop, bits)
    M = [m - t * b]
    if degree >= 2:
        m2, mb = higher[:2]
        M.append(m2 - t * mb * np.uint64(2) + t * t * b)
    if degree == 3:
        m3, m2b = higher[2:]
        three = np.uint64(3)
        M.append(m3 - t * m2b * three + t * t * mb * three - t * t * t * b)
    return [_combine(party, each, coefficient_scale, x.scale - drop, E, M) for each in polynomials]


def _degree(coefficients: Sequence[float]) -> int:
    degree = len(coefficients) - 1
    if not 2 <= degree <= 3:
        raise InputError(f"polynomials of degree 2 and 3 take a round, this one has degree {degree}")
    return degree


def _combine(
    party: Party, coefficients: Sequence[float], coefficient_scale: int, scale: int, D: Array, m: Sequence[Array]
) -> Share:
    """The polynomial of D - m from shares of m, m^2, m^3."""
    degree = len(coefficients) - 1
    total = degree * scale + coefficient_scale
    words: Any = encode(coefficients[0], total)[0] if party.rank == 0 else np.uint64(0)
    for n in range(1, degree + 1):
        # Lower powers are shifted up so that all terms meet at one scale.
        factor = encode(coefficients[n], coefficient_scale + (degree - n) * scale)[0]
        if coefficients[n]:
            words = words + _power(party, n, D, m) * factor
    return Share(words, total)


def _power(party: Party, n: int, D: Array, m: Sequence[Array]) -> Array:
    """This party's share of (D - m)^n."""
    parts = [D ** (n - k) * m[k - 1] * ring_word((-1) ** k * comb(n, k)) for k in range(1, n + 1)]
    words: Array = sum(parts[1:], parts[0])
    return words + D**n if party.rank == 0 else words


def lifted_price(shape: tuple[int, ...], degree: int, bits: int) -> Price:
    count = prod(shape)
    return Price(1, packed_size(count, bits), 16 * degree * count, ("lifted_powers",))


def price(shape: tuple[int, ...], degree: int) -> Price:
    count = prod(shape)
    return Price(1, packed_size(count, 64), (degree - 1) * packed_size(count, 64), ("powers",))
