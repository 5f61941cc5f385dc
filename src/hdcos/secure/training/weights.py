"""The weights of a step: opened rounded and lifted at its start, then once more in the whole ring.

Weights that are opened at one scale in one ring lie side by side: one opening instead of one for each layer. Products
refer to their part of the row's mask.

Security  both openings are under fresh masks that mask nothing else; see lifted and opening.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from hdcos.offline import Reference
from hdcos.protocol.lifted import Lifted, open_lifted
from hdcos.protocol.masked import Masked
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds, together
from hdcos.ring import Array, Blank
from hdcos.secure.training.form import TrainingPlan, WeightRow
from hdcos.sharing import Share


class Weights:
    """The weights of all units at one party: all are lifted, and those that products refer to masked as well."""

    def __init__(self, party: Party, form: TrainingPlan, state: Mapping[str, Share]) -> None:
        self._party, self._state = party, state
        self._rows, self._again = form.weight_rows, form.masked_again
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
            for weight, start in row.places
        }

    @property
    def first(self) -> Lifted:
        """The first unit's weight, which begins the first row."""
        return self._lifted[0].part(0, self._first.shape)

    def masked_at(self, name: str) -> Reference:
        """Where the mask of a weight will be, if `remask` comes next."""
        position = self._party.source.position
        for number, again in enumerate(self._again):
            for weight, start in again.places:
                if weight.name == name:
                    return Reference.of(position + number, True, start=start, shape=weight.shape)
        raise KeyError(name)

    def remask(self) -> Rounds[dict[str, Masked]]:
        """The weights in the whole ring, under masks that products can refer to: one round."""
        shares = [self._shares[again.row][again.start :] for again in self._again]
        opened = yield from together(*(open_masked(self._party, share, whole=True) for share in shares))
        return {
            weight.name: row.part(start, weight.shape)
            for row, again in zip(opened, self._again, strict=True)
            for weight, start in again.places
        }

    def _opened(self, row: WeightRow) -> Rounds[Lifted]:
        shares = [self._state[weight.name] for weight in row.weights]
        flat = Share(_side_by_side([share.words for share in shares]), shares[0].scale, shares[0].bits)
        return open_lifted(self._party, flat, row.drop, row.bits, whole=True)


def _side_by_side(tensors: list[Array]) -> Array:
    if any(isinstance(tensor, Blank) for tensor in tensors):
        return Blank(sum(tensor.size for tensor in tensors))  # type: ignore[return-value]
    return np.concatenate([tensor.ravel() for tensor in tensors])
