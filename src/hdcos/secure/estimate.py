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
from hdcos.nn.network import Network
from hdcos.offline import Plan
from hdcos.offline.ot import Traffic, traffic
from hdcos.protocol.plan import Planner, blank_share
from hdcos.protocol.rounds import together
from hdcos.ring import Blank
from hdcos.secure.calibrate import compare_by
from hdcos.secure.compile import PHASE_BITS, CompiledNetwork, compile_network
from hdcos.secure.program import MODEL, blank_parameters, mask_input, pieces, plan_inference, plan_weights
from hdcos.secure.stages import Stage, run_stage
from hdcos.secure.wiring import Values

ROUND_S = 150e-6
"""One exchange of little between two processes on one machine, with the work around it."""
WIRE_BYTE_S = 1.5e-9
OPENED_S = 4e-9
"""Local work per opened value: rounding, tables, transforms."""
MULTIPLY_S = 0.06e-9
DEALT_BYTE_S = 2.6e-9
"""Making, sending, unpacking and precomputing material, per byte dealt."""


@dataclass(frozen=True)
class Cost:
    """One phase: rounds, payload and wire bytes (online each way, offline from the dealer to both), seconds."""

    rounds: int = 0
    bytes_sent: int = 0
    wire_bytes_sent: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


@dataclass(frozen=True)
class LayerCost:
    """What one step of a network costs for a batch."""

    name: str
    multiplications: int
    online: Cost
    offline: Cost


def estimate(
    model: Network,
    batch: int = 1,
    phase_bits: int = PHASE_BITS,
    network: Emulation | None = None,
    *,
    masked: bool = True,
    compare: str | None = None,
) -> list[LayerCost]:
    """The cost of each step of a batch, in the order in which they run; steps without cost are left out.

    With `compare` all layers that compare do it by "tables" or by "dcf".
    """
    model = compare_by(model, compare)
    chosen, link = compile_network(model, phase_bits), network or Emulation()
    parameters = blank_parameters(chosen)
    planner = Planner()
    shapes = [(size, *chosen.input_shape) for size in pieces(batch)]
    rows = [Blank(shape) if masked else blank_share(shape, chosen.input_scale) for shape in shapes]
    values = planner.drive(together(*(mask_input(planner.party, chosen, x) for x in rows)))  # type: ignore[arg-type]
    made = [] if masked else [_layer_cost("input", 0, planner, (0, 0), link)]
    known = Values(len(chosen.stages), chosen.reads, values)
    for index, stage in enumerate(chosen.stages):
        before = (len(planner.frames), len(planner.needs))
        parts = zip(*known.read(index), strict=True)
        made_values = planner.drive(together(*(run_stage(planner.party, stage, part, parameters) for part in parts)))
        known.keep(index, made_values)
        cost = _layer_cost(stage.name, _multiplications(stage, model, batch), planner, before, link)
        if cost.online.seconds or cost.offline.bytes_sent or cost.multiplications:
            made.append(cost)
    return made


def _layer_cost(
    name: str, multiplications: int, planner: Planner, before: tuple[int, int], network: Emulation
) -> LayerCost:
    """What the planner wrote down since it had these numbers of frames and needs."""
    frames, needs = planner.frames[before[0] :], planner.needs[before[1] :]
    opened = sum(item.size * need.units for need in needs for item in need.kind.uniform())
    wire = sum(wire_bytes(size) for size in frames)
    seconds = sum(max(ROUND_S, network.seconds(wire_bytes(size))) + size * WIRE_BYTE_S for size in frames)
    seconds += opened * OPENED_S + multiplications * MULTIPLY_S
    dealt = sum(Plan(tuple(needs)).packed_bytes(1, rank) for rank in (0, 1))
    online = Cost(len(frames), sum(frames), wire, seconds)
    return LayerCost(name, multiplications, online, Cost(0, dealt, dealt, dealt * DEALT_BYTE_S))


def _multiplications(stage: Stage, model: Network, batch: int) -> int:
    """Products of two secrets, counted once per layer: on the stage that holds its last weight."""
    number = stage.name.split()[0]
    if not stage.tensors() or not number.isdigit() or stage.name.endswith(" right") or " block " in stage.name:
        return 0
    index = int(number)
    return batch * model.layers[index].multiplications(model.shape_before(index))


def total(layers: list[LayerCost]) -> LayerCost:
    """The sum over all layers."""
    online = sum((layer.online for layer in layers), Cost())
    offline = sum((layer.offline for layer in layers), Cost())
    return LayerCost("total", sum(layer.multiplications for layer in layers), online, offline)


def ot_traffic(chosen: CompiledNetwork, rows: int = 1) -> Traffic:
    """What two parties without a dealer say to each other to make the material of some rows."""
    return traffic(plan_inference(chosen).material, rows, {MODEL: plan_weights(chosen)})


def densify(model: Network) -> Network:
    """The same network with every structured layer dense."""

    def dense(layer: Layer) -> Layer:
        if isinstance(layer, nn.HadamardDiagonal | nn.PHD | nn.Circulant | nn.LowRank):
            return nn.Dense(layer.in_features, layer.out_features)
        return layer

    return Network.from_architecture(
        {**model.architecture(), "layers": [dense(layer).to_json() for layer in model.layers]}
    )
