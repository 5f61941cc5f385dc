"""A trained state as the shares that inference wants: other scales and units, one or two rounds.

Computes  [weights], [biases] at training's scales -> the same at the scales of inference.
Offline   one RoundingMask per number that loses bits.
Online    1 round, or 2 where the unit changes (a gain of pooling that inference puts into weights).
Error     one unit of the inference scale.
Security  rounding openings under fresh masks; see opening.
"""

from __future__ import annotations

from collections.abc import Mapping

from hdcos.errors import ModelError
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds, together
from hdcos.secure import CompiledNetwork, Tensor
from hdcos.secure.stages import settle
from hdcos.secure.training.plan import TrainingPlan
from hdcos.sharing import Share

LIFTED_SCALE = 30
RATIO_SCALE = 24


def to_inference(
    party: Party, plan: TrainingPlan, network: CompiledNetwork, state: Mapping[str, Share]
) -> Rounds[dict[str, Share]]:
    """Shares at the scales and in the units of inference."""
    wanted = {tensor.name: tensor for tensor in network.tensors}
    trained = {tensor.name: tensor for tensor in plan.tensors}
    if wanted.keys() != trained.keys():
        raise ModelError("the network that was trained has other parameters than the one that infers")
    shares = yield from together(
        *(_convert(party, state[name], tensor, wanted[name]) for name, tensor in trained.items())
    )
    return dict(zip(trained, shares, strict=True))


def _convert(party: Party, share: Share, before: Tensor, after: Tensor) -> Rounds[Share]:
    row = share.reshape(1, -1)
    ratio = after.factor / before.factor
    if abs(ratio - 1) > 1e-9:
        row = yield from settle(party, row, min(row.scale, LIFTED_SCALE))
        row = (row * round(ratio * 2**RATIO_SCALE)).rescaled(row.scale + RATIO_SCALE)
    row = yield from settle(party, row, after.scale)
    return row.reshape(*after.shape)
