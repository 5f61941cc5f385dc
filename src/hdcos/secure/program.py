"""The programs that two parties run: open the weights once, then infer, batch after batch; and their plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hdcos.offline import Mask, Need, Plan, Reference
from hdcos.protocol.masked import Masked
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.protocol.rounds import Rounds, named, together
from hdcos.ring import Array, Blank
from hdcos.secure.compile import CompiledNetwork
from hdcos.secure.stages import Parameters, Value, as_share, run_stage
from hdcos.secure.wiring import Values
from hdcos.sharing import Share


def open_weights(party: Party, network: CompiledNetwork, shares: Mapping[str, Share], scope: str) -> Rounds[Parameters]:
    """Every weight opened under a mask of its own, all in one round; biases stay shares.

    Once per version of a model: the masks belong to the model's scope and mask nothing else. A changed weight
    needs a new scope.
    """
    weights = [tensor for tensor in network.tensors if tensor.masked]
    opened = yield from together(
        *(open_masked(party, shares[tensor.name], 0, tensor.bits, whole=True) for tensor in weights)
    )
    return Parameters(
        {tensor.name: value.of_scope(scope) for tensor, value in zip(weights, opened, strict=True)},
        {tensor.name: shares[tensor.name] for tensor in network.tensors if not tensor.masked},
    )


PIECE_ROWS = 256
"""A larger batch is computed in pieces of this many rows that share their rounds: each stays in the caches."""


def pieces(rows: int) -> list[int]:
    """The sizes of a batch's pieces, the same at both parties."""
    return [min(PIECE_ROWS, rows - start) for start in range(0, rows, PIECE_ROWS)]


def join_pieces(programs: Sequence[Rounds[Share]]) -> Rounds[Share]:
    """The pieces of a batch, each with its own material, in the same rounds; their results one after another."""
    results = yield from together(*programs)
    if len(results) == 1:
        only: Share = results[0]
        return only
    return Share(np.concatenate([share.words for share in results]), results[0].scale, results[0].bits)


def infer(party: Party, network: CompiledNetwork, parameters: Parameters, x: Share | Array) -> Rounds[Share]:
    """The network's output for rows that arrive as shares (one round more), or as D = x + m from their owner.

    Either way the input's mask is the first material taken. An owner who masks its rows was given both shares
    of exactly that mask, once, and sent the same D to both parties.
    """
    value: Value = yield from named("input", mask_input(party, network, x))
    values = Values(len(network.stages), network.reads, value)
    del value
    for index, stage in enumerate(network.stages):
        read = values.read(index)
        values.keep(index, (yield from named(stage.name, run_stage(party, stage, read, parameters))))
    return as_share(party, values.newest)


def mask_input(party: Party, network: CompiledNetwork, x: Share | Array) -> Rounds[Masked]:
    """The rows under their mask: opened, or as they came."""
    if isinstance(x, Share):
        return (yield from open_masked(party, x, 0, network.input_bits))
    reference = party.next_reference()
    (mask,) = party.take(Mask(tuple(x.shape[1:]), network.input_bits), x.shape[0])
    return Masked(x, Share(mask.astype(np.uint64, copy=False), network.input_scale, network.input_bits), reference)


MODEL = "model"
"""The scope of the weights' masks in a plan."""


def plan_inference(network: CompiledNetwork) -> Planned:
    """Drive a network over the shapes of one row: whatever cannot run raises its error here."""
    return plan(infer, network, blank_parameters(network), Blank((1, *network.input_shape)))


def plan_weights(network: CompiledNetwork) -> Plan:
    """The masks of a model's weights, at the positions that `plan_inference` refers to."""
    return Plan(tuple(Need(Mask(tensor.shape, tensor.bits), 1) for tensor in network.tensors))


def blank_parameters(network: CompiledNetwork) -> Parameters:
    """The parameters as shapes."""
    weights, biases = {}, {}
    for position, tensor in enumerate(network.tensors):
        share = blank_share(tensor.shape, tensor.scale, tensor.bits)
        if tensor.masked:
            weights[tensor.name] = Masked(share.words, share, Reference(position, MODEL, whole=True))
        else:
            biases[tensor.name] = share
    return Parameters(weights, biases)
