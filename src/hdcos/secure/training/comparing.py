"""What a block that compares does in a training step: ReLU, LeakyReLU, the largest of windows, and gradients back.

Numbers lie in windows, (rows, windows, numbers of a window); where nothing is pooled, windows are of one number. ReLU
of the largest is the largest of ReLUs, so the largest comes first and leaves fewer numbers to compare.

The derivative is made of the bits that the comparison left: x > 0, and which of a window is the largest. A gradient is
opened once per window and multiplied with every bit of it, locally. ReLU's bits are there already. A window's bits are
multiplied with each other, and with ReLU's, and opened once more, along with whatever is opened next.

Online    3 rounds for each comparison, one after the other; the derivative takes none, its gradient the one that every
          activation takes.
Error     that of rounding to the scale at which numbers are compared. A zero has the derivative 0, as in PyTorch.
Security  see selection and relu: values, bits and gradients are opened under masks of their own, each once. The mask
          r of a bit stands in products with the masks of values and of gradients, which are dealt as fresh shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hdcos.offline.bilinear import reshape, transpose
from hdcos.protocol.lifted import open_lifted
from hdcos.protocol.party import Party
from hdcos.protocol.relu import times_bit
from hdcos.protocol.rounds import Rounds, together
from hdcos.protocol.selection import both, positive, serving, winners
from hdcos.protocol.sign import MaskedBit, open_bit
from hdcos.ring import Array
from hdcos.secure.activations import RANGE_BITS
from hdcos.secure.training.plan import (
    ACTIVATION_GRADIENT,
    ACTIVATION_GRADIENT_BITS,
    INPUT_SCALE,
    LEAK_SCALE,
    LEAST_RING,
    OPENED_SCALE,
    LinearBlock,
    Shape,
)
from hdcos.sharing import Share


@dataclass(frozen=True, eq=False)
class Choice:
    """A derivative made of bits: a public constant and the sum of bits times public factors, over 2**scale."""

    constant: int
    terms: tuple[tuple[int, MaskedBit], ...]
    scale: int


def compare(party: Party, block: LinearBlock, y: Share, following: LinearBlock) -> Rounds[tuple[Share, Rounds[Choice]]]:
    """What comparing makes of y, pooled, as the following block wants it; the derivative, whose opening can wait."""
    wanted = INPUT_SCALE - block.pool_bits if following.diagonal else OPENED_SCALE
    v = _in_windows(party.round(y, max(0, y.scale - wanted)), block.windows)
    bits, ring = min(v.scale + RANGE_BITS + 2, v.bits), block.gradient_ring
    numbers, won = v.shape[-1], None
    if block.largest:
        v, won = yield from winners(party, v, bits, block.way)
        if not block.rectified:
            return v.reshape(len(v), -1), _derivative(party, block, won)
    # The result is rounded to OPENED_SCALE as it is opened, and must be left with LEAST_RING bits.
    room = 64 if following.diagonal else LEAST_RING + v.scale - OPENED_SCALE + block.leak_bits + block.pool_bits
    if won is None:
        above, whole, b = yield from positive(party, v, bits, block.way, max(room, ring))
        derivative = _derivative(party, block, b)
    else:
        path_ring = ring if block.leak_bits else 1  # without a leak it is multiplied with ReLU's bit alone
        (above, whole, b), path = yield from together(
            positive(party, v, bits, block.way, room), open_bit(party, won, path_ring)
        )
        derivative = _derivative(party, block, both(party, path, serving(b, numbers)), path)
    z = _leak(block, above, whole)
    return z.sum(2).rescaled(z.scale + block.pool_bits), derivative


def _derivative(
    party: Party, block: LinearBlock, bit: MaskedBit | Array, path: MaskedBit | None = None
) -> Rounds[Choice]:
    """slope + (1 - slope) b, where b is `bit`; with a `path`, which says whether a number is the largest, times that.

    Then `bit` is the product of both. One that is shared by XOR is opened first.
    """
    b = bit if isinstance(bit, MaskedBit) else (yield from open_bit(party, bit, block.gradient_ring))
    if not block.leak_bits:
        return Choice(0, ((1, b),), 0)
    above = ((1 << LEAK_SCALE) - block.leak, b)
    if path is None:
        return Choice(block.leak, (above,), LEAK_SCALE)
    return Choice(0, ((block.leak, path), above), LEAK_SCALE)


def _leak(block: LinearBlock, above: Share, whole: Share) -> Share:
    """max(v, 0), and the slope times what is below zero."""
    if not block.leak_bits:
        return above
    return (whole * block.leak + above * ((1 << LEAK_SCALE) - block.leak)).rescaled(above.scale + LEAK_SCALE)


def through(party: Party, block: LinearBlock, choice: Choice, gradient: Share) -> Rounds[Share]:
    """From the gradient by what a block's comparison gave, pooled, to that by what was compared; rows of numbers."""
    windows, drop = gradient.reshape(len(gradient), -1, 1), gradient.scale - ACTIVATION_GRADIENT
    g = yield from open_lifted(party, windows, drop, min(ACTIVATION_GRADIENT_BITS, gradient.bits - drop))
    total = g.share(party) * choice.constant
    for factor, bit in choice.terms:
        total = total + times_bit(party, g, bit) * factor
    scale = g.scale + choice.scale + block.pool_bits
    return Share(_by_rows(total.words, block.windows), scale, total.bits)


def _in_windows(x: Share, windows: Shape) -> Share:
    if not windows:
        return x.reshape(len(x), -1, 1)
    channels, height, width, side = windows
    squares = reshape(x.words, len(x), channels, height // side, side, width // side, side)
    turned = transpose(squares, 0, 1, 2, 4, 3, 5)
    return Share(reshape(turned, len(x), -1, side * side), x.scale, x.bits)


def _by_rows(words: Array, windows: Shape) -> Array:
    """The inverse, each image as one row."""
    rows = words.shape[0]
    if not windows:
        return words.reshape(rows, -1)
    channels, height, width, side = windows
    squares = reshape(words, rows, channels, height // side, width // side, side, side)
    return reshape(transpose(squares, 0, 1, 2, 4, 3, 5), rows, prod(windows[:3]))
