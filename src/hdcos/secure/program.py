"""The programs that two parties run: open the weights once, then infer, batch after batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hdcos.offline import Mask
from hdcos.protocol.masked import Masked
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds, named, together
from hdcos.ring import Array
from hdcos.secure.layout import CompiledNetwork
from hdcos.secure.stages import Parameters, Value, as_share
from hdcos.sharing import Share


def open_weights(party: Party, layout: CompiledNetwork, shares: Mapping[str, Share], scope: str) -> Rounds[Parameters]:
    """Every weight opened under a mask of its own, all in one round; biases stay shares.

    Once per version of a model: the masks belong to the model's scope and mask nothing else. A changed weight
    needs a new scope.
    """
    weights = [tensor for tensor in layout.tensors if tensor.masked]
    opened = yield from together(
        *(open_masked(party, shares[tensor.name], 0, tensor.bits, whole=True) for tensor in weights)
    )
    return Parameters(
        {tensor.name: value.of_scope(scope) for tensor, value in zip(weights, opened, strict=True)},
        {tensor.name: shares[tensor.name] for tensor in layout.tensors if not tensor.masked},
    )


PIECE_ROWS = 256
"""A larger batch is computed in pieces of this many rows that share their rounds: each stays in the caches."""


def pieces(rows: int) -> list[int]:
    """The sizes of a batch's pieces, the same at both parties."""
    return [min(PIECE_ROWS, rows - start) for start in range(0, rows, PIECE_ROWS)]


def infer_pieces(
    parties: Sequence[Party], layout: CompiledNetwork, parameters: Parameters, values: Sequence[Share | Array]
) -> Rounds[Share]:
    """A batch in pieces, each with its own material, all in the same rounds."""
    results = yield from together(
        *(infer(party, layout, parameters, value) for party, value in zip(parties, values, strict=True))
    )
    if len(results) == 1:
        only: Share = results[0]
        return only
    return Share(np.concatenate([share.words for share in results]), results[0].scale, results[0].bits)


def infer(party: Party, layout: CompiledNetwork, parameters: Parameters, x: Share | Array) -> Rounds[Share]:
    """The network's output for rows that arrive as shares (one round more), or as D = x + m from their owner.

    Either way the input's mask is the first material taken. An owner who masks its rows was given both shares
    of exactly that mask, once, and sent the same D to both parties.
    """
    value: Value
    if isinstance(x, Share):
        value = yield from named("input", open_masked(party, x, 0, layout.input_bits))
    else:
        reference = party.next_reference()
        (mask,) = party.take(Mask(tuple(x.shape[1:]), layout.input_bits), x.shape[0])
        value = Masked(x, Share(mask.astype(np.uint64), layout.input_scale, layout.input_bits), reference)
    for stage in layout.stages:
        value = yield from named(stage.name, stage.run(party, value, parameters))
    return as_share(party, value)
