"""Many fields in one piece of memory, where one copy moves them all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdcos.offline.material import Fields
from hdcos.ring import Array
from hdcos.ring.device import contiguous, empty_of_bytes

ALIGNED = 256
"""Where fields begin, as devices like it."""


class Places:
    """Where the fields of positions like these lie."""

    def __init__(self, positions: Sequence[Fields]) -> None:
        self._places, self.size = [], 0
        for fields in positions:
            places = []
            for x in fields:
                places.append((x.shape, x.dtype, self.size, self.size + x.nbytes))
                self.size += -(-x.nbytes // ALIGNED) * ALIGNED
            self._places.append(places)

    def join(self, positions: Sequence[Fields]) -> Array:
        """A copy of the fields in one piece."""
        like = next(x for fields in positions for x in fields)
        whole = empty_of_bytes(self.size, like)
        for fields, places in zip(positions, self._places, strict=True):
            for x, (_, _, start, end) in zip(fields, places, strict=True):
                if x.size:
                    whole[start:end] = contiguous(x).reshape(-1).view(np.uint8)
        return whole

    def cut(self, whole: Array) -> list[Fields]:
        """The fields in such a piece."""
        return [
            tuple([whole[start:end].view(kind).reshape(shape) for shape, kind, start, end in places])
            for places in self._places
        ]
