"""What private inference will cost, layer by layer, from the architecture alone: nothing runs.

Rounds and bytes are exact: the very stages that will run are driven over shapes. Seconds are estimates from the rates
below, for one core per party; on a network they add round trips and bytes over bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from hdcos import nn
from hdcos.link import Emulation
from hdcos.link.tls import wire_bytes
from hdcos.nn.layer import Layer
from hdcos.nn.sequential import Sequential
from hdcos.offline import Mask, Plan
from hdcos.offline.ot import Traffic, traffic
from hdcos.protocol.masked import Masked
from hdcos.protocol.opening import open_masked
from hdcos.protocol.plan import Planner, blank_share
from hdcos.protocol.rounds import together
from hdcos.ring import Blank
from hdcos.secure.layout import PHASE_BITS, CompiledNetwork, layout
from hdcos.secure.planning import MODEL, blank_parameters, plan_inference, plan_weights
from hdcos.secure.program import pieces
from hdcos.secure.stages import Stage, Value
from hdcos.sharing import Share

"""The scope of a model's weights, while nothing runs."""
ROUND_S = 150e-6
"""One exchange of little between two processes on one machine, with the work around it."""
WIRE_BYTE_S = 1.5e-9
OPENED_S = 4e-9
"""Local work per opened value: rounding, tables, transforms."""
MULTIPLY_S = 0.06e-9
DEALT_BYTE_S = 2.6e-9
"""Making, sending, unpacking and finishing material, per byte dealt."""


@dataclass(frozen=True)
class Amount:
    """One phase of one layer: rounds, payload and wire bytes (online each way, offline to party 1), seconds."""

    rounds: int = 0
    bytes_sent: int = 0
    wire_bytes_sent: int = 0
    seconds: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


@dataclass(frozen=True)
class LayerEstimate:
    """What one step of a network costs for a batch."""

    name: str
    multiplications: int
    online: Amount
    offline: Amount


def estimate(
    model: Sequential,
    batch: int = 1,
    phase_bits: int = PHASE_BITS,
    network: Emulation | None = None,
    *,
    masked: bool = True,
) -> list[LayerEstimate]:
    """The cost of each step of a batch, in the order in which they run; steps without cost are left out."""
    chosen = layout(model, phase_bits)
    parameters = blank_parameters(chosen)
    network = network or Emulation()
    planner = Planner()
    made: list[LayerEstimate] = []
    shapes = [(size, *chosen.input_shape) for size in pieces(batch)]
    values: list[Value]
    if masked:
        values = [_masked_input(planner, chosen, shape) for shape in shapes]
    else:
        shares = [blank_share(shape, chosen.input_scale) for shape in shapes]
        openings = (open_masked(planner.party, share, 0, chosen.input_bits) for share in shares)
        values = list(planner.drive(together(*openings)))
        made.append(_layer("input", 0, planner, (0, 0), network))
    for stage in chosen.stages:
        before = (len(planner.frames), len(planner.needs))
        values = list(planner.drive(together(*(stage.run(planner.party, value, parameters) for value in values))))
        cost = _layer(stage.name, _multiplications(stage, model, batch), planner, before, network)
        if cost.online.seconds or cost.offline.bytes_sent or cost.multiplications:
            made.append(cost)
    return made


def _masked_input(planner: Planner, chosen: CompiledNetwork, shape: tuple[int, ...]) -> Masked:
    reference = planner.party.next_reference()
    (mask,) = planner.party.take(Mask(shape[1:], chosen.input_bits), shape[0])
    return Masked(Blank(shape), Share(mask, chosen.input_scale, chosen.input_bits), reference)  # type: ignore[arg-type]


def _layer(
    name: str, multiplications: int, planner: Planner, before: tuple[int, int], network: Emulation
) -> LayerEstimate:
    frames = planner.frames[before[0] :]
    needs = planner.needs[before[1] :]
    opened = sum(item.size * need.units for need in needs for item in need.kind.uniform())
    wire = sum(wire_bytes(size) for size in frames)
    seconds = sum(max(ROUND_S, network.seconds(wire_bytes(size))) + size * WIRE_BYTE_S for size in frames)
    seconds += opened * OPENED_S + multiplications * MULTIPLY_S
    dealt = Plan(needs).packed_bytes(1)
    return LayerEstimate(
        name,
        multiplications,
        Amount(len(frames), sum(frames), wire, seconds),
        Amount(0, dealt, dealt, dealt * DEALT_BYTE_S),
    )


def _multiplications(stage: Stage, model: Sequential, batch: int) -> int:
    """Products of two secrets, counted once per layer: on the stage that holds its last weight."""
    number = stage.name.split()[0]
    if not stage.tensors() or not number.isdigit() or stage.name.endswith(" right") or " block " in stage.name:
        return 0
    index = int(number)
    return batch * model.layers[index].multiplications(model.shapes[index])


def ot_traffic(chosen: CompiledNetwork, rows: int = 1) -> Traffic:
    """What two parties without a dealer say to each other to make the material of so many rows."""
    return traffic(plan_inference(chosen).material, rows, {MODEL: plan_weights(chosen)})


def total(layers: list[LayerEstimate]) -> LayerEstimate:
    """The sum over all layers."""
    online = sum((layer.online for layer in layers), Amount())
    offline = sum((layer.offline for layer in layers), Amount())
    return LayerEstimate("total", sum(layer.multiplications for layer in layers), online, offline)


def dense_twin(model: Sequential) -> Sequential:
    """The same network with every structured layer dense."""

    def densified(layer: Layer) -> Layer:
        if isinstance(layer, nn.HadamardDiagonal | nn.PHD | nn.Circulant | nn.LowRank):
            return nn.Dense(layer.in_features, layer.out_features)
        return layer

    return Sequential([densified(layer) for layer in model.layers], input_shape=model.input_shape)
