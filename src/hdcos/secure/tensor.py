"""A secret parameter as it is shared: ring words of the parameter times public constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdcos.errors import ModelError, RangeError
from hdcos.ring import Array, decode, encode


@dataclass(frozen=True)
class Tensor:
    """word = round(parameter * factor * 2**scale), transposed if a product wants it so.

    Normalisations and the factor 1 / (2 pi) of turns ride in `factor`, so they cost nothing online. A `masked`
    tensor is a weight: opened once per model, under a mask in Z_2^bits. Others are biases and stay shares.
    """

    name: str
    shape: tuple[int, ...]
    scale: int
    factor: float = 1.0
    bits: int = 64
    masked: bool = True
    transposed: bool = False
    limit: float = float("inf")
    """Largest |parameter * factor| that keeps results within the ring, where they could leave it."""

    @property
    def squared(self) -> float:
        """factor * factor, by a multiplication, which rounds alike everywhere."""
        return self.factor * self.factor

    def words(self, parameter: Array) -> Array:
        """The words to be shared; ModelError if they do not fit, before anything is sent."""
        values = (parameter.T if self.transposed else parameter) * self.factor
        largest = float(np.abs(values).max(initial=0.0))
        if largest > self.limit:
            raise ModelError(
                f"{self.name} has values up to {largest / abs(self.factor):.3g}; "
                f"at its scale of {self.scale} bits it holds {self.limit / abs(self.factor):.3g}"
            )
        try:
            return encode(values, self.scale)
        except RangeError as error:
            raise ModelError(f"{self.name} does not fit its scale: {error}") from error

    def parameter(self, words: Array) -> Array:
        """The parameter that joined words stand for, rounded to the scale."""
        values = decode(words, self.scale) / self.factor
        return np.ascontiguousarray(values.T) if self.transposed else values
