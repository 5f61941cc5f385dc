"""The weights of a step: opened rounded and lifted at its start, then once more in the whole ring.

Weights that are opened at one scale in one ring lie side by side: one opening instead of one for each layer. Products
refer to their part of the row's mask.

Security  both openings are under fresh masks that mask nothing else; see lifted and opening.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from hdcos.nn.private.tensor import Tensor
from hdcos.offline import Reference
from hdcos.protocol.lifted import Lifted, open_lifted
from hdcos.protocol.masked import Masked
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds, together
from hdcos.ring import Array, Blank
from hdcos.sharing import Share
from hdcos.train.form import Form, WeightRow


class Weights:
    """The weights of all units at one party; `first` is lifted, all others are masked as well."""

    def __init__(self, party: Party, form: Form, state: Mapping[str, Share]) -> None:
        self._party, self._state, self._rows = party, state, form.weight_rows
        self._first = form.units[0].weight
        self._lifted: tuple[Lifted, ...] = ()
        self._shares: list[Share] = []

    def open(self) -> Rounds[None]:
        """All weights, rounded and lifted: one round."""
        self._lifted = yield from together(*(self._opened(row) for row in self._rows))
        self._shares = [lifted.share(self._party) for lifted in self._lifted]

    def copies(self) -> dict[str, Share]:
        """The rounded weights."""
        return {
            weight.name: share[start : start + prod(weight.shape)].reshape(*weight.shape)
            for row, share in zip(self._rows, self._shares, strict=True)
            for weight, start in row.places()
        }

    @property
    def first(self) -> Lifted:
        """The first unit's weight, which begins the first row."""
        return self._lifted[0].part(0, self._first.shape)

    def masked_at(self, name: str, but_first: bool) -> Reference:
        """Where the mask of a weight will be, if `remask` comes next."""
        position = self._party.source.position
        for number, (_, places) in enumerate(self._remasked(but_first)):
            for weight, start in places:
                if weight.name == name:
                    return Reference(position + number, whole=True, start=start, shape=weight.shape)
        raise KeyError(name)

    def remask(self, but_first: bool) -> Rounds[dict[str, Masked]]:
        """The weights in the whole ring, under masks that products can refer to: one round."""
        rows = self._remasked(but_first)
        opened = yield from together(*(open_masked(self._party, share, whole=True) for share, _ in rows))
        return {
            weight.name: row.part(start, weight.shape)
            for row, (_, places) in zip(opened, rows, strict=True)
            for weight, start in places
        }

    def _remasked(self, but_first: bool) -> list[tuple[Share, list[tuple[Tensor, int]]]]:
        """What is masked again of each row, and where each weight begins in that."""
        made = []
        for number, (row, share) in enumerate(zip(self._rows, self._shares, strict=True)):
            left_out = but_first and number == 0
            places = list(row.places(int(left_out)))
            if places:
                made.append((share[prod(self._first.shape) :] if left_out else share, places))
        return made

    def _opened(self, row: WeightRow) -> Rounds[Lifted]:
        shares = [self._state[weight.name] for weight in row.weights]
        flat = Share(_side_by_side([share.words for share in shares]), shares[0].scale, shares[0].bits)
        return open_lifted(self._party, flat, row.drop, row.bits, whole=True)


def _side_by_side(tensors: list[Array]) -> Array:
    if any(isinstance(tensor, Blank) for tensor in tensors):
        return Blank(sum(tensor.size for tensor in tensors))  # type: ignore[return-value]
    return np.concatenate([tensor.ravel() for tensor in tensors])
