"""A public random projection in front of a network: fewer features, distances nearly kept, no secure product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from hdcos.nn.hadamard import HadamardLinear, pad_features, walsh_hadamard
from hdcos.nn.public import public_choice, public_signs
from hdcos.ring import Array


@dataclass(frozen=True)
class RandomProjection(HadamardLinear):
    """The fast Johnson-Lindenstrauss transform y = sqrt(n / out) S H D x, with nothing to learn.

    D has random signs, H is orthonormal of order n (the next power of two >= max(in, out)), and S keeps `out`
    different coordinates. All follow from `seed`; E|y|^2 = |x|^2. Under two-party computation it is local.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_whole(0, "seed")

    def signs(self) -> Array:
        """The diagonal of D, (in,)."""
        return public_signs(self.in_features, "projection", self.in_features, self.out_features, self.seed)

    def kept(self) -> Array:
        """The coordinates that S keeps, (out,), rising."""
        label = ("projection", self.in_features, self.out_features, self.seed)
        row: Array = public_choice(1, self.size, self.out_features, *label)[0]
        return row

    def matrix_elements(self) -> int:
        return self.size

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        mixed = walsh_hadamard(pad_features(x * self.signs(), self.size))
        result: Array = mixed[..., self.kept()] * sqrt(self.size / self.out_features)
        return result
