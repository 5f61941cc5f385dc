"""How exactly a cosine is computed: bits of its phase, of the public table and of what is dealt.

cos x = cos d cos r - sin d sin r: cos d comes from a table at `table` fraction bits, cos r was dealt at `dealt`, and
the result has both. Whatever is rounded by something a party knows (the table's error at d, a party's own rounding of
its share of the phase) must be small against noise that it does not know; `dither` makes the rounding of cos r that
noise.
docs/security.md has the law and the numbers.
"""

from __future__ import annotations

from typing import NamedTuple


class Precision(NamedTuple):
    """The bits of a cosine; a phase of more than 32 bits is looked up by its upper 32."""

    phase_bits: int
    table: int
    dealt: int
    dither: bool = False

    @property
    def scale(self) -> int:
        """Fraction bits of the cosine."""
        return self.table + self.dealt

    @property
    def rounding(self) -> float:
        """The largest error of a cosine that comes from rounded factors: 2.5 units of a dithered one, 1.5 of one
        that two parties made, half a unit of a table's; twice each, for cosine and sine, at right angles."""
        dealt = 3.75 if self.dither else 2.25
        return dealt * 2.0**-self.dealt + 0.75 * 2.0**-self.table


def even(phase_bits: int, scale: int) -> Precision:
    """Table and dealt cosines at one scale, rounded to the nearest: for results that never meet a secret's owner."""
    return Precision(phase_bits, scale, scale)
