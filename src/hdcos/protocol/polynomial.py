"""Public polynomials of a shared value, of degree up to 3, in one round.

Computes  [x] -> [c0 + c1 x + c2 x^2 + c3 x^3], coefficients public.
Offline   Powers per element: a mask m with [m^2] and [m^3].
Online    1 round, `bits` (64) per element each way, whatever the degree.
Error     exact for the words and the rounded coefficients; the result wraps modulo 2**bits, so its largest value
          times 2**(degree * scale + coefficient_scale) must stay below 2**(bits - 1).
Security  the only message is this party's half of D = x + m; m is uniform in the same ring and used once.

x = D - m, so x^2 = D^2 - 2 D m + m^2 and x^3 = D^3 - 3 D^2 m + 3 D m^2 - m^3: public combinations of shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import Powers
from hdcos.protocol.opening import open_half
from hdcos.protocol.party import Party
from hdcos.protocol.price import Price, packed
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, encode
from hdcos.sharing import Share
from hdcos.sharing.share import ring_word


def square(party: Party, x: Share) -> Rounds[Share]:
    """x * x at twice the scale."""
    return (yield from polynomial(party, x, [0, 0, 1], coefficient_scale=0))


def polynomial(party: Party, x: Share, coefficients: Sequence[float], coefficient_scale: int = 16) -> Rounds[Share]:
    """c0 + c1 x + c2 x^2 + c3 x^3, at scale degree * x.scale + coefficient_scale."""
    degree = len(coefficients) - 1
    if not 2 <= degree <= 3:
        raise InputError(f"polynomials of degree 2 and 3 take a round, this one has degree {degree}")
    mask, *dealt = party.take(Powers(x.shape[1:], degree, x.bits), len(x))
    D = (yield from open_half(party, x, mask, 0, x.bits)).astype(np.uint64)
    m = (mask.astype(np.uint64), *dealt)
    scale = degree * x.scale + coefficient_scale
    words: Array = encode(coefficients[0], scale) if party.rank == 0 else np.zeros((), np.uint64)
    for n in range(1, degree + 1):
        # Lower powers are shifted up so that all terms meet at one scale.
        factor = encode(coefficients[n], coefficient_scale + (degree - n) * x.scale)
        if coefficients[n]:
            words = words + _power(party, n, D, m) * factor
    return Share(words, scale, x.bits)


def _power(party: Party, n: int, D: Array, m: Sequence[Array]) -> Array:
    """This party's half of (D - m)^n."""
    words = D**n if party.rank == 0 else np.zeros((), np.uint64)
    for k in range(1, n + 1):
        words = words + D ** (n - k) * m[k - 1] * ring_word((-1) ** k * comb(n, k))
    return words


def price(shape: tuple[int, ...], degree: int) -> Price:
    count = prod(shape)
    return Price(1, packed(count, 64), (degree - 1) * packed(count, 64), ("powers",))
