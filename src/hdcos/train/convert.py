"""A trained state as the shares that inference wants: other scales, one round.

Computes  [weights], [biases] at training's scales -> the same at the scales of an inference layout.
Offline   one RoundingMask per number that loses bits.
Online    1 round.
Error     one unit of the inference scale.
Security  rounding openings under fresh masks; see opening.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hdcos.errors import ModelError
from hdcos.nn.private import Layout
from hdcos.protocol.opening import round_lift
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds, together
from hdcos.sharing import Share
from hdcos.train.form import Form


@dataclass(frozen=True)
class _Change:
    name: str
    drop: int
    """Bits to lose, or to gain if negative."""


def changes(form: Form, layout: Layout) -> list[_Change]:
    """What happens to each tensor; both describe the same parameters, but for the scale."""
    wanted = {tensor.name: tensor for tensor in layout.tensors}
    made = []
    for tensor in form.tensors:
        other = wanted[tensor.name]
        if abs(other.factor / tensor.factor - 1) > 1e-9:
            raise ModelError(f"{tensor.name} is not trained in the units that inference uses")
        made.append(_Change(tensor.name, tensor.scale - other.scale))
    return made


def to_inference(party: Party, form: Form, layout: Layout, state: Mapping[str, Share]) -> Rounds[dict[str, Share]]:
    """Shares at the scales of the layout."""
    planned = changes(form, layout)
    rounding = [change for change in planned if change.drop > 0]
    rows = [state[change.name].reshape(1, -1) for change in rounding]
    rounded = yield from together(
        *(round_lift(party, row, change.drop, 64 - change.drop) for change, row in zip(rounding, rows, strict=True))
    )
    shares = {change.name: share.reshape(-1) for change, share in zip(rounding, rounded, strict=True)}
    for change in planned:
        if change.drop <= 0:
            share = state[change.name]
            shares[change.name] = share.raised(share.scale - change.drop)
    return shares
