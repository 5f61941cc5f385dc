"""The secure path in one process: what a network gives on shares, for choosing bits. No secrets, no network.

It runs the protocols themselves on real shares and dealt material, so every rounding is the real one.
"""

from __future__ import annotations

import secrets

import numpy as np

from hdcos.nn.sequential import Sequential
from hdcos.offline import Dealer
from hdcos.protocol.party import Party
from hdcos.protocol.plan import plan
from hdcos.ring import Array, decode, encode, modulo
from hdcos.secure.answers import answer
from hdcos.secure.compile import PHASE_BITS, CompiledNetwork, compile_network
from hdcos.secure.program import infer, open_weights
from hdcos.secure.stages import Parameters
from hdcos.sharing import Share, join
from hdcos.testing.pair import Transcript, deal, drive_pair, share_pair


def simulate_private(model: Sequential, x: Array, phase_bits: int = PHASE_BITS, *, masked: bool = True) -> Array:
    """The outputs that two parties would give for rows x."""
    outputs, _ = simulate_transcript(model, x, phase_bits, masked=masked)
    return outputs


def simulate_transcript(
    model: Sequential, x: Array, phase_bits: int = PHASE_BITS, *, masked: bool = True
) -> tuple[Array, Transcript]:
    """The outputs and everything the parties said to each other for these rows."""
    chosen = compile_network(model, phase_bits)
    dealer, scope = Dealer(), f"model {secrets.token_hex(8)}"
    parameters = _load(model, chosen, dealer, scope)
    rows = chosen.apply_front(np.asarray(x, np.float64))
    words = encode(rows, chosen.input_scale)
    pair = share_pair(words, chosen.input_scale)

    def program(party: Party, rank: int, value: Share | Array):  # type: ignore[no-untyped-def]
        return (yield from infer(party, chosen, parameters[rank], value))

    planned = [plan(program, rank, pair[rank] if not masked else words, rank=rank) for rank in (0, 1)]
    rations = deal(planned[0].material, dealer, f"{scope} rows", [each.precompute for each in planned])
    values: list[Share | Array] = list(pair)
    if masked:
        # The owner of the rows was given both shares of the input's mask, the first material of the plan.
        mask = sum(ration.peek(0)[0].astype(np.uint64) for ration in rations)
        opened = modulo(words + mask, chosen.input_bits)
        values = [opened, opened]
    protocols = [program(Party(rank, rations[rank]), rank, values[rank]) for rank in (0, 1)]
    (share0, share1), transcript = drive_pair(protocols[0], protocols[1])
    for ration in rations:
        ration.finish()
    (scale, bits, words0), (_, _, words1) = (answer(half, rank) for rank, half in enumerate((share0, share1)))
    result = decode(join(words0, words1, bits), scale, bits) * chosen.output_gain
    return result.reshape(len(rows), *chosen.output_shape), transcript


def _load(model: Sequential, chosen: CompiledNetwork, dealer: Dealer, scope: str) -> list[Parameters]:
    """Share a model's parameters and open its weights."""
    state = model.state()
    pairs = {tensor.name: share_pair(tensor.words(state[tensor.name]), tensor.scale) for tensor in chosen.tensors}
    shares = [{name: pair[rank] for name, pair in pairs.items()} for rank in (0, 1)]
    material = plan(open_weights, chosen, shares[0], scope).material
    rations = deal(material, dealer, scope)
    protocols = [open_weights(Party(rank, rations[rank]), chosen, shares[rank], scope) for rank in (0, 1)]
    loaded, _ = drive_pair(protocols[0], protocols[1])
    return list(loaded)
